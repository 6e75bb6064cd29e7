//! A certificate authority that only its own simulator uses, and TLS with a certificate of it.

use std::{
    fs,
    io::{self, Write as _},
    net::SocketAddr,
    os::unix::fs::DirBuilderExt as _,
    path::Path,
    sync::Arc,
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use rustls::{
    ServerConfig,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use tempfile::NamedTempFile;
use tokio_rustls::TlsAcceptor;

/// The certificate is for loopback and for this name, which other clients insist on.
const HOST: &str = "mtalk.google.com";
/// Where a directory keeps the key.
const KEY_FILE: &str = "push-ca.key";

/// The authority's key. Its certificate says nothing else that clients look at: a client that trusts one made of this
/// key trusts all of them.
pub struct CertificateAuthority(KeyPair);

impl CertificateAuthority {
    /// A new one, to be thrown away.
    pub fn fresh() -> io::Result<Self> {
        Ok(Self(KeyPair::generate().map_err(io::Error::other)?))
    }

    /// The one that this directory keeps, readable by its user only; made at first, with the directory. Blocks.
    pub fn kept(directory: &Path) -> io::Result<Self> {
        let path = directory.join(KEY_FILE);
        match fs::read_to_string(&path) {
            Ok(pem) => Ok(Self(KeyPair::from_pem(&pem).map_err(io::Error::other)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let authority = Self::fresh()?;
                fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
                // Temporary files are for their user only, and one that is half written never has the name.
                let mut file = NamedTempFile::new_in(directory)?;
                file.write_all(authority.0.serialize_pem().as_bytes())?;
                file.persist_noclobber(path)?;
                Ok(authority)
            }
            Err(error) => Err(error),
        }
    }

    /// Its certificate in PEM, which clients must trust, and TLS for a service at this address.
    pub fn certificates(self, listen: SocketAddr) -> io::Result<(String, TlsAcceptor)> {
        let mut authority = CertificateParams::default();
        authority.distinguished_name.push(DnType::CommonName, "companion simulator, not to be trusted");
        authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let authority = CertifiedIssuer::self_signed(authority, self.0).map_err(io::Error::other)?;

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
}
