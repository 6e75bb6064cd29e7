//! The subscriptions of a member, fetched again and ended: `/admin/users/{id}/subscriptions/…`.

use actix_web::{HttpResponse, web};
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use crate::{
    api::{answer::error::ApiError, context::ApiContext, extract::admin::Admin, money::billing::billing},
    billing::{
        endings::{self, EndingError},
        reconcile::{self, ReconcileError, UserStanding},
    },
    db::{money::subscriptions, users},
    domain::{
        audit::{AdminAction, Written},
        ids::UserId,
        money::{
            billing_interval::BillingInterval,
            payment::SubscriptionEnding,
            tier::{SubscriptionStatus, Tier, TierSubscription},
        },
        time::Timestamp,
    },
};

/// A subscription as it is stored.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct StoredSubscriptionView {
    /// Id at the payment provider.
    id: String,
    /// Null: of a price that is not configured.
    tier: Option<Tier>,
    /// The interval at which it is charged; null as for the tier.
    interval: Option<BillingInterval>,
    /// The tier of the last price that was paid.
    paid_tier: Option<Tier>,
    status: SubscriptionStatus,
    /// Id at the payment provider.
    price_id: Option<String>,
    current_period_end: Option<Timestamp>,
    cancel_at_period_end: bool,
}

impl From<TierSubscription> for StoredSubscriptionView {
    fn from(subscription: TierSubscription) -> Self {
        let TierSubscription { id, tier, interval, paid_tier, status, price, period_end, cancel_at_period_end, .. } =
            subscription;
        Self {
            id,
            tier,
            interval,
            paid_tier,
            status,
            price_id: price,
            current_period_end: period_end,
            cancel_at_period_end,
        }
    }
}

#[derive(Serialize, ToSchema)]
struct FetchedSubscriptions {
    /// All that are stored, the oldest first.
    subscriptions: Vec<StoredSubscriptionView>,
    /// The ids of those that go on at the payment provider, also if they have ended here. `DELETE` ends them.
    running: Vec<String>,
    /// The ids of those that go on here and that the payment provider does not know. `DELETE` ends them.
    unknown: Vec<String>,
}

#[derive(Serialize, ToSchema)]
struct EndedSubscription {
    /// `ended`: at the payment provider and here; `already_ended`: nothing was left to do; `unknown`: the payment provider
    /// does not know it, and it was ended here.
    outcome: SubscriptionEnding,
    subscription: StoredSubscriptionView,
}

/// Fetches a member's subscriptions from the payment provider and stores them as they are there: all of their customers,
/// and those that go on here.
#[utoipa::path(post, path = "/admin/users/{id}/subscriptions/fetch", tag = "admin",
    params(("id" = String, Path)), responses(
    (status = 200, body = FetchedSubscriptions),
    (status = 502, description = "`payment_provider_refused`"),
    (status = 503, description = "`payments_disabled`; `payment_provider_unavailable`"),
))]
pub async fn get(
    admin: Admin,
    path: web::Path<String>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let (billing, target) = (billing(&context)?.clone(), path.into_inner());
    let (user, id) = (UserId::from(target.as_str()), UserId::from(target.as_str()));
    context.pool.read(move |db| users::find(db, &id)).await?.ok_or(ApiError::NotFound)?;
    let call = async move {
        let standing = reconcile::reconcile_user(&billing, &user).await.map_err(|error| match error {
            ReconcileError::Provider(error) => ApiError::from(error),
            ReconcileError::Database(error) => error.into(),
        })?;
        let stored = billing.pool.read(move |db| subscriptions::list_for(db, &user)).await?;
        let subscriptions = stored.into_iter().map(StoredSubscriptionView::from).collect();
        let UserStanding { running, unknown, .. } = standing;
        let fetched = FetchedSubscriptions { subscriptions, running, unknown: unknown.into_iter().collect() };
        let after = json!(fetched);
        Ok(Written::new(fetched, (), after))
    };
    let fetched = admin.effect(AdminAction::FetchSubscriptions, &target, json!({}), call).await?;
    Ok(HttpResponse::Ok().json(fetched))
}

/// Ends a member's subscription at once, at the payment provider and here; nothing is paid back. One that has ended stays
/// as it is. One that the payment provider does not know is ended here alone: make sure first that `PAYMENT_SECRET_KEY` is of the
/// account that sold it. After `payment_provider_unavailable` it may have ended or not; the same again is safe.
#[utoipa::path(delete, path = "/admin/users/{id}/subscriptions/{subscriptionId}", tag = "admin",
    params(("id" = String, Path), ("subscriptionId" = String, Path)), responses(
    (status = 200, body = EndedSubscription),
    (status = 404,
        description = "the member has no such subscription here; `fetch` stores those that the payment provider has"),
    (status = 502, description = "`payment_provider_refused`"),
    (status = 503, description = "`payments_disabled`; `payment_provider_unavailable`"),
))]
pub async fn delete(
    admin: Admin,
    path: web::Path<(String, String)>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let (billing, (target, id)) = (billing(&context)?.clone(), path.into_inner());
    let wanted = id.clone();
    let stored = context.pool.read(move |db| subscriptions::get(db, &wanted)).await?;
    stored.filter(|stored| stored.owned.user.as_str() == target).ok_or(ApiError::NotFound)?;
    let asked = json!({ "subscriptionId": id });
    let call = async move {
        let outcome = endings::end_stored(&billing, &id).await.map_err(|error| match error {
            EndingError::Provider(error) => ApiError::from(error),
            EndingError::Database(error) => error.into(),
        })?;
        // Gone with its user, if they have erased themselves meanwhile.
        let stored = billing.pool.read(move |db| subscriptions::get(db, &id)).await?.ok_or(ApiError::NotFound)?;
        let ended = EndedSubscription { outcome, subscription: stored.owned.subscription.into() };
        let after = json!(ended);
        Ok(Written::new(ended, (), after))
    };
    let ended = admin.effect(AdminAction::EndSubscription, &target, asked, call).await?;
    Ok(HttpResponse::Ok().json(ended))
}
