//! Pairing codes; expired ones stay until they are purged.

use chrono::Duration;

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        pairing_requests,
        schema::{pairing_codes, users},
    },
    domain::{
        ids::{ServerId, UserId},
        pairing::{LIFETIME, PairingCode, pushed_out},
        time::Timestamp,
    },
};

/// Draws before giving up: with a hundred thousand live codes, all of them fail once in 10²⁰ times.
const DRAWS: usize = 20;

/// The user of a pairing code, and what the device that enters it may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodePurpose {
    pub user: UserId,
    pub label: Option<String>,
    /// An overlay of this server; `None`: a helper.
    pub overlay: Option<ServerId>,
    /// The keys of the state that the overlay shows, as text; `None`: all.
    pub sections: Option<String>,
}

/// Adds a code for this user that no live code equals; the user's oldest ones are deleted to make room. `Unavailable`
/// when `draw` returns only live ones. `network` is that of the session that asks for it.
///
/// Call it in a transaction ([`Pool::write`](crate::db::engine::pool::Pool::write)).
pub fn issue(
    db: &mut Db,
    purpose: &CodePurpose,
    network: &str,
    mut draw: impl FnMut() -> PairingCode,
    now: Timestamp,
) -> Result<PairingCode, DbError> {
    let CodePurpose { user, label, overlay, sections } = purpose;
    purge(db, now)?;
    // Locks the user's row: two requests at once could otherwise both see room.
    diesel::update(users::table.find(user.as_str())).set(users::id.eq(users::id)).execute(db)?;
    let active: Vec<(String, Timestamp)> = pairing_codes::table
        .filter(pairing_codes::user_id.eq(user.as_str()))
        .order(pairing_codes::created_at)
        .select((pairing_codes::code, pairing_codes::created_at))
        .load(db)?;
    for (code, _) in pushed_out(&active) {
        diesel::delete(pairing_codes::table.find(code)).execute(db)?;
    }
    // No two of a user are equally old, so that there is always an oldest one.
    let newest = active.into_iter().last().map(|(_, at)| at + Duration::microseconds(1));
    let created_at = newest.map_or(now, |after| after.max(now));
    for _ in 0..DRAWS {
        let code = draw();
        let row = (
            pairing_codes::code.eq(code.as_str()),
            pairing_codes::user_id.eq(user.as_str()),
            pairing_codes::label.eq(label),
            pairing_codes::created_at.eq(created_at),
            pairing_codes::expires_at.eq(now + LIFETIME),
            pairing_codes::server_id.eq(overlay.as_ref().map(ServerId::as_str)),
            pairing_codes::sections.eq(sections.as_ref()),
            pairing_codes::issued_from.eq(network),
        );
        let insert = diesel::insert_into(pairing_codes::table).values(row).on_conflict_do_nothing();
        if on_backend!(db, |db| insert.execute(db))? == 1 {
            return Ok(code);
        }
    }
    Err(DbError::Unavailable("no free pairing code was found".to_owned()))
}

/// A live code, as a network sees it that has typed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypedCode {
    /// The code was issued to a session in this network.
    pub at_home: bool,
    /// Its user has confirmed this network.
    pub confirmed: bool,
}

/// The code, unless it was used or has expired.
pub fn find(db: &mut Db, code: &PairingCode, network: &str, now: Timestamp) -> Result<Option<TypedCode>, DbError> {
    let live = pairing_codes::table.find(code.as_str()).filter(pairing_codes::expires_at.gt(now));
    let issued_from: Option<Option<String>> = live.select(pairing_codes::issued_from).first(db).optional()?;
    let Some(issued_from) = issued_from else { return Ok(None) };
    let at_home = issued_from.as_deref() == Some(network);
    Ok(Some(TypedCode { at_home, confirmed: pairing_requests::is_confirmed(db, code, network)? }))
}

/// User, label, server and sections.
type PurposeRow = (String, Option<String>, Option<String>, Option<String>);

/// Deletes the code and returns what it was issued for; `None` when it was used or has expired.
pub fn take(db: &mut Db, code: &PairingCode, now: Timestamp) -> Result<Option<CodePurpose>, DbError> {
    let code = pairing_codes::table.find(code.as_str()).filter(pairing_codes::expires_at.gt(now));
    let purpose = (pairing_codes::user_id, pairing_codes::label, pairing_codes::server_id, pairing_codes::sections);
    let taken: Option<PurposeRow> = diesel::delete(code).returning(purpose).get_result(db).optional()?;
    Ok(taken.map(|(user, label, server, sections)| {
        let overlay = server.map(ServerId::from);
        CodePurpose { user: user.into(), label, overlay, sections }
    }))
}

