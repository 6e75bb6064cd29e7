//! Friends in one team, each with a paired server: one link reads for all of them, each does things as themselves, and
//! no one of another team learns anything.

use std::{collections::BTreeSet, time::Duration};

use bytes::Bytes;
use companion::simulator::{
    game_server::{ActKind, DEMO_TOKEN, GameServer, GameServerOptions},
    point::Point,
    world::{BASE_ALARM, GATE_SWITCH, SimulatedWorld, TEAM, roster},
};
use serde_json::{Deserializer, Value, json};
use tokio::time::{sleep, timeout};

use crate::harness::{
    app::TestApp,
    browser::Browser,
    game::{add_device, is_complete, is_connected},
    relay_client::{PATIENCE, RelayClient},
};

/// A game server with these teams beside [`TEAM`], at which all players have tokens. Its world is still.
pub(super) async fn game_of(app: &TestApp, teams: &[Vec<(u64, String)>]) -> GameServer {
    let mut world = SimulatedWorld::new(7, app.clock.now());
    world.chat_follows(app.clock.clone());
    for team in teams {
        world.found_team(team);
    }
    let players = TEAM.iter().map(|(player, _)| *player).chain(teams.iter().flatten().map(|(player, _)| *player));
    let players = players.map(|player| (player, DEMO_TOKEN)).collect();
    // Drawing the map's picture would hold up everything else on the test's thread.
    let map_picture = Some(Bytes::from_static(b"a picture"));
    let options = GameServerOptions { time_scale: 0.0, players, map_picture, ..GameServerOptions::new(world) };
    GameServer::start(options).await.unwrap()
}

/// A user who has paired the game server, and watches it.
pub(super) struct Mate {
    pub player: u64,
    pub browser: Browser,
    pub server: String,
    pub client: RelayClient,
}

impl Mate {
    /// Signs in as this player and pairs the game server with these devices.
    pub async fn new(app: &TestApp, game: &GameServer, player: u64, devices: &[u64]) -> Self {
        Self::pairing(app, game, (player, player, DEMO_TOKEN), devices).await
    }

    /// An account that pairs the game server as a player, with a token.
    async fn pairing(
        app: &TestApp,
        game: &GameServer,
        (account, player, token): (u64, u64, i32),
        devices: &[u64],
    ) -> Self {
        let mut browser = app.signed_in(&account.to_string()).await;
        let server = pair_as(&mut browser, game, player, token).await;
        for device in devices {
            add_device(&mut browser, &server, *device).await;
        }
        let client = Self::watch(app, &mut browser, &server).await;
        Self { player, browser, server, client }
    }

    async fn watch(app: &TestApp, browser: &mut Browser, server: &str) -> RelayClient {
        let mut client = RelayClient::connect(app, browser).await;
        client.kept = Some(String::new());
        client.subscribe(server).await;
        client.expect_snapshot(server).await;
        client
    }

    pub async fn until(&mut self, holds: impl Fn(&Value) -> bool) {
        self.client.until(&self.server, holds).await;
    }

    /// Waits until the members are those of the game.
    pub async fn until_members(&mut self, game: &GameServer) {
        let team = game.world(|world| world.team_info(self.player));
        let members: BTreeSet<String> = team.members.iter().map(|member| member.steam_id.to_string()).collect();
        let leader = team.leader_steam_id.to_string();
        self.until(|state| {
            let shown = state["team"]["members"].as_object().expect("members");
            shown.keys().cloned().collect::<BTreeSet<_>>() == members && state["team"]["leaderId"] == leader.as_str()
        })
        .await;
    }

    pub async fn until_at(&mut self, player: u64, x: f32) {
        self.until(|state| state["team"]["members"][player.to_string()]["x"] == x).await;
    }

    /// The next line of chat.
    pub async fn hear(&mut self, text: &str) {
        let line = self.client.expect("chat").await;
        assert_eq!(line["chat"]["text"], text, "{line}");
    }

    /// All that was received so far.
    fn frames(&self) -> &str {
        self.client.kept.as_deref().expect("frames are kept")
    }
}

