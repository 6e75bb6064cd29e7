//! Two ends of a connection within this process: bounded, without system calls, and deterministic.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker, ready},
};

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// One end; dropping it ends both directions. Wakes the last task that waited to read and the last that waited to write.
#[derive(Debug)]
pub struct Memory {
    incoming: Pipe,
    outgoing: Pipe,
}

/// One direction.
#[derive(Clone, Debug, Default)]
struct Pipe(Arc<Mutex<Flow>>);

#[derive(Debug, Default)]
struct Flow {
    bytes: BytesMut,
    /// Bytes that may be written and not yet read.
    room: usize,
    /// The writer has ended.
    ended: bool,
    /// The reader is gone.
    abandoned: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Pipe {
    fn flow(&self) -> MutexGuard<'_, Flow> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Flow {
    fn wake_reader(&mut self) {
        if let Some(waker) = self.reader.take() {
            waker.wake();
        }
    }

    fn wake_writer(&mut self) {
        if let Some(waker) = self.writer.take() {
            waker.wake();
        }
    }
}

impl Memory {
    /// Both ends of a connection; each direction holds at most `room` bytes (at least 1).
    pub fn pair(room: usize) -> (Self, Self) {
        let pipes = [Pipe::default(), Pipe::default()];
        pipes.iter().for_each(|pipe| pipe.flow().room = room.max(1));
        let [one, other] = pipes;
        (Self { incoming: one.clone(), outgoing: other.clone() }, Self { incoming: other, outgoing: one })
    }

    /// Writes what fits.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut flow = self.outgoing.flow();
        if flow.ended || flow.abandoned {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let taken = bytes.len().min(flow.room.saturating_sub(flow.bytes.len()));
        if taken == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        flow.bytes.extend_from_slice(&bytes[..taken]);
        flow.wake_reader();
        Ok(taken)
    }

    /// Ready when a write may succeed.
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut flow = self.outgoing.flow();
        if flow.ended || flow.abandoned || flow.bytes.len() < flow.room {
            return Poll::Ready(Ok(()));
        }
        flow.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Appends what has arrived; 0 at the end.
    pub fn try_read_buf(&self, buffer: &mut BytesMut) -> io::Result<usize> {
        self.try_read(usize::MAX, |bytes| buffer.extend_from_slice(bytes))
    }

    fn try_read(&self, most: usize, take: impl FnOnce(&[u8])) -> io::Result<usize> {
        let mut flow = self.incoming.flow();
        if flow.bytes.is_empty() {
            return if flow.ended { Ok(0) } else { Err(io::ErrorKind::WouldBlock.into()) };
        }
        let count = flow.bytes.len().min(most);
        take(&flow.bytes[..count]);
        flow.bytes.advance(count);
        flow.wake_writer();
        Ok(count)
    }

    /// Ready when a read may succeed.
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut flow = self.incoming.flow();
        if flow.ended || !flow.bytes.is_empty() {
            return Poll::Ready(Ok(()));
        }
        flow.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Ends our direction.
    pub fn shutdown_write(&self) {
        let mut flow = self.outgoing.flow();
        flow.ended = true;
        flow.wake_reader();
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.shutdown_write();
        let mut flow = self.incoming.flow();
        flow.abandoned = true;
        flow.wake_writer();
    }
}

impl AsyncRead for Memory {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_read_ready(cx))?;
        let most = buffer.remaining();
        self.try_read(most, |bytes| buffer.put_slice(bytes))?;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Memory {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_write_ready(cx))?;
        Poll::Ready(self.try_write(bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shutdown_write();
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn what_one_end_writes_the_other_reads_within_the_room() {
        let (mut one, mut other) = Memory::pair(4);
        assert_eq!(one.try_write(b"abcdef").unwrap(), 4);
        assert_eq!(one.try_write(b"e").unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let writing = async {
            one.write_all(b"efgh").await.unwrap();
            one.shutdown().await.unwrap();
        };
        let reading = async {
            let mut all = Vec::new();
            other.read_to_end(&mut all).await.unwrap();
            all
        };
        let ((), all) = tokio::join!(writing, reading);
        assert_eq!(all, b"abcdefgh");
        assert_eq!(one.try_write(b"i").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[tokio::test]
    async fn dropping_an_end_is_seen_by_the_other() {
        let (one, other) = Memory::pair(4);
        one.try_write(b"ab").unwrap();
        drop(one);
        let mut buffer = BytesMut::new();
        assert_eq!(other.try_read_buf(&mut buffer).unwrap(), 2);
        assert_eq!(other.try_read_buf(&mut buffer).unwrap(), 0);
        assert_eq!(other.try_write(b"c").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
