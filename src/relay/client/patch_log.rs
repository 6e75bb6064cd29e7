//! The position of a server's state as one thread knows it, and the last steps to it. Pure.
//!
//! A client at an earlier position gets **one** patch from there to now, shared by all clients at the same position, or
//! a snapshot when that is smaller or the steps do not reach back. No client has a queue of patches.
//!
//! A client that wants some keys of the state is in a stream of its own, shared by all that want the same: its epoch
//! has the number of the set, and its `seq` is that at which one of its keys changed last. So all that are up to date
//! are at one position, however long nothing changed for them, and a step in other keys is none for them.
//!
//! See [`Steps`] for how far back that is.

use std::sync::Arc;

use crate::{
    catalogue::SharedCatalogue,
    domain::{
        change::{self, JsonPatch},
        ids::ServerId,
        sections::{Sections, StateKey},
        time::Moment,
    },
    relay::wire::{
        frame::SharedFrame,
        protocol,
        publication::Position,
        steps::{Step, Steps},
    },
};

/// The step that brings a client to now.
#[derive(Debug, PartialEq)]
pub enum CatchUp {
    /// The client is there.
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
    catalogue: SharedCatalogue,
    position: Position,
    steps: Steps,
    /// Merged patches to the current position, by the `seq` they start from and what they are of.
    merged: Vec<(u64, Sections, SharedFrame)>,
    merged_bytes: usize,
    /// The snapshot of the current position, once a client needed it.
    snapshot: Option<SharedFrame>,
    /// Snapshots of some keys at the current position.
    parts: Vec<(Sections, SharedFrame)>,
}

impl PatchLog {
    /// A log without a position; only a snapshot gives it one.
    pub fn new(server: ServerId, catalogue: SharedCatalogue) -> Self {
        Self {
            server,
            catalogue,
            position: NOWHERE,
            steps: Steps::default(),
            merged: Vec::new(),
            merged_bytes: 0,
            snapshot: None,
            parts: Vec::new(),
        }
    }

    /// Where the state is.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Where these keys of the state are.
    pub fn head(&self, sections: Sections) -> Position {
        if sections.is_all() || self.position == NOWHERE {
            return self.position;
        }
        Position { epoch: self.position.epoch + sections.number(), seq: self.steps.changed_at(sections) }
    }

    /// The snapshot of these keys at this very position, if it is here. One for all.
    pub fn snapshot(&mut self, sections: Sections) -> Option<SharedFrame> {
        let whole = self.snapshot.clone()?;
        if sections.is_all() {
            return Some(whole);
        }
        if let Some((_, part)) = self.parts.iter().find(|(known, _)| *known == sections) {
            return Some(part.clone());
        }
        let part = protocol::part_of_snapshot(&self.server, self.head(sections), &whole, sections);
        self.parts.push((sections, part.clone()));
        Some(part)
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
        self.parts.clear();
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

    /// Stores a snapshot: of now, or of a later position that the steps did not reach, with the steps to there. True if
    /// it is a later one.
    pub fn restart(&mut self, position: Position, snapshot: SharedFrame, steps: Steps) -> bool {
        let is_later = position != self.position;
        if is_later {
            self.position = position;
            self.steps = steps;
            self.forget_merged();
        }
        self.steps.set_snapshot_size(snapshot.plain().len());
        self.snapshot = Some(snapshot);
        self.parts.clear();
        is_later
    }

    /// Forgets everything; only a snapshot gives it a position again.
    pub fn clear(&mut self) {
        *self = Self::new(self.server.clone(), self.catalogue.clone());
    }

    /// The patch that brings these keys of a client from `from` to now.
    pub fn since(&mut self, from: Position, sections: Sections) -> CatchUp {
        let head = self.head(sections);
        if head == NOWHERE {
            return CatchUp::Snapshot;
        }
        if from == head {
            return CatchUp::Nothing;
        }
        if from.epoch != head.epoch || from.seq > head.seq || !self.steps.reach(from.seq, sections) {
            return CatchUp::Snapshot;
        }
        if sections.is_all()
            && let Some(last) = self.steps.last()
            && last.base == from.seq
        {
            return CatchUp::Patch { frame: last.frame.clone(), large: false };
        }
        if let Some((.., frame)) = self.merged.iter().find(|(base, of, _)| (*base, *of) == (from.seq, sections)) {
            return self.patch(frame.clone());
        }
        let changes = self.steps.changes_since(from.seq);
        let changes = change::merge(changes.filter(|change| sections.contains(StateKey::from(change.section))));
        let patch = JsonPatch { changes: &changes, catalogue: &self.catalogue.current() };
        let frame = protocol::patch(&self.server, from.epoch, from.seq, head.seq, patch);
        if self.merged_bytes + frame.plain().len() > self.steps.most_bytes() {
            self.forget_merged();
        }
        self.merged_bytes += frame.plain().len();
        self.merged.push((from.seq, sections, frame.clone()));
        self.patch(frame)
    }

    /// The patch for a client that came back and has the current position of these keys already.
    pub fn unchanged(&self, sections: Sections) -> SharedFrame {
        let Position { epoch, seq } = self.head(sections);
        let patch = JsonPatch { changes: &[], catalogue: &self.catalogue.current() };
        protocol::patch(&self.server, epoch, seq, seq, patch)
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
            change::{Change, Section},
            items::Catalogue,
            map::{MapPlace, Marker, MarkerKind},
            server_state::{Member, ServerState},
            time::Timestamp,
        },
        relay::wire::steps::FEW_BYTES,
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
        Step::new(base, Vec::new(), Bytes::from(format!("{base}")).into(), Catalogue::embedded(), after(0))
    }

