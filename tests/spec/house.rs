//! Rules about the source itself: imports only go down and never in a circle, no file is too long, a type name means
//! one thing, and what is public is documented.

mod documented;
mod english;
mod paths;
mod rooms;
mod source;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use self::source::{Library, ModulePath};

/// Floors, the lowest first. The binary may import all of them.
const FLOORS: [&[&str]; 10] = [
    &["domain"],
    &["crypto", "clock"],
    &["config", "net", "panics", "terminal"],
    &["db", "clients", "game", "uploads", "logging", "web", "cluster"],
    &["vault", "catalogue", "ownership"],
    &["pairings"],
    &["relay", "push", "tracking", "billing", "channels"],
    &["api", "rotation"],
    &["server", "demo", "watch", "say", "helper", "simulator", "backup", "doctor", "reports"],
    &["commands"],
];

/// Allowed imports from the same floor: the demo runs the server and its neighbours, and `watch` reads its file.
const DOORS: [(&str, &str); 4] = [("demo", "server"), ("demo", "simulator"), ("watch", "demo"), ("say", "demo")];

/// Lines of a file of `src`, tests included.
const LINES: usize = 500;

/// A longer file gives its reason in its module doc, within the first ten lines: this, then the reason.
const REASON: &str = "//! Above 500 lines: ";

fn library() -> Library {
    Library::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"))
}

fn floor(room: &str) -> usize {
    FLOORS.iter().position(|rooms| rooms.contains(&room)).unwrap_or_else(|| panic!("{room} has no floor"))
}

#[test]
fn imports_only_go_down() {
    let library = library();
    let mut read: BTreeMap<&str, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (module, file) in &library.0 {
        let Some(room) = module.first().map(String::as_str) else { continue };
        for import in library.imports(module) {
            let Some(target) = import.first().map(String::as_str) else { continue };
            *read.entry(room).or_default() += 1;
            let within = |target: &[&str]| import.iter().zip(target).all(|(name, wanted)| name == wanted);
            let allowed = target == room
                || DOORS.contains(&(room, target))
                || match room {
                    // The wire format of the push service, which the simulated one speaks too.
                    "simulator" if target == "push" => within(&["push", "mcs"]) || within(&["push", "wire"]),
                    // Its receiver checks the signatures of webhooks, whose format others fixed.
                    "simulator" if target == "crypto" => {
                        within(&["crypto", "random"]) || within(&["crypto", "signed_webhook"])
                    }
                    "simulator" => matches!(target, "game" | "domain" | "clock"),
                    "api" | "push" | "tracking" | "channels" if target == "relay" => within(&["relay", "hub"]),
                    _ => floor(target) < floor(room),
                };
            if !allowed {
                wrong.push(format!("{}: {}", file.path.display(), import.join("::")));
            }
        }
    }
    assert!(wrong.is_empty(), "these imports go up or sideways:\n{}", wrong.join("\n"));
    for room in ["api", "relay", "db", "game", "simulator"] {
        assert!(read.contains_key(room), "the imports of {room} were read");
    }
}

/// Width of the numbers and of the names in the drawing of `src/lib.rs`.
const DRAWN_NUMBER: usize = 4;
const DRAWN_NAMES: usize = 32;

#[test]
fn the_tour_draws_the_floors() {
    let lib = include_str!("../../src/lib.rs");
    let (_, drawing) = lib.split_once("//! # The floors of the house\n").expect("the tour has the floors");
    let drawing = drawing.split("```").nth(1).expect("the floors are drawn");
    let mut drawn: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    let mut floor = 0;
    for line in drawing.lines().filter_map(|line| line.strip_prefix("//! ")).filter(|line| !line.is_empty()) {
        let (number, rest) = line.split_at(DRAWN_NUMBER);
        floor = number.trim().parse().unwrap_or(floor);
        drawn.entry(floor).or_default().extend(rest[..DRAWN_NAMES].split_whitespace());
    }
    for (index, rooms) in FLOORS.iter().enumerate() {
        let names = drawn.remove(&(index + 1)).unwrap_or_default();
        let [names, rooms] = [&names[..], rooms].map(|names| names.iter().copied().collect::<BTreeSet<_>>());
        assert_eq!(names, rooms, "floor {} in the tour, and in FLOORS", index + 1);
    }
    assert_eq!(drawn.into_values().collect::<Vec<_>>(), [["main.rs"]]);
}

