//! The account of a user: sign-in, sessions, credentials, tokens and personal data.

pub mod api_tokens;
pub mod channels;
pub mod credentials;
pub mod ended_credentials;
pub mod me;
pub mod news;
pub mod pairing;
pub mod personal_data;
pub mod push_bundle;
pub mod registrations;
pub mod sessions;
pub mod sign_in;
