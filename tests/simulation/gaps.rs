//! Gaps: a time without a link that is long gives one event with its bounds, in the timeline and at each client that
//! watches, and a shorter one gives none. Its bounds are those that the state shows of the link, or it begins before: when a
//! mate's link ends, which nothing shows until the own one is tried.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use chrono::TimeDelta;
use companion::{
    db::{engine::pool::Pool, schema::timeline},
    domain::time::Timestamp,
};
use diesel::{ExpressionMethods as _, QueryDsl as _, RunQueryDsl as _};
use serde_json::Value;
use tokio::time::{Duration, Instant};

use crate::{dashboard::Dashboard, judge::Judge, wire::Wire, world::World};

/// A shorter time without a link is no gap. Nothing is said of lengths that differ from it by less than the wire shows.
const SHORTEST: TimeDelta = TimeDelta::seconds(30);
const AS_LONG: TimeDelta = TimeDelta::milliseconds(2);
/// A client that is shown the link again has heard of the gap after so long.
const HEARD_WITHIN: Duration = Duration::from_secs(20);

#[derive(Default)]
pub struct Gaps {
    /// By client and server: its wire, and how it has last seen the link.
    views: BTreeMap<(usize, String), (Rc<Wire>, LinkView)>,
    /// Servers, and since when a client saw their links up.
    ups: BTreeSet<(String, Timestamp)>,
    /// By server and end: when the time without a link began, and the life of the service that saw it.
    holes: BTreeMap<(String, Timestamp), (Timestamp, u32)>,
    /// Client, server and end of the gaps that are to be heard of, and since when.
    due: BTreeMap<(usize, String, Timestamp), Instant>,
    /// Gaps that were heard of.
    heard: BTreeSet<(usize, String, Timestamp)>,
    /// When each life of the service began.
    lives: Vec<Timestamp>,
}

/// A link as a client sees it.
#[derive(Clone, Copy, PartialEq)]
enum LinkView {
    /// Down, and perhaps since earlier than is shown.
    Unknown,
    Up,
    /// Since it was seen to be lost.
    Down(Timestamp),
}

fn time(value: &Value) -> Option<Timestamp> {
    serde_json::from_value(value.clone()).ok()
}

impl Gaps {
    pub fn begin_life(&mut self, now: Timestamp) {
        self.lives.push(now);
    }
}

impl Judge {
    /// A client has this state of a server now; `follows`: by one step from the state that it had.
    pub fn see_link(&mut self, dashboard: &Dashboard, server: &str, state: &Value, follows: bool) {
        let (connection, since) = (state["server"]["connection"].as_str(), time(&state["server"]["since"]));
        let (Some(connection), Some(since), Some(wire)) = (connection, since, dashboard.open_wire()) else { return };
        let key = (dashboard.number, server.to_owned());
        let is_up = connection == "connected";
        let before = self.gaps.views.get(&key).map(|(wire, view)| (wire.clone(), *view));
        let view = match (&before, is_up) {
            (_, true) => LinkView::Up,
            (Some((_, LinkView::Up)), false) if follows => LinkView::Down(since),
            (Some((_, view)), false) if follows => *view,
            (_, false) => LinkView::Unknown,
        };
        if is_up {
            self.gaps.ups.insert((server.to_owned(), since));
        }
        if !follows {
            self.gaps.due.retain(|(number, of, _), _| (*number, of) != (key.0, &key.1));
        }
        if let (true, true, Some((its_wire, LinkView::Down(lost)))) = (is_up, follows, &before) {
            let life = self.gaps.lives.len() as u32;
            self.gaps.holes.insert((server.to_owned(), since), (*lost, life));
            // An event is not sent to a client that was away.
            if since - *lost >= SHORTEST + AS_LONG && Rc::ptr_eq(its_wire, &wire) {
                self.gaps.due.insert((key.0, key.1.clone(), since), Instant::now());
            }
        }
        self.gaps.views.insert(key, (wire, view));
    }

