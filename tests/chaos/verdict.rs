//! The judges: plain functions of the records, each of which gives the promises that do not hold, in words. `self_tests` shows
//! each a history that breaks its promise.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    time::Duration,
};

use companion::{
    cluster::placement::place,
    domain::ids::{NodeId, PartId},
};
use serde_json::Map;

use crate::records::{
    AlarmRow, AlarmWay, HolderChange, Holders, IncidentRow, LinksOfGame, LiveNode, RaisedAlarm, SeenRaid, StoredLedger,
    TakeOver, WatchedState,
};

/// Time for which the nodes before and after a takeover may both announce an alarm: a lease, and what follows.
const TAKEOVER_BLURS: Duration = Duration::from_secs(20);
/// Delay with which a change of holders may be seen.
const SEEN_LATE: Duration = Duration::from_secs(1);
/// Links that a node lost are made again within this time, whatever else fails meanwhile: several times what docs and figures
/// say.
const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(60);
/// Path of an alarm that was pushed, in the ledger.
const PUSH: &str = "push";

/// Each alarm that was raised is in one incident, there is no other incident, and nothing waits.
pub fn judge_ledger(raised: &[RaisedAlarm], ledger: &StoredLedger) -> Vec<String> {
    let mut broken = Vec::new();
    let mut by_alarm = HashMap::<(&str, &str), Vec<&IncidentRow>>::new();
    for row in &ledger.incidents {
        by_alarm.entry((row.server.as_str(), row.alarm_name.as_str())).or_default().push(row);
    }
    for RaisedAlarm { server, name, way, at } in raised {
        let label = format!("{name:?} ({way:?}, raised at {at:.1?})");
        let of_alarm = by_alarm.remove(&(server.as_str(), name.as_str())).unwrap_or_default();
        let [incident] = &of_alarm[..] else {
            let ids: Vec<&str> = of_alarm.iter().map(|row| row.id.as_str()).collect();
            broken.push(format!("{label} is in {} incidents {ids:?}", ids.len()));
            continue;
        };
        if *way == AlarmWay::Link {
            continue;
        }
        let is_own = |row: &&AlarmRow| row.path == PUSH && row.title == *name && row.server.as_ref() == Some(server);
        let pushes: Vec<&AlarmRow> = ledger.alarms.iter().filter(is_own).collect();
        if pushes.len() != 1 {
            broken.push(format!("the push of {label} is in the ledger {} times", pushes.len()));
        }
        // A device that goes off while the push of another one waits for its device may take that over.
        let elsewhere = pushes.iter().find(|row| row.incident.as_ref() != Some(&incident.id));
        if let Some(row) = elsewhere.filter(|_| *way == AlarmWay::Push) {
            broken.push(format!("the push of {label} has incident {:?}, not {}", row.incident, incident.id));
        }
    }
    let unraised = by_alarm.into_values().flatten();
    broken.extend(unraised.map(|row| format!("nothing has raised incident {} {:?}", row.id, row.alarm_name)));
    let known: HashSet<&str> = ledger.incidents.iter().map(|row| row.id.as_str()).collect();
    for row in &ledger.alarms {
        let label = format!("the alarm {:?} by {}", row.title, row.path);
        if !row.is_finished {
            broken.push(format!("{label} is not finished"));
        } else if !row.incident.as_ref().is_some_and(|incident| known.contains(incident.as_str())) {
            broken.push(format!("{label} has incident {:?}, which there is not", row.incident));
        }
    }
    broken
}

/// No socket was given the same announcement twice, and each incident that was announced is kept.
///
/// A node that takes a game server over announces once more, as an update, an incident of which it does not know that it
/// was heard: that is no fault if the server has passed on. `parts` are those of the servers.
pub fn judge_announcements(
    raids: &[SeenRaid],
    ledger: &StoredLedger,
    changes: &[HolderChange],
    parts: &BTreeMap<String, String>,
) -> Vec<String> {
    let mut broken = Vec::new();
    let known: HashSet<&str> = ledger.incidents.iter().map(|row| row.id.as_str()).collect();
    let announced: BTreeSet<&str> = raids.iter().map(|raid| raid.incident.as_str()).collect();
    for incident in announced {
        if !known.contains(incident) && !ledger.parts.contains(incident) {
            broken.push(format!("incident {incident} was announced, and is not in the ledger"));
        }
    }
    for raids in by_socket(raids) {
        let label = format!("incident {} {:?} to {}", raids[0].incident, raids[0].alarm_name, raids[0].socket);
        let openings = raids.iter().filter(|raid| !raid.update).count();
        if openings > 1 {
            broken.push(format!("{label} was announced as new {openings} times"));
        }
        for (place, again) in raids.iter().enumerate().filter(|(_, raid)| raid.update) {
            let Some(before) = raids[..place].iter().rfind(|raid| says_the_same(raid, again)) else { continue };
            let (from, to) = (before.at.saturating_sub(TAKEOVER_BLURS), again.at + SEEN_LATE);
            let part = parts.get(&again.server);
            let passed_on = changes.iter().any(|change| {
                Some(&change.part) == part && !change.node.is_empty() && from <= change.at && change.at <= to
            });
            if !passed_on {
                let (before, again) = (before.at, again.at);
                broken.push(format!("{label} was announced at {before:.1?} and again at {again:.1?}, by one node"));
            }
        }
    }
    broken
}

