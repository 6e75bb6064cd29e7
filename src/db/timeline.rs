//! Events, for users to look up later. World events belong to the game server and are stored once, however many have
//! paired it; the rest belongs to a paired server, or to a user. Raids are read from the ledger of incidents.

use serde_json::{Value, json};

use crate::{
    db::{
        alarms::{
            incidents::{self, StoredIncident},
            new_event_notices,
        },
        engine::{error::DbError, pool::Db, prelude::*},
        maps, markets, paired_servers,
        schema::{paired_servers as paired_servers_table, timeline},
    },
    domain::{
        ids::{GameServerId, ServerId, UserId},
        time::Timestamp,
        timeline::{Cursor, PUSHED_WITHIN, TimelineEntry, TimelineOwner, TimelinePage},
    },
};

/// Entries among which the other half of a death or login is looked for.
const NEAR: usize = 100;

#[derive(Queryable, Selectable)]
#[diesel(table_name = timeline)]
pub(in crate::db) struct TimelineRow {
    id: String,
    kind: String,
    action: String,
    ts: Timestamp,
    grid: String,
    x: Option<f64>,
    y: Option<f64>,
    title: String,
    data: String,
}

impl From<TimelineRow> for TimelineEntry {
    fn from(row: TimelineRow) -> Self {
        let TimelineRow { id, kind, action, ts, grid, x, y, title, data } = row;
        Self { id, kind, action, ts, grid, x, y, title, data: serde_json::from_str(&data).unwrap_or_default() }
    }
}

/// Adds an entry; one with a known id is there already. A death or a login that came as a push is one entry with what
/// the link saw of it, whichever is first. Call it in a transaction.
pub fn insert(db: &mut Db, owner: &TimelineOwner, entry: &TimelineEntry) -> Result<(), DbError> {
    let (TimelineOwner::Server(server), Some((_, at))) = (owner, entry.happened()) else {
        return put_new(db, owner, entry);
    };
    if let Db::Pg(db) = db {
        // Both may come at the same time: the second of them sees the first.
        paired_servers_table::table.find(server.as_str()).select(paired_servers_table::id).for_update().execute(db)?;
    }
    let near = TimelinePage { since: Some(at - PUSHED_WITHIN), before: None, kinds: None, limit: NEAR };
    let near = of(db, owner, Some(&entry.kind), &near)?;
    match near.iter().find_map(|known| Some((known, known.joined(entry)?))) {
        Some((known, joined)) => {
            delete(db, &known.id)?;
            put(db, owner, &joined).map(drop)
        }
        None => put_new(db, owner, entry),
    }
}

/// Adds an entry, and opens its notices if it was not there.
fn put_new(db: &mut Db, owner: &TimelineOwner, entry: &TimelineEntry) -> Result<(), DbError> {
    if put(db, owner, entry)? { new_event_notices::open(db, owner, entry) } else { Ok(()) }
}

fn delete(db: &mut Db, id: &str) -> Result<(), DbError> {
    let delete = diesel::delete(timeline::table.find(id));
    on_backend!(db, |db| delete.execute(db))?;
    Ok(())
}

/// Adds an entry; false if it was there.
fn put(db: &mut Db, owner: &TimelineOwner, entry: &TimelineEntry) -> Result<bool, DbError> {
    let (game_server, server, user) = match owner {
        TimelineOwner::GameServer(id) => (Some(id.as_str()), None, None),
        TimelineOwner::Server(id) => (None, Some(id.as_str()), None),
        TimelineOwner::User(id) => (None, None, Some(id.as_str())),
    };
    let row = (
        (timeline::game_server_id.eq(game_server), timeline::server_id.eq(server), timeline::user_id.eq(user)),
        timeline::id.eq(&entry.id),
        timeline::kind.eq(&entry.kind),
        timeline::action.eq(&entry.action),
        timeline::ts.eq(entry.ts),
        timeline::grid.eq(&entry.grid),
        timeline::x.eq(entry.x),
        timeline::y.eq(entry.y),
        timeline::title.eq(&entry.title),
        timeline::data.eq(serde_json::to_string(&entry.data).expect("a map of JSON")),
    );
    let insert = diesel::insert_into(timeline::table).values(row).on_conflict_do_nothing();
    Ok(on_backend!(db, |db| insert.execute(db))? == 1)
}

