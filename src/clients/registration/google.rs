//! Google's part of a registration: the check-in of a device, an installation of the game's app, and the address for
//! pushes (`register3`).

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use reqwest::{
    RequestBuilder,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue},
};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use super::{call::plain_word, check_in, device::DeviceIdentity};
use crate::{config::Registration, crypto::random::Random, domain::registration::StepFault};

/// Characters of an installation's id, as Google's own client has it.
const INSTALLATION_ID: usize = 22;
/// Versions that the app and its libraries state.
const CLIENT: &str =
    "android-min-sdk/23 fire-core/20.0.0 device-name/a21snnxx fire-installations/17.0.0 fire-fcm/22.0.0";
const PHONE_REGISTRATION_ERROR: &str = "PHONE_REGISTRATION_ERROR";

/// A request for an identity, or for a known one once more.
pub fn check_in(http: &reqwest::Client, settings: &Registration, known: Option<&DeviceIdentity>) -> RequestBuilder {
    http.post(settings.google_url.at("/checkin"))
        .header(CONTENT_TYPE, "application/x-protobuf")
        .body(check_in::request(known))
}

/// A request for an installation of the app. Without the names of package and certificate Google refuses it.
pub fn install(http: &reqwest::Client, settings: &Registration, random: &Random) -> RequestBuilder {
    let app_id = &settings.app_id;
    installations(http, settings).json(&json!({
        "fid": installation_id(random), "appId": app_id, "authVersion": "FIS_v2", "sdkVersion": "a:17.0.0",
    }))
}

/// A request for an installation of no app, which makes none: Google refuses a key that it does not take before that.
pub fn key_question(http: &reqwest::Client, settings: &Registration) -> RequestBuilder {
    installations(http, settings).json(&json!({}))
}

fn installations(http: &reqwest::Client, settings: &Registration) -> RequestBuilder {
    let Registration { project, package, certificate, api_key, .. } = settings;
    http.post(settings.installations_url.at(&format!("/v1/projects/{project}/installations")))
        .header(ACCEPT, "application/json")
        .header("x-goog-api-key", sensitive(api_key.expose_secret()))
        .header("X-Android-Package", package)
        .header("X-Android-Cert", certificate)
}

/// 17 random bytes that begin with 0111, as URL-safe base64 and cut.
fn installation_id(random: &Random) -> String {
    let mut bytes: [u8; 17] = random.bytes();
    bytes[0] = bytes[0] & 0x0f | 0x70;
    let mut id = URL_SAFE_NO_PAD.encode(bytes);
    id.truncate(INSTALLATION_ID);
    id
}

/// The token of the installation, or the fault and Google's word for it.
pub fn read_installation(status: u16, body: &[u8]) -> Result<String, (StepFault, String)> {
    let answer: Value = serde_json::from_slice(body).unwrap_or_default();
    if status == 200 {
        let token = answer["authToken"]["token"].as_str().filter(|token| !token.is_empty()).map(str::to_owned);
        return token.ok_or_else(|| (StepFault::InstallationRefused, "no_token".to_owned()));
    }
    let reason = refusal(&answer).unwrap_or_default();
    Err(match reason.as_str() {
        "API_KEY_ANDROID_APP_BLOCKED" => (StepFault::AppBlocked, reason),
        "API_KEY_SERVICE_BLOCKED" => (StepFault::ServiceBlocked, reason),
        "" => (StepFault::InstallationRefused, format!("status_{status}")),
        _ => (StepFault::InstallationRefused, reason),
    })
}

/// Google's word for a refusal.
pub fn refusal(answer: &Value) -> Option<String> {
    let details = answer["error"]["details"].as_array()?;
    details.iter().find_map(|detail| detail["reason"].as_str()).map(plain_word)
}

