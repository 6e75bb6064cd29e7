//! The secrets that are stored sealed: push credential bundles and player tokens. They are sealed, opened and sealed
//! again with the current key here and nowhere else.
//!
//! A secret is only replaced by itself under a newer key: never when the row was changed since it was read, and never
//! when a newer generation of keys than ours sealed it. A secret that does not open is left as it is, because its key
//! may be configured again.

mod secret_kind;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use secrecy::{ExposeSecret as _, SecretBox, SecretSlice, zeroize::Zeroizing};

use crate::{
    crypto::sealer::{OpenError, Opened, Sealer},
    db::{
        engine::error::DbError,
        engine::pool::{Db, Pool},
        paired_servers::{self, PairedServer, SealedToken},
        push_credentials::{self, SealedBundle, Slot},
    },
    domain::{
        ids::{ServerId, UserId},
        time::Timestamp,
    },
};

use self::secret_kind::SecretName;
pub use self::secret_kind::{SecretKind, UnreadableSecret};

/// Opens and seals stored secrets; clones share the database and the keys.
#[derive(Clone)]
pub struct Vault {
    pool: Pool,
    sealer: Arc<Sealer>,
    /// The key of what does not open is lost for good.
    key_lost: bool,
    unreadable: Arc<AtomicUsize>,
}

/// An opened push credential: keep it for one login and no longer.
pub struct PushBundle {
    /// JSON as it was uploaded.
    pub json: SecretSlice<u8>,
    /// Identifies the bundle among those of its user.
    pub uploaded_at: Timestamp,
    /// The label that its helper device had.
    pub uploaded_by: Option<String>,
}

/// Reasons for which there is no secret, without its content.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    #[error("nothing is stored")]
    Missing,
    #[error("the stored secret cannot be opened: {0}")]
    Unreadable(#[from] OpenError),
    /// Opened, and no player token.
    #[error("the stored player token is not a 32-bit integer")]
    Malformed,
    #[error(transparent)]
    Database(DbError),
}

impl From<DbError> for VaultError {
    fn from(error: DbError) -> Self {
        if let DbError::NotFound = error { Self::Missing } else { Self::Database(error) }
    }
}

/// The tables that hold secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretTable {
    PushCredentials,
    PairedServers,
}

impl SecretTable {
    pub const ALL: [Self; 2] = [Self::PushCredentials, Self::PairedServers];
}

/// A batch of secrets after an attempt to re-seal them.
#[derive(Debug)]
pub struct ResealedBatch {
    /// The next batch begins after this row.
    pub last_row: String,
    /// Number of secrets that were sealed with the current key now.
    pub resealed: usize,
    pub unreadable: Vec<UnreadableSecret>,
}

/// A batch of secrets, each opened and dropped again.
#[derive(Debug)]
pub struct InspectedBatch {
    /// The next batch begins after this row.
    pub last_row: String,
    /// The number of the key that sealed it, for each secret.
    pub key_versions: Vec<i32>,
    pub unreadable: Vec<UnreadableSecret>,
}

impl Vault {
    pub fn new(pool: Pool, sealer: Arc<Sealer>) -> Self {
        Self { pool, sealer, key_lost: false, unreadable: Arc::default() }
    }

    /// This vault; with `key_lost`, users may replace what another key sealed.
    pub fn with_key_lost(self, key_lost: bool) -> Self {
        Self { key_lost, ..self }
    }

    /// Stored secrets that did not open when they were last looked at.
    pub fn unreadable(&self) -> usize {
        self.unreadable.load(Ordering::Relaxed)
    }

    /// Counts the stored secrets that do not open.
    pub fn set_unreadable(&self, count: usize) {
        self.unreadable.store(count, Ordering::Relaxed);
    }

    /// The key that sealed this is missing and may come back: nothing may replace it meanwhile.
    pub fn awaits_key(&self, error: OpenError) -> bool {
        !self.key_lost && error == OpenError::UnknownKey
    }

