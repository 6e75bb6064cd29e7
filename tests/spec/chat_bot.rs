//! The support bot, as the chat platform calls it, and linking an account of the platform.

use std::collections::BTreeSet;

use companion::simulator::{
    chat::{GUILD, GivenCommand, SignedInteraction},
    world::TOOL_CUPBOARD,
};
use serde_json::{Value, json};

use crate::harness::{
    app::{LINKS, TestApp},
    browser::Browser,
    chat_platform::{CHAT_ALICE, ChatTest},
    database::Postgres,
    game::{self, ALICE, BOB, add_device, is_complete, pair},
    relay_client::RelayClient,
};

const CHAT_BOB: &str = "130000000000000008";

/// A service with a bot whose commands are registered.
async fn registered() -> ChatTest {
    let mut test = ChatTest::start().await;
    assert_eq!(test.register(&format!("?groupId={GUILD}")).await.status, 200);
    test
}

async fn link(browser: &mut Browser, code: &str) -> crate::harness::browser::Answer {
    browser.post("/chat/link", Some(&json!({ "code": code }))).await
}

async fn is_linked(browser: &mut Browser) -> bool {
    browser.get("/me").await.json()["chatLinked"].as_bool().unwrap()
}

#[actix_web::test]
async fn only_what_the_platform_signed_lately_is_heard() {
    let test = ChatTest::start().await;
    let good = test.platform.signed(&json!({ "type": 1 }));
    let pong = test.deliver(&good).await;
    assert_eq!((pong.status, pong.json()), (200, json!({ "type": 1 })));

    let mut wrong = vec![];
    let changes: [fn(&mut SignedInteraction); 6] = [
        |signed| signed.body = r#"{"type":1 }"#.into(),
        |signed| signed.signature = signed.signature[2..].to_owned(),
        |signed| signed.signature = "00".repeat(64),
        |signed| signed.signature = "no hex".into(),
        |signed| signed.time = (signed.time.parse::<i64>().unwrap() + 1).to_string(),
        |signed| signed.time = "yesterday".into(),
    ];
    for change in changes {
        let mut changed = good.clone();
        change(&mut changed);
        wrong.push(changed);
    }
    for signed in &wrong {
        test.deliver(signed).await.expect_problem(401, "invalid_interaction_signature");
    }
    let mut unsigned = test.app.browser();
    let answer = unsigned.post("/chat/interactions", Some(&json!({ "type": 1 }))).await;
    answer.expect_problem(401, "invalid_interaction_signature");

    test.app.clock.advance(chrono::Duration::seconds(300));
    assert_eq!(test.deliver(&good).await.status, 200);
    test.app.clock.advance(chrono::Duration::seconds(1));
    test.deliver(&good).await.expect_problem(401, "invalid_interaction_signature");
}

#[actix_web::test]
async fn what_is_signed_and_not_understood_is_refused() {
    let test = ChatTest::start().await;
    for (interaction, path) in [
        (json!({}), "type"),
        (json!({ "type": 3 }), "type"),
        (json!({ "type": 2, "data": { "name": "link" } }), "user.id"),
        (json!({ "type": 2, "user": { "id": "../1" }, "data": { "name": "link" } }), "user.id"),
    ] {
        let problem = test.deliver(&test.platform.signed(&interaction)).await.expect_problem(400, "invalid_request");
        assert_eq!(problem["errors"][0]["path"], path, "{interaction}");
    }
    let mut text = test.platform.signed(&json!({ "type": 1 }));
    text.body.push('}');
    test.deliver(&text).await.expect_problem(401, "invalid_interaction_signature");
    let large = test.platform.signed(&json!({ "type": 1, "padding": "x".repeat(64 * 1024) }));
    test.deliver(&large).await.expect_problem(413, "body_too_large");
}

#[actix_web::test]
async fn without_a_bot_there_is_no_endpoint() {
    let app = TestApp::start().await;
    let mut alice = app.signed_in(ALICE).await;
    app.browser().post("/chat/interactions", Some(&json!({}))).await.expect_problem(503, "chat_disabled");
    link(&mut alice, "2222-2222").await.expect_problem(503, "chat_disabled");
    alice.delete("/chat/link").await.expect_problem(404, "not_found");
}

