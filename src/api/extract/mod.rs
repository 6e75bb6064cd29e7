//! The types in a handler's signature that prove who calls and that the input is sound.

pub mod json;
pub mod session_user;
