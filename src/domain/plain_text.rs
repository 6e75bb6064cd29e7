//! Text of others as clean lines: names of a game server may have rich-text tags and anything else.

/// Tags of the game's text renderer that occur in names.
const TAGS: &[&str] = &["b", "i", "u", "s", "color", "size", "material", "quad", "sprite", "alpha", "mark", "font"];

/// Longest tag, bytes; anything longer is text.
const LONGEST_TAG: usize = 64;

/// The text without rich-text tags and control characters, line breaks and tabs as spaces, at most `limit` characters,
/// trimmed.
pub fn plain_text(text: &str, limit: usize) -> String {
    let mut plain = String::new();
    let mut left = limit;
    let mut rest = text.trim_start();
    while let Some(character) = rest.chars().next() {
        if left == 0 {
            break;
        }
        if let Some(length) = tag_length(rest) {
            rest = &rest[length..];
            continue;
        }
        rest = &rest[character.len_utf8()..];
        if matches!(character, '\n' | '\r' | '\t') {
            plain.push(' ');
            left -= 1;
        } else if !is_invisible(character) {
            plain.push(character);
            left -= 1;
        }
    }
    plain.trim().to_owned()
}

/// Like [`plain_text`], without the beginning of a word that does not fit. It is cut where that would leave less than half:
/// in scripts without spaces, a sentence is one word.
pub fn plain_words(text: &str, limit: usize) -> String {
    let mut plain = plain_text(text, limit + 1);
    let Some((end, over)) = plain.char_indices().nth(limit) else { return plain };
    let is_kept = |space: &usize| !over.is_whitespace() && 2 * plain[..*space].chars().count() >= limit;
    let space = plain[..end].rfind(char::is_whitespace).filter(is_kept);
    plain.truncate(space.unwrap_or(end));
    plain.truncate(plain.trim_end().len());
    plain
}

/// The text with invisible characters as `\u{…}`: a terminal shows all of it, and obeys none of it.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match is_invisible(character) {
            true => escaped.extend(character.escape_unicode()),
            false => escaped.push(character),
        }
    }
    escaped
}

/// Control characters, and those that reorder or hide the text around them.
fn is_invisible(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// Bytes of the tag that `text` begins with.
fn tag_length(text: &str) -> Option<usize> {
    let inner = text.strip_prefix('<')?;
    let end = inner.bytes().take(LONGEST_TAG).position(|byte| byte == b'>')?;
    let tag = inner[..end].trim_start_matches('/');
    if tag.starts_with('#') {
        return Some(end + 2); // `<#ff0000>`, short for a colour
    }
    let name = tag.split(['=', ' ']).next().unwrap_or_default();
    TAGS.iter().any(|known| known.eq_ignore_ascii_case(name)).then_some(end + 2)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{escaped, plain_text, plain_words};

    #[test]
    fn tags_are_removed_and_everything_else_is_kept() {
        assert_eq!(plain_text("<color=#f00>Cheap</color> <b>wood</b>", 80), "Cheap wood");
        assert_eq!(plain_text("<#ff0000>red", 80), "red");
        assert_eq!(plain_text("I <3 scrap > wood", 80), "I <3 scrap > wood");
        assert_eq!(plain_text("<unknown>", 80), "<unknown>");
    }

    #[test]
    fn invisible_characters_are_removed() {
        assert_eq!(plain_text(" a\u{202e}b\u{7}c\u{0} ", 80), "abc");
        assert_eq!(plain_text("\u{61c}a\u{ad}b\u{206a}c\u{e0041}\u{180e}", 80), "abc");
    }

    #[test]
    fn line_breaks_and_tabs_become_spaces() {
        assert_eq!(plain_text("a\nb\tc\n", 80), "a b c");
    }

    #[test]
    fn the_limit_counts_characters_not_bytes() {
        assert_eq!(plain_text("ééééé", 3), "ééé");
    }

    #[test]
    fn a_word_that_does_not_fit_is_left_out() {
        let cut = |text: &str| plain_words(text, 10);
        assert_eq!((cut("roof campe"), cut("a camper roof")), ("roof campe".to_owned(), "a camper".to_owned()));
        assert_eq!((cut("a roof camp er"), cut("a roof hole")), ("a roof".to_owned(), "a roof".to_owned()));
        assert_eq!((cut("a roof cam er"), cut("campsites here")), ("a roof cam".to_owned(), "campsites".to_owned()));
        assert_eq!((cut(&"é".repeat(12)), cut("  ")), ("é".repeat(10), String::new()));
    }

    #[test]
    fn what_a_terminal_would_obey_is_shown() {
        assert_eq!(escaped("é \u{1b}[2J\u{7}\u{9b}m\u{202e}\n"), "é \\u{1b}[2J\\u{7}\\u{9b}m\\u{202e}\\u{a}");
    }

    proptest! {
        #[test]
        fn any_text_becomes_one_line_within_the_limit(text in any::<String>(), limit in 0_usize..50) {
            let plain = plain_text(&text, limit);
            prop_assert!(plain.chars().count() <= limit);
            prop_assert!(!plain.chars().any(char::is_control));
        }
    }
}
