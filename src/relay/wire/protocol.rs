//! The relay's wire: every message in both directions, as JSON text frames (spec "Relay messages").
//!
//! Beyond the spec: `snapshot` and `patch` carry `epoch` and `seq`, `patch` also `base`, the `seq` it applies on. A
//! refused or malformed message is answered by `error { code, message, serverId?, requestId? }`; a `deviceToggle`
//! that carries a `requestId` is answered by `ack { requestId }`. `raid` carries `incident`, `count`, `update`, `late`,
//! `drill` and the place of its device. `raidAck { serverId, incident, requestId? }` takes note of an incident: it no
//! longer rings for that user. `state.raids` has the incidents of the last day; a client raises on any that it has not
//! shown.
//!
//! A socket may do what the token was for that minted its relay token. An overlay watches one server: for any other it
//! gets `unknown_server`, and `deviceToggle` and `raidAck` are refused with `owner_only`. A helper device watches and
//! acknowledges: `deviceToggle` is refused with `insufficient_scope`. An API token watches with the scope `read`, and
//! with `devices` it toggles and acknowledges; the socket closes when the token ends.
//!
//! `subscribe` takes `sections`, keys of the state: snapshot and patches are of these only, and `epoch` and `seq` are
//! of these, too: a step that changes nothing in them sends nothing and leaves `seq` as it is. Events, chat and raids
//! come as ever. The token of an overlay may be for some sections; it sees no others, and gets only events about these:
//! without `raids` no `raid`, without `devices` no event of a device, without `team` none of a player, without
//! `mapMarkers` none of the world or a shop, without `server` no `wipe` and no `gap`. Chat comes to overlays of all
//! sections only.
//!
//! A line of `chat` carries the `id` under which `GET /paired-servers/{id}/chat` has it, an `event` that of the
//! timeline.
//!
//! At most 20 lines of `chat` in 10 s reach one connection. Of more, the oldest that wait are dropped, and an `event`
//! of kind `chat` and action `dropped` says how many in `data.lines`, at most one in 10 s for each server.
//!
//! A snapshot or a patch brings a client that was away to the state of now, raids included. Events and lines of chat of
//! the time in between are not sent: they are in `GET /intel/{serverId}/timeline?since=` and
//! `GET /paired-servers/{id}/chat?since=`, under the same ids. A snapshot and a patch carry no time: for `since` a
//! client keeps the header `Date` of an answer of the API.
//!
//! In the state, `server.stale` is `{ <section>: { asOf } }` with the sections `server`, `team`, `mapMarkers` and
//! `devices` that had no answer for three of their polls; it is absent while all is fresh.
//!
//! Frames for many clients are encoded once, WebSocket header included, and shared. Where `RELAY_DEFLATE` is set and
//! the client offers it, messages are compressed ([`crate::relay::wire::deflate`]), once for all such clients.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::{
    domain::{
        change::{JsonPatch, PatchOperation},
        chat::ChatLine,
        ids::ServerId,
        incident::Raid,
        pairing::{ActivatedDevice, ConfirmationRequest},
        sections::{Sections, StateKey},
        server_state::StateDocument,
        time::Timestamp,
        words::words,
        world_event::WorldEvent,
    },
    relay::wire::{frame::SharedFrame, publication::Position},
};

