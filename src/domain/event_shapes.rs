//! Shapes of the events of each kind: the actions, and their fields of `data`. The relay's schema and the document of
//! the API are made of this table; the relay's `event` and an entry of the timeline are the same.

use serde_json::{Map, Value, json};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{RefOr, schema::Schema},
};

use crate::domain::{
    shop::watch::{PriceDirection, WatchSide, WatchState},
    world_event::{EventKind, WorldEvent},
};

/// The content of a field of `data`.
#[derive(Clone, Copy)]
enum Holds {
    Text,
    /// Or `null`.
    MaybeText,
    Time,
    MaybeTime,
    Flag,
    Count,
    MaybeCount,
    /// The game's item id, as text.
    Item,
    MaybeItem,
    Items,
    /// A word of [`WatchState`].
    WatchState,
    /// A word of [`WatchSide`].
    WatchSide,
    /// A word of [`PriceDirection`].
    PriceDirection,
    /// The cheaper shop; or `null`.
    Rival,
    Texts,
}

type DataFields = &'static [(&'static str, Holds)];

/// Actions of a kind that come with the same fields.
struct Shape {
    kind: EventKind,
    actions: &'static [&'static str],
    fields: DataFields,
}

const fn shape(kind: EventKind, actions: &'static [&'static str], fields: DataFields) -> Shape {
    Shape { kind, actions, fields }
}

const MARKER: (&str, Holds) = ("markerId", Holds::Text);
const MEMBER: [(&str, Holds); 2] = [("steamId", Holds::Text), ("name", Holds::Text)];
/// The shape of [`DeviceEvent`](crate::domain::device_event::DeviceEvent).
const DEVICE: [(&str, Holds); 3] = [("deviceId", Holds::Text), ("deviceKind", Holds::Text), ("name", Holds::Text)];
const PUSHED: DataFields = &[("message", Holds::Text)];
/// The killer of a player, as a push names it: a player, an animal, a trap.
const BY: (&str, Holds) = ("by", Holds::Text);
const WATCHED: DataFields = &[
    ("watchId", Holds::Text),
    ("vendorId", Holds::MaybeText),
    ("name", Holds::MaybeText),
    ("itemId", Holds::Item),
    ("itemName", Holds::MaybeText),
    ("side", Holds::WatchSide),
    ("direction", Holds::PriceDirection),
    ("price", Holds::MaybeCount),
    ("quantity", Holds::MaybeCount),
    ("currencyId", Holds::MaybeItem),
    ("currencyName", Holds::MaybeText),
    ("expectedPrice", Holds::MaybeCount),
    ("expectedQuantity", Holds::MaybeCount),
    ("state", Holds::WatchState),
    ("soldOut", Holds::Flag),
    ("undercutBy", Holds::Rival),
];

