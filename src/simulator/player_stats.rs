//! A player-statistics service in the form of BattleMetrics' API: its servers, who is online on them, and the names
//! that players had. It enforces the real one's limits and misbehaves on demand.

use std::{
    collections::{HashMap, VecDeque},
    io,
    net::{SocketAddr, TcpListener},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use actix_web::{
    HttpRequest, HttpResponse,
    http::{
        StatusCode,
        header::{AUTHORIZATION, RETRY_AFTER},
    },
    web::{self, ServiceConfig},
};
use chrono::TimeDelta;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::http_server::NeighbourServer;
use crate::{clock::Clock, domain::time::Timestamp};

/// Requests in a minute, without a token and with one.
const PER_MINUTE: [usize; 2] = [60, 300];
/// The latest questions that are remembered.
const ASKED: usize = 1_000;
/// Bytes of an answer that is too large: more than any real one.
const TOO_LARGE: usize = 8 * 1024 * 1024;
/// The game port is this far below the companion port.
const COMPANION_OFFSET: u16 = 67;
/// Made-up names that a server in streamer mode shows.
const MADE_UP: [&str; 12] = [
    "diana", "brandi", "todd", "lynwood", "asuncion", "laronda", "matt", "emilio", "nevada", "emily", "chanel",
    "santiago",
];

/// A game server that the service lists.
#[derive(Clone, Debug)]
pub struct ListedGame {
    /// Digits.
    pub id: String,
    pub name: String,
    pub address: String,
    /// The game port.
    pub port: u16,
    /// The server is in streamer mode: twelve made-up names are shown, independent of the players online.
    pub hides_names: bool,
}

impl ListedGame {
    /// The game server whose companion port this is.
    pub fn at(id: &str, name: &str, companion: SocketAddr) -> Self {
        let port = companion.port().saturating_sub(COMPANION_OFFSET);
        Self { id: id.to_owned(), name: name.to_owned(), address: companion.ip().to_string(), port, hides_names: false }
    }
}

/// When a player is online.
#[derive(Clone, Copy, Debug)]
pub enum Habit {
    Online,
    Offline,
    /// The first number of seconds online, then the second offline, and so on.
    ComesAndGoes(i64, i64),
}

impl Habit {
    fn is_online(self, now: Timestamp) -> bool {
        match self {
            Self::Online => true,
            Self::Offline => false,
            Self::ComesAndGoes(on, off) => now.timestamp().rem_euclid((on + off).max(1)) < on,
        }
    }
}

/// A player known to the service.
#[derive(Clone, Debug)]
pub struct KnownPlayer {
    /// Every name, the present one first.
    pub names: Vec<String>,
    /// The id of the server where the player is.
    pub server: String,
    pub habit: Habit,
}

/// Three players who come and go on this server every few minutes: for the demo.
pub fn regulars(server: &str) -> Vec<KnownPlayer> {
    [
        (["Vex", "Vexatious", "xX_vex_Xx"], 90, 60),
        (["Rook", "Rookie", "Castle"], 300, 120),
        (["Ghost", "Boo", "Noname"], 60, 180),
    ]
    .map(|(names, on, off)| KnownPlayer {
        names: names.map(str::to_owned).to_vec(),
        server: server.to_owned(),
        habit: Habit::ComesAndGoes(on, off),
    })
    .to_vec()
}

/// Faults of the service; none by default.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlayerStatsFaults {
    /// Every request is answered with this status.
    pub status: Option<u16>,
    /// Every request is answered 429, with this `Retry-After`.
    pub rate_limit: Option<u32>,
    /// Answers end in the middle.
    pub malformed: bool,
    /// Answers are too large.
    pub too_large: bool,
    /// Answers come this much later.
    pub delay: Option<Duration>,
}

/// A running service; stops when dropped.
pub struct PlayerStatsService {
    addr: SocketAddr,
    _server: NeighbourServer,
    shared: web::Data<SharedStats>,
}

struct SharedStats {
    clock: Clock,
    state: Mutex<StatsState>,
}

#[derive(Default)]
struct StatsState {
    games: Vec<ListedGame>,
    players: Vec<KnownPlayer>,
    faults: PlayerStatsFaults,
    /// Path and decoded query of every request.
    asked: VecDeque<String>,
    /// Times of the requests of the last minute, without a token and with one.
    lately: [VecDeque<Timestamp>; 2],
}

type StatsQuery = HashMap<String, String>;

