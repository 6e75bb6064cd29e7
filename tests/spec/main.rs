//! The promises of the API, kept by the real server on a free port, seen from outside.

mod command_line;
mod credentials;
mod edge;
mod harness;
mod openapi;
mod paired_servers;
mod pairing;
mod rotation;
mod session;
mod sign_in;
