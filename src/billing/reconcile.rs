//! Compares every subscription with the provider and stores what differs: what webhooks missed ends here.

use std::{collections::BTreeSet, fmt};

use crate::{
    billing::{
        context::BillingContext,
        sync::{self, EventOutcome, described},
    },
    clients::payments::PaymentsError,
    db::{error::DbError, payment_events::EventState, personal_data, pool::Db, subscriptions},
    domain::{
        payment::ProviderSubscription,
        tier::{SubscriptionStatus, TierSubscription},
        time,
    },
};

/// Stored subscriptions that are looked at together.
const BATCH: i64 = 200;

/// Something to tell whoever watches.
#[derive(Debug)]
pub enum ReconcileStep {
    /// So many were compared.
    Compared(usize),
    /// What differs at this subscription, and what was done about it.
    Differs { id: String, what: String, outcome: HealOutcome },
}

/// What was done about a difference.
#[derive(Debug, PartialEq, Eq)]
pub enum HealOutcome {
    /// It was only looked for.
    Left,
    Healed,
    /// It could not be healed, and why.
    Unhealed(String),
}

/// What a comparison found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reconciled {
    pub compared: usize,
    pub differences: usize,
    pub healed: usize,
}

/// Why it was not compared to the end. What was healed before stays so.
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
                HealOutcome::Unhealed(why) => write!(f, "{id}: {what}: not healed: {why}"),
            },
        }
    }
}

/// Compares all; with `dry_run` nothing is changed.
pub async fn reconcile(
    context: &BillingContext,
    dry_run: bool,
    mut tell: impl FnMut(ReconcileStep),
) -> Result<Reconciled, ReconcileError> {
    let (mut done, mut seen, mut after) = (Reconciled::default(), BTreeSet::new(), None);
    loop {
        let page = context.client.subscriptions(after.as_deref()).await?;
        for provided in page.subscriptions {
            done.compared += 1;
            if let Some(what) = difference(context, &provided).await? {
                done.differences += 1;
                let outcome = if dry_run { HealOutcome::Left } else { heal(context, &provided.id).await? };
                done.healed += usize::from(outcome == HealOutcome::Healed);
                tell(ReconcileStep::Differs { id: provided.id.clone(), what, outcome });
            }
            seen.insert(provided.id);
        }
        tell(ReconcileStep::Compared(done.compared));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    // What is stored and goes on must be at the provider.
    let mut after = String::new();
    loop {
        let from = after.clone();
        let stored = context.pool.read(move |db| subscriptions::page(db, &from, BATCH)).await?;
        let Some(last) = stored.last() else { return Ok(done) };
        after.clone_from(&last.owned.subscription.id);
        for TierSubscription { id, status, .. } in stored.into_iter().map(|stored| stored.owned.subscription) {
            if status == SubscriptionStatus::Canceled || seen.contains(&id) {
                continue;
            }
            // Made since the list was read, or not there.
            if let Err(PaymentsError::Unknown { .. }) = context.client.subscription(&id).await {
                done.differences += 1;
                let outcome = HealOutcome::Unhealed("nothing says what became of it".to_owned());
                let what = format!("{} here, unknown to the provider", status.as_str());
                tell(ReconcileStep::Differs { id, what, outcome });
            }
        }
    }
}

/// What differs, in words.
async fn difference(context: &BillingContext, provided: &ProviderSubscription) -> Result<Option<String>, DbError> {
    let (id, customer) = (provided.id.clone(), provided.customer.clone());
    let read = move |db: &mut Db| Ok((subscriptions::get(db, &id)?, personal_data::is_erased_customer(db, &customer)?));
    let (stored, is_erased) = context.pool.read(read).await?;
    if is_erased {
        return Ok(None);
    }
    let theirs = described(provided, &context.prices, context.clock.now());
    Ok(match stored.map(|stored| stored.owned.subscription) {
        None => Some(format!("missing here, {}", theirs.status.as_str())),
        Some(ours) if ours.status == SubscriptionStatus::Canceled => None,
        Some(ours) => compared(&ours, &theirs),
    })
}

fn compared(ours: &TierSubscription, theirs: &TierSubscription) -> Option<String> {
    let values = |one: &TierSubscription| {
        [
            ("tier", one.tier.map_or("none", |tier| tier.as_str()).to_owned()),
            ("status", one.status.as_str().to_owned()),
            ("price", one.price.clone().unwrap_or_default()),
            ("period start", one.period_start.map(time::to_wire).unwrap_or_default()),
            ("period end", one.period_end.map(time::to_wire).unwrap_or_default()),
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
        EventOutcome::Taken(EventState::Parked(reason)) => HealOutcome::Unhealed(reason.as_str().to_owned()),
        EventOutcome::Taken(EventState::Ignored(reason)) => HealOutcome::Unhealed(reason.to_owned()),
        EventOutcome::Duplicate => HealOutcome::Healed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::tier::Tier;

    #[test]
    fn a_difference_is_told_by_its_field() {
        let ours = TierSubscription {
            id: "sub_1".into(),
            tier: Some(Tier::Scout),
            status: SubscriptionStatus::Active,
            price: Some("price_1".into()),
            period_start: None,
            period_end: None,
            cancel_at_period_end: false,
            lapsed: false,
            started_at: time::Timestamp::UNIX_EPOCH,
            past_due_since: None,
        };
        let theirs =
            TierSubscription { status: SubscriptionStatus::PastDue, cancel_at_period_end: true, ..ours.clone() };
        assert_eq!(compared(&ours, &ours), None);
        let what = "status ACTIVE here, PAST_DUE there; cancel at period end false here, true there";
        assert_eq!(compared(&ours, &theirs).as_deref(), Some(what));
    }
}
