//! The messages between processes, over NATS: one subject for each process. Those that come while there is no connection are
//! lost: the client would keep them, and a switch would turn when its user no longer waits for it.

use std::time::Duration;

use async_nats::{Client, connection::State};
use futures_util::StreamExt as _;
use tokio::{select, time::sleep};

use crate::cluster::node_mail::{Letter, MailRoute, count_lost};

/// Pause before the subject is subscribed to again.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

fn subject(process: &str) -> String {
    format!("companion.1.{process}")
}

/// Carries the messages of this process until it takes none any longer.
pub async fn carry(client: Client, process: &str, mut route: MailRoute) {
    loop {
        let mut messages = match client.subscribe(subject(process)).await {
            Ok(messages) => messages,
            Err(error) => {
                log::warn!("messages of other nodes are not received yet: {error}");
                sleep(AGAIN_AFTER).await;
                continue;
            }
        };
        while route.outgoing.try_recv().is_ok() {
            count_lost();
        }
        loop {
            select! {
                letter = route.outgoing.recv() => {
                    let Some(Letter { to, message }) = letter else { return };
                    if client.connection_state() != State::Connected {
                        count_lost();
                    } else if let Err(error) = client.publish(subject(&to), message).await {
                        log::warn!("a message to another node was not sent: {error}");
                    }
                }
                message = messages.next() => match message {
                    Some(message) => route.deliver(message.payload),
                    None => break,
                },
            }
        }
        sleep(AGAIN_AFTER).await;
    }
}

#[cfg(test)]
mod tests {
    use async_nats::ConnectOptions;
    use tokio::{task::yield_now, time::timeout};

    use super::*;
    use crate::{cluster::node_mail::mail, crypto};

    #[tokio::test]
    async fn messages_do_not_wait_for_a_connection() {
        crypto::install();
        let (mail, route) = mail();
        // Nothing listens there, and the client has room for the subscription alone.
        let options = ConnectOptions::new().client_capacity(1).retry_on_initial_connect();
        let client = options.connect("127.0.0.1:1").await.unwrap();
        let carried = tokio::spawn(async move { carry(client, "here", route).await });
        for number in 0..10 {
            mail.outbox.send("there", number.to_string().into());
            yield_now().await;
        }
        drop(mail);
        let ended = timeout(Duration::from_secs(30), carried).await;
        assert!(ended.is_ok(), "a message waits for the connection");
    }
}
