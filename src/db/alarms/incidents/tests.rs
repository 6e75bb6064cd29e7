use super::*;
use crate::{
    db::{
        alarms::alarm_ledger::AlarmState,
        engine::pool::Pool,
        guests, node_news,
        testing::{self, later, now},
    },
    domain::{device::DeviceKind, node_news::NodeNews},
};

fn incident(count: u32) -> Incident {
    Incident {
        alarm_id: "7".into(),
        alarm_name: "Roof".into(),
        place: DevicePlace { x: Some(1.5), y: None, grid: "B3".into() },
        first_at: now(),
        last_at: later(i64::from(count)),
        ended_at: None,
        count,
        paths: [AlarmPath::Link, AlarmPath::Push].into(),
        late: false,
        drill: false,
        acks: BTreeMap::new(),
    }
}

fn opened(id: &str, incident: Incident) -> LedgerWrite {
    LedgerWrite { incidents: [(id.to_owned(), (incident, Some("Title".to_owned())))].into(), ..Default::default() }
}

fn alarm(user: &str, incident: &str) -> LedgerAlarm {
    LedgerAlarm { user: user.into(), ..testing::opened_alarm("arrival", incident) }
}

fn on_each_server(test: impl Fn(&Pool)) {
    testing::on_each_database(|pool| {
        testing::user(pool, "alice");
        testing::user(pool, "bob");
        testing::server(pool, "alice", "one");
        test(pool);
    });
}

fn store(pool: &Pool, ledger: &LedgerWrite) {
    pool.write_blocking(|db| write(db, &"one".into(), ledger)).unwrap();
}

fn all(pool: &Pool) -> Vec<StoredIncident> {
    pool.read_blocking(|db| list(db, &"one".into(), None, 100)).unwrap()
}

#[test]
fn an_incident_is_stored_as_it_is_and_never_goes_back() {
    on_each_server(|pool| {
        for count in [2, 1] {
            store(pool, &opened("a", incident(count)));
            let [stored] = &all(pool)[..] else { panic!("one incident") };
            assert_eq!((&stored.incident, stored.title.as_deref()), (&incident(2), Some("Title")));
            assert_eq!((stored.state.as_str(), stored.sockets, stored.heard_at), (UNHEARD, 0, None));
        }
        let ended = Incident { ended_at: Some(later(90)), ..incident(2) };
        store(pool, &opened("a", ended.clone()));
        store(pool, &opened("a", incident(2)));
        assert_eq!(all(pool)[0].incident, ended);

        // Written before the link knew the device: the same trigger, by the push alone.
        let by_push = Incident { alarm_id: "push:Title".into(), paths: [AlarmPath::Push].into(), ..incident(2) };
        store(pool, &opened("b", incident(2)));
        store(pool, &opened("b", by_push));
        assert_eq!(all(pool).into_iter().find(|stored| stored.id == "b").unwrap().incident, incident(2));
    });
}

#[test]
fn an_older_write_with_as_many_triggers_brings_no_other_title_and_no_push_in_a_devices_place() {
    let titled = |incident: Incident, title: Option<&str>| LedgerWrite {
        incidents: [("a".to_owned(), (incident, title.map(str::to_owned)))].into(),
        ..Default::default()
    };
    on_each_server(|pool| {
        let title = || all(pool)[0].title.clone();
        // The last is the device's own name.
        let titles = [None, Some("Came at the same time"), Some("Roof")];
        for (newest, known) in titles.into_iter().enumerate() {
            store(pool, &titled(incident(1), known));
            for older in &titles[..=newest] {
                store(pool, &titled(incident(1), *older));
                assert_eq!(title().as_deref(), known, "after {older:?}");
            }
        }
        let by_push = Incident { alarm_id: "push:Title".into(), alarm_name: "Title".into(), ..incident(1) };
        store(pool, &titled(by_push, Some("Title")));
        assert_eq!((&all(pool)[0].incident, title().as_deref()), (&incident(1), Some("Roof")));
        // One more trigger: it is the newer one, whatever it says.
        store(pool, &titled(incident(2), Some("Gate")));
        assert_eq!(title().as_deref(), Some("Gate"));
    });
}

