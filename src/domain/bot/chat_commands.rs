//! The support bot's commands: as the chat platform registers them (`domain/data/chat_commands.json`), and a command as
//! a user gave it.

use serde_json::Value;

use crate::domain::{plain_text::plain_text, team_command::settings::CommandWord, words::words};

/// The list of commands, JSON in the form of the platform.
pub const SCHEMA: &str = include_str!("../data/chat_commands.json");

/// Characters of an option that are read.
const LONGEST_TEXT: usize = 100;
/// Most pieces that are asked for at once.
const MOST_PIECES: u32 = 10_000;

words! {
    /// Reach of a registration of the commands.
    pub enum CommandScope {
        /// Everywhere.
        Global = "global",
        /// In one guild.
        Guild = "guild",
    }
}

/// A command as a user gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BotCommand {
    Craft {
        item: String,
        /// At least one.
        amount: Option<u32>,
    },
    Raid {
        target: String,
        /// At least one.
        amount: Option<u32>,
    },
    Faq {
        question: Option<String>,
    },
    Item {
        item: String,
    },
    Price {
        item: String,
    },
    /// A question of the team's chat.
    Ask(CommandWord),
    Link,
}

impl BotCommand {
    /// Reads the `data` of an interaction; `None` for a command that is none of ours, or without what it requires.
    pub fn read(data: &Value) -> Option<Self> {
        let option = |name: &str| {
            let options = data["options"].as_array().map(Vec::as_slice).unwrap_or_default();
            options.iter().find(|option| option["name"] == name).map(|option| &option["value"])
        };
        let text = |name: &str| {
            let text = plain_text(option(name)?.as_str()?, LONGEST_TEXT);
            (!text.is_empty()).then_some(text)
        };
        let amount = || {
            let amount = option("amount")?.as_u64()?;
            Some(u32::try_from(amount).unwrap_or(MOST_PIECES).clamp(1, MOST_PIECES))
        };
        Some(match data["name"].as_str()? {
            "craft" => Self::Craft { item: text("item")?, amount: amount() },
            "raid" => Self::Raid { target: text("target")?, amount: amount() },
            "faq" => Self::Faq { question: text("question") },
            "item" => Self::Item { item: text("item")? },
            "price" => Self::Price { item: text("item")? },
            word @ ("pop" | "time" | "wipe" | "team" | "upkeep") => Self::Ask(CommandWord::typed(word)?),
            "link" => Self::Link,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Value {
        serde_json::from_str(SCHEMA).unwrap()
    }

    #[test]
    fn every_command_that_is_registered_is_understood() {
        let names: Vec<String> =
            schema().as_array().unwrap().iter().map(|command| command["name"].as_str().unwrap().to_owned()).collect();
        assert_eq!(names, ["craft", "raid", "faq", "item", "price", "pop", "time", "wipe", "team", "upkeep", "link"]);
        for command in schema().as_array().unwrap() {
            let options = command["options"].as_array().cloned().unwrap_or_default();
            let given = |all: bool| {
                let given = options.iter().filter(|option| all || option["required"] == true).map(|option| {
                    let value = if option["type"] == 3 { json!("x") } else { json!(3) };
                    json!({ "name": option["name"], "type": option["type"], "value": value })
                });
                json!({ "name": command["name"], "options": given.collect::<Vec<_>>() })
            };
            let (all, few) = (BotCommand::read(&given(true)), BotCommand::read(&given(false)));
            assert!(all.is_some() && few.is_some(), "{command}");
            let has_optional = options.iter().any(|option| option["required"] != true);
            assert_eq!(all != few, has_optional, "every option is read: {command}");
        }
    }

    #[test]
    fn options_are_read_within_bounds_and_commands_of_others_are_not() {
        let read = |name: &str, options: Value| BotCommand::read(&json!({ "name": name, "options": options }));
        let craft = |amount: Value| {
            read("craft", json!([{ "name": "item", "value": " ak \n" }, { "name": "amount", "value": amount }]))
        };
        let expected = |amount| Some(BotCommand::Craft { item: "ak".into(), amount });
        assert_eq!(craft(json!(7)), expected(Some(7)));
        assert_eq!(craft(json!(u64::MAX)), expected(Some(MOST_PIECES)));
        assert_eq!((craft(json!(0)), craft(json!(-1))), (expected(Some(1)), expected(None)));
        assert_eq!(read("craft", json!([])), None);
        assert_eq!(read("item", json!([{ "name": "item", "value": "\u{200b}" }])), None);
        assert_eq!(read("faq", json!([{ "name": "question", "value": 3 }])), Some(BotCommand::Faq { question: None }));
        assert_eq!(read("ban", json!([])), None);
        let long = read("item", json!([{ "name": "item", "value": "x".repeat(6_000) }]));
        assert_eq!(long, Some(BotCommand::Item { item: "x".repeat(LONGEST_TEXT) }));
    }
}
