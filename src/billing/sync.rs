//! Makes stored subscriptions follow the provider, one event at a time: in any order, repeated, or at the same time as
//! others.
//!
//! An event says only *that* a subscription has changed: its state is fetched before the transaction that stores it
//! with the event's id. If another process stored it between the two, it is fetched again ([`subscriptions::put`]), so
//! that the last state stored was fetched last, and after the last event came. The end of a subscription is the
//! provider's last word and is taken from the event itself.

use crate::{
    billing::context::BillingContext,
    clients::payments::{PaymentsError, RefundOf},
    db::{
        engine::{error::DbError, pool::Db},
        money::{
            customers_to_end, payment_customers,
            payment_events::{self, EventState, Payer, ShownEvent},
            subscriptions::{self, OwnedSubscription, StoredSubscription, SubscriptionPut},
        },
        personal_data, users,
    },
    domain::{
        ids::UserId,
        money::{
            payment::{
                ChargeReport, EventEffect, EventResult, ParkReason, PaymentEvent, ProviderSubscription, ReportKind,
                SubscriptionRef,
            },
            plan::TierPrices,
            tier::{SubscriptionStatus, Tier, TierSubscription},
        },
        time::Timestamp,
    },
};

/// Fetches of a subscription for one event before the event is parked, because others store it all the time.
const ATTEMPTS: usize = 5;

/// Effect of an event of the payment provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventOutcome {
    Taken(EventState),
    /// Taken before: nothing changed.
    Duplicate,
}

impl EventOutcome {
    /// For answers, the log and metrics.
    pub fn as_str(self) -> &'static str {
        let result = match self {
            Self::Taken(EventState::Applied) => EventResult::Applied,
            Self::Taken(EventState::Ignored(_)) => EventResult::Ignored,
            Self::Taken(EventState::Parked(_)) => EventResult::Parked,
            Self::Duplicate => EventResult::Duplicate,
        };
        result.word()
    }
}

/// Recorded part of an event.
#[derive(Clone, Debug)]
struct EventName {
    id: String,
    kind: String,
}

/// Result of a transaction.
enum Stored {
    Outcome(EventOutcome),
    /// The subscription was stored elsewhere meanwhile: nothing was done.
    Outdated,
}

/// Takes an event of the provider.
pub async fn take(context: &BillingContext, event: PaymentEvent) -> Result<EventOutcome, DbError> {
    let PaymentEvent { id, kind, livemode, effect } = event;
    let name = EventName { id, kind };
    let outcome = match (context.livemode, livemode) {
        (Some(ours), Some(theirs)) if ours != theirs => ignore(context, &name, "of the other mode").await,
        _ => match effect {
            EventEffect::Report(about) => report(context, &name, about).await,
            EventEffect::Nothing(reason) => ignore(context, &name, reason).await,
            EventEffect::Ended(ended) => end(context, Some(&name), *ended).await,
            EventEffect::Fetch(about) => follow(context, &name, about).await,
        },
    }?;
    metrics::counter!("companion_payment_events_total", "outcome" => outcome.as_str()).increment(1);
    log::info!(event = name.id.as_str(), kind = name.kind.as_str(), outcome:? = outcome; "payment event");
    Ok(outcome)
}

/// Tries a parked event again.
pub async fn take_again(context: &BillingContext, parked: ShownEvent) -> Result<EventOutcome, DbError> {
    let ShownEvent { id, kind, subscription_id, customer_id, user_hint, .. } = parked;
    let name = EventName { id, kind };
    match subscription_id {
        Some(id) => follow(context, &name, SubscriptionRef { id, customer: customer_id, user: user_hint }).await,
        None => ignore(context, &name, "about no subscription").await,
    }
}

/// Fetches the subscription and stores it, without an event.
pub async fn heal(context: &BillingContext, id: &str) -> Result<EventOutcome, DbError> {
    follow_as(context, None, SubscriptionRef { id: id.to_owned(), ..Default::default() }).await
}

/// Stores that a subscription has ended, as the provider shows it.
pub async fn store_ended(context: &BillingContext, ended: ProviderSubscription) -> Result<EventOutcome, DbError> {
    end(context, None, ended).await
}

/// Records a charge at which an admin has to look. A dispute that was lost ends the payer's subscriptions here: if the
/// provider does not answer or end one, that is an error, so that it sends the event again.
async fn report(context: &BillingContext, name: &EventName, about: ChargeReport) -> Result<EventOutcome, DbError> {
    let id = name.id.clone();
    if context.pool.read(move |db| payment_events::is_settled(db, &id)).await? {
        return Ok(EventOutcome::Duplicate);
    }
    let customer = payer(context, about.charge.as_deref()).await.map_err(sent_again)?;
    if let Some(customer) = customer.as_deref().filter(|_| about.kind == ReportKind::DisputeLost) {
        for ended in end_all(context, customer).await.map_err(sent_again)? {
            store_ended(context, ended).await?;
        }
    }
    let (name, now, kind) = (name.clone(), context.clock.now(), about.kind.word());
    let record = move |db: &mut Db| -> Result<_, DbError> {
        if payment_events::is_settled(db, &name.id)? {
            return Ok(EventOutcome::Duplicate);
        }
        let user = customer.as_deref().map(|customer| payment_customers::user_of(db, customer)).transpose()?.flatten();
        let payer = Payer { customer: customer.as_deref(), user: user.as_ref() };
        payment_events::report(db, &name.id, &name.kind, &about, payer, now)?;
        Ok(EventOutcome::Taken(EventState::Applied))
    };
    let outcome = context.pool.write(record).await?;
    if outcome != EventOutcome::Duplicate {
        metrics::counter!("companion_payment_reports_total", "kind" => kind).increment(1);
        log::warn!(kind; "a charge needs an admin, see /admin/payment-events?state=reported");
    }
    Ok(outcome)
}