#[test]
fn who_heard_first_is_kept_and_an_acknowledgement_counts_more() {
    on_each_server(|pool| {
        let heard = |sockets, seconds| LedgerWrite {
            heard: [("a".to_owned(), HeardBy { sockets, at: later(seconds) })].into(),
            ..Default::default()
        };
        store(pool, &opened("a", incident(1)));
        let known = |pool: &Pool| all(pool).remove(0);
        store(pool, &heard(0, 1));
        assert_eq!((known(pool).state.as_str(), known(pool).sockets), (DELIVERED_LATER, 0));
        store(pool, &heard(3, 2));
        store(pool, &heard(0, 2));
        assert_eq!((known(pool).state.as_str(), known(pool).sockets), (DELIVERED, 3));
        store(pool, &heard(5, 2));
        store(pool, &heard(4, 2));
        assert_eq!((known(pool).sockets, known(pool).heard_at), (5, Some(later(1))));
        for (user, seconds) in [("alice", 3), ("alice", 4), ("bob", 5)] {
            let acknowledged =
                pool.write_blocking(|db| acknowledge(db, &"one".into(), "a", &user.into(), later(seconds)));
            assert!(acknowledged.unwrap().is_some());
        }
        let acks = [("alice".into(), later(3)), ("bob".into(), later(5))].into();
        assert_eq!((known(pool).state.as_str(), known(pool).incident.acks), (ACKNOWLEDGED, acks));
        let other = pool.write_blocking(|db| acknowledge(db, &"two".into(), "a", &"alice".into(), now()));
        assert_eq!(other.unwrap(), None, "of another server");
    });
}

#[test]
fn of_two_writes_that_wait_the_first_time_and_the_most_sockets_are_kept() {
    let heard = |sockets, seconds| LedgerWrite {
        heard: [("a".to_owned(), HeardBy { sockets, at: later(seconds) })].into(),
        ..Default::default()
    };
    for (writes, kept) in [([heard(1, 1), heard(3, 2)], heard(3, 1)), ([heard(0, 1), heard(3, 2)], heard(3, 1))] {
        let [mut first, second] = writes;
        first.extend(second);
        assert_eq!(first, kept);
    }
}

#[test]
fn arrivals_and_values_are_stored_with_their_incident_and_twice_is_once() {
    on_each_server(|pool| {
        pool.write_blocking(|db| {
            use crate::db::smart_devices;
            smart_devices::upsert(db, &"one".into(), "7", DeviceKind::Alarm, "Roof", now())
        })
        .unwrap();
        let alarm = alarm("stranger", "a");
        let mut ledger = opened("a", incident(1));
        ledger.alarms.insert(alarm.id.clone(), alarm);
        ledger.values.insert("7".into(), true);
        store(pool, &ledger);
        store(pool, &ledger);
        let tally = pool.read_blocking(alarm_ledger::tally).unwrap();
        let counts = vec![("received", 0), ("opened", 1), ("merged", 0), ("unmatched", 0)];
        assert_eq!((tally.counts, tally.oldest_unfinished), (counts, None));
        use crate::db::smart_devices;
        let devices = pool.read_blocking(|db| smart_devices::list(db, &"one".into())).unwrap();
        assert_eq!(devices[0].last_value, Some(true));
        let gone = pool.write_blocking(|db| write(db, &"two".into(), &ledger));
        assert!(matches!(gone, Err(DbError::NotFound)));
    });
}

