//! Rights of every caller: every route, as its line in `src/api/routes.rs` says, and every message of the relay, which has a
//! row here.
//!
//! Lines alone would let a slip open a route and change the expectation with it. So what gives rights away is stated here
//! once more: routes without a sign-in, routes that tokens open, and changes that guests may make. Elsewhere the line is
//! enough, because the server is asked and must answer as it says.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
};

use companion::{
    api::{
        extract::route_facts::TokenKind,
        rate_limits::RouteLimit,
        route::{ApiRoute, Callers},
        routes,
    },
    clock::Clock,
    domain::token_scope::TokenScope,
    simulator::{
        chat::ChatService,
        payments::{PaymentService, SubscriptionChange},
        player_stats::PlayerStatsService,
        world::{BASE_ALARM, GATE_SWITCH},
    },
};
use reqwest::{
    Method,
    header::{AUTHORIZATION, ORIGIN},
};
use serde_json::{Value, json};

use crate::harness::{
    app::{ADA, ADMINS, FRONTEND, TestApp},
    browser::{Answer, Browser},
    catalogue, chat_platform,
    game::{self, ALICE, BOB, add_device, is_complete, pair, share},
    helper::HelperDevice,
    payments,
    pictures::{form, form_type, png},
    relay_client::{self, RelayClient},
};

const CAROL: &str = "76561198000000003";

/// Placeholder for a form with an image.
const IMAGE: &str = "image";

/// Callers. Owner and admin come last, because what they do may be final.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Caller {
    Anonymous,
    Stranger,
    /// An overlay of the owner's.
    Overlay,
    /// A helper device of the owner's.
    Helper,
    /// API tokens of the owner's, each of one scope.
    ReadToken,
    DevicesToken,
    ChatToken,
    Guest,
    Owner,
    /// Admin of the service, and a stranger to the server.
    Administrator,
}

use Caller::*;

const CALLERS: [Caller; 10] =
    [Anonymous, Stranger, Overlay, Helper, ReadToken, DevicesToken, ChatToken, Guest, Owner, Administrator];

/// Meaning of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Allowed,
    /// 401
    Unauthenticated,
    /// 404, as if it did not exist.
    Hidden,
    /// 403 `owner_only`
    ForOwner,
    /// 403 `not_admin`
    ForAdmin,
    /// 403 `insufficient_scope`
    OutOfScope,
    /// Allowed, or 404 because they have none.
    AllowedIfAny,
}

/// Routes that need no sign-in.
const PUBLIC: &[&str] = &[
    "GET /auth/platform",
    "GET /auth/platform/callback",
    "POST /pairing/device/activate",
    "POST /billing/webhook",
    "GET /guest-invites/preview",
    "POST /chat/interactions",
    "GET /client-config",
    "GET /relay.schema.json",
    "GET /store/{name}",
    "GET /wiki/tree",
    "GET /wiki/page",
    "GET /images/{name}",
    "GET /",
    "GET /invite",
    "GET /overlay",
    "GET /sw.js",
    "GET /a/{token}",
    "POST /a/{token}",
    "GET /health",
    "GET /health/db",
    "GET /ready",
    "GET /metrics",
    "GET /status",
    "GET /openapi.json",
    "GET /docs",
    "GET /problems",
    "GET /problems/{code}",
];

/// Changes of a server that its guests may make, too.
const GUEST_WRITES: &[&str] = &[
    "PUT /paired-servers/{id}/alarm-rules",
    "POST /intel/{serverId}/map-notes",
    "POST /paired-servers/{id}/alarms/{incident}/ack",
];

