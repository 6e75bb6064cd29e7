//! The beginning of an alarm's way through the service, from which all of its times are counted.

use std::time::Duration;

use tokio::time::Instant;

/// An alarm waits for the database no longer than this, and for the journal as long once more.
pub const STORED_WITHIN: Duration = Duration::from_millis(500);

/// When an alarm reached us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedAt(pub(super) Instant);

impl ReceivedAt {
    /// An alarm reaches us now.
    pub fn now() -> Self {
        Self(Instant::now())
    }

    /// The moment.
    pub fn at(self) -> Instant {
        self.0
    }

    /// The end of its wait for the database, whatever it waits for there.
    pub fn stored_by(self) -> Instant {
        self.0 + STORED_WITHIN
    }

    /// Time since then.
    pub fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}
