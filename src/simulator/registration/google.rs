//! Google's check-in, installations and push addresses, and Expo's tokens.

use std::collections::HashMap;

use actix_web::{
    HttpRequest, HttpResponse,
    http::{
        StatusCode,
        header::{AUTHORIZATION, CONTENT_TYPE},
    },
    web,
};
use prost::Message as _;
use serde_json::{Value, json};

use super::shared::{SIMULATED_API_KEY, SharedSites};

const PROJECT: &str = "rust-companion-app";
const SENDER: &str = "976529667804";
const APP_ID: &str = "1:976529667804:android:d6f1ddeb4403b338fea619";
const PACKAGE: &str = "com.facepunch.rust.companion";
const CERTIFICATE: &str = "E28D05345FB78A7A1A63D70F4A302DBF426CA5AD";
const EXPO_PROJECT: &str = "49451aca-a822-41e6-ad59-955718d0ff9c";

/// The request, as far as it is looked at.
#[derive(Clone, PartialEq, prost::Message)]
struct SimulatedCheckIn {
    #[prost(int64, optional, tag = "2")]
    id: Option<i64>,
    #[prost(bytes = "vec", optional, tag = "4")]
    checkin: Option<Vec<u8>>,
    #[prost(fixed64, optional, tag = "13")]
    security_token: Option<u64>,
    #[prost(int32, optional, tag = "14")]
    version: Option<i32>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct SimulatedIdentity {
    #[prost(bool, optional, tag = "1")]
    stats_ok: Option<bool>,
    #[prost(int64, optional, tag = "3")]
    time_msec: Option<i64>,
    /// A field that clients do not know.
    #[prost(string, optional, tag = "5")]
    digest: Option<String>,
    #[prost(fixed64, optional, tag = "7")]
    android_id: Option<u64>,
    #[prost(fixed64, optional, tag = "8")]
    security_token: Option<u64>,
}

/// Gives a new device an identity, which is an account of the push service from then on; a known one gets its own.
pub async fn check_in(shared: web::Data<SharedSites>, request: HttpRequest, body: web::Bytes) -> HttpResponse {
    if let Some(outage) = shared.outage("check_in").await {
        return outage;
    }
    let mut books = shared.books();
    books.counts.check_ins += 1;
    let sent = SimulatedCheckIn::decode(body.as_ref()).ok();
    let Some(sent) = sent.filter(|sent| sent.checkin.is_some() && sent.version == Some(3)) else {
        books.counts.violations.push("a check-in without its parts".to_owned());
        return HttpResponse::BadRequest().finish();
    };
    if header(&request, CONTENT_TYPE.as_str()) != "application/x-protobuf" {
        books.counts.violations.push("a check-in that is no protobuf".to_owned());
        return HttpResponse::BadRequest().finish();
    }
    let known = sent.id.map(i64::cast_unsigned).zip(sent.security_token);
    let known = known.filter(|(id, token)| books.identities.get(id) == Some(token));
    let (android_id, security_token) = known.unwrap_or_else(|| {
        // The first bit is set: a reader of signed numbers is noticed.
        let [id, token] = [0, 1].map(|_| u64::from_le_bytes(shared.random.bytes()) | 1 << 63);
        (id, token)
    });
    books.identities.insert(android_id, security_token);
    shared.pushes.set_token(android_id, security_token);
    let there = !books.faults.check_in_without_ids;
    let identity = SimulatedIdentity {
        stats_ok: Some(true),
        time_msec: Some(shared.clock.now().timestamp_millis()),
        digest: Some("simulated".to_owned()),
        android_id: there.then_some(android_id),
        security_token: there.then_some(security_token),
    };
    HttpResponse::Ok().content_type("application/x-protobuf").body(identity.encode_to_vec())
}

/// Admits an installation of the app.
pub async fn install(
    shared: web::Data<SharedSites>,
    request: HttpRequest,
    project: web::Path<String>,
    body: web::Json<Value>,
) -> HttpResponse {
    if let Some(outage) = shared.outage("installation").await {
        return outage;
    }
    let mut books = shared.books();
    books.counts.installations += 1;
    let app = [header(&request, "X-Android-Package"), header(&request, "X-Android-Cert")];
    let reason = match &books.faults.installation_refused {
        Some(reason) => Some(reason.clone()),
        None if app != [PACKAGE, CERTIFICATE] => Some("API_KEY_ANDROID_APP_BLOCKED".to_owned()),
        None if header(&request, "x-goog-api-key") != SIMULATED_API_KEY => Some("API_KEY_INVALID".to_owned()),
        None => None,
    };
    if let Some(reason) = reason {
        let detail = json!({ "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason });
        let error = json!({ "code": 403, "message": "Requests are blocked.", "status": "PERMISSION_DENIED",
            "details": [detail] });
        return HttpResponse::Forbidden().json(json!({ "error": error }));
    }
    let fid = body["fid"].as_str().unwrap_or_default();
    let is_fid = matches!(fid.as_bytes(), [b'c'..=b'f', rest @ ..] if matches!(rest.len(), 21 | 22))
        && fid.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/-_".contains(&byte));
    if *project != PROJECT || !is_fid || body["appId"] != APP_ID || body["authVersion"] != "FIS_v2" {
        books.counts.violations.push("an installation that no app asks for".to_owned());
        let error =
            json!({ "code": 400, "message": "Request contains an invalid argument.", "status": "INVALID_ARGUMENT" });
        return HttpResponse::BadRequest().json(json!({ "error": error }));
    }
    let token = format!("simulated.{}.installation", shared.random.hex::<24>());
    books.installations.push(token.clone());
    books.tokens.push(token.clone());
    HttpResponse::Ok().json(json!({
        "name": format!("projects/{SENDER}/installations/{fid}"),
        "fid": fid,
        "refreshToken": shared.random.hex::<16>(),
        "authToken": { "token": token, "expiresIn": "604800s" },
    }))
}

/// Gives a device its address for pushes. The set of fields is compared, not their text.
pub async fn register(
    shared: web::Data<SharedSites>,
    request: HttpRequest,
    form: web::Form<HashMap<String, String>>,
) -> HttpResponse {
    if let Some(outage) = shared.outage("push_address").await {
        return outage;
    }
    let mut books = shared.books();
    books.counts.addresses += 1;
    let error = |word: &str| HttpResponse::Ok().content_type("text/plain").body(format!("Error={word}"));
    let field = |name: &str| form.get(name).map_or("", String::as_str);
    let login =
        header(&request, AUTHORIZATION.as_str()).strip_prefix("AidLogin ").and_then(|login| login.split_once(':'));
    let login = login.and_then(|(id, token)| Some((id.parse().ok()?, token.parse().ok()?)));
    let Some((android_id, _)) = login.filter(|(id, token): &(u64, u64)| books.identities.get(id) == Some(token)) else {
        return error("AUTHENTICATION_FAILED");
    };
    let android_text = android_id.to_string();
    let expected = [
        ("device", android_text.as_str()),
        ("app", PACKAGE),
        ("cert", CERTIFICATE),
        ("app_ver", "1"),
        ("X-subtype", SENDER),
        ("X-app_ver", "1"),
        ("X-osv", "29"),
        ("X-cliv", "fiid-21.1.1"),
        ("X-gmsv", "220217001"),
        ("X-scope", "*"),
        ("X-gms_app_id", APP_ID),
        ("target_ver", "31"),
        ("sender", SENDER),
    ];
    if let Some((name, _)) = expected.iter().find(|(name, value)| field(name) != *value) {
        books.counts.violations.push(format!("{name} of a registration is not what apps send"));
        return error("INVALID_PARAMETERS");
    }
    let used = books.installations.iter().position(|token| token == field("X-Goog-Firebase-Installations-Auth"));
    let Some(used) = used else { return error("AUTHENTICATION_FAILED") };
    books.installations.swap_remove(used);
    if let Some(word) = &books.faults.address_refused {
        return error(word);
    }
    if books.faults.not_yet > 0 {
        books.faults.not_yet -= 1;
        return error("PHONE_REGISTRATION_ERROR");
    }
    let address = format!("{}:APA91b{}=-_", shared.random.base64url::<16>(), shared.random.base64url::<96>());
    books.addresses.insert(address.clone(), android_id);
    HttpResponse::Ok().content_type("text/plain").body(format!("token={address}"))
}

/// Expo's name of a push address: one for each device.
pub async fn expo_token(shared: web::Data<SharedSites>, body: web::Json<Value>) -> HttpResponse {
    if let Some(outage) = shared.outage("expo_token").await {
        return outage;
    }
    let mut books = shared.books();
    books.counts.expo_tokens += 1;
    let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
    let (address, device) = (text("deviceToken"), text("deviceId"));
    let is_app = body["type"] == "fcm"
        && body["development"] == false
        && text("appId") == PACKAGE
        && text("projectId") == EXPO_PROJECT;
    let known = is_app && !device.is_empty() && books.addresses.contains_key(&address);
    let refused = books.faults.expo_refused.clone().or_else(|| (!known).then(|| "VALIDATION_ERROR".to_owned()));
    if let Some(code) = refused {
        let errors = json!([{ "code": code, "type": "USER", "message": "Refused.", "isTransient": false }]);
        return HttpResponse::build(StatusCode::BAD_REQUEST).json(json!({ "errors": errors }));
    }
    let fresh = format!("ExponentPushToken[{}]", shared.random.base64url::<16>());
    let token = books.expo_devices.entry(device).or_insert(fresh).clone();
    books.expo_tokens.insert(token.clone(), address);
    HttpResponse::Ok().json(json!({ "data": { "expoPushToken": token } }))
}

fn header<'a>(request: &'a HttpRequest, name: &str) -> &'a str {
    request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}
