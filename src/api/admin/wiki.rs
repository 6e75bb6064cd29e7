//! The pages of the wiki: read, written, deleted and put back to an earlier version; and their images.

use actix_multipart::Multipart;
use actix_web::{HttpRequest, HttpResponse, web};
use garde::Validate;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use crate::{
    api::{
        admin::upload,
        answer::{
            done::Done,
            error::{ApiError, FieldError, Problem},
            etags::{self, Caching, Precondition},
        },
        caches::image_uploads::{ImageForm, ImageLocation},
        content::wiki::{PageAddress, SHIPPED, WikiPageView, WikiTree, current, digest, read_tree, respond, version},
        context::ApiContext,
        extract::{admin::Admin, json::Json, query::Query},
    },
    db::{engine::pool::Db, images, wiki_pages},
    domain::{
        audit::{AdminAction, Written},
        ids::PlatformId,
        image_name::ImageName,
        limits::{LARGEST_NUMBER, WIKI_IMAGE_EDGE, WIKI_PAGES},
        time::Timestamp,
        wiki::{WikiPage, WikiSlug, shipped},
    },
};

/// The new content of a page.
#[derive(Deserialize, ToSchema, Validate)]
#[schema(example = json!({
    "slug": "start/first-night", "frontmatter": { "section": "Start", "order": 1, "title": "The first night" }, "body": "Build small."
}))]
pub struct UpdateWikiPage {
    /// Parts of `a-z`, `0-9` and single hyphens, joined by slashes; at most 120 characters and 4 parts.
    #[garde(custom(is_slug))]
    #[schema(format = "slug", max_length = 120)]
    slug: String,
    /// `section`, `order` and `title` place it in the tree; at most 16 KiB.
    #[garde(skip)]
    #[schema(value_type = Object)]
    frontmatter: Map<String, Value>,
    /// Markdown, at most 256 KiB.
    #[garde(skip)]
    #[schema(format = "text", max_length = 262144)]
    body: String,
}

fn is_slug(slug: &str, _: &()) -> garde::Result {
    let fault = "must be parts of a-z, 0-9 and single hyphens, joined by slashes; at most 120 characters and 4 parts";
    WikiSlug::parse(slug).map(drop).ok_or_else(|| garde::Error::new(fault))
}

/// Which version a page is to have again.
#[derive(Deserialize, ToSchema, Validate)]
#[schema(example = json!({ "slug": "start/first-night", "version": 1 }))]
pub struct WikiPageRestore {
    #[garde(custom(is_slug))]
    #[schema(format = "slug", max_length = 120)]
    slug: String,
    /// 0: what the service ships.
    #[garde(range(min = 0, max = LARGEST_NUMBER))]
    #[schema(minimum = 0, maximum = 2_147_483_647)]
    version: i64,
}

/// A version of a page.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct WikiVersionView {
    version: i64,
    updated_at: Option<Timestamp>,
    /// Platform id.
    updated_by: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct WikiVersionList {
    /// Newest first; 0 is what the service ships.
    #[schema(max_items = 21)]
    versions: Vec<WikiVersionView>,
}

/// The sections and their pages, and what can be restored.
#[derive(Serialize, ToSchema)]
struct AdminWikiTree {
    #[serde(flatten)]
    tree: WikiTree,
    /// Slugs of deleted pages, in their order.
    #[schema(value_type = Vec<String>, max_items = 1000)]
    deleted: Vec<WikiSlug>,
}

/// The tree of the wiki.
#[utoipa::path(get, path = "/admin/wiki/tree", tag = "admin", responses(
    (status = 200, body = AdminWikiTree, headers(("ETag" = String))),
    (status = 304, description = "The client has it"),
))]
pub async fn list(req: HttpRequest, context: web::Data<ApiContext>) -> Result<HttpResponse, ApiError> {
    let read = |db: &mut Db| {
        let gone = |(slug, place): (WikiSlug, Option<_>)| place.is_none().then_some(slug);
        let deleted = wiki_pages::places(db)?.into_iter().filter_map(gone).collect();
        Ok(AdminWikiTree { tree: read_tree(db)?, deleted })
    };
    let tree = context.pool.read(read).await?;
    Ok(respond(&req, &tree, None, Caching::Private))
}

