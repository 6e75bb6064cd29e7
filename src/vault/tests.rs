use std::{sync::mpsc, time::Duration};

use tokio::{sync::oneshot, time::timeout};

use super::*;
use crate::{
    config::Database,
    crypto::{keys::Key32, random::Random},
    db::{
        paired_servers::StoredPairing,
        push_credentials::PushCredential,
        testing::{self, later, now},
    },
};

/// Longest wait for anything; only a test that fails waits this long.
const PATIENCE: Duration = Duration::from_secs(30);

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
    let before = testing::server(&pool, "user", "server");
    replace_token(&pool, &before.player_token_sealed, &sealed_token(&vault, &before, 7), 1);
    (directory, pool)
}

/// The token, sealed for the place of this row.
fn sealed_token(vault: &Vault, row: &PairedServer, token: i32) -> Vec<u8> {
    vault.seal_player_token(&row.id, &row.address, row.port, token)
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
    for vault in
        [vault(&pool, 1, None, 1), vault(&pool, 2, Some(1), 2), vault(&pool, 2, None, 2), vault(&pool, 1, Some(2), 1)]
    {
        let before = stored_server(&pool);
        let (row, token) = vault.player_token(&"server".into()).await.unwrap();
        assert_eq!((row, *token.expose_secret()), (before.clone(), 7));
        let after = stored_server(&pool);
        versions.push((after.key_version, after.player_token_sealed != before.player_token_sealed));
    }
    assert_eq!(versions, [(1, false), (2, true), (2, false), (2, false)]);
}

#[tokio::test]
async fn an_older_player_token_is_bound_to_its_game_server_when_it_is_read() {
    let (_directory, pool) = filled();
    let (ours, before) = (vault(&pool, 1, None, 1), stored_server(&pool));
    let older = ours.sealer.seal(&SecretKind::PlayerToken.context("server"), b"7");
    replace_token(&pool, &before.player_token_sealed, &older, 1);
    let (_, token) = ours.player_token(&"server".into()).await.unwrap();
    assert_eq!(*token.expose_secret(), 7);
    let bound = stored_server(&pool);
    assert_ne!(bound.player_token_sealed, older);
    ours.player_token(&"server".into()).await.unwrap();
    assert_eq!(stored_server(&pool), bound, "once");

    // The address is changed past the service.
    let elsewhere = StoredPairing {
        address: "192.0.2.9".into(),
        player_token_sealed: bound.player_token_sealed,
        ..testing::pairing("user")
    };
    pool.write_blocking(|db| paired_servers::put(db, &"server".into(), &elsewhere, later(1))).unwrap();
    let refused = ours.player_token(&"server".into()).await;
    assert!(matches!(refused, Err(VaultError::Unreadable(OpenError::Damaged))));
}

#[tokio::test]
async fn the_key_for_browsers_is_read_although_the_database_takes_nothing() {
    let (_directory, pool) = filled();
    let vault = vault(&pool, 1, None, 1);
    let made = vault.vapid_key(now()).await.unwrap();
    let (begin, has_begun) = oneshot::channel();
    let (release, is_released) = mpsc::channel::<()>();
    let stuck = pool.write(move |_: &mut Db| {
        begin.send(()).unwrap();
        // Until its sender is dropped.
        let _ = is_released.recv();
        Ok::<_, DbError>(())
    });
    let read = async {
        has_begun.await.unwrap();
        let read = timeout(PATIENCE, vault.vapid_key(later(1))).await;
        drop(release);
        read.expect("it waits for no writer").unwrap()
    };
    let (stuck, read) = tokio::join!(stuck, read);
    stuck.unwrap();
    assert_eq!(read.public(), made.public());
}

#[tokio::test]
async fn every_secret_is_counted_until_the_current_key_has_sealed_it() {
    let (_directory, pool) = filled();
    vault(&pool, 1, None, 1).vapid_key(now()).await.unwrap();
    let older = || pool.read_blocking(|db| count_older(db, 2)).unwrap();
    assert_eq!(older(), 3, "bundle, player token and the key for pushes to browsers");
    let current = vault(&pool, 2, Some(1), 2);
    for table in SecretTable::ALL {
        let batch = current.reseal_next(table, String::new(), 10).await.unwrap();
        assert!(batch.is_none_or(|batch| batch.unreadable.is_empty()), "{table:?}");
    }
    assert_eq!(older(), 0);
}

#[tokio::test]
async fn what_changed_since_it_was_read_is_not_replaced() {
    let (_directory, pool) = filled();
    let vault = vault(&pool, 2, Some(1), 2);
    let row = stored_server(&pool);
    let read = SealedSecret::player_token(&row);
    let resealed = read.reseal(&vault.sealer, &read.open(&vault.sealer).unwrap());
    // Paired again meanwhile.
    replace_token(&pool, &read.bytes, &sealed_token(&vault, &row, 8), 2);
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
    for (user, slot) in [("user", Slot::Staged), ("stranger", Slot::InUse)] {
        assert!(matches!(ours.push_bundle(&user.into(), slot).await, Err(VaultError::Missing)));
    }
    assert!(matches!(ours.player_token(&"no server".into()).await, Err(VaultError::Missing)));

    let context = SecretKind::PlayerToken.context("server");
    replace_token(&pool, &before.1.player_token_sealed, &ours.sealer.seal(&context, b"seven"), 1);
    assert!(matches!(ours.player_token(&"server".into()).await, Err(VaultError::Malformed)));
}

#[test]
fn a_token_is_recognised_in_its_own_row_only() {
    let (_directory, pool) = filled();
    let (vault, row) = (vault(&pool, 2, Some(1), 2), stored_server(&pool));
    assert!(vault.is_player_token(&row, 7));
    assert!(!vault.is_player_token(&row, 8));
    for other in [
        PairedServer { id: "another".into(), updated_at: later(1), ..row.clone() },
        PairedServer { address: "192.0.2.2".into(), ..row.clone() },
        PairedServer { port: 28_083, ..row },
    ] {
        assert!(!vault.is_player_token(&other, 7), "{other:?}");
    }
}
