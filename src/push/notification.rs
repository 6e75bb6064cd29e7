//! Pushes of the game, in types of the domain. Tolerant where nothing depends on it, strict where something is stored.

use std::borrow::Cow;

use secrecy::SecretBox;
use serde::Deserialize;

use crate::{
    domain::{device::DeviceKind, game_address::GameAddress, ids::PlatformId, plain_text::plain_text},
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
    /// A smart alarm, or a plugin of the game server, raises an alarm. A push does not name the device.
    Alarm(AlarmPush),
    /// The owner of the credential was killed while offline.
    Death(Encounter),
    /// A teammate came online while the owner of the credential is offline.
    Login(Encounter),
    /// From the publisher.
    News { title: String, message: String },
    /// A kind that this version does not know.
    Unknown { channel: String, title: String, message: String },
    /// A known kind, and not readable as such.
    Malformed(Malformed),
}

/// A game server and a player's token for it. The caller must check that the player is the owner of the credential, and
/// that the address may be connected to.
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

/// An alarm with the text that was written in the game.
#[derive(Debug, PartialEq, Eq)]
pub struct AlarmPush {
    /// `None` when the push names no game server.
    pub server: Option<ServerIdentity>,
    pub title: String,
    pub message: String,
}

/// Something that another player did.
#[derive(Debug, PartialEq, Eq)]
pub struct Encounter {
    pub server: Option<ServerIdentity>,
    /// `None` for an animal, a trap or the cold.
    pub player_id: Option<PlatformId>,
    pub player_name: String,
}

/// Identity of a game server: its id, otherwise its address, and at worst its name alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerIdentity {
    pub game_server_id: Option<String>,
    pub name: String,
    /// Host and companion port.
    pub address: Option<(GameAddress, u16)>,
}

