//! Questions and commands to the node that has a paired server, and the answers to them, as they are on their way. Pure.

use std::{collections::HashMap, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    db::alarms::incidents::StoredIncident,
    domain::{
        bot::bot_messages::BotMessages,
        channels::user_channel::ChannelFault,
        chat::{ChatLine, StoredLine},
        device::{Device, DeviceKind, DeviceReport, Item, Reachable, Storage, TurnBack},
        ids::{ServerId, UserId},
        incident::DevicePlace,
        team_command::settings::CommandWord,
        time::{self, Timestamp},
        world_event::{EventKind, WorldEvent},
    },
    game::{
        camera_shot::{CameraShot, CameraView, NoPicture, RayFrame, SeenEntity},
        wire::AppCameraRays,
    },
    relay::{
        alarms::alarm_delivery::DrillOutcome,
        game::{
            camera_capture::CameraError,
            commands::{ChannelLine, ChatError, CommandError},
            game_connection::LinkStatus,
        },
    },
};

/// See the module. Each is a message of the hub to a game connection, but for the last four, which are for a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RemoteQuestion {
    /// Turn a switch.
    Toggle { device: String, value: Option<bool>, by: UserId },
    /// Say a line in the team's chat.
    Say { text: String },
    /// Say a line of a channel there, when its turn comes.
    SayForChannel { line: ChannelLine },
    /// Send a test alarm.
    Drill,
    /// Look through this camera.
    Look { camera: String },
    /// Keep that a user has taken note of an incident, which the database did not take.
    Keep {
        incident: String,
        user: UserId,
        #[serde(serialize_with = "time::exact")]
        at: Timestamp,
    },
    /// The devices as they last answered.
    Devices,
    /// An incident as it is known without the database.
    Raid { incident: String },
    /// Answer a question of the team's chat.
    Command { command: CommandWord, texts: BotMessages },
    /// Was the budget of the link exhausted within the last minute?
    Budget,
    /// Tracked players of these servers, which are at one game server, came or went.
    Players { players: Vec<(ServerId, RemotePlayer)> },
    /// The links of these servers.
    Links { servers: Vec<ServerId> },
    /// The users with an open socket.
    Online,
    /// The push session of this user.
    PushSession { user: UserId },
}

impl RemoteQuestion {
    /// True if a game connection is started for it.
    pub fn is_command(&self) -> bool {
        match self {
            Self::Toggle { .. }
            | Self::Say { .. }
            | Self::Drill
            | Self::Look { .. }
            | Self::Keep { .. }
            | Self::Players { .. } => true,
            Self::SayForChannel { .. }
            | Self::Devices
            | Self::Raid { .. }
            | Self::Command { .. }
            | Self::Budget
            | Self::Links { .. }
            | Self::Online
            | Self::PushSession { .. } => false,
        }
    }
}

/// The answer to a [`RemoteQuestion`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RemoteAnswer {
    /// The game connection is not here: nothing was done.
    NotHere,
    Toggled(Result<bool, CommandError>),
    Said(Result<RemoteLine, ChatError>),
    /// `None`: it was dropped.
    SaidForChannel(Option<Result<(), ChannelFault>>),
    Drilled(Option<DrillOutcome>),
    Seen(Result<Box<RemoteShot>, CameraError>),
    Kept(Result<Box<StoredIncident>, CommandError>),
    /// There is nothing to say.
    Done,
    Devices(Vec<RemoteDevice>),
    Raid(Option<Box<StoredIncident>>),
    Lines(Option<Vec<String>>),
    Budget(bool),
    Links(Vec<(ServerId, LinkStatus)>),
    Online(Vec<UserId>),
    /// As its push worker writes it.
    PushSession(Value),
}

/// A [`StoredLine`].
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct RemoteLine {
    id: String,
    author: String,
    author_id: Option<String>,
    text: String,
    #[serde(serialize_with = "time::exact")]
    ts: Timestamp,
}

impl From<StoredLine> for RemoteLine {
    fn from(StoredLine { id, line }: StoredLine) -> Self {
        let ChatLine { author, author_id, text, ts } = line;
        Self { id, author, author_id, text, ts }
    }
}

