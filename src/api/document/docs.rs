//! The documentation page: an OpenAPI document as a person reads it.

use std::collections::BTreeMap;

use maud::{Markup, html};
use serde_json::{Map, Value};

use crate::api::answer::page::{whole, words};

/// The page of this document.
pub fn page(document: &Value) -> String {
    whole("API - companion", &all(document))
}

fn all(document: &Value) -> Markup {
    let mut tags: BTreeMap<&str, Vec<(&str, &str, &Value)>> = BTreeMap::new();
    for (path, item) in fields(&document["paths"]) {
        for (method, operation) in fields(item) {
            let tag = operation["tags"][0].as_str().unwrap_or("other");
            tags.entry(tag).or_default().push((method, path, operation));
        }
    }
    html! {
        h1 { "companion API" }
        p {
            "All of this is also an " a href="openapi.json" { "OpenAPI 3.1 document" } ". "
            a href="problems" { "What can go wrong" } " has a page of its own."
        }
        h2 { "Authentication" }
        table {
            @for (name, scheme) in fields(&document["components"]["securitySchemes"]) {
                tr { td { b { (name) } } td { (words(text(&scheme["description"]))) } }
            }
        }
        @for (tag, operations) in &tags {
            h2 { (tag) }
            @for (method, path, operation) in operations { (one(method, path, operation)) }
        }
        h2 { "Schemas" }
        @for (name, schema) in fields(&document["components"]["schemas"]) {
            details id={ "schema-" (name) } {
                summary { code { (name) } }
                p { (words(text(&schema["description"]))) }
                (schema_table(schema))
            }
        }
    }
}

fn one(method: &str, path: &str, operation: &Value) -> Markup {
    html! {
        details id=(text(&operation["operationId"])) {
            summary { b { (method.to_ascii_uppercase()) } code { (path) } " " span.quiet { (words(text(&operation["summary"]))) } }
            p { (words(text(&operation["description"]))) }
            p { "Authentication: " (login(operation)) }
            @if let Some(parameters) = operation["parameters"].as_array() {
                h4 { "Parameters" }
                table {
                    @for parameter in parameters {
                        tr {
                            td { code { (text(&parameter["name"])) } }
                            td { (text(&parameter["in"])) @if parameter["required"] == true { ", required" } }
                            td { (kind(&parameter["schema"])) }
                            td { (words(text(&parameter["description"]))) }
                        }
                    }
                }
            }
            @for (media, content) in fields(&operation["requestBody"]["content"]) {
                h4 { "Body: " code { (media) } " " (kind(&content["schema"])) }
                (sample(&content["example"]))
            }
            h4 { "Answers" }
            table {
                @for (status, response) in fields(&operation["responses"]) {
                    tr {
                        td { (status) }
                        td {
                            @if status.as_str() < "400" {
                                (words(text(&response["description"])))
                                @for (media, content) in fields(&response["content"]) {
                                    div { code { (media) } " " (kind(&content["schema"])) }
                                    (sample(&content["example"]))
                                }
                            } @else {
                                @for (_, content) in fields(&response["content"]) {
                                    @for (code, _) in fields(&content["examples"]) {
                                        a href={ "problems/" (code) } { code { (code) } } " "
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The fields of an object, their types and what they mean.
fn schema_table(schema: &Value) -> Markup {
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    html! {
        @for part in schema["allOf"].as_array().into_iter().flatten() {
            @if part["$ref"].is_string() { p { "All of " (kind(part)) ", and:" } } @else { (schema_table(part)) }
        }
        @if schema["properties"].is_object() {
            table {
                @for (name, field) in fields(&schema["properties"]) {
                    tr {
                        td { code { (name) } @if required.contains(&name.as_str()) { " *" } }
                        td { (kind(field)) }
                        td { (words(text(&field["description"]))) }
                    }
                }
            }
        } @else if !schema["allOf"].is_array() {
            p { (kind(schema)) }
        }
    }
}

/// The type of a value in a few words, with a link to a schema that has a name.
fn kind(schema: &Value) -> Markup {
    if let Some(name) = schema["$ref"].as_str().and_then(|reference| reference.rsplit('/').next()) {
        return html! { a href={ "#schema-" (name) } { code { (name) } } };
    }
    let choices = [&schema["oneOf"], &schema["anyOf"], &schema["allOf"]].into_iter().find_map(Value::as_array);
    let limits = [
        ("format", "", ""),
        ("minimum", "at least ", ""),
        ("maximum", "at most ", ""),
        ("minLength", "at least ", " characters"),
        ("maxLength", "at most ", " characters"),
        ("minItems", "at least ", " items"),
        ("maxItems", "at most ", " items"),
    ];
    html! {
        @if let Some(choices) = choices {
            @for (number, choice) in choices.iter().enumerate() {
                @if number > 0 { " or " }
                (kind(choice))
            }
        } @else if schema["type"] == "array" {
            "list of " (kind(&schema["items"]))
        } @else if let Some(values) = schema["enum"].as_array() {
            @for (number, value) in values.iter().enumerate() {
                @if number > 0 { ", " }
                code { (value.to_string()) }
            }
        } @else {
            @match &schema["type"] {
                Value::String(only) => (only),
                Value::Array(several) => (several.iter().map(text).collect::<Vec<_>>().join(" or ")),
                _ => "any value",
            }
        }
        @for (limit, before, after) in limits {
            @match &schema[limit] {
                Value::String(value) => { ", " (before) (value) (after) }
                Value::Number(value) => { ", " (before) (value.to_string()) (after) }
                _ => {}
            }
        }
    }
}

fn login(operation: &Value) -> Markup {
    let schemes =
        operation["security"].as_array().into_iter().flatten().flat_map(fields).map(|(name, _)| name.as_str());
    let schemes: Vec<&str> = schemes.collect();
    html! { @if schemes.is_empty() { "none" } @else { b { (schemes.join(" or ")) } } }
}

fn sample(example: &Value) -> Markup {
    html! { @if !example.is_null() { pre { (format!("{example:#}")) } } }
}

fn fields(object: &Value) -> impl Iterator<Item = (&String, &Value)> {
    object.as_object().into_iter().flat_map(Map::iter)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
