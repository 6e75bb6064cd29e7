//! The team chat over HTTP: what was said is kept, and the owner says something.

use companion::simulator::world::TEAM;
use reqwest::{Method, header::ORIGIN};
use serde_json::{Value, json};

use crate::harness::{
    app::{FRONTEND, TestApp},
    browser::Browser,
    game::{self, ALICE, BOB, is_complete, is_connected, pair, share, watched},
    relay_client::RelayClient,
};

fn path(server: &str) -> String {
    format!("/paired-servers/{server}/chat")
}

/// Newest first.
fn texts(chat: &Value) -> Vec<&str> {
    chat["lines"].as_array().unwrap().iter().map(|line| line["text"].as_str().unwrap()).collect()
}

async fn texts_until(browser: &mut Browser, server: &str, expected: &[&str]) -> Value {
    browser.get_until(path(server), |chat| texts(chat) == expected).await
}

#[actix_web::test]
async fn what_the_owner_says_is_said_once_and_shown_as_it_is_kept() {
    let (_app, mut alice, game, server, mut client) = watched(&[]).await;
    let path = path(&server);
    assert_eq!(alice.get(&path).await.json(), json!({ "lines": [], "next": null }));
    let answer = alice.post(&path, Some(&json!({ "text": " raid <b>tonight</b>? " }))).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let said = answer.json();
    assert_eq!((&said["author"], &said["text"]), (&json!(TEAM[0].1), &json!("raid tonight?")));
    assert_eq!(client.expect("chat").await["chat"], said, "all others get the same");
    game.world(|world| world.say(TEAM[1].0, "yes"));
    let yes = client.expect("chat").await;
    assert_eq!(yes["chat"]["text"], "yes", "and nothing in between");
    // Two players may have one name.
    let authors = [&said["authorId"], &yes["chat"]["authorId"]];
    assert_eq!(authors, [0, 1].map(|player| TEAM[player].0.to_string()).each_ref());
    let chat = texts_until(&mut alice, &server, &["yes", "raid tonight?"]).await;
    assert_eq!(chat["lines"][1], said);
    // In the game it is there once, as the paired player's.
    let lines = game.world(|world| world.team_chat(TEAM[0].0).unwrap().messages);
    let ours: Vec<_> = lines.iter().filter(|line| line.steam_id == TEAM[0].0).map(|line| &*line.message).collect();
    assert_eq!(ours, ["raid <b>tonight</b>?"]);

    let first = alice.get(&format!("{path}?limit=1")).await.json();
    assert_eq!(texts(&first), ["yes"]);
    let next = first["next"].as_str().unwrap();
    let rest = alice.get(&format!("{path}?limit=2&before={next}")).await.json();
    assert_eq!((texts(&rest), &rest["next"]), (vec!["raid tonight?"], &Value::Null));
    // A client that was away asks for what came since.
    let missed = alice.get(&format!("{path}?since={}", said["ts"].as_str().unwrap())).await.json();
    assert_eq!(missed, chat);
    assert_eq!(alice.get(&format!("{path}?since=2030-01-01T00:00:00Z")).await.json()["lines"], json!([]));
}

#[actix_web::test]
async fn the_same_words_at_once_are_as_many_lines_each_there_when_it_is_answered() {
    let (_app, mut alice, game, server, mut client) = watched(&[]).await;
    let (path, go) = (path(&server), json!({ "text": "go" }));
    // The game's clock does not move: all in one second.
    let mut said = Vec::new();
    for _ in 0..3 {
        let answer = alice.post(&path, Some(&go)).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
        said.insert(0, answer.json());
        assert_eq!(alice.get(&path).await.json()["lines"], json!(said), "all of them, the newest first");
        assert_eq!(client.expect("chat").await["chat"], said[0]);
    }
    assert!(said[0]["id"] != said[1]["id"] && said[1]["id"] != said[2]["id"] && said[2]["id"] != said[0]["id"]);
    // The game's history has all of them again.
    game.drop_connections();
    client.until(&server, |state| !is_connected(state)).await;
    game.world(|world| world.say(TEAM[1].0, "gone"));
    assert_eq!(client.expect("chat").await["chat"]["text"], "gone");
    let chat = texts_until(&mut alice, &server, &["gone", "go", "go", "go"]).await;
    assert_eq!(chat["lines"].as_array().unwrap()[1..], said);
}

#[actix_web::test]
async fn lines_are_kept_once_over_reconnects_and_restarts() {
    let app = TestApp::start_beside_games().await;
    let game = game::still(&app).await;
    game.world(|world| world.say(TEAM[1].0, "before anybody listened"));
    let mut alice = app.signed_in(ALICE).await;
    let server = pair(&mut alice, &game).await;
    let mut client = RelayClient::watching(&app, &mut alice, &server).await;
    client.until(&server, |state| is_complete(state, 0)).await;
    game.world(|world| world.say(TEAM[1].0, "heard"));
    let heard = client.expect("chat").await["chat"].take();
    let two = ["heard", "before anybody listened"];
    assert_eq!(texts_until(&mut alice, &server, &two).await["lines"][0], heard);
    game.drop_connections();
    client.until(&server, |state| !is_connected(state)).await;
    game.world(|world| world.say(TEAM[2].0, "while the link was down"));
    assert_eq!(client.expect("chat").await["chat"]["text"], "while the link was down");

    let app = app.restart_after(|| game.world(|world| world.say(TEAM[3].0, "while the service was"))).await;
    let mut again = app.again(&alice);
    let all = ["while the service was", "while the link was down", "heard", "before anybody listened"];
    let chat = texts_until(&mut again, &server, &all).await;
    assert_eq!(chat["lines"][2], heard);
    let mut client = RelayClient::watching(&app, &mut again, &server).await;
    client.until(&server, |state| is_complete(state, 0)).await;
    game.world(|world| world.say(TEAM[1].0, "and now"));
    assert_eq!(client.expect("chat").await["chat"]["text"], "and now", "what was kept is not sent again");
}

