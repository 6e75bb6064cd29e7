//! Faults of a registration that take longer, or need another hand in the database.

use companion::{
    crypto::{digest::to_hex, keys::Key32, random::Random, sealer::Sealer},
    db::push_credentials::Slot,
    domain::ids::UserId,
    simulator::registration::RegistrationFaults,
    vault::SecretKind,
};
use diesel::{Connection as _, SqliteConnection, connection::SimpleConnection as _};
use serde_json::{Value, json};

use super::alice_id;
use crate::harness::{
    game::ALICE,
    push::session_is,
    registration::{PATH, RegistrationTest, failed, states},
};

fn has_failed(shown: &Value) -> bool {
    shown["steps"].as_array().is_some_and(|steps| steps.iter().any(|step| step["state"] == "failed"))
}

/// Slow, as each request is made three times.
#[actix_web::test]
async fn a_neighbour_that_does_not_answer_is_named() {
    let test = RegistrationTest::start().await;
    let mut alice = test.app.signed_in(ALICE).await;
    type SetFault = fn(&mut RegistrationFaults);
    let silent: SetFault = |faults| faults.unavailable = u32::MAX;
    // Steps before it succeed, and are not repeated.
    let rows: [(SetFault, &str, &str); 3] = [
        (|faults| faults.check_in_without_ids = true, "google_check_in", "google_unavailable"),
        (|faults| faults.expo_refused = Some("API_ERROR".into()), "expo_token", "expo_unavailable"),
        (|faults| faults.game_status = Some(403), "game_registration", "game_unavailable"),
    ];
    for (before, step, code) in rows {
        let mut codes = Vec::new();
        for change in [before, silent] {
            test.set_faults(|_| {});
            let (id, address) = test.login(&mut alice, false, ALICE).await;
            test.set_faults(change);
            assert_eq!(test.bring(&mut alice, &id, &address).await.status, 200);
            let shown = alice.get_until(format!("{PATH}/{id}"), has_failed).await;
            let failed = failed(&shown);
            assert_eq!(failed["name"], step, "{shown}");
            assert!(failed["detail"].as_str().unwrap().ends_with('.'), "{shown}");
            codes.push((failed["code"].clone(), failed["answer"].clone()));
        }
        assert_eq!(codes[1], (json!(code), json!("status_503")));
    }
    assert_eq!(test.sites.counts().violations, Vec::<String>::new());
}

#[actix_web::test]
async fn an_installation_that_google_does_not_admit_is_named_with_its_word() {
    let test = RegistrationTest::start().await;
    let mut alice = test.app.signed_in(ALICE).await;
    let (id, address) = test.login(&mut alice, false, ALICE).await;
    test.set_faults(|faults| faults.installation_refused = Some("API_KEY_INVALID".into()));
    let shown = test.bring(&mut alice, &id, &address).await.json();
    let failed = failed(&shown);
    let known = ["name", "code", "answer"].map(|field| failed[field].as_str().unwrap());
    assert_eq!(known, ["google_installation", "google_installation_refused", "API_KEY_INVALID"]);
    assert!(failed["advice"].as_str().unwrap().contains("REGISTRATION_API_KEY"), "{shown}");
}

#[actix_web::test]
async fn a_bundle_whose_key_is_missing_is_not_replaced() {
    let test = RegistrationTest::start().await;
    let mut alice = test.app.signed_in(ALICE).await;
    let mut helper = test.app.paired(&mut alice).await;
    assert_eq!(helper.upload(&json!({ "platformId": ALICE })).await.status, 200);
    let user = UserId::from(alice.get("/me").await.json()["id"].as_str().unwrap());
    let sealer = Sealer::new(&Key32::new([99; 32]), None, 1, Random::system());
    let other = sealer.seal(&SecretKind::PushBundle(Slot::InUse).context(user.as_str()), b"{}");
    let file = test.app.directory().join("test.db");
    let mut db = SqliteConnection::establish(file.to_str().unwrap()).unwrap();
    let sealed = to_hex(&other);
    db.batch_execute(&format!("PRAGMA busy_timeout = 10000; UPDATE push_credentials SET sealed = X'{sealed}'"))
        .unwrap();

    let (id, address) = test.login(&mut alice, false, ALICE).await;
    let shown = test.bring(&mut alice, &id, &address).await.json();
    let failed = failed(&shown);
    assert_eq!((&failed["name"], &failed["code"]), (&json!("credential"), &json!("awaits_key")), "{shown}");
    assert!(failed["advice"].as_str().unwrap().contains("nothing for you to do"), "{shown}");
}

#[actix_web::test]
async fn a_credential_that_cannot_be_stored_is_stored_later_without_another_registration() {
    let test = RegistrationTest::start().await;
    let mut alice = test.app.signed_in(ALICE).await;
    let mut db = SqliteConnection::establish(test.app.directory().join("test.db").to_str().unwrap()).unwrap();
    let fault = "CREATE TRIGGER full BEFORE INSERT ON push_credentials BEGIN SELECT RAISE(ABORT, 'full'); END";
    db.batch_execute(&format!("PRAGMA busy_timeout = 10000; {fault}")).unwrap();
    let (id, address) = test.login(&mut alice, true, ALICE).await;
    let shown = test.bring(&mut alice, &id, &address).await.json();
    let failure = failed(&shown);
    assert_eq!((&failure["name"], &failure["code"]), (&json!("credential"), &json!("unavailable")), "{shown}");
    assert!(failure["detail"].as_str().unwrap().contains("could not store"), "{shown}");
    assert!(failure["advice"].as_str().unwrap().contains("not repeated"), "{shown}");
    assert!(shown["continuesAt"].is_string(), "{shown}");

    // The process ends between the registration at the game and the stored credential.
    db.batch_execute("DROP TRIGGER full").unwrap();
    let test = test.restart().await;
    test.advance(chrono::TimeDelta::minutes(1));
    let mut alice = test.app.again(&alice);
    alice.get_until(format!("{PATH}/{id}"), |shown| states(shown) == ["done"; 7]).await;
    session_is(&mut alice, "connected").await;
    assert_eq!((test.sites.counts().registrations, test.sites.devices(alice_id()).len()), (1, 1));
}

#[actix_web::test]
async fn a_registration_whose_answer_is_lost_with_the_process_is_made_over_the_same_device() {
    let test = RegistrationTest::start().await;
    let mut alice = test.app.signed_in(ALICE).await;
    let (id, address) = test.login(&mut alice, true, ALICE).await;
    test.set_faults(|faults| faults.answer_lost = true);
    test.bring(&mut alice, &id, &address).await;
    test.sites.until_hanging().await;
    let registered = test.sites.devices(alice_id());
    assert_eq!(registered.len(), 1, "the game knows it, and the service does not");
    test.set_faults(|_| {});
    let test = test.restart().await;
    let mut alice = test.app.again(&alice);
    alice.get_until(format!("{PATH}/{id}"), |shown| states(shown) == ["done"; 7]).await;
    session_is(&mut alice, "connected").await;
    let counts = test.sites.counts();
    assert_eq!((counts.check_ins, counts.expo_tokens, counts.registrations), (1, 1, 2));
    assert_eq!(test.sites.devices(alice_id()), registered);
}
