//! Pays back, one attempt on a charge at a time.
//!
//! An attempt begins with an entry of the audit log and a row ([`refund_attempts`]) in one transaction; then the
//! provider is asked, with the attempt's own key; then a further entry records the outcome. Where the process ends in
//! between, or the provider does not say, [`sweep`] asks again: it looks among the charge's refunds for the one that
//! names the attempt, and only then asks for it once more with the same key, for as long as the provider knows that.

use std::time::Duration;

use chrono::TimeDelta;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    billing::context::BillingContext,
    clients::payments::{PaymentsError, ProviderRefund, RefundOf, RefundRequest},
    db::{
        audit::{self, AuditEntry, AuditOutcome, AuditPayload, LockedHead, NewAuditEntry},
        engine::{error::DbError, pool::Db},
        money::{
            payment_customers,
            refund_attempts::{self, RefundAttempt},
        },
    },
    domain::{
        audit::{AdminAction, AuditResult},
        ids::PlatformId,
        money::refund::{IssuedRefund, RefundPlan, RefundRefusal},
        time::Timestamp,
    },
};

/// The longest time that one process spends on an attempt: longer than the provider may take for it.
const CLAIM: TimeDelta = TimeDelta::seconds(30);
/// The longest wait of one request for the attempt of another.
const WAIT: Duration = Duration::from_secs(20);
/// Between two looks at it.
const LOOK: Duration = Duration::from_millis(50);
/// Attempts of one sweep.
const SWEPT: i64 = 20;

