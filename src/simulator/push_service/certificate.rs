//! A throw-away certificate authority, and TLS with a certificate of it.

use std::{io, net::SocketAddr, sync::Arc};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use rustls::{
    ServerConfig,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use tokio_rustls::TlsAcceptor;

/// The certificate is for loopback and for this name, which other clients insist on.
const HOST: &str = "mtalk.google.com";

/// The authority in PEM, which clients must trust, and TLS for a service at this address.
pub fn certificates(listen: SocketAddr) -> io::Result<(String, TlsAcceptor)> {
    let mut authority = CertificateParams::default();
    authority.distinguished_name.push(DnType::CommonName, "companion simulator, not to be trusted");
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().map_err(io::Error::other)?);
    let authority = authority.map_err(io::Error::other)?;

    let names = [HOST, "localhost", "127.0.0.1", "::1", &listen.ip().to_string()].map(str::to_owned);
    let mut params = CertificateParams::new(names).map_err(io::Error::other)?;
    params.distinguished_name.push(DnType::CommonName, HOST);
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate().map_err(io::Error::other)?;
    let certificate = params.signed_by(&key, &authority).map_err(io::Error::other)?;

    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key))
        .map_err(io::Error::other)?;
    Ok((authority.pem(), TlsAcceptor::from(Arc::new(config))))
}
