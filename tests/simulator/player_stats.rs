//! The simulated player-statistics service.

use std::net::Ipv4Addr;

use companion::{
    clients::http::client,
    clock::Clock,
    net::tls_config,
    simulator::player_stats::{Habit, KnownPlayer, ListedGame, PlayerStatsService, regulars},
};
use serde_json::Value;

async fn service(clock: &Clock) -> PlayerStatsService {
    let game = ListedGame::at("7", "Sim Valley", "203.0.113.9:28082".parse().unwrap());
    let quiet = KnownPlayer { names: vec!["Quiet".into()], server: "7".into(), habit: Habit::Offline };
    let players = regulars("7").into_iter().chain([quiet]).collect();
    PlayerStatsService::start((Ipv4Addr::LOCALHOST, 0).into(), vec![game], players, clock.clone()).await.unwrap()
}

#[actix_web::test]
async fn it_has_the_real_limits_of_a_minute() {
    let clock = Clock::adjustable("2026-11-21T12:00:00Z".parse().unwrap());
    let service = service(&clock).await;
    let http = client(tls_config(None).unwrap()).unwrap();
    let ask = || async { http.get(format!("{}/servers?filter[search]=valley", service.url())).send().await.unwrap() };
    for left in (0..60).rev() {
        let answer = ask().await;
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.headers()["x-rate-limit-remaining"], left.to_string().as_str());
    }
    clock.advance(chrono::Duration::seconds(20));
    let refused = ask().await;
    assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (429, &"41".parse().unwrap()));
    let with_token = http.get(format!("{}/servers/7", service.url())).bearer_auth("t").send().await.unwrap();
    assert_eq!(with_token.headers()["x-rate-limit-remaining"], "299");
    clock.advance(chrono::Duration::seconds(40));
    assert_eq!(ask().await.status(), 200);
}

#[actix_web::test]
async fn its_regulars_come_and_go() {
    let clock = Clock::adjustable("2026-11-21T12:00:00Z".parse().unwrap());
    let service = service(&clock).await;
    let http = client(tls_config(None).unwrap()).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..10 {
        let answer = http.get(format!("{}/servers/7?include=player", service.url())).send().await.unwrap();
        let body: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
        let names = body["included"].as_array().unwrap().iter().map(|player| player["attributes"]["name"].to_string());
        seen.insert(names.collect::<Vec<_>>());
        clock.advance(chrono::Duration::seconds(30));
    }
    assert!(seen.len() > 2, "{seen:?}");
    assert!(!seen.iter().flatten().any(|name| name == "\"Quiet\""));
}