/// Routes that take a token, with those of which any one is enough.
const TOKENS: &[(&str, &[Caller])] = &[
    ("POST /relay/token", &[Helper, Overlay, ReadToken, DevicesToken, ChatToken]),
    ("GET /credentials/push", &[Helper]),
    ("PUT /credentials/push", &[Helper]),
    ("GET /credentials/push/app", &[Helper]),
    ("GET /paired-servers", &[ReadToken, DevicesToken, ChatToken]),
    ("GET /paired-servers/{id}", &[ReadToken]),
    ("GET /paired-servers/{id}/devices", &[ReadToken, DevicesToken]),
    ("GET /paired-servers/{id}/devices/{deviceId}/camera-frame", &[ReadToken]),
    ("GET /paired-servers/{id}/cameras", &[ReadToken]),
    ("GET /paired-servers/{id}/chat", &[ReadToken, ChatToken]),
    ("POST /paired-servers/{id}/chat", &[ChatToken]),
    ("GET /paired-servers/{id}/map", &[Overlay, ReadToken]),
    ("GET /paired-servers/{id}/map/image", &[Overlay, ReadToken]),
    ("POST /paired-servers/{id}/devices/{deviceId}/toggle", &[DevicesToken]),
    ("GET /intel/{serverId}/map-notes", &[ReadToken]),
    ("GET /intel/{serverId}/timeline", &[ReadToken]),
    ("GET /intel/{serverId}/tracking", &[ReadToken]),
    ("GET /intel/{serverId}/tracking/{id}/sessions", &[ReadToken]),
    ("GET /intel/{serverId}/aliases", &[ReadToken]),
    ("GET /paired-servers/{id}/readiness", &[ReadToken]),
    ("GET /paired-servers/{id}/alarms", &[ReadToken]),
    ("POST /paired-servers/{id}/alarms/{incident}/ack", &[DevicesToken]),
    ("GET /paired-servers/{id}/shops", &[ReadToken]),
    ("GET /paired-servers/{id}/shops/history", &[ReadToken]),
    ("GET /intel/{serverId}/shops", &[ReadToken]),
    ("GET /intel/{serverId}/shops/scan", &[ReadToken]),
    ("GET /items", &[ReadToken]),
    ("GET /items/{id}", &[ReadToken]),
];

/// Routes of what is a user's alone, where the owner has one.
const HELD: &[&str] = &[
    "DELETE /me/sessions/{id}",
    "DELETE /me/tokens/{id}",
    "DELETE /pairing/device/{id}",
    "POST /pairing/device/{id}/seen",
    "DELETE /guest-invites/blocked/{userId}",
];

/// Classes that only a wrong guess or a new address is paid from.
const UNPAID: [&str; 4] = ["pairing", "invites", "chat-codes", "new-game-servers"];

