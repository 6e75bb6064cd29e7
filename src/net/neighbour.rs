//! The neighbours as metrics name them, and whether they answer.

use metrics::counter;

use crate::domain::words::words;

const REQUESTS: &str = "companion_neighbour_requests_total";

words! {
    /// A service of others that this one calls, by its word in metrics.
    pub enum Neighbour {
        SignIn = "sign_in",
        Profiles = "profiles",
        Payments = "payments",
        PlayerStats = "player_stats",
        Chat = "chat",
        /// Google's check-in, installations and push registration.
        Google = "google",
        Expo = "expo",
        /// The game's companion site.
        GameSite = "game_site",
        /// The storage of images, also where it is a directory.
        Images = "images",
        /// Everything that channels of users name.
        Channels = "channels",
    }
}

words! {
    /// The end of a request.
    pub enum RequestOutcome {
        Answered = "answered",
        /// Our key or token is not taken.
        Refused = "refused",
        /// No answer, or a fault of the neighbour.
        Failed = "failed",
    }
}

impl Neighbour {
    /// Counts a request to it.
    pub fn count(self, outcome: RequestOutcome) {
        counter!(REQUESTS, "neighbour" => self.word(), "outcome" => outcome.word()).increment(1);
    }
}

impl RequestOutcome {
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
            counter!(REQUESTS, "neighbour" => neighbour.word(), "outcome" => outcome.word()).absolute(0);
        }
    }
}
