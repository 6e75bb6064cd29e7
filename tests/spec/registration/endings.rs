//! Registrations that their users end, and what stays of them.

use diesel::{
    Connection as _, QueryableByName, RunQueryDsl as _, SqliteConnection, connection::SimpleConnection as _, sql_query,
    sql_types::BigInt,
};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::alice_id;
use crate::harness::{
    game::ALICE,
    push::session_is,
    registration::{PATH, RegistrationTest, states},
    relay_client::PATIENCE,
};

#[derive(QueryableByName)]
struct Counted {
    #[diesel(sql_type = BigInt)]
    rows: i64,
}

/// Rows of devices that are registered for users.
fn devices_kept(test: &RegistrationTest) -> i64 {
    let mut db = SqliteConnection::establish(test.app.directory().join("test.db").to_str().unwrap()).unwrap();
    db.batch_execute("PRAGMA busy_timeout = 10000").unwrap();
    let counted: Counted = sql_query("SELECT count(*) AS rows FROM push_registrations").get_result(&mut db).unwrap();
    counted.rows
}

#[actix_web::test]
async fn the_identity_of_a_device_outlives_its_credential_and_ends_with_its_user() {
    let test = RegistrationTest::start().await;
    let (mut alice, id) = test.registered(false).await;
    let device = test.sites.devices(alice_id())[0];
    assert_eq!(alice.delete("/credentials/push").await.json()["unregistered"], false);
    let shown = alice.get("/credentials/push").await.json();
    assert_eq!((&shown["state"], &shown["registration"]), (&json!("missing"), &Value::Null), "nothing of it is shown");
    alice.get(&format!("{PATH}/{id}")).await.expect_problem(404, "not_found");
    alice.delete("/credentials/push").await.expect_problem(404, "not_found");
    // A login that does not come back takes nothing away.
    test.login(&mut alice, false, ALICE).await;
    test.advance(chrono::TimeDelta::hours(30));
    let test = test.restart().await;

    let mut alice = test.app.signed_in(ALICE).await;
    let (id, address) = test.login(&mut alice, true, ALICE).await;
    let answer = test.bring(&mut alice, &id, &address).await;
    assert_eq!(states(&answer.json()), ["done"; 7], "{}", answer.text());
    session_is(&mut alice, "connected").await;
    assert_eq!((test.sites.devices(alice_id()), test.sites.counts().check_ins), (vec![device], 1));

    assert_eq!(alice.delete("/credentials/push").await.json()["unregistered"], true);
    assert_eq!(devices_kept(&test), 1);
    let request = alice.request(Method::DELETE, "/me").json(&json!({ "confirm": ALICE }));
    assert_eq!(alice.send(request).await.status, 200);
    assert_eq!(devices_kept(&test), 0);
}

#[actix_web::test]
async fn a_credential_that_is_deleted_ends_the_steps_that_are_made_for_it() {
    let test = RegistrationTest::start().await;
    let mut alice = test.app.signed_in(ALICE).await;
    let (id, address) = test.login(&mut alice, true, ALICE).await;
    test.set_faults(|faults| faults.not_yet = u32::MAX);
    test.bring(&mut alice, &id, &address).await;
    assert_eq!(alice.delete("/credentials/push").await.status, 200);
    test.set_faults(|_| {});
    // Nothing of the one before is in the way, once its step has ended.
    let ended = async { while alice.post(PATH, Some(&json!({ "renew": true }))).await.status == 409 {} };
    timeout(PATIENCE, ended).await.unwrap();
    let (id, address) = test.login(&mut alice, true, ALICE).await;
    let answer = test.bring(&mut alice, &id, &address).await;
    assert_eq!((answer.status, states(&answer.json())), (200, vec!["done"; 7]), "{}", answer.text());
    assert_eq!(alice.delete("/credentials/push").await.json()["unregistered"], true);

    // The game registers the device while its row is deleted.
    let (id, address) = test.login(&mut alice, true, ALICE).await;
    test.set_faults(|faults| faults.late = Some("game_registration".to_owned()));
    test.bring(&mut alice, &id, &address).await;
    assert_eq!(alice.delete("/credentials/push").await.json()["unregistered"], false);
    test.set_faults(|_| {});
    alice.get_until("/credentials/push", |_| test.sites.counts().unregistrations == 3).await;
    assert!(test.sites.devices(alice_id()).is_empty());
}

#[actix_web::test]
async fn a_user_who_erases_themselves_is_unregistered() {
    let test = RegistrationTest::start().await;
    let (mut alice, _) = test.registered(true).await;
    assert_eq!(test.sites.devices(alice_id()).len(), 1);
    let request = alice.request(Method::DELETE, "/me").json(&json!({ "confirm": ALICE }));
    assert_eq!(alice.send(request).await.status, 200);
    assert_eq!((test.sites.devices(alice_id()).len(), test.sites.counts().unregistrations), (0, 1));
}
