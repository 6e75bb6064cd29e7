//! Values in JSON bodies that several endpoints read.

use serde::Deserialize;
use serde_json::Number;

/// A JSON integer, or a text that should hold its decimal digits: browsers round integers beyond 2^53.
#[derive(Deserialize)]
#[serde(untagged, expecting = "an integer or its decimal digits")]
pub enum IntegerOrText {
    Integer(Number),
    Text(String),
}

impl IntegerOrText {
    /// As text: of a text, what was sent; of a number, its digits, with a point when it is no integer.
    pub fn into_text(self) -> String {
        match self {
            Self::Integer(number) => number.to_string(),
            Self::Text(text) => text,
        }
    }
}

/// Validates a name or label: one line, not blank, no control characters.
pub fn one_line(text: &Option<String>, _: &()) -> garde::Result {
    match text {
        Some(text) if text.chars().any(char::is_control) => Err(garde::Error::new("must be one line of text")),
        Some(text) if text.trim().is_empty() => Err(garde::Error::new("must not be blank")),
        _ => Ok(()),
    }
}
