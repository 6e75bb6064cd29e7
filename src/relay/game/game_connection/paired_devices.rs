//! Work on the devices of a game connection that is under way, and their facts to be stored.

use std::sync::Arc;

use actix::SpawnHandle;

use super::placement::Placement;
use crate::{
    domain::{detect::device::ReportedFacts, ids::ServerId},
    relay::{
        game::{device_refreshes::DeviceRefreshes, toggles::Toggles},
        shared::write_behind::Record,
    },
};

/// See the module.
#[derive(Default)]
pub struct DeviceWork {
    pub toggles: Toggles,
    pub refreshes: DeviceRefreshes,
    pub placement: Placement,
    /// The latest read of the stored devices, which the next one ends.
    pub read: Option<SpawnHandle>,
}

/// Facts that events have reported of devices, to be stored.
pub fn to_store(server: &ServerId, reported: Vec<(Arc<str>, ReportedFacts)>) -> impl Iterator<Item = Record> {
    reported.into_iter().map(|(device, reported)| {
        let reported = serde_json::to_string(&reported).expect("it is plain data");
        Record::Device(server.clone(), device, reported)
    })
}
