//! The map of a paired server: kept once for each game server, from the first link on.

use bytes::Bytes;
use companion::simulator::{
    game_server::{GameServer, GameServerOptions},
    world::SimulatedWorld,
};
use image::{ExtendedColorType, RgbImage, codecs::jpeg::JpegEncoder};
use reqwest::{Method, header::IF_NONE_MATCH};
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, sleep};

use crate::harness::{
    app::{BASE, TestApp},
    browser::{Answer, Browser},
    game::{self, ALICE, BOB, pair, share},
    relay_client::PATIENCE,
};

/// Edge of the simulated picture; the game server claims 2000 pixels and a margin of 500.
const EDGE: u32 = 800;

fn picture() -> Bytes {
    let mut file = Vec::new();
    let drawn = RgbImage::from_fn(EDGE, EDGE, |x, y| image::Rgb([(x / 4) as u8, (y / 4) as u8, 90]));
    JpegEncoder::new(&mut file).encode(&drawn, EDGE, EDGE, ExtendedColorType::Rgb8).unwrap();
    file.into()
}

pub async fn game(app: &TestApp) -> GameServer {
    let world = SimulatedWorld::new(7, app.clock.now());
    let options = GameServerOptions { time_scale: 0.0, map_picture: Some(picture()), ..GameServerOptions::new(world) };
    GameServer::start(options).await.unwrap()
}

/// The map, once it is known and this holds for it.
pub async fn map_where(browser: &mut Browser, server: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let asked = Instant::now();
    loop {
        let answer = browser.get(&format!("/paired-servers/{server}/map")).await;
        if answer.status == 200 && holds(&answer.json()) {
            return answer.json();
        }
        if answer.status != 200 {
            answer.expect_problem(404, "map_unknown");
        }
        assert!(asked.elapsed() < PATIENCE, "the map never came");
        sleep(Duration::from_millis(250)).await;
    }
}

fn path(map: &Value) -> String {
    map["image"]["url"].as_str().unwrap().strip_prefix(BASE).unwrap().to_owned()
}

fn size(answer: &Answer) -> (u32, u32) {
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("image/jpeg")), "{}", answer.text());
    let picture = image::load_from_memory(answer.bytes()).unwrap();
    (picture.width(), picture.height())
}

#[actix_web::test]
async fn the_map_comes_with_the_first_link_and_is_kept() {
    let app = TestApp::start_beside_games().await;
    let game = game(&app).await;
    let mut alice = app.signed_in(ALICE).await;
    let server = pair(&mut alice, &game).await;
    let map = map_where(&mut alice, &server, |_| true).await;
    assert_eq!(map["size"], game.world(|world| world.info().map_size));
    assert_eq!((&map["margin"], &map["background"]), (&json!(200), &json!("#12404D")));
    assert_eq!((&map["image"]["width"], &map["image"]["height"]), (&json!(EDGE), &json!(EDGE)));
    assert!(map["wiped_at"].is_null() && map["wipedAt"].as_str().unwrap().ends_with('Z'), "{map}");
    let monuments = map["monuments"].as_array().unwrap();
    let launch = monuments.iter().find(|monument| monument["kind"] == "launchsite").expect("it has one");
    assert_eq!(launch["name"], "Launch Site");
    assert!(launch["x"].is_f64() && launch["y"].is_f64());

    let whole = alice.get(&path(&map)).await;
    assert_eq!(whole.bytes(), &picture()[..], "as the game server sent it");
    assert_eq!(whole.header("cache-control"), Some("private, max-age=31536000, immutable"));
    let tag = whole.header("etag").unwrap().to_owned();
    let bare = format!("/paired-servers/{server}/map/image");
    for (known, status) in [(tag.as_str(), 304), ("\"other\"", 200), ("*", 304)] {
        let request = alice.request(Method::GET, &bare).header(IF_NONE_MATCH, known);
        let answer = alice.send(request).await;
        assert_eq!((answer.status, answer.header("etag")), (status, Some(tag.as_str())), "{known}");
        assert_eq!(answer.header("cache-control"), Some("private, no-cache"));
    }
    let small = alice.get(&format!("{bare}?size=512")).await;
    assert_eq!(size(&small), (512, 512));
    assert_ne!(small.header("etag"), Some(tag.as_str()));
    let again = alice.get(&format!("{bare}?size=512")).await;
    assert_eq!((again.bytes(), again.header("etag")), (small.bytes(), small.header("etag")));
    assert_eq!(size(&alice.get(&format!("{bare}?size=2048")).await), (EDGE, EDGE), "never larger");

    // After a restart it is there without a link, and a link does not ask for it again.
    game.stop().await;
    let app = app.restart().await;
    let mut again = app.again(&alice);
    assert_eq!(again.get(&format!("/paired-servers/{server}/map")).await.json(), map);
    assert_eq!(again.get(&format!("{bare}?size=512")).await.bytes(), small.bytes());
    assert_eq!(game.maps(), 1);
}

