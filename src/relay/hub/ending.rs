//! The end of the service: sockets first, and links when they are gone.

use std::time::Duration;

use actix::prelude::*;
use futures_util::{StreamExt as _, future::join_all, stream};
use tokio::time::{Instant, sleep_until};

use super::{Drain, EndLinks, Hub, Reason, SocketOrder, StopConnection, nodes::handing_over::SENT_WITHIN};

/// Longest time between two closes: the clients come back one after the other, too, and not all at once.
const APART: Duration = Duration::from_millis(10);

/// Game connections that hand over their servers at a time: more memories do not wait here for room among the messages.
const HANDED_OVER_AT_ONCE: usize = 512;

/// Time from now until each of these sockets is closed; `jitter` is random.
fn close_times(sockets: usize, over: Duration, mut jitter: impl FnMut() -> u8) -> impl Iterator<Item = Duration> {
    let apart = (over / sockets.max(1) as u32).min(APART);
    (0..sockets).map(move |place| apart * place as u32 + apart.mul_f64(f64::from(jitter()) / 256.0))
}

impl Handler<Drain> for Hub {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, Drain { over }: Drain, _: &mut Self::Context) -> Self::Result {
        self.draining = true;
        let sockets = self.presence.open_sockets().cloned().collect::<Vec<_>>();
        let (began, random) = (Instant::now(), self.context.random.clone());
        Box::pin(async move {
            let times = close_times(sockets.len(), over, || random.byte());
            for (socket, after) in sockets.into_iter().zip(times) {
                if Instant::now() < began + after {
                    sleep_until(began + after).await;
                }
                if let Some(socket) = socket.upgrade() {
                    socket.do_send(SocketOrder::Close(Reason::Restarting));
                }
            }
        })
    }
}

impl Handler<EndLinks> for Hub {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, _: EndLinks, _: &mut Self::Context) -> Self::Result {
        self.ending = true;
        if self.nodes.is_some() {
            let by = Instant::now() + SENT_WITHIN;
            let handed_over = self.connections.iter().map(|(server, known)| self.hand_over(server.clone(), known, by));
            let handed_over = stream::iter(handed_over.collect::<Vec<_>>()).buffer_unordered(HANDED_OVER_AT_ONCE);
            return Box::pin(handed_over.collect::<()>());
        }
        // One that has ended before has nothing to end.
        let ended: Vec<_> = self.connections.values().map(|known| known.address.send(StopConnection)).collect();
        Box::pin(async move { drop(join_all(ended).await) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_closed_evenly_and_a_few_at_once() {
        let times = |sockets, over| close_times(sockets, Duration::from_secs(over), || 255).collect::<Vec<_>>();
        assert!(times(0, 10).is_empty());
        assert!(times(3, 10).iter().all(|at| *at < 3 * APART));
        assert!(times(3, 0).iter().all(Duration::is_zero));
        let many = times(40_000, 10);
        assert!(many.is_sorted() && many[39_999] < Duration::from_secs(10));
        assert!(many[20_000].abs_diff(Duration::from_secs(5)) < APART);
    }
}
