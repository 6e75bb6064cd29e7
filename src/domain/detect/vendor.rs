//! The travelling vendor: on the road, halted, gone.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    events::Events,
    presence::{Sighting, Sightings},
    track::{Track, Turn},
};
use crate::domain::{map::Marker, time::Moment, world_event::EventKind};

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Vendor(Sightings<u64, Track>);

impl Vendor {
    pub(super) fn new() -> Self {
        Self(Sightings::new(16))
    }

    pub(super) fn take_over(&mut self, mut other: Self, now: Moment) {
        other.0.present_mut().for_each(|track| track.bring_to(now));
        self.0.take_over(other.0, now);
    }

    pub(super) fn see(&mut self, id: u64, marker: &Marker, events: &mut Events) {
        let now = events.now;
        let Some((sighting, track)) = self.0.see(id, || Track::new(marker, now)) else { return };
        let turn = track.follow(marker, now);
        let (action, text) = match (sighting, turn) {
            (Sighting::New, _) => ("spawned", "is on the road"),
            (Sighting::Back, _) => ("returned", "is still"),
            (Sighting::Known, Some(Turn::Halted)) => ("halted", "halted"),
            (Sighting::Known, Some(Turn::Resumed)) => ("resumed", "drives on"),
            (Sighting::Known, None) => return,
        };
        let (at, data) = (marker.place.metres(), json!({ "markerId": id.to_string() }));
        events.report(EventKind::Vendor, action, Some(at), data, |place| format!("Travelling vendor {text} {place}"));
    }

    pub(super) fn sweep(&mut self, events: &mut Events) {
        self.0.sweep(events.now, events.priming, |id, track| {
            let (at, data) = ((track.x, track.y), json!({ "markerId": id.to_string() }));
            let title = |place: &str| format!("Travelling vendor is gone, last seen {place}");
            events.report(EventKind::Vendor, "left", Some(at), data, title);
        });
    }
}

#[cfg(test)]
mod tests {
    use crate::domain::{
        detect::testing::{Timeline, marker},
        map::Marker,
        map::MarkerKind::TravellingVendor,
    };

    fn vendor(x: f64) -> [(u64, Marker); 1] {
        [(4, marker(TravellingVendor, x, 1000.0))]
    }

    #[test]
    fn a_round_trip_is_reported_step_by_step() {
        let mut timeline = Timeline::new(3000);
        timeline.primed();
        let steps = [(5, 100.0), (10, 150.0), (15, 150.0), (20, 150.0), (25, 200.0), (30, 250.0)];
        let reported: Vec<_> =
            steps.into_iter().flat_map(|(seconds, x)| timeline.actions(seconds, &vendor(x))).collect();
        assert_eq!(reported, ["spawned", "halted", "resumed"]);
        let reported: Vec<_> = [35, 40, 45].into_iter().flat_map(|seconds| timeline.actions(seconds, &[])).collect();
        assert_eq!(reported, ["left"]);
        assert_eq!(timeline.last().x, Some(250.0));
    }
}
