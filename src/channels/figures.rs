//! Figures of channels for operators: how many messages got through, and how long they took.

use metrics::{counter, gauge, histogram};

use crate::{
    channels::reached_users::ReachedCounts,
    domain::channels::user_channel::{ChannelFault, ChannelKind},
};

const MESSAGES: &str = "companion_channel_messages_total";
const USERS: &str = "companion_channel_users";
const HELD_ORIGINS: &str = "companion_channel_held_origins";
/// From the alarm, or from when a later step of the rules was due, until the other side took the message.
pub const SECONDS: &str = "companion_channel_delay_seconds";
/// Upper bounds of the buckets of [`SECONDS`].
pub const SECONDS_BUCKETS: [f64; 10] = [0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 120.0, 600.0, 3_600.0];

/// A message that was taken.
const ACCEPTED: &str = "accepted";

/// Describes them, and counts each kind and outcome from 0: a rate needs the 0 before the first message.
pub fn describe() {
    metrics::describe_counter!(MESSAGES, "Attempts to send messages by channels, by kind and outcome.");
    metrics::describe_histogram!(
        SECONDS,
        "From an alarm, or a later step of a user's rules, to a service that took the message, by kind of channel."
    );
    metrics::describe_gauge!(
        USERS,
        "Users with attempts within half an hour, by outcome: one message was taken (reached), or none (unreached)."
    );
    metrics::describe_gauge!(HELD_ORIGINS, "Origins to which channels send nothing for a while.");
    set_users(ReachedCounts::default());
    set_held_origins(0);
    for kind in ChannelKind::ALL {
        for outcome in ChannelFault::WORDS.into_iter().chain([ACCEPTED]) {
            counter!(MESSAGES, "kind" => kind.word(), "outcome" => outcome).absolute(0);
        }
        drop(histogram!(SECONDS, "kind" => kind.word()));
    }
}

/// Counts a message that was taken, `seconds` after it was due; `None`: it came late to us.
pub fn count_accepted(kind: ChannelKind, seconds: Option<f64>) {
    counter!(MESSAGES, "kind" => kind.word(), "outcome" => ACCEPTED).increment(1);
    if let Some(seconds) = seconds {
        histogram!(SECONDS, "kind" => kind.word()).record(seconds);
    }
}

/// Sets how many users are reached.
pub fn set_users(ReachedCounts { reached, unreached }: ReachedCounts) {
    gauge!(USERS, "outcome" => "reached").set(reached as f64);
    gauge!(USERS, "outcome" => "unreached").set(unreached as f64);
}

/// Sets how many origins are held.
pub fn set_held_origins(count: usize) {
    gauge!(HELD_ORIGINS).set(count as f64);
}

/// Counts an attempt that failed.
pub fn count_failed(kind: ChannelKind, fault: ChannelFault) {
    counter!(MESSAGES, "kind" => kind.word(), "outcome" => fault.word()).increment(1);
}