#[test]
fn the_newest_come_first_in_pages_and_of_the_ended_only_the_last_day_is_shown() {
    on_each_server(|pool| {
        for id in ["a", "b", "c", "d"] {
            let (drill, ended_at) = (id == "d", (id != "a").then(|| later(90)));
            store(pool, &opened(id, Incident { drill, ended_at, ..incident(1) }));
        }
        let ids = |stored: Vec<StoredIncident>| stored.into_iter().map(|stored| stored.id).collect::<Vec<_>>();
        let page = |before, limit| ids(pool.read_blocking(|db| list(db, &"one".into(), before, limit)).unwrap());
        assert_eq!((page(None, 3), page(Some("b"), 3)), (vec!["d".into(), "c".into(), "b".into()], vec!["a".into()]));
        let shown = |after| ids(pool.read_blocking(|db| shown(db, &"one".into(), later(after))).unwrap());
        assert_eq!(shown(60), ["a", "b", "c", "d"]);
        assert_eq!(shown(1_000), ["a", "b", "c"]);
        assert_eq!(shown(90_000), ["a"], "it has yet to end");
    });
}

#[test]
fn no_number_of_drills_displaces_a_raid() {
    on_each_server(|pool| {
        let mut ledger = opened("a", incident(1));
        for number in 0..205 {
            let drill = Incident { drill: true, ..incident(1) };
            ledger.incidents.insert(format!("b{number:03}"), (drill, None));
        }
        store(pool, &ledger);
        let shown = pool.read_blocking(|db| shown(db, &"one".into(), later(60))).unwrap();
        let shown: Vec<&str> = shown.iter().map(|stored| stored.id.as_str()).collect();
        assert_eq!((shown.len(), &shown[..2], shown[10]), (11, &["a", "b195"][..], "b204"));
    });
}

#[test]
fn open_incidents_are_counted_by_server() {
    on_each_server(|pool| {
        let open = || pool.read_blocking(|db| open(db, &["one".into(), "two".into()])).unwrap();
        assert_eq!(open(), BTreeMap::new());
        store(pool, &opened("a", incident(1)));
        store(pool, &opened("b", incident(1)));
        store(pool, &opened("c", Incident { drill: true, ..incident(1) }));
        store(pool, &opened("d", Incident { ended_at: Some(later(90)), ..incident(1) }));
        assert_eq!(open(), [("one".into(), 2)].into());
    });
}

#[test]
fn what_is_unheard_for_a_day_expires_and_what_is_old_is_deleted() {
    on_each_server(|pool| {
        store(pool, &opened("a", incident(1)));
        store(pool, &opened("b", Incident { last_at: later(100), ..incident(1) }));
        assert_eq!(pool.write_blocking(|db| expire(db, later(50))).unwrap(), 1);
        let tally = pool.read_blocking(tally).unwrap();
        let of = |state| tally.iter().find(|known| known.0 == state).unwrap().1;
        assert_eq!((of(EXPIRED), of(UNHEARD), of(DELIVERED)), (1, 1, 0));
        assert_eq!(pool.write_blocking(|db| purge(db, later(50))).unwrap(), 1);
        assert_eq!(all(pool).len(), 1, "the newer one stays");
        assert_eq!(pool.write_blocking(|db| purge(db, later(200))).unwrap(), 1);
        assert!(all(pool).is_empty());
    });
}

