//! Markers of the map, and the game server's reports of them.

use super::LiveState;
use crate::{
    domain::{
        change::Section,
        detect::MapContext,
        map::{Marker, MarkerKind},
        reporting::Reports,
        time::Moment,
    },
    game::{reading, wire::AppMapMarkers},
    relay::state::outcome::Outcome,
};

/// Shops that may well vanish together, and answers without any after which more are believed to have.
const FEW_SHOPS: usize = 5;
pub(super) const TRUNCATED_BELIEVED: u32 = 5;

impl LiveState {
    pub(super) fn update_markers(&mut self, markers: AppMapMarkers, now: Moment, outcome: &mut Outcome) {
        let map_size = self.map_size();
        let markers = reading::markers(markers, map_size);
        if self.is_truncated(&markers) {
            return;
        }
        self.freshness.markers = Some(now);
        outcome.shops_seen = true;
        self.state.map_markers.replace(Section::MapMarkers, markers, &mut outcome.changes);
        let around = MapContext { map_size, monuments: &self.monuments };
        let markers = self.state.map_markers.iter().map(|(id, marker)| (*id, marker));
        outcome.events.extend(self.detectors.markers(&around, markers, now));
    }

    pub(super) fn update_reports(&mut self, reports: Reports, outcome: &mut Outcome) {
        self.detectors.set_reports(reports);
        self.state.edit_server(&mut outcome.changes, |server| server.reports = reports);
    }

    /// True if an answer has lost its shops on the way: all gone at once is not believed at first (protocol §4.1).
    fn is_truncated(&mut self, markers: &[(u64, Marker)]) -> bool {
        let is_shop = |marker: &Marker| marker.kind == MarkerKind::VendingMachine;
        let known = self.state.map_markers.iter().filter(|(_, marker)| is_shop(marker)).count();
        let truncated = known > FEW_SHOPS && !markers.iter().any(|(_, marker)| is_shop(marker));
        self.truncated = if truncated { self.truncated + 1 } else { 0 };
        (1..TRUNCATED_BELIEVED).contains(&self.truncated)
    }
}
