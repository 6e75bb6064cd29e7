//! The registration of a device for the game's pushes of a player: its steps, what the outside may answer to each, and
//! when it is renewed.

use chrono::TimeDelta;

use crate::domain::{time::Timestamp, words::words};

/// Time before the end of a registration at which it is renewed, and how far that moves by chance: many users register
/// after one announcement.
const RENEW_BEFORE: TimeDelta = TimeDelta::days(4);
const RENEW_SPREAD: TimeDelta = TimeDelta::hours(12);
/// Shortest time between two renewals.
pub const SHORTEST_PAUSE: TimeDelta = TimeDelta::hours(1);

words! {
    /// A step, in the order in which they are made.
    #[derive(PartialOrd, Ord)]
    pub enum RegistrationStep {
        /// The player signs in at the game's site.
        SignIn = "sign_in",
        /// Google gives the device its identity.
        CheckIn = "google_check_in",
        /// Google admits an installation of the game's app.
        Installation = "google_installation",
        /// Google gives the device its address for pushes.
        PushAddress = "google_push_address",
        /// Expo, which the game sends through, gives that address a name of its own.
        ExpoToken = "expo_token",
        /// The game sends the player's pushes to that name from now on.
        GameRegistration = "game_registration",
        /// The service receives them.
        Credential = "credential",
    }
}

/// A reason for which a step failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepFault {
    GoogleUnavailable,
    CheckInUnreadable,
    AppBlocked,
    ServiceBlocked,
    InstallationRefused,
    PhoneRegistration,
    PushAddressRefused,
    ExpoUnavailable,
    ExpoRefused,
    GameUnavailable,
    LoginNotTaken,
    GameRefused,
    CredentialSealed,
    NotStored,
}

/// The word of a fault, a sentence about it, and advice.
type FaultTexts = (StepFault, &'static str, &'static str, &'static str);

/// Google's word for a device that may have no further address.
const TOO_MANY_REGISTRATIONS: &str = "TOO_MANY_REGISTRATIONS";

const TRY_LATER: &str = "Try again in some minutes: what has succeeded is not repeated.";
/// For those that are asked over the network.
const TRY_LATER_OUTSIDE: &str = "Try again in some minutes: what has succeeded is not repeated. If it stays, something is in \
                                 the way there: a firewall (port 443 has to be open), or a proxy or virus scanner that opens \
                                 TLS, whose certificate EXTRA_CA_FILE names.";
const NO_RETRY: &str = "Trying again does not help: this way needs an update of the service. Upload the file of another \
                        registration tool meanwhile.";

const FAULTS: [FaultTexts; 14] = [
    (StepFault::GoogleUnavailable, "google_unavailable", "Google does not answer.", TRY_LATER_OUTSIDE),
    (
        StepFault::CheckInUnreadable,
        "google_check_in_unreadable",
        "Google answered the check-in without an identity for the device.",
        TRY_LATER,
    ),
    (
        StepFault::AppBlocked,
        "google_app_blocked",
        "Google does not take this service for the game's app: its package, certificate or key has changed.",
        "The operator compares REGISTRATION_PACKAGE, REGISTRATION_CERTIFICATE and REGISTRATION_API_KEY with the game's \
         present app.",
    ),
    (
        StepFault::ServiceBlocked,
        "google_service_blocked",
        "The owner of the game's project at Google has closed this way of registering.",
        NO_RETRY,
    ),
    (
        StepFault::InstallationRefused,
        "google_installation_refused",
        "Google does not admit the installation.",
        "The operator compares REGISTRATION_API_KEY and the other constants with the game's present app.",
    ),
    (
        StepFault::PhoneRegistration,
        "phone_registration_error",
        "Google has not recognised the new device for ten minutes (PHONE_REGISTRATION_ERROR).",
        "This passes by itself in most cases: try again in an hour. The identity of the device stays.",
    ),
    (
        StepFault::PushAddressRefused,
        "google_push_address_refused",
        "Google gives the device no address for pushes.",
        "Try again in an hour. If it stays, the constants of the game's app have changed, and the operator compares them.",
    ),
    (
        StepFault::ExpoUnavailable,
        "expo_unavailable",
        "Expo, through which the game sends, does not answer.",
        TRY_LATER_OUTSIDE,
    ),
    (
        StepFault::ExpoRefused,
        "expo_refused",
        "Expo, through which the game sends, does not take the project or the address.",
        "Trying again does not help: the operator compares REGISTRATION_EXPO_PROJECT with the game's present app.",
    ),
    (
        StepFault::GameUnavailable,
        "game_unavailable",
        "The game's companion service does not answer.",
        TRY_LATER_OUTSIDE,
    ),
    (
        StepFault::LoginNotTaken,
        "game_login_refused",
        "The game's companion service does not take the login: it has ended, or was withdrawn.",
        "Sign in once more. An account that is banned from the platform's community cannot sign in on web pages at all.",
    ),
    (
        StepFault::GameRefused,
        "game_refused",
        "The game's companion service does not take the registration.",
        "Try again in an hour. If it stays, the game has changed this way, and the service needs an update.",
    ),
    (
        StepFault::CredentialSealed,
        "awaits_key",
        "The credential that is stored cannot be read now, and is not replaced.",
        "The operator is repairing this; there is nothing for you to do.",
    ),
    (StepFault::NotStored, "unavailable", "The service could not store its result.", TRY_LATER),
];

impl StepFault {
    fn texts(self) -> &'static FaultTexts {
        FAULTS.iter().find(|(fault, ..)| *fault == self).expect("every fault has its texts")
    }

    /// The stored and shown word.
    pub fn code(self) -> &'static str {
        self.texts().1
    }

    /// A sentence for the user.
    pub fn sentence(self) -> &'static str {
        self.texts().2
    }

    /// Advice for the user.
    pub fn advice(self) -> &'static str {
        self.texts().3
    }

    /// The fault of a stored word; an unknown one was stored by a newer version.
    pub fn of(code: &str) -> Self {
        FAULTS.iter().find(|(_, known, ..)| *known == code).map_or(Self::NotStored, |(fault, ..)| *fault)
    }

    fn is_transient(self) -> bool {
        match self {
            Self::GoogleUnavailable
            | Self::CheckInUnreadable
            | Self::PhoneRegistration
            | Self::PushAddressRefused
            | Self::ExpoUnavailable
            | Self::GameUnavailable
            | Self::GameRefused
            | Self::CredentialSealed
            | Self::NotStored => true,
            Self::AppBlocked
            | Self::ServiceBlocked
            | Self::InstallationRefused
            | Self::ExpoRefused
            | Self::LoginNotTaken => false,
        }
    }
}

