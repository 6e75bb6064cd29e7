use std::fs::OpenOptions;

use diesel::connection::SimpleConnection as _;

use super::*;
use crate::{
    db::{
        alarms::{
            alarm_ledger::{self, LedgerAlarm},
            incidents,
        },
        engine::{error::DbError, pool::Db},
        testing,
    },
    domain::incident::{AlarmPath, DevicePlace},
};

const LOUD: &str = "0199f0c2-7a55-7000-8000-000000000000";

fn write(id: &str) -> LedgerWrite {
    testing::incident_write(id, 1)
}

/// An alarm of the link as it is first stored, with names and ids of their usual length.
fn opened(number: u32) -> LedgerWrite {
    let (incident, alarm) =
        (format!("0199f0c2-7a55-7000-8000-{number:012}"), format!("0199f0c2-7a55-7000-9000-{number:012}"));
    let alarm = LedgerAlarm {
        server: Some(LOUD.into()),
        alarm_id: number.to_string(),
        title: format!("Alarm at the gate {number}"),
        ..testing::opened_alarm(&alarm, &incident)
    };
    let mut write = write(&incident);
    for (incident, _) in write.incidents.values_mut() {
        incident.alarm_id.clone_from(&alarm.alarm_id);
        incident.alarm_name.clone_from(&alarm.title);
        incident.place = DevicePlace { x: Some(1_234.567), y: Some(2_345.678), grid: "K17".into() };
        incident.paths.insert(AlarmPath::Link);
    }
    write.values.insert(alarm.alarm_id.clone(), true);
    write.alarms.insert(alarm.id.clone(), alarm);
    write
}

/// Merges the lines of the file.
fn kept(directory: &Path) -> BTreeMap<ServerId, LedgerWrite> {
    merge(&fs::read(directory.join(JOURNAL)).unwrap())
}

fn length(directory: &Path) -> u64 {
    fs::metadata(directory.join(JOURNAL)).unwrap().len()
}

#[tokio::test]
async fn what_is_kept_is_stored_at_the_next_start_also_behind_a_line_cut_short() {
    let directory = tempfile::tempdir().unwrap();
    let journal = Journal::open(directory.path()).unwrap();
    for (server, id) in [("one", "a"), ("gone", "b"), ("one", "c")] {
        journal.append(&server.into(), &write(id)).await.unwrap();
    }
    let path = directory.path().join(JOURNAL);
    let mut text = fs::read(&path).unwrap();
    text.extend_from_slice(b"{\"server\":\"one\",\"wri");
    testing::on_each_database(|pool| {
        testing::user(pool, "alice");
        testing::server(pool, "alice", "one");
        fs::write(&path, &text).unwrap();
        replay(directory.path(), pool, &Default::default()).unwrap();
        let stored = pool.read_blocking(|db| incidents::list(db, &"one".into(), None, 10)).unwrap();
        assert_eq!(stored.iter().map(|stored| &*stored.id).collect::<Vec<_>>(), ["c", "a"]);
        assert_eq!(length(directory.path()), 0);
        let refused = directory.path().join(REFUSED);
        let kept_aside = fs::read_to_string(&refused).unwrap();
        let kept_aside: Vec<_> = kept_aside.lines().collect();
        assert_eq!(kept_aside[0], "{\"server\":\"one\",\"wri");
        assert!(kept_aside.len() == 2 && kept_aside[1].starts_with("{\"s\":\"gone\","), "{kept_aside:?}");
        fs::remove_file(&refused).unwrap();
        fs::write(&path, &text[..text.iter().rposition(|byte| *byte == b'\n').unwrap() + 1]).unwrap();
        replay(directory.path(), pool, &["gone".into()].into()).unwrap();
        assert!(!refused.exists(), "its deletion is known");
        replay(directory.path(), pool, &Default::default()).unwrap();
    });
}