#[test]
fn no_file_imports_itself_in_a_circle() {
    let library = library();
    let graph: BTreeMap<ModulePath, BTreeSet<ModulePath>> = library
        .0
        .keys()
        .map(|module| {
            let imports = library.imports_outside_tests(module);
            let targets = imports.iter().map(|import| library.file_of(import)).filter(|target| target != module);
            (module.clone(), targets.collect())
        })
        .collect();
    let circles: Vec<String> = circles(&graph).iter().map(|circle| described(circle, &graph)).collect();
    assert!(circles.is_empty(), "these files import one another in a circle:\n{}", circles.join("\n"));
}

/// The strongly connected components of more than one member.
fn circles<T: Clone + Ord>(graph: &BTreeMap<T, BTreeSet<T>>) -> BTreeSet<BTreeSet<T>> {
    let reached: BTreeMap<&T, BTreeSet<&T>> = graph.keys().map(|from| (from, reached_from(from, graph))).collect();
    let circle_of = |member: &T| -> BTreeSet<T> {
        let others = reached[member].iter().filter(|other| reached[**other].contains(member));
        others.map(|&other| other.clone()).collect()
    };
    graph.keys().map(circle_of).filter(|circle| circle.len() > 1).collect()
}

fn reached_from<'a, T: Ord>(from: &T, graph: &'a BTreeMap<T, BTreeSet<T>>) -> BTreeSet<&'a T> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&T> = graph[from].iter().collect();
    while let Some(node) = next.pop() {
        if reached.insert(node) {
            next.extend(&graph[node]);
        }
    }
    reached
}

/// The members and which of them imports which.
fn described(circle: &BTreeSet<ModulePath>, graph: &BTreeMap<ModulePath, BTreeSet<ModulePath>>) -> String {
    let mut text = format!("a circle of {} files:", circle.len());
    for member in circle {
        let imported: Vec<String> = graph[member].intersection(circle).map(|target| target.join("::")).collect();
        text += &format!("\n    {} -> {}", member.join("::"), imported.join(", "));
    }
    text
}

#[test]
fn circles_are_found() {
    let edges = |edges: &[(&str, &str)]| {
        let mut graph: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (from, to) in edges {
            graph.entry((*to).to_owned()).or_default();
            graph.entry((*from).to_owned()).or_default().insert((*to).to_owned());
        }
        circles(&graph).into_iter().map(|circle| circle.into_iter().collect::<String>()).collect::<Vec<_>>()
    };
    assert!(edges(&[("a", "b"), ("a", "c"), ("b", "c")]).is_empty());
    assert_eq!(edges(&[("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "e"), ("e", "d")]), ["abc", "de"]);
}

#[test]
fn a_long_file_says_why() {
    let library = library();
    let too_long = library.0.values().filter(|file| {
        let has_reason = file.text.lines().take(10).any(|line| line.len() > REASON.len() && line.starts_with(REASON));
        file.text.lines().count() > LINES && !has_reason
    });
    let too_long: Vec<String> =
        too_long.map(|file| format!("{}: {} lines", file.path.display(), file.text.lines().count())).collect();
    assert!(too_long.is_empty(), "these files have more than {LINES} lines and no reason:\n{}", too_long.join("\n"));
}

#[test]
fn a_type_name_is_defined_once() {
    let library = library();
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (module, file) in library.0.iter().filter(|(_, file)| !file.only_tests) {
        for name in library.types(module) {
            places.entry(name).or_default().push(file.path.display().to_string());
        }
    }
    let repeated: Vec<String> = places
        .iter()
        .filter(|(_, places)| places.len() > 1)
        .map(|(name, places)| format!("{name}: {}", places.join(", ")))
        .collect();
    assert!(repeated.is_empty(), "these type names are defined more than once:\n{}", repeated.join("\n"));
}
