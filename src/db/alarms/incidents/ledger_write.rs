//! A write of the ledger: what changed of the alarms of one server.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{
    db::alarms::alarm_ledger::{AlarmState, LedgerAlarm},
    domain::{
        ids::UserId,
        incident::{AlarmPath, Incident},
        time::{self, Timestamp},
    },
};

/// Changes of the alarms of one server, to be stored all at once. Storing them again changes nothing, and an older one
/// never undoes a newer one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LedgerWrite {
    /// By id, with the title of its pushes.
    pub incidents: BTreeMap<String, (Incident, Option<String>)>,
    /// By id. Named as in older journals.
    #[serde(rename = "arrivals")]
    pub alarms: BTreeMap<String, LedgerAlarm>,
    /// Incidents that at least one user heard of.
    pub heard: BTreeMap<String, HeardBy>,
    /// The last values of alarms, by device id.
    pub values: BTreeMap<String, bool>,
    /// Incidents that are a part of an older one, and that one.
    pub merged: BTreeMap<String, String>,
    /// Users who have taken note, and when, by incident.
    pub acks: BTreeMap<String, BTreeMap<UserId, Timestamp>>,
}

/// Delivery of an incident to users.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeardBy {
    /// Sockets that took the message; 0: it was in a snapshot.
    pub sockets: usize,
    #[serde(serialize_with = "time::exact")]
    pub at: Timestamp,
}

impl LedgerWrite {
    /// Adds what is newer.
    pub fn extend(&mut self, newer: LedgerWrite) {
        self.incidents.extend(newer.incidents);
        self.alarms.extend(newer.alarms);
        for (incident, heard) in newer.heard {
            let first = self.heard.entry(incident).or_insert(heard);
            first.sockets = first.sockets.max(heard.sockets);
        }
        self.values.extend(newer.values);
        self.merged.extend(newer.merged);
        for (incident, acks) in newer.acks {
            let known = self.acks.entry(incident).or_default();
            for (user, at) in acks {
                known.entry(user).or_insert(at);
            }
        }
    }

    /// The part of it that is true whichever node has the server: alarms came and were announced, users heard of incidents and
    /// took note. The alarms wait for the node that has the server. A drill ends with the node that began it.
    pub fn for_another_node(self) -> Self {
        let Self { mut incidents, mut alarms, heard, acks, .. } = self;
        alarms.retain(|_, alarm| alarm.path != AlarmPath::Drill);
        alarms.values_mut().for_each(|alarm| alarm.state = AlarmState::Received);
        // The other node says how its incidents go on.
        let opened: BTreeSet<&String> = alarms.values().filter_map(|alarm| alarm.incident.as_ref()).collect();
        incidents.retain(|id, _| opened.contains(id));
        Self { incidents, alarms, heard, acks, ..Self::default() }
    }

    /// True if there is nothing to store.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
