//! Locked crates with a marker of their own, as some servers send them.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    events::Events,
    presence::{Sighting, Sightings},
};
use crate::domain::{map::Marker, time::Moment, world_event::EventKind};

/// The crates, with their last place.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Crates(Sightings<u64, (f64, f64)>);

impl Crates {
    pub(super) fn new() -> Self {
        Self(Sightings::new(64))
    }

    pub(super) fn take_over(&mut self, other: Self, now: Moment) {
        self.0.take_over(other.0, now);
    }

    pub(super) fn see(&mut self, id: u64, marker: &Marker, events: &mut Events) {
        let at = marker.place.metres();
        let Some((sighting, last)) = self.0.see(id, || at) else { return };
        *last = at;
        let (action, text) = match sighting {
            Sighting::Known => return,
            Sighting::New => ("dropped", "Locked crate"),
            Sighting::Back => ("returned", "Locked crate is still"),
        };
        let data = json!({ "markerId": id.to_string() });
        events.report(EventKind::Crate, action, Some(at), data, |place| format!("{text} {place}"));
    }

    pub(super) fn sweep(&mut self, events: &mut Events) {
        self.0.sweep(events.now, events.priming, |id, at| {
            let data = json!({ "markerId": id.to_string() });
            events.report(EventKind::Crate, "gone", Some(*at), data, |place| format!("Locked crate is gone {place}"));
        });
    }
}

#[cfg(test)]
mod tests {
    use crate::domain::{
        detect::testing::{Timeline, marker},
        map::MarkerKind::Crate,
    };

    #[test]
    fn a_crate_is_dropped_and_later_gone() {
        let mut timeline = Timeline::new(3000);
        timeline.primed();
        let dropped = [(9, marker(Crate, 100.0, 2900.0))];
        assert_eq!(timeline.actions(5, &dropped), ["dropped"]);
        assert_eq!(timeline.last().title, "Locked crate in A0");
        assert_eq!(timeline.actions(10, &dropped), [""; 0]);
        let reported: Vec<_> = [15, 20, 25].into_iter().flat_map(|seconds| timeline.actions(seconds, &[])).collect();
        assert_eq!(reported, ["gone"]);
    }
}
