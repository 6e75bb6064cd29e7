//! Key rotation that ends: seals the secrets that no request reads with the current key, and reports what still waits. A
//! player token from before tokens were bound to address and port counts as sealed by an older key.
//!
//! Progress is stored in the rows themselves, so a pass that was cut off at any moment is simply started again. A
//! secret that does not open is reported and left as it is: its key may be configured again.

use std::{collections::BTreeMap, ops::ControlFlow, time::Duration};

use tokio::time::Instant;

use crate::{
    db::engine::{error::DbError, query_failures::log_failure},
    domain::look_rest::rest_after,
    vault::{InspectedBatch, SecretTable, UnreadableSecret, Vault},
};

/// Rows re-sealed in one transaction.
const BATCH: usize = 50;
/// Rest after each batch, so that others get their turn: at most 500 rows a second.
pub const PAUSE: Duration = Duration::from_millis(100);
/// Rest between two passes.
const EVERY: Duration = Duration::from_secs(60);
/// The longest rest between two inspections while some secrets do not open.
const EVERY_UNREADABLE: Duration = Duration::from_secs(600);
/// Secrets that a pass names; it counts the rest.
const NAMED: usize = 100;

/// Result of one pass.
#[derive(Debug, Default)]
pub struct RotationPass {
    /// Secrets that are sealed with the current key now.
    pub resealed: usize,
    pub unreadable: UnreadableSecrets,
}

/// Secrets that do not open.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct UnreadableSecrets {
    pub count: usize,
    /// The first of them.
    pub named: Vec<UnreadableSecret>,
}

impl UnreadableSecrets {
    fn extend(&mut self, more: Vec<UnreadableSecret>) {
        self.count += more.len();
        self.named.extend(more.into_iter().take(NAMED - self.named.len()));
    }
}

/// Goes once over all secrets that older keys sealed, with a rest after each batch.
pub async fn pass(vault: &Vault, pause: Duration) -> Result<RotationPass, DbError> {
    let mut done = RotationPass::default();
    for table in SecretTable::ALL {
        let mut after = String::new();
        while let Some(batch) = vault.reseal_next(table, after, BATCH).await? {
            log::debug!("re-sealed {} rows with key {}", batch.resealed, vault.key_version());
            after = batch.last_row;
            done.resealed += batch.resealed;
            done.unreadable.extend(batch.unreadable);
            tokio::time::sleep(pause).await;
        }
    }
    Ok(done)
}

/// Opens every secret, also those of the current key, which may be damaged; with a rest after each batch.
pub async fn inspection(vault: &Vault, pause: Duration) -> Result<UnreadableSecrets, DbError> {
    let mut unreadable = UnreadableSecrets::default();
    for table in SecretTable::ALL {
        let mut after = String::new();
        while let Some(batch) = vault.inspect_in_background(table, after, BATCH).await? {
            after = batch.last_row;
            unreadable.extend(batch.unreadable);
            tokio::time::sleep(pause).await;
        }
    }
    Ok(unreadable)
}

/// This process reports what does not open, until it is dropped.
struct ReportsHere(Vault);

impl Drop for ReportsHere {
    fn drop(&mut self) {
        note_unreadable(&self.0, 0);
    }
}

fn note_unreadable(vault: &Vault, count: usize) {
    metrics::gauge!("companion_sealed_secrets_waiting").set(count as f64);
    vault.set_unreadable(count);
}

/// Passes and inspections without end; where it ends, another node goes on with them.
pub async fn run(vault: Vault) {
    let _reports_here = ReportsHere(vault.clone());
    let (mut known, mut inspected) = (UnreadableSecrets::default(), None::<(Instant, Duration)>);
    loop {
        let mut rest = EVERY;
        match pass(&vault, PAUSE).await {
            Ok(done) => {
                if done.resealed > 0 {
                    log::info!("re-sealed {} secrets with key {}", done.resealed, vault.key_version());
                }
                let is_due = inspected.is_none_or(|(at, took)| at.elapsed() >= rest_after(took));
                if is_due || done.unreadable.count > 0 || known.count > 0 {
                    let began = Instant::now();
                    match inspection(&vault, PAUSE).await {
                        Ok(unreadable) => {
                            inspected = Some((Instant::now(), began.elapsed()));
                            report(&vault, &known, &unreadable);
                            known = unreadable;
                        }
                        Err(error) => log_failure("stored secrets could not be inspected", &error),
                    }
                }
                if let (1.., Some((_, took))) = (known.count, inspected) {
                    rest = rest_after(took).min(EVERY_UNREADABLE);
                }
            }
            Err(error) => log_failure("key rotation failed and is tried again later", &error),
        }
        tokio::time::sleep(rest).await;
    }
}

