use std::{
    net::{Ipv4Addr, SocketAddr},
    process::Command,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use super::*;
use crate::{
    domain::channels::alarm_notice::{NoticeEvent, tests::notice},
    net::tls_config,
};

#[actix_web::test]
async fn a_second_url_that_has_ended_takes_no_alarm_with_it() {
    let urls = Arc::new(Mutex::new(Vec::new()));
    let seen = urls.clone();
    let receiver: SimulatedReceiver = Arc::new(move |request| {
        let status = if request.url.contains("rest") { StatusCode::NOT_FOUND } else { StatusCode::NO_CONTENT };
        seen.lock().unwrap().push(request.url);
        Box::pin(async move { Some(ChannelAnswer { status, retry_after: None, receipt: None }) })
    });
    let client = ChannelClient::simulated(receiver, Random::seeded(1));
    let [loud, rest] = ["raids", "rest"].map(|hook| format!("https://discord.example/{hook}"));
    let now = Timestamp::from_timestamp(1_700_000_000, 0).unwrap();
    let apart = ChannelTarget::Discord { url: loud.clone(), quiet_url: Some(rest.clone()) };
    let ended = ChannelTarget::Discord { url: rest, quiet_url: None };
    let send = async |event, target: &ChannelTarget| {
        let sent = client.send(ChannelLane::Proven, "1", target, &notice(event), None, now).await;
        sent.map(|taken| taken.status.expect("an answer of HTTP"))
    };
    assert_eq!(send(NoticeEvent::Event, &apart).await, Ok(204));
    assert_eq!(send(NoticeEvent::Opened, &apart).await, Ok(204));
    let gone = send(NoticeEvent::Event, &ended).await.unwrap_err();
    assert_eq!((gone.fault, gone.status), (ChannelFault::Gone, Some(404)));
    let seen: Vec<String> = urls.lock().unwrap().iter().map(|url| url.replace("?wait=true", "")).collect();
    let expected = ["rest", "raids", "raids", "rest"].map(|hook| format!("https://discord.example/{hook}"));
    assert_eq!(seen, expected);
}

#[actix_web::test]
async fn a_message_that_was_deleted_takes_no_channel_with_it() {
    let receiver: SimulatedReceiver = Arc::new(|_| {
        Box::pin(async { Some(ChannelAnswer { status: StatusCode::NOT_FOUND, retry_after: None, receipt: None }) })
    });
    let client = ChannelClient::simulated(receiver, Random::seeded(1));
    let target = ChannelTarget::Discord { url: "https://discord.example/raids".to_owned(), quiet_url: None };
    let now = Timestamp::from_timestamp(1_700_000_000, 0).unwrap();
    let edit = AlarmNotice { replaces: Some("1109".to_owned()), ..notice(NoticeEvent::Updated) };
    for (notice, expected) in [(edit, ChannelFault::Refused), (notice(NoticeEvent::Opened), ChannelFault::Gone)] {
        let failure = client.send(ChannelLane::Proven, "1", &target, &notice, None, now).await.unwrap_err();
        assert_eq!((failure.fault, failure.status), (expected, Some(404)));
    }
}

#[test]
fn a_status_says_whether_another_attempt_is_worth_it() {
    let of = |kind, status| fault(kind, StatusCode::from_u16(status).unwrap());
    for (kind, status, expected) in [
        (ChannelKind::WebPush, 404, ChannelFault::Gone),
        (ChannelKind::WebPush, 410, ChannelFault::Gone),
        (ChannelKind::WebPush, 403, ChannelFault::Refused),
        (ChannelKind::WebPush, 400, ChannelFault::Rejected),
        (ChannelKind::WebPush, 406, ChannelFault::Throttled),
        (ChannelKind::Webhook, 404, ChannelFault::Refused),
        (ChannelKind::Webhook, 410, ChannelFault::Gone),
        (ChannelKind::Discord, 404, ChannelFault::Gone),
        (ChannelKind::Ntfy, 429, ChannelFault::Throttled),
        (ChannelKind::Ntfy, 302, ChannelFault::Rejected),
        (ChannelKind::Gotify, 502, ChannelFault::Unavailable),
        (ChannelKind::Telegram, 413, ChannelFault::Rejected),
    ] {
        assert_eq!(of(kind, status), expected, "{kind:?} {status}");
    }
    let transient: Vec<_> = ChannelFault::ALL.into_iter().filter(|fault| fault.is_transient()).collect();
    let expected = [ChannelFault::Unavailable, ChannelFault::Throttled, ChannelFault::Unreadable, ChannelFault::NoLink];
    assert_eq!(transient, expected);
}

/// Where messages may go, and where not.
const PUBLIC: Ipv4Addr = Ipv4Addr::LOCALHOST;
const PRIVATE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// Names with these addresses.
const NAMES: [(&str, &[Ipv4Addr]); 4] = [
    ("public.example", &[PUBLIC]),
    ("private.example", &[PRIVATE]),
    ("mixed.example", &[PUBLIC, PRIVATE]),
    ("none.example", &[]),
];

/// Answers each connection with this head, and counts them.
async fn listen(at: SocketAddr, head: String) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind(at).await.unwrap();
    let (address, count) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counted = count.clone();
    actix_web::rt::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::Relaxed);
            let answer = format!("HTTP/1.1 {head}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            let mut read = [0; 16_384];
            // Head and body come together, or the rest is not needed for the answer.
            let _ = stream.read(&mut read).await;
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    (address, count)
}

