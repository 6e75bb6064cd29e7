//! Imports between the rooms of a folder only go down.

use std::{collections::BTreeSet, path::Path};

use super::source::{Library, SourceFile};

/// A folder, its rooms and the modules in its hall, the lowest first: each may import those before it. The folder's own
/// file is `""`, and `*` are all that are not named.
const FOLDERS: [(&str, &[&str]); 3] = [
    ("relay", &["shared", "wire", "state", "market", "alarms", "game", "client", "hub", "listener", ""]),
    (
        "api",
        &[
            "answer",
            "rate_limits",
            "caches",
            "context",
            "extract",
            "route",
            "middleware",
            "money",
            "content",
            "account",
            "server",
            "intel",
            "operation",
            "admin",
            "bot",
            "document",
            "routes",
            "",
        ],
    ),
    ("db", &["schema", "engine", "", "*"]),
];

#[test]
fn imports_between_rooms_only_go_down() {
    let library = Library::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    for (folder, rooms) in FOLDERS {
        let wrong = wrong_imports(&library, folder, rooms);
        assert!(wrong.is_empty(), "these imports go up between the rooms of {folder}:\n{}", wrong.join("\n"));
    }
}

fn wrong_imports(library: &Library, folder: &str, rooms: &[&str]) -> Vec<String> {
    let name = |path: &[String]| path.get(1).cloned().unwrap_or_default();
    let named: BTreeSet<String> =
        library.0.keys().filter(|module| is_in(module, folder)).map(|path| name(path)).collect();
    for room in rooms.iter().filter(|&&room| room != "*") {
        assert!(named.contains(*room), "{folder} has no {room}");
    }
    let floor = |room: &str| {
        let at = rooms.iter().position(|&known| known == room).or(rooms.iter().position(|&known| known == "*"));
        at.unwrap_or_else(|| panic!("{folder}::{room} has no floor"))
    };
    let mut wrong = Vec::new();
    for (module, file) in library.0.iter().filter(|(module, _)| is_in(module, folder)) {
        let is_test =
            (1..=module.len()).any(|length| library.0.get(&module[..length]).is_some_and(|file| file.only_tests));
        let imports = if is_test { Vec::new() } else { library.imports_outside_tests(module) };
        for import in imports.iter().filter(|import| is_in(import, folder)) {
            // An item of the folder's own file is no module.
            let target = if named.contains(&name(import)) { name(import) } else { String::new() };
            if floor(&target) > floor(&name(module)) {
                wrong.push(format!("{}: {}", file.path.display(), import.join("::")));
            }
        }
    }
    wrong
}

fn is_in(module: &[String], folder: &str) -> bool {
    module.first().is_some_and(|first| first == folder)
}

#[test]
fn an_import_that_goes_up_is_found() {
    let file = |path: &str, text: &str| {
        let module = path.split("::").map(str::to_owned).collect();
        (module, SourceFile { path: path.into(), text: text.into(), only_tests: false })
    };
    let library = Library::new(
        [
            file("relay", "mod low; mod high; use self::high::b;"),
            file("relay::high::b", "use crate::relay::low::a::A; use super::super::start;"),
            file("relay::low::a", "use super::super::high::b::B;"),
        ]
        .into(),
    );
    let wrong = wrong_imports(&library, "relay", &["low", "high", ""]);
    assert_eq!(wrong, ["relay::high::b: relay::start", "relay::low::a: relay::high::b::B"]);
}