/// Counts what does not open, and logs it when it is not what was known.
fn report(vault: &Vault, known: &UnreadableSecrets, unreadable: &UnreadableSecrets) {
    note_unreadable(vault, unreadable.count);
    if known != unreadable {
        unreadable.named.iter().for_each(|unreadable| log::error!("{unreadable}"));
        log::error!("{} stored secrets cannot be opened; see `companion keys status`", unreadable.count);
    }
}

/// Progress of a rotation.
#[derive(Debug, Default)]
pub struct RotationStatus {
    /// Secrets by the number of the key that sealed them.
    pub by_key: BTreeMap<i32, usize>,
    pub unreadable: Vec<UnreadableSecret>,
}

/// The number of secrets that another key sealed, if no secret opens; `None` if one does, or nothing of another key is stored.
/// Blocks.
pub fn none_opens(vault: &Vault) -> Result<Option<usize>, DbError> {
    let mut stored = 0;
    let looked = inspect(vault, |batch| {
        stored += batch.unreadable.iter().filter(|unreadable| unreadable.is_of_another_key()).count();
        if batch.unreadable.len() < batch.key_versions.len() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    Ok((looked?.is_continue() && stored > 0).then_some(stored))
}

/// Opens every stored secret and stores nothing. Blocks.
pub fn status(vault: &Vault) -> Result<RotationStatus, DbError> {
    let mut status = RotationStatus::default();
    let _ = inspect(vault, |batch| {
        for key_version in batch.key_versions {
            *status.by_key.entry(key_version).or_default() += 1;
        }
        status.unreadable.extend(batch.unreadable);
        ControlFlow::Continue(())
    })?;
    Ok(status)
}

/// Opens stored secrets, batch by batch, until `look` has seen enough; `Break` if it had.
fn inspect(vault: &Vault, mut look: impl FnMut(InspectedBatch) -> ControlFlow<()>) -> Result<ControlFlow<()>, DbError> {
    for table in SecretTable::ALL {
        let mut after = String::new();
        while let Some(batch) = vault.inspect_next(table, &after, BATCH)? {
            after.clone_from(&batch.last_row);
            if look(batch).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
    }
    Ok(ControlFlow::Continue(()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        crypto::{keys::Key32, random::Random, sealer::Sealer},
        db::{
            engine::pool::Pool,
            paired_servers::{self, PairedServer, StoredPairing},
            push_credentials::{self, SealedBundle, Slot},
            testing::{self, later, now},
        },
        domain::ids::{ServerId, UserId},
        vault::SecretKind,
    };

    fn vault(pool: &Pool, current: u8, previous: Option<u8>, key_version: i32) -> Vault {
        let key = |byte| Key32::new([byte; 32]);
        let sealer = Sealer::new(&key(current), previous.map(key).as_ref(), key_version, Random::system());
        Vault::new(pool.clone(), Arc::new(sealer))
    }

    /// Users 0 to `count`, each with a bundle, a staged one and a paired server, all under the key 1.
    fn fill(pool: &Pool, count: usize) {
        let vault = vault(pool, 1, None, 1);
        for number in 0..count {
            let user = UserId::from(format!("user-{number:04}"));
            testing::user(pool, user.as_str());
            let bundle = |at| SealedBundle {
                sealed: vault.seal_push_bundle(&user, b"{}"),
                key_version: 1,
                uploaded_at: at,
                uploaded_by: None,
                expires_at: at,
            };
            pool.write_blocking(|db| {
                push_credentials::upload(db, &user, &bundle(now()))?;
                push_credentials::mark_proven(db, &user, now(), now())?;
                push_credentials::upload(db, &user, &bundle(later(1)))?;
                let id = ServerId::from(format!("server-{number:04}"));
                let pairing = testing::pairing(user.as_str());
                let player_token_sealed = vault.seal_player_token(&id, &pairing.address, pairing.port, 1);
                let pairing = StoredPairing { player_token_sealed, ..pairing };
                paired_servers::put(db, &id, &pairing, now())
            })
            .unwrap();
        }
    }

    fn run_here<T>(task: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(task)
    }

    fn sweep(vault: &Vault) -> RotationPass {
        run_here(pass(vault, Duration::ZERO)).unwrap()
    }

    #[test]
    fn a_pass_reseals_every_secret_and_the_next_finds_nothing() {
        testing::on_each_database(|pool| {
            fill(pool, BATCH + 1);
            let (all, rotated) = (3 * (BATCH + 1), vault(pool, 2, Some(1), 2));
            assert_eq!(status(&rotated).unwrap().by_key, BTreeMap::from([(1, all)]));
            let done = sweep(&rotated);
            assert_eq!((done.resealed, done.unreadable.count), (all, 0));
            // The previous key is no longer needed.
            let status = status(&vault(pool, 2, None, 2)).unwrap();
            assert_eq!((status.by_key, status.unreadable), (BTreeMap::from([(2, all)]), vec![]));
            assert_eq!(sweep(&rotated).resealed, 0);
        });
    }

    #[test]
    fn a_pass_binds_older_tokens_to_their_game_server() {
        testing::on_each_database(|pool| {
            testing::user(pool, "owner");
            let sealer = Sealer::new(&Key32::new([1; 32]), None, 1, Random::system());
            let sealed = sealer.seal(&SecretKind::PlayerToken.context("server"), b"7");
            // The key is the current one: the step of the schema has set its number back.
            let pairing = StoredPairing { player_token_sealed: sealed, key_version: 0, ..testing::pairing("owner") };
            let (ours, server) = (vault(pool, 1, None, 1), ServerId::from("server"));
            let before = pool.write_blocking(|db| paired_servers::put(db, &server, &pairing, now())).unwrap();
            assert!(ours.is_player_token(&before, 7));
            assert_eq!(status(&ours).unwrap().by_key, BTreeMap::from([(0, 1)]));
            assert_eq!((sweep(&ours).resealed, sweep(&ours).resealed), (1, 0));
            assert_eq!(status(&ours).unwrap().by_key, BTreeMap::from([(1, 1)]));
            let after = pool.read_blocking(|db| paired_servers::get(db, &server)).unwrap();
            assert!(ours.is_player_token(&after, 7));
            assert!(!ours.is_player_token(&PairedServer { port: after.port + 1, ..after.clone() }, 7));
            // A row that is changed past the service is found.
            let moved = StoredPairing { address: "192.0.2.9".into(), key_version: 1, ..pairing };
            let moved = StoredPairing { player_token_sealed: after.player_token_sealed, ..moved };
            pool.write_blocking(|db| paired_servers::put(db, &server, &moved, now())).unwrap();
            let found = run_here(inspection(&ours, Duration::ZERO)).unwrap();
            assert_eq!((found.count, sweep(&ours).unreadable.count), (1, 0));
            let name = "player token of paired server server: not sealed here, or damaged";
            assert_eq!(found.named[0].to_string(), name);
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

            let wrong = sweep(&vault(pool, 2, Some(9), 2));
            assert_eq!((wrong.resealed, wrong.unreadable.count), (0, 6));
            let right = sweep(&vault(pool, 2, Some(1), 2));
            assert_eq!((right.resealed, right.unreadable.count), (5, 1));
            let name = "push credential of user user-0000: not sealed here, or damaged";
            assert_eq!(right.unreadable.named[0].to_string(), name);
            let after = pool.read_blocking(|db| push_credentials::get(db, &"user-0000".into())).unwrap().unwrap();
            assert_eq!((after.in_use.sealed, after.in_use.key_version), (damaged, 1));
            let reported = status(&vault(pool, 2, Some(1), 2)).unwrap();
            assert_eq!(
                (reported.by_key, reported.unreadable),
                (BTreeMap::from([(1, 1), (2, 5)]), right.unreadable.named)
            );
        });
    }

    #[test]
    fn a_damaged_secret_of_the_current_key_is_found() {
        testing::on_each_database(|pool| {
            fill(pool, BATCH + 1);
            let ours = vault(pool, 1, None, 1);
            let found = || run_here(inspection(&ours, Duration::ZERO)).unwrap();
            assert_eq!(found(), UnreadableSecrets::default());
            let server = ServerId::from("server-0050");
            let sealed = pool.read_blocking(|db| paired_servers::get(db, &server)).unwrap().player_token_sealed;
            let mut damaged = sealed.clone();
            damaged[30] ^= 1;
            pool.write_blocking(|db| paired_servers::replace_token(db, &server, &sealed, &damaged, 1)).unwrap();
            assert_eq!((sweep(&ours).unreadable.count, found().count), (0, 1));
            let name = "player token of paired server server-0050: not sealed here, or damaged";
            assert_eq!(found().named[0].to_string(), name);
        });
    }
}
