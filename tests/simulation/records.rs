//! Records beside alarms: lines of chat, events, map notes. Each line is shown once, and what was shown is
//! stored.

use std::collections::{BTreeMap, BTreeSet};

use companion::{
    db::{
        engine::pool::Pool,
        map_notes,
        schema::{chat_lines, timeline},
    },
    domain::ids::{GameServerId, ServerId},
};
use diesel::{ExpressionMethods as _, QueryDsl as _, RunQueryDsl as _};
use serde_json::Value;

use crate::{
    dashboard::Dashboard,
    judge::Judge,
    script::{HEALTHY_DEATH, HEALTHY_FROM, HEALTHY_SAY},
    world::{GAMES, PAIRED, World, world},
};

/// Lines that are said in the healthy minutes.
pub const HEALTHY_LINES: [&str; 3] = ["They are at the wall", "Where is everybody?", "Gone"];

#[derive(Default)]
pub struct Records {
    /// By dashboard, server and id of the line: its text, and how often it was shown.
    lines: BTreeMap<(usize, String, String), (String, u32)>,
    /// By dashboard, server and words, which are said once: the id of the line.
    ids: BTreeMap<(usize, String, String), String>,
    /// Servers and ids of events.
    events: BTreeSet<(String, String)>,
    /// Dashboards that heard of the death in the healthy minutes, and servers.
    deaths: BTreeSet<(usize, String)>,
    /// Games that were wiped.
    pub wiped: BTreeSet<usize>,
    /// Lines that an owner said through the API.
    said: BTreeMap<String, SaidLine>,
    /// Words of pushes that are no alarm, whose they are, and whether they are of a paired server.
    pub notices: BTreeMap<String, (usize, bool)>,
    /// Users whose notices may be gone.
    erased: BTreeSet<usize>,
}

/// Words that are said once.
fn is_unique(text: &str) -> bool {
    text.starts_with("Line ") || text.starts_with("Said ")
}

/// A line that an owner said through the API.
struct SaidLine {
    server: String,
    paired: usize,
    at: u64,
    acknowledged: bool,
}

impl Records {
    pub fn attempt(&mut self, server: &ServerId, paired: usize, text: &str) {
        let said = SaidLine { server: server.to_string(), paired, at: world().millis(), acknowledged: false };
        self.said.insert(text.to_owned(), said);
    }

    /// This dashboard has received this line.
    pub fn has_line(&self, dashboard: usize, server: &str, id: &str) -> bool {
        self.lines.contains_key(&(dashboard, server.to_owned(), id.to_owned()))
    }

    /// This user erases themselves.
    pub fn erase(&mut self, user: usize) {
        self.erased.insert(user);
    }

    pub fn is_any_erased(&self) -> bool {
        !self.erased.is_empty()
    }

    pub fn acknowledge(&mut self, text: &str) {
        if let Some(said) = self.said.get_mut(text) {
            said.acknowledged = true;
        }
    }
}

impl Judge {
    /// A dashboard received a line of chat.
    pub fn receive_line(&mut self, client: &Dashboard, server: &str, line: &Value) {
        let dashboard = client.number;
        let word = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
        self.chat_lines.hear(client, server, &word("id"));
        self.check_reader(client, server, &word("text"));
        let shown = self.records.lines.entry((dashboard, server.to_owned(), word("id"))).or_default();
        (shown.0, shown.1) = (word("text"), shown.1 + 1);
        let is_again = shown.1 > 1;
        let known = match is_unique(&word("text")) {
            true => self.records.ids.insert((dashboard, server.to_owned(), word("text")), word("id")),
            false => None,
        };
        // Another life of the service does not know what was shown of a team that the player is in once more.
        let is_again = is_again && !self.has_moved(server);
        if is_again || known.is_some_and(|id| id != word("id")) {
            self.broken("each-line-once", format!("dashboard {dashboard} of {server}: {line}"));
        }
    }

    /// A dashboard received an event.
    pub fn receive_event(&mut self, dashboard: usize, server: &str, event: &Value) {
        if event["kind"] == "death" && event["action"] == "died" && world().millis() >= HEALTHY_DEATH {
            self.records.deaths.insert((dashboard, server.to_owned()));
        }
        self.check_is_gone(dashboard, server, event);
        match (event["kind"].as_str(), event["action"].as_str()) {
            (Some("gap"), _) => self.hear_gap(dashboard, server, event),
            (Some("chat"), Some("dropped")) => self.chat_lines.drop_lines(dashboard, server, event),
            _ => {}
        }
        if let Some(id) = event["id"].as_str() {
            self.records.events.insert((server.to_owned(), id.to_owned()));
        }
    }

