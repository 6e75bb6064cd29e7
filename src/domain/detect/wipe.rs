//! A wipe: the world of a game server was replaced. It includes a restart, so comparing after each connect suffices.

use chrono::TimeDelta;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::domain::{
    time::{self, Timestamp},
    world_event::{EventKind, WorldEvent},
};

/// The wipe time of one world differs by less.
const SAME_WIPE: TimeDelta = TimeDelta::seconds(60);

/// Identity of a world, as `getInfo` has it; absent = the answer did not say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct World {
    #[serde(serialize_with = "time::exact_option")]
    pub wiped_at: Option<Timestamp>,
    pub seed: Option<u32>,
    pub salt: Option<u32>,
    /// Edge length, metres.
    pub map_size: Option<u32>,
    /// Name of the level; kept for the map's key, says nothing about a wipe.
    pub level: Option<String>,
}

/// A wipe that was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wipe {
    pub wiped_at: Option<Timestamp>,
    /// The differences: `wipeTime`, `seed`, `salt`, `mapSize`.
    pub reasons: Vec<&'static str>,
}

impl World {
    /// Compares the world that was known with the one an answer shows. A field that either does not have says nothing.
    pub fn compare(&self, seen: &World) -> Option<Wipe> {
        let differs =
            |known: Option<u32>, seen: Option<u32>| known.zip(seen).is_some_and(|(known, seen)| known != seen);
        let is_newer = self.wiped_at.zip(seen.wiped_at).is_some_and(|(known, seen)| seen - known > SAME_WIPE);
        let reasons: Vec<_> = [
            (is_newer, "wipeTime"),
            (differs(self.seed, seen.seed), "seed"),
            (differs(self.salt, seen.salt), "salt"),
            (differs(self.map_size, seen.map_size), "mapSize"),
        ]
        .into_iter()
        .filter_map(|(differs, reason)| differs.then_some(reason))
        .collect();
        (!reasons.is_empty()).then_some(Wipe { wiped_at: seen.wiped_at, reasons })
    }

    /// True if nothing sets the two apart.
    pub fn is_same(&self, other: &World) -> bool {
        self.compare(other).is_none() && other.compare(self).is_none()
    }

    /// True if a link that saw this world was up since the world `other` began: it is the same, or a later one.
    pub fn is_since(&self, other: &World) -> bool {
        let is_later = other.wiped_at.zip(self.wiped_at).is_some_and(|(other, own)| own - other > SAME_WIPE);
        is_later || self.is_same(other)
    }

    /// The world to remember after an answer: its fields, and for those it lacks the known ones of the same world.
    pub fn updated(self, seen: World) -> World {
        if self.compare(&seen).is_some() {
            return seen;
        }
        World {
            wiped_at: seen.wiped_at.or(self.wiped_at),
            seed: seen.seed.or(self.seed),
            salt: seen.salt.or(self.salt),
            map_size: seen.map_size.or(self.map_size),
            level: seen.level.or(self.level),
        }
    }
}

impl Wipe {
    /// The event, after the new world has been stored.
    pub fn event(&self, now: Timestamp) -> WorldEvent {
        let data = [("wipedAt", json!(self.wiped_at.map(Timestamp::to_wire))), ("reasons", json!(self.reasons))];
        WorldEvent {
            kind: EventKind::Wipe,
            action: "wiped",
            grid: String::new(),
            x: None,
            y: None,
            ts: now,
            title: "The server was wiped".to_owned(),
            data: data.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::World;
    use crate::domain::detect::testing::at;

    fn world() -> World {
        World {
            wiped_at: Some(at(1_000_000).stamp),
            seed: Some(1),
            salt: Some(2),
            map_size: Some(3000),
            level: Some("Procedural Map".to_owned()),
        }
    }

    fn reasons(seen: World) -> Vec<&'static str> {
        world().compare(&seen).map(|wipe| wipe.reasons).unwrap_or_default()
    }

    #[test]
    fn the_same_world_was_not_wiped() {
        assert_eq!(world().compare(&world()), None);
        assert_eq!(
            reasons(World { wiped_at: Some(at(1_000_060).stamp), ..world() }),
            [""; 0],
            "rounding of the server"
        );
        assert_eq!(reasons(World { wiped_at: Some(at(1).stamp), ..world() }), [""; 0], "time does not go back");
        assert_eq!(reasons(World { level: Some("Other".to_owned()), ..world() }), [""; 0]);
    }

    #[test]
    fn each_difference_is_a_wipe() {
        assert_eq!(reasons(World { wiped_at: Some(at(1_000_061).stamp), ..world() }), ["wipeTime"]);
        assert_eq!(reasons(World { seed: Some(9), ..world() }), ["seed"]);
        assert_eq!(reasons(World { salt: Some(9), map_size: Some(4000), ..world() }), ["salt", "mapSize"]);
    }

    #[test]
    fn a_missing_field_says_nothing() {
        assert_eq!(reasons(World::default()), [""; 0]);
        assert_eq!(World::default().compare(&world()), None, "nothing known yet");
        assert_eq!(reasons(World { seed: Some(9), ..World::default() }), ["seed"]);
    }

    #[test]
    fn a_link_was_up_since_its_own_world_began_and_since_earlier_ones() {
        let hours_later = |hours: i64, seed| World {
            wiped_at: Some(at(1_000_000 + hours * 3_600).stamp),
            seed: Some(seed),
            ..World::default()
        };
        let own = hours_later(1, 1);
        for (other, is_same, is_since) in [
            (hours_later(1, 1), true, true),
            (World::default(), true, true),
            (hours_later(2, 1), false, false),
            (hours_later(1, 2), false, false),
            (hours_later(0, 2), false, true),
            (hours_later(0, 1), false, true),
        ] {
            assert_eq!((own.is_same(&other), own.is_since(&other)), (is_same, is_since), "{other:?}");
        }
    }

    #[test]
    fn what_an_answer_did_not_say_stays_known_unless_the_world_is_new() {
        assert_eq!(world().updated(World { seed: Some(1), ..World::default() }), world());
        let new = World { seed: Some(9), ..World::default() };
        assert_eq!(world().updated(new.clone()), new);
    }

    #[test]
    fn a_wipe_is_reported_with_its_reasons() {
        let wipe = world().compare(&World { seed: Some(9), ..world() }).expect("a wipe");
        let json = serde_json::to_value(wipe.event(at(5).stamp)).expect("plain data");
        assert_eq!(
            (&json["kind"], &json["action"], &json["data"]["reasons"][0]),
            (&"wipe".into(), &"wiped".into(), &"seed".into())
        );
        assert_eq!(json["grid"], "");
    }
}
