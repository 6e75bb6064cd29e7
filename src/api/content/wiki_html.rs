//! The wiki as people read it: Markdown as HTML, in the frame of all pages of the service. No HTML of the Markdown passes,
//! and its links lead to pages of the wiki, or over http, https and mailto.

use actix_web::{
    HttpRequest, HttpResponse,
    http::header::{self, ContentType},
};
use maud::{Markup, PreEscaped, html};
use pulldown_cmark::{CowStr, Event, LinkType, Options, Parser, Tag, html::push_html};

use crate::{
    api::answer::{
        etags::{self, Caching},
        page,
    },
    crypto::digest::sha256_hex,
    domain::wiki::{WikiPage, WikiSection, WikiSlug},
};

/// The page, as a whole HTML document.
pub fn page(slug: &WikiSlug, page: &WikiPage) -> String {
    let title = page.place(slug).title;
    let content = html! {
        p { a href="tree" { "All pages" } }
        // Nearly all pages begin with their title.
        @if !page.body.trim_start().starts_with("# ") { h1 { (title) } }
        (article(&page.body))
    };
    page::whole(&format!("{title} - companion"), &content)
}

/// All pages, as a whole HTML document.
pub fn tree(sections: &[WikiSection]) -> String {
    let content = html! {
        p { a href="../" { "companion" } }
        h1 { "How it works" }
        @for section in sections {
            h2 { (section.name) }
            ul { @for link in &section.pages { li { a href=(address(&link.slug)) { (link.title) } } } }
        }
    };
    page::whole("How it works - companion", &content)
}

/// A document of this module as an answer that is asked for again each time.
pub fn answer(req: &HttpRequest, document: String) -> HttpResponse {
    let (mut answer, is_known) = etags::begin(req, &etags::tag(&sha256_hex(document.as_bytes())), Caching::Public);
    answer.insert_header((header::CONTENT_SECURITY_POLICY, page::policy_with_images()));
    if is_known { answer.finish() } else { answer.content_type(ContentType::html()).body(document) }
}

/// Markdown as HTML.
fn article(markdown: &str) -> Markup {
    let events = Parser::new_ext(markdown, Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH);
    let mut text = String::new();
    push_html(&mut text, events.map(harmless));
    PreEscaped(text)
}

/// HTML is shown as the text that it is, and links to nowhere good lead nowhere.
fn harmless(event: Event<'_>) -> Event<'_> {
    match event {
        Event::Html(text) | Event::InlineHtml(text) => Event::Text(text),
        // The address is written behind `mailto:`.
        Event::Start(Tag::Link { link_type, dest_url, title, id }) if link_type != LinkType::Email => {
            Event::Start(Tag::Link { link_type, dest_url: target(dest_url), title, id })
        }
        Event::Start(Tag::Image { link_type, dest_url, title, id }) => {
            Event::Start(Tag::Image { link_type, dest_url: target(dest_url), title, id })
        }
        other => other,
    }
}

/// The target of a link or image: the slug of a page, a path of this service, or an address of a harmless scheme.
fn target(written: CowStr<'_>) -> CowStr<'_> {
    if let Some(slug) = WikiSlug::parse(&written) {
        return address(&slug).into();
    }
    let begins_with = |start: &str| written.get(..start.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(start));
    let is_path = written.starts_with('/') && !written[1..].starts_with(['/', '\\']);
    if is_path || ["https://", "http://", "mailto:"].into_iter().any(begins_with) { written } else { "#".into() }
}

/// The address of a page, from another one.
fn address(slug: &WikiSlug) -> String {
    format!("page?slug={slug}")
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;
    use crate::domain::wiki;

    fn html_of(body: &str) -> String {
        article(body).into_string()
    }

    #[test]
    fn no_html_and_no_bad_link_of_a_page_passes() {
        for (markdown, wanted) in [
            ("a <b onclick=x>b</b>", "<p>a &lt;b onclick=x&gt;b&lt;/b&gt;</p>"),
            ("[a](javascript:alert(1))", "<p><a href=\"#\">a</a></p>"),
            ("[a](JAVASCRIPT:alert)", "<p><a href=\"#\">a</a></p>"),
            ("[a](//other.test)", "<p><a href=\"#\">a</a></p>"),
            ("![a](data:text/html,x)", "<p><img src=\"#\" alt=\"a\" /></p>"),
            ("[a](https://x.test/?a=\"b)", "<p><a href=\"https://x.test/?a=%22b\">a</a></p>"),
            ("[a](push-credential)", "<p><a href=\"page?slug=push-credential\">a</a></p>"),
            ("<me@x.test>", "<p><a href=\"mailto:me@x.test\">me@x.test</a></p>"),
            ("![a](/images/a.png)", "<p><img src=\"/images/a.png\" alt=\"a\" /></p>"),
        ] {
            assert_eq!(html_of(markdown).trim(), wanted, "{markdown}");
        }
        let block = html_of("<script>alert(1)</script>\n\n<iframe src=x>\n");
        assert!(!block.contains("<script") && !block.contains("<iframe"), "{block}");
    }

    #[test]
    fn shipped_pages_are_whole_documents_with_one_title() {
        for (slug, shipped) in wiki::shipped() {
            let document = page(slug, shipped);
            assert_eq!(document.matches("<h1>").count(), 1, "{slug}");
            assert!(document.starts_with("<!DOCTYPE html><html lang=\"en\">"), "{slug}");
            assert!(!document.contains("href=\"#\""), "{slug} has a link to nowhere");
        }
        let untitled = WikiPage { frontmatter: Map::new(), body: "Text".to_owned() };
        let document = page(&WikiSlug::parse("a-page").unwrap(), &untitled);
        assert!(document.contains("<h1>a-page</h1>") && document.contains("<p>Text</p>"), "{document}");
    }

    #[test]
    fn all_pages_are_linked_from_their_tree() {
        let places = wiki::shipped().iter().map(|(slug, page)| (slug.clone(), page.place(slug)));
        let document = tree(&wiki::tree(places));
        for slug in wiki::shipped().keys() {
            assert!(document.contains(&format!("href=\"page?slug={slug}\"")), "{slug}");
        }
    }
}