/// Fault of a push that cannot be used. Names the field, never its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("the body is larger than {BODY} bytes")]
    TooLarge,
    #[error("the body is not a JSON object of texts")]
    Body,
    #[error("{0} is missing or not valid")]
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
    /// Reads the keys and values of a push; of a key that occurs twice, the first.
    pub fn read(app_data: &[(String, String)]) -> Self {
        let value =
            |key: &str| app_data.iter().find(|(name, _)| name == key).map_or("", |(_, value)| value.as_str()).trim();
        let channel = value("channelId");
        let (title, message) = (plain_text(value("title"), NAME), plain_text(value("message"), MESSAGE));
        let body = Body::read(value("body"));
        match (channel, body) {
            // An alarm counts even if its body cannot be read.
            ("alarm", body) => {
                Self::Alarm(AlarmPush { server: body.ok().and_then(|body| body.server_identity()), title, message })
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
        // serde would read a list as a struct, too.
        if !json.starts_with('{') {
            return Err(Malformed::Body);
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
        let name = text(&self.name);
        let is_named = game_server_id.is_some() || address.is_some() || !name.is_empty();
        is_named.then_some(ServerIdentity { game_server_id, name, address })
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use secrecy::ExposeSecret as _;

    use super::*;

    const SERVER: &str = r#""id":"0f3b6c52-9f4e-4f0b-8a53-0d3a6f0f1a11","name":"Sim Valley | Weekly","desc":"A\\nB",
        "img":"","logo":"","url":"","ip":"203.0.113.7","port":"28083""#;
    const PLAYER: &str = r#""playerId":"76561198000000001","playerToken":"-123456789""#;

    fn read(channel: &str, title: &str, message: &str, body: &str) -> Notification {
        let data = [
            ("google.c.a", "1"),
            ("channelId", channel),
            ("title", title),
            ("message", message),
            ("body", body),
            ("channelId", "news"),
        ];
        Notification::read(&data.map(|(key, value)| (key.to_owned(), value.to_owned())))
    }

    fn sim_valley() -> ServerIdentity {
        ServerIdentity {
            game_server_id: Some("0f3b6c52-9f4e-4f0b-8a53-0d3a6f0f1a11".to_owned()),
            name: "Sim Valley | Weekly".to_owned(),
            address: GameAddress::parse("203.0.113.7").map(|address| (address, 28083)),
        }
    }

    fn malformed(channel: &str, body: &str) -> Malformed {
        match read(channel, "", "", body) {
            Notification::Malformed(malformed) => malformed,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_server_is_paired() {
        let body = format!(r#"{{{SERVER},{PLAYER},"type":"server"}}"#);
        let read = read("pairing", "Sim Valley | Weekly", "Tap to pair with this server.", &body);
        let Notification::ServerPairing(pairing) = read else { panic!("{read:?}") };
        assert_eq!(pairing.game_server_id, sim_valley().game_server_id);
        assert_eq!(pairing.name, "Sim Valley | Weekly");
        assert_eq!(pairing.address.to_string(), "203.0.113.7");
        assert_eq!(pairing.port, 28083);
        assert_eq!(pairing.player_id.as_str(), "76561198000000001");
        assert_eq!(*pairing.player_token.expose_secret(), -123_456_789);
        assert!(!format!("{pairing:?}").contains("123456789"));
    }

    #[test]
    fn a_server_without_a_name_goes_by_its_title_or_address() {
        let pair = |title| {
            let body = format!(r#"{{"type":"server","ip":"Play.Example.com","port":"1","name":"\u0007",{PLAYER}}}"#);
            match read("pairing", title, "", &body) {
                Notification::ServerPairing(pairing) => pairing,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(pair("<b>A title</b>").name, "A title");
        assert_eq!(pair("").name, "play.example.com");
        assert_eq!(pair("").game_server_id, None);
    }

    #[test]
    fn a_device_is_paired_together_with_its_server() {
        for (number, kind) in [
            ("1", DeviceKind::Switch),
            ("2", DeviceKind::Alarm),
            ("3", DeviceKind::StorageMonitor),
            ("9", DeviceKind::Unknown),
            ("", DeviceKind::Unknown),
        ] {
            let body = format!(
                r#"{{{SERVER},{PLAYER},"type":"entity","entityId":"4242","entityType":"{number}","entityName":"Gate"}}"#
            );
            let read = read("pairing", "Smart Switch", "Tap to pair with this device.", &body);
            let Notification::EntityPairing(pairing) = read else { panic!("{read:?}") };
            assert_eq!((pairing.entity_id, pairing.kind, pairing.name.as_str()), (4242, kind, "Gate"));
            assert_eq!(pairing.server.name, "Sim Valley | Weekly");
        }
    }

    #[test]
    fn an_alarm_is_never_lost_to_its_body() {
        let alarm = |body: &str| match read("alarm", " North wall ", "<size=30>C4</size> on the airlock", body) {
            Notification::Alarm(alarm) => alarm,
            other => panic!("{other:?}"),
        };
        let expected =
            |server| AlarmPush { server, title: "North wall".to_owned(), message: "C4 on the airlock".to_owned() };
        assert_eq!(alarm(&format!(r#"{{{SERVER},"type":"alarm"}}"#)), expected(Some(sim_valley())));
        // A plugin's alarm has no type.
        assert_eq!(alarm(&format!("{{{SERVER}}}")), expected(Some(sim_valley())));
        let only_id = ServerIdentity { game_server_id: Some("abc".into()), name: String::new(), address: None };
        assert_eq!(alarm(r#"{"id":"abc","ip":"not a host","port":"28083"}"#), expected(Some(only_id)));
        for body in ["", "{}", "{", "[]", r#"{"id":7}"#, r#"{"port":"28083"}"#] {
            assert_eq!(alarm(body), expected(None), "{body}");
        }
    }

    #[test]
    fn deaths_logins_and_news_are_read() {
        let body = format!(r#"{{{SERVER},"type":"death","targetId":"76561198000000002","targetName":"Bob"}}"#);
        let Notification::Death(death) = read("player", "You were killed by Bob", "", &body) else { panic!("{body}") };
        assert_eq!(death.player_id, PlatformId::parse("76561198000000002"));
        assert_eq!((death.player_name.as_str(), death.server), ("Bob", Some(sim_valley())));

        let body = format!(r#"{{{SERVER},"type":"death","targetId":"","targetName":"bear"}}"#);
        let Notification::Death(death) = read("player", "", "", &body) else { panic!("{body}") };
        assert_eq!((death.player_id, death.player_name.as_str()), (None, "bear"));

        let body = format!(r#"{{{SERVER},"type":"login","targetId":"76561198000000004","targetName":"Carol"}}"#);
        let Notification::Login(login) = read("team", "Carol is now online", "", &body) else { panic!("{body}") };
        assert_eq!(login.player_name, "Carol");

        let Notification::News { title, message } = read("news", "Update", "It is here", "") else { panic!("news") };
        assert_eq!((title.as_str(), message.as_str()), ("Update", "It is here"));
    }

    #[test]
    fn what_is_not_known_says_so() {
        for (channel, body) in
            [("clan", "{\"type\":\"clan\"}"), ("chat", "{"), ("", ""), ("pairing", "{}"), ("team", "")]
        {
            let read = read(channel, "A", "B", body);
            assert!(
                matches!(&read, Notification::Unknown { channel: known, title, message }
                    if known == channel && title == "A" && message == "B"),
                "{read:?}"
            );
        }
        assert!(matches!(Notification::read(&[]), Notification::Unknown { .. }));
    }

    #[test]
    fn a_pairing_that_makes_no_sense_is_refused_with_its_reason() {
        let pairing =
            |server: &str, player: &str| malformed("pairing", &format!(r#"{{"type":"server",{server},{player}}}"#));
        let address = r#""ip":"203.0.113.7","port":"28083""#;
        assert_eq!(pairing(r#""port":"28083""#, PLAYER), Malformed::Field("ip"));
        assert_eq!(pairing(r#""ip":"a b","port":"28083""#, PLAYER), Malformed::Field("ip"));
        assert_eq!(pairing(r#""ip":"203.0.113.7","port":"0""#, PLAYER), Malformed::Field("port"));
        assert_eq!(pairing(r#""ip":"203.0.113.7","port":"65536""#, PLAYER), Malformed::Field("port"));
        assert_eq!(pairing(address, r#""playerId":"1","playerToken":"1""#), Malformed::Field("playerId"));
        let token =
            |token: &str| pairing(address, &format!(r#""playerId":"76561198000000001","playerToken":"{token}""#));
        for text in ["", "x", "2147483648", "-2147483649", "1.5"] {
            assert_eq!(token(text), Malformed::Field("playerToken"), "{text}");
        }
        let device = |id: &str| format!(r#"{{{SERVER},{PLAYER},"type":"entity","entityId":"{id}","entityType":"1"}}"#);
        for id in ["0", "-1", "x"] {
            assert_eq!(malformed("pairing", &device(id)), Malformed::Field("entityId"), "{id}");
        }
    }

    #[test]
    fn a_body_that_is_no_object_of_texts_is_refused() {
        for body in [
            "{",
            "null",
            "7",
            "[]",
            "[\"server\"]",
            "\"type\"",
            r#"{"type":"server","port":28083}"#,
            r#"{"type":["server"]}"#,
        ] {
            assert_eq!(malformed("pairing", body), Malformed::Body, "{body}");
        }
        let long = format!(r#"{{"type":"server","name":"{}"}}"#, "x".repeat(BODY));
        assert_eq!(malformed("pairing", &long), Malformed::TooLarge);
        assert_eq!(malformed("pairing", &"[".repeat(10_000)), Malformed::Body);
    }

    #[test]
    fn texts_are_cut() {
        let Notification::News { title, message } = read("news", &"t".repeat(1000), &"m".repeat(1000), "") else {
            panic!("news")
        };
        assert_eq!((title.len(), message.len()), (NAME, MESSAGE));
        let body = format!(r#"{{"type":"alarm","id":"{}"}}"#, "i".repeat(GAME_SERVER_ID + 1));
        let Notification::Alarm(alarm) = read("alarm", "", "", &body) else { panic!("alarm") };
        assert_eq!(alarm.server, None, "a cut id would be another server's");
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(
            channel in prop::sample::select(vec!["pairing", "alarm", "player", "team", "news", "x"]),
            key in prop::sample::select(vec!["id", "ip", "port", "playerId", "playerToken", "entityId", "targetId", "x"]),
            kind in prop::sample::select(vec!["server", "entity", "alarm", "death", "login"]),
            value in any::<String>(), noise in any::<String>(),
        ) {
            read(channel, &noise, &value, &serde_json::json!({ "type": kind, key: value }).to_string());
            read(channel, &value, &noise, &noise);
        }
    }
}
