//! The log of admins' actions: `/admin/audit`.

use actix_web::{HttpResponse, web};
use garde::Validate;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use crate::{
    api::{
        answer::{error::ApiError, list_page::next_of},
        context::ApiContext,
        extract::query::Query,
    },
    db::audit::{self, AuditEntry, AuditPage},
    domain::{
        audit::{AdminAction, AuditResult},
        time::Timestamp,
        timeline::Cursor,
    },
};

/// Entries of a page when no `limit` is given.
const PAGE: usize = 200;

/// Filters and a page of entries.
#[derive(Deserialize, IntoParams, Validate)]
pub struct AuditQuery {
    /// Most entries of the page; 200 if absent.
    #[garde(range(min = 1, max = 500))]
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
    /// Only of this action, for example `beta_tester.put`.
    #[garde(length(max = 100), custom(plain))]
    #[param(max_length = 100, format = "no-control")]
    action: Option<String>,
    /// Only by this admin: a platform id.
    #[garde(length(max = 100), custom(plain))]
    #[param(max_length = 100, format = "no-control")]
    actor: Option<String>,
    /// Only what was done to this.
    #[garde(length(max = 500), custom(plain))]
    #[param(max_length = 500, format = "no-control")]
    target: Option<String>,
    /// Only what was done then or later: RFC 3339.
    #[garde(length(max = 64))]
    #[param(value_type = Option<String>, format = DateTime)]
    since: Option<String>,
    /// Only what was done before: a time in RFC 3339, or the `next` of the page before.
    #[garde(length(max = 64))]
    #[param(max_length = 64, format = "before")]
    before: Option<String>,
}

fn plain(text: &Option<String>, _: &()) -> garde::Result {
    let is_plain = text.as_deref().is_none_or(|text| !text.chars().any(char::is_control));
    is_plain.then_some(()).ok_or_else(|| garde::Error::new("must have no control characters"))
}

#[derive(Serialize, ToSchema)]
struct AuditLog {
    /// Number of entries that match, whatever `before` and `limit` are.
    total: i64,
    /// Newest first.
    entries: Vec<AuditEntryView>,
    /// The `before` of the next page; `null` after the last.
    next: Option<String>,
}

/// An action of an admin.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct AuditEntryView {
    /// Its number in the chain.
    id: String,
    /// Platform id of the admin.
    actor: String,
    /// `other`: one of a later version.
    #[schema(format = "admin-action")]
    action: &'static str,
    /// Target of the action.
    target: String,
    /// `{ before, after }` without secrets; for a request to another service `{ asked }`, and for its outcome
    /// `{ begun, after }`, where `begun` is the id of the first entry.
    #[schema(value_type = Object)]
    payload: Value,
    /// `done`, `begun`, `failed`, or `unknown`: the other service did not report the outcome.
    result: AuditResult,
    created_at: Timestamp,
    /// SHA-256 over the entry and the hash before it.
    hash: String,
}

impl From<AuditEntry> for AuditEntryView {
    fn from(entry: AuditEntry) -> Self {
        let AuditEntry { id, at, actor, action, target, payload, result, hash } = entry;
        let payload = serde_json::from_str(&payload).unwrap_or(Value::String(payload));
        let (action, result) = (AdminAction::stored(&action).word(), AuditResult::stored(&result));
        Self { id: id.to_string(), actor, action, target, payload, result, created_at: at, hash }
    }
}

/// The actions of admins, newest first.
#[utoipa::path(get, path = "/admin/audit", tag = "admin", params(AuditQuery), responses(
    (status = 200, body = AuditLog),
))]
pub async fn list(Query(query): Query<AuditQuery>, context: web::Data<ApiContext>) -> Result<HttpResponse, ApiError> {
    let page = query.page()?;
    let limit = page.limit;
    let (total, entries) = context.pool.read(move |db| audit::list(db, &page)).await?;
    let cursor = |last: &AuditEntry| Cursor { ts: last.at, id: last.id.to_string() }.to_wire();
    let next = next_of(&entries, limit, cursor);
    let entries = entries.into_iter().map(AuditEntryView::from).collect();
    Ok(HttpResponse::Ok().json(AuditLog { total, entries, next }))
}

impl AuditQuery {
    fn page(self) -> Result<AuditPage, ApiError> {
        let Self { limit, action, actor, target, since, before } = self;
        let since = since.map(|since| {
            read_time(&since).ok_or_else(|| ApiError::invalid("since", "must be a time like 2026-01-31T12:00:00Z"))
        });
        let before = before.map(|before| {
            let cursor = Cursor::parse(&before).and_then(|Cursor { ts, id }| Some((ts, id.parse().ok()?)));
            // No entry of that very time is before it.
            let place = cursor.or_else(|| Some((read_time(&before)?, i64::MIN)));
            place.ok_or_else(|| ApiError::invalid("before", "must be a time, or the `next` of another page"))
        });
        // A form also sends the fields that are left empty.
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        Ok(AuditPage {
            action: given(action),
            actor: given(actor),
            target: given(target),
            since: since.transpose()?,
            before: before.transpose()?,
            limit: limit.unwrap_or(PAGE),
        })
    }
}

fn read_time(text: &str) -> Option<Timestamp> {
    Timestamp::parse_rfc3339(text)
}
