//! Sealing, signing and randomness, all of it by ring. Keys come in as arguments.

pub mod account_mark;
pub mod ack_link;
pub mod digest;
pub mod interaction_signature;
pub mod invite_token;
pub mod keys;
mod provider;
pub mod random;
pub mod relay_token;
pub mod sealer;
pub mod session_cookie;
pub mod signed_webhook;
pub mod vapid;
pub mod web_push;
pub mod webhook_signature;

pub use self::provider::install;
