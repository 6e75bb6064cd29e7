//! Places as text: grid labels, monuments, compass directions.
//!
//! Map coordinates: metres, origin in the south-west corner, x to the east, y to the north. Column letters count like a
//! spreadsheet from the west, row numbers start at 0 in the north.

use crate::domain::monument::Monument;

/// Edge of a cell as the game intends it, metres.
pub const CELL: f64 = 146.25;

/// Layout of the grid over the map; clients disagree, see the variants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GridStyle {
    /// As the game itself labels positions: the map is divided into equal cells of whole metres.
    #[default]
    InGame,
    /// As the companion app draws it: cells of 146.25 m, rows begin 100 m south of the northern border.
    CompanionApp,
}

/// The grid label (`D7`); outside of the map the compass direction from its centre (`NE`); `""` where the position is
/// not finite or the map has no size.
pub fn label(style: GridStyle, map_size: u32, x: f64, y: f64) -> String {
    match cell(style, map_size, x, y) {
        Some((column, row)) => format!("{}{row}", letters(column)),
        None => direction(map_size, x, y).map_or("", |(short, _)| short).to_owned(),
    }
}

/// Where something is, as it follows a verb: `at Launch Site` (the nearest monument within its radius), else `in D7`,
/// else `north-east of the map`; `""` where the position is unusable.
pub fn place(map_size: u32, monuments: &[Monument], x: f64, y: f64) -> String {
    let nearest = monuments
        .iter()
        .map(|monument| (monument.distance(x, y), monument))
        .filter(|(distance, monument)| *distance <= monument.radius())
        .min_by(|(a, _), (b, _)| a.total_cmp(b));
    if let Some((_, monument)) = nearest {
        return format!("at {}", monument.name());
    }
    match cell(GridStyle::default(), map_size, x, y) {
        Some((column, row)) => format!("in {}{row}", letters(column)),
        None => direction(map_size, x, y).map(|(_, long)| format!("{long} of the map")).unwrap_or_default(),
    }
}

/// Column from the west and row from the north, both from 0; `None` outside of the map.
fn cell(style: GridStyle, map_size: u32, x: f64, y: f64) -> Option<(u32, u32)> {
    let size = f64::from(map_size);
    let inside = |position: f64| (0.0..=size).contains(&position);
    if map_size == 0 || !inside(x) || !inside(y) {
        return None;
    }
    let (edge, row_origin) = match style {
        GridStyle::InGame => {
            let cells = (size / 146.28572 + 0.001).floor().max(1.0);
            ((size / cells).floor(), size)
        }
        GridStyle::CompanionApp => (CELL, size - 100.0),
    };
    // The border itself belongs to the last cell. Rounding the edge down leaves a strip that is a cell of its own.
    let last = (size / edge).ceil() - 1.0;
    let index = |metres: f64| (metres / edge).floor().clamp(0.0, last) as u32;
    Some((index(x), index(row_origin - y)))
}

/// `A`…`Z`, `AA`, `AB`…
fn letters(column: u32) -> String {
    let mut letters = Vec::new();
    let mut left = column + 1;
    while left > 0 {
        left -= 1;
        letters.push(char::from(b'A' + (left % 26) as u8));
        left /= 26;
    }
    letters.into_iter().rev().collect()
}

