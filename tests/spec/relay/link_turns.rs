//! Game servers that take few connections from an address: links take turns there, and users see when theirs comes.

use std::time::{Duration, Instant};

use chrono::TimeDelta;
use companion::simulator::{
    game_server::{ActKind, DEMO_TOKEN, GameServer},
    point::Point,
    world::{BASE_ALARM, GATE_SWITCH, SimulatedDevice, TEAM, roster},
};
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::team_link::{Mate, game_of, links};
use crate::harness::{
    app::TestApp,
    browser::Browser,
    game::{is_complete, is_connected},
    relay_client::{PATIENCE, RelayClient},
};

pub(super) fn is_waiting(state: &Value) -> bool {
    state["server"]["connection"] == "waiting"
}

async fn readiness(mate: &mut Mate) -> Value {
    mate.browser.get(&format!("/paired-servers/{}/readiness", mate.server)).await.json()
}

/// Nothing was refused, and no address of ours had more connections than this.
pub(super) fn assert_none_refused(game: &GameServer, most: usize) {
    let usage = game.addresses();
    assert!(usage.values().all(|usage| usage.refused == 0 && usage.most <= most), "{usage:?}");
}

#[actix_web::test]
async fn teams_beyond_the_fifth_wait_and_say_why_and_follow_when_another_ends() {
    let app = TestApp::start_beside_games().await;
    let teams = roster(7, 1);
    let game = game_of(&app, &teams).await;
    let mut mates = Vec::new();
    for (player, _) in teams.iter().flatten() {
        mates.push(Mate::new(&app, &game, *player, &[]).await);
    }
    for mate in &mut mates {
        mate.until(|state| is_connected(state) || is_waiting(state)).await;
    }
    let (mut connected, mut waiting): (Vec<Mate>, Vec<Mate>) =
        mates.into_iter().partition(|mate| is_connected(mate.client.state(&mate.server)));
    assert_eq!((connected.len(), waiting.len()), (5, 2));
    for mate in &mut waiting {
        let head = &mate.client.state(&mate.server)["server"];
        assert!(head["reason"].as_str().unwrap().contains("takes no more connections"), "{head}");
        assert!(head["nextAttemptAt"].is_string(), "{head}");
        let paths = readiness(mate).await["paths"].clone();
        assert!(
            paths[0]["up"] == false && paths[0]["advice"].as_str().unwrap().contains("yours comes by itself"),
            "{paths}"
        );
        let listed = mate.browser.get("/paired-servers").await.json();
        assert_eq!(listed["servers"][0]["connection"]["state"], "waiting", "{listed}");
    }
    let metrics = app.browser().get("/metrics").await.text();
    for line in ["companion_link_slots{state=\"open\"} 5", "companion_link_slots{state=\"waiting\"} 2"] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    for mate in &mut waiting {
        let mut other = connected.pop().unwrap();
        let deleted = other.browser.delete(&format!("/paired-servers/{}", other.server)).await;
        assert_eq!(deleted.status, 200, "{}", deleted.text());
        mate.until(|state| is_complete(state, 0)).await;
        links(&game, 5).await;
    }
    assert_none_refused(&game, 5);
}

#[actix_web::test]
async fn users_of_three_teams_share_three_links_from_two_addresses() {
    let app = TestApp::start_with(&[
        "--allow-private-game-servers=true",
        "--game-link-policy=always",
        "--links-per-game-server=2",
        "--game-source-addresses=127.0.0.1,127.0.0.2",
    ])
    .await;
    let teams = roster(3, 3);
    let game = game_of(&app, &teams).await;
    let pairs = teams.iter().flatten().map(|(player, _)| pair_quietly(&app, &game, *player));
    let mut users = join_all(pairs).await;
    let teams_of_users = teams.iter().enumerate().flat_map(|team| [team; 3]);
    for ((browser, server), (place, team)) in users.iter_mut().zip(teams_of_users) {
        let mut client = RelayClient::watching(&app, browser, server).await;
        client.until(server, is_connected).await;
        let (first, x) = (team[0].0, 100.0 + place as f32);
        game.world(|world| world.move_member(first, Point::new(x, 600.0)));
        let is_right = |state: &Value| {
            let shown = state["team"]["members"].as_object().expect("members");
            shown.len() == team.len() && shown[&first.to_string()]["x"] == x
        };
        client.until(server, is_right).await;
    }
    links(&game, 3).await;
    let shared = async {
        while !app.browser().get("/metrics").await.text().contains("companion_links_shared 6\n") {
            sleep(Duration::from_millis(200)).await;
        }
    };
    timeout(PATIENCE, shared).await.expect("six of nine sit at the link of a mate");
    assert_eq!(game.addresses().len(), 2);
    assert_none_refused(&game, 2);
}

