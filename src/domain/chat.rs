//! Lines of a team's chat.

use serde::Serialize;
use utoipa::ToSchema;

use crate::domain::{
    time::{self, Timestamp},
    timeline::Cursor,
};

/// A line of the team's chat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ChatLine {
    pub author: String,
    pub text: String,
    #[serde(serialize_with = "time::wire")]
    #[schema(value_type = String, format = DateTime)]
    pub ts: Timestamp,
}

/// A line under the id by which it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeptLine {
    /// Independent of when and how often the line is heard.
    pub id: String,
    #[serde(flatten)]
    pub line: ChatLine,
}

impl KeptLine {
    /// Where the page after this line begins.
    pub fn cursor(&self) -> Cursor {
        Cursor { ts: self.line.ts, id: self.id.clone() }
    }
}
