//! companion: the backend that players of the game *Rust* leave running, so that their base is watched while they
//! sleep.
//!
//! # The path of a request
//! A browser asks the API. [`api`]'s layers observe it, apply CORS and the origin check; [`api::routes`] finds the
//! handler, whose signature says who may call ([`api::extract`]). The handler turns the input into types of
//! [`domain`], does all its reads and writes in one trip to the database ([`db::pool::Pool`]), and answers. What goes
//! wrong becomes a problem document in [`api::error`], and nowhere else. When something changed that the relay must
//! know, it is told through [`relay::hub`], the one door between the two.
//!
//! # The path of a frame
//! [`relay::link_keeper`] holds the link to a paired game server ([`game::link`]), asks within the game's own token
//! buckets, and tells the answers to the server's [`relay::game_connection`]. That actor owns the live state
//! ([`domain::server_state`]): it edits it, and each edit says what it changed. From the changes one JSON Patch is
//! encoded, once for everybody; from successive states [`domain::detect`] reads world events, and smart alarms become
//! raids ([`domain::raid`]). Frames go to one [`relay::server_subscription`] per worker thread, which lets its sockets
//! write. When a socket may write is decided by [`relay::outbox`]: never more than 60 frames in 10 seconds, raids
//! first, patches last and merged when their turn comes ([`relay::feed`]). So a limit or a slow reader delays the
//! truth and never loses it, and no client has a queue of patches.
//!
//! # The path of an alarm
//! A smart alarm goes off. The game server says so on the live link, if that is up, and the game pushes it
//! ([`push::session`], Google's MCS) to whom it concerns, who may have nothing open. A push is stored in one
//! transaction with what it changes ([`push::inbox`]) and then handed to the server's game connection. There both ways
//! meet: [`domain::raid`] says whether an alarm opens an incident or belongs to one. It is written into the ledger
//! ([`db::alarms`]), told to every socket that watches ([`relay::game_connection`]), and finished with how many those
//! were. After a crash, what the ledger shows unfinished is told.
//!
//! # The map of the house
//! Imports only go down. News goes up as a message to an actor that somebody below was given the address of.
//!
//! ```text
//! 8  main.rs                       parse the command line, run
//! 7  server  demo  watch  simulator   wire and run the service; its neighbours in a box; a relay client
//! 6  api  rotation                 routes > endpoints > extract > state, error; sealed rows follow the current key
//! 5  relay  push                   client_socket > server_subscription > hub > game_connection; worker > session_supervisor
//! 4½ pairings > vault              pair a server or device; open and re-seal stored secrets: for relay, push and api
//! 4  db  clients  game             what is remembered; whom we call; how the game speaks
//! 3  config  clock                 the settings, read once; the time
//! 2  crypto                        seal, sign, mint
//! 1  domain                        what is true without any of the above
//! ```
//!
//! `simulator` imports `game`, `domain` and the wire format of `push` only: it is a neighbour of the service, not a part
//! of it.

pub mod api;
pub mod clients;
pub mod clock;
pub mod config;
pub mod crypto;
pub mod db;
pub mod demo;
pub mod domain;
pub mod game;
pub mod pairings;
pub mod push;
pub mod relay;
pub mod rotation;
pub mod server;
pub mod simulator;
pub mod vault;
pub mod watch;