impl From<RemoteLine> for StoredLine {
    fn from(RemoteLine { id, author, author_id, text, ts }: RemoteLine) -> Self {
        Self { id, line: ChatLine { author, author_id, text, ts } }
    }
}

/// The event of a tracked player.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RemotePlayer {
    came: bool,
    #[serde(serialize_with = "time::exact")]
    ts: Timestamp,
    title: String,
    data: Map<String, Value>,
}

impl From<WorldEvent> for RemotePlayer {
    fn from(WorldEvent { kind, ts, title, data, .. }: WorldEvent) -> Self {
        Self { came: kind == EventKind::Login, ts, title, data }
    }
}

impl From<RemotePlayer> for WorldEvent {
    fn from(RemotePlayer { came, ts, title, data }: RemotePlayer) -> Self {
        let (kind, action) = if came { (EventKind::Login, "login") } else { (EventKind::Logout, "logout") };
        Self { kind, action, grid: String::new(), x: None, y: None, ts, title, data }
    }
}

/// A [`DeviceReport`] and its device id.
#[derive(Debug, Serialize, Deserialize)]
pub struct RemoteDevice {
    id: Arc<str>,
    kind: DeviceKind,
    name: String,
    label: Option<String>,
    value: Option<bool>,
    reachable: Reachable,
    place: DevicePlace,
    storage: Option<RemoteStorage>,
    turns_back: Option<(bool, Timestamp)>,
    as_of: Option<Timestamp>,
}

/// A [`Storage`]; of an item its id, its quantity, and whether it is a blueprint.
#[derive(Debug, Serialize, Deserialize)]
struct RemoteStorage {
    capacity: i32,
    used: i32,
    items: Vec<(i32, i32, bool)>,
    has_protection: bool,
    protection_expires_at: Option<Timestamp>,
}

impl RemoteDevice {
    /// All of these.
    pub fn of(reports: HashMap<Arc<str>, DeviceReport>) -> Vec<Self> {
        let one = |(id, DeviceReport { device, as_of })| {
            let Device { kind, name, label, value, reachable, place, storage, turns_back } = device;
            let storage = storage.map(|storage: Storage| RemoteStorage {
                capacity: storage.capacity,
                used: storage.used,
                items: storage.items.iter().map(|item| (item.item_id, item.quantity, item.is_blueprint)).collect(),
                has_protection: storage.has_protection,
                protection_expires_at: storage.protection_expires_at,
            });
            let turns_back = turns_back.map(|TurnBack { value, at }| (value, at));
            Self { id, kind, name, label, value, reachable, place, storage, turns_back, as_of }
        };
        reports.into_iter().map(one).collect()
    }

    /// The report, by its device id.
    pub fn read(self) -> (Arc<str>, DeviceReport) {
        let Self { id, kind, name, label, value, reachable, place, storage, turns_back, as_of } = self;
        let item = |(item_id, quantity, is_blueprint)| Item { item_id, quantity, is_blueprint };
        let storage = storage.map(|storage| Storage {
            capacity: storage.capacity,
            used: storage.used,
            items: storage.items.into_iter().map(item).collect(),
            has_protection: storage.has_protection,
            protection_expires_at: storage.protection_expires_at,
        });
        let turns_back = turns_back.map(|(value, at)| TurnBack { value, at });
        let device = Device { kind, name, label, value, reachable, place, storage, turns_back };
        (id, DeviceReport { device, as_of })
    }
}

/// A [`CameraShot`]; of a frame, the number of its first sample and its bytes in Base64.
#[derive(Debug, Serialize, Deserialize)]
pub struct RemoteShot {
    view: CameraView,
    #[serde(serialize_with = "time::exact")]
    at: Timestamp,
    frames: Vec<(usize, String)>,
    vertical_fov: f32,
    entities: Vec<SeenEntity>,
}

impl From<&CameraShot> for RemoteShot {
    fn from(shot: &CameraShot) -> Self {
        let CameraShot { view, at, frames, vertical_fov, entities } = shot;
        let frames = frames.iter().map(|frame| (frame.offset, STANDARD.encode(frame.data())));
        Self { view: *view, at: *at, frames: frames.collect(), vertical_fov: *vertical_fov, entities: entities.clone() }
    }
}

