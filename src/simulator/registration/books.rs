//! The sites' memory: identities, addresses, tokens, and the devices that are registered for each player.

use std::collections::HashMap;

use super::faults::RegistrationFaults;
use crate::domain::time::Timestamp;

/// Requests of each step so far, and those that no client of the real sites sends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepCounts {
    pub check_ins: u32,
    pub installations: u32,
    pub addresses: u32,
    pub expo_tokens: u32,
    pub registrations: u32,
    pub unregistrations: u32,
    pub violations: Vec<String>,
}

/// A device that is registered for a player.
pub struct GameDevice {
    pub expo_token: String,
    pub expires_at: i64,
}

/// See the module. Nothing is forgotten: a test or demo is short.
#[derive(Default)]
pub struct RegistrationBooks {
    pub faults: RegistrationFaults,
    pub counts: StepCounts,
    /// Security token by Android id.
    pub identities: HashMap<u64, u64>,
    /// Tokens of installations that no registration has used.
    pub installations: Vec<String>,
    /// Android id by push address.
    pub addresses: HashMap<String, u64>,
    /// Expo token by device; push address by Expo token.
    pub expo_devices: HashMap<String, String>,
    pub expo_tokens: HashMap<String, String>,
    /// Return addresses of the logins under way, by state.
    pub logins: HashMap<String, String>,
    /// Tokens of logins and installations.
    pub tokens: Vec<String>,
    /// By player and device id.
    pub registered: HashMap<(u64, String), GameDevice>,
}

impl RegistrationBooks {
    /// The Android ids of this player's devices whose registration has not ended.
    pub fn devices(&self, player: u64, now: Timestamp) -> Vec<u64> {
        let living = |device: &&GameDevice| device.expires_at > now.timestamp();
        let of_player = self.registered.iter().filter(|((owner, _), _)| *owner == player).map(|(_, device)| device);
        let mut devices: Vec<u64> =
            of_player.filter(living).filter_map(|device| self.android_id(&device.expo_token)).collect();
        devices.sort_unstable();
        devices
    }

    /// Tokens, addresses and security tokens that were given out.
    pub fn secrets(&self) -> Vec<String> {
        let tokens = self.identities.values().map(u64::to_string);
        let given = self.expo_devices.values().chain(self.addresses.keys()).chain(&self.tokens).cloned();
        tokens.chain(given).collect()
    }

    /// The device behind an Expo token.
    pub fn android_id(&self, expo_token: &str) -> Option<u64> {
        self.addresses.get(self.expo_tokens.get(expo_token)?).copied()
    }
}
