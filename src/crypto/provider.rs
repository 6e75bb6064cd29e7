//! ring as the process's cryptography for TLS and JWT.

use std::sync::Once;

use jsonwebtoken::{
    Algorithm, AlgorithmFamily,
    crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils},
    errors::{Error, ErrorKind},
    signature::{self, Signer, Verifier},
};
use ring::{
    hmac,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair},
};

use crate::crypto::random::system_random;

/// Makes ring the process's cryptography for TLS and JWT. TLS clients and JWT code panic if it was not called, so
/// call it first; further calls do nothing.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Both fail only if the process has installed one before; then that one is used.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let _ = JWT_PROVIDER.install_default();
    });
}

/// HS256, and signing with ES256, by ring for jsonwebtoken, which has no cryptography of its own; every other algorithm is
/// refused.
static JWT_PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |algorithm, key| match (algorithm, key.family()) {
        (Algorithm::HS256, AlgorithmFamily::Hmac) => Ok(Box::new(Hs256(hs256(key.as_bytes())))),
        (Algorithm::ES256, AlgorithmFamily::Ec) => Ok(Box::new(Es256(es256(key.as_bytes())?))),
        _ => Err(Error::from(ErrorKind::InvalidAlgorithm)),
    },
    verifier_factory: |algorithm, key| match (algorithm, key.family()) {
        (Algorithm::HS256, AlgorithmFamily::Hmac) => Ok(Box::new(Hs256(hs256(key.try_get_as_bytes()?)))),
        _ => Err(Error::from(ErrorKind::InvalidAlgorithm)),
    },
    // Used for JSON Web Keys only, which are not read here.
    key_utils: KeyUtils::new_unimplemented(),
};

struct Hs256(hmac::Key);

fn hs256(key: &[u8]) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, key)
}

struct Es256(EcdsaKeyPair);

fn es256(pkcs8: &[u8]) -> Result<EcdsaKeyPair, Error> {
    EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8, &system_random())
        .map_err(|_| ErrorKind::InvalidEcdsaKey.into())
}

impl Signer<Vec<u8>> for Es256 {
    fn try_sign(&self, message: &[u8]) -> Result<Vec<u8>, signature::Error> {
        let signed = self.0.sign(&system_random(), message);
        signed.map(|signature| signature.as_ref().to_vec()).map_err(|_| signature::Error::new())
    }
}

impl JwtSigner for Es256 {
    fn algorithm(&self) -> Algorithm {
        Algorithm::ES256
    }
}

impl Signer<Vec<u8>> for Hs256 {
    fn try_sign(&self, message: &[u8]) -> Result<Vec<u8>, signature::Error> {
        Ok(hmac::sign(&self.0, message).as_ref().to_vec())
    }
}

impl Verifier<Vec<u8>> for Hs256 {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        hmac::verify(&self.0, message, signature).map_err(|_| signature::Error::new())
    }
}

impl JwtSigner for Hs256 {
    fn algorithm(&self) -> Algorithm {
        Algorithm::HS256
    }
}

impl JwtVerifier for Hs256 {
    fn algorithm(&self) -> Algorithm {
        Algorithm::HS256
    }
}
