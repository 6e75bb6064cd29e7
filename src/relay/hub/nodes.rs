//! On a node of several: the servers of this node, those of the others, and the messages between nodes.

mod handed_servers;
pub mod handing_over;
pub mod other_nodes;
pub mod owned_servers;
pub mod push_session_reads;
mod push_sessions;
pub mod remote_commands;
pub mod remote_servers;
mod sharing_news;
mod taking_parts;
mod watching_remotely;