/// The entries of a paired server, newest first: its own, its raids, and those of its game server if its own link was up
/// since the wipe. `NotFound` if there is no such server.
pub fn list(db: &mut Db, server: &ServerId, page: &TimelinePage) -> Result<Vec<TimelineEntry>, DbError> {
    let paired = paired_servers::get(db, server)?;
    let game_server = GameServerId::at(&paired.address, paired.port);
    let latest = [markets::world(db, &game_server)?, maps::world(db, &paired.address, paired.port)?];
    let is_shared = latest.iter().all(|world| paired.shares(world.as_ref()));
    let of_world = is_shared.then_some(TimelineOwner::GameServer(game_server));
    let mut entries = Vec::new();
    for owner in [TimelineOwner::Server(server.clone())].into_iter().chain(of_world) {
        match &page.kinds {
            None => entries.extend(of(db, &owner, None, page)?),
            Some(kinds) => {
                for kind in kinds {
                    entries.extend(of(db, &owner, Some(kind), page)?);
                }
            }
        }
    }
    if page.kinds.as_ref().is_none_or(|kinds| kinds.iter().any(|kind| kind == "raid")) {
        entries.extend(incidents::raids(db, server, page)?.into_iter().map(of_raid));
    }
    entries.sort_unstable_by(|a, b| (b.ts, &b.id).cmp(&(a.ts, &a.id)));
    entries.truncate(page.limit);
    Ok(entries)
}

/// The entries of a user that are of no paired server, newest first.
pub fn list_of_user(db: &mut Db, user: &UserId, page: &TimelinePage) -> Result<Vec<TimelineEntry>, DbError> {
    of(db, &TimelineOwner::User(user.clone()), None, page)
}

fn of(
    db: &mut Db,
    owner: &TimelineOwner,
    kind: Option<&str>,
    page: &TimelinePage,
) -> Result<Vec<TimelineEntry>, DbError> {
    let mut query = timeline::table.into_boxed();
    query = match owner {
        TimelineOwner::GameServer(id) => query.filter(timeline::game_server_id.eq(id.as_str())),
        TimelineOwner::Server(id) => query.filter(timeline::server_id.eq(id.as_str())),
        TimelineOwner::User(id) => query.filter(timeline::user_id.eq(id.as_str())),
    };
    if let Some(kind) = kind {
        query = query.filter(timeline::kind.eq(kind));
    }
    if let Some(since) = page.since {
        query = query.filter(timeline::ts.ge(since));
    }
    if let Some(Cursor { ts, id }) = &page.before {
        // In a form that an index can serve.
        query = query.filter(timeline::ts.le(ts).and(timeline::ts.lt(ts).or(timeline::id.lt(id))));
    }
    let query = query.order((timeline::ts.desc(), timeline::id.desc())).limit(page.limit as i64);
    let rows: Vec<TimelineRow> = query.select(TimelineRow::as_select()).load(db)?;
    Ok(rows.into_iter().map(TimelineEntry::from).collect())
}

fn of_raid(raid: StoredIncident) -> TimelineEntry {
    let StoredIncident { id, incident, .. } = raid;
    let data = json!({
        "incident": id,
        "alarmId": incident.alarm_id,
        "alarmName": incident.alarm_name,
        "count": incident.count,
        "lastAt": incident.last_at.to_wire(),
        "endedAt": incident.ended_at.map(Timestamp::to_wire),
        "late": incident.late,
    });
    let Value::Object(data) = data else { unreachable!("it is an object") };
    TimelineEntry {
        id,
        kind: "raid".to_owned(),
        action: "alarm".to_owned(),
        ts: incident.first_at,
        title: format!("Alarm: {}", incident.alarm_name),
        grid: incident.place.grid,
        x: incident.place.x,
        y: incident.place.y,
        data,
    }
}

