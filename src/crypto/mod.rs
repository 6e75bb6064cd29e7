//! Sealing, signing and randomness, all of it by ring. Keys come in as arguments.

use std::sync::Once;

pub mod digest;
pub mod keys;
pub mod random;
pub mod relay_token;
pub mod sealer;
pub mod session_cookie;

/// Makes ring the process's cryptography for TLS and JWT. TLS clients and JWT code panic if it was not called, so
/// call it first; further calls do nothing.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Both fail only if the process has installed one before; then that one is used.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let _ = relay_token::JWT_PROVIDER.install_default();
    });
}
