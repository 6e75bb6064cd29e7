//! Search of items by typed text.

use std::sync::Arc;

use crate::domain::items::CatalogueItem;

/// Quality of a match, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Match {
    /// Its name, short name or id.
    Exact,
    Prefix,
    /// A word of its name or short name.
    Word,
    WordPrefix,
    Substring,
}

/// The first `limit` of these items that match: all words must be there, in a name or in the short name. The best match
/// first; among equals the shorter short name, then by name.
pub fn search(items: &[Arc<CatalogueItem>], query: &str, limit: usize) -> Vec<Arc<CatalogueItem>> {
    let mut found = ranked(items, query);
    found.sort_by(|(a_rank, a), (b_rank, b)| (a_rank, &a.name, a.id).cmp(&(b_rank, &b.name, b.id)));
    found.into_iter().take(limit).map(|(_, item)| item).collect()
}

/// All that match, in no order, each with its rank: the best has the lowest.
pub fn ranked(items: &[Arc<CatalogueItem>], query: &str) -> Vec<(u64, Arc<CatalogueItem>)> {
    let query = query.trim().to_lowercase();
    if query.is_empty() {
        return Vec::new();
    }
    let rank = |item: &CatalogueItem| Some(match_of(item, &query)? as u64 * 1_000 + item.shortname.len() as u64);
    items.iter().filter_map(|item| Some((rank(item)?, item.clone()))).collect()
}

fn match_of(item: &CatalogueItem, query: &str) -> Option<Match> {
    let texts = [item.name.to_lowercase(), item.shortname.to_lowercase()];
    if texts.iter().any(|text| text == query) || item.id.to_string() == query {
        return Some(Match::Exact);
    }
    if texts.iter().any(|text| text.starts_with(query)) {
        return Some(Match::Prefix);
    }
    // The match is as good as its worst word.
    query.split_whitespace().map(|word| word_match(&texts, word)).collect::<Option<Vec<_>>>()?.into_iter().max()
}

fn word_match(texts: &[String; 2], wanted: &str) -> Option<Match> {
    let words = || texts.iter().flat_map(|text| text.split(|c: char| !c.is_alphanumeric()));
    if words().any(|word| word == wanted) {
        Some(Match::Word)
    } else if words().any(|word| word.starts_with(wanted)) {
        Some(Match::WordPrefix)
    } else {
        texts.iter().any(|text| text.contains(wanted)).then_some(Match::Substring)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::items::Catalogue;

    fn found(query: &str) -> Vec<String> {
        search(&Catalogue::embedded().all(), query, 5).iter().map(|item| item.shortname.to_string()).collect()
    }

    #[test]
    fn the_best_match_comes_first() {
        assert_eq!(found("rifle.ak")[0], "rifle.ak");
        assert_eq!(found("1545779598"), ["rifle.ak"]);
        assert_eq!(found("  Scrap ")[0], "scrap");
        assert_eq!(found("ak")[0], "rifle.ak", "a word of the short name before a part of another name");
        assert_eq!(found("assault rifle")[0], "rifle.ak");
        assert_eq!(found("rifle assault")[0], "rifle.ak", "in any order");
        assert_eq!(found("sulf")[0], "sulfur", "a prefix, and the shorter name");
        assert_eq!(found("rocket")[0], "ammo.rocket.basic");
        assert!(found("door").iter().all(|shortname| shortname.contains("door")));
        assert_eq!(found("no such thing"), [""; 0]);
        assert_eq!(found(" "), [""; 0]);
        assert_eq!(found("%").len(), 0);
    }
}
