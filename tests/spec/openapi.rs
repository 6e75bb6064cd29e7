//! GET /openapi.json: the document of every route.

use std::collections::BTreeSet;

use companion::{api::routes, domain::problem};
use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{
    app::{ADA, ADMINS, FRONTEND, TestApp},
    browser::Browser,
    documented,
};

#[test]
fn every_operation_has_a_name_of_its_own() {
    let paths = routes::document()["paths"].as_object().unwrap();
    let operations = paths.values().flat_map(|item| item.as_object().unwrap().values());
    let names: Vec<&str> = operations.map(|operation| operation["operationId"].as_str().unwrap()).collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{names:?}");
}

/// Readers of the document take null for a list that they go through.
#[test]
fn an_operation_lists_its_sign_ins_or_has_no_such_list() {
    let paths = routes::document()["paths"].as_object().unwrap();
    for (path, operation) in
        paths.iter().flat_map(|(path, item)| item.as_object().unwrap().values().map(move |o| (path, o)))
    {
        let security = operation.get("security");
        assert!(
            security.is_none_or(|list| list.as_array().is_some_and(|list| !list.is_empty())),
            "{path}: {security:?}"
        );
    }
}

/// The object that a GET answers, with what is flattened into it.
fn fields_of(schema: &Value) -> Vec<(String, Value)> {
    let schemas = &routes::document()["components"]["schemas"];
    if let Some(name) = schema["$ref"].as_str().and_then(|target| target.rsplit('/').next()) {
        return fields_of(&schemas[name]);
    }
    let parts = schema["allOf"].as_array().into_iter().flatten().flat_map(fields_of);
    let own = schema["properties"].as_object().into_iter().flatten();
    own.map(|(name, field)| (name.clone(), field.clone())).chain(parts).collect()
}

/// Entries of the longest list that is sent whole.
const LONGEST_WHOLE: u64 = 2_000;

#[test]
fn every_list_is_paged_alike_or_says_how_long_it_can_be() {
    let mut paged = 0;
    for path in documented::paths_with("get") {
        let operation = documented::operation("get", path).unwrap();
        let fields = fields_of(&operation["responses"]["200"]["content"]["application/json"]["schema"]);
        let lists = fields.iter().filter(|(_, field)| field["type"] == "array");
        let unbounded: Vec<&str> = lists
            .filter(|(_, list)| list["maxItems"].as_u64().is_none_or(|most| most > LONGEST_WHOLE))
            .map(|(name, _)| name.as_str())
            .collect();
        if unbounded.is_empty() {
            continue;
        }
        assert_eq!(unbounded.len(), 1, "{path} has one list: {unbounded:?}");
        let names: Vec<_> = operation["parameters"].as_array().unwrap().iter().map(|one| one["name"].clone()).collect();
        assert!(names.contains(&json!("limit")) && names.contains(&json!("before")), "{path}: {names:?}");
        assert!(fields.iter().any(|(name, _)| name == "next"), "{path}: no `next`");
        paged += 1;
    }
    assert!(paged > 25, "{paged}");
}

/// Every place below this schema, with the texts of the way there.
fn places<'a>(schema: &'a Value, way: &str, found: &mut Vec<(String, &'a Value)>) {
    match schema {
        Value::Object(object) => {
            found.push((way.to_owned(), schema));
            for (name, part) in object {
                match name.as_str() {
                    "example" | "examples" | "enum" => {}
                    // One of them is `null`, or they say what fields have to do with each other.
                    "oneOf" => {
                        found.extend(part.as_array().unwrap().iter().map(|part| (way.to_owned(), &part["$ref"])))
                    }
                    _ => places(part, &format!("{way}/{name}"), found),
                }
            }
        }
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(index, part)| places(part, &format!("{way}/{index}"), found));
        }
        _ => {}
    }
}

