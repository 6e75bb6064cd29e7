//! Timers of a team in which two users of the service are, each with a paired server.

use chrono::TimeDelta;
use companion::simulator::{game_server::DEMO_TOKEN, world::TEAM};
use serde_json::Value;

use super::{
    room::{APART, ChatRoom},
    two_users::{LOOPBACK, with_bob},
};
use crate::harness::{
    browser::Browser,
    game::{is_complete, is_connected},
    relay_client::RelayClient,
};

/// SteamID64 of those who pair the game server.
const ALICES: u64 = TEAM[0].0;
const BOBS: u64 = TEAM[1].0;

/// The texts of the timers that run, by number.
fn timers(state: &Value) -> Vec<&str> {
    let timers = state["timers"].as_object().into_iter().flat_map(|timers| timers.values());
    let mut timers: Vec<(u64, &str)> =
        timers.map(|timer| (timer["number"].as_u64().unwrap(), timer["text"].as_str().unwrap())).collect();
    timers.sort_unstable();
    timers.into_iter().map(|(_, text)| text).collect()
}

/// Bob's part of the room.
struct Bob {
    browser: Browser,
    client: RelayClient,
    server: String,
}

impl Bob {
    async fn until_timers(&mut self, wanted: &[&str]) {
        self.client.until(&self.server, |state| is_complete(state, 0) && timers(state) == wanted).await;
    }
}

async fn room_and_bob() -> (ChatRoom, Bob) {
    let (room, browser, client, server) = with_bob(LOOPBACK).await;
    (room, Bob { browser, client, server })
}

/// Alice's dashboard shows these timers.
async fn until_timers(room: &mut ChatRoom, wanted: &[&str]) {
    room.client.until(&room.server, |state| is_complete(state, 0) && timers(state) == wanted).await;
}

/// This player says it, and is answered over the own link.
async fn ask_as(room: &mut ChatRoom, player: u64, line: &str) -> String {
    room.pass(APART);
    room.say(player, line);
    let answer = room.answer().await;
    assert_eq!(room.answers.last().unwrap().0, player, "{answer}");
    answer
}

/// Ten minutes later the timer is said, once and by this player.
async fn ends_once(room: &mut ChatRoom, said_by: u64) {
    room.pass(TimeDelta::seconds(601));
    assert_eq!(room.late_answer().await, "timer: heli");
    assert_eq!(room.answers.last().unwrap().0, said_by);
    until_timers(room, &[]).await;
    assert_eq!(ask_as(room, said_by, "!timers").await, "no timer runs");
    assert_eq!(room.texts().iter().filter(|text| **text == "timer: heli").count(), 1, "{:?}", room.texts());
}

#[actix_web::test]
async fn all_users_of_a_team_have_its_timers_and_each_ends_once() {
    let (mut room, mut bob) = room_and_bob().await;
    assert_eq!(ask_as(&mut room, BOBS, "!timer 10m heli").await, "timer 1: heli in 10m");
    until_timers(&mut room, &["heli"]).await;
    assert_eq!(ask_as(&mut room, ALICES, "!timer 12m ship").await, "timer 2: ship in 12m");
    bob.until_timers(&["heli", "ship"]).await;
    assert_eq!(ask_as(&mut room, BOBS, "!timer off 2").await, "timer 2 is off");
    bob.until_timers(&["heli"]).await;
    until_timers(&mut room, &["heli"]).await;
    room.pass(TimeDelta::seconds(601));
    assert_eq!(room.late_answer().await, "timer: heli");
    bob.until_timers(&[]).await;
    until_timers(&mut room, &[]).await;
    // A second end would be said before the answers.
    for player in [ALICES, BOBS] {
        assert_eq!(ask_as(&mut room, player, "!timers").await, "no timer runs");
    }
    assert_eq!(room.texts().iter().filter(|text| text.starts_with("timer: ")).count(), 1, "{:?}", room.texts());
}

