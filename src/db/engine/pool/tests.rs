use std::{net::TcpListener, thread};

use secrecy::{ExposeSecret as _, SecretString};

use super::*;
use crate::db::{
    engine::prelude::RunQuery as _,
    sessions,
    testing::{self, now},
    users,
};
use crate::{
    crypto::random::Random,
    net::{Names, Network, NetworkError, trace::Trace},
};

#[test]
fn a_failed_write_leaves_nothing_and_frees_its_connection() {
    testing::on_each_database(|pool| {
        let count = || {
            use crate::db::schema::users::dsl::users;
            use diesel::QueryDsl as _;
            pool.read_blocking(|db| Ok(users.count().get_result::<i64>(db)?)).unwrap()
        };
        let insert = |db: &mut Db| users::sign_in(db, &"user".into(), &"account".into(), None, now());
        let refused = pool.write_blocking(|db| insert(db).and(Err::<(), _>(DbError::NotFound)));
        assert!(matches!(refused, Err(DbError::NotFound)));
        assert_eq!(count(), 0);

        let panicked = thread::scope(|scope| {
            scope.spawn(|| pool.write_blocking(|db| insert(db).map(|_| -> () { panic!("on purpose") }))).join()
        });
        assert!(panicked.is_err());
        pool.write_blocking(insert).unwrap();
        assert_eq!(count(), 1);
    });
}

#[test]
fn a_write_that_swallowed_an_error_is_stored_whole_or_not_at_all() {
    testing::on_each_database(|pool| {
        testing::user(pool, "user");
        let written = pool.write_blocking(|db| {
            sessions::insert(db, &"session".into(), &"user".into(), now())?;
            let twice = sessions::insert(db, &"session".into(), &"user".into(), now());
            assert!(matches!(twice, Err(DbError::Conflict)));
            Ok(())
        });
        let stored = pool.read_blocking(|db| sessions::find(db, &"session".into(), now())).unwrap();
        assert_eq!(written.is_ok(), stored.is_some());
    });
}

#[test]
fn writers_of_two_processes_take_turns_on_one_sqlite_file() {
    use crate::db::schema::users::dsl::users as table;
    use diesel::QueryDsl as _;
    let directory = tempfile::tempdir().unwrap();
    let database = Database::Sqlite(directory.path().join("test.db"));
    let pools = [Pool::open(&database).unwrap(), Pool::open(&database).unwrap()];
    // Reads and then writes, which a transaction that began as a reader could not do here.
    let add = |pool: &Pool| {
        pool.write_blocking(|db| {
            let id = table.count().get_result::<i64>(db)?.to_string();
            users::sign_in(db, &id.as_str().into(), &id.as_str().into(), None, now())
        })
    };
    thread::scope(|scope| {
        for pool in &pools {
            scope.spawn(move || (0..20).for_each(|_| drop(add(pool).unwrap())));
        }
    });
    assert_eq!(pools[0].read_blocking(|db| Ok(table.count().get_result::<i64>(db)?)).unwrap(), 40);
}

#[test]
fn a_read_cannot_write_on_sqlite() {
    let directory = tempfile::tempdir().unwrap();
    let pool = Pool::open(&Database::Sqlite(directory.path().join("test.db"))).unwrap();
    let written = pool.read_blocking(|db| users::sign_in(db, &"user".into(), &"account".into(), None, now()));
    assert!(matches!(written, Err(DbError::Query(_))));
}

#[tokio::test]
async fn async_callers_read_and_write() {
    let directory = tempfile::tempdir().unwrap();
    let pool = Pool::open(&Database::Sqlite(directory.path().join("test.db"))).unwrap();
    let user = pool.write(|db| users::sign_in(db, &"user".into(), &"account".into(), None, now())).await.unwrap();
    assert_eq!(pool.read(|db| users::find(db, &"user".into())).await.unwrap(), Some(user));
    let panicked: Result<(), _> = pool.write(|_| panic!("on purpose")).await;
    assert!(matches!(panicked, Err(DbError::Panicked)));
}

