//! Two processes on one PostgreSQL: one serves, the other one waits and takes over when the first is gone.

use std::{
    cell::Cell,
    collections::BTreeMap,
    pin::pin,
    time::{Duration, Instant},
};

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
use tokio::time::{interval, timeout};

use super::{
    Installation, PATIENCE, User,
    caddy::Caddy,
    crash::{Service, free_addresses},
    database::Postgres,
    drain::RESTARTING,
    installation, still_game, until, until_some,
};

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

/// Open sockets of this process.
async fn open_sockets(service: &Service) -> Option<usize> {
    let url = format!("http://{}/health", service.addresses.relay);
    let health: Value = super::binary::http().get(url).send().await.ok()?.json().await.ok()?;
    Some(health["activeConnections"].as_u64()? as usize)
}

/// Waits until the alarm is silent, so that the next one is another one.
async fn until_the_alarm_is_over(owner: &User, server: &str) {
    let path = format!("/paired-servers/{server}/devices");
    until("its end", || async {
        let (_, devices) = owner.ask(Method::GET, &path, None).await.unwrap();
        devices["devices"][0]["value"] == false
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
        game.world(|world| world.release_alarm(BASE_ALARM));
        until_the_alarm_is_over(&users[0], &server).await;
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

/// Opens a socket at the first of these doors that lets the user in.
async fn open_at_one_of(doors: &[User]) -> super::Socket {
    until_some("door that lets in", || async {
        for door in doors {
            let Some((200, answer)) = door.ask(Method::POST, "/relay/token", None).await else { continue };
            if let Some(socket) = door.open_with(answer["token"].as_str().unwrap()).await {
                return Some(socket);
            }
        }
        None
    })
    .await
}

/// Waits until this stream has shown this number of alarms.
async fn until_alarms(socket: &mut super::Socket, snapshot: &Value, alarms: i64) {
    let count = |raid: &Value| raid["count"].as_i64().unwrap();
    let raids = snapshot["state"]["raids"].as_object().unwrap();
    let mut counts: BTreeMap<String, i64> = raids.iter().map(|(id, raid)| (id.clone(), count(raid))).collect();
    while counts.values().sum::<i64>() < alarms {
        let raid = socket.expect("raid").await;
        counts.insert(raid["incident"].as_str().unwrap().to_owned(), count(&raid));
    }
}

/// One request, and what came of it.
struct Asked {
    status: Option<u16>,
    took: Duration,
    ended: Instant,
}

/// Asks for `/status` at one door after the other, until one answers with 200.
async fn ask_one_of(doors: Vec<User>) -> Asked {
    let began = Instant::now();
    let mut status = None;
    for door in doors {
        let answer = timeout(PATIENCE, door.ask(Method::GET, "/status", None)).await.expect("no request hangs");
        status = answer.map(|(status, _)| status);
        if status == Some(200) {
            break;
        }
    }
    Asked { status, took: began.elapsed(), ended: Instant::now() }
}

/// Asks every 50 ms until this has ended.
async fn asking<T>(doors: &[User], meanwhile: impl Future<Output = T>) -> (T, Vec<Asked>) {
    let mut asked = Vec::new();
    let mut times = interval(Duration::from_millis(50));
    let mut meanwhile = pin!(meanwhile);
    let done = loop {
        tokio::select! {
            done = &mut meanwhile => break done,
            _ = times.tick() => asked.push(actix_web::rt::spawn(ask_one_of(doors.to_vec()))),
        }
    };
    (done, join_all(asked).await.into_iter().map(Result::unwrap).collect())
}

/// Checks what came of the requests; their figures.
fn checked(asked: &[Asked], behind_caddy: bool) -> String {
    let mut statuses = BTreeMap::new();
    for Asked { status, .. } in asked {
        // 429: clients that try all the time may spend what their address has.
        let is_known = matches!(status, Some(200 | 429 | 502 | 503)) || status.is_none() && !behind_caddy;
        assert!(is_known, "{status:?}");
        *statuses.entry(*status).or_insert(0) += 1;
    }
    let longest = asked.iter().map(|asked| asked.took).max().unwrap();
    let mut answers: Vec<_> = asked.iter().filter(|asked| asked.status == Some(200)).map(|asked| asked.ended).collect();
    answers.sort();
    let unanswered = answers.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
    format!("no request was answered with 200 for {unanswered:.1?}, one took {longest:.1?}, statuses {statuses:?}")
}

/// Ends the process that serves by SIGTERM, and the next one by SIGKILL, while sockets are open, an alarm begins and
/// requests come. Their clients know both processes, or only the proxy before them.
async fn take_overs(users: u64, sockets_of_user: usize, behind_caddy: bool) {
    let Some(postgres) = Postgres::create() else { return };
    let flag = format!("--database-url={}", postgres.url());
    let (installation, cookies) = installation(users, &[&flag, "--trusted-proxies=127.0.0.1"]);
    let mut first = installation.start();
    let mut other = free_addresses();
    let caddy = if behind_caddy {
        let Some(caddy) = Caddy::start([&first.addresses, &other]).await else { return };
        Some(caddy)
    } else {
        None
    };
    let game = still_game().await;
    let owner = User::new(&first.addresses, &cookies[0]);
    let server = &owner.pair(game.addr()).await;
    owner.until_alarm_is_known(server).await;
    let sockets = cookies.len() * sockets_of_user;
    for (round, signal) in [(1, Signal::TERM), (2, Signal::KILL)] {
        let second = installation.start_waiting_at(other);
        until_it_waits_for(&second, first.id()).await;
        let addresses = match &caddy {
            Some(caddy) => vec![&caddy.addresses],
            None => vec![&first.addresses, &second.addresses],
        };
        let doors = |cookie: &str| addresses.iter().map(|address| User::new(address, cookie)).collect::<Vec<_>>();
        let opened = &Cell::new(0);
        let clients = (0..sockets).map(|number| {
            let doors = doors(&cookies[number / sockets_of_user]);
            let is_owner = number < sockets_of_user;
            async move {
                let mut socket = open_at_one_of(&doors).await;
                let seen = if is_owner { socket.subscribe(server).await } else { Value::Null };
                opened.set(opened.get() + 1);
                let (code, closed) = socket.closed().await;
                assert_eq!(code, (signal == Signal::TERM).then_some(RESTARTING));
                let mut socket = open_at_one_of(&doors).await;
                let without = closed.elapsed();
                if is_owner {
                    let snapshot = socket.subscribe_from(server, &seen).await;
                    assert_ne!(snapshot["epoch"], seen["epoch"], "another process has another epoch");
                    until_alarms(&mut socket, &snapshot, round).await;
                }
                (without, socket)
            }
        });
        let middle = async {
            until("all sockets", || async { opened.get() == sockets }).await;
            first.signal(signal);
            let signalled = Instant::now();
            until("no one", || async { !serves(&first).await }).await;
            // The game server has no watcher now.
            game.world(|world| world.fire_alarm(BASE_ALARM));
            until("the second one", || serves(&second)).await;
            let serving = signalled.elapsed();
            until("the alarm", || async { alarms(&postgres) == round }).await;
            (serving, signalled.elapsed())
        };
        let clients_and_middle = async { tokio::join!(join_all(clients), middle) };
        let ((clients, (serving, alarm)), asked) = asking(&doors(""), clients_and_middle).await;
        until("all sockets", || async { open_sockets(&second).await == Some(sockets) }).await;
        assert_eq!(alarms(&postgres), round);

        let requests = checked(&asked, behind_caddy);
        let mut without: Vec<_> = clients.iter().map(|(without, _)| *without).collect();
        without.sort();
        let [median, longest] = [without[without.len() / 2], without[without.len() - 1]];
        println!(
            "{signal:?}: {sockets} sockets, without one for {median:.1?} (median), {longest:.1?} (longest); the second \
             process served after {serving:.1?}, the alarm of the middle was stored after {alarm:.1?}; {requests}"
        );
        game.world(|world| world.release_alarm(BASE_ALARM));
        let owner = User::new(&second.addresses, &cookies[0]);
        until_the_alarm_is_over(&owner, server).await;
        first.ended();
        other = first.addresses.clone();
        first = second;
    }
}

#[actix_web::test]
async fn clients_behind_caddy_get_from_one_process_to_the_other() {
    take_overs(3, 4, true).await;
}

#[actix_web::test]
#[ignore = "prints how long 300 sockets are without a service"]
async fn figures_of_a_take_over() {
    take_overs(30, 10, false).await;
}

#[actix_web::test]
#[ignore = "prints how long 300 sockets behind Caddy are without a service"]
async fn figures_of_a_take_over_behind_caddy() {
    take_overs(30, 10, true).await;
}
