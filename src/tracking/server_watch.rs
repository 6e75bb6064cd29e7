//! Looks again and again who is online on one game server, for everybody who tracks players there.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use chrono::TimeDelta;
use serde_json::{Map, json};
use tokio::time::sleep;

use crate::{
    clients::player_stats::PlayerStatsError,
    db::{
        engine::{error::DbError, pool::Db},
        paired_servers,
        server_matches::{self, StoredMatch},
        tracked_players::{self, TrackedPlayer},
    },
    domain::{
        backoff::{Backoff, jittered},
        game_address::GameAddress,
        ids::{ServerId, UserId},
        player_name::{NameKey, hides_names},
        player_session::{PlayerTransition, look},
        server_match::{PairedPlace, ServerMatch, best_match},
        time::Timestamp,
        world_event::{EventKind, WorldEvent},
    },
    panics::{self, Part},
    relay::hub::{PLAYERS_AT_ONCE, PlayerSeen, PlayersSeen},
    tracking::context::TrackingContext,
};

/// The longest pause while the service fails.
const LONGEST_PAUSE: Duration = Duration::from_secs(15 * 60);
/// While no server of the service is found, and when it is looked for again.
const UNMATCHED_PAUSE: Duration = Duration::from_secs(10 * 60);
const SEARCH_AGAIN: TimeDelta = TimeDelta::hours(6);
/// A server that was found may have moved.
const CHECK_AGAIN: TimeDelta = TimeDelta::days(7);

/// A game server, as it is paired: all pairings of one address and port are looked at together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GamePlace {
    pub address: String,
    /// The companion port.
    pub port: u16,
}

impl fmt::Display for GamePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.address, self.port)
    }
}

/// The paired servers for which a game server is looked at; the worker adds and removes them.
pub type WatchedPairings = Arc<Mutex<BTreeSet<ServerId>>>;

/// Outcome of one question for the players of a game server.
enum LookOutcome {
    /// The players online are known, or that the server hides them.
    Known,
    /// The service lists no such server.
    Unmatched,
    /// The budget of the users is spent, for now.
    Spent,
}

