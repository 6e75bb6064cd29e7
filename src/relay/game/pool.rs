//! The links to game servers: each is kept up, and asked for all that there is to know.

pub mod link_end;
pub mod link_owner;
pub mod link_report;
pub mod link_slots;
pub mod link_talk;
pub mod poll_plan;
pub mod pooled_link;
pub mod stored_world;
pub mod wake;
