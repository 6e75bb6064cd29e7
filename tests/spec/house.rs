//! The floors of the house: imports only go down.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// Floors, the lowest first. The binary stands on all of them.
const FLOORS: [&[&str]; 7] = [
    &["domain"],
    &["crypto"],
    &["config", "clock"],
    &["db", "clients", "game"],
    &["relay", "push"],
    &["api", "rotation"],
    &["server", "demo", "watch", "simulator"],
];

/// What may be entered from the same floor: the demo runs the server beside its neighbours, and `watch` reads its file.
const DOORS: [(&str, &str); 3] = [("demo", "server"), ("demo", "simulator"), ("watch", "demo")];

fn floor(room: &str) -> usize {
    FLOORS.iter().position(|rooms| rooms.contains(&room)).unwrap_or_else(|| panic!("{room} has no floor"))
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// What a file takes from `crate::`, each as far as the first brace within it.
fn imports(source: &str) -> Vec<String> {
    let code: String =
        source.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    code.split("crate::")
        .skip(1)
        .flat_map(|rest| if rest.starts_with('{') { group(rest) } else { vec![path(rest)] })
        .collect()
}

fn path(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_' || *c == ':').collect()
}

/// The members of a braced group.
fn group(text: &str) -> Vec<String> {
    let (mut depth, mut members, mut begins) = (0, Vec::new(), true);
    for (at, character) in text.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => begins = true,
            character if depth == 1 && begins && !character.is_whitespace() => {
                members.push(path(&text[at..]));
                begins = false;
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    members
}

#[test]
fn imports_only_go_down() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for file in files(&source).into_iter().filter(|file| file.extension().is_some_and(|extension| extension == "rs")) {
        let inside = file.strip_prefix(&source).unwrap();
        let room = inside.components().next().unwrap().as_os_str().to_str().unwrap().trim_end_matches(".rs");
        if matches!(room, "main" | "lib" | "build") {
            continue;
        }
        for import in imports(&fs::read_to_string(&file).unwrap()) {
            let target = import.split(':').next().unwrap();
            *seen.entry(room.to_owned()).or_default() += 1;
            let allowed = target == room
                || DOORS.contains(&(room, target))
                || match room {
                    // The wire format of the push service, which it has to speak too.
                    "simulator" if target == "push" => {
                        import.starts_with("push::mcs::") || import.starts_with("push::wire::")
                    }
                    "simulator" if target == "crypto" => import.starts_with("crypto::random::"),
                    "simulator" => matches!(target, "game" | "domain" | "clock"),
                    "api" | "push" if target == "relay" => import.starts_with("relay::hub::"),
                    _ => floor(target) < floor(room),
                };
            if !allowed {
                wrong.push(format!("{}: {import}", inside.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "these imports go up or sideways:\n{}", wrong.join("\n"));
    for room in ["api", "relay", "db", "game", "simulator"] {
        assert!(seen.contains_key(room), "the imports of {room} were read");
    }
}

#[test]
fn imports_are_read_from_every_form() {
    let source =
        "use crate::{\n    a::{b, c},\n    d::e::F,\n};\nuse crate::g::h;\n// crate::not\nfn f() { crate::i::j(); }";
    assert_eq!(imports(source), ["a::", "d::e::F", "g::h", "i::j"]);
}
