//! The login in the user's own browser: a listener on both families of this machine's loopback, or the address that the
//! user pastes. Only `localhost` is proven as the name to which the game's site returns, and it may mean either family.

use std::{
    io::{self, IsTerminal as _},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    process::{Command, Stdio},
    sync::LazyLock,
    thread,
    time::Duration,
};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::{Mutex, mpsc},
    time::timeout,
};

use super::{error::HelperError, output::say};
use crate::{
    clients::registration::RegistrationClient,
    clock::Clock,
    domain::{
        game_login::{GameLogin, read_answer, read_query, return_url},
        time::Timestamp,
    },
};

/// Time for a login, with a second factor.
const LOGIN_DEADLINE: Duration = Duration::from_secs(600);
/// Time of a browser for its request.
const REQUEST_DEADLINE: Duration = Duration::from_secs(5);
/// Connections that are read at once.
const MAX_CONNECTIONS: usize = 16;
/// Ports that are tried, one after the other.
const BINDS: u32 = 10;
/// Largest head of a request, bytes.
const MAX_HEAD: usize = 8 * 1024;
/// Port of the address at which nothing listens, for a login that is pasted.
const DEAD_PORT: u16 = 34_733;

/// The way on which the end of a login comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginWay {
    /// The browser of this machine is opened.
    Browser,
    /// The user opens the address, on this machine.
    Listen,
    /// The user opens it anywhere and pastes the end.
    Paste,
}

/// Lets the user sign in at the game's site; `mark` is 32 hex digits for this login alone.
pub async fn sign_in(
    client: &RegistrationClient,
    mark: &str,
    way: LoginWay,
    clock: &Clock,
) -> Result<GameLogin, HelperError> {
    loop {
        let ended = timeout(LOGIN_DEADLINE, sign_in_once(client, mark, way, clock)).await;
        match ended {
            Ok(login) => return login,
            Err(_) => say("..   the login took longer than ten minutes; here is its address again".to_owned()),
        }
    }
}

async fn sign_in_once(
    client: &RegistrationClient,
    mark: &str,
    way: LoginWay,
    clock: &Clock,
) -> Result<GameLogin, HelperError> {
    if way == LoginWay::Paste {
        let url = client.login_url(&return_url(DEAD_PORT, mark));
        say(format!("..   sign in: {url}"));
        say("     and paste the address at which the browser ends. That it shows no page is right.".to_owned());
        return pasted(mark, clock).await;
    }
    let listeners = LoopbackListeners::bind().await.map_err(HelperError::io("a port for the end of the login"))?;
    let url = client.login_url(&return_url(listeners.port, mark));
    say(format!("..   sign in: {url}"));
    if way == LoginWay::Browser && open_browser(&url) {
        say("     (opened in your browser)".to_owned());
    }
    if !io::stdin().is_terminal() {
        return listeners.receive(mark, clock).await;
    }
    say("     On another machine, open it there and paste the address at which you end.".to_owned());
    tokio::select! {
        login = listeners.receive(mark, clock) => login,
        login = pasted(mark, clock) => login,
    }
}

/// Reads lines until one is the end of this login.
async fn pasted(mark: &str, clock: &Clock) -> Result<GameLogin, HelperError> {
    let mut lines = STDIN_LINES.lock().await;
    while let Some(line) = lines.recv().await {
        if line.trim().is_empty() {
            continue;
        }
        match read_answer(&line, mark, clock.now()) {
            Ok(login) => return Ok(login),
            Err(fault) => say(format!("..   {fault}")),
        }
    }
    Err(HelperError::Service("standard input has ended before the login did".to_owned()))
}

/// The lines of standard input, for one login after the other.
static STDIN_LINES: LazyLock<Mutex<mpsc::Receiver<String>>> = LazyLock::new(|| Mutex::new(lines_of_stdin()));

/// The lines of standard input. They are read on a thread that nothing waits for: it ends with the process.
#[allow(clippy::disallowed_methods, reason = "a read of a terminal cannot be given up")]
fn lines_of_stdin() -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel(1);
    thread::spawn(move || {
        let lines = io::stdin().lines().map_while(Result::ok);
        lines.take_while(|line| sender.blocking_send(line.clone()).is_ok()).for_each(drop);
    });
    lines
}

/// Opens the address with the program of the platform; false when there is none.
fn open_browser(url: &str) -> bool {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let quiet = || Stdio::null();
    Command::new(program).arg(url).stdin(quiet()).stdout(quiet()).stderr(quiet()).spawn().is_ok()
}

/// Listeners on one port of both families; IPv6 may be missing.
struct LoopbackListeners {
    port: u16,
    v4: TcpListener,
    v6: Option<TcpListener>,
}

