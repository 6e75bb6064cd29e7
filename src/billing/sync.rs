//! Makes what is stored follow the provider, one event at a time, in whatever order, number and company events come.
//!
//! An event says only *that* a subscription has changed: how it stands is fetched before the transaction that stores it
//! with the event's id. Between the two nobody else may have stored it, or it is fetched again ([`subscriptions::put`]),
//! so that the last thing stored was fetched last, and after the last event came. The end of a subscription is the
//! provider's last word and is taken from the event itself.

use crate::{
    billing::context::BillingContext,
    clients::payments::PaymentsError,
    db::{
        error::DbError,
        payment_customers,
        payment_events::{self, EventState, ParkedEvent},
        personal_data,
        pool::Db,
        subscriptions::{self, OwnedSubscription, SubscriptionPut},
        users,
    },
    domain::{
        ids::UserId,
        payment::{EventEffect, ParkReason, PaymentEvent, ProviderSubscription, SubscriptionRef},
        tier::{SubscriptionStatus, TierPrices, TierSubscription},
        time::Timestamp,
    },
};

/// How often a subscription is fetched for one event before others have their way.
const ATTEMPTS: usize = 5;

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventOutcome {
    Taken(EventState),
    /// It was taken before, and nothing changed.
    Duplicate,
}

impl EventOutcome {
    /// For answers, the log and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Taken(EventState::Applied) => "applied",
            Self::Taken(EventState::Ignored(_)) => "ignored",
            Self::Taken(EventState::Parked(_)) => "parked",
            Self::Duplicate => "duplicate",
        }
    }
}

/// What is recorded of an event.
#[derive(Clone, Debug)]
struct EventName {
    id: String,
    kind: String,
}

/// What a transaction did.
enum Stored {
    Outcome(EventOutcome),
    /// Somebody else stored the subscription meanwhile: nothing was done.
    Outdated,
}

/// Takes an event of the provider.
pub async fn take(context: &BillingContext, event: PaymentEvent) -> Result<EventOutcome, DbError> {
    let PaymentEvent { id, kind, livemode, effect } = event;
    let name = EventName { id, kind };
    let outcome = match (context.livemode, livemode) {
        (Some(ours), Some(theirs)) if ours != theirs => ignore(context, &name, "of the other mode").await,
        _ => match effect {
            EventEffect::Nothing(reason) => ignore(context, &name, reason).await,
            EventEffect::Ended(ended) => end(context, &name, *ended).await,
            EventEffect::Fetch(about) => follow(context, &name, about).await,
        },
    }?;
    metrics::counter!("companion_payment_events_total", "outcome" => outcome.as_str()).increment(1);
    log::info!(event = name.id.as_str(), kind = name.kind.as_str(), outcome:? = outcome; "payment event");
    Ok(outcome)
}

/// Tries a parked event again.
pub async fn take_again(context: &BillingContext, parked: ParkedEvent) -> Result<EventOutcome, DbError> {
    let ParkedEvent { id, kind, subscription_id, customer_id, user_hint, .. } = parked;
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

/// Stores that a subscription has ended.
async fn end(context: &BillingContext, name: &EventName, ended: ProviderSubscription) -> Result<EventOutcome, DbError> {
    let _turn = context.turn(&ended.id).await;
    for _ in 0..ATTEMPTS {
        if let Stored::Outcome(outcome) = store(context, Some(name), None, ended.clone(), None).await? {
            return Ok(outcome);
        }
    }
    // Only two processes that see the subscription for the first time at once come here, and the provider sends it again.
    Err(DbError::Unavailable("a subscription is changed all the time".to_owned()))
}

async fn follow(context: &BillingContext, name: &EventName, about: SubscriptionRef) -> Result<EventOutcome, DbError> {
    let id = name.id.clone();
    // An event that was taken costs no question to the provider.
    if context.pool.read(move |db| payment_events::is_settled(db, &id)).await? {
        return Ok(EventOutcome::Duplicate);
    }
    follow_as(context, Some(name), about).await
}

/// Fetches how a subscription stands and stores it, again if somebody else stored it meanwhile.
async fn follow_as(
    context: &BillingContext,
    name: Option<&EventName>,
    about: SubscriptionRef,
) -> Result<EventOutcome, DbError> {
    let _turn = context.turn(&about.id).await;
    for _ in 0..ATTEMPTS {
        let id = about.id.clone();
        let known = context.pool.read(move |db| subscriptions::get(db, &id)).await?.map(|stored| stored.version);
        let fetched = match context.client.subscription(&about.id).await {
            Ok(fetched) => fetched,
            Err(error) => {
                log::warn!(subscription = about.id.as_str(); "a subscription could not be fetched: {error}");
                let reason = match error {
                    PaymentsError::Unknown { .. } => ParkReason::UnknownSubscription,
                    PaymentsError::Client(_) | PaymentsError::Refused { .. } => ParkReason::ProviderUnavailable,
                };
                return park(context, name, about, reason).await;
            }
        };
        if let Stored::Outcome(outcome) = store(context, name, Some(about.clone()), fetched, known).await? {
            return Ok(outcome);
        }
    }
    park(context, name, about, ParkReason::Contended).await
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
        // The same event may have been taken elsewhere meanwhile.
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
                EventState::Ignored("of a user who has erased themselves")
            }
            Err(reason) => EventState::Parked(reason),
            Ok(user) => {
                payment_customers::put_first(db, &user, &provided.customer)?;
                let subscription = described(&provided, &prices, now);
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

/// Whose subscription it is: whose it was, who is its customer, or whom checkout named.
fn owner_of(
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
    let known = prices.tier_of(&provided.prices);
    TierSubscription {
        id: provided.id.clone(),
        tier: known.map(|(tier, _)| tier),
        status: SubscriptionStatus::of_provider(&provided.status),
        price: known.map(|(_, price)| price).or(provided.prices.first()).cloned(),
        period_start: provided.period_start,
        period_end: provided.period_end,
        cancel_at_period_end: provided.cancel_at_period_end,
        lapsed: provided.lapsed,
        started_at: provided.created.unwrap_or(now),
        past_due_since: None,
    }
}