/// Bodies that are sent; elsewhere the document's example, where one is required. `{token}` is an invitation's, `{self}` the
/// caller's account.
const BODIES: &[(&str, &str)] = &[
    ("PATCH /me", r#"{"locale":"de"}"#),
    ("DELETE /me", r#"{"confirm":"{self}"}"#),
    ("POST /me/tokens", r#"{"label":"Board","scopes":["read"]}"#),
    ("POST /pairing/device/activate", r#"{"code":"LINK-2222"}"#),
    ("PUT /credentials/push", r#"{"platformId":"76561198000000001"}"#),
    ("POST /credentials/push/registrations", r#"{"renew":false}"#),
    ("POST /credentials/push/registrations/{id}", r#"{"address":"x"}"#),
    ("POST /channels", r#"{"kind":"ntfy","name":"Phone","topic":"authorisation"}"#),
    ("PATCH /channels/{id}", r#"{"name":"Phone"}"#),
    (
        "PUT /channels/{id}/subscription",
        r#"{"endpoint":"https://push.example.com/1","keys":{"p256dh":"BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4","auth":"BTBZMqHH6r4Tts7J_aSIgg"}}"#,
    ),
    ("POST /billing/checkout", r#"{"tier":"SCOUT"}"#),
    ("POST /billing/webhook", "{}"),
    ("POST /paired-servers", r#"{"address":"a.test","port":1,"playerId":"76561198000000001","playerToken":1}"#),
    ("PUT /paired-servers/{id}/alarm-rules", r#"{"enabled":true,"steps":[],"repeatSeconds":180,"rounds":10}"#),
    ("PATCH /paired-servers/{id}/chat-settings", r#"{"prefix":"?"}"#),
    ("POST /paired-servers/{id}/device-groups", r#"{"name":"Gates","devices":["9"]}"#),
    ("PATCH /paired-servers/{id}/device-groups/{groupId}", r#"{"name":"All"}"#),
    ("POST /paired-servers/{id}/devices", r#"{"entityId":8}"#),
    ("POST /paired-servers/{id}/chat", r#"{"text":"hello"}"#),
    ("PATCH /paired-servers/{id}/devices/{deviceId}", r#"{"label":"Gate"}"#),
    ("POST /intel/{serverId}/map-notes", r#"{"x":1,"y":1,"category":"stash"}"#),
    ("PATCH /intel/{serverId}/map-notes/{id}", r#"{"label":"Gone"}"#),
    ("POST /paired-servers/{id}/guests", r#"{"link":true}"#),
    ("POST /guest-invites/accept", r#"{"token":"{token}"}"#),
    ("POST /guest-invites/blocked", r#"{"userId":"{inviter}"}"#),
    ("POST /intel/{serverId}/tracking", r#"{"trackerName":"Ada"}"#),
    ("PATCH /intel/{serverId}/tracking/{id}", r#"{"tag":"raider"}"#),
    ("POST /intel/{serverId}/shops", r#"{"vendorId":"1_2","itemId":"-932201673"}"#),
    ("PATCH /intel/{serverId}/shops/{id}", r#"{"expectedPrice":1}"#),
    ("POST /chat/interactions", "{}"),
    ("POST /chat/link", r#"{"code":"2222-2222"}"#),
    ("POST /admin/refund", r#"{"chargeId":"ch_none"}"#),
    ("POST /admin/beta-testers", r#"{"platformId":"76561198000000003","tier":"SCOUT"}"#),
    ("PUT /admin/store/{name}", r#"{"data":1}"#),
    ("POST /admin/store/{name}/restore", r#"{"version":0}"#),
    ("PUT /admin/wiki/page", r#"{"slug":"a","frontmatter":{},"body":""}"#),
    ("POST /admin/wiki/page/restore", r#"{"slug":"welcome","version":0}"#),
    ("POST /admin/wiki/image", IMAGE),
    ("POST /admin/items/upload-icon", IMAGE),
    ("PUT /admin/items/{id}", r#"{"shortname":"test.authorised","name":"Item","category":"Test"}"#),
    ("POST /admin/conveyor-map", r#"{"itemId":"-151838493"}"#),
    ("POST /admin/conveyor-map/bulk-category", r#"{"shortnames":["scrap"],"category":"A"}"#),
    ("PUT /admin/conveyor-map/{shortname}", r#"{"category":"A"}"#),
];

/// `METHOD path`.
fn name_of(route: &ApiRoute) -> String {
    format!("{} {}", route.method, route.path)
}

fn body_of(route: &str) -> String {
    if let Some((_, body)) = BODIES.iter().find(|(known, _)| *known == route) {
        return (*body).to_owned();
    }
    let (method, path) = route.split_once(' ').unwrap();
    let body = &routes::document()["paths"][path][method.to_ascii_lowercase()]["requestBody"];
    let is_required = body["required"] == true;
    if is_required { body["content"]["application/json"]["example"].to_string() } else { String::new() }
}

/// True for what is a user's alone, and may not exist.
fn is_of_one(route: &ApiRoute) -> bool {
    route.callers == Callers::Holder && !HELD.contains(&name_of(route).as_str())
}

fn is_api_token(caller: Caller) -> bool {
    matches!(caller, ReadToken | DevicesToken | ChatToken)
}

fn is_token(caller: Caller) -> bool {
    is_api_token(caller) || matches!(caller, Overlay | Helper)
}

fn verdict_of(route: &ApiRoute, caller: Caller) -> Verdict {
    let known = TOKENS.iter().find(|(known, _)| *known == name_of(route));
    let opening: &[Caller] = known.map_or(&[][..], |&(_, opening)| opening);
    let is_looked_at = |other: &Caller| is_token(caller) && is_api_token(*other) == is_api_token(caller);
    match verdict(route.callers, caller) {
        _ if opening.contains(&caller) => Verdict::Allowed,
        _ if opening.iter().any(is_looked_at) => Verdict::OutOfScope,
        // Such a route reads no cookie, and every token.
        _ if route.callers == Callers::Device && is_token(caller) => Verdict::OutOfScope,
        Verdict::Allowed | Verdict::Hidden if is_of_one(route) => Verdict::AllowedIfAny,
        verdict => verdict,
    }
}

/// Without the tokens that the route takes.
fn verdict(callers: Callers, caller: Caller) -> Verdict {
    use Verdict::*;
    match (callers, caller) {
        (Callers::Anyone, _) => Allowed,
        (Callers::Link, _) => Hidden,
        (_, Anonymous | Overlay | Helper | ReadToken | DevicesToken | ChatToken) => Unauthenticated,
        (Callers::Device, _) => Unauthenticated,
        (Callers::Admin, Administrator) => Allowed,
        (Callers::Admin, _) => ForAdmin,
        (Callers::User, _) => Allowed,
        (Callers::Watcher, Guest | Owner) => Allowed,
        (Callers::Owner | Callers::Holder, Owner) | (Callers::Guest, Guest) => Allowed,
        (Callers::Owner, Guest) => ForOwner,
        (Callers::Watcher | Callers::Owner | Callers::Guest | Callers::Holder, _) => Hidden,
    }
}

/// The class that an allowed request names among its budgets.
fn class_of(route: &ApiRoute) -> Option<&'static str> {
    match route.limit {
        RouteLimit::Of(class) if !UNPAID.contains(&class.name) => Some(class.name),
        _ => None,
    }
}

/// A server of Alice's with a device and an incident, and everybody else.
struct RouteScene {
    app: TestApp,
    server: String,
    guest: String,
    token: String,
    incident: String,
    /// A map note of the owner's.
    note: String,
    /// A tracked player.
    player: String,
    _stats: PlayerStatsService,
    _payments: PaymentService,
    _chat: ChatService,
    watch: String,
    group: String,
    /// The name of an uploaded image.
    image: String,
    /// Alice, Bob and Carol.
    owner: Browser,
    guest_browser: Browser,
    stranger: Browser,
    admin: Browser,
    /// The owner.
    user: String,
    /// The stranger, whose invitations the owner blocks.
    blocked: String,
    /// Another session of the owner's.
    session: String,
    /// The subscription that the owner paid for.
    subscription: String,
    helper: HelperDevice,
    overlay: HelperDevice,
    /// The secrets of one of each scope, and the id of another.
    tokens: [String; 3],
    api_token: String,
}

impl RouteScene {
    async fn set() -> Self {
        let stats = (Ipv4Addr::LOCALHOST, 0).into();
        let stats = PlayerStatsService::start(stats, Vec::new(), Vec::new(), Clock::system()).await.unwrap();
        let _payments = payments::provider().await;
        let mut flags = payments::flags(&_payments);
        flags.push(format!("--player-stats-url={}", stats.url()));
        flags.push(ADMINS.to_owned());
        flags.push("--registration-api-key=AIzaAuthorisation".to_owned());
        let _chat = chat_platform::platform().await;
        flags.extend(chat_platform::flags(&_chat));
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let app = TestApp::start_with(&flags).await;
        let (mut owner, mut guest_browser) = (app.signed_in(ALICE).await, app.signed_in(BOB).await);
        let (mut stranger, mut admin) = (app.signed_in(CAROL).await, app.signed_in(ADA).await);
        let tester = json!({ "platformId": BOB, "tier": "SCOUT" });
        made(&mut admin, "/admin/beta-testers", tester).await;
        made(&mut admin, "/admin/conveyor-map", json!({ "itemId": "-932201673" })).await;
        let item = json!({ "shortname": "test.authorised", "name": "Item", "category": "Test" });
        assert_eq!(admin.put("/admin/items/700020", &item).await.status, 200);
        let image = admin.upload("/admin/wiki/image", &png(1)).await.json();
        let user = owner.get("/me").await.json()["id"].as_str().unwrap().to_owned();
        let blocked = stranger.get("/me").await.json()["id"].as_str().unwrap().to_owned();
        made(&mut owner, "/guest-invites/blocked", json!({ "userId": blocked })).await;
        app.signed_in(ALICE).await;
        let sessions = owner.get("/me/sessions").await.json();
        let session = sessions["sessions"].as_array().unwrap().iter().find(|session| session["current"] == false);
        let session = session.unwrap()["id"].as_str().unwrap().to_owned();
        _payments.set_webhook(format!("http://{}/billing/webhook", app.address));
        let subscription = _payments.subscribe("cus_owner", Some(&user), "price_scout");
        // One that runs would be in the way.
        _payments.change(&subscription, &SubscriptionChange::End);
        owner.get_until("/me", |me| me["subscription"]["status"] == "CANCELED").await;
        let pairing = json!({ "address": "play.example.com", "port": 28083, "playerId": ALICE, "playerToken": 1 });
        let server = made(&mut owner, "/paired-servers", pairing).await["id"].as_str().unwrap().to_owned();
        let path = format!("/paired-servers/{server}");
        made(&mut owner, &format!("{path}/devices"), json!({ "entityId": 7, "kind": "alarm" })).await;
        made(&mut owner, &format!("{path}/devices"), json!({ "entityId": 9, "kind": "switch" })).await;
        let group = json!({ "name": "Lights", "devices": ["9"] });
        let group = made(&mut owner, &format!("{path}/device-groups"), group).await;
        let guest = share(&mut owner, &server, &mut guest_browser).await;
        let link = made(&mut owner, &format!("{path}/guests"), json!({ "link": true })).await;
        let drill = made(&mut owner, &format!("{path}/drill"), json!({})).await;
        let note = json!({ "x": 1, "y": 1, "category": "stash" });
        let note = made(&mut owner, &format!("/intel/{server}/map-notes"), note).await;
        let player = made(&mut owner, &format!("/intel/{server}/tracking"), json!({ "trackerName": "Vex" })).await;
        let watch = json!({ "vendorId": "1_2", "itemId": "-151838493" });
        let watch = made(&mut owner, &format!("/intel/{server}/shops"), watch).await;
        let helper = device(&app, &mut owner, json!({})).await;
        let overlay = device(&app, &mut owner, json!({ "scope": "overlay", "serverId": server })).await;
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let mut tokens = Vec::new();
        for scope in ["read", "devices", "chat", "read"] {
            tokens.push(made(&mut owner, "/me/tokens", json!({ "label": scope, "scopes": [scope] })).await);
        }
        let api_token = text(&tokens.pop().unwrap()["id"]);
        let tokens = [0, 1, 2].map(|index| text(&tokens[index]["token"]));
        let (token, incident) = (text(&link["token"]), text(&drill["incident"]));
        let (note, watch, group) = (text(&note["id"]), text(&watch["id"]), text(&group["id"]));
        let image = image["url"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
        let (player, _stats) = (text(&player["id"]), stats);
        Self {
            app,
            server,
            guest,
            token,
            incident,
            note,
            player,
            watch,
            group,
            image,
            _stats,
            _payments,
            _chat,
            owner,
            guest_browser,
            stranger,
            admin,
            user,
            blocked,
            session,
            subscription,
            helper,
            overlay,
            tokens,
            api_token,
        }
    }

    async fn sign_in_again(&mut self) {
        let Self { app, owner, guest_browser, stranger, admin, .. } = self;
        for (browser, account) in [(owner, ALICE), (guest_browser, BOB), (stranger, CAROL), (admin, ADA)] {
            assert_eq!(app.sign_in(browser, account).await.status, 302);
        }
    }

    async fn call(&mut self, caller: Caller, route: &str, body: &str) -> Answer {
        self.call_of(caller, route, body, None).await
    }

    /// `id`: for the `{id}` of the path, instead of the scene's.
    async fn call_of(&mut self, caller: Caller, route: &str, body: &str, id: Option<&str>) -> Answer {
        let (method, path) = route.split_once(' ').unwrap();
        let method: Method = method.parse().unwrap();
        let id = id.unwrap_or(match path {
            _ if path.starts_with("/pairing/device/") => &self.helper.id,
            _ if path.starts_with("/me/sessions/") => &self.session,
            _ if path.starts_with("/me/tokens/") => &self.api_token,
            _ if path.starts_with("/admin/users/") => &self.user,
            _ if path.contains("/map-notes/") => &self.note,
            _ if path.contains("/tracking/") => &self.player,
            _ if path.starts_with("/intel/{serverId}/shops/") => &self.watch,
            _ if path.contains("/items/") => "700020",
            _ => &self.server,
        });
        let mut path = path.replace("{id}", id).replace("{serverId}", &self.server).replace("{deviceId}", "7");
        path = path.replace("{guestId}", &self.guest).replace("{incident}", &self.incident);
        path = path.replace("{groupId}", &self.group);
        path = path
            .replace("{platformId}", BOB)
            .replace("{userId}", if path.starts_with("/guest-invites/") { &self.blocked } else { &self.user })
            .replace("{subscriptionId}", &self.subscription)
            .replace("{shortname}", "scrap")
            .replace("{version}", "0")
            .replace("{code}", "not_found")
            .replace("{token}", &self.token);
        path = path.replace("{name}", if path.starts_with("/images/") { &self.image } else { "faq" });
        if path.ends_with("/wiki/page") && method != Method::PUT || path.contains("/wiki/page/versions") {
            path += "?slug=welcome";
        }
        if path.ends_with("/preview") {
            path += &format!("?token={}", self.token);
        }
        if path.ends_with("/aliases") {
            path += "?name=Vex";
        }
        assert!(!path.contains('{'), "{path}: say what is there");
        let account = match caller {
            Guest => BOB,
            Stranger => CAROL,
            Administrator => ADA,
            _ => ALICE,
        };
        let body = body.replace("{token}", &self.token).replace("{self}", account);
        // Users cannot block themselves.
        let inviter = if caller == Stranger { &self.user } else { &self.blocked };
        let body = body.replace("{inviter}", inviter);
        let mut visitor = self.app.browser();
        let (browser, request) = match caller {
            Helper => (&mut visitor, self.helper.request(method, &path)),
            Overlay => (&mut visitor, self.overlay.request(method, &path)),
            ReadToken | DevicesToken | ChatToken => {
                let token = &self.tokens[caller as usize - ReadToken as usize];
                let request = visitor.request(method, &path).header(AUTHORIZATION, format!("Bearer {token}"));
                (&mut visitor, request)
            }
            _ => {
                let browser = match caller {
                    Owner => &mut self.owner,
                    Guest => &mut self.guest_browser,
                    Stranger => &mut self.stranger,
                    Administrator => &mut self.admin,
                    _ => &mut visitor,
                };
                let request = browser.request(method, &path).header(ORIGIN, FRONTEND);
                (browser, request)
            }
        };
        let request = match body.as_str() {
            "" => request,
            IMAGE => request.header("content-type", form_type()).body(form("file", &png(2))),
            _ => request.header("content-type", "application/json").body(body),
        };
        browser.send(request).await
    }
}

async fn made(browser: &mut Browser, path: &str, body: Value) -> Value {
    let answer = browser.post(path, Some(&body)).await;
    assert!(matches!(answer.status, 200 | 201), "{path}: {}", answer.text());
    answer.json()
}

async fn device(app: &TestApp, owner: &mut Browser, body: Value) -> HelperDevice {
    let issued = made(owner, "/pairing/device/code", body).await;
    let mut device = HelperDevice::new(app.browser(), "192.0.2.1");
    assert_eq!(device.activate(issued["code"].as_str().unwrap()).await.status, 200);
    device
}

/// The routes for which this holds.
fn routes_with(holds: impl Fn(&ApiRoute) -> bool) -> BTreeSet<String> {
    routes::routes().iter().filter(|route| holds(route)).map(name_of).collect()
}

#[test]
fn rights_are_given_away_only_where_they_are_stated_twice() {
    let stated = |list: &[&str]| list.iter().map(|route| (*route).to_owned()).collect::<BTreeSet<_>>();
    let is_public = |route: &ApiRoute| matches!(route.callers, Callers::Anyone | Callers::Link);
    assert_eq!(routes_with(is_public), stated(PUBLIC));
    let is_guest_write = |route: &ApiRoute| route.callers == Callers::Watcher && route.method.as_str() != "GET";
    assert_eq!(routes_with(is_guest_write), stated(GUEST_WRITES));
    let caller = |kind: &TokenKind| match kind {
        TokenKind::Helper => Helper,
        TokenKind::Overlay => Overlay,
        TokenKind::Api(TokenScope::Read) => ReadToken,
        TokenKind::Api(TokenScope::Devices) => DevicesToken,
        TokenKind::Api(TokenScope::Chat) => ChatToken,
    };
    let taking = routes::routes().iter().filter(|route| !route.tokens.is_empty());
    let taking: BTreeMap<String, BTreeSet<Caller>> =
        taking.map(|route| (name_of(route), route.tokens.iter().map(caller).collect())).collect();
    let stated = TOKENS.iter().map(|(route, opening)| ((*route).to_owned(), opening.iter().copied().collect()));
    assert_eq!(taking, stated.collect());
    let is_of_a_server = |route: &ApiRoute| {
        ["/paired-servers/{id}", "/intel/{serverId}"].iter().any(|server| route.path.starts_with(server))
    };
    let is_watched = |route: &ApiRoute| matches!(route.callers, Callers::Watcher | Callers::Owner);
    assert_eq!(routes_with(|route| is_of_a_server(route) && !is_watched(route)), BTreeSet::new());
}

#[test]
fn every_row_is_of_a_route() {
    let known = routes_with(|_| true);
    let rows = BODIES.iter().map(|(route, _)| route).chain(HELD);
    assert_eq!(rows.filter(|route| !known.contains(**route)).collect::<Vec<_>>(), [&""; 0]);
}

#[test]
fn the_document_names_api_tokens_at_exactly_the_routes_that_take_them() {
    let document = routes::document();
    let mut named = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let schemes = operation["security"].as_array();
            let scopes = schemes.into_iter().flatten().filter_map(|scheme| scheme["apiToken"].as_array());
            for scopes in scopes {
                let words = scopes.iter().map(|scope| scope.as_str().unwrap().to_owned()).collect::<Vec<_>>();
                named.insert((format!("{} {path}", method.to_uppercase()), words));
            }
        }
    }
    let word = |caller: &Caller| ["read", "devices", "chat"][*caller as usize - ReadToken as usize].to_owned();
    let scopes = |opening: &[Caller]| opening.iter().filter(|caller| is_api_token(**caller)).map(word).collect();
    let known = TOKENS.iter().map(|(route, opening)| ((*route).to_owned(), scopes(opening)));
    let known: BTreeSet<(String, Vec<String>)> =
        known.filter(|(_, scopes): &(_, Vec<String>)| !scopes.is_empty()).collect();
    assert_eq!(named, known);
}

#[actix_web::test]
async fn every_route_answers_everybody_as_its_line_says() {
    let _catalogue = catalogue::alone().await;
    let mut wrong = Vec::new();
    for line in routes::routes() {
        let (route, body) = (name_of(line), body_of(&name_of(line)));
        let mut scene = RouteScene::set().await;
        for caller in CALLERS {
            // Wrong codes are limited.
            scene.app.clock.advance(chrono::Duration::minutes(2));
            if route == "DELETE /me" {
                // The route asks for a fresh sign-in, which is another test's.
                scene.sign_in_again().await;
            }
            let answer = scene.call(caller, &route, &body).await;
            let problem = serde_json::from_str::<Value>(&answer.text()).unwrap_or_default();
            let code = if answer.status < 400 { "" } else { problem["code"].as_str().unwrap_or("no code") };
            let said = match (answer.status, code) {
                (401, "unauthenticated") => Verdict::Unauthenticated,
                (404, "not_found") => Verdict::Hidden,
                (403, "owner_only") => Verdict::ForOwner,
                (403, "not_admin") => Verdict::ForAdmin,
                (403, "insufficient_scope") => Verdict::OutOfScope,
                // The access comes first.
                (503, "game_server_unavailable") => Verdict::Allowed,
                (403 | 405 | 415 | 429 | 500.., _) | (_, "invalid_request" | "malformed_json" | "no code") => {
                    wrong.push(format!("{route} by {caller:?} tests nothing: {} {code}", answer.status));
                    continue;
                }
                _ => Verdict::Allowed,
            };
            let policies = answer.header("ratelimit-policy").unwrap_or_default();
            let unpaid = class_of(line).filter(|class| !policies.contains(&format!("\"{class}\";")));
            if let Some(class) = unpaid.filter(|_| said == Verdict::Allowed) {
                wrong.push(format!("{route} by {caller:?} is not paid from {class}: {policies}"));
            }
            let expected = match verdict_of(line, caller) {
                Verdict::AllowedIfAny if said == Verdict::Hidden => Verdict::Hidden,
                Verdict::AllowedIfAny => Verdict::Allowed,
                expected => expected,
            };
            if said != expected {
                wrong.push(format!("{route} by {caller:?}: {said:?} ({} {code}), not {expected:?}", answer.status));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// True for an existing id that is checked in `pairing.rs`: a request for confirmation takes hundreds of guesses.
fn is_checked_in_pairing(route: &str) -> bool {
    route == "POST /pairing/device/requests/{id}"
}

#[actix_web::test]
async fn a_thing_of_another_user_looks_like_one_that_does_not_exist() {
    let _catalogue = catalogue::alone().await;
    let mut scene = RouteScene::set().await;
    let channel = json!({ "kind": "ntfy", "name": "Phone", "topic": "theirs" });
    let channel = made(&mut scene.owner, "/channels", channel).await["id"].as_str().unwrap().to_owned();
    let registration = made(&mut scene.owner, "/credentials/push/registrations", json!({ "renew": false })).await;
    let registration = registration["id"].as_str().unwrap().to_owned();
    let of_one = routes_with(|route| is_of_one(route) && route.path.contains("{id}"));
    for route in of_one.iter().filter(|route| !is_checked_in_pairing(route)) {
        let body = body_of(route);
        let existing = match route.split_once(' ').unwrap().1 {
            path if path.starts_with("/channels/") => &channel,
            path if path.starts_with("/credentials/push/registrations/") => &registration,
            path => panic!("{path}: say whose it is"),
        };
        for caller in [Guest, Stranger, Administrator] {
            scene.app.clock.advance(chrono::Duration::minutes(2));
            let missing = existing.replace(|digit: char| digit.is_ascii_digit(), "0");
            let mut answers = Vec::new();
            for id in [existing, &missing] {
                let answer = scene.call_of(caller, route, &body, Some(id)).await;
                let mut problem = answer.json();
                problem["requestId"].take();
                answers.push((answer.status, problem));
            }
            assert_eq!(answers[0].0, 404, "{route} by {caller:?}: {}", answers[0].1);
            assert_eq!(answers[0], answers[1], "{route} by {caller:?}");
        }
    }
    let kept = scene.owner.get("/channels").await.json();
    assert_eq!((&kept["channels"][0]["id"], &kept["channels"][0]["name"]), (&json!(channel), &json!("Phone")));
}

/// One row a message of a client: the error that a stranger, a guest, the overlay of the server, a helper of its owner's and
/// its owner get; "" for none.
const MESSAGES: &[(&str, [&str; 5])] = &[
    ("subscribe", ["unknown_server", "", "", "", ""]),
    ("unsubscribe", ["", "", "", "", ""]),
    ("deviceToggle", ["unknown_server", "owner_only", "owner_only", "insufficient_scope", ""]),
    ("raidAck", ["unknown_server", "", "owner_only", "", ""]),
    ("ping", ["", "", "", "", ""]),
];

/// The kinds of message that a refusal of another one names.
async fn kinds(client: &mut RelayClient) -> BTreeSet<String> {
    client.send(json!({ "type": "?" })).await;
    let refused = client.expect_error("unknown_type").await;
    let (_, kinds) = refused["message"].as_str().unwrap().split_once("one of ").unwrap();
    kinds.split(", ").map(str::to_owned).collect()
}

/// A socket that this device's token opened.
async fn socket_of(app: &TestApp, mut device: HelperDevice) -> RelayClient {
    let minted = device.send(device.request(Method::POST, "/relay/token")).await.json();
    let opening = relay_client::request(app.relay, minted["token"].as_str());
    relay_client::open(app.relay, opening).await.expect("a 101").0
}

#[actix_web::test]
async fn every_message_of_the_relay_is_answered_as_its_row_says() {
    let app = TestApp::start_beside_games().await;
    let game = game::still(&app).await;
    let (mut alice, mut bob) = (app.signed_in(ALICE).await, app.signed_in(BOB).await);
    let mut carol = app.signed_in(CAROL).await;
    let server = pair(&mut alice, &game).await;
    for device in [GATE_SWITCH, BASE_ALARM] {
        add_device(&mut alice, &server, device).await;
    }
    share(&mut alice, &server, &mut bob).await;
    let drill = made(&mut alice, &format!("/paired-servers/{server}/drill"), json!({})).await;
    let overlay = device(&app, &mut alice, json!({ "scope": "overlay", "serverId": server })).await;
    let overlay = socket_of(&app, overlay).await;
    let helper = device(&app, &mut alice, json!({})).await;
    let helper = socket_of(&app, helper).await;
    let mut owner = RelayClient::watching(&app, &mut alice, &server).await;
    owner.until(&server, |state| is_complete(state, 2)).await;
    let (guest, stranger) = (RelayClient::connect(&app, &mut bob).await, RelayClient::connect(&app, &mut carol).await);
    let mut clients = [stranger, guest, overlay, helper, owner];

    let refused = relay_client::open(app.relay, relay_client::request(app.relay, None)).await;
    assert_eq!(refused.err().map(|refused| refused.status), Some(401), "without a token nothing is heard at all");

    let known: BTreeSet<String> = MESSAGES.iter().map(|(kind, _)| (*kind).to_owned()).collect();
    assert_eq!(relay_client::published_kinds("ClientMessage"), known, "every message has a row");
    assert_eq!(kinds(&mut clients[0]).await, known, "and a refusal names them all");
    let message = |kind: &str| {
        json!({
            "type": kind, "serverId": server, "deviceId": GATE_SWITCH.to_string(), "incident": drill["incident"],
            "requestId": kind,
        })
    };
    for (kind, errors) in MESSAGES {
        for (client, error) in clients.iter_mut().zip(errors) {
            client.send(message(kind)).await;
            match (*error, *kind) {
                ("", "subscribe") => client.until(&server, |_| true).await,
                ("", "unsubscribe") => client.ping().await,
                ("", "ping") => drop(client.expect("pong").await),
                ("", _) => assert_eq!(client.expect("ack").await["requestId"], *kind),
                (error, _) => {
                    assert_eq!(client.expect_error(error).await["serverId"], server, "{kind}");
                }
            }
        }
    }
    let [stranger, ..] = &clients;
    assert!(stranger.known.is_empty(), "nothing of it was shown");
}
