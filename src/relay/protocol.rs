//! The relay's wire: every message in both directions, as JSON text frames (spec "Relay messages").
//!
//! Beyond the spec: `snapshot` and `patch` carry `epoch` and `seq`, `patch` also `base`, the `seq` it applies on. A
//! refused or malformed message is answered by `error { code, message, serverId?, requestId? }`; a `deviceToggle`
//! that carries a `requestId` is answered by `ack { requestId }`. `raid` carries `incident`, `count`, `update`, `late`,
//! `drill` and the place of its device. `raidAck { serverId, incident, requestId? }` takes note of an incident: it does
//! not ring any more for that user. `state.raids` has the incidents of the last day; a client raises on any that it has
//! not shown.
//!
//! The socket of an overlay watches one server: for any other it is told `unknown_server`, and `deviceToggle` and
//! `raidAck` are refused with `owner_only`.
//!
//! A line of `chat` carries the `id` under which `GET /paired-servers/{id}/chat` has it, an `event` that of the timeline.
//!
//! At most 20 lines of `chat` in 10 s reach one connection. Of more, the oldest that wait are dropped, and an `event` of
//! kind `chat` and action `dropped` says how many in `lines`, at most one in 10 s for each server.
//! In the state, `server.stale` is `{ <section>: { asOf } }` with the sections `server`, `team`, `mapMarkers` and
//! `devices` that had no answer for three of their polls; it is absent while all is fresh.
//!
//! Frames for many clients are encoded once, WebSocket header included, and shared.

use actix_http::ws::{OpCode, Parser};
use bytes::{Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use crate::domain::{
    change::{self, Change},
    chat::ChatLine,
    ids::ServerId,
    incident::Raid,
    server_state::ServerState,
    time::Timestamp,
    world_event::WorldEvent,
};

/// What a client may say.
#[derive(Debug, PartialEq, Eq)]
pub enum ClientMessage {
    Subscribe { server: ServerId },
    Unsubscribe { server: ServerId },
    DeviceToggle { server: ServerId, device: String, request: Option<String> },
    RaidAck { server: ServerId, incident: String, request: Option<String> },
    Ping,
}

/// Why a message was refused; the code is on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    Malformed,
    UnknownType,
    /// Not paired to this user, or not there: the same answer for both.
    UnknownServer,
    /// The user may watch this server and not command it.
    OwnerOnly,
    UnknownDevice,
    UnknownIncident,
    TooManySubscriptions,
    NotASwitch,
    DeviceRemoved,
    GameServerUnavailable,
    GameServerTimeout,
    /// Our own fault; try again.
    Internal,
}

/// A refused message, with what is known of it.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename = "error", rename_all = "camelCase")]
pub struct Refusal {
    pub code: ErrorCode,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_id: Option<ServerId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

impl Refusal {
    /// A refusal that concerns no server.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), server_id: None, request_id: None }
    }

    /// The access table's answer for a server that is not there for this user.
    pub fn unknown_server(server: ServerId) -> Self {
        let message = "no such paired server".to_owned();
        Self { code: ErrorCode::UnknownServer, message, server_id: Some(server), request_id: None }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    r#type: String,
    server_id: Option<ServerId>,
    device_id: Option<String>,
    incident: Option<String>,
    request_id: Option<String>,
}

/// Longest request id that is echoed, in bytes; ids of devices and servers are shorter.
const ID_LIMIT: usize = 128;

impl ClientMessage {
    /// Reads one text message.
    pub fn parse(text: &[u8]) -> Result<Self, Refusal> {
        let envelope: Envelope = serde_json::from_slice(text)
            .map_err(|error| Refusal::new(ErrorCode::Malformed, format!("not a message: {error}")))?;
        let Envelope { r#type, server_id, device_id, incident, request_id } = envelope;
        let ids = [server_id.as_ref().map(ServerId::as_str), device_id.as_deref(), incident.as_deref()];
        for id in ids.into_iter().chain([request_id.as_deref()]).flatten() {
            if id.len() > ID_LIMIT {
                return Err(Refusal::new(ErrorCode::Malformed, format!("an id is longer than {ID_LIMIT} bytes")));
            }
            // Nothing has such an id, and not every database can be asked for it.
            if id.contains(char::is_control) {
                return Err(Refusal::new(ErrorCode::Malformed, "an id has a control character"));
            }
        }
        let missing = |field: &str| Refusal {
            code: ErrorCode::Malformed,
            message: format!("{field} is missing"),
            server_id: server_id.clone(),
            request_id: request_id.clone(),
        };
        let server = || server_id.clone().ok_or_else(|| missing("serverId"));
        match r#type.as_str() {
            "subscribe" => Ok(ClientMessage::Subscribe { server: server()? }),
            "unsubscribe" => Ok(ClientMessage::Unsubscribe { server: server()? }),
            "deviceToggle" => Ok(ClientMessage::DeviceToggle {
                server: server()?,
                device: device_id.ok_or_else(|| missing("deviceId"))?,
                request: request_id.clone(),
            }),
            "raidAck" => Ok(ClientMessage::RaidAck {
                server: server()?,
                incident: incident.ok_or_else(|| missing("incident"))?,
                request: request_id.clone(),
            }),
            "ping" => Ok(ClientMessage::Ping),
            _ => Err(Refusal {
                code: ErrorCode::UnknownType,
                message: "type is not one of subscribe, unsubscribe, deviceToggle, raidAck, ping".to_owned(),
                server_id,
                request_id,
            }),
        }
    }
}

/// An event or a line of chat, with the id under which the timeline or the chat's history has it.
#[derive(Serialize)]
pub struct WithId<'a, T: Serialize> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<&'a str>,
    #[serde(flatten)]
    pub content: &'a T,
}