#[tokio::test]
async fn on_a_node_alarms_of_the_journal_wait_for_the_node_that_has_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let journal = Journal::open(directory.path()).unwrap();
    let of_server = |number, path| {
        let mut write = opened(number);
        write.alarms.values_mut().for_each(|alarm| (alarm.server, alarm.path) = (Some("one".into()), path));
        write
    };
    for (number, path) in [(1, AlarmPath::Link), (2, AlarmPath::Drill)] {
        journal.append(&"one".into(), &of_server(number, path)).await.unwrap();
    }
    let path = directory.path().join(JOURNAL);
    let text = fs::read(&path).unwrap();
    testing::on_each_database(|pool| {
        testing::user(pool, "alice");
        testing::server(pool, "alice", "one");
        fs::write(&path, &text).unwrap();
        replay_on_node(directory.path(), pool, &Default::default()).unwrap();
        let waiting = pool.read_blocking(|db| alarm_ledger::waiting(db, &"one".into())).unwrap();
        let stored = pool.read_blocking(|db| incidents::list(db, &"one".into(), None, 10)).unwrap();
        assert_eq!(
            stored.iter().map(|stored| &*stored.incident.alarm_name).collect::<Vec<_>>(),
            ["Alarm at the gate 1"]
        );
        let waiting: Vec<_> = waiting.into_iter().map(|push| (push.title, push.incident)).collect();
        assert_eq!(waiting, [("Alarm at the gate 1".to_owned(), Some(stored[0].id.clone()))]);
        assert_eq!(length(directory.path()), 0);
    });
}

#[tokio::test]
async fn lines_of_a_deleted_server_are_removed_and_others_stay() {
    let directory = tempfile::tempdir().unwrap();
    let journal = Journal::open(directory.path()).unwrap();
    for server in ["one", "two"] {
        journal.append(&server.into(), &write(server)).await.unwrap();
    }
    journal.forget(&"one".into());
    // Each comes after what was asked before the one before it.
    for server in ["three", "one", "four"] {
        journal.append(&server.into(), &write(server)).await.unwrap();
    }
    assert_eq!(kept(directory.path()).keys().map(ServerId::as_str).collect::<Vec<_>>(), ["four", "three", "two"]);
}

#[tokio::test]
async fn what_the_database_refuses_is_kept_aside_and_keeps_nothing_else_out() {
    let directory = tempfile::tempdir().unwrap();
    let journal = Journal::open(directory.path()).unwrap();
    let mut bad = write("bad");
    bad.incidents.get_mut("bad").unwrap().0.alarm_name = "refused".into();
    journal.append(&"one".into(), &bad).await.unwrap();
    journal.append(&"one".into(), &write("beside it")).await.unwrap();
    journal.append(&"two".into(), &write("good")).await.unwrap();
    let path = directory.path().join(JOURNAL);
    let text = fs::read(&path).unwrap();
    testing::on_each_database(|pool| {
        testing::user(pool, "alice");
        testing::server(pool, "alice", "one");
        testing::user(pool, "bob");
        testing::server(pool, "bob", "two");
        let refuse = |db: &mut Db| match db {
            Db::Pg(db) => db.batch_execute("ALTER TABLE incidents ADD CHECK (alarm_name <> 'refused')"),
            Db::Sqlite(db) => db.batch_execute(
                "CREATE TRIGGER refuse BEFORE INSERT ON incidents WHEN new.alarm_name = 'refused'
                 BEGIN SELECT RAISE(ABORT, 'refused'); END",
            ),
        };
        let busy = |db: &mut Db| match db {
            Db::Pg(db) => db.batch_execute(
                "CREATE FUNCTION busy() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN RAISE 'canceling statement due to statement timeout'; END $$;
                 CREATE TRIGGER busy BEFORE INSERT ON incidents FOR EACH ROW EXECUTE FUNCTION busy()",
            ),
            Db::Sqlite(db) => db.batch_execute(
                "CREATE TRIGGER busy BEFORE INSERT ON incidents BEGIN SELECT RAISE(ABORT, 'disk I/O error'); END",
            ),
        };
        let free = |db: &mut Db| match db {
            Db::Pg(db) => db.batch_execute("DROP TRIGGER busy ON incidents"),
            Db::Sqlite(db) => db.batch_execute("DROP TRIGGER busy"),
        };
        fs::write(&path, &text).unwrap();
        pool.write_blocking(|db| Ok(busy(db)?)).unwrap();
        assert!(matches!(
            replay(directory.path(), pool, &Default::default()),
            Err(JournalError::Database(DbError::Unavailable(_)))
        ));
        assert_eq!(fs::read(&path).unwrap(), text, "trouble that passes loses nothing");
        pool.write_blocking(|db| Ok(free(db)?)).unwrap();
        pool.write_blocking(|db| Ok(refuse(db)?)).unwrap();
        replay(directory.path(), pool, &Default::default()).unwrap();
        let refused = fs::read_to_string(directory.path().join(REFUSED)).unwrap();
        assert!(refused.contains("\"bad\"") && refused.lines().count() == 1, "{refused}");
        fs::remove_file(directory.path().join(REFUSED)).unwrap();
        let stored =
            |server: &str| pool.read_blocking(|db| incidents::list(db, &server.into(), None, 10)).unwrap().len();
        assert_eq!((stored("one"), stored("two")), (1, 1));
    });
}