impl LoopbackListeners {
    async fn bind() -> io::Result<Self> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let v4 = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            let port = v4.local_addr()?.port();
            match TcpListener::bind((Ipv6Addr::LOCALHOST, port)).await {
                Ok(v6) => return Ok(Self { port, v4, v6: Some(v6) }),
                // Another program listens there, to which the browser would bring the login.
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && attempts < BINDS => {}
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(error),
                Err(_) => return Ok(Self { port, v4, v6: None }),
            }
        }
    }

    /// Waits for the browser with the end of this login. Everything else is answered 404 and changes nothing: a page that
    /// the user has open must not bring its own token.
    async fn receive(&self, mark: &str, clock: &Clock) -> Result<GameLogin, HelperError> {
        // Browsers open connections on which they ask nothing.
        let mut open = FuturesUnordered::new();
        loop {
            tokio::select! {
                accepted = self.accept(), if open.len() < MAX_CONNECTIONS => {
                    open.extend(accepted.ok().map(|(stream, _)| self.login_of(stream, mark, clock)));
                }
                Some(login) = open.next(), if !open.is_empty() => {
                    if let Some(login) = login {
                        return Ok(login);
                    }
                }
            }
        }
    }

    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        match &self.v6 {
            Some(v6) => tokio::select! {
                stream = self.v4.accept() => stream,
                stream = v6.accept() => stream,
            },
            None => self.v4.accept().await,
        }
    }

    /// The login that this connection brings.
    async fn login_of(&self, mut stream: TcpStream, mark: &str, clock: &Clock) -> Option<GameLogin> {
        let head = timeout(REQUEST_DEADLINE, head_of(&mut stream)).await.ok()??;
        let login = self.read(&head, mark, clock.now());
        // A browser that has gone is no failure.
        let _ = timeout(REQUEST_DEADLINE, stream.write_all(answer(&login).as_bytes())).await;
        login?.inspect_err(|fault| say(format!("..   {fault}"))).ok()
    }

    /// The login in the head of a request; `None` for any other request.
    fn read(
        &self,
        head: &str,
        mark: &str,
        now: Timestamp,
    ) -> Option<Result<GameLogin, crate::domain::game_login::LoginFault>> {
        let mut lines = head.split("\r\n");
        let mut request = lines.next()?.split(' ');
        let (method, target) = (request.next()?, request.next()?);
        let host = lines.filter_map(|line| line.split_once(':')).find(|(name, _)| name.eq_ignore_ascii_case("host"));
        let (path, query) = target.split_once('?')?;
        let is_ours = method == "GET"
            && path == format!("/callback/{mark}")
            && host.is_some_and(|(_, host)| host.trim() == format!("localhost:{}", self.port));
        is_ours.then(|| read_query(query, now))
    }
}

/// The head of a request, without its end; `None` when it is not one of a browser.
async fn head_of(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    loop {
        if stream.read_buf(&mut head).await.ok()? == 0 || head.len() > MAX_HEAD {
            return None;
        }
        if let Some(end) = head.windows(4).position(|window| window == b"\r\n\r\n") {
            head.truncate(end);
            return String::from_utf8(head).ok();
        }
    }
}

/// The page that the browser shows, without the token in its address.
fn answer<F>(login: &Option<Result<GameLogin, F>>) -> String {
    let (status, text) = match login {
        Some(Ok(_)) => ("200 OK", "Signed in. You can close this page."),
        Some(Err(_)) => ("400 Bad Request", "This login cannot be used; the helper says why."),
        None => ("404 Not Found", "There is nothing here."),
    };
    let body = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>companion helper</title>\
         <script>history.replaceState(null, '', '/')</script><p>{text}</p></html>\n"
    );
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
         Referrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: &str = "00112233445566778899aabbccddeeff";
    const TOKEN: &str = "eyJzdGVhbUlkIjoiNzY1NjExOTgwMDAwMDAwMDEiLCJ2ZXJzaW9uIjowLCJpc3MiOjE3MDAwMDAwMDAsImV4cCI6MTcwMTIwOTYwMH0=.AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+Pw==";

    async fn exchanged(port: u16, request: &str) -> String {
        exchanged_with((Ipv4Addr::LOCALHOST, port).into(), request).await
    }

    async fn exchanged_with(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn only_the_browser_of_this_login_is_heard() {
        let listeners = LoopbackListeners::bind().await.unwrap();
        let port = listeners.port;
        let clock = Clock::adjustable(Timestamp::from_timestamp(1_700_000_000, 0).unwrap());
        let query = format!("steamId=76561198000000001&token={TOKEN}");
        let browser = async {
            let ours = format!("/callback/{MARK}?{query}");
            for (method, target, host) in [
                ("GET", "/".to_owned(), format!("localhost:{port}")),
                ("GET", format!("/callback/0?{query}"), format!("localhost:{port}")),
                ("GET", format!("/x/callback/{MARK}?{query}"), format!("localhost:{port}")),
                ("POST", ours.clone(), format!("localhost:{port}")),
                ("GET", ours.clone(), format!("evil.test:{port}")),
            ] {
                let answer = exchanged(port, &format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
                assert!(answer.starts_with("HTTP/1.1 404"), "{method} {target}: {answer}");
            }
            let bad = format!("GET /callback/{MARK}?token=a.b HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n");
            assert!(exchanged(port, &bad).await.starts_with("HTTP/1.1 400"));
            let answer = exchanged(port, &format!("GET {ours} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n")).await;
            assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("no-store") && !answer.contains(TOKEN));
        };
        let (login, ()) = tokio::join!(listeners.receive(MARK, &clock), browser);
        assert_eq!(login.ok().unwrap().platform_id.as_str(), "76561198000000001");
    }

    #[tokio::test]
    async fn a_browser_that_takes_localhost_for_ipv6_is_heard() {
        if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await.is_err() {
            eprintln!("skipped: this machine has no IPv6");
            return;
        }
        let listeners = LoopbackListeners::bind().await.unwrap();
        let port = listeners.port;
        let clock = Clock::adjustable(Timestamp::from_timestamp(1_700_000_000, 0).unwrap());
        let target = format!("/callback/{MARK}?steamId=76561198000000001&token={TOKEN}");
        let request = format!("GET {target} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n");
        let browser = exchanged_with((Ipv6Addr::LOCALHOST, port).into(), &request);
        let (login, answer) = tokio::join!(listeners.receive(MARK, &clock), browser);
        assert!(login.is_ok() && answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}
