//! Parts that all operations of the OpenAPI document have in common, written once: the refusals that are not their own,
//! with every code and an example of it; an example of every answer; the patterns of texts.
//!
//! A handler's own refusals are in its document as `(status = 409, …, description = "`limit_reached`")`: codes between
//! backticks. Where it names none, the code is the usual one of that status.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::{
    api::{
        answer::error::PROBLEM_JSON,
        document::{example_values::example_of, operation_names::operation_name},
        extract::admin::is_final,
    },
    domain::{
        problem::{self, ProblemCode},
        word_lists,
        world_event::EventKind,
    },
};

/// The codes of a status.
type Refusals = BTreeMap<u16, BTreeSet<&'static str>>;

/// Text about a status beside the codes.
type Remarks = BTreeMap<u16, String>;

/// Routes without a login that take a body signed by another service, of any content type.
const SIGNED: [&str; 2] = ["/billing/webhook", "/chat/interactions"];

/// Routes whose bodies other services make, with fields of their own.
const OPAQUE: [&str; 3] = ["/billing/webhook", "/chat/interactions", "/credentials/push"];

/// A list of entity tags, or `*` (RFC 9110 §13.1.1); none of ours has a comma.
const ENTITY_TAGS: &str = r#"^(\*|(W/)?"[\x21\x23-\x2B\x2D-\x7E]*"(, *(W/)?"[\x21\x23-\x2B\x2D-\x7E]*")*)$"#;

/// Completes every operation of this document.
pub fn complete(document: &mut Value) {
    let words = word_lists::refer(document, "#/components/schemas/");
    if let Some(schemas) = document["components"]["schemas"].as_object_mut() {
        for (name, schema) in words {
            schemas.entry(name).or_insert(schema);
        }
    }
    write_patterns(&mut document["components"]["schemas"]);
    for (name, fields) in ONE_OF_TWO {
        let given =
            |field: &str| json!({ "required": [field], "properties": { field: { "not": { "type": "null" } } } });
        document["components"]["schemas"][name]["oneOf"] = fields.map(given).into_iter().collect();
    }
    for (name, narrower) in relations() {
        if let (Some(schema), Value::Object(narrower)) =
            (document["components"]["schemas"][name].as_object_mut(), narrower)
        {
            schema.extend(narrower);
        }
    }
    for name in request_schemas(document) {
        let schema = &mut document["components"]["schemas"][&name];
        if schema["properties"].is_object() {
            schema["additionalProperties"] = false.into();
        }
    }
    let schemas = document["components"]["schemas"].clone();
    let Some(paths) = document["paths"].as_object_mut() else { return };
    for (path, item) in paths {
        let Some(operations) = item.as_object_mut() else { continue };
        for (method, operation) in operations {
            operation["operationId"] = operation_name(method, path).into();
            write_patterns(operation);
            write_parameters(operation);
            write_request(operation, &schemas);
            write_answers(operation, &schemas);
            write_refusals(method, path, operation);
        }
    }
    let examples = problem::ALL.iter().map(|known| (known.code.to_owned(), problem_example(known)));
    document["components"]["examples"] = Value::Object(examples.collect());
}

