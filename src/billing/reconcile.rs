//! Compares subscriptions with the provider and stores the differences: changes that webhooks missed end here. Finds
//! subscriptions that run there for no user, too.

use std::{collections::BTreeSet, fmt};

use crate::{
    billing::{
        context::BillingContext,
        endings,
        sync::{self, EventOutcome, described},
    },
    clients::payments::PaymentsError,
    db::{
        engine::{error::DbError, pool::Db},
        money::{
            payment_customers,
            payment_events::EventState,
            subscriptions::{self, StoredSubscription},
        },
        personal_data,
    },
    domain::{
        ids::UserId,
        money::{
            payment::{ParkReason, ProviderSubscription},
            tier::{SubscriptionStatus, TierSubscription},
        },
        time::Timestamp,
    },
};

/// Stored subscriptions that are looked at together.
const BATCH: i64 = 200;

/// Progress of a comparison, for its caller.
#[derive(Debug)]
pub enum ReconcileStep {
    /// Number of subscriptions compared.
    Compared(usize),
    /// A difference at this subscription, in words, and its outcome.
    Differs { id: String, what: String, outcome: HealOutcome },
}

/// Outcome of a difference.
#[derive(Debug, PartialEq, Eq)]
pub enum HealOutcome {
    /// Only reported, as the mode demands.
    Left,
    Healed,
    /// The subscription has ended.
    Ended,
    /// Not healed; the reason.
    Unhealed(String),
}

/// Result of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reconciled {
    pub compared: usize,
    pub differences: usize,
    /// Differences that were healed, ended subscriptions included.
    pub healed: usize,
    /// Subscriptions that run for no user who is known, and were left so.
    pub unowned: usize,
}

/// The treatment of differences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReconcileMode {
    /// Only reports them.
    Look,
    /// Stored subscriptions follow the provider. One that runs for a user who has erased themselves is ended.
    Heal,
    /// As `Heal`; a subscription that was sold here and runs for no known user is ended, too.
    EndUnowned,
}

/// A difference between a subscription at the payment provider and the stored one.
enum Difference {
    /// The stored subscription differs or is missing; in words.
    Stored(String),
    /// The subscription runs for a user who has erased themselves.
    Erased,
    /// The subscription runs for no known user.
    Unowned(ParkReason),
    /// A subscription that runs there and has ended here for good.
    EndedHere,
}

/// The provider's answer about a user's subscriptions.
#[derive(Debug, Default)]
pub struct UserStanding {
    /// Subscriptions that go on at the provider.
    pub running: Vec<String>,
    /// Subscriptions that go on here, and of which the provider does not know.
    pub unknown: BTreeSet<String>,
    /// The provider knows neither the customers nor one of these, whose period is not over: the key may be of another
    /// account.
    pub is_foreign: bool,
}

/// Failure of a comparison before its end. Subscriptions that were healed before stay so.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    #[error(transparent)]
    Provider(#[from] PaymentsError),
    #[error("the database: {0}")]
    Database(#[from] DbError),
}

impl fmt::Display for ReconcileStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compared(count) => write!(f, "compared: {count}"),
            Self::Differs { id, what, outcome } => match outcome {
                HealOutcome::Left => write!(f, "{id}: {what}"),
                HealOutcome::Healed => write!(f, "{id}: {what}: healed"),
                HealOutcome::Ended => write!(f, "{id}: {what}: ended"),
                HealOutcome::Unhealed(why) => write!(f, "{id}: {what}: not healed: {why}"),
            },
        }
    }
}

