//! Panics of actors and tasks. A panic ends only the task in which it happens and the thread goes on, so that nobody would
//! notice: it is logged and counted here, and what ended is started anew by whoever started it.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
};

use futures_util::FutureExt as _;

/// Reports that this part panicked, if it is a panic that ends it. `id` names the server or user that it is about. For
/// `stopping` and `stopped` of actors, which actix also calls while a panic unwinds; a second panic there would end the
/// process, so that they do little then.
pub fn notice(part: &'static str, id: &str) -> bool {
    let panicking = thread::panicking();
    if panicking {
        report(part, id);
    }
    panicking
}

/// Runs a future to its end, or to its panic, which is reported; `None` then. As large as that future: an async function
/// would have room for it twice.
pub fn caught<T>(part: &'static str, id: &str, future: impl Future<Output = T>) -> impl Future<Output = Option<T>> {
    AssertUnwindSafe(future).catch_unwind().map(move |ended| ended.inspect_err(|_| report(part, id)).ok())
}

/// The same for what is done at once.
pub fn caught_at_once<T>(part: &'static str, id: &str, call: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(call)).inspect_err(|_| report(part, id)).ok()
}

/// What panicked and where is on stderr already.
fn report(part: &'static str, id: &str) {
    metrics::counter!("companion_panics_total", "part" => part).increment(1);
    log::error!(part, id; "a part of the service panicked and is started anew");
}
