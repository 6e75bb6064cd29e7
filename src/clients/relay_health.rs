//! Checks that the relay answers: `GET /health` of its listener, over HTTP, like every other client.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use reqwest::StatusCode;
use serde_json::Value;

use super::http::{self, read_capped};

const DEADLINE: Duration = Duration::from_secs(3);
/// Largest answer that is read, bytes.
const MAX_ANSWER: usize = 4 * 1024;

/// Asks a relay for its health, over HTTP as others do.
pub struct RelayHealthClient {
    http: reqwest::Client,
    url: String,
}

impl RelayHealthClient {
    /// The relay that listens there.
    pub fn new(http: reqwest::Client, mut relay: SocketAddr) -> Self {
        if relay.ip().is_unspecified() {
            relay.set_ip(match relay.ip() {
                IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        Self { http, url: format!("http://{relay}/health") }
    }

    /// Asks the relay once; the reason if it does not answer well.
    pub async fn check(&self) -> Result<(), String> {
        let response = self.http.get(&self.url).timeout(DEADLINE).send().await.map_err(|error| http::reason(&error))?;
        if response.status() != StatusCode::OK {
            return Err(format!("status {}", response.status().as_u16()));
        }
        let body = read_capped(response, MAX_ANSWER).await.map_err(|error| error.to_string())?;
        let health: Value = serde_json::from_slice(&body).unwrap_or_default();
        (health["ok"] == true).then_some(()).ok_or_else(|| "it says that it is not well".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::TcpListener,
        thread,
    };

    use super::*;
    use crate::{clients::http::client, net::tls_config};

    #[test]
    fn a_relay_that_listens_everywhere_is_asked_here() {
        let url = |address: &str| {
            let http = client(tls_config(None).unwrap()).unwrap();
            RelayHealthClient::new(http, address.parse().unwrap()).url
        };
        assert_eq!(url("0.0.0.0:81"), "http://127.0.0.1:81/health");
        assert_eq!(url("[::]:81"), "http://[::1]:81/health");
        assert_eq!(url("192.0.2.1:81"), "http://192.0.2.1:81/health");
    }

    /// Result of checking a relay that gives this answer; of one that does not listen, if there is no answer.
    async fn looked(answer: Option<&'static str>) -> Result<(), String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        match answer {
            Some(answer) => drop(thread::spawn(move || {
                let (mut client, _) = listener.accept().unwrap();
                assert!(client.read(&mut [0; 1_024]).unwrap() > 0);
                let length = answer.split("\r\n\r\n").nth(1).map_or(0, str::len);
                let answer = answer.replacen("\r\n", &format!("\r\ncontent-length: {length}\r\n"), 1);
                client.write_all(answer.as_bytes()).unwrap();
            })),
            None => drop(listener),
        }
        RelayHealthClient::new(client(tls_config(None).unwrap()).unwrap(), address).check().await
    }

    #[tokio::test]
    async fn only_a_relay_that_says_that_it_is_well_is_reachable() {
        assert_eq!(looked(Some("HTTP/1.1 200 OK\r\n\r\n{\"ok\":true}")).await, Ok(()));
        let unwell = looked(Some("HTTP/1.1 200 OK\r\n\r\n{\"ok\":false}")).await;
        assert_eq!(unwell, Err("it says that it is not well".to_owned()));
        assert_eq!(looked(Some("HTTP/1.1 503 No\r\n\r\n")).await, Err("status 503".to_owned()));
        assert!(looked(None).await.unwrap_err().starts_with("no connection"));
    }
}
