//! News of one node for the others: what its users did, and what concerns sockets and links wherever they are.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::domain::{
    ids::{PlatformId, ServerId, SessionId, UserId},
    time::{self, Timestamp},
};

/// See the module. Names and fields are stored: nodes of another version read them. A field that is added has a default.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "news", rename_all = "camelCase")]
pub enum NodeNews {
    /// A session has signed out, or a device or token that counts as one was deleted.
    SessionEnded { session: SessionId },
    /// This user was erased.
    UserErased { user: UserId },
    /// Others may watch this server than before.
    AccessChanged { server: ServerId },
    /// This paired server was deleted.
    ServerRemoved { server: ServerId },
    /// This server was paired, perhaps once more, or its link is to be tried again.
    ServerPaired { server: ServerId },
    /// Devices of this server were added, edited or removed.
    DevicesChanged { server: ServerId },
    /// Alarms of this server may come over its link alone, or no longer.
    AlarmPathChanged { server: ServerId },
    /// Watches of shops of this server have changed.
    ShopWatchesChanged { server: ServerId },
    /// Map notes of this server have changed; perhaps this one was deleted.
    NotesChanged { server: ServerId, deleted: Option<String> },
    /// This player has just paired a device of this server in the game.
    PlaceDevice {
        server: ServerId,
        device: String,
        player: PlatformId,
        #[serde(serialize_with = "time::exact")]
        sent: Timestamp,
    },
    /// A user who had taken note of incidents of this server is gone.
    AcknowledgementsErased { server: ServerId, user: UserId },
    /// A user has taken note of an incident of this server.
    Acknowledged {
        server: ServerId,
        incident: String,
        user: UserId,
        #[serde(serialize_with = "time::exact")]
        at: Timestamp,
    },
    /// A client of this address has guessed a secret of this kind wrongly.
    WrongGuess { what: String, from: IpAddr },
    /// News of a newer program.
    #[serde(other)]
    Unknown,
}

impl NodeNews {
    /// As it is stored.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("its fields are plain")
    }

    /// Reads stored news; text that is none at all is of a newer program, too.
    pub fn read(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or(Self::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_are_read_as_they_were_written_and_unknown_ones_are_none() {
        let at: Timestamp = "2026-11-29T20:00:00.123Z".parse().unwrap();
        for news in [
            NodeNews::SessionEnded { session: "session".into() },
            NodeNews::NotesChanged { server: "one".into(), deleted: Some("note".into()) },
            NodeNews::Acknowledged { server: "one".into(), incident: "i".into(), user: "alice".into(), at },
            NodeNews::WrongGuess { what: "invite".into(), from: "2001:db8::".parse().unwrap() },
        ] {
            assert_eq!(NodeNews::read(&news.to_text()), news);
        }
        assert_eq!(
            NodeNews::SessionEnded { session: "s".into() }.to_text(),
            r#"{"news":"sessionEnded","session":"s"}"#
        );
        for earlier in [
            r#"{"news":"sessionEnded","session":"s"}"#,
            r#"{"news":"userErased","user":"alice"}"#,
            r#"{"news":"accessChanged","server":"one"}"#,
            r#"{"news":"serverRemoved","server":"one"}"#,
            r#"{"news":"serverPaired","server":"one"}"#,
            r#"{"news":"devicesChanged","server":"one"}"#,
            r#"{"news":"alarmPathChanged","server":"one"}"#,
            r#"{"news":"shopWatchesChanged","server":"one"}"#,
            r#"{"news":"notesChanged","server":"one","deleted":null}"#,
            r#"{"news":"placeDevice","server":"one","device":"7","player":"8","sent":"2026-11-29T20:00:00.123Z"}"#,
            r#"{"news":"acknowledgementsErased","server":"one","user":"alice"}"#,
            r#"{"news":"acknowledged","server":"one","incident":"i","user":"alice","at":"2026-11-29T20:00:00.123Z"}"#,
            r#"{"news":"wrongGuess","what":"invite","from":"192.0.2.7"}"#,
        ] {
            assert_ne!(NodeNews::read(earlier), NodeNews::Unknown, "nodes of all versions write this: {earlier}");
        }
        for other in [r#"{"news":"moonRisen","phase":"full"}"#, r#"{"news":"unknown"}"#, "", "7"] {
            assert_eq!(NodeNews::read(other), NodeNews::Unknown, "{other}");
        }
    }
}
