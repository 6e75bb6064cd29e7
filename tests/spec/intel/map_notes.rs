use chrono::Duration;
use companion::{game::wire::app_team_info::Note, simulator::world::TEAM};
use serde_json::{Value, json};

use crate::harness::{
    app::{LINKS, TestApp},
    browser::Browser,
    database::Postgres,
    game::{self, ALICE, BOB, is_complete, pair, share, watched},
    relay_client::RelayClient,
};

/// The notes of users and of the detector.
async fn ours(browser: &mut Browser, path: &str) -> Vec<Value> {
    our(&browser.get(path).await.json())
}

fn our(shown: &Value) -> Vec<Value> {
    shown["notes"].as_array().unwrap().iter().filter(|note| note["source"] != "game").cloned().collect()
}

fn note() -> Value {
    json!({ "x": 100.5, "y": 200, "category": "stash", "label": "Under the tree", "ttlSec": 60 })
}

#[actix_web::test]
async fn a_note_is_shown_to_all_who_watch_changed_and_deleted_and_expires() {
    let (app, mut alice, _game, server, mut client) = watched(&[]).await;
    let path = format!("/intel/{server}/map-notes");
    assert_eq!(ours(&mut alice, &path).await, [Value::Null; 0]);
    let answer = alice.post(&path, Some(&note())).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let added = answer.json();
    let id = added["id"].as_str().unwrap().to_owned();
    assert_eq!((&added["source"], &added["category"]), (&json!("user"), &json!("stash")));
    assert_eq!(added["expiresAt"], "2026-11-21T12:01:00.000Z");
    assert!(!added["grid"].as_str().unwrap().is_empty(), "{added}");
    client.until(&server, |state| state["mapNotes"][&id]["label"] == "Under the tree").await;
    let shown = client.state(&server)["mapNotes"][&id].clone();
    for field in ["x", "y", "grid", "category", "source", "author", "createdAt", "expiresAt"] {
        assert_eq!(shown[field], added[field], "{field}");
    }

    let request = alice.request(reqwest::Method::PATCH, &format!("{path}/{id}"));
    let answer = alice.send(request.json(&json!({ "label": null, "x": 7, "ttlSec": null }))).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let changed = answer.json();
    assert_eq!((&changed["label"], &changed["x"], &changed["expiresAt"]), (&Value::Null, &json!(7.0), &Value::Null));
    client.until(&server, |state| state["mapNotes"][&id]["x"] == 7.0).await;

    let short = alice.post(&path, Some(&note())).await.json()["id"].as_str().unwrap().to_owned();
    client.until(&server, |state| state["mapNotes"][&short].is_object()).await;
    app.clock.advance(Duration::seconds(61));
    client.until(&server, |state| state["mapNotes"][&short].is_null()).await;
    assert_eq!(ours(&mut alice, &path).await.len(), 1);
    alice.delete(&format!("{path}/{short}")).await.expect_problem(404, "not_found");

    assert_eq!(alice.delete(&format!("{path}/{id}")).await.json(), json!({ "ok": true }));
    client.until(&server, |state| state["mapNotes"][&id].is_null()).await;
    alice.delete(&format!("{path}/{id}")).await.expect_problem(404, "not_found");
}

#[actix_web::test]
async fn guests_add_notes_and_change_only_their_own() {
    let (app, mut alice, _game, server, _client) = watched(&[]).await;
    let mut bob = app.signed_in(BOB).await;
    let path = format!("/intel/{server}/map-notes");
    bob.post(&path, Some(&note())).await.expect_problem(404, "not_found");
    share(&mut alice, &server, &mut bob).await;
    let hers = alice.post(&path, Some(&note())).await.json()["id"].as_str().unwrap().to_owned();
    let his = bob.post(&path, Some(&note())).await.json()["id"].as_str().unwrap().to_owned();
    bob.delete(&format!("{path}/{hers}")).await.expect_problem(403, "owner_only");
    assert_eq!(bob.delete(&format!("{path}/{his}")).await.status, 200);
    let his = bob.post(&path, Some(&note())).await.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(alice.delete(&format!("{path}/{his}")).await.status, 200, "the owner may delete any");
}

#[actix_web::test]
async fn deaths_are_noted_for_half_an_hour_and_survive_a_restart() {
    let (app, mut alice, game, server, mut client) = watched(&[]).await;
    game.world(|world| world.kill(TEAM[2].0));
    let is_death = |note: &Value| note["category"] == "death" && note["source"] == "detector";
    let noted = |state: &Value| state["mapNotes"].as_object().unwrap().values().any(is_death);
    client.until(&server, noted).await;
    let path = format!("/intel/{server}/map-notes");
    let notes = our(&alice.get_until(&path, |shown| !our(shown).is_empty()).await);
    let note = &notes[0];
    assert_eq!((&note["category"], &note["author"]), (&json!("death"), &Value::Null));
    let id = note["id"].as_str().unwrap().to_owned();
    let app = app.restart().await;
    let mut alice = app.signed_in(ALICE).await;
    let mut client = RelayClient::watching(&app, &mut alice, &server).await;
    client.until(&server, |state| is_complete(state, 0) && state["mapNotes"][&id].is_object()).await;
    assert_eq!(alice.delete(&format!("{path}/{id}")).await.status, 200);
    client.until(&server, |state| state["mapNotes"][&id].is_null()).await;
}

