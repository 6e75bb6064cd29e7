//! Panics of actors and tasks. A panic ends only the task in which it happens and the thread goes on, so that it would
//! pass unnoticed: it is logged and counted here, and the part that started the task starts it again.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
};

use futures_util::FutureExt as _;

use crate::domain::words::words;

words! {
    /// A part of the service that is restarted after a panic. The words are for the log and the metric.
    pub enum Part {
        Request = "request",
        RelaySocket = "relay_socket",
        ServerSubscription = "server_subscription",
        ClientSocket = "client_socket",
        GameConnection = "game_connection",
        GameLink = "game_link",
        Billing = "billing",
        Channels = "channels",
        PushSession = "push_session",
        Tracking = "tracking",
        TrackingWorker = "tracking_worker",
        Aliases = "aliases",
    }
}

/// Counts every part from 0: a rate needs the 0 before the first panic.
pub fn describe() {
    let name = "companion_panics_total";
    metrics::describe_counter!(name, "Parts of the service that panicked and were restarted.");
    Part::ALL.iter().for_each(|part| metrics::counter!(name, "part" => part.word()).absolute(0));
}

/// Reports that this part panicked, if it is a panic that ends it. `id` names the server or user that it is about. For
/// `stopping` and `stopped` of actors, which actix also calls while a panic unwinds; a second panic there would end the
/// process, so that they do little then.
pub fn notice(part: Part, id: &str) -> bool {
    let panicking = thread::panicking();
    if panicking {
        report(part, id);
    }
    panicking
}

/// Runs a future to its end, or to its panic, which is reported; `None` then. As large as that future: an async function
/// would have room for it twice.
pub fn caught<T>(part: Part, id: &str, future: impl Future<Output = T>) -> impl Future<Output = Option<T>> {
    AssertUnwindSafe(future).catch_unwind().map(move |ended| ended.inspect_err(|_| report(part, id)).ok())
}

/// Like `caught`, for a call that returns at once.
pub fn caught_at_once<T>(part: Part, id: &str, call: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(call)).inspect_err(|_| report(part, id)).ok()
}

/// The panic's text and place are on stderr already.
fn report(part: Part, id: &str) {
    metrics::counter!("companion_panics_total", "part" => part.word()).increment(1);
    log::error!(part = part.word(), id; "a part of the service panicked and is restarted");
}
