//! Every limit as a number, under the specification's words.

/// Data frames from the relay to one connection in any [`OUTBOUND_SPAN_MS`].
pub const OUTBOUND_FRAMES: u16 = 60;
/// Ten seconds, and a tenth more: frames that left evenly may arrive bunched, and the client counts arrivals.
pub const OUTBOUND_SPAN_MS: u32 = 10_100;
/// One snapshot per server and connection in this time.
pub const SNAPSHOT_SPAN_MS: u64 = 5_000;
/// Messages that may not be dropped and wait for one connection.
pub const WAITING_MESSAGES: usize = 1_000;
/// Messages from one client in any [`INBOUND_SPAN_MS`].
pub const INBOUND_MESSAGES: u16 = 30;
pub const INBOUND_SPAN_MS: u32 = 10_000;
/// Bytes of one message from a client.
pub const INBOUND_BYTES: usize = 64 * 1024;
/// Servers that one connection watches.
pub const SUBSCRIPTIONS: usize = 100;
/// Open relay connections of one user.
pub const CONNECTIONS_PER_USER: usize = 20;
