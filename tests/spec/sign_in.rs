//! Sign-in and session: GET /auth/platform, GET /auth/platform/callback.

use diesel::{Connection as _, SqliteConnection, connection::SimpleConnection as _};
use serde_json::json;

use crate::harness::{
    app::{ADMIN, BASE, FRONTEND, TestApp},
    browser::{Answer, Browser},
    on_each_database,
    provider::{Assertion, Mood},
    relay_client::RelayClient,
};

const ALICE: &str = "76561198000000001";
const BOB: &str = "76561198000000002";

/// A browser whose login was confirmed for Alice, before it calls the callback.
async fn confirmed(app: &TestApp) -> (Browser, Assertion) {
    let mut browser = app.browser();
    let login = browser.get("/auth/platform").await;
    let assertion = app.provider.confirm(login.location(), ALICE, app.clock.now());
    (browser, assertion)
}

/// The answer is this refusal, and there is no session.
async fn expect_refused(mut browser: Browser, answer: Answer, status: u16, code: &str) {
    answer.expect_problem(status, code);
    assert_eq!(answer.set_cookie("rp_sess"), None);
    browser.get("/me").await.expect_problem(401, "unauthenticated");
}

/// After this change the callback fails before the provider is asked.
async fn refused_locally(change: impl Fn(&TestApp, &mut Assertion)) {
    let app = TestApp::start().await;
    let (mut browser, mut assertion) = confirmed(&app).await;
    change(&app, &mut assertion);
    let answer = browser.get(&assertion.path()).await;
    expect_refused(browser, answer, 400, "sign_in_rejected").await;
    assert!(app.provider.asked().is_empty(), "nothing is sent before the local checks pass");
}

/// With this answer of the provider, the callback fails so.
async fn refused_by_provider(mood: Mood, status: u16, code: &str) {
    let app = TestApp::start().await;
    let (mut browser, assertion) = confirmed(&app).await;
    app.provider.set_mood(mood).await;
    let answer = browser.get(&assertion.path()).await;
    expect_refused(browser, answer, status, code).await;
}

on_each_database!(a_user_signs_in, |app| {
    let mut browser = app.browser();
    let login = browser.get(&format!("/auth/platform?return={ADMIN}/users")).await;
    assert_eq!(login.status, 302);
    assert!(login.location().starts_with(&app.provider.endpoint()));
    let cookie = login.set_cookie("rp_login_").or_else(|| {
        let name = browser.cookies.keys().find(|name| name.starts_with("rp_login_"))?;
        login.set_cookie(name)
    });
    let cookie = cookie.expect("a login-state cookie");
    for attribute in ["HttpOnly", "SameSite=Lax", "Path=/auth", "Max-Age=600"] {
        assert!(cookie.contains(attribute), "{attribute}: {cookie}");
    }

    let assertion = app.provider.confirm(login.location(), ALICE, app.clock.now());
    let answer = browser.get(&assertion.path()).await;
    assert_eq!(answer.status, 302, "{}", answer.text());
    assert_eq!(answer.location(), format!("{ADMIN}/users"));
    let cookie = answer.set_cookie("rp_sess").unwrap();
    for attribute in ["HttpOnly", "SameSite=Lax", "Path=/", "Max-Age=2592000"] {
        assert!(cookie.contains(attribute), "{attribute}: {cookie}");
    }
    assert!(!cookie.contains("Secure") && !cookie.contains("Domain"), "{cookie}");
    assert!(!browser.cookies.keys().any(|name| name.starts_with("rp_login")), "the login state is gone");

    let me = browser.get("/me").await;
    assert_eq!(me.status, 200);
    let id = me.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(
        me.json(),
        json!({
            "id": id, "platformId": ALICE, "displayName": ALICE, "avatarUrl": null, "chatLinked": false, "admin": false,
            "timeZone": null, "locale": null,
            "subscription": {
                "tier": null, "source": null, "paymentSubscriptionId": null, "status": null, "interval": null, "currentPeriodEnd": null, "cancelAtPeriodEnd": false,
                "entitlements": { "guestsPerServer": 0, "watchedShops": 0, "enforced": false },
                "used": { "guestsPerServer": 0, "watchedShops": 0 }, "why": ["There is no subscription."],
            },
        })
    );

    let again = app.signed_in(ALICE).await.get("/me").await.json();
    assert_eq!(again["id"], id.as_str(), "the same account is the same user");
    let other = app.signed_in(BOB).await.get("/me").await.json();
    assert_ne!(other["id"], id.as_str());
});

