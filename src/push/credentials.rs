//! Opens push credentials, and seals each anew with the current key when it was opened.

use std::sync::Arc;

use secrecy::{ExposeSecret as _, SecretSlice};

use crate::{
    crypto::sealer::{OpenError, Place, Sealer},
    db::{
        error::DbError,
        pool::Pool,
        push_credentials::{self, Slot},
    },
    domain::{ids::UserId, time::Timestamp},
};

/// An opened bundle: keep it for one push session and no longer.
pub struct Bundle {
    /// JSON as it was uploaded.
    pub json: SecretSlice<u8>,
    /// Names the bundle, for what is said of it later.
    pub uploaded_at: Timestamp,
    pub expires_at: Timestamp,
}

/// Why there is no bundle; says nothing of its content.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("there is no such bundle")]
    Missing,
    /// It stays stored as it is: a key that is missing may come back.
    #[error("the stored bundle cannot be opened: {0}")]
    Unreadable(#[from] OpenError),
    #[error(transparent)]
    Database(#[from] DbError),
}

/// Where a user's bundles are kept, both slots alike.
pub fn place(user: &UserId) -> Place<'_> {
    Place { table: "push_credentials", column: "sealed", owner: user.as_str() }
}

/// Opens the bundle in this slot. It is then sealed with the current key and a fresh nonce and stored, unless
/// somebody else changed the slot meanwhile; if that fails, the next reader or the sweep does it.
pub async fn read(pool: &Pool, sealer: &Arc<Sealer>, user: &UserId, slot: Slot) -> Result<Bundle, ReadError> {
    let (owner, opener) = (user.clone(), sealer.clone());
    // On the blocking pool: opening and sealing 64 KiB takes a worker's time.
    let (before, opened, after) = pool
        .read(move |db| {
            let credential = push_credentials::get(db, &owner)?.ok_or(DbError::NotFound)?;
            let bundle = credential.bundle(slot).ok_or(DbError::NotFound)?.clone();
            let opened = opener.open(&place(&owner), &bundle.sealed);
            // A newer generation of keys than ours is at work there: it will seal the bundle itself.
            let ours = bundle.key_version <= opener.key_version();
            let after = opened.as_ref().ok().filter(|_| ours);
            let after = after.map(|opened| opener.seal(&place(&owner), opened.plaintext.expose_secret()));
            Ok((bundle, opened, after))
        })
        .await
        .map_err(|error| if let DbError::NotFound = error { ReadError::Missing } else { error.into() })?;
    let opened = opened?;
    if let Some(after) = after {
        let (owner, key_version) = (user.clone(), sealer.key_version());
        let moved = pool
            .write(move |db| push_credentials::replace_sealed(db, &owner, slot, &before.sealed, &after, key_version))
            .await;
        if let Err(error) = moved {
            log::warn!(user_id:% = user; "a push credential was not sealed anew: {error}");
        }
    }
    Ok(Bundle { json: opened.plaintext, uploaded_at: before.uploaded_at, expires_at: before.expires_at })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::Database,
        crypto::{keys::Key32, random::Random},
        db::{push_credentials::SealedBundle, testing, testing::now},
    };

    fn sealer(current: u8, previous: Option<u8>, key_version: i32) -> Arc<Sealer> {
        let key = |byte| Key32::new([byte; 32]);
        Arc::new(Sealer::new(&key(current), previous.map(key).as_ref(), key_version, Random::system()))
    }

    fn stored(pool: &Pool) -> push_credentials::PushCredential {
        pool.read_blocking(|db| push_credentials::get(db, &"user".into())).unwrap().unwrap()
    }

    /// A user whose bundle the key 1 sealed.
    fn with_bundle() -> (tempfile::TempDir, Pool) {
        let directory = tempfile::tempdir().unwrap();
        let pool = Pool::open(&Database::Sqlite(directory.path().join("test.db"))).unwrap();
        testing::user(&pool, "user");
        let sealed = sealer(1, None, 1).seal(&place(&"user".into()), b"{}");
        let bundle = SealedBundle { sealed, key_version: 1, uploaded_at: now(), expires_at: now() };
        pool.write_blocking(|db| push_credentials::upload(db, &"user".into(), &bundle)).unwrap();
        (directory, pool)
    }

    #[tokio::test]
    async fn reading_seals_anew_with_the_current_key_and_only_raises_the_version() {
        let (_directory, pool) = with_bundle();
        let mut sealed = vec![stored(&pool).in_use.sealed];
        for (sealer, version) in
            [(sealer(1, None, 1), 1), (sealer(2, Some(1), 2), 2), (sealer(2, None, 2), 2), (sealer(1, Some(2), 1), 2)]
        {
            let bundle = read(&pool, &sealer, &"user".into(), Slot::InUse).await.unwrap();
            assert_eq!((bundle.json.expose_secret(), bundle.uploaded_at), (&b"{}"[..], now()));
            let row = stored(&pool).in_use;
            assert_eq!(row.key_version, version);
            sealed.push(row.sealed);
        }
        assert_eq!(sealed[3], sealed[4], "an older generation leaves it alone");
        sealed.dedup();
        assert_eq!(sealed.len(), 4, "a fresh nonce each time");
    }

    #[tokio::test]
    async fn a_bundle_that_does_not_open_stays_as_it_is() {
        let (_directory, pool) = with_bundle();
        let before = stored(&pool);
        let refused = read(&pool, &sealer(3, Some(2), 3), &"user".into(), Slot::InUse).await;
        assert!(matches!(refused, Err(ReadError::Unreadable(OpenError::UnknownKey))));
        assert_eq!(stored(&pool), before);
        for (user, slot) in [("user", Slot::Staged), ("nobody", Slot::InUse)] {
            let missing = read(&pool, &sealer(1, None, 1), &user.into(), slot).await;
            assert!(matches!(missing, Err(ReadError::Missing)));
        }
    }
}
