//! companion: the backend that players of the game *Rust* leave running, so that their base is watched while they
//! sleep.
//!
//! # The path of a request
//! A browser asks the API. [`net::http_service`] accepts its connection, if there is room, and bounds its time. [`api`]'s
//! layers observe it, apply CORS and the limits of its address; [`api::routes`] finds the
//! handler, whose signature says who may call ([`api::extract`], by the table in [`domain::access`]). The handler turns
//! the input into types of [`domain`], does its reads and writes in one trip to the database
//! ([`db::engine::pool::Pool`]), and answers. What goes wrong becomes a problem document in [`api::answer::error`], and
//! nowhere else. When the relay must know of a change, the handler sends a message to [`relay::hub`], the one door
//! between the two. Pairing a server or a device ([`pairings`]) and opening stored secrets ([`vault`]) are written
//! once, for the API and for pushes.
//!
//! # The path of a frame
//! [`relay::game::pool::pooled_link`] keeps the link to a paired game server up ([`game::link`]). Over it
//! [`relay::game::pool::link_talk`] asks within the game's own token buckets ([`game::paced_link`]), and reports the
//! answers to the server's [`relay::game::game_connection`]. That actor applies each to its
//! [`relay::state::live_state`], which is pure: an update in; a step of the state, world events ([`domain::detect`]),
//! chat and alarms out. [`relay::wire::publisher`] encodes the step once, as a JSON Patch, and sends it to its
//! subscribers: one [`relay::client::server_subscription`] per worker thread, which lets its sockets write
//! ([`relay::client::socket`]). When a socket may write is decided by [`relay::client::send_queue`] and
//! [`relay::client::frame_budget`]: never more than 60 frames in 10 seconds, raids first, patches last and merged when
//! their turn comes ([`relay::client::patch_log`]), and no kind of message ever stops another. So a limit or a slow
//! reader delays the state and never loses it, and no client has a queue of patches. No frame passes the mailbox of a
//! client's actor; [`relay::client`] says why.
//!
//! The live state has three homes in each paired server: facts of the game server ([`relay::state::world_state`]), the
//! team ([`relay::state::team_state`]) and the paired server's own ([`relay::state::own_state`]: link, devices, notes).
//! All users of a team read over one link ([`relay::game::team_hosts`], [`relay::game::seats`]), and each applies the
//! answers to a state of their own.
//!
//! # The path of an alarm
//! A smart alarm goes off. The game server says so on the live link, if that is up, and the game pushes it
//! ([`push::session`], Google's MCS) to the players it concerns, who may have nothing open. A push is stored in one
//! transaction with what it changes ([`push::inbox`]) and then sent to the server's game connection. There both ways
//! meet, in [`relay::alarms::alarm_delivery`]: [`domain::raid`] decides whether an alarm opens an incident or belongs
//! to one; it is written into the ledger ([`db::alarms::alarm_ledger`], [`db::alarms::incidents`]), sent to every
//! socket that watches, and shown in `state.raids` for a day, so that later clients get it, too.
//! [`relay::alarms::ledger`] waits for the database half a second; then [`db::files::journal`] keeps the alarm until
//! the database takes it. An incident is unheard until a socket took its message, or a state that holds it. After a
//! restart the incidents of the last day are shown again, and pushes that were in none yet are delivered.
//!
//! # The path of a registration
//! The game pushes to devices that are registered for a player. A user signs in at the game's site and brings the address
//! at which that ends ([`api::account::registrations`]); [`domain::game_login`] reads its token. [`push::registrar`] makes
//! the other steps ([`clients::registration`]: Google, Expo, the game), stores each before the next, stages the credential
//! as an upload does, and renews it if the user asked for that. [`helper`] does the same on a user's own machine.
//!
//! # The path of a tracked player
//! [`tracking::worker`] has one watch for each game server at which players are tracked, on a thread of its own.
//! [`tracking::server_watch`] finds the server at the player-statistics service ([`domain::server_match`]), pays for each
//! question from a budget that users share ([`domain::fair_budget`]), and asks who is online
//! ([`clients::player_stats`]). Looks become sessions ([`domain::player_session`]), in one transaction for all who track
//! there; who came and went is sent to the hub, which publishes it and keeps it as an event of the paired server.
//!
//! # The path of a message that wakes
//! The transaction that stores a new incident opens a notice for each user who may watch and has a channel
//! ([`db::notices`]). [`channels`] makes the steps that are due by the user's rules ([`domain::channels::escalation`]),
//! and sends each message ([`clients::channels`]) until the user has acknowledged the incident, wherever they did. An
//! incident that the database does not take in time is sent by the first channels from memory ([`channels::early`]);
//! its rows have what came of that later.
//!
//! # The path of a line of chat
//! The game server repeats what the team says, and its last lines after each connect. [`relay::state::team_chat`] gives
//! each line an id that follows from who said what when; so it is sent and kept once, however often it comes.
//! Lines of the owner ([`api::server::chat`]) go to the game server and are answered when the game repeats them.
//! Events, chat and maps reach the database through [`relay::shared::write_behind`], for which no caller waits.
//!
//! # The path of a command in the team's chat
//! Every link to a team hears the same line. The first to bring it to [`relay::shared::teams`] decides with
//! [`domain::team_command::election`] which of them answers, and sends it the command. That game connection checks the
//! rights and the team's rates, answers from its live state ([`domain::team_command::answers`]), and queues the lines
//! with the team's others; [`relay::game::team_speech`] says them, one after the other. Timers and switches that turn
//! back are rows, so that another process ends them. All who are in the team have its timers
//! ([`relay::shared::team_timers`]).
//!
//! # The path of a camera picture
//! A user pulls ([`api::server::cameras`]); the hub checks the access and the device, and the game connection looks
//! through the camera ([`relay::game::camera_capture`]): it subscribes, collects frames until they cover the picture
//! ([`game::camera_shot`]), and everybody who pulled meanwhile gets the same shot. The API draws it
//! ([`game::camera_picture`]) on a thread for blocking work. A link watches one camera at a time, and none when no user
//! has pulled for some seconds.
//!
//! # The path of a payment
//! A user opens a checkout ([`billing::checkout`], which closes the one before) and pays at the payment provider, which
//! sends an event. Events come late, twice and in any order, so none is believed: [`billing::sync`] fetches the
//! subscription that it names ([`clients::payments`]) and stores it, unless it was stored meanwhile, in one transaction
//! with the event's id. What cannot be placed is parked and tried again ([`billing::worker`]); what was missed is found
//! by comparing everything with the provider ([`billing::reconcile`]). Which tier a user has is computed when it is
//! read ([`domain::money::tier`]).
//!
//! # The path of content
//! Content that players read and admins write (stores, wiki pages, names and icons of items) ships with the service, in
//! `domain/data`: a row exists only once an admin changed it. A store or page is read from the database each time, so a
//! change is seen at once ([`api::content::stores`], [`api::content::wiki`]); the catalogue of items is in memory,
//! because names are wanted whenever the live state is written ([`domain::items`]): [`catalogue`] keeps it up to date
//! and shares it with the API and the relay. An uploaded image is received up to a limit, decoded on a thread for
//! blocking work and encoded again ([`uploads::picture`]), named by its bytes and kept in a directory or in S3
//! ([`uploads`]); which are used is in [`db::images`], and what nothing uses is deleted.
//!
//! # The path of a bot's command
//! A user gives the support bot a command, and the chat platform sends it, signed
//! ([`crypto::interaction_signature`]), to [`api::bot::interactions`]. [`domain::bot::chat_commands`] reads it, and
//! [`domain::chat_answers`] makes a sentence of what the stores, the catalogue and, for a linked account
//! ([`api::bot::chat_links`]), the shops of the user's servers say. The platform learns which commands there are from
//! an admin ([`clients::chat`]).
//!
//! # The path of an admin's change
//! [`api::middleware::admin_only`] is the door of everything below `/admin`: an allowlist of accounts. What an admin
//! changes goes through [`api::extract::admin`], and no other way: a change of the database in one transaction with its entry in
//! the audit log ([`db::audit`], a chain of hashes), a refund between two entries. What admins are shown of all members
//! ([`db::members`], [`db::usage`]) is computed once at a time and kept for seconds ([`api::caches::short_cache`]);
//! what happened on a day is counted when it is over ([`db::daily_counts`]).
//!
//! # The path between nodes
//! With NATS, several processes serve from one database. Each is a node while it renews its lease
//! ([`cluster::node_lease`]) in a store outside of the database ([`cluster::lease_store`]), by which each sees which others
//! live ([`cluster::peers`]). A game server with its links is a part, and so is a push session or a kind of work for all;
//! where a part belongs follows from the nodes that live ([`cluster::placement`]). [`ownership`] takes the parts of this
//! node in rows of the database ([`db::held_parts`]). What is written for one, tracking aside, goes through a pool with its
//! number ([`db::engine::pool::Pool::fenced_by`]): the database refuses it from a node that has lost the part. One that has
//! lost its lease goes on as another node, which has nothing ([`ownership::nodes`]).
//!
//! A socket is open at any node, and the game connection runs at the node that has the game server. There, the other
//! nodes are one more subscriber, for which each publication is encoded once ([`relay::remote::remote_watchers`]); at the
//! node of the socket, [`relay::remote::remote_feed`] passes it on to the subscriptions. Commands and questions are
//! answered by the node that has the server ([`relay::remote::remote_question`]). Messages ([`cluster::node_mail`]) may be
//! lost: a gap is made up for by a snapshot, an alarm is sent again until it is answered, and a command without an answer
//! fails. What users did at one node reaches the sockets of the others as rows ([`db::node_news`]). With a game server that
//! passes from one living node to another goes what is known of it ([`relay::state::handed_state`]). All of these end at
//! [`relay::hub`], which has a file for each.
//!
//! # When a game server dies
//! The link ends: at once if the connection breaks, after two unanswered requests or 40 s of silence if it just stops.
//! Its task reports why and when it tries again; the live state keeps what is known, and its `server` says
//! `unreachable` with the reason and `nextAttemptAt`, which every client gets as a patch. Attempts come after 1 s, 2 s,
//! 4 s and so on up to 5 minutes, jittered, and never end. Sections of the state without an answer for three of their
//! polls are named as stale ([`domain::freshness`]), with a link or without. Detectors pause, so that nothing counts as
//! gone because we did not look. When many links are lost together, or start together, [`relay::shared::connect_pacer`]
//! spreads their attempts over seconds. Once the link is up again, everything but the map of the same wipe is asked for
//! again: a wipe in between is recognised from the stored world, an alarm that is on and was off goes off now, and a
//! gap of 30 s or more becomes an event, also one in which the service itself was away. Pushed alarms arrive all the
//! while, as they do not need the link.
//!
//! # When another process serves
//! On PostgreSQL a process serves only while it has the lock of the database ([`db::engine::serving_lock`]). One that
//! does not get it answers on both listeners that it waits (`server::waiting`), and opens the database when the lock is
//! free. One whose lock has passed to another ends, and one that has lost it writes nothing ([`db::engine::lock_holder`]). On
//! SQLite the lock is on the file ([`db::engine::database_file`]), and a second process does not start.
//!
//! # When something panics
//! Only the task in which it happens ends, and [`panics`] logs and counts it. A link or a push session is tried again. A
//! game connection is restarted by the hub, in a new epoch, and its subscriptions ask the hub for it and get a
//! snapshot. A subscription closes its sockets, whose clients come back. Without the hub or the push worker the process
//! ends.
//!
//! # Parts that only simulations use
//! `tests/simulation` runs all of this on virtual time, with a network, a disk and chance of its own:
//! [`crypto::random::Random::seeded`], [`clock::Clock::simulated`], [`net::Network::simulated`],
//! [`clients::channels::ChannelClient::simulated`], [`db::files::journal::Journal::open_simulated`],
//! [`db::engine::pool::Pool::open_simulated`]. They are in the released binary because tests link the same library:
//! behind a feature it would be compiled twice, and what is tested would not be what runs. No command and no setting
//! turns one on.
//!
//! # The floors of the house
//! Imports only go down, and no two files import each other. What goes up goes as a message to a `Recipient` that was
//! handed down.
//!
//! ```text
//! 11  main.rs                         the program
//! 10  commands                        parse the command line, run
//!  9  server demo watch simulator     wire and run the service; its neighbours in a box; a relay client
//!     helper say                      registers a user's own machine for pushes; says a line in the demo's game
//!     backup doctor reports           take and restore backups; look at what the service needs; figures for operators
//!  8  api rotation                    routes > endpoints > extract > context, error; sealed rows follow the current key
//!  7  relay push tracking billing     listener > hub > client > game > … > wire; worker > supervisor > session; looks
//!     channels                        wakes users who have no dashboard open
//!  6  pairings                        pair a server or device
//!  5  vault catalogue                 open and re-seal stored secrets; items as admins say
//!     ownership                       the parts of the service that this node has
//!  4  db clients game uploads         rows; calls to others; how the game speaks; images that are kept
//!     logging web cluster             how a line of the log looks; the bundled pages; which node has what
//!  3  config net panics terminal      the settings, read once; streams and limits of clients; panics; a terminal's line
//!  2  crypto clock                    seal, sign, mint; random values and ids; the time
//!  1  domain                          what is true without any of the above
//! ```
//!
//! `simulator` imports `game`, `domain`, `clock` and the wire format of `push` only: it is a neighbour of the service,
//! not a part of it.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests are not part of a simulated run"))]

pub mod api;
pub mod backup;
pub mod billing;
pub mod catalogue;
pub mod channels;
pub mod clients;
pub mod clock;
pub mod cluster;
pub mod commands;
pub mod config;
pub mod crypto;
pub mod db;
pub mod demo;
pub mod doctor;
pub mod domain;
pub mod game;
pub mod helper;
pub mod logging;
pub mod net;
pub mod ownership;
pub mod pairings;
pub mod panics;
pub mod push;
pub mod relay;
pub mod reports;
pub mod rotation;
pub mod say;
pub mod server;
pub mod simulator;
pub mod terminal;
pub mod tracking;
pub mod uploads;
pub mod vault;
pub mod watch;
pub mod web;
