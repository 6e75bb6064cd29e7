//! Commands in the team's chat: a teammate says a line in the game, and the answer comes back in team chat.

mod alarms;
mod announcements;
mod bots;
mod channel;
mod commands;
mod mates_timers;
mod room;
mod transcript;
mod two_services;
mod two_users;
