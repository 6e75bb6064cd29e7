//! The live state of a paired server and the lines of its team's chat. Pure.

pub mod game_update;
pub mod handed_state;
pub mod live_state;
pub mod outcome;
pub mod own_state;
pub mod state_step;
pub mod team_chat;
pub mod team_state;
pub mod world_facts;
pub mod world_state;
