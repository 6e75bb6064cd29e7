//! The player-statistics service, over HTTP in the form of BattleMetrics' API: which servers there are, who is online
//! on one, and under which names a player was seen.
//!
//! Its answers change without notice and are read leniently: what is missing is left out. It counts requests: as long
//! as it reports too many, or the budget of its documentation is spent, it is not asked.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use reqwest::{
    StatusCode,
    header::{HeaderMap, RETRY_AFTER},
};
use secrecy::ExposeSecret as _;
use serde::Deserialize;
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep, timeout},
};

use super::{
    error::ClientError,
    http::{self, read_capped},
};
use crate::{
    config::PlayerStats,
    crypto::random::Random,
    domain::{
        backoff::jittered, plain_text::plain_text, player_name::NAME_CHARS, rate::Window, server_match::ListedServer,
        time::Timestamp,
    },
    net::neighbour::Neighbour,
};

const NEIGHBOUR: &str = "the player-statistics service";
/// Largest answer that is read, bytes: a server with a thousand players has half of it.
const MAX_ANSWER: usize = 2 * 1024 * 1024;
/// Names and players of one answer that are kept.
const MAX_PLAYERS: usize = 2_000;
const MAX_FOUND: usize = 20;
const MAX_NAMES: usize = 100;
const MAX_SERVER_NAME: usize = 120;
const MAX_ID: usize = 40;
/// A whole call, with the wait for its turn and the second attempt.
pub const CALL_DEADLINE: Duration = Duration::from_secs(10);
/// One attempt.
const ATTEMPT_DEADLINE: Duration = Duration::from_secs(5);
/// Before the second attempt.
const RETRY_PAUSE: Duration = Duration::from_millis(400);
/// Requests under way at once.
const AT_ONCE: usize = 4;
/// The service's budgets by the minute (60 without a token and 300 with one), less what others behind our address need.
const PER_MINUTE: [usize; 2] = [55, 280];
const MINUTE: Duration = Duration::from_secs(60);
/// Shortest and longest pause after the service reported too many requests; it names the length itself.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(15 * 60)];
/// Pause when the service names none, and after an answer that was the last of the minute.
const PAUSE: Duration = Duration::from_secs(60);
const LAST_OF_MINUTE: Duration = Duration::from_secs(5);

/// Players who are on a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OnlinePlayers {
    /// Number of players, by the server's own count.
    pub count: u32,
    /// Their names, as far as they are shown.
    pub names: Vec<String>,
    /// The server is listed as private.
    pub is_private: bool,
}

/// A player found by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundPlayer {
    /// The service's id.
    pub id: String,
    /// The present name.
    pub name: String,
    pub updated_at: Option<Timestamp>,
    /// Every name that was seen, the latest first.
    pub names: Vec<SeenName>,
}

/// A name of a player.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenName {
    pub name: String,
    pub last_seen: Option<Timestamp>,
}

/// Failure of a request.
#[derive(Debug, thiserror::Error)]
pub enum PlayerStatsError {
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The service was asked too much; the rest of the pause.
    #[error("the player-statistics service was asked too much, {} s are left", .0.as_secs())]
    Busy(Duration),
    /// There is no such server, or no longer.
    #[error("the player-statistics service does not know it")]
    Unknown,
}

/// The service.
pub struct PlayerStatsClient {
    http: reqwest::Client,
    settings: PlayerStats,
    random: Random,
    turns: Semaphore,
    pace: Mutex<RequestPace>,
}

/// Pace of requests to the service.
struct RequestPace {
    started: Instant,
    /// Requests of the last minute.
    window: Window,
    paused_until: Option<Instant>,
}

impl RequestPace {
    /// Takes a place in the minute, or returns the time until there is one.
    fn take(&mut self, now: Instant) -> Result<(), Duration> {
        match self.pause(now) {
            Some(pause) => Err(pause),
            None => {
                self.window.record(self.millis(now));
                Ok(())
            }
        }
    }

    /// Time until there is a place; `None` if there is one.
    fn pause(&self, now: Instant) -> Option<Duration> {
        let asked_for =
            self.paused_until.map(|until| until.saturating_duration_since(now)).filter(|pause| !pause.is_zero());
        let full = || {
            let millis = self.millis(now);
            Some(Duration::from_millis(self.window.available_at(millis, usize::MAX)? - millis))
        };
        asked_for.or_else(full)
    }

