//! The one HTTP client behind all neighbours: one place for deadlines and the refusal of redirects.

use std::{io, time::Duration};

use chrono::{DateTime, Utc};
use reqwest::{
    dns::{Name, Resolving},
    header::DATE,
};
use rustls::ClientConfig;

use crate::net::{
    Names,
    neighbour::{Neighbour, RequestOutcome},
    trace,
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const TOTAL_TIMEOUT: Duration = Duration::from_secs(8);

/// The shared client.
pub fn client(tls: ClientConfig) -> io::Result<reqwest::Client> {
    reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .dns_resolver(HttpNames(Names::system()))
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(TOTAL_TIMEOUT)
        .user_agent(concat!("companion/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(io::Error::other)
}

/// The look-ups of the client.
struct HttpNames(Names);

impl reqwest::dns::Resolve for HttpNames {
    fn resolve(&self, name: Name) -> Resolving {
        let names = self.0.clone();
        Box::pin(async move {
            // The client sets the port.
            let addresses: reqwest::dns::Addrs = Box::new(names.look_up(name.as_str(), 0).await?.into_iter());
            Ok(addresses)
        })
    }
}

/// Sends the request, with its place in the caller's trace, and counts whether the neighbour answered.
pub async fn send(neighbour: Neighbour, request: reqwest::RequestBuilder) -> reqwest::Result<reqwest::Response> {
    let request = match trace::current() {
        Some(trace) => request.header("traceparent", trace.traceparent()),
        None => request,
    };
    send_outside(neighbour, request).await
}

/// Sends the request to a host that a user names, which learns nothing of the caller's trace.
pub async fn send_outside(
    neighbour: Neighbour,
    request: reqwest::RequestBuilder,
) -> reqwest::Result<reqwest::Response> {
    let answered = request.send().await;
    neighbour.count(match &answered {
        Ok(response) => RequestOutcome::of_status(response.status().as_u16()),
        Err(_) => RequestOutcome::Failed,
    });
    answered
}

/// The time at which the answer was made, by the clock there.
pub fn date(answer: &reqwest::Response) -> Option<DateTime<Utc>> {
    let date = answer.headers().get(DATE)?.to_str().ok()?;
    Some(DateTime::parse_from_rfc2822(date).ok()?.to_utc())
}

/// Failure of reading a body.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error("{}", reason(.0))]
    Broken(reqwest::Error),
    #[error("the answer is larger than {0} bytes")]
    TooLarge(usize),
}

/// The whole body, at most `cap` bytes.
pub async fn read_capped(mut response: reqwest::Response, cap: usize) -> Result<Vec<u8>, BodyError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(BodyError::Broken)? {
        if body.len() + chunk.len() > cap {
            return Err(BodyError::TooLarge(cap));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// Cause of a failed request, without its URL, which may hold a key.
pub fn reason(error: &reqwest::Error) -> String {
    let kind = match error {
        e if e.is_timeout() => "no answer in time",
        e if e.is_connect() => "no connection",
        e if e.is_body() || e.is_decode() => "the answer broke off",
        _ => "the request failed",
    };
    // The innermost cause is the error of the kernel or of TLS; none of them prints the URL.
    let mut cause: Option<&dyn std::error::Error> = std::error::Error::source(error);
    while let Some(next) = cause.and_then(|c| c.source()) {
        cause = Some(next);
    }
    cause.map_or_else(|| kind.to_owned(), |cause| format!("{kind} ({cause})"))
}