/// A page.
#[utoipa::path(get, path = "/admin/wiki/page", tag = "admin", params(PageAddress), responses(
    (status = 200, body = WikiPageView, headers(("ETag" = String))),
    (status = 304, description = "The client has it"),
    (status = 404, body = Problem, content_type = "application/problem+json", description = "`not_found`"),
))]
pub async fn get(
    Query(address): Query<PageAddress>,
    req: HttpRequest,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let slug = address.slug()?;
    let page = context.pool.read(move |db| current(db, &slug)).await?;
    let (view, digest) = page.ok_or(ApiError::NotFound)?;
    Ok(respond(&req, &view, Some(&digest), Caching::Private))
}

/// Writes a page, a new one or over one that is there.
#[utoipa::path(put, path = "/admin/wiki/page", tag = "admin",
    params(("if-match" = Option<String>, Header, description = "The `ETag` of what is changed"),
        ("if-none-match" = Option<String>, Header, description = "`*`: only if there is none")),
    request_body = UpdateWikiPage, responses(
    (status = 200, body = WikiPageView, headers(("ETag" = String))),
    (status = 409, description = "`limit_reached`"),
    (status = 412, description = "`conflict`: it was changed since"),
))]
pub async fn update(
    admin: Admin,
    precondition: Precondition,
    Json(UpdateWikiPage { slug, frontmatter, body }): Json<UpdateWikiPage>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let slug = WikiSlug::parse(&slug).ok_or(ApiError::NotFound)?;
    let page = WikiPage { frontmatter, body };
    let faults = page.faults();
    if !faults.is_empty() {
        let fault = |(path, message): (&str, String)| FieldError { path: path.to_owned(), message };
        return Err(ApiError::Invalid(faults.into_iter().map(fault).collect()));
    }
    let by = admin.platform_id.clone();
    let (view, unused) = admin
        .write(AdminAction::PutWikiPage, slug.clone().as_str(), move |db, now| {
            write(db, &slug, page, &precondition, &by, now)
        })
        .await?;
    context.caches.images.delete_unused(&context.pool, unused).await;
    Ok(answer(&view))
}

/// Deletes a page. Its versions and their images are kept, so that it can be restored, until the wiki needs room for new
/// pages; those that were written longest ago go first.
#[utoipa::path(delete, path = "/admin/wiki/page", tag = "admin",
    params(PageAddress, ("if-match" = Option<String>, Header, description = "The `ETag` of what is deleted")), responses(
    (status = 200, body = Done),
    (status = 412, description = "`conflict`: it was changed since"),
    (status = 404, body = Problem, content_type = "application/problem+json", description = "`not_found`"),
))]
pub async fn delete(
    admin: Admin,
    precondition: Precondition,
    Query(address): Query<PageAddress>,
) -> Result<HttpResponse, ApiError> {
    let slug = address.slug()?;
    let target = slug.clone();
    let deleted = admin.write(AdminAction::DeleteWikiPage, target.as_str(), move |db, _| {
        let (view, digest) = current(db, &slug)?.ok_or(ApiError::NotFound)?;
        precondition.check(Some(&digest))?;
        wiki_pages::delete(db, &slug)?;
        Ok(Written::new((), view, Value::Null))
    });
    deleted.await?;
    Ok(HttpResponse::Ok().json(Done::OK))
}

/// The versions of a page that are kept.
#[utoipa::path(get, path = "/admin/wiki/page/versions", tag = "admin", params(PageAddress),
    responses(
    (status = 200, body = WikiVersionList),
    (status = 404, body = Problem, content_type = "application/problem+json", description = "`not_found`"),
))]
pub async fn list_versions(
    Query(address): Query<PageAddress>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let slug = address.slug()?;
    let of = slug.clone();
    let kept = context.pool.read(move |db| wiki_pages::versions(db, &of)).await?;
    let written = kept.into_iter().map(|kept| WikiVersionView {
        version: kept.version,
        updated_at: Some(kept.written_at),
        updated_by: Some(kept.written_by),
    });
    let mut versions: Vec<WikiVersionView> = written.collect();
    if shipped().contains_key(&slug) {
        versions.push(WikiVersionView { version: SHIPPED, updated_at: None, updated_by: None });
    }
    match versions.is_empty() {
        true => Err(ApiError::NotFound),
        false => Ok(HttpResponse::Ok().json(WikiVersionList { versions })),
    }
}

/// An earlier version of a page, also of a deleted one.
#[utoipa::path(get, path = "/admin/wiki/page/versions/{version}", tag = "admin",
    params(("version" = i64, Path, minimum = 0, maximum = 2_147_483_647, description = "0: what the service ships"), PageAddress), responses(
    (status = 200, body = WikiPageView, headers(("ETag" = String))),
    (status = 304, description = "The client has it"),
    (status = 404, description = "The version is not kept"),
))]
pub async fn get_version(
    path: web::Path<i64>,
    Query(address): Query<PageAddress>,
    req: HttpRequest,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let (slug, wanted) = (address.slug()?, path.into_inner());
    let (view, digest) = context.pool.read(move |db| version(db, &slug, wanted)).await?;
    Ok(respond(&req, &view, Some(&digest), Caching::Private))
}

