//! Faults of a game server.

use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;

use crate::game::wire::{AppMarker, AppMarkerType, AppMessage};

/// Faults of the server; none by default.
#[derive(Clone, Copy, Debug, Default)]
pub struct GameServerFaults {
    /// The game thread hangs: requests are read and never answered, nothing is broadcast, pings are still answered.
    pub frozen: bool,
    /// Broadcasts wait for the end of this; answers do not.
    pub late_broadcasts: bool,
    /// New connections get the refusal of a full server.
    pub refuse: bool,
    /// Every request is answered with `rate_limit`.
    pub rate_limit: bool,
    /// Every player token is unknown.
    pub reject_tokens: bool,
    /// Messages are replaced by bytes that are no message.
    pub rubbish: bool,
    /// Broadcasts are, and answers are not.
    pub rubbish_broadcasts: bool,
    /// Messages end in the middle.
    pub truncate: bool,
    /// Messages have fields of a future version.
    pub unknown_fields: bool,
    /// A switch or an alarm changes right after it was asked, and its broadcast overtakes the answer.
    pub overtaken: bool,
    /// Switches do not turn on a request for it.
    pub stuck: bool,
    /// Answers with markers have this many more, which are nothing and nowhere.
    pub extra_markers: usize,
    /// Answers with markers leave out ships, helicopters, the vendor, crates and explosions.
    pub no_events: bool,
    /// Answers with markers leave out vending machines.
    pub no_shops: bool,
    /// The monuments have no cameras.
    pub no_monument_cameras: bool,
    /// Changes of devices are broadcast also to clients that have not asked for them.
    pub unasked_broadcasts: bool,
    /// Lines of chat from clients are refused.
    pub muted: bool,
    /// Questions about the team are refused.
    pub no_team: bool,
    /// Answers are sent this much later.
    pub delay: Option<Duration>,
}

impl GameServerFaults {
    fn shows(&self, marker: &AppMarker) -> bool {
        match AppMarkerType::try_from(marker.r#type) {
            Ok(AppMarkerType::VendingMachineMarker) => !self.no_shops,
            Ok(AppMarkerType::PlayerMarker | AppMarkerType::GenericRadiusMarker) => true,
            _ => !self.no_events,
        }
    }

    /// The bytes of a message, with the faults applied.
    pub fn encode(&self, mut message: AppMessage) -> Bytes {
        if self.rubbish || self.rubbish_broadcasts && message.broadcast.is_some() {
            return Bytes::from_static(&[0xFF, 0x07, 0x00, 0x13, 0x37, 0xFF]);
        }
        if let Some(found) = message.response.as_mut().and_then(|response| response.map_markers.as_mut()) {
            found.markers.retain(|marker| self.shows(marker));
            found.markers.resize(found.markers.len() + self.extra_markers, AppMarker::default());
        }
        let mut data = message.encode_to_vec();
        if self.unknown_fields {
            // Field 999, a varint, and field 1000, three bytes.
            data.extend([0xB8, 0x3E, 0x2A, 0xC2, 0x3E, 0x03, b'n', b'e', b'w']);
        }
        if self.truncate {
            data.truncate(data.len() - data.len().div_ceil(3));
        }
        data.into()
    }
}
