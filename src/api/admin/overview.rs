//! State of the service and its members: `/admin/users/overview`. Portals ask every few seconds: counts over all
//! members are taken once for all of them.

use std::collections::BTreeMap;

use actix_web::{HttpResponse, web};
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::member_views::StatusUser;
use crate::{
    api::{
        answer::{error::ApiError, fields::own_id, list_page::next_of},
        caches::admin_overview::AdminOverview,
        context::ApiContext,
        extract::query::Query,
    },
    db::{
        engine::pool::Db,
        members::{self, MemberStatus, MemberTotals},
    },
    domain::ids::UserId,
};

/// Members of a page when no `limit` is given.
const PAGE: i64 = 200;

/// A search and a page of members.
#[derive(Deserialize, IntoParams, Validate)]
pub struct OverviewQuery {
    /// Beginning of the platform id, or of a word of the name.
    #[garde(length(chars, max = 100))]
    #[param(max_length = 100)]
    q: Option<String>,
    /// Most members of the page; 200 if absent.
    #[garde(range(min = 1, max = 500))]
    #[param(minimum = 1, maximum = 500)]
    limit: Option<i64>,
    /// Only members before this one: the `next` of the page before.
    #[garde(inner(custom(own_id)))]
    #[param(format = Uuid)]
    before: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Overview {
    /// True if the relay's `/health` answered within 3 s.
    relay_reachable: bool,
    /// Reason, if it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    relay_error: Option<String>,
    totals: OverviewTotals,
    /// The newest members first.
    users: Vec<StatusUser>,
    /// The `before` of the next page; `null` after the last.
    next: Option<String>,
}

/// Counts over all members, whatever is searched for. Up to 10 seconds old, as is who is online.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct OverviewTotals {
    total_users: i64,
    online: usize,
    /// Members with a subscription that entitles.
    paid: usize,
    /// Active beta testers who have signed in.
    beta: usize,
    with_creds: usize,
    /// Members with a linked chat account.
    with_chat: i64,
    /// Members with an own server.
    with_paired: usize,
    /// Members by stage: `no-subscription`, `no-credentials`, `no-paired-server`.
    #[schema(value_type = Object)]
    stuck: BTreeMap<&'static str, i64>,
}

/// State of the relay and the members: who is online, how far each has come, and where they get stuck.
#[utoipa::path(get, path = "/admin/users/overview", tag = "admin", params(OverviewQuery),
    responses(
    (status = 200, body = Overview),
))]
pub async fn get(
    Query(OverviewQuery { q, limit, before }): Query<OverviewQuery>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let status = context.caches.overview.get(&context.clock, || admin_overview(&context)).await?;
    let (now, limit) = (context.clock.now(), limit.unwrap_or(PAGE));
    let before = before.map(UserId::from);
    let read = move |db: &mut Db| {
        let (_, users) = members::search(db, q.as_deref(), before.as_ref(), limit, 0)?;
        members::statuses(db, users, now)
    };
    let members = context.pool.read(read).await?;
    let next = next_of(&members, limit as usize, |last| last.user.id.to_string());
    Ok(HttpResponse::Ok().json(Overview::new(&status, members, next)))
}

async fn admin_overview(context: &ApiContext) -> Result<AdminOverview, ApiError> {
    let now = context.clock.now();
    let (totals, online, relay) = tokio::join!(
        context.pool.read(move |db| members::totals(db, now)),
        context.online(),
        context.health.relay.check(),
    );
    Ok(AdminOverview { totals: totals?, online: online?, relay })
}

impl Overview {
    fn new(status: &AdminOverview, members: Vec<MemberStatus>, next: Option<String>) -> Self {
        let AdminOverview { totals, online, relay } = status;
        let MemberTotals { users, paid, beta, with_credential, with_chat, with_paired_server, stuck } = totals.clone();
        let member = |member: MemberStatus| {
            let is_online = online.contains(&member.user.id);
            StatusUser::new(member, is_online)
        };
        Self {
            relay_reachable: relay.is_ok(),
            relay_error: relay.clone().err(),
            totals: OverviewTotals {
                total_users: users,
                online: online.len(),
                paid,
                beta,
                with_creds: with_credential,
                with_chat,
                with_paired: with_paired_server,
                stuck,
            },
            users: members.into_iter().map(member).collect(),
            next,
        }
    }
}