    /// [`awaits_key`](Self::awaits_key) of a stored bundle of this user.
    pub fn bundle_awaits_key(&self, user: &UserId, bundle: &SealedBundle) -> bool {
        let opened = SealedSecret::bundle(user, Slot::InUse, bundle).open(&self.sealer);
        opened.is_err_and(|error| self.awaits_key(error))
    }

    /// [`awaits_key`](Self::awaits_key) of the player token in this row.
    pub fn token_awaits_key(&self, row: &PairedServer) -> bool {
        let opened = SealedSecret::player_token(row).open(&self.sealer);
        opened.is_err_and(|error| self.awaits_key(error))
    }

    /// The number of the key that seals; rows store it beside the sealed bytes.
    pub fn key_version(&self) -> i32 {
        self.sealer.key_version()
    }

    /// Seals a push credential bundle for either slot of this user.
    pub fn seal_push_bundle(&self, user: &UserId, json: &[u8]) -> Vec<u8> {
        self.sealer.seal(&SecretKind::PushBundle(Slot::InUse).place(user.as_str()), json)
    }

    /// Seals the player token of a paired server.
    pub fn seal_player_token(&self, server: &ServerId, token: i32) -> Vec<u8> {
        let digits = Zeroizing::new(token.to_string());
        self.sealer.seal(&SecretKind::PlayerToken.place(server.as_str()), digits.as_bytes())
    }

    /// True if this is the player token that the row holds; false when it cannot be opened.
    pub fn is_player_token(&self, row: &PairedServer, token: i32) -> bool {
        let opened = SealedSecret::player_token(row).open(&self.sealer);
        opened.is_ok_and(|opened| player_token(&opened.plaintext) == Some(token))
    }

    /// Opens the bundle in this slot. Every successful read seals it again with the current key and a fresh nonce.
    pub async fn push_bundle(&self, user: &UserId, slot: Slot) -> Result<PushBundle, VaultError> {
        let (user, sealer) = (user.clone(), self.sealer.clone());
        // On a database thread: opening and sealing 64 KiB would hold up a worker.
        let (secret, (uploaded_at, uploaded_by), opened) = self
            .pool
            .read(move |db| {
                let credential = push_credentials::get(db, &user)?.ok_or(DbError::NotFound)?;
                let bundle = credential.bundle(slot).ok_or(DbError::NotFound)?;
                let secret = SealedSecret::bundle(&credential.user_id, slot, bundle);
                let opened = secret.open(&sealer).map(|opened| (secret.reseal(&sealer, &opened), opened));
                Ok((secret, (bundle.uploaded_at, bundle.uploaded_by.clone()), opened))
            })
            .await?;
        let (resealed, opened) = opened?;
        self.store(secret, resealed).await;
        Ok(PushBundle { json: opened.plaintext, uploaded_at, uploaded_by })
    }

    /// Opens the player token of a paired server. It is sealed again when the previous key opened it.
    pub async fn player_token(&self, server: &ServerId) -> Result<(PairedServer, SecretBox<i32>), VaultError> {
        let server = server.clone();
        let row = self.pool.read(move |db| paired_servers::get(db, &server)).await?;
        let secret = SealedSecret::player_token(&row);
        let opened = secret.open(&self.sealer)?;
        if !opened.current {
            let resealed = secret.reseal(&self.sealer, &opened);
            self.store(secret, resealed).await;
        }
        let token = player_token(&opened.plaintext).ok_or(VaultError::Malformed)?;
        Ok((row, SecretBox::new(Box::new(token))))
    }

    /// Stores the secret as sealed again, if it was. When that fails, the next reader or the sweep does it.
    async fn store(&self, secret: SealedSecret, resealed: Option<Vec<u8>>) {
        let Some(resealed) = resealed else { return };
        let (name, key_version) = (SecretName(secret.kind, &secret.row).to_string(), self.key_version());
        if let Err(error) = self.pool.write(move |db| secret.replace(db, &resealed, key_version)).await {
            log::warn!("{name}: it was not sealed again with the current key: {error}");
        }
    }

