//! A chat platform in the form of Discord's API: it takes the commands of one application as strictly as the real one,
//! keeps them, and sends the commands of users to the service, signed. Each fault comes on demand.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io,
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use actix_web::{
    App, HttpRequest, HttpResponse, HttpServer,
    dev::ServerHandle,
    http::{
        StatusCode,
        header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER, USER_AGENT},
    },
    web,
};
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    clock::Clock,
    simulator::{command_limits, loopback_client::loopback_client},
};

/// Token with which the bot calls the platform.
pub const BOT_TOKEN: &str = "simulated.bot.token";
/// Id of the bot's application.
pub const APPLICATION: &str = "110000000000000001";
/// Guild in which the application may have commands.
pub const GUILD: &str = "120000000000000001";
/// Guild in which the application has none.
pub const OTHER_GUILD: &str = "120000000000000002";

/// The private key: the platform here is of one application, and the key is no secret.
const SEED: [u8; 32] = [7; 32];
/// Time that the service may take for an interaction.
const DEADLINE: Duration = Duration::from_secs(3);
const LONGEST_MESSAGE: usize = 2_000;

/// Faults of the platform; none by default. Also the body of `POST /faults`, as JSON in camelCase.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ChatFaults {
    /// Number of further requests that are answered with "too many requests".
    pub too_many: u32,
    /// Seconds of the pause that these answers ask for.
    pub retry_after: f64,
    /// Every request is answered with this status.
    pub status: Option<u16>,
    /// Nothing but this many commands is taken.
    pub most_commands: Option<usize>,
}

/// A command that a user gives.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GivenCommand {
    /// Without the slash.
    pub command: String,
    /// Texts and whole numbers, by name.
    #[serde(default)]
    pub options: Map<String, Value>,
    /// Id of the user, decimal digits.
    #[serde(default = "someone")]
    pub user: String,
}

fn someone() -> String {
    "130000000000000001".to_owned()
}

impl GivenCommand {
    /// A command of this user.
    pub fn new(user: &str, command: &str, options: Value) -> Self {
        let options = options.as_object().cloned().unwrap_or_default();
        Self { command: command.to_owned(), options, user: user.to_owned() }
    }
}

/// An interaction as the platform sends it.
#[derive(Clone, Debug)]
pub struct SignedInteraction {
    pub body: String,
    /// Unix seconds.
    pub time: String,
    /// Hex.
    pub signature: String,
}

/// A running platform; stops when dropped.
pub struct ChatService {
    addr: SocketAddr,
    server: ServerHandle,
    shared: Arc<SharedChat>,
}

struct SharedChat {
    clock: Clock,
    key: Ed25519KeyPair,
    http: reqwest::Client,
    books: Mutex<ChatBooks>,
}

#[derive(Default)]
struct ChatBooks {
    /// By scope: a guild, or empty for all.
    commands: BTreeMap<String, Vec<Value>>,
    faults: ChatFaults,
    asked: u64,
    last_id: u64,
    interactions_url: String,
}

/// Status, code and, mirroring the request, its faults.
struct ChatRefusal(u16, u64, Value);

impl ChatService {
    /// Binds and begins to serve; port 0 takes a free one. Call it inside an actix system.
    pub async fn start(listen: SocketAddr, clock: Clock) -> io::Result<Self> {
        let listener = TcpListener::bind(listen)?;
        let addr = listener.local_addr()?;
        let key = Ed25519KeyPair::from_seed_unchecked(&SEED).map_err(io::Error::other)?;
        let http = loopback_client(DEADLINE)?;
        let shared = Arc::new(SharedChat { clock, key, http, books: Mutex::default() });
        let data = web::Data::from(shared.clone());
        let app = move || {
            App::new()
                .app_data(data.clone())
                .service(web::resource("/faults").post(set_faults))
                .service(web::resource("/give").post(give))
                .service(web::resource("/applications/@me").get(application))
                .service(web::resource("/applications/{application}/commands").to(register))
                .service(web::resource("/applications/{application}/guilds/{guild}/commands").to(register))
        };
        let server = HttpServer::new(app).workers(1).disable_signals().shutdown_timeout(0).listen(listener)?.run();
        let handle = server.handle();
        actix::spawn(server);
        Ok(Self { addr, server: handle, shared })
    }

