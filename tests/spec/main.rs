//! The promises of the API and of the relay, kept by the real server on a free port, seen from outside.

#![allow(clippy::disallowed_methods, reason = "a test is not part of a simulated run")]

mod admin;
mod api_tokens;
mod authorisation;
mod backups;
mod billing;
mod cameras;
mod canary;
mod chat;
mod chat_bot;
mod command_line;
mod credentials;
mod cross_site;
mod crowd;
mod device_places;
mod devices;
mod doctor;
mod edge;
mod env_example;
mod guests;
mod harness;
mod house;
mod idempotency;
mod intel;
mod limits_at_once;
mod maps;
mod me;
mod missing_key;
mod moving;
mod openapi;
mod operation;
mod overlays;
mod paired_servers;
mod pairing;
mod push;
mod refusals;
mod relay;
mod retention;
mod rotation;
mod session;
mod sign_in;
mod start;
mod storage_faults;
mod tracking;
mod upgrade;