/// Formats of ours, as patterns that any validator reads.
const FORMATS: [(&str, &str); 16] = [
    // A time, or the cursor of a page.
    (
        "before",
        r"^([0-9]{1,16}\.[0-9]{1,18}|20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?Z)$",
    ),
    // No control characters, and not blank.
    ("one-line", r"^[^\x00-\x1F\x7F-\x9F]*[^\s\x00-\x1F\x7F-\x9F][^\x00-\x1F\x7F-\x9F]*$"),
    (
        "lines",
        r"^[^\x00-\x08\x0B\x0C\x0E-\x1F\x7F-\x9F]*[^\s\x00-\x1F\x7F-\x9F][^\x00-\x08\x0B\x0C\x0E-\x1F\x7F-\x9F]*$",
    ),
    // The `next` of a page.
    ("cursor", r"^[0-9]{1,16}\.[^\x00-\x1F\x7F-\x9F]*$"),
    ("shortname", "^[a-z0-9._-]([a-z0-9._ -]*[a-z0-9._-])?$"),
    // No control characters but line breaks and tabs.
    ("text", r"^[^\x00-\x08\x0B\x0C\x0E-\x1F\x7F-\x9F]*$"),
    ("no-control", r"^[^\x00-\x1F\x7F-\x9F]*$"),
    // The game's item id: 32 bits with a sign.
    (
        "item-id",
        "^(0|-?([1-9][0-9]{0,8}|1[0-9]{9}|20[0-9]{8}|21[0-3][0-9]{7}|214[0-6][0-9]{6}|2147[0-3][0-9]{5}|21474[0-7][0-9]{4}|214748[0-2][0-9]{3}|2147483[0-5][0-9]{2}|21474836[0-3][0-9]|214748364[0-7])|-2147483648)$",
    ),
    ("shop-id", "^(0|-?[1-9][0-9]{0,8})_(0|-?[1-9][0-9]{0,8})$"),
    ("language-tag", "^[A-Za-z]{1,8}(-[A-Za-z0-9]{1,8})*$"),
    ("time-zone", "^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$"),
    // From 76561197960265728 to 76561202255233023.
    (
        "steamid64",
        "^(7656119796026572[8-9]|765611979602657[3-9][0-9]|76561197960265[8-9][0-9]{2}|7656119796026[6-9][0-9]{3}|765611979602[7-9][0-9]{4}|76561197960[3-9][0-9]{5}|7656119796[1-9][0-9]{6}|765611979[7-9][0-9]{7}|7656119[8-9][0-9]{9}|7656120[0-1][0-9]{9}|76561202[0-1][0-9]{8}|765612022[0-4][0-9]{7}|7656120225[0-4][0-9]{6}|76561202255[0-1][0-9]{5}|765612022552[0-2][0-9]{4}|7656120225523[0-2][0-9]{3}|765612022552330[0-1][0-9]|7656120225523302[0-3])$",
    ),
    // From -2147483647 to 2147483647.
    (
        "int32-digits",
        "^(0|-?([1-9][0-9]{0,8}|1[0-9]{9}|20[0-9]{8}|21[0-3][0-9]{7}|214[0-6][0-9]{6}|2147[0-3][0-9]{5}|21474[0-7][0-9]{4}|214748[0-2][0-9]{3}|2147483[0-5][0-9]{2}|21474836[0-3][0-9]|214748364[0-7]))$",
    ),
    // From 1 to 2^64 - 1.
    (
        "entity-id",
        "^([1-9][0-9]{0,18}|1[0-7][0-9]{18}|18[0-3][0-9]{17}|184[0-3][0-9]{16}|1844[0-5][0-9]{15}|18446[0-6][0-9]{14}|184467[0-3][0-9]{13}|1844674[0-3][0-9]{12}|184467440[0-6][0-9]{10}|1844674407[0-2][0-9]{9}|18446744073[0-6][0-9]{8}|1844674407370[0-8][0-9]{6}|18446744073709[0-4][0-9]{5}|184467440737095[0-4][0-9]{4}|18446744073709550[0-9]{3}|18446744073709551[0-5][0-9]{2}|1844674407370955160[0-9]|1844674407370955161[0-5])$",
    ),
    (
        "host",
        r"^([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?(\.[A-Za-z_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?){0,3}|(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(\.(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])){3}|([0-9A-Fa-f]{1,4}:){7}[0-9A-Fa-f]{1,4}|([0-9A-Fa-f]{1,4}:){1,7}:|([0-9A-Fa-f]{1,4}:){1,6}:[0-9A-Fa-f]{1,4}|([0-9A-Fa-f]{1,4}:){1,5}(:[0-9A-Fa-f]{1,4}){1,2}|([0-9A-Fa-f]{1,4}:){1,4}(:[0-9A-Fa-f]{1,4}){1,3}|([0-9A-Fa-f]{1,4}:){1,3}(:[0-9A-Fa-f]{1,4}){1,4}|([0-9A-Fa-f]{1,4}:){1,2}(:[0-9A-Fa-f]{1,4}){1,5}|[0-9A-Fa-f]{1,4}:(:[0-9A-Fa-f]{1,4}){1,6}|:(:[0-9A-Fa-f]{1,4}){1,7}|::)$",
    ),
    ("slug", "^[a-z0-9]+(-[a-z0-9]+)*(/[a-z0-9]+(-[a-z0-9]+)*){0,3}$"),
];

