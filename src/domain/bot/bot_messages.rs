//! The store of messages: texts of the bot and of the team's chat, as admins wrote them.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::domain::{bot::bot_reply::BotReply, stores::StoreName};

/// The store of messages: texts by name, with places in braces.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BotMessages(Value);

impl BotMessages {
    /// Messages from a store; one that the store does not have has its shipped text.
    pub fn new(store: Value) -> Self {
        Self(store)
    }

    /// The text of this name, with its places filled.
    pub fn say(&self, name: &str, places: &[(&str, &str)]) -> String {
        static SHIPPED: LazyLock<Value> =
            LazyLock::new(|| serde_json::from_str(StoreName::Messages.shipped()).unwrap_or_default());
        let text = |store: &Value| store[name].as_str().filter(|text| !text.trim().is_empty()).map(str::to_owned);
        let template = text(&self.0).or_else(|| text(&SHIPPED)).unwrap_or_else(|| name.to_owned());
        filled(&template, places)
    }

    /// The data cannot be read now.
    pub fn unavailable(&self) -> BotReply {
        BotReply::private(self.say("error.unavailable", &[]))
    }

    /// There is no such command.
    pub fn unknown_command(&self) -> BotReply {
        BotReply::private(self.say("chat.unknownCommand", &[]))
    }

    /// A code, and where it is entered.
    pub fn code(&self, code: &str, url: &str) -> BotReply {
        BotReply::private(self.say("chat.code", &[("code", &format!("**{code}**")), ("url", url)]))
    }

    /// The account must be linked first.
    pub fn not_linked(&self) -> BotReply {
        BotReply::private(self.say("chat.notLinked", &[]))
    }
}

/// The template with values in its places; braces within a value are not places.
fn filled(template: &str, places: &[(&str, &str)]) -> String {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        text += before;
        let place = after.split_once('}').and_then(|(name, after)| {
            let (_, value) = places.iter().find(|(place, _)| *place == name)?;
            Some((*value, after))
        });
        rest = match place {
            Some((value, after)) => {
                text += value;
                after
            }
            None => {
                text.push('{');
                after
            }
        };
    }
    text + rest
}
