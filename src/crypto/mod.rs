//! What we seal, sign and draw at random, all of it on ring. No keys are read and no settings known here.

use std::sync::Once;

pub mod digest;
pub mod keys;
pub mod random;
pub mod relay_token;
pub mod sealer;
pub mod session_cookie;

/// Makes ring the process's cryptography for TLS and JWT. TLS clients and JWT code panic before this was called, so
/// call it first; further calls do nothing.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Both fail only when somebody else in the process was faster, which then decided.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let _ = relay_token::JWT_PROVIDER.install_default();
    });
}
