//! Cameras over HTTP: the simulated game server draws, users pull.

use std::time::Duration;

use companion::{
    game::{
        camera_picture::draw,
        camera_shot::{CameraShot, CameraView, RayFrame, read_entities},
        wire::{AppCameraSubscribe, AppMessage, AppRequest},
    },
    simulator::{
        game_server::{DEMO_TOKEN, GameServer},
        world::{FIXED_CAMERA, GATE_SWITCH, SimulatedWorld, TEAM, TURNING_CAMERA},
    },
};
use futures_util::{SinkExt as _, StreamExt as _, future::join_all};
use prost::Message as _;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use tokio_tungstenite::{connect_async, tungstenite::Message};

use crate::harness::{
    app::TestApp,
    browser::{Answer, Browser},
    game::{self, ALICE, BOB, add_device, is_connected, pair, pair_port},
    relay_client::RelayClient,
};

const DEADLINE: Duration = Duration::from_secs(20);

async fn add_camera(browser: &mut Browser, server: &str, camera: &str) -> Answer {
    browser.post(&format!("/paired-servers/{server}/devices"), Some(&json!({ "cameraId": camera }))).await
}

fn frame_path(server: &str, camera: &str) -> String {
    format!("/paired-servers/{server}/devices/{camera}/camera-frame")
}

/// A still game server that is linked, with this camera added.
async fn with_camera(app: &TestApp, alice: &mut Browser, game: &GameServer, camera: &str) -> (String, RelayClient) {
    let server = pair(alice, game).await;
    let added = add_camera(alice, &server, camera).await;
    assert_eq!(added.status, 201, "{}", added.text());
    let mut client = RelayClient::watching(app, alice, &server).await;
    client.until(&server, is_connected).await;
    (server, client)
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let poll = async {
        while !holds().await {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(DEADLINE, poll).await.unwrap_or_else(|_| panic!("{what} in time"));
}

fn picture(answer: &Answer) -> image::RgbImage {
    image::load_from_memory(answer.bytes()).unwrap().into_rgb8()
}

/// One look at a camera as another client of the game has it: the frames that cover the picture.
async fn rays_of(game: &GameServer, camera: &str) -> CameraShot {
    let (mut socket, _) = connect_async(format!("ws://{}/", game.addr())).await.unwrap();
    let request = AppRequest {
        seq: 1,
        player_id: TEAM[0].0,
        player_token: DEMO_TOKEN,
        camera_subscribe: Some(AppCameraSubscribe { camera_id: camera.to_owned() }),
        ..Default::default()
    };
    socket.send(Message::binary(request.encode_to_vec())).await.unwrap();
    let (mut view, mut frames) = (None, Vec::new());
    while let Some(Ok(message)) = timeout(DEADLINE, socket.next()).await.unwrap() {
        let Message::Binary(bytes) = message else { continue };
        let message = AppMessage::decode(bytes).unwrap();
        if let Some(info) = message.response.and_then(|response| response.camera_subscribe_info) {
            view = Some(CameraView::read(&info).unwrap());
        }
        if let (Some(view), Some(rays)) = (view, message.broadcast.and_then(|broadcast| broadcast.camera_rays)) {
            frames.push(RayFrame::read(&rays, &view).unwrap());
            if frames.iter().map(RayFrame::samples).sum::<usize>() >= view.pixels() {
                let (at, vertical_fov) = ("2026-11-21T12:00:00Z".parse().unwrap(), rays.vertical_fov);
                return CameraShot { view, at, frames, vertical_fov, entities: read_entities(&rays) };
            }
        }
    }
    panic!("the game server ended the connection");
}

#[actix_web::test]
async fn a_frame_is_the_picture_that_the_game_server_draws() {
    let app = TestApp::start_beside_games().await;
    let mut alice = app.signed_in(ALICE).await;
    let game = game::still(&app).await;
    let (server, mut client) = with_camera(&app, &mut alice, &game, TURNING_CAMERA).await;
    let path = frame_path(&server, TURNING_CAMERA);

    let jpeg = alice.get(&path).await;
    assert_eq!(jpeg.status, 200, "{}", jpeg.text());
    assert_eq!(jpeg.header("content-type"), Some("image/jpeg"));
    assert_eq!(jpeg.header("cache-control"), Some("no-store"));
    assert_eq!(jpeg.header("x-frame-at"), Some("2026-11-21T12:00:00.000Z"));
    assert!(jpeg.header("ratelimit").is_some_and(|text| text.contains("\"camera-frame\";r=119")));
    assert_eq!(image::guess_format(jpeg.bytes()).unwrap(), image::ImageFormat::Jpeg);
    assert_eq!(picture(&jpeg).dimensions(), (160, 90));

    let png = |path: String| alice.request(Method::GET, &path).header("accept", "image/png");
    let (plain, with_entities) = (png(format!("{path}?entities=false")), png(path.clone()));
    let (plain, with_entities) = (alice.send(plain).await, alice.send(with_entities).await);
    for answer in [&plain, &with_entities] {
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("image/png")), "{}", answer.text());
        assert_eq!(image::guess_format(answer.bytes()).unwrap(), image::ImageFormat::Png);
    }
    let expected = rays_of(&game, TURNING_CAMERA).await;
    assert!(picture(&plain) == draw(&expected, false), "pixel by pixel");
    assert!(picture(&with_entities) == draw(&expected, true));
    assert_ne!(plain.bytes(), with_entities.bytes(), "trees are drawn over it");

    // The state shows the camera, which no poll asks for.
    client.until(&server, |state| state["devices"][TURNING_CAMERA]["reachable"] == "ok").await;
    let camera = &client.state(&server)["devices"][TURNING_CAMERA];
    assert_eq!((&camera["kind"], &camera["name"]), (&json!("camera"), &json!(TURNING_CAMERA)));
    let listed = alice.get(&format!("/paired-servers/{server}/devices")).await.json();
    assert_eq!(listed["devices"][0]["asOf"], "2026-11-21T12:00:00.000Z", "of the frame: {listed}");
}

