//! Pairing codes.

use crate::config::check::Check;

/// Pairing codes, as given.
#[derive(Clone, Debug, clap::Args)]
pub struct PairingSettings {
    /// Beginning of a pairing code, before the hyphen
    #[arg(long, env, default_value = "LINK")]
    pub pairing_code_prefix: String,
}

impl PairingSettings {
    /// The prefix in upper case.
    pub(super) fn check(self, check: &mut Check) -> Option<String> {
        let prefix = self.pairing_code_prefix.trim().to_ascii_uppercase();
        if !(1..=16).contains(&prefix.len()) || !prefix.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            check.fault("PAIRING_CODE_PREFIX", "is not 1 to 16 letters and digits");
            return None;
        }
        Some(prefix)
    }
}