/// Every action. One that is in two rows of its kind comes with the fields of either.
const SHAPES: &[Shape] = &[
    shape(EventKind::Cargo, &["entered"], &[MARKER, ("egressAt", Holds::Time)]),
    shape(EventKind::Cargo, &["located", "returned", "left"], &[MARKER]),
    shape(EventKind::Cargo, &["docked"], &[MARKER, ("harbor", Holds::Text)]),
    shape(EventKind::Cargo, &["undocked"], &[MARKER, ("harbor", Holds::Text), ("dockedSeconds", Holds::MaybeCount)]),
    shape(EventKind::Cargo, &["egress"], &[]),
    shape(EventKind::Heli, &["entered", "located", "returned", "left", "shot_down"], &[MARKER]),
    shape(EventKind::Chinook, &["entered", "located", "returned"], &[MARKER]),
    shape(EventKind::Chinook, &["left"], &[MARKER, ("calledToOilRig", Holds::Flag)]),
    shape(EventKind::Crate, &["dropped", "returned", "gone"], &[MARKER]),
    shape(
        EventKind::Oilrig,
        &["called", "crate_unlocked", "ready"],
        &[("rig", Holds::MaybeText), ("unlocksAt", Holds::Time)],
    ),
    shape(
        EventKind::Oilrig,
        &["crate_unlocks_soon"],
        &[("rig", Holds::MaybeText), ("unlocksAt", Holds::Time), ("minutes", Holds::Count)],
    ),
    shape(EventKind::Vendor, &["spawned", "returned", "halted", "resumed", "left"], &[MARKER]),
    shape(EventKind::Explosion, &["exploded"], &[MARKER, ("patrolHelicopter", Holds::Flag)]),
    shape(EventKind::Death, &["died"], &[MEMBER[0], MEMBER[1], ("diedAt", Holds::MaybeTime), BY]),
    shape(EventKind::Death, &["pushed"], &[("message", Holds::Text), ("steamId", Holds::Text), BY]),
    shape(
        EventKind::Raid,
        &["alarm"],
        &[
            ("incident", Holds::Text),
            ("alarmId", Holds::Text),
            ("alarmName", Holds::Text),
            ("count", Holds::Count),
            ("lastAt", Holds::Time),
            ("endedAt", Holds::MaybeTime),
            ("late", Holds::Flag),
        ],
    ),
    shape(EventKind::Raid, &["pushed"], PUSHED),
    shape(
        EventKind::Login,
        &["login"],
        &[("steamId", Holds::Text), ("name", Holds::Text), ("trackedPlayer", Holds::Text), ("tag", Holds::MaybeText)],
    ),
    shape(
        EventKind::Login,
        &["pushed"],
        &[("message", Holds::Text), ("steamId", Holds::MaybeText), ("name", Holds::Text)],
    ),
    shape(
        EventKind::Logout,
        &["logout"],
        &[
            ("steamId", Holds::Text),
            ("name", Holds::Text),
            ("trackedPlayer", Holds::Text),
            ("tag", Holds::MaybeText),
            ("lastSeenAt", Holds::Time),
        ],
    ),
    shape(EventKind::Team, &["joined", "left", "respawned"], &MEMBER),
    shape(
        EventKind::Team,
        &["leader_changed"],
        &[("steamId", Holds::MaybeText), ("previousSteamId", Holds::MaybeText)],
    ),
    shape(EventKind::Wipe, &["wiped"], &[("wipedAt", Holds::MaybeTime), ("reasons", Holds::Texts)]),
    shape(
        EventKind::Shop,
        &["opened", "returned"],
        &[("name", Holds::Text), ("vendorId", Holds::Text), MARKER, ("itemIds", Holds::Items)],
    ),
    shape(EventKind::Shop, &["removed"], &[("name", Holds::Text), ("vendorId", Holds::Text)]),
    shape(EventKind::Shop, &["missing", "returned", "changed", "undercut", "sold_out", "restocked", "ok"], WATCHED),
    shape(
        EventKind::Device,
        &["turned_on", "turned_off"],
        &[DEVICE[0], DEVICE[1], DEVICE[2], ("by", Holds::MaybeText)],
    ),
    shape(EventKind::Device, &["unreachable", "reachable", "power_lost", "decaying"], &DEVICE),
    shape(EventKind::Device, &["full", "empty"], &[DEVICE[0], DEVICE[1], DEVICE[2], ("capacity", Holds::Count)]),
    shape(
        EventKind::Device,
        &["upkeep_low"],
        &[DEVICE[0], DEVICE[1], DEVICE[2], ("hours", Holds::Count), ("expiresAt", Holds::Time)],
    ),
    shape(EventKind::Gap, &["ended"], &[("from", Holds::Time), ("to", Holds::Time)]),
    shape(EventKind::Chat, &["dropped"], &[("lines", Holds::Count)]),
];

impl Holds {
    fn schema(self) -> Value {
        let time = |kind: Value| json!({ "type": kind, "format": "date-time" });
        let item = |kind: Value| json!({ "type": kind, "pattern": "^(0|-?[1-9][0-9]{0,9})$" });
        match self {
            Self::Text => json!({ "type": "string" }),
            Self::MaybeText => json!({ "type": ["string", "null"] }),
            Self::Time => time("string".into()),
            Self::MaybeTime => time(json!(["string", "null"])),
            Self::Flag => json!({ "type": "boolean" }),
            Self::Count => json!({ "type": "integer" }),
            Self::MaybeCount => json!({ "type": ["integer", "null"] }),
            Self::Item => item("string".into()),
            Self::MaybeItem => item(json!(["string", "null"])),
            Self::Items => json!({ "type": "array", "items": item("string".into()) }),
            Self::WatchState => json!({ "type": "string", "enum": WatchState::WORDS }),
            Self::WatchSide => json!({ "type": "string", "enum": WatchSide::WORDS }),
            Self::PriceDirection => json!({ "type": "string", "enum": PriceDirection::WORDS }),
            Self::Rival => json!({ "oneOf": [{ "type": "null" }, reference("CheaperShop")] }),
            Self::Texts => json!({ "type": "array", "items": { "type": "string" } }),
        }
    }
}

