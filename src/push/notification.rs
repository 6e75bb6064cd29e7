//! What the game pushes, in the domain's words. Tolerant where nothing hangs on it, strict where something is stored.

use std::borrow::Cow;

use secrecy::SecretBox;
use serde::Deserialize;

use crate::{
    domain::{game_address::GameAddress, ids::PlatformId, plain_text::plain_text, server_state::DeviceKind},
    game::reading::device_kind,
};

/// Bytes of a body; a whole push has 4 KiB.
const BODY: usize = 16 * 1024;
/// Characters; the game's own limits where it has some.
const NAME: usize = 128;
const MESSAGE: usize = 512;
const GAME_SERVER_ID: usize = 128;

/// A push of the game.
#[derive(Debug)]
pub enum Notification {
    /// "Pair with server" was pressed.
    ServerPairing(ServerPairing),
    /// "Pair" was pressed at a smart device.
    EntityPairing(EntityPairing),
    /// A smart alarm, or a plugin of the game server, raises an alarm. Which device it was, a push does not say.
    Alarm(Alarm),
    /// The owner of the credential was killed while offline.
    Death(Encounter),
    /// A teammate came online while the owner of the credential is offline.
    Login(Encounter),
    /// From the publisher.
    News { title: String, message: String },
    /// Something this version knows nothing about.
    Unknown { channel: String, title: String, message: String },
    /// It says what it is and is not.
    Malformed(Malformed),
}

/// A game server and a player's key to it. Whether the player is the owner of the credential is for the caller to
/// compare, whether the address may be connected to for the link to say.
#[derive(Debug)]
pub struct ServerPairing {
    /// Stable for each game server, a GUID.
    pub game_server_id: Option<String>,
    pub name: String,
    pub address: GameAddress,
    /// The companion port.
    pub port: u16,
    pub player_id: PlatformId,
    pub player_token: SecretBox<i32>,
}

/// A smart device. Its push carries all that pairs the game server, too.
#[derive(Debug)]
pub struct EntityPairing {
    pub server: ServerPairing,
    pub entity_id: u64,
    pub kind: DeviceKind,
    pub name: String,
}

/// An alarm as it was written in the game.
#[derive(Debug, PartialEq, Eq)]
pub struct Alarm {
    /// `None` when the push names no game server.
    pub server: Option<ServerIdentity>,
    pub title: String,
    pub message: String,
}

/// Another player did something.
#[derive(Debug, PartialEq, Eq)]
pub struct Encounter {
    pub server: Option<ServerIdentity>,
    /// `None` for an animal, a trap or the cold.
    pub player_id: Option<PlatformId>,
    pub player_name: String,
}

/// By what a game server is recognised: its id, else its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerIdentity {
    pub game_server_id: Option<String>,
    pub name: String,
    /// Host and companion port.
    pub address: Option<(GameAddress, u16)>,
}

/// Why a push cannot be used. It tells which field, never what is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("the body is larger than {BODY} bytes")]
    TooLarge,
    #[error("the body is not a JSON object of texts")]
    Body,
    #[error("{0} is missing or makes no sense")]
    Field(&'static str),
}

/// All values are texts, numbers too.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Body<'a> {
    #[serde(borrow)]
    r#type: Option<Cow<'a, str>>,
    id: Option<Cow<'a, str>>,
    name: Option<Cow<'a, str>>,
    ip: Option<Cow<'a, str>>,
    port: Option<Cow<'a, str>>,
    player_id: Option<Cow<'a, str>>,
    player_token: Option<Cow<'a, str>>,
    entity_id: Option<Cow<'a, str>>,
    entity_type: Option<Cow<'a, str>>,
    entity_name: Option<Cow<'a, str>>,
    target_id: Option<Cow<'a, str>>,
    target_name: Option<Cow<'a, str>>,
}

