//! Everything that these tests log, and the secrets that they meet: `tests/spec_log.rs` looks for the one in the other.

use std::{
    fs::File,
    io::Write as _,
    path::Path,
    sync::{LazyLock, Mutex, Once},
};

use companion::{
    config::Secrets,
    logging::{self, LogFormat},
};
use env_logger::Target;
use reqwest::{
    Request,
    header::{AUTHORIZATION, COOKIE},
};
use secrecy::ExposeSecret as _;
use serde_json::Value;

/// Filter of the log, also for the crates that log less when nothing is asked for.
const EVERYTHING: &str = "trace,actix_server=trace";

/// One in a line.
static SECRETS: LazyLock<Mutex<File>> = LazyLock::new(|| Mutex::new(file("spec.secrets")));

/// Empty, in the directory that cargo has for tests.
fn file(name: &str) -> File {
    File::create(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)).unwrap()
}

/// Begins to log.
pub fn log() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let log = Target::Pipe(Box::new(file("spec.log")));
        logging::builder(LogFormat::Json).parse_filters(EVERYTHING).target(log).init();
    });
}

/// Output of a process that a test has run, with its log: no secret may be in it either.
pub fn keep_output(text: &str) {
    static OUTPUTS: LazyLock<Mutex<File>> = LazyLock::new(|| Mutex::new(file("spec.outputs")));
    OUTPUTS.lock().unwrap().write_all(text.as_bytes()).unwrap();
}

/// No log may have this.
pub fn note(secret: &str) {
    if secret.len() >= 6 {
        let line = format!("{}\n", secret.replace('\n', ""));
        SECRETS.lock().unwrap().write_all(line.as_bytes()).unwrap();
    }
}

/// Nor what these flags say of keys, secrets and tokens.
pub fn note_flags(flags: &[String]) {
    for (name, value) in flags.iter().filter_map(|flag| flag.split_once('=')) {
        if ["secret", "salt", "token", "api-key", "access-key", "encryption-key"].iter().any(|kind| name.contains(kind))
        {
            value.split(',').for_each(note);
        }
    }
}

/// Nor what the service has of its own.
pub fn note_secrets(secrets: &Secrets) {
    let Secrets { session_secret, session_salt, credentials_key, credentials_key_previous, .. } = secrets;
    note(session_secret.expose_secret());
    note(session_salt.expose_secret());
    for key in [Some(credentials_key), credentials_key_previous.as_ref()].into_iter().flatten() {
        note(&key.to_base64());
    }
}

/// Nor what a request shows who sends it, and the secrets that it brings.
pub fn note_request(request: &Request) {
    let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    header(AUTHORIZATION).strip_prefix("Bearer ").into_iter().for_each(note);
    header(COOKIE).split("; ").filter_map(|cookie| cookie.split_once('=')).for_each(|(_, value)| note(value));
    let body = request.body().and_then(|body| body.as_bytes()).unwrap_or_default();
    note_fields(&serde_json::from_slice(body).unwrap_or_default());
}

/// Player tokens, push credentials in any of their forms, and invitations.
fn note_fields(value: &Value) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| match value {
            Value::String(text) if is_secret(name) => note(text),
            Value::Number(number) if is_secret(name) => note(&number.to_string()),
            value => note_fields(value),
        }),
        Value::Array(values) => values.iter().for_each(note_fields),
        _ => {}
    }
}

fn is_secret(name: &str) -> bool {
    let name = name.to_lowercase();
    ["token", "secret", "private"].iter().any(|kind| name.contains(kind))
}

/// Nor the tokens and codes of an answer, nor the addresses of pages that let in every caller who has them.
pub fn note_answer(body: &[u8]) {
    if let Ok(Value::Object(fields)) = serde_json::from_slice(body) {
        for name in ["token", "url"] {
            if let Some(secret) = fields.get(name).and_then(Value::as_str) {
                note(secret);
            }
        }
        // A problem's code is none.
        if let (Some(code), Some(_)) = (fields.get("code").and_then(Value::as_str), fields.get("expiresAt")) {
            note(code);
        }
    }
}
