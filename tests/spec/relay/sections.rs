//! Clients and overlays that want, or may see, only some sections of the state.

use companion::simulator::world::{BASE_ALARM, GATE_SWITCH, TEAM};
use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{
    app::TestApp,
    browser::Browser,
    game::{self, ALICE, add_device, is_complete, pair, watched},
    helper::HelperDevice,
    relay_client::{self, Known, RelayClient},
};

fn keys(state: &Value) -> Vec<&str> {
    state.as_object().unwrap().keys().map(String::as_str).collect()
}

/// The game server has notes of its own.
fn notes_of_users(state: &Value) -> usize {
    state["mapNotes"].as_object().unwrap().values().filter(|note| note["source"] == "user").count()
}

async fn subscribe(client: &mut RelayClient, server: &str, sections: Value) -> Known {
    client.send(json!({ "type": "subscribe", "serverId": server, "sections": sections })).await;
    client.expect_snapshot(server).await
}

async fn note(browser: &mut Browser, server: &str) {
    let note = json!({ "x": 1, "y": 1, "category": "stash" });
    let answer = browser.post(&format!("/intel/{server}/map-notes"), Some(&note)).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
}

#[actix_web::test]
async fn a_client_gets_what_it_names_and_goes_on_from_there() {
    let app = TestApp::start_beside_games().await;
    let game = game::still(&app).await;
    let mut alice = app.signed_in(ALICE).await;
    let server = pair(&mut alice, &game).await;
    add_device(&mut alice, &server, GATE_SWITCH).await;
    let mut whole = RelayClient::watching(&app, &mut alice, &server).await;
    whole.until(&server, |state| is_complete(state, 1)).await;

    let (mut devices, mut notes) =
        (RelayClient::connect(&app, &mut alice).await, RelayClient::connect(&app, &mut alice).await);
    let known = subscribe(&mut devices, &server, json!(["devices"])).await;
    assert_eq!(keys(&known.state), ["devices"]);
    assert_eq!(known.state["devices"], whole.state(&server)["devices"]);
    let known = subscribe(&mut notes, &server, json!(["mapNotes", "raids"])).await;
    assert_eq!(keys(&known.state), ["mapNotes", "raids"]);
    let nothing = subscribe(&mut RelayClient::connect(&app, &mut alice).await, &server, json!([])).await;
    assert_eq!(nothing.state, json!({}));

    // A change of others is none for a client, and each patch follows what was last sent.
    let before = devices.known[&server].clone();
    for count in 1..4 {
        note(&mut alice, &server).await;
        notes.until(&server, |state| notes_of_users(state) == count).await;
        whole.until(&server, |state| notes_of_users(state) == count).await;
    }
    devices.ping().await;
    assert_eq!((devices.known[&server].seq, devices.known[&server].patches), (before.seq, before.patches));
    for on in [true, false] {
        game.world(|world| world.set_switch(GATE_SWITCH, on)).unwrap();
        let gate = GATE_SWITCH.to_string();
        devices.until(&server, |state| state["devices"][&gate]["value"] == on).await;
    }
    note(&mut alice, &server).await;
    notes.until(&server, |state| notes_of_users(state) == 4).await;

    // Clients that come back with the position of these sections have them still, and with others start afresh.
    let known = devices.known[&server].clone();
    let mut again = RelayClient::connect(&app, &mut alice).await;
    again.known.insert(server.clone(), known.clone());
    let (epoch, seq) = (known.epoch, known.seq);
    let resume = |sections: Value| json!({ "type": "subscribe", "serverId": server, "epoch": epoch, "seq": seq, "sections": sections });
    again.send(resume(json!(["devices"]))).await;
    let patch = again.expect_patch(&server).await;
    assert_eq!((&patch["base"], &patch["seq"], &patch["patch"]), (&json!(seq), &json!(seq), &json!([])));
    for sections in [json!(["devices", "team"]), json!(["team"]), Value::Null] {
        let mut other = RelayClient::connect(&app, &mut alice).await;
        other.send(resume(sections.clone())).await;
        let state = other.expect_snapshot(&server).await.state;
        assert_eq!(keys(&state).len(), sections.as_array().map_or(7, Vec::len));
    }
    again.send(json!({ "type": "subscribe", "serverId": server, "sections": ["chat"] })).await;
    again.expect_error("malformed").await;
}