impl RemoteShot {
    /// The shot, within the bounds of those of game servers.
    pub fn read(self) -> Result<CameraShot, NoPicture> {
        let Self { view, at, frames, vertical_fov, entities } = self;
        let frame = |(offset, data): (usize, String)| {
            let sample_offset = i32::try_from(offset).map_err(|_| NoPicture)?;
            let ray_data = STANDARD.decode(data).map_err(|_| NoPicture)?.into();
            RayFrame::read(&AppCameraRays { sample_offset, ray_data, ..Default::default() }, &view)
        };
        let is_sound = view.width > 0 && view.height > 0;
        let frames = frames.into_iter().map(|parts| if is_sound { frame(parts) } else { Err(NoPicture) });
        Ok(CameraShot { view, at, frames: frames.collect::<Result<_, _>>()?, vertical_fov, entities })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{domain::link_reason::LinkReason, domain::server_state::ConnectionState, game::camera_shot::SeenKind};

    fn now() -> Timestamp {
        "2026-11-29T20:00:00.123Z".parse().unwrap()
    }

    fn sent<T: Serialize + for<'read> Deserialize<'read>>(value: &T) -> T {
        serde_json::from_str(&serde_json::to_string(value).unwrap()).unwrap()
    }

    #[test]
    fn devices_and_shots_are_read_as_they_were_sent() {
        let device = Device {
            kind: DeviceKind::StorageMonitor,
            name: "Cupboard".into(),
            label: None,
            value: Some(true),
            reachable: Reachable::NoResponse,
            place: DevicePlace { x: Some(1.5), y: None, grid: "K17".into() },
            storage: Some(Storage {
                capacity: 24,
                used: 1,
                items: vec![Item { item_id: -5, quantity: 7, is_blueprint: true }],
                has_protection: true,
                protection_expires_at: Some(now()),
            }),
            turns_back: Some(TurnBack { value: false, at: now() }),
        };
        let reports = HashMap::from([("7".into(), DeviceReport { device: device.clone(), as_of: Some(now()) })]);
        let (id, read) = sent(&RemoteDevice::of(reports)).remove(0).read();
        assert_eq!((&*id, read.device, read.as_of), ("7", device, Some(now())));

        let view = CameraView { width: 4, height: 4, near_plane: 0.5, far_plane: 250.0 };
        let rays = AppCameraRays { sample_offset: 3, ray_data: vec![0; 100].into(), ..Default::default() };
        let name = Some("Ann".to_owned());
        let shot = CameraShot {
            view,
            at: now(),
            frames: vec![RayFrame::read(&rays, &view).unwrap()],
            vertical_fov: 65.0,
            entities: vec![SeenEntity { kind: SeenKind::Player, position: [1.0; 3], size: [0.5; 3], name }],
        };
        assert_eq!(sent(&RemoteShot::from(&shot)).read(), Ok(shot.clone()));
        let mut empty = RemoteShot::from(&shot);
        empty.view.width = 0;
        assert_eq!(empty.read(), Err(NoPicture));
    }

    #[test]
    fn players_lines_and_links_are_read_as_they_were_sent() {
        let data = Map::from_iter([("name".to_owned(), "Vex".into())]);
        let title = "Vex went offline".to_owned();
        let (kind, action) = (EventKind::Logout, "logout");
        let event = WorldEvent { kind, action, grid: String::new(), x: None, y: None, ts: now(), title, data };
        assert_eq!(WorldEvent::from(sent(&RemotePlayer::from(event.clone()))), event);
        let line = ChatLine { author: "Ann".into(), author_id: None, text: "hello".into(), ts: now() };
        let line = StoredLine { id: "line".into(), line };
        assert_eq!(StoredLine::from(sent(&RemoteLine::from(line.clone()))), line);
        for reason in LinkReason::ALL {
            let (state, reason) = (ConnectionState::Unreachable, Some(reason));
            let read = sent(&LinkStatus { state, since: now(), reason, next_attempt_at: None });
            assert_eq!((read.state, read.since, read.reason), (state, now(), reason));
        }
    }
}
