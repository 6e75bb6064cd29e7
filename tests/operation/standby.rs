//! Two processes on one PostgreSQL: one serves, the other one waits and takes over when the first is gone.

use std::time::{Duration, Instant};

use companion::simulator::world::BASE_ALARM;
use diesel::{
    Connection as _, PgConnection, QueryableByName, RunQueryDsl as _,
    connection::SimpleConnection as _,
    sql_query,
    sql_types::{BigInt, Text},
};
use futures_util::future::join_all;
use reqwest::Method;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::sleep;

use super::{Installation, User, crash::Service, database::Postgres, installation, still_game, until};

const USERS: u64 = 5;

#[derive(QueryableByName)]
struct Count {
    #[diesel(sql_type = BigInt)]
    count: i64,
}

/// Connections whose name is like this one.
fn found(connection: &mut PgConnection, name: &str) -> i64 {
    let query = "SELECT count(*) AS count FROM pg_stat_activity WHERE datname = current_database() \
                 AND application_name LIKE $1";
    sql_query(query).bind::<Text, _>(name).get_result::<Count>(connection).unwrap().count
}

/// The number of alarms in incidents.
fn alarms(postgres: &Postgres) -> i64 {
    let mut connection = PgConnection::establish(&postgres.url()).unwrap();
    let query = "SELECT coalesce(sum(count), 0)::bigint AS count FROM incidents";
    sql_query(query).get_result::<Count>(&mut connection).unwrap().count
}

/// Asks the API of this service.
async fn asked(service: &Service, path: &str) -> Option<(u16, Value)> {
    User::new(&service.addresses, "").ask(Method::GET, path, None).await
}

async fn serves(service: &Service) -> bool {
    asked(service, "/health").await.is_some_and(|(_, health)| health["serving"] == true)
}

/// Waits until it names the process for which it waits.
async fn until_it_waits_for(service: &Service, process: u32) {
    let words = format!("waits for process {process} on ");
    until(&words, || async {
        let Some((status, problem)) = asked(service, "/ready").await else { return false };
        let reason = problem["errors"][0]["message"].as_str().unwrap_or_default();
        assert!(!reason.contains("process") || reason.contains("which serves since 20"), "{problem}");
        status == 503 && problem["code"] == "not_ready" && reason.starts_with(&words)
    })
    .await;
}

#[actix_web::test]
async fn a_start_that_waits_for_its_database_answers_meanwhile() {
    let flags = ["--database-url=postgres://u@127.0.0.1:1/none", "--push-address=127.0.0.1:9"];
    let service = Installation::new(|_| flags.map(str::to_owned).to_vec()).start_waiting();
    until("answer", || async { asked(&service, "/health").await.is_some() }).await;
    let (status, health) = asked(&service, "/health").await.unwrap();
    assert_eq!((status, &health["ok"], &health["serving"]), (200, &true.into(), &false.into()), "{health}");
    let (status, problem) = asked(&service, "/ready").await.unwrap();
    let reason = problem["errors"][0]["message"].as_str().unwrap_or_default();
    assert!(status == 503 && reason.starts_with("waits for its database"), "{problem}");
    assert!(!problem.to_string().contains("127.0.0.1:1"), "{problem}");
}

#[actix_web::test]
async fn a_second_process_waits_and_takes_over_without_losing_an_alarm() {
    let Some(postgres) = Postgres::create() else { return };
    let flag = format!("--database-url={}", postgres.url());
    let (installation, cookies) = installation(USERS, &[&flag, "--drain-seconds=0"]);
    let mut first = installation.start();
    let game = still_game().await;
    let owner = User::new(&first.addresses, &cookies[0]);
    let server = owner.pair(game.addr()).await;
    owner.until_alarm_is_known(&server).await;

    for (round, signal) in [(&1, Signal::TERM), (&2, Signal::KILL)] {
        let second = installation.start_waiting();
        until_it_waits_for(&second, first.id()).await;
        let (status, health) = asked(&second, "/health").await.unwrap();
        assert_eq!((status, &health["ok"], &health["serving"]), (200, &true.into(), &false.into()), "{health}");
        let (status, problem) = asked(&second, "/me").await.unwrap();
        assert_eq!((status, &problem["code"]), (503, &"unavailable".into()), "{problem}");
        let metrics = super::binary::http().get(format!("{}/metrics", second.addresses.api)).send().await.unwrap();
        assert_eq!(metrics.text().await.unwrap(), "companion_serving 0\n");
        assert!(serves(&first).await);

        let users: Vec<User> = cookies.iter().map(|cookie| User::new(&first.addresses, cookie)).collect();
        let closed = join_all(users.iter().map(|user| user.open())).await.into_iter().map(super::Socket::closed);
        let closed: Vec<_> = closed.map(actix_web::rt::spawn).collect();
        first.signal(signal);
        join_all(closed).await;
        // The game server has no watcher now.
        game.world(|world| world.fire_alarm(BASE_ALARM));
        until("the second one", || serves(&second)).await;
        first.ended();
        let users: Vec<User> = cookies.iter().map(|cookie| User::new(&second.addresses, cookie)).collect();
        let _open = join_all(users.iter().map(|user| user.open())).await;
        until("the alarm", || async { alarms(&postgres) == *round }).await;
        // Its end is awaited, so that the next one is another one.
        game.world(|world| world.release_alarm(BASE_ALARM));
        let owner = &users[0];
        until("its end", || async {
            let path = format!("/paired-servers/{server}/devices");
            let (_, devices) = owner.ask(Method::GET, &path, None).await.unwrap();
            devices["devices"][0]["value"] == false
        })
        .await;
        first = second;
    }
}

