//! Monuments of a map: the meaning of their tokens.

use crate::domain::plain_text::plain_text;

/// A monument on the map. Every link has dozens, so the names of the game's own are not kept with each.
#[derive(Clone, Debug, PartialEq)]
pub struct Monument {
    /// Metres from the south-west corner.
    pub x: f64,
    pub y: f64,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq)]
enum Kind {
    Known(&'static KnownMonument),
    Other(Box<OtherMonument>),
}

/// Token, name, and radius in metres.
#[derive(Debug, PartialEq)]
struct KnownMonument(&'static str, &'static str, f64);

#[derive(Clone, Debug, PartialEq)]
struct OtherMonument {
    token: String,
    name: String,
    radius: f64,
}

impl Monument {
    /// A monument of the game's map answer; `None` for a part of another monument, and for one without a position.
    pub fn new(token: &str, x: f64, y: f64) -> Option<Self> {
        let token = token_of(token)?;
        if !x.is_finite() || !y.is_finite() {
            return None;
        }
        let kind = match KNOWN.iter().find(|known| known.0 == token) {
            Some(known) => Kind::Known(known),
            None => {
                let (name, radius) = match known_by_prefix(token) {
                    Some((name, radius)) => (name.to_owned(), radius),
                    None => (unknown_name(token)?, 0.0),
                };
                Kind::Other(Box::new(OtherMonument { token: plain_text(token, LONGEST_TOKEN), name, radius }))
            }
        };
        Some(Self { x, y, kind })
    }

    /// The token, or the last segment of the prefab path it came as.
    pub fn token(&self) -> &str {
        match &self.kind {
            Kind::Known(KnownMonument(token, ..)) => token,
            Kind::Other(other) => &other.token,
        }
    }

    /// In English; for an unknown token its own text.
    pub fn name(&self) -> &str {
        match &self.kind {
            Kind::Known(KnownMonument(_, name, _)) => name,
            Kind::Other(other) => &other.name,
        }
    }

    /// Distance from its centre at which a position still counts as "at" it, metres; 0 if unknown.
    pub fn radius(&self) -> f64 {
        match &self.kind {
            Kind::Known(KnownMonument(.., radius)) => *radius,
            Kind::Other(other) => other.radius,
        }
    }

    /// Metres from the centre; NaN if a position is not finite.
    pub fn distance(&self, x: f64, y: f64) -> f64 {
        (x - self.x).hypot(y - self.y)
    }

    /// Where cargo ships dock.
    pub fn is_harbor(&self) -> bool {
        self.token().contains("harbor")
    }

    /// Where heavy scientists can be called: `Some("small")` or `Some("large")`.
    pub fn oil_rig(&self) -> Option<&'static str> {
        match self.token() {
            "oil_rig_small" => Some("small"),
            "large_oil_rig" => Some("large"),
            _ => None,
        }
    }
}

/// Characters; custom maps put free text into tokens.
const LONGEST_TOKEN: usize = 80;

/// The token within a token or prefab path; `None` for what is not shown.
fn token_of(text: &str) -> Option<&str> {
    let text = text.trim();
    let path = text.starts_with("assets/") || text.ends_with(".prefab");
    let Some((folders, last)) = text.rsplit_once('/').filter(|_| path) else {
        return (!text.is_empty() && text != "DungeonBase").then_some(text);
    };
    let inner_module = folders.split('/').any(|folder| folder == "underwater-lab-base");
    let last = last.strip_suffix(".prefab").unwrap_or(last);
    (!inner_module && !last.is_empty()).then_some(last)
}