/// Slow, as a camera stays subscribed to for some seconds.
#[actix_web::test]
async fn pulls_share_one_subscription_that_ends_with_the_last_pull() {
    let app = TestApp::start_beside_games().await;
    let mut alice = app.signed_in(ALICE).await;
    let game = game::still(&app).await;
    let (server, _client) = with_camera(&app, &mut alice, &game, TURNING_CAMERA).await;
    assert_eq!(add_camera(&mut alice, &server, FIXED_CAMERA).await.status, 201);
    let pull = |camera: &'static str| {
        let (mut browser, path) = (alice.clone(), frame_path(&server, camera));
        async move { browser.get(&path).await }
    };
    let answers = join_all((0..12).map(|_| pull(TURNING_CAMERA))).await;
    assert!(answers.iter().all(|answer| answer.status == 200), "{}", answers[0].text());
    assert!(answers.iter().all(|answer| answer.bytes() == answers[0].bytes()));
    assert_eq!(game.camera_subscriptions(), (1, 1));

    // Another camera takes its turn on the same link.
    let others = join_all([FIXED_CAMERA, FIXED_CAMERA].map(pull)).await;
    assert!(others.iter().all(|answer| answer.status == 200), "{}", others[0].text());
    assert_ne!(answers[0].bytes(), others[0].bytes());
    assert_eq!(game.camera_subscriptions(), (2, 1));
    until("an unsubscription", async || game.camera_subscriptions() == (2, 0)).await;
    assert_eq!(pull(FIXED_CAMERA).await.status, 200);
    assert_eq!(game.camera_subscriptions(), (3, 1));
}

