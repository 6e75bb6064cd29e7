//! Members: `/admin/users`, `/admin/users/{id}`, `/admin/users/{id}/sign-out`.

use std::collections::BTreeMap;

use actix_web::{HttpResponse, web};
use garde::Validate;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::{IntoParams, ToSchema};

use super::member_views::{HostView, MemberView};
use crate::{
    api::{
        account::{credentials::PushCredentialView, me::SubscriptionView},
        answer::{error::ApiError, fields::own_id, list_page::next_of},
        context::ApiContext,
        extract::{admin::Admin, query::Query},
        server::{guests::GuestView, paired_servers::PairedServerView},
    },
    db::{
        alarms::incidents,
        engine::pool::Db,
        guests::{self, Guest},
        members,
        money::{payment_customers, tiers},
        paired_servers, push_credentials, push_refusals, sessions,
        users::{self, User},
    },
    domain::{
        access::Role,
        audit::{AdminAction, Written},
        ids::{ServerId, SessionId, UserId},
        limits::LARGEST_NUMBER,
        time::Timestamp,
    },
    relay::hub::SessionEnded,
};

/// Members of a page when no `limit` is given.
const PAGE: i64 = 50;

/// A search and a page of members.
#[derive(Deserialize, IntoParams, Validate)]
pub struct MemberQuery {
    /// Beginning of the platform id, or of a word of the name; upper and lower case are one. Or the whole id of a
    /// subscription or customer at the payment provider.
    #[garde(length(chars, max = 255))]
    #[param(max_length = 255)]
    q: Option<String>,
    /// Most members of the page; 50 if absent.
    #[garde(range(min = 1, max = 500))]
    #[param(minimum = 1, maximum = 500)]
    limit: Option<i64>,
    /// Number of members to skip.
    #[garde(range(min = 0, max = LARGEST_NUMBER))]
    #[param(minimum = 0, maximum = 2_147_483_647)]
    offset: Option<i64>,
    /// Only members before this one: the `next` of the page before. Unlike `offset`, it skips no one when others come.
    #[garde(inner(custom(own_id)))]
    #[param(format = Uuid)]
    before: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct MemberList {
    /// Number of members that match, whatever the page is.
    total: i64,
    /// The newest members first.
    users: Vec<MemberView>,
    /// The `before` of the next page; `null` after the last.
    next: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct MemberAnswer {
    user: MemberDetail,
}

/// A member, with all that there is of them but secrets.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct MemberDetail {
    id: String,
    platform_id: String,
    display_name: String,
    avatar_url: Option<String>,
    created_at: Timestamp,
    last_seen_at: Timestamp,
    /// As the member sees it.
    subscription: SubscriptionView,
    /// The customer at the payment provider; null: they were never at the checkout.
    payment_customer_id: Option<String>,
    /// The member's own servers.
    paired_servers: Vec<PairedServerView>,
    /// Its state, never its content.
    push_credential: PushCredentialView,
    /// Guests of the own servers, and open invitations to them.
    dashboard_guest_invites: Vec<SentInvite>,
    /// The servers of others.
    guest_of: Vec<HostView>,
    alarms: AlarmSummary,
}

/// A guest of a server, or an open invitation to it.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct SentInvite {
    server_id: String,
    #[serde(flatten)]
    guest: GuestView,
}

/// The ledger of alarms of the own servers, as long as it is kept.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct AlarmSummary {
    /// Incidents by state: `unheard`, `delivered`, `delivered_later`, `acknowledged` or `expired`.
    #[schema(value_type = Object)]
    incidents: BTreeMap<String, i64>,
    last_at: Option<Timestamp>,
}

#[derive(Serialize, ToSchema)]
struct SignedOut {
    ok: bool,
    /// Number of sessions that were ended.
    sessions: usize,
}

/// Members, the newest first.
#[utoipa::path(get, path = "/admin/users", tag = "admin", params(MemberQuery), responses(
    (status = 200, body = MemberList),
))]
pub async fn list(
    Query(MemberQuery { q, limit, offset, before }): Query<MemberQuery>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let now = context.clock.now();
    let (limit, offset) = (limit.unwrap_or(PAGE), offset.unwrap_or_default());
    let before = before.map(UserId::from);
    let read = move |db: &mut Db| {
        let (total, users) = members::search(db, q.as_deref(), before.as_ref(), limit, offset)?;
        let tiers = tiers::effective_of_all(db, &users, now)?;
        Ok((total, users, tiers))
    };
    let (total, users, mut tiers) = context.pool.read(read).await?;
    let view = |user: User| {
        let tier = tiers.remove(&user.id);
        MemberView::new(user, tier)
    };
    let next = next_of(&users, limit as usize, |last| last.id.to_string());
    Ok(HttpResponse::Ok().json(MemberList { total, users: users.into_iter().map(view).collect(), next }))
}

