//! The signed-in user: `/me`.

use std::slice;

use actix_web::{HttpRequest, HttpResponse, web};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    api::{
        context::ApiContext,
        error::{ApiError, Problem},
        extract::session_user::{SessionUser, signed_in},
    },
    db::{
        chat_links,
        tiers::{self, TierUse},
    },
    domain::{
        tier::{EffectiveTier, Entitlements, SubscriptionStatus, Tier},
        time::{self, Timestamp},
    },
};

/// The signed-in user.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Me {
    id: String,
    /// The account at the identity provider (SteamID64).
    platform_id: String,
    display_name: String,
    /// https.
    avatar_url: Option<String>,
    /// An account of the chat platform is linked.
    chat_linked: bool,
    subscription: SubscriptionView,
    /// Whether the admin routes are open to this user.
    admin: bool,
}

/// Always an object; tier and status are null without a subscription.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct SubscriptionView {
    /// What the user has now: by a subscription, or else as a beta tester. `SCOUT`, `OPERATOR`, `OVERLORD` or null.
    #[schema(value_type = Option<String>)]
    tier: Option<Tier>,
    /// Of the subscription: `ACTIVE`, `TRIALING`, `PAST_DUE`, `CANCELED`, `INCOMPLETE`, `UNPAID`, `PAUSED` or null.
    #[schema(value_type = Option<String>)]
    status: Option<SubscriptionStatus>,
    #[serde(serialize_with = "time::wire_option")]
    #[schema(value_type = Option<String>, format = DateTime)]
    current_period_end: Option<Timestamp>,
    cancel_at_period_end: bool,
    entitlements: EntitlementsView,
    used: UsedView,
    /// Why the tier is what it is: facts, in words.
    why: Vec<String>,
}

/// What the tier unlocks; without a tier, nothing.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct EntitlementsView {
    /// Guests and open invitations of each server.
    guests_per_server: u32,
    /// On all servers together; null: any number.
    watched_shops: Option<u32>,
    /// False: the service does not hold anybody to these numbers.
    enforced: bool,
}

/// How much of it is used.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct UsedView {
    /// On the server that has most.
    guests_per_server: u32,
    watched_shops: u32,
}

impl SubscriptionView {
    pub fn new(effective: EffectiveTier, used: TierUse, enforced: bool) -> Self {
        let EffectiveTier { tier, subscription, why } = effective;
        let Entitlements { guests_per_server, watched_shops } = Entitlements::of(tier);
        Self {
            tier,
            status: subscription.as_ref().map(|subscription| subscription.status),
            current_period_end: subscription.as_ref().and_then(|subscription| subscription.period_end),
            cancel_at_period_end: subscription.is_some_and(|subscription| subscription.cancel_at_period_end),
            entitlements: EntitlementsView { guests_per_server, watched_shops, enforced },
            used: UsedView { guests_per_server: used.guests_per_server, watched_shops: used.watched_shops },
            why,
        }
    }
}

/// Who is signed in, and what they have.
#[utoipa::path(get, path = "/me", tag = "sign-in", security(("session" = [])), responses(
    (status = 200, body = Me),
    (status = 401, body = Problem, content_type = "application/problem+json"),
))]
pub async fn me(req: HttpRequest, context: web::Data<ApiContext>) -> Result<HttpResponse, ApiError> {
    let now = context.clock.now();
    let caller = signed_in(&req, move |db, user| {
        let chat_linked = !chat_links::linked(db, slice::from_ref(user))?.is_empty();
        Ok((tiers::effective_of(db, user, now)?, tiers::used(db, user, now)?, chat_linked))
    });
    let (SessionUser { user, .. }, (effective, used, chat_linked)) = caller.await?;
    let admin = context.admins.contains(&user.platform_id);
    Ok(HttpResponse::Ok().json(Me {
        id: user.id.to_string(),
        platform_id: user.platform_id.to_string(),
        display_name: user.display_name,
        avatar_url: user.avatar_url,
        chat_linked,
        subscription: SubscriptionView::new(effective, used, context.enforce_tiers),
        admin,
    }))
}
