//! World events of the last minutes, by game server. Several links to one game server see the same event a few seconds
//! apart, each for itself: it is one event, with one id. Pure bookkeeping.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use chrono::TimeDelta;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::domain::{
    doubling::Doubling,
    ids::{GameServerId, ServerId},
    time::Moment,
    world_event::{EventKind, WorldEvent},
};

/// Links poll every few seconds, and "gone" is believed after some polls: no link is later.
const SAME_EVENT: TimeDelta = TimeDelta::seconds(90);
/// Events of one game server that are remembered; beyond it, one may get two ids.
const REMEMBERED: usize = 2_000;
/// Events of one game server that are handed over, the newest.
const HANDED_OVER: usize = 200;
/// Game servers of which those without a recent event are not looked for.
const FEW: usize = 64;

/// See the module. Shared by all game connections of the process.
#[derive(Default)]
pub struct RecentEvents(Mutex<SeenEvents>);

struct SeenEvents {
    servers: HashMap<GameServerId, Vec<SeenEvent>>,
    searched: Doubling,
}

impl Default for SeenEvents {
    fn default() -> Self {
        Self { servers: HashMap::new(), searched: Doubling::new(FEW) }
    }
}

/// An event, and who has seen it.
#[derive(Clone, Serialize, Deserialize)]
pub struct SeenEvent {
    /// Identity, the same in all reports of it: family, action, and what it happened to.
    key: String,
    id: String,
    at: Moment,
    /// The paired servers whose links have reported it. The same link sees the same event only once.
    reporters: Vec<ServerId>,
}

impl RecentEvents {
    /// The id of the event, and whether it is new.
    pub fn id(
        &self,
        game_server: &GameServerId,
        reporter: &ServerId,
        event: &WorldEvent,
        now: Moment,
        new_id: impl FnOnce() -> String,
    ) -> (String, bool) {
        let SeenEvents { servers, searched } = &mut *self.lock();
        if searched.is_reached(servers.len()) {
            servers.retain(|_, seen| seen.last().is_some_and(|seen| now - seen.at < SAME_EVENT));
            searched.searched(servers.len());
        }
        let seen = servers.entry(game_server.clone()).or_default();
        seen.retain(|seen| now - seen.at < SAME_EVENT);
        let key = format!("{} {} {}", event.kind.word(), event.action, subject(event));
        if let Some(known) = seen.iter_mut().find(|seen| seen.key == key && !seen.reporters.contains(reporter)) {
            known.reporters.push(reporter.clone());
            return (known.id.clone(), false);
        }
        if seen.len() >= REMEMBERED {
            seen.remove(0);
        }
        let id = new_id();
        seen.push(SeenEvent { key, id: id.clone(), at: now, reporters: vec![reporter.clone()] });
        (id, true)
    }

    /// The newest events of a game server, for the node that has it next.
    pub fn newest(&self, game_server: &GameServerId) -> Vec<SeenEvent> {
        let known = self.lock();
        let seen = known.servers.get(game_server).map(Vec::as_slice).unwrap_or_default();
        seen[seen.len().saturating_sub(HANDED_OVER)..].to_vec()
    }

