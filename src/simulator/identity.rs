//! An OpenID 2.0 provider with a one-click sign-in page, and the profiles of the persons who can sign in.
//!
//! Stateless mode only, like Steam: no associations, each assertion is confirmed once. Parameters and answers follow
//! OpenID Authentication 2.0 §§ 9–11.

use std::{
    collections::{HashMap, VecDeque},
    fmt::Write as _,
    io,
    net::{SocketAddr, TcpListener},
    sync::{Mutex, PoisonError},
};

use actix_web::{
    HttpResponse,
    http::header::{CACHE_CONTROL, LOCATION},
    web::{self, ServiceConfig},
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use chrono::SecondsFormat;
use ring::hmac;
use serde_json::json;
use url::Url;

use super::{html::escaped, http_server::NeighbourServer};
use crate::{clock::Clock, crypto::random::Random};

const NAMESPACE: &str = "http://specs.openid.net/auth/2.0";
const IDENTIFIER_SELECT: &str = "http://specs.openid.net/auth/2.0/identifier_select";
const ASSOC_HANDLE: &str = "1234567890";
const SIGNED: &str = "signed,op_endpoint,claimed_id,identity,return_to,response_nonce,assoc_handle";
/// Assertions that wait for their confirmation; when there are more, the oldest is dropped.
const UNCONFIRMED: usize = 1000;
/// Profiles in one answer.
const PROFILES_AT_ONCE: usize = 100;
const PAGE: &str = include_str!("sign_in.html");

/// A person who can sign in.
#[derive(Clone, Debug)]
pub struct Person {
    /// SteamID64.
    pub platform_id: u64,
    pub name: String,
    /// https, or empty.
    pub avatar_url: String,
}

/// A running provider; stops when dropped.
pub struct IdentityProvider {
    addr: SocketAddr,
    _server: NeighbourServer,
}

impl IdentityProvider {
    /// Binds and begins to serve; port 0 takes a free one. Call it inside an actix system.
    pub async fn start(listen: SocketAddr, persons: Vec<Person>, clock: Clock, random: Random) -> io::Result<Self> {
        let listener = TcpListener::bind(listen)?;
        let addr = listener.local_addr()?;
        let provider = web::Data::new(SimulatedProvider {
            addr,
            persons,
            key: hmac::Key::new(hmac::HMAC_SHA256, &random.bytes::<32>()),
            clock,
            random,
            unconfirmed: Mutex::new(VecDeque::new()),
        });
        let routes = move |config: &mut ServiceConfig| {
            config
                .app_data(provider.clone())
                .service(web::resource("/openid/login").get(ask).post(verify))
                .service(web::resource("/openid/choose").post(choose))
                .service(web::resource("/ISteamUser/GetPlayerSummaries/{version}").get(profiles))
                .service(web::resource("/ISteamUser/GetPlayerSummaries/{version}/").get(profiles));
        };
        Ok(Self { addr, _server: NeighbourServer::start(listener, routes)? })
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The endpoint for sign-in and confirmation.
    pub fn login_url(&self) -> String {
        format!("http://{}/openid/login", self.addr)
    }

    /// A claimed identifier is this and the SteamID64.
    pub fn claimed_id_prefix(&self) -> String {
        format!("http://{}/openid/id/", self.addr)
    }

    /// The base of the profile API.
    pub fn platform_api_url(&self) -> String {
        format!("http://{}", self.addr)
    }
}

struct SimulatedProvider {
    addr: SocketAddr,
    persons: Vec<Person>,
    key: hmac::Key,
    clock: Clock,
    random: Random,
    /// Nonces of the assertions that are not confirmed yet.
    unconfirmed: Mutex<VecDeque<String>>,
}

type Fields = HashMap<String, String>;

impl SimulatedProvider {
    fn endpoint(&self) -> String {
        format!("http://{}/openid/login", self.addr)
    }

    /// The URL with which the browser returns to the relying party, with a signed statement of who signed in.
    fn assertion(&self, return_to: &Url, person: &Person) -> Url {
        let now = self.clock.now().to_rfc3339_opts(SecondsFormat::Secs, true);
        let nonce = format!("{now}{}", BASE64_STANDARD.encode(self.random.bytes::<12>()));
        let claimed_id = format!("http://{}/openid/id/{}", self.addr, person.platform_id);
        let mut fields: Fields = [
            ("openid.ns", NAMESPACE),
            ("openid.mode", "id_res"),
            ("openid.op_endpoint", &self.endpoint()),
            ("openid.claimed_id", &claimed_id),
            ("openid.identity", &claimed_id),
            ("openid.return_to", return_to.as_str()),
            ("openid.response_nonce", &nonce),
            ("openid.assoc_handle", ASSOC_HANDLE),
            ("openid.signed", SIGNED),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        let signature = BASE64_STANDARD.encode(hmac::sign(&self.key, signed_text(&fields).as_bytes()));
        fields.insert("openid.sig".to_owned(), signature);
        let mut unconfirmed = self.unconfirmed.lock().unwrap_or_else(PoisonError::into_inner);
        if unconfirmed.len() >= UNCONFIRMED {
            unconfirmed.pop_front();
        }
        unconfirmed.push_back(nonce);
        answer(return_to, &fields)
    }

    /// Confirms an assertion: true if this provider made it and has not confirmed it yet.
    fn confirm(&self, fields: &Fields) -> bool {
        let genuine = field(fields, "openid.signed") == SIGNED
            && BASE64_STANDARD
                .decode(field(fields, "openid.sig"))
                .is_ok_and(|signature| hmac::verify(&self.key, signed_text(fields).as_bytes(), &signature).is_ok());
        let mut unconfirmed = self.unconfirmed.lock().unwrap_or_else(PoisonError::into_inner);
        let nonce = field(fields, "openid.response_nonce");
        let known = unconfirmed.iter().position(|known| known == nonce).filter(|_| genuine);
        known.and_then(|at| unconfirmed.remove(at)).is_some()
    }
}

/// The signed fields in key-value form.
fn signed_text(fields: &Fields) -> String {
    SIGNED.split(',').fold(String::new(), |mut text, name| {
        let value = field(fields, &format!("openid.{name}"));
        // Writing into a String does not fail.
        let _ = writeln!(text, "{name}:{value}");
        text
    })
}

fn field<'a>(fields: &'a Fields, name: &str) -> &'a str {
    fields.get(name).map_or("", String::as_str)
}

/// `return_to` with an answer added to its own parameters.
fn answer(return_to: &Url, fields: &Fields) -> Url {
    let mut url = return_to.clone();
    let mut names: Vec<_> = fields.iter().collect();
    names.sort_unstable();
    url.query_pairs_mut().extend_pairs(names);
    url
}

fn negative(return_to: &Url, mode: &str) -> HttpResponse {
    let fields = [("openid.ns", NAMESPACE), ("openid.mode", mode)].map(|(name, value)| (name.into(), value.into()));
    redirect(&answer(return_to, &fields.into()))
}

fn redirect(url: &Url) -> HttpResponse {
    HttpResponse::Found().insert_header((LOCATION, url.as_str())).insert_header((CACHE_CONTROL, "no-store")).finish()
}

fn bad(why: &str) -> HttpResponse {
    HttpResponse::BadRequest().content_type("text/plain; charset=utf-8").body(format!("{why}\n"))
}

/// Return address of the answer, and the realm to show to the person; or the fault of a request that is not OpenID.
fn checked(fields: &Fields) -> Result<(Url, String), &'static str> {
    if field(fields, "openid.ns") != NAMESPACE {
        return Err("openid.ns is not OpenID 2.0");
    }
    let identities = ["openid.claimed_id", "openid.identity"].map(|name| field(fields, name));
    if identities != [IDENTIFIER_SELECT; 2] {
        return Err("openid.claimed_id and openid.identity must be identifier_select");
    }
    let web_address = |text: &str| Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let return_to = web_address(field(fields, "openid.return_to")).ok_or("openid.return_to is not a web address")?;
    let realm = match field(fields, "openid.realm") {
        "" => return_to.clone(),
        realm => web_address(realm).ok_or("openid.realm is not a web address")?,
    };
    if realm.origin() != return_to.origin()
        || (!field(fields, "openid.realm").is_empty() && !return_to.path().starts_with(realm.path()))
    {
        return Err("openid.return_to is not under openid.realm");
    }
    let shown = realm.origin().ascii_serialization();
    Ok((return_to, shown))
}

