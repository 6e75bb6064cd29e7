//! What is true without any neighbour: rules, limits, the live state and what can be read from it.
//!
//! Nothing here reads a clock, the environment, randomness, a socket or a database; they come in as arguments.
//! One thing changes: the catalogue in [`items`], by what admins say.

pub mod access;
pub mod audit;
pub mod backoff;
pub mod camera;
pub mod change;
pub mod chat;
pub mod chat_answers;
pub mod chat_commands;
pub mod chat_interaction;
pub mod chat_link;
pub mod client_address;
pub mod credential;
pub mod detect;
pub mod device;
pub mod fair_budget;
pub mod freshness;
pub mod funnel;
pub mod game_address;
pub mod grid;
pub mod ids;
pub mod image_name;
pub mod incident;
pub mod item_search;
pub mod items;
pub mod limits;
pub mod link_reason;
pub mod map;
pub mod monument;
pub mod openid;
pub mod pairing;
pub mod payment;
pub mod plain_text;
pub mod player_name;
pub mod player_session;
pub mod preference;
pub mod problem;
pub mod raid;
pub mod raid_cost;
pub mod rate;
pub mod return_target;
pub mod server_match;
pub mod server_state;
pub mod shop;
pub mod stores;
pub mod tier;
pub mod time;
pub mod timeline;
pub mod wiki;
pub mod world_event;
pub mod world_map;
