//! The client of the player-statistics service, beside one that misbehaves.

use std::time::{Duration, Instant};

use companion::{
    clients::{
        http,
        player_stats::{CALL_DEADLINE, PlayerStatsClient, PlayerStatsError},
    },
    crypto::random::Random,
    net::tls_config,
    simulator::player_stats::{Habit, PlayerStatsFaults, PlayerStatsService},
};

use super::STATS_SERVER;
use crate::harness::binary;

/// A client and a service where Vex, formerly Vexatious, is online.
async fn client(token: Option<&str>) -> (PlayerStatsClient, PlayerStatsService) {
    let service = super::service(&[&["Vex", "Vexatious"], &["Rook"]]).await;
    service.set_habit("Vex", Habit::Online);
    let directory = tempfile::TempDir::new().unwrap();
    let mut flags =
        vec![format!("--data-dir={}", directory.path().display()), format!("--player-stats-url={}/", service.url())];
    flags.extend(token.map(|token| format!("--player-stats-token={token}")));
    let settings = binary::config(&flags).player_stats.unwrap();
    let http = http::client(tls_config(None).unwrap()).unwrap();
    (PlayerStatsClient::new(http, settings, Random::system()), service)
}

fn reason(error: &PlayerStatsError) -> String {
    assert!(matches!(error, PlayerStatsError::Client(_)), "{error:?}");
    let reason = error.to_string();
    assert!(!reason.contains("http") && !reason.contains("secret"), "{reason}");
    reason
}

#[actix_web::test]
async fn it_finds_servers_and_players() {
    let (client, service) = client(Some("secret")).await;
    let servers = client.find_servers("127.0.0.1").await.unwrap();
    assert_eq!((servers[0].id.as_str(), servers[0].ports[0]), (STATS_SERVER, 28_015));
    assert!(client.find_servers("elsewhere").await.unwrap().is_empty());
    let online = client.online_players(STATS_SERVER).await.unwrap();
    assert_eq!((online.count, &online.names[..]), (1, &["Vex".to_owned()][..]));
    assert!(matches!(client.online_players("1").await, Err(PlayerStatsError::Unknown)));
    let found = client.find_players("Vexatious", Some(STATS_SERVER)).await.unwrap();
    let names: Vec<&str> = found[0].names.iter().map(|seen| seen.name.as_str()).collect();
    assert_eq!((found[0].name.as_str(), &names[..]), ("Vex", &["Vex", "Vexatious"][..]));
    assert_eq!(service.asked().len(), 5, "one request each");
}

#[actix_web::test]
async fn a_failure_is_tried_once_more_and_then_reported() {
    let (client, service) = client(None).await;
    for (faults, expected) in [
        (PlayerStatsFaults { status: Some(502), ..Default::default() }, "status 502"),
        (PlayerStatsFaults { status: Some(302), ..Default::default() }, "status 302"),
        (PlayerStatsFaults { malformed: true, ..Default::default() }, "unreadable answer"),
        (PlayerStatsFaults { too_large: true, ..Default::default() }, "larger than"),
    ] {
        service.set_faults(faults);
        let before = service.asked().len();
        let error = client.online_players(STATS_SERVER).await.unwrap_err();
        assert!(reason(&error).contains(expected), "{error}");
        assert_eq!(service.asked().len(), before + 2, "{faults:?}");
    }
    service.set_faults(PlayerStatsFaults::default());
    assert!(client.online_players(STATS_SERVER).await.is_ok());
}

#[actix_web::test]
async fn a_slow_service_is_not_waited_for() {
    let (client, service) = client(None).await;
    service.set_faults(PlayerStatsFaults { delay: Some(Duration::from_secs(60)), ..Default::default() });
    let started = Instant::now();
    let error = client.find_players("Vex", None).await.unwrap_err();
    assert!(reason(&error).contains("in time"), "{error}");
    assert!(started.elapsed() < CALL_DEADLINE + Duration::from_secs(5));
}

#[actix_web::test]
async fn a_service_that_is_gone_is_unavailable() {
    let (client, service) = client(None).await;
    drop(service);
    // The service may still answer while it stops.
    let error = loop {
        if let Err(error) = client.find_servers("x").await {
            break error;
        }
    };
    reason(&error);
}

#[actix_web::test]
async fn after_too_many_requests_it_is_left_alone() {
    let (client, service) = client(Some("secret")).await;
    service.set_faults(PlayerStatsFaults { rate_limit: Some(120), ..Default::default() });
    let busy = client.online_players(STATS_SERVER).await.unwrap_err();
    assert!(matches!(busy, PlayerStatsError::Busy(pause) if pause == Duration::from_secs(120)), "{busy}");
    service.set_faults(PlayerStatsFaults::default());
    let busy = client.find_servers("x").await.unwrap_err();
    assert!(matches!(busy, PlayerStatsError::Busy(pause) if pause > Duration::from_secs(100)), "{busy}");
    assert_eq!(service.asked().len(), 1, "neither again nor for something else");
}

#[actix_web::test]
async fn a_minute_has_its_budget_before_the_service_has_to_say_so() {
    let (client, service) = client(None).await;
    let mut answered = 0;
    let refused = loop {
        match client.online_players(STATS_SERVER).await {
            Ok(_) => answered += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, PlayerStatsError::Busy(_)), "{refused}");
    assert_eq!((answered, service.asked().len()), (55, 55));
}
