//! Drills: how far a test alarm came by each of a user's channels.

use utoipa::ToSchema;

use crate::domain::words::words;

words! {
    /// The way of a drill by one channel.
    #[derive(ToSchema)]
    pub enum DrillReach {
        /// The other side took the message. Only a person can say that it was heard.
        Accepted = "accepted",
        /// Not taken; another attempt may follow.
        Failed = "failed",
        /// On its way.
        Sending = "sending",
        /// The rules send it later, unless the user acknowledges before.
        Later = "later",
        /// The rules do not name the channel, or it is disabled or gone.
        Unused = "unused",
    }
}

/// The newest message of a drill by one channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrilledMessage {
    pub is_accepted: bool,
    /// True while an attempt is due.
    pub is_queued: bool,
    /// Attempts that failed.
    pub attempts: i32,
}

impl DrillReach {
    /// The reach of a channel by its newest message, and by its time in the rules: seconds after the alarm.
    pub fn of(message: Option<DrilledMessage>, after_seconds: Option<u32>) -> Self {
        match (message, after_seconds) {
            (Some(DrilledMessage { is_accepted: true, .. }), _) => Self::Accepted,
            (Some(DrilledMessage { is_queued: true, attempts: 0, .. }), _) => Self::Sending,
            (Some(_), _) => Self::Failed,
            (None, Some(0)) => Self::Sending,
            (None, Some(_)) => Self::Later,
            (None, None) => Self::Unused,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_says_more_than_the_rules() {
        let message = |is_accepted, is_queued, attempts| Some(DrilledMessage { is_accepted, is_queued, attempts });
        for (message, step, reach) in [
            (None, Some(0), DrillReach::Sending),
            (None, Some(2), DrillReach::Later),
            (None, None, DrillReach::Unused),
            (message(true, false, 0), None, DrillReach::Accepted),
            (message(true, false, 3), Some(0), DrillReach::Accepted),
            (message(false, true, 0), Some(1), DrillReach::Sending),
            (message(false, true, 1), Some(0), DrillReach::Failed),
            (message(false, false, 1), Some(0), DrillReach::Failed),
        ] {
            assert_eq!(DrillReach::of(message, step), reach, "{message:?} {step:?}");
        }
    }
}
