//! A line of the journal: what one server wants stored. Names and times are short, as a burst of alarms has to fit; and
//! they are the file's own, so that a name that changes elsewhere makes no line unreadable.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
};

use chrono::{
    DateTime, Utc,
    serde::{ts_microseconds, ts_microseconds_option},
};
use serde::{Deserialize, Serialize};

use crate::{
    db::alarms::{
        alarm_ledger::{AlarmState, LedgerAlarm},
        incidents::{HeardBy, LedgerWrite},
    },
    domain::{
        ids::{ServerId, UserId},
        incident::{AlarmPath, DevicePlace, Incident},
        time::Timestamp,
    },
};

/// A write and its server, in the older form: it is read after an upgrade.
#[derive(Debug, PartialEq, Deserialize)]
pub(super) struct Line {
    pub server: ServerId,
    pub write: LedgerWrite,
}

#[derive(Serialize, Deserialize)]
struct ShortLine {
    #[serde(rename = "s")]
    server: ServerId,
    #[serde(rename = "i", default, skip_serializing_if = "Vec::is_empty")]
    incidents: Vec<ShortIncident>,
    #[serde(rename = "a", default, skip_serializing_if = "Vec::is_empty")]
    alarms: Vec<ShortAlarm>,
    #[serde(rename = "h", default, skip_serializing_if = "Vec::is_empty")]
    heard: Vec<ShortHeard>,
    #[serde(rename = "v", default, skip_serializing_if = "BTreeMap::is_empty")]
    values: BTreeMap<String, bool>,
    #[serde(rename = "m", default, skip_serializing_if = "BTreeMap::is_empty")]
    merged: BTreeMap<String, String>,
    #[serde(rename = "k", default, skip_serializing_if = "Vec::is_empty")]
    acks: Vec<ShortAck>,
}

/// Without its acknowledgements, which have a table of their own.
#[derive(Serialize, Deserialize)]
struct ShortIncident {
    id: String,
    #[serde(rename = "a")]
    alarm_id: String,
    #[serde(rename = "n")]
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    x: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    y: Option<f64>,
    #[serde(rename = "g", default, skip_serializing_if = "String::is_empty")]
    grid: String,
    #[serde(rename = "f", with = "ts_microseconds")]
    first_at: DateTime<Utc>,
    #[serde(rename = "l", with = "ts_microseconds")]
    last_at: DateTime<Utc>,
    #[serde(rename = "e", default, with = "ts_microseconds_option", skip_serializing_if = "Option::is_none")]
    ended_at: Option<DateTime<Utc>>,
    #[serde(rename = "c")]
    count: u32,
    #[serde(rename = "p")]
    paths: BTreeSet<AlarmPath>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    late: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    drill: bool,
    #[serde(rename = "t", default, skip_serializing_if = "Option::is_none")]
    title: Option<String>,
}

/// Without its user and server: the ledger knows the owner, the line its server.
#[derive(Serialize, Deserialize)]
struct ShortAlarm {
    id: String,
    #[serde(rename = "p")]
    path: AlarmPath,
    #[serde(rename = "a", default, skip_serializing_if = "String::is_empty")]
    alarm_id: String,
    #[serde(rename = "n")]
    title: String,
    #[serde(rename = "m", default, skip_serializing_if = "String::is_empty")]
    message: String,
    #[serde(rename = "s")]
    state: AlarmState,
    #[serde(rename = "i", default, skip_serializing_if = "Option::is_none")]
    incident: Option<String>,
    #[serde(rename = "r", with = "ts_microseconds")]
    received_at: DateTime<Utc>,
    #[serde(rename = "t", default, with = "ts_microseconds_option", skip_serializing_if = "Option::is_none")]
    sent_at: Option<DateTime<Utc>>,
}

/// A user has taken note of an incident.
#[derive(Serialize, Deserialize)]
struct ShortAck {
    #[serde(rename = "i")]
    incident: String,
    #[serde(rename = "u")]
    user: UserId,
    #[serde(rename = "t", with = "ts_microseconds")]
    at: DateTime<Utc>,
}

#[derive(Serialize, Deserialize)]
struct ShortHeard {
    id: String,
    #[serde(rename = "n")]
    sockets: usize,
    #[serde(rename = "t", with = "ts_microseconds")]
    at: DateTime<Utc>,
}

impl Line {
    /// With its end.
    pub fn text(self) -> io::Result<Vec<u8>> {
        let mut text = serde_json::to_vec(&ShortLine::from(self)).map_err(io::Error::other)?;
        text.push(b'\n');
        Ok(text)
    }

    /// Reads a text without its end; none if that is no line.
    pub fn read(text: &[u8]) -> Option<Self> {
        let short = serde_json::from_slice::<ShortLine>(text).map(Self::from);
        short.or_else(|_| serde_json::from_slice(text)).ok()
    }
}

