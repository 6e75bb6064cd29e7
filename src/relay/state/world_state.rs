//! The game server's part of the live state: its world and map, its markers, its clock, and what it says of itself.

use std::sync::Arc;

use chrono::TimeDelta;
use serde_json::value::{RawValue, to_raw_value};

use crate::{
    domain::{
        change::{Change, Section},
        detect::{EventWindow, map_detectors::MapDetectors, wipe::World},
        map::{Marker, MarkerKind},
        monument::Monument,
        plain_text::plain_text,
        server_state::Keyed,
        team_command::daylight::{DaySpeeds, GameClock},
        time::{Moment, Timestamp},
        world_event::WorldEvent,
        world_map::MonumentMap,
    },
    game::{
        reading,
        wire::{AppInfo, AppMap, AppMapMarkers, AppTime},
    },
    relay::state::{game_update::WorldUpdate, outcome::WorldOutcome, world_facts::WorldFacts},
};

/// Shops that may well vanish together, and answers without any after which more are believed to have.
const FEW_SHOPS: usize = 5;
/// Answers without many known shops after which they are believed; fewer than `FEW_SHOPS` are believed at once.
pub const TRUNCATED_BELIEVED: u32 = 5;

/// See the module.
#[derive(Default)]
pub struct WorldState {
    facts: Arc<WorldFacts>,
    /// The world that is known was perhaps never stored.
    is_unstored: bool,
    /// Marker answers without shops in a row.
    truncated: u32,
    detectors: MapDetectors,
}

/// One step of the game server's part, for all who show it. Its facts are shown as they then are.
#[derive(Default)]
pub struct WorldStep {
    /// Changes of the markers.
    pub changes: Vec<Change>,
    pub events: Vec<WorldEvent>,
    pub outcome: WorldOutcome,
    /// The map has another size: a place may have another label.
    pub is_resized: bool,
    /// A new map: nothing of the old one remains.
    pub is_wiped: bool,
}

impl WorldState {
    /// The facts; clones share them until more is known.
    pub fn facts(&self) -> &Arc<WorldFacts> {
        &self.facts
    }

    /// Takes in the stored world. One that is known here is newer.
    pub fn remember(&mut self, world: Option<World>, monuments: Option<Vec<Monument>>) {
        let facts = Arc::make_mut(&mut self.facts);
        if facts.world.is_none() {
            let map = world.clone().zip(monuments).map(|(world, monuments)| MonumentMap { world, monuments });
            (facts.map, facts.world) = (map.map(Arc::new), world);
        }
    }

    /// The detectors of its map, for the node that has the server next.
    pub fn hand_over(&self) -> Option<Box<RawValue>> {
        to_raw_value(&self.detectors).ok()
    }

    /// Goes on with the world that another node knew, which may be newer than the stored one, and with the detectors of its
    /// map. The link was lost there then.
    pub fn take_over(&mut self, world: Option<World>, map: Option<&RawValue>, lost_at: Moment, now: Moment) {
        let facts = Arc::make_mut(&mut self.facts);
        if let Some(world) = world
            && facts.world.as_ref() != Some(&world)
        {
            if facts.map.as_ref().is_some_and(|map| !map.is_of(&world)) {
                facts.map = None;
            }
            (facts.world, self.is_unstored) = (Some(world), true);
        }
        if let Some(detectors) = map.and_then(|map| serde_json::from_str(map.get()).ok()) {
            self.detectors.take_over(detectors, lost_at, now);
        }
    }

    /// Takes in the stored speeds of day and night.
    pub fn remember_speeds(&mut self, speeds: DaySpeeds) {
        Arc::make_mut(&mut self.facts).day.remember(speeds);
    }

    /// The link was lost.
    pub fn link_lost(&mut self, now: Moment) {
        self.detectors.link_lost(now);
        Arc::make_mut(&mut self.facts).day.interrupt();
    }

    /// There is a new link.
    pub fn link_up(&mut self, now: Moment) {
        self.detectors.link_up(now);
    }

    /// When a timer of a detector comes due.
    pub fn next_due(&self) -> Option<Moment> {
        self.detectors.next_due()
    }

    /// Events that come due without an answer.
    pub fn tick(&mut self, now: Moment, window: &mut EventWindow) -> Vec<WorldEvent> {
        self.detectors.tick(now, window)
    }

    /// Applies an update.
    pub fn update(&mut self, update: WorldUpdate, now: Moment, window: &mut EventWindow) -> WorldStep {
        let mut step = WorldStep::default();
        match update {
            WorldUpdate::Info(info) => self.update_info(&info, now, window, &mut step),
            WorldUpdate::Time(time) => self.update_time(&time, now, &mut step),
            WorldUpdate::Markers(markers) => self.update_markers(markers, now, window, &mut step),
            WorldUpdate::SharedMarkers(markers) => self.share_markers(markers, now, window, &mut step),
            WorldUpdate::Reports(reports) => {
                self.detectors.set_reports(reports);
                Arc::make_mut(&mut self.facts).head.reports = reports;
            }
            WorldUpdate::Map(map) => self.update_map(&map, &mut step),
            WorldUpdate::SharedMap(map) => self.share_map(map, &mut step),
        }
        step
    }

