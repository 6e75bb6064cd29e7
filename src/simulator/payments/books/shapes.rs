//! The forms of events in versions of the API, of fields within fields, and of sessions of the portal.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// Before the period moved to the items.
const OLDER_VERSION: &str = "2024-06-20";

/// A session of the portal.
#[derive(Clone, Debug)]
pub struct Portal {
    pub customer: String,
    /// The way back.
    pub return_url: String,
    /// The subscription, and the price to which it is to change: the page shows nothing else.
    pub change: Option<(String, String)>,
}

/// An event as it is, or as an older version of the API has it.
pub fn shaped(event: &Value, older: bool) -> Value {
    let mut event = event.clone();
    if older {
        event["api_version"] = json!(OLDER_VERSION);
        let object = &mut event["data"]["object"];
        let period = ["current_period_start", "current_period_end"];
        if object["object"] == "subscription" {
            for field in period {
                object[field] = object["items"]["data"][0][field].take();
                object["items"]["data"][0].as_object_mut().map(|item| item.remove(field));
            }
        } else if let Some(subscription) = object.pointer("/parent/subscription_details/subscription").cloned() {
            object["subscription"] = subscription;
            object.as_object_mut().map(|invoice| invoice.remove("parent"));
        }
    }
    event
}

/// The fields under a name: `metadata[userId]` is `userId` of `metadata`.
pub fn nested(parameters: &BTreeMap<String, String>, name: &str) -> Value {
    let field = |(key, value): (&String, &String)| {
        let field = key.strip_prefix(name)?.strip_prefix('[')?.strip_suffix(']')?;
        Some((field.to_owned(), json!(value)))
    };
    Value::Object(parameters.iter().filter_map(field).collect::<Map<_, _>>())
}
