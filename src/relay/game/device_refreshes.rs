//! Looks at devices that have changed and say more when asked (protocol §3.4). However often a device changes, one look
//! at it is planned or under way, and one more follows if it changed meanwhile.

use std::{collections::HashMap, sync::Arc};

/// The looks at the devices of one game server, by device id. Only devices that are paired come here, so they bound it.
#[derive(Debug, Default)]
pub struct DeviceRefreshes(HashMap<Arc<str>, Look>);

#[derive(Debug, PartialEq, Eq)]
enum Look {
    Planned,
    UnderWay,
    /// The answer to the look may be out of date.
    ChangedSince,
}

impl DeviceRefreshes {
    /// The device has changed; true = plan a look.
    pub fn want(&mut self, device: &Arc<str>) -> bool {
        match self.0.get_mut(device) {
            None => {
                self.0.insert(device.clone(), Look::Planned);
                true
            }
            Some(look) => {
                if *look == Look::UnderWay {
                    *look = Look::ChangedSince;
                }
                false
            }
        }
    }

    /// The planned look begins.
    pub fn begin(&mut self, device: &Arc<str>) {
        self.0.insert(device.clone(), Look::UnderWay);
    }

    /// The look has ended, however; true = the device has changed meanwhile, want another.
    pub fn end(&mut self, device: &Arc<str>) -> bool {
        self.0.remove(device) == Some(Look::ChangedSince)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_changes_all_the_time_has_one_look_at_a_time_and_one_after() {
        let (mut looks, device) = (DeviceRefreshes::default(), Arc::from("7"));
        assert!(looks.want(&device));
        assert!((0..100).all(|_| !looks.want(&device)), "one is planned");
        looks.begin(&device);
        assert!((0..100).all(|_| !looks.want(&device)), "one is under way");
        assert!(looks.end(&device), "and missed the changes since");
        assert!(looks.want(&device));
        looks.begin(&device);
        assert!(!looks.end(&device) && looks.0.is_empty());
        assert!(looks.want(&"8".into()) && looks.want(&device), "each device for itself");
    }
}
