//! Scripted timelines for the tests of the detectors.

use std::sync::Arc;

use chrono::TimeDelta;

use super::{
    events::{EventWindow, MapContext},
    map_detectors::MapDetectors,
    team::TeamDetector,
};
use crate::domain::{
    map::{MapPlace, Marker, MarkerKind, SellOrder},
    monument::Monument,
    server_state::Member,
    time::{Moment, Timestamp},
    world_event::WorldEvent,
};

/// Seconds since 1970.
pub(super) fn at(seconds: i64) -> Moment {
    (Timestamp::UNIX_EPOCH + TimeDelta::seconds(seconds)).into()
}

pub(super) fn marker(kind: MarkerKind, x: f64, y: f64) -> Marker {
    Marker::new(kind, MapPlace::at(x, y), 4_000)
}

/// A vending machine with orders (item, quantity, cost, in stock), paid in scrap.
pub(super) fn shop(x: f64, y: f64, name: &str, orders: &[(i32, i32, i32, i32)]) -> Marker {
    let sell_orders = orders.iter().map(|&(item_id, quantity, cost, in_stock)| SellOrder {
        item_id,
        quantity,
        currency_id: -932201673,
        cost,
        in_stock,
        item_is_blueprint: false,
        currency_is_blueprint: false,
        condition: None,
    });
    Marker { name: Some(name.into()), sell_orders: sell_orders.collect(), ..marker(MarkerKind::VendingMachine, x, y) }
}

pub(super) fn monument(token: &str, x: f64, y: f64) -> Monument {
    Monument::new(token, x, y).expect("a place")
}

/// Feeds a game server's answers to its detectors.
pub(super) struct Timeline {
    map: MapDetectors,
    team: TeamDetector,
    window: EventWindow,
    map_size: u32,
    monuments: Vec<Monument>,
    last: Option<WorldEvent>,
}

impl Timeline {
    pub(super) fn new(map_size: u32) -> Self {
        Self {
            map: MapDetectors::default(),
            team: TeamDetector::default(),
            window: EventWindow::default(),
            map_size,
            monuments: Vec::new(),
            last: None,
        }
    }

    pub(super) fn with(mut self, monument: Monument) -> Self {
        self.monuments.push(monument);
        self
    }

    /// An empty first answer.
    pub(super) fn primed(&mut self) {
        self.actions(0, &[]);
    }

    /// An answer of markers; returns the actions of its events.
    pub(super) fn actions(&mut self, seconds: i64, markers: &[(u64, Marker)]) -> Vec<&'static str> {
        let around = MapContext { map_size: self.map_size, monuments: &self.monuments };
        let markers: Vec<_> = markers.iter().map(|(id, marker)| (*id, Arc::new(marker.clone()))).collect();
        let markers = markers.iter().map(|(id, marker)| (*id, marker));
        let events = self.map.markers(&around, markers, at(seconds), &mut self.window);
        self.actions_of(events)
    }

    /// An answer of the team; returns the actions of its events.
    pub(super) fn team(&mut self, seconds: i64, leader: &str, members: &[(u64, Member)]) -> Vec<&'static str> {
        let around = MapContext { map_size: self.map_size, monuments: &self.monuments };
        let members = members.iter().map(|(id, member)| (*id, member));
        let events = self.team.answer(&around, Some(leader), members, at(seconds), &mut self.window);
        self.actions_of(events)
    }

    pub(super) fn tick(&mut self, seconds: i64) -> Vec<&'static str> {
        let due = self.map.next_due();
        let events = self.map.tick(at(seconds), &mut self.window);
        assert!(events.is_empty() || due.is_some_and(|due| due <= at(seconds)), "it was due");
        assert!(self.map.next_due().is_none_or(|due| due > at(seconds)), "nothing more is due");
        self.actions_of(events)
    }

    pub(super) fn link_lost(&mut self, seconds: i64) {
        self.map.link_lost(at(seconds));
        self.team.link_lost(at(seconds));
    }

    pub(super) fn link_up(&mut self, seconds: i64) {
        self.map.link_up(at(seconds));
        self.team.link_up(at(seconds));
    }

    /// The detectors of another process follow the map from now on, whose link came up then.
    pub(super) fn hand_over(&mut self, lost_at: i64, up_at: i64) {
        let memory = serde_json::to_string(&self.map).expect("JSON");
        self.map = MapDetectors::default();
        self.map.take_over(serde_json::from_str(&memory).expect("JSON"), at(lost_at), at(up_at));
        self.map.link_up(at(up_at));
    }

    pub(super) fn wiped(&mut self) {
        self.map.wiped();
        self.team.wiped();
    }

    /// The latest event.
    pub(super) fn last(&self) -> &WorldEvent {
        self.last.as_ref().expect("there was an event")
    }

    fn actions_of(&mut self, events: Vec<WorldEvent>) -> Vec<&'static str> {
        let actions = events.iter().map(|event| event.action).collect();
        self.last = events.into_iter().last().or(self.last.take());
        actions
    }
}
