//! Output of commands that only look: lines of text.

use std::sync::Arc;

use crate::{
    config::Config,
    crypto::random::Random,
    db::{
        alarms::{alarm_ledger, incidents},
        encryption_keys,
        engine::{
            error::DbError,
            pool::{Db, Pool},
            schema_steps::open_existing,
        },
        failed_pushes::{self, FailedPush},
        money::payment_events::{self, ShownEvent},
    },
    rotation,
    vault::Vault,
};

/// Dead letters that `alarms` prints, the newest.
const DEAD_LETTERS_PRINTED: usize = 100;
/// Parked payment events that `billing parked` prints, the oldest.
const PARKED_PRINTED: usize = 1_000;

/// Result of the check that all stored secrets open with the present keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeysState {
    AllOpen,
    SomeSealed,
}

/// Number of alarms and incidents in each state, and the newest pushes that could not be handled.
pub fn alarms(pool: &Pool) -> Result<String, DbError> {
    let read = |db: &mut Db| {
        let dead = failed_pushes::dead_letters(db, DEAD_LETTERS_PRINTED)?;
        Ok((alarm_ledger::tally(db)?, incidents::tally(db)?, dead))
    };
    let (tally, states, (dead, newest)) = pool.read_blocking(read)?;
    let alarms = tally.counts.iter().map(|(state, count)| format!("alarms {state}: {count}"));
    let incidents = states.iter().map(|(state, count)| format!("incidents {state}: {count}"));
    let mut lines: Vec<String> = alarms.chain(incidents).collect();
    if let Some(since) = tally.oldest_unfinished {
        lines.push(format!("oldest unfinished alarm: received at {}", since.to_wire()));
    }
    lines.push(format!("dead letters: {dead}"));
    lines.extend(newest.iter().map(|letter| {
        let FailedPush { user_id, push_id, attempts, reason, content, failed_at } = letter;
        let at = failed_at.to_wire();
        format!("dead letter: {at}, user {user_id}, push {push_id}, {reason} after {attempts} attempts: {content}")
    }));
    Ok(lines.join("\n"))
}

/// The payment events that wait, the oldest.
pub fn parked_events(pool: &Pool) -> Result<String, DbError> {
    let read = |db: &mut Db| payment_events::parked(db, None, PARKED_PRINTED);
    let (count, oldest) = pool.read_blocking(read)?;
    let mut lines = vec![format!("parked: {count}")];
    lines.extend(oldest.into_iter().map(|event| {
        let ShownEvent { id, kind, subscription_id, customer_id, user_hint, reason, received_at, attempts, .. } = event;
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "none".to_owned());
        let [subscription, customer, user, reason] = [subscription_id, customer_id, user_hint, reason].map(or_none);
        let at = received_at.to_wire();
        format!(
            "{id}: {kind}, {reason}, subscription {subscription}, customer {customer}, user {user}, received at {at}, \
             tried again {attempts} times"
        )
    }));
    Ok(lines.join("\n"))
}

/// Number of stored credentials that each key seals.
pub fn keys(config: &Config) -> Result<(String, KeysState), DbError> {
    let secrets = &config.secrets;
    let pool = open_existing(&config.database)?;
    let number = pool.read_blocking(|db| encryption_keys::number(db, &secrets.credentials_key.fingerprint()))?;
    let sealer = secrets.sealer(number.unwrap_or_default(), Random::system());
    let status = rotation::status(&Vault::new(pool, Arc::new(sealer)))?;
    let mut lines = vec![match number {
        Some(number) => format!("current key: {number}"),
        None => "current key: has no number yet, because the service has not run with it".to_owned(),
    }];
    for (&key, &count) in &status.by_key {
        let note = if Some(key) == number { "up to date" } else { "waiting to be sealed again" };
        lines.push(format!("key {key}: {count} stored credentials, {note}"));
    }
    lines.extend(status.unreadable.iter().map(|unreadable| format!("cannot be opened: {unreadable}")));
    let uniform = status.by_key.keys().all(|&key| Some(key) == number);
    if secrets.credentials_key_previous.is_some() && uniform && status.unreadable.is_empty() {
        lines.push("CREDS_ENCRYPTION_KEY_PREV is no longer needed.".to_owned());
    }
    let state = if status.unreadable.is_empty() { KeysState::AllOpen } else { KeysState::SomeSealed };
    Ok((lines.join("\n"), state))
}
