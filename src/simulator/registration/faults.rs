//! Faults of the registration's neighbours.

use chrono::TimeDelta;
use serde::Deserialize;

/// Faults of the sites; none by default. Also the body of `POST /faults`, as JSON in camelCase.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct RegistrationFaults {
    /// Number of further requests that are answered with 503.
    pub unavailable: u32,
    /// This step is never answered: `check_in`, `installation`, `push_address`, `expo_token` or `game_registration`.
    pub hangs: Option<String>,
    /// This step, named as in `hangs`, is answered once this fault is gone.
    pub late: Option<String>,
    /// The check-in answers without an identity.
    pub check_in_without_ids: bool,
    /// Installations are refused with 403 for this reason.
    pub installation_refused: Option<String>,
    /// Number of further registrations at Google that come too early for the fresh device.
    pub not_yet: u32,
    /// Registrations at Google fail with this word.
    pub address_refused: Option<String>,
    /// Expo answers 400 with this code.
    pub expo_refused: Option<String>,
    /// The game answers a registration with this status.
    pub game_status: Option<u16>,
    /// The game registers a device, and its answer is lost.
    pub answer_lost: bool,
    /// Life of the game's tokens instead of 14 days, seconds.
    pub token_seconds: Option<i64>,
    /// Every login ends in the page that only the phone app understands.
    pub app_page_only: bool,
}

impl RegistrationFaults {
    /// Time after which a token of the game's account ends.
    pub fn token_life(&self) -> TimeDelta {
        self.token_seconds.map_or(TimeDelta::days(14), TimeDelta::seconds)
    }
}
