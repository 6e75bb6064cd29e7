//! Accounts that have a tier for nothing: `/admin/beta-testers`.

use actix_web::{HttpResponse, http::StatusCode, web};
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{
    api::{
        answer::{
            done::Done,
            error::ApiError,
            fields::{is_platform_id, is_tier, lines},
            list_page::next_of,
        },
        context::ApiContext,
        extract::{admin::Admin, idempotent::Idempotent, json::Json, query::Query},
    },
    db::{
        engine::pool::Db,
        money::beta_testers::{self, BetaTester},
    },
    domain::{
        audit::{AdminAction, Written},
        ids::PlatformId,
        limits::LARGEST_NUMBER,
        money::tier::{BetaEntry, Tier},
        time::Timestamp,
    },
};

/// Entries of a page when no `limit` is given.
const PAGE: i64 = 200;

/// A page of entries.
#[derive(Deserialize, IntoParams, Validate)]
pub struct BetaTesterQuery {
    /// Most entries of the page; 200 if absent.
    #[garde(range(min = 1, max = 500))]
    #[param(minimum = 1, maximum = 500)]
    limit: Option<i64>,
    /// Number of entries to skip.
    #[garde(range(min = 0, max = LARGEST_NUMBER))]
    #[param(minimum = 0, maximum = 2_147_483_647)]
    offset: Option<i64>,
    /// Only accounts after this one: the `next` of the page before.
    #[garde(inner(custom(is_platform_id)))]
    #[param(format = "steamid64")]
    before: Option<String>,
}

/// A tier for nothing.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(rename_all = "camelCase")]
#[schema(example = json!({ "platformId": "76561198000000002", "tier": "OPERATOR", "note": "Helps to test" }))]
pub struct CreateBetaTester {
    /// SteamID64; its user need not have signed in yet.
    #[garde(custom(is_platform_id))]
    #[schema(format = "steamid64")]
    platform_id: String,
    #[garde(custom(is_tier))]
    #[schema(format = "tier")]
    tier: String,
    /// For admins only.
    #[garde(length(chars, min = 1, max = 500), custom(lines))]
    #[schema(format = "lines", min_length = 1, max_length = 500)]
    note: Option<String>,
    /// In the future; absent: it does not end.
    #[garde(skip)]
    expires_at: Option<Timestamp>,
}

/// An account with a tier for nothing.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BetaTesterView {
    platform_id: String,
    tier: Tier,
    note: Option<String>,
    expires_at: Option<Timestamp>,
    /// False: it has expired.
    active: bool,
    created_at: Timestamp,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct BetaTesterList {
    total: i64,
    /// By platform id.
    beta_testers: Vec<BetaTesterView>,
    /// The `before` of the next page; `null` after the last.
    next: Option<String>,
}

impl BetaTesterView {
    /// As it is at this time.
    pub fn new(tester: BetaTester, now: Timestamp) -> Self {
        let BetaTester { account, entry, note, created_at } = tester;
        let BetaEntry { tier, expires_at } = entry;
        let active = expires_at.is_none_or(|end| end > now);
        Self { platform_id: account.to_string(), tier, note, expires_at, active, created_at }
    }
}

/// The accounts that have a tier for nothing, also when it has expired.
#[utoipa::path(get, path = "/admin/beta-testers", tag = "admin", params(BetaTesterQuery),
    responses(
    (status = 200, body = BetaTesterList),
))]
pub async fn list(
    Query(BetaTesterQuery { limit, offset, before }): Query<BetaTesterQuery>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let now = context.clock.now();
    let (limit, offset) = (limit.unwrap_or(PAGE), offset.unwrap_or_default());
    let read = move |db: &mut Db| beta_testers::list(db, before.as_deref().unwrap_or_default(), limit, offset);
    let (total, testers) = context.pool.read(read).await?;
    let next = next_of(&testers, limit as usize, |last| last.account.to_string());
    let beta_testers = testers.into_iter().map(|tester| BetaTesterView::new(tester, now)).collect();
    Ok(HttpResponse::Ok().json(BetaTesterList { total, beta_testers, next }))
}

/// Gives an account a tier for nothing, in place of one that it has. A paid subscription still decides.
#[utoipa::path(post, path = "/admin/beta-testers", tag = "admin",
    request_body = CreateBetaTester, responses(
    (status = 201, body = BetaTesterView),
    (status = 200, body = BetaTesterView, description = "The account had one, which is replaced"),
))]
pub async fn create(
    admin: Admin,
    once: Idempotent,
    Json(new): Json<CreateBetaTester>,
) -> Result<HttpResponse, ApiError> {
    let CreateBetaTester { platform_id, tier, note, expires_at } = new;
    let account = PlatformId::from(platform_id);
    let Some(tier) = Tier::parse(&tier) else { return Err(ApiError::invalid("tier", "is not known")) };
    let target = account.to_string();
    let put = move |db: &mut _, now| {
        if expires_at.is_some_and(|end| end <= now) {
            return Err(ApiError::invalid("expiresAt", "must be in the future"));
        }
        if expires_at.is_some_and(|end| !end.is_storable()) {
            return Err(ApiError::invalid("expiresAt", "must be before the year 10000, and no leap second"));
        }
        let before = beta_testers::find(db, &account)?;
        let after = beta_testers::put(db, &account, &BetaEntry { tier, expires_at }, note.as_deref(), now)?;
        let status = if before.is_some() { StatusCode::OK } else { StatusCode::CREATED };
        let before = before.map(|before| BetaTesterView::new(before, now));
        let view = BetaTesterView::new(after.clone(), now);
        Ok(Written::new((status, view), before, BetaTesterView::new(after, now)))
    };
    admin.write_once(once, AdminAction::PutBetaTester, &target, put).await
}

/// Takes the tier back.
#[utoipa::path(delete, path = "/admin/beta-testers/{platformId}", tag = "admin",
    params(("platformId" = String, Path)), responses(
    (status = 200, body = Done),
))]
pub async fn delete(admin: Admin, path: web::Path<String>) -> Result<HttpResponse, ApiError> {
    let target = path.into_inner();
    let account = PlatformId::from(target.as_str());
    let remove = move |db: &mut _, now| {
        let before = beta_testers::find(db, &account)?.ok_or(ApiError::NotFound)?;
        beta_testers::delete(db, &account)?;
        Ok(Written::new((), BetaTesterView::new(before, now), ()))
    };
    admin.write(AdminAction::DeleteBetaTester, &target, remove).await?;
    Ok(HttpResponse::Ok().json(Done::OK))
}
