//! The push session against the simulated push service, with TLS on loopback.

#![allow(clippy::disallowed_methods, reason = "a test is not part of a simulated run")]

use std::{
    io::{BufRead as _, BufReader},
    net::Ipv4Addr,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use bytes::BytesMut;
use chrono::TimeDelta;
use companion::{
    clock::Clock,
    config::PushAddress,
    domain::time::Timestamp,
    net::{Memory, Network, tls_config},
    push::{
        login::{self, LoginError, PushLogin},
        mcs::{Decoder, Frame, FrameError, VERSION},
        message::PushMessage,
        notification::Notification,
        session::{McsSession, Received, SessionEnd},
        wire::{LoginRequest, LoginResponse, Setting},
    },
    simulator::push_service::{PushService, PushServiceFaults, PushedServer, news},
};
use futures_util::FutureExt as _;
use rustls::ClientConfig;
use secrecy::{ExposeSecret as _, SecretBox};
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, duplex},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

const ANDROID_ID: u64 = 5_000_000_000_000_000_001;
const TOKEN: u64 = 1_234_567_890_123_456_789;
const PLAYER: u64 = 76_561_198_000_000_001;
/// Nothing here takes this long unless it is broken.
const DEADLINE: Duration = Duration::from_secs(20);

fn now() -> Timestamp {
    Clock::system().now()
}

async fn service() -> PushService {
    PushService::start((Ipv4Addr::LOCALHOST, 0).into(), vec![(ANDROID_ID, TOKEN)], Clock::system())
        .await
        .expect("a free port")
}

fn trusting(service: &PushService) -> Arc<ClientConfig> {
    let ca = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(ca.path(), service.ca_pem()).expect("a file");
    Arc::new(tls_config(Some(ca.path())).expect("a certificate"))
}

fn address(service: &PushService) -> PushAddress {
    service.addr().to_string().parse().expect("an address")
}

fn login(received: &[&str]) -> PushLogin {
    PushLogin {
        android_id: ANDROID_ID,
        security_token: SecretBox::new(Box::new(TOKEN)),
        received: received.iter().map(|id| (*id).to_owned()).collect(),
    }
}

/// A session over a new connection.
async fn logged_in(
    network: &Network,
    address: &PushAddress,
    tls: Arc<ClientConfig>,
    login: PushLogin,
) -> Result<McsSession, LoginError> {
    login::log_in(login::connect(network, address, tls).await?, login).await
}

async fn connect(service: &PushService) -> Result<McsSession, LoginError> {
    logged_in(&Network::system(), &address(service), trusting(service), login(&[])).await
}

async fn session(service: &PushService) -> McsSession {
    connect(service).await.expect("a session")
}

fn valley() -> PushedServer {
    PushedServer {
        id: "0f3b6c52-9f4e-4f0b-8a53-0d3a6f0f1a11".to_owned(),
        name: "Sim Valley | Weekly".to_owned(),
        ip: "203.0.113.7".to_owned(),
        port: 28083,
    }
}

fn numbered(number: u32) -> Vec<(String, String)> {
    news(&number.to_string(), "")
}

async fn next(session: &mut McsSession) -> Result<Received, SessionEnd> {
    timeout(DEADLINE, session.next()).await.expect("something in time")
}

async fn message(session: &mut McsSession) -> PushMessage {
    loop {
        match next(session).await.expect("a message") {
            Received::Message(message, receipt) => {
                session.stored(receipt);
                return message;
            }
            Received::Heartbeat => {}
            Received::Unreadable => panic!("unreadable"),
        }
    }
}

async fn title(session: &mut McsSession) -> String {
    match Notification::read(&message(session).await.app_data) {
        Notification::News { title, .. } => title,
        other => panic!("{other:?}"),
    }
}

async fn ended(session: &mut McsSession) -> SessionEnd {
    loop {
        if let Err(ended) = next(session).await {
            return ended;
        }
    }
}

/// Runs the session in a task; it must receive nothing but heartbeats.
fn idle(mut session: McsSession) -> JoinHandle<SessionEnd> {
    actix_web::rt::spawn(async move {
        loop {
            match session.next().await {
                Ok(Received::Heartbeat) => {}
                Ok(other) => panic!("{other:?}"),
                Err(ended) => return ended,
            }
        }
    })
}