    fn millis(&self, now: Instant) -> u64 {
        u64::try_from((now - self.started).as_millis()).unwrap_or(u64::MAX)
    }
}

impl PlayerStatsClient {
    /// A client that asks at most as often as the service allows with these settings.
    pub fn new(http: reqwest::Client, settings: PlayerStats, random: Random) -> Self {
        let per_minute = PER_MINUTE[usize::from(settings.token.is_some())];
        let pace = RequestPace { started: Instant::now(), window: Window::new(per_minute, MINUTE), paused_until: None };
        Self { http, settings, random, turns: Semaphore::new(AT_ONCE), pace: Mutex::new(pace) }
    }

    /// Time for which the service is still left alone, if it was asked too much.
    pub fn pause(&self) -> Option<Duration> {
        self.pace().pause(Instant::now())
    }

    /// The game's servers that a search for this text finds: a name, or an address.
    pub async fn find_servers(&self, text: &str) -> Result<Vec<ListedServer>, PlayerStatsError> {
        let query = [("filter[search]", text), ("filter[game]", "rust"), ("page[size]", "50")];
        let answer: StatsDocument<Vec<StatsEntry>, StatsEntry> = self.get("/servers", &query).await?;
        Ok(answer.data.into_iter().filter_map(StatsEntry::into_server).collect())
    }

    /// Players on this server now, in one request.
    pub async fn online_players(&self, server: &str) -> Result<OnlinePlayers, PlayerStatsError> {
        let answer: StatsDocument<StatsEntry, StatsEntry> =
            self.get(&format!("/servers/{server}"), &[("include", "player")]).await?;
        let players = answer.included.into_iter().filter(|entry| entry.kind == "player");
        let names = players.filter_map(|player| shown_name(player.attributes.name.as_deref()?));
        Ok(OnlinePlayers {
            count: answer.data.attributes.players.unwrap_or(0),
            names: names.take(MAX_PLAYERS).collect(),
            is_private: answer.data.attributes.private == Some(true),
        })
    }

    /// The players that a search for this name finds, who were on this server (`None`: on any of the game), with all
    /// their names; the latest first.
    pub async fn find_players(&self, name: &str, server: Option<&str>) -> Result<Vec<FoundPlayer>, PlayerStatsError> {
        // In quotes it is one phrase; a quote inside would end it.
        let phrase = format!("\"{}\"", name.replace('"', " "));
        let place = server.map_or(("filter[server][game]", "rust"), |server| ("filter[servers]", server));
        let size = MAX_FOUND.to_string();
        let query = [
            ("filter[search]", phrase.as_str()),
            place,
            ("sort", "-lastSeen"),
            ("include", "identifier"),
            ("page[size]", &size),
        ];
        let answer: StatsDocument<Vec<StatsEntry>, StatsEntry> = self.get("/players", &query).await?;
        Ok(found_players(answer))
    }

    /// The answer to a question, asked a second time if the service fails.
    async fn get<T: serde::de::DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<T, PlayerStatsError> {
        let asked = async {
            let Ok(_turn) = self.turns.acquire().await else { return Err(unavailable("closed")) };
            match self.attempt(path, query).await {
                Err(PlayerStatsError::Client(_)) => {
                    sleep(jittered(RETRY_PAUSE, self.random.byte())).await;
                    self.attempt(path, query).await
                }
                answer => answer,
            }
        };
        timeout(CALL_DEADLINE, asked).await.unwrap_or_else(|_| Err(unavailable("no answer in time")))
    }