/// A user who has paired the game server as this player.
pub(super) async fn pair_quietly(app: &TestApp, game: &GameServer, player: u64) -> (Browser, String) {
    let mut browser = app.signed_in(&player.to_string()).await;
    let port = game.addr().port();
    let pairing =
        json!({ "address": "127.0.0.1", "port": port, "playerId": player.to_string(), "playerToken": DEMO_TOKEN });
    let answer = browser.post("/paired-servers", Some(&pairing)).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let server = answer.json()["id"].as_str().unwrap().to_owned();
    (browser, server)
}

#[actix_web::test]
async fn a_mate_acts_although_the_game_server_is_full_and_all_read_on() {
    let app = TestApp::start_with(&[
        "--allow-private-game-servers=true",
        "--game-link-policy=always",
        "--links-per-game-server=1",
    ])
    .await;
    let game = game_of(&app, &[]).await;
    let mut mates = Vec::new();
    for (player, _) in &TEAM[..2] {
        let mut mate = Mate::new(&app, &game, *player, &[GATE_SWITCH, BASE_ALARM]).await;
        if mates.is_empty() {
            mate.until(|state| is_complete(state, 2)).await;
        }
        mates.push(mate);
    }
    // The game server has not accepted the second one yet.
    mates[1].until(is_waiting).await;
    // The slot goes to the one who waits, and the other sits at that link.
    game.drop_connections();
    for mate in mates.iter_mut().rev() {
        mate.until(|state| is_complete(state, 2)).await;
    }
    links(&game, 1).await;
    assert_eq!(game.connections_of(TEAM[1].0), 1);
    for place in 0..mates.len() {
        // Some link reads for each.
        let x = 510.0 + place as f32;
        game.world(|world| world.move_member(TEAM[3].0, Point::new(x, 600.0)));
        for mate in &mut mates {
            mate.until_at(TEAM[3].0, x).await;
        }
        let mate = &mut mates[place];
        let toggle = format!("/paired-servers/{}/devices/{GATE_SWITCH}/toggle", mate.server);
        let toggled = mate.browser.post(&toggle, Some(&json!({ "value": place % 2 == 0 }))).await;
        assert_eq!(toggled.status, 200, "{place}: {}", toggled.text());
    }
    let done: Vec<u64> =
        game.acts().iter().filter(|act| matches!(act.kind, ActKind::Turned { .. })).map(|act| act.player).collect();
    assert_eq!(done, TEAM[..2].iter().map(|(player, _)| *player).collect::<Vec<_>>());
    game.world(|world| {
        world.move_member(TEAM[3].0, Point::new(500.0, 600.0));
        world.say(TEAM[3].0, "we read on");
    });
    for mate in &mut mates {
        mate.until_at(TEAM[3].0, 500.0).await;
        mate.hear("we read on").await;
    }
    assert_none_refused(&game, 1);
}

/// Reads what comes to both until this holds for the first of them, which may be after a turn of another.
async fn until_turn([first, second]: [&mut Mate; 2], holds: impl Fn(&Value) -> bool) {
    let began = Instant::now();
    while !holds(first.client.state(&first.server)) {
        assert!(began.elapsed() < Duration::from_secs(150), "{}", first.client.state(&first.server)["server"]);
        first.client.ping().await;
        second.client.ping().await;
        sleep(Duration::from_millis(200)).await;
    }
}

/// A link is kept while a user watches its server, and ends up to a minute later.
#[actix_web::test]
#[ignore = "takes minutes"]
async fn who_watches_over_the_link_of_a_mate_who_goes_waits_and_is_connected_again_in_turn() {
    let app = TestApp::start_with(&["--allow-private-game-servers=true", "--links-per-game-server=1"]).await;
    let teams = roster(1, 1);
    let game = game_of(&app, &teams).await;
    let mut stays = Mate::new(&app, &game, TEAM[0].0, &[]).await;
    stays.until(|state| is_complete(state, 0)).await;
    let mut goes = Mate::new(&app, &game, TEAM[1].0, &[]).await;
    goes.until(is_waiting).await;
    game.drop_connections();
    goes.until(|state| is_complete(state, 0)).await;
    stays.until(|state| is_complete(state, 0)).await;
    assert_eq!((game.connections_of(TEAM[0].0), game.connections_of(TEAM[1].0)), (0, 1));
    let mut other = Mate::new(&app, &game, teams[0][0].0, &[]).await;
    other.until(is_waiting).await;
    let Mate { client, .. } = goes;
    drop(client);
    until_turn([&mut other, &mut stays], is_connected).await;
    until_turn([&mut stays, &mut other], is_waiting).await;
    let head = &stays.client.state(&stays.server)["server"];
    assert!(head["reason"].as_str().unwrap().contains("takes no more connections"), "{head}");
    until_turn([&mut stays, &mut other], is_connected).await;
    assert_eq!(game.connections_of(TEAM[0].0), 1);
    game.world(|world| world.move_member(TEAM[1].0, Point::new(560.0, 600.0)));
    stays.until_at(TEAM[1].0, 560.0).await;
    assert_none_refused(&game, 1);
}

