//! Holds every answer that a test gets against the OpenAPI document: its status, its content type, its form and its
//! code.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use companion::api::routes;
use jsonschema::Validator;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};

/// The operation of this request, if the document has the path and the method.
pub fn operation(method: &str, path: &str) -> Option<&'static Value> {
    let method = if method == "HEAD" { "get".to_owned() } else { method.to_ascii_lowercase() };
    let paths = routes::document()["paths"].as_object().unwrap();
    // A path with fewer parameters is the one that is meant.
    let matching = paths.iter().filter(|(template, _)| is_of(path, template));
    let (_, item) = matching.min_by_key(|(template, _)| template.matches('{').count())?;
    item.get(&method)
}

/// The validator of this schema of the document. Made once for each.
fn of_schema(schema: &Value) -> &'static Validator {
    static MADE: Mutex<BTreeMap<String, &Validator>> = Mutex::new(BTreeMap::new());
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    made.entry(schema.to_string()).or_insert_with(|| {
        let mut whole = schema.clone();
        whole["components"] = json!({ "schemas": routes::document()["components"]["schemas"] });
        Box::leak(Box::new(jsonschema::draft202012::new(&whole).unwrap()))
    })
}

/// The paths that have this method, in lower case.
pub fn paths_with(method: &str) -> impl Iterator<Item = &'static str> {
    let paths = routes::document()["paths"].as_object().unwrap().iter();
    paths.filter(move |(_, item)| item[method].is_object()).map(|(path, _)| path.as_str())
}

fn is_of(path: &str, template: &str) -> bool {
    let (mut path, mut template) = (path.split('/'), template.split('/'));
    loop {
        match (path.next(), template.next()) {
            (None, None) => return true,
            (Some(part), Some(wanted)) if wanted == part || wanted.starts_with('{') && !part.is_empty() => {}
            _ => return false,
        }
    }
}

/// Panics when the document lacks this answer.
#[track_caller]
pub fn check(method: &str, path: &str, status: u16, headers: &HeaderMap, body: &[u8]) {
    let Some(operation) = operation(method, path) else { return };
    let answer = &operation["responses"][status.to_string()];
    assert!(answer.is_object(), "{method} {path}: {status} is not documented: {}", String::from_utf8_lossy(body));
    let Some(content_type) = headers.get("content-type").filter(|_| method != "HEAD") else { return };
    let content_type = content_type.to_str().unwrap().split(';').next().unwrap();
    // The document says once, for all operations, that browsers get a page in place of a problem document.
    if status >= 400 && content_type == "text/html" {
        return;
    }
    let content = &answer["content"][content_type];
    assert!(content.is_object(), "{method} {path}: {status} as {content_type} is not documented");
    if status < 300 && content_type == "application/json" {
        let value: Value = serde_json::from_slice(body).unwrap();
        let wrong = of_schema(&content["schema"])
            .iter_errors(&value)
            .map(|error| format!("{error}, {}", error.instance_path()));
        let wrong: Vec<String> = wrong.collect();
        assert!(wrong.is_empty(), "{method} {path}: {value} is not as documented: {wrong:?}");
    }
    if status >= 400 {
        let problem: Value = serde_json::from_slice(body).unwrap();
        let codes = content["schema"]["properties"]["code"]["enum"].as_array().unwrap();
        assert!(codes.contains(&problem["code"]), "{method} {path}: {problem} is not documented: {codes:?}");
    }
}
