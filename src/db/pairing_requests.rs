//! Devices that know a pairing code, in another network than it was issued in, and wait for its user to confirm them.
//! They end with their code.

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        schema::{pairing_codes, pairing_requests},
    },
    domain::{
        ids::UserId,
        pairing::{ConfirmationRequest, PairingCode, REQUESTS_PER_CODE},
        time::Timestamp,
    },
};

/// Id, label and expiry of its code, network, when it asked, and whether it was confirmed.
type RequestRow = (String, Option<String>, Timestamp, String, Timestamp, bool);

fn of_row((id, label, expires_at, network, requested_at, confirmed): RequestRow) -> ConfirmationRequest {
    ConfirmationRequest { id, label, network, requested_at, expires_at, confirmed }
}

/// Notes that a device in this network waits for a confirmation of this code, under the id that `new_id` makes. Returns the
/// user and the request if it is a new one; `None` if it waits already, or the code has ended. One too many takes the place
/// of the oldest that is not confirmed.
///
/// Call it in a transaction ([`Pool::write`](crate::db::engine::pool::Pool::write)).
pub fn ask(
    db: &mut Db,
    code: &PairingCode,
    network: &str,
    new_id: &str,
    now: Timestamp,
) -> Result<Option<(UserId, ConfirmationRequest)>, DbError> {
    // Locks the code: it neither ends meanwhile, nor is it asked for twice at once.
    let live = pairing_codes::table.find(code.as_str()).filter(pairing_codes::expires_at.gt(now));
    let live: Option<(String, Option<String>, Timestamp)> = diesel::update(live)
        .set(pairing_codes::code.eq(pairing_codes::code))
        .returning((pairing_codes::user_id, pairing_codes::label, pairing_codes::expires_at))
        .get_result(db)
        .optional()?;
    let Some((user, label, expires_at)) = live else { return Ok(None) };
    let of_code = pairing_requests::table.filter(pairing_requests::code.eq(code.as_str()));
    let waiting: Vec<(String, String, bool)> = of_code
        .order((pairing_requests::requested_at, pairing_requests::id))
        .select((pairing_requests::id, pairing_requests::network, pairing_requests::confirmed_at.is_not_null()))
        .load(db)?;
    if waiting.iter().any(|(_, other, _)| other == network) {
        return Ok(None);
    }
    if waiting.len() >= REQUESTS_PER_CODE {
        let Some((oldest, ..)) = waiting.iter().find(|(.., confirmed)| !confirmed) else { return Ok(None) };
        diesel::delete(pairing_requests::table.find(oldest)).execute(db)?;
    }
    diesel::insert_into(pairing_requests::table)
        .values((
            pairing_requests::id.eq(new_id),
            pairing_requests::code.eq(code.as_str()),
            pairing_requests::network.eq(network),
            pairing_requests::requested_at.eq(now),
        ))
        .execute(db)?;
    let (id, network, expires_at) = (new_id.to_owned(), network.to_owned(), expires_at);
    let request = ConfirmationRequest { id, label, network, requested_at: now, expires_at, confirmed: false };
    Ok(Some((UserId::from(user), request)))
}

/// The requests for the live codes of this user, oldest first.
pub fn list(db: &mut Db, user: &UserId, now: Timestamp) -> Result<Vec<ConfirmationRequest>, DbError> {
    let rows: Vec<RequestRow> = pairing_requests::table
        .inner_join(pairing_codes::table)
        .filter(pairing_codes::user_id.eq(user.as_str()))
        .filter(pairing_codes::expires_at.gt(now))
        .order((pairing_requests::requested_at, pairing_requests::id))
        .select((
            pairing_requests::id,
            pairing_codes::label,
            pairing_codes::expires_at,
            pairing_requests::network,
            pairing_requests::requested_at,
            pairing_requests::confirmed_at.is_not_null(),
        ))
        .load(db)?;
    Ok(rows.into_iter().map(of_row).collect())
}

