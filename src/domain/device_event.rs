//! Events of kind `device`: their actions and fields.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::domain::{device::DeviceKind, ids::UserId, time::Timestamp};

/// Fields of an event of kind `device` besides the fields of every event: these fields are in `data`, and `action` is
/// beside it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceEvent {
    /// The key in `state.devices`.
    pub device_id: String,
    pub device_kind: DeviceKind,
    /// Its label, or else its name in the game.
    pub name: String,
    #[serde(flatten)]
    pub action: DeviceAction,
}

/// The change of a device. A device that did not answer gives no event: that concerns the link.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum DeviceAction {
    /// A switch is on, or an alarm has power.
    TurnedOn {
        /// The user who toggled it here; `null` if it was turned in the game.
        by: Option<UserId>,
    },
    /// A switch is off, or an alarm no longer has power.
    TurnedOff {
        /// The user who toggled it here; `null` if it was turned in the game.
        by: Option<UserId>,
    },
    /// The game no longer knows it: it is destroyed or picked up, or the paired player lost the tool cupboard.
    Unreachable,
    /// The game knows it again.
    Reachable,
    /// A storage monitor has no power, or is no longer attached.
    PowerLost,
    /// Every slot of the container is in use. Repeated after a tenth of them was free.
    Full {
        /// Slots.
        capacity: i32,
    },
    /// The container is empty.
    Empty {
        /// Slots.
        capacity: i32,
    },
    /// Upkeep runs out in less than `hours`. Repeated after it was refilled to a tenth more.
    #[serde(rename_all = "camelCase")]
    UpkeepLow {
        /// 24 or 6.
        hours: u8,
        /// When it runs out.
        expires_at: Timestamp,
    },
    /// Upkeep has run out.
    Decaying,
}

impl DeviceAction {
    /// The word on the wire and in the database.
    pub fn word(&self) -> &'static str {
        match self {
            Self::TurnedOn { .. } => "turned_on",
            Self::TurnedOff { .. } => "turned_off",
            Self::Unreachable => "unreachable",
            Self::Reachable => "reachable",
            Self::PowerLost => "power_lost",
            Self::Full { .. } => "full",
            Self::Empty { .. } => "empty",
            Self::UpkeepLow { .. } => "upkeep_low",
            Self::Decaying => "decaying",
        }
    }
}

impl DeviceEvent {
    /// One line of English; `place` is `in D7`, or nothing.
    pub fn title(&self, place: &str) -> String {
        let what = match &self.action {
            DeviceAction::TurnedOn { .. } => "turned on".to_owned(),
            DeviceAction::TurnedOff { .. } => "turned off".to_owned(),
            DeviceAction::Unreachable => "is not reachable any longer".to_owned(),
            DeviceAction::Reachable => "is reachable again".to_owned(),
            DeviceAction::PowerLost => "has lost power".to_owned(),
            DeviceAction::Full { .. } => "is full".to_owned(),
            DeviceAction::Empty { .. } => "is empty".to_owned(),
            DeviceAction::UpkeepLow { hours, .. } => format!("has upkeep for less than {hours} h"),
            DeviceAction::Decaying => "is decaying".to_owned(),
        };
        format!("{} {what} {place}", self.name)
    }

    /// The fields without `action`, which every event has.
    pub fn fields(&self) -> Map<String, Value> {
        let Ok(Value::Object(mut fields)) = serde_json::to_value(self) else { return Map::new() };
        fields.remove("action");
        fields
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_of_an_action_is_its_name_in_json() {
        let actions = [
            DeviceAction::TurnedOn { by: Some("u".into()) },
            DeviceAction::TurnedOff { by: None },
            DeviceAction::Unreachable,
            DeviceAction::Reachable,
            DeviceAction::PowerLost,
            DeviceAction::Full { capacity: 48 },
            DeviceAction::Empty { capacity: 48 },
            DeviceAction::UpkeepLow { hours: 24, expires_at: Timestamp::UNIX_EPOCH },
            DeviceAction::Decaying,
        ];
        for action in actions {
            let word = action.word();
            let event =
                DeviceEvent { device_id: "7".into(), device_kind: DeviceKind::Switch, name: "Gate".into(), action };
            let json = serde_json::to_value(&event).unwrap();
            assert_eq!(json["action"], word);
            assert_eq!(event.fields().len() + 1, json.as_object().unwrap().len());
            assert!(event.title("").starts_with("Gate "));
        }
    }
}
