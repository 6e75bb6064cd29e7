//! The chat platform and the support bot's application there.

use secrecy::{ExposeSecret as _, SecretString};

use crate::{
    config::{
        base_url::BaseUrl,
        check::{Check, HTTP, given, given_secret},
    },
    crypto::{digest::from_hex, interaction_signature::InteractionKey},
    domain::bot::chat_interaction::is_platform_number,
};

/// The chat platform, as given.
#[derive(Clone, Debug, clap::Args)]
pub struct ChatSettings {
    /// Base URL of the chat platform's API (Discord's)
    #[arg(long, env, default_value = "https://discord.com/api/v10")]
    pub chat_api_url: String,
    /// Token of the support bot; without it there is no bot
    #[arg(long, env, hide_env_values = true)]
    pub chat_bot_token: Option<SecretString>,
    /// Id of the bot's application
    #[arg(long, env)]
    pub chat_application_id: Option<String>,
    /// Public key of the application, 64 hex digits: what it signs interactions with
    #[arg(long, env)]
    pub chat_public_key: Option<String>,
}

/// Address and credentials of the support bot at the chat platform.
#[derive(Clone, Debug)]
pub struct ChatPlatform {
    pub base_url: BaseUrl,
    pub token: SecretString,
    /// Decimal digits.
    pub application_id: String,
    pub public_key: InteractionKey,
}

impl ChatSettings {
    /// `Some(None)`: there is no bot.
    pub(super) fn check(self, check: &mut Check) -> Option<Option<ChatPlatform>> {
        let base_url = check.url("CHAT_API_URL", &self.chat_api_url, HTTP);
        let rest = [("CHAT_APPLICATION_ID", self.chat_application_id), ("CHAT_PUBLIC_KEY", self.chat_public_key)];
        let rest = rest.map(|(variable, text)| (variable, given(text)));
        let Some(token) = given_secret(self.chat_bot_token) else {
            for (variable, _) in rest.iter().filter(|(_, text)| text.is_some()) {
                check.fault(variable, "is set without CHAT_BOT_TOKEN");
            }
            return Some(None);
        };
        // The token becomes a header.
        if !token.expose_secret().bytes().all(|byte| byte.is_ascii_graphic()) {
            check.fault("CHAT_BOT_TOKEN", "is not a token of the platform");
        }
        for (variable, _) in rest.iter().filter(|(_, text)| text.is_none()) {
            check.fault(variable, "is missing, and CHAT_BOT_TOKEN is set");
        }
        let [Some(application_id), Some(key)] = rest.map(|(_, text)| text) else { return None };
        if !is_platform_number(&application_id) {
            check.fault("CHAT_APPLICATION_ID", "is not an id of 1 to 20 digits");
        }
        let public_key = from_hex(&key).and_then(|key| InteractionKey::try_from(key).ok());
        if public_key.is_none() {
            check.fault("CHAT_PUBLIC_KEY", "is not a key of 64 hex digits");
        }
        Some(Some(ChatPlatform { base_url: base_url?, token, application_id, public_key: public_key? }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete() -> ChatSettings {
        ChatSettings {
            chat_api_url: "https://discord.com/api/v10".into(),
            chat_bot_token: Some("a.b-c".into()),
            chat_application_id: Some("110000000000000001".into()),
            chat_public_key: Some("aB".repeat(32)),
        }
    }

    fn checked(settings: ChatSettings) -> Result<Option<ChatPlatform>, Vec<String>> {
        let mut check = Check { production: true, ..Check::default() };
        let checked = settings.check(&mut check);
        checked.filter(|_| check.faults.is_empty()).ok_or(check.faults)
    }

    #[test]
    fn the_bot_is_whole_or_off() {
        let chat = checked(complete()).unwrap().unwrap();
        assert_eq!((chat.application_id.as_str(), chat.public_key), ("110000000000000001", [0xab; 32]));
        let none = ChatSettings { chat_bot_token: Some(" ".into()), ..complete() };
        let bare = ChatSettings { chat_application_id: None, chat_public_key: Some(String::new()), ..none.clone() };
        assert!(checked(bare).unwrap().is_none());
        assert_eq!(
            checked(none).unwrap_err(),
            ["CHAT_APPLICATION_ID is set without CHAT_BOT_TOKEN", "CHAT_PUBLIC_KEY is set without CHAT_BOT_TOKEN"]
        );
        let half = ChatSettings { chat_application_id: None, ..complete() };
        assert_eq!(checked(half).unwrap_err(), ["CHAT_APPLICATION_ID is missing, and CHAT_BOT_TOKEN is set"]);
    }

    #[test]
    fn what_would_not_work_is_refused() {
        let odd = ChatSettings {
            chat_api_url: "http://discord.test".into(),
            chat_bot_token: Some("a b".into()),
            chat_application_id: Some("../1".into()),
            chat_public_key: Some("ab".into()),
        };
        assert_eq!(
            checked(odd).unwrap_err(),
            [
                "CHAT_API_URL is not https, which production requires",
                "CHAT_BOT_TOKEN is not a token of the platform",
                "CHAT_APPLICATION_ID is not an id of 1 to 20 digits",
                "CHAT_PUBLIC_KEY is not a key of 64 hex digits",
            ]
        );
    }
}