#[actix_web::test]
async fn beginning_to_sign_in_writes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("test.db").display().to_string();
    let app = TestApp::start_on(format!("sqlite:{file}"), &[]).await;
    let mut other = SqliteConnection::establish(&file).unwrap();
    other.batch_execute("BEGIN IMMEDIATE").unwrap();
    assert_eq!(app.browser().get("/auth/platform").await.status, 302, "no one can write now");
}

#[actix_web::test]
async fn name_and_picture_come_from_the_platform_and_stay_when_it_does_not_answer() {
    let app = TestApp::start_with(&["--platform-api-key=0123456789ABCDEF"]).await;
    app.provider.set_profile(&format!(
        r#"{{"steamid":"{ALICE}","personaname":"Alice\n","avatarfull":"https://avatars.test/alice.jpg"}}"#
    ));
    let me = app.signed_in(ALICE).await.get("/me").await.json();
    assert_eq!((&me["displayName"], &me["avatarUrl"]), (&json!("Alice"), &json!("https://avatars.test/alice.jpg")));

    app.provider.set_profile("nonsense");
    let me = app.signed_in(ALICE).await.get("/me").await.json();
    assert_eq!((&me["displayName"], &me["avatarUrl"]), (&json!("Alice"), &json!("https://avatars.test/alice.jpg")));
}

#[actix_web::test]
async fn an_unsafe_return_falls_back_to_the_front_end() {
    let app = TestApp::start().await;
    for wanted in [
        "return=https://evil.test".to_owned(),
        format!("return={FRONTEND}.evil.test"),
        format!("return={FRONTEND}@evil.test"),
        format!("return={ADMIN}&return={ADMIN}"),
        String::new(),
    ] {
        let mut browser = app.browser();
        let login = browser.get(&format!("/auth/platform?{wanted}")).await;
        let assertion = app.provider.confirm(login.location(), ALICE, app.clock.now());
        let answer = browser.get(&assertion.path()).await;
        assert_eq!(answer.location(), format!("{FRONTEND}/"), "{wanted}");
        app.clock.advance(chrono::Duration::seconds(10));
    }
}

#[actix_web::test]
async fn several_tabs_sign_in_side_by_side() {
    let app = TestApp::start().await;
    let mut browser = app.browser();
    let first = browser.get(&format!("/auth/platform?return={ADMIN}/")).await;
    let second = browser.get(&format!("/auth/platform?return={FRONTEND}/map")).await;
    for (login, target) in [(second, format!("{FRONTEND}/map")), (first, format!("{ADMIN}/"))] {
        let assertion = app.provider.confirm(login.location(), ALICE, app.clock.now());
        assert_eq!(browser.get(&assertion.path()).await.location(), target);
    }
}

#[actix_web::test]
async fn a_user_who_declines_comes_back_without_a_session() {
    let app = TestApp::start().await;
    for mode in ["cancel", "error", "setup_needed"] {
        let mut browser = app.browser();
        let login = browser.get(&format!("/auth/platform?return={ADMIN}/")).await;
        let answer = browser.get(&app.provider.answer(login.location(), mode).path()).await;
        assert_eq!((answer.status, answer.location()), (302, format!("{ADMIN}/?signIn=cancelled").as_str()));
        assert_eq!(answer.set_cookie("rp_sess"), None);
        assert!(browser.cookies.is_empty());
    }
    assert!(app.provider.asked().is_empty());
}