#[test]
fn an_incident_that_is_merged_gives_what_it_has_to_the_older_one_and_stays_merged() {
    on_each_server(|pool| {
        store(pool, &opened("older", incident(1)));
        let alarm = alarm("alice", "part");
        let mut part = opened("part", incident(1));
        part.alarms.insert("arrival".into(), alarm);
        part.heard.insert("part".into(), HeardBy { sockets: 2, at: later(1) });
        store(pool, &part);
        let mut merged = opened("older", incident(2));
        merged.merged.insert("part".into(), "older".into());
        merged.merged.insert("unknown".into(), "older".into());
        // Twice, and what was written before once more, as after a crash.
        for write in [&merged, &merged, &part] {
            store(pool, write);
            let [stored] = &all(pool)[..] else { panic!("one incident") };
            assert_eq!((stored.id.as_str(), stored.incident.count, stored.sockets), ("older", 2, 2));
            assert_eq!((stored.state.as_str(), stored.heard_at), (DELIVERED, Some(later(1))));
        }
        let counts = pool.read_blocking(alarm_ledger::tally).unwrap().counts;
        assert_eq!(counts.into_iter().find(|(state, _)| *state == "merged"), Some(("merged", 1)));
        let acknowledge =
            |id: &str| pool.write_blocking(|db| acknowledge(db, &"one".into(), id, &"bob".into(), later(3))).unwrap();
        let known = acknowledge("part").expect("it is a part of a known one");
        assert_eq!((known.id.as_str(), known.state.as_str(), known.incident.acks.len()), ("older", ACKNOWLEDGED, 1));
        assert_eq!(acknowledge("unknown"), None);
        let whole = |id: &str| pool.read_blocking(|db| whole(db, id)).unwrap();
        let (found, server) = whole("part").expect("it is a part of a known one");
        assert_eq!((found.id.as_str(), server.as_str(), whole("older")), ("older", "one", whole("part")));
        assert_eq!(whole("unknown"), None);
    });
}

#[test]
fn a_part_of_a_part_is_known_as_the_whole_in_whatever_order_they_were_merged() {
    on_each_server(|pool| {
        for [first, second, whole] in [["a", "b", "c"], ["f", "e", "d"]] {
            [first, second, whole].iter().for_each(|id| store(pool, &opened(id, incident(1))));
            let mut merged = LedgerWrite::default();
            merged.merged.insert(first.into(), second.into());
            merged.merged.insert(second.into(), whole.into());
            store(pool, &merged);
            for part in [first, second] {
                let known = |db: &mut Db| acknowledge(db, &"one".into(), part, &"bob".into(), later(3));
                assert_eq!(pool.write_blocking(known).unwrap().expect("it is a part").id, whole, "{part}");
            }
        }
    });
}

#[test]
fn who_took_note_of_a_part_took_note_of_the_whole() {
    on_each_server(|pool| {
        store(pool, &opened("older", incident(1)));
        store(pool, &opened("part", incident(1)));
        let acknowledge = |id: &str, user: &str, seconds| {
            let (user, at) = (user.into(), later(seconds));
            pool.write_blocking(|db| acknowledge(db, &"one".into(), id, &user, at)).unwrap().unwrap();
        };
        acknowledge("older", "alice", 1);
        acknowledge("part", "alice", 2);
        acknowledge("part", "bob", 3);
        let mut merged = LedgerWrite::default();
        merged.merged.insert("part".into(), "older".into());
        store(pool, &merged);
        let [stored] = &all(pool)[..] else { panic!("one incident") };
        assert_eq!(stored.incident.acks, [("alice".into(), later(1)), ("bob".into(), later(3))].into());
    });
}

#[test]
fn an_acknowledgement_that_was_kept_counts_for_those_who_may_watch_and_the_first_time() {
    testing::on_each_database(|pool| {
        for user in ["alice", "bob", "removed", "stranger"] {
            testing::user(pool, user);
        }
        testing::server(pool, "alice", "one");
        testing::guest(pool, "g", "one", "bob");
        testing::guest(pool, "r", "one", "removed");
        let acks = |at: Timestamp| {
            let acks = ["alice", "bob", "removed", "stranger", "erased"].map(|user| (UserId::from(user), at));
            LedgerWrite { acks: [("a".to_owned(), acks.into())].into(), ..Default::default() }
        };
        let mut kept = opened("a", incident(1));
        kept.extend(acks(later(5)));
        kept.extend(acks(later(7)));
        let mut again = acks(later(9));
        again.acks.insert("unknown".to_owned(), [("alice".into(), later(9))].into());
        // A guest when it was kept, and none by the time that the database takes it.
        assert!(pool.write_blocking(|db| guests::remove(db, &"one".into(), &"r".into())).unwrap().is_some());
        for line in [&kept, &again, &kept] {
            pool.write_blocking(|db| write(db, &"one".into(), line)).unwrap();
        }
        let stored = pool.read_blocking(|db| get(db, "a")).unwrap().unwrap();
        let of_both: BTreeMap<UserId, Timestamp> = ["alice", "bob"].map(|user| (user.into(), later(5))).into();
        assert_eq!((&*stored.state, &stored.incident.acks), (ACKNOWLEDGED, &of_both));
    });
}