impl From<Line> for ShortLine {
    fn from(Line { server, write }: Line) -> Self {
        let LedgerWrite { incidents, alarms, heard, values, merged, acks } = write;
        let incidents = incidents.into_iter().map(|(id, (incident, title))| {
            let Incident { alarm_id, alarm_name: name, place, first_at, last_at, .. } = incident;
            let Incident { ended_at, count, paths, late, drill, .. } = incident;
            let DevicePlace { x, y, grid } = place;
            ShortIncident {
                id,
                alarm_id,
                name,
                x,
                y,
                grid,
                first_at: *first_at,
                last_at: *last_at,
                ended_at: ended_at.as_deref().copied(),
                count,
                paths,
                late,
                drill,
                title,
            }
        });
        let alarms = alarms.into_values().map(|alarm| {
            let LedgerAlarm { id, path, alarm_id, title, message, state, incident, received_at, sent_at, .. } = alarm;
            let (received_at, sent_at) = (*received_at, sent_at.as_deref().copied());
            ShortAlarm { id, path, alarm_id, title, message, state, incident, received_at, sent_at }
        });
        let heard = heard.into_iter().map(|(id, HeardBy { sockets, at })| ShortHeard { id, sockets, at: *at });
        let (incidents, alarms, heard) = (incidents.collect(), alarms.collect(), heard.collect());
        let acks = acks.into_iter().flat_map(|(incident, acks)| {
            acks.into_iter().map(move |(user, at)| ShortAck { incident: incident.clone(), user, at: *at })
        });
        Self { server, incidents, alarms, heard, values, merged, acks: acks.collect() }
    }
}

impl From<ShortLine> for Line {
    fn from(ShortLine { server, incidents, alarms, heard, values, merged, acks: short }: ShortLine) -> Self {
        let incidents = incidents.into_iter().map(|incident| {
            let ShortIncident { id, alarm_id, name: alarm_name, x, y, grid, first_at, last_at, .. } = incident;
            let ShortIncident { ended_at, count, paths, late, drill, title, .. } = incident;
            let (place, acks) = (DevicePlace { x, y, grid }, BTreeMap::new());
            let (first_at, last_at, ended_at) = (first_at.into(), last_at.into(), ended_at.map(Timestamp::from));
            let incident =
                Incident { alarm_id, alarm_name, place, first_at, last_at, ended_at, count, paths, late, drill, acks };
            (id, (incident, title))
        });
        let alarms = alarms.into_iter().map(|alarm| {
            let ShortAlarm { id, path, alarm_id, title, message, state, incident, received_at, sent_at } = alarm;
            let (user, server) = (UserId::from(""), Some(server.clone()));
            let (received_at, sent_at) = (received_at.into(), sent_at.map(Timestamp::from));
            let alarm =
                LedgerAlarm { id, user, server, path, alarm_id, title, message, state, incident, received_at, sent_at };
            (alarm.id.clone(), alarm)
        });
        let (incidents, alarms) = (incidents.collect(), alarms.collect());
        let heard =
            heard.into_iter().map(|ShortHeard { id, sockets, at }| (id, HeardBy { sockets, at: at.into() })).collect();
        let mut acks = BTreeMap::<_, BTreeMap<_, _>>::new();
        for ShortAck { incident, user, at } in short {
            acks.entry(incident).or_default().insert(user, at.into());
        }
        Self { server, write: LedgerWrite { incidents, alarms, heard, values, merged, acks } }
    }
}

/// The servers of the lines of a text, and how many bytes each line has.
pub(super) fn lengths(text: &[u8]) -> impl Iterator<Item = (ServerId, u64)> {
    let lines = text.split_inclusive(|byte| *byte == b'\n');
    lines.filter_map(|line| Some((Line::read(line.trim_ascii_end())?.server, line.len() as u64)))
}

/// The text without the lines of these servers, nor unreadable ones that name one of them.
pub(super) fn without(text: &[u8], servers: &BTreeSet<ServerId>) -> Vec<u8> {
    let is_of_others = |line: &&[u8]| match Line::read(line.trim_ascii_end()) {
        Some(Line { server, .. }) => !servers.contains(&server),
        None => {
            let unreadable = String::from_utf8_lossy(line);
            !servers.iter().any(|server| unreadable.contains(server.as_str()))
        }
    };
    text.split_inclusive(|byte| *byte == b'\n').filter(is_of_others).flatten().copied().collect()
}

