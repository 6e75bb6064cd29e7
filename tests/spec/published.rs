//! The interfaces that other programs are written against: each operation and schema of the API's document and each
//! message and schema of the relay's, by a digest of its form without its texts. A change of one is named here, so that
//! it is meant and its line reviewed.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::Path,
};

use companion::{api::routes, crypto::digest::sha256_hex, relay::wire::schema};
use serde_json::Value;

use crate::harness::relay_client;

/// Set, the file is written again.
const UPDATE: &str = "UPDATE_PUBLISHED";
const FILE: &str = "tests/spec/published.txt";

/// Keys of a schema or an operation that are for readers only.
const TEXTS: [&str; 4] = ["description", "summary", "example", "examples"];

/// Begin a digest.
const DIGITS: usize = 10;

/// A document without its texts; keys in order. In `properties` a key is the name of a field, whatever it is.
fn form(document: &Value, are_fields: bool) -> Value {
    match document {
        Value::Object(object) => {
            let kept = object.iter().filter(|(name, _)| are_fields || !TEXTS.contains(&name.as_str()));
            let kept: BTreeMap<&String, Value> =
                kept.map(|(name, part)| (name, form(part, !are_fields && name == "properties"))).collect();
            kept.into_iter().map(|(name, part)| (name.clone(), part)).collect()
        }
        Value::Array(list) => list.iter().map(|part| form(part, false)).collect(),
        plain => plain.clone(),
    }
}

fn line(name: &str, part: &Value) -> String {
    let digest = sha256_hex(form(part, false).to_string().as_bytes());
    format!("{name} {}", &digest[..DIGITS])
}

/// A line for each part of both documents.
fn published() -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    let api = routes::document();
    for (path, item) in api["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            lines.insert(line(&format!("{path} {method}"), operation));
        }
    }
    for (kind, components) in api["components"].as_object().unwrap() {
        for (name, component) in components.as_object().unwrap() {
            lines.insert(line(&format!("{kind} {name}"), component));
        }
    }
    for (name, definition) in schema::document()["$defs"].as_object().unwrap() {
        let messages = definition["oneOf"].as_array().filter(|_| name.ends_with("Message"));
        let Some(messages) = messages else {
            lines.insert(line(&format!("relay {name}"), definition));
            continue;
        };
        for message in messages {
            let kind = relay_client::kind_of(message).unwrap_or_else(|| panic!("{message} has a type"));
            lines.insert(line(&format!("relay {name} {kind}"), message));
        }
    }
    lines
}

#[test]
fn no_operation_message_or_schema_changes_unnoticed() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
    let now = published();
    if env::var_os(UPDATE).is_some() {
        fs::write(&path, now.iter().flat_map(|line| [line.as_str(), "\n"]).collect::<String>()).unwrap();
    }
    let known = fs::read_to_string(&path).unwrap_or_default();
    let known: BTreeSet<String> = known.lines().map(str::to_owned).collect();
    let gone = known.difference(&now).map(|line| format!("- {line}"));
    let changed: Vec<String> = gone.chain(now.difference(&known).map(|line| format!("+ {line}"))).collect();
    assert!(
        changed.is_empty(),
        "published interfaces are not those of {FILE}; if that is meant, `{UPDATE}=1 cargo test --test spec published` \
         writes it again:\n{}",
        changed.join("\n")
    );
}

#[test]
fn texts_are_no_part_of_a_form_and_fields_of_their_names_are() {
    let with = |text: &str, field: &str| serde_json::json!({ "description": text, "type": "object", "properties": { field: { "example": text } } });
    assert_eq!(line("", &with("a", "description")), line("", &with("b", "description")));
    assert_ne!(line("", &with("a", "description")), line("", &with("a", "example")));
}
