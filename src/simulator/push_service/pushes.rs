//! Pushes of the game and of its publisher: the data of each kind of push message.

use serde_json::{Map, Value, json};

/// A game server, as named in its pushes.
#[derive(Clone, Debug)]
pub struct PushedServer {
    /// A GUID.
    pub id: String,
    pub name: String,
    /// Host name or address.
    pub ip: String,
    pub port: u16,
}

impl PushedServer {
    /// The player pressed "pair with server".
    pub fn pairing(&self, player_id: u64, player_token: i32) -> Vec<(String, String)> {
        let body = json!({
            "type": "server", "playerId": player_id.to_string(), "playerToken": player_token.to_string(),
        });
        self.app_data("pairing", &self.name, "Tap to pair with this server.", body)
    }

    /// The player pressed "pair" at a smart device; `kind` is 1 for a switch, 2 for an alarm, 3 for a storage monitor.
    pub fn entity_pairing(
        &self,
        player_id: u64,
        player_token: i32,
        entity_id: u64,
        kind: u8,
        name: &str,
    ) -> Vec<(String, String)> {
        let body = json!({
            "type": "entity", "playerId": player_id.to_string(), "playerToken": player_token.to_string(),
            "entityId": entity_id.to_string(), "entityType": kind.to_string(), "entityName": name,
        });
        self.app_data("pairing", name, "Tap to pair with this device.", body)
    }

    /// A smart alarm went off.
    pub fn alarm(&self, title: &str, message: &str) -> Vec<(String, String)> {
        self.app_data("alarm", title, message, json!({ "type": "alarm" }))
    }

    /// The player was killed while offline; `by` is SteamID64 (0 for an animal) and name.
    pub fn death(&self, by: (u64, &str)) -> Vec<(String, String)> {
        let id = if by.0 == 0 { String::new() } else { by.0.to_string() };
        let body = json!({ "type": "death", "targetId": id, "targetName": by.1 });
        self.app_data("player", &format!("You were killed by {}", by.1), &self.name, body)
    }

    /// A teammate came online; SteamID64 and name.
    pub fn login(&self, who: (u64, &str)) -> Vec<(String, String)> {
        let body = json!({ "type": "login", "targetId": who.0.to_string(), "targetName": who.1 });
        self.app_data("team", &format!("{} is now online", who.1), &self.name, body)
    }

    fn app_data(&self, channel: &str, title: &str, message: &str, mut body: Value) -> Vec<(String, String)> {
        let server = json!({
            "id": self.id, "name": self.name, "desc": "", "img": "", "logo": "", "url": "",
            "ip": self.ip, "port": self.port.to_string(),
        });
        if let (Value::Object(body), Value::Object(mut server)) = (&mut body, server) {
            body.append(&mut server);
        }
        app_data(channel, title, message, &body)
    }
}

/// An announcement of the publisher.
pub fn news(title: &str, message: &str) -> Vec<(String, String)> {
    app_data("news", title, message, &Value::Object(Map::new()))
}

fn app_data(channel: &str, title: &str, message: &str, body: &Value) -> Vec<(String, String)> {
    let body = body.to_string();
    [
        ("projectId", "49451aca-a822-41e6-ad59-955718d0ff9c"),
        ("channelId", channel),
        ("title", title),
        ("message", message),
        ("body", &body),
        ("experienceId", "@facepunch/RustCompanion"),
        ("scopeKey", "@facepunch/RustCompanion"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into()
}