/// Deletes a batch of the codes that have expired; returns how many.
pub fn purge(db: &mut Db, now: Timestamp) -> Result<usize, DbError> {
    Ok(purge_oldest!(db, pairing_codes, expires_at, now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::{
        engine::pool::Pool,
        testing::{self, later, now},
    };

    fn code(number: u8) -> PairingCode {
        PairingCode::new("LINK", [0, 0, 0, number])
    }

    fn issue_drawing(pool: &Pool, user: &str, drawn: &[u8], at: Timestamp) -> Result<PairingCode, DbError> {
        let mut drawn = drawn.iter().copied().cycle().map(code);
        let purpose = CodePurpose { user: user.into(), label: Some("PC".into()), overlay: None, sections: None };
        pool.write_blocking(|db| issue(db, &purpose, "192.0.2.1", || drawn.next().unwrap(), at))
    }

    fn take_at(pool: &Pool, number: u8, at: Timestamp) -> Option<String> {
        let taken = pool.write_blocking(|db| take(db, &code(number), at)).unwrap();
        taken.map(|taken| {
            assert_eq!((taken.label.as_deref(), taken.overlay), (Some("PC"), None));
            taken.user.to_string()
        })
    }

    #[test]
    fn a_code_works_once_and_for_ten_minutes() {
        testing::on_each_database(|pool| {
            testing::user(pool, "user");
            for number in [1, 2] {
                assert_eq!(issue_drawing(pool, "user", &[number], now()).unwrap(), code(number));
            }
            assert_eq!(take_at(pool, 1, later(599)).as_deref(), Some("user"));
            assert_eq!(take_at(pool, 1, later(599)), None);
            assert_eq!(take_at(pool, 2, later(600)), None);
            assert_eq!(pool.write_blocking(|db| purge(db, later(599))).unwrap(), 0);
            assert_eq!(pool.write_blocking(|db| purge(db, later(600))).unwrap(), 1);
        });
    }

    #[test]
    fn the_fourth_code_invalidates_the_oldest_also_within_one_instant() {
        testing::on_each_database(|pool| {
            testing::user(pool, "user");
            testing::user(pool, "other");
            issue_drawing(pool, "other", &[9], now()).unwrap();
            for number in [4, 3, 2, 1] {
                issue_drawing(pool, "user", &[number], now()).unwrap();
            }
            assert_eq!(take_at(pool, 4, now()), None);
            for number in [3, 2, 1] {
                assert_eq!(take_at(pool, number, now()).as_deref(), Some("user"), "{number}");
            }
            assert_eq!(take_at(pool, 9, now()).as_deref(), Some("other"));
        });
    }

    #[test]
    fn the_code_of_an_overlay_ends_with_its_server() {
        testing::on_each_database(|pool| {
            testing::user(pool, "user");
            let server = testing::server(pool, "user", "server").id;
            let purpose =
                CodePurpose { user: "user".into(), label: None, overlay: Some(server.clone()), sections: None };
            for number in [1, 2] {
                pool.write_blocking(|db| issue(db, &purpose, "192.0.2.1", || code(number), now())).unwrap();
            }
            let take = |number| pool.write_blocking(|db| take(db, &code(number), now())).unwrap();
            assert_eq!(take(1), Some(purpose.clone()));
            pool.write_blocking(|db| crate::db::paired_servers::delete(db, &"user".into(), &server)).unwrap();
            assert_eq!(take(2), None);
        });
    }

    #[test]
    fn a_live_code_is_not_issued_again_and_an_expired_one_is() {
        testing::on_each_database(|pool| {
            testing::user(pool, "user");
            testing::user(pool, "other");
            issue_drawing(pool, "user", &[1], now()).unwrap();
            assert_eq!(issue_drawing(pool, "other", &[1, 1, 2], now()).unwrap(), code(2));
            assert!(matches!(issue_drawing(pool, "other", &[1], now()), Err(DbError::Unavailable(_))));
            assert_eq!(issue_drawing(pool, "other", &[1], later(600)).unwrap(), code(1));
            assert_eq!(take_at(pool, 1, later(600)).as_deref(), Some("other"));
        });
    }

    #[test]
    fn codes_issued_at_once_leave_three() {
        testing::on_each_database(|pool| {
            testing::user(pool, "user");
            std::thread::scope(|scope| {
                for number in 0..8 {
                    scope.spawn(move || issue_drawing(pool, "user", &[number], now()).unwrap());
                }
            });
            let good = (0..8).filter(|&number| take_at(pool, number, now()).is_some()).count();
            assert_eq!(good, 3);
        });
    }
}
