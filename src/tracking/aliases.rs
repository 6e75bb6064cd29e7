//! Under which names a player was seen: asked once for a name, kept for hours, and shown as old when the service cannot
//! be asked.

use std::{cell::RefCell, collections::HashMap, rc::Rc, sync::Arc};

use actix::Message;
use chrono::TimeDelta;
use futures_util::{
    FutureExt as _,
    future::{LocalBoxFuture, Shared},
};
use serde::{Deserialize, Serialize};

use crate::{
    clients::player_stats::FoundPlayer,
    db::{
        alias_answers::{self, StoredAnswer},
        engine::error::DbError,
        paired_servers, server_matches,
    },
    domain::{
        ids::{ServerId, UserId},
        player_name::NameKey,
        time::{self, Timestamp},
    },
    panics::{self, Part},
    tracking::context::TrackingContext,
};

/// Time for which an answer is fresh, and time for which the answer that there is none is.
const FRESH: TimeDelta = TimeDelta::hours(6);
const FRESH_NOTHING: TimeDelta = TimeDelta::minutes(15);
/// Names that are asked for at once.
const AT_ONCE: usize = 32;

/// The names of the players who use this name at this server, for this user.
#[derive(Message)]
#[rtype(result = "Result<Aliases, AliasError>")]
pub struct FindAliases {
    pub user: UserId,
    pub server: ServerId,
    /// As the user wrote it.
    pub name: String,
    pub key: NameKey,
}

/// Answer of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aliases {
    pub known: KnownNames,
    pub as_of: Timestamp,
    /// True if it is older than it should be, because the service could not be asked.
    pub stale: bool,
}

/// The players who use or used a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownNames {
    /// The one that fits best first.
    pub players: Vec<NamedPlayer>,
}

/// A player and their names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedPlayer {
    /// The service's id.
    pub id: String,
    /// The present name.
    pub name: String,
    /// Every name, the latest first.
    pub names: Vec<KnownName>,
}

/// A name, and when it was last seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownName {
    pub name: String,
    #[serde(serialize_with = "time::exact_option")]
    pub last_seen: Option<Timestamp>,
}

/// Reasons for which there is no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AliasError {
    /// Nothing is kept, and the service could not be asked.
    #[error("the player-statistics service was not asked: {0}")]
    Unavailable(String),
    #[error("{0}")]
    Database(String),
    /// The server is no longer paired.
    #[error("no such server")]
    UnknownServer,
}

/// A name at a server of the service (`""`: at any).
type Question = (NameKey, String);
type Flight = Shared<LocalBoxFuture<'static, Result<Aliases, AliasError>>>;

/// See the module. Lives on the worker's thread.
pub struct AliasFinder {
    context: Arc<TrackingContext>,
    /// Questions under way: callers with the same question wait for the same answer.
    flights: RefCell<HashMap<Question, Flight>>,
}

impl AliasFinder {
    pub(crate) fn new(context: Arc<TrackingContext>) -> Rc<Self> {
        Rc::new(Self { context, flights: RefCell::default() })
    }

    /// The kept answer while it is fresh; else a new one; else the kept one, as old.
    pub async fn find(self: Rc<Self>, question: FindAliases) -> Result<Aliases, AliasError> {
        let FindAliases { user, server, name, key } = question;
        let asked = key.clone();
        let read = self.context.pool.read(move |db| {
            let paired = paired_servers::get(db, &server)?;
            let matched = server_matches::get(db, &paired.address, paired.port)?.and_then(|known| known.matched);
            let stats_server = matched.map(|matched| matched.id).unwrap_or_default();
            let kept = alias_answers::get(db, &asked, &stats_server)?;
            Ok((stats_server, kept))
        });
        let (stats_server, kept) = read.await.map_err(|error| match error {
            DbError::NotFound => AliasError::UnknownServer,
            error => AliasError::Database(error.to_string()),
        })?;
        let kept = kept.and_then(opened);
        let now = self.context.clock.now();
        if let Some(fresh) = kept.as_ref().filter(|kept| is_fresh(kept, now)) {
            return Ok(fresh.clone());
        }
        let answer = match self.clone().flight((key, stats_server), name, user) {
            Ok(flight) => flight.await,
            Err(reason) => Err(AliasError::Unavailable(reason.to_owned())),
        };
        match (answer, kept) {
            (Err(error), Some(kept)) => {
                log::info!("aliases are answered as they were: {error}");
                Ok(Aliases { stale: true, ..kept })
            }
            (answer, _) => answer,
        }
    }

