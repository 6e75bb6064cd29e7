//! The frame of the pages that the API itself shows. They have no script, and load nothing: everything is in the answer.

use std::sync::LazyLock;

use actix_web::{
    HttpResponse,
    http::header::{self, ContentType},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::crypto::digest::sha256;

const STYLE: &str = include_str!("page.css");

/// Lets the browser use the one style sheet that is in the page.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let style = STANDARD.encode(sha256(STYLE.as_bytes()));
    format!(
        "default-src 'none'; style-src 'sha256-{style}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
});

/// The browser's permissions for a page: its `Content-Security-Policy`.
pub fn policy() -> &'static str {
    &POLICY
}

/// A whole page.
pub fn whole(title: &str, content: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body { (content) }
        }
    };
    page.into_string()
}

/// The page as an answer.
pub fn answer(page: impl Into<String>) -> HttpResponse {
    HttpResponse::Ok()
        .content_type(ContentType::html())
        .insert_header((header::CONTENT_SECURITY_POLICY, policy()))
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
