//! Durations as players type them in chat, and as they are shown there.

use chrono::TimeDelta;

/// Longest duration of a timer or of a switch that turns back.
pub const LONGEST: TimeDelta = TimeDelta::days(7);

/// Seconds of each unit, in the order in which they are typed.
const UNITS: [(char, i64); 4] = [('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)];

/// Reads `1d2h3m4s`, or some of these parts in this order: more than nothing, and [`LONGEST`] at most.
pub fn parse(text: &str) -> Option<TimeDelta> {
    let mut rest = text.to_ascii_lowercase();
    let mut seconds = 0_i64;
    for (unit, length) in UNITS {
        let digits = rest.chars().take_while(char::is_ascii_digit).count();
        if digits > 0 && rest[digits..].starts_with(unit) {
            let number: i64 = rest[..digits].parse().ok()?;
            seconds = seconds.checked_add(number.checked_mul(length)?)?;
            rest.drain(..=digits);
        }
    }
    let is_whole = rest.is_empty() && seconds > 0;
    (is_whole && seconds <= LONGEST.num_seconds()).then(|| TimeDelta::seconds(seconds))
}

/// Like [`parse`]; a number without a unit is minutes.
pub fn parse_minutes(text: &str) -> Option<TimeDelta> {
    let is_number = !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
    if is_number { parse(&format!("{text}m")) } else { parse(text) }
}

/// `2d 4h`, `3h 12m`, `44m`, `90s`: the two largest units, seconds below two minutes.
pub fn shown(span: TimeDelta) -> String {
    let seconds = span.num_seconds().max(0);
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    let pair = |large: i64, large_unit: char, small: i64, small_unit: char| match small {
        0 => format!("{large}{large_unit}"),
        small => format!("{large}{large_unit} {small}{small_unit}"),
    };
    match (days, hours, seconds) {
        (1.., ..) => pair(days, 'd', hours, 'h'),
        (0, 1.., _) => pair(hours, 'h', minutes, 'm'),
        (_, _, 120..) => format!("{minutes}m"),
        _ => format!("{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_have_units_in_their_order() {
        let seconds = |text: &str| parse(text).map(|span| span.num_seconds());
        assert_eq!(seconds("1d2h3m4s"), Some(93_784));
        assert_eq!((seconds("15m"), seconds("90S"), seconds("7d")), (Some(900), Some(90), Some(604_800)));
        for wrong in ["", "15", "m", "0s", "5m3h", "1h2h", "1x", "7d1s", "-1m", "99999999999999999999s", "1 m", "é"] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
        assert_eq!(parse_minutes("15"), Some(TimeDelta::minutes(15)));
        assert_eq!(parse_minutes("1h"), Some(TimeDelta::hours(1)));
        assert_eq!((parse_minutes(""), parse_minutes("0"), parse_minutes("1x")), (None, None, None));
    }

    #[test]
    fn a_span_is_shown_by_its_two_largest_units() {
        let spans = [(-5, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (3_599, "59m"), (3_600, "1h")];
        for (seconds, text) in [(11_520, "3h 12m"), (86_400, "1d"), (187_200, "2d 4h")].into_iter().chain(spans) {
            assert_eq!(shown(TimeDelta::seconds(seconds)), text);
        }
    }

    proptest! {
        #[test]
        fn no_text_is_longer_than_the_longest(text in "[0-9dhms]{0,24}") {
            if let Some(span) = parse_minutes(&text) {
                prop_assert!(span > TimeDelta::zero() && span <= LONGEST);
            }
        }
    }
}