async fn pair_as(browser: &mut Browser, game: &GameServer, player: u64, token: i32) -> String {
    let (port, player) = (game.addr().port(), player.to_string());
    let pairing = json!({ "address": "127.0.0.1", "port": port, "playerId": player, "playerToken": token });
    let answer = browser.post("/paired-servers", Some(&pairing)).await;
    assert!(matches!(answer.status, 200 | 201), "{}", answer.text());
    answer.json()["id"].as_str().unwrap().to_owned()
}

/// Waits until there are this many links.
#[track_caller]
pub(super) fn links(game: &GameServer, wanted: usize) -> impl Future<Output = ()> + use<'_> {
    let caller = std::panic::Location::caller();
    async move {
        let reached = async {
            while game.connections() != wanted {
                sleep(Duration::from_millis(20)).await;
            }
        };
        let reached = timeout(PATIENCE, reached).await;
        reached.unwrap_or_else(|_| panic!("not {wanted} links, at {caller}: {:?}", game.clients()));
    }
}

/// All of [`TEAM`], each with these devices, over one link.
async fn friends(app: &TestApp, game: &GameServer, devices: &[u64]) -> Vec<Mate> {
    let mut mates = Vec::new();
    for (player, _) in TEAM {
        let mut mate = Mate::new(app, game, player, devices).await;
        mate.until(|state| is_complete(state, devices.len())).await;
        mates.push(mate);
        for mate in &mut mates {
            // One who does not read is closed.
            mate.client.ping().await;
        }
    }
    links(game, 1).await;
    mates
}

#[actix_web::test]
async fn friends_share_one_link_and_each_acts_as_themselves() {
    let app = TestApp::start_beside_games().await;
    let game = game_of(&app, &[]).await;
    let mut mates = friends(&app, &game, &[GATE_SWITCH, BASE_ALARM]).await;
    game.world(|world| {
        world.move_member(TEAM[1].0, Point::new(500.0, 600.0));
        world.set_switch(GATE_SWITCH, true).unwrap();
        world.say(TEAM[3].0, "first");
        world.say(TEAM[3].0, "second");
        world.fire_alarm(BASE_ALARM);
    });
    let ship = game.world(SimulatedWorld::send_cargo_ship);
    for mate in &mut mates {
        mate.until_at(TEAM[1].0, 500.0).await;
        mate.until(|state| state["devices"][GATE_SWITCH.to_string()]["value"] == true).await;
        mate.until(|state| !state["mapMarkers"][ship.to_string()].is_null()).await;
        mate.until_members(&game).await;
        mate.hear("first").await;
        mate.hear("second").await;
        assert_eq!(mate.client.expect("raid").await["alarmId"], BASE_ALARM.to_string());
    }
    assert_eq!(game.connections(), 1);
    // The own link of each is made to do something.
    let mut value = true;
    for place in 0..mates.len() {
        let mate = &mut mates[place];
        let (text, player) = (format!("over here {place}"), mate.player);
        let (chat, line) = (format!("/paired-servers/{}/chat", mate.server), json!({ "text": text }));
        let said = mate.browser.post(&chat, Some(&line)).await;
        assert_eq!(said.status, 201, "{}", said.text());
        assert_eq!(said.json()["authorId"], player.to_string());
        let toggle = format!("/paired-servers/{}/devices/{GATE_SWITCH}/toggle", mate.server);
        let toggled = mate.browser.post(&toggle, None).await;
        assert_eq!(toggled.status, 200, "{}", toggled.text());
        value = !value;
        for mate in &mut mates {
            mate.hear(&text).await;
            mate.until(|state| state["devices"][GATE_SWITCH.to_string()]["value"] == value).await;
        }
    }
    let acts = game.acts();
    let expected = mates.iter().enumerate().flat_map(|(place, mate)| {
        let said = (mate.player, ActKind::Said(format!("over here {place}")));
        [said, (mate.player, ActKind::Turned { entity_id: GATE_SWITCH, on: place % 2 == 1 })]
    });
    let done: Vec<_> = acts.iter().map(|act| (act.player, act.kind.clone())).collect();
    assert_eq!(done, expected.collect::<Vec<_>>());
    let over: BTreeSet<u64> = acts.iter().map(|act| act.connection).collect();
    assert_eq!(over.len(), mates.len(), "each over a link of their own");
    let usage = game.addresses();
    assert!(usage.values().all(|usage| usage.rebound == 0 && usage.refused == 0 && usage.bad_tokens == 0), "{usage:?}");
}

