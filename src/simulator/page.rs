//! A page of the simulated sites.

use actix_web::{HttpResponse, http::header::CACHE_CONTROL};
use maud::{DOCTYPE, Markup, PreEscaped, html};

/// CSS of a page that lists what a device shows.
pub const DARK_LIST: &str = "body{font:16px/1.5 system-ui;max-width:26rem;margin:2rem auto;padding:0 1rem;background:#14181d;color:#e8eaed}\
    li{list-style:none;margin:0 0 1rem;padding:1rem;border-radius:.75rem;background:#232a32;white-space:pre-line}\
    ul{padding:0}a{color:#8ab4f8}time{opacity:.6}";

/// The page with this title, CSS and body. No browser keeps it.
pub fn page(title: &str, style: &str, body: &Markup) -> HttpResponse {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(style)) }
            }
            body { (body) }
        }
    };
    HttpResponse::Ok()
        .content_type("text/html; charset=utf-8")
        .insert_header((CACHE_CONTROL, "no-store"))
        .body(page.into_string())
}
