//! The game's limits: connections, message sizes and token buckets.

use std::{collections::HashMap, hash::Hash};

use tokio::time::Instant;

use crate::game::wire::AppRequest;

/// The server's limits; the default is what real servers have.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub connections: usize,
    pub connections_per_address: usize,
    /// Bytes; larger messages are dropped without an answer.
    pub message_size: usize,
    /// Requests that wait at once; the excess is dropped without an answer.
    pub queue: usize,
    /// Capacity and refill per second, here and below.
    pub player_tokens: (f64, f64),
    pub address_tokens: (f64, f64),
    /// Wrong player tokens from one address before its connections are cut. The game's own numbers are not known.
    pub bad_tokens: (f64, f64),
}

impl Limits {
    /// No limit of connections and tokens, for tests of something else.
    pub fn unlimited() -> Self {
        Self {
            connections: usize::MAX,
            connections_per_address: usize::MAX,
            player_tokens: (1e9, 1e9),
            address_tokens: (1e9, 1e9),
            bad_tokens: (1e9, 1e9),
            ..Self::default()
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 500,
            connections_per_address: 5,
            message_size: 1 << 20,
            queue: 100,
            player_tokens: (25.0, 3.0),
            address_tokens: (50.0, 15.0),
            bad_tokens: (30.0, 0.5),
        }
    }
}

/// Tokens that a request costs (protocol §3.5).
pub fn cost(request: &AppRequest) -> f64 {
    if request.get_map.is_some() {
        5.0
    } else if request.send_team_message.is_some() || request.send_clan_message.is_some() {
        2.0
    } else if request.camera_input.is_some() {
        0.01
    } else {
        1.0
    }
}

/// One token bucket per player or address.
pub struct TokenBuckets<K> {
    by_key: HashMap<K, TokenBucket>,
}

/// The tokens at a time.
struct TokenBucket {
    tokens: f64,
    at: Instant,
}

impl<K> Default for TokenBuckets<K> {
    fn default() -> Self {
        Self { by_key: HashMap::new() }
    }
}

impl<K: Hash + Eq + Copy> TokenBuckets<K> {
    /// The tokens of `key` now. Full buckets are forgotten when there are many, so the map stays small.
    pub fn tokens(&mut self, key: K, limit: (f64, f64), now: Instant) -> &mut f64 {
        if self.by_key.len() >= 1024 && !self.by_key.contains_key(&key) {
            self.by_key.retain(|_, bucket| {
                bucket.fill(limit, now);
                bucket.tokens < limit.0
            });
        }
        let bucket = self.by_key.entry(key).or_insert(TokenBucket { tokens: limit.0, at: now });
        bucket.fill(limit, now);
        &mut bucket.tokens
    }
}

impl TokenBucket {
    fn fill(&mut self, (capacity, refill): (f64, f64), now: Instant) {
        self.tokens = capacity.min(self.tokens + refill * (now - self.at).as_secs_f64());
        self.at = now;
    }
}
