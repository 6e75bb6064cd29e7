//! One request to the provider, and its answer.

use reqwest::StatusCode;
use serde_json::Value;

use super::provider_error::{PaymentsError, unavailable, unreadable};
use crate::{
    clients::http::{self, read_capped},
    net::neighbour::Neighbour,
};

/// Largest answer that is read, bytes: a hundred subscriptions have half of it.
const MAX_ANSWER: usize = 2 * 1024 * 1024;

/// Makes one attempt; an error comes with true if another one may help.
///
/// Success is 200 and a refusal has the provider's own error object. Anything else comes from something in between, and
/// says nothing of what the provider did.
pub(super) async fn attempt(request: reqwest::RequestBuilder) -> Result<Value, (PaymentsError, bool)> {
    let response = http::send(Neighbour::Payments, request).await;
    let response = response.map_err(|error| (unavailable(http::reason(&error)), true))?;
    let status = response.status();
    let advice = response.headers().get("stripe-should-retry").map(|advice| advice == "true");
    let body = read_capped(response, MAX_ANSWER).await.map_err(|error| (unavailable(error.to_string()), true))?;
    let answer: Option<Value> = serde_json::from_slice(&body).ok();
    if status == StatusCode::OK {
        return answer.filter(Value::is_object).ok_or_else(|| (unreadable("JSON"), false));
    }
    let error = answer.map(|mut answer| answer["error"].take()).unwrap_or_default();
    let kind = plain(&error["type"]);
    let is_providers = kind.is_some() && status.is_client_error();
    let code = plain(&error["code"]).or(kind).unwrap_or_default();
    let passes = status.is_server_error() || matches!(status.as_u16(), 408 | 409 | 424 | 429);
    let may_help = advice.unwrap_or(passes && status != StatusCode::TOO_MANY_REQUESTS);
    Err((
        match status {
            _ if passes || !is_providers => unavailable(format!("status {} {code}", status.as_u16())),
            _ if status == StatusCode::NOT_FOUND || code == "resource_missing" => {
                PaymentsError::Unknown { param: plain(&error["param"]) }
            }
            status => PaymentsError::Refused { status: status.as_u16(), code },
        },
        may_help,
    ))
}

/// A word of an error that may be logged: a code or the name of a parameter.
fn plain(value: &Value) -> Option<String> {
    let word = value.as_str()?;
    let is_word =
        word.len() <= 60 && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'[' | b']'));
    is_word.then(|| word.to_owned())
}
