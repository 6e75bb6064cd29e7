//! Holds every answer that a test gets against the OpenAPI document: its status, its content type and its code.

use companion::api::openapi;
use reqwest::header::HeaderMap;
use serde_json::Value;

/// The operation of this request, if the document has the path and the method.
pub fn operation(method: &str, path: &str) -> Option<&'static Value> {
    let method = if method == "HEAD" { "get".to_owned() } else { method.to_ascii_lowercase() };
    let paths = openapi::value()["paths"].as_object().unwrap();
    // A path with fewer parameters is the one that is meant.
    let matching = paths.iter().filter(|(template, _)| is_of(path, template));
    let (_, item) = matching.min_by_key(|(template, _)| template.matches('{').count())?;
    item.get(&method)
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

/// Panics when the document does not tell of this answer.
#[track_caller]
pub fn check(method: &str, path: &str, status: u16, headers: &HeaderMap, body: &[u8]) {
    let Some(operation) = operation(method, path) else { return };
    let answer = &operation["responses"][status.to_string()];
    assert!(answer.is_object(), "{method} {path}: {status} is not documented: {}", String::from_utf8_lossy(body));
    let Some(content_type) = headers.get("content-type").filter(|_| method != "HEAD") else { return };
    let content_type = content_type.to_str().unwrap().split(';').next().unwrap();
    let content = &answer["content"][content_type];
    assert!(content.is_object(), "{method} {path}: {status} as {content_type} is not documented");
    if status >= 400 && content_type != "text/html" {
        let problem: Value = serde_json::from_slice(body).unwrap();
        let codes = content["schema"]["properties"]["code"]["enum"].as_array().unwrap();
        assert!(codes.contains(&problem["code"]), "{method} {path}: {problem} is not documented: {codes:?}");
    }
}