#[actix_web::test]
async fn every_command_has_an_answer() {
    let test = registered().await;
    let (craft, private) = test.ask("craft", json!({ "item": "gunpowder", "amount": 25 })).await;
    assert_eq!((craft.as_str(), private), ("**30 Gun Powder**: 90 Charcoal, 60 Sulfur.", false));
    let (raid, private) = test.ask("raid", json!({ "target": "garage door" })).await;
    assert!(raid.starts_with("**Garage door**: ") && raid.contains("sulfur") && !private, "{raid}");
    let (item, private) = test.ask("item", json!({ "item": "rifle.ak" })).await;
    assert!(item.starts_with("**Assault Rifle** (rifle.ak, id 1545779598)") && !private, "{item}");
    let (all, private) = test.ask("faq", json!({})).await;
    assert!(all.lines().count() > 10 && private, "{all}");
    let (one, private) = test.ask("faq", json!({ "question": "banned" })).await;
    assert!(one.starts_with("**Can I be banned") && !private, "{one}");
    let (price, private) = test.ask("price", json!({ "item": "wood" })).await;
    assert!(price.contains("/link") && private, "who asks is not known: {price}");
    test.code(CHAT_ALICE).await;

    for (command, option) in [("craft", "item"), ("item", "item"), ("raid", "target"), ("faq", "question")] {
        let asked = json!({ option: "@everyone [no](http://such.thing)" });
        let (text, private) = test.ask(command, asked).await;
        assert!(text.contains(r"\@everyone \[no\](http\://such.thing)") && private, "{command}: {text}");
    }
    let given = GivenCommand::new(CHAT_ALICE, "ban", json!({}));
    let unknown = test.platform.interaction(&given);
    let answer = test.deliver(&test.platform.signed(&unknown)).await.json();
    assert_eq!((&answer["type"], &answer["data"]["flags"]), (&json!(4), &json!(68)), "{answer}");
    test.platform.give(&given).await.expect_err("it is not registered");
}

#[actix_web::test]
async fn the_bot_says_what_the_stores_say_now_and_no_more_than_a_message_holds() {
    let mut test = registered().await;
    let entry = |answer: &str| json!({ "data": { "entries": [{ "id": "a", "question": "Long?", "answer": answer }] } });
    for (answer, length) in [("short", 15), (&"😀 word ".repeat(2_000), 2_000)] {
        let put = test.ada.put("/admin/store/faq", &entry(answer)).await;
        assert_eq!(put.status, 200, "{}", put.text());
        let (text, _) = test.ask("faq", json!({ "question": "long" })).await;
        let units = text.encode_utf16().count();
        assert!(units <= length && units + 20 > length, "{units}: {text}");
        assert_eq!(text.ends_with('…'), length == 2_000);
    }
    let messages = json!({ "data": { "craft.answer": "{item} aus {ingredients}" } });
    assert_eq!(test.ada.put("/admin/store/messages", &messages).await.status, 200);
    let recipe = json!({ "name": "Thing", "makes": 2, "ingredients": [{ "shortname": "wood", "quantity": 3 }] });
    let crafting = json!({ "data": { "recipes": { "thing": recipe } } });
    assert_eq!(test.ada.put("/admin/store/crafting", &crafting).await.status, 200);
    assert_eq!(test.ask("craft", json!({ "item": "thing", "amount": 3 })).await.0, "**4 Thing** aus 6 wood");
    for store in ["messages", "crafting", "raid", "faq"] {
        assert_eq!(test.ada.put(&format!("/admin/store/{store}"), &json!({ "data": [7] })).await.status, 200);
    }
    for (command, options) in
        [("craft", json!({ "item": "wood" })), ("raid", json!({ "target": "door" })), ("faq", json!({}))]
    {
        assert!(test.ask(command, options).await.1, "{command}: nothing is known any more");
    }
}

