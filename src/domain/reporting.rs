//! The kinds of things that a game server reports at all: its events (ships, helicopters, the vendor, crates) and its
//! shops.
//!
//! Some game servers leave both out of their answers. Then an empty map says nothing about the world. One marker is
//! evidence that its like is reported. None for long is evidence that it is not: even an empty map has the shops of its
//! safe zones, and where people play, something moves within hours.

use chrono::TimeDelta;
use serde::Serialize;
use utoipa::ToSchema;

use crate::domain::time::{Moment, Timestamp};

/// Silence in fewer answers is no evidence.
const ANSWERS: u32 = 30;
/// The time without shops that counts as silence.
const SHOPS_SILENT: TimeDelta = TimeDelta::minutes(10);
/// The time without events, while players are on, that counts as silence: the game sends a ship, a helicopter or the
/// vendor more often.
const EVENTS_SILENT: TimeDelta = TimeDelta::hours(6);
/// The longest part of the time between two answers that counts.
const LONGEST_STEP: TimeDelta = TimeDelta::seconds(60);

/// The reporting of one kind of thing by a game server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Reported {
    Yes,
    /// Nothing follows from not seeing any.
    No,
    #[default]
    Unknown,
}

/// Kinds of things that a game server reports, by evidence. While it does not report events or shops, nothing is taken
/// for gone, and the watches of them pause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct Reports {
    /// Ships, helicopters, the travelling vendor, crates.
    pub events: Reported,
    pub shops: Reported,
}

/// A verdict, reported or not, and its evidence.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    pub reported: bool,
    /// In words.
    pub words: String,
    /// Since when it is known.
    pub as_of: Timestamp,
}

/// The verdict, and its evidence.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KnownReports {
    pub events: Option<Evidence>,
    pub shops: Option<Evidence>,
}

impl KnownReports {
    /// The verdicts without their evidence.
    pub fn reports(&self) -> Reports {
        let word = |evidence: &Option<Evidence>| match evidence {
            Some(Evidence { reported: true, .. }) => Reported::Yes,
            Some(_) => Reported::No,
            None => Reported::Unknown,
        };
        Reports { events: word(&self.events), shops: word(&self.shops) }
    }
}

/// Learns from answers what a game server reports.
#[derive(Debug, Default)]
pub struct Reporting {
    known: KnownReports,
    events: Silence,
    shops: Silence,
    is_unwritten: bool,
}

/// Answers in a row without such things.
#[derive(Debug, Default)]
struct Silence {
    answers: u32,
    length: TimeDelta,
    since: Option<Timestamp>,
    last: Option<Moment>,
}

impl Silence {
    /// One more answer. `counts`: the time since the last one does.
    fn grow(&mut self, counts: bool, now: Moment) {
        self.answers = self.answers.saturating_add(1);
        self.since.get_or_insert(now.stamp);
        let step = self.last.replace(now).map_or(TimeDelta::zero(), |last| (now - last).min(LONGEST_STEP));
        if counts {
            self.length += step;
        }
    }

    fn is_evidence(&self, length: TimeDelta) -> bool {
        self.answers >= ANSWERS && self.length >= length
    }

    fn words(&self, what: &str) -> String {
        let since = self.since.map(Timestamp::to_wire).unwrap_or_default();
        format!("no {what} in {} answers of the map since {since}", self.answers)
    }
}

impl Reporting {
    /// Continues from stored verdicts.
    pub fn restore(known: KnownReports) -> Self {
        Self { known, ..Self::default() }
    }

    /// The verdicts so far.
    pub fn known(&self) -> &KnownReports {
        &self.known
    }

    /// A complete answer has this many vending machines. True if something became known.
    pub fn see_shops(&mut self, machines: usize, now: Moment) -> bool {
        let seen = (machines > 0).then(|| format!("the map showed vending machines ({machines})"));
        let silent = || "vending machine".to_owned();
        let is_news = judge(&mut self.known.shops, &mut self.shops, seen, (true, SHOPS_SILENT), silent, now);
        self.is_unwritten |= is_news;
        is_news
    }

