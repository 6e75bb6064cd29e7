//! Expo, through which the game sends its pushes: a name for the address of a device.

use reqwest::RequestBuilder;
use serde_json::{Value, json};

use super::call::plain_word;
use crate::config::Registration;

/// A request for the name of this address. A known device gets its own once more, instead of another beside it.
pub fn token(http: &reqwest::Client, settings: &Registration, device_id: &str, push_address: &str) -> RequestBuilder {
    http.post(settings.expo_url.at("/--/api/v2/push/getExpoPushToken")).json(&json!({
        "type": "fcm",
        "deviceId": device_id,
        "development": false,
        "appId": settings.package,
        "deviceToken": push_address,
        "projectId": settings.expo_project,
    }))
}

/// The name, or Expo's word for its refusal.
pub fn read_token(status: u16, body: &[u8]) -> Result<String, String> {
    let answer: Value = serde_json::from_slice(body).unwrap_or_default();
    if status == 200
        && let Some(token) = answer["data"]["expoPushToken"].as_str()
    {
        return Ok(token.to_owned());
    }
    let code = answer["errors"][0]["code"].as_str().map(plain_word).filter(|code| !code.is_empty());
    Err(code.unwrap_or_else(|| if status == 200 { "no_token".to_owned() } else { format!("status_{status}") }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_or_the_word_of_a_refusal_is_read() {
        let read = |status, body: Value| read_token(status, body.to_string().as_bytes());
        let token = json!({ "data": { "expoPushToken": "ExponentPushToken[a]" } });
        assert_eq!(read(200, token), Ok("ExponentPushToken[a]".to_owned()));
        let refused = json!({ "errors": [{ "code": "VALIDATION_ERROR", "message": "secret" }] });
        assert_eq!(read(400, refused), Err("VALIDATION_ERROR".to_owned()));
        assert_eq!(read(404, json!("x")), Err("status_404".to_owned()));
        assert_eq!(read(200, json!({})), Err("no_token".to_owned()));
    }
}
