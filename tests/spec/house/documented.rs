//! Documentation: a file says in its head what it is, and every public item in the lines before it. rustc's
//! `missing_docs` asks the same of fields and variants, whose names often say it all.

use std::{fs, path::Path};

use companion::domain::channels::user_channel::ChannelKind;

use super::source::Library;

/// Words with which an item begins after `pub`.
const ITEMS: [&str; 8] = ["const", "enum", "fn", "mod", "static", "struct", "trait", "type"];

#[test]
fn every_file_and_public_item_is_documented() {
    let library = Library::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    let mut wrong = Vec::new();
    for file in library.0.values().filter(|file| !file.only_tests) {
        if !file.text.starts_with("//!") {
            wrong.push(format!("{}: the head", file.path.display()));
        }
        for (number, line) in undocumented(&file.text) {
            wrong.push(format!("{}:{number}: {line}", file.path.display()));
        }
    }
    assert!(wrong.is_empty(), "these have no documentation, write a sentence or `pub(crate)`:\n{}", wrong.join("\n"));
}

/// Public items outside of tests without a line of documentation before them and their attributes, with their lines'
/// numbers.
fn undocumented(text: &str) -> Vec<(usize, &str)> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let tests = lines.windows(2).position(|pair| pair[0] == "#[cfg(test)]" && pair[1].ends_with("mod tests {"));
    let code = &lines[..tests.unwrap_or(lines.len())];
    let is_wrong = |index: &usize| is_public_item(code[*index]) && !is_documented(&code[..*index]);
    (0..code.len()).filter(is_wrong).map(|index| (index + 1, code[index])).collect()
}

/// A module in a file of its own is documented there.
fn is_public_item(line: &str) -> bool {
    let Some(rest) = line.strip_prefix("pub ") else { return false };
    let word = rest.strip_prefix("async ").unwrap_or(rest).split(' ').next();
    word.is_some_and(|word| ITEMS.contains(&word)) && !(word == Some("mod") && line.ends_with(';'))
}

/// `before` are the lines before the item.
fn is_documented(mut before: &[&str]) -> bool {
    // Attributes come in between, and may have several lines.
    while before.last().is_some_and(|line| line.ends_with(']') && !line.starts_with("//")) {
        before = &before[..before.iter().rposition(|line| line.starts_with("#[")).unwrap_or_default()];
    }
    before.last().is_some_and(|line| line.starts_with("///") || line.starts_with("$(#["))
}

/// A channel is a recipient of what users store: the table that operators make their notice from names each kind.
#[test]
fn every_kind_of_channel_is_named_as_a_recipient_of_data() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operations.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, rest) = page.split_once("Recipients of data").expect("the page has the table");
    let (table, _) = rest.split_once("\n## ").expect("another section follows");
    let mut missing = ChannelKind::WORDS.to_vec();
    missing.retain(|word| !table.contains(&format!("`{word}`")));
    assert!(missing.is_empty(), "docs/operations.md, Recipients of data, names no {missing:?}");
}

#[test]
fn undocumented_items_are_found() {
    let source = "\
        /// A.\n#[derive(\n    Debug\n)]\npub struct A;\n\n\
        #[must_use]\npub fn b() {}\n\
        pub mod c;\npub mod d {\n    pub async fn e() {}\n    pub(crate) fn f() {}\n}\n\
        #[cfg(test)]\nmod tests {\n    pub fn g() {}\n}\n";
    let found: Vec<_> = undocumented(source).into_iter().map(|(number, _)| number).collect();
    assert_eq!(found, [8, 10, 11]);
}