async fn until(service: &PushService, holds: impl Fn(&PushService) -> bool) {
    timeout(DEADLINE, service.until(holds)).await.expect("in time");
    assert_eq!(service.counts().violations, Vec::<String>::new());
}

#[actix_web::test]
async fn a_pairing_arrives_and_is_acknowledged() {
    let service = service().await;
    let mut session = session(&service).await;
    let before = now() - TimeDelta::seconds(1);
    let id = service.push(ANDROID_ID, valley().pairing(PLAYER, -77));
    let message = message(&mut session).await;
    assert_eq!(message.persistent_id, Some(id));
    assert!(message.sent.is_some_and(|sent| sent > before && sent <= now()));
    let read = Notification::read(&message.app_data);
    let Notification::ServerPairing(pairing) = read else { panic!("{read:?}") };
    assert_eq!((pairing.name.as_str(), pairing.port), ("Sim Valley | Weekly", 28083));
    assert_eq!((pairing.player_id.as_str(), *pairing.player_token.expose_secret()), (&*PLAYER.to_string(), -77));

    assert_eq!(service.unacknowledged(ANDROID_ID), 1);
    let _idle = idle(session);
    until(&service, |service| service.unacknowledged(ANDROID_ID) == 0).await;
    assert_eq!(service.counts().stream_acks, 1);
}

#[actix_web::test]
async fn every_push_of_the_game_is_read() {
    let service = service().await;
    let mut session = session(&service).await;
    let valley = valley();
    for app_data in [
        valley.entity_pairing(PLAYER, 5, 4242, 1, "Gate"),
        valley.alarm("North wall", "C4 on the airlock"),
        valley.death((0, "bear")),
        valley.login((PLAYER + 3, "Carol")),
    ] {
        service.push(ANDROID_ID, app_data);
    }
    let mut read = Vec::new();
    for _ in 0..4 {
        read.push(Notification::read(&message(&mut session).await.app_data));
    }
    let [
        Notification::EntityPairing(device),
        Notification::Alarm(alarm),
        Notification::Death(death),
        Notification::Login(login),
    ] = read.as_slice()
    else {
        panic!("{read:?}")
    };
    assert_eq!((device.entity_id, device.name.as_str()), (4242, "Gate"));
    assert_eq!(alarm.message, "C4 on the airlock");
    assert_eq!(alarm.server.as_ref().and_then(|server| server.game_server_id.clone()), Some(valley.id));
    assert_eq!((death.player_name.as_str(), &death.player_id), ("bear", &None));
    assert_eq!(login.player_name, "Carol");
}

#[actix_web::test]
async fn pushes_while_away_are_delivered_at_login_unless_received_or_expired() {
    let service = service().await;
    let hour = TimeDelta::hours(1);
    service.push_at(ANDROID_ID, numbered(1), now() - hour * 2, hour);
    let known = service.push(ANDROID_ID, numbered(2));
    let sent = now() - hour * 3;
    service.push_at(ANDROID_ID, numbered(3), sent, hour * 4);
    service.push(ANDROID_ID, numbered(4));

    let mut session = logged_in(&Network::system(), &address(&service), trusting(&service), login(&[&known]))
        .await
        .expect("a session");
    let first = message(&mut session).await;
    assert_eq!(first.sent.map(|at| at.timestamp_millis()), Some(sent.timestamp_millis()));
    assert_eq!(title(&mut session).await, "4");
    let _idle = idle(session);
    until(&service, |service| service.unacknowledged(ANDROID_ID) == 0).await;
}

#[actix_web::test]
async fn unacknowledged_pushes_are_delivered_again() {
    let service = service().await;
    let mut first = session(&service).await;
    service.push(ANDROID_ID, numbered(1));
    service.push(ANDROID_ID, numbered(2));
    assert_eq!(title(&mut first).await, "1");
    drop(first);
    let mut second = session(&service).await;
    assert_eq!((title(&mut second).await, title(&mut second).await), ("1".to_owned(), "2".to_owned()));
}

#[actix_web::test]
async fn a_burst_larger_than_any_buffer_arrives_in_order() {
    let service = service().await;
    for number in 0..800 {
        service.push(ANDROID_ID, news(&number.to_string(), &"x".repeat(3_000)));
    }
    let mut session = session(&service).await;
    for number in 0..800 {
        assert_eq!(title(&mut session).await, number.to_string());
    }
    let _idle = idle(session);
    until(&service, |service| service.unacknowledged(ANDROID_ID) == 0).await;
}