#[actix_web::test]
async fn check_1_a_repeated_parameter_is_refused() {
    refused_locally(|app, assertion| {
        let forged = format!("{}{BOB}", app.provider.claimed_id_prefix());
        assertion.parameters.push(("openid.claimed_id".into(), forged));
    })
    .await;
    refused_locally(|_, assertion| assertion.remove("openid.response_nonce")).await;
    refused_locally(|_, assertion| assertion.set("openid.identity", "")).await;
}

#[actix_web::test]
async fn check_2_another_namespace_is_refused() {
    refused_locally(|_, assertion| assertion.set("openid.ns", "http://openid.net/signon/1.1")).await;
}

#[actix_web::test]
async fn check_3_a_missing_mode_is_refused() {
    refused_locally(|_, assertion| assertion.remove("openid.mode")).await;
}

#[actix_web::test]
async fn check_4_another_browsers_login_is_refused() {
    let app = TestApp::start().await;
    let (_, assertion) = confirmed(&app).await;
    let mut other = app.browser();
    let answer = other.get(&assertion.path()).await;
    expect_refused(other, answer, 400, "sign_in_rejected").await;

    // Nor with a login of its own under way.
    let mut other = app.browser();
    other.get("/auth/platform").await;
    let answer = other.get(&assertion.path()).await;
    expect_refused(other, answer, 400, "sign_in_rejected").await;

    // Nor with the cookie of its own login under the other's name.
    let mut other = app.browser();
    other.get("/auth/platform").await;
    let own = other.cookies.values().next().unwrap().clone();
    let state = assertion.parameters.iter().find(|(name, _)| name == "state").unwrap().1.clone();
    other.cookies.insert(format!("rp_login_{}", &state[..6]), own);
    let answer = other.get(&assertion.path()).await;
    expect_refused(other, answer, 400, "sign_in_rejected").await;
    assert!(app.provider.asked().is_empty());
}

#[actix_web::test]
async fn check_4_a_login_is_valid_once_and_for_ten_minutes() {
    let app = TestApp::start().await;
    let (mut browser, assertion) = confirmed(&app).await;
    let before = browser.clone();
    assert_eq!(browser.get(&assertion.path()).await.status, 302);
    let mut again = before.clone();
    let answer = again.get(&assertion.path()).await;
    expect_refused(again, answer, 400, "sign_in_rejected").await;

    // Nor with a second answer of the provider, whose nonce is new.
    let (mut browser, assertion) = confirmed(&app).await;
    let mut copy = browser.clone();
    assert_eq!(browser.get(&assertion.path()).await.status, 302);
    let (_, other) = confirmed(&app).await;
    let mut second = assertion.clone();
    let nonce = other.parameters.iter().find(|(name, _)| name == "openid.response_nonce").unwrap().1.clone();
    second.set("openid.response_nonce", nonce);
    let yes = "ns:http://specs.openid.net/auth/2.0\nis_valid:true\n";
    app.provider.set_mood(Mood::Says(yes.into())).await;
    let answer = copy.get(&second.path()).await;
    expect_refused(copy, answer, 400, "sign_in_rejected").await;

    // A failed callback ends it in this browser.
    let (mut browser, assertion) = confirmed(&app).await;
    let mut broken = assertion.clone();
    broken.set("openid.ns", "x");
    browser.get(&broken.path()).await.expect_problem(400, "sign_in_rejected");
    let answer = browser.get(&assertion.path()).await;
    expect_refused(browser, answer, 400, "sign_in_rejected").await;

    let mut browser = app.browser();
    let login = browser.get("/auth/platform").await;
    app.clock.advance(chrono::Duration::seconds(601));
    let late = app.provider.confirm(login.location(), ALICE, app.clock.now());
    let answer = browser.get(&late.path()).await;
    expect_refused(browser, answer, 400, "sign_in_rejected").await;
}

