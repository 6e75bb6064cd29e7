//! Faults of a push service.

use std::time::Duration;

/// Faults of the service; none by default.
#[derive(Clone, Copy, Debug, Default)]
pub struct PushServiceFaults {
    /// Every login is refused with this code.
    pub refuse_login: Option<i32>,
    /// No login is answered.
    pub mute_login: bool,
    /// Nothing is delivered and no heartbeat is answered.
    pub frozen: bool,
    /// A push is never delivered.
    pub lose: bool,
    /// A push is delivered this much later.
    pub delay: Option<Duration>,
    /// Every message is sent twice.
    pub duplicate: bool,
    /// At login everything is sent again, acknowledged or not.
    pub replay: bool,
    /// Instead of a message, bytes that are no frame.
    pub garbage: bool,
    /// Instead of a message, a frame of its tag that contains no message.
    pub unreadable: bool,
    /// Instead of a message, the head of a frame that is too large.
    pub oversize: bool,
    /// The connection ends in the middle of a message.
    pub truncate: bool,
    /// The service closes the connection after this many messages.
    pub close_after: Option<u32>,
}
