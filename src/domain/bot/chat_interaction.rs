//! Requests of the chat platform to the bot's endpoint, and the answers to them.

use serde_json::{Value, json};

use crate::domain::{
    bot::{bot_reply::BotReply, chat_commands::BotCommand},
    ids::ChatUserId,
};

/// Kinds of interaction.
const PING: u64 = 1;
const COMMAND: u64 = 2;
/// Kinds of answer.
const PONG: u64 = 1;
const MESSAGE: u64 = 4;
/// A message that only the account sees that gave the command.
const EPHEMERAL: u64 = 1 << 6;
/// No previews of links.
const SUPPRESS_EMBEDS: u64 = 1 << 2;

/// A call of the chat platform, when a user does something with the bot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interaction {
    /// The platform checks that the endpoint is there.
    Ping,
    /// A command, given by this account; `None`: none of ours.
    Command { by: ChatUserId, command: Option<BotCommand> },
}

impl Interaction {
    /// Reads an interaction; the error is the path of the field that is missing or has an unknown form.
    pub fn read(body: &Value) -> Result<Self, &'static str> {
        match body["type"].as_u64() {
            Some(PING) => Ok(Self::Ping),
            Some(COMMAND) => {
                // In a direct message there is no member.
                let [member, user] = [&body["member"]["user"]["id"], &body["user"]["id"]];
                let by = member.as_str().or(user.as_str()).and_then(ChatUserId::parse).ok_or("user.id")?;
                Ok(Self::Command { by, command: BotCommand::read(&body["data"]) })
            }
            _ => Err("type"),
        }
    }
}

impl ChatUserId {
    /// Reads an id of the platform: 1 to 20 digits.
    pub fn parse(text: &str) -> Option<Self> {
        is_platform_number(text).then(|| text.into())
    }
}

/// True for an id as the platform writes it; it may become a part of a path.
pub fn is_platform_number(text: &str) -> bool {
    (1..=20).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The answer to a ping.
pub fn pong() -> Value {
    json!({ "type": PONG })
}

/// The answer to a command. It mentions no one and has no previews of links, whatever its text says.
pub fn message(reply: &BotReply) -> Value {
    let flags = if reply.private { SUPPRESS_EMBEDS | EPHEMERAL } else { SUPPRESS_EMBEDS };
    let data = json!({ "content": reply.text, "allowed_mentions": { "parse": [] }, "flags": flags });
    json!({ "type": MESSAGE, "data": data })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pings_and_commands_are_read_and_others_refused() {
        assert_eq!(Interaction::read(&json!({ "type": 1 })), Ok(Interaction::Ping));
        let link = |user: Value| {
            let mut body = json!({ "type": 2, "data": { "name": "link" } });
            body.as_object_mut().unwrap().extend(user.as_object().unwrap().clone());
            Interaction::read(&body)
        };
        let by_seven = Ok(Interaction::Command { by: "7".into(), command: Some(BotCommand::Link) });
        assert_eq!(link(json!({ "member": { "user": { "id": "7" } } })), by_seven);
        assert_eq!(link(json!({ "user": { "id": "7" } })), by_seven, "a direct message");
        for id in [json!(null), json!(7), json!(""), json!("7a"), json!("1".repeat(21))] {
            assert_eq!(link(json!({ "user": { "id": id } })), Err("user.id"), "{id}");
        }
        let other = json!({ "type": 2, "user": { "id": "7" }, "data": { "name": "ban" } });
        assert_eq!(Interaction::read(&other), Ok(Interaction::Command { by: "7".into(), command: None }));
        for body in [json!({}), json!(null), json!([1]), json!({ "type": 3 }), json!({ "type": "1" })] {
            assert_eq!(Interaction::read(&body), Err("type"), "{body}");
        }
    }

    #[test]
    fn an_answer_mentions_no_one_and_may_be_for_one() {
        let reply = |private| message(&BotReply { text: "@everyone".into(), private });
        let data = json!({ "content": "@everyone", "allowed_mentions": { "parse": [] }, "flags": 4 });
        assert_eq!(reply(false), json!({ "type": 4, "data": data }));
        assert_eq!(reply(true)["data"]["flags"], 68);
    }
}
