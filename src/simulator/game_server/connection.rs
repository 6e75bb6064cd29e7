//! One connection of a game server, over any stream.

use std::{io, net::IpAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    select,
    sync::mpsc,
    time::{Instant, MissedTickBehavior, interval, sleep, timeout},
};
use tokio_tungstenite::{
    accept_async_with_config,
    tungstenite::{Message, protocol::WebSocketConfig},
};

use super::{
    clients::ClientQueue,
    faults::GameServerFaults,
    game::{Reply, SharedGame},
};
use crate::game::wire::{AppBroadcast, AppMessage, AppResponse};

/// Answer of a full server, instead of HTTP: a WebSocket close frame, code 1000.
const REFUSAL: [u8; 4] = [0x88, 0x02, 0x03, 0xE8];
/// Time that a refused client may take to read the refusal.
const REFUSAL_DEADLINE: Duration = Duration::from_secs(1);
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);
const WRITE_DEADLINE: Duration = Duration::from_secs(5);
/// A larger message ends the connection; one between the game's own limit and this is read and dropped.
const READ_AT_MOST: usize = 4 << 20;
const CAMERA_FRAME_EVERY: Duration = Duration::from_millis(100);

/// Serves a client from its handshake until it leaves or is cut; a full server refuses it.
pub async fn serve<S>(shared: Arc<SharedGame>, stream: S, address: IpAddr)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let admitted = shared.lock().admit(address);
    let Some(ClientQueue { id, outbox, queue, mut cut }) = admitted else {
        if let Ok(_permit) = shared.refusals.try_acquire() {
            // A client that does not read is left alone.
            let _ = timeout(REFUSAL_DEADLINE, refuse(stream)).await;
        }
        return;
    };
    let client = ConnectedClient { shared, id };
    select! {
        biased;
        _ = &mut cut => {}
        () = client.converse(stream, outbox, queue) => {}
    }
}

/// Writes the refusal, then reads until the end: closing with bytes unread would discard the refusal.
async fn refuse(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
    stream.write_all(&REFUSAL).await?;
    stream.shutdown().await?;
    let mut unread = [0; 1024];
    while stream.read(&mut unread).await? > 0 {}
    Ok(())
}

/// A client of the game until this is dropped.
struct ConnectedClient {
    shared: Arc<SharedGame>,
    id: u64,
}

impl Drop for ConnectedClient {
    fn drop(&mut self) {
        self.shared.lock().remove(self.id);
    }
}

impl ConnectedClient {
    async fn converse<S>(&self, stream: S, outbox: mpsc::Sender<Bytes>, mut queue: mpsc::Receiver<Bytes>)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let config = WebSocketConfig::default()
            .read_buffer_size(8 * 1024)
            .max_message_size(Some(READ_AT_MOST))
            .max_frame_size(Some(READ_AT_MOST));
        let Ok(Ok(socket)) = timeout(HANDSHAKE_DEADLINE, accept_async_with_config(stream, Some(config))).await else {
            return;
        };
        let (mut sink, mut source) = socket.split();
        let mut frames = interval(CAMERA_FRAME_EVERY);
        frames.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut watching = false;
        loop {
            select! {
                biased;
                Some(data) = queue.recv() => {
                    let Ok(Ok(())) = timeout(WRITE_DEADLINE, sink.send(Message::Binary(data))).await else {
                        return;
                    };
                }
                message = source.next() => match message {
                    Some(Ok(Message::Binary(data))) => {
                        let (reply, faults) = {
                            let mut game = self.shared.lock();
                            let reply = game.receive(self.id, &data, Instant::now());
                            watching = game.cameras.is_watching(self.id);
                            (reply, game.faults)
                        };
                        if !self.send(reply, faults, &outbox) {
                            return;
                        }
                    }
                    // The library answers pings and closings; a game server ignores text.
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return,
                },
                now = frames.tick(), if watching => {
                    let (frame, faults) = {
                        let mut game = self.shared.lock();
                        let frame = game.camera_frame(self.id, now);
                        watching = game.cameras.is_watching(self.id);
                        (frame, game.faults)
                    };
                    if let Some((scene, offset)) = frame {
                        let rays = scene.frame(&self.shared.sample_order, offset);
                        let broadcast = AppBroadcast { camera_rays: Some(rays), ..Default::default() };
                        let message = AppMessage { broadcast: Some(broadcast), ..Default::default() };
                        if outbox.try_send(faults.encode(message)).is_err() {
                            return;
                        }
                    }
                }
            }
        }
    }

    /// Sends an answer, now or after the delay; false ends the connection.
    fn send(&self, reply: Reply, faults: GameServerFaults, outbox: &mpsc::Sender<Bytes>) -> bool {
        let response = match reply {
            Reply::Nothing => return true,
            Reply::Close => return false,
            Reply::Send(response) => *response,
        };
        let Some(delay) = faults.delay else { return outbox.try_send(encode(response, faults)).is_ok() };
        let (pending, outbox) = (PendingAnswer::new(&self.shared), outbox.clone());
        actix::spawn(async move {
            sleep(delay).await;
            // A connection that has ended needs no answer.
            let _ = outbox.send(encode(response, faults)).await;
            drop(pending);
        });
        true
    }
}

fn encode(response: AppResponse, faults: GameServerFaults) -> Bytes {
    faults.encode(AppMessage { response: Some(response), ..Default::default() })
}

/// A request whose answer is delayed, counted until this is dropped.
struct PendingAnswer(Arc<SharedGame>);

impl PendingAnswer {
    fn new(shared: &Arc<SharedGame>) -> Self {
        shared.lock().pending += 1;
        Self(Arc::clone(shared))
    }
}

impl Drop for PendingAnswer {
    fn drop(&mut self) {
        self.0.lock().pending -= 1;
    }
}