#[tokio::test]
async fn it_is_emptied_once_all_of_it_is_in_the_database() {
    let directory = tempfile::tempdir().unwrap();
    let journal = Journal::open(directory.path()).unwrap();
    let (server, a, b) = (ServerId::from("one"), write("a"), write("b"));
    let (first, second) = tokio::join!(journal.append(&server, &a), journal.append(&server, &b));
    first.and(second).unwrap();
    journal.settle(&server, 1);
    // Once this is written, that was counted.
    journal.append(&server, &a).await.unwrap();
    assert!(length(directory.path()) > 0);
    journal.settle(&server, 2);
    while length(directory.path()) > 0 {
        tokio::task::yield_now().await;
    }
    journal.append(&server, &b).await.unwrap();
    assert!(length(directory.path()) > 0);
}

#[tokio::test]
async fn room_on_the_disk_is_reserved_for_it_also_once_it_was_emptied() {
    use std::os::unix::fs::MetadataExt as _;
    let directory = tempfile::tempdir().unwrap();
    if reserve(&open_file(&directory.path().join("probe")).unwrap()).is_err() {
        return eprintln!("skipped: this file system reserves no room");
    }
    let journal = Journal::open_simulated(directory.path()).unwrap();
    let on_disk = || 512 * fs::metadata(directory.path().join(JOURNAL)).unwrap().blocks();
    assert!(on_disk() >= RESERVED);
    journal.append(&"one".into(), &write("a")).await.unwrap();
    journal.settle(&"one".into(), 1);
    assert_eq!(length(directory.path()), 0);
    assert!(on_disk() >= RESERVED);
}

/// Leaves as little room as `bytes` of others would, which cannot be merged.
fn fill(journal: &Journal, bytes: u64) {
    let mut open = lock(&journal.open);
    open.file.set_len(bytes).unwrap();
    (open.text, open.merged) = (vec![0; bytes as usize], LARGEST);
}

#[tokio::test]
async fn it_is_bounded_and_for_its_user_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    let journal = Journal::open_simulated(directory.path()).unwrap();
    let mode = fs::metadata(directory.path().join(JOURNAL)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    fill(&journal, LARGEST);
    assert!(journal.append(&"one".into(), &write("a")).await.is_err());
    assert_eq!(length(directory.path()), LARGEST);
}

