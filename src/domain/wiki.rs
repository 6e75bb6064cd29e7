//! Wiki pages: the form of slugs, the content of a page, and the tree that follows from the frontmatter. The pages that
//! the service ships with are embedded; each counts until an admin writes or deletes it.

use std::{cmp::Ordering, collections::BTreeMap, fmt, sync::LazyLock};

use serde::Serialize;
use serde_json::{Map, Value};

use crate::domain::limits::{WIKI_BODY, WIKI_FRONTMATTER};

/// Characters of a slug, and parts between its slashes.
const SLUG_CHARS: usize = 120;
const SLUG_PARTS: usize = 4;
/// Characters of a section's name and of a title.
const HEADING_CHARS: usize = 120;
/// The section of pages that name none.
const NO_SECTION: &str = "Other";

/// The address of a page: parts of `a-z`, `0-9` and single hyphens, joined by slashes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct WikiSlug(String);

impl WikiSlug {
    /// Reads a slug as it is; nothing is trimmed or folded, so each page has one address.
    pub fn parse(text: &str) -> Option<Self> {
        let is_word = |word: &str| {
            !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        };
        let parts: Vec<&str> = text.split('/').collect();
        let is_slug = text.len() <= SLUG_CHARS
            && parts.len() <= SLUG_PARTS
            && parts.iter().all(|part| part.split('-').all(is_word));
        is_slug.then(|| Self(text.to_owned()))
    }

    /// The slug, as in the page's path.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for WikiSlug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Content of a page.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WikiPage {
    /// `section`, `order` and `title` place the page in the tree; the rest is free.
    pub frontmatter: Map<String, Value>,
    /// Markdown.
    pub body: String,
}

/// Place of a page in the tree.
#[derive(Clone, Debug, PartialEq)]
pub struct WikiPlace {
    pub section: String,
    pub title: String,
    /// `None`: after those that have one.
    pub order: Option<f64>,
}

/// A section of the tree.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WikiSection {
    pub name: String,
    /// By order, then by title.
    pub pages: Vec<WikiLink>,
}

/// A page in the tree.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WikiLink {
    pub slug: WikiSlug,
    pub title: String,
    pub order: Option<f64>,
}

impl WikiPage {
    /// The faults of the page: the field, and the reason.
    pub fn faults(&self) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        for field in ["section", "title"] {
            let text = match self.frontmatter.get(field) {
                None => continue,
                Some(Value::String(text)) => text,
                Some(_) => {
                    faults.push((path_of(field), "must be a text".to_owned()));
                    continue;
                }
            };
            if text.trim().is_empty() || text.chars().count() > HEADING_CHARS || text.chars().any(char::is_control) {
                faults.push((path_of(field), format!("must be one line of 1 to {HEADING_CHARS} characters")));
            }
        }
        if self.frontmatter.get("order").is_some_and(|order| !order.is_number()) {
            faults.push((path_of("order"), "must be a number".to_owned()));
        }
        if serde_json::to_string(&self.frontmatter).is_ok_and(|text| text.len() > WIKI_FRONTMATTER) {
            faults.push(("frontmatter", format!("must be at most {WIKI_FRONTMATTER} bytes of JSON")));
        }
        if self.body.len() > WIKI_BODY {
            faults.push(("body", format!("must be at most {WIKI_BODY} bytes")));
        }
        if self.body.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t')) {
            faults.push(("body", "must have no control characters but line breaks and tabs".to_owned()));
        }
        faults
    }

    /// Place of the page in the tree; without a title it is called by its slug.
    pub fn place(&self, slug: &WikiSlug) -> WikiPlace {
        let text = |field| self.frontmatter.get(field).and_then(Value::as_str).map(|text| text.trim().to_owned());
        WikiPlace {
            section: text("section").unwrap_or_else(|| NO_SECTION.to_owned()),
            title: text("title").unwrap_or_else(|| slug.to_string()),
            order: self.frontmatter.get("order").and_then(Value::as_f64),
        }
    }
}

fn path_of(field: &str) -> &'static str {
    match field {
        "section" => "frontmatter.section",
        "title" => "frontmatter.title",
        _ => "frontmatter.order",
    }
}

/// The tree of these pages: sections by the first of their pages, pages by order and title.
pub fn tree(pages: impl IntoIterator<Item = (WikiSlug, WikiPlace)>) -> Vec<WikiSection> {
    let mut sections: BTreeMap<String, Vec<WikiLink>> = BTreeMap::new();
    for (slug, WikiPlace { section, title, order }) in pages {
        sections.entry(section).or_default().push(WikiLink { slug, title, order });
    }
    let by_order = |a: &WikiLink, b: &WikiLink| in_order(a.order, b.order);
    let mut sections: Vec<WikiSection> = sections
        .into_iter()
        .map(|(name, mut pages)| {
            pages.sort_by(|a, b| by_order(a, b).then_with(|| (&a.title, &a.slug).cmp(&(&b.title, &b.slug))));
            WikiSection { name, pages }
        })
        .collect();
    // Stable: sections of the same order stay in that of their names.
    sections.sort_by(|a, b| by_order(&a.pages[0], &b.pages[0]));
    sections
}

fn in_order(a: Option<f64>, b: Option<f64>) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        (a, b) => b.is_some().cmp(&a.is_some()),
    }
}