    /// The address that it listens on.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The base URL of the API.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// The settings of a service whose bot is the application here.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        vec![
            ("CHAT_API_URL", self.url()),
            ("CHAT_BOT_TOKEN", BOT_TOKEN.to_owned()),
            ("CHAT_APPLICATION_ID", APPLICATION.to_owned()),
            ("CHAT_PUBLIC_KEY", hex(self.shared.key.public_key().as_ref())),
        ]
    }

    /// Sets the address to which interactions are sent.
    pub fn set_interactions(&self, url: String) {
        self.shared.books().interactions_url = url;
    }

    /// From now on the platform has these faults.
    pub fn set_faults(&self, faults: ChatFaults) {
        self.shared.books().faults = faults;
    }

    /// The names of the commands of a guild, or of all.
    pub fn commands(&self, guild: Option<&str>) -> Vec<String> {
        let books = self.shared.books();
        let commands = books.commands.get(guild.unwrap_or_default()).map(Vec::as_slice).unwrap_or_default();
        commands.iter().filter_map(|command| command["name"].as_str().map(str::to_owned)).collect()
    }

    /// Number of requests to the API.
    pub fn asked(&self) -> u64 {
        self.shared.books().asked
    }

    /// An interaction, signed now.
    pub fn signed(&self, interaction: &Value) -> SignedInteraction {
        self.shared.signed(interaction.to_string())
    }

    /// The interaction of a command, whether or not it is registered.
    pub fn interaction(&self, given: &GivenCommand) -> Value {
        interaction(given)
    }

    /// Gives a command; the message with which the service answers, as the account sees it. An error says what the
    /// platform shows instead.
    pub async fn give(&self, given: &GivenCommand) -> Result<Value, String> {
        self.shared.give(given).await
    }
}

impl Drop for ChatService {
    fn drop(&mut self) {
        // The call stops it; its answer comes when it has stopped, and is not needed.
        drop(self.server.stop(false));
    }
}

impl SharedChat {
    fn books(&self) -> MutexGuard<'_, ChatBooks> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn signed(&self, body: String) -> SignedInteraction {
        let time = self.clock.now().timestamp().to_string();
        let signature = hex(self.key.sign(format!("{time}{body}").as_bytes()).as_ref());
        SignedInteraction { body, time, signature }
    }

    async fn give(&self, given: &GivenCommand) -> Result<Value, String> {
        let url = {
            let books = self.books();
            let known = |commands: &Vec<Value>| commands.iter().any(|command| command["name"] == given.command);
            if !books.commands.values().any(known) {
                return Err(format!("there is no command /{}: register the commands first", given.command));
            }
            books.interactions_url.clone()
        };
        let SignedInteraction { body, time, signature } = self.signed(interaction(given).to_string());
        let request = self.http.post(url).header(CONTENT_TYPE.as_str(), "application/json").body(body);
        let request = request.header("X-Signature-Ed25519", signature).header("X-Signature-Timestamp", time);
        let answer = request.send().await.map_err(|error| format!("no answer: {}", error.without_url()))?;
        let status = answer.status();
        let bytes = answer.bytes().await.map_err(|error| format!("no answer: {}", error.without_url()))?;
        let answer: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let message = answer["data"]["content"].as_str().map(|content| content.encode_utf16().count());
        if status != reqwest::StatusCode::OK || answer["type"] != 4 {
            return Err(format!("the application did not respond: {status}"));
        }
        if !message.is_some_and(|units| (1..=LONGEST_MESSAGE).contains(&units)) {
            return Err("the answer is no message of 1 to 2000 characters".to_owned());
        }
        Ok(answer["data"].clone())
    }
}

fn interaction(given: &GivenCommand) -> Value {
    let option = |(name, value): (&String, &Value)| {
        let kind = if value.is_number() { 4 } else { 3 };
        json!({ "name": name, "type": kind, "value": value })
    };
    json!({
        "id": "140000000000000001",
        "application_id": APPLICATION,
        "type": 2,
        "token": "simulated",
        "version": 1,
        "guild_id": GUILD,
        "locale": "en-US",
        "member": { "user": { "id": given.user, "username": "someone" }, "roles": [] },
        "data": {
            "id": "150000000000000001", "type": 1, "name": given.command,
            "options": given.options.iter().map(option).collect::<Vec<_>>(),
        },
    })
}

async fn set_faults(shared: web::Data<SharedChat>, faults: web::Json<ChatFaults>) -> HttpResponse {
    shared.books().faults = faults.into_inner();
    HttpResponse::Ok().json(json!({ "ok": true }))
}

