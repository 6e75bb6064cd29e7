//! The documentation names files that exist, and its tables are whole.

use std::{
    fs,
    path::{Path, PathBuf},
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
fn paths_are_found() {
    let page = "src/a `src/b.rs`, `cargo test`, `tests/c/run x` and\n```sh\nnode tests/d.mjs\n```\n`src/api/…` src/e";
    assert_eq!(paths(page).collect::<Vec<_>>(), ["src/b.rs", "tests/c/run", "tests/d.mjs", "src/api/"]);
}