    /// A client received the event of a gap.
    pub fn hear_gap(&mut self, number: usize, server: &str, event: &Value) {
        let Some(to) = time(&event["data"]["to"]) else {
            return self.broken("gaps-are-true", format!("client {number} of {server}: {event}"));
        };
        if !self.gaps.heard.insert((number, server.to_owned(), to)) {
            self.broken("gaps-are-true", format!("client {number} of {server} hears it once more: {event}"));
        }
    }

    /// A client received something of this server: by then it has heard of all gaps that were due.
    pub fn check_gaps_heard(&mut self, dashboard: &Dashboard, server: &str) {
        let Some(wire) = dashboard.open_wire() else { return };
        let is_of = |(number, of, _): &(usize, String, Timestamp)| (*number, of.as_str()) == (dashboard.number, server);
        let due = self.gaps.due.iter().filter(|(key, since)| is_of(key) && since.elapsed() > HEARD_WITHIN);
        let due: Vec<_> = due.map(|(key, _)| key.clone()).collect();
        for key in due {
            self.gaps.due.remove(&key);
            let view = self.gaps.views.get(&(key.0, key.1.clone()));
            let is_same = view.is_some_and(|(its_wire, _)| Rc::ptr_eq(its_wire, &wire)) && wire.lossless.get();
            if is_same && !self.jumped && !self.gaps.heard.contains(&key) {
                self.broken("gaps-are-shown", format!("client {} of {server}: that until {:?}", key.0, key.2));
            }
        }
    }

    /// After the healthy minutes: the timeline has each gap once, and no other.
    pub fn check_gaps(&mut self, world: &World, pool: &Pool) {
        // Bounds are times of the clock.
        if self.jumped {
            return;
        }
        let read = pool.read_blocking(|db| {
            let gaps = timeline::table.filter(timeline::kind.eq("gap"));
            Ok(gaps.select((timeline::server_id, timeline::data)).load::<(Option<String>, String)>(db)?)
        });
        let mut stored = BTreeMap::<(String, Timestamp), Vec<Timestamp>>::new();
        for (server, data) in read.expect("the timeline can be read") {
            let bounds: Value = serde_json::from_str(&data).unwrap_or_default();
            let (Some(server), Some(from), Some(to)) = (server, time(&bounds["from"]), time(&bounds["to"])) else {
                self.broken("gaps-are-true", format!("a gap without bounds: {data}"));
                continue;
            };
            // Another life knows only about when the one before it was last connected.
            let is_of_one_life = !self.gaps.lives.iter().any(|began| (from..=to).contains(began));
            let is_up = |(of, since): &&(String, Timestamp)| *of == server && from < *since && *since < to;
            if to - from < SHORTEST - AS_LONG || (is_of_one_life && self.gaps.ups.iter().any(|up| is_up(&up))) {
                self.broken("gaps-are-true", format!("{server} has one from {from:?} to {to:?}"));
            }
            stored.entry((server, to)).or_default().push(from);
        }
        let there: Vec<String> =
            crate::world::PAIRED.iter().filter_map(|(name, ..)| Some(self.server(name)?.to_string())).collect();
        for (hole, (from, life)) in self.gaps.holes.clone() {
            let (server, to) = &hole;
            let length = *to - from;
            let of_it = stored.get(&hole).map(Vec::as_slice).unwrap_or_default();
            // A process that dies takes along what it had yet to write.
            let is_kept = life == world.lives.get() && there.contains(server);
            let is_there = of_it.first().is_some_and(|began| *began <= from);
            let is_missed = length >= SHORTEST + AS_LONG && is_kept && !is_there;
            if is_missed || of_it.len() > 1 {
                let details = format!("{server} had no link from {from:?} to {to:?}, in the timeline: {of_it:?}");
                self.broken("gaps-are-stored", details);
            }
        }
    }
}