/// A message of a client: one object in one text frame. Other fields are ignored, and none may come twice.
#[derive(Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum ClientMessage {
    /// Starts the stream of a paired server; a `snapshot` follows, at most one in 5 s for each server. To a client that
    /// was away shortly and says which state it has, a `patch` from there instead, if the relay still can. Neither
    /// holds the events and the lines of chat that were missed. A position is for a new connection: it is ignored where
    /// the server is watched already, and after an `unsubscribe`.
    Subscribe {
        /// Server id, as in `GET /paired-servers`.
        #[serde(rename = "serverId")]
        #[schema(value_type = String, max_length = 128, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$")]
        server: ServerId,
        /// Epoch of the last `snapshot` or `patch` of this server. Without it, `seq` says nothing.
        #[serde(skip_serializing_if = "Option::is_none")]
        epoch: Option<u64>,
        /// `seq` of the same `snapshot` or `patch` as `epoch`.
        #[serde(skip_serializing_if = "Option::is_none")]
        seq: Option<u64>,
        /// The keys of the state that the client wants; absent: all. A position is of the same keys: with others a
        /// snapshot comes.
        #[serde(skip_serializing_if = "Option::is_none")]
        sections: Option<Vec<StateKey>>,
    },
    /// Stops the stream.
    Unsubscribe {
        #[serde(rename = "serverId")]
        #[schema(value_type = String, max_length = 128, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$")]
        server: ServerId,
    },
    /// Toggles a smart switch: to `value`, or without it from what is true when its turn comes. Toggles of one device
    /// are carried out one after the other; those that want the same `value` and follow each other are one. Success is
    /// an `ack` of the request id, and the new state comes as a `patch`; otherwise an `error`: `game_server_timeout` if
    /// the game does not show the wanted state within five seconds, `rate_limited` after 60 toggles of a user in 60 s,
    /// at the API and at the relay together. For the owner only.
    DeviceToggle {
        #[serde(rename = "serverId")]
        #[schema(value_type = String, max_length = 128, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$")]
        server: ServerId,
        #[serde(rename = "deviceId")]
        #[schema(max_length = 128, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$")]
        device: String,
        /// The wanted state.
        #[serde(skip_serializing_if = "Option::is_none")]
        value: Option<bool>,
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

words! {
    /// The `type` of a client's message.
    pub(super) enum ClientMessageKind {
        Subscribe = "subscribe",
        Unsubscribe = "unsubscribe",
        DeviceToggle = "deviceToggle",
        RaidAck = "raidAck",
        Ping = "ping",
    }
}

/// Reasons for the refusal of a message; the code is on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    Malformed,
    UnknownType,
    /// Not paired to this user, or not there: the same answer for both.
    UnknownServer,
    /// The user may watch this server and not command it.
    OwnerOnly,
    /// The token of this socket was not made for it.
    InsufficientScope,
    UnknownDevice,
    UnknownIncident,
    TooManySubscriptions,
    NotASwitch,
    DeviceRemoved,
    /// The user has toggled too often in a minute, or too many toggles of the device wait.
    RateLimited,
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

/// The fields of a message, unread. Serde's tagged enums would take an array for a message, and keep nothing of one that
/// they refuse, while the answer has the ids that can be read.
struct MessageFields<'a> {
    fields: HashMap<String, &'a RawValue>,
    /// A key came again: of two values, one would be left out in silence.
    is_doubled: bool,
}

impl<'de> Deserialize<'de> for MessageFields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;

        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = MessageFields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut read = MessageFields { fields: HashMap::new(), is_doubled: false };
                while let Some((key, value)) = map.next_entry()? {
                    read.is_doubled |= read.fields.insert(key, value).is_some();
                }
                Ok(read)
            }
        }

        deserializer.deserialize_map(FieldsVisitor)
    }
}

/// Longest id, in characters: those of devices and servers are shorter, and a request id is echoed.
const ID_LIMIT: usize = 128;

impl<'a> MessageFields<'a> {
    /// Fields of a JSON object.
    fn read(text: &'a [u8]) -> Result<Self, Refusal> {
        serde_json::from_slice(text).map_err(|error| {
            let message = if error.is_data() { "a message is a JSON object" } else { "the message is not JSON" };
            Refusal::new(ErrorCode::Malformed, message)
        })
    }

    /// A text; none where it is absent or null.
    fn text(&self, name: &str) -> Result<Option<String>, String> {
        let Some(value) = self.fields.get(name) else { return Ok(None) };
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
        let Some(value) = self.fields.get(name) else { return Ok(None) };
        serde_json::from_str(value.get()).map_err(|_| format!("{name} must be an integer of 64 bits, not negative"))
    }

