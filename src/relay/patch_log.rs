//! The position of a server's state as one thread knows it, and the last steps to it. Pure.
//!
//! A client at an earlier position gets **one** patch from there to now, shared by all clients at the same position, or
//! a snapshot when that is smaller or the steps do not reach back. No client has a queue of patches.
//!
//! See [`Steps`] for how far back that is.

use std::sync::Arc;

use crate::{
    domain::{change, ids::ServerId, time::Moment},
    relay::{
        frame::SharedFrame,
        protocol,
        publication::Position,
        steps::{Step, Steps},
    },
};

/// What brings a client to now.
#[derive(Debug, PartialEq)]
pub enum CatchUp {
    /// It is there.
    Nothing,
    Patch {
        frame: SharedFrame,
        /// The last snapshot was smaller.
        large: bool,
    },
    /// The steps do not reach back.
    Snapshot,
}

/// Before the first snapshot. A client may say that it is here, and needs one.
const NOWHERE: Position = Position { epoch: 0, seq: 0 };

/// See the module.
pub struct PatchLog {
    server: ServerId,
    position: Position,
    steps: Steps,
    /// Merged patches to the current position, by the `seq` they start from.
    merged: Vec<(u64, SharedFrame)>,
    merged_bytes: usize,
    /// The snapshot of the current position, once somebody needed it.
    snapshot: Option<SharedFrame>,
}

impl PatchLog {
    /// A log without a position; only a snapshot gives it one.
    pub fn new(server: ServerId) -> Self {
        Self { server, position: NOWHERE, steps: Steps::default(), merged: Vec::new(), merged_bytes: 0, snapshot: None }
    }

    /// Where the state is.
    pub fn position(&self) -> Position {
        self.position
    }

    /// The snapshot of this very position, if it is here.
    pub fn snapshot(&self) -> Option<&SharedFrame> {
        self.snapshot.as_ref()
    }

    /// Appends a step. False if it does not follow: a snapshot is needed.
    pub fn advance(&mut self, epoch: u64, step: Arc<Step>) -> bool {
        if self.position != (Position { epoch, seq: step.base }) {
            return false;
        }
        self.position.seq = step.seq;
        self.steps.push(step);
        self.forget_merged();
        self.snapshot = None;
        true
    }

    /// Forgets the steps that are too old.
    pub fn forget_old(&mut self, now: Moment) {
        self.steps.forget_old(now);
    }

    fn forget_merged(&mut self) {
        self.merged.clear();
        self.merged_bytes = 0;
    }

    /// Stores a snapshot: of now, or of a later position that the steps did not reach, with the steps to there. Whether it
    /// is a later one.
    pub fn restart(&mut self, position: Position, snapshot: SharedFrame, steps: Steps) -> bool {
        let is_later = position != self.position;
        if is_later {
            self.position = position;
            self.steps = steps;
            self.forget_merged();
        }
        self.steps.set_snapshot_size(snapshot.plain().len());
        self.snapshot = Some(snapshot);
        is_later
    }

    /// Forgets everything; only a snapshot gives it a position again.
    pub fn clear(&mut self) {
        *self = Self::new(self.server.clone());
    }

    /// What brings a client from `from` to now.
    pub fn since(&mut self, from: Position) -> CatchUp {
        if from == self.position && from != NOWHERE {
            return CatchUp::Nothing;
        }
        if from.epoch != self.position.epoch || from.seq > self.position.seq || !self.steps.reach(from.seq) {
            return CatchUp::Snapshot;
        }
        if let Some(last) = self.steps.last()
            && last.base == from.seq
        {
            return CatchUp::Patch { frame: last.frame.clone(), large: false };
        }
        if let Some((_, frame)) = self.merged.iter().find(|(base, _)| *base == from.seq) {
            return self.patch(frame.clone());
        }
        let changes = change::merge(self.steps.changes_since(from.seq));
        let frame = protocol::patch(&self.server, from.epoch, from.seq, self.position.seq, &changes);
        if self.merged_bytes + frame.plain().len() > self.steps.most_bytes() {
            self.forget_merged();
        }
        self.merged_bytes += frame.plain().len();
        self.merged.push((from.seq, frame.clone()));
        self.patch(frame)
    }