/// Gives a command: `{ "command": "craft", "options": { "item": "ak" }, "user": "1" }`.
async fn give(shared: web::Data<SharedChat>, given: web::Json<GivenCommand>) -> HttpResponse {
    match shared.give(&given).await {
        Ok(message) => HttpResponse::Ok().json(message),
        Err(shown) => HttpResponse::BadGateway().json(json!({ "message": shown })),
    }
}

async fn register(shared: web::Data<SharedChat>, request: HttpRequest, body: web::Bytes) -> HttpResponse {
    let mut books = shared.books();
    books.asked += 1;
    if let Some(status) = books.faults.status {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        return HttpResponse::build(status).json(json!({ "code": 0, "message": "simulated" }));
    }
    if books.faults.too_many > 0 {
        books.faults.too_many -= 1;
        let pause = books.faults.retry_after;
        return HttpResponse::TooManyRequests()
            .insert_header((RETRY_AFTER, pause.to_string()))
            .json(json!({ "message": "You are being rate limited.", "retry_after": pause, "global": false }));
    }
    match replace(&mut books, &request, &body) {
        Ok(stored) => HttpResponse::Ok().json(stored),
        Err(ChatRefusal(status, code, errors)) => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
            let mut refusal = json!({ "code": code, "message": format!("Refused: {code}") });
            if !errors.is_null() {
                refusal["errors"] = errors;
            }
            HttpResponse::build(status).json(refusal)
        }
    }
}

/// The application whose token is sent.
async fn application(shared: web::Data<SharedChat>, request: HttpRequest) -> HttpResponse {
    let sent = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    if sent != Some(&format!("Bot {BOT_TOKEN}")) {
        return HttpResponse::Unauthorized().json(json!({ "message": "401: Unauthorized", "code": 0 }));
    }
    HttpResponse::Ok().json(json!({ "id": APPLICATION, "verify_key": hex(shared.key.public_key().as_ref()) }))
}

/// Replaces all commands of a scope.
fn replace(books: &mut ChatBooks, request: &HttpRequest, body: &[u8]) -> Result<Value, ChatRefusal> {
    let refused = |status, code| Err(ChatRefusal(status, code, Value::Null));
    let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let agent = header(USER_AGENT).strip_prefix("DiscordBot (").and_then(|agent| agent.strip_suffix(')'));
    if !agent
        .and_then(|agent| agent.split_once(", "))
        .is_some_and(|(url, version)| url.contains("://") && !version.is_empty())
    {
        return refused(403, 40_333);
    }
    if header(AUTHORIZATION) != format!("Bot {BOT_TOKEN}") {
        return refused(401, 0);
    }
    let path = request.match_info();
    if path.query("application") != APPLICATION {
        return refused(404, 10_002);
    }
    let guild = path.get("guild");
    match guild {
        None | Some(GUILD) => {}
        Some(OTHER_GUILD) => return refused(403, 50_001),
        Some(_) => return refused(404, 10_004),
    }
    if request.method() != "PUT" {
        return refused(405, 0);
    }
    let commands: Value = serde_json::from_slice(body).unwrap_or_default();
    if header(CONTENT_TYPE) != "application/json" || !commands.is_array() {
        return refused(400, 50_035);
    }
    let faults = command_limits::faults(&commands);
    if !faults.is_empty() {
        let mut errors = json!({});
        for fault in faults {
            let place =
                fault.path.split('.').filter(|name| !name.is_empty()).fold(&mut errors, |at, name| &mut at[name]);
            place["_errors"] = json!([{ "code": "SIMULATED_LIMIT", "message": fault.message }]);
        }
        return Err(ChatRefusal(400, 50_035, errors));
    }
    let commands = commands.as_array().cloned().unwrap_or_default();
    if let Some(most) = books.faults.most_commands.filter(|most| commands.len() > *most) {
        let errors =
            json!({ most.to_string(): { "_errors": [{ "code": "APPLICATION_COMMANDS_EXCEEDED", "message": "" }] } });
        return Err(ChatRefusal(400, 30_032, errors));
    }
    let stored: Vec<Value> = commands
        .into_iter()
        .map(|mut command| {
            books.last_id += 1;
            command["id"] = (160_000_000_000_000_000 + books.last_id).to_string().into();
            command["application_id"] = APPLICATION.into();
            command["version"] = books.last_id.to_string().into();
            command["guild_id"] = guild.map_or(Value::Null, Value::from);
            command
        })
        .collect();
    books.commands.insert(guild.unwrap_or_default().to_owned(), stored.clone());
    Ok(stored.into())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing into a String does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