    fn log(steps: u64) -> PatchLog {
        let mut log = PatchLog::new("one".into(), SharedCatalogue::default());
        log.restart(at(0), frame(b"a snapshot that is longer than the patches of these tests, which are of no change: {\"type\":\"patch\",\"serverId\":\"one\",\"epoch\":7,\"base\":0,\"seq\":0,\"patch\":[]}"), Steps::default());
        (0..steps).for_each(|base| assert!(log.advance(EPOCH, step(base))));
        log
    }

    #[test]
    fn a_client_at_the_last_position_gets_that_steps_own_frame() {
        let mut log = log(3);
        assert_eq!(log.since(at(3), Sections::ALL), CatchUp::Nothing);
        assert_eq!(log.since(at(2), Sections::ALL), CatchUp::Patch { frame: frame(b"2"), large: false });
    }

    #[test]
    fn clients_at_the_same_earlier_position_share_one_merged_frame() {
        let mut log = log(3);
        let CatchUp::Patch { frame, large: false } = log.since(at(0), Sections::ALL) else { panic!("a patch was due") };
        let CatchUp::Patch { frame: again, .. } = log.since(at(0), Sections::ALL) else { panic!("a patch was due") };
        assert_eq!(frame.plain().as_ptr(), again.plain().as_ptr());
        assert!(log.advance(EPOCH, step(3)));
        assert_ne!(
            log.since(at(0), Sections::ALL),
            CatchUp::Patch { frame, large: false },
            "a merged frame ends at its position"
        );
    }

    #[test]
    fn what_the_steps_do_not_reach_needs_a_snapshot() {
        let mut log = log(20);
        assert!(matches!(log.since(at(0), Sections::ALL), CatchUp::Patch { .. }));
        assert_eq!(
            log.since(Position { epoch: EPOCH + 1, seq: 10 }, Sections::ALL),
            CatchUp::Snapshot,
            "another epoch"
        );
        assert_eq!(log.since(at(21), Sections::ALL), CatchUp::Snapshot, "later than now");
        assert!(!log.advance(EPOCH, step(5)), "a step that does not follow");
        assert!(!log.advance(EPOCH + 1, step(20)), "a step of another epoch");
    }

    #[test]
    fn no_client_has_what_the_log_does_not() {
        let mut log = PatchLog::new("one".into(), SharedCatalogue::default());
        assert_eq!(log.since(NOWHERE, Sections::ALL), CatchUp::Snapshot);
        log.restart(at(0), frame(b"now"), Steps::default());
        assert_eq!(
            (log.since(NOWHERE, Sections::ALL), log.since(at(0), Sections::ALL)),
            (CatchUp::Snapshot, CatchUp::Nothing)
        );
    }