#[actix_web::test]
async fn heartbeats_of_the_service_are_answered() {
    let service = service().await;
    let mut session = session(&service).await;
    service.ping(ANDROID_ID);
    assert!(matches!(next(&mut session).await, Ok(Received::Heartbeat)));
    let _idle = idle(session);
    until(&service, |service| service.counts().pongs == 1).await;
}

#[actix_web::test]
async fn a_wrong_token_is_refused() {
    let service = service().await;
    let wrong = PushLogin { security_token: SecretBox::new(Box::new(TOKEN + 1)), ..login(&[]) };
    let refused = logged_in(&Network::system(), &address(&service), trusting(&service), wrong).await;
    assert!(matches!(refused, Err(LoginError::Refused(401))), "{refused:?}");
    let stranger = PushLogin { android_id: ANDROID_ID + 1, ..login(&[]) };
    let refused = logged_in(&Network::system(), &address(&service), trusting(&service), stranger).await;
    assert!(matches!(refused, Err(LoginError::Refused(401))), "{refused:?}");
    assert_eq!(service.counts().refused, 2);
}

#[actix_web::test]
async fn a_refusal_and_an_outage_are_distinguished() {
    let service = service().await;
    service.faults(|faults| faults.refuse_login = Some(401));
    assert!(matches!(connect(&service).await, Err(LoginError::Refused(401))));
    service.faults(|faults| faults.refuse_login = Some(503));
    assert!(matches!(connect(&service).await, Err(LoginError::ServiceFault(503))));
    service.stop().await;
    assert!(matches!(connect(&service).await, Err(LoginError::Network(_))));
    service.restart().await.expect("the same port");
    service.faults(|faults| faults.refuse_login = None);
    session(&service).await;
}

#[actix_web::test]
async fn a_certificate_of_another_authority_is_refused() {
    let (service, other) = (service().await, service().await);
    let failed = logged_in(&Network::system(), &address(&service), trusting(&other), login(&[])).await;
    assert!(matches!(&failed, Err(LoginError::Network(why)) if why.to_string().contains("certificate")), "{failed:?}");
    let public = Arc::new(tls_config(None).expect("roots"));
    let failed = logged_in(&Network::system(), &address(&service), public, login(&[])).await;
    assert!(matches!(&failed, Err(LoginError::Network(why)) if why.to_string().contains("certificate")), "{failed:?}");
    // The certificate names 127.0.0.1, not this spelling of another loopback address.
    let elsewhere = PushAddress { host: "127.0.0.2".to_owned(), ..address(&service) };
    assert!(matches!(
        logged_in(&Network::system(), &elsewhere, trusting(&service), login(&[])).await,
        Err(LoginError::Network(_))
    ));
    assert_eq!(service.counts().logins, 0, "no credential was sent");
}

/// `companion simulate` on free ports: the process, and what it says when it is ready.
fn simulate(directory: &Path, ca_file: &str) -> (Child, Value) {
    let mut process = Command::new(env!("CARGO_BIN_EXE_companion"))
        .args([
            "simulate",
            "--game-port=0",
            "--identity-port=0",
            "--push-port=0",
            "--player-stats-port=0",
            "--payments-port=0",
            "--chat-port=0",
            "--registration-port=0",
            "--data-dir=kept",
        ])
        .arg(format!("--ca-file={ca_file}"))
        .env_clear()
        .current_dir(directory)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary");
    let mut line = String::new();
    BufReader::new(process.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    (process, serde_json::from_str(&line).expect("JSON"))
}

#[actix_web::test]
async fn a_client_that_trusts_the_simulator_goes_on_after_its_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let (mut process, _) = simulate(directory.path(), "first.pem");
    process.kill().and_then(|()| process.wait()).expect("it is killed");
    let tls = Arc::new(tls_config(Some(&directory.path().join("first.pem"))).expect("a certificate"));

    let (mut process, ready) = simulate(directory.path(), "second.pem");
    let number = |name: &str| ready[name].as_str().and_then(|text| text.parse::<u64>().ok()).expect("a number");
    let login = PushLogin {
        android_id: number("androidId"),
        security_token: SecretBox::new(Box::new(number("securityToken"))),
        received: Vec::new(),
    };
    let address: PushAddress = ready["push"].as_str().expect("an address").parse().expect("an address");
    let connected = logged_in(&Network::system(), &address, tls, login).await;
    process.kill().and_then(|()| process.wait()).expect("it is killed");
    connected.expect("a session");

    let mode = |name: &str| directory.path().join(name).metadata().expect("it is there").permissions().mode() & 0o777;
    assert_eq!((mode("kept"), mode("kept/push-ca.key")), (0o700, 0o600));
}

