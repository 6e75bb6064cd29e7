//! Lines that are said in a team's chat: within the game's limit, and such that no bot takes them for a command.

use crate::domain::plain_text::plain_text;

/// UTF-16 units of a line, as the game counts; older game servers cut longer ones (protocol §3.3).
pub const LINE: usize = 128;
/// UTF-16 units of a word that is left out whole where a line ends: more than any name has. In scripts without spaces, a
/// sentence is one word.
const LONGEST_WORD: usize = 64;

/// The text as one line, without tags, without marks in front that might be the prefix of a bot, cut after a word with
/// an ellipsis. None if nothing is left.
pub fn line(text: &str) -> Option<String> {
    let mut plain = plain_text(text, 2 * LINE);
    // A tag within a tag is one after the first is gone; and marks may hide the tag after them.
    loop {
        let inner = plain_text(plain.trim_start_matches(is_mark), 2 * LINE);
        if inner == plain {
            break;
        }
        plain = inner;
    }
    if units(&plain) > LINE {
        plain.truncate(end_of_words(&plain));
        plain.push('…');
    }
    (!plain.is_empty()).then_some(plain)
}

/// The end, in bytes, of the whole words of a text that is longer than a line, with room for the ellipsis. A cut number
/// would be another one. Only a word that is very long itself is cut.
fn end_of_words(text: &str) -> usize {
    let mut units = 0;
    let over = text.char_indices().find(|(_, character)| {
        units += character.len_utf16();
        units > LINE - 1
    });
    let end = over.map_or(text.len(), |(at, _)| at);
    let (fits, rest) = text.split_at(end);
    if rest.starts_with(char::is_whitespace) {
        return trimmed(fits);
    }
    match fits.rfind(char::is_whitespace) {
        Some(space) if self::units(&fits[space..]) <= LONGEST_WORD => trimmed(&fits[..space]),
        _ => end,
    }
}

/// Bytes of the text without what only joins it to a next word.
fn trimmed(text: &str) -> usize {
    text.trim_end_matches(|end: char| end.is_whitespace() || matches!(end, ',' | ':' | ';')).len()
}

/// Neither letter, digit nor picture. Bots have other prefixes than ASCII ones, too, and `！` is typed for `!`.
fn is_mark(character: char) -> bool {
    let is_picture = matches!(character, '\u{2600}'..='\u{27bf}' | '\u{1f000}'..='\u{1faff}');
    !character.is_alphanumeric() && !is_picture
}

/// The texts with commas between, on all the lines that they need.
pub fn lines(texts: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for text in texts {
        match lines.last_mut().filter(|last| units(last) + units(&text) + 2 <= LINE) {
            Some(last) => *last = format!("{last}, {text}"),
            None => lines.push(text),
        }
    }
    lines
}

fn units(text: &str) -> usize {
    text.encode_utf16().count()
}

