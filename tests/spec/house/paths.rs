//! The documentation names files that exist.

use std::{fs, path::Path};

/// Directories of this repository of which the documentation names files.
const DIRECTORIES: [&str; 6] = [".ci/", "benches/", "deploy/", "migrations/", "src/", "tests/"];

/// The paths in the code of a page, between backticks; `…` ends one.
fn paths(page: &str) -> impl Iterator<Item = &str> {
    let words = page.split('`').skip(1).step_by(2).flat_map(str::split_whitespace);
    let named = words.filter(|word| DIRECTORIES.iter().any(|directory| word.starts_with(directory)));
    named.map(|word| word.split('…').next().unwrap_or(word))
}

#[test]
fn every_path_that_the_documentation_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let docs = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let (mut read, mut missing) = (0, Vec::new());
    for page in docs.filter(|path| path.is_file()).chain([root.join("README.md")]) {
        let text = fs::read_to_string(&page).unwrap();
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