/// Short and long name of the direction from the centre of the map.
fn direction(map_size: u32, x: f64, y: f64) -> Option<(&'static str, &'static str)> {
    const DIRECTIONS: [(&str, &str); 8] = [
        ("N", "north"),
        ("NE", "north-east"),
        ("E", "east"),
        ("SE", "south-east"),
        ("S", "south"),
        ("SW", "south-west"),
        ("W", "west"),
        ("NW", "north-west"),
    ];
    if map_size == 0 || !x.is_finite() || !y.is_finite() {
        return None;
    }
    let centre = f64::from(map_size) / 2.0;
    let bearing = (x - centre).atan2(y - centre).to_degrees();
    let sector = ((bearing + 22.5).rem_euclid(360.0) / 45.0) as usize;
    Some(DIRECTIONS[sector % 8])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{GridStyle, label, letters, place};
    use crate::domain::monument::Monument;

    fn in_game(map_size: u32, x: f64, y: f64) -> String {
        label(GridStyle::InGame, map_size, x, y)
    }

    fn app(map_size: u32, x: f64, y: f64) -> String {
        label(GridStyle::CompanionApp, map_size, x, y)
    }

    #[test]
    fn columns_count_like_a_spreadsheet() {
        let named = [(0, "A"), (25, "Z"), (26, "AA"), (27, "AB"), (51, "AZ"), (52, "BA"), (701, "ZZ"), (702, "AAA")];
        for (column, name) in named {
            assert_eq!(letters(column), name);
        }
    }

    #[test]
    fn the_game_divides_the_map_into_equal_cells_of_whole_metres() {
        assert_eq!(in_game(3000, 0.0, 3000.0), "A0");
        assert_eq!(in_game(3000, 149.9, 2850.1), "A0");
        assert_eq!(in_game(3000, 150.0, 2850.0), "B1");
        assert_eq!(in_game(3000, 3000.0, 0.0), "T19");
        assert_eq!(in_game(4500, 4499.0, 1.0), "AD29");
        assert_eq!(in_game(4250, 146.0, 4250.0), "B0", "4250 / 29 is 146.55, rounded down");
        assert_eq!(in_game(4000, 3998.0, 4000.0), "AB0", "27 cells of 148 m leave a strip of 4 m");
    }

    #[test]
    fn the_companion_app_begins_its_rows_100_metres_further_south() {
        assert_eq!(app(4500, 0.0, 4500.0), "A0");
        assert_eq!(app(4500, 146.25, 4254.0), "B0");
        assert_eq!(app(4500, 146.25, 4253.0), "B1");
        assert_eq!(in_game(4500, 146.25, 4253.0), "A1");
        assert_eq!(app(3000, 3000.0, 0.0), "U19");
    }

    #[test]
    fn outside_of_the_map_the_label_is_the_direction() {
        assert_eq!(in_game(3000, 1500.0, 3300.0), "N");
        assert_eq!(in_game(3000, 3200.0, 3200.0), "NE");
        assert_eq!(in_game(3000, 3200.0, 1500.0), "E");
        assert_eq!(in_game(3000, -10.0, -10.0), "SW");
        assert_eq!(in_game(3000, -10.0, 1500.0), "W");
        assert_eq!(in_game(3000, -400.0, 3400.0), "NW");
    }

    #[test]
    fn an_unusable_position_has_no_label() {
        assert_eq!(in_game(3000, f64::NAN, 1.0), "");
        assert_eq!(in_game(3000, 1.0, f64::INFINITY), "");
        assert_eq!(in_game(0, 1.0, 1.0), "");
        assert_eq!(place(3000, &[], f64::NAN, 1.0), "");
    }

    #[test]
    fn a_place_is_the_nearest_monument_within_its_radius_else_the_grid_else_the_direction() {
        let monuments: Vec<_> = [("launchsite", 1000.0, 1000.0), ("supermarket", 1100.0, 1000.0)]
            .into_iter()
            .filter_map(|(token, x, y)| Monument::new(token, x, y))
            .collect();
        assert_eq!(place(3000, &monuments, 1020.0, 1000.0), "at Launch Site");
        assert_eq!(place(3000, &monuments, 1095.0, 1000.0), "at Supermarket");
        assert_eq!(place(3000, &monuments, 1500.0, 1000.0), "in K13");
        assert_eq!(place(3000, &monuments, 3400.0, 3400.0), "north-east of the map");
    }

    fn any_number() -> impl Strategy<Value = f64> {
        prop_oneof![any::<f64>(), -1000.0..8000.0_f64]
    }

    proptest! {
        #[test]
        fn any_position_on_any_map_has_a_valid_label(map_size in prop_oneof![any::<u32>(), 0_u32..8000], x in any_number(), y in any_number()) {
            for label in [in_game(map_size, x, y), app(map_size, x, y)] {
                let digits = label.trim_start_matches(|c: char| c.is_ascii_uppercase());
                let is_cell = digits.len() < label.len() && digits.parse::<u32>().is_ok();
                let is_direction = ["N", "NE", "E", "SE", "S", "SW", "W", "NW"].contains(&label.as_str());
                prop_assert!(is_cell || is_direction || label.is_empty(), "{label}");
                let size = f64::from(map_size);
                let inside = map_size > 0 && (0.0..=size).contains(&x) && (0.0..=size).contains(&y);
                prop_assert_eq!(is_cell, inside, "{}", label);
            }
            place(map_size, &[], x, y);
        }

        #[test]
        fn labels_grow_to_the_east_and_to_the_south(map_size in 1000_u32..6000, a in 0.0..1.0_f64, b in 0.0..1.0_f64) {
            let size = f64::from(map_size);
            let (west, east) = (a.min(b) * size, a.max(b) * size);
            for style in [GridStyle::InGame, GridStyle::CompanionApp] {
                let (first, _) = super::cell(style, map_size, west, 0.0).expect("inside");
                let (second, _) = super::cell(style, map_size, east, 0.0).expect("inside");
                prop_assert!(first <= second);
                let (_, north) = super::cell(style, map_size, 0.0, east).expect("inside");
                let (_, south) = super::cell(style, map_size, 0.0, west).expect("inside");
                prop_assert!(north <= south);
            }
        }
    }
}