#[actix_web::test]
async fn what_the_game_refuses_is_an_error_and_is_not_kept() {
    let (_app, mut alice, game, server, mut client) = watched(&[]).await;
    let path = path(&server);
    let line = json!({ "text": "hello" });
    game.faults(|faults| faults.muted = true);
    alice.post(&path, Some(&line)).await.expect_problem(409, "message_not_sent");
    game.faults(|faults| faults.muted = false);
    // Alone, like a kicked player.
    game.world(|world| {
        world.promote(TEAM[0].0, TEAM[1].0).unwrap();
        world.kick(TEAM[1].0, TEAM[0].0).unwrap();
    });
    alice.post(&path, Some(&line)).await.expect_problem(409, "no_team");
    game.stop().await;
    client.until(&server, |state| !is_connected(state)).await;
    alice.post(&path, Some(&line)).await.expect_problem(503, "game_server_unavailable");
    assert_eq!(texts(&alice.get(&path).await.json()), [""; 0]);
}

#[actix_web::test]
async fn a_line_with_a_key_is_said_once_whatever_becomes_of_its_answer() {
    let (_app, mut alice, game, server, mut client) = watched(&[]).await;
    let path = path(&server);
    let said = || game.world(|world| world.team_chat(TEAM[0].0).unwrap().messages.len());
    let mut say = async |key: &'static str, text: &str| {
        let request = alice.request(Method::POST, &path).header(ORIGIN, FRONTEND).header("idempotency-key", key);
        alice.send(request.json(&json!({ "text": text }))).await
    };
    let first = say("one", "go").await;
    assert_eq!(first.status, 201, "{}", first.text());
    let again = say("one", "go").await;
    assert_eq!((again.text(), again.header("idempotency-replayed")), (first.text(), Some("true")));
    say("one", "stop").await.expect_problem(422, "idempotency_key_reused");
    assert_eq!(said(), 1);

    // Words that the game refused were not said.
    game.faults(|faults| faults.muted = true);
    say("two", "go").await.expect_problem(409, "message_not_sent");
    game.faults(|faults| faults.muted = false);
    assert_eq!(say("two", "go").await.status, 201);
    assert_eq!(said(), 2);

    // The fate of words that it does not answer is unknown.
    game.faults(|faults| faults.frozen = true);
    say("three", "go").await.expect_problem(504, "game_server_timeout");
    game.faults(|faults| faults.frozen = false);
    for _ in 0..2 {
        say("three", "go").await.expect_problem(409, "conflict");
    }
    game.stop().await;
    client.until(&server, |state| !is_connected(state)).await;
    for _ in 0..2 {
        say("four", "go").await.expect_problem(503, "game_server_unavailable");
    }
}

#[actix_web::test]
async fn bad_lines_and_queries_are_refused_and_nothing_is_said() {
    let (app, mut alice, game, server, _client) = watched(&[]).await;
    let path = path(&server);
    for (body, field) in [
        (json!({}), "text"),
        (json!({ "text": "" }), "text"),
        (json!({ "text": "   " }), "text"),
        (json!({ "text": "<b></b>" }), "text"),
        (json!({ "text": "two\nlines" }), "text"),
        (json!({ "text": "\u{0}" }), "text"),
        (json!({ "text": "x".repeat(129) }), "text"),
        // As the game counts, each is two.
        (json!({ "text": "🔥".repeat(65) }), "text"),
        (json!({ "text": 7 }), "text"),
        (json!({ "text": null }), "text"),
    ] {
        let problem = alice.post(&path, Some(&body)).await.expect_problem(400, "invalid_request");
        assert_eq!(problem["errors"][0]["path"], field, "{body}");
    }
    for (query, field) in [
        ("limit=0", "limit"),
        ("limit=501", "limit"),
        ("before=7", "before"),
        ("before=1.%00", "before"),
        ("since=now", "since"),
    ] {
        let problem = alice.get(&format!("{path}?{query}")).await.expect_problem(400, "invalid_request");
        assert_eq!(problem["errors"][0]["path"], field, "{query}");
    }
    let mut bob = app.signed_in(BOB).await;
    bob.post(&path, Some(&json!({ "text": "let me in" }))).await.expect_problem(404, "not_found");
    share(&mut alice, &server, &mut bob).await;
    bob.post(&path, Some(&json!({ "text": "let me in" }))).await.expect_problem(403, "owner_only");
    assert_eq!(texts(&bob.get(&path).await.json()), [""; 0], "guests read");
    assert_eq!(game.world(|world| world.team_chat(TEAM[0].0).unwrap().messages.len()), 0);
    let longest = alice.post(&path, Some(&json!({ "text": "🔥".repeat(64) }))).await;
    assert_eq!(longest.status, 201, "{}", longest.text());

    // A minute's lines.
    let mut refused = None;
    for number in 0..25 {
        let answer = alice.post(&path, Some(&json!({ "text": format!("line {number}") }))).await;
        if answer.status != 201 {
            refused = Some(answer);
            break;
        }
    }
    refused.expect("no one floods a team").expect_problem(429, "rate_limited");
    let request = alice.request(Method::POST, &path).header(ORIGIN, FRONTEND).body("text");
    alice.send(request).await.expect_problem(415, "unsupported_media_type");
}
