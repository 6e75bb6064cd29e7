//! Times for which things are kept. The rules that apply them are in `server/retention.rs`.

use chrono::TimeDelta;

use crate::domain::limits::{HISTORY_DAYS, PAYMENT_EVENT_DAYS, UNPAIRED_MAP_DAYS};

/// Longest time of a session, since sign-in.
pub const SESSION: TimeDelta = TimeDelta::days(30);
/// Longest time of a session since its last use.
pub const IDLE_SESSION: TimeDelta = TimeDelta::days(14);
/// Time for which a link that no one accepted is remembered after its end, so that it differs from one that never was.
pub const EXPIRED_INVITE: TimeDelta = TimeDelta::days(30);
/// Channel of a browser whose subscription has ended.
pub const GONE_BROWSER: TimeDelta = TimeDelta::days(30);
/// The timeline, the ledger of alarms, chat, shops, sessions of players and dead letters.
pub const HISTORY: TimeDelta = TimeDelta::days(HISTORY_DAYS);
/// Map of a game server without any pairing.
pub const UNPAIRED_MAP: TimeDelta = TimeDelta::days(UNPAIRED_MAP_DAYS);
/// Picture of a player.
pub const AVATAR: TimeDelta = TimeDelta::days(1);
/// Event of the payment provider.
pub const PAYMENT_EVENT: TimeDelta = TimeDelta::days(PAYMENT_EVENT_DAYS);
/// Count of a user's questions to the player-statistics service on a day.
pub const SPENDING: TimeDelta = TimeDelta::days(2);