    /// Seals the secrets of the next `limit` rows after this one that older keys sealed; `None` when there are no more.
    pub async fn reseal_next(
        &self,
        table: SecretTable,
        after: String,
        limit: usize,
    ) -> Result<Option<ResealedBatch>, DbError> {
        let key_version = self.key_version();
        let older = self.pool.read(move |db| list_older(db, table, key_version, &after, limit)).await?;
        let Some(last) = older.last() else { return Ok(None) };
        let mut batch = ResealedBatch { last_row: last.row.clone(), resealed: 0, unreadable: Vec::new() };
        let sealer = self.sealer.clone();
        let batch = self.pool.write(move |db| -> Result<_, DbError> {
            for secret in older {
                match secret.open(&sealer) {
                    Ok(opened) => {
                        if let Some(resealed) = secret.reseal(&sealer, &opened) {
                            batch.resealed += usize::from(secret.replace(db, &resealed, key_version)?);
                        }
                    }
                    Err(error) => batch.unreadable.push(secret.unreadable(error)),
                }
            }
            Ok(batch)
        });
        Ok(Some(batch.await?))
    }

    /// [`inspect_next`](Self::inspect_next) on a database thread.
    pub async fn inspect_in_background(
        &self,
        table: SecretTable,
        after: String,
        limit: usize,
    ) -> Result<Option<InspectedBatch>, DbError> {
        let sealer = self.sealer.clone();
        self.pool.read(move |db| inspect(db, &sealer, table, &after, limit)).await
    }

    /// Opens the secrets of the next `limit` rows after this one, and stores nothing; `None` when there are no more.
    /// Blocks.
    pub fn inspect_next(
        &self,
        table: SecretTable,
        after: &str,
        limit: usize,
    ) -> Result<Option<InspectedBatch>, DbError> {
        self.pool.read_blocking(|db| inspect(db, &self.sealer, table, after, limit))
    }
}

fn inspect(
    db: &mut Db,
    sealer: &Sealer,
    table: SecretTable,
    after: &str,
    limit: usize,
) -> Result<Option<InspectedBatch>, DbError> {
    let secrets = list_older(db, table, i32::MAX, after, limit)?;
    let Some(last) = secrets.last() else { return Ok(None) };
    let mut batch = InspectedBatch {
        last_row: last.row.clone(),
        key_versions: secrets.iter().map(|secret| secret.key_version).collect(),
        unreadable: Vec::new(),
    };
    for secret in secrets {
        if let Err(error) = secret.open(sealer) {
            batch.unreadable.push(secret.unreadable(error));
        }
    }
    Ok(Some(batch))
}

fn player_token(plaintext: &SecretSlice<u8>) -> Option<i32> {
    std::str::from_utf8(plaintext.expose_secret()).ok()?.parse().ok()
}

/// A secret as it is stored.
struct SealedSecret {
    kind: SecretKind,
    /// Id of the user or paired server.
    row: String,
    bytes: Vec<u8>,
    key_version: i32,
}

impl SealedSecret {
    fn bundle(user: &UserId, slot: Slot, bundle: &SealedBundle) -> Self {
        Self {
            kind: SecretKind::PushBundle(slot),
            row: user.to_string(),
            bytes: bundle.sealed.clone(),
            key_version: bundle.key_version,
        }
    }

    fn player_token(server: &PairedServer) -> Self {
        let PairedServer { id, player_token_sealed, key_version, .. } = server;
        let player_token_sealed = player_token_sealed.clone();
        SealedToken { id: id.clone(), player_token_sealed, key_version: *key_version }.into()
    }

    fn open(&self, sealer: &Sealer) -> Result<Opened, OpenError> {
        sealer.open(&self.kind.place(&self.row), &self.bytes)
    }