/// The game's own monuments.
const KNOWN: &[KnownMonument] = &[
    KnownMonument("AbandonedMilitaryBase", "Abandoned Military Base", 46.0),
    KnownMonument("airfield_display_name", "Airfield", 120.0),
    KnownMonument("apartmentcomplex", "Apartment Complex", 0.0),
    KnownMonument("arctic_base_a", "Arctic Research Base", 64.0),
    KnownMonument("arctic_base_b", "Arctic Research Base", 64.0),
    KnownMonument("bandit_camp", "Bandit Camp", 82.0),
    KnownMonument("dome_monument_name", "The Dome", 50.0),
    KnownMonument("excavator", "Giant Excavator Pit", 110.0),
    KnownMonument("ferryterminal", "Ferry Terminal", 88.0),
    KnownMonument("fishing_village_display_name", "Fishing Village", 31.0),
    KnownMonument("large_fishing_village_display_name", "Large Fishing Village", 40.0),
    KnownMonument("gas_station", "Gas Station", 28.0),
    KnownMonument("harbor_display_name", "Harbor", 96.0),
    KnownMonument("harbor_2_display_name", "Harbor", 96.0),
    KnownMonument("jungle_ziggurat", "Jungle Ziggurat", 0.0),
    KnownMonument("junkyard_display_name", "Junkyard", 88.0),
    KnownMonument("large_oil_rig", "Large Oil Rig", 40.0),
    KnownMonument("oil_rig_small", "Small Oil Rig", 32.0),
    KnownMonument("launchsite", "Launch Site", 250.0),
    KnownMonument("lighthouse_display_name", "Lighthouse", 28.0),
    KnownMonument("military_tunnels_display_name", "Military Tunnels", 122.0),
    KnownMonument("mining_outpost_display_name", "Mining Outpost", 17.0),
    KnownMonument("mining_quarry_hqm_display_name", "HQM Quarry", 27.0),
    KnownMonument("mining_quarry_stone_display_name", "Stone Quarry", 35.0),
    KnownMonument("mining_quarry_sulfur_display_name", "Sulfur Quarry", 33.0),
    KnownMonument("missile_silo_monument", "Missile Silo", 81.0),
    KnownMonument("outpost", "Outpost", 81.0),
    KnownMonument("power_plant_display_name", "Power Plant", 112.0),
    KnownMonument("radtown", "Radtown", 0.0),
    KnownMonument("satellite_dish_display_name", "Satellite Dish", 78.0),
    KnownMonument("sewer_display_name", "Sewer Branch", 87.0),
    KnownMonument("stables_a", "Ranch", 35.0),
    KnownMonument("stables_b", "Large Barn", 35.0),
    KnownMonument("supermarket", "Supermarket", 19.0),
    KnownMonument("train_tunnel_display_name", "Train Tunnel Entrance", 0.0),
    KnownMonument("train_tunnel_link_display_name", "Train Tunnel Link", 0.0),
    KnownMonument("train_yard_display_name", "Train Yard", 115.0),
    KnownMonument("water_treatment_plant_display_name", "Water Treatment Plant", 110.0),
];

/// Name and radius in metres of those that come in several forms.
fn known_by_prefix(token: &str) -> Option<(&'static str, f64)> {
    let prefixes = [("swamp", "Swamp", 42.0), ("underwater_lab", "Underwater Lab", 75.0)];
    prefixes.into_iter().find(|(prefix, ..)| token.starts_with(prefix)).map(|(_, name, radius)| (name, radius))
}

/// A readable form of a token that is not in the table: custom maps have free text.
fn unknown_name(token: &str) -> Option<String> {
    let token = token.strip_suffix("_display_name").unwrap_or(token);
    let name = plain_text(&token.replace('_', " "), LONGEST_TOKEN);
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Monument;

    fn read(token: &str) -> Option<(String, f64)> {
        Monument::new(token, 1.0, 2.0).map(|monument| (monument.name().to_owned(), monument.radius()))
    }

    #[test]
    fn a_known_token_has_a_name_and_a_radius() {
        assert_eq!(read("launchsite"), Some(("Launch Site".into(), 250.0)));
        assert_eq!(read("harbor_2_display_name"), Some(("Harbor".into(), 96.0)));
        assert_eq!(read("train_tunnel_display_name"), Some(("Train Tunnel Entrance".into(), 0.0)));
    }

    #[test]
    fn a_prefab_path_is_read_as_its_last_segment() {
        let swamp = Monument::new("assets/bundled/prefabs/autospawn/monument/swamp/swamp_c.prefab", 1.0, 2.0);
        assert_eq!(swamp.map(|swamp| (swamp.token().to_owned(), swamp.radius())), Some(("swamp_c".into(), 42.0)));
        let lab = "assets/bundled/prefabs/autospawn/monument/underwater_lab/underwater_lab_b.prefab";
        assert_eq!(read(lab), Some(("Underwater Lab".into(), 75.0)));
    }

    #[test]
    fn parts_of_monuments_are_no_monuments() {
        assert_eq!(read("DungeonBase"), None);
        assert_eq!(read("assets/content/structures/underwater-lab-base/moonpool_1200x1500.prefab"), None);
        assert_eq!(read("  "), None);
        assert_eq!(read("<b></b>"), None);
        assert_eq!(Monument::new("outpost", f64::NAN, 0.0), None);
    }

    #[test]
    fn an_unknown_token_is_shown_as_text_and_has_no_radius() {
        assert_eq!(read("Bob's <color=red>Arena</color>"), Some(("Bob's Arena".into(), 0.0)));
        assert_eq!(read("new_thing_display_name"), Some(("new thing".into(), 0.0)));
    }

    #[test]
    fn harbors_and_oil_rigs_are_distinguished() {
        let monument = |token| Monument::new(token, 0.0, 0.0).expect("a place");
        assert!(monument("harbor_2_display_name").is_harbor());
        assert!(!monument("outpost").is_harbor());
        assert_eq!(monument("oil_rig_small").oil_rig(), Some("small"));
        assert_eq!(monument("large_oil_rig").oil_rig(), Some("large"));
        assert_eq!(monument("outpost").oil_rig(), None);
    }

    proptest! {
        #[test]
        fn any_token_is_a_short_name_or_nothing(token in any::<String>()) {
            if let Some(monument) = Monument::new(&token, 0.0, 0.0) {
                prop_assert!(!monument.name().is_empty() && monument.name().chars().count() <= 80);
            }
        }
    }
}
