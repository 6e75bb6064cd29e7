//! An alarm in the team's chat: how far its line came.

use chrono::TimeDelta;
use utoipa::ToSchema;

use crate::domain::{channels::user_channel::ChannelFault, time::Timestamp, words::words};

/// A line that has waited longer is not said: a team's queue has none for more than twenty seconds, and none of an older alarm
/// waits for its team, or for the next process.
const SAID_WITHIN: TimeDelta = TimeDelta::seconds(60);

words! {
    /// The way of an alarm's line into the team's chat.
    #[derive(ToSchema)]
    pub enum SpokenState {
        /// Waits for its turn.
        Queued = "queued",
        /// The game server took it.
        Accepted = "accepted",
        /// Not said.
        Failed = "failed",
        /// Another user of the team has just announced the same.
        Superseded = "superseded",
    }
}

words! {
    /// Reason for a line that was not said.
    #[derive(ToSchema)]
    pub enum SpokenFault {
        /// No link was in a team.
        NoTeam = "no_team",
        /// The game server took no line in time, or the link was down.
        NotTaken = "not_taken",
    }
}

/// A line, as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpokenLine {
    pub state: SpokenState,
    pub fault: Option<SpokenFault>,
    pub queued_at: Timestamp,
    pub ended_at: Option<Timestamp>,
}

impl SpokenLine {
    /// One that waits from then on.
    pub fn queued(at: Timestamp) -> Self {
        Self { state: SpokenState::Queued, fault: None, queued_at: at, ended_at: None }
    }

    /// As it is now: a line that waits for too long was never said.
    pub fn at(self, now: Timestamp) -> Self {
        match self.state {
            SpokenState::Queued if now - self.queued_at >= SAID_WITHIN => {
                Self { state: SpokenState::Failed, fault: Some(SpokenFault::NotTaken), ..self }
            }
            _ => self,
        }
    }

    /// The outcome for a channel that asked for it; `None`: the line still waits. What another user of the team has just
    /// announced was said.
    pub fn outcome(self) -> Option<Result<(), ChannelFault>> {
        match (self.state, self.fault) {
            (SpokenState::Queued, _) => None,
            (SpokenState::Accepted | SpokenState::Superseded, _) => Some(Ok(())),
            (SpokenState::Failed, Some(SpokenFault::NoTeam)) => Some(Err(ChannelFault::NoLink)),
            (SpokenState::Failed, _) => Some(Err(ChannelFault::Unavailable)),
        }
    }
}

/// True if a process that starts, or that knows the team from now on, says the line of an alarm of this time: it is fresh, and
/// the process before has not stored an end of its line. It may have said it all the same.
pub fn is_unsaid(rang_at: Timestamp, line: Option<SpokenLine>, now: Timestamp) -> bool {
    (now - rang_at).abs() < SAID_WITHIN && line.is_none_or(|line| line.ended_at.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_says_what_the_process_before_left_unsaid_for_a_minute() {
        let rang_at = Timestamp::UNIX_EPOCH;
        let later = |seconds| rang_at + TimeDelta::seconds(seconds);
        let queued = SpokenLine { state: SpokenState::Queued, fault: None, queued_at: rang_at, ended_at: None };
        let said = SpokenLine { state: SpokenState::Accepted, ended_at: Some(later(2)), ..queued };
        assert!(is_unsaid(rang_at, None, later(1)) && is_unsaid(rang_at, Some(queued), later(59)));
        assert!(!is_unsaid(rang_at, Some(said), later(3)) && !is_unsaid(rang_at, Some(queued), later(60)));
        // The clock was set back.
        assert!(!is_unsaid(rang_at, None, later(-3_600)));
    }

    #[test]
    fn a_channel_is_answered_when_its_line_has_ended() {
        let of = |state, fault| SpokenLine { state, fault, queued_at: Timestamp::UNIX_EPOCH, ended_at: None }.outcome();
        assert_eq!(of(SpokenState::Queued, None), None);
        assert_eq!(of(SpokenState::Accepted, None), Some(Ok(())));
        assert_eq!(of(SpokenState::Superseded, None), Some(Ok(())));
        assert_eq!(of(SpokenState::Failed, Some(SpokenFault::NoTeam)), Some(Err(ChannelFault::NoLink)));
        assert_eq!(of(SpokenState::Failed, Some(SpokenFault::NotTaken)), Some(Err(ChannelFault::Unavailable)));
    }

    #[test]
    fn a_line_that_was_left_in_the_queue_by_a_crash_has_failed() {
        let queued_at = Timestamp::UNIX_EPOCH;
        let line = SpokenLine { state: SpokenState::Queued, fault: None, queued_at, ended_at: None };
        assert_eq!(line.at(queued_at + TimeDelta::seconds(59)), line);
        let failed = line.at(queued_at + TimeDelta::seconds(60));
        assert_eq!((failed.state, failed.fault), (SpokenState::Failed, Some(SpokenFault::NotTaken)));
        let said = SpokenLine { state: SpokenState::Accepted, ..line };
        assert_eq!(said.at(queued_at + TimeDelta::days(1)), said);
    }
}