async fn ask(provider: web::Data<SimulatedProvider>, fields: web::Query<Fields>) -> HttpResponse {
    let (return_to, realm) = match checked(&fields) {
        Ok(checked) => checked,
        Err(why) => return bad(why),
    };
    match field(&fields, "openid.mode") {
        "checkid_setup" => {}
        "checkid_immediate" => return negative(&return_to, "setup_needed"),
        _ => return bad("openid.mode must be checkid_setup"),
    }
    let mut hidden = String::new();
    for name in ["openid.ns", "openid.claimed_id", "openid.identity", "openid.return_to", "openid.realm"] {
        let value = escaped(field(&fields, name));
        hidden += &format!("    <input type=\"hidden\" name=\"{name}\" value=\"{value}\">\n");
    }
    let persons: String = provider
        .persons
        .iter()
        .map(|person| {
            let (id, name) = (person.platform_id, escaped(&person.name));
            let initial = escaped(person.name.get(..1).unwrap_or("?"));
            format!(
                "    <button name=\"person\" value=\"{id}\"><b>{initial}</b><span>{name}<small>{id}</small></span></button>\n"
            )
        })
        .collect();
    // Texts from outside are inserted last, so that nothing in them can be a placeholder of the template.
    let page = PAGE.replace("{persons}", &persons).replace("{realm}", &escaped(&realm)).replace("{fields}", &hidden);
    HttpResponse::Ok().content_type("text/html; charset=utf-8").insert_header((CACHE_CONTROL, "no-store")).body(page)
}