/// Where a note is, as the relay and the API alike say it.
fn places<'a>(notes: impl Iterator<Item = (String, &'a Value)>) -> Vec<Value> {
    let fields = ["x", "y", "grid", "category", "label", "source", "author", "createdAt", "expiresAt"];
    let mut places: Vec<_> = notes.map(|(id, note)| (id, fields.map(|field| note[field].clone()))).collect();
    places.sort_by(|a, b| a.0.cmp(&b.0));
    places.into_iter().map(|(id, fields)| json!([id, fields])).collect()
}

/// The API lists what the relay shows.
async fn list_what_is_shown(app: TestApp) {
    let game = game::still(&app).await;
    let mut alice = app.signed_in(ALICE).await;
    let server = pair(&mut alice, &game).await;
    let mut client = RelayClient::watching(&app, &mut alice, &server).await;
    client.until(&server, |state| is_complete(state, 0)).await;
    let path = format!("/intel/{server}/map-notes");
    alice.post(&path, Some(&note())).await;
    let mate = TEAM[0].0;
    game.world(|world| {
        let at = world.terrain().base();
        let note =
            Note { r#type: 1, x: at.x + 50.0, y: at.y, icon: Some(6), colour_index: None, label: Some("trap".into()) };
        world.add_note(mate, note);
    });
    let labelled =
        |shown: &Value, label: &str| shown["notes"].as_array().unwrap().iter().any(|note| note["label"] == label);
    let listed = alice.get_until(&path, |shown| labelled(shown, "trap") && labelled(shown, "Under the tree")).await;
    client.until(&server, |state| state["mapNotes"].as_object().unwrap().len() == 4).await;
    let shown = client.state(&server)["mapNotes"].clone();
    let of_list = |listed: &Value| {
        places(listed["notes"].as_array().unwrap().iter().map(|note| (note["id"].as_str().unwrap().to_owned(), note)))
    };
    assert_eq!(of_list(&listed), places(shown.as_object().unwrap().iter().map(|(id, note)| (id.clone(), note))));

    // They are changed in the game.
    let trap = listed["notes"].as_array().unwrap().iter().find(|note| note["label"] == "trap").unwrap();
    assert_eq!((&trap["source"], &trap["category"]), (&json!("game"), &json!("warning")));
    let one = format!("{path}/{}", trap["id"].as_str().unwrap());
    alice.delete(&one).await.expect_problem(400, "invalid_request");
    alice.patch(&one, &json!({ "label": null })).await.expect_problem(400, "invalid_request");

    // While the game server is away they stay as they were last seen, also over a restart.
    drop(client);
    game.stop().await;
    let app = app.restart().await;
    let mut alice = app.again(&alice);
    assert_eq!(of_list(&alice.get(&path).await.json()), of_list(&listed));
    let mut client = RelayClient::watching(&app, &mut alice, &server).await;
    client.until(&server, |state| state["mapNotes"].as_object().unwrap().len() == 4).await;
}

#[actix_web::test]
async fn the_games_own_notes_are_listed_on_sqlite() {
    list_what_is_shown(TestApp::start_beside_games().await).await;
}

#[actix_web::test]
async fn the_games_own_notes_are_listed_on_postgresql() {
    let Some(database) = Postgres::create() else { return };
    let flags = ["--allow-private-game-servers=true", LINKS];
    list_what_is_shown(TestApp::start_on(database.url(), &flags).await).await;
}

#[actix_web::test]
async fn what_is_no_note_is_refused_by_field() {
    let (app, mut alice, _game, server, _client) = watched(&[]).await;
    let path = format!("/intel/{server}/map-notes");
    for (field, value) in [
        ("x", json!(-501)),
        ("x", json!(100_000)),
        ("y", json!(19_000)),
        ("label", json!("")),
        ("label", json!("two\nlines")),
        ("label", json!("x".repeat(101))),
        ("ttlSec", json!(0)),
        ("ttlSec", json!(2_592_001)),
    ] {
        let mut bad = note();
        bad[field] = value.clone();
        let problem = alice.post(&path, Some(&bad)).await.expect_problem(400, "invalid_request");
        assert_eq!(problem["errors"][0]["path"], field, "{value}");
    }
    for (field, value) in
        [("category", json!("death")), ("category", json!("base")), ("x", json!("7")), ("y", Value::Null)]
    {
        let mut bad = note();
        bad[field] = value;
        assert_eq!(alice.post(&path, Some(&bad)).await.status, 400, "{field}");
    }
    assert_eq!(ours(&mut alice, &path).await, [Value::Null; 0]);
    app.browser().get(&path).await.expect_problem(401, "unauthenticated");
}
