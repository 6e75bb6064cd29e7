//! Work on the devices of a game connection that is under way, and their facts to be stored.

use std::sync::Arc;

use super::{camera_watch::CameraWatch, latest_task::LatestTask, placement::Placement};
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
    pub cameras: CameraWatch,
    /// The read of the stored devices: an answer to an earlier one may come later.
    pub read: LatestTask,
    /// The read of the path of the alarms alone; likewise.
    pub path_read: LatestTask,
    /// Reads of that path so far, with the devices or alone.
    path_reads: u64,
}

impl DeviceWork {
    /// Number of a read of the alarms' path, with the devices or alone, that begins now.
    pub fn number_path_read(&mut self) -> u64 {
        self.path_reads += 1;
        self.path_reads
    }

    /// True if no read of that path has begun after the one with this number.
    pub fn is_latest_path_read(&self, number: u64) -> bool {
        self.path_reads == number
    }
}

/// Facts that events have reported of devices, to be stored.
pub fn to_store(server: &ServerId, reported: Vec<(Arc<str>, ReportedFacts)>) -> impl Iterator<Item = Record> {
    reported.into_iter().map(|(device, reported)| {
        let reported = serde_json::to_string(&reported).expect("it is plain data");
        Record::Device(server.clone(), device, reported)
    })
}
