//! The part of Pushover that takes messages: an emergency has a receipt, and repeats until it is ended by that or expires.

use std::collections::VecDeque;

use chrono::TimeDelta;
use serde::Deserialize;

use crate::domain::time::Timestamp;

/// Priority of an emergency.
const EMERGENCY: i8 = 2;
/// Emergencies that are kept, the newest.
const KEPT: usize = 1_000;
/// Digits of a receipt.
const RECEIPT: usize = 30;

/// A message as the API of Pushover takes it.
#[derive(Deserialize)]
pub struct PushoverMessage {
    pub token: String,
    /// Key of the user.
    #[serde(rename = "user")]
    _user: String,
    pub title: String,
    pub message: String,
    #[serde(default)]
    pub priority: i8,
    #[serde(default)]
    pub url: String,
    #[serde(default)]
    pub url_title: String,
    /// Seconds between two repetitions of an emergency, and until the last one.
    pub retry: Option<i64>,
    pub expire: Option<i64>,
}

/// The token of the application whose emergency is ended.
#[derive(Deserialize)]
pub struct PushoverCancellation {
    pub token: String,
}

struct RingingEmergency {
    receipt: String,
    token: String,
    until: Timestamp,
}

/// The emergencies that repeat.
#[derive(Default)]
pub struct PushoverEmergencies {
    ringing: VecDeque<RingingEmergency>,
    /// All that there were.
    count: u64,
}

impl PushoverEmergencies {
    /// Takes a message: the receipt of an emergency, or none of another message; the fault of one that is not taken.
    pub fn take(&mut self, message: &PushoverMessage, now: Timestamp) -> Result<Option<String>, &'static str> {
        if message.priority != EMERGENCY {
            return Ok(None);
        }
        if message.retry.is_none_or(|retry| retry < 30) {
            return Err("retry must be 30 or more");
        }
        let expire =
            message.expire.filter(|expire| (1..=10_800).contains(expire)).ok_or("expire must be at most 10800")?;
        self.count += 1;
        let receipt = format!("r{:0width$}", self.count, width = RECEIPT - 1);
        let (token, until) = (message.token.clone(), now + TimeDelta::seconds(expire));
        self.ringing.push_back(RingingEmergency { receipt: receipt.clone(), token, until });
        if self.ringing.len() > KEPT {
            self.ringing.pop_front();
        }
        Ok(Some(receipt))
    }

    /// Ends an emergency of this application; false if it has none with this receipt.
    pub fn cancel(&mut self, receipt: &str, token: &str) -> bool {
        let count = self.ringing.len();
        self.ringing.retain(|ringing| ringing.receipt != receipt || ringing.token != token);
        self.ringing.len() < count
    }

    /// Number of those that repeat.
    pub fn ringing(&self, now: Timestamp) -> usize {
        self.ringing.iter().filter(|ringing| ringing.until > now).count()
    }
}
