//! Rules of a user for the alarms of a paired server, as JSON.

use std::collections::{BTreeSet, HashMap};

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        notices::channels::{self, StoredChannel},
        schema::{alarm_rules, paired_servers},
    },
    domain::{
        access::Role,
        channels::escalation::{AlarmRules, EscalationStep},
        ids::{ServerId, UserId},
        world_event::EventKind,
    },
};

/// The rules of a user for a server.
#[derive(Queryable, Selectable)]
#[diesel(table_name = alarm_rules)]
pub(in crate::db) struct RulesRow {
    rules: String,
}

impl RulesRow {
    /// Fails if they cannot be read: alarms are sent as without rules then.
    pub(in crate::db) fn check(&self) -> Result<(), DbError> {
        read(&self.rules).map(drop)
    }
}

fn read(rules: &str) -> Result<AlarmRules, DbError> {
    serde_json::from_str(rules).map_err(|_| DbError::malformed("rules"))
}

/// The user's rules for this server; the default where there are none.
pub fn get(db: &mut Db, server: &ServerId, user: &UserId) -> Result<AlarmRules, DbError> {
    let row = alarm_rules::table.find((server.as_str(), user.as_str()));
    let stored: Option<String> = row.select(alarm_rules::rules).first(db).optional()?;
    match stored {
        None => Ok(AlarmRules::default()),
        Some(rules) => read(&rules),
    }
}

/// The steps by which the rules of a user of this role for this server send raids, by these channels of theirs.
pub fn raid_plan(
    db: &mut Db,
    server: &ServerId,
    (user, role): (&UserId, Role),
    channels: &[StoredChannel],
) -> Result<Vec<EscalationStep>, DbError> {
    let mut usable = channels::usable(channels)?;
    usable.retain(|(_, kind)| kind.serves(role));
    Ok(get(db, server, user)?.plan(EventKind::Raid, &usable))
}

/// Rules by server and user; an `Err` cannot be read.
pub type StoredRules = HashMap<(String, String), Result<AlarmRules, serde_json::Error>>;

/// The rules of these users for these servers, by server and user. A user without rules is absent, and has the
/// default.
pub fn of(db: &mut Db, servers: &BTreeSet<String>, users: &BTreeSet<String>) -> Result<StoredRules, DbError> {
    let rows: Vec<(String, String, String)> = alarm_rules::table
        .filter(alarm_rules::server_id.eq_any(servers))
        .select((alarm_rules::server_id, alarm_rules::user_id, alarm_rules::rules))
        .load(db)?;
    // Two lists in one statement would be looked up in each combination.
    let wanted = rows.into_iter().filter(|(_, user, _)| users.contains(user));
    Ok(wanted.map(|(server, user, rules)| ((server, user), serde_json::from_str(&rules))).collect())
}

/// The users whose rules for this server send events of this kind. Rules that cannot be read send none.
pub fn wanting(db: &mut Db, server: &ServerId, kind: EventKind) -> Result<Vec<UserId>, DbError> {
    let rows: Vec<(String, String)> = alarm_rules::table
        .filter(alarm_rules::server_id.eq(server.as_str()))
        .select((alarm_rules::user_id, alarm_rules::rules))
        .load(db)?;
    let sends = |rules: &str| serde_json::from_str::<AlarmRules>(rules).is_ok_and(|rules| rules.sends(kind));
    Ok(rows.into_iter().filter(|(_, rules)| sends(rules)).map(|(user, _)| user.into()).collect())
}

/// True if a user has rules of their own for a server that is paired with the game server at this address.
pub fn are_any_at(db: &mut Db, address: &str, port: u16) -> Result<bool, DbError> {
    let paired: Vec<String> = paired_servers::table
        .filter(paired_servers::address.eq(address))
        .filter(paired_servers::port.eq(i32::from(port)))
        .select(paired_servers::id)
        .load(db)?;
    if paired.is_empty() {
        return Ok(false);
    }
    let rules = alarm_rules::table.filter(alarm_rules::server_id.eq_any(paired)).select(alarm_rules::server_id);
    Ok(rules.first::<String>(db).optional()?.is_some())
}

/// Stores the user's rules for this server.
pub fn put(db: &mut Db, server: &ServerId, user: &UserId, rules: &AlarmRules) -> Result<(), DbError> {
    let rules = serde_json::to_string(rules).expect("rules are plain data");
    let of = (alarm_rules::server_id.eq(server.as_str()), alarm_rules::user_id.eq(user.as_str()));
    let put = diesel::insert_into(alarm_rules::table)
        .values((of, alarm_rules::rules.eq(&rules)))
        .on_conflict((alarm_rules::server_id, alarm_rules::user_id))
        .do_update()
        .set(alarm_rules::rules.eq(&rules));
    on_backend!(db, |db| put.execute(db))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing;

    #[test]
    fn rules_are_of_a_user_and_a_server() {
        testing::on_each_database(|pool| {
            testing::user(pool, "user");
            let server = testing::server(pool, "user", "one").id;
            let stored = |user: &str| pool.read_blocking(|db| get(db, &server, &user.into())).unwrap();
            assert_eq!(stored("user"), AlarmRules::default());
            for rounds in [1, 2] {
                let rules = AlarmRules { rounds, ..AlarmRules::default() };
                pool.write_blocking(|db| put(db, &server, &"user".into(), &rules)).unwrap();
                assert_eq!((stored("user"), stored("other")), (rules, AlarmRules::default()));
            }
            let wanting = |kind| pool.read_blocking(|db| wanting(db, &server, kind)).unwrap();
            assert_eq!((wanting(EventKind::Death), wanting(EventKind::Raid)), (vec![], vec!["user".into()]));
            let rules = AlarmRules { kinds: [EventKind::Death].into(), ..AlarmRules::default() };
            pool.write_blocking(|db| put(db, &server, &"user".into(), &rules)).unwrap();
            assert_eq!((wanting(EventKind::Death), wanting(EventKind::Raid)), (vec!["user".into()], vec![]));
            let (servers, users) = ([server.to_string()].into(), ["user".to_owned(), "other".to_owned()].into());
            let stored = pool.read_blocking(|db| of(db, &servers, &users)).unwrap();
            let stored: Vec<_> = stored.into_iter().map(|((_, user), rules)| (user, rules.unwrap())).collect();
            assert_eq!(stored, [("user".to_owned(), rules)]);
        });
    }
}