/// The payer of a charge, if the provider knows.
async fn payer(context: &BillingContext, charge: Option<&str>) -> Result<Option<String>, PaymentsError> {
    let Some(charge) = charge else { return Ok(None) };
    match context.client.charge(RefundOf::Charge(charge)).await {
        Ok(charge) => Ok(charge.customer),
        Err(PaymentsError::Unknown { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Ends the running subscriptions of a customer that were sold here.
async fn end_all(context: &BillingContext, customer: &str) -> Result<Vec<ProviderSubscription>, PaymentsError> {
    let all = context.client.subscriptions_of(customer).await?;
    let mut ended = Vec::new();
    for subscription in all.into_iter().flatten().filter(|one| one.is_running() && one.is_ours(&context.prices)) {
        ended.push(context.client.end_subscription(&subscription.id).await?);
    }
    Ok(ended)
}

fn sent_again(error: PaymentsError) -> DbError {
    DbError::Unavailable(format!("the payment provider: {error}"))
}

async fn ignore(context: &BillingContext, name: &EventName, reason: &'static str) -> Result<EventOutcome, DbError> {
    let (name, now) = (name.clone(), context.clock.now());
    let record = move |db: &mut Db| {
        if payment_events::is_settled(db, &name.id)? {
            return Ok(EventOutcome::Duplicate);
        }
        let state = EventState::Ignored(reason);
        payment_events::record(db, &name.id, &name.kind, None, state, now)?;
        Ok(EventOutcome::Taken(state))
    };
    context.pool.write(record).await
}

async fn end(
    context: &BillingContext,
    name: Option<&EventName>,
    ended: ProviderSubscription,
) -> Result<EventOutcome, DbError> {
    let _lock = context.lock(&ended.id).await;
    for _ in 0..ATTEMPTS {
        if let Stored::Outcome(outcome) = store(context, name, None, ended.clone(), None, None).await? {
            return Ok(outcome);
        }
    }
    // Only two processes that see the subscription for the first time at once come here, and the provider sends it
    // again.
    Err(DbError::Unavailable("a subscription is changed all the time".to_owned()))
}

async fn follow(context: &BillingContext, name: &EventName, about: SubscriptionRef) -> Result<EventOutcome, DbError> {
    let id = name.id.clone();
    // An event that was taken needs no request to the provider.
    if context.pool.read(move |db| payment_events::is_settled(db, &id)).await? {
        return Ok(EventOutcome::Duplicate);
    }
    follow_as(context, Some(name), about).await
}

/// Fetches a subscription and stores it, once more if it was stored elsewhere meanwhile.
async fn follow_as(
    context: &BillingContext,
    name: Option<&EventName>,
    about: SubscriptionRef,
) -> Result<EventOutcome, DbError> {
    let _lock = context.lock(&about.id).await;
    for _ in 0..ATTEMPTS {
        let id = about.id.clone();
        let known = context.pool.read(move |db| subscriptions::get(db, &id)).await?;
        let (fetched, paid_tier) = match fetch(context, &about.id, known.as_ref()).await {
            Ok(fetched) => fetched,
            Err(error) => {
                log::warn!(subscription = about.id.as_str(); "a subscription could not be fetched: {error}");
                let reason = match error {
                    PaymentsError::Unknown { .. } => ParkReason::UnknownSubscription,
                    PaymentsError::Client(_) | PaymentsError::Foreign | PaymentsError::Refused { .. } => {
                        ParkReason::ProviderUnavailable
                    }
                };
                return park(context, name, about, reason).await;
            }
        };
        let known = known.map(|known| known.version);
        if let Stored::Outcome(outcome) = store(context, name, Some(about.clone()), fetched, paid_tier, known).await? {
            return Ok(outcome);
        }
    }
    park(context, name, about, ParkReason::Contended).await
}

/// The present state of a subscription, and if it is past due the tier of the last price that was paid.
async fn fetch(
    context: &BillingContext,
    id: &str,
    known: Option<&StoredSubscription>,
) -> Result<(ProviderSubscription, Option<Tier>), PaymentsError> {
    let fetched = context.client.subscription(id).await?;
    if SubscriptionStatus::of_provider(&fetched.status) != SubscriptionStatus::PastDue {
        return Ok((fetched, None));
    }
    let paid_tier = match context.client.paid_prices(id).await {
        Ok(prices) => context.prices.plan_of(&prices).map(|(plan, _)| plan.tier),
        // The key may not read invoices.
        Err(PaymentsError::Refused { status, code }) => {
            log::error!("the payment provider does not show what was paid of a subscription: status {status}, {code}");
            known.and_then(|known| known.owned.subscription.paid_tier)
        }
        Err(error) => return Err(error),
    };
    Ok((fetched, paid_tier))
}

async fn park(
    context: &BillingContext,
    name: Option<&EventName>,
    about: SubscriptionRef,
    reason: ParkReason,
) -> Result<EventOutcome, DbError> {
    let outcome = EventOutcome::Taken(EventState::Parked(reason));
    let Some(name) = name.cloned() else { return Ok(outcome) };
    let now = context.clock.now();
    let record = move |db: &mut Db| {
        // Another process may have taken the event meanwhile.
        if payment_events::is_settled(db, &name.id)? {
            return Ok(EventOutcome::Duplicate);
        }
        payment_events::record(db, &name.id, &name.kind, Some(&about), EventState::Parked(reason), now)?;
        Ok(outcome)
    };
    context.pool.write(record).await
}

/// Stores a subscription and its event in one transaction.
async fn store(
    context: &BillingContext,
    name: Option<&EventName>,
    about: Option<SubscriptionRef>,
    provided: ProviderSubscription,
    paid_tier: Option<Tier>,
    known: Option<i64>,
) -> Result<Stored, DbError> {
    let (name, now, prices) = (name.cloned(), context.clock.now(), context.prices.clone());
    let store = move |db: &mut Db| {
        if let Some(name) = &name
            && payment_events::is_settled(db, &name.id)?
        {
            return Ok(Stored::Outcome(EventOutcome::Duplicate));
        }
        let hint = about.as_ref().and_then(|about| about.user.clone());
        let state = match owner_of(db, &provided, hint)? {
            Err(_) if personal_data::is_erased_customer(db, &provided.customer)? => {
                if provided.is_running() && provided.is_ours(&prices) {
                    customers_to_end::put_due(db, &provided.customer, now)?;
                }
                EventState::Ignored("of a user who has erased themselves")
            }
            Err(_) if !provided.is_running() => EventState::Ignored("of no user, and it has ended"),
            Err(reason) => EventState::Parked(reason),
            Ok(user) => {
                payment_customers::put_first(db, &user, &provided.customer)?;
                let subscription = TierSubscription { paid_tier, ..described(&provided, &prices, now) };
                let has_tier = subscription.tier.is_some();
                let owned = OwnedSubscription { user, customer: provided.customer.clone(), subscription };
                match subscriptions::put(db, &owned, known, now)? {
                    SubscriptionPut::Outdated => return Ok(Stored::Outdated),
                    SubscriptionPut::HasEnded => EventState::Ignored("about a subscription that has ended"),
                    SubscriptionPut::Stored if has_tier => EventState::Applied,
                    SubscriptionPut::Stored => EventState::Parked(ParkReason::UnknownPrice),
                }
            }
        };
        if let Some(EventName { id, kind }) = &name {
            let ProviderSubscription { id: subscription, customer, user, .. } = provided;
            let customer = Some(customer);
            let about = about.unwrap_or(SubscriptionRef { id: subscription, customer, user });
            payment_events::record(db, id, kind, Some(&about), state, now)?;
        }
        Ok(Stored::Outcome(EventOutcome::Taken(state)))
    };
    context.pool.write(store).await
}

/// Owner of a subscription: the stored one, otherwise the customer's user, otherwise the user named at checkout.
pub(super) fn owner_of(
    db: &mut Db,
    provided: &ProviderSubscription,
    hint: Option<String>,
) -> Result<Result<UserId, ParkReason>, DbError> {
    if let Some(stored) = subscriptions::get(db, &provided.id)? {
        return Ok(Ok(stored.owned.user));
    }
    if let Some(user) = payment_customers::user_of(db, &provided.customer)? {
        return Ok(Ok(user));
    }
    let named: Vec<UserId> = provided.user.iter().cloned().chain(hint).map(UserId::from).collect();
    for user in &named {
        if let Some(user) = users::find(db, user)? {
            return Ok(Ok(user.id));
        }
    }
    Ok(Err(if named.is_empty() { ParkReason::UnknownCustomer } else { ParkReason::UnknownUser }))
}

/// A subscription of the provider in our words.
pub fn described(provided: &ProviderSubscription, prices: &TierPrices, now: Timestamp) -> TierSubscription {
    let known = prices.plan_of(&provided.prices);
    TierSubscription {
        id: provided.id.clone(),
        tier: known.map(|(plan, _)| plan.tier),
        interval: known.map(|(plan, _)| plan.interval),
        status: SubscriptionStatus::of_provider(&provided.status),
        price: known.map(|(_, price)| price).or(provided.prices.first()).cloned(),
        period_start: provided.period_start,
        period_end: provided.period_end,
        cancel_at_period_end: provided.cancel_at_period_end,
        lapsed: provided.lapsed,
        started_at: provided.created.unwrap_or(now),
        past_due_since: None,
        paid_tier: None,
    }
}
