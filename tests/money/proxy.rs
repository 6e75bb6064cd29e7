//! The way between the service and the payment provider: it is slow, loses answers, and lets the provider act and then
//! answers with an error.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
    time::sleep,
};

use crate::random::Stream;

const UNAVAILABLE: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
const FAILED: &[u8] = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
/// Pages of something in between, which says nothing of what the provider did.
const PAGES: [&[u8]; 4] = [
    b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    b"HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\nContent-Length: 4\r\nConnection: close\r\n\r\n<h1>",
    b"HTTP/1.1 302 Found\r\nLocation: /blocked\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}",
];
const MAX_REQUEST: usize = 64 * 1024;

/// The faults of requests on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireFault {
    None,
    /// Each takes this many milliseconds longer, half of it before it is done and half of it after.
    Slow(u64),
    /// Changes are carried out, and their answer is lost.
    LoseAnswers,
    /// Changes are carried out, and answered 500.
    ActAndFail,
    /// Requests that change something are carried out, and something in between answers with a page of its own.
    ActAndMisanswer,
    /// Everything is answered 503, and nothing is done.
    Refuse,
    /// Each on its own: any of the others, or none.
    Any,
}

/// A moment of a request, at which it waits while the service is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KillMoment {
    /// The request has come.
    Asked,
    /// The provider has done it.
    Done,
    /// The request was answered.
    Answered,
}

struct Shared {
    /// Which request is stopped, and when.
    stop: Mutex<Option<(u64, KillMoment)>>,
    /// True if that was reached.
    stopped: watch::Sender<bool>,
    provider: SocketAddr,
    fault: Mutex<WireFault>,
    random: Mutex<Stream>,
    /// The number of requests that have come.
    seen: watch::Sender<u64>,
}

/// The proxy; it ends when dropped.
pub struct FaultProxy {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    accepts: JoinHandle<()>,
}

impl FaultProxy {
    pub async fn start(provider: SocketAddr, random: Stream) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (fault, random) = (WireFault::None.into(), random.into());
        let shared = Arc::new(Shared {
            stop: Mutex::new(None),
            stopped: watch::channel(false).0,
            provider,
            fault,
            random,
            seen: watch::channel(0).0,
        });
        let of_task = shared.clone();
        let accepts = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = of_task.clone();
                tokio::spawn(async move { shared.pass(stream).await });
            }
        });
        Ok(Self { address, shared, accepts })
    }

    pub fn set(&self, fault: WireFault) {
        *self.shared.fault.lock().unwrap() = fault;
    }

    /// Stops the request of this number at this moment; becomes true then.
    pub fn stop_at(&self, number: u64, moment: KillMoment) -> watch::Receiver<bool> {
        *self.shared.stop.lock().unwrap() = Some((number, moment));
        self.shared.stopped.subscribe()
    }

    /// Lets what was stopped go on, and stops nothing more.
    pub fn go_on(&self) {
        *self.shared.stop.lock().unwrap() = None;
        self.shared.stopped.send_replace(false);
    }

    /// The number of requests that have come.
    pub fn seen(&self) -> u64 {
        *self.shared.seen.borrow()
    }

    /// Waits until this many have come.
    pub async fn seen_until(&self, count: u64) {
        let mut seen = self.shared.seen.subscribe();
        let _ = seen.wait_for(|seen| *seen >= count).await;
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.accepts.abort();
    }
}

impl Shared {
    fn drawn(&self) -> WireFault {
        let fault = *self.fault.lock().unwrap();
        if fault != WireFault::Any {
            return fault;
        }
        match self.random.lock().unwrap().below(10) {
            0 => WireFault::Slow(120),
            1 => WireFault::LoseAnswers,
            2 => WireFault::ActAndFail,
            3 => WireFault::Refuse,
            4 => WireFault::ActAndMisanswer,
            _ => WireFault::None,
        }
    }

    /// Waits, if the request of this number is to be stopped now.
    async fn stop(&self, number: u64, moment: KillMoment) {
        if *self.stop.lock().unwrap() != Some((number, moment)) {
            return;
        }
        self.stopped.send_replace(true);
        let mut stopped = self.stopped.subscribe();
        let _ = stopped.wait_for(|stopped| !stopped).await;
    }

    /// One request and its answer. A connection that breaks is what happens on such a way.
    async fn pass(&self, mut client: TcpStream) {
        let Ok(request) = read_request(&mut client).await else { return };
        let (fault, changes) = (self.drawn(), request.starts_with(b"POST") || request.starts_with(b"DELETE"));
        let mut number = 0;
        self.seen.send_modify(|seen| {
            *seen += 1;
            number = *seen;
        });
        self.stop(number, KillMoment::Asked).await;
        match fault {
            WireFault::Refuse => return drop(client.write_all(UNAVAILABLE).await),
            WireFault::Slow(pause) => sleep(Duration::from_millis(pause / 2)).await,
            _ => {}
        }
        let Ok(answer) = ask(self.provider, &request).await else { return };
        self.stop(number, KillMoment::Done).await;
        if let WireFault::Slow(pause) = fault {
            sleep(Duration::from_millis(pause / 2)).await;
        }
        let answer = match fault {
            WireFault::LoseAnswers if changes => return,
            WireFault::ActAndFail if changes => FAILED,
            WireFault::ActAndMisanswer if changes => PAGES[self.random.lock().unwrap().below(4) as usize],
            _ => &answer[..],
        };
        let _ = client.write_all(answer).await;
        let _ = client.shutdown().await;
        self.stop(number, KillMoment::Answered).await;
    }
}

/// A whole request, which says how long it is. It is made the last of its connection.
async fn read_request(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    let (mut request, mut part) = (Vec::new(), [0; 4096]);
    loop {
        let count = client.read(&mut part).await?;
        if count == 0 || request.len() > MAX_REQUEST {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        request.extend_from_slice(&part[..count]);
        let Some(end) = request.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&request[..end]).to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
        if request.len() >= end + 4 + length.unwrap_or(0) {
            request.splice(end..end, *b"\r\nConnection: close");
            return Ok(request);
        }
    }
}

async fn ask(provider: SocketAddr, request: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(provider).await?;
    stream.write_all(request).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(answer)
}
