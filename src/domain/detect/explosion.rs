//! Explosions, which older servers mark when a helicopter or tank is destroyed.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    events::Events,
    heli::Heli,
    presence::{Sighting, Sightings},
};
use crate::domain::{map::Marker, time::Moment, world_event::EventKind};

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Explosions(Sightings<u64, ()>);

impl Explosions {
    pub(super) fn new() -> Self {
        Self(Sightings::new(256))
    }

    pub(super) fn take_over(&mut self, other: Self, now: Moment) {
        self.0.take_over(other.0, now);
    }

    pub(super) fn see(&mut self, id: u64, marker: &Marker, heli: &Heli, events: &mut Events) {
        let Some((Sighting::New, ())) = self.0.see(id, || ()) else { return };
        let (x, y) = marker.place.metres();
        let helicopter = heli.was_lost_near(x, y);
        let data = json!({ "markerId": id.to_string(), "patrolHelicopter": helicopter });
        let text = if helicopter { "Patrol helicopter crashed" } else { "Explosion" };
        events.report(EventKind::Explosion, "exploded", Some((x, y)), data, |place| format!("{text} {place}"));
    }

    pub(super) fn sweep(&mut self, events: &mut Events) {
        self.0.sweep(events.now, events.priming, |_, ()| {});
    }
}

#[cfg(test)]
mod tests {
    use crate::domain::{
        detect::testing::{Timeline, marker},
        map::MarkerKind::{Explosion, PatrolHelicopter},
    };

    #[test]
    fn an_explosion_is_reported_once() {
        let mut timeline = Timeline::new(3000);
        timeline.primed();
        let explosion = [(3, marker(Explosion, 200.0, 2900.0))];
        assert_eq!(timeline.actions(5, &explosion), ["exploded"]);
        assert_eq!(timeline.last().title, "Explosion in B0");
        assert_eq!(timeline.actions(10, &explosion), [""; 0]);
    }

    #[test]
    fn an_explosion_where_the_helicopter_was_lost_is_its_crash() {
        let mut timeline = Timeline::new(3000);
        timeline.actions(0, &[(6, marker(PatrolHelicopter, 1500.0, 1500.0))]);
        assert_eq!(timeline.actions(5, &[(3, marker(Explosion, 1600.0, 1500.0))]), ["exploded"]);
        assert_eq!(timeline.last().data["patrolHelicopter"], true);
    }
}
