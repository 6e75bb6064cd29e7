//! Two users of the service in one team: each has a paired server and a link, and hears every line.

use companion::simulator::world::TEAM;
use serde_json::json;

use super::room::{APART, ChatRoom, MARLOW, game_of_two, pair_bob};
use crate::harness::{
    app::TestApp,
    browser::Browser,
    game::{ALICE, BOB, is_complete, is_connected, pair},
    relay_client::RelayClient,
};

/// Alice has paired the game server at this address.
pub const LOOPBACK: &str = "127.0.0.1";

/// A room in which Bob, who plays as the second of the team, has paired the server, too; his browser and his client.
pub async fn with_bob(paired_at: &str) -> (ChatRoom, Browser, RelayClient, String) {
    let app = TestApp::start_beside_games().await;
    let game = game_of_two(&app).await;
    // Said before: a history.
    game.world(|world| world.say(TEAM[2].0, "!pop"));
    let (mut alice, mut bob) = (app.signed_in(ALICE).await, app.signed_in(BOB).await);
    let server = pair(&mut alice, &game).await;
    let mut client = RelayClient::watching(&app, &mut alice, &server).await;
    client.until(&server, |state| is_complete(state, 0)).await;
    let second = pair_bob(&mut bob, &game, paired_at).await;
    let mut other = RelayClient::watching(&app, &mut bob, &second).await;
    other.until(&second, |state| is_complete(state, 0)).await;
    let mut room = ChatRoom::new(app, alice, game, server, client);
    room.ours.push(TEAM[1].0);
    // A link is in the team a little after its state is complete: from then on, it answers its own player.
    for player in [TEAM[0].0, TEAM[1].0] {
        while room.answers.last().is_none_or(|(answers_as, _)| *answers_as != player) {
            room.pass(APART);
            room.say(player, "!time");
            room.answer().await;
        }
    }
    room.answers.clear();
    (room, bob, other, second)
}

#[actix_web::test]
async fn of_two_users_in_one_team_one_answers_and_no_history_is_answered() {
    let (mut room, _bob, _other, _) = with_bob(LOOPBACK).await;
    // The author's own link answers; for others, the one that is connected longest.
    for (author, answers_as) in [(TEAM[1], TEAM[1].0), (TEAM[2], TEAM[0].0), (TEAM[0], TEAM[0].0)] {
        room.pass(APART);
        room.say(author.0, "!wipe");
        assert!(room.answer().await.starts_with("wiped "));
        assert_eq!(room.answers.last().unwrap().0, answers_as);
    }
    // A link that comes back hears all of it once more.
    room.game.drop_connections();
    room.client.until(&room.server, |state| !is_connected(state)).await;
    room.client.until(&room.server, |state| is_complete(state, 0)).await;
    room.pass(APART);
    room.say(TEAM[2].0, "!afk");
    assert!(room.late_answer().await.contains("AFK"));
    room.pass(APART);
    room.say(TEAM[2].0, "!time");
    assert!(room.late_answer().await.contains(':'));
    assert_eq!(room.answers.len(), 5, "{:?}", room.texts());
}

#[actix_web::test]
async fn a_game_server_that_is_paired_by_name_and_by_address_is_one() {
    let (mut room, _bob, _other, _) = with_bob("localhost").await;
    for (author, answers_as) in [(TEAM[1], TEAM[1].0), (TEAM[2], TEAM[0].0), (TEAM[0], TEAM[0].0)] {
        room.pass(APART);
        room.say(author.0, "!wipe");
        assert!(room.answer().await.starts_with("wiped "));
        assert_eq!(room.answers.last().unwrap().0, answers_as);
    }
    // Each of two answerers would have said three lines by now.
    assert!(room.ask("!pop").await.contains("players"));
    assert_eq!(room.answers.len(), 4, "{:?}", room.texts());
}

/// Both announce deaths, and their links know it.
async fn announce_deaths(room: &mut ChatRoom, bob: &mut Browser, second: &str) {
    let wanted = json!({ "announcements": { "death": true } });
    room.set(wanted.clone()).await;
    let patched = bob.patch(&format!("/paired-servers/{second}/chat-settings"), &wanted).await;
    assert_eq!(patched.status, 200, "{}", patched.text());
    // Each link answers its own player, and knows its settings then.
    for (player, line) in [(TEAM[0].0, "!wipe"), (TEAM[1].0, "!pop")] {
        room.pass(APART);
        room.say(player, line);
        room.answer().await;
        assert_eq!(room.answers.last().unwrap().0, player);
    }
    room.pass(APART);
}