    /// `true` or `false`; none where it is absent or null.
    fn flag(&self, name: &str) -> Result<Option<bool>, String> {
        let Some(value) = self.fields.get(name) else { return Ok(None) };
        serde_json::from_str(value.get()).map_err(|_| format!("{name} must be true or false"))
    }

    /// Keys of the state; none where it is absent or null.
    fn sections(&self, name: &str) -> Result<Option<Vec<StateKey>>, String> {
        let Some(value) = self.fields.get(name) else { return Ok(None) };
        serde_json::from_str(value.get()).map_err(|_| {
            let words = StateKey::ALL.map(StateKey::word).join(", ");
            format!("{name} must be a list of keys of the state: {words}")
        })
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
            let message = format!("type is not one of {}", ClientMessageKind::WORDS.join(", "));
            fields.refusal(ErrorCode::UnknownType, message)
        })
    }

    /// The message, `None` if there is no such type; an error says what is wrong with it.
    fn of(fields: &MessageFields<'_>) -> Result<Option<Self>, String> {
        if fields.is_doubled {
            return Err("a field comes twice".to_owned());
        }
        let kind = fields.text("type")?.ok_or("type is missing")?;
        let Some(kind) = ClientMessageKind::parse(&kind) else { return Ok(None) };
        let server = || fields.required("serverId").map(ServerId::from);
        let request = || fields.id("requestId");
        Ok(Some(match kind {
            ClientMessageKind::Subscribe => {
                let (epoch, seq) = (fields.number("epoch")?, fields.number("seq")?);
                ClientMessage::Subscribe { server: server()?, epoch, seq, sections: fields.sections("sections")? }
            }
            ClientMessageKind::Unsubscribe => ClientMessage::Unsubscribe { server: server()? },
            ClientMessageKind::DeviceToggle => ClientMessage::DeviceToggle {
                server: server()?,
                device: fields.required("deviceId")?,
                value: fields.flag("value")?,
                request: request()?,
            },
            ClientMessageKind::RaidAck => ClientMessage::RaidAck {
                server: server()?,
                incident: fields.required("incident")?,
                request: request()?,
            },
            ClientMessageKind::Ping => ClientMessage::Ping,
        }))
    }
}

/// An event, with the id under which the timeline has it; otherwise the same as an entry there.
#[derive(Serialize)]
pub struct EventMessage<'a> {
    /// Absent for an event that the timeline does not keep.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<&'a str>,
    #[serde(flatten)]
    pub event: &'a WorldEvent,
}

/// A line of chat, with the id under which `GET /paired-servers/{id}/chat` has it.
#[derive(Serialize, ToSchema)]
pub struct ChatMessage<'a> {
    pub id: &'a str,
    #[serde(flatten)]
    pub line: &'a ChatLine,
}