impl SharedStats {
    fn state(&self) -> MutexGuard<'_, StatsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PlayerStatsService {
    /// Binds and begins to serve; port 0 takes a free one. Call it inside an actix system.
    pub async fn start(
        listen: SocketAddr,
        games: Vec<ListedGame>,
        players: Vec<KnownPlayer>,
        clock: Clock,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(listen)?;
        let addr = listener.local_addr()?;
        let state = StatsState { games, players, ..Default::default() };
        let shared = web::Data::new(SharedStats { clock, state: state.into() });
        let data = shared.clone();
        let routes = move |config: &mut ServiceConfig| {
            config
                .app_data(data.clone())
                .service(web::resource("/servers").get(servers))
                .service(web::resource("/servers/{id}").get(server))
                .service(web::resource("/players").get(players_found));
        };
        Ok(Self { addr, _server: NeighbourServer::start(listener, routes)?, shared })
    }

    /// The address that it listens on.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The base URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Lists one more game server.
    pub fn list(&self, game: ListedGame) {
        self.shared.state().games.push(game);
    }

    /// Adds a player to those that the service knows.
    pub fn add(&self, player: KnownPlayer) {
        self.shared.state().players.push(player);
    }

    /// Changes the habit of the player with this present name.
    pub fn set_habit(&self, name: &str, habit: Habit) {
        let mut state = self.shared.state();
        let called_so = |player: &&mut KnownPlayer| player.names.first().is_some_and(|known| known == name);
        state.players.iter_mut().filter(called_so).for_each(|player| player.habit = habit);
    }

    /// From now on questions are answered with these faults.
    pub fn set_faults(&self, faults: PlayerStatsFaults) {
        self.shared.state().faults = faults;
    }

    /// The latest questions: path and decoded query, the oldest first.
    pub fn asked(&self) -> Vec<String> {
        self.shared.state().asked.iter().cloned().collect()
    }
}

impl StatsState {
    /// Requests that are left in this minute, or the seconds until there is one.
    fn take(&mut self, has_token: bool, now: Timestamp) -> Result<usize, i64> {
        let (lately, limit) = (&mut self.lately[usize::from(has_token)], PER_MINUTE[usize::from(has_token)]);
        while lately.front().is_some_and(|first| now - *first >= TimeDelta::minutes(1)) {
            lately.pop_front();
        }
        match lately.front() {
            Some(first) if lately.len() >= limit => Err((*first + TimeDelta::minutes(1) - now).num_seconds() + 1),
            _ => {
                lately.push_back(now);
                Ok(limit - lately.len())
            }
        }
    }

    fn note(&mut self, question: String) {
        if self.asked.len() >= ASKED {
            self.asked.pop_front();
        }
        self.asked.push_back(question);
    }

    fn online<'a>(&'a self, game: &'a ListedGame, now: Timestamp) -> impl Iterator<Item = (usize, &'a str)> {
        let here = self.players.iter().enumerate().filter(move |(_, player)| player.server == game.id);
        here.filter(move |(_, player)| player.habit.is_online(now))
            .filter_map(|(number, player)| Some((number, player.names.first()?.as_str())))
    }
}

/// Answers within the limits and with the faults.
async fn answer(
    shared: &SharedStats,
    request: &HttpRequest,
    query: &StatsQuery,
    found: impl FnOnce(&StatsState, Timestamp) -> Option<Value>,
) -> HttpResponse {
    let has_token = request.headers().get(AUTHORIZATION).is_some_and(|value| value.as_bytes().starts_with(b"Bearer "));
    let now = shared.clock.now();
    let (faults, taken, found) = {
        let mut state = shared.state();
        let mut fields: Vec<String> = query.iter().map(|(name, value)| format!("{name}={value}")).collect();
        fields.sort_unstable();
        state.note(format!("{}?{}", request.path(), fields.join("&")));
        let taken = state.take(has_token, now);
        (state.faults, taken, found(&state, now))
    };
    if let Some(delay) = faults.delay {
        sleep(delay).await;
    }
    if let Some(status) = faults.status {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        return HttpResponse::build(status).content_type("text/html").body("<html>edge</html>");
    }
    let limit = PER_MINUTE[usize::from(has_token)];
    let wait = faults.rate_limit.map(i64::from).or(taken.err());
    if let Some(wait) = wait {
        return HttpResponse::TooManyRequests().insert_header((RETRY_AFTER, wait.to_string())).json(
            json!({ "errors": [{
            "status": "429", "code": "rate_limit", "title": "Rate Limit Exceeded",
            "detail": "You have exceeded the limit.", "meta": { "limit": limit, "period": "minute" },
        }] }),
        );
    }
    let Some(found) = found else {
        let error = json!({ "status": "404", "title": "Not Found", "detail": "It does not exist." });
        return HttpResponse::NotFound().json(json!({ "errors": [error] }));
    };
    let mut body = found.to_string();
    if faults.malformed {
        body.truncate(body.len() / 2);
    }
    if faults.too_large {
        body.extend(std::iter::repeat_n(' ', TOO_LARGE));
    }
    HttpResponse::Ok()
        .content_type("application/json")
        .insert_header(("x-rate-limit-limit", limit.to_string()))
        .insert_header(("x-rate-limit-remaining", taken.unwrap_or(0).to_string()))
        .body(body)
}

