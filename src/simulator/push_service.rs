//! Google's MCS, over TLS with a certificate authority of its own: keeps pushes until they are acknowledged, and
//! misbehaves on demand.
//!
//! A connection asks its account what to do next.

mod accounts;
mod certificate;
mod connection;
mod faults;
mod login;
mod pushes;

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use chrono::TimeDelta;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    select,
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;

pub use accounts::Counts;
pub use certificate::CertificateAuthority;
pub use faults::PushServiceFaults;
pub use pushes::{PushedServer, news};

use self::{
    accounts::{Account, Accounts, SharedAccounts},
    connection::serve,
};
use crate::{clock::Clock, domain::time::Timestamp};

/// Android id of the simulated player's phone.
pub const DEMO_ANDROID_ID: u64 = 5_000_000_000_000_000_001;
/// Security token of that phone.
pub const DEMO_SECURITY_TOKEN: u64 = 1_234_567_890_123_456_789;

/// Time for which Google keeps a message for a client that is away.
const FOUR_WEEKS: TimeDelta = TimeDelta::weeks(4);
const TLS_DEADLINE: Duration = Duration::from_secs(15);
const CONNECTIONS: usize = 20_000;

/// A running service; ends when dropped.
pub struct PushService {
    addr: SocketAddr,
    ca_pem: String,
    tls: TlsAcceptor,
    shared: Arc<SharedAccounts>,
    listening: Mutex<Option<JoinHandle<()>>>,
}

impl PushService {
    /// A service without a listener for these accounts (Android id and security token), for streams that the caller
    /// accepts ([`PushService::serve`]). Its certificate is for `addr`.
    pub fn new(addr: SocketAddr, logins: Vec<(u64, u64)>, clock: Clock) -> io::Result<Self> {
        Self::certified(CertificateAuthority::fresh()?, addr, logins, clock)
    }

    fn certified(
        authority: CertificateAuthority,
        addr: SocketAddr,
        logins: Vec<(u64, u64)>,
        clock: Clock,
    ) -> io::Result<Self> {
        let (ca_pem, tls) = authority.certificates(addr)?;
        let shared = Arc::new(SharedAccounts::new(Accounts::new(logins), clock));
        Ok(Self { addr, ca_pem, tls, shared, listening: Mutex::new(None) })
    }

    /// Binds and begins to serve these accounts (Android id and security token). Call it inside an actix system.
    pub async fn start(listen: SocketAddr, logins: Vec<(u64, u64)>, clock: Clock) -> io::Result<Self> {
        Self::start_as(CertificateAuthority::fresh()?, listen, logins, clock).await
    }

    /// As [`Self::start`], with a certificate of this authority: clients that trust it already go on.
    pub async fn start_as(
        authority: CertificateAuthority,
        listen: SocketAddr,
        logins: Vec<(u64, u64)>,
        clock: Clock,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(listen).await?;
        let service = Self::certified(authority, listener.local_addr()?, logins, clock)?;
        service.listen(listener);
        Ok(service)
    }

    fn listen(&self, listener: TcpListener) {
        let listening = actix::spawn(accept(Arc::clone(&self.shared), self.tls.clone(), listener));
        *self.listening.lock().unwrap_or_else(PoisonError::into_inner) = Some(listening);
    }

