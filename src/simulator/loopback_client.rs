//! The client with which a simulated neighbour calls the service, which is on this machine and without TLS.

use std::{io, sync::Arc, time::Duration};

use rustls::{ClientConfig, RootCertStore};

/// A client whose requests have this long.
pub fn loopback_client(deadline: Duration) -> io::Result<reqwest::Client> {
    let tls = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let client = reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(reqwest::redirect::Policy::none())
        .timeout(deadline);
    client.build().map_err(io::Error::other)
}