fn game_entry(game: &ListedGame, online: usize) -> Value {
    json!({
        "type": "server",
        "id": game.id,
        "attributes": {
            "id": game.id, "name": game.name, "address": null, "ip": game.address, "port": game.port,
            "portQuery": game.port.saturating_add(2), "players": online, "maxPlayers": 150, "status": "online",
            "private": false, "details": { "map": "Procedural Map" },
        },
        "relationships": { "game": { "data": { "type": "game", "id": "rust" } } },
    })
}

async fn servers(shared: web::Data<SharedStats>, request: HttpRequest, query: web::Query<StatsQuery>) -> HttpResponse {
    let search = query.get("filter[search]").map(|text| text.to_lowercase()).unwrap_or_default();
    answer(&shared, &request, &query, |state, now| {
        let fits = |game: &&ListedGame| game.address == search || game.name.to_lowercase().contains(&search);
        let found = state.games.iter().filter(fits);
        let entries = found.map(|game| game_entry(game, state.online(game, now).count()));
        Some(json!({ "data": entries.collect::<Vec<_>>(), "included": [], "links": {} }))
    })
    .await
}

async fn server(
    shared: web::Data<SharedStats>,
    request: HttpRequest,
    id: web::Path<String>,
    query: web::Query<StatsQuery>,
) -> HttpResponse {
    answer(&shared, &request, &query, |state, now| {
        let game = state.games.iter().find(|game| game.id == *id)?;
        let player = |(number, name): (usize, &str)| {
            json!({ "type": "player", "id": player_id(number), "attributes": { "id": player_id(number), "name": name, "private": false } })
        };
        let online: Vec<Value> = match game.hides_names {
            true => MADE_UP.into_iter().enumerate().map(player).collect(),
            false => state.online(game, now).map(player).collect(),
        };
        let asked = query.get("include").is_some_and(|include| include.split(',').any(|kind| kind == "player"));
        let entry = game_entry(game, online.len());
        Some(json!({ "data": entry, "included": if asked { online } else { Vec::new() } }))
    })
    .await
}

async fn players_found(
    shared: web::Data<SharedStats>,
    request: HttpRequest,
    query: web::Query<StatsQuery>,
) -> HttpResponse {
    let search = query.get("filter[search]").map(|text| text.trim_matches('"').to_lowercase()).unwrap_or_default();
    let server = query.get("filter[servers]");
    answer(&shared, &request, &query, |state, now| {
        let fits = |(_, player): &(usize, &KnownPlayer)| {
            server.is_none_or(|server| player.server == *server)
                && player.names.iter().any(|name| name.to_lowercase().contains(&search))
        };
        let found: Vec<(usize, &KnownPlayer)> = state.players.iter().enumerate().filter(fits).collect();
        let player = |(number, player): &(usize, &KnownPlayer)| {
            let attributes = json!({
                "id": player_id(*number), "name": player.names.first(), "private": false,
                "createdAt": seen(now, 900), "updatedAt": seen(now, 0),
            });
            json!({ "type": "player", "id": player_id(*number), "attributes": attributes })
        };
        let names = found.iter().flat_map(|(number, player)| {
            player.names.iter().enumerate().map(|(age, name)| {
                json!({
                    "type": "identifier",
                    "id": format!("{}{age}", player_id(*number)),
                    "attributes": { "type": "name", "identifier": name, "lastSeen": seen(now, 100 * age as i64) },
                    "relationships": { "player": { "data": { "type": "player", "id": player_id(*number) } } },
                })
            })
        });
        let included: Vec<Value> = names.collect();
        Some(json!({ "data": found.iter().map(player).collect::<Vec<_>>(), "included": included, "links": {} }))
    })
    .await
}

fn player_id(number: usize) -> String {
    (1_000_000 + number).to_string()
}

/// The time this many days ago.
fn seen(now: Timestamp, days: i64) -> String {
    (now - TimeDelta::days(days)).to_wire()
}
