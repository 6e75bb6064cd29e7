//! Name look-ups. The system's resolver blocks its thread for as long as a nameserver is silent: each look-up has a
//! thread of its own, few run at once, and no caller waits long for one.

use std::{
    io,
    net::{SocketAddr, ToSocketAddrs as _},
    sync::Arc,
    thread,
    time::Duration,
};

use tokio::{
    sync::{Semaphore, oneshot},
    time::timeout,
};

/// Look-ups that run at once; further ones wait.
const AT_ONCE: usize = 64;
/// Deadline of a caller, for its turn and its answer. The look-up itself may take longer, and keeps its turn.
const DEADLINE: Duration = Duration::from_secs(5);

/// Blocks until the addresses of this host, with this port, are known.
pub type Resolve = fn(&str, u16) -> io::Result<Vec<SocketAddr>>;

/// Looks names up; clones share their turns. Callers that must not wait for the names of others have one of their own.
#[derive(Clone, Debug)]
pub struct Names {
    resolve: Resolve,
    turns: Arc<Semaphore>,
}

impl Names {
    /// By the system's resolver.
    pub fn system() -> Self {
        Self::resolved_by(|host, port| Ok((host, port).to_socket_addrs()?.collect()))
    }

    /// By this function.
    pub fn resolved_by(resolve: Resolve) -> Self {
        Self { resolve, turns: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// The addresses of this host, with this port; an error after 5 s.
    pub async fn look_up(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let looked_up = async {
            let turn = self.turns.clone().acquire_owned().await.map_err(io::Error::other)?;
            let (answer, answered) = oneshot::channel();
            let (resolve, host) = (self.resolve, host.to_owned());
            let look_up = move || {
                let _ = answer.send(resolve(&host, port));
                drop(turn);
            };
            thread::Builder::new().name("names".to_owned()).spawn(look_up)?;
            answered.await.map_err(io::Error::other)?
        };
        timeout(DEADLINE, looked_up).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn few_look_ups_run_at_once_and_everybody_has_an_answer_in_time() {
        static BEGUN: AtomicUsize = AtomicUsize::new(0);
        let names = Names::resolved_by(|_, _| {
            BEGUN.fetch_add(1, Ordering::Relaxed);
            loop {
                thread::park();
            }
        });
        tokio::time::pause();
        let answers = futures_util::future::join_all((0..700).map(|_| names.look_up("mute.example", 1))).await;
        assert!(answers.iter().all(|answer| answer.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::TimedOut)));
        assert!(BEGUN.load(Ordering::Relaxed) <= AT_ONCE);
        tokio::time::resume();
        let other = Names::resolved_by(|_, port| Ok(vec![SocketAddr::new([192, 0, 2, 1].into(), port)]));
        assert_eq!(other.look_up("known.example", 7).await.unwrap(), ["192.0.2.1:7".parse().unwrap()]);
    }
}
