use chrono::Duration;
use companion::simulator::world::TEAM;
use serde_json::{Value, json};

use crate::harness::{
    game::{ALICE, BOB, is_complete, watched},
    relay_client::RelayClient,
};

fn note() -> Value {
    json!({ "x": 100.5, "y": 200, "category": "stash", "label": "Under the tree", "ttlSec": 60 })
}

#[actix_web::test]
async fn a_note_is_shown_to_all_who_watch_changed_and_deleted_and_expires() {
    let (app, mut alice, _game, server, mut client) = watched(&[]).await;
    let path = format!("/intel/{server}/map-notes");
    assert_eq!(alice.get(&path).await.json(), json!({ "notes": [] }));
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
    let notes = alice.get(&path).await.json();
    assert_eq!(notes["notes"].as_array().unwrap().len(), 1, "{notes}");
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
    let invited = alice.post(&format!("/paired-servers/{server}/guests"), Some(&json!({ "platformId": BOB }))).await;
    assert_eq!(invited.status, 201, "{}", invited.text());
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
    let notes = alice.get_until(&path, |shown| !shown["notes"].as_array().unwrap().is_empty()).await;
    let note = &notes["notes"][0];
    assert_eq!((&note["category"], &note["author"]), (&json!("death"), &Value::Null));
    let id = note["id"].as_str().unwrap().to_owned();
    let app = app.restart().await;
    let mut alice = app.signed_in(ALICE).await;
    let mut client = RelayClient::watching(&app, &mut alice, &server).await;
    client.until(&server, |state| is_complete(state, 0) && state["mapNotes"][&id].is_object()).await;
    assert_eq!(alice.delete(&format!("{path}/{id}")).await.status, 200);
    client.until(&server, |state| state["mapNotes"][&id].is_null()).await;
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
    assert_eq!(alice.get(&path).await.json(), json!({ "notes": [] }));
    app.browser().get(&path).await.expect_problem(401, "unauthenticated");
}
