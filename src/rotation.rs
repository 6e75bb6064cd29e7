//! Key rotation that ends: seals the rows that nobody reads anew with the current key, and tells what still waits.
//!
//! What is done stands in the rows themselves, so a pass that was cut off at any moment is simply begun again. A row
//! that does not open is named and left as it is: its key may come back.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use secrecy::ExposeSecret as _;

use crate::{
    crypto::sealer::{OpenError, Place, Sealer},
    db::{
        error::DbError,
        paired_servers,
        pool::{Db, Pool},
        push_credentials::{self, Slot},
    },
    domain::ids::{ServerId, UserId},
    push::credentials,
};

/// Rows sealed anew in one transaction.
const BATCH: usize = 50;
/// Rest after each, so that others get their turn: at most 500 rows a second.
pub const PAUSE: Duration = Duration::from_millis(100);
/// Rest between two passes,
const EVERY: Duration = Duration::from_secs(60);
/// … and when the last one met rows that do not open.
const EVERY_UNREADABLE: Duration = Duration::from_secs(600);
/// Rows that a pass names; it counts the rest.
const NAMED: usize = 100;

/// A stored secret that does not open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    secret: Secret,
    row: String,
    error: OpenError,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { secret, row, error } = self;
        match secret {
            Secret::Bundle(Slot::InUse) => write!(f, "push credential of user {row}: {error}"),
            Secret::Bundle(Slot::Staged) => write!(f, "staged push credential of user {row}: {error}"),
            Secret::PlayerToken => write!(f, "player token of paired server {row}: {error}"),
        }
    }
}

/// What a row keeps sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Secret {
    Bundle(Slot),
    PlayerToken,
}

/// A sealed secret and where it is stored.
struct Sealed {
    secret: Secret,
    /// Id of the user or paired server.
    row: String,
    bytes: Vec<u8>,
    key_version: i32,
}

#[derive(Clone, Copy)]
enum Table {
    PushCredentials,
    PairedServers,
}

const TABLES: [Table; 2] = [Table::PushCredentials, Table::PairedServers];

impl Table {
    /// The secrets of the next rows after this one that keys before `key_version` sealed, in the order of their rows.
    fn list_older(self, db: &mut Db, key_version: i32, after: &str) -> Result<Vec<Sealed>, DbError> {
        let mut older = Vec::new();
        match self {
            Table::PushCredentials => {
                for row in push_credentials::list_older(db, key_version, &after.into(), BATCH)? {
                    for slot in [Slot::InUse, Slot::Staged] {
                        older.extend(row.bundle(slot).map(|bundle| Sealed {
                            secret: Secret::Bundle(slot),
                            row: row.user_id.to_string(),
                            bytes: bundle.sealed.clone(),
                            key_version: bundle.key_version,
                        }));
                    }
                }
                older.retain(|sealed| sealed.key_version < key_version);
            }
            Table::PairedServers => {
                let rows = paired_servers::list_older(db, key_version, &after.into(), BATCH)?;
                older.extend(rows.into_iter().map(|row| Sealed {
                    secret: Secret::PlayerToken,
                    row: row.id.to_string(),
                    bytes: row.player_token_sealed,
                    key_version: row.key_version,
                }));
            }
        }
        Ok(older)
    }
}