    /// Seals the opened secret with the current key; `None` when a newer generation of keys sealed it, whose own
    /// process keeps it current.
    fn reseal(&self, sealer: &Sealer, opened: &Opened) -> Option<Vec<u8>> {
        let place = self.kind.place(&self.row);
        (self.key_version <= sealer.key_version()).then(|| sealer.seal(&place, opened.plaintext.expose_secret()))
    }

    /// Stores it as sealed again; false when it was changed since it was read.
    fn replace(&self, db: &mut Db, resealed: &[u8], key_version: i32) -> Result<bool, DbError> {
        match self.kind {
            SecretKind::PushBundle(slot) => {
                let user = UserId::from(self.row.as_str());
                push_credentials::replace_sealed(db, &user, slot, &self.bytes, resealed, key_version)
            }
            SecretKind::PlayerToken => {
                let server = ServerId::from(self.row.as_str());
                paired_servers::replace_token(db, &server, &self.bytes, resealed, key_version)
            }
        }
    }

    fn unreadable(self, error: OpenError) -> UnreadableSecret {
        UnreadableSecret { kind: self.kind, row: self.row, error }
    }
}

impl From<SealedToken> for SealedSecret {
    fn from(SealedToken { id, player_token_sealed: bytes, key_version }: SealedToken) -> Self {
        Self { kind: SecretKind::PlayerToken, row: id.to_string(), bytes, key_version }
    }
}