/// What the service may say to a client; large messages have functions of their own.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum ServerMessage<'a> {
    #[serde(rename_all = "camelCase")]
    Event {
        server_id: &'a ServerId,
        event: WithId<'a, WorldEvent>,
    },
    #[serde(rename_all = "camelCase")]
    Chat {
        server_id: &'a ServerId,
        chat: WithId<'a, ChatLine>,
    },
    #[serde(rename_all = "camelCase")]
    Raid {
        server_id: &'a ServerId,
        #[serde(flatten)]
        raid: &'a Raid,
    },
    Pong,
    #[serde(rename_all = "camelCase")]
    Ack {
        request_id: &'a str,
    },
}

impl ServerMessage<'_> {
    /// The message as a frame.
    pub fn frame(&self) -> Bytes {
        frame(&serde_json::to_vec(self).expect("messages are plain data"))
    }
}

impl Refusal {
    /// The refusal as a frame.
    pub fn frame(&self) -> Bytes {
        frame(&serde_json::to_vec(self).expect("refusals are plain data"))
    }
}

/// The event that so many lines of this server's chat were dropped, as a frame.
pub fn chat_dropped(server: &ServerId, lines: u32, now: Timestamp) -> Bytes {
    let event = WithId { id: None, content: &WorldEvent::chat_dropped(lines, now) };
    ServerMessage::Event { server_id: server, event }.frame()
}

/// `snapshot { serverId, epoch, seq, state }` as a frame.
pub fn snapshot(server: &ServerId, epoch: u64, seq: u64, state: &ServerState) -> Bytes {
    let mut text = Vec::with_capacity(1024);
    text.extend_from_slice(br#"{"type":"snapshot","#);
    write_position(&mut text, server, epoch);
    text.extend_from_slice(format!(r#""seq":{seq},"state":"#).as_bytes());
    state.write_json(&mut text);
    text.push(b'}');
    frame(&text)
}

/// `patch { serverId, epoch, base, seq, patch }` as a frame.
pub fn patch(server: &ServerId, epoch: u64, base: u64, seq: u64, changes: &[Change]) -> Bytes {
    let mut text = Vec::with_capacity(256);
    text.extend_from_slice(br#"{"type":"patch","#);
    write_position(&mut text, server, epoch);
    text.extend_from_slice(format!(r#""base":{base},"seq":{seq},"patch":"#).as_bytes());
    change::write_patch(changes, &mut text);
    text.push(b'}');
    frame(&text)
}

fn write_position(text: &mut Vec<u8>, server: &ServerId, epoch: u64) {
    text.extend_from_slice(br#""serverId":"#);
    serde_json::to_writer(&mut *text, server).expect("an id is a string");
    text.extend_from_slice(format!(r#","epoch":{epoch},"#).as_bytes());
}

fn frame(text: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(text.len() + 10);
    Parser::write_message(&mut frame, text, OpCode::Text, true, false);
    frame.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_messages_are_read() {
        let server = ServerId::from("s1");
        let read = |text: &str| ClientMessage::parse(text.as_bytes());
        assert_eq!(
            read(r#"{"type":"subscribe","serverId":"s1","extra":1}"#).unwrap(),
            ClientMessage::Subscribe { server: server.clone() }
        );
        assert_eq!(
            read(r#"{"type":"unsubscribe","serverId":"s1"}"#).unwrap(),
            ClientMessage::Unsubscribe { server: server.clone() }
        );
        assert_eq!(
            read(r#"{"type":"deviceToggle","serverId":"s1","deviceId":"7","requestId":"r"}"#).unwrap(),
            ClientMessage::DeviceToggle { server: server.clone(), device: "7".into(), request: Some("r".into()) }
        );
        assert_eq!(
            read(r#"{"type":"raidAck","serverId":"s1","incident":"i"}"#).unwrap(),
            ClientMessage::RaidAck { server, incident: "i".into(), request: None }
        );
        assert!(read(r#"{"type":"raidAck","serverId":"s1"}"#).is_err());
        assert_eq!(read(r#"{"type":"ping"}"#).unwrap(), ClientMessage::Ping);
    }

    #[test]
    fn a_refusal_names_what_is_wrong_and_its_ids() {
        let code = |text: &str| ClientMessage::parse(text.as_bytes()).unwrap_err().code;
        for text in ["", "[]", "null", "{", r#"{"type":7}"#, r#"{"serverId":"x"}"#, r#"{"type":"subscribe"}"#] {
            assert_eq!(code(text), ErrorCode::Malformed, "{text}");
        }
        assert_eq!(code(&"[".repeat(100_000)), ErrorCode::Malformed);
        assert_eq!(code(&format!(r#"{{"type":"subscribe","serverId":"{}"}}"#, "x".repeat(200))), ErrorCode::Malformed);
        for (field, other) in [("serverId", "incident"), ("incident", "serverId"), ("requestId", "serverId")] {
            let text = format!(r#"{{"type":"raidAck","{field}":"x\u0000","{other}":"y"}}"#);
            assert_eq!(code(&text), ErrorCode::Malformed);
        }
        let refusal = ClientMessage::parse(br#"{"type":"deviceToggle","serverId":"s","requestId":"r"}"#).unwrap_err();
        assert_eq!((refusal.code, refusal.request_id.as_deref()), (ErrorCode::Malformed, Some("r")));
        assert_eq!(code(r#"{"type":"fly"}"#), ErrorCode::UnknownType);
    }
}