impl Sealed {
    /// Calls `with` with the place for which it was sealed.
    fn at_place<T>(&self, with: impl FnOnce(&Place<'_>) -> T) -> T {
        match self.secret {
            Secret::Bundle(_) => with(&credentials::place(&UserId::from(self.row.as_str()))),
            Secret::PlayerToken => {
                with(&Place { table: "paired_servers", column: "player_token_sealed", owner: &self.row })
            }
        }
    }

    /// The same secret under the sealer's current key.
    fn anew(&self, sealer: &Sealer) -> Result<Vec<u8>, OpenError> {
        self.at_place(|place| {
            let opened = sealer.open(place, &self.bytes)?;
            Ok(sealer.seal(place, opened.plaintext.expose_secret()))
        })
    }

    /// Stores it, unless somebody else changed it meanwhile.
    fn replace(&self, db: &mut Db, anew: &[u8], key_version: i32) -> Result<bool, DbError> {
        match self.secret {
            Secret::Bundle(slot) => {
                push_credentials::replace_sealed(db, &self.row.as_str().into(), slot, &self.bytes, anew, key_version)
            }
            Secret::PlayerToken => {
                paired_servers::replace_token(db, &ServerId::from(self.row.as_str()), &self.bytes, anew, key_version)
            }
        }
    }

    fn unreadable(self, error: OpenError) -> Unreadable {
        Unreadable { secret: self.secret, row: self.row, error }
    }
}

/// What one pass did.
#[derive(Debug, Default)]
pub struct Pass {
    /// Secrets that are sealed with the current key now.
    pub moved: usize,
    /// Secrets that do not open, and the first of them.
    pub unreadable: usize,
    pub named: Vec<Unreadable>,
}

/// Goes once over all secrets that older keys sealed, with a rest after each batch.
pub async fn pass(pool: &Pool, sealer: &Arc<Sealer>, pause: Duration) -> Result<Pass, DbError> {
    let mut done = Pass::default();
    for table in TABLES {
        let mut after = String::new();
        loop {
            let (key_version, from) = (sealer.key_version(), after);
            let older = pool.read(move |db| table.list_older(db, key_version, &from)).await?;
            let Some(last) = older.last() else { break };
            after = last.row.clone();
            let sealer = sealer.clone();
            let (moved, unreadable) = pool.write(move |db| seal_anew(db, &sealer, older)).await?;
            log::debug!("sealed {moved} rows anew with key {key_version}");
            done.moved += moved;
            done.unreadable += unreadable.len();
            done.named.extend(unreadable.into_iter().take(NAMED - done.named.len()));
            tokio::time::sleep(pause).await;
        }
    }
    Ok(done)
}

fn seal_anew(db: &mut Db, sealer: &Sealer, older: Vec<Sealed>) -> Result<(usize, Vec<Unreadable>), DbError> {
    let (mut moved, mut unreadable) = (0, Vec::new());
    for sealed in older {
        match sealed.anew(sealer) {
            Ok(anew) => moved += usize::from(sealed.replace(db, &anew, sealer.key_version())?),
            Err(error) => unreadable.push(sealed.unreadable(error)),
        }
    }
    Ok((moved, unreadable))
}

/// Passes, for ever.
pub async fn run(pool: Pool, sealer: Arc<Sealer>) {
    let mut known = Vec::new();
    loop {
        let mut rest = EVERY;
        match pass(&pool, &sealer, PAUSE).await {
            Ok(Pass { moved, unreadable, named }) => {
                if moved > 0 {
                    log::info!("sealed {moved} secrets anew with key {}", sealer.key_version());
                }
                // Everything readable has moved: what waits for the previous key is what cannot be opened.
                metrics::gauge!("companion_sealed_secrets_waiting").set(unreadable as f64);
                // Said once, not with every pass.
                if named != known {
                    named.iter().for_each(|unreadable| log::error!("{unreadable}"));
                    log::error!("{unreadable} stored secrets cannot be opened; see `companion keys status`");
                    known = named;
                }
                if unreadable > 0 {
                    rest = EVERY_UNREADABLE;
                }
            }
            Err(error) => log::warn!("the rotation of keys pauses: {error}"),
        }
        tokio::time::sleep(rest).await;
    }
}

/// How far a rotation is.
#[derive(Debug, Default)]
pub struct Status {
    /// Secrets by the number of the key that sealed them.
    pub by_key: BTreeMap<i32, usize>,
    pub unreadable: Vec<Unreadable>,
}

/// Opens every stored secret and stores nothing. Blocks.
pub fn status(pool: &Pool, sealer: &Sealer) -> Result<Status, DbError> {
    let mut status = Status::default();
    for table in TABLES {
        let mut after = String::new();
        loop {
            let all = pool.read_blocking(|db| table.list_older(db, i32::MAX, &after))?;
            let Some(last) = all.last() else { break };
            after = last.row.clone();
            for sealed in all {
                *status.by_key.entry(sealed.key_version).or_default() += 1;
                if let Err(error) = sealed.at_place(|place| sealer.open(place, &sealed.bytes).map(drop)) {
                    status.unreadable.push(sealed.unreadable(error));
                }
            }
        }
    }
    Ok(status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        crypto::{keys::Key32, random::Random},
        db::{
            push_credentials::SealedBundle,
            testing::{self, later, now},
        },
    };

    fn sealer(current: u8, previous: Option<u8>, key_version: i32) -> Arc<Sealer> {
        let key = |byte| Key32::new([byte; 32]);
        Arc::new(Sealer::new(&key(current), previous.map(key).as_ref(), key_version, Random::system()))
    }

    /// Users 0 to `count`, each with a bundle, a staged one and a paired server, all under the key 1.
    fn fill(pool: &Pool, count: usize) {
        let sealer = sealer(1, None, 1);
        for number in 0..count {
            let user = UserId::from(format!("user-{number:04}"));
            testing::user(pool, user.as_str());
            let bundle = |at| SealedBundle {
                sealed: sealer.seal(&credentials::place(&user), b"{}"),
                key_version: 1,
                uploaded_at: at,
                expires_at: at,
            };
            pool.write_blocking(|db| {
                push_credentials::upload(db, &user, &bundle(now()))?;
                push_credentials::mark_proven(db, &user, now(), now())?;
                push_credentials::upload(db, &user, &bundle(later(1)))?;
                let id = ServerId::from(format!("server-{number:04}"));
                let place = Place { table: "paired_servers", column: "player_token_sealed", owner: id.as_str() };
                let player_token_sealed = sealer.seal(&place, b"1");
                let pairing = paired_servers::Pairing { player_token_sealed, ..testing::pairing(user.as_str()) };
                paired_servers::upsert(db, &id, &pairing, now())
            })
            .unwrap();
        }
    }

    fn sweep(pool: &Pool, sealer: &Arc<Sealer>) -> Pass {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(pass(pool, sealer, Duration::ZERO)).unwrap()
    }

    fn by_key(pool: &Pool, sealer: &Sealer) -> Vec<(i32, usize)> {
        status(pool, sealer).unwrap().by_key.into_iter().collect()
    }

    #[test]
    fn a_pass_moves_every_secret_and_the_next_finds_nothing() {
        testing::on_each_database(|pool| {
            fill(pool, BATCH + 1);
            let (all, rotated) = (3 * (BATCH + 1), sealer(2, Some(1), 2));
            assert_eq!(by_key(pool, &rotated), [(1, all)]);
            let done = sweep(pool, &rotated);
            assert_eq!((done.moved, done.unreadable), (all, 0));
            // The previous key is not needed any more.
            let status = status(pool, &sealer(2, None, 2)).unwrap();
            assert_eq!((status.by_key, status.unreadable), (BTreeMap::from([(2, all)]), vec![]));
            assert_eq!(sweep(pool, &rotated).moved, 0);
        });
    }

    #[test]
    fn what_does_not_open_is_named_and_kept_until_its_key_comes_back() {
        testing::on_each_database(|pool| {
            fill(pool, 2);
            let before = pool.read_blocking(|db| push_credentials::get(db, &"user-0000".into())).unwrap().unwrap();
            let mut damaged = before.in_use.sealed.clone();
            damaged[30] ^= 1;
            pool.write_blocking(|db| {
                let user = UserId::from("user-0000");
                push_credentials::replace_sealed(db, &user, Slot::InUse, &before.in_use.sealed, &damaged, 1)
            })
            .unwrap();

            let wrong = sweep(pool, &sealer(2, Some(9), 2));
            assert_eq!((wrong.moved, wrong.unreadable), (0, 6));
            let right = sweep(pool, &sealer(2, Some(1), 2));
            assert_eq!((right.moved, right.unreadable), (5, 1));
            let name = "push credential of user user-0000: not sealed here, or damaged";
            assert_eq!(right.named[0].to_string(), name);
            let after = pool.read_blocking(|db| push_credentials::get(db, &"user-0000".into())).unwrap().unwrap();
            assert_eq!((after.in_use.sealed, after.in_use.key_version), (damaged, 1));
            let told = status(pool, &sealer(2, Some(1), 2)).unwrap();
            assert_eq!((told.by_key, told.unreadable), (BTreeMap::from([(1, 1), (2, 5)]), right.named));
        });
    }
}
