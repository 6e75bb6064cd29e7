//! The promises of the API and of the relay, kept by the real server on a free port, seen from outside.

#![allow(clippy::disallowed_methods, reason = "a test is not part of a simulated run")]

mod admin;
mod authorisation;
mod billing;
mod cameras;
mod chat;
mod chat_bot;
mod command_line;
mod credentials;
mod crowd;
mod device_places;
mod devices;
mod edge;
mod guests;
mod harness;
mod house;
mod intel;
mod limits_at_once;
mod maps;
mod me;
mod openapi;
mod overlays;
mod paired_servers;
mod pairing;
mod push;
mod relay;
mod retention;
mod rotation;
mod session;
mod sign_in;
mod start;
mod tracking;
