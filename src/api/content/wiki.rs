//! The wiki as everybody reads it: `/wiki/tree` and `/wiki/page`.

use std::collections::BTreeMap;

use actix_web::{
    HttpRequest, HttpResponse,
    http::header::{self, HeaderValue},
    web,
};
use garde::Validate;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};

use crate::{
    api::{
        answer::{
            error::{ApiError, Problem},
            etags::{self, Caching},
            page,
        },
        content::wiki_html,
        context::ApiContext,
        extract::query::Query,
    },
    crypto::digest::sha256_hex,
    db::{
        engine::{error::DbError, pool::Db},
        wiki_pages,
    },
    domain::{
        time::Timestamp,
        wiki::{self, WikiPage, WikiSection, WikiSlug},
    },
};

/// Query that names a page of the wiki.
#[derive(Deserialize, IntoParams, Validate)]
pub struct PageAddress {
    /// Parts of `a-z`, `0-9` and single hyphens, joined by slashes.
    #[garde(length(max = 200))]
    #[param(max_length = 200)]
    pub slug: String,
}

impl PageAddress {
    /// The slug; 404 for what none can be.
    pub fn slug(&self) -> Result<WikiSlug, ApiError> {
        WikiSlug::parse(&self.slug).ok_or(ApiError::NotFound)
    }
}

/// A page of the wiki in one of its versions.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WikiPageView {
    #[schema(value_type = String)]
    pub slug: WikiSlug,
    /// `section`, `order` and `title` place it in the tree.
    #[schema(value_type = Object)]
    pub frontmatter: Map<String, Value>,
    /// Markdown; a link without a scheme is the slug of a page.
    pub body: String,
    /// 0: as it ships.
    pub version: i64,
    /// `null`: as it ships.
    pub updated_at: Option<Timestamp>,
}

/// A page in the tree.
#[derive(ToSchema)]
#[allow(dead_code, reason = "the shape of `domain::wiki::WikiLink`")]
struct NavPage {
    slug: String,
    title: String,
    order: Option<f64>,
}

/// A section of the tree.
#[derive(ToSchema)]
#[allow(dead_code, reason = "the shape of `domain::wiki::WikiSection`")]
struct NavSection {
    name: String,
    /// By `order`, then by title.
    pages: Vec<NavPage>,
}

/// The sections and their pages.
#[derive(Serialize, ToSchema)]
pub struct WikiTree {
    /// By the first of their pages.
    #[schema(value_type = Vec<NavSection>, max_items = 2000)]
    sections: Vec<WikiSection>,
}

/// The digest of a page's content.
pub fn digest(page: &WikiPage) -> String {
    sha256_hex(&serde_json::to_vec(page).unwrap_or_default())
}

/// The page as it is now; `None` if there is none.
pub fn current(db: &mut Db, slug: &WikiSlug) -> Result<Option<(WikiPageView, String)>, DbError> {
    match wiki_pages::head(db, slug)? {
        Some(head) if head.is_deleted() => Ok(None),
        Some(head) => version(db, slug, head.version).map(Some),
        None => match wiki::shipped().contains_key(slug) {
            true => version(db, slug, SHIPPED).map(Some),
            false => Ok(None),
        },
    }
}

/// The version of what the service ships.
pub const SHIPPED: i64 = 0;

/// A version of the page, and the digest of its content; `NotFound` if it is not kept.
pub fn version(db: &mut Db, slug: &WikiSlug, version: i64) -> Result<(WikiPageView, String), DbError> {
    let (page, updated_at) = if version == SHIPPED {
        (wiki::shipped().get(slug).cloned().ok_or(DbError::NotFound)?, None)
    } else {
        let (page, version) = wiki_pages::get(db, slug, version)?;
        (page, Some(version.written_at))
    };
    let digest = digest(&page);
    let WikiPage { frontmatter, body } = page;
    Ok((WikiPageView { slug: slug.clone(), frontmatter, body, version, updated_at }, digest))
}

/// The tree of all pages: those of the service, as admins changed them.
pub fn read_tree(db: &mut Db) -> Result<WikiTree, DbError> {
    let mut places: BTreeMap<WikiSlug, _> =
        wiki::shipped().iter().map(|(slug, page)| (slug.clone(), Some(page.place(slug)))).collect();
    places.extend(wiki_pages::places(db)?);
    let there = places.into_iter().filter_map(|(slug, place)| Some((slug, place?)));
    Ok(WikiTree { sections: wiki::tree(there) })
}

/// As an answer that is asked for again each time.
pub fn respond<T: Serialize>(req: &HttpRequest, view: &T, digest: Option<&str>, caching: Caching) -> HttpResponse {
    let body = serde_json::to_vec(view).unwrap_or_default();
    match digest {
        Some(digest) => etags::json(req, digest, caching, || body.into()),
        None => etags::json(req, &sha256_hex(&body), caching, || body.clone().into()),
    }
}

/// True if a person asks, who gets a page instead of JSON.
fn is_reader(req: &HttpRequest) -> bool {
    page::is_wanted(req.headers().get(header::ACCEPT))
}

/// Says to caches that people and programs get different answers.
fn by_reader(mut answer: HttpResponse) -> HttpResponse {
    answer.headers_mut().append(header::VARY, HeaderValue::from_static("accept"));
    answer
}

/// The tree of the wiki: for browsers a page, otherwise JSON. Needs no session.
#[utoipa::path(get, path = "/wiki/tree", tag = "content", responses(
    (status = 200, content(
        (WikiTree = "application/json"),
        (String = "text/html"),
    ), headers(("ETag" = String))),
    (status = 304, description = "The client has it"),
))]
pub async fn list(req: HttpRequest, context: web::Data<ApiContext>) -> Result<HttpResponse, ApiError> {
    let tree = context.pool.read(read_tree).await?;
    Ok(by_reader(match is_reader(&req) {
        true => wiki_html::answer(&req, wiki_html::tree(&tree.sections)),
        false => respond(&req, &tree, None, Caching::Public),
    }))
}

/// A page of the wiki: for browsers as HTML, otherwise JSON with its Markdown. Needs no session.
#[utoipa::path(get, path = "/wiki/page", tag = "content", params(PageAddress), responses(
    (status = 200, content(
        (WikiPageView = "application/json"),
        (String = "text/html"),
    ), headers(("ETag" = String))),
    (status = 304, description = "The client has it"),
    (status = 404, body = Problem, content_type = "application/problem+json", description = "`not_found`"),
))]
pub async fn get(
    Query(address): Query<PageAddress>,
    req: HttpRequest,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let slug = address.slug()?;
    if is_reader(&req) {
        // On the thread of the database: a long page takes a moment.
        let document = context.pool.read(move |db| {
            let found = current(db, &slug)?.map(|(view, _)| (view.frontmatter, view.body));
            let page = found.map(|(frontmatter, body)| WikiPage { frontmatter, body });
            Ok::<_, DbError>(page.map(|page| wiki_html::page(&slug, &page)))
        });
        let document = document.await?.ok_or(ApiError::NotFound)?;
        return Ok(by_reader(wiki_html::answer(&req, document)));
    }
    let page = context.pool.read(move |db| current(db, &slug)).await?;
    let (view, digest) = page.ok_or(ApiError::NotFound)?;
    Ok(by_reader(respond(&req, &view, Some(&digest), Caching::Public)))
}