#[actix_web::test]
async fn the_provider_is_asked_once_for_a_login() {
    let app = TestApp::start().await;
    let (mut browser, assertion) = confirmed(&app).await;
    let mut again = browser.clone();
    app.provider.set_mood(Mood::Status(500)).await;
    browser.get(&assertion.path()).await.expect_problem(503, "identity_provider_unavailable");
    app.provider.set_mood(Mood::Honest).await;
    let answer = again.get(&assertion.path()).await;
    expect_refused(again, answer, 400, "sign_in_rejected").await;
    assert_eq!(app.provider.asked().len(), 1, "a forger with one login cookie makes one request there");
}

#[actix_web::test]
async fn check_5_another_provider_is_refused() {
    refused_locally(|_, assertion| assertion.set("openid.op_endpoint", "https://evil.test/openid/login")).await;
}

#[actix_web::test]
async fn check_6_an_answer_for_another_address_is_refused() {
    refused_locally(|_, assertion| {
        let foreign = assertion.get_mut("openid.return_to").replace(BASE, "https://evil.test");
        assertion.set("openid.return_to", foreign);
    })
    .await;
    refused_locally(|_, assertion| {
        let state = assertion.get_mut("state").clone();
        assertion.parameters.push(("state".into(), state));
    })
    .await;
}

#[actix_web::test]
async fn check_7_an_unsigned_identity_is_refused() {
    refused_locally(|_, assertion| {
        assertion.set("openid.signed", "op_endpoint,return_to,response_nonce,assoc_handle,identity");
    })
    .await;
}

#[actix_web::test]
async fn check_8_a_foreign_identity_is_refused() {
    refused_locally(|_, assertion| {
        let foreign = format!("https://evil.test/openid/id/{ALICE}");
        assertion.set("openid.claimed_id", foreign.clone());
        assertion.set("openid.identity", foreign);
    })
    .await;
    refused_locally(|app, assertion| {
        assertion.set("openid.claimed_id", format!("{}{BOB}", app.provider.claimed_id_prefix()));
    })
    .await;
}

#[actix_web::test]
async fn check_9_an_old_answer_is_refused() {
    let app = TestApp::start().await;
    let (mut browser, assertion) = confirmed(&app).await;
    app.clock.advance(chrono::Duration::seconds(301));
    let answer = browser.get(&assertion.path()).await;
    expect_refused(browser, answer, 400, "sign_in_rejected").await;
    assert!(app.provider.asked().is_empty());
}

#[actix_web::test]
async fn check_10_a_missing_signature_is_refused() {
    refused_locally(|_, assertion| assertion.remove("openid.sig")).await;
    refused_locally(|_, assertion| assertion.remove("openid.assoc_handle")).await;
}

#[actix_web::test]
async fn check_11_the_provider_is_asked_about_everything_that_came() {
    let app = TestApp::start().await;
    let (mut browser, mut assertion) = confirmed(&app).await;
    assertion.parameters.push(("openid.unsigned".into(), "a+b/c=&d".into()));
    browser.get(&assertion.path()).await;
    let mut expected: Vec<_> =
        assertion.parameters.iter().filter(|(name, _)| name.starts_with("openid.")).cloned().collect();
    for (name, value) in &mut expected {
        if name == "openid.mode" {
            *value = "check_authentication".into();
        }
    }
    assert_eq!(app.provider.asked(), [expected]);
}

#[actix_web::test]
async fn check_11_what_the_provider_never_signed_is_refused() {
    let app = TestApp::start().await;
    let (mut browser, mut assertion) = confirmed(&app).await;
    let forged = format!("{}{BOB}", app.provider.claimed_id_prefix());
    assertion.set("openid.claimed_id", forged.clone());
    assertion.set("openid.identity", forged);
    let answer = browser.get(&assertion.path()).await;
    expect_refused(browser, answer, 400, "sign_in_rejected").await;
    assert_eq!(app.provider.asked().len(), 1);
}