/// Confirms a request of this user; false when there is none for a live code of theirs.
pub fn confirm(db: &mut Db, user: &UserId, id: &str, now: Timestamp) -> Result<bool, DbError> {
    let of_user = pairing_codes::table
        .filter(pairing_codes::user_id.eq(user.as_str()))
        .filter(pairing_codes::expires_at.gt(now))
        .select(pairing_codes::code);
    let request = pairing_requests::table.find(id).filter(pairing_requests::code.eq_any(of_user));
    Ok(diesel::update(request).set(pairing_requests::confirmed_at.eq(now)).execute(db)? == 1)
}

/// True when the user of this code has confirmed a device in this network.
pub fn is_confirmed(db: &mut Db, code: &PairingCode, network: &str) -> Result<bool, DbError> {
    let request = pairing_requests::table
        .filter(pairing_requests::code.eq(code.as_str()))
        .filter(pairing_requests::network.eq(network))
        .filter(pairing_requests::confirmed_at.is_not_null());
    let found: Option<String> = request.select(pairing_requests::id).first(db).optional()?;
    Ok(found.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::{
        engine::pool::Pool,
        pairing_codes::{self, CodePurpose, TypedCode},
        testing::{self, later, now},
    };

    fn code() -> PairingCode {
        PairingCode::new("LINK", [0, 0, 0, 1])
    }

    fn issue(pool: &Pool, user: &str) {
        let purpose = CodePurpose { user: user.into(), label: Some("PC".into()), overlay: None, sections: None };
        pool.write_blocking(|db| pairing_codes::issue(db, &purpose, "192.0.2.1", code, now())).unwrap();
    }

    fn ask_from(pool: &Pool, network: &str, at: Timestamp) -> Option<String> {
        let asked = pool.write_blocking(|db| ask(db, &code(), network, &format!("id {network}"), at)).unwrap();
        asked.map(|(user, request)| {
            assert_eq!((user.as_str(), request.network.as_str(), request.confirmed), ("user", network, false));
            request.id
        })
    }

    fn networks(pool: &Pool, user: &str) -> Vec<String> {
        let requests = pool.read_blocking(|db| list(db, &user.into(), now())).unwrap();
        requests.into_iter().map(|request| request.network).collect()
    }

    #[test]
    fn a_network_is_asked_for_once_and_confirmed_by_the_user_of_the_code_alone() {
        testing::on_each_database(|pool| {
            testing::user(pool, "user");
            testing::user(pool, "other");
            assert_eq!(ask_from(pool, "far", now()), None, "there is no such code");
            issue(pool, "user");
            let id = ask_from(pool, "far", now()).unwrap();
            assert_eq!(ask_from(pool, "far", later(1)), None);
            assert_eq!((networks(pool, "user"), networks(pool, "other")), (vec!["far".to_owned()], Vec::new()));
            let confirm_by = |user: &str, at| pool.write_blocking(|db| confirm(db, &user.into(), &id, at)).unwrap();
            let typed = |network| pool.read_blocking(|db| pairing_codes::find(db, &code(), network, now())).unwrap();
            assert!(!confirm_by("other", now()) && !confirm_by("user", later(600)));
            assert_eq!(typed("far"), Some(TypedCode { at_home: false, confirmed: false }));
            assert!(confirm_by("user", later(1)) && confirm_by("user", later(2)));
            assert_eq!(typed("far"), Some(TypedCode { at_home: false, confirmed: true }));
            assert_eq!(typed("192.0.2.1"), Some(TypedCode { at_home: true, confirmed: false }));
            assert_eq!(typed("near"), Some(TypedCode { at_home: false, confirmed: false }));
            pool.write_blocking(|db| pairing_codes::take(db, &code(), now())).unwrap().unwrap();
            assert!(networks(pool, "user").is_empty() && typed("far").is_none(), "it ends with its code");
        });
    }

    #[test]
    fn of_many_that_ask_the_newest_wait_and_a_confirmed_one_stays() {
        testing::on_each_database(|pool| {
            testing::user(pool, "user");
            issue(pool, "user");
            let first = ask_from(pool, "first", now()).unwrap();
            assert!(pool.write_blocking(|db| confirm(db, &"user".into(), &first, now())).unwrap());
            for number in 1..10 {
                ask_from(pool, &format!("net {number}"), later(number)).unwrap();
            }
            assert_eq!(networks(pool, "user"), ["first", "net 6", "net 7", "net 8", "net 9"]);
        });
    }
}
