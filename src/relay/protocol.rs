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
//! Frames for many clients are encoded once, WebSocket header included, and shared. Where `RELAY_DEFLATE` is set and the
//! client offers it, messages are compressed ([`crate::relay::deflate`]), once for all such clients.

use std::collections::HashMap;

use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::{
    domain::{
        change::{Change, JsonPatch, PatchOperation},
        chat::ChatLine,
        ids::ServerId,
        incident::Raid,
        server_state::{ServerState, StateDocument},
        time::Timestamp,
        world_event::WorldEvent,
    },
    relay::frame::SharedFrame,
};

/// What a client may say: one object in one text frame. Other fields are ignored.
#[derive(Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum ClientMessage {
    /// Starts the stream of a paired server; a `snapshot` follows, at most one in 5 s for each server. To a client that
    /// was away shortly and says which state it has, a `patch` from there instead, if the relay still can. A position is
    /// for a new connection: it is ignored where the server is watched already, and after an `unsubscribe`.
    Subscribe {
        /// Of `GET /paired-servers`.
        #[serde(rename = "serverId")]
        #[schema(value_type = String, max_length = 128, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$")]
        server: ServerId,
        /// Of the last `snapshot` or `patch` of this server. Without it, `seq` says nothing.
        #[serde(skip_serializing_if = "Option::is_none")]
        epoch: Option<u64>,
        /// The same.
        #[serde(skip_serializing_if = "Option::is_none")]
        seq: Option<u64>,
    },
    /// Stops the stream.
    Unsubscribe {
        #[serde(rename = "serverId")]
        #[schema(value_type = String, max_length = 128, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$")]
        server: ServerId,
    },
    /// Toggles a smart switch. Success is an `ack` of the request id, and the new state comes as a `patch`; otherwise an
    /// `error`. For the owner only.
    DeviceToggle {
        #[serde(rename = "serverId")]
        #[schema(value_type = String, max_length = 128, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$")]
        server: ServerId,
        #[serde(rename = "deviceId")]
        #[schema(max_length = 128, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$")]
        device: String,
        /// Comes back in the answer; without one, only errors are answered.
        #[serde(rename = "requestId", skip_serializing_if = "Option::is_none")]
        #[schema(max_length = 128, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$")]
        request: Option<String>,
    },
    /// Takes note of a raid incident: it rings no more for this user.
    RaidAck {
        #[serde(rename = "serverId")]
        #[schema(value_type = String, max_length = 128, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$")]
        server: ServerId,
        /// Id of the incident, from `raid` or `state.raids`.
        #[schema(max_length = 128, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$")]
        incident: String,
        /// Comes back in the answer; without one, only errors are answered.
        #[serde(rename = "requestId", skip_serializing_if = "Option::is_none")]
        #[schema(max_length = 128, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$")]
        request: Option<String>,
    },
    /// Answered by `pong`.
    Ping,
}

/// Why a message was refused; the code is on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
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
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    pub code: ErrorCode,
    /// In words.
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
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

/// The fields of a message, unread.
struct MessageFields<'a>(HashMap<String, &'a RawValue>);

/// Longest id, in characters: those of devices and servers are shorter, and a request id is echoed.
const ID_LIMIT: usize = 128;

impl<'a> MessageFields<'a> {
    /// Of an object.
    fn read(text: &'a [u8]) -> Result<Self, Refusal> {
        serde_json::from_slice(text).map(Self).map_err(|error| {
            let message = if error.is_data() { "a message is a JSON object" } else { "the message is not JSON" };
            Refusal::new(ErrorCode::Malformed, message)
        })
    }

    /// A text; none where it is absent or null.
    fn text(&self, name: &str) -> Result<Option<String>, String> {
        let Some(value) = self.0.get(name) else { return Ok(None) };
        serde_json::from_str(value.get()).map_err(|_| format!("{name} must be a string"))
    }

    /// An id; none where it is absent or null.
    fn id(&self, name: &str) -> Result<Option<String>, String> {
        match self.text(name)? {
            Some(id) if id.chars().count() > ID_LIMIT => Err(format!("{name} is longer than {ID_LIMIT} characters")),
            // Nothing has such an id, and not every database can be asked for it.
            Some(id) if id.contains(char::is_control) => Err(format!("{name} has a control character")),
            id => Ok(id),
        }
    }

