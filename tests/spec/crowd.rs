//! Many or slow clients do nothing to the others.

use std::{
    io::{BufRead as _, BufReader},
    net::{IpAddr, SocketAddr},
    process::{Child, Command, Stdio},
};

use futures_util::future::{join_all, try_join_all};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    time::timeout,
};

use crate::harness::{
    app::TestApp,
    game::ALICE,
    relay_client::{self, PATIENCE, open, request, with_header},
};

/// A connection from this address of the loopback network.
async fn connect(from: &str, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(from.parse::<IpAddr>().unwrap(), 0)).unwrap();
    timeout(PATIENCE, socket.connect(to)).await.expect("a connection in time").unwrap()
}

/// All that comes until the service closes the connection.
async fn until_closed(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let _ = timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("the service closes the connection");
    String::from_utf8_lossy(&answer).into_owned()
}

/// Sends this and reads until the service closes the connection.
async fn exchange(to: SocketAddr, sent: String) -> String {
    let mut stream = connect("127.0.0.1", to).await;
    stream.write_all(sent.as_bytes()).await.unwrap();
    until_closed(&mut stream).await
}

/// The binary with 256 open files at most.
struct Narrow {
    process: Child,
    api: SocketAddr,
    relay: SocketAddr,
    _directory: TempDir,
}

impl Narrow {
    fn start() -> Self {
        let directory = TempDir::new().unwrap();
        let mut process = Command::new("sh")
            .args(["-c", "ulimit -n 256 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_companion"), "serve"])
            .args([
                "--api-listen=127.0.0.1:0",
                "--relay-listen=127.0.0.1:0",
                "--push-address=127.0.0.1:9",
                "--workers=2",
            ])
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .current_dir(directory.path())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines().map(Result::unwrap);
        let mut address = |what: &str| {
            let line = lines.find(|line| line.contains(what)).expect("it starts");
            line.rsplit_once("//").unwrap().1.parse().unwrap()
        };
        let (api, relay) = (address("the API listens on"), address("the relay listens on"));
        // Its log must go somewhere.
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, api, relay, _directory: directory }
    }
}

impl Drop for Narrow {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[actix_web::test]
async fn one_address_cannot_take_every_descriptor() {
    let service = Narrow::start();
    let trickle = |to| async move {
        let mut stream = connect("127.0.0.1", to).await;
        let head = "POST /pairing/device/activate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n\
                    Content-Length: 100\r\n\r\n{";
        // One that is refused may be gone already.
        let _ = stream.write_all(head.as_bytes()).await;
        stream
    };
    let crowd = join_all((0..300).map(|_| trickle(service.api))).await;
    let at_relay = join_all((0..100).map(|_| trickle(service.relay))).await;

    let ask = |to, path: &'static str| async move {
        let mut stream = connect("127.0.0.2", to).await;
        let head = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        until_closed(&mut stream).await
    };
    for _ in 0..3 {
        let health = ask(service.api, "/health").await;
        assert!(health.starts_with("HTTP/1.1 200 "), "{health}");
        let health = ask(service.relay, "/health").await;
        assert!(health.starts_with("HTTP/1.1 200 "), "{health}");
        // A sign-in that begins is stored.
        let sign_in = ask(service.api, "/auth/platform").await;
        assert!(sign_in.starts_with("HTTP/1.1 302 "), "{sign_in}");
    }
    // All of the crowd were answered, those who waited and those who were sent away.
    let answers = join_all(crowd.into_iter().map(|mut stream| async move { until_closed(&mut stream).await })).await;
    let late = answers.iter().filter(|answer| answer.starts_with("HTTP/1.1 408 ")).count();
    assert!((1..=60).contains(&late), "{late} of 300 were served");
    drop(at_relay);
}