#[test]
fn of_two_nodes_that_store_an_alarm_at_once_the_second_finds_the_incident_of_the_first() {
    let Some(postgres) = testing::Postgres::create_migrated() else { return };
    let [first, second] = [(); 2].map(|()| Pool::open(&postgres.database()).unwrap());
    testing::user(&first, "alice");
    testing::server(&first, "alice", "one");
    type Store = fn(&mut Db, &ServerId, &LedgerWrite) -> Result<(), DbError>;
    let (owner, former): (Store, Store) = (write, write_for_another_node);
    for (count, stores) in [[owner, former], [former, owner]].into_iter().enumerate() {
        let push = |incident: String| LedgerAlarm {
            id: format!("push {count}"),
            path: AlarmPath::Push,
            incident: Some(incident),
            ..alarm("alice", "")
        };
        let [one, other] = ["first", "second"].map(|name| {
            let id = format!("{name} {count}");
            let alarms = [(format!("push {count}"), push(id.clone()))].into();
            LedgerWrite { alarms, ..opened(&id, incident(1)) }
        });
        let waiting = LedgerAlarm { state: AlarmState::Received, incident: None, ..push(String::new()) };
        first.write_blocking(|db| alarm_ledger::receive(db, &waiting)).unwrap();
        std::thread::scope(|scope| {
            let stored = first.write_blocking(|db| {
                stores[0](db, &"one".into(), &one)?;
                scope.spawn(|| second.write_blocking(|db| stores[1](db, &"one".into(), &other)).unwrap());
                testing::until_another_waits(db);
                Ok(())
            });
            stored.unwrap();
        });
        let known = all(&first);
        assert_eq!(known.len(), count + 1, "{known:?}");
        let of_push = first.read_blocking(|db| alarm_ledger::incident_of(db, &[&format!("push {count}")])).unwrap();
        assert!(known.iter().any(|known| Some(&known.id) == of_push.as_ref()), "{of_push:?}: {known:?}");
    }
}

#[test]
fn acknowledgements_that_another_node_brings_are_news_of_the_incident_that_is_shown() {
    on_each_server(|pool| {
        let mut there = opened("there", incident(1));
        there.alarms.insert("arrival".into(), alarm("alice", "there"));
        there.acks.insert("there".into(), [("alice".into(), later(3))].into());
        let mut here = opened("here", incident(1));
        here.alarms.insert("arrival".into(), alarm("alice", "here"));
        let bring = || pool.write_blocking(|db| write_for_another_node(db, &"one".into(), &there)).unwrap();
        let news = || -> Vec<NodeNews> {
            pool.read_blocking(node_news::list).unwrap().into_iter().map(|stored| stored.news).collect()
        };
        let acknowledged = |incident: &str| {
            let (server, incident) = ("one".into(), incident.to_owned());
            NodeNews::Acknowledged { server, incident, user: "alice".into(), at: later(3) }
        };
        bring();
        assert_eq!(news(), [acknowledged("there")]);
        // The node that has the server has put the alarm into an incident of its own meanwhile.
        store(pool, &here);
        assert_eq!(news(), [acknowledged("here"), acknowledged("there")]);
        // A journal may be read twice.
        bring();
        assert_eq!(news().len(), 2);
    });
}