#[actix_web::test]
async fn who_leaves_the_team_takes_no_timer_and_gets_them_with_the_team() {
    let (mut room, mut bob) = room_and_bob().await;
    ask_as(&mut room, BOBS, "!timer 10m heli").await;
    bob.until_timers(&["heli"]).await;
    until_timers(&mut room, &["heli"]).await;
    let team = room.game.world(|world| world.team_of(ALICES).unwrap().id());
    room.game.world(|world| world.leave_team(BOBS));
    bob.until_timers(&[]).await;
    room.game.world(|world| world.join_team(BOBS, team));
    bob.until_timers(&["heli"]).await;
    room.game.world(|world| world.leave_team(BOBS));
    bob.until_timers(&[]).await;
    assert_eq!(timers(room.client.state(&room.server)), ["heli"]);
    ends_once(&mut room, ALICES).await;
    assert!(timers(bob.client.state(&bob.server)).is_empty());
}

#[actix_web::test]
async fn the_timers_of_a_user_who_deletes_the_server_stay_with_the_team() {
    let (mut room, mut bob) = room_and_bob().await;
    ask_as(&mut room, BOBS, "!timer 10m heli").await;
    until_timers(&mut room, &["heli"]).await;
    let deleted = bob.browser.delete(&format!("/paired-servers/{}", bob.server)).await;
    assert!((200..300).contains(&deleted.status), "{}", deleted.text());
    ends_once(&mut room, ALICES).await;
}

#[actix_web::test]
async fn who_left_while_the_service_was_away_has_no_timer_of_the_team() {
    let (mut room, mut bob) = room_and_bob().await;
    ask_as(&mut room, BOBS, "!timer 10m heli").await;
    bob.until_timers(&["heli"]).await;
    until_timers(&mut room, &["heli"]).await;
    let ChatRoom { app, alice, game, server, client, .. } = room;
    drop(client);
    let app = app.restart_after(|| game.world(|world| world.leave_team(BOBS))).await;
    let (mut alice, mut browser) = (app.again(&alice), app.again(&bob.browser));
    let client = RelayClient::watching(&app, &mut alice, &server).await;
    bob.client = RelayClient::watching(&app, &mut browser, &bob.server).await;
    bob.until_timers(&[]).await;
    let mut room = ChatRoom::new(app, alice, game, server, client);
    until_timers(&mut room, &["heli"]).await;
    ends_once(&mut room, ALICES).await;
}

#[actix_web::test]
async fn no_timer_is_said_before_it_is_known_who_is_in_the_team() {
    let (mut room, mut bob) = room_and_bob().await;
    ask_as(&mut room, BOBS, "!timer 10m heli").await;
    bob.until_timers(&["heli"]).await;
    until_timers(&mut room, &["heli"]).await;
    let ChatRoom { app, alice, game, server, client, .. } = room;
    drop(client);
    let clock = app.clock.clone();
    let meanwhile = || {
        game.world(|world| {
            world.leave_team(BOBS);
            world.make_team(BOBS);
        });
        game.faults(|faults| faults.no_team = true);
        game.set_token(ALICES, None);
        clock.advance(TimeDelta::seconds(700));
    };
    let app = app.restart_after(meanwhile).await;
    let (mut alice, mut browser) = (app.again(&alice), app.again(&bob.browser));
    let client = RelayClient::watching(&app, &mut alice, &server).await;
    bob.client = RelayClient::watching(&app, &mut browser, &bob.server).await;
    // The chat was asked for before the markers: what is said now is heard.
    let hears =
        |state: &Value| is_connected(state) && state["mapMarkers"].as_object().is_some_and(|all| !all.is_empty());
    bob.client.until(&bob.server, hears).await;
    let mut room = ChatRoom::new(app, alice, game, server, client);
    room.ours.push(BOBS);
    // The end of a timer would be said before the answer.
    assert!(ask_as(&mut room, BOBS, "!wipe").await.starts_with("wiped "));

    room.game.faults(|faults| faults.no_team = false);
    room.game.set_token(ALICES, Some(DEMO_TOKEN));
    room.retry().await;
    assert!(room.late_answer().await.ends_with(" late): heli"), "{:?}", room.texts());
    assert_eq!(room.answers.last().unwrap().0, ALICES);
    bob.until_timers(&[]).await;
    until_timers(&mut room, &[]).await;
    assert_eq!(room.texts().iter().filter(|text| text.contains("heli")).count(), 1, "{:?}", room.texts());
}