    /// Serves one client on a stream that the caller accepted, without TLS. Completes when the connection has ended;
    /// dropping it cuts the connection.
    pub fn serve<S>(&self, stream: S) -> impl Future<Output = ()> + use<S>
    where
        S: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let shared = Arc::clone(&self.shared);
        until_cut(&self.shared, async move { serve(&shared, stream).await })
    }

    /// The address that it listens on.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The certificate that clients must trust.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// Pushes to an account, now or at its next login, and returns the persistent id. An unknown account gets nothing.
    pub fn push(&self, android_id: u64, app_data: Vec<(String, String)>) -> String {
        self.push_at(android_id, app_data, self.shared.clock.now(), FOUR_WEEKS)
    }

    /// As [`Self::push`], as if sent at another time; `ttl` after it, the message expires.
    pub fn push_at(&self, android_id: u64, app_data: Vec<(String, String)>, sent: Timestamp, ttl: TimeDelta) -> String {
        self.shared.lock().push(android_id, app_data, sent, ttl)
    }

    /// Adds an account, or gives a known one another token.
    pub fn set_token(&self, android_id: u64, security_token: u64) {
        let mut accounts = self.shared.lock();
        accounts.by_id.entry(android_id).or_insert_with(|| Account::new(security_token)).token = security_token;
    }

    /// Changes the faults.
    pub fn faults(&self, change: impl FnOnce(&mut PushServiceFaults)) {
        let mut accounts = self.shared.lock();
        change(&mut accounts.faults);
        accounts.by_id.values().for_each(Account::wake);
    }

    /// Sends a heartbeat that the client must answer; real ones are sent every half hour.
    pub fn ping(&self, android_id: u64) {
        if let Some(account) = self.shared.lock().by_id.get_mut(&android_id)
            && let Some(session) = &mut account.session
        {
            session.pings += 1;
            account.wake();
        }
    }

    /// Actions of clients so far.
    pub fn counts(&self) -> Counts {
        self.shared.lock().counts.clone()
    }

    /// True if the account is logged in.
    pub fn connected(&self, android_id: u64) -> bool {
        self.shared.lock().by_id.get(&android_id).is_some_and(|account| account.session.is_some())
    }

    /// Messages of the account that are not yet acknowledged.
    pub fn unacknowledged(&self, android_id: u64) -> usize {
        self.shared.lock().by_id.get(&android_id).map_or(0, Account::waiting)
    }

    /// Waits until this holds; checked again whenever a client did something.
    pub async fn until(&self, holds: impl Fn(&Self) -> bool) {
        let mut changed = self.shared.changed.subscribe();
        while !holds(self) {
            changed.changed().await.expect("self owns the sender");
        }
    }

    /// Ends every session without a close frame.
    pub fn drop_connections(&self) {
        for account in self.shared.lock().by_id.values_mut() {
            account.wake();
            account.session = None;
        }
    }

    /// Stops listening and cuts every connection; accounts and messages stay.
    pub async fn stop(&self) {
        let listening = self.listening.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(listening) = listening {
            listening.abort();
            // The address is free when the task has ended; that it was aborted is no failure.
            let _ = listening.await;
        }
        self.shared.cut.send_replace(());
    }

    /// Stops, then listens again on the same address.
    pub async fn restart(&self) -> io::Result<()> {
        self.stop().await;
        self.listen(TcpListener::bind(self.addr).await?);
        Ok(())
    }
}

impl Drop for PushService {
    fn drop(&mut self) {
        if let Some(listening) = self.listening.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            listening.abort();
        }
        self.shared.cut.send_replace(());
    }
}

async fn accept(shared: Arc<SharedAccounts>, tls: TlsAcceptor, listener: TcpListener) {
    loop {
        let Ok((socket, _)) = listener.accept().await else {
            // Most likely out of file descriptors: other connections must end first.
            sleep(Duration::from_millis(50)).await;
            continue;
        };
        if shared.cut.receiver_count() >= CONNECTIONS {
            continue;
        }
        // Deliveries are small and must not wait for each other; without it they are only slower.
        let _ = socket.set_nodelay(true);
        let (tls, accounts) = (tls.clone(), Arc::clone(&shared));
        actix::spawn(until_cut(&shared, async move {
            if let Ok(Ok(stream)) = timeout(TLS_DEADLINE, tls.accept(socket)).await {
                serve(&accounts, stream).await;
            }
        }));
    }
}

/// A connection that ends early when every connection is cut from now on.
fn until_cut<C: Future<Output = ()>>(shared: &SharedAccounts, connection: C) -> impl Future<Output = ()> + use<C> {
    let mut cut = shared.cut.subscribe();
    async move {
        select! {
            biased;
            _ = cut.changed() => {}
            () = connection => {}
        }
    }
}
