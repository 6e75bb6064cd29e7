//! Registering the support bot's commands.

use companion::simulator::chat::{ChatFaults, GUILD, OTHER_GUILD};
use serde_json::{Value, json};

use super::{audited, start};
use crate::harness::{app::ADA, chat_platform::ChatTest};

const COMMANDS: [&str; 11] = ["craft", "raid", "faq", "item", "price", "pop", "time", "wipe", "team", "upkeep", "link"];

/// Entries of the audit log about a registration.
fn entries(target: &str, group: Value, result: &str, after: Value, begun: &Value) -> [Value; 2] {
    let scope = if group.is_null() { "global" } else { "guild" };
    let entry = |payload: Value, result: &str| json!({ "actor": ADA, "action": "chat.register_commands", "target": target, "payload": payload, "result": result });
    let asked = json!({ "asked": { "scope": scope, "groupId": group } });
    [entry(json!({ "begun": begun, "after": after }), result), entry(asked, "begun")]
}

#[actix_web::test]
async fn the_commands_are_registered_everywhere_or_in_a_guild_as_often_as_one_likes() {
    let mut test = ChatTest::start().await;
    let everywhere = test.register("").await;
    assert_eq!(everywhere.status, 200, "{}", everywhere.text());
    assert_eq!(everywhere.json(), json!({ "registered": 11, "scope": "global" }));
    assert_eq!(test.platform.commands(None), COMMANDS);
    assert!(test.platform.commands(Some(GUILD)).is_empty());
    let log = audited(&mut test.ada, 9).await;
    let begun = log[0]["payload"]["begun"].clone();
    assert_eq!(log, entries("global", Value::Null, "done", json!({ "registered": 11 }), &begun));

    for _ in 0..2 {
        let guild = test.register(&format!("?groupId={GUILD}")).await;
        assert_eq!(guild.json(), json!({ "registered": 11, "scope": "guild" }));
    }
    assert_eq!(test.platform.commands(Some(GUILD)), COMMANDS);
    let log = audited(&mut test.ada, 2).await;
    let begun = log[0]["payload"]["begun"].clone();
    assert_eq!(log, entries(GUILD, json!(GUILD), "done", json!({ "registered": 11 }), &begun));
}

#[actix_web::test]
async fn a_group_that_is_no_number_is_refused_before_anybody_is_asked() {
    let mut test = ChatTest::start().await;
    for group in ["", "x", "1/2", "+1", "%20", "123456789012345678901"] {
        let problem = test.register(&format!("?groupId={group}")).await.expect_problem(400, "invalid_request");
        assert_eq!(problem["errors"][0]["path"], "groupId", "{problem}");
    }
    assert_eq!((test.platform.asked(), audited(&mut test.ada, 9).await), (0, vec![]));
}

#[actix_web::test]
async fn a_guild_without_the_bot_is_refused_and_logged() {
    let mut test = ChatTest::start().await;
    for group in [OTHER_GUILD, "1"] {
        let problem = test.register(&format!("?groupId={group}")).await.expect_problem(400, "invalid_request");
        assert_eq!(problem["errors"][0]["path"], "groupId", "{problem}");
        let log = audited(&mut test.ada, 2).await;
        let begun = log[0]["payload"]["begun"].clone();
        assert_eq!(log, entries(group, json!(group), "failed", json!({ "error": "invalid_request" }), &begun));
    }
    assert_eq!(test.platform.asked(), 2, "once each");
}

#[actix_web::test]
async fn a_refused_token_is_said_and_never_shown() {
    let mut test = ChatTest::start_on(None, &["--chat-bot-token=Hunter2.another"]).await;
    let refused = test.register("").await;
    refused.expect_problem(502, "chat_platform_refused");
    assert!(!refused.text().contains("Hunter2"));
    assert_eq!(test.platform.asked(), 1, "a token that is refused is not tried again");
    let log = audited(&mut test.ada, 2).await;
    assert_eq!(log[0]["payload"]["after"], json!({ "error": "chat_platform_refused" }));
    assert!(!json!(log).to_string().contains("Hunter2"));
}

#[actix_web::test]
async fn refused_commands_are_named() {
    let mut test = ChatTest::start().await;
    test.platform.set_faults(ChatFaults { most_commands: Some(3), ..Default::default() });
    let problem = test.register("").await.expect_problem(502, "chat_platform_refused");
    assert_eq!(problem["errors"], json!([{ "path": "3", "message": "APPLICATION_COMMANDS_EXCEEDED" }]));
    assert!(test.platform.commands(None).is_empty());
}

#[actix_web::test]
async fn a_short_pause_is_waited_for_and_a_long_one_passed_on() {
    let mut test = ChatTest::start().await;
    test.platform.set_faults(ChatFaults { too_many: 1, retry_after: 0.05, ..Default::default() });
    assert_eq!(test.register("").await.status, 200);
    assert_eq!(test.platform.asked(), 2);

    test.platform.set_faults(ChatFaults { too_many: 2, retry_after: 0.05, ..Default::default() });
    test.register("").await.expect_problem(503, "chat_platform_busy");
    assert_eq!(test.platform.asked(), 4, "there is one more attempt and no third");

    test.platform.set_faults(ChatFaults { too_many: 1, retry_after: 90.5, ..Default::default() });
    let busy = test.register("").await;
    busy.expect_problem(503, "chat_platform_busy");
    assert_eq!((busy.header("retry-after"), test.platform.asked()), (Some("91"), 5));
    let log = audited(&mut test.ada, 1).await;
    assert_eq!(log[0]["payload"]["after"], json!({ "error": "chat_platform_busy" }));
}

#[actix_web::test]
async fn a_platform_that_fails_is_unavailable() {
    let mut test = ChatTest::start().await;
    test.platform.set_faults(ChatFaults { status: Some(503), ..Default::default() });
    test.register("").await.expect_problem(503, "chat_platform_unavailable");
    assert_eq!(test.platform.asked(), 2);
    test.platform.set_faults(ChatFaults::default());
    assert_eq!(test.register("").await.status, 200);
}

#[actix_web::test]
async fn without_a_bot_nothing_is_registered_or_logged() {
    let (_app, mut ada) = start().await;
    let answer = ada.post("/admin/chat/register-commands", None).await;
    answer.expect_problem(503, "chat_disabled");
    assert!(audited(&mut ada, 9).await.is_empty());
}
