//! A relay client on bare TCP, for what no WebSocket library would send, and for not reading.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    time::timeout,
};

use super::relay_client::PATIENCE;

/// First bytes of frames: FIN and opcode.
pub const TEXT: u8 = 0x81;
pub const TEXT_BEGINS: u8 = 0x01;
pub const CONTINUES: u8 = 0x00;
pub const ENDS: u8 = 0x80;
pub const BINARY_BEGINS: u8 = 0x02;

pub struct RawSocket {
    pub stream: TcpStream,
    /// The head of the handshake's answer.
    pub answer: String,
    /// Read beyond the handshake's answer.
    buffer: Vec<u8>,
}

impl RawSocket {
    /// A socket after its handshake, with a kernel buffer of this many bytes for what it receives, if given.
    pub async fn open(relay: SocketAddr, token: &str, receive_buffer: Option<u32>) -> Self {
        Self::open_with(relay, token, receive_buffer, "").await
    }

    /// A socket that offers these extensions in its handshake.
    pub async fn offering(relay: SocketAddr, token: &str, extensions: &str) -> Self {
        Self::open_with(relay, token, None, &format!("Sec-WebSocket-Extensions: {extensions}\r\n")).await
    }

    async fn open_with(relay: SocketAddr, token: &str, receive_buffer: Option<u32>, header: &str) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        if let Some(bytes) = receive_buffer {
            socket.set_recv_buffer_size(bytes).unwrap();
        }
        let mut stream = socket.connect(relay).await.unwrap();
        let head = format!(
            "GET /v1?token={token} HTTP/1.1\r\nHost: {relay}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{header}\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            answer.push(timeout(PATIENCE, stream.read_u8()).await.unwrap().unwrap());
        }
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
        Self { stream, answer, buffer: Vec::new() }
    }

    /// Sends one frame, masked with zeros; false if the relay has closed the socket.
    pub async fn send(&mut self, first: u8, payload: &[u8]) -> bool {
        self.write(&frame(first, payload)).await
    }

    /// Sends bytes as they are; false if the relay has closed the socket.
    pub async fn write(&mut self, bytes: &[u8]) -> bool {
        timeout(PATIENCE, self.stream.write_all(bytes)).await.expect("the relay reads").is_ok()
    }

    /// First byte and payload of the next frame that is no ping.
    pub async fn expect_frame(&mut self) -> (u8, Vec<u8>) {
        loop {
            match self.next_frame() {
                Some((0x89, _)) => {}
                Some(frame) => return frame,
                None => assert!(self.fill().await, "the connection is over"),
            }
        }
    }

    /// The code of the close frame; 1006 if the stream ends without one.
    pub async fn expect_close(&mut self) -> u16 {
        self.until_close().await.0
    }

    /// The code of the close frame, and the texts before it.
    pub async fn until_close(&mut self) -> (u16, Vec<String>) {
        let mut texts = Vec::new();
        loop {
            match self.next_frame() {
                Some((0x88, payload)) => {
                    let code = payload.first_chunk().map_or(1005, |code| u16::from_be_bytes(*code));
                    return (code, texts);
                }
                Some((TEXT, payload)) => texts.push(String::from_utf8(payload).unwrap()),
                Some(_) => {}
                None if self.fill().await => {}
                None => return (1006, texts),
            }
        }
    }

    /// Reads to the end of the stream; how many bytes there were.
    pub async fn drain(&mut self) -> usize {
        let mut total = self.buffer.len();
        while self.fill().await {
            total += self.buffer.len();
            self.buffer.clear();
        }
        total
    }

    async fn fill(&mut self) -> bool {
        let read = timeout(PATIENCE, self.stream.read_buf(&mut self.buffer)).await.expect("the end in time");
        read.is_ok_and(|bytes| bytes > 0)
    }

    /// First byte and payload.
    fn next_frame(&mut self) -> Option<(u8, Vec<u8>)> {
        let (first, length) = (*self.buffer.first()?, *self.buffer.get(1)?);
        let (from, length) = match length {
            126 => (4, usize::from(u16::from_be_bytes(*self.buffer.get(2..)?.first_chunk()?))),
            127 => (10, usize::try_from(u64::from_be_bytes(*self.buffer.get(2..)?.first_chunk()?)).unwrap()),
            short => (2, usize::from(short)),
        };
        let payload = self.buffer.get(from..from + length)?.to_vec();
        self.buffer.drain(..from + length);
        Some((first, payload))
    }
}

/// A frame as clients send it, masked with zeros.
pub fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match payload.len() {
        length @ ..126 => frame.push(0x80 | length as u8),
        length @ 126..=0xFFFF => {
            frame.push(0x80 | 126);
            frame.extend((length as u16).to_be_bytes());
        }
        length => {
            frame.push(0x80 | 127);
            frame.extend((length as u64).to_be_bytes());
        }
    }
    frame.extend([0; 4]);
    frame.extend(payload);
    frame
}