/// A message of the service to a client: one object in one text frame. Further types and fields may come with later
/// versions: ignore those that you do not know.
#[derive(Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum ServerMessage<'a> {
    /// The state of a server, all of it or the sections that are watched, after `subscribe` and whenever that is
    /// shorter than patches.
    #[serde(rename_all = "camelCase")]
    Snapshot {
        #[schema(value_type = String)]
        server_id: &'a ServerId,
        /// Another epoch is another run of the stream: its `seq` starts again.
        epoch: u64,
        /// The version of the state.
        seq: u64,
        state: &'a StateDocument<'a>,
    },
    /// Changes of the state; none, when a client came back to the state that it had.
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
    /// Something happened: an entry of the timeline. What happened while a client was away is not sent later: ask
    /// `GET /intel/{serverId}/timeline?since=`, with the time of the header `Date` of an earlier answer of the API. An
    /// overlay that was made for some sections gets only events about these: of devices with `devices`, of players with
    /// `team`, of the world and of shops with `mapMarkers`, `raid` with `raids`, `wipe` and `gap` with `server`.
    #[serde(rename_all = "camelCase")]
    Event {
        #[schema(value_type = String)]
        server_id: &'a ServerId,
        #[schema(value_type = WorldEvent)]
        event: EventMessage<'a>,
    },
    /// The team said something in the game. At most 20 lines in 10 s reach one connection; an `event` of kind `chat`
    /// and action `dropped` says in `data.lines` how many more there were. What was said while a client was away is not
    /// sent later: ask `GET /paired-servers/{id}/chat?since=`. An overlay that was made for some sections gets none.
    #[serde(rename_all = "camelCase")]
    Chat {
        #[schema(value_type = String)]
        server_id: &'a ServerId,
        chat: ChatMessage<'a>,
    },
    /// A raid alarm. It is never dropped. An overlay that was made for some sections gets it if `raids` is one of them.
    /// `state.raids` may show the incident before, and for long after.
    #[serde(rename_all = "camelCase")]
    Raid {
        #[schema(value_type = String)]
        server_id: &'a ServerId,
        #[serde(flatten)]
        raid: &'a Raid,
    },
    /// A device in another network has typed a pairing code of this user, while many wrong codes are tried: it is
    /// paired once the user confirms it with `POST /pairing/device/requests/{id}`. To the user's browsers only.
    #[serde(rename = "pairingRequest")]
    PairingRequest { request: &'a ConfirmationRequest },
    /// A device was paired with a code of this user. To the user's browsers only.
    #[serde(rename = "devicePaired")]
    DevicePaired { device: &'a ActivatedDevice },
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

/// The event that this number of lines of the server's chat were dropped, as a frame.
pub fn chat_dropped(server: &ServerId, lines: u32, now: Timestamp) -> SharedFrame {
    let event = EventMessage { id: None, event: &WorldEvent::chat_dropped(lines, now) };
    ServerMessage::Event { server_id: server, event }.frame()
}

/// `snapshot { serverId, epoch, seq, state }` as a frame.
pub fn snapshot(server: &ServerId, epoch: u64, seq: u64, state: &StateDocument<'_>) -> SharedFrame {
    ServerMessage::Snapshot { server_id: server, epoch, seq, state }.frame()
}

/// A snapshot of some keys of the state.
#[derive(Serialize)]
#[serde(tag = "type", rename = "snapshot", rename_all = "camelCase")]
struct PartialSnapshot<'a> {
    server_id: &'a ServerId,
    epoch: u64,
    seq: u64,
    state: BTreeMap<&'a str, &'a RawValue>,
}

#[derive(Deserialize)]
struct StateOf<'a> {
    #[serde(borrow)]
    state: BTreeMap<&'a str, &'a RawValue>,
}

/// These keys of a snapshot, at their own position, as a frame.
pub fn part_of_snapshot(server: &ServerId, at: Position, whole: &SharedFrame, sections: Sections) -> SharedFrame {
    let StateOf { mut state } = serde_json::from_slice(whole.text_bytes()).expect("a snapshot has a state");
    state.retain(|key, _| sections.iter().any(|wanted| wanted.word() == *key));
    let part = PartialSnapshot { server_id: server, epoch: at.epoch, seq: at.seq, state };
    SharedFrame::text(&serde_json::to_vec(&part).expect("messages are plain data"))
}

/// True if a patch has no operation.
pub fn is_empty_patch(patch: &SharedFrame) -> bool {
    patch.plain().ends_with(br#""patch":[]}"#)
}

/// `patch { serverId, epoch, base, seq, patch }` as a frame.
pub fn patch(server: &ServerId, epoch: u64, base: u64, seq: u64, patch: JsonPatch<'_>) -> SharedFrame {
    ServerMessage::Patch { server_id: server, epoch, base, seq, patch }.frame()
}

#[cfg(test)]
mod tests;