/// Deletes a batch of what happened until then; returns how many.
pub fn purge(db: &mut Db, until: Timestamp) -> Result<usize, DbError> {
    Ok(purge_oldest!(db, timeline, ts, until))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing::{self, later, timeline_entry};

    fn page() -> TimelinePage {
        TimelinePage { since: None, before: None, kinds: None, limit: 200 }
    }

    #[test]
    fn a_death_is_one_entry_whether_the_push_or_the_link_is_first() {
        testing::on_each_database(|pool| {
            testing::user(pool, "alice");
            let owner = TimelineOwner::Server(testing::server(pool, "alice", "a").id);
            let of_player = |id: &str, action: &str, seconds, data: Value| {
                let (action, Value::Object(data)) = (action.to_owned(), data) else { unreachable!("it is an object") };
                TimelineEntry { action, data, ..timeline_entry(id, "death", later(seconds)) }
            };
            let died = |id: &str, seconds| of_player(id, "died", seconds, json!({ "steamId": "1", "diedAt": null }));
            let pushed = |id: &str, by: &str, seconds| {
                of_player(id, "pushed", seconds, json!({ "steamId": "1", "by": by, "message": "" }))
            };
            let stored = [
                died("1", 0),
                pushed("2", "Bob", 10),
                pushed("3", "Carl", 2_000),
                died("4", 2_010),
                died("4", 2_010),
                pushed("5", "Dan", 4_000),
                died("6", 5_000),
            ];
            pool.write_blocking(|db| stored.iter().try_for_each(|entry| insert(db, &owner, entry))).unwrap();
            let known = pool.read_blocking(|db| list(db, &"a".into(), &page())).unwrap();
            let known: Vec<_> = known.iter().map(|entry| (entry.id.as_str(), entry.data.get("by"))).collect();
            let (bob, carl, dan) = (json!("Bob"), json!("Carl"), json!("Dan"));
            assert_eq!(known, [("6", None), ("5", Some(&dan)), ("4", Some(&carl)), ("1", Some(&bob))]);
        });
    }

    #[test]
    fn a_server_has_its_own_entries_and_those_of_its_game_server_and_each_once() {
        testing::on_each_database(|pool| {
            testing::user(pool, "alice");
            testing::user(pool, "bob");
            let alice = testing::server(pool, "alice", "a");
            testing::server(pool, "bob", "b");
            for server in ["a", "b"] {
                pool.write_blocking(|db| paired_servers::set_accepted(db, &server.into(), 0)).unwrap();
            }
            let game = TimelineOwner::GameServer(GameServerId::at(&alice.address, alice.port));
            let elsewhere = TimelineOwner::GameServer(GameServerId::at("192.0.2.9", 28082));
            let server = |id: &str| TimelineOwner::Server(id.into());
            let all = [
                (&game, "1", "cargo", 3),
                (&game, "1", "cargo", 3),
                (&game, "2", "heli", 1),
                (&server("a"), "3", "death", 2),
                (&server("b"), "4", "death", 2),
                (&elsewhere, "5", "cargo", 2),
                (&TimelineOwner::User("alice".into()), "6", "news", 2),
            ];
            for (owner, id, kind, at) in all {
                pool.write_blocking(|db| insert(db, owner, &timeline_entry(id, kind, later(at)))).unwrap();
            }
            let list = |server: &str, page: &TimelinePage| -> Vec<String> {
                let entries = pool.read_blocking(|db| list(db, &server.into(), page)).unwrap();
                entries.into_iter().map(|entry| entry.id).collect()
            };
            assert_eq!(list("a", &page()), ["1", "3", "2"]);
            assert_eq!(list("b", &page()), ["1", "4", "2"]);
            let kinds = Some(vec!["cargo".to_owned(), "death".to_owned()]);
            assert_eq!(list("a", &TimelinePage { kinds, ..page() }), ["1", "3"]);
            assert_eq!(list("a", &TimelinePage { since: Some(later(2)), ..page() }), ["1", "3"]);
            assert_eq!(list("a", &TimelinePage { limit: 1, ..page() }), ["1"]);
            let before = Some(Cursor { ts: later(2), id: "3".into() });
            assert_eq!(list("a", &TimelinePage { before, ..page() }), ["2"]);
            assert!(matches!(
                pool.read_blocking(|db| super::list(db, &"gone".into(), &page())),
                Err(DbError::NotFound)
            ));
        });
    }

    #[test]
    fn what_happened_at_the_game_server_is_shown_after_a_link_since_the_wipe_only() {
        testing::on_each_database(|pool| {
            testing::user(pool, "alice");
            let server = testing::server(pool, "alice", "a");
            let game = TimelineOwner::GameServer(GameServerId::at(&server.address, server.port));
            let map = testing::world_map(7, b"jpeg");
            type Step<'a> = &'a dyn Fn(&mut Db) -> Result<(), DbError>;
            let steps: [(&str, Step<'_>); 6] = [
                ("3", &|db| insert(db, &game, &timeline_entry("1", "cargo", later(1)))),
                ("13", &|db| paired_servers::set_accepted(db, &server.id, 0)),
                ("3", &|db| paired_servers::change_credentials(db, &server.id)),
                ("3", &|db| paired_servers::set_accepted(db, &server.id, 0)),
                ("13", &|db| paired_servers::set_accepted(db, &server.id, 1)),
                ("13", &|db| {
                    let own = (&map.world).into();
                    paired_servers::save_baseline(db, &server.id, &own, None).map(drop)
                }),
            ];
            let list = || {
                let entries = pool.read_blocking(|db| list(db, &server.id, &page())).unwrap();
                entries.into_iter().map(|entry| entry.id).collect::<String>()
            };
            let own = TimelineOwner::Server("a".into());
            pool.write_blocking(|db| insert(db, &own, &timeline_entry("3", "death", later(0)))).unwrap();
            for (number, (expected, step)) in steps.into_iter().enumerate() {
                pool.write_blocking(step).unwrap();
                assert_eq!(list(), expected, "{number}");
            }
            for (seed, expected) in [(7, "13"), (8, "3")] {
                let map = testing::world_map(seed, b"jpeg");
                pool.write_blocking(|db| maps::put(db, &server.address, server.port, &map, later(seed.into())))
                    .unwrap();
                assert_eq!(list(), expected, "a link saw a world with seed {seed}");
            }
        });
    }

    #[test]
    fn pages_of_any_size_together_are_the_whole_also_among_equal_times() {
        testing::on_each_database(|pool| {
            testing::user(pool, "alice");
            testing::server(pool, "alice", "a");
            for number in 0..23 {
                let entry = timeline_entry(&format!("{number:02}"), "death", later(number / 5));
                pool.write_blocking(|db| insert(db, &TimelineOwner::Server("a".into()), &entry)).unwrap();
            }
            let whole = pool.read_blocking(|db| list(db, &"a".into(), &page())).unwrap();
            for limit in [1, 4, 23] {
                let (mut paged, mut before) = (Vec::new(), None);
                loop {
                    let page = TimelinePage { before, limit, ..page() };
                    let entries = pool.read_blocking(|db| list(db, &"a".into(), &page)).unwrap();
                    let Some(last) = entries.last() else { break };
                    before = Some(last.cursor());
                    paged.extend(entries);
                }
                assert_eq!(paged, whole);
            }
        });
    }
}
