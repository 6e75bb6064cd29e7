//! The secrets that are stored sealed: push credential bundles, player tokens, registered devices, targets of channels and
//! the key for pushes to browsers. They are sealed, opened and sealed again with the current key here and nowhere else.
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
    crypto::{
        sealer::{OpenError, Opened, SealContext, Sealer},
        vapid::VapidKey,
    },
    db::{
        engine::{
            error::DbError,
            pool::{Db, Pool},
        },
        notices::channels::{self, StoredChannel},
        paired_servers::{self, PairedServer, SealedToken},
        push_credentials::{self, SealedBundle, Slot},
        push_registrations::{self, PushRegistration, SealedDevice},
        vapid_keys::{self, SealedVapidKey},
    },
    domain::{
        channels::user_channel::ChannelTarget,
        ids::{ChannelId, ServerId, UserId},
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
    /// The game pushes nothing by it from then on.
    pub expires_at: Timestamp,
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
    PushRegistrations,
    Channels,
    VapidKeys,
}

impl SecretTable {
    /// Every table with sealed values.
    pub const ALL: [Self; 5] =
        [Self::PushCredentials, Self::PairedServers, Self::PushRegistrations, Self::Channels, Self::VapidKeys];
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
    /// A vault that knows of no lost key.
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
        self.sealer.seal(&SecretKind::PushBundle(Slot::InUse).context(user.as_str()), json)
    }

    /// Seals the player token of a paired server for the address and port that its row has.
    pub fn seal_player_token(&self, server: &ServerId, address: &str, port: u16, token: i32) -> Vec<u8> {
        let (digits, peer) = (Zeroizing::new(token.to_string()), peer(address, port.into()));
        let context = SealContext { peer: Some(&peer), ..SecretKind::PlayerToken.context(server.as_str()) };
        self.sealer.seal(&context, digits.as_bytes())
    }

    /// Seals the device of a user's registration, JSON.
    pub fn seal_device(&self, user: &UserId, json: &[u8]) -> SealedDevice {
        let sealed = self.sealer.seal(&SecretKind::RegisteredDevice.context(user.as_str()), json);
        SealedDevice { sealed, key_version: self.key_version() }
    }

    /// Opens the device of a registration.
    pub fn open_device(&self, row: &PushRegistration) -> Result<SecretSlice<u8>, OpenError> {
        SealedSecret::device(row.user_id.as_str(), &row.device).open(&self.sealer).map(|opened| opened.plaintext)
    }

    /// Seals the target of a channel.
    pub fn seal_channel(&self, id: &ChannelId, target: &ChannelTarget) -> Vec<u8> {
        let json = Zeroizing::new(serde_json::to_vec(target).expect("a target is plain data"));
        self.sealer.seal(&SecretKind::ChannelTarget.context(id.as_str()), &json)
    }

    /// Opens the target of a channel.
    pub fn open_channel(&self, channel: &StoredChannel) -> Result<ChannelTarget, OpenError> {
        let opened = SealedSecret::channel(&channel.id, &channel.sealed, channel.key_version).open(&self.sealer)?;
        serde_json::from_slice(opened.plaintext.expose_secret()).map_err(|_| OpenError::Damaged)
    }

    /// The key for pushes to browsers, which is made the first time.
    pub async fn vapid_key(&self, now: Timestamp) -> Result<VapidKey, VaultError> {
        // Browsers are woken by it while the database takes nothing.
        let stored = match self.pool.read(vapid_keys::get).await? {
            Some(stored) => stored,
            None => {
                let sealer = self.sealer.clone();
                let make = move |db: &mut Db| -> Result<_, DbError> {
                    let context = SecretKind::VapidKey.context(vapid_keys::ROW);
                    let sealed = sealer.seal(&context, VapidKey::generate().expose_secret());
                    let key = SealedVapidKey { sealed, key_version: sealer.key_version() };
                    vapid_keys::get_or_insert(db, &key, now)
                };
                self.pool.write(make).await?
            }
        };
        let opened = SealedSecret::vapid_key(stored).open(&self.sealer)?;
        Ok(VapidKey::read(&opened.plaintext).ok_or(OpenError::Damaged)?)
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
        let (secret, (uploaded_at, uploaded_by, expires_at), opened) = self
            .pool
            .read(move |db| {
                let credential = push_credentials::get(db, &user)?.ok_or(DbError::NotFound)?;
                let bundle = credential.bundle(slot).ok_or(DbError::NotFound)?;
                let secret = SealedSecret::bundle(&credential.user_id, slot, bundle);
                let opened = secret.open(&sealer).map(|opened| (secret.reseal(&sealer, &opened), opened));
                Ok((secret, (bundle.uploaded_at, bundle.uploaded_by.clone(), bundle.expires_at), opened))
            })
            .await?;
        let (resealed, opened) = opened?;
        self.store(secret, resealed).await;
        Ok(PushBundle { json: opened.plaintext, uploaded_at, uploaded_by, expires_at })
    }

    /// Opens the player token of a paired server, if it was sealed for the address and port of the row. It is sealed again
    /// when the previous key opened it, or when it was sealed before tokens were bound to address and port.
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