#[tokio::test]
async fn a_write_that_was_cut_short_is_reported_and_takes_no_later_one_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let journal = Journal::open_simulated(directory.path()).unwrap();
    journal.append(&"one".into(), &write("a")).await.unwrap();
    let line = NewLine { server: "one".into(), text: Line { server: "one".into(), write: write("b") }.text().unwrap() };
    let full = |file: &mut File, text: &[u8]| {
        file.write_all(&text[..text.len() / 2])?;
        Err(io::ErrorKind::StorageFull.into())
    };
    assert!(lock(&journal.open).append_by(&[line], full).pop().unwrap().is_err());
    journal.append(&"one".into(), &write("c")).await.unwrap();
    let kept = kept(directory.path());
    assert_eq!(kept[&"one".into()].incidents.keys().collect::<Vec<_>>(), ["a", "c"]);
}

#[tokio::test]
async fn repeats_of_one_server_are_merged_and_it_has_no_more_than_its_share() {
    let directory = tempfile::tempdir().unwrap();
    let journal = Journal::open_simulated(directory.path()).unwrap();
    let (loud, quiet) = (ServerId::from("loud"), ServerId::from("quiet"));
    journal.append(&quiet, &write("q")).await.unwrap();
    let large = |id: &str| {
        let mut write = write(id);
        write.incidents.values_mut().for_each(|(incident, _)| incident.alarm_name = "Roof".repeat(100));
        write
    };
    for _ in 0..3_000 {
        journal.append(&loud, &large("a")).await.unwrap();
    }
    assert!(length(directory.path()) <= 2 * SHARE, "{}", length(directory.path()));
    let mut refused = 0;
    for number in 0..3_000 {
        refused += u32::from(journal.append(&loud, &large(&number.to_string())).await.is_err());
    }
    assert!(refused > 0 && length(directory.path()) <= 2 * SHARE);
    journal.append(&quiet, &write("r")).await.unwrap();
    let kept = kept(directory.path());
    assert_eq!(kept[&quiet].incidents.len(), 2);
    assert_eq!(kept[&loud].incidents.len() as u32, 3_000 - refused + 1);

    // Once they are stored, the loud one's lines give way, and then all of them.
    journal.settle(&loud, 6_000 - refused as usize);
    for number in 0..200 {
        journal.append(&quiet, &write(&number.to_string())).await.unwrap();
    }
    lock(&journal.open).rewrite().unwrap();
    assert!(length(directory.path()) < SHARE / 2);
    journal.settle(&quiet, 202);
    assert_eq!(length(directory.path()), 0);
}

#[tokio::test]
async fn many_loud_servers_leave_room_for_a_quiet_one() {
    let directory = tempfile::tempdir().unwrap();
    let journal = Journal::open_simulated(directory.path()).unwrap();
    fill(&journal, LARGEST - FOR_THE_SMALL);
    lock(&journal.open).shares.insert("loud".into(), Share { bytes: SMALL, unsettled: 1, since: None });
    assert!(journal.append(&"loud".into(), &write("a")).await.is_err());
    assert!(journal.append(&"quiet".into(), &write("a")).await.is_ok());
}

#[tokio::test]
async fn a_burst_of_thousands_of_alarms_of_one_server_has_room() {
    let directory = tempfile::tempdir().unwrap();
    let journal = Journal::open(directory.path()).unwrap();
    let server = LOUD.into();
    let writes: Vec<LedgerWrite> = (0..2_000).map(opened).collect();
    let appended = futures_util::future::join_all(writes.iter().map(|write| journal.append(&server, write))).await;
    appended.into_iter().for_each(|appended| appended.unwrap());
    assert_eq!(kept(directory.path())[&server].alarms.len(), 2_000);
}