#[actix_web::test]
async fn nothing_of_a_team_is_in_a_frame_of_another_and_a_wrong_token_reads_nothing() {
    let app = TestApp::start_beside_games().await;
    let teams = roster(2, 2);
    let game = game_of(&app, &teams).await;
    let (reds, blues) = (&teams[0], &teams[1]);
    let mut mates = Vec::new();
    for (player, _) in reds.iter().chain(blues) {
        let mut mate = Mate::new(&app, &game, *player, &[]).await;
        mate.until(|state| is_complete(state, 0)).await;
        mates.push(mate);
    }
    links(&game, 2).await;
    // Someone who knows no more than a SteamID.
    let mut stranger = Mate::pairing(&app, &game, (TEAM[2].0, reds[0].0, 1), &[]).await;
    stranger.until(|state| state["server"]["connection"] == "rejected").await;
    let red = |player: usize| reds[player].0;
    game.world(|world| {
        world.say(red(0), "red stash");
        world.say(blues[0].0, "blue stash");
        world.move_member(red(1), Point::new(510.0, 600.0));
        world.move_member(blues[1].0, Point::new(520.0, 600.0));
    });
    for mate in &mut mates {
        let is_red = mate.player == red(0) || mate.player == red(1);
        mate.hear(if is_red { "red stash" } else { "blue stash" }).await;
        let (moved, x) = if is_red { (red(1), 510.0) } else { (blues[1].0, 520.0) };
        mate.until_at(moved, x).await;
    }
    // The second red goes over to the blues, and knows nothing of the reds from then on.
    let team = game.world(|world| world.team_of(blues[0].0).unwrap().id());
    game.world(|world| world.join_team(red(1), team));
    for mate in &mut mates {
        mate.until_members(&game).await;
    }
    // Another team is no news: no event of it is under way.
    mates[1].client.ping().await;
    let before = mates[1].frames().len();
    game.world(|world| {
        world.say(red(0), "red alone");
        world.say(blues[0].0, "blue again");
        world.move_member(red(0), Point::new(530.0, 600.0));
    });
    mates[0].hear("red alone").await;
    mates[0].until_at(red(0), 530.0).await;
    for mate in &mut mates[1..] {
        // One who joined may hear the history of the team before.
        mate.client.expect_where("chat", |line| line["chat"]["text"] == "blue again").await;
    }
    links(&game, 2).await;
    stranger.client.ping().await;
    let of = |team: &[(u64, String)]| -> Vec<String> {
        team.iter().flat_map(|(player, name)| [player.to_string(), format!("\"{name}\"")]).collect()
    };
    let assert_none = |frames: &str, secrets: Vec<String>, who: &str| {
        for secret in secrets {
            assert!(!frames.contains(&secret), "{who} knows {secret}");
        }
    };
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    assert_none(mates[0].frames(), [of(blues), words(&["blue stash", "blue again"])].concat(), "a red");
    assert_none(&mates[1].frames()[before..], [of(&reds[..1]), words(&["red alone"])].concat(), "who left");
    for blue in &mates[2..] {
        assert_none(blue.frames(), [of(&reds[..1]), words(&["red stash", "red alone"])].concat(), "a blue");
    }
    let all = [of(&teams.concat()), words(&["red stash", "blue stash", "red alone", "blue again"])].concat();
    assert_none(stranger.frames(), all, "a stranger");
    let chat = stranger.browser.get(&format!("/paired-servers/{}/chat", stranger.server)).await.json();
    assert_eq!(chat["lines"], json!([]));
    assert_eq!(stranger.client.state(&stranger.server)["mapMarkers"], json!({}), "nor anything of the game server");
    assert!(game.addresses().values().any(|usage| usage.bad_tokens > 0));
}