    /// After the healthy minutes: `watched` are the dashboards and the paired servers that each watches.
    pub fn check_records(&mut self, world: &World, pool: &Pool, watched: &[(usize, usize)]) {
        type Lines = Vec<(String, String, String)>;
        let (lines, events): (Lines, Lines) = pool
            .read_blocking(|db| {
                let lines = chat_lines::table.select((chat_lines::server_id, chat_lines::id, chat_lines::text));
                let events = timeline::table.select((timeline::id, timeline::title, timeline::data));
                Ok((lines.load(db)?, events.load(db)?))
            })
            .expect("the records can be read");
        let shown = self.records.notices.iter().find(|(who, (user, is_of_server))| {
            // A death that the link saw, too, has the killer in its data.
            let has = |title: &str, data: &str| title.contains(who.as_str()) || data.contains(who.as_str());
            let stored = events.iter().filter(|(_, title, data)| has(title, data)).count();
            // They went with their server.
            let is_gone = (*is_of_server && !self.deleted.is_empty()) || self.records.erased.contains(user);
            stored > 1 || (stored == 0 && !is_gone)
        });
        if let Some((who, _)) = shown {
            self.broken("notices-are-stored", format!("what is pushed of {who} is not stored once"));
        }
        let (kept, events): (BTreeSet<(&str, &str)>, BTreeSet<&str>) = (
            lines.iter().map(|(server, id, _)| (&**server, &**id)).collect(),
            events.iter().map(|(id, ..)| &**id).collect(),
        );
        let there: Vec<ServerId> = PAIRED.iter().filter_map(|(name, ..)| self.server(name)).collect();
        let is_there = |server: &str| there.iter().any(|known| known.as_str() == server);
        let mut texts = BTreeSet::new();
        for (server, _, text) in lines.iter().filter(|(.., text)| is_unique(text)) {
            if !texts.insert((server, text)) {
                self.broken("each-line-once", format!("{text:?} of {server} is stored twice"));
            }
        }
        self.check_said(&lines, world.lives.get() == 1);
        for (dashboard, paired) in watched {
            let Some(server) = self.server(PAIRED[*paired].0) else { continue };
            if !self.records.deaths.contains(&(*dashboard, server.to_string())) {
                self.broken("deaths-are-shown", format!("dashboard {dashboard} of {}", PAIRED[*paired].0));
            }
        }
        // A process that dies takes along what it had yet to write.
        if world.lives.get() == 1 {
            self.check_wipes(pool);
            let line = self.records.lines.keys().find(|(_, of, id)| is_there(of) && !kept.contains(&(&**of, &**id)));
            let event = self.records.events.iter().find(|(of, id)| is_there(of) && !events.contains(&**id));
            if line.is_some() || event.is_some() {
                self.broken("shown-is-stored", format!("{line:?}, {event:?}"));
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
                    let shown = self.records.lines.iter().filter(is_it).count();
                    if shown != 1 {
                        let name = PAIRED[*paired].0;
                        self.broken(
                            "each-line-once",
                            format!("dashboard {dashboard} of {name} heard {text:?} {shown} times"),
                        );
                    }
                }
            }
        }
    }

    /// Lines that owners said through the API: none twice, and each that was acknowledged.
    fn check_said(&mut self, lines: &[(String, String, String)], lived_on: bool) {
        let stored = |text: &str, said: &SaidLine| {
            lines.iter().filter(|(server, _, line)| *server == said.server && line == text).count()
        };
        let is_wrong = |(text, said): &(&String, &SaidLine)| {
            let is_there = self.server(PAIRED[said.paired].0).is_some_and(|server| server.as_str() == said.server);
            // The process takes along what it had yet to write, and the game shows its last lines only.
            let is_due = said.acknowledged && is_there && (lived_on || said.at >= HEALTHY_FROM);
            let is_missing = said.at >= HEALTHY_SAY && !said.acknowledged;
            stored(text, said) > 1 || (is_due && stored(text, said) == 0) || is_missing
        };
        let wrong = self.records.said.iter().find(is_wrong);
        if let Some((text, said)) = wrong {
            let (times, name) = (stored(text, said), PAIRED[said.paired].0);
            let details = format!("{text:?} of {name} is stored {times} times, acknowledged: {}", said.acknowledged);
            self.broken("said-is-stored", details);
        }
    }

    /// A game that was wiped made an event.
    fn check_wipes(&mut self, pool: &Pool) {
        let read = |db: &mut _| {
            let wipes = timeline::table.filter(timeline::kind.eq("wipe")).select(timeline::game_server_id);
            Ok(wipes.load::<Option<String>>(db)?)
        };
        let wipes = pool.read_blocking(read).expect("the timeline can be read");
        let is_shown = |game: &usize| {
            let at = GameServerId::at(GAMES[*game].0, GAMES[*game].1);
            wipes.iter().any(|of| of.as_deref() == Some(at.as_str()))
        };
        // A server that is paired again knows no earlier world.
        let missed = self.records.wiped.iter().find(|game| !is_shown(game));
        if let Some(game) = missed.filter(|_| self.deleted.is_empty()) {
            self.broken("wipes-are-shown", format!("none of game server {game}"));
        }
    }

    /// The notes in the state of a dashboard are those that are stored.
    pub fn check_notes(&mut self, world: &World, pool: &Pool, server: &ServerId, state: &Value) {
        // The state drops deaths by the clock, which is not that of the time when they were stored.
        if self.set_back {
            return;
        }
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
