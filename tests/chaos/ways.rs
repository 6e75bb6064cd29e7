//! The ways from the nodes to NATS and PostgreSQL: TCP proxies that pass bytes on, hold them back, or close. They run on a
//! thread of their own, so that they go on while the test's thread waits for something else.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener as StdListener},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    runtime::{Builder, Runtime},
    select,
    sync::watch,
    time::sleep,
};

/// Bytes that are passed on at once.
const CHUNK: usize = 16 * 1024;

/// Kinds of trouble on a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Bytes are held back, as where packets are lost: they arrive once that ends.
    Held,
    /// Connections are closed, and new ones at once.
    Cut,
}

/// The troubles of a way now: several faults may be about it.
#[derive(Clone, Copy, Default)]
struct Troubles {
    held: u32,
    cut: u32,
}

/// One way, until it is dropped.
pub struct Way {
    port: u16,
    troubles: watch::Sender<Troubles>,
}

/// A trouble, which ends when this is dropped.
pub struct Troubled<'a> {
    way: &'a Way,
    trouble: Trouble,
}

/// The thread of all ways.
pub struct Ways(Option<Runtime>);

impl Ways {
    /// No way yet.
    pub fn start() -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        Self(Some(runtime.expect("a thread")))
    }

    /// A way to this neighbour, with a port of its own.
    pub fn open(&self, neighbour: SocketAddr) -> Way {
        let listener = StdListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        listener.set_nonblocking(true).expect("a socket");
        let port = listener.local_addr().expect("a socket").port();
        let (troubles, seen) = watch::channel(Troubles::default());
        let runtime = self.0.as_ref().expect("it runs until it is dropped");
        runtime.spawn(accept(listener, neighbour, seen));
        Way { port, troubles }
    }
}

impl Drop for Ways {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            // Tasks may not wait for others, and it is dropped in one.
            runtime.shutdown_background();
        }
    }
}

impl Way {
    /// The port of loopback at which it begins.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Begins a trouble.
    pub fn trouble(&self, trouble: Trouble) -> Troubled<'_> {
        self.change(trouble, |count| *count += 1);
        Troubled { way: self, trouble }
    }

    fn change(&self, trouble: Trouble, change: impl FnOnce(&mut u32)) {
        self.troubles.send_modify(|troubles| match trouble {
            Trouble::Held => change(&mut troubles.held),
            Trouble::Cut => change(&mut troubles.cut),
        });
    }
}

impl Drop for Troubled<'_> {
    fn drop(&mut self) {
        self.way.change(self.trouble, |count| *count -= 1);
    }
}

/// Completes once this holds, or the way is dropped.
async fn until(troubles: &mut watch::Receiver<Troubles>, holds: fn(&Troubles) -> bool) {
    let _ = troubles.wait_for(holds).await;
}

fn is_cut(troubles: &Troubles) -> bool {
    troubles.cut > 0
}

fn is_open(troubles: &Troubles) -> bool {
    troubles.held == 0 && troubles.cut == 0
}

async fn accept(listener: StdListener, neighbour: SocketAddr, troubles: watch::Receiver<Troubles>) {
    let listener = TcpListener::from_std(listener).expect("it listens");
    loop {
        let Ok((client, _)) = listener.accept().await else {
            // Most likely out of file descriptors: other connections must end first.
            sleep(Duration::from_millis(50)).await;
            continue;
        };
        let (mut cut, troubles) = (troubles.clone(), troubles.clone());
        tokio::spawn(async move {
            select! {
                () = until(&mut cut, is_cut) => {}
                // An end of one side ends the other one, too.
                _ = pass(client, neighbour, troubles) => {}
            }
        });
    }
}

async fn pass(client: TcpStream, neighbour: SocketAddr, mut troubles: watch::Receiver<Troubles>) -> io::Result<()> {
    until(&mut troubles, is_open).await;
    let server = TcpStream::connect(neighbour).await?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    select! {
        ended = carry(from_client, to_server, troubles.clone()) => ended,
        ended = carry(from_server, to_client, troubles) => ended,
    }
}

async fn carry(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut troubles: watch::Receiver<Troubles>,
) -> io::Result<()> {
    let mut bytes = vec![0; CHUNK];
    loop {
        let count = from.read(&mut bytes).await?;
        if count == 0 {
            return Ok(());
        }
        // Bytes that are held back wait here, and those behind them in the socket.
        until(&mut troubles, is_open).await;
        to.write_all(&bytes[..count]).await?;
    }
}