async fn choose(provider: web::Data<SimulatedProvider>, fields: web::Form<Fields>) -> HttpResponse {
    let return_to = match checked(&fields) {
        Ok((return_to, _)) => return_to,
        Err(why) => return bad(why),
    };
    let chosen = field(&fields, "person");
    if chosen.is_empty() {
        return negative(&return_to, "cancel");
    }
    let Some(person) = provider.persons.iter().find(|person| person.platform_id.to_string() == chosen) else {
        return bad("no person with this id can sign in here");
    };
    redirect(&provider.assertion(&return_to, person))
}

async fn verify(provider: web::Data<SimulatedProvider>, fields: web::Form<Fields>) -> HttpResponse {
    if field(&fields, "openid.mode") != "check_authentication" {
        return HttpResponse::Ok().content_type("text/plain").body(format!("ns:{NAMESPACE}\nerror:Unknown mode\n"));
    }
    let valid = provider.confirm(&fields);
    HttpResponse::Ok().content_type("text/plain").body(format!("is_valid:{valid}\nns:{NAMESPACE}\n"))
}

async fn profiles(provider: web::Data<SimulatedProvider>, query: web::Query<Fields>) -> HttpResponse {
    if field(&query, "key").is_empty() {
        return HttpResponse::Forbidden()
            .content_type("text/html; charset=UTF-8")
            .body("<html><head><title>Forbidden</title></head><body><h1>Forbidden</h1></body></html>");
    }
    let wanted: Vec<&str> = field(&query, "steamids").split(',').take(PROFILES_AT_ONCE).collect();
    let players: Vec<_> = provider
        .persons
        .iter()
        .filter(|person| wanted.contains(&person.platform_id.to_string().as_str()))
        .map(|person| {
            json!({
                "steamid": person.platform_id.to_string(),
                "communityvisibilitystate": 3,
                "profilestate": 1,
                "personaname": person.name,
                "profileurl": format!("http://{}/openid/id/{}", provider.addr, person.platform_id),
                "avatar": person.avatar_url,
                "avatarmedium": person.avatar_url,
                "avatarfull": person.avatar_url,
            })
        })
        .collect();
    HttpResponse::Ok().json(json!({ "response": { "players": players } }))
}