/// The game server that a player token is sealed for. A port has no colon: no two servers are one.
fn peer(address: &str, port: i32) -> String {
    format!("{address}:{port}")
}

fn player_token(plaintext: &SecretSlice<u8>) -> Option<i32> {
    std::str::from_utf8(plaintext.expose_secret()).ok()?.parse().ok()
}

/// A secret as it is stored.
struct SealedSecret {
    kind: SecretKind,
    /// Id of the user or paired server.
    row: String,
    /// The only one that it is sent to.
    peer: Option<String>,
    bytes: Vec<u8>,
    key_version: i32,
}

impl SealedSecret {
    fn bundle(user: &UserId, slot: Slot, bundle: &SealedBundle) -> Self {
        Self {
            kind: SecretKind::PushBundle(slot),
            row: user.to_string(),
            peer: None,
            bytes: bundle.sealed.clone(),
            key_version: bundle.key_version,
        }
    }

    fn player_token(server: &PairedServer) -> Self {
        Self {
            kind: SecretKind::PlayerToken,
            row: server.id.to_string(),
            peer: Some(peer(&server.address, server.port.into())),
            bytes: server.player_token_sealed.clone(),
            key_version: server.key_version,
        }
    }

    fn device(user: &str, device: &SealedDevice) -> Self {
        let SealedDevice { sealed, key_version } = device;
        let (row, bytes) = (user.to_owned(), sealed.clone());
        Self { kind: SecretKind::RegisteredDevice, row, peer: None, bytes, key_version: *key_version }
    }

    fn channel(id: &str, sealed: &[u8], key_version: i32) -> Self {
        let (row, bytes) = (id.to_owned(), sealed.to_vec());
        Self { kind: SecretKind::ChannelTarget, row, peer: None, bytes, key_version }
    }

    fn vapid_key(SealedVapidKey { sealed: bytes, key_version }: SealedVapidKey) -> Self {
        Self { kind: SecretKind::VapidKey, row: vapid_keys::ROW.to_owned(), peer: None, bytes, key_version }
    }

    fn context(&self) -> SealContext<'_> {
        SealContext { peer: self.peer.as_deref(), ..self.kind.context(&self.row) }
    }

    fn open(&self, sealer: &Sealer) -> Result<Opened, OpenError> {
        sealer.open(&self.context(), &self.bytes)
    }

    /// Seals the opened secret with the current key; `None` when a newer generation of keys sealed it, whose own
    /// process keeps it current.
    fn reseal(&self, sealer: &Sealer, opened: &Opened) -> Option<Vec<u8>> {
        let is_ours = self.key_version <= sealer.key_version();
        is_ours.then(|| sealer.seal(&self.context(), opened.plaintext.expose_secret()))
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
            SecretKind::RegisteredDevice => {
                let resealed = SealedDevice { sealed: resealed.to_vec(), key_version };
                push_registrations::replace_sealed(db, &self.row.as_str().into(), &self.bytes, &resealed)
            }
            SecretKind::ChannelTarget => {
                channels::replace_sealed(db, &self.row.as_str().into(), &self.bytes, resealed, key_version)
            }
            SecretKind::VapidKey => vapid_keys::replace_sealed(db, &self.bytes, resealed, key_version),
        }
    }

    fn unreadable(self, error: OpenError) -> UnreadableSecret {
        UnreadableSecret { kind: self.kind, row: self.row, error }
    }
}

impl From<SealedToken> for SealedSecret {
    fn from(SealedToken { id, address, port, player_token_sealed: bytes, key_version }: SealedToken) -> Self {
        let peer = Some(peer(&address, port));
        Self { kind: SecretKind::PlayerToken, row: id.to_string(), peer, bytes, key_version }
    }
}

/// The secrets of some rows that wait for this key, by row, from after this one on.
/// Number of stored secrets that keys before this one sealed.
pub fn count_older(db: &mut Db, key_version: i32) -> Result<i64, DbError> {
    let mut older = 0;
    for table in SecretTable::ALL {
        older += match table {
            SecretTable::PushCredentials => push_credentials::count_older(db, key_version)?,
            SecretTable::PairedServers => paired_servers::count_older(db, key_version)?,
            SecretTable::PushRegistrations => push_registrations::count_older(db, key_version)?,
            SecretTable::Channels => channels::count_older(db, key_version)?,
            SecretTable::VapidKeys => i64::from(vapid_keys::is_older(db, key_version)?),
        };
    }
    Ok(older)
}

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
        SecretTable::PushRegistrations => {
            let rows = push_registrations::list_older(db, key_version, after, limit)?;
            Ok(rows.iter().map(|(user, device)| SealedSecret::device(user, device)).collect())
        }
        SecretTable::Channels => {
            let rows = channels::list_older(db, key_version, after, limit)?;
            Ok(rows.iter().map(|(id, sealed, version)| SealedSecret::channel(id, sealed, *version)).collect())
        }
        SecretTable::VapidKeys => {
            let older = vapid_keys::get(db)?.filter(|key| key.key_version < key_version && after < vapid_keys::ROW);
            Ok(older.into_iter().map(SealedSecret::vapid_key).collect())
        }
    }
}

#[cfg(test)]
mod tests;
