//! Costs of an idle push session: memory of this process per session, and the time to bring all of them up against a
//! simulated push service in another process.
//!
//! `cargo bench --bench push_sessions -- 10000` opens that many sessions; 1 000 without an argument.

#![allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::{
    env, io,
    io::Write as _,
    net::Ipv4Addr,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use companion::{
    clock::Clock,
    config::PushAddress,
    net::{Network, tls_config},
    push::{
        login::{self, PushLogin},
        session::{McsSession, Received},
    },
    simulator::push_service::{PushService, news},
};
use futures_util::{StreamExt as _, stream};
use secrecy::SecretBox;
use tokio::{sync::mpsc, time::timeout};

mod process;

use process::{Beside, Result, resident};

const SESSIONS: usize = 1_000;
/// Logins under way at once.
const AT_ONCE: usize = 64;
const FIRST_ACCOUNT: u64 = 5_000_000_000_000_000_001;
const TOKEN: u64 = 1_234_567_890_123_456_789;
/// Marks the child process.
const CHILD: &str = "--push-service";
const DEADLINE: Duration = Duration::from_secs(120);

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let sessions = arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(SESSIONS);
    if arguments.iter().any(|argument| argument == CHILD) {
        return actix::System::new().block_on(serve(sessions)).map_err(Into::into);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(measure(sessions))
}

fn accounts(sessions: usize) -> impl Iterator<Item = u64> {
    (FIRST_ACCOUNT..).take(sessions)
}

/// The child: prints the address and the certificate, and pushes to everybody for each line it reads.
async fn serve(sessions: usize) -> io::Result<()> {
    let logins = accounts(sessions).map(|account| (account, TOKEN)).collect();
    let service = PushService::start((Ipv4Addr::LOCALHOST, 0).into(), logins, Clock::system()).await?;
    println!("{}\n{}", service.addr(), service.ca_pem());
    let (read, mut lines) = mpsc::unbounded_channel();
    thread::spawn(move || io::stdin().lines().map_while(io::Result::ok).try_for_each(|line| read.send(line)));
    while lines.recv().await.is_some() {
        for account in accounts(sessions) {
            service.push(account, news("Update", "It is here"));
        }
    }
    Ok(())
}

async fn measure(sessions: usize) -> Result<()> {
    let mut service = Beside::start(&[CHILD, &sessions.to_string()])?;
    let address: PushAddress = service.line()?.parse()?;
    let mut ca = tempfile::NamedTempFile::new()?;
    loop {
        let line = service.line()?;
        writeln!(ca, "{line}")?;
        if line.contains("END CERTIFICATE") {
            break;
        }
    }
    let tls = Arc::new(tls_config(Some(ca.path()))?);

    let connect = |account: u64| {
        let login =
            PushLogin { android_id: account, security_token: SecretBox::new(Box::new(TOKEN)), received: Vec::new() };
        let (address, tls) = (&address, Arc::clone(&tls));
        async move {
            let stream = login::connect(&Network::system(), address, tls).await.map_err(io::Error::other)?;
            login::log_in(stream, login).await.map_err(io::Error::other)
        }
    };
    // The first one allocates what all of them share.
    let (received_one, mut messages) = mpsc::channel(sessions);
    idle(connect(FIRST_ACCOUNT).await?, received_one.clone());
    let (before, began) = (resident()?, Instant::now());
    let mut connecting = stream::iter(accounts(sessions).skip(1)).map(connect).buffer_unordered(AT_ONCE);
    while let Some(session) = connecting.next().await {
        idle(session?, received_one.clone());
    }
    drop(connecting);
    let up = began.elapsed();
    let connected = resident()?;
    let began = Instant::now();
    service.say("push")?;
    for _ in 0..sessions {
        timeout(DEADLINE, messages.recv()).await?.expect("a session holds the sender");
    }
    let pushed = began.elapsed();
    let used = resident()?;
    let per_session = |after: f64| (after - before) / (sessions.max(2) - 1) as f64;
    println!(
        "{sessions} push sessions: up in {:.2} s ({:.0} per second)",
        up.as_secs_f64(),
        sessions as f64 / up.as_secs_f64()
    );
    println!(
        "memory per idle session: {:.1} KiB, {:.1} KiB after a push to each",
        per_session(connected),
        per_session(used)
    );
    println!("a push to each arrived within {:.0} ms", pushed.as_secs_f64() * 1e3);
    Ok(())
}

/// As the push worker holds a session: a task that waits for what comes.
fn idle(mut session: McsSession, received_one: mpsc::Sender<()>) {
    tokio::spawn(async move {
        while let Ok(received) = session.next().await {
            if matches!(received, Received::Message(..)) && received_one.send(()).await.is_err() {
                break;
            }
        }
    });
}