#[actix_web::test]
async fn check_12_only_is_valid_true_confirms() {
    for body in ["", "is_valid:true\n", "error:bad_handle\n", "ns:http://specs.openid.net/auth/2.0\nx:is_valid:true\n"]
    {
        refused_by_provider(Mood::Says(body.into()), 400, "sign_in_rejected").await;
    }
    for status in [302, 400, 404] {
        refused_by_provider(Mood::Status(status), 400, "sign_in_rejected").await;
    }
}

#[actix_web::test]
async fn check_12_a_provider_in_trouble_is_no_forgery() {
    for status in [403, 429, 500, 503] {
        refused_by_provider(Mood::Status(status), 503, "identity_provider_unavailable").await;
    }
    refused_by_provider(Mood::Says("x".repeat(65 * 1024)), 503, "identity_provider_unavailable").await;
    refused_by_provider(Mood::Gone, 503, "identity_provider_unavailable").await;
}

#[actix_web::test]
async fn check_12_a_provider_that_does_not_answer_is_given_up_at_its_deadline() {
    refused_by_provider(Mood::Silent, 503, "identity_provider_unavailable").await;
}

on_each_database!(check_13_an_assertion_signs_in_once, |app| {
    // Two logins of one browser; the answer to the first is replayed into the second, whose state it then carries.
    let mut browser = app.browser();
    let login = browser.get("/auth/platform").await;
    let first = app.provider.confirm(login.location(), ALICE, app.clock.now());
    let nonce = first.parameters.iter().find(|(name, _)| name == "openid.response_nonce").unwrap().1.clone();
    let yes = "ns:http://specs.openid.net/auth/2.0\nis_valid:true\n";
    app.provider.set_mood(Mood::Says(yes.into())).await;
    assert_eq!(browser.get(&first.path()).await.status, 302);

    let mut other = app.browser();
    let login = other.get("/auth/platform").await;
    let mut replay = app.provider.confirm(login.location(), ALICE, app.clock.now());
    replay.set("openid.response_nonce", nonce);
    let answer = other.get(&replay.path()).await;
    expect_refused(other, answer, 400, "sign_in_rejected").await;
    assert_eq!(app.provider.asked().len(), 2, "the provider said yes both times");

    // Two at the same moment: exactly one gets in.
    let (mut left, mut right) = (app.browser(), app.browser());
    let left_login = left.get("/auth/platform").await;
    let right_login = right.get("/auth/platform").await;
    let left_answer = app.provider.confirm(left_login.location(), ALICE, app.clock.now());
    let mut right_answer = app.provider.confirm(right_login.location(), ALICE, app.clock.now());
    let nonce = left_answer.parameters.iter().find(|(name, _)| name == "openid.response_nonce").unwrap().1.clone();
    right_answer.set("openid.response_nonce", nonce);
    let (left_path, right_path) = (left_answer.path(), right_answer.path());
    let (one, two) = tokio::join!(left.get(&left_path), right.get(&right_path));
    let mut statuses = [one.status, two.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [302, 400]);
});

on_each_database!(check_14_sign_in_makes_a_fresh_session_and_ends_the_presented_one, |app| {
    let (mut browser, mut elsewhere) = (app.signed_in(ALICE).await, app.signed_in(ALICE).await);
    let mut socket = RelayClient::connect(&app, &mut browser).await;
    for account in [ALICE, BOB] {
        let former = browser.clone();
        // One that fails ends nothing.
        app.provider.set_mood(Mood::Status(500)).await;
        assert_eq!(app.sign_in(&mut browser.clone(), account).await.status, 503);
        app.provider.set_mood(Mood::Honest).await;
        assert_eq!(former.clone().get("/me").await.status, 200);
        assert_eq!(app.sign_in(&mut browser, account).await.status, 302);
        assert_ne!(browser.cookies["rp_sess"], former.cookies["rp_sess"]);
        assert_eq!(browser.get("/me").await.json()["platformId"], account);
        former.clone().get("/me").await.expect_problem(401, "unauthenticated");
    }
    assert_eq!(socket.expect_close().await, 4501);
    assert_eq!(elsewhere.get("/me").await.json()["platformId"], ALICE, "another browser's session goes on");
});