#[actix_web::test]
async fn cameras_that_are_pulled_at_once_take_turns() {
    let app = TestApp::start_beside_games().await;
    let mut alice = app.signed_in(ALICE).await;
    let game = game::still(&app).await;
    let (server, _client) = with_camera(&app, &mut alice, &game, TURNING_CAMERA).await;
    assert_eq!(add_camera(&mut alice, &server, FIXED_CAMERA).await.status, 201);
    let answers = join_all([TURNING_CAMERA, FIXED_CAMERA].map(|camera| {
        let (mut browser, path) = (alice.clone(), format!("{}?entities=false", frame_path(&server, camera)));
        async move { browser.send(browser.request(Method::GET, &path).header("accept", "image/png")).await }
    }))
    .await;
    for (answer, camera) in answers.iter().zip([TURNING_CAMERA, FIXED_CAMERA]) {
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert!(picture(answer) == draw(&rays_of(&game, camera).await, false), "{camera}: no pixel of the other one");
    }
}

#[actix_web::test]
async fn each_reason_for_no_frame_has_its_code() {
    let app = TestApp::start_beside_games().await;
    let mut alice = app.signed_in(ALICE).await;
    let game = game::still(&app).await;
    let (server, mut client) = with_camera(&app, &mut alice, &game, TURNING_CAMERA).await;
    add_device(&mut alice, &server, GATE_SWITCH).await;
    for camera in ["NOWHERE", "DOME1"] {
        assert_eq!(add_camera(&mut alice, &server, camera).await.status, 201);
    }
    let switch = GATE_SWITCH.to_string();
    alice.get(&frame_path(&server, &switch)).await.expect_problem(409, "not_a_camera");
    alice.get(&frame_path(&server, FIXED_CAMERA)).await.expect_problem(404, "not_found");
    alice.get(&frame_path(&server, "NOWHERE")).await.expect_problem(404, "unknown_camera");
    client.until(&server, |state| state["devices"]["NOWHERE"]["reachable"] == "removed").await;
    alice.get(&frame_path(&server, "DOME1")).await.expect_problem(409, "camera_access_denied");
    client.until(&server, |state| state["devices"]["DOME1"]["reachable"] == "no_privilege").await;
    let listed = alice.get(&format!("/paired-servers/{server}/devices")).await.json();
    let dome = listed["devices"].as_array().unwrap().iter().find(|device| device["deviceId"] == "DOME1").unwrap();
    assert_eq!(dome["reachable"], "no_privilege");
    let camera = frame_path(&server, TURNING_CAMERA);
    let bad = alice.get(&format!("{camera}?entities=maybe")).await.expect_problem(400, "invalid_request");
    assert_eq!(bad["errors"][0]["path"], "entities");

    game.world(|world| world.set_online(TEAM[0].0, true));
    alice.get(&camera).await.expect_problem(409, "player_online");
    game.world(|world| world.kill(TEAM[0].0));
    alice.get(&camera).await.expect_problem(409, "no_player");
    game.world(|world| {
        world.respawn(TEAM[0].0);
        world.set_online(TEAM[0].0, false);
    });
    assert_eq!(alice.get(&camera).await.status, 200);
    assert_eq!(game.camera_subscriptions().0, 1, "refusals are no subscriptions");

    let mut bob = app.signed_in(BOB).await;
    bob.get(&camera).await.expect_problem(404, "not_found");
    bob.get(&format!("/paired-servers/{server}/cameras")).await.expect_problem(404, "not_found");
    let mut visitor = app.browser();
    visitor.get(&camera).await.expect_problem(401, "unauthenticated");
    visitor.get(&format!("/paired-servers/{server}/cameras")).await.expect_problem(401, "unauthenticated");
}