    /// Takes in events that links of another node have reported.
    pub fn take_over(&self, game_server: &GameServerId, events: Vec<SeenEvent>, now: Moment) {
        let mut known = self.lock();
        let seen = known.servers.entry(game_server.clone()).or_default();
        for event in events {
            if let Some(known) = seen.iter_mut().find(|known| known.id == event.id) {
                let new = event.reporters.into_iter().filter(|reporter| !known.reporters.contains(reporter));
                let new: Vec<ServerId> = new.collect();
                known.reporters.extend(new);
            } else if seen.len() < REMEMBERED {
                seen.push(SeenEvent { at: now.at(event.at.stamp), ..event });
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, SeenEvents> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Subject of the event, the same for every link: marker, rig, or place of a shop and what it sells.
fn subject(event: &WorldEvent) -> String {
    let field = |name: &str| event.data.get(name).map(Value::to_string).unwrap_or_default();
    match event.kind {
        // A shop's marker changes; it does not move.
        EventKind::Shop => format!("{:?} {:?} {} {}", event.x, event.y, field("itemId"), field("currencyId")),
        EventKind::Wipe => field("wipedAt"),
        EventKind::Oilrig => format!("{} {}", field("rig"), field("minutes")),
        _ => field("markerId"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::domain::time::Timestamp;

    fn at(seconds: i64) -> Moment {
        (Timestamp::UNIX_EPOCH + TimeDelta::seconds(seconds)).into()
    }

    fn event(action: &'static str, marker: &str, x: f64) -> WorldEvent {
        let Value::Object(data) = json!({ "markerId": marker }) else { unreachable!() };
        let (kind, ts) = (EventKind::Heli, Timestamp::UNIX_EPOCH);
        WorldEvent { kind, action, grid: String::new(), x: Some(x), y: None, ts, title: String::new(), data }
    }

    #[test]
    fn links_to_one_game_server_report_one_event_and_one_link_reports_each() {
        let events = RecentEvents::default();
        let mut number = 0;
        let mut id = |game: &str, link: &str, event: WorldEvent, seconds| {
            number += 1;
            events.id(&game.into(), &link.into(), &event, at(seconds), || number.to_string())
        };
        let (first, again) = (("1".to_owned(), true), ("1".to_owned(), false));
        assert_eq!(id("a:1", "alice", event("entered", "7", 1.0), 0), first);
        assert_eq!(id("a:1", "bob", event("entered", "7", 9.0), 5), again, "it has moved on meanwhile");
        assert_eq!(id("a:1", "carol", event("entered", "7", 9.0), 89), again);
        assert!(id("a:1", "bob", event("entered", "8", 1.0), 5).1, "two helicopters");
        assert!(id("a:1", "bob", event("left", "7", 1.0), 5).1);
        assert!(id("a:2", "bob", event("entered", "7", 1.0), 5).1, "another game server");
        assert!(id("a:1", "alice", event("entered", "7", 1.0), 6).1, "it left and came back");
        assert!(id("a:1", "dave", event("entered", "7", 1.0), 200).1, "long after");
    }

    #[test]
    fn an_event_that_a_link_of_another_node_has_reported_is_the_same_one() {
        let (before, after) = (RecentEvents::default(), RecentEvents::default());
        let id = |events: &RecentEvents, link: &str, seconds| {
            events.id(&"a:1".into(), &link.into(), &event("entered", "7", 1.0), at(seconds), || format!("{link}'s"))
        };
        let hand_over = || {
            let events = serde_json::to_string(&before.newest(&"a:1".into())).unwrap();
            after.take_over(&"a:1".into(), serde_json::from_str(&events).unwrap(), at(5));
        };
        assert_eq!(id(&before, "alice", 0), ("alice's".to_owned(), true));
        hand_over();
        assert_eq!(id(&before, "bob", 4), ("alice's".to_owned(), false));
        // Each link hands them over.
        hand_over();
        assert_eq!(id(&after, "carol", 6), ("alice's".to_owned(), false));
        assert_eq!(id(&after, "bob", 7), ("bob's".to_owned(), true), "it left and came back");
        assert_eq!(after.newest(&"a:1".into()).len(), 2);
        assert!(after.newest(&"a:2".into()).is_empty());
    }

    #[test]
    fn what_a_hostile_game_server_can_make_us_remember_is_bounded() {
        let events = RecentEvents::default();
        for number in 0..3 * REMEMBERED {
            events.id(&"a:1".into(), &"alice".into(), &event("entered", &number.to_string(), 0.0), at(0), String::new);
        }
        assert_eq!(events.lock().servers[&"a:1".into()].len(), REMEMBERED);
        for number in 0..FEW {
            events.id(&number.to_string().into(), &"alice".into(), &event("entered", "1", 0.0), at(200), String::new);
        }
        assert_eq!(events.lock().servers.len(), FEW, "old ones are forgotten");
    }
}