#[actix_web::test]
async fn the_chat_of_a_team_that_was_joined_while_there_was_no_link_is_no_news() {
    let app = TestApp::start_beside_games().await;
    let teams = roster(1, 2);
    let game = game_of(&app, &teams).await;
    let others = &teams[0];
    let mut mate = Mate::new(&app, &game, TEAM[1].0, &[]).await;
    mate.until(|state| is_complete(state, 0)).await;
    game.world(|world| world.say(TEAM[0].0, "ours"));
    mate.hear("ours").await;
    // No link is made between these two: the game server runs on the test's thread.
    game.drop_connections();
    game.world(|world| {
        world.say(others[0].0, "theirs");
        let team = world.team_of(others[0].0).unwrap().id();
        world.join_team(TEAM[1].0, team);
    });
    mate.until_members(&game).await;
    mate.until(is_connected).await;
    game.world(|world| world.say(others[1].0, "welcome"));
    mate.hear("welcome").await;
}

#[actix_web::test]
async fn a_token_that_is_revoked_is_noticed_by_its_owner_alone() {
    let app = TestApp::start_beside_games().await;
    let game = game_of(&app, &[]).await;
    let mut mates = friends(&app, &game, &[GATE_SWITCH]).await;
    assert_eq!(game.connections_of(TEAM[0].0), 1, "the oldest link reads");
    let before: Vec<usize> = mates.iter().map(|mate| mate.frames().len()).collect();
    game.set_token(TEAM[0].0, None);
    mates[0].until(|state| state["server"]["connection"] == "rejected").await;
    game.world(|world| {
        world.move_member(TEAM[2].0, Point::new(540.0, 600.0));
        world.say(TEAM[2].0, "still here");
    });
    for (mate, before) in mates.iter_mut().zip(before).skip(1) {
        mate.until_at(TEAM[2].0, 540.0).await;
        mate.hear("still here").await;
        game.world(|world| world.set_switch(GATE_SWITCH, true)).unwrap();
        mate.until(|state| state["devices"][GATE_SWITCH.to_string()]["value"] == true).await;
        let since = &mate.frames()[before..];
        for word in ["\"connecting\"", "\"unreachable\"", "\"rejected\""] {
            assert!(!since.contains(word), "{word}: {since}");
        }
        assert!(is_connected(mate.client.state(&mate.server)));
    }
    links(&game, 1).await;
    assert_eq!(game.connections_of(TEAM[0].0), 0);
    // Paired once more, the owner sits at the link of a mate.
    game.set_token(TEAM[0].0, Some(DEMO_TOKEN + 1));
    pair_as(&mut mates[0].browser, &game, TEAM[0].0, DEMO_TOKEN + 1).await;
    mates[0].until(is_connected).await;
    mates[0].until_at(TEAM[2].0, 540.0).await;
    links(&game, 1).await;
    assert_eq!(game.connections_of(TEAM[0].0), 0);
}

