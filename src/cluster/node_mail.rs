//! Messages between processes of a cluster: at most once, those of one sender in their order. They are lost where nothing
//! carries them, and where too many wait: a sender that needs an answer asks again. One that may send many at once waits for
//! room, and leaves some to those that cannot wait.

use std::time::Duration;

use bytes::Bytes;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};

/// Messages that wait on each way.
const WAITING: usize = 2_048;
/// Room that is left to messages that cannot wait.
const LEFT_FREE: usize = WAITING / 2;
/// Time between two looks for room.
const LOOK_EVERY: Duration = Duration::from_millis(5);

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

    /// Sends the parts of a message that can wait, once there is room; without any by then, they are lost.
    pub async fn send_with_room(&self, to: &str, parts: Vec<Bytes>, by: Instant) {
        while self.0.capacity() < LEFT_FREE + parts.len() {
            if self.0.is_closed() || Instant::now() >= by {
                return count_lost();
            }
            sleep(LOOK_EVERY).await;
        }
        parts.into_iter().for_each(|part| self.send(to, part));
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

/// Counts a message that has come, and that this program does not understand.
pub fn count_unreadable() {
    metrics::counter!("companion_node_messages_unreadable_total").increment(1);
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

    #[tokio::test(start_paused = true)]
    async fn many_messages_that_can_wait_are_all_sent_and_leave_room_to_others() {
        let (mail, mut route) = mail();
        let outbox = mail.outbox.clone();
        let by = Instant::now() + Duration::from_secs(60);
        let sent = tokio::spawn(async move {
            for number in 0..2 * WAITING {
                outbox.send_with_room("there", vec![number.to_string().into()], by).await;
            }
        });
        // As long as nothing is carried.
        sleep(Duration::from_secs(1)).await;
        assert_eq!((route.outgoing.len(), sent.is_finished()), (WAITING - LEFT_FREE, false));
        mail.outbox.send("there", "urgent".into());
        let mut carried = Vec::new();
        while carried.len() <= 2 * WAITING {
            carried.push(route.outgoing.recv().await.unwrap().message);
        }
        sent.await.unwrap();
        assert_eq!(carried[WAITING - LEFT_FREE], "urgent");
        carried.retain(|message| message != "urgent");
        assert_eq!(carried, (0..2 * WAITING).map(|number| Bytes::from(number.to_string())).collect::<Vec<_>>());
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_finds_no_room_in_its_time_is_lost() {
        let (mail, mut route) = mail();
        (0..WAITING).for_each(|number| mail.outbox.send("there", number.to_string().into()));
        mail.outbox.send_with_room("there", vec!["late".into()], Instant::now() + Duration::from_secs(2)).await;
        let carried = std::iter::from_fn(|| route.outgoing.try_recv().ok());
        assert_eq!(carried.filter(|letter| letter.message == "late").count(), 0);
        drop(route);
        // One that no one carries does not wait.
        let by = Instant::now() + Duration::from_secs(86_400);
        mail.outbox.send_with_room("there", vec![Bytes::new(); LEFT_FREE + 1], by).await;
    }
}
