//! Setup of the provider: its secrets and its faults.

use serde::Deserialize;

/// The key with which the API is used.
pub const PAYMENT_KEY: &str = "sk_test_simulated";
/// Secret of the events' signatures.
pub const WEBHOOK_SECRET: &str = "whsec_simulated";

/// Faults of the provider; none by default. Also the body of `POST /faults`, as JSON in camelCase.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct PaymentFaults {
    /// Every request to the API is answered with this status.
    pub status: Option<u16>,
    /// The key is of another account, which has nothing.
    pub other_account: bool,
    /// Answers of the API come this many milliseconds later, or when this ends.
    pub answer_delay: u64,
    /// Refunds are made, and their answers lost.
    pub lose_refunds: bool,
    /// Refunds are made, and something in between answers with a page of this status.
    pub refund_answer: Option<u16>,
    /// Refunds are made at once, and their answers come this many milliseconds later, or when this ends.
    pub refund_delay: u64,
    /// Events are not sent before this ends; a client that asks has them.
    pub hold_events: bool,
    /// Events are sent this many milliseconds later.
    pub event_delay: u64,
    /// Each event is sent this many times more.
    pub duplicates: u32,
    /// The events of each step are sent in the reverse order.
    pub reversed: bool,
    /// Events have the shape of an older version of the API.
    pub older_shape: bool,
}
