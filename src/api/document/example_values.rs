//! Example values for the OpenAPI document: those that a schema gives, and else one that its type and name suggest.

use serde_json::{Map, Value, json};

/// Value of a field of this name, where its schema says nothing more.
const BY_NAME: &[(&str, &str)] = &[
    ("platformId", "76561198000000001"),
    ("playerId", "76561198000000001"),
    ("steamId", "76561198000000001"),
    ("actor", "76561198000000009"),
    ("updatedBy", "76561198000000009"),
    ("issuedBy", "76561198000000009"),
    ("displayName", "Ada"),
    ("trackerName", "Grim"),
    ("name", "faq"),
    ("slug", "start/first-night"),
    ("shortname", "sulfur"),
    ("category", "Resources"),
    ("itemId", "-1581843485"),
    ("currencyId", "-932201673"),
    ("deviceId", "1234567"),
    ("entityId", "1234567"),
    ("vendorId", "123450_98700"),
    ("grid", "K12"),
    ("tier", "OPERATOR"),
    ("currency", "eur"),
    ("state", "connected"),
    ("role", "owner"),
    ("kind", "switch"),
    ("code", "LINK-7K3M"),
    ("token", "q0JH3mJrT1mYw5nqk2rXzA"),
    ("title", "Cargo ship"),
    ("label", "Gate"),
    ("url", "https://example.com/"),
    ("types", "cargo,raid"),
    ("action", "beta_tester.put"),
    ("reason", "requested_by_customer"),
    ("return", "https://app.example.com/"),
    ("q", "sulfur"),
    ("groupId", "123456789012345678"),
    ("version", "1"),
    ("size", "1024"),
    ("since", "2026-01-31T12:00:00Z"),
];

/// An id of ours.
const OWN_ID: &str = "0198c5a2-7d3a-7b1e-8c4d-5e6f708192a3";
/// Depth to which schemas that hold themselves are followed.
const DEEPEST: usize = 8;

/// A value of this schema, for a field of this name. `schemas` are those that it may refer to.
pub fn example_of(name: &str, schema: &Value, schemas: &Value) -> Value {
    value(name, schema, schemas, 0)
}

fn value(name: &str, schema: &Value, schemas: &Value, depth: usize) -> Value {
    if depth > DEEPEST {
        return Value::Null;
    }
    for given in [&schema["example"], &schema["const"], &schema["default"], &schema["examples"][0], &schema["enum"][0]]
    {
        if !given.is_null() {
            return given.clone();
        }
    }
    if let Some(reference) = schema["$ref"].as_str() {
        let target = reference.rsplit('/').next().unwrap_or_default();
        return value(name, &schemas[target], schemas, depth + 1);
    }
    if let Some(parts) = schema["allOf"].as_array() {
        let mut whole = Map::new();
        for part in parts {
            if let Value::Object(fields) = value(name, part, schemas, depth + 1) {
                whole.extend(fields);
            }
        }
        if let Value::Object(own) = object(schema, schemas, depth) {
            whole.extend(own);
        }
        return Value::Object(whole);
    }
    let alternatives =
        if schema["properties"].is_object() { [&Value::Null; 2] } else { [&schema["oneOf"], &schema["anyOf"]] };
    for choice in alternatives {
        if let Some(choice) = choice.as_array().and_then(|list| list.iter().find(|choice| choice["type"] != "null")) {
            return value(name, choice, schemas, depth + 1);
        }
    }
    let kinds = schema["type"].as_array();
    let is_text = kinds.is_some_and(|kinds| kinds.contains(&json!("string")));
    let kind = if is_text {
        "string"
    } else {
        schema["type"].as_str().or_else(|| schema["type"][0].as_str()).unwrap_or_default()
    };
    match kind {
        "object" => object(schema, schemas, depth),
        "array" => {
            let count = schema["minItems"].as_u64().unwrap_or(1).clamp(1, 24);
            let item = value(name, &schema["items"], schemas, depth + 1);
            (0..count).map(|_| item.clone()).collect()
        }
        "string" => text(name, schema).into(),
        "integer" => {
            let fitting = if name == "limit" { 50 } else { 1 };
            schema["minimum"].as_i64().map_or(fitting, |least| least.max(fitting)).into()
        }
        "number" => json!(1200.5),
        "boolean" => true.into(),
        _ => json!({}),
    }
}

fn object(schema: &Value, schemas: &Value, depth: usize) -> Value {
    let fields = schema["properties"].as_object().into_iter().flatten();
    let mut whole: Map<_, _> =
        fields.map(|(name, field)| (name.clone(), value(name, field, schemas, depth + 1))).collect();
    if schema["additionalProperties"].is_object() {
        whole.insert(OWN_ID.to_owned(), value("", &schema["additionalProperties"], schemas, depth + 1));
    }
    Value::Object(whole)
}

fn text(name: &str, schema: &Value) -> &'static str {
    match schema["format"].as_str() {
        Some("date-time") => return "2026-01-31T12:00:00Z",
        Some("date") => return "2026-01-31",
        Some("uuid") => return OWN_ID,
        Some("uri") => return "https://example.com/",
        _ => {}
    }
    if let Some((_, known)) = BY_NAME.iter().find(|(known, _)| *known == name) {
        return known;
    }
    if name == "id" || name.ends_with("Id") || name == "incident" { OWN_ID } else { "text" }
}
