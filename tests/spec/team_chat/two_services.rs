//! Two services, of different operators, in one team: Alice uses the one, Bob the other. Neither knows of the other.

use chrono::TimeDelta;
use companion::simulator::world::{GATE_SWITCH, TEAM};
use serde_json::{Value, json};

use super::room::{APART, ChatRoom, game_of_two, pair_bob};
use crate::harness::{
    app::TestApp,
    game::{ALICE, BOB, add_device, is_complete, pair},
    relay_client::RelayClient,
};

/// A member without an account.
const PIP: u64 = TEAM[3].0;

/// A room at the first service, and what Bob has at the second.
struct BesideRoom {
    room: ChatRoom,
    second: TestApp,
    server: String,
    client: RelayClient,
}

impl BesideRoom {
    async fn new() -> Self {
        let (app, second) = (TestApp::start_beside_games().await, TestApp::start_beside_games().await);
        let game = game_of_two(&app).await;
        let mut alice = app.signed_in(ALICE).await;
        let server = pair(&mut alice, &game).await;
        add_device(&mut alice, &server, GATE_SWITCH).await;
        let mut client = RelayClient::watching(&app, &mut alice, &server).await;
        client.until(&server, |state| is_complete(state, 1)).await;
        let mut bob = second.signed_in(BOB).await;
        let other = pair_bob(&mut bob, &game, "127.0.0.1").await;
        let mut beside = RelayClient::watching(&second, &mut bob, &other).await;
        beside.until(&other, |state| is_complete(state, 0)).await;
        let mut room = ChatRoom::new(app, alice, game, server, client);
        room.ours.push(TEAM[1].0);
        Self { room, second, server: other, client: beside }
    }

    fn pass(&self, span: TimeDelta) {
        self.room.pass(span);
        self.second.clock.advance(span);
    }

    /// Pip says this; the answers of this number of services, and the players as which they were said.
    async fn ask(&mut self, line: &str, services: usize) -> Vec<(u64, String)> {
        self.pass(APART);
        self.room.say(PIP, line);
        for _ in 0..services {
            self.room.answer().await;
        }
        self.room.answers[self.room.answers.len() - services..].to_vec()
    }
}

#[actix_web::test]
async fn two_services_answer_once_each_and_never_each_other() {
    let mut both = BesideRoom::new().await;
    // A line of the one would be a command for the other.
    both.room.edit_device(GATE_SWITCH, json!({ "customCommand": "gate", "onMessage": "!wipe" })).await;
    let mut asked = 0;
    for line in ["!wipe", "!pop", "!time", "!team", "!alive", "!afk", "!decay", "!upkeep", "!timer 60s !pop"] {
        let answers = both.ask(line, 2).await;
        assert_ne!(answers[0].0, answers[1].0, "{line}: {answers:?}");
        asked += 2;
    }
    assert_eq!(both.ask("!gate on", 1).await, [(TEAM[0].0, "wipe".to_owned())]);
    both.pass(TimeDelta::seconds(60));
    for _ in 0..2 {
        assert_eq!(both.room.answer().await, "timer: !pop");
    }
    // One service has seen at least three of the nine answers after its own.
    let is_noticed = |state: &Value| state["team"]["chatNotice"] == "other_bot";
    let (first, second) = (both.room.server.clone(), both.server.clone());
    tokio::select! {
        () = both.room.client.until(&first, is_noticed) => {}
        () = both.client.until(&second, is_noticed) => {}
    }
    // Another prefix parts the two.
    both.room.set(json!({ "prefix": "?" })).await;
    assert_eq!(both.ask("!wipe", 1).await[0].0, TEAM[1].0);
    assert_eq!(both.ask("?pop", 1).await[0].0, TEAM[0].0);
    assert_eq!(both.room.answers.len(), asked + 5, "{:?}", both.room.texts());
}
