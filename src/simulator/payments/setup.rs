//! How the provider is set up: its secrets, and how it misbehaves.

use serde::Deserialize;

/// The key with which the API is used, and the secret that signs webhooks.
pub const PAYMENT_KEY: &str = "sk_test_simulated";
pub const WEBHOOK_SECRET: &str = "whsec_simulated";

/// How the provider misbehaves; the default is not at all. Also `POST /faults`, as JSON in camelCase.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct PaymentFaults {
    /// Every request to the API is answered with this status.
    pub status: Option<u16>,
    /// The key is of another account, which has nothing.
    pub other_account: bool,
    /// Answers of the API come so many milliseconds later, or when this ends.
    pub answer_delay: u64,
    /// Refunds are made, and their answers lost.
    pub lose_refunds: bool,
    /// Refunds are made, and something in between answers with a page of this status.
    pub refund_answer: Option<u16>,
    /// Refunds are made at once, and their answers come so many milliseconds later, or when this ends.
    pub refund_delay: u64,
    /// Events are not sent before it ends; whoever asks has them.
    pub hold_events: bool,
    /// Events are sent so many milliseconds later.
    pub event_delay: u64,
    /// Each event is sent so many times more.
    pub duplicates: u32,
    /// The events of each step are sent in the reverse order.
    pub reversed: bool,
    /// Events have the shape of an older version of the API.
    pub older_shape: bool,
}