#[actix_web::test]
async fn a_newer_session_replaces_an_older_one() {
    let service = service().await;
    let mut first = session(&service).await;
    let mut second = session(&service).await;
    assert_eq!(ended(&mut first).await, SessionEnd::Closed);
    service.push(ANDROID_ID, numbered(1));
    assert_eq!(title(&mut second).await, "1");
}

#[actix_web::test]
async fn a_broken_stream_ends_the_session_with_its_reason_and_loses_nothing() {
    let service = service().await;
    service.push(ANDROID_ID, numbered(1));
    for (fault, reason) in [
        ("garbage", SessionEnd::Protocol(FrameError::Length)),
        ("oversize", SessionEnd::Protocol(FrameError::TooLarge(256 * 1024 + 1))),
        ("truncate", SessionEnd::Closed),
    ] {
        service.faults(|faults| match fault {
            "garbage" => faults.garbage = true,
            "oversize" => faults.oversize = true,
            _ => faults.truncate = true,
        });
        let mut session = session(&service).await;
        assert_eq!(ended(&mut session).await, reason, "{fault}");
        service.faults(|faults| *faults = PushServiceFaults::default());
    }
    assert_eq!(title(&mut session(&service).await).await, "1");
}

#[actix_web::test]
async fn a_cut_connection_ends_the_session() {
    let service = service().await;
    let session = idle(session(&service).await);
    service.drop_connections();
    assert_eq!(timeout(DEADLINE, session).await.expect("in time").expect("no panic"), SessionEnd::Closed);
}

#[actix_web::test]
async fn an_unreadable_message_is_reported_and_not_delivered_again() {
    let service = service().await;
    service.faults(|faults| faults.unreadable = true);
    let mut session = session(&service).await;
    service.push(ANDROID_ID, numbered(1));
    assert!(matches!(next(&mut session).await, Ok(Received::Unreadable)));
    let _idle = idle(session);
    until(&service, |service| service.unacknowledged(ANDROID_ID) == 0).await;
}

#[actix_web::test]
async fn duplicates_and_replays_carry_the_same_id() {
    let service = service().await;
    service.faults(|faults| faults.duplicate = true);
    let mut session = session(&service).await;
    let id = service.push(ANDROID_ID, numbered(1));
    for _ in 0..2 {
        assert_eq!(message(&mut session).await.persistent_id.as_ref(), Some(&id));
    }
    let _idle = idle(session);
    until(&service, |service| service.unacknowledged(ANDROID_ID) == 0).await;

    service.faults(|faults| {
        faults.duplicate = false;
        faults.replay = true;
    });
    let mut session =
        logged_in(&Network::system(), &address(&service), trusting(&service), login(&[&id])).await.expect("a session");
    assert_eq!(message(&mut session).await.persistent_id, Some(id));
}

#[actix_web::test]
async fn pushes_can_be_lost_late_or_frozen() {
    let service = service().await;
    let mut session = session(&service).await;
    service.faults(|faults| faults.lose = true);
    service.push(ANDROID_ID, numbered(1));
    service.faults(|faults| {
        faults.lose = false;
        faults.delay = Some(Duration::from_millis(30));
    });
    service.push(ANDROID_ID, numbered(2));
    assert_eq!(title(&mut session).await, "2");
    service.faults(|faults| *faults = PushServiceFaults { frozen: true, ..Default::default() });
    service.push(ANDROID_ID, numbered(3));
    // If the message had been sent, it would have arrived before this.
    service.ping(ANDROID_ID);
    assert!(matches!(next(&mut session).await, Ok(Received::Heartbeat)));
    service.faults(|faults| faults.frozen = false);
    assert_eq!(title(&mut session).await, "3");
}

#[actix_web::test]
async fn the_service_may_close_after_some_messages() {
    let service = service().await;
    service.faults(|faults| faults.close_after = Some(2));
    for number in 1..=3 {
        service.push(ANDROID_ID, numbered(number));
    }
    let mut first = session(&service).await;
    assert_eq!((title(&mut first).await, title(&mut first).await), ("1".to_owned(), "2".to_owned()));
    assert_eq!(ended(&mut first).await, SessionEnd::Closed);
}

