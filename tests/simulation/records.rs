//! What is told and kept beside alarms: lines of chat, events, map notes. Each line is told once, and what was told is
//! stored.

use std::collections::{BTreeMap, BTreeSet};

use companion::{
    db::{
        map_notes,
        pool::Pool,
        schema::{chat_lines, timeline},
    },
    domain::ids::ServerId,
};
use diesel::{QueryDsl as _, RunQueryDsl as _};
use serde_json::Value;

use crate::{
    judge::Judge,
    world::{PAIRED, World},
};

/// Lines that are said in the healthy minutes.
pub const HEALTHY_LINES: [&str; 3] = ["They are at the wall", "Where is everybody?", "Gone"];

#[derive(Default)]
pub struct Records {
    /// By dashboard, server and id of the line: its text, and how often it was told.
    lines: BTreeMap<(usize, String, String), (String, u32)>,
    /// Servers and ids of events.
    events: BTreeSet<(String, String)>,
    /// Words of pushes that are no alarm, and whether they are of a paired server.
    pub notices: BTreeMap<String, bool>,
}

impl Judge {
    /// A dashboard received a line of chat.
    pub fn receive_line(&mut self, dashboard: usize, server: &str, line: &Value) {
        let word = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
        let told = self.records.lines.entry((dashboard, server.to_owned(), word("id"))).or_default();
        (told.0, told.1) = (word("text"), told.1 + 1);
        if told.1 > 1 {
            self.broken("each-line-once", format!("dashboard {dashboard} of {server}: {line}"));
        }
    }

    /// A dashboard received an event.
    pub fn receive_event(&mut self, server: &str, event: &Value) {
        if let Some(id) = event["id"].as_str() {
            self.records.events.insert((server.to_owned(), id.to_owned()));
        }
    }

    /// After the healthy minutes: `watched` are the dashboards and the paired servers that each watches.
    pub fn check_records(&mut self, world: &World, pool: &Pool, watched: &[(usize, usize)]) {
        type Lines = Vec<(String, String, String)>;
        let (lines, events): (Lines, Vec<(String, String)>) = pool
            .read_blocking(|db| {
                let lines = chat_lines::table.select((chat_lines::server_id, chat_lines::id, chat_lines::text));
                Ok((lines.load(db)?, timeline::table.select((timeline::id, timeline::title)).load(db)?))
            })
            .expect("the records can be read");
        let told = self.records.notices.iter().find(|(who, is_of_server)| {
            let stored = events.iter().filter(|(_, title)| title.contains(who.as_str())).count();
            // They went with their server.
            let is_gone = **is_of_server && !self.deleted.is_empty();
            stored > 1 || (stored == 0 && !is_gone)
        });
        if let Some((who, _)) = told {
            self.broken("notices-are-stored", format!("what is pushed of {who} is not stored once"));
        }
        let (kept, events): (BTreeSet<(&str, &str)>, BTreeSet<&str>) = (
            lines.iter().map(|(server, id, _)| (&**server, &**id)).collect(),
            events.iter().map(|(id, _)| &**id).collect(),
        );
        let there: Vec<ServerId> = PAIRED.iter().filter_map(|(name, ..)| self.server(name)).collect();
        let is_there = |server: &str| there.iter().any(|known| known.as_str() == server);
        // A process that dies takes along what it had yet to write.
        if world.lives.get() == 1 {
            let line = self.records.lines.keys().find(|(_, of, id)| is_there(of) && !kept.contains(&(&**of, &**id)));
            let event = self.records.events.iter().find(|(of, id)| is_there(of) && !events.contains(&**id));
            if line.is_some() || event.is_some() {
                self.broken("told-is-stored", format!("{line:?}, {event:?}"));
            }
        }
        for (name, _, _) in PAIRED {
            let Some(server) = self.server(name) else { continue };
            for text in HEALTHY_LINES {
                let stored = lines.iter().filter(|(of, _, said)| of == server.as_str() && said == text).count();
                if stored != 1 {
                    self.broken("each-line-once", format!("{name} has stored {text:?} {stored} times"));
                }
                for (dashboard, paired) in watched.iter().filter(|(_, paired)| PAIRED[*paired].0 == name) {
                    let is_it = |((by, of, _), (said, _)): &(&(usize, String, String), &(String, u32))| {
                        by == dashboard && of == server.as_str() && said == text
                    };
                    let told = self.records.lines.iter().filter(is_it).count();
                    if told != 1 {
                        let name = PAIRED[*paired].0;
                        self.broken(
                            "each-line-once",
                            format!("dashboard {dashboard} of {name} heard {text:?} {told} times"),
                        );
                    }
                }
            }
        }
    }

    /// The notes in the state of a dashboard are those that are stored.
    pub fn check_notes(&mut self, world: &World, pool: &Pool, server: &ServerId, state: &Value) {
        let now = world.clock.now();
        let stored = pool.read_blocking(|db| map_notes::list(db, server, now)).expect("the notes can be read");
        let stored: BTreeSet<&str> = stored.iter().map(|note| note.id.as_str()).collect();
        let shown: BTreeSet<&str> =
            state["mapNotes"].as_object().into_iter().flatten().map(|(id, _)| id.as_str()).collect();
        if shown != stored {
            self.broken("notes-are-stored", format!("{}: shown {shown:?}, stored {stored:?}", server.as_str()));
        }
    }
}
