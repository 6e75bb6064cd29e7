//! Work that is done for all users, by one node at a time.

use crate::domain::{ids::PartId, words::words};

words! {
    /// Work that must not be done twice. The words are in the names of parts. A node of an earlier version takes parts that it
    /// does not know and does nothing for them: work that is new, or split off from another, may wait until the last such node
    /// is replaced.
    pub enum Sweep {
        Billing = "billing",
        Registrations = "registrations",
        Channels = "channels",
        Emergencies = "emergencies",
        ExpiryWarnings = "expiry-warnings",
        DisabledWarnings = "disabled-warnings",
        DeviceNews = "device-news",
        Tracking = "tracking",
        KeyRotation = "key-rotation",
    }
}

impl Sweep {
    /// The part of the service.
    pub fn part(self) -> PartId {
        format!("sweep:{}", self.word()).into()
    }
}
