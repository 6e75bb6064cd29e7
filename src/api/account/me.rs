//! The signed-in user: `/me`.

use std::slice;

use actix_web::{HttpRequest, HttpResponse, web};
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    api::{
        answer::{error::ApiError, fields::given},
        context::ApiContext,
        extract::{
            json::Json,
            session_user::{SessionUser, signed_in},
        },
    },
    db::{
        bot_links,
        engine::{error::DbError, pool::Db},
        money::tiers::{self, TierUse},
        users::{self, PreferenceChange, User},
    },
    domain::{
        ids::{SessionId, UserId},
        money::{
            billing_interval::BillingInterval,
            tier::{EffectiveTier, Entitlements, SubscriptionStatus, Tier, TierSource},
        },
        preference,
        time::Timestamp,
    },
};

/// The signed-in user.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct Me {
    id: String,
    /// The account at the identity provider (SteamID64).
    platform_id: String,
    display_name: String,
    /// https.
    avatar_url: Option<String>,
    /// Name in the IANA database, such as `Europe/Berlin`; null while it is not set.
    time_zone: Option<String>,
    /// Language tag (BCP 47), such as `de-CH`; null while it is not set.
    locale: Option<String>,
    /// An account of the chat platform is linked.
    chat_linked: bool,
    subscription: SubscriptionView,
    /// True if the admin routes are open to this user.
    admin: bool,
}

/// Always an object; tier and status are null without a subscription.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct SubscriptionView {
    /// Tier of the user now: by a subscription, or else as a beta tester.
    tier: Option<Tier>,
    /// Source of the tier: `paid`, `beta` or null.
    #[schema(value_type = Option<String>, pattern = "^(paid|beta)$")]
    source: Option<TierSource>,
    /// The payment provider's id of the subscription.
    payment_subscription_id: Option<String>,
    /// Status of the subscription.
    status: Option<SubscriptionStatus>,
    /// The interval at which the subscription is charged: `month`, `year` or null.
    interval: Option<BillingInterval>,
    current_period_end: Option<Timestamp>,
    cancel_at_period_end: bool,
    entitlements: EntitlementsView,
    used: UsedView,
    /// Reasons for the tier: facts, in words.
    why: Vec<String>,
}

/// Entitlements of the tier; without a tier, nothing.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct EntitlementsView {
    /// Guests and open invitations of each server.
    guests_per_server: u32,
    /// On all servers together.
    watched_shops: u32,
    /// False: the service does not hold users to these numbers.
    enforced: bool,
}

/// Used part of the entitlements.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct UsedView {
    /// On the server that has most.
    guests_per_server: u32,
    watched_shops: u32,
}

impl SubscriptionView {
    pub(crate) fn new(effective: EffectiveTier, used: TierUse, enforced: bool) -> Self {
        let EffectiveTier { tier, source, subscription, why } = effective;
        let Entitlements { guests_per_server, watched_shops } = Entitlements::of(tier);
        Self {
            tier,
            source,
            payment_subscription_id: subscription.as_ref().map(|subscription| subscription.id.clone()),
            status: subscription.as_ref().map(|subscription| subscription.status),
            interval: subscription.as_ref().and_then(|subscription| subscription.interval),
            current_period_end: subscription.as_ref().and_then(|subscription| subscription.period_end),
            cancel_at_period_end: subscription.is_some_and(|subscription| subscription.cancel_at_period_end),
            entitlements: EntitlementsView { guests_per_server, watched_shops, enforced },
            used: UsedView { guests_per_server: used.guests_per_server, watched_shops: used.watched_shops },
            why,
        }
    }
}

/// Preferences to change; null removes a value, and an absent field stays.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(rename_all = "camelCase")]
pub struct UpdatePreferences {
    /// Name in the IANA database, such as `Europe/Berlin`.
    #[garde(inner(inner(custom(is_time_zone))))]
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>, format = "time-zone", example = "Europe/Berlin")]
    time_zone: Option<Option<String>>,
    /// Language tag (BCP 47), such as `de-CH`.
    #[garde(inner(inner(custom(is_locale))))]
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>, format = "language-tag", max_length = 35, example = "de-CH")]
    locale: Option<Option<String>>,
}

fn is_time_zone(name: &str, _: &()) -> garde::Result {
    preference::time_zone(name).map(drop).ok_or_else(|| garde::Error::new("must be a time zone of the IANA database"))
}

fn is_locale(tag: &str, _: &()) -> garde::Result {
    preference::locale(tag).map(drop).ok_or_else(|| garde::Error::new("must be a language tag (BCP 47)"))
}

/// The values that `/me` shows beside the user.
struct Standing {
    effective: EffectiveTier,
    used: TierUse,
    chat_linked: bool,
}

impl Standing {
    fn read(db: &mut Db, user: &UserId, now: Timestamp) -> Result<Self, DbError> {
        Ok(Self {
            effective: tiers::effective_of(db, user, now)?,
            used: tiers::used(db, user, now)?,
            chat_linked: !bot_links::linked(db, slice::from_ref(user))?.is_empty(),
        })
    }
}

impl Me {
    fn new(user: User, Standing { effective, used, chat_linked }: Standing, context: &ApiContext) -> Self {
        Self {
            admin: context.settings.admins.contains(&user.platform_id),
            id: user.id.to_string(),
            platform_id: user.platform_id.to_string(),
            display_name: user.display_name,
            avatar_url: user.avatar_url,
            time_zone: user.time_zone,
            locale: user.locale,
            chat_linked,
            subscription: SubscriptionView::new(effective, used, context.settings.enforce_tiers),
        }
    }
}

/// The signed-in user, with subscription and entitlements.
#[utoipa::path(get, path = "/me", tag = "sign-in", responses(
    (status = 200, body = Me),
))]
pub async fn get(req: HttpRequest, context: web::Data<ApiContext>) -> Result<HttpResponse, ApiError> {
    let (_, me) = signed_in_as(&req, &context).await?;
    Ok(HttpResponse::Ok().json(me))
}

/// The user and the session of a request, and what `/me` says of the user.
pub(in crate::api) async fn signed_in_as(
    req: &HttpRequest,
    context: &ApiContext,
) -> Result<((UserId, SessionId), Me), ApiError> {
    let now = context.clock.now();
    let (caller, standing) = signed_in(req, move |db, user| Standing::read(db, user, now)).await?;
    let SessionUser { user, session, .. } = caller;
    Ok(((user.id.clone(), session), Me::new(user, standing, context)))
}

/// Sets the user's time zone and language, for what the service writes and clients show. Answers like `GET /me`.
#[utoipa::path(patch, path = "/me", tag = "sign-in", request_body = UpdatePreferences, responses(
    (status = 200, body = Me),
))]
pub async fn update(
    SessionUser { user, .. }: SessionUser,
    Json(UpdatePreferences { time_zone, locale }): Json<UpdatePreferences>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let now = context.clock.now();
    let change = PreferenceChange {
        time_zone: time_zone.map(|name| name.and_then(|name| preference::time_zone(&name)).map(str::to_owned)),
        locale: locale.map(|tag| tag.and_then(|tag| preference::locale(&tag))),
    };
    let change = move |db: &mut Db| Ok((users::change(db, &user.id, &change)?, Standing::read(db, &user.id, now)?));
    let changed = context.pool.write(change).await;
    let (user, standing) = changed.map_err(|error| match error {
        // Erased since the request was let in.
        DbError::NotFound => ApiError::Unauthenticated,
        error => error.into(),
    })?;
    Ok(HttpResponse::Ok().json(Me::new(user, standing, &context)))
}