/// A request for the device's address, with the token of an installation.
pub fn register(
    http: &reqwest::Client,
    settings: &Registration,
    identity: &DeviceIdentity,
    installation: &str,
) -> RequestBuilder {
    let Registration { package, certificate, sender_id, app_id, .. } = settings;
    let android_id = identity.android_id.to_string();
    let form = [
        ("device", android_id.as_str()),
        ("app", package),
        ("cert", certificate),
        ("app_ver", "1"),
        ("X-subtype", sender_id),
        ("X-app_ver", "1"),
        ("X-osv", "29"),
        ("X-cliv", "fiid-21.1.1"),
        ("X-gmsv", "220217001"),
        ("X-scope", "*"),
        ("X-Goog-Firebase-Installations-Auth", installation),
        ("X-gms_app_id", app_id),
        ("X-Firebase-Client", CLIENT),
        ("X-Firebase-Client-Log-Type", "1"),
        ("X-app_ver_name", "1"),
        ("target_ver", "31"),
        ("sender", sender_id),
    ];
    let login = format!("AidLogin {android_id}:{}", identity.security_token.expose_secret());
    http.post(settings.google_url.at("/c2dm/register3")).header(AUTHORIZATION, sensitive(&login)).form(&form)
}

/// The answer to a request for an address.
#[derive(Debug, PartialEq, Eq)]
pub enum PushAddressAnswer {
    Address(String),
    /// Google does not know the fresh device everywhere yet.
    NotYet,
    /// Google's word.
    Refused(String),
}

/// Reads `token=…` or `Error=…`. Only the first `=` divides: an address may contain more.
pub fn read_push_address(status: u16, body: &[u8]) -> PushAddressAnswer {
    let text = std::str::from_utf8(body).unwrap_or_default().trim();
    match text.split_once('=') {
        Some(("token", token)) if status == 200 && !token.is_empty() => PushAddressAnswer::Address(token.to_owned()),
        Some(("Error", word)) if word.starts_with(PHONE_REGISTRATION_ERROR) => PushAddressAnswer::NotYet,
        Some(("Error", word)) => PushAddressAnswer::Refused(plain_word(word)),
        _ if status != 200 => PushAddressAnswer::Refused(format!("status_{status}")),
        _ => PushAddressAnswer::Refused("no_token".to_owned()),
    }
}

