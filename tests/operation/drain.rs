//! Stop of the service: sockets are closed one after the other, nothing that arrives meanwhile is lost, and a second
//! signal ends it at once.

use std::{collections::BTreeMap, time::Duration};

use companion::{
    db::{alarms::incidents, engine::pool::Pool},
    simulator::world::BASE_ALARM,
};
use futures_util::future::join_all;
use reqwest::Method;
use rustix::process::Signal;

use super::{User, installation, still_game, until};

const USERS: u64 = 30;
const SOCKETS_OF_USER: usize = 12;
const DRAIN: Duration = Duration::from_secs(3);
/// `Reason::Restarting`.
pub const RESTARTING: u16 = 4412;

#[actix_web::test]
async fn a_signal_closes_sockets_over_time_and_loses_no_alarm() {
    let flag = format!("--drain-seconds={}", DRAIN.as_secs());
    let (installation, cookies) = installation(USERS, &[&flag]);
    let mut service = installation.start();
    let game = still_game().await;
    let users: Vec<User> = cookies.iter().map(|cookie| User::new(&service.addresses, cookie)).collect();
    let owner = &users[0];
    let server = owner.pair(game.addr()).await;
    owner.until_alarm_is_known(&server).await;
    let mut sockets = Vec::new();
    for user in &users {
        sockets.extend(join_all((0..SOCKETS_OF_USER).map(|_| user.open())).await);
    }
    let closed: Vec<_> = sockets.into_iter().map(|socket| actix_web::rt::spawn(socket.closed())).collect();

    service.signal(Signal::TERM);
    // Not ready, while sockets are still open.
    until("not ready", || async {
        let answer = owner.ask(Method::GET, "/ready", None).await;
        let (status, problem) = answer.expect("it answers while sockets are open");
        status == 503 && problem["errors"][0]["path"] == "service"
    })
    .await;
    game.world(|world| world.fire_alarm(BASE_ALARM));
    let (_, answer) = owner.ask(Method::GET, "/status", None).await.unwrap();
    assert_eq!(answer["state"], "stopping", "{answer}");
    assert_eq!(owner.try_open().await.err(), Some(503), "no new sockets");

    let mut ends = Vec::new();
    let mut codes: BTreeMap<Option<u16>, usize> = BTreeMap::new();
    for socket in closed {
        let (code, at) = socket.await.unwrap();
        *codes.entry(code).or_default() += 1;
        ends.push(at);
    }
    assert_eq!(codes, BTreeMap::from([(Some(RESTARTING), USERS as usize * SOCKETS_OF_USER)]));
    // No more than half of them within any fifth of the time that all took.
    ends.sort();
    let all = *ends.last().unwrap() - ends[0];
    let half = ends.len() / 2;
    let quickest_half = (0..ends.len() - half).map(|place| ends[place + half] - ends[place]).min().unwrap();
    assert!(quickest_half * 5 > all, "half of the sockets were closed within {quickest_half:?} of {all:?}");

    assert_eq!(service.ended(), Some(0));
    let pool = Pool::open(&installation.database()).unwrap();
    let stored = pool.read_blocking(|db| incidents::list(db, &server.as_str().into(), None, 10)).unwrap();
    assert_eq!(stored.len(), 1, "the alarm of the drain is stored");
}

#[actix_web::test]
async fn a_second_signal_ends_it_at_once() {
    let (installation, cookies) = installation(USERS, &["--drain-seconds=600"]);
    for (first, second) in [(Signal::TERM, Signal::INT), (Signal::INT, Signal::INT)] {
        let mut service = installation.start();
        let users: Vec<User> = cookies.iter().map(|cookie| User::new(&service.addresses, cookie)).collect();
        let mut sockets = Vec::new();
        for user in &users {
            sockets.extend(join_all((0..SOCKETS_OF_USER).map(|_| user.open())).await);
        }
        service.signal(first);
        until("not ready", || async { users[0].ask(Method::GET, "/ready", None).await.unwrap().0 == 503 }).await;
        service.signal(second);
        assert_eq!(service.ended(), Some(1));
        drop(sockets);
    }
}

#[actix_web::test]
async fn a_service_without_sockets_stops_without_waiting() {
    let (installation, _) = installation(1, &["--drain-seconds=600"]);
    let mut service = installation.start();
    service.signal(Signal::INT);
    assert_eq!(service.ended(), Some(0));
}