async fn an_account_is_linked_once(mut test: ChatTest) {
    let (mut alice, mut bob) = (test.app.signed_in(ALICE).await, test.app.signed_in(BOB).await);
    assert!(!is_linked(&mut alice).await);
    let (old, code) = (test.code(CHAT_ALICE).await, test.code(CHAT_ALICE).await);
    link(&mut alice, &old).await.expect_problem(404, "unknown_chat_code");
    let answer = link(&mut alice, &format!(" {} ", code.to_lowercase())).await;
    assert_eq!((answer.status, answer.json()), (200, json!({ "ok": true })));
    assert!(is_linked(&mut alice).await && !is_linked(&mut bob).await);
    link(&mut alice, &code).await.expect_problem(404, "unknown_chat_code");

    let again = test.code(CHAT_ALICE).await;
    link(&mut bob, &again).await.expect_problem(409, "chat_account_taken");
    assert_eq!(link(&mut alice, &again).await.status, 200, "a refusal does not use the code up, and twice is as good");
    let other = test.code(CHAT_BOB).await;
    assert_eq!(link(&mut alice, &other).await.status, 200, "another account takes its place");
    let first = test.code(CHAT_ALICE).await;
    assert_eq!(link(&mut bob, &first).await.status, 200, "which is free then");

    assert_eq!(alice.delete("/chat/link").await.json(), json!({ "ok": true }));
    alice.delete("/chat/link").await.expect_problem(404, "not_found");
    assert!(!is_linked(&mut alice).await && is_linked(&mut bob).await);
    let overview = test.ada.get("/admin/users/overview").await.json();
    assert_eq!(overview["totals"]["withChat"], 1);
    for user in overview["users"].as_array().unwrap() {
        assert_eq!(user["chatLinked"], user["platformId"] == BOB, "{user}");
    }

    let late = test.code(CHAT_BOB).await;
    test.advance(chrono::Duration::minutes(10));
    link(&mut alice, &late).await.expect_problem(404, "unknown_chat_code");
    test.app
        .browser()
        .post("/chat/link", Some(&json!({ "code": "2222-2222" })))
        .await
        .expect_problem(401, "unauthenticated");
}

#[actix_web::test]
async fn an_account_is_linked_once_on_sqlite() {
    an_account_is_linked_once(registered().await).await;
}

#[actix_web::test]
async fn an_account_is_linked_once_on_postgres() {
    let Some(database) = Postgres::create() else { return };
    let mut test = ChatTest::start_on(Some(database.url()), &[]).await;
    assert_eq!(test.register("").await.status, 200);
    an_account_is_linked_once(test).await;
}

#[actix_web::test]
async fn codes_cannot_be_guessed() {
    let test = registered().await;
    let mut alice = test.app.signed_in(ALICE).await;
    let codes: BTreeSet<String> = [test.code(CHAT_ALICE).await, test.code(CHAT_BOB).await].into();
    assert_eq!(codes.len(), 2);
    for wrong in ["2222-2222", "", "x", "2222", "3333-3333"] {
        link(&mut alice, wrong).await.expect_problem(404, "unknown_chat_code");
    }
    let code = codes.first().unwrap();
    let refused = link(&mut alice, code).await;
    refused.expect_problem(429, "rate_limited");
    assert!(refused.header("retry-after").is_some());
    test.advance(chrono::Duration::minutes(10));
    let code = test.code(CHAT_ALICE).await;
    assert_eq!(link(&mut alice, &code).await.status, 200);
}

#[actix_web::test]
async fn prices_are_those_of_the_servers_of_who_asks() {
    let mut test = ChatTest::start_on(None, &["--allow-private-game-servers=true", LINKS]).await;
    assert_eq!(test.register("").await.status, 200);
    let game = game::still(&test.app).await;
    let mut alice = test.app.signed_in(ALICE).await;
    let code = test.code(CHAT_ALICE).await;
    assert_eq!(link(&mut alice, &code).await.status, 200);
    let (none, _) = test.ask("price", json!({ "item": "wood" })).await;
    assert_eq!(none, "You have no paired server yet.");

    let server = pair(&mut alice, &game).await;
    let mut client = RelayClient::watching(&test.app, &mut alice, &server).await;
    client.until(&server, |state| is_complete(state, 0)).await;
    let path = format!("/paired-servers/{server}/shops");
    let shops = alice.get_until(&path, |shops| shops["total"].as_u64() > Some(0)).await;
    let name = alice.get(&format!("/paired-servers/{server}")).await.json()["name"].as_str().unwrap().to_owned();
    let offer = |offer: &&Value| {
        offer["inStock"].as_i64() > Some(0) && offer["itemIsBlueprint"] == false && offer["worn"] == false
    };
    let offers: Vec<&Value> = shops["shops"].as_array().unwrap().iter().filter(offer).collect();
    // They are sorted: of each item and currency the cheapest comes first.
    let cheapest = offers[0];
    let (text, private) = test.ask("price", json!({ "item": cheapest["shortname"] })).await;
    let said = format!(
        "{}: {} for {} {}",
        format_args!("{} on {name}", cheapest["itemName"].as_str().unwrap()),
        cheapest["quantity"],
        cheapest["price"],
        cheapest["currencyName"].as_str().unwrap()
    );
    assert!(text.contains(&said) && private, "{said:?} is not in {text:?}");

    let (text, _) = test.ask("price", json!({ "item": "rocket launcher" })).await;
    assert_eq!(text, format!("No shop sells Rocket Launcher on {name} now."));
    let (text, _) = test.ask("price", json!({ "item": "no such thing" })).await;
    assert!(text.starts_with("I know no item"), "{text}");
    let (stranger, _) = test.ask_as(CHAT_BOB, "price", json!({ "item": "wood" })).await;
    assert!(stranger.contains("/link"), "{stranger}");
    assert_eq!(alice.delete("/chat/link").await.status, 200);
    let (ended, _) = test.ask("price", json!({ "item": "wood" })).await;
    assert!(ended.contains("/link"), "{ended}");
}

