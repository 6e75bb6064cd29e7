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
    HttpRequest, HttpResponse,
    cookie::{Cookie, SameSite},
    http::header::{CACHE_CONTROL, LOCATION},
    web::{self, ServiceConfig},
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use chrono::SecondsFormat;
use maud::html;
use ring::hmac;
use serde_json::json;
use url::Url;

use super::{avatar, http_server::NeighbourServer, page::page};
use crate::{clock::Clock, crypto::random::Random};

const NAMESPACE: &str = "http://specs.openid.net/auth/2.0";
const IDENTIFIER_SELECT: &str = "http://specs.openid.net/auth/2.0/identifier_select";
const ASSOC_HANDLE: &str = "1234567890";
const SIGNED: &str = "signed,op_endpoint,claimed_id,identity,return_to,response_nonce,assoc_handle";
/// Assertions that wait for their confirmation; when there are more, the oldest is dropped.
const UNCONFIRMED: usize = 1000;
/// Profiles in one answer.
const PROFILES_AT_ONCE: usize = 100;
const STYLE: &str = include_str!("sign_in.css");

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
    provider: web::Data<SimulatedProvider>,
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
            link: Mutex::default(),
        });
        let shared = provider.clone();
        let routes = move |config: &mut ServiceConfig| {
            config
                .app_data(provider.clone())
                .service(web::resource("/openid/login").get(ask).post(verify))
                .service(web::resource("/openid/choose").post(choose))
                .service(web::resource("/open/{token}").get(open))
                .service(web::resource("/avatars/{file}").get(picture))
                .service(web::resource("/ISteamUser/GetPlayerSummaries/{version}").get(profiles))
                .service(web::resource("/ISteamUser/GetPlayerSummaries/{version}/").get(profiles));
        };
        Ok(Self { addr, provider: shared, _server: NeighbourServer::start(listener, routes)? })
    }

    /// A link that leads a browser to `target`, a page that begins a sign-in, and signs it in there as the first person,
    /// once. An earlier link works no more.
    pub fn one_time_link(&self, target: &str) -> String {
        let token = self.provider.random.hex::<8>();
        let link = OneTimeLink { token: Some(token.clone()), target: target.to_owned(), cookie: None };
        *self.provider.link.lock().unwrap_or_else(PoisonError::into_inner) = link;
        format!("http://{}/open/{token}", self.addr)
    }

    /// The address that it listens on.
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

    /// The base of the pictures of accounts.
    pub fn avatar_url(&self) -> String {
        format!("http://{}/avatars", self.addr)
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
    link: Mutex<OneTimeLink>,
}

/// A link that signs its browser in without a click, once.
#[derive(Default)]
struct OneTimeLink {
    /// `None`: it was opened.
    token: Option<String>,
    /// Page of the service to which it leads, which begins the sign-in.
    target: String,
    /// Cookie of the browser that opened it, until that has signed in.
    cookie: Option<String>,
}

/// The cookie of the browser that opened the link; cookies are for all ports of this machine.
const LINK_COOKIE: &str = "simulated_link";

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

/// Opens the one-time link: its browser gets a cookie with which the sign-in that follows needs no click. One that was
/// opened leads to the page all the same.
async fn open(provider: web::Data<SimulatedProvider>, token: web::Path<String>) -> HttpResponse {
    let mut link = provider.link.lock().unwrap_or_else(PoisonError::into_inner);
    let Ok(target) = Url::parse(&link.target) else { return HttpResponse::NotFound().finish() };
    let mut answer = HttpResponse::Found();
    answer.insert_header((CACHE_CONTROL, "no-store"));
    if link.token.as_ref() != Some(&*token) {
        return answer.insert_header((LOCATION, target.origin().ascii_serialization())).finish();
    }
    link.token = None;
    let cookie = provider.random.hex::<16>();
    link.cookie = Some(cookie.clone());
    let cookie = Cookie::build(LINK_COOKIE, cookie).path("/").http_only(true).same_site(SameSite::Lax).finish();
    answer.insert_header((LOCATION, target.as_str())).cookie(cookie).finish()
}

/// True once for the browser that opened the one-time link.
fn came_by_link(provider: &SimulatedProvider, req: &HttpRequest) -> bool {
    let mut link = provider.link.lock().unwrap_or_else(PoisonError::into_inner);
    let came = link.cookie.is_some() && req.cookie(LINK_COOKIE).map(|cookie| cookie.value().to_owned()) == link.cookie;
    if came {
        link.cookie = None;
    }
    came
}

async fn ask(req: HttpRequest, provider: web::Data<SimulatedProvider>, fields: web::Query<Fields>) -> HttpResponse {
    let (return_to, realm) = match checked(&fields) {
        Ok(checked) => checked,
        Err(why) => return bad(why),
    };
    match field(&fields, "openid.mode") {
        "checkid_setup" => {}
        "checkid_immediate" => return negative(&return_to, "setup_needed"),
        _ => return bad("openid.mode must be checkid_setup"),
    }
    if let Some(person) = provider.persons.first().filter(|_| came_by_link(&provider, &req)) {
        return redirect(&provider.assertion(&return_to, person));
    }
    let body = html! {
        main {
            h1 { "Choose an account" }
            p { "A simulated identity provider for the demo. You return to " strong { (realm) } "." }
            form method="post" action="/openid/choose" {
                @for name in ["openid.ns", "openid.claimed_id", "openid.identity", "openid.return_to", "openid.realm"] {
                    input type="hidden" name=(name) value=(field(&fields, name));
                }
                @for person in &provider.persons {
                    button name="person" value=(person.platform_id) {
                        b { (person.name.get(..1).unwrap_or("?")) }
                        span { (person.name) small { (person.platform_id) } }
                    }
                }
                button.cancel name="person" value="" { "Cancel" }
            }
        }
    };
    page("Demo sign-in", STYLE, &body)
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

async fn picture(provider: web::Data<SimulatedProvider>, file: web::Path<String>) -> HttpResponse {
    let hash = file.strip_suffix("_medium.jpg");
    match provider.persons.iter().find(|person| hash == Some(&avatar::hash(person.platform_id))) {
        Some(person) => HttpResponse::Ok().content_type("image/jpeg").body(avatar::draw(person.platform_id)),
        None => HttpResponse::NotFound().finish(),
    }
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
                "avatarhash": avatar::hash(person.platform_id),
            })
        })
        .collect();
    HttpResponse::Ok().json(json!({ "response": { "players": players } }))
}
