//! Refreshes of devices that have changed and say more when asked (protocol §3.4). However often a device changes, one
//! refresh of it is planned or under way, and one more follows if it changed meanwhile.

use std::{collections::HashMap, sync::Arc};

/// The refreshes of the devices of one game server, by device id. Only devices that are paired come here, so they bound it.
#[derive(Debug, Default)]
pub struct DeviceRefreshes(HashMap<Arc<str>, Refresh>);

#[derive(Debug, PartialEq, Eq)]
enum Refresh {
    Planned,
    UnderWay,
    /// Its answer may be out of date.
    ChangedSince,
}

impl DeviceRefreshes {
    /// The device has changed; true = plan a refresh.
    pub fn want(&mut self, device: &Arc<str>) -> bool {
        match self.0.get_mut(device) {
            None => {
                self.0.insert(device.clone(), Refresh::Planned);
                true
            }
            Some(refresh) => {
                if *refresh == Refresh::UnderWay {
                    *refresh = Refresh::ChangedSince;
                }
                false
            }
        }
    }

    /// The planned refresh begins.
    pub fn begin(&mut self, device: &Arc<str>) {
        self.0.insert(device.clone(), Refresh::UnderWay);
    }

    /// The refresh has ended, however; true = the device has changed meanwhile, want another.
    pub fn end(&mut self, device: &Arc<str>) -> bool {
        self.0.remove(device) == Some(Refresh::ChangedSince)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_changes_all_the_time_has_one_refresh_at_a_time_and_one_after() {
        let (mut refreshes, device) = (DeviceRefreshes::default(), Arc::from("7"));
        assert!(refreshes.want(&device));
        assert!((0..100).all(|_| !refreshes.want(&device)), "one is planned");
        refreshes.begin(&device);
        assert!((0..100).all(|_| !refreshes.want(&device)), "one is under way");
        assert!(refreshes.end(&device), "and missed the changes since");
        assert!(refreshes.want(&device));
        refreshes.begin(&device);
        assert!(!refreshes.end(&device) && refreshes.0.is_empty());
        assert!(refreshes.want(&"8".into()) && refreshes.want(&device), "each device for itself");
    }
}
