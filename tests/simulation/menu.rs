//! Acts of a script, drawn by weight.

use std::ops::Range;

use crate::random::Stream;

/// Makes an act.
pub type Draw<Act> = fn(&mut Stream) -> Act;

/// Draws acts for these times. The menu has faults from an index on; a seed has each with this chance in a hundred, and the
/// weights of all differ by seed. The mean pause between two acts is in the given range.
pub fn draw<Act>(
    menu: &[(u64, Draw<Act>)],
    (first_fault, chance): (usize, u64),
    pauses: Range<u64>,
    times: Range<u64>,
    random: &mut Stream,
) -> Vec<(u64, Act)> {
    let weights: Vec<u64> = menu
        .iter()
        .enumerate()
        .map(|(index, (weight, _))| match index < first_fault || random.chance(chance) {
            true => weight * random.between(1, 4),
            false => 0,
        })
        .collect();
    let total: u64 = weights.iter().sum();
    let pause = random.between(pauses.start, pauses.end);
    let (mut script, mut at) = (Vec::new(), times.start);
    while at < times.end {
        let mut pick = random.below(total);
        let index = weights.iter().position(|weight| {
            let found = pick < *weight;
            pick = pick.saturating_sub(*weight);
            found
        });
        script.push((at, menu[index.expect("below the total")].1(random)));
        at += random.below(2 * pause);
    }
    script
}
