//! The bundled pages and their files: `/`, `/invite`, `/overlay`, `/sw.js`, `/_/…`. Where the dashboard is another front end, `/` is
//! a page with links into the API.

use std::{sync::Arc, time::Duration};

use actix_web::{
    HttpRequest, HttpResponse, HttpResponseBuilder,
    http::header::{self, ContentEncoding, EntityTag},
    web,
};
use serde::Serialize;
use tokio::time::timeout;

use crate::{
    api::{
        account::{
            me::{self, Me},
            sign_in::RelayToken,
        },
        answer::{
            error::ApiError,
            etags::{self, Caching},
            fixed_answer::{FileOfAPage, takes_gzip},
            list_page::ListPage,
        },
        context::ApiContext,
        extract::session_user::presented_session,
        operation::{client_config::ClientConfig, index},
        server::paired_servers::{self, PairedServerList},
    },
    crypto::relay_token::RelayClaims,
    domain::{relay_access::RelayAccess, return_target, time::Timestamp},
    web::{
        pages::{BundledPages, LoadedPages, PageName, WORKER_POLICY},
        tree::TreeFile,
    },
};

/// Where the files are; a hash and a path follow.
const FILES: &str = "/_/";

/// The dashboard does not wait longer for its answers: it can ask itself.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);
/// Servers that the dashboard shows.
const SERVERS: usize = 100;

/// Powerful features of browsers that a page may use: none but these.
const PERMISSIONS: (&str, &str) =
    ("permissions-policy", "screen-wake-lock=(self), fullscreen=(self), camera=(), microphone=(), geolocation=()");

/// The dashboard; for browsers without a session, words about it and the way to sign in. Where FRONTEND_URL names another
/// one: links into the API.
#[utoipa::path(get, path = "/", tag = "pages", responses((status = 200, content_type = "text/html"),
    (status = 304, description = "The client has it")))]
pub async fn dashboard(req: HttpRequest, context: web::Data<ApiContext>) -> Result<HttpResponse, ApiError> {
    if !context.settings.pages.has_dashboard {
        return Ok(index::index());
    }
    let name = match presented_session(&req, &context) {
        Some(_) => match timeout(ANSWERS_WITHIN, first_answers(&req, &context)).await {
            Ok(Ok(answers)) => return dashboard_with(&req, &context.settings.pages, &answers).await,
            // The page asks itself, and says why it gets no answer.
            Ok(Err(_)) | Err(_) => PageName::Dashboard,
        },
        None if req.query_string() == return_target::CANCELLED => PageName::Cancelled,
        None => PageName::Landing,
    };
    page(&req, &context.settings.pages, name).await
}

/// Answers to the first questions of the dashboard, within its page: it is drawn without another round trip.
#[derive(Serialize)]
struct FirstAnswers {
    config: ClientConfig,
    me: Me,
    #[serde(flatten)]
    servers: PairedServerList,
    /// For the first connection to the relay.
    relay: RelayToken,
    /// The time of the service.
    now: Timestamp,
}

async fn first_answers(req: &HttpRequest, context: &ApiContext) -> Result<FirstAnswers, ApiError> {
    let ((user, session), me) = me::signed_in_as(req, context).await?;
    let claims = RelayClaims { user: user.clone(), session, access: RelayAccess::Session };
    let servers = paired_servers::page_of(user, None, &ListPage::new(SERVERS, None), context).await?;
    context.caches.activity.count_dashboard();
    Ok(FirstAnswers {
        config: ClientConfig::without_prices(context),
        me,
        servers,
        relay: RelayToken::mint(&claims, context),
        now: context.clock.now(),
    })
}

/// The dashboard of a user: no cache keeps it.
async fn dashboard_with(
    req: &HttpRequest,
    pages: &Arc<BundledPages>,
    answers: &FirstAnswers,
) -> Result<HttpResponse, ApiError> {
    let json = serde_json::to_string(answers).map_err(|error| ApiError::Internal(error.into()))?;
    let file = loaded(pages).await?.dashboard_with(&json);
    let mut answer = HttpResponse::Ok();
    answer.insert_header((header::CACHE_CONTROL, "private, no-store"));
    add_rules(&mut answer, pages, PageName::Dashboard);
    Ok(content(req, &mut answer, &file))
}

/// The dashboard, which asks whether to accept the invitation whose token is behind `#`.
#[utoipa::path(get, path = "/invite", tag = "pages", responses((status = 200, content_type = "text/html"),
    (status = 302, description = "To the front end that FRONTEND_URL names"),
    (status = 304, description = "The client has it")))]
