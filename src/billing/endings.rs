//! Ends subscriptions at the payment provider: those of users who are gone, at once if it answers and otherwise by the
//! worker; and one of a member, on an admin's request.

use chrono::TimeDelta;
use serde_json::{Value, json};

use crate::{
    billing::{context::BillingContext, sync},
    clients::payments::PaymentsError,
    db::{
        audit::{self, AuditOutcome},
        engine::{error::DbError, pool::Db},
        money::{
            customers_to_end::{self, CustomerTurn},
            subscriptions,
        },
    },
    domain::{
        audit::{AdminAction, AuditResult},
        money::payment::{ProviderSubscription, SubscriptionEnding, id_at},
    },
};

/// Age up to which an ending may be under way: longer than the provider may take for it.
const UNDER_WAY: TimeDelta = TimeDelta::minutes(1);
/// Age beyond which endings are left as they are.
const SWEPT: TimeDelta = TimeDelta::days(2);

/// Failure to end a stored subscription, or to see it end.
#[derive(Debug, thiserror::Error)]
pub enum EndingError {
    #[error(transparent)]
    Provider(#[from] PaymentsError),
    #[error("the database: {0}")]
    Database(#[from] DbError),
}

/// Ends a customer's subscriptions and open checkouts, and then forgets the customer. False: the provider did not
/// answer, and the worker tries again.
pub async fn end_customer(context: &BillingContext, turn: CustomerTurn) -> Result<bool, DbError> {
    if let Err(error) = end_all(context, &turn.customer).await {
        log::warn!(customer = turn.customer.as_str();
            "what runs for a customer whose user is gone could not be ended yet: {error}");
        return Ok(false);
    }
    context.pool.write(move |db| customers_to_end::remove(db, &turn)).await?;
    Ok(true)
}

async fn end_all(context: &BillingContext, customer: &str) -> Result<(), PaymentsError> {
    // A payment meanwhile is in the list afterwards.
    for checkout in context.client.open_checkouts_of(customer).await? {
        context.client.close_checkout(&checkout).await?;
    }
    for provided in context.client.subscriptions_of(customer).await?.unwrap_or_default() {
        if provided.is_running() && provided.is_ours(&context.prices) {
            end(context, &provided).await?;
        }
    }
    Ok(())
}

/// Ends a subscription that no user has.
pub async fn end(context: &BillingContext, provided: &ProviderSubscription) -> Result<(), PaymentsError> {
    let ProviderSubscription { id, customer, .. } = provided;
    match context.client.end_subscription(id).await {
        Ok(_) => {
            log::info!(subscription = id.as_str(), customer = customer.as_str(); "a subscription without a user was ended")
        }
        // The subscription has gone meanwhile.
        Err(PaymentsError::Unknown { .. }) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Ends a stored subscription at the provider and here. The provider is also asked about one that has ended here: it
/// may have been ended while the provider did not know it.
pub async fn end_stored(context: &BillingContext, id: &str) -> Result<SubscriptionEnding, EndingError> {
    match ended_there(context, id).await {
        Ok((ended, ending)) => {
            sync::store_ended(context, ended).await?;
            Ok(ending)
        }
        Err(PaymentsError::Unknown { .. }) => Ok(end_unknown(context, id).await?),
        Err(error) => Err(error.into()),
    }
}

/// Writes the outcome of endings into the audit log where it is missing: the process ended, or the provider's answer
/// was lost.
pub async fn sweep(context: &BillingContext) -> Result<(), DbError> {
    let now = context.clock.now();
    let of_time = (now - SWEPT, now - UNDER_WAY);
    let open = move |db: &mut Db| audit::without_outcome(db, AdminAction::EndSubscription, of_time);
    for entry in context.pool.read(open).await? {
        let payload: Value = serde_json::from_str(&entry.payload).unwrap_or_default();
        let Some(id) = id_at(&payload, "/asked/subscriptionId") else { continue };
        let (after, result) = match context.client.subscription(&id).await {
            Ok(found) if found.is_running() => (json!({ "error": "it was not ended" }), AuditResult::Failed),
            Ok(ended) => {
                sync::store_ended(context, ended).await?;
                (json!({ "outcome": SubscriptionEnding::Ended }), AuditResult::Done)
            }
            // The next sweep asks again.
            Err(_) => continue,
        };
        let store = move |db: &mut Db| {
            let head = audit::lock(db)?;
            let open = audit::without_outcome(db, AdminAction::EndSubscription, of_time)?;
            if open.iter().all(|one| one.id != entry.id) {
                return Ok(());
            }
            let outcome = AuditOutcome { after, result };
            audit::append_outcome(db, head, AdminAction::EndSubscription, &entry, outcome, now).map(drop)
        };
        context.pool.write(store).await?;
    }
    Ok(())
}

async fn ended_there(
    context: &BillingContext,
    id: &str,
) -> Result<(ProviderSubscription, SubscriptionEnding), PaymentsError> {
    let found = context.client.subscription(id).await?;
    Ok(match found.is_running() {
        true => (context.client.end_subscription(id).await?, SubscriptionEnding::Ended),
        false => (found, SubscriptionEnding::AlreadyEnded),
    })
}

async fn end_unknown(context: &BillingContext, id: &str) -> Result<SubscriptionEnding, DbError> {
    let _lock = context.lock(id).await;
    let id = id.to_owned();
    let end = move |db: &mut Db| {
        let stored = subscriptions::get(db, &id)?.filter(|stored| stored.owned.subscription.status.is_running());
        let Some(stored) = stored else { return Ok(SubscriptionEnding::AlreadyEnded) };
        match subscriptions::end_unknown(db, &id, stored.version)? {
            true => Ok(SubscriptionEnding::Unknown),
            false => Err(DbError::Unavailable("the subscription is changed at the same time".to_owned())),
        }
    };
    context.pool.write(end).await
}
