//! The names a player has used: asked once, kept, and shown as old when the service cannot be asked.

use companion::simulator::player_stats::PlayerStatsFaults;
use serde_json::{Value, json};

use super::{STATS_SERVER, Tracked};

impl Tracked {
    /// The names of this player.
    async fn aliases(&mut self, name: &str) -> Value {
        let answer = self.alice.get(&format!("/intel/{}/aliases?name={name}", self.server)).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }

    async fn no_aliases(&mut self, name: &str) {
        let answer = self.alice.get(&format!("/intel/{}/aliases?name={name}", self.server)).await;
        answer.expect_problem(503, "player_stats_unavailable");
        assert_eq!(answer.header("retry-after"), Some("60"));
    }
}

#[actix_web::test]
async fn a_name_is_asked_once_and_kept_for_hours() {
    let mut test = Tracked::start_with(&[]).await;
    let first = test.aliases("vex").await;
    assert_eq!((&first["name"], &first["stale"]), (&json!("vex"), &json!(false)));
    assert_eq!(first["asOf"], "2026-11-21T12:00:00.000Z");
    let names: Vec<&Value> = first["aliases"].as_array().unwrap().iter().map(|alias| &alias["name"]).collect();
    assert_eq!(names, ["Vex", "Vexatious"]);
    assert!(first["aliases"][0]["lastSeen"].is_string());
    assert_eq!((&first["players"][0]["name"], first["players"].as_array().unwrap().len()), (&json!("Vex"), 1));
    assert_eq!(test.aliases("VEX%20").await["players"], first["players"], "the same name");
    assert_eq!(test.asked("/players"), 1);
    let asked = test.service.asked().pop().unwrap();
    assert!(asked.contains("filter[search]=\"vex\"") && asked.contains("filter[server][game]=rust"), "{asked}");

    test.app.clock.advance(chrono::Duration::hours(6));
    assert_eq!(test.aliases("Vex").await["asOf"], "2026-11-21T18:00:00.000Z");
    assert_eq!(test.asked("/players"), 2);

    let unknown = test.aliases("Nobody%20%22here%22%20%26%20%F0%9F%A6%80").await;
    assert_eq!((&unknown["aliases"], &unknown["players"]), (&json!([]), &json!([])));
    let asked = test.service.asked().pop().unwrap();
    assert!(asked.contains("=\"Nobody  here  & 🦀\""), "a quote does not end the phrase: {asked}");
}

#[actix_web::test]
async fn many_who_ask_the_same_share_one_answer() {
    let mut test = Tracked::start_with(&[]).await;
    test.service
        .set_faults(PlayerStatsFaults { delay: Some(std::time::Duration::from_millis(500)), ..Default::default() });
    let path = format!("/intel/{}/aliases?name=Vex", test.server);
    let (mut one, mut two) = (test.alice.clone(), test.alice.clone());
    let (one, two) = tokio::join!(one.get(&path), two.get(&path));
    assert_eq!((one.status, one.json()), (200, two.json()));
    assert_eq!(test.asked("/players"), 1);
    assert_eq!(test.aliases("Vex").await, one.json());
}

#[actix_web::test]
async fn players_are_looked_for_at_the_matched_server() {
    let mut test = Tracked::start().await;
    test.track("Rook").await;
    test.until(|list| list["match"]["id"] == STATS_SERVER).await;
    assert_eq!(test.aliases("Rook").await["players"][0]["name"], "Rook");
    let asked = test.service.asked().into_iter().find(|asked| asked.starts_with("/players")).unwrap();
    assert!(asked.contains(&format!("filter[servers]={STATS_SERVER}")), "{asked}");
}

#[actix_web::test]
async fn a_service_that_is_down_leaves_the_kept_answer() {
    let mut test = Tracked::start_with(&[]).await;
    let first = test.aliases("Vex").await;
    test.app.clock.advance(chrono::Duration::hours(7));
    for faults in [
        PlayerStatsFaults { status: Some(500), ..Default::default() },
        PlayerStatsFaults { malformed: true, ..Default::default() },
        PlayerStatsFaults { rate_limit: Some(300), ..Default::default() },
    ] {
        test.service.set_faults(faults);
        let kept = test.aliases("Vex").await;
        assert_eq!((&kept["stale"], &kept["asOf"]), (&json!(true), &first["asOf"]), "{faults:?}");
        assert_eq!(kept["aliases"], first["aliases"]);
        test.no_aliases("Rook").await;
    }
}

#[actix_web::test]
async fn a_spent_budget_leaves_the_kept_answer() {
    // At noon three quarters of four requests are released.
    let mut test = Tracked::start_with(&["--player-stats-daily-requests=4"]).await;
    for name in ["Vex", "Rook", "Ada"] {
        test.aliases(name).await;
    }
    test.no_aliases("Eve").await;
    assert_eq!(test.aliases("Vex").await["stale"], false, "what is kept costs nothing");
    test.app.clock.advance(chrono::Duration::hours(7));
    assert_eq!(test.aliases("Vex").await["stale"], false);
    assert_eq!(test.aliases("Rook").await["stale"], true);
    assert_eq!(test.asked("/players"), 4);
}

#[actix_web::test]
async fn questions_of_one_user_are_limited() {
    let mut test = Tracked::start_with(&[]).await;
    for _ in 0..10 {
        test.aliases("Vex").await;
    }
    let path = format!("/intel/{}/aliases?name=Vex", test.server);
    let refused = test.alice.get(&path).await;
    refused.expect_problem(429, "rate_limited");
    assert!(refused.header("retry-after").is_some());
    test.app.clock.advance(chrono::Duration::seconds(6));
    test.aliases("Vex").await;
}

#[actix_web::test]
async fn a_name_that_is_none_is_refused() {
    let mut test = Tracked::start_with(&[]).await;
    for (query, path) in [
        ("name=", "name"),
        ("name=%20", "name"),
        ("name=%E2%80%8B", "name"),
        ("name=a%0Ab", "name"),
        ("name=a%00b", "name"),
        (&*format!("name={}", "x".repeat(65)), "name"),
        ("", "name"),
        ("name=a&name=b", "name"),
    ] {
        let answer = test.alice.get(&format!("/intel/{}/aliases?{query}", test.server)).await;
        let problem = answer.expect_problem(400, "invalid_request");
        assert_eq!(problem["errors"][0]["path"], path, "{query}: {problem}");
    }
    assert!(test.service.asked().is_empty());
}
