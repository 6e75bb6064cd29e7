//! Background work of billing: looks at its prices once, tries parked events again, ends subscriptions of users who are
//! gone, finds out the outcome of refunds, and compares all with the provider in the night (UTC).

use std::{sync::Arc, time::Duration};

use chrono::{NaiveDate, TimeDelta, Timelike as _};
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::{
    billing::{
        context::BillingContext,
        endings,
        reconcile::{ReconcileMode, ReconcileStep, reconcile},
        refunds,
        sync::{self, EventOutcome},
    },
    db::{
        engine::{error::DbError, query_failures::log_failure},
        money::{
            customers_to_end,
            payment_events::{self, EventState},
        },
    },
    domain::money::{
        payment::ParkReason,
        plan::{Plan, SoldPlan},
    },
    panics::{self, Part},
};

/// Time between two checks for due work.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Pause after a failure of the database.
const AFTER_FAILURE: Duration = Duration::from_secs(30);
/// Parked events that are tried again in one look.
const RETRIES: usize = 20;
/// Time between two looks at refunds and endings without an outcome.
const SWEEP_EVERY: TimeDelta = TimeDelta::minutes(1);
/// The hour of the night.
const NIGHT: u32 = 3;

/// Works until it is aborted.
pub async fn run(context: Arc<BillingContext>) {
    check_prices(&context).await;
    let mut reconciled: Option<NaiveDate> = None;
    let mut sweep_at = context.clock.now();
    // Several processes do not all come at once.
    let minute = u32::from(context.random.byte()) % 60;
    let mut looks = interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        if let Some(Err(error)) = panics::caught(Part::Billing, "", retry_parked(&context)).await {
            log_failure("parked payment events are not tried again yet", &error);
            sleep(AFTER_FAILURE).await;
        }
        if let Some(Err(error)) = panics::caught(Part::Billing, "", end_customers(&context)).await {
            log_failure("what runs for users who are gone is not ended yet", &error);
            sleep(AFTER_FAILURE).await;
        }
        let now = context.clock.now();
        if now >= sweep_at {
            sweep_at = now + SWEEP_EVERY;
            if let Some(Err(error)) = panics::caught(Part::Billing, "", refunds::sweep(&context)).await {
                log_failure("refunds without an outcome are not looked at yet", &error);
            }
            if let Some(Err(error)) = panics::caught(Part::Billing, "", endings::sweep(&context)).await {
                log_failure("endings without an outcome are not looked at yet", &error);
            }
        }
        if now.hour() == NIGHT && now.minute() >= minute && reconciled != Some(now.date_naive()) {
            reconciled = Some(now.date_naive());
            panics::caught(Part::Billing, "", reconcile_nightly(&context)).await;
        }
    }
}

/// Logs the faults of the configured prices.
async fn check_prices(context: &BillingContext) {
    for SoldPlan { plan, price } in Plan::all().filter_map(|plan| context.prices.sold(plan)) {
        let (variable, interval) = (plan.variable(), plan.interval.word());
        match context.client.price(&price).await {
            Ok(price) if !price.is_active => log::error!("{variable} is not active"),
            Ok(price) if !price.is_recurring => log::error!("{variable} is not recurring"),
            Ok(price) if price.interval != Some(plan.interval) => {
                log::warn!("{variable} is not charged each {interval}, as users are shown");
            }
            Ok(_) => {}
            Err(error) => log::error!("{variable} could not be checked: {error}"),
        }
    }
}

async fn retry_parked(context: &BillingContext) -> Result<(), DbError> {
    let now = context.clock.now();
    let read =
        move |db: &mut _| Ok((payment_events::due(db, 1, now)?.is_empty(), payment_events::parked(db, None, 0)?.0));
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

async fn end_customers(context: &BillingContext) -> Result<(), DbError> {
    let now = context.clock.now();
    metrics::gauge!("companion_payment_customers_to_end").set(context.pool.read(customers_to_end::count).await? as f64);
    for _ in 0..RETRIES {
        let Some(turn) = context.pool.write(move |db| customers_to_end::claim(db, now)).await? else { break };
        // The others would wait for it in vain.
        if !endings::end_customer(context, turn).await? {
            break;
        }
    }
    Ok(())
}

async fn reconcile_nightly(context: &BillingContext) {
    let report = |step: ReconcileStep| {
        if let ReconcileStep::Differs { .. } = step {
            log::warn!("reconciliation: {step}");
        }
    };
    match reconcile(context, ReconcileMode::Heal, report).await {
        Ok(done) => {
            log::info!("reconciliation compared {} subscriptions, {} differed", done.compared, done.differences)
        }
        Err(error) => log::warn!("reconciliation ended early: {error}"),
    }
}
