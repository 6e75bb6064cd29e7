//! Commands that switch devices: the order, and the words for its outcome.

use chrono::TimeDelta;

use super::durations;

/// The value that a command in the chat wants a switch to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceWish {
    /// The opposite of what it is; for several devices, of what the first one is.
    Flip,
    Set(bool),
    /// Only say what it is.
    Status,
}

/// The part of a device command after its word: `[on|off|status] [duration]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceOrder {
    pub wish: DeviceWish,
    /// Then it is turned back.
    pub lasts: Option<TimeDelta>,
}

impl DeviceOrder {
    /// Reads an order; none if it is not written like one.
    pub fn read(argument: &str) -> Option<Self> {
        let mut words = argument.split_whitespace().peekable();
        let wish = match words.peek().map(|word| word.to_lowercase()).as_deref() {
            Some("on") => Some(DeviceWish::Set(true)),
            Some("off") => Some(DeviceWish::Set(false)),
            Some("status") => Some(DeviceWish::Status),
            _ => None,
        };
        if wish.is_some() {
            words.next();
        }
        let lasts = match words.next() {
            Some(word) => Some(durations::parse(word)?),
            None => None,
        };
        let order = Self { wish: wish.unwrap_or(DeviceWish::Flip), lasts };
        let is_good = words.next().is_none() && !(order.wish == DeviceWish::Status && lasts.is_some());
        is_good.then_some(order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_a_wish_and_a_duration_both_optional() {
        let order = |wish, seconds: Option<i64>| Some(DeviceOrder { wish, lasts: seconds.map(TimeDelta::seconds) });
        for (argument, expected) in [
            ("", order(DeviceWish::Flip, None)),
            ("ON", order(DeviceWish::Set(true), None)),
            ("off 60s", order(DeviceWish::Set(false), Some(60))),
            ("1m", order(DeviceWish::Flip, Some(60))),
            ("status", order(DeviceWish::Status, None)),
            ("status 5s", None),
            ("please", None),
            ("on off", None),
            ("on 5s now", None),
            ("on 5", None),
        ] {
            assert_eq!(DeviceOrder::read(argument), expected, "{argument}");
        }
    }
}