/// Formats that may be JSON integers as well, and the range of these.
const INTEGERS: [(&str, i64, u64); 2] = [("int32-digits", -2_147_483_648, 2_147_483_647), ("entity-id", 1, u64::MAX)];

/// Bodies in which exactly one of two fields is given.
const ONE_OF_TWO: [(&str, [&str; 2]); 3] = [
    ("CreateRefund", ["chargeId", "paymentIntentId"]),
    ("CreateDevice", ["entityId", "cameraId"]),
    ("AcceptedInvite", ["token", "id"]),
];

/// Relations between fields of a body.
fn relations() -> [(&'static str, Value); 3] {
    let (nothing, string, number) =
        (json!({ "type": "null" }), json!({ "type": "string" }), json!({ "type": "number" }));
    [
        (
            "Issue",
            json!({ "oneOf": [
            { "properties": { "scope": { "enum": ["helper", null] }, "serverId": nothing, "sections": nothing } },
            { "required": ["scope", "serverId"], "properties": { "scope": { "const": "overlay" }, "serverId": string } },
        ] }),
        ),
        (
            "CreateGuest",
            json!({ "oneOf": [
            { "required": ["platformId"], "properties": { "platformId": string, "link": { "type": "boolean", "enum": [false] } } },
            { "required": ["link"], "properties": { "platformId": nothing, "link": { "type": "boolean", "enum": [true] } } },
        ] }),
        ),
        (
            "UpdateDevice",
            json!({
                "dependentRequired": { "x": ["y"], "y": ["x"] },
                "oneOf": [
                    { "required": ["x"], "properties": { "x": number, "y": number } },
                    { "properties": { "x": nothing, "y": nothing } },
                ],
            }),
        ),
    ]
}

/// The schemas that bodies of requests are made of, without the bodies that other services make.
fn request_schemas(document: &Value) -> BTreeSet<String> {
    let paths = document["paths"].as_object().into_iter().flatten();
    let operations =
        paths.filter(|(path, _)| !OPAQUE.contains(&path.as_str())).filter_map(|(_, item)| item.as_object());
    let mut waiting: Vec<&Value> =
        operations.flat_map(Map::values).map(|operation| &operation["requestBody"]).collect();
    let mut found = BTreeSet::new();
    while let Some(schema) = waiting.pop() {
        match schema {
            Value::Object(fields) => {
                let name = fields.get("$ref").and_then(Value::as_str).and_then(|target| target.rsplit('/').next());
                if let Some(name) = name.filter(|name| found.insert((*name).to_owned())) {
                    waiting.push(&document["components"]["schemas"][name]);
                }
                waiting.extend(fields.values());
            }
            Value::Array(list) => waiting.extend(list),
            _ => {}
        }
    }
    found
}

/// The pattern of a format of ours.
fn pattern(format: &str) -> Option<String> {
    if format == "event-kinds" {
        let kinds = EventKind::WORDS.join("|");
        return Some(format!("^(({kinds})(,({kinds}))*)?$"));
    }
    FORMATS.iter().find(|(name, _)| *name == format).map(|(_, pattern)| (*pattern).to_owned())
}

/// Puts the pattern of a format of ours in its place, at any depth.
fn write_patterns(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            let pattern = object.get("format").and_then(Value::as_str).and_then(pattern);
            if let Some(pattern) = pattern {
                if let Some((_, least, most)) = INTEGERS.iter().find(|(name, ..)| object["format"] == *name) {
                    let kinds = if object["type"].is_array() {
                        json!(["integer", "string", "null"])
                    } else {
                        json!(["integer", "string"])
                    };
                    object.extend([("type".to_owned(), kinds)]);
                    object.extend([("minimum".to_owned(), (*least).into()), ("maximum".to_owned(), (*most).into())]);
                }
                object.remove("format");
                object.insert("pattern".to_owned(), pattern.into());
            }
            object.values_mut().for_each(write_patterns);
        }
        Value::Array(list) => list.iter_mut().for_each(write_patterns),
        _ => {}
    }
}

