//! Lower bound of every server that writes once to each socket: a process with one thread that answers handshakes with
//! a constant, and writes each line that it reads to all sockets, as one text frame. It says its address first.

use std::{cell::RefCell, io, net::Ipv4Addr, rc::Rc, thread};

use companion::net::descriptors;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::mpsc,
};

use crate::process::{self, Result};

/// The answer to the one key that the clients send (RFC 6455 §1.3).
const SWITCHING: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

pub fn serve() -> Result<()> {
    descriptors::raise_limit();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let listener = process::listener(Ipv4Addr::LOCALHOST)?;
        println!("{}", listener.local_addr()?);
        let streams = Rc::new(RefCell::new(Vec::new()));
        let accepted = streams.clone();
        tokio::task::spawn_local(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let accepted = accepted.clone();
                tokio::task::spawn_local(async move {
                    if let Ok(stream) = shake_hands(stream).await {
                        accepted.borrow_mut().push(stream);
                    }
                });
            }
        });
        let (read, mut lines) = mpsc::unbounded_channel();
        thread::spawn(move || io::stdin().lines().map_while(io::Result::ok).try_for_each(|line| read.send(line)));
        while let Some(line) = lines.recv().await {
            let frame = text_frame(&line);
            for stream in streams.borrow().iter() {
                if stream.try_write(&frame).ok() != Some(frame.len()) {
                    eprintln!("the limit: a socket does not take a frame");
                }
            }
        }
        Ok(())
    })
}

async fn shake_hands(mut stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    let mut head = Vec::with_capacity(1_024);
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut head).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    stream.write_all(SWITCHING).await?;
    Ok(stream)
}

/// Frame of a server, for a text of less than 64 KiB.
fn text_frame(text: &str) -> Vec<u8> {
    let head = match text.len() {
        length @ 0..126 => vec![0x81, length as u8],
        length => [&[0x81, 126][..], &(length as u16).to_be_bytes()].concat(),
    };
    [&head, text.as_bytes()].concat()
}