/// Puts a page back to an earlier version, as a new one; also a page that was deleted.
#[utoipa::path(post, path = "/admin/wiki/page/restore", tag = "admin",
    params(("if-match" = Option<String>, Header, description = "The `ETag` of what is changed"),
        ("if-none-match" = Option<String>, Header, description = "`*`: only if there is none")),
    request_body = WikiPageRestore, responses(
    (status = 200, body = WikiPageView, headers(("ETag" = String))),
    (status = 404, description = "The version is not kept"),
    (status = 412, description = "`conflict`: it was changed since"),
))]
pub async fn restore(
    admin: Admin,
    precondition: Precondition,
    Json(WikiPageRestore { slug, version: wanted }): Json<WikiPageRestore>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let slug = WikiSlug::parse(&slug).ok_or(ApiError::NotFound)?;
    let (by, target) = (admin.platform_id.clone(), slug.clone());
    let written = admin.write(AdminAction::RestoreWikiPage, target.as_str(), move |db, now| {
        let (WikiPageView { frontmatter, body, .. }, _) = version(db, &slug, wanted)?;
        write(db, &slug, WikiPage { frontmatter, body }, &precondition, &by, now)
    });
    let (view, unused) = written.await?;
    context.caches.images.delete_unused(&context.pool, unused).await;
    Ok(answer(&view))
}

/// Takes an image for a page. It is deleted after a day in which no page uses it.
#[utoipa::path(post, path = "/admin/wiki/image", tag = "admin",
    request_body(content = ImageForm, content_type = "multipart/form-data"), responses(
    (status = 201, body = ImageLocation),
    (status = 400,
        description = "`invalid_request`; `invalid_image`: no PNG or WebP, broken, more than 4096 pixels wide or high or 8 million in all"),
    (status = 408, description = "It took more than 30 s"),
    (status = 413, description = "The file has more than 5 MB"),
))]
pub async fn upload_image(admin: Admin, req: HttpRequest, form: Multipart) -> Result<HttpResponse, ApiError> {
    upload::upload(admin, &req, form, WIKI_IMAGE_EDGE).await
}

/// Writes the next version, and counts its images as used. Returns the page as it now is and the unused images.
fn write(
    db: &mut Db,
    slug: &WikiSlug,
    page: WikiPage,
    precondition: &Precondition,
    by: &PlatformId,
    now: Timestamp,
) -> Result<Written<(WikiPageView, Vec<ImageName>)>, ApiError> {
    let before = current(db, slug)?;
    precondition.check(before.as_ref().map(|(_, digest)| digest.as_str()))?;
    let mut unused = Vec::new();
    if wiki_pages::head(db, slug)?.is_none() && wiki_pages::count(db)? >= WIKI_PAGES {
        let oldest = wiki_pages::oldest_deleted(db)?;
        let oldest =
            oldest.ok_or_else(|| ApiError::LimitReached(format!("the wiki has at most {WIKI_PAGES} pages")))?;
        for version in wiki_pages::forget(db, &oldest)? {
            unused.extend(images::release(db, &image_user(&oldest, version), now)?);
        }
    }
    let (written, dropped) = wiki_pages::put(db, slug, &page, &digest(&page), by, now)?;
    for image in ImageName::all_in(&page.body).union(&ImageName::all_in(&json!(page.frontmatter).to_string())) {
        // One that is not ours is a link like any other.
        images::use_by(db, image, &image_user(slug, written.version))?;
    }
    for version in dropped {
        unused.extend(images::release(db, &image_user(slug, version), now)?);
    }
    let WikiPage { frontmatter, body } = page;
    let view = WikiPageView { slug: slug.clone(), frontmatter, body, version: written.version, updated_at: Some(now) };
    let recorded = json!(view);
    Ok(Written::new((view, unused), before.map(|(view, _)| view), recorded))
}

/// The name under which a version of a page uses images.
fn image_user(slug: &WikiSlug, version: i64) -> String {
    format!("wiki:{slug}@{version}")
}

fn answer(view: &WikiPageView) -> HttpResponse {
    let digest = digest(&WikiPage { frontmatter: view.frontmatter.clone(), body: view.body.clone() });
    HttpResponse::Ok().insert_header(("etag", etags::tag(&digest).to_string())).json(view)
}