#[test]
fn what_a_client_sends_has_its_limits_in_the_schema() {
    let document = routes::document();
    let (mut sent, mut found) = (Vec::new(), Vec::new());
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                places(&parameter["schema"], &format!("{method} {path} {}", parameter["name"]), &mut found);
            }
            places(&operation["requestBody"], &format!("{method} {path}"), &mut sent);
        }
    }
    let schemas = &document["components"]["schemas"];
    let mut seen = BTreeSet::new();
    while let Some((way, place)) = sent.pop() {
        if let Some(name) = place["$ref"].as_str().or(place.as_str()).and_then(|target| target.rsplit('/').next())
            // Output of helper programs has numbers of every kind.
            && !["HelperBundle", "GcmCredential"].contains(&name)
            && seen.insert(name.to_owned())
        {
            places(&schemas[name], name, &mut sent);
        }
        found.push((way, place));
    }
    let is = |place: &Value, kind: &str| {
        place["type"] == kind || place["type"].as_array().is_some_and(|kinds| kinds.contains(&kind.into()))
    };
    for (way, place) in &found {
        let kind = place["type"].is_string() || place["type"].is_array();
        if !kind || place["enum"].is_array() || !place["const"].is_null() {
            continue;
        }
        if is(place, "integer") || is(place, "number") {
            assert!(place["minimum"].is_number() && place["maximum"].is_number(), "{way}: {place}");
        }
        if is(place, "array") {
            assert!(place["maxItems"].is_number(), "{way}: {place}");
        }
        let is_body = is(place, "string") && !way.contains(" /");
        if is_body && !["date-time", "binary"].iter().any(|format| place["format"] == *format) {
            assert!(place["maxLength"].is_number() || place["pattern"].is_string(), "{way}: {place}");
        }
    }
    assert!(found.len() > 300, "{}", found.len());
}

/// `METHOD path` of every route.
pub fn route_table() -> BTreeSet<String> {
    routes::routes().iter().map(|route| format!("{} {}", route.method, route.path)).collect()
}

#[actix_web::test]
async fn every_route_is_documented_with_its_refusals() {
    let app = TestApp::start().await;
    let document = app.browser().get("/openapi.json").await.json();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    let mut documented = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let name = format!("{method} {path}");
            assert!(operation["summary"].is_string(), "{name} has no summary");
            for (status, answer) in operation["responses"].as_object().unwrap() {
                assert!(answer["description"].as_str().is_some_and(|text| !text.is_empty()), "{name}: {status}");
                if status.as_str() < "400" {
                    continue;
                }
                let content = &answer["content"]["application/problem+json"];
                let schema = &content["schema"];
                assert_eq!(schema["allOf"][0]["$ref"], "#/components/schemas/Problem", "{name}: {status}");
                let codes = schema["properties"]["code"]["enum"].as_array().unwrap();
                assert!(!codes.is_empty(), "{name}: {status} has no code");
                for code in codes {
                    let example = &document["components"]["examples"][code.as_str().unwrap()]["value"];
                    assert_eq!(&example["code"], code);
                    assert!(content["examples"][code.as_str().unwrap()].is_object());
                }
            }
            for (media, body) in operation["requestBody"]["content"].as_object().into_iter().flatten() {
                assert!(media != "application/json" || body["example"].is_object(), "{name} has no example");
            }
            documented.insert(format!("{} {path}", method.to_ascii_uppercase()));
        }
    }
    assert_eq!(documented, route_table());
    assert_eq!(document["components"]["securitySchemes"]["session"]["name"], "rp_sess");
    assert_eq!(document["components"]["securitySchemes"]["device"]["scheme"], "bearer");
    assert!(document["components"]["schemas"]["Problem"].is_object());
}

#[actix_web::test]
async fn every_route_answers() {
    let app = TestApp::start().await;
    for route in route_table() {
        let (method, path) = route.split_once(' ').unwrap();
        let path =
            path.replace("{id}", "x").replace("{deviceId}", "1").replace("{incident}", "i").replace("{groupId}", "g");
        let path = path.replace("{platformId}", "p").replace("{userId}", "u").replace("{name}", "faq");
        let path = path.replace("{guestId}", "g").replace("{serverId}", "s").replace("{code}", "not_found");
        let mut browser = app.browser();
        let request = browser.request(method.parse().unwrap(), &path);
        let status = browser.send(request).await.status;
        // No image has been uploaded, and no link sent.
        let is_missing = status == 404 && !path.starts_with("/images/") && !path.starts_with("/a/");
        assert!(!is_missing && status != 405, "{route}: {status}");
    }
}

