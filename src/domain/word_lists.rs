//! Texts that are one of a few words, by the `format` under which schemas name them: in the document of the API and in
//! that of the relay each becomes a schema of its own.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::domain::{
    access::Role,
    audit::AdminAction,
    bot::chat_commands::CommandScope,
    credential::{CredentialState, RefusalReason},
    incident::{AlarmPath, IncidentState},
    map::{NOTE_CATEGORIES, NoteSource},
    money::{payment::EventResult, payment_event_kind::PaymentEventKind, refund::RefundReason, tier::Tier},
    pairing::DeviceScope,
    shop::{OfferChange, scan::ScanReason},
};

/// A format, the name of the schema, and the words.
type WordList = (&'static str, &'static str, &'static [&'static str]);

const WORD_LISTS: &[WordList] = &[
    ("tier", "Tier", &Tier::WORDS),
    ("role", "Role", &Role::OF_USERS),
    ("incident-state", "IncidentState", &IncidentState::WORDS),
    ("note-category", "MapNoteCategory", &NOTE_CATEGORIES),
    ("note-source", "NoteSource", &NoteSource::WORDS),
    ("device-scope", "DeviceScope", &DeviceScope::WORDS),
    ("credential-state", "CredentialState", &CredentialState::WORDS),
    ("credential-refusal", "CredentialRefusal", &RefusalReason::WORDS),
    ("alarm-way", "AlarmWay", &AlarmPath::OF_THE_GAME),
    ("event-outcome", "EventOutcome", &EventResult::WORDS),
    ("command-scope", "CommandScope", &CommandScope::WORDS),
    ("offer-action", "OfferAction", &OfferChange::WORDS),
    ("scan-reason", "ScanReason", &ScanReason::WORDS),
    ("admin-action", "AdminAction", &AdminAction::WORDS),
    ("payment-event-kind", "PaymentEventKind", &PaymentEventKind::WORDS),
    ("refund-reason", "RefundReason", &RefundReason::WORDS),
];

/// The words of this format.
pub fn words(format: &str) -> Option<&'static [&'static str]> {
    WORD_LISTS.iter().find(|(known, ..)| *known == format).map(|(_, _, words)| *words)
}

/// Lets every text of such a format, at any depth, refer to the schema of its words, below `base`; adds those schemas.
pub fn refer(document: &mut Value, base: &str) -> Map<String, Value> {
    let mut used = BTreeSet::new();
    refer_within(document, base, &mut used);
    let schema = |words: &[&str]| json!({ "type": "string", "enum": words });
    WORD_LISTS
        .iter()
        .filter(|(_, name, _)| used.contains(name))
        .map(|(_, name, words)| ((*name).to_owned(), schema(words)))
        .collect()
}

fn refer_within(schema: &mut Value, base: &str, used: &mut BTreeSet<&'static str>) {
    match schema {
        Value::Object(fields) => {
            let format = fields.get("format").and_then(Value::as_str);
            let Some((_, name, _)) = WORD_LISTS.iter().find(|(known, ..)| format == Some(known)) else {
                return fields.values_mut().for_each(|field| refer_within(field, base, used));
            };
            used.insert(name);
            let reference = json!({ "$ref": format!("{base}{name}") });
            let is_nullable = fields.get("type").is_some_and(Value::is_array);
            let description = fields.remove("description");
            *schema = if is_nullable { json!({ "oneOf": [{ "type": "null" }, reference] }) } else { reference };
            if let Some(description) = description {
                schema["description"] = description;
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|item| refer_within(item, base, used)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_those_that_are_sent() {
        assert_eq!(words("tier"), Some(&["SCOUT", "OPERATOR", "OVERLORD"][..]));
        assert_eq!(words("alarm-way"), Some(&["link", "push"][..]));
        assert_eq!(words("note-category").and_then(|words| words.last()), Some(&"death"));
        assert_eq!(words("date-time"), None);
    }

    #[test]
    fn a_text_of_a_few_words_refers_to_them() {
        let mut schema = json!({ "properties": {
            "tier": { "type": ["string", "null"], "format": "tier", "description": "Which." },
            "role": { "type": "string", "format": "role" },
            "at": { "type": "string", "format": "date-time" },
        } });
        let added = refer(&mut schema, "#/");
        assert_eq!(added["Role"], json!({ "type": "string", "enum": ["owner", "guest"] }));
        assert_eq!(
            schema["properties"]["tier"],
            json!({ "oneOf": [{ "type": "null" }, { "$ref": "#/Tier" }], "description": "Which." })
        );
        assert_eq!(schema["properties"]["role"], json!({ "$ref": "#/Role" }));
        assert_eq!((schema["properties"]["at"]["format"].as_str(), added.len()), (Some("date-time"), 2));
    }
}