impl Notification {
    /// Reads the keys and values of a push; of a key that stands twice, the first.
    pub fn read(app_data: &[(String, String)]) -> Self {
        let value =
            |key: &str| app_data.iter().find(|(name, _)| name == key).map_or("", |(_, value)| value.as_str()).trim();
        let channel = value("channelId");
        let (title, message) = (plain_text(value("title"), NAME), plain_text(value("message"), MESSAGE));
        let body = Body::read(value("body"));
        match (channel, body) {
            // An alarm is an alarm, whatever became of its body.
            ("alarm", body) => {
                Self::Alarm(Alarm { server: body.ok().and_then(|body| body.server_identity()), title, message })
            }
            ("news", _) => Self::News { title, message },
            ("pairing" | "player" | "team", Err(malformed)) => Self::Malformed(malformed),
            ("pairing", Ok(body)) if body.is("server") => {
                body.server_pairing(&title).map_or_else(Self::Malformed, Self::ServerPairing)
            }
            ("pairing", Ok(body)) if body.is("entity") => {
                body.entity_pairing(&title).map_or_else(Self::Malformed, Self::EntityPairing)
            }
            ("player", Ok(body)) if body.is("death") => Self::Death(body.encounter()),
            ("team", Ok(body)) if body.is("login") => Self::Login(body.encounter()),
            (channel, _) => Self::Unknown { channel: plain_text(channel, NAME), title, message },
        }
    }
}

impl<'a> Body<'a> {
    fn read(json: &'a str) -> Result<Self, Malformed> {
        if json.len() > BODY {
            return Err(Malformed::TooLarge);
        }
        if json.is_empty() {
            return Ok(Self::default());
        }
        serde_json::from_str(json).map_err(|_| Malformed::Body)
    }

    fn is(&self, kind: &str) -> bool {
        self.r#type.as_deref() == Some(kind)
    }

    fn game_server_id(&self) -> Option<String> {
        let id = plain_text(self.id.as_deref()?, GAME_SERVER_ID + 1);
        (1..=GAME_SERVER_ID).contains(&id.chars().count()).then_some(id)
    }

    fn address(&self) -> Option<GameAddress> {
        GameAddress::parse(self.ip.as_deref()?)
    }

    fn port(&self) -> Option<u16> {
        number(&self.port).filter(|port| *port != 0)
    }

    fn server_identity(&self) -> Option<ServerIdentity> {
        let (game_server_id, address) = (self.game_server_id(), self.address().zip(self.port()));
        (game_server_id.is_some() || address.is_some()).then(|| ServerIdentity {
            game_server_id,
            name: text(&self.name),
            address,
        })
    }

    fn server_pairing(&self, title: &str) -> Result<ServerPairing, Malformed> {
        let address = self.address().ok_or(Malformed::Field("ip"))?;
        let name = [text(&self.name), title.to_owned(), address.to_string()].into_iter().find(|name| !name.is_empty());
        Ok(ServerPairing {
            game_server_id: self.game_server_id(),
            name: name.unwrap_or_default(),
            address,
            port: self.port().ok_or(Malformed::Field("port"))?,
            player_id: platform_id(&self.player_id).ok_or(Malformed::Field("playerId"))?,
            player_token: SecretBox::new(Box::new(number(&self.player_token).ok_or(Malformed::Field("playerToken"))?)),
        })
    }

    fn entity_pairing(&self, title: &str) -> Result<EntityPairing, Malformed> {
        let entity_id = number(&self.entity_id).filter(|id| *id != 0).ok_or(Malformed::Field("entityId"))?;
        let name = Some(text(&self.entity_name)).filter(|name| !name.is_empty());
        Ok(EntityPairing {
            // The title of this push is the device's name.
            server: self.server_pairing("")?,
            entity_id,
            kind: device_kind(number(&self.entity_type).unwrap_or_default()),
            name: name.unwrap_or_else(|| title.to_owned()),
        })
    }

    fn encounter(&self) -> Encounter {
        Encounter {
            server: self.server_identity(),
            player_id: platform_id(&self.target_id),
            player_name: text(&self.target_name),
        }
    }
}

fn text(field: &Option<Cow<'_, str>>) -> String {
    plain_text(field.as_deref().unwrap_or_default(), NAME)
}

fn number<N: std::str::FromStr>(field: &Option<Cow<'_, str>>) -> Option<N> {
    field.as_deref()?.trim().parse().ok()
}

fn platform_id(field: &Option<Cow<'_, str>>) -> Option<PlatformId> {
    PlatformId::parse(field.as_deref()?.trim())
}
