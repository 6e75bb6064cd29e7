//! Imports between the rooms of a folder only go down.

use std::{collections::BTreeSet, path::Path};

use super::source::{Library, SourceFile};

/// A folder, its rooms and the modules in its hall, the lowest first: each may import those before it. The folder's own
/// file is `""`, and `*` are all that are not named.
const FOLDERS: [(&str, &[&str]); 3] = [
    ("relay", &["shared", "wire", "state", "market", "alarms", "game", "remote", "client", "hub", "listener", ""]),
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

/// The imports of one room of a folder from the others, outside tests.
fn rooms_of(library: &Library, folder: &str, room: &str) -> BTreeSet<String> {
    let is_room = |path: &[String]| is_in(path, folder) && path.get(1).is_some_and(|name| name == room);
    let modules = library.0.iter().filter(|(module, file)| is_room(module) && !file.only_tests);
    let imports = modules.flat_map(|(module, _)| library.imports_outside_tests(module));
    imports.filter(|path| is_in(path, folder) && !is_room(path)).filter_map(|path| path.get(1).cloned()).collect()
}

#[test]
fn the_relay_draws_its_rooms_files_and_imports() {
    let library = Library::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    let drawing = include_str!("../../../src/relay.rs").split("```").nth(1).expect("the rooms are drawn");
    let mut drawn: Vec<(&str, BTreeSet<String>, BTreeSet<String>)> = Vec::new();
    for line in drawing.lines().filter_map(|line| line.strip_prefix("//! ")).filter(|line| !line.is_empty()) {
        let name = line.split_whitespace().next().expect("a line has a name");
        match line.len() - line.trim_start().len() {
            0 => {
                let imports = line.split_once('>').map_or("", |(_, imports)| imports);
                drawn.push((name, BTreeSet::new(), imports.split_whitespace().map(str::to_owned).collect()));
            }
            2 => {
                drawn.last_mut().expect("a room comes first").1.insert(name.to_owned());
            }
            _ => {}
        }
    }
    let (_, rooms) = FOLDERS[0];
    let names: Vec<&str> = drawn.iter().rev().map(|(room, ..)| *room).collect();
    assert_eq!(names, rooms[..rooms.len() - 1], "the rooms, the lowest first");
    for (room, files, imports) in drawn {
        let is_file = |module: &&Vec<String>| matches!(&module[..], [relay, of, _] if relay == "relay" && of == room);
        let known = library.0.iter().filter(|(_, file)| !file.only_tests).map(|(module, _)| module).filter(is_file);
        assert_eq!(files, known.map(|module| module[2].clone()).collect(), "the files of {room}");
        assert_eq!(imports, rooms_of(&library, "relay", room), "the imports of {room}");
    }
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