/// A parameter is there or not: there is no `null`. Each has an example.
fn write_parameters(operation: &mut Value) {
    let Some(parameters) = operation.get_mut("parameters").and_then(Value::as_array_mut) else { return };
    let changes = parameters.iter().any(|parameter| parameter["name"] == "if-match");
    for parameter in parameters {
        let name = parameter["name"].as_str().unwrap_or_default().to_owned();
        if let Some(kinds) = parameter["schema"]["type"].as_array()
            && let Some(only) = kinds.iter().find(|kind| *kind != "null").cloned()
        {
            parameter["schema"]["type"] = only;
        }
        if parameter["in"] == "path" && parameter["schema"]["type"] == "string" {
            parameter["schema"]["minLength"] = 1.into();
        }
        // Reads accept any value.
        if changes && matches!(name.as_str(), "if-match" | "if-none-match") {
            parameter["schema"]["minLength"] = 1.into();
            parameter["schema"]["pattern"] = ENTITY_TAGS.into();
        }
        let example = example_of(&name, &parameter["schema"], &Value::Null);
        if parameter["in"] != "header" {
            parameter["example"] = example;
        }
    }
}

/// Puts the example of a body at the body, where tools look for it.
fn write_request(operation: &mut Value, schemas: &Value) {
    if operation["requestBody"].is_null() {
        return;
    }
    // A body that may be left out is no `null`.
    let content = &mut operation["requestBody"]["content"]["application/json"];
    if let Some(choice) = content["schema"]["oneOf"].as_array()
        && let Some(schema) = choice.iter().find(|schema| schema["$ref"].is_string())
    {
        content["schema"] = schema.clone();
    }
    if content["schema"].is_object() && content["example"].is_null() {
        let example = example_of("", &content["schema"], schemas);
        content["example"] = example;
    }
    if let Some(media) = operation["requestBody"]["content"].as_object_mut() {
        media.retain(|_, content| !content.is_null());
    }
}

/// Describes each answer, with an example.
fn write_answers(operation: &mut Value, schemas: &Value) {
    let Some(responses) = operation["responses"].as_object_mut() else { return };
    for (status, response) in responses {
        if !response["description"].is_string() {
            response["description"] = match status.as_str() {
                "200" => "As asked",
                "201" => "Made",
                "204" => "Done",
                _ => "",
            }
            .into();
        }
        let json = &mut response["content"]["application/json"];
        if json["schema"].is_object() && json["example"].is_null() {
            let example = example_of("", &json["schema"], schemas);
            json["example"] = example;
        }
        if let Some(media) = response["content"].as_object_mut() {
            media.retain(|_, content| !content.is_null());
            for (_, content) in media.iter_mut().filter(|(media_type, _)| media_type.starts_with("image/")) {
                content["schema"] = json!({ "type": "string", "format": "binary" });
            }
            if media.is_empty()
                && let Some(response) = response.as_object_mut()
            {
                response.remove("content");
            }
        }
    }
}