/// The texts with commas between, as many as fit with what comes before them.
pub fn joined(before: &str, texts: impl IntoIterator<Item = String>) -> String {
    let mut all = before.to_owned();
    for (place, text) in texts.into_iter().enumerate() {
        if place > 0 && units(&all) + units(&text) + 2 > LINE - 1 {
            return all + "…";
        }
        all += if place > 0 { ", " } else { "" };
        all += &text;
    }
    all
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_never_begins_like_a_command() {
        assert_eq!(line("!pop").as_deref(), Some("pop"));
        assert_eq!(line(" <b>!</b>.! <color=#f00>gate</color> is on").as_deref(), Some("gate is on"));
        assert_eq!(line("!<<b>b>pop").as_deref(), Some("b>pop"));
        assert_eq!((line("!!!"), line(""), line("<b></b>")), (None, None, None));
        for hidden in ["！pop", "¡!pop", "\u{ad}!pop", "\u{301}!pop", "\u{2800}!pop", "\u{61c}!pop", "\u{fe0f}!pop"] {
            assert_eq!(line(hidden).as_deref(), Some("pop"), "{hidden:?}");
        }
        assert_eq!(line("✅ gate is on").as_deref(), Some("✅ gate is on"));
    }

    #[test]
    fn a_long_line_is_cut_within_the_limit_of_the_game() {
        assert_eq!(line(&"x".repeat(LINE)).as_deref(), Some(&*"x".repeat(LINE)));
        assert_eq!(line(&"x".repeat(LINE + 1)).unwrap(), "x".repeat(LINE - 1) + "…");
        assert_eq!(units(&line(&"😀".repeat(128)).unwrap()), LINE - 1);
        let many = joined("AFK: ", (0..50).map(|n| format!("Bob {n}m")));
        assert!(units(&many) <= LINE && many.starts_with("AFK: Bob 0m, Bob 1m") && many.ends_with('…'), "{many}");
        assert_eq!(joined("", ["a".to_owned(), "b".to_owned()]), "a, b");
    }

    #[test]
    fn a_line_is_cut_between_words_and_never_in_a_number() {
        let cut = |text: &str| line(text).unwrap();
        let filled = |last: &str| format!("{} {last}", "x".repeat(120));
        assert_eq!(cut(&filled("123456 7")), format!("{}…", filled("123456")), "it fits exactly");
        assert_eq!(cut(&filled("1234567 8")), format!("{}…", "x".repeat(120)));
        assert_eq!(cut(&format!("{}, 1234567 8", "x".repeat(120))), format!("{}…", "x".repeat(120)));
        // As much of a long word as fits.
        let sentence = format!("timer 1: {}", "字".repeat(200));
        assert_eq!(cut(&sentence), format!("timer 1: {}…", "字".repeat(118)));
    }

    #[test]
    fn what_does_not_fit_on_a_line_is_on_the_next() {
        let of = |lengths: &[usize]| lines(lengths.iter().map(|length| "x".repeat(*length)));
        assert_eq!(of(&[63, 63, 1]).iter().map(|line| line.len()).collect::<Vec<_>>(), [LINE, 1]);
        assert_eq!(of(&[200, 60, 66]).iter().map(|line| line.len()).collect::<Vec<_>>(), [200, LINE]);
        assert_eq!((of(&[]), of(&[2, 3])), (Vec::new(), vec!["xx, xxx".to_owned()]));
    }

    proptest! {
        #[test]
        fn whatever_is_said_fits_and_is_no_command(text in any::<String>(), marks in "[!-/<>b！¡\u{ad}\u{301}\u{202e}]{0,12}") {
            if let Some(said) = line(&format!("{marks}{text}")) {
                prop_assert!(units(&said) <= LINE && said.trim() == said, "{said}");
                prop_assert!(!said.starts_with(is_mark), "{said}");
                prop_assert!(!said.chars().any(char::is_control));
            }
        }

        #[test]
        fn a_long_text_loses_whole_words(words in prop::collection::vec("[a-z0-9é字][a-z0-9/é字]{0,31}", 1..40)) {
            let text = words.join(" ");
            let said = line(&text).expect("it has letters");
            prop_assert!(units(&said) <= LINE, "{said}");
            let kept: Vec<&str> = said.trim_end_matches('…').split(' ').collect();
            prop_assert!(said == text || kept.iter().zip(&words).all(|(kept, word)| kept == word), "{said}");
        }

        #[test]
        fn a_list_has_all_that_fits(texts in prop::collection::vec("[a-z]{1,40}", 0..20)) {
            let list = joined("x: ", texts.clone());
            prop_assert!(units(&list) <= LINE);
            let whole = format!("x: {}", texts.join(", "));
            prop_assert!(list == whole || units(&whole) >= LINE);
            // Each text is there whole, or not at all.
            let shown = list.trim_end_matches('…');
            let is_whole = (0..=texts.len()).any(|count| shown == format!("x: {}", texts[..count].join(", ")));
            prop_assert!(is_whole, "{list}");
        }
    }
}