    async fn attempt<T: serde::de::DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<T, PlayerStatsError> {
        self.pace().take(Instant::now()).map_err(PlayerStatsError::Busy)?;
        let mut request = self.http.get(self.settings.base_url.at(path)).query(query).timeout(ATTEMPT_DEADLINE);
        if let Some(token) = &self.settings.token {
            request = request.bearer_auth(token.expose_secret());
        }
        let response = http::send(Neighbour::PlayerStats, request).await;
        let response = response.map_err(|error| unavailable(http::reason(&error)))?;
        self.heed(response.status(), response.headers())?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => return Err(PlayerStatsError::Unknown),
            status => return Err(unavailable(format!("status {}", status.as_u16()))),
        }
        let body = read_capped(response, MAX_ANSWER).await.map_err(|error| unavailable(error.to_string()))?;
        serde_json::from_slice(&body).map_err(|error| {
            unavailable(format!("unreadable answer (line {}, column {})", error.line(), error.column()))
        })
    }

    /// Follows the limits that an answer states.
    fn heed(&self, status: StatusCode, headers: &HeaderMap) -> Result<(), PlayerStatsError> {
        let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<f64>().ok();
        let now = Instant::now();
        if status == StatusCode::TOO_MANY_REQUESTS {
            let [least, most] = PAUSES;
            let said = number(RETRY_AFTER.as_str()).and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            let pause = said.unwrap_or(PAUSE).clamp(least, most);
            self.pace().paused_until = Some(now + pause);
            return Err(PlayerStatsError::Busy(pause));
        }
        if number("x-rate-limit-remaining").is_some_and(|left| left < 1.0) {
            self.pace().paused_until = Some(now + LAST_OF_MINUTE);
        }
        Ok(())
    }

    fn pace(&self) -> std::sync::MutexGuard<'_, RequestPace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unavailable(reason: impl Into<String>) -> PlayerStatsError {
    ClientError::Unavailable { neighbour: NEIGHBOUR, reason: reason.into() }.into()
}

/// A document of JSON:API.
#[derive(Deserialize)]
struct StatsDocument<D, I> {
    data: D,
    #[serde(default = "Vec::new")]
    included: Vec<I>,
}

#[derive(Deserialize)]
struct StatsEntry {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    id: String,
    #[serde(default)]
    attributes: Attributes,
    #[serde(default)]
    relationships: Relationships,
}

/// Attributes of all kinds of entries that are read. One of an unexpected form is left out.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Attributes {
    #[serde(deserialize_with = "lenient")]
    name: Option<String>,
    #[serde(deserialize_with = "lenient")]
    ip: Option<String>,
    #[serde(deserialize_with = "lenient")]
    address: Option<String>,
    #[serde(deserialize_with = "lenient")]
    port: Option<u16>,
    #[serde(deserialize_with = "lenient")]
    port_query: Option<u16>,
    #[serde(deserialize_with = "lenient")]
    players: Option<u32>,
    #[serde(deserialize_with = "lenient")]
    private: Option<bool>,
    #[serde(deserialize_with = "lenient")]
    updated_at: Option<String>,
    /// Kind of an identifier; then its text, and when it was last seen.
    #[serde(rename = "type", deserialize_with = "lenient")]
    kind: Option<String>,
    #[serde(deserialize_with = "lenient")]
    identifier: Option<String>,
    #[serde(deserialize_with = "lenient")]
    last_seen: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Relationships {
    #[serde(deserialize_with = "lenient")]
    player: Option<Relationship>,
}

#[derive(Deserialize)]
struct Relationship {
    data: Reference,
}

#[derive(Deserialize)]
struct Reference {
    id: String,
}

fn lenient<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: serde::de::DeserializeOwned,
    D: serde::Deserializer<'de>,
{
    Ok(serde_json::from_value(serde_json::Value::deserialize(deserializer)?).ok())
}

impl StatsEntry {
    fn into_server(self) -> Option<ListedServer> {
        let Attributes { name, ip, address, port, port_query, .. } = self.attributes;
        // Part of a path later.
        if self.id.is_empty() || self.id.len() > MAX_ID || !self.id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return None;
        }
        Some(ListedServer {
            id: self.id,
            name: plain_text(name.as_deref().unwrap_or_default(), MAX_SERVER_NAME),
            addresses: ip.into_iter().chain(address).collect(),
            ports: port.into_iter().chain(port_query).collect(),
        })
    }
}

