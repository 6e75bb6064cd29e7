//! The page at the root, where the dashboard is another front end.

use actix_web::HttpResponse;
use maud::html;

use crate::api::answer::page::{answer, whole};

/// A page with links into the API.
pub fn index() -> HttpResponse {
    let content = html! {
        h1 { "companion" }
        p { "This is the HTTP API of a companion service: it watches paired game servers and streams them to dashboards." }
        ul {
            li { a href="/auth/platform" { "Sign in" } ", then see " a href="/me" { "who you are" } }
            li { a href="/paired-servers" { "Your paired game servers" } ", and the state of their links" }
            li {
                a href="/docs" { "Every other route" } ", also as an " a href="/openapi.json" { "OpenAPI document" } "; and "
                a href="/problems" { "what can go wrong" }
            }
        }
        p { "Live state comes over the relay: " code { "POST /relay/token" } ", then a WebSocket." }
    };
    answer(whole("companion", &content))
}
