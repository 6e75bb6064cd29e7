//! Certificates that are trusted for TLS to neighbours.

use std::{fs, path::PathBuf};

use crate::config::check::Check;

/// Certificates that are trusted for TLS to neighbours, as given.
#[derive(Clone, Debug, clap::Args)]
pub struct TrustSettings {
    /// PEM file with further certificates that outgoing TLS trusts
    #[arg(long, env)]
    pub extra_ca_file: Option<PathBuf>,
}

impl TrustSettings {
    /// The file, if there is one.
    pub(super) fn check(self, check: &mut Check) -> Option<PathBuf> {
        let path = self.extra_ca_file.filter(|path| !path.as_os_str().is_empty())?;
        if let Err(error) = fs::File::open(&path) {
            check.fault("EXTRA_CA_FILE", format!("cannot be read: {error}"));
        }
        Some(path)
    }
}
