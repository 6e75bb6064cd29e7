//! Where the secrets of a test are noted, and its log is kept, when `canary.rs` looks for the one in the other.

use std::{
    env,
    fs::{File, OpenOptions},
    io::Write as _,
    sync::Once,
};

use companion::logging::{self, LogFormat};
use env_logger::Target;
use serde_json::Value;

/// Names the files of the log and of the secrets, one in a line.
pub const LOG: &str = "CANARY_LOG";
pub const SECRETS: &str = "CANARY_SECRETS";

fn appending(variable: &str) -> Option<File> {
    let path = env::var_os(variable)?;
    Some(OpenOptions::new().create(true).append(true).open(path).unwrap())
}

/// Begins to log, if somebody looks.
pub fn log() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if let Some(file) = appending(LOG) {
            logging::builder(LogFormat::Json).target(Target::Pipe(Box::new(file))).init();
        }
    });
}

/// No log may have this.
pub fn note(secret: &str) {
    if secret.len() >= 6
        && let Some(mut file) = appending(SECRETS)
    {
        file.write_all(format!("{}\n", secret.replace('\n', "")).as_bytes()).unwrap();
    }
}

/// Nor what these flags say of keys, secrets and tokens.
pub fn note_flags(flags: &[String]) {
    for (name, value) in flags.iter().filter_map(|flag| flag.split_once('=')) {
        if ["secret", "token", "api-key", "encryption-key"].iter().any(|kind| name.contains(kind)) {
            value.split(',').for_each(note);
        }
    }
}

/// Nor the tokens and codes of an answer, nor the addresses of pages that let in whoever has them.
pub fn note_answer(body: &[u8]) {
    if env::var_os(SECRETS).is_some()
        && let Ok(Value::Object(fields)) = serde_json::from_slice(body)
    {
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
