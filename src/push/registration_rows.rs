//! The row of a user's registration, as a login begins and as it is deleted.

use secrecy::ExposeSecret as _;

use crate::{
    clients::registration::RegisteredDevice,
    db::{
        engine::{error::DbError, pool::Db},
        push_refusals,
        push_registrations::{self, PushRegistration, StoredProgress},
    },
    domain::{credential::RefusalReason, ids::UserId},
    vault::Vault,
};

/// Stores a login that begins, in place of one that has not come back. A registration that holds goes on meanwhile; one
/// that is not made yet waits for the new login.
pub fn open_login(db: &mut Db, vault: &Vault, new: PushRegistration) -> Result<(), DbError> {
    let known = match push_registrations::get(db, &new.user_id)? {
        Some(row) if is_usable(db, &row)? => Some(row),
        _ => None,
    };
    let row = match known {
        Some(known) => {
            let PushRegistration { id, renew_asked, closes_at, progress, .. } = new;
            let progress = StoredProgress { failures: known.progress.failures, ..progress };
            let mut row = PushRegistration { id, renew_asked, closes_at, progress, ..known };
            if row.ends_at.is_none() {
                forget_login(vault, &mut row);
            }
            row
        }
        None => new,
    };
    push_registrations::put(db, &row)
}

/// False for an identity that the push service refuses: it is of no use. Any other is kept.
fn is_usable(db: &mut Db, row: &PushRegistration) -> Result<bool, DbError> {
    let refusal = push_refusals::get(db, &row.user_id)?.filter(|r| r.reason == RefusalReason::LoginRefused);
    Ok(refusal.is_none_or(|refusal| Some(refusal.uploaded_at) != row.bundle_at))
}

/// Deletes a user's registration, and returns it. The device stays, without the token of the account: one identity is of
/// one account for ever, and the next registration takes it up. `id` is one that no login has.
pub fn close(db: &mut Db, vault: &Vault, user: &UserId, id: String) -> Result<Option<PushRegistration>, DbError> {
    let Some(row) = push_registrations::get(db, user)?.filter(|row| !row.is_device_only()) else { return Ok(None) };
    let device = open_device(vault, &row).filter(|device| device.identity.is_some());
    match device {
        Some(mut device) if is_usable(db, &row)? => {
            (device.auth_token, device.installation, device.expires_at) = (None, None, None);
            let kept = PushRegistration {
                id,
                renew_asked: false,
                renew: false,
                // A row with a failure outlives a login that does not come back.
                progress: StoredProgress { failures: 1, ..StoredProgress::default() },
                device: vault.seal_device(user, &device.stored()),
                bundle_at: None,
                ends_at: None,
                due_at: None,
                ..row.clone()
            };
            push_registrations::put(db, &kept)?;
        }
        _ => _ = push_registrations::delete(db, user)?,
    }
    Ok(Some(row))
}

/// Ends what the login before has begun, and what it asked for. The identity of the device stays.
fn forget_login(vault: &Vault, row: &mut PushRegistration) {
    (row.renew, row.due_at) = (false, None);
    if let Some(mut device) = open_device(vault, row) {
        device.auth_token = None;
        // Steps that were cut off count as one failure, so that the row is kept with its identity.
        row.progress.failures = i32::from(device.identity.is_some());
        row.device = vault.seal_device(&row.user_id, &device.stored());
    }
}

/// The device of a registration; `None`, with a line in the log, when it does not open.
pub fn open_device(vault: &Vault, row: &PushRegistration) -> Option<RegisteredDevice> {
    match vault.open_device(row) {
        Ok(json) => serde_json::from_slice(json.expose_secret()).ok(),
        Err(error) => {
            log::error!(user:% = row.user_id; "the registered device cannot be opened: {error}");
            None
        }
    }
}
