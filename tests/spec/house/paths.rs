//! The documentation names files and paragraphs that exist and every room of the house, and its tables are whole.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use super::{
    FLOORS,
    source::{literals, rust_files},
};

/// Directories of this repository of which the documentation names files.
const DIRECTORIES: [&str; 6] = [".ci/", "benches/", "deploy/", "migrations/", "src/", "tests/"];

/// The paths in the code of a page, between backticks; `…` ends one.
fn paths(page: &str) -> impl Iterator<Item = &str> {
    let words = page.split('`').skip(1).step_by(2).flat_map(str::split_whitespace);
    let named = words.filter(|word| DIRECTORIES.iter().any(|directory| word.starts_with(directory)));
    named.map(|word| word.split('…').next().unwrap_or(word))
}

/// The README and the pages in `docs`, with their text.
fn pages(root: &Path) -> impl Iterator<Item = (PathBuf, String)> {
    let docs = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = docs.filter(|path| path.is_file()).chain([root.join("README.md")]);
    pages.map(|page| (page.clone(), fs::read_to_string(page).unwrap()))
}

/// Headings of a page, without their marks.
fn headings(page: &str) -> impl Iterator<Item = &str> {
    page.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim())
}

/// The anchor of a heading, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|&letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// The links of a page within this repository: the file, empty for the page itself, and the anchor, if there is one.
fn links(page: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    let targets = page.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let own = targets.filter(|target| !target.contains("://"));
    own.map(|target| target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor))))
}

/// Paragraphs that a text names, with their page: `docs/page.md, Heading` and `docs/page.md (Heading)`.
fn paragraphs(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let pages = text.split("docs/").skip(1).filter_map(|rest| rest.split_once(".md"));
    let named = pages.filter_map(|(page, rest)| Some((page, rest.strip_prefix(", ").or(rest.strip_prefix(" ("))?)));
    named.filter(|(_, paragraph)| paragraph.starts_with(char::is_uppercase))
}

/// Rows of tables that do not end on their line.
fn broken_rows(page: &str) -> Vec<&str> {
    page.lines().filter(|line| line.starts_with('|') && !line.trim_end().ends_with('|')).collect()
}

#[test]
fn every_row_of_a_table_is_one_line() {
    let (mut rows, mut broken) = (0, Vec::new());
    for (page, text) in pages(Path::new(env!("CARGO_MANIFEST_DIR"))) {
        rows += text.lines().filter(|line| line.starts_with('|')).count();
        broken.extend(broken_rows(&text).iter().map(|row| format!("{}: {row}", page.display())));
    }
    assert!(rows > 100, "{rows} rows were found");
    assert!(broken.is_empty(), "these go on in the next line:\n{}", broken.join("\n"));
    assert_eq!(broken_rows("a\n| b | c |\n| d | e\n\nf |"), ["| d | e"]);
}

#[test]
fn every_path_that_the_documentation_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut read, mut missing) = (0, Vec::new());
    for (page, text) in pages(root) {
        for path in paths(&text) {
            read += 1;
            if !root.join(path).exists() {
                missing.push(format!("{}: {path}", page.display()));
            }
        }
    }
    assert!(read > 100, "{read} paths were found");
    assert!(missing.is_empty(), "these do not exist:\n{}", missing.join("\n"));
}

#[test]
fn every_link_of_the_documentation_leads_to_a_paragraph() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let changes = root.join("CHANGELOG.md");
    let changes = (changes.clone(), fs::read_to_string(changes).unwrap());
    let (mut read, mut broken) = (0, Vec::new());
    for (page, text) in pages(root).chain([changes]) {
        for (file, named) in links(&text) {
            read += 1;
            let target = if file.is_empty() { page.clone() } else { page.with_file_name(file) };
            let has =
                |named: &str| headings(&fs::read_to_string(&target).unwrap()).any(|heading| anchor(heading) == named);
            if !target.exists() || named.is_some_and(|named| !has(named)) {
                broken.push(format!("{}: {file}#{}", page.display(), named.unwrap_or_default()));
            }
        }
    }
    assert!(read > 100, "{read} links were found");
    assert!(broken.is_empty(), "these lead nowhere:\n{}", broken.join("\n"));
}

#[test]
fn every_paragraph_that_the_service_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut read, mut missing) = (0, Vec::new());
    for source in rust_files(&root.join("src")) {
        for text in literals(&fs::read_to_string(&source).unwrap()) {
            // A text goes on in the next line behind a backslash.
            let text: String = text.split("\\\n").map(str::trim_start).collect();
            for (page, paragraph) in paragraphs(&text) {
                read += 1;
                let manual = fs::read_to_string(root.join("docs").join(page).with_extension("md")).unwrap_or_default();
                if !headings(&manual).any(|heading| paragraph.starts_with(heading)) {
                    missing.push(format!("{}: docs/{page}.md, {paragraph}", source.display()));
                }
            }
        }
    }
    assert!(read > 20, "{read} paragraphs were found");
    assert!(missing.is_empty(), "these do not exist:\n{}", missing.join("\n"));
}

#[test]
fn every_room_is_named_in_the_documentation() {
    let pages: Vec<(PathBuf, String)> = pages(Path::new(env!("CARGO_MANIFEST_DIR"))).collect();
    let sources = pages.iter().flat_map(|(_, text)| paths(text)).filter_map(|path| path.strip_prefix("src/"));
    let named: BTreeSet<&str> = sources.filter_map(|path| path.split(['/', '.']).next()).collect();
    let mut missing = FLOORS.concat();
    missing.retain(|room| !named.contains(room));
    assert!(missing.is_empty(), "no page says what these rooms of src are for: {missing:?}");
}

#[test]
fn links_and_paragraphs_are_found() {
    let page = "[a](b.md) ![c](d/e.webp)\n[f](#g) [h](https://i.test/#j), [k](l.md#m)";
    let found = [("b.md", None), ("d/e.webp", None), ("", Some("g")), ("l.md", Some("m"))];
    assert_eq!(links(page).collect::<Vec<_>>(), found);
    let text = "see docs/a.md, The log; docs/b.md (PgBouncer), docs/c.md, or docs/d.md";
    let found: Vec<_> = paragraphs(text).map(|(page, paragraph)| (page, &paragraph[..3])).collect();
    assert_eq!(found, [("a", "The"), ("b", "PgB")]);
    assert_eq!(headings("# A\nb\n### C d").collect::<Vec<_>>(), ["A", "C d"]);
    assert_eq!(anchor("Secrets, and how each is `rotated`"), "secrets-and-how-each-is-rotated");
}

#[test]
fn paths_are_found() {
    let page = "src/a `src/b.rs`, `cargo test`, `tests/c/run x` and\n```sh\nnode tests/d.mjs\n```\n`src/api/…` src/e";
    assert_eq!(paths(page).collect::<Vec<_>>(), ["src/b.rs", "tests/c/run", "tests/d.mjs", "src/api/"]);
}
