//! Messages between processes of a cluster: at most once, those of one sender in their order. They are lost where nothing
//! carries them, and where too many wait: a sender that needs an answer asks again.

use bytes::Bytes;
use tokio::sync::mpsc;

/// Messages that wait on each way.
const WAITING: usize = 2_048;

/// A message to another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    /// The name of the process.
    pub to: String,
    pub message: Bytes,
}

/// Sends messages; clones share the way.
#[derive(Clone)]
pub struct Outbox(mpsc::Sender<Letter>);

impl Outbox {
    /// Sends a message, unless too many wait.
    pub fn send(&self, to: &str, message: Bytes) {
        if self.0.try_send(Letter { to: to.to_owned(), message }).is_err() {
            count_lost();
        }
    }
}

/// The ends of a process: what it sends, and what it receives.
pub struct NodeMail {
    pub outbox: Outbox,
    pub inbox: mpsc::Receiver<Bytes>,
}

/// The other ends, for the one that carries the messages.
pub struct MailRoute {
    pub outgoing: mpsc::Receiver<Letter>,
    incoming: mpsc::Sender<Bytes>,
}

impl MailRoute {
    /// Gives the process a message, unless too many wait.
    pub fn deliver(&self, message: Bytes) {
        if self.incoming.try_send(message).is_err() {
            count_lost();
        }
    }
}

/// The mail of a process, and its route.
pub fn mail() -> (NodeMail, MailRoute) {
    let (sender, outgoing) = mpsc::channel(WAITING);
    let (incoming, inbox) = mpsc::channel(WAITING);
    (NodeMail { outbox: Outbox(sender), inbox }, MailRoute { outgoing, incoming })
}

/// Counts a message that is lost.
pub fn count_lost() {
    metrics::counter!("companion_node_messages_lost_total").increment(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_keep_their_order_and_those_without_room_are_lost() {
        let (mut mail, mut route) = mail();
        for number in 0..WAITING + 1 {
            mail.outbox.clone().send("there", number.to_string().into());
            route.deliver(number.to_string().into());
        }
        let letter = route.outgoing.try_recv().unwrap();
        assert_eq!(letter, Letter { to: "there".into(), message: "0".into() });
        let received: Vec<Bytes> = std::iter::from_fn(|| mail.inbox.try_recv().ok()).collect();
        assert_eq!((received.len(), &received[1]), (WAITING, &Bytes::from("1")));
    }
}