/// Slow, as the deadline is five seconds.
#[actix_web::test]
async fn a_silent_game_server_and_a_missing_one_are_distinguished() {
    let app = TestApp::start_beside_games().await;
    let mut alice = app.signed_in(ALICE).await;
    let game = game::still(&app).await;
    let (server, _client) = with_camera(&app, &mut alice, &game, TURNING_CAMERA).await;
    game.faults(|faults| faults.frozen = true);
    alice.get(&frame_path(&server, TURNING_CAMERA)).await.expect_problem(504, "game_server_timeout");

    let missing = pair_port(&mut alice, 9).await;
    assert_eq!(add_camera(&mut alice, &missing, "CAM1").await.status, 201);
    alice.get(&frame_path(&missing, "CAM1")).await.expect_problem(503, "game_server_unavailable");
}

#[actix_web::test]
async fn a_camera_comes_back_with_its_link() {
    let app = TestApp::start_beside_games().await;
    let mut alice = app.signed_in(ALICE).await;
    let game = game::still(&app).await;
    let (server, mut client) = with_camera(&app, &mut alice, &game, TURNING_CAMERA).await;
    let camera = frame_path(&server, TURNING_CAMERA);
    assert_eq!(alice.get(&camera).await.status, 200);
    game.stop().await;
    client.until(&server, |state| !is_connected(state)).await;
    until("the shot to expire", async || alice.get(&camera).await.status != 200).await;
    alice.get(&camera).await.expect_problem(503, "game_server_unavailable");
    game.restart().await.unwrap();
    pair(&mut alice, &game).await;
    client.until(&server, is_connected).await;
    assert_eq!(alice.get(&camera).await.status, 200);
    assert_eq!(game.camera_subscriptions(), (2, 1));
}

#[actix_web::test]
async fn frames_have_a_rate_limit_of_their_own() {
    let app = TestApp::start().await;
    let mut alice = app.signed_in(ALICE).await;
    let server = pair_unlinked(&mut alice).await;
    for _ in 0..120 {
        alice.get(&frame_path(&server, "CAM1")).await.expect_problem(404, "not_found");
    }
    let refused = alice.get(&frame_path(&server, "CAM1")).await;
    refused.expect_problem(429, "rate_limited");
    assert!(refused.header("ratelimit-policy").unwrap().ends_with("\"camera-frame\";q=120;w=60"));
    assert!(refused.header("retry-after").is_some());
    assert_eq!(alice.get(&format!("/paired-servers/{server}/cameras")).await.status, 200);
    app.clock.advance(chrono::Duration::seconds(1));
    alice.get(&frame_path(&server, "CAM1")).await.expect_problem(404, "not_found");
}

async fn pair_unlinked(browser: &mut Browser) -> String {
    let pairing = json!({ "address": "play.example.com", "port": 28083, "playerId": ALICE, "playerToken": "1" });
    browser.post("/paired-servers", Some(&pairing)).await.json()["id"].as_str().unwrap().to_owned()
}

#[actix_web::test]
async fn a_camera_is_a_device_with_its_identifier_as_id() {
    let app = TestApp::start().await;
    let mut alice = app.signed_in(ALICE).await;
    let server = pair_unlinked(&mut alice).await;
    let devices = format!("/paired-servers/{server}/devices");
    let added = alice.post(&devices, Some(&json!({ "cameraId": "BASE_1" }))).await;
    assert_eq!(added.status, 201, "{}", added.text());
    let expected = json!({
        "deviceId": "BASE_1", "kind": "camera", "name": "BASE_1", "label": null, "customCommand": null,
        "onMessage": null, "offMessage": null, "createdAt": "2026-11-21T12:00:00.000Z",
        "x": null, "y": null, "grid": "", "value": null, "reachable": "pending", "asOf": null,
    });
    assert_eq!(added.json(), expected);
    let again = alice.post(&devices, Some(&json!({ "cameraId": "BASE_1", "label": "Gate" }))).await;
    assert_eq!((again.status, &again.json()["label"]), (200, &json!("Gate")));

    for (body, path) in [
        (json!({}), "entityId"),
        (json!({ "label": "Gate" }), "entityId"),
        (json!({ "cameraId": null }), "entityId"),
        (json!({ "entityId": 7, "cameraId": "CAM2" }), "cameraId"),
        (json!({ "cameraId": "CAM2", "kind": "switch" }), "kind"),
        (json!({ "cameraId": "" }), "cameraId"),
        (json!({ "cameraId": "4242" }), "cameraId"),
        (json!({ "cameraId": "a b" }), "cameraId"),
        (json!({ "cameraId": "a/b" }), "cameraId"),
        (json!({ "cameraId": "ü" }), "cameraId"),
        (json!({ "cameraId": "x".repeat(33) }), "cameraId"),
        (json!({ "cameraId": "CAM2", "label": "" }), "label"),
        (json!({ "cameraId": "CAM2", "name": "a\nb" }), "name"),
    ] {
        let problem = alice.post(&devices, Some(&body)).await.expect_problem(400, "invalid_request");
        assert_eq!(problem["errors"][0]["path"], path, "{body}: {problem}");
    }
    alice.post(&devices, Some(&json!({ "cameraId": 7 }))).await.expect_problem(400, "invalid_request");
    assert_eq!(alice.get(&devices).await.json()["devices"].as_array().unwrap().len(), 1, "nothing was stored");
    assert_eq!(alice.delete(&format!("{devices}/BASE_1")).await.status, 200);
    alice.get(&frame_path(&server, "BASE_1")).await.expect_problem(404, "not_found");
}