    /// The question under way, begun if need be.
    fn flight(self: Rc<Self>, question: Question, name: String, user: UserId) -> Result<Flight, &'static str> {
        if let Some(flight) = self.flights.borrow().get(&question) {
            return Ok(flight.clone());
        }
        if self.flights.borrow().len() >= AT_ONCE {
            return Err("too many names are asked for");
        }
        if self.context.client.pause().is_some() {
            return Err("the service was asked too much");
        }
        if !self.context.pay(&[user]) {
            return Err("the budget of the day is spent");
        }
        let (this, asked) = (self.clone(), question.clone());
        let ask = async move {
            let answer = panics::caught(Part::Aliases, "", ask(&this.context, &asked, &name)).await;
            this.flights.borrow_mut().remove(&asked);
            answer.unwrap_or_else(|| Err(AliasError::Unavailable("a defect".to_owned())))
        };
        let flight = ask.boxed_local().shared();
        self.flights.borrow_mut().insert(question, flight.clone());
        Ok(flight)
    }
}

/// Asks the service, and keeps the answer.
async fn ask(context: &TrackingContext, question: &Question, name: &str) -> Result<Aliases, AliasError> {
    let (key, stats_server) = question.clone();
    let place = Some(stats_server.as_str()).filter(|server| !server.is_empty());
    let found = context.client.find_players(name, place).await;
    let found = found.map_err(|error| AliasError::Unavailable(error.to_string()))?;
    let (known, as_of) = (choose(name, &key, found), context.clock.now());
    let text = serde_json::json!(known).to_string();
    // The answer is good even if it cannot be kept.
    if let Err(error) = context.pool.write(move |db| alias_answers::put(db, &key, &stats_server, &text, as_of)).await {
        log::warn!("an answer about aliases was not kept: {error}");
    }
    Ok(Aliases { known, as_of, stale: false })
}

/// The found players who use or used exactly this name (a search finds others too): first who is called so
/// now, in the same spelling, then by the time when they were last seen.
fn choose(name: &str, key: &NameKey, found: Vec<FoundPlayer>) -> KnownNames {
    let is_key = |name: &str| NameKey::of(name).as_ref() == Some(key);
    let mut players: Vec<FoundPlayer> = found
        .into_iter()
        .filter(|player| is_key(&player.name) || player.names.iter().any(|seen| is_key(&seen.name)))
        .collect();
    players
        .sort_by_key(|player| std::cmp::Reverse((is_key(&player.name), player.name == name.trim(), player.updated_at)));
    let named = |player: FoundPlayer| NamedPlayer {
        id: player.id,
        name: player.name,
        names: player.names.into_iter().map(|seen| KnownName { name: seen.name, last_seen: seen.last_seen }).collect(),
    };
    KnownNames { players: players.into_iter().map(named).collect() }
}

/// A kept answer; one that cannot be read is none.
fn opened(kept: StoredAnswer) -> Option<Aliases> {
    let known = serde_json::from_str(&kept.answer).ok()?;
    Some(Aliases { known, as_of: kept.as_of, stale: false })
}

fn is_fresh(kept: &Aliases, now: Timestamp) -> bool {
    now - kept.as_of < if kept.known.players.is_empty() { FRESH_NOTHING } else { FRESH }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::player_stats::SeenName;

    fn player(id: &str, name: &str, names: &[&str], updated: i64) -> FoundPlayer {
        FoundPlayer {
            id: id.into(),
            name: name.into(),
            updated_at: Timestamp::from_timestamp(updated, 0),
            names: names.iter().map(|name| SeenName { name: (*name).into(), last_seen: None }).collect(),
        }
    }

    #[test]
    fn several_players_with_a_name_are_all_listed_and_similar_names_are_not() {
        let found = vec![
            player("similar", "Vexing", &["Vexing"], 9),
            player("once", "Ada", &["Ada", "VEX"], 8),
            player("other case", "vex", &["vex"], 7),
            player("old", "Vex", &["Vex"], 1),
            player("new", "Vex", &["Vex", "Old Vex"], 2),
        ];
        let known = choose("Vex", &NameKey::of("Vex").unwrap(), found);
        let ids: Vec<&str> = known.players.iter().map(|player| player.id.as_str()).collect();
        assert_eq!(ids, ["new", "old", "other case", "once"]);
        assert_eq!(known.players[0].names[1].name, "Old Vex");
    }

    #[test]
    fn an_empty_answer_is_believed_for_a_shorter_time() {
        let at = |minutes: i64| Timestamp::from_timestamp(minutes * 60, 0).unwrap();
        let empty = Aliases { known: KnownNames::default(), as_of: at(0), stale: false };
        assert!(is_fresh(&empty, at(14)) && !is_fresh(&empty, at(15)));
        let players = choose("Vex", &NameKey::of("Vex").unwrap(), vec![player("1", "Vex", &[], 0)]);
        let known = Aliases { known: players, ..empty };
        assert!(is_fresh(&known, at(359)) && !is_fresh(&known, at(360)));
    }
}