#[actix_web::test]
async fn a_wipe_replaces_the_map() {
    let app = TestApp::start_beside_games().await;
    let game = game(&app).await;
    let mut alice = app.signed_in(ALICE).await;
    let server = pair(&mut alice, &game).await;
    let before = map_where(&mut alice, &server, |_| true).await;
    game.world(|world| world.advance_to(world.now() + chrono::Duration::hours(1)));
    game.wipe();
    let after = map_where(&mut alice, &server, |map| map["wipedAt"] != before["wipedAt"]).await;
    assert_ne!(after["monuments"], before["monuments"]);
    assert_eq!(alice.get(&path(&after)).await.status, 200);
}

#[actix_web::test]
async fn a_picture_that_is_none_is_not_shown() {
    let app = TestApp::start_beside_games().await;
    let game = game::still(&app).await;
    let mut alice = app.signed_in(ALICE).await;
    let server = pair(&mut alice, &game).await;
    let map = map_where(&mut alice, &server, |_| true).await;
    assert_eq!((&map["image"], &map["margin"]), (&Value::Null, &json!(0)));
    assert!(!map["monuments"].as_array().unwrap().is_empty());
    let image = format!("/paired-servers/{server}/map/image");
    alice.get(&image).await.expect_problem(404, "map_unknown");
}

#[actix_web::test]
async fn guests_read_it_strangers_do_not_and_bad_queries_are_refused() {
    let app = TestApp::start_beside_games().await;
    let game = game(&app).await;
    let (mut alice, mut bob) = (app.signed_in(ALICE).await, app.signed_in(BOB).await);
    // A port without a listener: there will be no link.
    let nowhere = game::pair_port(&mut alice, 9).await;
    for path in ["map", "map/image"] {
        let answer = alice.get(&format!("/paired-servers/{nowhere}/{path}")).await;
        answer.expect_problem(404, "map_unknown");
    }
    let server = pair(&mut alice, &game).await;
    let map = map_where(&mut alice, &server, |_| true).await;
    let paths = [format!("/paired-servers/{server}/map"), path(&map)];
    for path in &paths {
        app.browser().get(path).await.expect_problem(401, "unauthenticated");
        bob.get(path).await.expect_problem(404, "not_found");
    }
    share(&mut alice, &server, &mut bob).await;
    for path in &paths {
        assert_eq!(bob.get(path).await.status, 200);
    }
    let long = "x".repeat(65);
    for (query, field) in [
        ("size=513", "size"),
        ("size=-1", "size"),
        ("size=", "size"),
        ("size=0512", "size"),
        (&format!("v={long}"), "v"),
    ] {
        let problem = alice.get(&format!("/paired-servers/{server}/map/image?{query}")).await;
        assert_eq!(problem.expect_problem(400, "invalid_request")["errors"][0]["path"], field, "{query}");
    }
}
