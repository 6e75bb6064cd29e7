//! Timers that players set in chat, as the state shows them.

use serde::Serialize;
use utoipa::ToSchema;

use crate::domain::time::Timestamp;

/// Timers of one paired server.
pub const MOST_TIMERS: usize = 20;
/// Characters of a timer's text.
pub const LONGEST_TIMER_TEXT: usize = 80;

/// A timer that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TeamTimer {
    /// The number by which players name it: the lowest that was free.
    pub number: u32,
    pub text: String,
    pub ends_at: Timestamp,
}

/// The lowest number that none of these has.
pub fn free_number(numbers: impl Iterator<Item = u32>) -> u32 {
    let mut numbers: Vec<u32> = numbers.collect();
    numbers.sort_unstable();
    numbers.into_iter().fold(1, |free, number| if number == free { free + 1 } else { free })
}

#[cfg(test)]
mod tests {
    use super::free_number;

    #[test]
    fn the_lowest_free_number_is_taken() {
        assert_eq!(
            [&[][..], &[1], &[2], &[3, 1], &[2, 1, 3, 3]].map(|known| free_number(known.iter().copied())),
            [1, 2, 1, 2, 4]
        );
    }
}
