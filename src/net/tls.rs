//! Trust in the peers to which we connect.

use std::{io, path::Path, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};

/// Settings of outgoing TLS: it trusts the Mozilla roots, and the certificates of `extra_ca` (PEM) when given.
pub fn tls_config(extra_ca: Option<&Path>) -> io::Result<ClientConfig> {
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    if let Some(path) = extra_ca {
        let invalid = |e: &dyn std::fmt::Display| {
            io::Error::new(io::ErrorKind::InvalidData, format!("EXTRA_CA_FILE {}: {e}", path.display()))
        };
        for certificate in CertificateDer::pem_file_iter(path).map_err(|e| invalid(&e))? {
            roots.add(certificate.map_err(|e| invalid(&e))?).map_err(|e| invalid(&e))?;
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring supports the default protocol versions")
        .with_root_certificates(roots)
        .with_no_client_auth())
}
