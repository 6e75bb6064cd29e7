//! Certificates that are trusted for TLS to neighbours.

use std::{
    io,
    path::{Path, PathBuf},
};

use rustls::pki_types::{
    CertificateDer,
    pem::{Error, PemObject as _},
};

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
        match certificates(&path) {
            Ok(1..) => {}
            Ok(0) => check.fault(
                "EXTRA_CA_FILE",
                format!("names {}, which has no certificate: it needs lines BEGIN CERTIFICATE (PEM)", path.display()),
            ),
            Err(error) => check.fault("EXTRA_CA_FILE", format!("cannot be read: {error}")),
        }
        Some(path)
    }
}

/// Number of certificates in a PEM file.
fn certificates(path: &Path) -> io::Result<usize> {
    let failed = |error: Error| match error {
        Error::Io(error) => error,
        error => io::Error::other(error.to_string()),
    };
    let mut count = 0;
    for certificate in CertificateDer::pem_file_iter(path).map_err(failed)? {
        certificate.map_err(failed)?;
        count += 1;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_of_certificates_has_one_at_least() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ca.pem");
        let faults = || {
            let mut check = Check::default();
            TrustSettings { extra_ca_file: Some(path.clone()) }.check(&mut check);
            check.faults
        };
        assert!(faults()[0].starts_with("EXTRA_CA_FILE cannot be read: No such file"), "{:?}", faults());
        let key = "-----BEGIN PRIVATE KEY-----\nAAEC\n-----END PRIVATE KEY-----\n";
        for none in ["", "a certificate\n", key] {
            fs::write(&path, none).unwrap();
            assert!(faults()[0].contains("which has no certificate"), "{none}: {:?}", faults());
        }
        let certificate = "-----BEGIN CERTIFICATE-----\nAAEC\n-----END CERTIFICATE-----\n";
        fs::write(&path, certificate.replace("-----END", "----END")).unwrap();
        assert!(faults()[0].starts_with("EXTRA_CA_FILE cannot be read"), "{:?}", faults());
        fs::write(&path, format!("{key}{certificate}")).unwrap();
        assert_eq!(faults(), [""; 0]);
    }
}