/// A header that no log shows. One that is no text of a header is sent empty, and refused.
fn sensitive(text: &str) -> HeaderValue {
    let mut value = HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static(""));
    value.set_sensitive(true);
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::registration::tests::settings;

    #[test]
    fn an_address_is_cut_at_the_first_sign() {
        let read = |text: &str| read_push_address(200, text.as_bytes());
        assert_eq!(read("token=abc-1:APA91b=="), PushAddressAnswer::Address("abc-1:APA91b==".to_owned()));
        assert_eq!(read("Error=PHONE_REGISTRATION_ERROR\n"), PushAddressAnswer::NotYet);
        for (text, word) in [
            ("Error=TOO_MANY_REGISTRATIONS", "TOO_MANY_REGISTRATIONS"),
            ("Error=<b>no</b>", "bnob"),
            ("token=", "no_token"),
            ("<html>", "no_token"),
        ] {
            assert_eq!(read(text), PushAddressAnswer::Refused(word.to_owned()), "{text}");
        }
        assert_eq!(read_push_address(401, b"token=a"), PushAddressAnswer::Refused("status_401".to_owned()));
    }

    #[test]
    fn an_installation_that_is_refused_has_its_fault() {
        let blocked = |reason: &str| json!({ "error": { "code": 403, "details": [{}, { "reason": reason }] } });
        for (status, body, fault, word) in [
            (403, blocked("API_KEY_ANDROID_APP_BLOCKED"), StepFault::AppBlocked, "API_KEY_ANDROID_APP_BLOCKED"),
            (403, blocked("API_KEY_SERVICE_BLOCKED"), StepFault::ServiceBlocked, "API_KEY_SERVICE_BLOCKED"),
            (400, blocked("API_KEY_INVALID"), StepFault::InstallationRefused, "API_KEY_INVALID"),
            (403, json!("<html>"), StepFault::InstallationRefused, "status_403"),
            (200, json!({ "authToken": {} }), StepFault::InstallationRefused, "no_token"),
        ] {
            let read = read_installation(status, body.to_string().as_bytes());
            assert_eq!(read, Err((fault, word.to_owned())), "{body}");
        }
        let token = json!({ "authToken": { "token": "a.b.c" } }).to_string();
        assert_eq!(read_installation(200, token.as_bytes()), Ok("a.b.c".to_owned()));
    }

    /// A client that is never used to send.
    fn http() -> reqwest::Client {
        crate::crypto::install();
        crate::clients::http::client(crate::net::tls_config(None).unwrap()).unwrap()
    }

    #[test]
    fn a_registration_sends_this_set_of_fields() {
        let identity = DeviceIdentity {
            android_id: u64::MAX,
            security_token: secrecy::SecretBox::new(Box::new(1_234_567_890_123_456_789)),
        };
        let request = register(&http(), &settings(), &identity, "a.b.c").build().unwrap();
        assert_eq!(request.url().as_str(), "https://google.test/c2dm/register3");
        let login = &request.headers()[AUTHORIZATION];
        assert_eq!(login, "AidLogin 18446744073709551615:1234567890123456789");
        assert!(login.is_sensitive());
        let body = request.body().and_then(|body| body.as_bytes()).unwrap();
        let mut fields: Vec<_> = url::form_urlencoded::parse(body).into_owned().collect();
        fields.sort();
        let mut expected = [
            ("X-Firebase-Client", CLIENT),
            ("X-Firebase-Client-Log-Type", "1"),
            ("X-Goog-Firebase-Installations-Auth", "a.b.c"),
            ("X-app_ver", "1"),
            ("X-app_ver_name", "1"),
            ("X-cliv", "fiid-21.1.1"),
            ("X-gms_app_id", "1:97:android:d6"),
            ("X-gmsv", "220217001"),
            ("X-osv", "29"),
            ("X-scope", "*"),
            ("X-subtype", "97"),
            ("app", "a.package"),
            ("app_ver", "1"),
            ("cert", "E28D"),
            ("device", "18446744073709551615"),
            ("sender", "97"),
            ("target_ver", "31"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
        expected.sort();
        assert_eq!(fields, expected);
    }

    #[test]
    fn an_installation_names_the_app_by_three_headers() {
        let request = install(&http(), &settings(), &Random::seeded(1)).build().unwrap();
        assert_eq!(request.url().as_str(), "https://installations.test/v1/projects/project/installations");
        for (name, value) in [
            ("x-goog-api-key", "AIza"),
            ("X-Android-Package", "a.package"),
            ("X-Android-Cert", "E28D"),
            ("Accept", "application/json"),
            ("Content-Type", "application/json"),
        ] {
            assert_eq!(request.headers()[name], value, "{name}");
        }
        let body: Value = serde_json::from_slice(request.body().and_then(|body| body.as_bytes()).unwrap()).unwrap();
        assert_eq!((&body["appId"], &body["authVersion"]), (&json!("1:97:android:d6"), &json!("FIS_v2")));
    }

    #[test]
    fn a_key_is_tried_for_no_app() {
        let request = key_question(&http(), &settings()).build().unwrap();
        assert_eq!(request.url().as_str(), "https://installations.test/v1/projects/project/installations");
        assert_eq!(request.headers()["x-goog-api-key"], "AIza");
        assert_eq!(request.body().and_then(|body| body.as_bytes()), Some(&b"{}"[..]));
    }

    #[test]
    fn an_installation_has_an_id_of_22_characters() {
        let random = Random::seeded(7);
        for _ in 0..200 {
            let id = installation_id(&random);
            assert!(id.len() == 22 && matches!(id.as_bytes()[0], b'c'..=b'f'), "{id}");
        }
    }
}