impl Shape {
    /// The name of its schema: kind and first action, `OilrigCalledEvent`.
    fn name(&self) -> String {
        let words =
            [self.kind.word()].into_iter().chain(self.actions.first().into_iter().flat_map(|word| word.split('_')));
        let mut name = String::new();
        for word in words {
            name.extend(word.chars().next().map(|first| first.to_ascii_uppercase()));
            name.push_str(word.get(1..).unwrap_or_default());
        }
        name + "Event"
    }

    fn schema(&self) -> Value {
        let mut fields: Map<_, _> =
            self.fields.iter().map(|(name, holds)| ((*name).to_owned(), holds.schema())).collect();
        fields.insert(
            "suppressed".to_owned(),
            json!({
                "type": "integer",
                "description": "Number of further events of that moment that were left out.",
            }),
        );
        let place = "Metres from the south-west corner; `null` where there is no place.";
        let mut required = vec!["kind", "action", "ts", "grid", "x", "y", "title", "data"];
        if self.kind != EventKind::Chat {
            required.push("id");
        }
        json!({
            "type": "object",
            "required": required,
            "properties": {
                "id": { "type": "string", "description": "The same on the relay and in the timeline." },
                "kind": { "type": "string", "enum": [self.kind.word()] },
                "action": { "type": "string", "enum": self.actions, "description": "What happened within the kind." },
                "ts": { "type": "string", "format": "date-time" },
                "grid": { "type": "string", "description": "The grid cell, outside of the map a compass direction, `\"\"` where there is no place." },
                "x": { "type": ["number", "null"], "description": place },
                "y": { "type": ["number", "null"], "description": place },
                "title": { "type": "string", "description": "One line of English." },
                "data": { "type": "object", "properties": fields },
            },
        })
    }
}

/// The offer that undercuts a watched one.
fn cheaper_shop() -> Value {
    json!({
        "type": "object",
        "required": ["vendorId", "price", "quantity"],
        "properties": {
            "vendorId": { "type": "string" },
            "price": { "type": "integer" },
            "quantity": { "type": "integer" },
        },
    })
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn read(schema: Value) -> RefOr<Schema> {
    serde_json::from_value(schema).expect("a schema")
}

impl ToSchema for WorldEvent {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.extend(SHAPES.iter().map(|shape| (shape.name(), read(shape.schema()))));
        schemas.push(("CheaperShop".to_owned(), read(cheaper_shop())));
    }
}

impl PartialSchema for WorldEvent {
    fn schema() -> RefOr<Schema> {
        let shapes: Vec<Value> = SHAPES.iter().map(|shape| reference(&shape.name())).collect();
        read(json!({
            "description": "Something that happened. Kinds, actions and fields of `data` may be added later.",
            "anyOf": shapes,
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn every_kind_has_actions_and_each_comes_once_with_the_same_fields() {
        for kind in EventKind::ALL {
            assert!(SHAPES.iter().any(|shape| shape.kind == kind && !shape.actions.is_empty()), "{kind:?}");
        }
        let mut schemas = Vec::new();
        WorldEvent::schemas(&mut schemas);
        let schemas: BTreeMap<_, _> = schemas.into_iter().collect();
        assert_eq!(schemas.len(), SHAPES.len() + 1, "each has a name of its own");
        let entered = serde_json::to_value(&schemas["CargoEnteredEvent"]).unwrap();
        assert_eq!(entered["properties"]["kind"]["enum"], json!(["cargo"]));
        assert_eq!(entered["properties"]["data"]["properties"]["egressAt"]["format"], "date-time");
        let event = serde_json::to_value(WorldEvent::schema()).unwrap();
        assert_eq!(event["anyOf"].as_array().unwrap().len(), SHAPES.len());
    }
}