/// The game server answers two questions about devices in a second.
#[actix_web::test]
async fn an_alarm_of_one_who_waits_comes_before_all_devices_are_asked_over_the_mates_link() {
    let app = TestApp::start_with(&[
        "--allow-private-game-servers=true",
        "--game-link-policy=always",
        "--links-per-game-server=1",
    ])
    .await;
    let game = game_of(&app, &[]).await;
    let switches: Vec<u64> = (100..140).collect();
    for switch in &switches {
        game.world(|world| world.add_device(*switch, "Lights", SimulatedDevice::Switch { on: false }));
    }
    let devices: Vec<u64> = switches.iter().copied().chain([BASE_ALARM]).collect();
    let mut waits = Mate::new(&app, &game, TEAM[0].0, &devices).await;
    waits.until(|state| is_complete(state, devices.len())).await;
    let mut host = Mate::new(&app, &game, TEAM[1].0, &[]).await;
    host.until(is_waiting).await;
    game.drop_connections();
    host.until(is_connected).await;
    waits.until(|state| !is_connected(state)).await;
    // The last one that is asked.
    game.world(|world| world.set_switch(139, true)).unwrap();
    waits.until(is_connected).await;
    game.world(|world| world.fire_alarm(BASE_ALARM));
    waits.client.expect("raid").await;
    assert_eq!(waits.client.state(&waits.server)["devices"]["139"]["value"], false, "it was asked before the alarm");
    // Others who wait come and go meanwhile.
    for _ in 0..3 {
        let mut stranger = Mate::new(&app, &game, TEAM[2].0, &[]).await;
        let deleted = stranger.browser.delete(&format!("/paired-servers/{}", stranger.server)).await;
        assert_eq!(deleted.status, 200, "{}", deleted.text());
    }
    waits.until(|state| state["devices"]["139"]["value"] == true).await;
    assert_none_refused(&game, 1);
}

/// Twenty teams of five: each user's state is right, over one link for each team. Links take turns of a minute until every
/// player is proven.
#[actix_web::test]
#[ignore = "takes minutes"]
async fn a_hundred_users_share_twenty_links_from_four_addresses() {
    let app = TestApp::start_with(&[
        "--allow-private-game-servers=true",
        "--game-link-policy=always",
        "--links-per-game-server=5",
        "--game-source-addresses=127.0.0.1,127.0.0.2,127.0.0.3,127.0.0.4",
    ])
    .await;
    let teams = roster(20, 5);
    let game = game_of(&app, &teams).await;
    let mut users = Vec::new();
    // The first of each team, then the second: a link that is up has room for the mates.
    for mate in 0..5 {
        for teams in teams.chunks(5) {
            let pairs = teams.iter().map(|team| pair_quietly(&app, &game, team[mate].0));
            users.extend(join_all(pairs).await);
            // Sign-ins are limited by the minute.
            app.clock.advance(TimeDelta::minutes(1));
        }
    }
    let began = Instant::now();
    let mut metrics = String::new();
    while !metrics.contains("companion_link_slots{state=\"waiting\"} 0") {
        assert!(began.elapsed() < Duration::from_secs(900), "{metrics}");
        sleep(Duration::from_secs(1)).await;
        metrics = app.browser().get("/metrics").await.text();
    }
    println!("100 users read over 20 links after {:?}", began.elapsed());
    for (place, team) in teams.iter().enumerate() {
        game.world(|world| world.move_member(team[0].0, Point::new(100.0 + place as f32, 600.0)));
    }
    for (place, (browser, server)) in users.iter_mut().enumerate() {
        let team = &teams[place % 20];
        let mut client = RelayClient::watching(&app, browser, server).await;
        let is_right = |state: &Value| {
            let shown = state["team"]["members"].as_object().expect("members");
            let are_all = team.iter().all(|(player, _)| shown.contains_key(&player.to_string()));
            let first = &shown.get(&team[0].0.to_string()).unwrap_or(&Value::Null)["x"];
            is_connected(state) && are_all && shown.len() == team.len() && *first == 100.0 + (place % 20) as f32
        };
        client.until(server, is_right).await;
    }
    links(&game, 20).await;
    assert_eq!(game.addresses().len(), 4);
    assert_none_refused(&game, 5);
}