/// One member: subscription and why, paired servers with the state of their links, the state of the push credential,
/// guests, and what became of alarms.
#[utoipa::path(get, path = "/admin/users/{id}", tag = "admin",
    params(("id" = String, Path)), responses(
    (status = 200, body = MemberAnswer),
))]
pub async fn get(path: web::Path<String>, context: web::Data<ApiContext>) -> Result<HttpResponse, ApiError> {
    let (id, now) = (UserId::from(path.into_inner()), context.clock.now());
    let found = id.clone();
    let read = move |db: &mut Db| {
        let Some(user) = users::find(db, &id)? else { return Ok(None) };
        let subscription = (tiers::effective_of(db, &id, now)?, tiers::used(db, &id, now)?);
        let credential = (push_credentials::get(db, &id)?, push_refusals::get(db, &id)?);
        let servers = paired_servers::list_for(db, &id)?;
        let ids: Vec<ServerId> = servers.iter().map(|server| server.id.clone()).collect();
        let mut invites: Vec<Guest> = Vec::new();
        for server in &ids {
            invites.extend(guests::list(db, server, now)?);
        }
        let open = incidents::open(db, &ids)?;
        let alarms = incidents::summary(db, &ids)?;
        let hosts = members::hosts_of(db, &id)?;
        let customer = payment_customers::of_user(db, &id)?;
        Ok(Some((user, customer, subscription, credential, servers, invites, open, alarms, hosts)))
    };
    let found_all = context.pool.read(read).await?.ok_or(ApiError::NotFound)?;
    let (user, customer, (effective, used), (credential, refusal), servers, invites, open, alarms, hosts) = found_all;
    let session = context.push_session(&found).await?;
    let mut links = context.connections(servers.iter().map(|server| server.id.clone()).collect()).await?;
    let server = |server: paired_servers::PairedServer| {
        let (link, open) = (links.remove(&server.id), open.get(&server.id).copied());
        PairedServerView::new(server, Role::Owner, link, open.unwrap_or_default())
    };
    let invite = |guest: Guest| {
        let server_id = guest.server.to_string();
        SentInvite { server_id, guest: GuestView::new(guest, Role::Owner) }
    };
    let User { id, platform_id, display_name, avatar_url, created_at, last_seen_at, .. } = user;
    let user = MemberDetail {
        id: id.to_string(),
        platform_id: platform_id.to_string(),
        display_name,
        avatar_url,
        created_at,
        last_seen_at,
        subscription: SubscriptionView::new(effective, used, context.settings.enforce_tiers),
        payment_customer_id: customer,
        paired_servers: servers.into_iter().map(server).collect(),
        push_credential: PushCredentialView::new(credential, refusal, session, now),
        dashboard_guest_invites: invites.into_iter().map(invite).collect(),
        guest_of: hosts.into_iter().map(HostView::from).collect(),
        alarms: AlarmSummary { incidents: alarms.by_state, last_at: alarms.last_at },
    };
    Ok(HttpResponse::Ok().json(MemberAnswer { user }))
}

/// Ends all sessions of a member, with their sockets. Helper devices stay.
#[utoipa::path(post, path = "/admin/users/{id}/sign-out", tag = "admin",
    params(("id" = String, Path)), responses(
    (status = 200, body = SignedOut),
))]
pub async fn sign_out(
    admin: Admin,
    path: web::Path<String>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let target = path.into_inner();
    let (user, hub) = (UserId::from(target.as_str()), context.services.hub.clone());
    let end = move |db: &mut Db, _| {
        users::find(db, &user)?.ok_or(ApiError::NotFound)?;
        let ended = sessions::delete_all(db, &user)?;
        let before = json!({ "sessions": ended.len() });
        Ok(Written::new(ended, before, json!({ "sessions": 0 })))
    };
    let notify = move |ended: &Vec<SessionId>| {
        for session in ended {
            hub.do_send(SessionEnded { session: session.clone() });
        }
    };
    let ended = admin.write_and_notify(AdminAction::SignUserOut, &target, end, notify).await?;
    Ok(HttpResponse::Ok().json(SignedOut { ok: true, sessions: ended.len() }))
}