#[actix_web::test]
async fn a_service_that_is_there_and_answers_nothing_is_noticed() {
    let clock = Clock::adjustable("2026-11-21T12:00:00Z".parse().expect("a time"));
    let service = PushService::new((Ipv4Addr::LOCALHOST, 1).into(), vec![(ANDROID_ID, TOKEN)], clock).expect("TLS");
    let service = Arc::new(service);
    let served = service.clone();
    let dial = move |_: &str, _| {
        let (ours, theirs) = Memory::pair(1 << 16);
        actix_web::rt::spawn(served.serve(theirs));
        async move { Ok(ours) }.boxed_local()
    };
    tokio::time::pause();
    let network = Network::simulated(Arc::new(dial));
    let tls = Arc::new(tls_config(None).expect("roots"));
    let address = PushAddress { host: "push.example.com".to_owned(), port: 1 };
    let mut session = logged_in(&network, &address, tls, login(&[])).await.expect("a session");
    let began = tokio::time::Instant::now();
    for beat in 1..=20 {
        assert!(matches!(session.next().await, Ok(Received::Heartbeat)));
        assert_eq!(began.elapsed().as_secs(), beat * 90);
    }
    service.faults(|faults| faults.frozen = true);
    assert_eq!(session.next().await.expect_err("no answer"), SessionEnd::Silent);
    assert_eq!(began.elapsed().as_secs(), 20 * 90 + 90 + 30);
}

#[actix_web::test]
async fn a_login_without_an_answer_ends_at_its_deadline() {
    let service = service().await;
    service.faults(|faults| faults.mute_login = true);
    let (address, tls) = (address(&service), trusting(&service));
    let connecting =
        actix_web::rt::spawn(async move { logged_in(&Network::system(), &address, tls, login(&[])).await });
    until(&service, |service| service.counts().logins == 1).await;
    // From now on time jumps to the next deadline whenever every task waits.
    tokio::time::pause();
    let failed = connecting.await.expect("no panic");
    assert!(matches!(failed, Err(LoginError::TimedOut)), "{failed:?}");
}

#[actix_web::test]
async fn a_peer_without_tls_is_unreachable() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    actix_web::rt::spawn(async move {
        let (mut socket, _) = listener.accept().await.expect("a peer");
        let mut hello = [0; 64];
        socket.read_exact(&mut hello).await.expect("a hello");
        socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.expect("a reader");
    });
    let address = PushAddress { host: "127.0.0.1".to_owned(), port };
    let failed = logged_in(&Network::system(), &address, trusting(&service().await), login(&[])).await;
    assert!(matches!(failed, Err(LoginError::Network(_))), "{failed:?}");
}

/// A client written by hand, for what our session never does.
struct Peer<S = TlsStream<TcpStream>> {
    stream: S,
    decoder: Decoder,
    inbox: BytesMut,
}

impl Peer {
    async fn connect(service: &PushService) -> Self {
        let socket = TcpStream::connect(service.addr()).await.expect("a listener");
        let name = "mtalk.google.com".try_into().expect("a name");
        let stream = TlsConnector::from(trusting(service)).connect(name, socket).await.expect("TLS");
        Self::new(stream)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Peer<S> {
    fn new(stream: S) -> Self {
        Self { stream, decoder: Decoder::default(), inbox: BytesMut::new() }
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.expect("a reader");
        self.stream.flush().await.expect("a reader");
    }

    /// The login of the Python client, with a change; the other fields are absent there as well.
    async fn log_in(&mut self, change: impl FnOnce(&mut LoginRequest)) {
        let mut login = LoginRequest {
            id: "chrome-63.0.3234.0".into(),
            domain: "mcs.android.com".into(),
            user: ANDROID_ID.to_string(),
            resource: ANDROID_ID.to_string(),
            auth_token: TOKEN.to_string(),
            device_id: Some(format!("android-{ANDROID_ID:x}")),
            setting: vec![Setting { name: "new_vc".into(), value: "1".into() }],
            adaptive_heartbeat: Some(false),
            use_rmq2: Some(true),
            auth_service: Some(2),
            network_type: Some(1),
            ..LoginRequest::default()
        };
        change(&mut login);
        let mut bytes = BytesMut::from(&[VERSION][..]);
        Frame::LoginRequest(login).encode(&mut bytes);
        self.send(&bytes).await;
    }

    /// `None` at the end of the connection.
    async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.decoder.next(&mut self.inbox).expect("a frame") {
                return Some(frame);
            }
            let read = timeout(DEADLINE, self.stream.read_buf(&mut self.inbox)).await.expect("bytes in time");
            if read.is_err() || read.is_ok_and(|read| read == 0) {
                return None;
            }
        }
    }
}