/// The lines of a text, and those that cannot be read.
pub(super) fn read(text: &[u8]) -> (Vec<Line>, Vec<Vec<u8>>) {
    let (mut lines, mut unreadable) = (Vec::new(), Vec::new());
    for text in text.split(|byte| *byte == b'\n').filter(|text| !text.is_empty()) {
        match Line::read(text) {
            Some(line) => lines.push(line),
            None => unreadable.push(text.to_owned()),
        }
    }
    (lines, unreadable)
}

#[cfg(test)]
mod tests {
    use chrono::SubsecRound as _;

    use super::*;
    use crate::db::testing::{later, now};

    /// With a value in each field that a line keeps.
    fn full() -> Line {
        let incident = Incident {
            alarm_id: "7".into(),
            alarm_name: "Roof".into(),
            place: DevicePlace { x: Some(1.5), y: Some(2.5), grid: "A1".into() },
            first_at: now(),
            last_at: later(1),
            ended_at: Some(later(91)),
            count: 2,
            paths: [AlarmPath::Link, AlarmPath::Push].into(),
            late: true,
            drill: true,
            acks: BTreeMap::new(),
        };
        let alarm = LedgerAlarm {
            id: "arrival".into(),
            user: "".into(),
            server: Some("one".into()),
            path: AlarmPath::Push,
            alarm_id: "7".into(),
            title: "Roof".into(),
            message: "C4".into(),
            state: AlarmState::Opened,
            incident: Some("incident".into()),
            received_at: later(2),
            sent_at: Some(now()),
        };
        let write = LedgerWrite {
            incidents: [("incident".into(), (incident, Some("Title".into())))].into(),
            alarms: [("arrival".into(), alarm)].into(),
            heard: [("incident".into(), HeardBy { sockets: 3, at: later(3) })].into(),
            values: [("7".into(), true)].into(),
            merged: [("part".into(), "incident".into())].into(),
            acks: [("incident".into(), [("user".into(), later(4))].into())].into(),
        };
        Line { server: "one".into(), write }
    }

    #[test]
    fn what_is_written_is_read() {
        let text = full().text().unwrap();
        assert_eq!(Line::read(&text), Some(full()));
        let (_, text) = text.split_last().unwrap();
        assert_eq!(Line::read(text), Some(full()));
        assert_eq!(Line::read(&text[..text.len() - 1]), None, "it was cut short");
        let empty = Line { server: "one".into(), write: LedgerWrite::default() };
        assert_eq!(empty.text().unwrap(), b"{\"s\":\"one\"}\n");
    }

    #[test]
    fn a_line_of_an_earlier_version_is_read() {
        let line = r#"{"server":"one","write":{"incidents":{"incident":[{"alarmId":"7","alarmName":"Roof","x":1.5,
            "y":2.5,"grid":"A1","firstAt":"2027-01-15T08:00:00.123Z","lastAt":"2027-01-15T08:00:01.123Z",
            "endedAt":"2027-01-15T08:01:31.123Z","count":2,"paths":["link","push"],"late":true,"drill":true,
            "acks":{}},"Title"]},"arrivals":{"arrival":{"id":"arrival","user":"","server":"one","path":"push",
            "alarm_id":"7","title":"Roof","message":"C4","state":"Opened","incident":"incident",
            "received_at":"2027-01-15T08:00:02.123456Z","sent_at":"2027-01-15T08:00:00.123456Z"}},
            "heard":{"incident":{"sockets":3,"at":"2027-01-15T08:00:03.123456Z"}},"values":{"7":true}}}"#;
        // Times of incidents were kept to the millisecond.
        let mut known = full();
        known.write.merged.clear();
        known.write.acks.clear();
        for (incident, _) in known.write.incidents.values_mut() {
            let Incident { first_at, last_at, ended_at, .. } = incident;
            [first_at, last_at].into_iter().chain(ended_at).for_each(|at| *at = at.trunc_subsecs(3).into());
        }
        assert_eq!(Line::read(line.as_bytes()), Some(known));
    }

    #[test]
    fn a_line_of_this_version_stays_readable() {
        let line = r#"{"s":"one","i":[{"id":"incident","a":"7","n":"Roof","x":1.5,"y":2.5,"g":"A1","f":1800000000123456,
            "l":1800000001123456,"e":1800000091123456,"c":2,"p":["link","push"],"late":true,"drill":true,
            "t":"Title"}],"a":[{"id":"arrival","p":"push","a":"7","n":"Roof","m":"C4","s":"Opened","i":"incident",
            "r":1800000002123456,"t":1800000000123456}],"h":[{"id":"incident","n":3,"t":1800000003123456}],
            "v":{"7":true},"m":{"part":"incident"},"k":[{"i":"incident","u":"user","t":1800000004123456}]}"#;
        assert_eq!(Line::read(line.as_bytes()), Some(full()));
    }
}