#[actix_web::test]
async fn a_full_service_still_answers_its_operator() {
    let service = Narrow::start();
    let ask = |from: &'static str, path: &'static str| async move {
        let mut stream = connect(from, service.api).await;
        let head = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let _ = stream.write_all(head.as_bytes()).await;
        until_closed(&mut stream).await
    };
    // Each has had an answer, and stays.
    let hold = |from: &'static str| async move {
        let mut stream = connect(from, service.api).await;
        stream.write_all(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        assert!(timeout(PATIENCE, stream.read(&mut [0; 512])).await.unwrap().unwrap() > 0);
        stream
    };
    let crowd =
        join_all(["127.0.0.1", "127.0.0.2"].into_iter().flat_map(|from| (0..60).map(move |_| hold(from)))).await;
    let refused = ask("127.0.0.3", "/me").await;
    assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("unavailable"), "{refused}");
    for path in ["/health", "/ready", "/status"] {
        let answer = ask("127.0.0.3", path).await;
        assert!(answer.contains("x-request-id"), "{path}: {answer}");
    }
    let metrics = ask("127.0.0.3", "/metrics").await;
    let figure = |name: &str| -> u64 {
        metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap().trim().parse().unwrap()
    };
    let figures = ["companion_client_connections", "companion_client_connections_limit"].map(figure);
    assert_eq!(figures, [120, 120], "{metrics}");
    drop(crowd);
}

#[actix_web::test]
async fn one_address_cannot_take_every_handshake() {
    let service = Narrow::start();
    let handshake = |from: &'static str| async move {
        let mut stream = connect(from, service.relay).await;
        // One that is refused may be gone already.
        let _ = stream.write_all(b"GET /v1?token=slow HTTP/1.1\r\nHost: a\r\n").await;
        stream
    };
    let crowd = join_all((0..40).map(|_| handshake("127.0.0.1"))).await;
    let answers = join_all(crowd.into_iter().map(|mut stream| async move { until_closed(&mut stream).await })).await;
    let held = answers.iter().filter(|answer| answer.starts_with("HTTP/1.1 408 ")).count();
    assert!((1..=20).contains(&held), "{held} of 40 were let in");
}

