//! Which request something is done for: the request's id, and its place in a trace (W3C Trace Context). Known to all that
//! runs in the request's task, and to its queries, so that each line of the log and each call to others can say it.

use std::{fmt::Write as _, sync::Arc};

use crate::crypto::random::Random;

tokio::task_local! {
    static CURRENT: Arc<Trace>;
}

/// Bytes of the ids of a trace and of a span.
const TRACE_ID: usize = 16;
const SPAN_ID: usize = 8;

/// A request in its trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    pub request_id: String,
    /// 32 lower-case hex digits.
    pub trace_id: String,
    /// Id of this service's span: 16 lower-case hex digits.
    span_id: String,
    /// Two hex digits, as they came.
    flags: String,
}

impl Trace {
    /// The part of this service in the trace of the caller, or in a new one.
    pub fn new(request_id: String, traceparent: Option<&str>, random: &Random) -> Self {
        let (trace_id, flags) = traceparent.and_then(caller).unzip();
        Self {
            request_id,
            trace_id: trace_id.map_or_else(|| random.hex::<TRACE_ID>(), str::to_owned),
            span_id: random.hex::<SPAN_ID>(),
            flags: flags.unwrap_or("00").to_owned(),
        }
    }

    /// For those who are called.
    pub fn traceparent(&self) -> String {
        let Self { trace_id, span_id, flags, .. } = self;
        let mut text = String::with_capacity(55);
        // Writing to a string does not fail.
        let _ = write!(text, "00-{trace_id}-{span_id}-{flags}");
        text
    }
}

/// Trace id and flags of a `traceparent`, if it is one.
fn caller(traceparent: &str) -> Option<(&str, &str)> {
    let mut parts = traceparent.splitn(5, '-');
    let mut hex = |digits: usize| {
        parts.next().filter(|part| {
            part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f'))
        })
    };
    let (version, trace, span, flags) = (hex(2)?, hex(2 * TRACE_ID)?, hex(2 * SPAN_ID)?, hex(2)?);
    // A later version may have more parts; `ff` is none.
    let ends = version != "00" || parts.next().is_none();
    let is_zero = |id: &str| id.bytes().all(|digit| digit == b'0');
    (version != "ff" && ends && !is_zero(trace) && !is_zero(span)).then_some((trace, flags))
}

/// The request of this task.
pub fn current() -> Option<Arc<Trace>> {
    CURRENT.try_with(Arc::clone).ok()
}

/// Does this for a request.
pub async fn within<T>(trace: Arc<Trace>, task: impl Future<Output = T>) -> T {
    CURRENT.scope(trace, task).await
}

/// Does this for the request of the task that calls, also in another task.
pub fn carried<T>(task: impl Future<Output = T>) -> impl Future<Output = T> {
    let trace = current();
    async move {
        match trace {
            Some(trace) => within(trace, task).await,
            None => task.await,
        }
    }
}

/// Does this at once for the request that handed it to this thread, if one did.
pub fn resumed<T>(trace: Option<Arc<Trace>>, work: impl FnOnce() -> T) -> T {
    match trace {
        Some(trace) => CURRENT.sync_scope(trace, work),
        None => work(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    #[test]
    fn the_trace_of_the_caller_goes_on_with_a_span_of_ours() {
        let random = Random::system();
        let came = format!("00-{TRACE}-00f067aa0ba902b7-01");
        let trace = Trace::new("r".into(), Some(&came), &random);
        let sent = trace.traceparent();
        assert!(sent.starts_with(&format!("00-{TRACE}-")) && sent.ends_with("-01"), "{sent}");
        assert!(!sent.contains("00f067aa0ba902b7"));
        assert_eq!(caller(&sent), Some((TRACE, "01")));
        let own = Trace::new("r".into(), None, &random);
        assert_eq!(caller(&own.traceparent()), Some((own.trace_id.as_str(), "00")));
    }

    #[test]
    fn what_is_no_traceparent_is_left_alone() {
        let good = format!("00-{TRACE}-00f067aa0ba902b7-01");
        assert!(caller(&good).is_some() && caller(&format!("01{}-more", &good[2..])).is_some());
        for bad in [
            "",
            "00",
            &good[..54],
            &good.to_uppercase(),
            &format!("{good}-more"),
            &format!("ff{}", &good[2..]),
            &good.replace(TRACE, &"0".repeat(32)),
            &good.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &good.replace('4', "\n"),
        ] {
            assert_eq!(caller(bad), None, "{bad}");
        }
    }
}
