//! Lines of a team's chat.

use serde::Serialize;
use utoipa::ToSchema;

use crate::domain::{time::Timestamp, timeline::Cursor};

/// A line of the team's chat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChatLine {
    pub author: String,
    /// SteamID64 of who said it; `null` on a line that was kept by an earlier version.
    #[schema(required)]
    pub author_id: Option<String>,
    pub text: String,
    pub ts: Timestamp,
}

/// A line under the id by which it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StoredLine {
    /// Independent of when and how often the line is heard.
    pub id: String,
    #[serde(flatten)]
    pub line: ChatLine,
}

impl StoredLine {
    /// Where the page after this line begins.
    pub fn cursor(&self) -> Cursor {
        Cursor { ts: self.line.ts, id: self.id.clone() }
    }
}
