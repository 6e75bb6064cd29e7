//! The game's protobuf messages, generated from `companion.proto`.
//!
//! Every field is optional at the edge: a missing field reads as its default, an unknown field or enum number is
//! kept out of the way, and neither ends a link. Required fields are always written, as real clients demand them.

#![allow(missing_docs, clippy::all)]

include!(concat!(env!("OUT_DIR"), "/companion.rs"));
