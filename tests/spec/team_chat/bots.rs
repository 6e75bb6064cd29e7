//! Other bots in the team, and more commands than are answered.

use chrono::TimeDelta;
use companion::simulator::world::{GATE_SWITCH, TEAM};
use serde_json::json;

use super::room::{APART, ChatRoom, MARLOW};

#[actix_web::test]
async fn a_bot_that_turns_answers_into_commands_gets_few_and_the_owner_is_warned() {
    let mut room = ChatRoom::watching(&[]).await;
    for turn in 0..7 {
        room.pass(TimeDelta::milliseconds(2_100));
        room.say(TEAM[1 + turn % 3].0, &format!("!decay armored wall {}", 100 + turn));
        room.answer().await;
    }
    room.until_noticed(Some("loop")).await;
    room.pass(TimeDelta::seconds(5));
    room.say(MARLOW, "!pop");
    // A question in the silence is never answered.
    room.pass(TimeDelta::seconds(60));
    assert!(room.ask("!wipe").await.starts_with("wiped "));
    assert_eq!(room.answers.len(), 8, "{:?}", room.texts());
}

/// Like rustplusplus: the same prefix, answers with a mark in front, said as another player's; it answers what it hears
/// and repeats what it does not know.
#[actix_web::test]
async fn beside_another_bot_there_is_one_answer_of_ours_and_no_loop() {
    const BOT: u64 = TEAM[3].0;
    let mut room = ChatRoom::watching(&[]).await;
    for (turn, line) in ["!wipe", "!pop", "!time", "!team", "!decay armored wall"].into_iter().enumerate() {
        let ours = room.ask(line).await;
        room.say(BOT, &format!("rustplusplus | {ours}"));
        room.say(BOT, &ours);
        // The bot quotes the command and our answer: each would be a command if it came first.
        room.say(BOT, &format!("rustplusplus | {line}"));
        room.say(BOT, &format!("! {ours}"));
        if turn == 2 {
            room.until_noticed(Some("other_bot")).await;
        }
    }
    room.ask("!upkeep").await;
    assert_eq!(room.answers.len(), 6, "{:?}", room.texts());
    // Another prefix parts the two, and the warning is over.
    room.set(json!({ "prefix": "?" })).await;
    room.until_noticed(None).await;
    room.pass(APART);
    room.say(MARLOW, "!wipe");
    assert!(room.ask("?pop").await.contains("players"));
    assert_eq!(room.answers.len(), 7, "{:?}", room.texts());
    // The bot answers that one, too.
    for line in ["?time", "?team", "?upkeep"] {
        let ours = room.ask(line).await;
        room.say(BOT, &format!("rustplusplus | {ours}"));
    }
    room.until_noticed(Some("other_bot")).await;
}

/// Commands that are given, a thousand in a minute, unless this variable names another number.
const COMMANDS: (&str, usize) = ("TEAM_CHAT_COMMANDS", 1_000);

/// Seconds of the test: a minute of many commands, and two of few, so that what is said slides over the windows of the rates.
const SECONDS: usize = 180;
/// Most answers in a minute.
const ANSWERS_A_MINUTE: usize = 30;

#[actix_web::test]
async fn a_thousand_commands_in_a_minute_leave_room_for_toggles() {
    let mut room = ChatRoom::watching(&[GATE_SWITCH]).await;
    let wanted = std::env::var(COMMANDS.0).ok().and_then(|wanted| wanted.parse().ok()).unwrap_or(COMMANDS.1);
    let odd = ["!alive ", "!help ", "!team ", "!decay armored wall "];
    let mut numbers = 0..;
    for second in 0..SECONDS {
        room.pass(TimeDelta::seconds(1));
        let given = if second < 60 { wanted.div_ceil(60) } else { 1 };
        for number in numbers.by_ref().take(given) {
            let line = format!("{}{number}{}", odd[number % 4], "🦀".repeat(number % 40));
            room.say(TEAM[1 + number % 3].0, &line);
        }
        if second % 15 != 3 {
            // A request gives the service time.
            room.alice.get("/me").await;
            continue;
        }
        // Answers of this second wait or are said meanwhile, and the next second begins when the ack has come.
        let (request, gate) = (second.to_string(), GATE_SWITCH.to_string());
        let toggle = json!({ "type": "deviceToggle", "serverId": room.server, "deviceId": gate,
            "value": second % 2 == 0, "requestId": request });
        room.client.send(toggle).await;
        assert_eq!(room.client.expect("ack").await["requestId"], request);
    }
    room.drain();
    let said = room.said_at.clone();
    // Lines that look like a loop end them soon.
    assert!(!said.is_empty(), "{:?}", room.texts());
    for (from, first) in said.iter().enumerate() {
        let minute = said[from..].iter().take_while(|at| **at < first + 60);
        assert!(minute.count() <= ANSWERS_A_MINUTE, "{said:?}");
        for (after, at) in said[from..].iter().enumerate() {
            // The game may have heard a line in the second after that in which it was said.
            assert!(at - first + 1 >= 2 * after as u32, "one in two seconds: {said:?}");
        }
    }
    // One may have been on its way.
    room.pass(TimeDelta::minutes(2));
    let mut answer = room.ask("!wipe").await;
    while !answer.starts_with("wiped ") {
        answer = room.late_answer().await;
    }
}