/// The embedded pages, by slug: the files of `data/wiki`.
static SHIPPED: LazyLock<BTreeMap<WikiSlug, WikiPage>> = LazyLock::new(|| {
    let files = [
        ("alarms", include_str!("data/wiki/alarms.md")),
        ("overlays", include_str!("data/wiki/overlays.md")),
        ("pairing", include_str!("data/wiki/pairing.md")),
        ("push-credential", include_str!("data/wiki/push-credential.md")),
        ("self-hosting", include_str!("data/wiki/self-hosting.md")),
        ("shops", include_str!("data/wiki/shops.md")),
        ("welcome", include_str!("data/wiki/welcome.md")),
    ];
    files.into_iter().filter_map(|(slug, file)| Some((WikiSlug::parse(slug)?, read_file(file)))).collect()
});

/// The pages that the service ships with.
pub fn shipped() -> &'static BTreeMap<WikiSlug, WikiPage> {
    &SHIPPED
}

/// A Markdown file with frontmatter between two lines of `---`: a name, a colon and a number or text on each line.
fn read_file(file: &str) -> WikiPage {
    let (head, body) = file.strip_prefix("---\n").and_then(|rest| rest.split_once("\n---\n")).unwrap_or(("", file));
    let field = |line: &str| {
        let (name, value) = line.split_once(':')?;
        let value = value.trim();
        let value = value.parse::<i64>().map_or_else(|_| Value::from(value), Value::from);
        Some((name.trim().to_owned(), value))
    };
    WikiPage { frontmatter: head.lines().filter_map(field).collect(), body: body.trim_start().to_owned() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn page(frontmatter: Value) -> WikiPage {
        let Value::Object(frontmatter) = frontmatter else { panic!("an object") };
        WikiPage { frontmatter, body: "# Hello\n\n\tText".into() }
    }

    #[test]
    fn a_slug_is_plain_and_leads_nowhere_else() {
        for slug in ["a", "push-credential", "guides/base-1/doors", "2025"] {
            assert_eq!(WikiSlug::parse(slug).unwrap().as_str(), slug);
        }
        let long = "a".repeat(SLUG_CHARS + 1);
        for slug in [
            "",
            "/",
            "a/",
            "/a",
            "a//b",
            ".",
            "..",
            "../a",
            "a/../b",
            "a\\b",
            "a.md",
            "A",
            "é",
            "a b",
            "a%2f",
            "-a",
            "a-",
            "a--b",
            "a_b",
            "a\0",
            "a/b/c/d/e",
            &long,
        ] {
            assert_eq!(WikiSlug::parse(slug), None, "{slug:?}");
        }
    }

    #[test]
    fn frontmatter_is_free_but_for_what_places_the_page() {
        assert_eq!(page(json!({ "section": "Start", "order": 1.5, "tags": ["a", { "b": null }] })).faults(), []);
        let wrong = page(json!({ "section": 1, "title": " ", "order": "1" }));
        let paths: Vec<_> = wrong.faults().into_iter().map(|(path, _)| path).collect();
        assert_eq!(paths, ["frontmatter.section", "frontmatter.title", "frontmatter.order"]);
        let mut large = page(json!({ "note": "x".repeat(WIKI_FRONTMATTER) }));
        large.body = "\u{7}".repeat(WIKI_BODY + 1);
        let paths: Vec<_> = large.faults().into_iter().map(|(path, _)| path).collect();
        assert_eq!(paths, ["frontmatter", "body", "body"]);
    }

    #[test]
    fn the_tree_follows_order_then_title() {
        let entry = |slug: &str, frontmatter| {
            let slug = WikiSlug::parse(slug).unwrap();
            let place = page(frontmatter).place(&slug);
            (slug, place)
        };
        let tree = tree([
            entry("z", json!({})),
            entry("later", json!({ "section": "Start", "order": 2, "title": "A" })),
            entry("first", json!({ "section": "Start", "order": 1, "title": "B" })),
            entry("also-first", json!({ "section": "Start", "order": 1, "title": "A" })),
            entry("unordered", json!({ "section": "Start", "title": "0" })),
            entry("zero", json!({ "section": "Zero", "order": 0 })),
        ]);
        let seen: Vec<(&str, Vec<&str>)> = tree
            .iter()
            .map(|section| (section.name.as_str(), section.pages.iter().map(|page| page.slug.as_str()).collect()))
            .collect();
        let start = vec!["also-first", "first", "later", "unordered"];
        assert_eq!(seen, [("Zero", vec!["zero"]), ("Start", start), ("Other", vec!["z"])]);
        assert_eq!(tree[2].pages[0].title, "z", "called by its slug");
    }

    #[test]
    fn the_shipped_pages_explain_the_service() {
        assert_eq!(shipped().len(), 7);
        for (slug, page) in shipped() {
            assert_eq!(page.faults(), [], "{slug}");
            let place = page.place(slug);
            assert!(place.order.is_some() && place.section != NO_SECTION && place.title != slug.as_str(), "{slug}");
            assert!(page.body.starts_with("# ") && page.body.len() > 500, "{slug}");
        }
        // A link without a scheme is a slug.
        let linked = |page: &WikiPage| -> Vec<String> {
            let links = page.body.split("](").skip(1).filter_map(|rest| rest.split(')').next());
            links.filter(|link| !link.contains("://")).map(str::to_owned).collect()
        };
        for (slug, page) in shipped() {
            for link in linked(page) {
                assert!(WikiSlug::parse(&link).is_some_and(|link| shipped().contains_key(&link)), "{slug}: {link}");
            }
        }
    }
}
