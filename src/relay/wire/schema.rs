//! The relay's messages as JSON Schema (2020-12), made of the types that [`protocol`](crate::relay::wire::protocol)
//! reads and writes: utoipa's schemas, which are of that dialect, under `$defs`.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use utoipa::{PartialSchema, ToSchema};

use crate::{
    domain::{limits, time, word_lists},
    relay::wire::{
        close::Reason,
        protocol::{ClientMessage, ServerMessage},
    },
};

/// The schema of every message in both directions: `$defs.ClientMessage` has those to the relay, `$defs.ServerMessage`
/// those from it.
pub fn document() -> Value {
    let mut schemas = vec![
        (ClientMessage::name().into_owned(), ClientMessage::schema()),
        (ServerMessage::name().into_owned(), ServerMessage::schema()),
    ];
    ClientMessage::schemas(&mut schemas);
    ServerMessage::schemas(&mut schemas);
    let schemas: BTreeMap<_, _> = schemas.into_iter().collect();
    let mut definitions = serde_json::to_value(schemas).expect("schemas are plain data");
    time::inline(&mut definitions);
    point_to_definitions(&mut definitions);
    let words = word_lists::refer(&mut definitions, "#/$defs/");
    if let Some(definitions) = definitions.as_object_mut() {
        definitions.extend(words);
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Messages of the relay",
        "description": description(),
        "oneOf": [{ "$ref": "#/$defs/ClientMessage" }, { "$ref": "#/$defs/ServerMessage" }],
        "$defs": definitions,
    })
}

/// The document as text.
pub fn json() -> String {
    serde_json::to_string_pretty(&document()).expect("a document is plain data")
}

/// References point into an OpenAPI document, as utoipa makes them.
fn point_to_definitions(schema: &mut Value) {
    match schema {
        Value::Object(fields) => fields.iter_mut().for_each(|(name, value)| match value {
            Value::String(target) if name == "$ref" => *target = target.replace("#/components/schemas/", "#/$defs/"),
            other => point_to_definitions(other),
        }),
        Value::Array(items) => items.iter_mut().for_each(point_to_definitions),
        _ => {}
    }
}

/// The rules that a schema cannot express.
fn description() -> String {
    let codes: Vec<String> = Reason::ALL
        .into_iter()
        .map(|reason| {
            let advice = match reason.code() {
                4400..4500 => ": come back after a backoff",
                4500..4600 => ": do not come back with this sign-in",
                _ => "",
            };
            format!("- {} ({}){advice}", reason.code(), reason.text())
        })
        .collect();
    format!(
        "A WebSocket at `/v1` of the relay, with a token of `POST /relay/token` as `?token=` or as the sub-protocol \
         `bearer.<token>`. Each text frame is one JSON object with a `type`.\n\n\
         Limits: a message to the relay has at most {} KiB, and no more than {} may come in {} s, each in any number of \
         fragments as long as those, pings and pongs are not more than {} in 25 s; a connection watches at most {} servers, \
         and a user has at most {} connections. The relay sends at most {} messages in 10 s to a \
         connection, whatever happens: patches wait and are merged, nothing is lost. When more than {} raids wait, a patch \
         of `/raids` that shows all of them goes ahead of their messages, which follow: announce every incident of \
         `state.raids` that you have not announced, and none twice. A snapshot of one server comes at most every {} s. A WebSocket ping every 25 s must be answered within 10 s.\n\n\
         Come back after 1 s, 2 s, 4 s … 30 s with a new token and subscribe again. A close is answered by its own \
         code; codes of the relay's own:\n{}\n\n\
         Coming back, a client gets the state of now, raids included, and neither the events nor the lines of chat of the \
         time in between: ask `GET /intel/{{serverId}}/timeline?since=` and `GET /paired-servers/{{id}}/chat?since=` of the \
         API with the `ts` of the last one. What is there under an id that the client has is the same.",
        limits::INBOUND_BYTES / 1024,
        limits::INBOUND_MESSAGES,
        limits::INBOUND_SPAN.as_secs(),
        limits::INBOUND_PARTS,
        limits::SUBSCRIPTIONS,
        limits::CONNECTIONS_PER_USER,
        limits::OUTBOUND_FRAMES,
        limits::HANDFUL_OF_RAIDS,
        limits::SNAPSHOT_SPAN_MS / 1_000,
        codes.join("\n"),
    )
}