    /// A number; none where it is absent or null.
    fn number(&self, name: &str) -> Result<Option<u64>, String> {
        let Some(value) = self.0.get(name) else { return Ok(None) };
        serde_json::from_str(value.get()).map_err(|_| format!("{name} must be an integer of 64 bits, not negative"))
    }

    fn required(&self, name: &str) -> Result<String, String> {
        self.id(name)?.ok_or_else(|| format!("{name} is missing"))
    }

    /// A refusal with the ids that can be read.
    fn refusal(&self, code: ErrorCode, message: String) -> Refusal {
        let id = |name| self.id(name).ok().flatten();
        Refusal { code, message, server_id: id("serverId").map(ServerId::from), request_id: id("requestId") }
    }
}

impl ClientMessage {
    /// Reads one text message.
    pub fn parse(text: &[u8]) -> Result<Self, Refusal> {
        let fields = MessageFields::read(text)?;
        let known = Self::of(&fields).map_err(|message| fields.refusal(ErrorCode::Malformed, message))?;
        known.ok_or_else(|| {
            let message = "type is not one of subscribe, unsubscribe, deviceToggle, raidAck, ping";
            fields.refusal(ErrorCode::UnknownType, message.to_owned())
        })
    }

    /// The message, `None` if there is no such type; an error says what is wrong with it.
    fn of(fields: &MessageFields<'_>) -> Result<Option<Self>, String> {
        let kind = fields.text("type")?.ok_or("type is missing")?;
        let server = || fields.required("serverId").map(ServerId::from);
        let request = || fields.id("requestId");
        Ok(Some(match kind.as_str() {
            "subscribe" => {
                let (epoch, seq) = (fields.number("epoch")?, fields.number("seq")?);
                ClientMessage::Subscribe { server: server()?, epoch, seq }
            }
            "unsubscribe" => ClientMessage::Unsubscribe { server: server()? },
            "deviceToggle" => ClientMessage::DeviceToggle {
                server: server()?,
                device: fields.required("deviceId")?,
                request: request()?,
            },
            "raidAck" => ClientMessage::RaidAck {
                server: server()?,
                incident: fields.required("incident")?,
                request: request()?,
            },
            "ping" => ClientMessage::Ping,
            _ => return Ok(None),
        }))
    }
}

/// An event, with the id under which the timeline has it.
#[derive(Serialize, ToSchema)]
pub struct KnownEvent<'a> {
    /// Absent for an event that the timeline does not keep.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<&'a str>,
    #[serde(flatten)]
    pub event: &'a WorldEvent,
}

/// A line of chat, with the id under which `GET /paired-servers/{id}/chat` has it.
#[derive(Serialize, ToSchema)]
pub struct KnownLine<'a> {
    pub id: &'a str,
    #[serde(flatten)]
    pub line: &'a ChatLine,
}