/// Compares all.
pub async fn reconcile(
    context: &BillingContext,
    mode: ReconcileMode,
    mut report: impl FnMut(ReconcileStep),
) -> Result<Reconciled, ReconcileError> {
    let (mut done, mut seen, mut after) = (Reconciled::default(), BTreeSet::new(), None);
    loop {
        let page = context.client.subscriptions(after.as_deref()).await?;
        for provided in page.subscriptions {
            done.compared += 1;
            if let Some(difference) = lasting_difference(context, &provided).await? {
                done.differences += 1;
                let what = described_difference(&difference, &provided);
                let outcome = settle(context, &provided, &difference, mode).await?;
                let is_healed = matches!(outcome, HealOutcome::Healed | HealOutcome::Ended);
                done.healed += usize::from(is_healed);
                done.unowned += usize::from(matches!(difference, Difference::Unowned(_)) && !is_healed);
                report(ReconcileStep::Differs { id: provided.id.clone(), what, outcome });
            }
            seen.insert(provided.id);
        }
        report(ReconcileStep::Compared(done.compared));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    // Stored subscriptions that go on must be at the provider.
    let mut after = String::new();
    loop {
        let from = after.clone();
        let stored = context.pool.read(move |db| subscriptions::page(db, &from, BATCH)).await?;
        let Some(last) = stored.last() else { return Ok(done) };
        after.clone_from(&last.owned.subscription.id);
        for stored in stored {
            let TierSubscription { id, status, .. } = &stored.owned.subscription;
            if !status.is_running() || seen.contains(id) {
                continue;
            }
            // The subscription was made since the list was read, or is not there.
            if let Err(PaymentsError::Unknown { .. }) = context.client.subscription(id).await {
                done.differences += 1;
                let (id, what) = (id.clone(), format!("{} here, unknown to the provider", status.word()));
                let outcome = settle_unknown(context, stored, mode).await?;
                done.healed += usize::from(outcome == HealOutcome::Ended);
                report(ReconcileStep::Differs { id, what, outcome });
            }
        }
    }
}

/// Compares the subscriptions of one user, and stores the differences: those of their customers, and those that go on
/// here.
pub async fn reconcile_user(context: &BillingContext, user: &UserId) -> Result<UserStanding, ReconcileError> {
    let id = user.clone();
    let read = move |db: &mut Db| {
        let customers: BTreeSet<String> =
            payment_customers::of_user(db, &id)?.into_iter().chain(subscriptions::customers_of(db, &id)?).collect();
        Ok((customers, subscriptions::list_for(db, &id)?))
    };
    let (customers, stored) = context.pool.read(read).await?;
    let (mut standing, mut seen) = (UserStanding::default(), BTreeSet::new());
    let mut provided = Vec::new();
    let mut knows_customer = false;
    for customer in &customers {
        let of_customer = context.client.subscriptions_of(customer).await?;
        knows_customer |= of_customer.is_some();
        provided.extend(of_customer.unwrap_or_default());
    }
    seen.extend(provided.iter().map(|provided| provided.id.clone()));
    for stored in stored.into_iter().filter(|stored| stored.status.is_running()) {
        if seen.contains(&stored.id) {
            continue;
        }
        match context.client.subscription(&stored.id).await {
            Ok(found) => provided.push(found),
            Err(PaymentsError::Unknown { .. }) => {
                standing.is_foreign |= !knows_customer && !stored.is_over(context.clock.now());
                standing.unknown.insert(stored.id);
            }
            Err(error) => return Err(error.into()),
        }
    }
    for provided in provided {
        if let Some(Difference::Stored(_)) = difference(context, &provided).await? {
            heal(context, &provided.id).await?;
        }
        if provided.is_running() {
            standing.running.push(provided.id);
        }
    }
    Ok(standing)
}

/// As [`difference`], but `None` for a subscription that has ended since the provider listed it.
async fn lasting_difference(
    context: &BillingContext,
    provided: &ProviderSubscription,
) -> Result<Option<Difference>, ReconcileError> {
    let found = difference(context, provided).await?;
    if let Some(Difference::EndedHere) = found
        && !context.client.subscription(&provided.id).await?.is_running()
    {
        return Ok(None);
    }
    Ok(found)
}

/// The difference, if any. An account of the provider may sell other things, too: those are no difference.
async fn difference(context: &BillingContext, provided: &ProviderSubscription) -> Result<Option<Difference>, DbError> {
    let theirs = described(provided, &context.prices, context.clock.now());
    let (provided, prices) = (provided.clone(), context.prices.clone());
    let read = move |db: &mut Db| {
        let runs = provided.is_running() && provided.is_ours(&prices);
        let stored = subscriptions::get(db, &provided.id)?;
        Ok(match (stored, sync::owner_of(db, &provided, None)?) {
            (None, Ok(_)) => Some(Difference::Stored(format!("missing here, {}", theirs.status.word()))),
            (None, Err(_)) if !runs => None,
            (None, Err(_)) if personal_data::is_erased_customer(db, &provided.customer)? => Some(Difference::Erased),
            (None, Err(reason)) => Some(Difference::Unowned(reason)),
            (Some(ours), _) if ours.has_ended() && theirs.status.is_running() => Some(Difference::EndedHere),
            (Some(ours), _) => {
                let why = if ours.ended_unknown { "ended here while the provider did not know it; " } else { "" };
                let what = compared(&ours.owned.subscription, &theirs);
                what.map(|what| Difference::Stored(format!("{why}{what}")))
            }
        })
    };
    context.pool.read(read).await
}

fn described_difference(difference: &Difference, provided: &ProviderSubscription) -> String {
    let status = SubscriptionStatus::of_provider(&provided.status).word();
    match difference {
        Difference::Stored(what) => what.clone(),
        Difference::Erased => format!("{status} for a user who has erased themselves"),
        Difference::Unowned(_) => format!("missing here, {status}, customer {}", provided.customer),
        Difference::EndedHere => format!("has ended here, {status} there: its user pays for no tier"),
    }
}

async fn settle(
    context: &BillingContext,
    provided: &ProviderSubscription,
    difference: &Difference,
    mode: ReconcileMode,
) -> Result<HealOutcome, DbError> {
    match difference {
        _ if mode == ReconcileMode::Look => return Ok(HealOutcome::Left),
        Difference::Stored(_) => return heal(context, &provided.id).await,
        Difference::Unowned(reason) if mode == ReconcileMode::Heal => {
            return Ok(HealOutcome::Unhealed(reason.word().to_owned()));
        }
        Difference::EndedHere => return Ok(HealOutcome::Unhealed("an admin has to end it".to_owned())),
        Difference::Erased | Difference::Unowned(_) => {}
    }
    Ok(match endings::end(context, provided).await {
        Ok(()) => HealOutcome::Ended,
        Err(error) => HealOutcome::Unhealed(error.to_string()),
    })
}

/// Ends a subscription that the provider no longer knows, once its period is over. Until then the wrong key may be the
/// reason.
async fn settle_unknown(
    context: &BillingContext,
    stored: StoredSubscription,
    mode: ReconcileMode,
) -> Result<HealOutcome, DbError> {
    let StoredSubscription { owned, version, .. } = stored;
    if mode == ReconcileMode::Look {
        return Ok(HealOutcome::Left);
    }
    if !owned.subscription.is_over(context.clock.now()) {
        return Ok(HealOutcome::Unhealed("it is ended once its period is over".to_owned()));
    }
    let end = move |db: &mut Db| subscriptions::end_unknown(db, &owned.subscription.id, version);
    Ok(match context.pool.write(end).await? {
        true => HealOutcome::Ended,
        false => HealOutcome::Unhealed("it has changed meanwhile".to_owned()),
    })
}

fn compared(ours: &TierSubscription, theirs: &TierSubscription) -> Option<String> {
    let values = |one: &TierSubscription| {
        [
            ("tier", one.tier.map_or("none", |tier| tier.word()).to_owned()),
            ("interval", one.interval.map_or("none", |interval| interval.word()).to_owned()),
            ("status", one.status.word().to_owned()),
            ("price", one.price.clone().unwrap_or_default()),
            ("period start", one.period_start.map(Timestamp::to_wire).unwrap_or_default()),
            ("period end", one.period_end.map(Timestamp::to_wire).unwrap_or_default()),
            ("cancel at period end", one.cancel_at_period_end.to_string()),
        ]
    };
    let pairs = values(ours).into_iter().zip(values(theirs)).filter(|(ours, theirs)| ours != theirs);
    let words: Vec<String> =
        pairs.map(|((name, ours), (_, theirs))| format!("{name} {ours} here, {theirs} there")).collect();
    (!words.is_empty()).then(|| words.join("; "))
}

async fn heal(context: &BillingContext, id: &str) -> Result<HealOutcome, DbError> {
    Ok(match sync::heal(context, id).await? {
        EventOutcome::Taken(EventState::Applied) => HealOutcome::Healed,
        EventOutcome::Taken(EventState::Parked(reason)) => HealOutcome::Unhealed(reason.word().to_owned()),
        EventOutcome::Taken(EventState::Ignored(reason)) => HealOutcome::Unhealed(reason.to_owned()),
        EventOutcome::Duplicate => HealOutcome::Healed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::money::{billing_interval::BillingInterval, tier::Tier};

    #[test]
    fn a_difference_is_named_by_its_field() {
        let ours = TierSubscription {
            id: "sub_1".into(),
            tier: Some(Tier::Scout),
            interval: Some(BillingInterval::Month),
            status: SubscriptionStatus::Active,
            price: Some("price_1".into()),
            period_start: None,
            period_end: None,
            cancel_at_period_end: false,
            lapsed: false,
            started_at: Timestamp::UNIX_EPOCH,
            past_due_since: None,
            paid_tier: None,
        };
        let theirs =
            TierSubscription { status: SubscriptionStatus::PastDue, cancel_at_period_end: true, ..ours.clone() };
        assert_eq!(compared(&ours, &ours), None);
        let what = "status ACTIVE here, PAST_DUE there; cancel at period end false here, true there";
        assert_eq!(compared(&ours, &theirs).as_deref(), Some(what));
    }
}