/// Starts a service with keys of its own on this database, and waits until it ends.
async fn ended_beside(flag: &str) -> (Option<i32>, String) {
    let other = TempDir::new().unwrap();
    let mut command = super::binary::companion(other.path());
    command.args(["serve", "--data-dir=.", "--api-listen=127.0.0.1:0", "--relay-listen=127.0.0.1:0", flag]);
    let output = actix_web::web::block(move || command.output().unwrap()).await.unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[actix_web::test]
async fn a_process_with_another_key_does_not_wait() {
    let Some(postgres) = Postgres::create() else { return };
    let flag = format!("--database-url={}", postgres.url());
    let (installation, cookies) = installation(1, &[&flag, "--drain-seconds=0"]);
    let first = installation.start();
    let game = still_game().await;
    User::new(&first.addresses, &cookies[0]).pair(game.addr()).await;
    let (code, text) = ended_beside(&flag).await;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("none of 1 stored secrets opens"), "{text}");
    assert!(serves(&first).await);
}

/// A newer program has brought the schema up to date.
const NEWER_STEP: &str = "INSERT INTO __diesel_schema_migrations (version) VALUES ('99999999999999')";

#[actix_web::test]
async fn a_process_with_an_older_program_does_not_wait() {
    let Some(postgres) = Postgres::create() else { return };
    let flag = format!("--database-url={}", postgres.url());
    let (installation, _) = installation(1, &[&flag, "--drain-seconds=0"]);
    let first = installation.start();
    PgConnection::establish(&postgres.url()).unwrap().batch_execute(NEWER_STEP).unwrap();
    let (code, text) = ended_beside(&flag).await;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("step 99999999999999 of a newer companion"), "{text}");
    assert!(serves(&first).await);
}

#[actix_web::test]
async fn a_process_that_has_lost_its_lock_to_another_one_ends() {
    let Some(postgres) = Postgres::create() else { return };
    let flag = format!("--database-url={}", postgres.url());
    let (installation, _) = installation(1, &[&flag]);
    let mut first = installation.start();
    let second = installation.start_waiting();
    until_it_waits_for(&second, first.id()).await;
    let mut connection = PgConnection::establish(&postgres.url()).unwrap();
    // Both ask for it then, and either may be quicker.
    let serving = format!("companion serves % {} %", second.id());
    while found(&mut connection, &serving) == 0 {
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND \
                   starts_with(application_name, 'companion serves')";
        connection.batch_execute(end).unwrap();
        until("one that has the lock", || async {
            found(&mut PgConnection::establish(&postgres.url()).unwrap(), "companion serves%") == 1
        })
        .await;
    }
    assert_eq!(first.ended(), Some(1));
    until("the second one", || serves(&second)).await;
}

/// Opens a socket at whichever of them serves.
async fn open_at_one_of(cookie: &str, services: [&Service; 2]) -> super::Socket {
    loop {
        for service in services {
            let user = User::new(&service.addresses, cookie);
            let Some((200, answer)) = user.ask(Method::POST, "/relay/token", None).await else { continue };
            if let Some(socket) = user.open_with(answer["token"].as_str().unwrap()).await {
                return socket;
            }
        }
        sleep(Duration::from_millis(20)).await;
    }
}

#[actix_web::test]
#[ignore = "prints how long 300 sockets are without a service"]
async fn figures_of_a_take_over() {
    const SOCKETS: usize = 10;
    let Some(postgres) = Postgres::create() else { return };
    let flag = format!("--database-url={}", postgres.url());
    let (installation, cookies) = installation(30, &[&flag]);
    let mut first = installation.start();
    let game = still_game().await;
    let owner = User::new(&first.addresses, &cookies[0]);
    let server = owner.pair(game.addr()).await;
    owner.until_alarm_is_known(&server).await;
    for (round, signal) in [(1, Signal::TERM), (2, Signal::KILL)] {
        let second = installation.start_waiting();
        until_it_waits_for(&second, first.id()).await;
        let all = (0..cookies.len() * SOCKETS).map(|number| {
            let (cookie, both) = (&cookies[number / SOCKETS], [&first, &second]);
            async move {
                let (_, closed) = open_at_one_of(cookie, both).await.closed().await;
                let _open = open_at_one_of(cookie, both).await;
                closed.elapsed()
            }
        });
        let began = Instant::now();
        let middle = async {
            sleep(Duration::from_secs(8)).await;
            first.signal(signal);
            let signalled = Instant::now();
            until("no one", || async { !serves(&first).await }).await;
            game.world(|world| world.fire_alarm(BASE_ALARM));
            until("the second one", || serves(&second)).await;
            let serving = signalled.elapsed();
            until("the alarm", || async { alarms(&postgres) == round }).await;
            (serving, signalled.elapsed())
        };
        let (mut without, (serving, alarm)) = tokio::join!(join_all(all), middle);
        without.sort();
        let [median, longest] = [without[without.len() / 2], without[without.len() - 1]];
        println!(
            "{signal:?}: {} sockets, without one for {median:?} (median), {longest:?} (longest); the second process \
             served after {serving:?}, the alarm of the middle was stored after {alarm:?}, {:?} in all",
            without.len(),
            began.elapsed()
        );
        game.world(|world| world.release_alarm(BASE_ALARM));
        let owner = User::new(&second.addresses, &cookies[0]);
        until("its end", || async {
            let path = format!("/paired-servers/{server}/devices");
            let (_, devices) = owner.ask(Method::GET, &path, None).await.unwrap();
            devices["devices"][0]["value"] == false
        })
        .await;
        first.ended();
        first = second;
    }
}