/// What the service says to a client: one object in one text frame. Further types and fields may come with later
/// versions: ignore those that you do not know.
#[derive(Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum ServerMessage<'a> {
    /// The whole state of a server, after `subscribe` and whenever that is shorter than patches.
    #[serde(rename_all = "camelCase")]
    Snapshot {
        #[schema(value_type = String)]
        server_id: &'a ServerId,
        /// Another epoch is another run of the stream: its `seq` starts anew.
        epoch: u64,
        /// The version of the state.
        seq: u64,
        #[schema(value_type = StateDocument)]
        state: &'a ServerState,
    },
    /// What changed in the state; nothing, when a client came back to the state that it had.
    #[serde(rename_all = "camelCase")]
    Patch {
        #[schema(value_type = String)]
        server_id: &'a ServerId,
        epoch: u64,
        /// The `seq` that it applies on: always the one that was sent last for this server, or that of `subscribe`.
        base: u64,
        /// The version of the state afterwards.
        seq: u64,
        #[schema(value_type = Vec<PatchOperation>)]
        patch: JsonPatch<'a>,
    },
    /// Something happened in the world of the game.
    #[serde(rename_all = "camelCase")]
    Event {
        #[schema(value_type = String)]
        server_id: &'a ServerId,
        event: KnownEvent<'a>,
    },
    /// The team said something in the game. At most 20 lines in 10 s reach one connection; an `event` of kind `chat` and
    /// action `dropped` says in `lines` how many more there were.
    #[serde(rename_all = "camelCase")]
    Chat {
        #[schema(value_type = String)]
        server_id: &'a ServerId,
        chat: KnownLine<'a>,
    },
    /// A raid alarm. It is never dropped; `state.raids` of the snapshot is the truth for whoever comes later.
    #[serde(rename_all = "camelCase")]
    Raid {
        #[schema(value_type = String)]
        server_id: &'a ServerId,
        #[serde(flatten)]
        raid: &'a Raid,
    },
    /// Answers `ping`.
    Pong,
    /// A command with a request id was carried out.
    #[serde(rename_all = "camelCase")]
    Ack { request_id: &'a str },
    /// A message was refused, or a subscription has ended (`unknown_server`). The socket stays open.
    Error(&'a Refusal),
}

impl ServerMessage<'_> {
    /// The message as a frame.
    pub fn frame(&self) -> SharedFrame {
        SharedFrame::text(&serde_json::to_vec(self).expect("messages are plain data"))
    }
}

impl Refusal {
    /// The refusal as a frame.
    pub fn frame(&self) -> SharedFrame {
        ServerMessage::Error(self).frame()
    }
}

/// The event that so many lines of this server's chat were dropped, as a frame.
pub fn chat_dropped(server: &ServerId, lines: u32, now: Timestamp) -> SharedFrame {
    let event = KnownEvent { id: None, event: &WorldEvent::chat_dropped(lines, now) };
    ServerMessage::Event { server_id: server, event }.frame()
}

/// `snapshot { serverId, epoch, seq, state }` as a frame.
pub fn snapshot(server: &ServerId, epoch: u64, seq: u64, state: &ServerState) -> SharedFrame {
    ServerMessage::Snapshot { server_id: server, epoch, seq, state }.frame()
}

/// `patch { serverId, epoch, base, seq, patch }` as a frame.
pub fn patch(server: &ServerId, epoch: u64, base: u64, seq: u64, changes: &[Change]) -> SharedFrame {
    ServerMessage::Patch { server_id: server, epoch, base, seq, patch: JsonPatch(changes) }.frame()
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
            ClientMessage::Subscribe { server: server.clone(), epoch: None, seq: None }
        );
        assert_eq!(
            read(r#"{"type":"subscribe","serverId":"s1","epoch":7,"seq":0}"#).unwrap(),
            ClientMessage::Subscribe { server: server.clone(), epoch: Some(7), seq: Some(0) }
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
        for (text, words) in [
            ("", "the message is not JSON"),
            ("{", "the message is not JSON"),
            (r#"{"type":"ping"} {}"#, "the message is not JSON"),
            ("[]", "a message is a JSON object"),
            ("null", "a message is a JSON object"),
            (r#"["ping",null,null,null,null]"#, "a message is a JSON object"),
            (r#"{"type":7}"#, "type must be a string"),
            (r#"{"serverId":"x"}"#, "type is missing"),
            (r#"{"type":"subscribe"}"#, "serverId is missing"),
            (r#"{"type":"subscribe","serverId":null}"#, "serverId is missing"),
            (
                r#"{"type":"subscribe","serverId":"s","epoch":7,"seq":-1}"#,
                "seq must be an integer of 64 bits, not negative",
            ),
            (r#"{"type":"subscribe","serverId":["s"]}"#, "serverId must be a string"),
            (r#"{"type":"raidAck","serverId":"s","incident":"i","requestId":1}"#, "requestId must be a string"),
            (r#"{"type":"subscribe","serverId":"\u0007"}"#, "serverId has a control character"),
        ] {
            let refusal = ClientMessage::parse(text.as_bytes()).unwrap_err();
            assert_eq!((refusal.code, refusal.message.as_str()), (ErrorCode::Malformed, words), "{text}");
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
