//! One request of a registration: a deadline, a cap on the answer, and a fault for answers that another attempt may
//! better.

use std::time::Duration;

use reqwest::RequestBuilder;

use crate::{
    clients::http::{self, read_capped},
    net::neighbour::Neighbour,
};

/// Largest answer that is read, bytes; real ones have some hundred.
const MAX_ANSWER: usize = 64 * 1024;
const DEADLINE: Duration = Duration::from_secs(15);

/// An answer other than 429 and 5xx.
pub struct StepAnswer {
    pub status: u16,
    pub body: Vec<u8>,
}

/// No answer, or a fault of the other side.
pub struct CallFault {
    /// For the log; without the other side's text.
    pub reason: String,
    /// For the user.
    pub word: Option<String>,
}

/// Sends the request once.
pub async fn call(neighbour: Neighbour, request: RequestBuilder) -> Result<StepAnswer, CallFault> {
    let response = http::send(neighbour, request.timeout(DEADLINE)).await;
    let response = response.map_err(|error| CallFault { reason: http::reason(&error), word: None })?;
    let status = response.status().as_u16();
    if status == 429 || status >= 500 {
        let word = format!("status_{status}");
        return Err(CallFault { reason: word.clone(), word: Some(word) });
    }
    let body = read_capped(response, MAX_ANSWER).await;
    body.map(|body| StepAnswer { status, body }).map_err(|error| CallFault { reason: error.to_string(), word: None })
}

/// A word of the other side, without anything else that it may hold.
pub fn plain_word(text: &str) -> String {
    text.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').take(60).collect()
}
