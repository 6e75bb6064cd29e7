//! The messages of Google's MCS protocol, generated from `mcs.proto`.
//!
//! Every field is optional at the edge, as with the game's messages. Two messages carry secrets, which `Debug`
//! leaves out: the login, and the content of a push (a player token).

#![allow(missing_docs, clippy::all)]

use std::fmt;

include!(concat!(env!("OUT_DIR"), "/mcs.rs"));

impl fmt::Debug for LoginRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoginRequest").field("user", &self.user).finish_non_exhaustive()
    }
}

impl fmt::Debug for AppData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AppData").field("key", &self.key).finish_non_exhaustive()
    }
}