fn found_players(answer: StatsDocument<Vec<StatsEntry>, StatsEntry>) -> Vec<FoundPlayer> {
    let StatsDocument { data, included } = answer;
    let player = |entry: StatsEntry| {
        let name = shown_name(entry.attributes.name.as_deref()?)?;
        let is_short = (1..=MAX_ID).contains(&entry.id.len());
        let updated_at = instant(entry.attributes.updated_at.as_deref());
        is_short.then_some(FoundPlayer { id: entry.id, name, updated_at, names: Vec::new() })
    };
    let mut players: Vec<FoundPlayer> = data.into_iter().filter_map(player).take(MAX_FOUND).collect();
    for entry in included {
        if entry.attributes.kind.as_deref() != Some("name") {
            continue;
        }
        let Some(Relationship { data: Reference { id: owner } }) = entry.relationships.player else { continue };
        let name = entry.attributes.identifier.as_deref().and_then(shown_name);
        let last_seen = instant(entry.attributes.last_seen.as_deref());
        if let (Some(player), Some(name)) = (players.iter_mut().find(|player| player.id == owner), name)
            && player.names.iter().all(|known| known.name != name)
        {
            player.names.push(SeenName { name, last_seen });
        }
    }
    for player in &mut players {
        player.names.sort_by_key(|seen| std::cmp::Reverse(seen.last_seen));
        player.names.truncate(MAX_NAMES);
    }
    players
}

/// A name that can be shown; `None` when nothing of it is left.
fn shown_name(raw: &str) -> Option<String> {
    let name = plain_text(raw, NAME_CHARS);
    (!name.is_empty()).then_some(name)
}

fn instant(text: Option<&str>) -> Option<Timestamp> {
    Timestamp::parse_rfc3339(text?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_entry_of_an_unexpected_form_is_left_out() {
        let servers = json!({ "data": [
            { "type": "server", "id": "7", "attributes": {
                "name": "<b>Rusty</b>", "ip": "203.0.113.9", "address": null, "port": 28015, "portQuery": 70000 } },
            { "type": "server", "id": "../players", "attributes": { "name": "Path" } },
            { "type": "server" },
        ], "links": {} });
        let answer: StatsDocument<Vec<StatsEntry>, StatsEntry> = serde_json::from_value(servers).unwrap();
        let servers: Vec<ListedServer> = answer.data.into_iter().filter_map(StatsEntry::into_server).collect();
        let expected = ListedServer {
            id: "7".into(),
            name: "Rusty".into(),
            addresses: vec!["203.0.113.9".into()],
            ports: vec![28_015],
        };
        assert_eq!(servers, [expected]);
    }

    #[test]
    fn the_names_of_a_player_are_listed_once_and_the_latest_first() {
        let name = |text: &str, seen: &str, player: &str| {
            json!({ "type": "identifier", "attributes": { "type": "name", "identifier": text, "lastSeen": seen },
                "relationships": { "player": { "data": { "type": "player", "id": player } } } })
        };
        let answer = json!({
            "data": [{ "type": "player", "id": "1", "attributes": { "name": "Vex", "updatedAt": "2026-11-20T00:00:00Z" } }],
            "included": [
                name("Old Vex", "2025-01-01T00:00:00.000Z", "1"),
                name("Vex", "2026-11-20T00:00:00.000Z", "1"),
                name("Old Vex", "2024-01-01T00:00:00.000Z", "1"),
                name("Someone", "2026-11-20T00:00:00.000Z", "2"),
                name("\u{200b}", "2026-11-20T00:00:00.000Z", "1"),
                { "type": "identifier", "attributes": { "type": "steamID", "identifier": "76561198000000001" },
                    "relationships": { "player": { "data": { "type": "player", "id": "1" } } } },
                { "type": "identifier", "attributes": { "type": "name", "identifier": "Noname" },
                    "relationships": { "player": { "data": null } } },
            ],
        });
        let players = found_players(serde_json::from_value(answer).unwrap());
        let [player] = &players[..] else { panic!("one player: {players:?}") };
        let names: Vec<&str> = player.names.iter().map(|seen| seen.name.as_str()).collect();
        assert_eq!((player.name.as_str(), &names[..]), ("Vex", &["Vex", "Old Vex"][..]));
        assert_eq!(player.updated_at, instant(Some("2026-11-20T00:00:00Z")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_minute_holds_no_more_than_its_budget() {
        let mut pace = RequestPace { started: Instant::now(), window: Window::new(3, MINUTE), paused_until: None };
        for _ in 0..3 {
            assert_eq!(pace.take(Instant::now()), Ok(()));
        }
        let wait = pace.take(Instant::now()).unwrap_err();
        assert!(wait > Duration::from_secs(59), "{wait:?}");
        sleep(wait).await;
        assert_eq!(pace.take(Instant::now()), Ok(()));
        pace.paused_until = Some(Instant::now() + PAUSE);
        assert_eq!(pace.take(Instant::now()), Err(PAUSE));
    }
}