/// Reaches [`PUBLIC`] alone, also in the clear.
fn guarded() -> ChannelClient {
    let names = || {
        Names::resolved_by(|host, port| {
            let (_, addresses) = NAMES.iter().find(|(name, _)| *name == host).expect("a name of this test");
            Ok(addresses.iter().map(|address| SocketAddr::new((*address).into(), port)).collect())
        })
    };
    let may_reach: MayReach = Arc::new(|address| address == IpAddr::from(PUBLIC));
    ChannelClient::new(names, tls_config(None).unwrap(), may_reach, true, String::new(), Random::seeded(1)).unwrap()
}

/// Sends a message to a webhook at this URL.
async fn send_to(client: &ChannelClient, url: String) -> Result<u16, ChannelFailure> {
    let target = ChannelTarget::Webhook { url, secrets: vec!["whsec_c2VjcmV0".to_owned()], template: None };
    let now = Timestamp::from_timestamp(1_700_000_000, 0).unwrap();
    let sent = client.send(ChannelLane::Proven, "1", &target, &notice(NoticeEvent::Opened), None, now).await;
    sent.map(|taken| taken.status.expect("an answer of HTTP"))
}

#[actix_web::test]
async fn a_message_reaches_no_address_that_is_not_permitted() {
    let (public, reached) = listen((PUBLIC, 0).into(), "204 No Content".to_owned()).await;
    let port = public.port();
    let (_, hidden) = listen((PRIVATE, port).into(), "204 No Content".to_owned()).await;
    let client = guarded();
    assert_eq!(send_to(&client, format!("http://public.example:{port}/hook")).await, Ok(204));
    assert_eq!(send_to(&client, format!("http://{PUBLIC}:{port}/hook")).await, Ok(204));
    assert_eq!(reached.load(Ordering::Relaxed), 2);

    // A name that may be the attacker's: one address of another network refuses all.
    for name in ["private.example", "mixed.example", "none.example"] {
        let refused = send_to(&client, format!("http://{name}:{port}/hook")).await.unwrap_err();
        assert_eq!((refused.fault, refused.status), (ChannelFault::Unavailable, None), "{name}");
    }
    // An address that was taken when it was permitted, in each of its forms.
    for host in ["127.0.0.2", "127.2", "0x7f000002", "2130706434", "[::ffff:127.0.0.2]"] {
        let refused = send_to(&client, format!("http://{host}:{port}/hook")).await.unwrap_err();
        assert_eq!(refused, ChannelFault::NotAllowed.into(), "{host}");
    }
    assert_eq!((reached.load(Ordering::Relaxed), hidden.load(Ordering::Relaxed)), (2, 0));
}

#[actix_web::test]
async fn a_target_that_was_permitted_is_not_when_private_ones_are_no_longer() {
    let (public, reached) = listen((PUBLIC, 0).into(), "204 No Content".to_owned()).await;
    let may_reach: MayReach = Arc::new(|_| true);
    let tls = tls_config(None).unwrap();
    let client = ChannelClient::new(Names::system, tls, may_reach, false, String::new(), Random::seeded(1)).unwrap();
    for scheme in ["http", "https"] {
        let refused = send_to(&client, format!("{scheme}://{public}/hook")).await.unwrap_err();
        assert_eq!(refused, ChannelFault::NotAllowed.into(), "{scheme}");
    }
    assert_eq!(reached.load(Ordering::Relaxed), 0);
}

#[actix_web::test]
async fn no_redirect_is_followed() {
    let (elsewhere, followed) = listen((PUBLIC, 0).into(), "204 No Content".to_owned()).await;
    let client = guarded();
    for status in ["301 Moved Permanently", "302 Found", "303 See Other", "307 Temporary Redirect"] {
        let head = format!("{status}\r\nLocation: http://{elsewhere}/");
        let (redirecting, asked) = listen((PUBLIC, 0).into(), head).await;
        let refused = send_to(&client, format!("http://{redirecting}/hook")).await.unwrap_err();
        assert_eq!(refused.fault, ChannelFault::Rejected, "{status}");
        assert_eq!(asked.load(Ordering::Relaxed), 1, "{status}");
    }
    assert_eq!(followed.load(Ordering::Relaxed), 0);
}

/// The variable with the target of the process that has a proxy in its environment.
const TARGET: &str = "CHANNEL_TEST_TARGET";

#[actix_web::test]
async fn no_proxy_of_the_environment_is_asked() {
    if let Ok(target) = std::env::var(TARGET) {
        assert_eq!(send_to(&guarded(), target).await, Ok(204));
        return;
    }
    let (public, reached) = listen((PUBLIC, 0).into(), "204 No Content".to_owned()).await;
    let (proxy, asked) = listen((PUBLIC, 0).into(), "204 No Content".to_owned()).await;
    // The environment is that of a process: this test once more, in one of its own.
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", "clients::channels::tests::no_proxy_of_the_environment_is_asked"]);
    again.env(TARGET, format!("http://public.example:{}/hook", public.port()));
    for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
        again.env(name, format!("http://{proxy}"));
    }
    for name in ["no_proxy", "NO_PROXY", "REQUEST_METHOD"] {
        again.env_remove(name);
    }
    let ended = actix_web::web::block(move || again.output().unwrap()).await.unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
    assert_eq!((reached.load(Ordering::Relaxed), asked.load(Ordering::Relaxed)), (1, 0));
}