#[actix_web::test]
async fn the_cameras_of_the_maps_monuments_are_offered() {
    let app = TestApp::start_beside_games().await;
    let mut alice = app.signed_in(ALICE).await;
    let unlinked = pair_unlinked(&mut alice).await;
    assert_eq!(
        alice.get(&format!("/paired-servers/{unlinked}/cameras")).await.json(),
        json!({ "cameras": [], "next": null })
    );

    let world = SimulatedWorld::new(7, app.clock.now());
    let centimetres = |metres: f32| (f64::from(metres) * 100.0).round() / 100.0;
    let rig = world.terrain().monument("oil_rig_small");
    let game = game::with_world(world).await;
    let server = pair(&mut alice, &game).await;
    assert_eq!(add_camera(&mut alice, &server, "OILRIG1HELI").await.status, 201);
    let path = format!("/paired-servers/{server}/cameras");
    until("the map", async || alice.get(&path).await.json() != json!({ "cameras": [], "next": null })).await;
    let answer = alice.get(&path).await.json();
    let cameras = answer["cameras"].as_array().unwrap();
    let find = |id: &str| cameras.iter().find(|camera| camera["cameraId"] == id).unwrap();
    let expected = json!({
        "cameraId": "OILRIG1HELI", "monument": "Small Oil Rig", "name": "Helipad",
        "x": centimetres(rig.x), "y": centimetres(rig.y), "added": true,
    });
    assert_eq!(find("OILRIG1HELI"), &expected);
    assert_eq!(find("OILRIG1DOCK")["added"], false);
    assert_eq!(find("COMPOUNDSTREET")["monument"], "Outpost");
    let monuments: Vec<&Value> = cameras.iter().map(|camera| &camera["monument"]).collect();
    assert!(!monuments.contains(&&json!("Launch Site")), "it has none");

    // Closed to players, but there.
    let frame = frame_path(&server, "OILRIG1HELI");
    let offers = async |alice: &mut Browser, id: &str| {
        let answer = alice.get(&path).await.json();
        answer["cameras"].as_array().unwrap().iter().any(|camera| camera["cameraId"] == id)
    };
    alice.get(&frame).await.expect_problem(409, "camera_access_denied");
    assert!(offers(&mut alice, "OILRIG1HELI").await);
    game.faults(|faults| faults.no_monument_cameras = true);
    alice.get(&frame).await.expect_problem(404, "unknown_camera");
    until("it is not offered", async || !offers(&mut alice.clone(), "OILRIG1HELI").await).await;
    assert!(offers(&mut alice, "OILRIG1DOCK").await, "the game server was not asked about it");
}
