//! Figures of a seed, in a line.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    records::{AlarmWay, RaisedAlarm, SeenRaid, StoredLedger, TakeOver},
    script::FaultKind,
    verdict::repeated,
};

/// Everything that is counted.
pub struct Figures<'a> {
    pub faults: Vec<FaultKind>,
    pub raised: &'a [RaisedAlarm],
    pub take_overs: &'a [TakeOver],
    pub ledger: StoredLedger,
    /// When the first socket knew of each alarm, by server and name.
    pub known: BTreeMap<(String, String), Duration>,
    pub raids: Vec<SeenRaid>,
    pub sockets: u32,
    /// Errors that sockets were answered, by code.
    pub errors: BTreeMap<String, usize>,
    pub settled_after: Duration,
}

/// The figures, in words.
pub fn line(figures: &Figures<'_>) -> String {
    let Figures { faults, raised, take_overs, ledger, known, raids, sockets, errors, settled_after } = figures;
    let mut kinds = BTreeMap::<FaultKind, usize>::new();
    faults.iter().for_each(|kind| *kinds.entry(*kind).or_default() += 1);
    let by = |way: AlarmWay| raised.iter().filter(|alarm| alarm.way == way).count();
    let mut after: Vec<Duration> = take_overs.iter().filter_map(|over| over.after).collect();
    after.sort_unstable();
    let mut until_known: Vec<Duration> = raised.iter().filter_map(|alarm| until_known(alarm, known)).collect();
    until_known.sort_unstable();
    let doubled = ledger.incidents.iter().filter(|row| row.count > 1).count();
    format!(
        "faults {kinds:?}; {} alarms raised: {} by link, {} by link and push, {} by push; {} links taken over: {}; alarms \
         were known to a socket after: {}; {doubled} incidents count more than one trigger, {} were first announced in \
         parts; {} messages about raids to {sockets} sockets, {} of them known there; errors {errors:?}; settled after \
         {settled_after:.1?}",
        raised.len(),
        by(AlarmWay::Link),
        by(AlarmWay::LinkAndPush),
        by(AlarmWay::Push),
        take_overs.len(),
        spread(&after),
        spread(&until_known),
        ledger.parts.len(),
        raids.len(),
        repeated(raids),
    )
}

fn until_known(alarm: &RaisedAlarm, known: &BTreeMap<(String, String), Duration>) -> Option<Duration> {
    let at = known.get(&(alarm.server.clone(), alarm.name.clone()))?;
    Some(at.saturating_sub(alarm.at))
}

/// The middle and the last of these, which are sorted.
fn spread(sorted: &[Duration]) -> String {
    match sorted.last() {
        Some(last) => format!("{:.1?} (p50), {last:.1?} (at most)", sorted[sorted.len() / 2]),
        None => "none".to_owned(),
    }
}
