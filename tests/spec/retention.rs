//! The table of docs/privacy.md says for how long everything is kept, as the service has it.

use std::{env, fmt::Write as _, fs, path::Path};

use companion::server::retention;

const PAGE: &str = "docs/privacy.md";
/// Set, the page is written again.
const UPDATE: &str = "UPDATE_PRIVACY";
/// The table of the page begins after this line and is its end.
const TABLE_BEGINS: &str = "| Stored | Kept for |\n|---|---|\n";

#[test]
fn the_page_says_how_long_everything_is_kept() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let written = fs::read_to_string(&path).unwrap();
    let (before, _) = written.split_once(TABLE_BEGINS).expect("the page has a place for the table");
    let mut page = format!("{before}{TABLE_BEGINS}");
    for retention::RetentionRule { stored, kept, .. } in retention::RULES {
        writeln!(page, "| {stored} | {} |", kept()).unwrap();
    }
    if env::var_os(UPDATE).is_some() {
        fs::write(&path, &page).unwrap();
        return;
    }
    assert!(written == page, "{PAGE} is out of date: `{UPDATE}=1 cargo test --test spec retention` writes it again");
}