#[actix_web::test]
async fn the_service_accepts_the_version_before_later_frames() {
    let service = service().await;
    let mut peer = Peer::connect(&service).await;
    peer.log_in(|_| {}).await;
    assert!(matches!(peer.next().await, Some(Frame::LoginResponse(LoginResponse { error: None, .. }))));
    service.ping(ANDROID_ID);
    let Some(Frame::HeartbeatPing(ping)) = peer.next().await else { panic!("a ping") };
    assert_eq!(ping.stream_id, Some(2));
    peer.send(&[VERSION, 1, 4, 8, 3, 16, 2]).await;
    until(&service, |service| service.counts().pongs == 1).await;
    assert!(service.connected(ANDROID_ID));
}

#[actix_web::test]
async fn the_service_rejects_what_no_client_sends() {
    type Change = fn(&mut LoginRequest);
    let service = service().await;
    let mut violations = 0;
    let mut cut = async |peer: &mut Peer, what: &str| {
        while peer.next().await.is_some() {}
        violations += 1;
        timeout(DEADLINE, service.until(|service| service.counts().violations.len() == violations)).await.expect(what);
        let violation = service.counts().violations.pop().expect("a violation");
        assert!(violation.contains(what), "{violation} of {what}");
    };
    let wrong_logins: [(&str, Change); 5] = [
        ("domain", |login| login.domain.clear()),
        ("resource", |login| login.resource = "1".into()),
        ("auth_token", |login| login.auth_token = "secret".into()),
        ("setting", |login| login.setting.clear()),
        ("auth_service", |login| login.auth_service = None),
    ];
    for (what, change) in wrong_logins {
        let mut peer = Peer::connect(&service).await;
        peer.log_in(change).await;
        cut(&mut peer, what).await;
    }
    let mut peer = Peer::connect(&service).await;
    peer.send(&[VERSION, 0, 0]).await;
    cut(&mut peer, "before the login").await;
    let mut peer = Peer::connect(&service).await;
    peer.send(b"\x16\x03\x01").await;
    cut(&mut peer, "version").await;
    // Nine frames received where one was sent; an IqStanza that acknowledges nothing.
    for (bytes, what) in [(vec![1, 2, 16, 9], "9 frames"), (vec![7, 4, 16, 1, 26, 0], "no stream acknowledgement")] {
        let mut peer = Peer::connect(&service).await;
        peer.log_in(|_| {}).await;
        peer.send(&bytes).await;
        cut(&mut peer, what).await;
    }
}

#[actix_web::test]
async fn a_stream_that_the_caller_accepted_is_served_without_tls() {
    let clock = Clock::adjustable("2026-11-21T12:00:00Z".parse().expect("a time"));
    let address = (Ipv4Addr::LOCALHOST, 1).into();
    let service = PushService::new(address, vec![(ANDROID_ID, TOKEN)], clock.clone()).expect("a certificate");
    let (ours, theirs) = duplex(1 << 16);
    actix_web::rt::spawn(service.serve(theirs));
    let mut peer = Peer::new(ours);
    peer.log_in(|_| {}).await;
    let Some(Frame::LoginResponse(login)) = peer.next().await else { panic!("a login") };
    assert_eq!(login.server_timestamp, Some(clock.now().timestamp_millis()));
    service.push_at(ANDROID_ID, numbered(1), clock.now() - TimeDelta::hours(2), TimeDelta::hours(1));
    let id = service.push(ANDROID_ID, numbered(2));
    let Some(Frame::DataMessage(push)) = peer.next().await else { panic!("a push") };
    assert_eq!((push.persistent_id, push.sent), (Some(id), Some(clock.now().timestamp_millis())));
    service.stop().await;
    assert!(peer.next().await.is_none(), "stop cuts it");
}