    #[test]
    fn who_is_at_a_step_that_is_forgotten_needs_a_snapshot() {
        let mut log = log(5);
        assert!(log.advance(EPOCH, Step::new(5, Vec::new(), frame(b"5"), Catalogue::embedded(), after(1))));
        log.forget_old(after(60));
        assert!(matches!(log.since(at(0), Sections::ALL), CatchUp::Patch { .. }));
        log.forget_old(after(61));
        assert_eq!(log.since(at(4), Sections::ALL), CatchUp::Snapshot, "forgotten");
        assert!(matches!(log.since(at(5), Sections::ALL), CatchUp::Patch { .. }));
        log.forget_old(after(62));
        assert_eq!(
            (log.since(at(5), Sections::ALL), log.since(at(6), Sections::ALL)),
            (CatchUp::Snapshot, CatchUp::Nothing)
        );
    }

    #[test]
    fn a_snapshot_is_of_its_position_only() {
        let mut log = log(1);
        assert_eq!(log.snapshot(Sections::ALL), None, "a step made it old");
        log.restart(at(1), frame(b"now"), Steps::default());
        assert_eq!(log.snapshot(Sections::ALL), Some(frame(b"now")));
        assert!(matches!(log.since(at(0), Sections::ALL), CatchUp::Patch { .. }), "the steps stay");
        log.restart(at(9), frame(b"later"), Steps::default());
        assert_eq!(log.since(at(1), Sections::ALL), CatchUp::Snapshot);
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
           fn a_client_within_the_log_arrives_at_now_and_the_log_is_no_larger_than_a_snapshot(
               markers in 1..200_u16,
               steps in prop::collection::vec((prop::collection::vec((0..200_u16, any::<u16>()), 0..60), 0..9_i64), 1..40),
           ) {
               let server = ServerId::from("one");
               let (mut state, mut log, mut now) = (ServerState::new(Timestamp::UNIX_EPOCH), PatchLog::new(server.clone(), SharedCatalogue::default()), 0);
               let all = (0..markers).map(|id| (u64::from(id), marker(0)));
               state.map_markers.replace(Section::MapMarkers, all, &mut Vec::new());
               let snapshot = protocol::snapshot(&server, EPOCH, 0, &state.document(Catalogue::embedded()));
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
                   let frame = protocol::patch(&server, EPOCH, base, base + 1, JsonPatch { changes: &changes, catalogue: Catalogue::embedded() });
                   let step = Step::new(base, changes, frame, Catalogue::embedded(), after(now));
                   let last = step.bytes;
                   prop_assert!(log.advance(EPOCH, step));
                   states.push(json(&protocol::snapshot(&server, EPOCH, base + 1, &state.document(Catalogue::embedded())))["state"].clone());
                   let most = snapshot.plain().len().max(FEW_BYTES);
                   for (seq, before) in states.iter().enumerate() {
                       if let CatchUp::Patch { frame, .. } = log.since(at(seq as u64), Sections::ALL) {
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

    /// A client that wants some keys of the state.
    struct Watching {
        sections: Sections,
        position: Option<Position>,
        state: Value,
    }

    impl Watching {
        /// Takes what the log has for it, by the rules of the send queue. True if it is up to date.
        fn catch_up(&mut self, log: &mut PatchLog, whole: &SharedFrame) -> bool {
            let catch_up = self.position.map_or(CatchUp::Snapshot, |from| log.since(from, self.sections));
            match catch_up {
                CatchUp::Nothing => {}
                CatchUp::Patch { frame, .. } if !self.sections.is_all() && protocol::is_empty_patch(&frame) => {}
                CatchUp::Patch { frame, .. } => {
                    let message = json(&frame);
                    let at = self.position.unwrap();
                    assert_eq!((&message["epoch"], &message["base"]), (&at.epoch.into(), &at.seq.into()));
                    let patch: json_patch::Patch = serde_json::from_value(message["patch"].clone()).unwrap();
                    json_patch::patch(&mut self.state, &patch).expect("it applies");
                    self.take(&message);
                }
                CatchUp::Snapshot => {
                    if log.snapshot(self.sections).is_none() {
                        log.restart(log.position(), whole.clone(), Steps::default());
                    }
                    let message = json(&log.snapshot(self.sections).unwrap());
                    self.state = message["state"].clone();
                    self.take(&message);
                }
            }
            self.state == part(whole, self.sections)
        }

        fn take(&mut self, message: &Value) {
            let number = |name: &str| message[name].as_u64().unwrap();
            self.position = Some(Position { epoch: number("epoch"), seq: number("seq") });
        }
    }

    /// These keys of a snapshot's state.
    fn part(whole: &SharedFrame, sections: Sections) -> Value {
        let mut state = json(whole)["state"].clone();
        state.as_object_mut().unwrap().retain(|key, _| sections.iter().any(|wanted| wanted.word() == key));
        state
    }

    fn edit(state: &mut ServerState, kind: u8, id: u64, value: u16) -> Vec<Change> {
        let mut changes = Vec::new();
        match kind {
            0 => state.edit_server(&mut changes, |server| server.hour = Some(f64::from(value % 3))),
            1 => state.edit_team(&mut changes, |team| team.leader_id = Some(value.to_string())),
            2 => {
                let member = (!value.is_multiple_of(4)).then(|| Member {
                    name: value.to_string(),
                    x: None,
                    y: None,
                    grid: String::new(),
                    online: false,
                    alive: true,
                    spawned_at: None,
                    died_at: None,
                    afk_since: None,
                });
                state.members.put(Section::Members, id, member, &mut changes);
            }
            _ => {
                let value = (!value.is_multiple_of(4)).then(|| marker(value));
                state.map_markers.put(Section::MapMarkers, id, value, &mut changes);
            }
        }
        changes
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

        #[test]
        fn a_client_of_some_keys_has_them_as_the_server_and_hears_of_no_others(
            steps in prop::collection::vec(
                (prop::collection::vec((0..4_u8, 0..5_u64, any::<u16>()), 1..4), 0..40_i64, any::<u8>()),
                1..60,
            ),
        ) {
            let server = ServerId::from("one");
            let sets = ["", "server", "team", "mapMarkers", "server mapMarkers", "team raids", "server team mapMarkers devices mapNotes raids"];
            let sets = sets.map(|text| Sections::from(text.to_owned()));
            let mut clients: Vec<Watching> = (0..2).flat_map(|_| sets).map(|sections| {
                Watching { sections, position: None, state: Value::Null }
            }).collect();
            let (mut state, mut log, mut now, mut seq) = (ServerState::new(Timestamp::UNIX_EPOCH), PatchLog::new(server.clone(), SharedCatalogue::default()), 0, 0);
            let epoch = 3 * Sections::SETS;
            log.restart(Position { epoch, seq }, protocol::snapshot(&server, epoch, seq, &state.document(Catalogue::embedded())), Steps::default());
            for (edits, pause, who) in steps {
                now += pause;
                let mut changes = Vec::new();
                for (kind, id, value) in edits {
                    changes.extend(edit(&mut state, kind, id, value));
                }
                if !changes.is_empty() {
                    let before: Vec<(Sections, Position)> = sets.iter().map(|set| (*set, log.head(*set))).collect();
                    let frame = protocol::patch(&server, epoch, seq, seq + 1, JsonPatch { changes: &changes, catalogue: Catalogue::embedded() });
                    let step = Step::new(seq, changes, frame, Catalogue::embedded(), after(now));
                    let changed = step.sections();
                    prop_assert!(log.advance(epoch, step));
                    seq += 1;
                    for (set, head) in before {
                        prop_assert_eq!(log.head(set) == head, changed.and(set).is_empty(), "{:?}", set);
                    }
                }
                let whole = protocol::snapshot(&server, epoch, seq, &state.document(Catalogue::embedded()));
                for (index, client) in clients.iter_mut().enumerate() {
                    // Some are slow, and some come back with what they have.
                    if who >> (index % 8) & 1 == 1 {
                        prop_assert!(client.catch_up(&mut log, &whole), "{:?}", client.sections);
                    }
                }
            }
            let whole = protocol::snapshot(&server, epoch, seq, &state.document(Catalogue::embedded()));
            for client in &mut clients {
                prop_assert!(client.catch_up(&mut log, &whole), "{:?}", client.sections);
                // With the position of one set no client goes on in another.
                for set in sets.iter().filter(|set| **set != client.sections) {
                    prop_assert_eq!(log.since(client.position.unwrap(), *set), CatchUp::Snapshot);
                }
            }
        }
    }
}
