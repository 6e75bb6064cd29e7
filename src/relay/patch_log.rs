//! The position of a server's state as one thread knows it, and the last steps to it. Pure.
//!
//! A client at an earlier position gets **one** patch from there to now, shared by all clients at the same position, or
//! a snapshot when that is smaller or the steps do not reach back. No client has a queue of patches.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;

use crate::{
    domain::{change, ids::ServerId},
    relay::{
        protocol,
        publication::{Position, Step},
    },
};

/// What brings a client to now.
#[derive(Debug, PartialEq)]
pub enum CatchUp {
    /// It is there.
    Nothing,
    Patch {
        frame: Bytes,
        /// The last snapshot was smaller.
        large: bool,
    },
    /// The steps do not reach back.
    Snapshot,
}

/// How many steps are kept at the most, and how many changes in all of them: enough for a minute of a busy server.
const STEPS: usize = 512;
const CHANGES: usize = 20_000;

/// See the module.
pub struct PatchLog {
    server: ServerId,
    position: Position,
    steps: VecDeque<Arc<Step>>,
    changes: usize,
    /// Merged patches to the current position, by the `seq` they start from.
    merged: Vec<(u64, Bytes)>,
    /// The snapshot of the current position, once somebody needed it.
    snapshot: Option<Bytes>,
    /// Bytes of the newest snapshot, to compare patches with.
    snapshot_size: usize,
}

impl PatchLog {
    /// A log without a position; only a snapshot gives it one.
    pub fn new(server: ServerId) -> Self {
        Self {
            server,
            position: Position { epoch: 0, seq: 0 },
            steps: VecDeque::new(),
            changes: 0,
            merged: Vec::new(),
            snapshot: None,
            snapshot_size: usize::MAX,
        }
    }

    /// Where the state is.
    pub fn position(&self) -> Position {
        self.position
    }

    /// The snapshot of this very position, if it is here.
    pub fn snapshot(&self) -> Option<&Bytes> {
        self.snapshot.as_ref()
    }

    /// Appends a step. False if it does not follow: a snapshot is needed.
    pub fn advance(&mut self, epoch: u64, step: Arc<Step>) -> bool {
        if self.position != (Position { epoch, seq: step.base }) {
            return false;
        }
        self.position.seq = step.seq;
        self.changes += step.changes.len();
        self.steps.push_back(step);
        while self.steps.len() > STEPS || (self.changes > CHANGES && self.steps.len() > 1) {
            let oldest = self.steps.pop_front().expect("it was just counted");
            self.changes -= oldest.changes.len();
        }
        self.merged.clear();
        self.snapshot = None;
        true
    }

    /// Stores a snapshot: of now, or of a later position that the steps did not reach.
    pub fn restart(&mut self, position: Position, snapshot: Bytes) {
        if position != self.position {
            self.position = position;
            self.steps.clear();
            self.changes = 0;
            self.merged.clear();
        }
        self.snapshot_size = snapshot.len();
        self.snapshot = Some(snapshot);
    }

    /// Forgets everything; only a snapshot gives it a position again.
    pub fn clear(&mut self) {
        *self = Self::new(self.server.clone());
    }

    /// What brings a client from `from` to now.
    pub fn since(&mut self, from: Position) -> CatchUp {
        if from == self.position {
            return CatchUp::Nothing;
        }
        let reaches = self.steps.front().is_some_and(|oldest| oldest.base <= from.seq);
        if from.epoch != self.position.epoch || from.seq > self.position.seq || !reaches {
            return CatchUp::Snapshot;
        }
        if let Some(last) = self.steps.back()
            && last.base == from.seq
        {
            return CatchUp::Patch { frame: last.frame.clone(), large: false };
        }
        if let Some((_, frame)) = self.merged.iter().find(|(base, _)| *base == from.seq) {
            return self.patch(frame.clone());
        }
        let first = self.steps.partition_point(|step| step.base < from.seq);
        let changes = change::merge(self.steps.range(first..).flat_map(|step| &step.changes));
        let frame = protocol::patch(&self.server, from.epoch, from.seq, self.position.seq, &changes);
        self.merged.push((from.seq, frame.clone()));
        self.patch(frame)
    }

    fn patch(&self, frame: Bytes) -> CatchUp {
        let large = frame.len() > self.snapshot_size;
        CatchUp::Patch { frame, large }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: u64 = 7;

    fn at(seq: u64) -> Position {
        Position { epoch: EPOCH, seq }
    }

    fn step(base: u64) -> Arc<Step> {
        Arc::new(Step { base, seq: base + 1, changes: Vec::new(), frame: Bytes::from(format!("{base}")) })
    }

    fn log(steps: u64) -> PatchLog {
        let mut log = PatchLog::new("one".into());
        log.restart(at(0), Bytes::from_static(b"a snapshot that is longer than the patches of these tests, which are of no change: {\"type\":\"patch\",\"serverId\":\"one\",\"epoch\":7,\"base\":0,\"seq\":0,\"patch\":[]}"));
        (0..steps).for_each(|base| assert!(log.advance(EPOCH, step(base))));
        log
    }

    #[test]
    fn a_client_at_the_last_position_gets_that_steps_own_frame() {
        let mut log = log(3);
        assert_eq!(log.since(at(3)), CatchUp::Nothing);
        assert_eq!(log.since(at(2)), CatchUp::Patch { frame: Bytes::from_static(b"2"), large: false });
    }

    #[test]
    fn clients_at_the_same_earlier_position_share_one_merged_frame() {
        let mut log = log(3);
        let CatchUp::Patch { frame, large: false } = log.since(at(0)) else { panic!("a patch was due") };
        let CatchUp::Patch { frame: again, .. } = log.since(at(0)) else { panic!("a patch was due") };
        assert_eq!(frame.as_ptr(), again.as_ptr());
        assert!(log.advance(EPOCH, step(3)));
        assert_ne!(log.since(at(0)), CatchUp::Patch { frame, large: false }, "a merged frame ends at its position");
    }

    #[test]
    fn what_the_steps_do_not_reach_needs_a_snapshot() {
        let mut log = log(STEPS as u64 + 10);
        assert_eq!(log.since(at(9)), CatchUp::Snapshot, "forgotten");
        assert!(matches!(log.since(at(10)), CatchUp::Patch { .. }));
        assert_eq!(log.since(Position { epoch: EPOCH + 1, seq: 20 }), CatchUp::Snapshot, "another epoch");
        assert_eq!(log.since(at(STEPS as u64 + 11)), CatchUp::Snapshot, "later than now");
        assert!(!log.advance(EPOCH, step(5)), "a step that does not follow");
        assert!(!log.advance(EPOCH + 1, step(STEPS as u64 + 10)), "a step of another epoch");
    }

    #[test]
    fn a_snapshot_is_of_its_position_only() {
        let mut log = log(1);
        assert_eq!(log.snapshot(), None, "a step made it old");
        log.restart(at(1), Bytes::from_static(b"now"));
        assert_eq!(log.snapshot(), Some(&Bytes::from_static(b"now")));
        assert!(matches!(log.since(at(0)), CatchUp::Patch { .. }), "the steps stay");
        log.restart(at(9), Bytes::from_static(b"later"));
        assert_eq!(log.since(at(1)), CatchUp::Snapshot);
    }
}