/// Sentence for a player whose pushes are received.
pub const PAIR_NOW: &str = "Now press \"Pair with Server\" in the game. If nothing comes here, press it once more: where the \
                            phone app is registered for the account, too, a push may miss one of the devices.";

/// A step that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{}", .fault.sentence(), .answer.as_ref().map(|answer| format!(" The answer was {answer}.")).unwrap_or_default())]
pub struct StepFailure {
    pub step: RegistrationStep,
    pub fault: StepFault,
    /// A word or status of the other side; letters, digits and underscores only.
    pub answer: Option<String>,
}

impl StepFailure {
    /// True if another attempt without any change may succeed.
    pub fn is_transient(&self) -> bool {
        self.fault.is_transient() && self.answer.as_deref() != Some(TOO_MANY_REGISTRATIONS)
    }
}

/// When a registration that ends then is renewed; `chance` is any byte. Never within an hour of the `last` time.
pub fn renew_at(expires_at: Timestamp, chance: u8, last: Timestamp) -> Timestamp {
    let spread = RENEW_SPREAD.num_seconds() * i64::from(chance) / 255;
    let due = expires_at - RENEW_BEFORE - RENEW_SPREAD / 2 + TimeDelta::seconds(spread);
    due.max(last + SHORTEST_PAUSE)
}

/// Pause after this many renewals in a row that failed: a minute, twice as long each time, an hour at most.
pub fn pause_after(failures: u32) -> TimeDelta {
    TimeDelta::minutes(1 << failures.min(6)).min(TimeDelta::hours(1))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_fault_has_its_own_code_sentence_and_is_read_back() {
        let codes: HashSet<_> = FAULTS.iter().map(|(_, code, ..)| code).collect();
        let sentences: HashSet<_> = FAULTS.iter().map(|(_, _, sentence, _)| sentence).collect();
        assert_eq!((codes.len(), sentences.len()), (FAULTS.len(), FAULTS.len()));
        for (fault, code, _, advice) in FAULTS {
            assert_eq!(StepFault::of(code), fault);
            assert!(advice.ends_with('.') && fault.sentence().ends_with('.'), "{code}");
        }
        assert_eq!(StepFault::of("of a newer version"), StepFault::NotStored);
        for step in RegistrationStep::ALL {
            assert_eq!(RegistrationStep::parse(step.word()), Some(step));
        }
    }

    #[test]
    fn a_device_with_too_many_registrations_is_not_tried_again() {
        let is_transient = |fault, answer: Option<&str>| {
            let answer = answer.map(str::to_owned);
            StepFailure { step: RegistrationStep::PushAddress, fault, answer }.is_transient()
        };
        assert!(
            is_transient(StepFault::PushAddressRefused, Some("status_500"))
                && is_transient(StepFault::PhoneRegistration, None)
        );
        assert!(!is_transient(StepFault::PushAddressRefused, Some(TOO_MANY_REGISTRATIONS)));
        assert!(!is_transient(StepFault::LoginNotTaken, Some("status_403")));
    }

    #[test]
    fn a_renewal_is_four_days_before_the_end_give_or_take_six_hours() {
        let end = Timestamp::from_timestamp(1_800_000_000, 0).unwrap();
        let begin = end - TimeDelta::days(14);
        assert_eq!(end - renew_at(end, 0, begin), TimeDelta::hours(102));
        assert_eq!(end - renew_at(end, 255, begin), TimeDelta::hours(90));
        assert_eq!(renew_at(end, 0, end - TimeDelta::days(2)), end - TimeDelta::hours(47));
        let pauses: Vec<i64> = (0..9).map(|failures| pause_after(failures).num_minutes()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    }
}