#[actix_web::test]
async fn a_request_that_trickles_ends() {
    let app = TestApp::start().await;
    let mut alice = app.signed_in(ALICE).await;
    let helper = app.paired(&mut alice).await;
    let with_body = |line: &str, more: &str| {
        format!("{line} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 100\r\n{more}\r\n{{")
    };
    let chunked =
        |line: &str| format!("{line} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n5\r\nab");
    let bearer = format!("Authorization: Bearer {}\r\n", helper.token);
    let second_head = async {
        let mut stream = connect("127.0.0.1", app.address).await;
        stream.write_all(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        timeout(PATIENCE, stream.peek(&mut [0])).await.expect("an answer").unwrap();
        stream.write_all(b"GET /health HTTP/1.1\r\nHos").await.unwrap();
        until_closed(&mut stream).await
    };
    let (json, bytes, unread, at_relay, head, second_head, pipelined_head) = tokio::join!(
        exchange(app.address, with_body("POST /pairing/device/activate", "")),
        exchange(app.address, with_body("PUT /credentials/push", &bearer)),
        exchange(app.address, chunked("GET /health")),
        exchange(app.relay, chunked("GET /health")),
        exchange(app.address, "GET /health HTTP/1.1\r\nHos".to_owned()),
        second_head,
        // Nothing more is read there: it is idle, which the relay bears for five seconds.
        exchange(app.relay, "GET /health HTTP/1.1\r\nHost: a\r\n\r\nGET /health HTTP/1.1\r\nHos".to_owned()),
    );
    for late in [json, bytes] {
        assert!(late.starts_with("HTTP/1.1 408 ") && late.contains("connection: close"), "{late}");
        assert!(late.contains(r#""code":"request_timeout""#), "{late}");
    }
    assert!(head.starts_with("HTTP/1.1 408 "), "{head}");
    // The answer does not need the rest, and it is not waited for.
    for answered in [unread, at_relay, second_head, pipelined_head] {
        assert!(answered.starts_with("HTTP/1.1 200 "), "{answered}");
        assert_eq!(answered.matches("HTTP/1.1").count(), 1, "{answered}");
    }
}

#[actix_web::test]
async fn behind_a_proxy_the_client_is_limited_and_not_the_proxy() {
    let app = TestApp::start_with(&["--trusted-proxies=127.0.0.0/8", "--connections-per-address=2"]).await;
    let mut alice = app.signed_in(ALICE).await;
    let token = relay_client::token(&mut alice).await;
    let socket = |client: &'static str| {
        let request = with_header(request(app.relay, Some(&token)), "x-forwarded-for", client);
        async move { open(app.relay, request).await.map(|(client, _)| client) }
    };
    // Sockets of one client network: an IPv6 /64.
    let mut held = try_join_all(["2001:db8::1", "2001:db8::2"].map(socket)).await.expect("two sockets");
    let refused = socket("198.51.100.7, 2001:db8::3").await.map(|_| "a socket").unwrap_err();
    assert_eq!((refused.status, refused.problem["code"].as_str()), (429, Some("too_many_connections")));
    socket("2001:db8:0:1::1").await.expect("another client_network");
    let unnamed = (0..4).map(|_| open(app.relay, request(app.relay, Some(&token))));
    let unnamed = join_all(unnamed).await;
    assert!(unnamed.iter().all(Result::is_ok), "the proxy itself");

    // A socket that closes makes room, as soon as the relay has seen it.
    held.pop();
    let room = async { while socket("2001:db8::3").await.is_err() {} };
    timeout(PATIENCE, room).await.expect("room");
}

/// The status lines and problem codes of this many pipelined requests of a client behind the proxy.
async fn pipelined(api: SocketAddr, client: &str, path: &str, count: usize) -> String {
    let one = format!("GET {path} HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {client}\r\n");
    let all = format!("{one}\r\n").repeat(count - 1) + &one + "Connection: close\r\n\r\n";
    let (mut read, mut write) = connect("127.0.0.1", api).await.into_split();
    let mut answers = Vec::new();
    let (written, read) =
        tokio::join!(write.write_all(all.as_bytes()), timeout(PATIENCE, read.read_to_end(&mut answers)));
    written.unwrap();
    read.expect("all answers in time").unwrap();
    String::from_utf8(answers).unwrap()
}

#[actix_web::test]
async fn every_route_is_limited_per_address() {
    let app = TestApp::start_with(&["--trusted-proxies=127.0.0.1"]).await;
    for _ in 0..12 {
        let answers = pipelined(app.address, "2001:db8::1", "/no-such-path", 500).await;
        assert_eq!(answers.matches("HTTP/1.1 404 ").count(), 500);
    }
    let answers = pipelined(app.address, "2001:db8::1", "/no-such-path", 1).await;
    let refused = &answers[answers.find("HTTP/1.1 429 ").expect("one too many")..];
    for expected in [r#""code":"rate_limited""#, "retry-after: 1\r\n", "ratelimit-policy: \"address\";q=6000;w=60"] {
        assert!(refused.contains(expected), "{refused}");
    }
    let status = |client: &'static str, path: &'static str| async move {
        pipelined(app.address, client, path, 1).await[9..12].to_owned()
    };
    assert_eq!(status("2001:db8::2", "/me").await, "429", "the same client_network");
    assert_eq!(status("2001:db8::2", "/health").await, "200");
    assert_eq!(status("2001:db8::2", "/ready").await, "200");
    assert_eq!(status("2001:db8:0:1::2", "/me").await, "401", "another");
    app.clock.advance(chrono::Duration::seconds(1));
    assert_eq!(status("2001:db8::2", "/me").await, "401", "a second later");
}

#[actix_web::test]
async fn metrics_are_for_this_machine_alone() {
    let app = TestApp::start().await;
    let ask = |method: &str, header: &str| {
        let head = format!("{method} /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{header}\r\n");
        exchange(app.address, head)
    };
    assert!(ask("GET", "").await.starts_with("HTTP/1.1 200 "));
    for header in [
        "X-Forwarded-For: 198.51.100.1\r\n",
        "X-Forwarded-Proto: https\r\n",
        "X-Forwarded-Host: api.example.org\r\n",
        "X-Real-IP: 198.51.100.1\r\n",
        "Forwarded: for=198.51.100.1\r\n",
        "Via: 1.1 proxy\r\n",
    ] {
        for method in ["GET", "POST"] {
            let answer = ask(method, header).await;
            assert!(answer.starts_with("HTTP/1.1 404 ") && answer.contains(r#""code":"not_found""#), "{answer}");
        }
    }
}
