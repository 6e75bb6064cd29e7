//! The frame of the pages that the API itself shows. They have no script, and load nothing: everything is in the answer.

use std::sync::LazyLock;

use actix_web::{
    HttpResponse,
    http::header::{self, ContentType, HeaderValue},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::crypto::digest::sha256;

const STYLE: &str = include_str!("page.css");

/// The icon of all pages, as an address that holds it.
static ICON: LazyLock<String> = LazyLock::new(|| {
    let icon = include_bytes!("../../web/files/icons/icon.svg");
    format!("data:image/svg+xml;base64,{}", STANDARD.encode(icon))
});

/// Lets the browser use the one style sheet that is in the page.
static POLICY: LazyLock<String> = LazyLock::new(|| policy_with("'none'", "data:"));
/// For a page with a form that sends to this service.
static FORM_POLICY: LazyLock<String> = LazyLock::new(|| policy_with("'self'", "data:"));
/// For a page with images of this service.
static IMAGE_POLICY: LazyLock<String> = LazyLock::new(|| policy_with("'none'", "'self' data:"));

fn policy_with(form_action: &str, images: &str) -> String {
    let style = STANDARD.encode(sha256(STYLE.as_bytes()));
    format!(
        "default-src 'none'; style-src 'sha256-{style}'; img-src {images}; base-uri 'none'; form-action {form_action}; frame-ancestors 'none'"
    )
}

/// The browser's permissions for a page: its `Content-Security-Policy`.
pub fn policy() -> &'static str {
    &POLICY
}

/// The policy of a page that also shows images of this service.
pub fn policy_with_images() -> &'static str {
    &IMAGE_POLICY
}

/// A whole page.
pub fn whole(title: &str, content: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="dark light";
                link rel="icon" href=(ICON.as_str()) type="image/svg+xml";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body { main { (content) } }
        }
    };
    page.into_string()
}

/// A page for a person who wanted something else: a few words, the ways on with the likeliest first, and a quiet line.
pub fn notice(title: &str, content: &Markup, ways: &[(&str, String)], foot: &Markup) -> String {
    let content = html! {
        div.card {
            p.brand { img src=(ICON.as_str()) alt="" width="28" height="28"; "companion" }
            h1 { (title) }
            (content)
            p.ways { @for (words, url) in ways { a href=(url) { (words) } } }
            p.quiet { (foot) }
        }
    };
    whole(&format!("{title} - companion"), &content)
}

/// True if a person looks at the answer to a request with this `Accept`: browsers come here by themselves, and not by a
/// script of a page.
pub fn is_wanted(accept: Option<&HeaderValue>) -> bool {
    accept.and_then(|accept| accept.to_str().ok()).is_some_and(|accept| accept.contains("text/html"))
}

/// The page as an answer.
pub fn answer(page: impl Into<String>) -> HttpResponse {
    answer_under(policy(), page)
}

/// The page as an answer, with a form that sends to this service.
pub fn answer_with_form(page: impl Into<String>) -> HttpResponse {
    answer_under(&FORM_POLICY, page)
}

fn answer_under(policy: &'static str, page: impl Into<String>) -> HttpResponse {
    HttpResponse::Ok()
        .content_type(ContentType::html())
        .insert_header((header::CONTENT_SECURITY_POLICY, policy))
        .body(page.into())
}

/// Text with the parts between backticks as code.
pub fn words(text: &str) -> Markup {
    html! {
        @for (number, part) in text.split('`').enumerate() {
            @if number % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_becomes_an_element() {
        assert_eq!(words("<b> is `<i>`.").into_string(), "&lt;b&gt; is <code>&lt;i&gt;</code>.");
        assert!(whole("<b>", &html! {}).contains("<title>&lt;b&gt;</title>"));
    }

    #[test]
    fn the_policy_lets_in_the_style_sheet_and_nothing_else() {
        assert!(POLICY.starts_with("default-src 'none'; style-src 'sha256-"));
        assert!(whole("", &html! {}).contains(&format!("<style>{STYLE}</style>")));
    }
}