#[test]
fn queries_know_the_request_that_they_are_for_and_no_later_one_does() {
    testing::on_each_database(|pool| {
        let request = |_: &mut Db| Ok(trace::current().map(|trace| trace.request_id.clone()));
        let (notified, mut heard) = oneshot::channel();
        let notify = move |_: &Option<String>| notified.send(trace::current().is_some()).unwrap();
        runtime().block_on(async {
            let asked = async {
                let read = pool.read(request).await.unwrap();
                let panicked = pool.write(|_| -> Result<(), DbError> { panic!("on purpose") }).await;
                assert!(panicked.is_err());
                (read, pool.write_and_notify(request, notify).await.unwrap())
            };
            let trace = Trace::new("r-1".into(), None, &Random::system());
            let known = Some("r-1".to_owned());
            assert_eq!(trace::within(trace.into(), asked).await, (known.clone(), known));
            assert!(heard.try_recv().unwrap());
            for _ in 0..POSTGRES_CONNECTIONS {
                assert_eq!((pool.read(request).await.unwrap(), pool.write(request).await.unwrap()), (None, None));
            }
        });
    });
}

fn sqlite() -> (tempfile::TempDir, Pool) {
    let directory = tempfile::tempdir().unwrap();
    let pool = Pool::open(&Database::Sqlite(directory.path().join("test.db"))).unwrap();
    (directory, pool)
}

#[tokio::test]
async fn what_was_deleted_is_in_no_file_once_the_log_has_no_reader() {
    let (directory, pool) = sqlite();
    let is_kept = |what: &str| {
        let files = std::fs::read_dir(directory.path()).unwrap();
        files
            .map(|file| std::fs::read(file.unwrap().path()).unwrap())
            .any(|bytes| bytes.windows(what.len()).any(|part| part == what.as_bytes()))
    };
    let name = "Ada whose name is long enough to be found";
    let insert = move |db: &mut Db| {
        let profile = users::StoredProfile { display_name: name.into(), avatar_url: None };
        users::sign_in(db, &"user".into(), &"account".into(), Some(&profile), now())
    };
    pool.write(insert).await.unwrap();
    let mut reader = engine::open_sqlite(&directory.path().join("test.db"), Access::Read).unwrap();
    reader.batch_execute("BEGIN; SELECT * FROM users").unwrap();
    pool.write(|db| -> Result<_, DbError> { Ok(diesel::sql_query("DELETE FROM users").execute(db)?) }).await.unwrap();
    assert!(!pool.empty_log().await.unwrap(), "a reader still needs the log");
    assert!(is_kept(name));
    pool.write(|db| users::sign_in(db, &"other".into(), &"other".into(), None, now())).await.unwrap();
    reader.batch_execute("COMMIT").unwrap();
    assert!(pool.empty_log().await.unwrap());
    assert!(!is_kept(name) && is_kept("other"));
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap()
}

/// Changes nothing.
fn nothing(_: &mut Db) -> Result<(), DbError> {
    Ok(())
}

/// Holds a writer until the sender sends or is gone; resolves when it does.
async fn occupy(pool: &Pool) -> std::sync::mpsc::Sender<()> {
    let ((release, released), (begin, begun)) = (std::sync::mpsc::channel(), oneshot::channel());
    let pool = pool.clone();
    actix::spawn(async move {
        let held = pool.write(move |_| -> Result<_, DbError> {
            begin.send(()).unwrap();
            let _ = released.recv();
            Ok(())
        });
        let _ = held.await;
    });
    begun.await.unwrap();
    release
}

#[test]
fn queries_need_no_thread_of_the_blocking_pool() {
    testing::on_each_database(|pool| {
        let (release, released) = std::sync::mpsc::channel::<()>();
        runtime().block_on(async {
            let held = tokio::task::spawn_blocking(move || released.recv());
            let found = pool.read(|db| users::find(db, &"user".into())).await.unwrap();
            assert_eq!(found, None);
            pool.write(nothing).await.unwrap();
            drop(release);
            assert!(held.await.unwrap().is_err());
        });
    });
}

#[actix::test]
async fn a_mute_nameserver_holds_up_no_query() {
    let (_directory, pool) = sqlite();
    let mute = Network::resolving(Names::resolved_by(|_, _| {
        loop {
            thread::park();
        }
    }));
    let connecting: Vec<_> = (0..700)
        .map(|number| {
            let mute = mute.clone();
            actix::spawn(async move { mute.connect(&format!("game-{number}.example"), 28082, |_| true).await })
        })
        .collect();
    for _ in 0..10 {
        pool.write(nothing).await.unwrap();
    }
    time::pause();
    for connecting in connecting {
        assert!(matches!(connecting.await.unwrap(), Err(NetworkError::Unresolved(_))));
    }
}

#[actix::test]
async fn a_caller_is_answered_in_time_and_a_write_whose_caller_has_given_up_is_not_begun() {
    let (_directory, pool) = sqlite();
    let release = occupy(&pool).await;
    time::pause();
    let late = pool.write(|db| users::sign_in(db, &"late".into(), &"late".into(), None, now()).map(drop)).await;
    assert!(matches!(late, Err(DbError::Unavailable(_))), "{late:?}");
    time::resume();
    drop(release);
    pool.write(nothing).await.unwrap();
    assert_eq!(pool.read(|db| users::find(db, &"late".into())).await.unwrap(), None);
}