/// The secrets of some rows that keys before `key_version` sealed, by row, from after this one on.
fn list_older(
    db: &mut Db,
    table: SecretTable,
    key_version: i32,
    after: &str,
    limit: usize,
) -> Result<Vec<SealedSecret>, DbError> {
    match table {
        SecretTable::PushCredentials => {
            let mut secrets = Vec::new();
            for row in push_credentials::list_older(db, key_version, &after.into(), limit)? {
                for slot in [Slot::InUse, Slot::Staged] {
                    secrets.extend(row.bundle(slot).map(|bundle| SealedSecret::bundle(&row.user_id, slot, bundle)));
                }
            }
            secrets.retain(|secret| secret.key_version < key_version);
            Ok(secrets)
        }
        SecretTable::PairedServers => {
            let rows = paired_servers::list_older(db, key_version, &after.into(), limit)?;
            Ok(rows.into_iter().map(SealedSecret::from).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::Database,
        crypto::{keys::Key32, random::Random},
        db::{
            push_credentials::PushCredential,
            testing::{self, later, now},
        },
    };

    fn vault(pool: &Pool, current: u8, previous: Option<u8>, key_version: i32) -> Vault {
        let key = |byte| Key32::new([byte; 32]);
        let sealer = Sealer::new(&key(current), previous.map(key).as_ref(), key_version, Random::system());
        Vault::new(pool.clone(), Arc::new(sealer))
    }

    fn stored(pool: &Pool) -> PushCredential {
        pool.read_blocking(|db| push_credentials::get(db, &"user".into())).unwrap().unwrap()
    }

    fn stored_server(pool: &Pool) -> PairedServer {
        pool.read_blocking(|db| paired_servers::get(db, &"server".into())).unwrap()
    }

    /// A user whose bundle and player token (7) the key 1 sealed.
    fn filled() -> (tempfile::TempDir, Pool) {
        let directory = tempfile::tempdir().unwrap();
        let pool = Pool::open(&Database::Sqlite(directory.path().join("test.db"))).unwrap();
        testing::user(&pool, "user");
        let vault = vault(&pool, 1, None, 1);
        let sealed = vault.seal_push_bundle(&"user".into(), b"{}");
        let bundle = SealedBundle { sealed, key_version: 1, uploaded_at: now(), uploaded_by: None, expires_at: now() };
        pool.write_blocking(|db| push_credentials::upload(db, &"user".into(), &bundle)).unwrap();
        let before = testing::server(&pool, "user", "server").player_token_sealed;
        replace_token(&pool, &before, &vault.seal_player_token(&"server".into(), 7), 1);
        (directory, pool)
    }

    fn replace_token(pool: &Pool, before: &[u8], after: &[u8], key_version: i32) {
        let replaced =
            pool.write_blocking(|db| paired_servers::replace_token(db, &"server".into(), before, after, key_version));
        assert!(replaced.unwrap());
    }

    #[tokio::test]
    async fn every_read_of_a_bundle_seals_it_again_and_never_lowers_its_version() {
        let (_directory, pool) = filled();
        let mut sealed = vec![stored(&pool).in_use.sealed];
        for (vault, version) in [
            (vault(&pool, 1, None, 1), 1),
            (vault(&pool, 2, Some(1), 2), 2),
            (vault(&pool, 2, None, 2), 2),
            (vault(&pool, 1, Some(2), 1), 2),
        ] {
            let bundle = vault.push_bundle(&"user".into(), Slot::InUse).await.unwrap();
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
    async fn a_player_token_that_the_previous_key_opened_is_sealed_with_the_current_one() {
        let (_directory, pool) = filled();
        let mut versions = Vec::new();
        for vault in [
            vault(&pool, 1, None, 1),
            vault(&pool, 2, Some(1), 2),
            vault(&pool, 2, None, 2),
            vault(&pool, 1, Some(2), 1),
        ] {
            let before = stored_server(&pool);
            let (row, token) = vault.player_token(&"server".into()).await.unwrap();
            assert_eq!((row, *token.expose_secret()), (before.clone(), 7));
            let after = stored_server(&pool);
            versions.push((after.key_version, after.player_token_sealed != before.player_token_sealed));
        }
        assert_eq!(versions, [(1, false), (2, true), (2, false), (2, false)]);
    }

    #[tokio::test]
    async fn what_changed_since_it_was_read_is_not_replaced() {
        let (_directory, pool) = filled();
        let vault = vault(&pool, 2, Some(1), 2);
        let read = SealedSecret::player_token(&stored_server(&pool));
        let resealed = read.reseal(&vault.sealer, &read.open(&vault.sealer).unwrap());
        // Paired again meanwhile.
        replace_token(&pool, &read.bytes, &vault.seal_player_token(&"server".into(), 8), 2);
        vault.store(read, resealed).await;
        let (_, token) = vault.player_token(&"server".into()).await.unwrap();
        assert_eq!(*token.expose_secret(), 8);
    }

    #[tokio::test]
    async fn every_failure_has_its_name_and_changes_nothing() {
        let (_directory, pool) = filled();
        let before = (stored(&pool), stored_server(&pool));
        let unknown = vault(&pool, 3, Some(2), 3);
        let refused = unknown.push_bundle(&"user".into(), Slot::InUse).await;
        assert!(matches!(refused, Err(VaultError::Unreadable(OpenError::UnknownKey))));
        let refused = unknown.player_token(&"server".into()).await;
        assert!(matches!(refused, Err(VaultError::Unreadable(OpenError::UnknownKey))));
        assert_eq!((stored(&pool), stored_server(&pool)), before);

        let ours = vault(&pool, 1, None, 1);
        for (user, slot) in [("user", Slot::Staged), ("nobody", Slot::InUse)] {
            assert!(matches!(ours.push_bundle(&user.into(), slot).await, Err(VaultError::Missing)));
        }
        assert!(matches!(ours.player_token(&"no server".into()).await, Err(VaultError::Missing)));

        let place = SecretKind::PlayerToken.place("server");
        replace_token(&pool, &before.1.player_token_sealed, &ours.sealer.seal(&place, b"seven"), 1);
        assert!(matches!(ours.player_token(&"server".into()).await, Err(VaultError::Malformed)));
    }

    #[test]
    fn a_token_is_recognised_in_its_own_row_only() {
        let (_directory, pool) = filled();
        let (vault, row) = (vault(&pool, 2, Some(1), 2), stored_server(&pool));
        assert!(vault.is_player_token(&row, 7));
        assert!(!vault.is_player_token(&row, 8));
        assert!(!vault.is_player_token(&PairedServer { id: "another".into(), updated_at: later(1), ..row }, 7));
    }
}
