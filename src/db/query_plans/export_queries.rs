//! Queries of the export of what is stored about a user.

use super::{
    fill, is_scan,
    statement_plans::{plan, prepare_plans, statements},
};
use crate::{
    db::{
        engine::pool::Db,
        personal_data::{PERSONAL_DATA, PersonalRows},
        testing::{self, now},
        users,
    },
    domain::ids::UserId,
};

/// Lists that grow for months: a page of them is found in the order of an index, and not sorted. SQLite says so of empty
/// tables, PostgreSQL does not.
const LONG: [&str; 11] = [
    "activeDays",
    "notices",
    "deliveries",
    "receivedPushes",
    "failedPushes",
    "trackedSessions",
    "alarms",
    "incidents",
    "acknowledgements",
    "timeline",
    "chatLines",
];

/// The statements of a list: for its first page, and for one that goes on.
fn pages(db: &mut Db, rows: &PersonalRows, user: &UserId) -> Vec<String> {
    let user = users::sign_in(db, user, &user.as_str().into(), None, now()).unwrap();
    let places = rows.places(db, &user).unwrap();
    assert!(!places.is_empty(), "{} is of no one", rows.name);
    let mut statements = statements(db, |db| {
        for place in std::iter::once(None).chain(places.iter().map(Some)) {
            rows.read(db, &user, place).unwrap();
        }
    });
    statements.retain(|statement| statement.contains("json_object(") || statement.contains("json_build_object("));
    assert!(statements.iter().any(|statement| statement.contains(") > (")), "{}: {statements:?}", rows.name);
    statements
}

#[test]
fn a_page_of_the_export_goes_on_after_a_key_and_reads_nothing_before_it() {
    for name in LONG {
        assert!(PERSONAL_DATA.iter().any(|rows| rows.name == name), "{name}");
    }
    testing::on_each_database(|pool| {
        fill(pool);
        pool.write_blocking(|db| {
            prepare_plans(db);
            for rows in &PERSONAL_DATA {
                for statement in pages(db, rows, &"user".into()) {
                    assert!(!statement.to_uppercase().contains("OFFSET"), "{statement}");
                    let plan = plan(db, &statement);
                    let sorts = |step: &String| LONG.contains(&rows.name) && step.contains("TEMP B-TREE");
                    let is_slow = |step: &String| is_scan(step) || sorts(step);
                    assert!(!plan.is_empty() && !plan.iter().any(is_slow), "{statement}\n{}", plan.join("\n"));
                }
            }
            Ok(())
        })
        .unwrap();
    });
}
