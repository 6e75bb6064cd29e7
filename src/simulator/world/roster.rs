//! Players of further teams.

use super::team::TEAM;

const NAMES: [&str; 24] = [
    "Ash", "Briar", "Cole", "Dune", "Ember", "Flint", "Gale", "Hazel", "Iris", "Jett", "Kestrel", "Lark", "Moss",
    "North", "Onyx", "Pike", "Quill", "Reed", "Slate", "Thorn", "Umber", "Vale", "Wren", "Yarrow",
];

/// SteamID64 and name of the members of this many teams of `size`, all of them other players than those of [`TEAM`]. No
/// name is given twice.
pub fn roster(teams: usize, size: usize) -> Vec<Vec<(u64, String)>> {
    let first = TEAM[0].0 + 1_000;
    let player = |index: usize| {
        let name = NAMES[index % NAMES.len()];
        let name = match index / NAMES.len() {
            0 => name.to_owned(),
            round => format!("{name} {}", round + 1),
        };
        (first + index as u64, name)
    };
    (0..teams).map(|team| (0..size).map(|member| player(team * size + member)).collect()).collect()
}
