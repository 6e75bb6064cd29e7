//! Stores a bundle as the newest of its user, as it was uploaded or registered.

use crate::{
    db::{
        engine::{error::DbError, pool::Db},
        push_credentials::{self, PushCredential, SealedBundle, Slot},
        push_registrations,
    },
    domain::{ids::UserId, time::Timestamp},
    vault::Vault,
};

/// A bundle that is not stored yet.
pub struct NewBundle {
    /// JSON.
    pub json: Vec<u8>,
    /// The label of the helper device that uploads it.
    pub uploaded_by: Option<String>,
    pub expires_at: Timestamp,
}

/// Reasons for which a bundle is not stored.
#[derive(Debug, thiserror::Error)]
pub enum BundleNotStored {
    /// Another key sealed the one that it would replace.
    #[error("the stored bundle cannot be read now, and is not replaced")]
    AwaitsKey,
    #[error(transparent)]
    Database(#[from] DbError),
}

/// Seals and stores the bundle; its slot, and the time of the upload as stored. Call it in a transaction
/// ([`Pool::write`](crate::db::engine::pool::Pool::write)), and send
/// [`CredentialChanged`](crate::push::worker::CredentialChanged) after it.
pub fn store(
    db: &mut Db,
    vault: &Vault,
    user: &UserId,
    bundle: &NewBundle,
    now: Timestamp,
) -> Result<(Slot, Timestamp), BundleNotStored> {
    if let Some(PushCredential { in_use, staged, .. }) = push_credentials::get(db, user)?
        && [Some(&in_use), staged.as_ref()].into_iter().flatten().any(|known| vault.bundle_awaits_key(user, known))
    {
        return Err(BundleNotStored::AwaitsKey);
    }
    let sealed = SealedBundle {
        sealed: vault.seal_push_bundle(user, &bundle.json),
        key_version: vault.key_version(),
        uploaded_at: now,
        uploaded_by: bundle.uploaded_by.clone(),
        expires_at: bundle.expires_at,
    };
    let uploaded = push_credentials::upload(db, user, &sealed)?;
    push_registrations::end_replaced(db, user, now)?;
    Ok(uploaded)
}
