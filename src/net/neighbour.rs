//! The neighbours as metrics name them, and whether they answer.

use metrics::counter;

const REQUESTS: &str = "companion_neighbour_requests_total";

/// A neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Neighbour {
    SignIn,
    Profiles,
    Payments,
    PlayerStats,
    Chat,
    /// The storage of images, also where it is a directory.
    Images,
}

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    Answered,
    /// Our key or token is not taken.
    Refused,
    /// No answer, or a fault of the neighbour.
    Failed,
}

impl Neighbour {
    const ALL: [Self; 6] = [Self::SignIn, Self::Profiles, Self::Payments, Self::PlayerStats, Self::Chat, Self::Images];

    fn as_str(self) -> &'static str {
        match self {
            Self::SignIn => "sign_in",
            Self::Profiles => "profiles",
            Self::Payments => "payments",
            Self::PlayerStats => "player_stats",
            Self::Chat => "chat",
            Self::Images => "images",
        }
    }

    /// Counts a request to it.
    pub fn count(self, outcome: RequestOutcome) {
        counter!(REQUESTS, "neighbour" => self.as_str(), "outcome" => outcome.as_str()).increment(1);
    }
}

impl RequestOutcome {
    const ALL: [Self; 3] = [Self::Answered, Self::Refused, Self::Failed];

    fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }

    /// The outcome of an answer with this status.
    pub fn of_status(status: u16) -> Self {
        match status {
            401 | 403 => Self::Refused,
            500.. => Self::Failed,
            _ => Self::Answered,
        }
    }
}

/// Counts each neighbour from 0: a rate needs the 0 before the first request.
pub fn describe() {
    metrics::describe_counter!(REQUESTS, "Requests to neighbours, by whether they answered and took our key.");
    for neighbour in Neighbour::ALL {
        for outcome in RequestOutcome::ALL {
            counter!(REQUESTS, "neighbour" => neighbour.as_str(), "outcome" => outcome.as_str()).absolute(0);
        }
    }
}
