//! The script of a seed: which faults come when, and when each alarm is raised.

use std::{fmt, time::Duration};

use crate::{random::Stream, ways::Trouble};

/// Nodes of the service.
pub const NODES: usize = 3;
/// Alarms are raised within this time.
pub const LENGTH: Duration = Duration::from_secs(60);
/// Likewise while nodes are upgraded: parts move to each of five processes 10 s after it has come, and each has to stop and to
/// start.
pub const UPGRADE_LENGTH: Duration = Duration::from_secs(100);
/// Time before the first fault, and the span in which all begin, milliseconds.
const FIRST_FAULT: u64 = 2_000;
const FAULTS_WITHIN: u64 = 55_000;
/// Faults besides one of each kind.
const FURTHER: usize = 1;
/// Time for which a node is left alone after a fault, milliseconds.
const REST: u64 = 3_000;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// `kill -9` of a node, which is started again.
    Kill,
    /// Such a kill while the node has no PostgreSQL: alarms are in its journal only.
    KillUnstored,
    /// SIGSTOP of a node for longer than its lease, and SIGCONT.
    Stop,
    /// A node has no NATS.
    CutNats,
    /// A node has no PostgreSQL.
    CutPostgres,
    /// PostgreSQL answers no node.
    FreezePostgres,
    /// The servers of NATS are killed and started again, one after the other.
    RestartNats,
}

impl FaultKind {
    /// All kinds.
    pub const ALL: [Self; 7] = [
        Self::Kill,
        Self::KillUnstored,
        Self::Stop,
        Self::CutNats,
        Self::CutPostgres,
        Self::FreezePostgres,
        Self::RestartNats,
    ];

    /// True if it is a fault of one node.
    pub fn is_of_node(self) -> bool {
        !matches!(self, Self::FreezePostgres | Self::RestartNats)
    }

    /// The shortest and the longest one, milliseconds: for servers of NATS, time until each is started again. A lease is eight
    /// seconds.
    fn lasts(self) -> (u64, u64) {
        match self {
            Self::Kill => (200, 4_000),
            Self::KillUnstored => (6_000, 14_000),
            Self::Stop => (11_000, 16_000),
            Self::CutNats | Self::CutPostgres => (2_000, 15_000),
            Self::FreezePostgres => (2_000, 10_000),
            Self::RestartNats => (0, 1_500),
        }
    }
}

/// A fault that is to come.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub at: Duration,
    pub kind: FaultKind,
    /// The node, if it [is of one](FaultKind::is_of_node).
    pub node: usize,
    /// The trouble of a way, if it is about one.
    pub trouble: Trouble,
    pub lasts: Duration,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, node, trouble, lasts, .. } = self;
        match kind {
            FaultKind::Kill | FaultKind::Stop => write!(f, "{kind:?} of node {node} for {lasts:.1?}"),
            FaultKind::KillUnstored | FaultKind::CutNats | FaultKind::CutPostgres => {
                write!(f, "{kind:?} of node {node} for {lasts:.1?} ({trouble:?})")
            }
            FaultKind::FreezePostgres => write!(f, "{kind:?} for {lasts:.1?}"),
            FaultKind::RestartNats => write!(f, "{kind:?}, each after {lasts:.1?}"),
        }
    }
}

/// An alarm that is to be raised.
#[derive(Clone, Copy, Debug)]
pub struct PlannedAlarm {
    pub at: Duration,
    /// The pairing, by its place among all.
    pub pairing: usize,
    /// Its number among those of the pairing.
    pub number: u64,
    /// Its push, if it has one besides the device, goes first.
    pub push_first: bool,
}

/// See the module. Both in the order of time.
pub struct Script {
    pub faults: Vec<Fault>,
    pub alarms: Vec<PlannedAlarm>,
}

impl Script {
    /// The script of this seed, for pairings with these numbers of alarms.
    pub fn of(seed: u64, alarms: &[u64]) -> Self {
        Self { faults: faults(seed), alarms: planned(seed, alarms, LENGTH) }
    }

    /// The script of an upgrade, without faults.
    pub fn of_upgrade(seed: u64, alarms: &[u64]) -> Self {
        Self { faults: Vec::new(), alarms: planned(seed, alarms, UPGRADE_LENGTH) }
    }
}

fn faults(seed: u64) -> Vec<Fault> {
    let mut random = Stream::of(seed, "faults");
    let mut kinds = FaultKind::ALL.to_vec();
    for _ in 0..FURTHER {
        kinds.push(FaultKind::ALL[random.below(FaultKind::ALL.len() as u64) as usize]);
    }
    for last in (1..kinds.len()).rev() {
        kinds.swap(last, random.below(last as u64 + 1) as usize);
    }
    let every = FAULTS_WITHIN / kinds.len() as u64;
    // When each node may have its next one.
    let mut free_at = [0; NODES];
    let mut faults = Vec::new();
    for (slot, kind) in (0_u64..).zip(kinds) {
        let mut at = FIRST_FAULT + slot * every + random.below(every / 2);
        let (shortest, longest) = kind.lasts();
        let lasts = random.between(shortest, longest);
        let node = chosen(&free_at, at, &mut random);
        if kind.is_of_node() {
            at = at.max(free_at[node]);
            free_at[node] = at + lasts + REST;
        }
        let trouble = if random.chance(50) { Trouble::Held } else { Trouble::Cut };
        let (at, lasts) = (Duration::from_millis(at), Duration::from_millis(lasts));
        faults.push(Fault { at, kind, node, trouble, lasts });
    }
    faults.sort_by_key(|fault| fault.at);
    faults
}

/// One of the nodes that are left alone then, or the one that is first.
fn chosen(free_at: &[u64; NODES], at: u64, random: &mut Stream) -> usize {
    let free: Vec<usize> = (0..NODES).filter(|node| free_at[*node] <= at).collect();
    if free.is_empty() {
        return (0..NODES).min_by_key(|node| free_at[*node]).unwrap_or_default();
    }
    free[random.below(free.len() as u64) as usize]
}

fn planned(seed: u64, alarms: &[u64], within: Duration) -> Vec<PlannedAlarm> {
    let mut random = Stream::of(seed, "alarms");
    let mut planned = Vec::new();
    for (pairing, count) in alarms.iter().enumerate() {
        for number in 0..*count {
            let at = Duration::from_millis(random.below(within.as_millis() as u64));
            planned.push(PlannedAlarm { at, pairing, number, push_first: random.chance(50) });
        }
    }
    planned.sort_by_key(|alarm| alarm.at);
    planned
}