#[actix_web::test]
async fn an_overlay_sees_the_sections_that_it_was_made_for_whatever_it_asks() {
    let app = TestApp::start_beside_games().await;
    let game = game::still(&app).await;
    let mut alice = app.signed_in(ALICE).await;
    let server = pair(&mut alice, &game).await;
    for device in [GATE_SWITCH, BASE_ALARM] {
        add_device(&mut alice, &server, device).await;
    }
    let mut watching = RelayClient::watching(&app, &mut alice, &server).await;
    watching.until(&server, |state| is_complete(state, 2)).await;
    let of_helper = json!({ "sections": ["team"] });
    let problem = alice.post("/pairing/device/code", Some(&of_helper)).await.expect_problem(400, "invalid_request");
    assert_eq!(problem["errors"][0]["path"], "sections");
    let body = json!({ "scope": "overlay", "serverId": server, "sections": ["mapMarkers", "team"] });
    let issued = alice.post("/pairing/device/code", Some(&body)).await;
    assert_eq!(issued.status, 200, "{}", issued.text());
    let mut overlay = HelperDevice::new(app.browser(), "192.0.2.1");
    assert_eq!(overlay.activate(issued.json()["code"].as_str().unwrap()).await.status, 200);
    let listed = alice.get("/pairing/device").await.json();
    assert_eq!(listed["devices"][0]["sections"], json!(["team", "mapMarkers"]));

    let connect = async |overlay: &mut HelperDevice| {
        let minted = overlay.send(overlay.request(Method::POST, "/relay/token")).await.json();
        let opening = relay_client::request(app.relay, minted["token"].as_str());
        relay_client::open(app.relay, opening).await.expect("a 101").0
    };
    for (asked, seen) in [
        (Value::Null, vec!["mapMarkers", "team"]),
        (json!(["server", "team", "mapMarkers", "devices", "mapNotes", "raids"]), vec!["mapMarkers", "team"]),
        (json!(["devices", "team"]), vec!["team"]),
        (json!(["devices", "raids"]), vec![]),
    ] {
        let mut socket = connect(&mut overlay).await;
        let known = subscribe(&mut socket, &server, asked.clone()).await;
        assert_eq!(keys(&known.state), seen, "{asked}");
    }
    // Raids are among what it does not see.
    let mut socket = connect(&mut overlay).await;
    subscribe(&mut socket, &server, Value::Null).await;
    let drill = alice.post(&format!("/paired-servers/{server}/drill"), None).await.json();
    let incident = drill["incident"].as_str().unwrap().to_owned();
    watching.expect_where("raid", |raid| raid["incident"] == incident.as_str()).await;
    watching.until(&server, |state| state["raids"][&incident].is_object()).await;
    socket.send(json!({ "type": "ping" })).await;
    assert_eq!(socket.next_message().await["type"], "pong", "no raid came before");
    assert_eq!(keys(socket.state(&server)), ["mapMarkers", "team"]);
}

#[actix_web::test]
async fn an_overlay_is_sent_nothing_of_sections_that_it_was_not_made_for() {
    let (app, mut alice, game, server, mut watching) = watched(&[GATE_SWITCH]).await;
    let mut sockets = Vec::new();
    for sections in [json!(["mapMarkers"]), json!(["devices", "team"]), Value::Null] {
        let body = json!({ "scope": "overlay", "serverId": server, "sections": sections });
        let issued = alice.post("/pairing/device/code", Some(&body)).await;
        assert_eq!(issued.status, 200, "{}", issued.text());
        let mut overlay = HelperDevice::new(app.browser(), "192.0.2.1");
        assert_eq!(overlay.activate(issued.json()["code"].as_str().unwrap()).await.status, 200);
        let minted = overlay.send(overlay.request(Method::POST, "/relay/token")).await.json();
        let opening = relay_client::request(app.relay, minted["token"].as_str());
        let mut socket = relay_client::open(app.relay, opening).await.expect("a 101").0;
        subscribe(&mut socket, &server, Value::Null).await;
        sockets.push(socket);
    }

    game.world(|world| world.say(TEAM[1].0, "the code is 1234"));
    watching.expect("chat").await;
    let toggle = format!("/paired-servers/{server}/devices/{GATE_SWITCH}/toggle");
    assert_eq!(alice.post(&toggle, None).await.status, 200);
    watching.expect_where("event", |event| event["event"]["kind"] == "device").await;
    game.world(|world| world.kill(TEAM[1].0));
    watching.expect_where("event", |event| event["event"]["kind"] == "death").await;
    // A pong may overtake what is on its way to another socket.
    let kinds_until = async |socket: &mut RelayClient, last: &str| {
        let mut kinds = Vec::new();
        while kinds.last().is_none_or(|kind| kind != last) {
            let message = socket.next_message().await;
            let of = if message["type"] == "event" { &message["event"]["kind"] } else { &message["type"] };
            kinds.push(of.as_str().unwrap().to_owned());
        }
        kinds
    };
    let [markers, devices, all] = &mut sockets[..] else { unreachable!() };
    assert_eq!(kinds_until(devices, "death").await, ["device", "death"]);
    assert_eq!(kinds_until(all, "death").await, ["chat", "device", "death"]);
    markers.send(json!({ "type": "ping" })).await;
    assert_eq!(kinds_until(markers, "pong").await, ["pong"]);
}