#[tokio::test]
async fn a_journal_that_is_removed_renamed_or_cut_short_is_written_again() {
    let directory = tempfile::tempdir().unwrap();
    let journal = Journal::open_simulated(directory.path()).unwrap();
    let (server, stored, path) = (ServerId::from("one"), ServerId::from("stored"), directory.path().join(JOURNAL));
    journal.append(&server, &write("0")).await.unwrap();
    journal.append(&stored, &write("s")).await.unwrap();
    journal.settle(&stored, 1);
    let other = directory.path().join("other");
    let harm: [&dyn Fn(); 5] = [
        &|| fs::remove_file(&path).unwrap(),
        &|| fs::rename(&path, &other).unwrap(),
        &|| {
            fs::copy(&path, &other).unwrap();
            fs::rename(&other, &path).unwrap();
        },
        &|| OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap(),
        &|| OpenOptions::new().write(true).open(&path).unwrap().set_len(length(directory.path()) - 1).unwrap(),
    ];
    for (number, harm) in (1..).zip(harm) {
        harm();
        journal.append(&server, &write(&number.to_string())).await.unwrap();
        let kept = kept(directory.path());
        assert_eq!(kept[&server].incidents.len(), number + 1, "harm {number}");
        assert!(!kept.contains_key(&stored), "only what is not stored yet");
    }
    journal.settle(&server, 6);
    assert_eq!(length(directory.path()), 0);
    // Where it cannot be written, that is said, and tried again.
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(journal.append(&server, &write("a")).await.is_err());
    fs::remove_dir(&path).unwrap();
    journal.append(&server, &write("a")).await.unwrap();
    assert_eq!(kept(directory.path())[&server].incidents.len(), 1);
}

#[test]
fn lines_of_an_earlier_version_are_stored_at_the_first_start() {
    let directory = tempfile::tempdir().unwrap();
    let line = r#"{"server":"one","write":{"incidents":{"a":[{"alarmId":"7","alarmName":"Roof","x":null,"y":null,"grid":"",
        "firstAt":"2027-01-15T08:00:00.123Z","lastAt":"2027-01-15T08:00:00.123Z","endedAt":null,"count":1,
        "paths":["link"],"late":false,"drill":false,"acks":{}},null]},"arrivals":{},"heard":{},"values":{}}}"#;
    testing::on_each_database(|pool| {
        testing::user(pool, "alice");
        testing::server(pool, "alice", "one");
        fs::write(directory.path().join(JOURNAL), line.replace('\n', "") + "\n").unwrap();
        replay(directory.path(), pool, &Default::default()).unwrap();
        let stored = pool.read_blocking(|db| incidents::list(db, &"one".into(), None, 10)).unwrap();
        assert_eq!(stored.iter().map(|stored| &*stored.id).collect::<Vec<_>>(), ["a"]);
        assert!(!directory.path().join(REFUSED).exists());
    });
}

#[tokio::test]
async fn a_file_that_was_removed_comes_back_before_an_alarm_needs_it() {
    let directory = tempfile::tempdir().unwrap();
    let journal = Journal::open(directory.path()).unwrap();
    journal.append(&"one".into(), &write("a")).await.unwrap();
    let before = kept(directory.path());
    fs::remove_file(directory.path().join(JOURNAL)).unwrap();
    journal.look_after();
    assert_eq!(kept(directory.path()), before);
    assert_eq!(check(directory.path()), Ok(()));
    fs::remove_file(directory.path().join(JOURNAL)).unwrap();
    fs::create_dir(directory.path().join(JOURNAL)).unwrap();
    assert!(check(directory.path()).is_err_and(|fault| fault.contains("cannot be written")));
}

#[test]
fn nothing_of_a_server_that_is_taken_out_stays_in_either_file() {
    let directory = tempfile::tempdir().unwrap();
    let line = |server: &str| Line { server: server.into(), write: write(server) }.text().unwrap();
    let cut = |server: &str| format!("{{\"s\":\"{server}\",\n").into_bytes();
    let all = [line("gone"), line("kept"), cut("gone"), cut("kept"), line("gone")].concat();
    for name in [JOURNAL, REFUSED] {
        fs::write(directory.path().join(name), &all).unwrap();
    }
    take_out(directory.path(), &["gone".into()].into()).unwrap();
    for name in [JOURNAL, REFUSED] {
        let text = fs::read(directory.path().join(name)).unwrap();
        assert_eq!(text, [line("kept"), cut("kept")].concat(), "{name}");
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
}