/// Answers to a field that is wrong in the document's own examples.
const REFUSED_AS_WRONG: [&str; 2] = ["invalid_request", "malformed_json"];

/// The body that the document shows.
fn example<'a>(document: &'a Value, method: &str, path: &str) -> Option<&'a Value> {
    let example = &document["paths"][path][method]["requestBody"]["content"]["application/json"]["example"];
    (!example.is_null()).then_some(example)
}

/// A browser of an admin who owns a server, and the path with what exists in place of its parameters.
async fn owner(app: &TestApp, document: &Value) -> (Browser, impl Fn(&str) -> String + use<>) {
    let mut ada = app.signed_in(ADA).await;
    let pair = example(document, "post", "/paired-servers").unwrap();
    let server = ada.post("/paired-servers", Some(pair)).await;
    assert_eq!(server.status, 201, "{}", server.text());
    let server = server.json()["id"].as_str().unwrap().to_owned();
    let device = example(document, "post", "/paired-servers/{id}/devices").unwrap();
    let device = ada.post(&format!("/paired-servers/{server}/devices"), Some(device)).await;
    assert_eq!(device.status, 201, "{}", device.text());
    let device = device.json()["deviceId"].as_str().unwrap().to_owned();
    let at = move |path: &str| {
        let path = path.replace("/paired-servers/{id}", &format!("/paired-servers/{server}"));
        let path = path.replace("{serverId}", &server).replace("{deviceId}", &device).replace("{name}", "faq");
        path.replace("{shortname}", "sulfur").replace("/items/{id}", "/items/-1581843485").replace("{id}", "none")
    };
    (ada, at)
}

#[actix_web::test]
async fn every_example_of_a_body_is_taken_for_what_it_is() {
    let app = TestApp::start_with(&[ADMINS]).await;
    let document = app.browser().get("/openapi.json").await.json();
    let (mut ada, at) = owner(&app, &document).await;
    let helper = app.paired(&mut ada).await;
    let switch = at("{deviceId}");
    let mut sent = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            let Some(body) = example(&document, method, path) else { continue };
            // The request would be the last.
            if (method.as_str(), path.as_str()) == ("delete", "/me") {
                continue;
            }
            let request =
                ada.request(method.to_ascii_uppercase().parse().unwrap(), &at(path)).header("origin", FRONTEND);
            // The bundle is of the account that signed in here.
            let mut body = body.clone();
            if path == "/credentials/push" {
                body["platformId"] = ADA.into();
            }
            // A group is of the server's own switches.
            if path.ends_with("/device-groups") {
                body["devices"] = json!([switch]);
            }
            let request = if path == "/credentials/push" { request.bearer_auth(&helper.token) } else { request };
            let answer = ada.send(request.json(&body)).await;
            sent += 1;
            let code = answer.json()["code"].as_str().unwrap_or_default().to_owned();
            assert!(!REFUSED_AS_WRONG.contains(&code.as_str()), "{method} {path} {body}: {}", answer.text());
            // Features that are not configured here.
            let off = ["payments_disabled", "chat_disabled", "game_server_unavailable", "registration_disabled"];
            assert!(answer.status < 500 || off.contains(&code.as_str()), "{method} {path}: {}", answer.text());
        }
    }
    assert!(sent > 25, "{sent}");
}

#[actix_web::test]
async fn no_body_may_be_a_list_or_null() {
    let app = TestApp::start_with(&[ADMINS]).await;
    let document = app.browser().get("/openapi.json").await.json();
    let (mut ada, at) = owner(&app, &document).await;
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"]["$ref"];
            let Some(name) = schema.as_str().and_then(|reference| reference.rsplit('/').next()) else { continue };
            // A helper's, and read by hand: its own test says the same.
            if path == "/credentials/push" {
                continue;
            }
            let fields = document["components"]["schemas"][name]["properties"].as_object().unwrap();
            // By position, as serde would read it.
            let example = example(&document, method, path).unwrap();
            let by_position: Vec<Value> = fields.keys().map(|field| example[field].clone()).collect();
            for body in [json!([]), Value::Array(by_position), Value::Null] {
                let method: Method = method.to_ascii_uppercase().parse().unwrap();
                let request = ada.request(method, &at(path)).header("origin", FRONTEND).json(&body);
                let problem = ada.send(request).await.expect_problem(400, "invalid_request");
                assert_eq!(problem["errors"][0]["path"], "", "{path}: {problem}");
            }
        }
    }
}

