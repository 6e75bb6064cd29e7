//! `companion watch`: a relay client for the terminal. Prints what arrives, and applies the patches as a dashboard does
//! (RFC 6902), so that a wrong patch of the relay shows. Reconnects with a limited backoff and a new token.

use std::{collections::HashMap, fs, io, path::PathBuf, time::Duration};

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_tungstenite::{connect_async, tungstenite::Message};

use crate::{clients::http, demo::DemoFile, net::tls_config, relay::wire::publication::Position};

/// Options of `watch`.
#[derive(clap::Args)]
pub struct WatchOptions {
    /// The `demo.json` of a running demo
    demo: PathBuf,
    /// Toggle this switch once, when the state has arrived
    #[arg(long, value_name = "DEVICE_ID")]
    toggle: Option<String>,
    /// Stop after this many seconds [default: when interrupted]
    #[arg(long)]
    seconds: Option<u64>,
}

/// Reconnect backoff, as the specification asks of clients.
const BACKOFF_FIRST: Duration = Duration::from_secs(1);
const BACKOFF_LONGEST: Duration = Duration::from_secs(30);
/// After a connection that lasted this long, the backoff starts from the beginning.
const HEALTHY_AFTER: Duration = Duration::from_secs(30);
/// A device that the state does not have by then does not exist.
const DEVICES_KNOWN_AFTER: Duration = Duration::from_secs(10);
/// Id by which the answer to our command is recognised.
const TOGGLE_REQUEST: &str = "toggle";

/// Reasons for which watching ended.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    #[error("{}: {cause} (is the demo running?)", path.display())]
    Demo { path: PathBuf, cause: io::Error },
    #[error("the relay sent something that cannot be applied: {0}")]
    Diverged(String),
    #[error("the session of the demo user is no longer valid; start the demo again")]
    SignedOut,
    #[error("there is no device {device}; {known}")]
    UnknownDevice { device: String, known: String },
    #[error("the switch was not toggled: {0}")]
    NotToggled(String),
    #[error("{0}")]
    Client(io::Error),
}

/// Runs until it is interrupted, the time is up, or the relay sends something that cannot be applied.
pub async fn watch(options: WatchOptions) -> Result<(), WatchError> {
    let text = fs::read_to_string(&options.demo);
    let file = text.and_then(|text| serde_json::from_str::<DemoFile>(&text).map_err(io::Error::from));
    let file = file.map_err(|cause| WatchError::Demo { path: options.demo.clone(), cause })?;
    let http = http::client(tls_config(None).map_err(WatchError::Client)?).map_err(WatchError::Client)?;
    let mut watcher = Watcher { file, http, toggle: options.toggle, states: HashMap::new() };
    let forever = async {
        let mut backoff = BACKOFF_FIRST;
        loop {
            let started = Instant::now();
            match watcher.connection().await {
                Ok(reason) => println!("--- {reason}; next attempt in {} s", backoff.as_secs()),
                Err(error) => return Err(error),
            }
            backoff = if started.elapsed() > HEALTHY_AFTER { BACKOFF_FIRST } else { backoff };
            tokio::time::sleep(backoff).await;
            backoff = (backoff * 2).min(BACKOFF_LONGEST);
        }
    };
    match options.seconds {
        Some(seconds) => tokio::time::timeout(Duration::from_secs(seconds), forever).await.unwrap_or(Ok(())),
        None => tokio::select! {
            ended = forever => ended,
            _ = tokio::signal::ctrl_c() => Ok(()),
        },
    }
}

struct Watcher {
    file: DemoFile,
    http: reqwest::Client,
    toggle: Option<String>,
    /// The last position, and the state there, by server.
    states: HashMap<String, (Position, Value)>,
}

impl Watcher {
    /// One connection, until it ends; returns the reason.
    async fn connection(&mut self) -> Result<String, WatchError> {
        let Some(token) = self.token().await? else { return Ok("the API does not answer as expected".to_owned()) };
        let mut socket = match connect_async(format!("{}/v1?token={token}", self.file.relay_url)).await {
            Ok((socket, _)) => socket,
            Err(error) => return Ok(format!("no connection to the relay: {error}")),
        };
        let connected = Instant::now();
        for server in &self.file.servers {
            let mut subscribe = json!({ "type": "subscribe", "serverId": server.id });
            if let Some((Position { epoch, seq }, _)) = self.states.get(server.id.as_str()) {
                (subscribe["epoch"], subscribe["seq"]) = (json!(epoch), json!(seq));
            }
            if let Err(error) = socket.send(Message::text(subscribe.to_string())).await {
                return Ok(error.to_string());
            }
        }
        while let Some(message) = socket.next().await {
            let text = match message {
                Ok(Message::Text(text)) => text,
                Ok(Message::Close(Some(close))) => return Ok(format!("closed {} {}", close.code, close.reason)),
                Ok(_) => continue,
                Err(error) => return Ok(error.to_string()),
            };
            let message: Value =
                serde_json::from_str(&text).map_err(|error| WatchError::Diverged(error.to_string()))?;
            self.take(&message)?;
            if message["type"] == "error" && message["requestId"] == TOGGLE_REQUEST {
                let reason = format!("{} ({})", text_of(&message["message"]), text_of(&message["code"]));
                return Err(WatchError::NotToggled(reason));
            }
            if let Some(device) = &self.toggle
                && let Some(known) = self.devices_without(device, connected.elapsed())
            {
                return Err(WatchError::UnknownDevice { device: device.clone(), known });
            }
            let ready = matches!(message["type"].as_str(), Some("snapshot" | "patch"));
            let holding = |device: &String| self.states.iter().find(|(_, (_, state))| has_value(state, device));
            if ready
                && let Some((server, _)) = self.toggle.as_ref().and_then(holding)
                && let Some(device) = self.toggle.clone()
            {
                let toggle = json!({
                    "type": "deviceToggle", "serverId": server, "deviceId": device, "requestId": TOGGLE_REQUEST,
                });
                self.toggle = None;
                if let Err(error) = socket.send(Message::text(toggle.to_string())).await {
                    return Ok(error.to_string());
                }
            }
        }
        Ok("the connection ended".to_owned())
    }