#[cfg(test)]
mod tests {
    use jsonschema::Validator;
    use proptest::prelude::*;

    use super::*;
    use crate::relay::wire::protocol::ClientMessageKind;

    fn validator(messages: &str) -> Validator {
        let mut schema = document();
        schema["oneOf"] = json!([{ "$ref": format!("#/$defs/{messages}") }]);
        jsonschema::draft202012::new(&schema).unwrap()
    }

    #[test]
    fn it_is_a_schema_and_every_reference_leads_somewhere() {
        let schema = document();
        assert!(jsonschema::meta::is_valid(&schema));
        let text = schema.to_string();
        for target in text.split("\"$ref\":\"").skip(1).map(|rest| rest.split('"').next().unwrap()) {
            let name = target.strip_prefix("#/$defs/").unwrap_or_else(|| panic!("{target}"));
            assert!(schema["$defs"][name].is_object(), "{target}");
        }
        for kind in ["snapshot", "patch", "event", "chat", "raid", "pong", "ack", "error", "raidAck", "deviceToggle"] {
            assert!(text.contains(&format!("\"{kind}\"")), "{kind}");
        }
        assert!(text.contains("4501 (signed out): do not come back with this sign-in"));
    }

    #[test]
    fn the_relay_reads_what_it_would_write_for_a_client() {
        let validator = validator("ClientMessage");
        let request = Some("r".to_owned());
        for message in [
            ClientMessage::Subscribe { server: "s".into(), epoch: None, seq: None, sections: None },
            ClientMessage::Subscribe {
                server: "s".into(),
                epoch: None,
                seq: None,
                sections: Some(crate::domain::sections::StateKey::ALL.to_vec()),
            },
            ClientMessage::Subscribe { server: "s".into(), epoch: Some(7), seq: Some(0), sections: None },
            ClientMessage::Unsubscribe { server: "s".into() },
            ClientMessage::DeviceToggle {
                server: "s".into(),
                device: "7".into(),
                value: Some(true),
                request: request.clone(),
            },
            ClientMessage::DeviceToggle { server: "s".into(), device: "7".into(), value: None, request: None },
            ClientMessage::RaidAck { server: "s".into(), incident: "i".into(), request },
            ClientMessage::Ping,
        ] {
            let json = serde_json::to_value(&message).unwrap();
            assert!(validator.is_valid(&json), "{json}");
            assert_eq!(ClientMessage::parse(json.to_string().as_bytes()).unwrap(), message);
        }
    }

    fn field() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(Value::Null),
            Just(json!(7)),
            Just(json!(-7)),
            Just(json!(0.5)),
            Just(json!(["s"])),
            Just(json!([])),
            Just(json!(["raids", "team", "raids"])),
            Just(json!({})),
            Just(json!("x\u{0}")),
            Just(json!("x\u{9f}")),
            Just(json!("é".repeat(128))),
            Just(json!("é".repeat(129))),
            "[a-z]{0,4}".prop_map(Value::String),
        ]
    }

    proptest! {
        #[test]
        fn the_relay_takes_what_the_schema_allows_and_nothing_else(
            kind in prop_oneof![
                5 => prop::sample::select(ClientMessageKind::WORDS.to_vec()).prop_map(|kind| json!(kind)),
                1 => field(),
            ],
            fields in prop::collection::hash_map(
                prop::sample::select(vec!["serverId", "deviceId", "incident", "requestId", "epoch", "seq", "sections", "other"]),
                field(),
                0..6,
            ),
        ) {
            let mut message = json!(fields);
            message["type"] = kind;
            let read = ClientMessage::parse(message.to_string().as_bytes());
            prop_assert_eq!(validator("ClientMessage").is_valid(&message), read.is_ok(), "{}: {:?}", message, read);
            if let Err(refusal) = read {
                let answer = serde_json::to_value(ServerMessage::Error(&refusal)).unwrap();
                prop_assert!(validator("ServerMessage").is_valid(&answer), "{}", answer);
            }
        }
    }
}
