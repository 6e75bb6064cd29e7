//! Users with an open dashboard, whose own alarms go off: a drill is one, from the ledger to the socket.

use std::time::{Duration, Instant};

use companion::domain::{ids::ServerId, limits::DRILLS_PER_USER};
use futures_util::{SinkExt as _, StreamExt as _};
use reqwest::header::COOKIE;
use serde_json::{Value, json};
use tokio::{net::TcpStream, sync::mpsc, task::spawn_local, time::timeout};
use tokio_tungstenite::{WebSocketStream, client_async, tungstenite::Message};

use crate::{crash::Addresses, process::Result};

const DEADLINE: Duration = Duration::from_secs(60);

/// A user who has paired a server.
pub struct Asker {
    pub cookie: String,
    pub server: ServerId,
}

struct Dashboard {
    /// Raids that have come to its socket, which is read all the time: the relay ends one that answers no ping.
    raids: mpsc::UnboundedReceiver<()>,
    drill: String,
    cookie: String,
}

/// See the module.
pub struct Dashboards {
    http: reqwest::Client,
    open: Vec<Dashboard>,
    rung: usize,
}

impl Dashboards {
    /// Opens a dashboard of each of these users.
    pub async fn open(http: reqwest::Client, addresses: &Addresses, askers: &[Asker]) -> Result<Self> {
        let mut open = Vec::new();
        for Asker { cookie, server } in askers {
            let minted = http.post(format!("{}/relay/token", addresses.api)).header(COOKIE, cookie).send().await?;
            let minted: Value = serde_json::from_slice(&minted.error_for_status()?.bytes().await?)?;
            let token = minted["token"].as_str().ok_or("no token")?;
            let stream = TcpStream::connect(addresses.relay).await?;
            stream.set_nodelay(true)?;
            let (mut socket, _) = client_async(format!("ws://{}/v1?token={token}", addresses.relay), stream).await?;
            let subscribe = json!({ "type": "subscribe", "serverId": server });
            socket.send(Message::text(subscribe.to_string())).await?;
            timeout(DEADLINE, until("snapshot", &mut socket)).await??;
            let (raid, raids) = mpsc::unbounded_channel();
            spawn_local(async move { while until("raid", &mut socket).await.is_ok() && raid.send(()).is_ok() {} });
            let drill = format!("{}/paired-servers/{server}/drill", addresses.api);
            open.push(Dashboard { raids, drill, cookie: cookie.clone() });
        }
        Ok(Self { http, open, rung: 0 })
    }

    /// Alarms that the users may try.
    pub fn most_rings(&self) -> usize {
        self.open.len() * DRILLS_PER_USER as usize
    }

    /// The time from the request for an alarm of the next user to its message.
    pub async fn ring(&mut self) -> Result<Duration> {
        let next = self.rung % self.open.len();
        self.rung += 1;
        let dashboard = &mut self.open[next];
        let began = Instant::now();
        let drill = self.http.post(&dashboard.drill).header(COOKIE, &dashboard.cookie).send();
        let heard = async {
            timeout(DEADLINE, dashboard.raids.recv()).await?.ok_or("the socket is closed")?;
            Result::Ok(began.elapsed())
        };
        let drill = async { Result::Ok(drill.await?.error_for_status()?) };
        let (heard, _) = tokio::try_join!(heard, drill)?;
        Ok(heard)
    }
}

/// Reads on until there is a message of this type.
async fn until(kind: &str, socket: &mut WebSocketStream<TcpStream>) -> Result<()> {
    loop {
        let message = socket.next().await.ok_or("the socket is closed")??;
        let Message::Text(text) = message else { continue };
        if serde_json::from_str::<Value>(&text)?["type"] == kind {
            return Ok(());
        }
    }
}
