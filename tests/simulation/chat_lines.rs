//! Lines of chat that a dashboard misses while it watches: no more than it is said to have missed.

use std::{collections::BTreeMap, rc::Rc};

use serde_json::Value;

use crate::{dashboard::Dashboard, judge::Judge, wire::Wire, world::world};

/// Virtual milliseconds after which a line has reached every dashboard that it will reach, and so has the number of
/// those that were dropped.
const SETTLED_AFTER: u64 = 40_000;
/// And between two looks.
const LOOKED_EVERY: u64 = 10_000;

#[derive(Default)]
pub struct ChatLines {
    /// By server and id of the line: when the first dashboard received it.
    heard: BTreeMap<(String, String), u64>,
    /// By dashboard and server.
    watches: BTreeMap<(usize, String), ChatWatch>,
}

/// A dashboard watches a server without a break.
struct ChatWatch {
    wire: Rc<Wire>,
    since: u64,
    looked_at: u64,
    /// Lines that it is said to have missed.
    dropped: u64,
}

impl ChatLines {
    /// Some dashboard received this line.
    pub fn hear(&mut self, dashboard: &Dashboard, server: &str, id: &str) {
        // One that was held up says nothing of when it was sent.
        if dashboard.open_wire().is_some_and(|wire| wire.lossless.get()) {
            self.heard.entry((server.to_owned(), id.to_owned())).or_insert_with(|| world().millis());
        }
    }

    /// Lines were dropped, says this event.
    pub fn drop_lines(&mut self, number: usize, server: &str, event: &Value) {
        if let Some(watch) = self.watches.get_mut(&(number, server.to_owned())) {
            watch.dropped += event["data"]["lines"].as_u64().unwrap_or_default();
        }
    }
}

impl Judge {
    /// A dashboard received this message of a server.
    pub fn check_dropped_lines(&mut self, dashboard: &Dashboard, server: &str, message: &Value) {
        let Some(wire) = dashboard.open_wire().filter(|_| dashboard.overlay.is_none()) else { return };
        let (now, key) = (world().millis(), (dashboard.number, server.to_owned()));
        // The client does not watch, or no longer.
        if message["type"] == "error" {
            self.chat_lines.watches.remove(&key);
            return;
        }
        let begins = message["type"] == "snapshot";
        let watch = self.chat_lines.watches.get_mut(&key).filter(|watch| !begins && Rc::ptr_eq(&watch.wire, &wire));
        let Some(watch) = watch else {
            self.chat_lines.watches.insert(key, ChatWatch { wire, since: now, looked_at: now, dropped: 0 });
            return;
        };
        if now < watch.looked_at + LOOKED_EVERY || !wire.lossless.get() {
            return;
        }
        watch.looked_at = now;
        let (settled, dropped) = (watch.since + SETTLED_AFTER..now.saturating_sub(SETTLED_AFTER), watch.dropped);
        let of_server = self.chat_lines.heard.iter().filter(|((of, _), at)| of == server && settled.contains(at));
        let missed = of_server.filter(|((_, id), _)| !self.records.has_line(dashboard.number, server, id)).count();
        if missed as u64 > dropped {
            let details = format!("dashboard {} of {server} missed {missed} lines, and hears of {dropped}", key.0);
            self.broken("dropped-lines-are-said", details);
        }
    }
}
