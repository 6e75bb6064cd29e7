//! Pictures of players, which the service fetches for its pages.

use companion::{
    clock::Clock,
    crypto::random::Random,
    simulator::{identity::IdentityProvider, persons},
};
use reqwest::Method;
use serde_json::json;

use crate::harness::{app::TestApp, game::ALICE};

async fn with_platform() -> (TestApp, IdentityProvider) {
    let local = ([127, 0, 0, 1], 0).into();
    let platform = IdentityProvider::start(local, persons(), Clock::system(), Random::system()).await.unwrap();
    let [api, avatars] = [
        format!("--platform-api-url={}", platform.platform_api_url()),
        format!("--platform-avatar-url={}", platform.avatar_url()),
    ];
    (TestApp::start_with(&["--platform-api-key=0123456789ABCDEF", &api, &avatars]).await, platform)
}

#[actix_web::test]
async fn a_picture_comes_from_the_platform_once_and_then_from_memory() {
    let (app, platform) = with_platform().await;
    let mut alice = app.signed_in(ALICE).await;
    assert_eq!(app.browser().get("/client-config").await.json()["features"]["avatars"], true);
    let path = |id: u64| format!("/players/{id}/avatar");
    let team = persons();
    let first = alice.get(&path(team[0].platform_id)).await;
    assert_eq!((first.status, first.header("content-type")), (200, Some("image/jpeg")), "{}", first.text());
    assert_eq!(first.header("cache-control"), Some("private, max-age=86400"));
    assert_eq!(image::load_from_memory(first.bytes()).unwrap().width(), 64);
    let other = alice.get(&path(team[1].platform_id)).await;
    assert_ne!(first.bytes(), other.bytes());

    let stranger = "76561198999999999";
    for unknown in [stranger, "1", "..%2f..%2fetc", "76561198000000001x", "https:%2f%2fevil.test"] {
        assert_eq!(alice.get(&format!("/players/{unknown}/avatar")).await.status, 404, "{unknown}");
    }

    drop(platform);
    let kept = alice.get(&path(team[0].platform_id)).await;
    assert_eq!((kept.status, kept.bytes()), (200, first.bytes()));
    let request =
        alice.request(Method::GET, &path(team[0].platform_id)).header("if-none-match", first.header("etag").unwrap());
    assert_eq!(alice.send(request).await.status, 304);
    assert_eq!(alice.get(&format!("/players/{stranger}/avatar")).await.status, 404, "that is known, too");
    assert_eq!(app.browser().get(&path(team[0].platform_id)).await.status, 401);
}

#[actix_web::test]
async fn a_platform_without_an_answer_is_not_asked_again_at_once() {
    let (app, platform) = with_platform().await;
    let mut alice = app.signed_in(ALICE).await;
    let (addr, path) = (platform.addr(), format!("/players/{}/avatar", persons()[0].platform_id));
    drop(platform);
    let failed = alice.get(&path).await;
    assert_eq!((failed.status, &failed.json()["code"]), (503, &json!("unavailable")), "{}", failed.text());

    let clock = Clock::system();
    let _back = IdentityProvider::start(addr, persons(), clock, Random::system()).await.unwrap();
    assert_eq!(alice.get(&path).await.status, 503);
    app.clock.advance(chrono::Duration::minutes(1));
    assert_eq!(alice.get(&path).await.status, 200);
}

#[actix_web::test]
async fn without_a_key_there_are_no_pictures() {
    let app = TestApp::start().await;
    let mut alice = app.signed_in(ALICE).await;
    assert_eq!(alice.get("/client-config").await.json()["features"]["avatars"], false);
    assert_eq!(alice.get(&format!("/players/{ALICE}/avatar")).await.status, 404);
}
