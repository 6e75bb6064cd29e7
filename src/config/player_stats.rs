//! The player-statistics service.

use std::time::Duration;

use secrecy::SecretString;

use crate::config::{
    base_url::BaseUrl,
    check::{Check, HTTP, given, given_secret},
};

/// The player-statistics service, as given.
#[derive(Clone, Debug, clap::Args)]
pub struct PlayerStatsSettings {
    /// Base URL of the player-statistics service, for example `https://api.battlemetrics.com`; without it no player is
    /// tracked
    #[arg(long, env)]
    pub player_stats_url: Option<String>,
    /// Token of the player-statistics service; without one it answers fewer requests
    #[arg(long, env, hide_env_values = true)]
    pub player_stats_token: Option<SecretString>,
    /// Requests to the player-statistics service in a day, shared between all users
    #[arg(long, env, default_value = "40000")]
    pub player_stats_daily_requests: String,
    /// Seconds between two looks at who is online on a game server
    #[arg(long, env, default_value = "60")]
    pub player_stats_poll_seconds: String,
}

/// Where the player-statistics service is, and how much it may be asked.
#[derive(Clone, Debug)]
pub struct PlayerStats {
    pub base_url: BaseUrl,
    pub token: Option<SecretString>,
    /// In a day, for all users together.
    pub daily_requests: u32,
    /// Between two looks at who is online on a game server: 1 s to 5 min, so that a few missed looks are not taken for a
    /// time in which none was made.
    pub poll_every: Duration,
}

impl PlayerStatsSettings {
    /// `Some(None)`: no service is configured.
    pub(super) fn check(self, check: &mut Check) -> Option<Option<PlayerStats>> {
        let token = given_secret(self.player_stats_token);
        let requests = &self.player_stats_daily_requests;
        let daily_requests = check.parse("PLAYER_STATS_DAILY_REQUESTS", requests, "a number of requests");
        let seconds: Option<u64> =
            check.parse("PLAYER_STATS_POLL_SECONDS", &self.player_stats_poll_seconds, "a number of seconds");
        let in_range = seconds.filter(|seconds| (1..=300).contains(seconds));
        if seconds.is_some() && in_range.is_none() {
            check.fault("PLAYER_STATS_POLL_SECONDS", "is not between 1 and 300");
        }
        let Some(url) = given(self.player_stats_url) else {
            if token.is_some() {
                check.fault("PLAYER_STATS_TOKEN", "is set without PLAYER_STATS_URL");
            }
            return Some(None);
        };
        let base_url = check.url("PLAYER_STATS_URL", &url, HTTP)?;
        let poll_every = Duration::from_secs(in_range?);
        Some(Some(PlayerStats { base_url, token, daily_requests: daily_requests?, poll_every }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(url: &str, token: Option<&str>, requests: &str, seconds: &str) -> (Option<bool>, Vec<String>) {
        let settings = PlayerStatsSettings {
            player_stats_url: Some(url.into()),
            player_stats_token: token.map(Into::into),
            player_stats_daily_requests: requests.into(),
            player_stats_poll_seconds: seconds.into(),
        };
        let mut check = Check::default();
        let checked = settings.check(&mut check).map(|checked| checked.is_some());
        (checked, check.faults)
    }

    #[test]
    fn without_a_url_there_is_no_service() {
        assert_eq!(settings(" ", None, "1", "60"), (Some(false), vec![]));
        assert_eq!(settings("https://stats.example", Some("t"), "1", "60"), (Some(true), vec![]));
        let (_, faults) = settings("", Some("hunter2"), "1", "60");
        assert_eq!(faults, ["PLAYER_STATS_TOKEN is set without PLAYER_STATS_URL"]);
    }

    #[test]
    fn numbers_are_checked() {
        for (requests, seconds, variable) in [
            ("-1", "60", "PLAYER_STATS_DAILY_REQUESTS"),
            ("many", "60", "PLAYER_STATS_DAILY_REQUESTS"),
            ("1", "0", "PLAYER_STATS_POLL_SECONDS"),
            ("1", "301", "PLAYER_STATS_POLL_SECONDS"),
            ("1", "", "PLAYER_STATS_POLL_SECONDS"),
        ] {
            let (checked, faults) = settings("https://stats.example", None, requests, seconds);
            assert_eq!(checked, None);
            assert!(matches!(&faults[..], [fault] if fault.starts_with(variable)), "{faults:?}");
        }
        assert!(settings("ftp://stats.example", None, "1", "60").1[0].starts_with("PLAYER_STATS_URL"));
    }
}