/// All refusals of an operation, its own and those that it shares.
fn write_refusals(method: &str, path: &str, operation: &mut Value) {
    let (mut refusals, remarks) = own(operation);
    for known in shared(method, path, operation) {
        refusals.entry(known.status()).or_default().insert(known.code);
    }
    let Some(responses) = operation["responses"].as_object_mut() else { return };
    for (status, codes) in refusals {
        let remark = remarks.get(&status).map(String::as_str).unwrap_or_default();
        let unsaid = codes.iter().map(|code| format!("`{code}`")).filter(|code| !remark.contains(code.as_str()));
        let unsaid = unsaid.collect::<Vec<_>>().join(", ");
        let description = match (remark, unsaid.as_str()) {
            ("", unsaid) => unsaid.to_owned(),
            (remark, "") => remark.to_owned(),
            (remark, unsaid) => format!("{remark}; {unsaid}"),
        };
        let example = |code: &&str| ((*code).to_owned(), json!({ "$ref": format!("#/components/examples/{code}") }));
        let content = json!({
            "schema": {
                "allOf": [{ "$ref": "#/components/schemas/Problem" }],
                "properties": { "code": { "enum": codes }, "status": { "const": status } },
            },
            "examples": codes.iter().map(example).collect::<Map<_, _>>(),
        });
        let mut response = json!({ "description": description, "content": { PROBLEM_JSON: content } });
        if path.starts_with("/auth/platform") {
            // The page for a person.
            response["content"]["text/html"] = json!({ "schema": { "type": "string" } });
        }
        let header = match status {
            401 => Some(("WWW-Authenticate", "What to present: a session cookie or a token")),
            429 => Some(("Retry-After", "Seconds until another attempt may succeed")),
            _ => None,
        };
        if let Some((name, description)) = header {
            response["headers"] = json!({ name: { "description": description, "schema": { "type": "string" } } });
        }
        responses.insert(status.to_string(), response);
    }
}

/// The refusals and remarks in the handler's document.
fn own(operation: &Value) -> (Refusals, Remarks) {
    let (mut refusals, mut remarks) = (Refusals::new(), Remarks::new());
    let responses = operation["responses"].as_object();
    for (status, response) in responses.into_iter().flatten() {
        let Some(status) = status.parse().ok().filter(|status: &u16| *status >= 400) else { continue };
        let description = response["description"].as_str().unwrap_or_default();
        let named = description.split('`').skip(1).step_by(2).filter_map(problem::find);
        let codes: BTreeSet<_> =
            named.filter(|known| known.statuses.contains(&status)).map(|known| known.code).collect();
        if !description.is_empty() {
            remarks.insert(status, description.to_owned());
        }
        let codes = if codes.is_empty() { usual(status).map(|known| known.code).into_iter().collect() } else { codes };
        refusals.entry(status).or_default().extend(codes);
    }
    (refusals, remarks)
}

/// The code of a status that is meant when none is named.
fn usual(status: u16) -> Option<&'static ProblemCode> {
    Some(match status {
        400 => &problem::INVALID_REQUEST,
        401 => &problem::UNAUTHENTICATED,
        404 => &problem::NOT_FOUND,
        408 => &problem::REQUEST_TIMEOUT,
        409 | 412 => &problem::CONFLICT,
        413 => &problem::BODY_TOO_LARGE,
        415 => &problem::UNSUPPORTED_MEDIA_TYPE,
        429 => &problem::RATE_LIMITED,
        503 => &problem::UNAVAILABLE,
        _ => return None,
    })
}

