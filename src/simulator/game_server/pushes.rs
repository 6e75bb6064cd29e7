//! The push messages that a game server has sent: pairings and alarms.

use std::{collections::HashMap, sync::Arc};

use chrono::TimeDelta;

use crate::{
    domain::time::Timestamp,
    simulator::{
        push_service::{PushService, PushedServer},
        world::SimulatedDevice,
    },
};

/// Shortest time between two pushes of one alarm.
const ALARM_COOLDOWN: TimeDelta = TimeDelta::seconds(30);

/// Destination of a game server's push messages.
pub struct GamePushes {
    service: Arc<PushService>,
    server: PushedServer,
    /// Android id by SteamID64.
    phones: HashMap<u64, u64>,
    /// When the last push of each alarm was sent.
    alarms: HashMap<u64, Timestamp>,
}

impl GamePushes {
    /// Sends to these phones: Android id by SteamID64.
    pub fn new(service: Arc<PushService>, server: PushedServer, phones: HashMap<u64, u64>) -> Self {
        Self { service, server, phones, alarms: HashMap::new() }
    }

    /// The player pressed "pair" in the game, and at each of these devices (entity id, name, device).
    pub fn pair<'a>(
        &self,
        player: u64,
        token: i32,
        devices: impl Iterator<Item = (u64, &'a str, &'a SimulatedDevice)>,
    ) {
        let Some(android_id) = self.phones.get(&player) else { return };
        self.service.push(*android_id, self.server.pairing(player, token));
        for (id, name, device) in devices {
            let kind = device.entity_type() as u8;
            self.service.push(*android_id, self.server.entity_pairing(player, token, id, kind, name));
        }
    }

    /// An alarm went off; the game sends one push in 30 seconds for each alarm.
    pub fn alarm(&mut self, entity_id: u64, title: &str, subscribers: &[u64], now: Timestamp) {
        if self.alarms.get(&entity_id).is_some_and(|last| now - *last < ALARM_COOLDOWN) {
            return;
        }
        self.alarms.insert(entity_id, now);
        for android_id in subscribers.iter().filter_map(|player| self.phones.get(player)) {
            self.service.push(*android_id, self.server.alarm(title, "Your base is under attack!"));
        }
    }
}
