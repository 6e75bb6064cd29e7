//! Settings with which the demo's service uses its simulated neighbours.

use std::collections::HashMap;

use crate::{
    config::{ChatSettings, PaymentSettings, RegistrationSettings},
    simulator::{
        chat::ChatService,
        payments::PaymentService,
        registration::{RegistrationSites, SIMULATED_API_KEY},
    },
};

/// The settings with which the service uses this provider.
pub fn payment_settings(payments: &PaymentService, defaults: PaymentSettings) -> PaymentSettings {
    let given: HashMap<&str, String> = payments.settings().into_iter().collect();
    let value = |name: &str| given.get(name).cloned();
    PaymentSettings {
        payment_secret_key: value("PAYMENT_SECRET_KEY").map(Into::into),
        payment_webhook_secret: value("PAYMENT_WEBHOOK_SECRET").map(Into::into),
        payment_price_scout: value("PAYMENT_PRICE_SCOUT"),
        payment_price_operator: value("PAYMENT_PRICE_OPERATOR"),
        payment_price_overlord: value("PAYMENT_PRICE_OVERLORD"),
        payment_price_scout_yearly: value("PAYMENT_PRICE_SCOUT_YEARLY"),
        payment_price_operator_yearly: value("PAYMENT_PRICE_OPERATOR_YEARLY"),
        payment_price_overlord_yearly: value("PAYMENT_PRICE_OVERLORD_YEARLY"),
        payment_api_url: payments.url(),
        ..defaults
    }
}

/// The settings of a service whose bot is known to this platform.
pub fn chat_settings(chat: &ChatService, defaults: ChatSettings) -> ChatSettings {
    let given: HashMap<&str, String> = chat.settings().into_iter().collect();
    let value = |name: &str| given.get(name).cloned();
    ChatSettings {
        chat_api_url: value("CHAT_API_URL").unwrap_or(defaults.chat_api_url),
        chat_bot_token: value("CHAT_BOT_TOKEN").map(Into::into),
        chat_application_id: value("CHAT_APPLICATION_ID"),
        chat_public_key: value("CHAT_PUBLIC_KEY"),
    }
}

/// The settings of a service that registers at these sites.
pub fn registration_settings(sites: &RegistrationSites, defaults: RegistrationSettings) -> RegistrationSettings {
    let url = sites.url();
    RegistrationSettings {
        registration_api_key: Some(SIMULATED_API_KEY.into()),
        registration_google_url: url.clone(),
        registration_installations_url: url.clone(),
        registration_expo_url: url.clone(),
        registration_game_url: url,
        ..defaults
    }
}