/// A name as the bot shows it.
fn escaped(name: &str) -> String {
    let is_mark = |c: char| r"\*_~`|<>#[]:@".contains(c);
    name.chars().flat_map(|c| is_mark(c).then_some('\\').into_iter().chain([c])).collect()
}

/// The questions of the team's chat that the bot takes.
const QUESTIONS: [&str; 5] = ["pop", "time", "wipe", "team", "upkeep"];

#[actix_web::test]
async fn a_question_of_the_team_s_chat_is_answered_for_each_server_of_who_asks() {
    let mut test = ChatTest::start_on(None, &["--allow-private-game-servers=true", LINKS]).await;
    assert_eq!(test.register("").await.status, 200);
    let (game, other) = (game::still(&test.app).await, game::still(&test.app).await);
    let (mut alice, mut bob) = (test.app.signed_in(ALICE).await, test.app.signed_in(BOB).await);
    for question in QUESTIONS {
        let (text, private) = test.ask(question, json!({})).await;
        assert!(text.contains("/link") && private, "who asks is not known: {text}");
    }
    for (browser, account) in [(&mut alice, CHAT_ALICE), (&mut bob, CHAT_BOB)] {
        let code = test.code(account).await;
        assert_eq!(link(browser, &code).await.status, 200);
    }
    assert_eq!(test.ask("pop", json!({})).await, ("You have no paired server yet.".to_owned(), true));

    let server = pair(&mut alice, &game).await;
    add_device(&mut alice, &server, TOOL_CUPBOARD).await;
    let mut client = RelayClient::watching(&test.app, &mut alice, &server).await;
    client.until(&server, |state| is_complete(state, 1)).await;
    let name = alice.get(&format!("/paired-servers/{server}")).await.json()["name"].as_str().unwrap().to_owned();
    let head = &client.state(&server)["server"];
    let players = format!("{}/{} players", head["players"], head["maxPlayers"]);
    for (question, has) in
        QUESTIONS.into_iter().zip([players.as_str(), r"08\:", "wiped ", r"online 3/4\: Marlow ", " 4246 "])
    {
        let (text, private) = test.ask(question, json!({})).await;
        assert!(text.starts_with(&format!("**{}**: ", escaped(&name))), "{question}: {text}");
        assert!(text.contains(has) && private && text.lines().count() == 1, "{question}: {text}");
    }
    let (none, _) = test.ask_as(CHAT_BOB, "pop", json!({})).await;
    assert_eq!(none, "You have no paired server yet.", "nothing of Alice's is shown to him");

    // One that Bob shares, whose link is up, and one of hers that is away.
    let shared = pair(&mut bob, &other).await;
    game::share(&mut bob, &shared, &mut alice).await;
    client.subscribe(&shared).await;
    client.until(&shared, |state| is_complete(state, 0)).await;
    drop(game);
    client.until(&server, |state| state["server"]["connection"] != "connected").await;
    let (text, _) = test.ask("pop", json!({})).await;
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert_eq!(lines[0], format!("**{}**: not connected now.", escaped(&name)), "her own first");
    assert!(lines[1].contains(" players"), "{text}");
    let (his, _) = test.ask_as(CHAT_BOB, "pop", json!({})).await;
    assert!(his.lines().count() == 1 && his.contains(" players"), "{his}");
}
