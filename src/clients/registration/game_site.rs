//! The game's companion site: registers a device for the pushes of the player who signed in, and ends that.

use reqwest::RequestBuilder;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use super::device::RegisteredDevice;
use crate::config::Registration;

/// Pushes go through Expo.
const EXPO: u8 = 3;

/// A request to send the player's pushes to this device. A known device is renewed.
pub fn register(http: &reqwest::Client, settings: &Registration, device: &RegisteredDevice) -> RequestBuilder {
    let (auth_token, push_token) = secrets(device);
    http.post(settings.game_url.at("/api/push/register")).json(&json!({
        "AuthToken": auth_token, "DeviceId": device.device_id, "PushKind": EXPO, "PushToken": push_token,
    }))
}

/// A request to end that.
pub fn unregister(http: &reqwest::Client, settings: &Registration, device: &RegisteredDevice) -> RequestBuilder {
    let (auth_token, push_token) = secrets(device);
    http.delete(settings.game_url.at("/api/push/unregister")).json(&json!({
        "AuthToken": auth_token, "PushToken": push_token, "DeviceId": device.device_id,
    }))
}

fn secrets(device: &RegisteredDevice) -> (&str, &str) {
    let [auth_token, push_token] =
        [&device.auth_token, &device.expo_token].map(|secret| secret.as_ref().map_or("", |text| text.expose_secret()));
    (auth_token, push_token)
}

/// The newest token of the login, in the answer to a registration.
pub fn read_token(body: &[u8]) -> Option<String> {
    let answer: Value = serde_json::from_slice(body).ok()?;
    answer["token"].as_str().map(str::to_owned)
}
