//! A team's chat in the simulated game, and what our players answer there. Counted as the game receives it: it keeps
//! only its last hundred lines, and a dashboard is sent no more than twenty in ten seconds.

use std::time::Duration;

use bytes::Bytes;
use chrono::TimeDelta;
use companion::{
    game::wire::AppTeamMessage,
    simulator::{
        game_server::{DEMO_TOKEN, GameServer, GameServerOptions},
        world::{SimulatedWorld, TEAM},
    },
};
use serde_json::{Value, json};
use tokio::{sync::mpsc, time::timeout};

use crate::harness::{
    app::TestApp,
    browser::Browser,
    game::{BOB, pair, watched},
    relay_client::{PATIENCE, RelayClient},
};

/// Time between two commands: no rate is reached.
pub const APART: TimeDelta = TimeDelta::seconds(8);
/// UTF-16 units of a line.
const LONGEST: usize = 128;

/// A teammate without an account.
pub const MARLOW: u64 = TEAM[1].0;

/// A game server at which the first two of the team may be paired. Its world is still.
pub async fn game_of_two(app: &TestApp) -> GameServer {
    let world = SimulatedWorld::new(7, app.clock.now());
    let players = vec![(TEAM[0].0, DEMO_TOKEN), (TEAM[1].0, DEMO_TOKEN)];
    // Drawing the map's picture would hold up everything else on the test's thread.
    let map_picture = Some(Bytes::from_static(b"a picture"));
    let options = GameServerOptions { time_scale: 0.0, players, map_picture, ..GameServerOptions::new(world) };
    GameServer::start(options).await.unwrap()
}

/// Bob, who plays as the second of the team, pairs the game server at this address; the id of the paired server.
pub async fn pair_bob(bob: &mut Browser, game: &GameServer, address: &str) -> String {
    let port = game.addr().port();
    let pairing = json!({ "address": address, "port": port, "playerId": BOB, "playerToken": DEMO_TOKEN });
    bob.post("/paired-servers", Some(&pairing)).await.json()["id"].as_str().unwrap().to_owned()
}

pub struct ChatRoom {
    pub app: TestApp,
    pub alice: Browser,
    pub game: GameServer,
    pub server: String,
    pub client: RelayClient,
    lines: mpsc::UnboundedReceiver<AppTeamMessage>,
    /// Answers so far: the player as which each was said, and its text.
    pub answers: Vec<(u64, String)>,
    /// When the game heard each of them, Unix seconds by the clock of the service.
    pub said_at: Vec<u32>,
    /// The players whose lines are answers, unless they begin with a prefix.
    pub ours: Vec<u64>,
}

impl ChatRoom {
    /// Alice, who plays as the first of the team, has paired the game server and these devices.
    pub async fn watching(devices: &[u64]) -> Self {
        let (app, alice, game, server, client) = watched(devices).await;
        Self::new(app, alice, game, server, client)
    }

    /// The room of a game server that Alice has paired and watches.
    pub fn new(app: TestApp, alice: Browser, game: GameServer, server: String, client: RelayClient) -> Self {
        // The world is still, and lines have the time of the service.
        game.world(|world| world.chat_follows(app.clock.clone()));
        let lines = game.chat();
        let ours = vec![TEAM[0].0];
        Self { app, alice, game, server, client, lines, answers: Vec::new(), said_at: Vec::new(), ours }
    }

    pub fn pass(&self, span: TimeDelta) {
        self.app.clock.advance(span);
    }

    pub fn say(&self, player: u64, line: &str) {
        self.game.world(|world| world.say(player, line));
    }

    /// Marlow says this, and it is answered.
    pub async fn ask(&mut self, line: &str) -> String {
        self.pass(APART);
        self.say(MARLOW, line);
        self.answer().await
    }

    /// The next answer.
    #[track_caller]
    pub fn answer(&mut self) -> impl Future<Output = String> {
        let caller = std::panic::Location::caller();
        async move {
            loop {
                let line = timeout(PATIENCE, self.lines.recv()).await;
                let line = line.unwrap_or_else(|_| panic!("no answer at {caller} after {:?}", self.texts()));
                let line = line.expect("the game is up");
                if let Some(answer) = self.take(line) {
                    return answer;
                }
            }
        }
    }

    /// The next answer, however often the clock must move on for it. An answer that is lost on its way waits for that.
    pub async fn late_answer(&mut self) -> String {
        for _ in 0..PATIENCE.as_secs() {
            match timeout(Duration::from_secs(1), self.lines.recv()).await {
                Ok(line) => {
                    if let Some(answer) = self.take(line.expect("the game is up")) {
                        return answer;
                    }
                }
                Err(_) => self.pass(TimeDelta::seconds(3)),
            }
        }
        self.answer().await
    }

    /// All answers that have come meanwhile.
    pub fn drain(&mut self) {
        while let Ok(line) = self.lines.try_recv() {
            self.take(line);
        }
    }

    fn take(&mut self, line: AppTeamMessage) -> Option<String> {
        let AppTeamMessage { steam_id, message, time, .. } = line;
        if !self.ours.contains(&steam_id) || message.starts_with(['!', '?']) {
            return None;
        }
        assert!(message.encode_utf16().count() <= LONGEST, "{message}");
        self.answers.push((steam_id, message.clone()));
        self.said_at.push(time);
        Some(message)
    }

    /// The texts of the answers so far.
    pub fn texts(&self) -> Vec<&str> {
        self.answers.iter().map(|(_, text)| text.as_str()).collect()
    }

    /// The service starts again; nothing is said meanwhile.
    pub async fn restart(self) -> Self {
        let Self { app, alice, game, server, lines, answers, said_at, ours, .. } = self;
        let app = app.restart().await;
        let mut alice = app.again(&alice);
        let client = RelayClient::watching(&app, &mut alice, &server).await;
        Self { app, alice, game, server, client, lines, answers, said_at, ours }
    }

    /// Edits the settings of the chat.
    pub async fn set(&mut self, edit: Value) -> Value {
        let path = format!("/paired-servers/{}/chat-settings", self.server);
        let answer = self.alice.patch(&path, &edit).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }

    pub async fn edit_device(&mut self, device: u64, edit: Value) {
        let path = format!("/paired-servers/{}/devices/{device}", self.server);
        let answer = self.alice.patch(&path, &edit).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }

    /// Tries Alice's link again at once.
    pub async fn retry(&mut self) {
        pair(&mut self.alice, &self.game).await;
    }

    /// Waits until the owner is notified of this, or of nothing.
    pub async fn until_noticed(&mut self, notice: Option<&str>) {
        let notice = json!(notice);
        self.client.until(&self.server, |state| state["team"]["chatNotice"] == notice).await;
    }
}
