//! The game's companion site: the login that leads through the identity provider, and the devices of each player.

use std::collections::HashMap;

use actix_web::{
    HttpRequest, HttpResponse,
    cookie::Cookie,
    http::{StatusCode, header::LOCATION},
    web,
};
use maud::html;
use serde_json::{Value, json};
use url::{Host, Url, form_urlencoded};

use super::{
    books::GameDevice,
    shared::SharedSites,
    token::{checked_token, signed_token},
};
use crate::simulator::page::page;

const NAMESPACE: &str = "http://specs.openid.net/auth/2.0";
const IDENTIFIER_SELECT: &str = "http://specs.openid.net/auth/2.0/identifier_select";
/// Guards the form against other sites.
const GUARD: &str = "__RequestVerificationToken";

type SiteFields = HashMap<String, String>;

fn field<'a>(fields: &'a SiteFields, name: &str) -> &'a str {
    fields.get(name).map_or("", String::as_str)
}

/// The page with the button. Any return address is accepted here.
pub async fn login_page(shared: web::Data<SharedSites>, query: web::Query<SiteFields>) -> HttpResponse {
    let guard = shared.random.hex::<16>();
    let content = html! {
        form method="post" action="/login" {
            input type="hidden" name="returnUrl" value=(field(&query, "returnUrl"));
            input type="hidden" name=(GUARD) value=(guard);
            button { "Sign in through Steam" }
        }
    };
    let mut response = page("Rust+ - Login", "", &content);
    // A cookie of these characters is always valid.
    let _ = response.add_cookie(&Cookie::build("guard", guard).path("/").http_only(true).finish());
    response
}

/// Sends the browser to the identity provider.
pub async fn begin_login(
    shared: web::Data<SharedSites>,
    request: HttpRequest,
    form: web::Form<SiteFields>,
) -> HttpResponse {
    let guard = request.cookie("guard");
    if guard.is_none_or(|cookie| cookie.value() != field(&form, GUARD)) {
        return HttpResponse::BadRequest().finish();
    }
    let site = format!("http://{}", shared.addr);
    let state = shared.random.hex::<16>();
    shared.books().logins.insert(state.clone(), field(&form, "returnUrl").to_owned());
    let query = form_urlencoded::Serializer::new(String::new())
        .append_pair("openid.ns", NAMESPACE)
        .append_pair("openid.mode", "checkid_setup")
        .append_pair("openid.claimed_id", IDENTIFIER_SELECT)
        .append_pair("openid.identity", IDENTIFIER_SELECT)
        .append_pair("openid.realm", &site)
        .append_pair("openid.return_to", &format!("{site}/signin-steam?state={state}"))
        .finish();
    let provider = format!("{}?{query}", shared.identity_url);
    HttpResponse::Found().insert_header((LOCATION, provider)).finish()
}

/// The browser comes back. A loopback address gets the token; for any other there is the page of the phone app.
pub async fn end_login(shared: web::Data<SharedSites>, query: web::Query<SiteFields>) -> HttpResponse {
    let claimed = field(&query, "openid.claimed_id").strip_prefix(&shared.claimed_id_prefix);
    let Some(player) = claimed.and_then(|id| id.parse::<u64>().ok()) else {
        return HttpResponse::InternalServerError().finish();
    };
    let mut confirm = query.into_inner();
    confirm.insert("openid.mode".to_owned(), "check_authentication".to_owned());
    let state = confirm.remove("state").unwrap_or_default();
    let confirmed = async {
        let answer = shared.http.post(&shared.identity_url).form(&confirm).send().await.ok()?;
        answer.text().await.ok()
    };
    let confirmed = confirmed.await.is_some_and(|text| text.lines().any(|line| line == "is_valid:true"));
    let return_url = shared.books().logins.remove(&state).filter(|_| confirmed);
    let Some(return_url) = return_url else { return HttpResponse::InternalServerError().finish() };
    let faults = shared.books().faults.clone();
    let token = signed_token(&shared.key, player, shared.clock.now().timestamp(), faults.token_life());
    shared.books().tokens.push(token.clone());
    let loopback = Url::parse(&return_url).ok().filter(|url| is_loopback(url) && !faults.app_page_only);
    let Some(mut url) = loopback else {
        let sent = json!({ "SteamId": player.to_string(), "Token": token }).to_string();
        let content = html! {
            p { "Welcome" }
            p hidden data-message=(sent) {}
            p { "Failed to send login message to the Rust+ app." }
        };
        return page("Rust+ - Login Success", "", &content);
    };
    url.query_pairs_mut().append_pair("steamId", &player.to_string()).append_pair("token", &token);
    HttpResponse::Found().insert_header((LOCATION, url.as_str())).finish()
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// Registers a device for the pushes of the token's player, in place of an earlier registration of its id.
pub async fn register(shared: web::Data<SharedSites>, body: web::Json<Value>) -> HttpResponse {
    if let Some(outage) = shared.outage("game_registration").await {
        return outage;
    }
    let answer = note_registration(&shared, &body);
    if answer.status().is_success() && shared.books().faults.answer_lost {
        shared.hanging.send_replace(true);
        std::future::pending::<()>().await;
    }
    answer
}

fn note_registration(shared: &SharedSites, body: &Value) -> HttpResponse {
    let now = shared.clock.now().timestamp();
    let mut books = shared.books();
    books.counts.registrations += 1;
    if let Some(status) = books.faults.game_status {
        return HttpResponse::build(StatusCode::from_u16(status).unwrap_or(StatusCode::FORBIDDEN)).finish();
    }
    let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
    let Some((player, _)) = checked_token(&shared.key, &text("AuthToken"), now) else {
        return HttpResponse::Forbidden().finish();
    };
    let (device, expo_token) = (text("DeviceId"), text("PushToken"));
    if body["PushKind"] != 3 || device.is_empty() || books.android_id(&expo_token).is_none() {
        books.counts.violations.push("a registration of no device".to_owned());
        return HttpResponse::BadRequest().finish();
    }
    let is_of_other =
        |((owner, _), known): (&(u64, String), &GameDevice)| *owner != player && known.expo_token == expo_token;
    if books.registered.iter().any(is_of_other) {
        books.counts.violations.push("one device for two accounts".to_owned());
    }
    let life = books.faults.token_life();
    let fresh = signed_token(&shared.key, player, now, life);
    books.tokens.push(fresh.clone());
    books.registered.insert((player, device), GameDevice { expo_token, expires_at: now + life.num_seconds() });
    HttpResponse::Ok().json(json!({ "token": fresh }))
}

/// Ends the registration of a device.
pub async fn unregister(shared: web::Data<SharedSites>, body: web::Json<Value>) -> HttpResponse {
    if let Some(outage) = shared.outage("unregistration").await {
        return outage;
    }
    let now = shared.clock.now().timestamp();
    let mut books = shared.books();
    books.counts.unregistrations += 1;
    let text = |name: &str| body[name].as_str().unwrap_or_default();
    let Some((player, _)) = checked_token(&shared.key, text("AuthToken"), now) else {
        return HttpResponse::Forbidden().finish();
    };
    let before = books.registered.len();
    books.registered.retain(|(owner, _), device| *owner != player || device.expo_token != text("PushToken"));
    if books.registered.len() == before { HttpResponse::BadRequest().finish() } else { HttpResponse::Ok().finish() }
}
