//! The transcript of docs/team-chat.md, against the answers in the game; and answers that are longer than a line.

use companion::{
    domain::team_command::settings::CommandWord,
    simulator::world::{BASE_ALARM, GATE_SWITCH, LIGHTS_SWITCH, TOOL_CUPBOARD},
};
use serde_json::json;

use super::room::ChatRoom;

const DOCUMENT: &str = include_str!("../../../docs/team-chat.md");

/// Each command of the document, with the lines of its answer.
fn transcript() -> Vec<(&'static str, Vec<&'static str>)> {
    let (_, block) = DOCUMENT.split_once("```text\n").expect("the document has a transcript");
    let (block, _) = block.split_once("```").expect("it ends");
    let mut said: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in block.lines() {
        match (line.strip_prefix("Marlow"), line.strip_prefix("Nox"), said.last_mut()) {
            (Some(asked), ..) => said.push((asked.trim(), Vec::new())),
            (None, Some(answer), Some((_, answers))) => answers.push(answer.trim()),
            _ => panic!("neither question nor answer: {line}"),
        }
    }
    said
}

/// The text, with `#` for words that have a digit: numbers, times and places differ from day to day.
fn form(text: &str) -> String {
    let mut words: Vec<&str> = text
        .split_whitespace()
        .map(|word| if word.contains(|c: char| c.is_ascii_digit()) { "#" } else { word })
        .collect();
    words.dedup_by(|one, other| *one == "#" && *other == "#");
    words.join(" ")
}

#[actix_web::test]
async fn the_transcript_of_the_document_is_what_is_said() {
    let transcript = transcript();
    for word in CommandWord::WORDS {
        let asked = format!("!{word}");
        let is_asked = transcript.iter().any(|(line, _)| line.split(' ').next() == Some(asked.as_str()));
        assert!(is_asked, "no {asked}");
    }
    let mut room = ChatRoom::watching(&[TOOL_CUPBOARD, GATE_SWITCH]).await;
    room.edit_device(TOOL_CUPBOARD, json!({ "label": "Tool cupboard" })).await;
    room.edit_device(GATE_SWITCH, json!({ "label": "Gate", "customCommand": "gate" })).await;
    let mut wrong = Vec::new();
    for (asked, answers) in &transcript {
        for (place, answer) in answers.iter().enumerate() {
            let said = if place == 0 { room.ask(asked).await } else { room.late_answer().await };
            if form(&said) != form(answer) {
                wrong.push(format!("{asked}: {said}"));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// The last word of a line that was cut.
fn last_word(said: &str) -> Option<&str> {
    said.strip_suffix('…')?.split([' ', ',']).next_back()
}

#[actix_web::test]
async fn an_answer_that_is_longer_than_a_line_ends_with_a_whole_word() {
    const WORDS: [&str; 6] = ["northern", "compound", "behind", "honeycomb", "elevator", "shutters"];
    let devices = [GATE_SWITCH, LIGHTS_SWITCH, BASE_ALARM, TOOL_CUPBOARD];
    let mut room = ChatRoom::watching(&devices).await;
    let text = WORDS.join(" ");
    let commands: Vec<String> =
        devices.iter().zip(WORDS).map(|(device, word)| format!("{word}-of-the-base-{device}")).collect();
    for (device, command) in devices.iter().zip(&commands) {
        let long =
            json!({ "label": "Northern compound", "customCommand": command, "onMessage": format!("{text} {text}") });
        room.edit_device(*device, long).await;
    }
    let group = json!({ "name": "Everything", "customCommand": "everything-of-the-base",
        "devices": [GATE_SWITCH.to_string(), LIGHTS_SWITCH.to_string()] });
    let groups = format!("/paired-servers/{}/device-groups", room.server);
    assert_eq!(room.alice.post(&groups, Some(&group)).await.status, 201);
    for number in 0..5 {
        room.ask(&format!("!timer 10m {text} {text} {number}")).await;
        room.ask(&format!("!note {text} {text} {number}")).await;
    }
    let begin = room.answers.len();
    for asked in [format!("!{} on", commands[0]), "!help".to_owned(), "!timers".to_owned(), "!notes".to_owned()] {
        room.ask(&asked).await;
        room.pass(chrono::TimeDelta::seconds(8));
        // The lines after the first one of an answer.
        room.ask("!wipe").await;
    }
    room.drain();
    // The room has held each line against the game's limit.
    let cut: Vec<&str> = room.answers[begin..].iter().filter_map(|(_, said)| last_word(said)).collect();
    let is_time = |word: &str| word.strip_suffix('m').is_some_and(|minutes| minutes.parse::<u32>().is_ok());
    let is_whole =
        |word: &&str| WORDS.contains(word) || is_time(word) || commands.iter().any(|command| command == word);
    assert!(!cut.is_empty(), "{:?}", room.texts());
    assert!(cut.iter().all(is_whole), "{cut:?}");
}
