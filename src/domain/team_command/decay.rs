//! Decay of building parts without upkeep: after which time a part of full health is gone. It loses health evenly.
//! Source: rustlabs.com, as alexemanuelol/rustplusplus keeps it (`src/staticFiles/rustlabsDecayData.json`, 2025).

use chrono::TimeDelta;

use crate::domain::plain_text::plain_text;

/// A part: its name, health, and hours until it is gone.
type BuildingPart = (&'static str, u32, i64);

const PARTS: [BuildingPart; 11] = [
    ("twig wall", 10, 1),
    ("wooden wall", 250, 3),
    ("stone wall", 500, 5),
    ("metal wall", 1_000, 8),
    ("armored wall", 2_000, 12),
    ("wooden door", 200, 3),
    ("sheet metal door", 250, 8),
    ("garage door", 600, 8),
    ("armored door", 1_000, 12),
    ("high external wooden wall", 500, 8),
    ("high external stone wall", 500, 8),
];

/// The answer to a question for one part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecayAnswer {
    Part {
        name: &'static str,
        health: u32,
        full: u32,
        left: TimeDelta,
    },
    /// No part is meant; these are nearest.
    Nearest(Vec<&'static str>),
}

/// The part that is meant by these words, with the health behind them, or else with full health.
pub fn decay(asked: &str) -> DecayAnswer {
    let asked = plain_text(asked, 64).to_lowercase();
    let (words, health) = match asked.rsplit_once(char::is_whitespace) {
        Some((words, last)) if last.chars().all(|c| c.is_ascii_digit()) => (words, last.parse::<u32>().ok()),
        _ => (asked.as_str(), None),
    };
    let matching = |part: &BuildingPart| words.split_whitespace().filter(|word| part.0.contains(word)).count();
    let count = words.split_whitespace().count();
    let mut near: Vec<&BuildingPart> = PARTS.iter().filter(|part| matching(part) > 0).collect();
    // The shortest name of those with the most words that are asked for.
    near.sort_by_key(|part| (std::cmp::Reverse(matching(part)), part.0.len()));
    match near.first() {
        Some(&&(name, full, hours)) if count > 0 && matching(&(name, full, hours)) == count => {
            let health = health.unwrap_or(full).clamp(1, full);
            let left = TimeDelta::seconds(hours * 3_600 * i64::from(health) / i64::from(full));
            DecayAnswer::Part { name, health, full, left }
        }
        Some(_) => DecayAnswer::Nearest(near.iter().take(3).map(|part| part.0).collect()),
        None => DecayAnswer::Nearest(PARTS.iter().take(3).map(|part| part.0).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_decays_evenly_from_the_health_that_is_named() {
        let left = |asked: &str| match decay(asked) {
            DecayAnswer::Part { name, health, left, .. } => (name, health, left.num_minutes()),
            DecayAnswer::Nearest(names) => panic!("{names:?}"),
        };
        assert_eq!(left("armored wall 450"), ("armored wall", 450, 162));
        assert_eq!(left("Armored  WALL"), ("armored wall", 2_000, 720));
        assert_eq!(left("garage"), ("garage door", 600, 480));
        assert_eq!(left("stone wall 99999"), ("stone wall", 500, 300));
        assert_eq!(left("external stone 250"), ("high external stone wall", 250, 240));
    }

    #[test]
    fn an_unknown_part_is_answered_with_the_nearest_names() {
        assert_eq!(decay("moon door"), DecayAnswer::Nearest(vec!["wooden door", "garage door", "armored door"]));
        assert_eq!(decay("moon"), DecayAnswer::Nearest(vec!["twig wall", "wooden wall", "stone wall"]));
        assert!(matches!(decay("99999999999999"), DecayAnswer::Nearest(_)));
    }
}