    /// Takes in what the game server says of itself.
    fn update_info(&mut self, info: &AppInfo, now: Moment, window: &mut EventWindow, step: &mut WorldStep) {
        let facts = Arc::make_mut(&mut self.facts);
        facts.info_at = Some(now);
        let seen = reading::world(info);
        let wipe = facts.world.as_ref().and_then(|known| known.compare(&seen));
        let world = facts.world.clone().unwrap_or_default().updated(seen);
        let is_unstored = std::mem::take(&mut self.is_unstored);
        if is_unstored || facts.world.as_ref() != Some(&world) {
            facts.world = Some(world);
            step.outcome.learned = true;
        }
        step.is_resized = std::mem::replace(&mut facts.map_size, info.map_size) != info.map_size;
        let head = &mut facts.head;
        head.name = Some(plain_text(&info.name, 128)).filter(|name| !name.is_empty());
        head.map_size = Some(info.map_size).filter(|size| *size != 0);
        head.map_seed = info.seed.filter(|seed| *seed != 0);
        head.players = Some(info.players);
        head.max_players = Some(info.max_players);
        head.queued_players = Some(info.queued_players);
        head.wiped_at = Timestamp::from_unix(info.wipe_time);
        if let Some(wipe) = wipe {
            *window = EventWindow::default();
            self.wipe(now, step);
            step.events.push(wipe.event(now.stamp));
        }
        step.outcome.map_wanted = self.wants_map();
    }

    /// A new map: nothing of the old one remains.
    fn wipe(&mut self, now: Moment, step: &mut WorldStep) {
        step.is_wiped = true;
        self.detectors.wiped();
        let facts = Arc::make_mut(&mut self.facts);
        facts.wiped_at = Some(now.stamp);
        facts.map = None;
        facts.markers.replace(Section::MapMarkers, [], &mut step.changes);
    }

    /// True if the map must be asked for.
    pub fn wants_map(&self) -> bool {
        let known = self.facts.map.as_ref().zip(self.facts.world.as_ref());
        !known.is_some_and(|(map, world)| map.is_of(world))
    }

    /// The map of this world.
    fn update_map(&mut self, map: &AppMap, step: &mut WorldStep) {
        let facts = Arc::make_mut(&mut self.facts);
        let monuments = reading::monuments(map);
        facts.map = facts.world.clone().map(|world| MonumentMap { world, monuments }.into());
        step.outcome.learned = facts.world.is_some();
    }

    /// The map as another link to the game server has it, unless that is of another world.
    fn share_map(&mut self, map: Arc<MonumentMap>, step: &mut WorldStep) {
        let is_known = self.facts.map.as_ref() == Some(&map);
        let is_ours = |world: &World| map.is_of(world) && map.world.is_same(world);
        if is_known || (self.wants_map() && self.facts.world.as_ref().is_some_and(is_ours)) {
            Arc::make_mut(&mut self.facts).map = Some(map);
            step.outcome.learned = !is_known;
        }
    }

    /// The game's clock.
    fn update_time(&mut self, time: &AppTime, now: Moment, step: &mut WorldStep) {
        let facts = Arc::make_mut(&mut self.facts);
        facts.time_at = Some(now);
        let clock =
            GameClock { hour: f64::from(time.time), sunrise: f64::from(time.sunrise), sunset: f64::from(time.sunset) };
        if facts.day.read(clock, now) {
            step.outcome.speeds = Some(facts.day.speeds());
        }
        let speeds = facts.day.speeds();
        let (day_seconds, night_seconds) = speeds.lengths(clock);
        let next = speeds.left(clock).map(|left| now.stamp + left);
        // A tenth of an hour is what a clock face shows.
        let hour = |hour: f32| (0.0..=24.0).contains(&hour).then(|| (f64::from(hour) * 10.0).round() / 10.0);
        let head = &mut facts.head;
        head.hour = hour(time.time);
        head.sunrise = hour(time.sunrise);
        head.sunset = hour(time.sunset);
        (head.day_seconds, head.night_seconds) = (day_seconds, night_seconds);
        // Readings are rounded: the time that was said stays until it is off by more.
        let is_near = |known: Timestamp, next: Timestamp| (known - next).abs() < TimeDelta::seconds(15);
        if !head.day_night_at.zip(next).is_some_and(|(known, next)| is_near(known, next)) {
            head.day_night_at = next;
        }
    }

    /// The markers on the map.
    fn update_markers(&mut self, markers: AppMapMarkers, now: Moment, window: &mut EventWindow, step: &mut WorldStep) {
        let markers = reading::markers(markers, self.facts.map_size);
        if !self.is_truncated(&markers) {
            let facts = Arc::make_mut(&mut self.facts);
            facts.markers.replace(Section::MapMarkers, markers, &mut step.changes);
            self.markers_seen(now, window, step);
        }
    }

    /// The markers on the map, which a mate's link has and believes.
    fn share_markers(
        &mut self,
        markers: Keyed<u64, Marker>,
        now: Moment,
        window: &mut EventWindow,
        step: &mut WorldStep,
    ) {
        self.truncated = 0;
        Arc::make_mut(&mut self.facts).markers.share(Section::MapMarkers, markers, &mut step.changes);
        self.markers_seen(now, window, step);
    }

    fn markers_seen(&mut self, now: Moment, window: &mut EventWindow, step: &mut WorldStep) {
        let facts = Arc::make_mut(&mut self.facts);
        facts.markers_at = Some(now);
        step.outcome.shops_seen = true;
        let markers = facts.markers.iter().map(|(id, marker)| (*id, marker));
        step.events = self.detectors.markers(&facts.around(), markers, now, window);
    }

    /// True if an answer has lost its shops on the way: all gone at once is not believed at first (protocol §4.1).
    fn is_truncated(&mut self, markers: &[(u64, Marker)]) -> bool {
        let is_shop = |marker: &Marker| marker.kind == MarkerKind::VendingMachine;
        let known = self.facts.markers.iter().filter(|(_, marker)| is_shop(marker)).count();
        let truncated = known > FEW_SHOPS && !markers.iter().any(|(_, marker)| is_shop(marker));
        self.truncated = if truncated { self.truncated + 1 } else { 0 };
        (1..TRUNCATED_BELIEVED).contains(&self.truncated)
    }
}