    /// A complete answer has this many event markers. `is_populated`: players are on. True if something became known.
    pub fn see_events(&mut self, markers: usize, is_populated: bool, now: Moment) -> bool {
        let seen = (markers > 0).then(|| format!("the map showed events ({markers})"));
        let silent = || "event".to_owned();
        let is_news = judge(&mut self.known.events, &mut self.events, seen, (is_populated, EVENTS_SILENT), silent, now);
        self.is_unwritten |= is_news;
        is_news
    }

    /// The verdicts to store since the last call; `None` if there are none.
    pub fn take_unwritten(&mut self) -> Option<KnownReports> {
        std::mem::take(&mut self.is_unwritten).then(|| self.known.clone())
    }

    /// The write failed: the verdicts are taken again.
    pub fn requeue(&mut self) {
        self.is_unwritten = true;
    }
}

/// Takes an answer into account. True if something became known.
fn judge(
    known: &mut Option<Evidence>,
    silence: &mut Silence,
    seen: Option<String>,
    (counts, length): (bool, TimeDelta),
    what: impl Fn() -> String,
    now: Moment,
) -> bool {
    let (reported, words) = match seen {
        Some(words) => {
            *silence = Silence::default();
            (true, words)
        }
        None => {
            silence.grow(counts, now);
            if !silence.is_evidence(length) {
                return false;
            }
            (false, silence.words(&what()))
        }
    };
    let is_news = known.as_ref().is_none_or(|known| known.reported != reported);
    if is_news {
        *known = Some(Evidence { reported, words, as_of: now.stamp });
    }
    is_news
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Moment {
        (Timestamp::UNIX_EPOCH + TimeDelta::seconds(seconds)).into()
    }

    #[test]
    fn silence_becomes_evidence_with_time_and_one_marker_ends_it() {
        let mut reporting = Reporting::default();
        assert_eq!(reporting.known().reports(), Reports::default());
        assert!((0..60).all(|poll| !reporting.see_shops(0, at(poll * 10))), "not even ten minutes");
        assert!(reporting.see_shops(0, at(600)));
        assert_eq!(reporting.known().reports().shops, Reported::No);
        let words = &reporting.take_unwritten().unwrap().shops.unwrap().words;
        assert_eq!(words, "no vending machine in 61 answers of the map since 1970-01-01T00:00:00.000Z");
        assert!(!reporting.see_shops(0, at(610)) && reporting.take_unwritten().is_none(), "it is known");
        assert!(reporting.see_shops(3, at(620)));
        assert_eq!(reporting.known().reports().shops, Reported::Yes);
        assert!((63..=122).all(|poll| !reporting.see_shops(0, at(poll * 10))), "silence begins again");
        assert!(reporting.see_shops(0, at(1_230)), "what was reported may be no longer");
    }

    #[test]
    fn events_are_missed_only_while_players_are_on_and_answers_come() {
        let mut reporting = Reporting::default();
        let hours = |hours: i64| hours * 360;
        assert!((0..hours(24)).all(|poll| !reporting.see_events(0, false, at(poll * 10))), "who should see any");
        let day = hours(24);
        assert!((0..hours(6) - 1).all(|poll| !reporting.see_events(0, true, at((day + poll) * 10))));
        // The link was down for a day: a minute of it counts.
        let later = (day + hours(30)) * 10;
        assert!(reporting.see_events(0, true, at(later)));
        assert_eq!(reporting.known().reports(), Reports { events: Reported::No, shops: Reported::Unknown });
        assert!(reporting.see_events(1, false, at(later + 10)));
        assert_eq!(reporting.known().reports().events, Reported::Yes);
        let mut restored = Reporting::restore(reporting.take_unwritten().unwrap());
        assert!(!restored.see_events(2, true, at(later + 20)) && restored.take_unwritten().is_none());
    }

    #[test]
    fn few_answers_are_no_evidence_however_long_they_take() {
        let mut reporting = Reporting::default();
        assert!((0..29).all(|poll| !reporting.see_shops(0, at(poll * 3_600))));
        assert!(reporting.see_shops(0, at(29 * 3_600)));
    }
}
