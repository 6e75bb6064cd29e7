//! What billing does by itself: looks at its prices once, tries parked events again, and compares all with the provider in
//! the night (UTC).

use std::{sync::Arc, time::Duration};

use chrono::{NaiveDate, Timelike as _};
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::{
    billing::{
        context::BillingContext,
        reconcile::{ReconcileStep, reconcile},
        sync::{self, EventOutcome},
    },
    db::{
        error::DbError,
        payment_events::{self, EventState},
    },
    domain::{payment::ParkReason, tier::Tier},
    panics,
};

/// How often it is looked whether something is due.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// When the database fails.
const AFTER_FAILURE: Duration = Duration::from_secs(30);
/// Parked events that are tried again in one look.
const RETRIES: usize = 20;
/// The hour of the night.
const NIGHT: u32 = 3;

/// Works until it is aborted.
pub async fn run(context: Arc<BillingContext>) {
    check_prices(&context).await;
    let mut reconciled: Option<NaiveDate> = None;
    // Several processes do not all come at once.
    let minute = u32::from(context.random.byte()) % 60;
    let mut looks = interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        if let Some(Err(error)) = panics::caught("billing", "", retry_parked(&context)).await {
            log::warn!("parked payment events are not tried again yet: {error}");
            sleep(AFTER_FAILURE).await;
        }
        let now = context.clock.now();
        if now.hour() == NIGHT && now.minute() >= minute && reconciled != Some(now.date_naive()) {
            reconciled = Some(now.date_naive());
            panics::caught("billing", "", reconcile_nightly(&context)).await;
        }
    }
}

/// Says what is wrong with the configured prices, if the provider answers.
async fn check_prices(context: &BillingContext) {
    for tier in Tier::ALL {
        let name = tier.as_str();
        match context.client.price(tier).await {
            Ok(price) if !price.is_active => log::error!(tier = name; "PAYMENT_PRICE_{name} is not active"),
            Ok(price) if !price.is_recurring => log::error!(tier = name; "PAYMENT_PRICE_{name} is not recurring"),
            Ok(_) => {}
            Err(error) => log::error!(tier = name; "PAYMENT_PRICE_{name} could not be checked: {error}"),
        }
    }
}

async fn retry_parked(context: &BillingContext) -> Result<(), DbError> {
    let now = context.clock.now();
    let read = move |db: &mut _| Ok((payment_events::due(db, 1, now)?.is_empty(), payment_events::parked(db, 0)?.0));
    let (none_is_due, parked) = context.pool.read(read).await?;
    metrics::gauge!("companion_payment_events_parked").set(parked as f64);
    if none_is_due {
        return Ok(());
    }
    for _ in 0..RETRIES {
        // One after the other: those that are not tried keep their turn.
        let Some(event) = context.pool.write(move |db| payment_events::claim(db, now)).await? else { break };
        let id = event.id.clone();
        let outcome = sync::take_again(context, event).await?;
        log::info!(event = id.as_str(), outcome:? = outcome; "a parked payment event was tried again");
        // The others would wait for it in vain.
        if outcome == EventOutcome::Taken(EventState::Parked(ParkReason::ProviderUnavailable)) {
            break;
        }
    }
    Ok(())
}

async fn reconcile_nightly(context: &BillingContext) {
    let tell = |step: ReconcileStep| {
        if let ReconcileStep::Differs { .. } = step {
            log::warn!("reconciliation: {step}");
        }
    };
    match reconcile(context, false, tell).await {
        Ok(done) => {
            log::info!("reconciliation compared {} subscriptions, {} differed", done.compared, done.differences)
        }
        Err(error) => log::warn!("reconciliation ended early: {error}"),
    }
}
