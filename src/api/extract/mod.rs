//! The types in a handler's signature that prove who calls and that the input is sound.

pub mod device_owner;
pub mod json;
pub mod paired_server;
pub mod relay_caller;
pub mod session_user;