#[actix_web::test]
async fn who_leaves_reads_for_themselves_and_a_restart_ends_with_one_link_again() {
    let app = TestApp::start_beside_games().await;
    let game = game_of(&app, &[]).await;
    let mut mates = friends(&app, &game, &[]).await;
    let team = game.world(|world| world.team_of(TEAM[0].0).unwrap().id());
    // The one whose link it is, and one who sits at it.
    for place in [0, 2] {
        let left = TEAM[place].0;
        game.world(|world| world.leave_team(left));
        for mate in &mut mates {
            mate.until_members(&game).await;
        }
        links(&game, 2).await;
        if place == 2 {
            // The event comes after the state that shows it, perhaps after a pong, too. Another one waits here, of the
            // first who left.
            let leader = left.to_string();
            let leads = |message: &Value| {
                let event = &message["event"];
                event["action"] == "leader_changed" && event["data"]["steamId"] == leader
            };
            mates[place].client.expect_where("event", leads).await;
        }
        mates[place].client.ping().await;
        let before = mates[place].frames().len();
        let line = format!("without {}", TEAM[place].1);
        game.world(|world| world.say(TEAM[1].0, &line));
        for (_, mate) in mates.iter_mut().enumerate().filter(|(number, _)| *number != place) {
            mate.hear(&line).await;
        }
        game.world(|world| world.move_member(left, Point::new(550.0, 600.0)));
        mates[place].until_at(left, 550.0).await;
        // After some answers without them, mates are said to have left.
        let has_left = |message: &Value| message["event"]["kind"] == "team" && message["event"]["action"] == "left";
        for message in Deserializer::from_str(&mates[place].frames()[before..]).into_iter::<Value>() {
            let message = message.expect("JSON");
            let text = message.to_string();
            let is_known = !text.contains(&line) && !text.contains(&TEAM[1].0.to_string());
            assert!(is_known || has_left(&message), "{text}");
        }
        game.world(|world| world.join_team(left, team));
        for mate in &mut mates {
            mate.until_members(&game).await;
        }
        links(&game, 1).await;
    }
    let app = app.restart().await;
    for mate in &mut mates {
        mate.browser = app.again(&mate.browser);
        mate.client = Mate::watch(&app, &mut mate.browser, &mate.server).await;
        mate.until(|state| is_complete(state, 0)).await;
        mate.until_members(&game).await;
    }
    links(&game, 1).await;
    game.world(|world| world.say(TEAM[1].0, "back"));
    for mate in &mut mates {
        mate.hear("back").await;
    }
}

#[actix_web::test]
async fn a_device_that_only_one_of_them_may_use_is_read_over_a_link_of_its_own() {
    let app = TestApp::start_beside_games().await;
    let game = game_of(&app, &roster(1, 1)).await;
    game.world(|world| world.authorise(0, TEAM[0].0, false));
    let mut first = Mate::new(&app, &game, TEAM[0].0, &[]).await;
    first.until(|state| is_complete(state, 0)).await;
    let mut second = Mate::new(&app, &game, TEAM[1].0, &[GATE_SWITCH]).await;
    second.until(|state| is_complete(state, 1)).await;
    let mut third = Mate::new(&app, &game, TEAM[2].0, &[]).await;
    third.until(|state| is_complete(state, 0)).await;
    links(&game, 2).await;
    game.world(|world| world.set_switch(GATE_SWITCH, true)).unwrap();
    second.until(|state| state["devices"][GATE_SWITCH.to_string()]["value"] == true).await;
    // A device that its player may not use is not shown, although a mate may.
    add_device(&mut first.browser, &first.server, GATE_SWITCH).await;
    first.until(|state| state["devices"][GATE_SWITCH.to_string()]["reachable"] == "removed").await;
    assert!(game.connections_of(TEAM[1].0) == 1 && game.connections_of(TEAM[2].0) == 0);
}

#[actix_web::test]
async fn a_device_is_shown_to_no_mate_who_may_not_use_it() {
    let app = TestApp::start_beside_games().await;
    let game = game_of(&app, &roster(1, 1)).await;
    game.world(|world| world.authorise(0, TEAM[2].0, false));
    let mut mates = Vec::new();
    for (place, devices) in [(0, &[GATE_SWITCH][..]), (1, &[GATE_SWITCH]), (2, &[])] {
        let mut mate = Mate::new(&app, &game, TEAM[place].0, devices).await;
        mate.until(|state| is_complete(state, devices.len())).await;
        mates.push(mate);
    }
    links(&game, 1).await;
    let (gate, server) = (GATE_SWITCH.to_string(), mates[2].server.clone());
    add_device(&mut mates[2].browser, &server, GATE_SWITCH).await;
    mates[2].until(|state| state["devices"][&gate]["reachable"] == "removed").await;
    links(&game, 1).await;
    game.world(|world| world.set_switch(GATE_SWITCH, true)).unwrap();
    for mate in &mut mates[..2] {
        mate.until(|state| state["devices"][&gate]["value"] == true).await;
    }
    game.world(|world| world.say(TEAM[0].0, "it is on"));
    mates[2].hear("it is on").await;
    let known = &mates[2].client.state(&server)["devices"][&gate];
    assert!(known["reachable"] == "removed" && known["value"].is_null(), "{known}");
}
