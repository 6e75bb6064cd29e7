//! One push as the push service delivers it.

use std::fmt;

use crate::{domain::time::Timestamp, push::wire::DataMessageStanza};

/// Bytes of a persistent id; Google's have about 40.
const PERSISTENT_ID: usize = 256;

/// A push. It may hold secrets, which `Debug` leaves out.
#[derive(Clone)]
pub struct PushMessage {
    /// Identifies a message that comes again; `None` if absent, longer than any of Google's, or not of its characters.
    pub persistent_id: Option<String>,
    /// When it was sent; it may have waited for four weeks.
    pub sent: Option<Timestamp>,
    /// The keys and values that [`Notification::read`](crate::push::notification::Notification::read) reads.
    pub app_data: Vec<(String, String)>,
}

impl fmt::Debug for PushMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushMessage")
            .field("persistent_id", &self.persistent_id)
            .field("sent", &self.sent)
            .finish_non_exhaustive()
    }
}

impl From<DataMessageStanza> for PushMessage {
    fn from(stanza: DataMessageStanza) -> Self {
        Self {
            persistent_id: stanza.persistent_id.filter(|id| is_persistent_id(id)),
            sent: stanza.sent.filter(|sent| *sent > 0).and_then(Timestamp::from_timestamp_millis),
            app_data: stanza.app_data.into_iter().map(|data| (data.key, data.value)).collect(),
        }
    }
}

/// True if the id can be stored and sent again: PostgreSQL takes no NUL, for example.
fn is_persistent_id(id: &str) -> bool {
    (1..=PERSISTENT_ID).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::push::wire::AppData;

    #[test]
    fn a_message_is_read_tolerantly_and_prints_no_content() {
        for id in ["", "0:1\0", "0: 1", "0:\u{1f600}", &"x".repeat(PERSISTENT_ID + 1)] {
            let stanza = DataMessageStanza {
                persistent_id: Some(id.to_owned()),
                sent: Some(i64::MAX),
                app_data: vec![AppData { key: "body".into(), value: "-77".into() }],
                ..DataMessageStanza::default()
            };
            let message = PushMessage::from(stanza);
            assert_eq!((&message.persistent_id, message.sent), (&None, None));
            assert!(!format!("{:?}", message).contains("-77"));
        }
        let google = DataMessageStanza { persistent_id: Some("0:1700000000000001%abc".into()), ..Default::default() };
        assert!(PushMessage::from(google).persistent_id.is_some());
    }
}