pub async fn invite(req: HttpRequest, context: web::Data<ApiContext>) -> Result<HttpResponse, ApiError> {
    if context.settings.pages.has_dashboard {
        return page(&req, &context.settings.pages, PageName::Dashboard).await;
    }
    // A browser takes what is behind `#` along.
    Ok(HttpResponse::Found().insert_header((header::LOCATION, context.settings.urls.frontend.at("/invite"))).finish())
}

/// The overlay for streams. It reads its settings from the URL, the token from behind `#`.
#[utoipa::path(get, path = "/overlay", tag = "pages", responses((status = 200, content_type = "text/html"),
    (status = 304, description = "The client has it")))]
pub async fn overlay(req: HttpRequest, context: web::Data<ApiContext>) -> Result<HttpResponse, ApiError> {
    page(&req, &context.settings.pages, PageName::Overlay).await
}

/// The service worker of the dashboard, which shows alarms while no page is open. Its place at the root is its scope. A
/// browser asks for it again each time, so that none keeps an old one.
#[utoipa::path(get, path = "/sw.js", tag = "pages", responses((status = 200, content_type = "text/javascript"),
    (status = 304, description = "The client has it")))]
pub async fn worker(req: HttpRequest, context: web::Data<ApiContext>) -> Result<HttpResponse, ApiError> {
    let loaded = loaded(&context.settings.pages).await?;
    let tag = EntityTag::new_weak(loaded.worker.tag.clone());
    let (mut answer, is_known) = etags::begin(&req, &tag, Caching::Public);
    answer
        .insert_header((header::CONTENT_SECURITY_POLICY, WORKER_POLICY))
        .insert_header((header::VARY, "accept-encoding"));
    Ok(if is_known { answer.finish() } else { content(&req, &mut answer, &loaded.worker.file) })
}

/// A file of the bundled pages: `/_/HASH/PATH`. The hash is in the pages and in `/client-config`; another one is of
/// another version: 404.
pub async fn file(req: HttpRequest, context: web::Data<ApiContext>) -> Result<HttpResponse, ApiError> {
    let pages = &context.settings.pages;
    let (hash, path) =
        req.path().strip_prefix(FILES).and_then(|rest| rest.split_once('/')).ok_or(ApiError::NotFound)?;
    let loaded = loaded(pages).await?;
    // In a directory, each saved file makes another hash: the newest one counts.
    let file = loaded.tree.file(path).filter(|_| hash == loaded.tree.hash || pages.reads_files());
    let tag = EntityTag::new_weak(loaded.tree.hash.clone());
    let caching = if pages.reads_files() { Caching::Private } else { Caching::PublicImmutable };
    let (mut answer, is_known) = etags::begin(&req, &tag, caching);
    answer.extensions_mut().insert(FileOfAPage);
    let file = file.ok_or(ApiError::NotFound)?;
    Ok(if is_known { answer.finish() } else { content(&req, &mut answer, file) })
}

async fn page(req: &HttpRequest, pages: &Arc<BundledPages>, name: PageName) -> Result<HttpResponse, ApiError> {
    let loaded = loaded(pages).await?;
    let page = loaded.page(name);
    let tag = EntityTag::new_weak(page.tag.clone());
    let (mut answer, is_known) = etags::begin(req, &tag, Caching::Public);
    add_rules(&mut answer, pages, name);
    Ok(if is_known { answer.finish() } else { content(req, &mut answer, &page.file) })
}

/// The rules for browsers that show the page.
fn add_rules(answer: &mut HttpResponseBuilder, pages: &BundledPages, name: PageName) {
    answer
        .insert_header((header::CONTENT_SECURITY_POLICY, pages.policy(name)))
        .insert_header(PERMISSIONS)
        .insert_header((header::VARY, "accept-encoding, cookie"));
}

async fn loaded(pages: &Arc<BundledPages>) -> Result<Arc<LoadedPages>, ApiError> {
    let loaded = if pages.reads_files() {
        let pages = pages.clone();
        web::block(move || pages.load()).await.map_err(|error| ApiError::Internal(error.into()))?
    } else {
        pages.load()
    };
    loaded.map_err(|error| ApiError::Internal(error.into()))
}

fn content(req: &HttpRequest, answer: &mut HttpResponseBuilder, file: &TreeFile) -> HttpResponse {
    answer.content_type(file.media_type);
    match file.gzip.as_ref().filter(|_| takes_gzip(req)) {
        Some(gzip) => answer.insert_header(ContentEncoding::Gzip).body(gzip.clone()),
        None => answer.body(file.plain.clone()),
    }
}