#[derive(Debug, thiserror::Error)]
enum LookError {
    #[error(transparent)]
    Service(#[from] PlayerStatsError),
    #[error(transparent)]
    Database(#[from] DbError),
}

/// Pairings that track players at this place, and what is known of it.
struct Interest {
    /// Pairings that no longer track a player here.
    left: Vec<ServerId>,
    servers: Vec<ServerId>,
    owners: Vec<UserId>,
    /// Names that users gave the server.
    names: BTreeSet<String>,
    known: Option<StoredMatch>,
}

/// Looks until it is aborted. `report` gets the pairings that no longer need this place.
pub async fn watch(
    context: Arc<TrackingContext>,
    place: GamePlace,
    pairings: WatchedPairings,
    report: impl Fn(Vec<ServerId>),
) {
    let longest = LONGEST_PAUSE.max(context.poll_every);
    let mut backoff = Backoff::between(context.poll_every, longest);
    let mut failed = false;
    loop {
        if !context.looks_here() {
            sleep(context.poll_every).await;
            continue;
        }
        let servers = pairings.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let looked =
            panics::caught(Part::Tracking, &place.address, look_once(&context, &place, servers, &report)).await;
        let pause = match looked {
            Some(Ok(look)) => {
                failed = false;
                backoff = Backoff::between(context.poll_every, longest);
                let pause = if let LookOutcome::Unmatched = look { UNMATCHED_PAUSE } else { context.poll_every };
                jittered(pause, context.random.byte())
            }
            Some(Err(error)) => {
                // Once, not with every attempt of a long outage.
                if !std::mem::replace(&mut failed, true) {
                    log::warn!(game_server:% = place; "who is online is not known: {error}");
                }
                let least =
                    if let LookError::Service(PlayerStatsError::Busy(wait)) = error { wait } else { Duration::ZERO };
                backoff.after(Duration::ZERO, least, context.random.byte())
            }
            None => longest,
        };
        sleep(pause).await;
    }
}

async fn look_once(
    context: &TrackingContext,
    place: &GamePlace,
    servers: BTreeSet<ServerId>,
    report: &impl Fn(Vec<ServerId>),
) -> Result<LookOutcome, LookError> {
    let asked = place.clone();
    let Interest { left, servers, owners, names, known } =
        context.pool.read(move |db| interest(db, &asked, servers)).await?;
    if !left.is_empty() {
        report(left);
    }
    if servers.is_empty() {
        return Ok(LookOutcome::Known);
    }
    let now = context.clock.now();
    let (matched, known_at) = match known {
        Some(known) if is_settled(&known, now) => {
            let known_at = known.polled_at.filter(|_| !known.names_hidden);
            (known.matched, known_at)
        }
        known => {
            let Some(found) = search(context, place, names, &owners).await? else { return Ok(LookOutcome::Spent) };
            // Sessions seen there mean nothing at another server.
            let before = known.and_then(|known| {
                let same = known.matched.as_ref().map(|known| &known.id) == found.as_ref().map(|found| &found.id);
                known.polled_at.filter(|_| same && !known.names_hidden)
            });
            (found, before)
        }
    };
    let Some(ServerMatch { id, .. }) = matched else { return Ok(LookOutcome::Unmatched) };
    if !context.pay(&owners) {
        return Ok(LookOutcome::Spent);
    }
    let online = match context.client.online_players(&id).await {
        Err(PlayerStatsError::Unknown) => {
            store_match(context, place, None).await?;
            return Ok(LookOutcome::Unmatched);
        }
        online => online?,
    };
    let hidden = online.is_private || hides_names(online.count, online.names.iter().map(String::as_str));
    let online: BTreeSet<NameKey> = online.names.iter().filter_map(|name| NameKey::of(name)).collect();
    let (place, now) = (place.clone(), context.clock.now());
    let stored = context.pool.write(move |db| {
        server_matches::polled(db, &place.address, place.port, hidden, now)?;
        if hidden { Ok(Vec::new()) } else { store_look(db, &servers, &online, known_at, now) }
    });
    let mut seen = stored.await?.into_iter().peekable();
    while seen.peek().is_some() {
        context.hub.do_send(PlayersSeen(seen.by_ref().take(PLAYERS_AT_ONCE).collect()));
    }
    Ok(LookOutcome::Known)
}

/// True if the match need not be looked for now.
fn is_settled(known: &StoredMatch, now: Timestamp) -> bool {
    let lasts = if known.matched.is_some() { CHECK_AGAIN } else { SEARCH_AGAIN };
    now - known.checked_at < lasts
}

fn interest(db: &mut Db, place: &GamePlace, servers: BTreeSet<ServerId>) -> Result<Interest, DbError> {
    let known = server_matches::get(db, &place.address, place.port)?;
    let mut interest =
        Interest { left: Vec::new(), servers: Vec::new(), owners: Vec::new(), names: BTreeSet::new(), known };
    for server in servers {
        let paired = match paired_servers::get(db, &server) {
            Ok(paired) => Some(paired),
            Err(DbError::NotFound) => None,
            // The others go on.
            Err(error @ DbError::Malformed(_)) => {
                log::error!(server = server.as_str(); "its players are not looked for: {error}");
                continue;
            }
            Err(error) => return Err(error),
        };
        let here = paired.filter(|paired| paired.address == place.address && paired.port == place.port);
        match here {
            Some(paired) if tracked_players::count(db, &server)? > 0 => {
                interest.owners.push(paired.owner_id);
                interest.names.insert(paired.name);
                interest.servers.push(server);
            }
            _ => interest.left.push(server),
        }
    }
    Ok(interest)
}

/// Looks for the game server at the service, first by its address and then by its names, and stores what was found.
/// `None`: the budget is spent.
async fn search(
    context: &TrackingContext,
    place: &GamePlace,
    names: BTreeSet<String>,
    payers: &[UserId],
) -> Result<Option<Option<ServerMatch>>, LookError> {
    let mut addresses = BTreeSet::from([place.address.to_ascii_lowercase()]);
    if let Some(GameAddress::Name(name)) = GameAddress::parse(&place.address) {
        // The service lists numbers. Without them the name may still be enough.
        let resolved = context.names.look_up(&name, place.port).await.unwrap_or_default();
        addresses.extend(resolved.into_iter().map(|address| address.ip().to_string()));
    }
    let searches: Vec<String> = addresses.last().into_iter().chain(names.first()).cloned().collect();
    let paired = PairedPlace { addresses, port: place.port, names };
    let mut found = None;
    for text in searches {
        if !context.pay(payers) {
            return Ok(None);
        }
        found = best_match(&paired, &context.client.find_servers(&text).await?);
        if found.is_some() {
            break;
        }
    }
    store_match(context, place, found.clone()).await?;
    Ok(Some(found))
}

async fn store_match(
    context: &TrackingContext,
    place: &GamePlace,
    matched: Option<ServerMatch>,
) -> Result<(), DbError> {
    let (place, now) = (place.clone(), context.clock.now());
    context.pool.write(move |db| server_matches::put(db, &place.address, place.port, matched.as_ref(), now)).await
}

/// Stores what is seen of all tracked players, and returns what to send to their watchers.
fn store_look(
    db: &mut Db,
    servers: &[ServerId],
    online: &BTreeSet<NameKey>,
    known_at: Option<Timestamp>,
    now: Timestamp,
) -> Result<Vec<PlayerSeen>, DbError> {
    let mut news = Vec::new();
    for server in servers {
        let players = match tracked_players::list(db, server) {
            Err(error @ DbError::Malformed(_)) => {
                log::error!(server = server.as_str(); "its tracked players cannot be read: {error}");
                continue;
            }
            players => players?,
        };
        for player in players {
            let is_online = NameKey::of(&player.tracker_name).is_some_and(|key| online.contains(&key));
            let known_at = known_at.filter(|known_at| player.created_at <= *known_at);
            let step = look(player.open_session(), is_online, known_at, now);
            tracked_players::step(db, &player, &step, now)?;
            if let Some(seen) = step.news {
                news.push(PlayerSeen { server: server.clone(), event: event(&player, seen, now) });
            }
        }
        tracked_players::seen(db, server, now)?;
    }
    Ok(news)
}

fn event(player: &TrackedPlayer, news: PlayerTransition, now: Timestamp) -> WorldEvent {
    let (kind, action, what) = match news {
        PlayerTransition::CameOnline => (EventKind::Login, "login", "came online"),
        PlayerTransition::WentOffline => (EventKind::Logout, "logout", "went offline"),
    };
    let mut data = Map::new();
    data.insert("trackedPlayer".to_owned(), json!(player.id));
    data.insert("name".to_owned(), json!(player.tracker_name));
    data.insert("tag".to_owned(), json!(player.tag));
    if let (PlayerTransition::WentOffline, Some(seen)) = (news, player.last_seen_at) {
        data.insert("lastSeenAt".to_owned(), json!(seen.to_wire()));
    }
    let title = format!("{} {what}", player.tracker_name);
    WorldEvent { kind, action, grid: String::new(), x: None, y: None, ts: now, title, data }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::{
        engine::pool::Pool,
        testing::{self, later, now},
        tracked_players::NewTrackedPlayer,
    };

    fn track(pool: &Pool, server: &ServerId, name: &str) {
        let new = NewTrackedPlayer {
            id: format!("{server}/{name}"),
            server: server.clone(),
            tracker_name: name.to_owned(),
            key: NameKey::of(name).unwrap(),
            tag: None,
            note: None,
            author: "owner".into(),
        };
        pool.write_blocking(|db| tracked_players::insert(db, &new, now())).unwrap();
    }

    #[test]
    fn one_look_serves_everybody_who_tracks_there() {
        testing::on_each_database(|pool| {
            testing::user(pool, "owner");
            testing::user(pool, "other");
            let servers = [("owner", "one"), ("other", "two")].map(|(user, id)| testing::server(pool, user, id).id);
            track(pool, &servers[0], "Vex");
            track(pool, &servers[0], "Ada");
            track(pool, &servers[1], "VEX");
            let look = |names: &[&str], known_at, at| -> Vec<(String, String)> {
                let online = names.iter().filter_map(|name| NameKey::of(name)).collect();
                let seen = pool.write_blocking(|db| store_look(db, &servers, &online, known_at, at)).unwrap();
                seen.into_iter().map(|seen| (seen.server.to_string(), seen.event.title)).collect()
            };
            let notice = |server: &str, title: &str| (server.to_owned(), title.to_owned());
            assert!(look(&["ada"], None, now()).is_empty(), "the first look is no news");
            let came = [notice("one", "Vex came online"), notice("two", "VEX came online")];
            assert_eq!(look(&["Vex", "Ada"], Some(now()), later(60)), came);
            assert!(look(&["Vex"], Some(later(60)), later(120)).is_empty());
            assert_eq!(look(&["Vex"], Some(later(120)), later(180)), [notice("one", "Ada went offline")]);
            let players = pool.read_blocking(|db| tracked_players::list(db, &servers[0])).unwrap();
            let seen: Vec<_> = players.iter().map(|player| (player.online_since, player.last_seen_at)).collect();
            assert_eq!(seen, [(None, Some(later(60))), (Some(later(60)), Some(later(180)))]);
        });
    }

    #[test]
    fn a_pairing_that_moved_or_tracks_no_player_needs_the_place_no_longer() {
        testing::on_each_database(|pool| {
            testing::user(pool, "owner");
            testing::user(pool, "other");
            let one = testing::server(pool, "owner", "one").id;
            let two = testing::server(pool, "other", "two").id;
            track(pool, &one, "Vex");
            let all = || BTreeSet::from([one.clone(), two.clone(), "gone".into()]);
            let place = |port| GamePlace { address: "192.0.2.1".into(), port };
            let here = pool.read_blocking(|db| interest(db, &place(28_082), all())).unwrap();
            assert_eq!((here.servers, here.owners), (vec![one.clone()], vec!["owner".into()]));
            assert_eq!(here.left, ["gone".into(), two.clone()]);
            assert_eq!(here.names, BTreeSet::from(["Test server".to_owned()]));
            let elsewhere = pool.read_blocking(|db| interest(db, &place(1), all())).unwrap();
            assert_eq!((elsewhere.servers.len(), elsewhere.left.len()), (0, 3));
        });
    }
}