/// Codes of the failures that any operation of this kind may have.
fn shared(method: &str, path: &str, operation: &Value) -> Vec<&'static ProblemCode> {
    let mut codes = vec![
        &problem::RATE_LIMITED,
        &problem::TOO_MANY_CONNECTIONS,
        &problem::INTERNAL_ERROR,
        &problem::UNREADABLE_ROW,
        &problem::UNAVAILABLE,
    ];
    if operation["security"].as_array().is_some_and(|schemes| !schemes.is_empty()) {
        codes.push(&problem::UNAUTHENTICATED);
    }
    let takes_tokens = |schemes: &Vec<Value>| schemes.iter().any(|scheme| scheme["session"].is_null());
    if operation["security"].as_array().is_some_and(takes_tokens) && path != "/relay/token" {
        codes.push(&problem::INSUFFICIENT_SCOPE);
    }
    if method != "get" {
        codes.push(&problem::CROSS_SITE_REQUEST);
    }
    if path.starts_with("/admin/") {
        codes.extend([&problem::NOT_ADMIN, &problem::ADMIN_DISABLED]);
        if is_final(method, path) {
            codes.push(&problem::FRESH_SIGN_IN_REQUIRED);
        }
    }
    let parameters = operation["parameters"].as_array();
    let has = |place: &str| parameters.is_some_and(|list| list.iter().any(|parameter| parameter["in"] == place));
    if has("path") {
        codes.push(&problem::NOT_FOUND);
    }
    // The query is checked everywhere else.
    if !path.starts_with("/auth/platform") {
        codes.push(&problem::INVALID_REQUEST);
    }
    if !operation["requestBody"].is_null() {
        codes.extend([&problem::INVALID_REQUEST, &problem::REQUEST_TIMEOUT, &problem::BODY_TOO_LARGE]);
        if operation["requestBody"]["content"]["application/json"].is_object() && path != "/billing/webhook" {
            codes.push(&problem::MALFORMED_JSON);
        }
        if !SIGNED.contains(&path) {
            codes.push(&problem::UNSUPPORTED_MEDIA_TYPE);
        }
    }
    codes
}

/// A whole problem document.
fn problem_example(known: &ProblemCode) -> Value {
    let mut value = json!({
        "type": format!("https://api.example.com{}", known.path()),
        "title": known.title,
        "status": known.status(),
        "detail": known.meaning,
        "code": known.code,
        "requestId": "0198c5a2-7d3a-7b1e-8c4d-5e6f708192a3",
    });
    if known.code == problem::INVALID_REQUEST.code {
        value["errors"] = json!([{ "path": "port", "message": "must be between 1 and 65535" }]);
    }
    json!({ "summary": known.title, "value": value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{game_address::GameAddress, preference, shop::VendorId};

    fn matches(format: &str, text: &str) -> bool {
        let pattern = pattern(format).unwrap();
        jsonschema::draft202012::new(&json!({ "pattern": pattern })).unwrap().is_valid(&text.into())
    }

    #[test]
    fn the_patterns_take_what_is_read_and_refuse_what_is_not() {
        for host in ["play.example.com", "203.0.113.9", "::1", "2001:DB8::1", "1:2:3:4:5:6:7:8", "1::", "localhost"] {
            assert!(GameAddress::parse(host).is_some() && matches("host", host), "{host}");
        }
        for host in ["", "a..b", "a b", "host:28083", "256.1.1.1", "eCbf4:20dDB:", "1::2::3", "1:2:3:4:5:6:7", ":"] {
            assert!(GameAddress::parse(host).is_none() && !matches("host", host), "{host}");
        }
        let words = EventKind::WORDS;
        assert!(words.iter().all(|word| matches("event-kinds", word)) && matches("event-kinds", &words.join(",")));
        assert!(!matches("event-kinds", "cargo,ufo"));
        for tag in ["de", "de-CH", "zh-Hant-TW"] {
            assert!(preference::locale(tag).is_some() && matches("language-tag", tag), "{tag}");
        }
        for zone in ["Europe/Berlin", "UTC", "Etc/GMT+12", "America/Argentina/Buenos_Aires", "America/Port-au-Prince"] {
            assert!(preference::time_zone(zone).is_some() && matches("time-zone", zone), "{zone}");
        }
        for shop in ["0_0", "-5_120000", "199999_7"] {
            assert!(VendorId::parse(shop).is_some() && matches("shop-id", shop), "{shop}");
        }
        for shop in ["", "1", "01_2", "a_b", "-0_1"] {
            assert!(VendorId::parse(shop).is_none() && !matches("shop-id", shop), "{shop}");
        }
    }
}