/// Number of announcements that say what their socket knew.
pub fn repeated(raids: &[SeenRaid]) -> usize {
    let of_socket = |raids: Vec<&SeenRaid>| {
        let is_known = |place: usize| raids[..place].iter().any(|raid| says_the_same(raid, raids[place]));
        (0..raids.len()).filter(|place| is_known(*place)).count()
    };
    by_socket(raids).map(of_socket).sum()
}

/// The messages of each socket about each incident, in their order.
fn by_socket(raids: &[SeenRaid]) -> impl Iterator<Item = Vec<&SeenRaid>> {
    let mut by_socket = BTreeMap::<_, Vec<&SeenRaid>>::new();
    for raid in raids {
        by_socket.entry((raid.socket, raid.incident.as_str())).or_default().push(raid);
    }
    by_socket.into_values()
}

fn says_the_same(one: &SeenRaid, other: &SeenRaid) -> bool {
    (one.count, &one.alarm_id, &one.alarm_name) == (other.count, &other.alarm_id, &other.alarm_name)
}

/// The number of a part rises with each node that has it: what a node writes by an older number is refused.
pub fn judge_numbers(changes: &[HolderChange]) -> Vec<String> {
    let mut broken = Vec::new();
    let mut last = HashMap::<&str, (&str, i64)>::new();
    for HolderChange { part, node, number, at } in changes {
        let (holder, before) = last.get(part.as_str()).copied().unwrap_or_default();
        let is_other = !node.is_empty() && node != holder;
        if *number < before || is_other && *number == before {
            broken.push(format!("{part} passed from {holder:?} ({before}) to {node:?} ({number}) at {at:.1?}"));
        }
        // One that is given up stays with its last node, as far as its number goes.
        let holder = if node.is_empty() { holder } else { node.as_str() };
        last.insert(part, (holder, *number));
    }
    broken
}

/// Each part is at a node that lives, and each game server has links from that node alone.
pub fn judge_holders(holders: &Holders, live: &[LiveNode], links: &[LinksOfGame]) -> Vec<String> {
    let mut broken = Vec::new();
    let of = |part: &str| {
        let (node, _) = holders.get(part)?;
        live.iter().find(|live| live.id == *node)
    };
    for (part, (node, _)) in holders {
        if of(part).is_none() {
            broken.push(format!("{part} is at {node:?}, which is no live node"));
        }
    }
    for LinksOfGame { part, addresses } in links {
        match of(part) {
            Some(node) if *addresses == BTreeSet::from([node.address]) => {}
            Some(node) => broken.push(format!("{part} is at {}, and has links from {addresses:?}", node.address)),
            None => broken.push(format!("{part} has no live node, and links from {addresses:?}")),
        }
    }
    broken
}

/// Each part is at the node at which it belongs, of those that live: nothing is left to move.
pub fn judge_places(holders: &Holders, live: &[LiveNode]) -> Vec<String> {
    let nodes: Vec<NodeId> = live.iter().map(|live| live.id.as_str().into()).collect();
    let mut broken = Vec::new();
    for (part, (node, _)) in holders {
        let belongs = place(&PartId::from(part.as_str()), &nodes).map(NodeId::as_str);
        if belongs != Some(node.as_str()) {
            broken.push(format!("{part} is at {node:?}, and belongs at {belongs:?}"));
        }
    }
    broken
}

/// All who watch a server have the same state of it, with one incident for each of these alarms. `None`: no state.
pub fn judge_states(server: &str, alarms: &[&str], watched: &[(String, Option<WatchedState>)]) -> Vec<String> {
    let mut broken = Vec::new();
    let mut first: Option<(&str, &WatchedState)> = None;
    for (watcher, state) in watched {
        let Some(state) = state else {
            broken.push(format!("{watcher} has no state of {server}"));
            continue;
        };
        match first {
            None => first = Some((watcher.as_str(), state)),
            Some((other, known)) if known != state => {
                let differs = difference(known, state);
                broken.push(format!("{other} and {watcher} have different states of {server}: {differs}"));
            }
            Some(_) => {}
        }
    }
    let Some((watcher, state)) = first else { return broken };
    if state.state["server"]["connection"] != "connected" {
        broken.push(format!("{server} is {} to {watcher}", state.state["server"]["connection"]));
    }
    for alarm in alarms {
        let shown = state.alarm_names().filter(|name| name == alarm).count();
        if shown != 1 {
            broken.push(format!("{alarm:?} is shown to {watcher} in {shown} incidents"));
        }
    }
    broken
}

fn difference(one: &WatchedState, other: &WatchedState) -> String {
    let keys = [one, other].into_iter().filter_map(|known| known.state.as_object()).flat_map(Map::keys);
    let keys: BTreeSet<&String> = keys.collect();
    let different: Vec<&String> = keys.into_iter().filter(|key| one.state[*key] != other.state[*key]).collect();
    format!("{} of epoch {} and {} of epoch {}, {different:?} differ", one.seq, one.epoch, other.seq, other.epoch)
}

/// Links that a node lost were made again in time.
pub fn judge_take_overs(take_overs: &[TakeOver]) -> Vec<String> {
    let late = take_overs.iter().filter(|over| over.after.is_none_or(|after| after > TAKEN_OVER_WITHIN));
    late.map(|TakeOver { fault, game, after }| match after {
        Some(after) => format!("{fault}: game server {game} had another link only after {after:.1?}"),
        None => format!("{fault}: game server {game} had no other link"),
    })
    .collect()
}