/// Failure of a refund.
#[derive(Debug, thiserror::Error)]
pub enum RefundError {
    #[error("the refund was not made: {0:?}")]
    NotMade(RefundRefusal),
    /// Made or not: the outcome is unknown.
    #[error("it is not known whether the refund was made: {0}")]
    Unknown(String),
    #[error(transparent)]
    Database(#[from] DbError),
}

/// The attempt that a request begins, or finds begun.
#[derive(Clone, Debug)]
pub enum RefundStart {
    /// This attempt is what was asked for: [`finish`] it.
    Attempt(i64),
    /// Another attempt at the charge is in the way, in words.
    Open(String),
}

/// The attempt in the way of a request for this refund without a key, if there is one. `after`: the last entry of the
/// audit log when the request came; attempts begun after it were under way at the same time.
///
/// Call it in a transaction that has locked the end of the audit log.
pub fn in_the_way(
    db: &mut Db,
    charge_or_payment: &str,
    after: i64,
    now: Timestamp,
    is_asked: impl Fn(&RefundPlan) -> bool,
) -> Result<Option<RefundStart>, DbError> {
    for attempt in refund_attempts::of_charge(db, charge_or_payment)? {
        let Some((_, plan)) = begun(db, attempt.begun)? else { continue };
        if is_asked(&plan) {
            return Ok(Some(RefundStart::Attempt(attempt.begun)));
        }
        if let Some(which) = named(db, &attempt, &plan, now)? {
            return Ok(Some(RefundStart::Open(which)));
        }
    }
    let entries = audit::about_since(db, AdminAction::Refund, charge_or_payment, after)?;
    let Some((begun, plan)) = entries.iter().rev().find_map(|entry| Some((entry.id, plan_of(entry)?))) else {
        return Ok(None);
    };
    Ok(Some(match is_asked(&plan) {
        true => RefundStart::Attempt(begun),
        false => RefundStart::Open(described(begun, &plan, "was under way at the same time")),
    }))
}

/// An attempt that another refund of its charge waits for, in words: it is not over, or it was made and its admin has
/// not seen that. The latter is named once; the same request still gets it.
fn named(db: &mut Db, attempt: &RefundAttempt, plan: &RefundPlan, now: Timestamp) -> Result<Option<String>, DbError> {
    let outcome = match attempt.outcome {
        None => return Ok(Some(described(attempt.begun, plan, "is not over"))),
        Some(outcome) => audit::get(db, outcome)?,
    };
    let is_made = outcome.is_some_and(|outcome| outcome.result == AuditResult::Done.word());
    if !is_made || attempt.named_at.is_some() {
        return Ok(None);
    }
    refund_attempts::name(db, attempt.begun, now)?;
    Ok(Some(described(attempt.begun, plan, "was made, which has not been shown before")))
}

fn described(begun: i64, plan: &RefundPlan, state: &str) -> String {
    let RefundPlan { charge_id, amount, currency, reason, issued_by, issued_at, .. } = plan;
    let reason = reason.as_deref().map(|reason| format!(", {reason}")).unwrap_or_default();
    format!(
        "A refund of {amount} ({currency}{reason}) of {charge_id} by {issued_by} at {issued_at} {state}: entry {begun} of \
         the audit log. Ask again after a look at what became of it."
    )
}

/// Begins an attempt, which the caller then finishes. With `keyed`, the request names it by a key of its own: one that
/// the same key has begun before goes on, and an equal one of another key is another one.
///
/// Call it in the transaction that has locked the end of the audit log.
pub fn begin(
    db: &mut Db,
    head: LockedHead,
    plan: &RefundPlan,
    keyed: bool,
    after: i64,
    now: Timestamp,
) -> Result<RefundStart, DbError> {
    if keyed {
        let entries = audit::about_since(db, AdminAction::Refund, &plan.charge_id, after)?;
        let mine =
            |entry: &&AuditEntry| plan_of(entry).is_some_and(|known| known.idempotency_key == plan.idempotency_key);
        if let Some(mine) = entries.iter().rev().find(mine) {
            return Ok(RefundStart::Attempt(mine.id));
        }
        for attempt in refund_attempts::of_charge(db, &plan.charge_id)? {
            if let Some((_, other)) = begun(db, attempt.begun)?
                && let Some(which) = named(db, &attempt, &other, now)?
            {
                return Ok(RefundStart::Open(which));
            }
        }
    } else {
        let is_asked = |known: &RefundPlan| {
            let amount = (!plan.all).then_some(plan.amount);
            known.is_asked_by(amount, plan.reason.as_deref())
                || known.is_asked_by(Some(plan.amount), plan.reason.as_deref())
        };
        if let Some(start) = in_the_way(db, &plan.charge_id, after, now, is_asked)? {
            return Ok(start);
        }
    }
    let actor = PlatformId::from(plan.issued_by.as_str());
    let payload = AuditPayload::of_intent(json!(plan));
    let (action, target, result) = (AdminAction::Refund, plan.charge_id.as_str(), AuditResult::Begun);
    let begun =
        audit::append(db, head, &NewAuditEntry { actor: &actor, action, target, payload: &payload, result }, now)?;
    let (charge_id, issued_at) = (plan.charge_id.clone(), now);
    // The request that finishes it claims it.
    let attempt = RefundAttempt { begun, charge_id, issued_at, claimed_until: now, outcome: None, named_at: None };
    refund_attempts::insert(db, &attempt, plan.payment_intent_id.as_deref())?;
    Ok(RefundStart::Attempt(begun))
}

/// The entry with which an attempt began, and the refund that it asks for.
fn begun(db: &mut Db, id: i64) -> Result<Option<(AuditEntry, RefundPlan)>, DbError> {
    let entry = audit::get(db, id)?;
    Ok(entry.and_then(|entry| plan_of(&entry).map(|plan| (entry, plan))))
}

fn plan_of(entry: &AuditEntry) -> Option<RefundPlan> {
    let mut payload: Value = serde_json::from_str(&entry.payload).ok()?;
    serde_json::from_value(payload["asked"].take()).ok()
}

/// The known outcome of an attempt.
enum RefundLook {
    Over(Result<IssuedRefund, RefundError>),
    /// Another process, or another request, works on the attempt.
    Busy,
    /// This request works on the attempt, until the given time.
    Mine(Box<RefundPlan>, Timestamp),
}

/// Waits for an attempt, or asks the provider for it; returns its refund.
pub async fn finish(context: &BillingContext, begun: i64) -> Result<IssuedRefund, RefundError> {
    let asked = Instant::now();
    loop {
        match look(context, begun).await? {
            RefundLook::Over(outcome) => return outcome,
            RefundLook::Mine(plan, until) => {
                if let Some(outcome) = ask_and_store(context, begun, &plan, until).await? {
                    return outcome;
                }
            }
            RefundLook::Busy if asked.elapsed() > WAIT => {
                return Err(RefundError::Unknown("another request is at it".to_owned()));
            }
            RefundLook::Busy => sleep(LOOK).await,
        }
    }
}

/// Asks for the outcome of attempts that no process works on.
pub async fn sweep(context: &BillingContext) -> Result<(), DbError> {
    let now = context.clock.now();
    for attempt in context.pool.read(move |db| refund_attempts::abandoned(db, SWEPT, now)).await? {
        if let RefundLook::Mine(plan, until) = look(context, attempt.begun).await? {
            let outcome = ask_and_store(context, attempt.begun, &plan, until).await?;
            log::info!(charge = plan.charge_id.as_str(), outcome:? = outcome; "looked what became of a refund");
        }
    }
    Ok(())
}

/// Notes that the admin of an attempt gets its outcome: the same request again is another refund.
pub async fn note_shown(context: &BillingContext, begun: i64) {
    if let Err(error) = context.pool.write(move |db| refund_attempts::delete_shown(db, begun)).await {
        log::warn!("it is not stored that the outcome of entry {begun} was shown: {error}");
    }
}

async fn look(context: &BillingContext, begun: i64) -> Result<RefundLook, DbError> {
    let (now, until) = (context.clock.now(), context.clock.now() + CLAIM);
    let look = move |db: &mut Db| {
        let Some((entry, plan)) = self::begun(db, begun)? else { return Err(DbError::NotFound) };
        let Some(attempt) = refund_attempts::get(db, begun)? else {
            let over = outcomes(db, &entry)?.into_iter().rev().find_map(outcome_of);
            let unknown = || Err(RefundError::Unknown("the audit log does not say".to_owned()));
            return Ok(RefundLook::Over(over.unwrap_or_else(unknown)));
        };
        if let Some(outcome) = attempt.outcome {
            let outcome = audit::get(db, outcome)?.and_then(outcome_of);
            return Ok(RefundLook::Over(
                outcome.unwrap_or(Err(RefundError::Unknown("the audit log does not say".to_owned()))),
            ));
        }
        let is_free = attempt.claimed_until <= now;
        Ok(match is_free && refund_attempts::claim(db, begun, attempt.claimed_until, until)? {
            true => RefundLook::Mine(Box::new(plan), until),
            false => RefundLook::Busy,
        })
    };
    context.pool.write(look).await
}

/// Entries with the outcome of this one, the oldest first.
fn outcomes(db: &mut Db, begun: &AuditEntry) -> Result<Vec<AuditEntry>, DbError> {
    let mut entries = audit::about_since(db, AdminAction::Refund, &begun.target, begun.id)?;
    entries.retain(|entry| entry.begun() == Some(begun.id));
    Ok(entries)
}

/// The outcome of an attempt, as an entry has it; `None`: it is not known.
fn outcome_of(entry: AuditEntry) -> Option<Result<IssuedRefund, RefundError>> {
    let mut payload: Value = serde_json::from_str(&entry.payload).ok()?;
    let after = payload["after"].take();
    if entry.result == AuditResult::Done.word() {
        return serde_json::from_value(after).ok().map(Ok);
    }
    let refusal = RefundRefusal::ALL.into_iter().find(|refusal| after["error"] == refusal.word())?;
    Some(Err(RefundError::NotMade(refusal)))
}

/// Asks the provider, and stores what it says, unless others have been at the attempt since.
async fn ask_and_store(
    context: &BillingContext,
    begun: i64,
    plan: &RefundPlan,
    until: Timestamp,
) -> Result<Option<Result<IssuedRefund, RefundError>>, DbError> {
    let asked = ask(context, plan).await;
    let (after, result) = match &asked {
        Ok(refund) => (json!(refund), AuditResult::Done),
        Err(RefundError::NotMade(refusal)) => (json!({ "error": refusal.word() }), AuditResult::Failed),
        Err(_) => (json!({ "error": "payment_provider_unavailable" }), AuditResult::Unknown),
    };
    let now = context.clock.now();
    let store = move |db: &mut Db| {
        let head = audit::lock(db)?;
        // The next request for the same can ask at once about an unknown outcome.
        if !refund_attempts::claim(db, begun, until, now)? {
            return Ok(false);
        }
        let Some((entry, _)) = self::begun(db, begun)? else { return Err(DbError::NotFound) };
        if result == AuditResult::Unknown && !outcomes(db, &entry)?.is_empty() {
            return Ok(true);
        }
        let outcome = AuditOutcome { after, result };
        let id = audit::append_outcome(db, head, AdminAction::Refund, &entry, outcome, now)?;
        if result != AuditResult::Unknown {
            refund_attempts::settle(db, begun, id)?;
        }
        Ok(true)
    };
    match context.pool.write(store).await {
        Ok(is_stored) => Ok(is_stored.then_some(asked)),
        // The provider has spoken, and the sweep writes that down later.
        Err(error) if asked.is_ok() => {
            log::error!("the audit log does not say yet what came of entry {begun}: {error}");
            Ok(Some(asked))
        }
        Err(error) => Err(error),
    }
}

/// Asks the provider whether it has made the refund of an attempt, and for it, while it knows the attempt's key.
async fn ask(context: &BillingContext, plan: &RefundPlan) -> Result<IssuedRefund, RefundError> {
    let unknown = |error: PaymentsError| RefundError::Unknown(error.to_string());
    let is_it = |refund: &ProviderRefund| match &refund.attempt {
        Some(attempt) => *attempt == plan.idempotency_key,
        // An entry of an older version of this service.
        None => {
            refund.issued_at.as_ref() == Some(&plan.issued_at) && refund.issued_by.as_ref() == Some(&plan.issued_by)
        }
    };
    let found = context.client.find_refund(&plan.charge_id, is_it).await.map_err(unknown)?;
    if let Some(refund) = found {
        return Ok(issued(refund, plan.user_id.clone()));
    }
    if !plan.is_known_to_provider(context.clock.now()) {
        return Err(RefundError::NotMade(RefundRefusal::NotMade));
    }
    let request = RefundRequest {
        of: RefundOf::Charge(&plan.charge_id),
        amount: Some(plan.amount),
        reason: plan.reason.as_deref(),
        issued_by: &plan.issued_by,
        issued_at: &plan.issued_at,
        idempotency_key: &plan.idempotency_key,
    };
    match context.client.refund(&request).await {
        Ok(refund) => Ok(issued(refund, plan.user_id.clone())),
        Err(PaymentsError::Unknown { .. }) => Err(RefundError::NotMade(RefundRefusal::UnknownCharge)),
        Err(PaymentsError::Refused { code, .. }) if code == "charge_already_refunded" => {
            Err(RefundError::NotMade(RefundRefusal::AlreadyRefunded))
        }
        Err(PaymentsError::Refused { code, .. }) if code == "charge_disputed" => {
            Err(RefundError::NotMade(RefundRefusal::Disputed))
        }
        // The key is in use, or the provider does not let us in: that says nothing of an earlier request.
        Err(error @ PaymentsError::Refused { status: 401 | 403, .. }) => Err(unknown(error)),
        Err(PaymentsError::Refused { code, status }) if code.starts_with("idempotency") => {
            Err(unknown(PaymentsError::Refused { code, status }))
        }
        Err(error @ PaymentsError::Refused { .. }) => {
            log::error!("a refund was refused: {error}");
            Err(RefundError::NotMade(RefundRefusal::Refused))
        }
        Err(error @ (PaymentsError::Client(_) | PaymentsError::Foreign)) => Err(unknown(error)),
    }
}

fn issued(refund: ProviderRefund, user_id: Option<String>) -> IssuedRefund {
    let ProviderRefund { id, amount, currency, status, charge, payment_intent, issued_by, issued_at, .. } = refund;
    let (charge_id, payment_intent_id) = (charge, payment_intent);
    IssuedRefund { id, amount, currency, status, charge_id, payment_intent_id, user_id, issued_by, issued_at }
}

/// Refunds as the provider lists them, with the members who paid.
pub async fn listed(context: &BillingContext, refunds: Vec<ProviderRefund>) -> Result<Vec<IssuedRefund>, DbError> {
    let members = move |db: &mut Db| {
        let with_member = |refund: ProviderRefund| {
            let user = match &refund.customer {
                Some(customer) => payment_customers::user_of(db, customer)?,
                None => None,
            };
            Ok(issued(refund, user.map(|user| user.to_string())))
        };
        refunds.into_iter().map(with_member).collect()
    };
    context.pool.read(members).await
}
