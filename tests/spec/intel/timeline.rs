use chrono::Duration;
use companion::simulator::world::{BASE_ALARM, TEAM};
use serde_json::{Value, json};

use crate::harness::{
    game::{BOB, is_complete, pair, watched},
    relay_client::RelayClient,
};

fn entries(timeline: &Value) -> &Vec<Value> {
    timeline["entries"].as_array().unwrap()
}

fn of_kind<'a>(timeline: &'a Value, kind: &str) -> Vec<&'a Value> {
    entries(timeline).iter().filter(|entry| entry["kind"] == kind).collect()
}

#[actix_web::test]
async fn what_happens_is_in_the_timeline_under_the_id_of_the_event() {
    let (_app, mut alice, game, server, mut client) = watched(&[BASE_ALARM]).await;
    let path = format!("/intel/{server}/timeline");
    let answer = alice.get(&path).await;
    assert_eq!(
        (answer.status, answer.json()),
        (200, json!({ "entries": [], "next": null, "reports": answer.json()["reports"] }))
    );
    assert_eq!(answer.json()["reports"]["shops"], "yes");
    game.world(|world| {
        world.send_cargo_ship();
        world.kill(TEAM[2].0);
        world.fire_alarm(BASE_ALARM);
    });
    let raid = client.expect("raid").await;
    let cargo = client.expect_where("event", |message| message["event"]["kind"] == "cargo").await;
    let all = |shown: &Value| ["cargo", "death", "raid"].iter().all(|kind| !of_kind(shown, kind).is_empty());
    let timeline = alice.get_until(&path, all).await;
    let [entry] = of_kind(&timeline, "cargo")[..] else { panic!("not one: {timeline}") };
    assert_eq!(entry, &cargo["event"], "one thing has one shape");
    assert_eq!(of_kind(&timeline, "raid")[0]["id"], raid["incident"]);
    let ids: Vec<&Value> = entries(&timeline).iter().map(|entry| &entry["id"]).collect();

    let raids = alice.get(&format!("{path}?types=raid,cargo")).await.json();
    assert_eq!(entries(&raids).len(), 2, "{raids}");
    let first = alice.get(&format!("{path}?limit=1")).await.json();
    assert_eq!([&first["entries"][0]["id"]], ids[..1]);
    let next = first["next"].as_str().unwrap();
    let rest = alice.get(&format!("{path}?before={next}")).await.json();
    assert_eq!(entries(&rest).iter().map(|entry| &entry["id"]).collect::<Vec<_>>(), ids[1..]);
    let none = alice.get(&format!("{path}?since=2999-01-01T00:00:00Z")).await.json();
    assert_eq!(entries(&none).len(), 0);
}

#[actix_web::test]
async fn two_who_paired_one_game_server_see_one_event_each_once() {
    let (app, mut alice, game, server, mut client) = watched(&[]).await;
    let mut bob = app.signed_in(BOB).await;
    let his = pair(&mut bob, &game).await;
    let mut bobs = RelayClient::watching(&app, &mut bob, &his).await;
    bobs.until(&his, |state| is_complete(state, 0)).await;
    game.world(|world| world.send_cargo_ship());
    let event = client.expect("event").await;
    assert_eq!(bobs.expect("event").await["event"]["id"], event["event"]["id"]);
    for (browser, server) in [(&mut alice, &server), (&mut bob, &his)] {
        let path = format!("/intel/{server}/timeline?types=cargo");
        let timeline = browser.get_until(&path, |shown| !entries(shown).is_empty()).await;
        assert_eq!(entries(&timeline).len(), 1, "{timeline}");
        assert_eq!(timeline["entries"][0]["id"], event["event"]["id"]);
    }
}

#[actix_web::test]
async fn the_time_in_which_the_service_was_away_is_a_gap() {
    let (app, alice, game, server, _client) = watched(&[]).await;
    app.clock.advance(Duration::hours(1));
    let clock = app.clock.clone();
    let app = app.restart_after(|| clock.advance(Duration::minutes(10))).await;
    let mut alice = app.again(&alice);
    let gaps = format!("/intel/{server}/timeline?types=gap");
    let timeline = alice.get_until(&gaps, |shown| !entries(shown).is_empty()).await;
    let data = &entries(&timeline)[0]["data"];
    let bounds = ("2026-11-21T13:00:00.000Z", "2026-11-21T13:10:00.000Z");
    assert_eq!((&data["from"], &data["to"]), (&json!(bounds.0), &json!(bounds.1)));
    assert_eq!(entries(&timeline)[0]["ts"], bounds.1);

    // An outage that began before the service was away is one, too; one of some seconds is none.
    let mut client = RelayClient::watching(&app, &mut alice, &server).await;
    client.until(&server, |state| is_complete(state, 0)).await;
    game.stop().await;
    client.until(&server, |state| state["server"]["connection"] == "unreachable").await;
    clock.advance(Duration::minutes(5));
    let app = app.restart_after(|| clock.advance(Duration::minutes(5))).await;
    game.restart().await.unwrap();
    let mut alice = app.again(&alice);
    let timeline = alice.get_until(&gaps, |shown| entries(shown).len() > 1).await;
    let data = &entries(&timeline)[0]["data"];
    assert_eq!((&data["from"], &data["to"]), (&json!(bounds.1), &json!("2026-11-21T13:20:00.000Z")));
    let app = app.restart_after(|| clock.advance(Duration::seconds(10))).await;
    let mut alice = app.again(&alice);
    let mut client = RelayClient::watching(&app, &mut alice, &server).await;
    client.until(&server, |state| is_complete(state, 0)).await;
    game.world(|world| world.kill(TEAM[2].0));
    let deaths = format!("/intel/{server}/timeline?types=gap,death");
    let timeline = alice.get_until(&deaths, |shown| !of_kind(shown, "death").is_empty()).await;
    assert_eq!(of_kind(&timeline, "gap").len(), 2, "{timeline}");
}

#[actix_web::test]
async fn bad_queries_and_strangers_are_refused() {
    let (app, mut alice, _game, server, _client) = watched(&[]).await;
    let path = format!("/intel/{server}/timeline");
    for (query, field) in [
        ("since=yesterday", "since"),
        ("types=cargo,raids", "types"),
        ("limit=0", "limit"),
        ("limit=501", "limit"),
        ("before=7", "before"),
        ("before=-300000000000000000.x", "before"),
        ("before=1.%00", "before"),
    ] {
        let problem = alice.get(&format!("{path}?{query}")).await.expect_problem(400, "invalid_request");
        assert_eq!(problem["errors"][0]["path"], field, "{query}");
    }
    app.browser().get(&path).await.expect_problem(401, "unauthenticated");
    app.signed_in(BOB).await.get(&path).await.expect_problem(404, "not_found");
}