#[actix::test]
async fn what_is_written_first_goes_before_all_that_waits() {
    let (_directory, pool) = sqlite();
    let release = occupy(&pool).await;
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let note = |name: &'static str| {
        let order = order.clone();
        move |_: &mut Db| {
            order.lock().unwrap().push(name);
            Ok(())
        }
    };
    let waiting = [pool.write(note("one")), pool.write(note("two"))];
    let waiting = futures_util::future::join_all(waiting);
    let alarm = pool.write_first(note("alarm"), |()| {});
    // All wait before the writer is free.
    let freed = async { drop(release) };
    let (waited, alarmed, ()) = futures_util::future::join3(waiting, alarm, freed).await;
    assert!(waited.iter().all(Result::is_ok) && alarmed.is_ok());
    assert_eq!(*order.lock().unwrap(), ["alarm", "one", "two"]);
}

#[actix::test]
async fn ordinary_writes_never_hold_every_connection_to_postgres() {
    let Some(postgres) = testing::Postgres::create() else { return };
    let pool = Pool::open(&postgres.database()).unwrap();
    let mut held = Vec::new();
    for _ in 1..POSTGRES_CONNECTIONS {
        held.push(occupy(&pool).await);
    }
    pool.write_first(|_| Ok(()), |()| {}).await.unwrap();
    time::pause();
    assert!(matches!(pool.write(nothing).await, Err(DbError::Unavailable(_))), "every other one is held");
}

#[actix::test]
async fn a_lock_of_another_process_delays_a_writer_no_longer_than_its_deadline() {
    let (directory, pool) = sqlite();
    let other = Pool::open(&Database::Sqlite(directory.path().join("test.db"))).unwrap();
    let release = occupy(&other).await;
    time::pause();
    let (first, second) = tokio::join!(pool.write(nothing), pool.write_first(|_| Ok(()), |()| {}));
    assert!(matches!((first, second), (Err(DbError::Unavailable(_)), Err(DbError::Unavailable(_)))));
    time::resume();
    pool.read(|db| users::find(db, &"user".into())).await.expect("readers go on");
    drop(release);
    pool.write(nothing).await.unwrap();
}

#[actix::test]
async fn a_database_that_hangs_holds_its_threads_and_no_caller() {
    let Some(postgres) = testing::Postgres::create() else { return };
    let relay = testing::FreezingRelay::before(&postgres);
    let pool = Pool::open(&relay.database()).unwrap();
    pool.write(nothing).await.unwrap();
    relay.freeze(true);
    time::pause();
    let reads = (0..200).map(|_| pool.read(|db| users::find(db, &"user".into())));
    let answers = futures_util::future::join_all(reads).await;
    assert!(answers.iter().all(|answer| matches!(answer, Err(DbError::Unavailable(_)))));
    time::resume();
    relay.freeze(false);
    pool.write(nothing).await.unwrap();
}

#[actix::test]
async fn a_database_that_refuses_connections_keeps_no_caller_waiting_and_is_used_again() {
    let Some(postgres) = testing::Postgres::create() else { return };
    let pool = Pool::open(&postgres.database()).unwrap();
    let read = || pool.read(|db| users::find(db, &"user".into()));
    read().await.unwrap();
    postgres.refuse(true);
    let is_refusal = |error: &DbError| error.to_string().contains("it refuses connections");
    // The first ones find out, each on a connection that is gone.
    while !read().await.is_err_and(|error| is_refusal(&error)) {}
    let answers = futures_util::future::join_all((0..200).map(|_| read())).await;
    assert!(answers.iter().all(|answer| answer.as_ref().is_err_and(is_refusal)), "{answers:?}");
    postgres.refuse(false);
    while read().await.is_err() {
        time::sleep(Duration::from_millis(50)).await;
    }
}

#[test]
fn a_second_host_is_reached_while_the_first_one_hangs() {
    let Some(postgres) = testing::Postgres::create() else { return };
    let Database::Postgres(url) = postgres.database() else { unreachable!("it is one") };
    // Connections are taken, and never answered.
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let (before, host) = url.expose_secret().split_once('@').unwrap();
    let both = format!("{before}@{},{host}", mute.local_addr().unwrap());
    Pool::open_as_it_is(&Database::Postgres(SecretString::from(both))).unwrap();
}