#[actix_web::test]
async fn a_mute_holds_for_all_who_announce_in_the_team() {
    let (mut room, mut bob, _other, second) = with_bob(LOOPBACK).await;
    announce_deaths(&mut room, &mut bob, &second).await;
    let settings = format!("/paired-servers/{second}/chat-settings");
    room.say(TEAM[2].0, "!mute");
    assert_eq!(room.answer().await, "quiet for 30m; I still answer");
    bob.get_until(&settings, |shown| shown["mutedUntil"].is_string()).await;
    room.game.world(|world| world.kill(TEAM[2].0));
    for line in ["!team", "!alive"] {
        let answer = room.ask(line).await;
        assert!(!answer.contains(" died"), "{answer}");
    }
    room.pass(APART);
    room.say(TEAM[2].0, "!unmute");
    assert_eq!(room.answer().await, "announcements are back");
    bob.get_until(&settings, |shown| shown["mutedUntil"].is_null()).await;
    room.pass(APART);
    room.game.world(|world| world.kill(MARLOW));
    assert!(room.answer().await.starts_with("Marlow died"), "{:?}", room.texts());
}

#[actix_web::test]
async fn what_two_users_announce_is_said_once() {
    let (mut room, mut bob, _other, second) = with_bob("localhost").await;
    announce_deaths(&mut room, &mut bob, &second).await;
    room.game.world(|world| world.kill(TEAM[2].0));
    let said = room.answer().await;
    assert!(said.starts_with(&format!("{} died", TEAM[2].1)), "{said}");
    // Another such line would be said before the second of these.
    for line in ["!team", "!alive"] {
        let answer = room.ask(line).await;
        assert!(!answer.contains(" died"), "{answer}");
    }
    assert_eq!(room.answers.len(), 5, "{:?}", room.texts());
}

/// A linear congruential generator (Knuth's MMIX).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

/// Links that are killed at random, never both at once: then no one would have heard the line. The game's tokens let
/// each player say a line in 0.7 s, so there are few commands by default.
const COMMANDS: (&str, usize) = ("TEAM_CHAT_COMMANDS", 100);

#[actix_web::test]
async fn a_command_has_one_answer_whichever_links_break() {
    let (mut room, mut bob, _other, second) = with_bob(LOOPBACK).await;
    let first = room.server.clone();
    let mut random = Random(7);
    let mut killed = 0;
    let wanted = std::env::var(COMMANDS.0).ok().and_then(|wanted| wanted.parse().ok()).unwrap_or(COMMANDS.1);
    for number in 1..=wanted {
        let links = [TEAM[0].0, TEAM[1].0];
        let are_up = links.iter().all(|player| room.game.connections_of(*player) == 1);
        let victim = links[random.below(2)];
        let (before, after) = (are_up && random.below(256) < 60, are_up && random.below(256) < 60);
        room.pass(APART);
        if before {
            room.game.drop_connections_of(victim);
        }
        room.say(TEAM[random.below(4)].0, &format!("!decay armored wall {number}"));
        if after && !before {
            for _ in 0..random.below(4) {
                tokio::task::yield_now().await;
            }
            room.game.drop_connections_of(victim);
        }
        let answer = room.late_answer().await;
        assert!(answer.starts_with(&format!("armored wall {number}/2000")), "{number}: {answer}");
        if before || after {
            killed += 1;
            room.retry().await;
            pair_bob(&mut bob, &room.game, LOOPBACK).await;
            // An answer whose confirmation is lost is said again when no link has heard it, and the clock moves on.
            for (browser, server) in [(&mut room.alice, &first), (&mut bob, &second)] {
                let path = format!("/paired-servers/{server}/chat");
                browser.get_until(path, |shown| shown.to_string().contains(&answer)).await;
            }
        }
    }
    assert!(killed > 5, "{killed}");
    room.pass(APART);
    room.say(TEAM[2].0, "!wipe");
    assert!(room.late_answer().await.starts_with("wiped "));
    room.drain();
    let texts = room.texts();
    let twice = (1..=wanted).filter(|number| {
        let begins = format!("armored wall {number}/");
        texts.iter().filter(|text| text.starts_with(&begins)).count() != 1
    });
    assert_eq!(twice.collect::<Vec<_>>(), Vec::<usize>::new());
}
