//! The relay and the game link, from outside.

mod access;
mod alarms;
mod alarms_in_turn;
mod deflate;
mod facts;
mod game_faults;
mod limits;
mod link;
mod link_turns;
mod many_alarms;
mod resume;
mod schema;
mod sections;
mod slow;
mod stream;
mod team_link;
mod tokens;
