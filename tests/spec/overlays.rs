//! Overlays: devices whose token watches one server at the relay, and opens nothing else.

use companion::simulator::world::GATE_SWITCH;
use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    harness::{
        app::TestApp,
        browser::{Answer, Browser},
        game::{self, ALICE, BOB, add_device, is_complete, pair, share},
        helper::HelperDevice,
        relay_client::{self, RelayClient},
    },
    maps::{self, map_where},
};

/// An overlay of this server, paired by this browser's user.
pub async fn overlay(app: &TestApp, browser: &mut Browser, server: &str) -> HelperDevice {
    let code = code(browser, server).await;
    let mut overlay = HelperDevice::new(app.browser(), "192.0.2.1");
    let answer = overlay.activate(&code).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    overlay
}

async fn code(browser: &mut Browser, server: &str) -> String {
    let body = json!({ "label": "OBS", "scope": "overlay", "serverId": server });
    let answer = browser.post("/pairing/device/code", Some(&body)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["code"].as_str().unwrap().to_owned()
}

async fn token(overlay: &mut HelperDevice) -> String {
    let answer = overlay.send(overlay.request(Method::POST, "/relay/token")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["token"].as_str().unwrap().to_owned()
}

async fn connect(app: &TestApp, overlay: &mut HelperDevice) -> RelayClient {
    let token = token(overlay).await;
    relay_client::open(app.relay, relay_client::request(app.relay, Some(&token))).await.expect("a 101").0
}

async fn devices(browser: &mut Browser) -> Vec<Value> {
    browser.get("/pairing/device").await.json()["devices"].as_array().unwrap().clone()
}

#[actix_web::test]
async fn an_overlay_watches_its_server_and_does_nothing_else() {
    let app = TestApp::start_beside_games().await;
    let (game, other_game) = (maps::game(&app).await, game::still(&app).await);
    let mut alice = app.signed_in(ALICE).await;
    let (server, other) = (pair(&mut alice, &game).await, pair(&mut alice, &other_game).await);
    add_device(&mut alice, &server, GATE_SWITCH).await;
    let mut overlay = overlay(&app, &mut alice, &server).await;
    let listed = &devices(&mut alice).await[0];
    assert_eq!((&listed["scope"], &listed["serverId"]), (&json!("overlay"), &json!(server)));
    assert_eq!((&listed["id"], &listed["label"]), (&json!(overlay.id), &json!("OBS")));

    let mut socket = connect(&app, &mut overlay).await;
    socket.subscribe(&server).await;
    socket.until(&server, |state| is_complete(state, 1)).await;
    socket.subscribe(&other).await;
    assert_eq!(socket.expect_error("unknown_server").await["serverId"], other);
    for (server, code) in [(&server, "owner_only"), (&other, "unknown_server")] {
        let device = GATE_SWITCH.to_string();
        let toggle = json!({ "type": "deviceToggle", "serverId": server, "deviceId": device, "requestId": "t" });
        socket.send(toggle).await;
        assert_eq!(socket.expect_error(code).await["requestId"], "t");
        socket.send(json!({ "type": "raidAck", "serverId": server, "incident": "i", "requestId": "a" })).await;
        assert_eq!(socket.expect_error(code).await["requestId"], "a");
    }
    socket.ping().await;
    assert_eq!(socket.state(&server)["devices"][GATE_SWITCH.to_string()]["value"], false, "nothing was switched");
    assert!(!socket.known.contains_key(&other));

    // The overlay reads the map of its server, and no other.
    let map = |server: &str| format!("/paired-servers/{server}/map");
    map_where(&mut alice, &server, |_| true).await;
    for path in [map(&server), format!("{}/image", map(&server))] {
        let request = overlay.request(Method::GET, &path);
        let read = overlay.send(request).await;
        assert_eq!(read.bytes(), alice.get(&path).await.bytes());
        assert_eq!(read.status, 200, "{}", read.text());
        let other = overlay.request(Method::GET, &path.replace(&server, &other));
        overlay.send(other).await.expect_problem(404, "not_found");
    }

    overlay.upload(&json!({ "platformId": ALICE })).await.expect_problem(403, "insufficient_scope");
    for (method, path) in [
        (Method::GET, "/me".to_owned()),
        (Method::GET, "/paired-servers".to_owned()),
        (Method::GET, format!("/paired-servers/{server}")),
        (Method::POST, "/pairing/device/code".to_owned()),
    ] {
        let request = overlay.request(method, &path);
        overlay.send(request).await.expect_problem(401, "unauthenticated");
    }

    // Its owner deletes it, and it is over.
    assert_eq!(alice.delete(&format!("/pairing/device/{}", overlay.id)).await.status, 200);
    assert_eq!(socket.expect_close().await, 4501);
    let request = overlay.request(Method::POST, "/relay/token");
    overlay.send(request).await.expect_problem(401, "unauthenticated");
}

/// The header fields of CORS in an answer: who may read it, and whether with cookies.
fn cors(answer: &Answer) -> (Option<&str>, Option<&str>) {
    (answer.header("access-control-allow-origin"), answer.header("access-control-allow-credentials"))
}

#[actix_web::test]
async fn an_overlay_works_from_any_page() {
    let app = TestApp::start_beside_games().await;
    let game = maps::game(&app).await;
    let mut alice = app.signed_in(ALICE).await;
    let server = pair(&mut alice, &game).await;
    let mut overlay = overlay(&app, &mut alice, &server).await;
    let map = format!("/paired-servers/{server}/map");
    let image = format!("{map}/image?size=512");
    map_where(&mut alice, &server, |_| true).await;
    for origin in ["null", "file://", "https://stream.test", "http://localhost:5173"] {
        for (method, path) in [(Method::POST, "/relay/token"), (Method::GET, &map), (Method::GET, &image)] {
            let mut page = app.browser();
            let preflight = page
                .request(Method::OPTIONS, path)
                .header("origin", origin)
                .header("access-control-request-method", method.as_str())
                .header("access-control-request-headers", "Authorization,content-type");
            let answer = page.send(preflight).await;
            assert_eq!((answer.status, cors(&answer)), (200, (Some("*"), None)), "{origin} {path}");
            assert!(answer.header("access-control-allow-headers").unwrap().contains("authorization"));
            assert_eq!(answer.header("access-control-allow-methods"), Some(method.as_str()));
            let request = overlay.request(method.clone(), path).header("origin", origin);
            let answer = overlay.send(request).await;
            assert_eq!(cors(&answer), (Some("*"), None), "{origin} {path}");
            assert_eq!(answer.status, 200, "{}", answer.text());
            // A page learns why it is refused.
            let dead = page.request(method, path).header("origin", origin);
            let dead = page.send(dead.header("authorization", format!("Bearer {}", "0".repeat(96)))).await;
            dead.expect_problem(401, "unauthenticated");
            assert_eq!(cors(&dead), (Some("*"), None));
        }
        let token = token(&mut overlay).await;
        let opening = relay_client::request(app.relay, Some(&token));
        let opening = relay_client::with_header(opening, "origin", origin);
        let mut socket = relay_client::open(app.relay, opening).await.expect("a 101").0;
        socket.subscribe(&server).await;
        socket.expect_snapshot(&server).await;
    }
}

#[actix_web::test]
async fn a_page_of_any_origin_finds_the_relay_and_exchanges_its_code() {
    let app = TestApp::start_beside_games().await;
    let game = game::still(&app).await;
    let mut alice = app.signed_in(ALICE).await;
    let server = pair(&mut alice, &game).await;
    for origin in ["null", "https://stream.test"] {
        let code = code(&mut alice, &server).await;
        let mut page = app.browser();
        let config = page.request(Method::GET, "/client-config").header("origin", origin);
        let config = page.send(config).await;
        assert_eq!((config.status, cors(&config)), (200, (Some("*"), None)));
        let preflight = page
            .request(Method::OPTIONS, "/pairing/device/activate")
            .header("origin", origin)
            .header("access-control-request-method", "POST")
            .header("access-control-request-headers", "content-type");
        let preflight = page.send(preflight).await;
        assert_eq!((preflight.status, cors(&preflight)), (200, (Some("*"), None)));
        assert!(preflight.header("access-control-allow-headers").unwrap().contains("content-type"));
        for (code, status) in [(code.as_str(), 200), ("00000000", 401)] {
            let activate = page.request(Method::POST, "/pairing/device/activate").header("origin", origin);
            let activated = page.send(activate.json(&json!({ "code": code }))).await;
            assert_eq!((activated.status, cors(&activated)), (status, (Some("*"), None)), "{}", activated.text());
        }
        // No other route without a token.
        let code = page.request(Method::OPTIONS, "/pairing/device/code").header("origin", origin);
        let code = page.send(code.header("access-control-request-method", "POST")).await;
        assert_eq!(cors(&code).0, None);
    }
}

#[actix_web::test]
async fn an_overlay_ends_with_the_access_of_its_user() {
    let app = TestApp::start_beside_games().await;
    let game = game::still(&app).await;
    let (mut alice, mut bob) = (app.signed_in(ALICE).await, app.signed_in(BOB).await);
    let server = pair(&mut alice, &game).await;
    let guests = format!("/paired-servers/{server}/guests");
    let body = json!({ "scope": "overlay", "serverId": server });
    bob.post("/pairing/device/code", Some(&body)).await.expect_problem(404, "not_found");
    let mut of_owner = overlay(&app, &mut alice, &server).await;

    let guest = share(&mut alice, &server, &mut bob).await;
    let (mut of_guest, unused) = (overlay(&app, &mut bob, &server).await, code(&mut bob, &server).await);
    let mut helper = app.paired(&mut bob).await;
    let (mut one, mut two) = (connect(&app, &mut of_guest).await, connect(&app, &mut of_owner).await);
    for socket in [&mut one, &mut two] {
        socket.subscribe(&server).await;
        socket.expect_snapshot(&server).await;
    }
    let minted = token(&mut of_guest).await;
    assert_eq!(alice.delete(&format!("{guests}/{guest}")).await.status, 200);
    assert_eq!(one.expect_close().await, 4501);
    let request = of_guest.request(Method::POST, "/relay/token");
    of_guest.send(request).await.expect_problem(401, "unauthenticated");
    let refused = relay_client::open(app.relay, relay_client::request(app.relay, Some(&minted))).await;
    assert_eq!(refused.map(|_| "a socket").unwrap_err().status, 401);
    let activated = HelperDevice::new(app.browser(), "192.0.2.1").activate(&unused).await;
    activated.expect_problem(401, "invalid_pairing_code");
    assert_eq!(devices(&mut bob).await.len(), 1, "his helper stays");
    let request = helper.request(Method::POST, "/relay/token");
    assert_eq!(helper.send(request).await.status, 200);

    // Invited again, he has none of his earlier overlays.
    share(&mut alice, &server, &mut bob).await;
    let request = of_guest.request(Method::POST, "/relay/token");
    of_guest.send(request).await.expect_problem(401, "unauthenticated");

    two.ping().await;
    assert_eq!(alice.delete(&format!("/paired-servers/{server}")).await.status, 200);
    assert_eq!(two.expect_close().await, 4501);
    assert_eq!(devices(&mut alice).await, Vec::<Value>::new(), "it goes with its server");
}

#[actix_web::test]
async fn the_scope_of_a_code_is_checked() {
    let app = TestApp::start().await;
    let mut alice = app.signed_in(ALICE).await;
    let pairing = json!({ "address": "play.example.com", "port": 28083, "playerId": ALICE, "playerToken": "1" });
    let server = alice.post("/paired-servers", Some(&pairing)).await.json()["id"].clone();
    for (body, path) in [
        (json!({ "scope": "admin" }), "scope"),
        (json!({ "scope": "" }), "scope"),
        (json!({ "scope": 7 }), "scope"),
        (json!({ "scope": "overlay" }), "serverId"),
        (json!({ "serverId": server }), "serverId"),
        (json!({ "scope": "helper", "serverId": server }), "serverId"),
        (json!({ "scope": "overlay", "serverId": "" }), "serverId"),
        (json!({ "scope": "overlay", "serverId": "a\u{0}b" }), "serverId"),
        (json!({ "scope": "overlay", "serverId": "x".repeat(129) }), "serverId"),
    ] {
        let problem = alice.post("/pairing/device/code", Some(&body)).await.expect_problem(400, "invalid_request");
        assert_eq!(problem["errors"][0]["path"], path, "{body}: {problem}");
    }
    let unknown = json!({ "scope": "overlay", "serverId": "no-such-server" });
    alice.post("/pairing/device/code", Some(&unknown)).await.expect_problem(404, "not_found");
    for body in [json!({ "scope": "helper" }), json!({ "scope": null }), json!({ "serverId": null })] {
        assert_eq!(alice.post("/pairing/device/code", Some(&body)).await.status, 200, "{body}");
    }
}
