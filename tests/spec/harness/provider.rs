//! An OpenID 2.0 provider on loopback. It confirms what it signed, and the same assertion again and again, as a
//! real provider does; on demand it misbehaves.

use std::{
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex},
};

use actix_web::{App, HttpRequest, HttpResponse, HttpServer, dev::ServerHandle, http::StatusCode, rt, web};
use companion::domain::time::Timestamp;
use url::{Url, form_urlencoded};

use super::canary;

const NS: &str = "http://specs.openid.net/auth/2.0";

/// Behaviour of the provider at `check_authentication`.
#[derive(Clone, Debug)]
pub enum Mood {
    Honest,
    /// This body, status 200.
    Says(String),
    Status(u16),
    /// Accepts the request and never answers.
    Silent,
    /// Stops listening: connections are refused.
    Gone,
}

struct Shared {
    mood: Mood,
    signed: Vec<Vec<(String, String)>>,
    asked: Vec<Vec<(String, String)>>,
    traces: Vec<String>,
    profile: Option<String>,
}

pub struct Provider {
    address: SocketAddr,
    shared: Arc<Mutex<Shared>>,
    handle: ServerHandle,
}

/// Assertion that the provider sends back with the browser.
#[derive(Clone, Debug)]
pub struct Assertion {
    callback: Url,
    pub parameters: Vec<(String, String)>,
}

impl Assertion {
    /// Path and query of the callback.
    pub fn path(&self) -> String {
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(&self.parameters).finish();
        format!("{}?{query}", self.callback.path())
    }

    /// The parameter of this name, to be changed.
    pub fn get_mut(&mut self, name: &str) -> &mut String {
        &mut self.parameters.iter_mut().find(|(known, _)| known == name).unwrap().1
    }

    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        *self.get_mut(name) = value.into();
    }

    pub fn remove(&mut self, name: &str) {
        self.parameters.retain(|(known, _)| known != name);
    }
}

impl Provider {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (signed, asked, traces) = (Vec::new(), Vec::new(), Vec::new());
        let shared = Arc::new(Mutex::new(Shared { mood: Mood::Honest, signed, asked, traces, profile: None }));
        let data = web::Data::from(shared.clone());
        let server = HttpServer::new(move || {
            App::new()
                .app_data(data.clone())
                .route("/openid/login", web::post().to(check_authentication))
                .route("/ISteamUser/GetPlayerSummaries/v0002/", web::get().to(summaries))
        })
        .workers(1)
        .disable_signals()
        .shutdown_timeout(0)
        .listen(listener)
        .unwrap()
        .run();
        let handle = server.handle();
        rt::spawn(server);
        Self { address, shared, handle }
    }

    pub fn base(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn endpoint(&self) -> String {
        format!("{}/openid/login", self.base())
    }

    pub fn claimed_id_prefix(&self) -> String {
        format!("{}/openid/id/", self.base())
    }

    pub async fn set_mood(&self, mood: Mood) {
        if let Mood::Gone = mood {
            self.handle.stop(false).await;
        }
        self.shared.lock().unwrap().mood = mood;
    }

    /// The name and picture that it answers, as JSON of one player.
    pub fn set_profile(&self, player: &str) {
        self.shared.lock().unwrap().profile = Some(player.to_owned());
    }

    /// The forms of every `check_authentication` so far.
    pub fn asked(&self) -> Vec<Vec<(String, String)>> {
        self.shared.lock().unwrap().asked.clone()
    }

    /// The `traceparent` of every `check_authentication` that had one.
    pub fn traces(&self) -> Vec<String> {
        self.shared.lock().unwrap().traces.clone()
    }

    /// The user confirmed on the page at `login_url`.
    pub fn confirm(&self, login_url: &str, account: &str, now: Timestamp) -> Assertion {
        let claimed = format!("{}{account}", self.claimed_id_prefix());
        let nonce = format!("{}{}+/=", now.format("%Y-%m-%dT%H:%M:%SZ"), uuid::Uuid::now_v7().simple());
        let mut answer = self.answer(login_url, "id_res");
        let return_to = answer.callback.as_str().to_owned();
        for (name, value) in [
            ("op_endpoint", self.endpoint()),
            ("claimed_id", claimed.clone()),
            ("identity", claimed),
            ("return_to", return_to),
            ("response_nonce", nonce),
            ("assoc_handle", "1234567890".into()),
            ("signed", "signed,op_endpoint,claimed_id,identity,return_to,response_nonce,assoc_handle".into()),
            ("sig", uuid::Uuid::now_v7().simple().to_string()),
        ] {
            if name == "sig" {
                canary::note(&value);
            }
            answer.parameters.push((format!("openid.{name}"), value));
        }
        self.shared.lock().unwrap().signed.push(openid(&answer.parameters));
        answer
    }

    /// An answer of another mode, for example when the user declined.
    pub fn answer(&self, login_url: &str, mode: &str) -> Assertion {
        let login = Url::parse(login_url).unwrap();
        assert!(login_url.starts_with(&self.endpoint()), "{login_url}");
        let return_to = login.query_pairs().find(|(name, _)| name == "openid.return_to").unwrap().1;
        let callback = Url::parse(&return_to).unwrap();
        let mut parameters: Vec<(String, String)> = callback.query_pairs().into_owned().collect();
        parameters.push(("openid.ns".into(), NS.into()));
        parameters.push(("openid.mode".into(), mode.into()));
        Assertion { callback, parameters }
    }
}

fn openid(parameters: &[(String, String)]) -> Vec<(String, String)> {
    parameters.iter().filter(|(name, _)| name.starts_with("openid.")).cloned().collect()
}

async fn check_authentication(
    req: HttpRequest,
    shared: web::Data<Mutex<Shared>>,
    web::Form(form): web::Form<Vec<(String, String)>>,
) -> HttpResponse {
    let (mood, genuine) = {
        let mut shared = shared.lock().unwrap();
        shared.asked.push(form.clone());
        let trace = req.headers().get("traceparent").map(|trace| trace.to_str().unwrap().to_owned());
        shared.traces.extend(trace);
        let as_signed: Vec<_> = form
            .into_iter()
            .map(|(name, value)| {
                let verifying = name == "openid.mode" && value == "check_authentication";
                (name, if verifying { "id_res".to_owned() } else { value })
            })
            .collect();
        (shared.mood.clone(), shared.signed.contains(&as_signed))
    };
    match mood {
        Mood::Honest => HttpResponse::Ok().body(format!("is_valid:{genuine}\nns:{NS}\n")),
        Mood::Says(body) => HttpResponse::Ok().body(body),
        Mood::Status(status) => HttpResponse::build(StatusCode::from_u16(status).unwrap())
            .insert_header(("location", "/openid/login"))
            .body(format!("ns:{NS}\nis_valid:true\n")),
        Mood::Silent | Mood::Gone => std::future::pending().await,
    }
}

async fn summaries(shared: web::Data<Mutex<Shared>>) -> HttpResponse {
    match &shared.lock().unwrap().profile {
        Some(player) => HttpResponse::Ok().body(format!("{{\"response\":{{\"players\":[{player}]}}}}")),
        None => HttpResponse::Forbidden().finish(),
    }
}