    /// A token for the relay; none if the API does not answer as expected.
    async fn token(&self) -> Result<Option<String>, WatchError> {
        let request = self.http.post(format!("{}/relay/token", self.file.api_url));
        let answer = match request.header("cookie", &self.file.cookie).send().await {
            Ok(answer) if answer.status() == 401 => return Err(WatchError::SignedOut),
            Ok(answer) => answer.json::<Value>().await,
            Err(error) => Err(error),
        };
        Ok(answer.ok().map(|answer| answer["token"].as_str().unwrap_or_default().to_owned()))
    }

    /// The list of all devices, if this one is certainly not among them.
    fn devices_without(&self, device: &str, elapsed: Duration) -> Option<String> {
        let all_known = self.file.servers.iter().all(|server| self.states.contains_key(server.id.as_str()));
        let devices = || self.states.values().filter_map(|(_, state)| state["devices"].as_object()).flatten();
        let undecided = devices().next().is_none() && elapsed < DEVICES_KNOWN_AFTER;
        if !all_known || undecided || devices().any(|(id, _)| id == device) {
            return None;
        }
        let known: Vec<String> = devices()
            .map(|(id, device)| format!("{id} ({}, {})", text_of(&device["name"]), text_of(&device["kind"])))
            .collect();
        Some(if known.is_empty() { "there are none".to_owned() } else { format!("there are {}", known.join(", ")) })
    }

    /// Applies a message and prints it.
    fn take(&mut self, message: &Value) -> Result<(), WatchError> {
        let server = message["serverId"].as_str().unwrap_or_default();
        let number = |field: &str| message[field].as_u64().unwrap_or_default();
        let (epoch, seq) = (number("epoch"), number("seq"));
        match message["type"].as_str().unwrap_or_default() {
            "snapshot" => {
                let state = message["state"].clone();
                let count = |field: &str| state[field].as_object().map_or(0, |object| object.len());
                let members = state["team"]["members"].as_object().map_or(0, |members| members.len());
                println!(
                    "snapshot  seq {seq}: {members} members, {} markers, {} devices, {} notes, link {}",
                    count("mapMarkers"),
                    count("devices"),
                    count("mapNotes"),
                    state["server"]["connection"].as_str().unwrap_or("?")
                );
                open_incidents(&state).iter().for_each(|line| println!("{line}"));
                self.states.insert(server.to_owned(), (Position { epoch, seq }, state));
            }
            "patch" => {
                let (known, state) = self
                    .states
                    .get_mut(server)
                    .ok_or_else(|| WatchError::Diverged("a patch before the first snapshot".to_owned()))?;
                let base = Position { epoch, seq: number("base") };
                if base != *known {
                    return Err(WatchError::Diverged(format!("the patch is for {base:?}, the state is at {known:?}")));
                }
                let patch: json_patch::Patch = serde_json::from_value(message["patch"].clone())
                    .map_err(|error| WatchError::Diverged(error.to_string()))?;
                json_patch::patch(state, &patch).map_err(|error| WatchError::Diverged(error.to_string()))?;
                known.seq = seq;
                let first = patch.0.first().map(|operation| format!("{} {}", name(operation), operation.path()));
                let more = patch.0.len().saturating_sub(1);
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                println!("patch     seq {seq}: {}{more}", first.unwrap_or_default());
            }
            "event" => {
                let event = &message["event"];
                println!("event     {}: {}", text_of(&event["kind"]), text_of(&event["title"]));
            }
            "chat" => {
                println!("chat      {}: {}", text_of(&message["chat"]["author"]), text_of(&message["chat"]["text"]))
            }
            "raid" => println!("RAID      {} (count {})", text_of(&message["alarmName"]), message["count"]),
            other => println!("{other:<9} {message}"),
        }
        Ok(())
    }
}

/// A line for each incident of the state that has not ended.
fn open_incidents(state: &Value) -> Vec<String> {
    let raids = state["raids"].as_object().into_iter().flat_map(|raids| raids.values());
    let open = raids.filter(|raid| raid["endedAt"].is_null());
    let line = |raid: &Value| {
        let (name, place, first) = (text_of(&raid["alarmName"]), text_of(&raid["grid"]), text_of(&raid["firstAt"]));
        format!("RAID      {name} in {place} (count {}) since {first}", raid["count"])
    };
    open.map(line).collect()
}

fn has_value(state: &Value, device: &str) -> bool {
    state["devices"].get(device).is_some_and(|device| !device["value"].is_null())
}

fn name(operation: &json_patch::PatchOperation) -> &'static str {
    match operation {
        json_patch::PatchOperation::Add(_) => "add",
        json_patch::PatchOperation::Remove(_) => "remove",
        json_patch::PatchOperation::Replace(_) => "replace",
        _ => "other",
    }
}

fn text_of(value: &Value) -> &str {
    value.as_str().unwrap_or("?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incidents_that_have_not_ended_are_shown() {
        let raid =
            |ended: Value| json!({ "alarmName": "Gate", "grid": "H5", "firstAt": "t", "count": 2, "endedAt": ended });
        let state = json!({ "raids": { "a": raid(Value::Null), "b": raid(json!("t")) } });
        assert_eq!(open_incidents(&state), ["RAID      Gate in H5 (count 2) since t"]);
        assert!(open_incidents(&json!({})).is_empty());
    }
}