#[actix_web::test]
async fn head_is_answered_wherever_get_is() {
    let app = TestApp::start_with(&[ADMINS]).await;
    let document = app.browser().get("/openapi.json").await.json();
    let (mut ada, at) = owner(&app, &document).await;
    for (path, item) in document["paths"].as_object().unwrap() {
        if item["get"].is_null() || path.starts_with("/auth/") {
            continue;
        }
        let path = at(path).replace("{code}", "not_found");
        let head = ada.send(ada.request(Method::HEAD, &path)).await;
        let get = ada.get(&path).await;
        assert_eq!((head.status, head.header("content-type")), (get.status, get.header("content-type")), "{path}");
        assert!(head.bytes().is_empty(), "{path}");
        for header in ["etag", "content-security-policy", "retry-after"] {
            assert_eq!(head.header(header), get.header(header), "{path}: {header}");
        }
    }
    let health = app.browser().request(Method::HEAD, "/openapi.json");
    let length = app.browser().send(health).await.header("content-length").unwrap().to_owned();
    assert_eq!(length, app.browser().get("/openapi.json").await.bytes().len().to_string());
    let request = app.browser().request(Method::HEAD, "/auth/signout");
    let answer = app.browser().send(request).await;
    assert_eq!((answer.status, answer.header("allow")), (405, Some("POST")));
    let health = app.relay_browser().request(Method::HEAD, "/health");
    assert_eq!(app.relay_browser().send(health).await.status, 200);
}

#[actix_web::test]
async fn every_code_has_a_page_and_the_pages_work_without_scripts() {
    let app = TestApp::start().await;
    let mut browser = app.browser();
    let list = browser.get("/problems").await;
    for known in problem::ALL {
        let page = browser.get(&known.path()).await;
        assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")), "{known:?}");
        assert!(page.text().contains(known.code), "{known:?}");
        assert!(list.text().contains(&format!("problems/{}\"", known.code)), "{known:?}");
    }
    browser.get("/problems/nothing").await.expect_problem(404, "not_found");
    let docs = browser.get("/docs").await.text();
    for route in route_table() {
        let path = route.split_once(' ').unwrap().1;
        assert!(docs.contains(&format!("<code>{path}</code>")), "{path}");
    }
    let document = browser.get("/openapi.json").await.json();
    for name in document["components"]["schemas"].as_object().unwrap().keys() {
        assert!(docs.contains(&format!("id=\"schema-{name}\"")), "{name}");
    }
    for path in ["/docs", "/problems", "/problems/not_found"] {
        let page = browser.get(path).await;
        let policy = page.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"), "{policy}");
        for outside in ["<script", "src=", "@import", "url("] {
            assert!(!page.text().contains(outside), "{path}: {outside}");
        }
    }
    assert!(documented::operation("GET", "/docs").is_some());
}

#[actix_web::test]
async fn who_is_not_known_learns_what_to_present() {
    let app = TestApp::start().await;
    let mut visitor = app.browser();
    let answer = visitor.get("/me").await;
    answer.expect_problem(401, "unauthenticated");
    assert!(answer.header("www-authenticate").unwrap().starts_with("Cookie realm=\"companion\""));
    let upload = || app.browser().request(Method::PUT, "/credentials/push").json(&json!({}));
    let answer = visitor.send(upload()).await;
    assert_eq!(answer.header("www-authenticate"), Some("Bearer realm=\"companion\""));
    let answer = visitor.send(upload().bearer_auth("0a".repeat(48))).await;
    let problem = answer.expect_problem(401, "unauthenticated");
    assert!(problem["detail"].as_str().unwrap().contains("pair the device again"), "{problem}");
    assert!(answer.header("www-authenticate").unwrap().contains("error=\"invalid_token\""));
}
