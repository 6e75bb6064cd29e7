//! Settings of operators for a running service: who may read its metrics, how it stops, and where its pages are.

use std::{
    fs::File,
    path::{Path, PathBuf},
    time::Duration,
};

use secrecy::{ExposeSecret as _, SecretString};

use crate::config::check::{Check, given_secret};

/// Characters of a token, at the least.
const SHORTEST_TOKEN: usize = 16;
/// Seconds that draining may take.
const LONGEST_DRAIN: u64 = 600;

/// Settings of operators, as given.
#[derive(Clone, Debug, clap::Args)]
pub struct OperationSettings {
    /// Token with which /metrics may be read from anywhere (Authorization: Bearer); without one it may be read from this machine only, and in production not at all
    #[arg(long, env, hide_env_values = true)]
    pub metrics_token: Option<SecretString>,
    /// Seconds over which the open sockets are closed when the service stops; fewer if they are few
    #[arg(long, env, default_value = "10")]
    pub drain_seconds: String,
    /// Directory from which the bundled pages are read at each request, for those who write them [default: as they were built]
    #[arg(long, env)]
    pub web_dir: Option<PathBuf>,
}

/// Settings of operators.
#[derive(Clone, Debug)]
pub struct Operation {
    /// `None`: metrics are for this machine only.
    pub metrics_token: Option<SecretString>,
    /// The longest time over which open sockets are closed at the end.
    pub drain: Duration,
    /// `None`: the pages as they were built.
    pub web_dir: Option<PathBuf>,
}

impl OperationSettings {
    pub(super) fn check(self, check: &mut Check) -> Option<Operation> {
        let metrics_token = given_secret(self.metrics_token);
        if check.production && metrics_token.is_none() {
            check.warning("METRICS_TOKEN", "is missing: /metrics answers 404, and no alert can ring");
        }
        // The token comes in a header.
        let is_usable = |token: &SecretString| {
            let token = token.expose_secret();
            token.len() >= SHORTEST_TOKEN && token.bytes().all(|byte| byte.is_ascii_graphic())
        };
        if metrics_token.as_ref().is_some_and(|token| !is_usable(token)) {
            check.fault("METRICS_TOKEN", format!("has fewer than {SHORTEST_TOKEN} characters, or blanks"));
        }
        let seconds: Option<u64> = check.parse("DRAIN_SECONDS", &self.drain_seconds, "a number of seconds");
        if seconds.is_some_and(|seconds| seconds > LONGEST_DRAIN) {
            check.fault("DRAIN_SECONDS", format!("is more than {LONGEST_DRAIN}"));
        }
        let web_dir = self.web_dir.filter(|path| !path.as_os_str().is_empty());
        if web_dir.as_ref().is_some_and(|path| !is_readable(&path.join("dashboard.html"))) {
            check.fault("WEB_DIR", "has no dashboard.html that can be read");
        }
        Some(Operation { metrics_token, drain: Duration::from_secs(seconds?), web_dir })
    }
}

/// A pipe would be waited for.
fn is_readable(path: &Path) -> bool {
    path.is_file() && File::open(path).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(token: &str, seconds: &str) -> Vec<String> {
        let settings =
            OperationSettings { metrics_token: Some(token.into()), drain_seconds: seconds.into(), web_dir: None };
        let mut check = Check::default();
        settings.check(&mut check);
        check.faults
    }

    #[test]
    fn a_token_is_long_and_a_drain_is_not() {
        assert_eq!(faults("", "0"), [""; 0]);
        assert_eq!(faults("0123456789abcdef", " 600 "), [""; 0]);
        assert_eq!(
            faults("0123456789 abcdef", "601"),
            ["METRICS_TOKEN has fewer than 16 characters, or blanks", "DRAIN_SECONDS is more than 600"]
        );
        assert_eq!(faults("short", "soon").len(), 2);
    }
}
