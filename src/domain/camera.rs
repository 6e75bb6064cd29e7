//! Cameras by their identifiers: the form of an identifier, and the cameras of monuments.

use std::fmt;

use crate::domain::monument::Monument;

/// Characters of an identifier.
const LONGEST_ID: usize = 32;

/// The identifier of a camera, as a computer station in the game takes it. Case counts. Never all digits, so it is no
/// entity id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CameraId(String);

impl CameraId {
    /// 1 to 32 of `A-Z a-z 0-9 _`, not all digits.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if text.is_empty() || text.len() > LONGEST_ID {
            return Err("must have 1 to 32 characters");
        }
        if !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return Err("may have letters, digits and `_` only");
        }
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err("must not be all digits");
        }
        Ok(Self(text.to_owned()))
    }

    /// The identifier, as players set it in the game.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CameraId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A camera at a monument of a map.
#[derive(Clone, Debug, PartialEq)]
pub struct MonumentCamera<'a> {
    pub id: &'static str,
    /// Name of the view.
    pub name: &'static str,
    pub monument: &'a Monument,
}

/// The cameras of these monuments. Identifiers are the game's and do not say which of two equal monuments is meant:
/// each comes once, with the first.
pub fn of_monuments(monuments: &[Monument]) -> Vec<MonumentCamera<'_>> {
    let mut found: Vec<MonumentCamera<'_>> = Vec::new();
    for monument in monuments {
        let cameras = of_token(monument.token());
        if found.iter().all(|known| known.monument.token() != monument.token()) {
            found.extend(cameras.iter().map(|&(id, name)| MonumentCamera { id, name, monument }));
        }
    }
    found
}

/// The fixed identifiers. Underwater labs and the abandoned military base have cameras too, but their digits are new on
/// each map; those of the cargo ship belong to no place.
fn of_token(token: &str) -> &'static [(&'static str, &'static str)] {
    match token {
        "airfield_display_name" => &[("AIRFIELDHELIPAD", "Helipad")],
        "bandit_camp" => &[("CASINO", "Casino"), ("TOWNWEAPONS", "Weapon shop")],
        "dome_monument_name" => &[("DOME1", "Way up"), ("DOMETOP", "Top")],
        "ferryterminal" => &[
            ("FERRYDOCK", "Dock"),
            ("FERRYPARKING", "Parking"),
            ("FERRYUTILITIES", "Utilities"),
            ("FERRYLOGISTICS", "Logistics"),
        ],
        "large_oil_rig" => &[
            ("OILRIG2HELI", "Helipad"),
            ("OILRIG2DOCK", "Dock"),
            ("OILRIG2EXHAUST", "Exhaust"),
            ("OILRIG2L1", "Level 1"),
            ("OILRIG2L2", "Level 2"),
            ("OILRIG2L3A", "Level 3, A"),
            ("OILRIG2L3B", "Level 3, B"),
            ("OILRIG2L4", "Level 4"),
            ("OILRIG2L5", "Level 5"),
            ("OILRIG2L6A", "Level 6, A"),
            ("OILRIG2L6B", "Level 6, B"),
            ("OILRIG2L6C", "Level 6, C"),
            ("OILRIG2L6D", "Level 6, D"),
        ],
        "missile_silo_monument" => &[
            ("SILOEXIT1", "Exit 1"),
            ("SILOEXIT2", "Exit 2"),
            ("SILOMISSILE", "Missile"),
            ("SILOSHIPPING", "Shipping"),
            ("SILOTOWER", "Tower"),
        ],
        "oil_rig_small" => &[
            ("OILRIG1HELI", "Helipad"),
            ("OILRIG1DOCK", "Dock"),
            ("OILRIG1L1", "Level 1"),
            ("OILRIG1L2", "Level 2"),
            ("OILRIG1L3", "Level 3"),
            ("OILRIG1L4", "Level 4"),
        ],
        "outpost" => &[
            ("COMPOUNDSTREET", "Street"),
            ("COMPOUNDMUSIC", "Music stage"),
            ("COMPOUNDCRUDE", "Refinery"),
            ("COMPOUNDCHILL", "Canteen"),
        ],
        "radtown" => {
            &[("RADTOWNHOUSE", "House"), ("RADTOWNSBL", "Storage building"), ("RADTOWNAPARTMENTS", "Apartments")]
        }
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_is_short_plain_and_no_number() {
        for good in ["CAM1", "a", "1A", "_", "BASE_GATE", &"x".repeat(32)] {
            assert_eq!(CameraId::parse(good).map(|id| id.to_string()).as_deref(), Ok(good));
        }
        for bad in ["", "1", "4242", "18446744073709551616", "a b", "a-b", "ä", "a\n", "a/b", &"x".repeat(33)] {
            assert!(CameraId::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn every_fixed_identifier_can_be_added_and_is_there_once() {
        let tokens = [
            "airfield_display_name",
            "bandit_camp",
            "dome_monument_name",
            "ferryterminal",
            "large_oil_rig",
            "missile_silo_monument",
            "oil_rig_small",
            "outpost",
            "radtown",
        ];
        let monuments: Vec<_> = tokens.iter().filter_map(|token| Monument::new(token, 1.0, 2.0)).collect();
        let cameras = of_monuments(&monuments);
        assert_eq!(cameras.len(), 40);
        let mut ids: Vec<_> = cameras.iter().map(|camera| camera.id).collect();
        assert!(ids.iter().all(|id| CameraId::parse(id).is_ok()));
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 40);
    }

    #[test]
    fn cameras_stand_at_the_first_of_equal_monuments() {
        let monuments = [("lighthouse_display_name", 1.0), ("bandit_camp", 2.0), ("bandit_camp", 3.0)];
        let monuments = monuments.map(|(token, x)| Monument::new(token, x, 5.0).unwrap());
        let cameras = of_monuments(&monuments);
        let found: Vec<_> = cameras.iter().map(|camera| (camera.id, camera.monument.x)).collect();
        assert_eq!(found, [("CASINO", 2.0), ("TOWNWEAPONS", 2.0)]);
        assert_eq!(cameras[0].monument.name(), "Bandit Camp");
    }
}