    /// The patch for who came back and has the current position already.
    pub fn unchanged(&self) -> SharedFrame {
        let Position { epoch, seq } = self.position;
        protocol::patch(&self.server, epoch, seq, seq, &[])
    }

    fn patch(&self, frame: SharedFrame) -> CatchUp {
        let large = frame.plain().len() > self.steps.snapshot_size();
        CatchUp::Patch { frame, large }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use chrono::TimeDelta;
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::{
        domain::{
            change::Section,
            map::{MapPlace, Marker, MarkerKind},
            server_state::ServerState,
            time::Timestamp,
        },
        relay::steps::FEW_BYTES,
    };

    fn frame(bytes: &'static [u8]) -> SharedFrame {
        Bytes::from_static(bytes).into()
    }

    const EPOCH: u64 = 7;

    fn at(seq: u64) -> Position {
        Position { epoch: EPOCH, seq }
    }

    fn after(seconds: i64) -> Moment {
        (Timestamp::UNIX_EPOCH + TimeDelta::seconds(seconds)).into()
    }

    fn step(base: u64) -> Arc<Step> {
        Step::new(base, Vec::new(), Bytes::from(format!("{base}")).into(), after(0))
    }

    fn log(steps: u64) -> PatchLog {
        let mut log = PatchLog::new("one".into());
        log.restart(at(0), frame(b"a snapshot that is longer than the patches of these tests, which are of no change: {\"type\":\"patch\",\"serverId\":\"one\",\"epoch\":7,\"base\":0,\"seq\":0,\"patch\":[]}"), Steps::default());
        (0..steps).for_each(|base| assert!(log.advance(EPOCH, step(base))));
        log
    }

    #[test]
    fn a_client_at_the_last_position_gets_that_steps_own_frame() {
        let mut log = log(3);
        assert_eq!(log.since(at(3)), CatchUp::Nothing);
        assert_eq!(log.since(at(2)), CatchUp::Patch { frame: frame(b"2"), large: false });
    }

    #[test]
    fn clients_at_the_same_earlier_position_share_one_merged_frame() {
        let mut log = log(3);
        let CatchUp::Patch { frame, large: false } = log.since(at(0)) else { panic!("a patch was due") };
        let CatchUp::Patch { frame: again, .. } = log.since(at(0)) else { panic!("a patch was due") };
        assert_eq!(frame.plain().as_ptr(), again.plain().as_ptr());
        assert!(log.advance(EPOCH, step(3)));
        assert_ne!(log.since(at(0)), CatchUp::Patch { frame, large: false }, "a merged frame ends at its position");
    }

    #[test]
    fn what_the_steps_do_not_reach_needs_a_snapshot() {
        let mut log = log(20);
        assert!(matches!(log.since(at(0)), CatchUp::Patch { .. }));
        assert_eq!(log.since(Position { epoch: EPOCH + 1, seq: 10 }), CatchUp::Snapshot, "another epoch");
        assert_eq!(log.since(at(21)), CatchUp::Snapshot, "later than now");
        assert!(!log.advance(EPOCH, step(5)), "a step that does not follow");
        assert!(!log.advance(EPOCH + 1, step(20)), "a step of another epoch");
    }

    #[test]
    fn nobody_has_what_the_log_does_not() {
        let mut log = PatchLog::new("one".into());
        assert_eq!(log.since(NOWHERE), CatchUp::Snapshot);
        log.restart(at(0), frame(b"now"), Steps::default());
        assert_eq!((log.since(NOWHERE), log.since(at(0))), (CatchUp::Snapshot, CatchUp::Nothing));
    }

    #[test]
    fn who_is_at_a_step_that_is_forgotten_needs_a_snapshot() {
        let mut log = log(5);
        assert!(log.advance(EPOCH, Step::new(5, Vec::new(), frame(b"5"), after(1))));
        log.forget_old(after(60));
        assert!(matches!(log.since(at(0)), CatchUp::Patch { .. }));
        log.forget_old(after(61));
        assert_eq!(log.since(at(4)), CatchUp::Snapshot, "forgotten");
        assert!(matches!(log.since(at(5)), CatchUp::Patch { .. }));
        log.forget_old(after(62));
        assert_eq!((log.since(at(5)), log.since(at(6))), (CatchUp::Snapshot, CatchUp::Nothing));
    }

    #[test]
    fn a_snapshot_is_of_its_position_only() {
        let mut log = log(1);
        assert_eq!(log.snapshot(), None, "a step made it old");
        log.restart(at(1), frame(b"now"), Steps::default());
        assert_eq!(log.snapshot(), Some(&frame(b"now")));
        assert!(matches!(log.since(at(0)), CatchUp::Patch { .. }), "the steps stay");
        log.restart(at(9), frame(b"later"), Steps::default());
        assert_eq!(log.since(at(1)), CatchUp::Snapshot);
    }

    fn marker(x: u16) -> Marker {
        let shop = Marker::new(MarkerKind::VendingMachine, MapPlace::at(f64::from(x), 0.0), 4_000);
        Marker { name: Some("A shop".into()), ..shop }
    }

    /// The text of an unmasked frame.
    fn json(frame: &SharedFrame) -> Value {
        let frame = frame.plain();
        let head = if frame[1] == 127 {
            10
        } else if frame[1] == 126 {
            4
        } else {
            2
        };
        serde_json::from_slice(&frame[head..]).expect("JSON")
    }

    proptest! {
           #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

           #[test]
           fn whoever_the_steps_reach_arrives_at_now_and_no_more_is_held_than_a_snapshot_is_large(
               markers in 1..200_u16,
               steps in prop::collection::vec((prop::collection::vec((0..200_u16, any::<u16>()), 0..60), 0..9_i64), 1..40),
           ) {
               let server = ServerId::from("one");
               let (mut state, mut log, mut now) = (ServerState::new(Timestamp::UNIX_EPOCH), PatchLog::new(server.clone()), 0);
               let all = (0..markers).map(|id| (u64::from(id), marker(0)));
               state.map_markers.replace(Section::MapMarkers, all, &mut Vec::new());
               let snapshot = protocol::snapshot(&server, EPOCH, 0, &state);
               log.restart(at(0), snapshot.clone(), Steps::default());
               let mut states = vec![json(&snapshot)["state"].clone()];
               for (edits, pause) in steps {
                   now += pause;
                   let mut changes = Vec::new();
                   for (id, x) in edits {
                       let value = (x % 4 != 0).then(|| marker(x));
                       state.map_markers.put(Section::MapMarkers, u64::from(id % markers), value, &mut changes);
                   }
                   let base = states.len() as u64 - 1;
                   let frame = protocol::patch(&server, EPOCH, base, base + 1, &changes);
                   let step = Step::new(base, changes, frame, after(now));
                   let last = step.bytes;
                   prop_assert!(log.advance(EPOCH, step));
                   states.push(json(&protocol::snapshot(&server, EPOCH, base + 1, &state))["state"].clone());
                   let most = snapshot.plain().len().max(FEW_BYTES);
                   for (seq, before) in states.iter().enumerate() {
                       if let CatchUp::Patch { frame, .. } = log.since(at(seq as u64)) {
                           let patch: json_patch::Patch =
    serde_json::from_value(json(&frame)["patch"].clone()).expect("a patch");
                           let mut reached = before.clone();
                           json_patch::patch(&mut reached, &patch).expect("it applies");
                           prop_assert_eq!(Some(&reached), states.last());
                           let large = last.max(frame.plain().len());
                           prop_assert!(log.merged_bytes <= most.max(large), "{} bytes merged", log.merged_bytes);
                       }
                   }
               }
           }
       }
}
