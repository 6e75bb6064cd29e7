//! Actor: one WebSocket client. Started on its worker thread once the handshake is done; speaks to the hub, to the
//! subscriptions of its thread and, for commands, to game connections. Its mailbox carries only what is inbound;
//! what is outbound the feeds write straight into its [`Socket`]. Stops when the connection is over.

use std::{collections::HashMap, rc::Rc, time::Duration};

use actix::prelude::*;
use actix_http::ws::{Frame, Item, OpCode, ProtocolError};
use bytes::{Bytes, BytesMut};
use tokio::net::TcpStream;

use crate::{
    domain::{
        ids::{ServerId, UserId},
        limits,
        rate::Window,
    },
    relay::{
        close::{self, Reason},
        game_connection::ToggleFailed,
        hub::{Admission, Opened, Toggle},
        outbox::Lane,
        protocol::{ClientMessage, ErrorCode, Refusal, ServerMessage},
        socket::{Inbound, Socket},
        worker::{Subscription, WatchFailed, Worker},
    },
};

/// How often a ping goes out, and how long its pong may take.
const HEARTBEAT: Duration = Duration::from_secs(25);
const PONG_DEADLINE: Duration = Duration::from_secs(10);
/// How long a closed socket waits for the peer to hang up too.
const GOODBYE_DEADLINE: Duration = Duration::from_secs(2);
/// Messages to this actor from within the process: closing, nothing else.
const MAILBOX: usize = 16;

/// End this connection.
#[derive(Message, Clone, Copy)]
#[rtype(result = "()")]
pub struct Close(pub Reason);

/// See the module.
pub struct ClientSocket {
    worker: Rc<Worker>,
    socket: Rc<Socket>,
    admission: Admission,
    /// Bytes behind the handshake, until reading starts.
    early: BytesMut,
    /// A message that comes in fragments.
    fragments: Option<Fragments>,
    received: Window,
    /// Something was heard since the last ping.
    heard: bool,
    /// Subscriptions on their way; false = unsubscribed meanwhile.
    wanted: HashMap<ServerId, bool>,
}

struct Fragments {
    is_text: bool,
    bytes: BytesMut,
}

impl ClientSocket {
    /// Takes over a socket after its handshake; `early` is what the client has already sent behind it.
    pub fn start(worker: Rc<Worker>, admission: Admission, stream: TcpStream, early: BytesMut) {
        let socket = Socket::new(admission.user.clone(), stream);
        Actor::start(Self {
            worker,
            socket,
            admission,
            early,
            fragments: None,
            received: Window::new(limits::INBOUND_MESSAGES, limits::INBOUND_SPAN),
            heard: true,
            wanted: HashMap::new(),
        });
    }

    fn user(&self) -> &UserId {
        &self.socket.user
    }

    fn close(&self, reason: Reason, ctx: &mut Context<Self>) {
        if self.socket.closing().is_none() {
            log::debug!(user = self.user().as_str(), code = reason.code(); "relay socket is closed");
            self.socket.close(reason);
            ctx.run_later(GOODBYE_DEADLINE, |_, ctx| ctx.stop());
        }
    }

    fn refuse(&self, refusal: &Refusal) {
        self.socket.push(Lane::Reply, refusal.frame());
    }

    /// One whole message.
    fn receive(&mut self, text: &[u8], ctx: &mut Context<Self>) {
        match ClientMessage::parse(text) {
            Ok(ClientMessage::Ping) => self.socket.push(Lane::Reply, ServerMessage::Pong.frame()),
            Ok(ClientMessage::Subscribe { server }) => self.subscribe(server, ctx),
            Ok(ClientMessage::Unsubscribe { server }) => self.unsubscribe(&server),
            Ok(ClientMessage::DeviceToggle { server, device, request }) => self.toggle(server, device, request, ctx),
            Err(refusal) => self.refuse(&refusal),
        }
    }

    fn subscribe(&mut self, server: ServerId, ctx: &mut Context<Self>) {
        let watching = self.socket.outbox.borrow().watching() + self.wanted.len();
        let known = self.wanted.contains_key(&server) || self.socket.outbox.borrow().watches(&server);
        if watching >= limits::SUBSCRIPTIONS && !known {
            let message = format!("at most {} subscriptions on a connection", limits::SUBSCRIPTIONS);
            let code = ErrorCode::TooManySubscriptions;
            return self.refuse(&Refusal { code, message, server_id: Some(server), request_id: None });
        }
        if self.wanted.insert(server.clone(), true).is_some() {
            return;
        }
        let (worker, user) = (self.worker.clone(), self.user().clone());
        let found = async move {
            let subscription = worker.subscription(&server, &user).await;
            (server, subscription)
        };
        ctx.spawn(found.into_actor(self).map(|(server, subscription), actor, _| actor.watch(server, subscription)));
    }

    fn watch(&mut self, server: ServerId, found: Result<Option<Subscription>, WatchFailed>) {
        if !self.wanted.remove(&server).unwrap_or_default() || self.socket.closing().is_some() {
            return;
        }
        match found {
            Ok(Some(subscription)) => {
                self.socket.outbox.borrow_mut().watch(&subscription.feed);
                subscription.feed.watch(&self.socket);
                self.socket.pump();
            }
            Ok(None) => self.refuse(&Refusal::unknown_server(server)),
            Err(WatchFailed) => {
                let message = "the subscription failed, try again".to_owned();
                let code = ErrorCode::Internal;
                self.refuse(&Refusal { code, message, server_id: Some(server), request_id: None });
            }
        }
    }

    fn unsubscribe(&mut self, server: &ServerId) {
        if let Some(wanted) = self.wanted.get_mut(server) {
            *wanted = false;
        }
        let feed = self.socket.outbox.borrow_mut().unwatch(server);
        if let Some(feed) = feed {
            feed.unwatch(&self.socket);
        }
    }

    /// Commands go to the game connection of a server that this user may watch, subscribed or not.
    fn toggle(&mut self, server: ServerId, device: String, request: Option<String>, ctx: &mut Context<Self>) {
        let (worker, user) = (self.worker.clone(), self.user().clone());
        let done = async move {
            let outcome = toggle(&worker, &user, &server, device).await;
            match outcome {
                Ok(()) => request.map(|id| ServerMessage::Ack { request_id: &id }.frame()),
                Err((code, message)) => {
                    let message = message.to_owned();
                    Some(Refusal { code, message, server_id: Some(server), request_id: request }.frame())
                }
            }
        };
        ctx.spawn(done.into_actor(self).map(|reply: Option<Bytes>, actor, _| {
            if let Some(reply) = reply {
                actor.socket.push(Lane::Reply, reply);
            }
        }));
    }

    fn fragment(&mut self, item: Item, ctx: &mut Context<Self>) {
        let (part, begins, ends) = match item {
            Item::FirstText(part) => (part, Some(true), false),
            Item::FirstBinary(part) => (part, Some(false), false),
            Item::Continue(part) => (part, None, false),
            Item::Last(part) => (part, None, true),
        };
        if let Some(is_text) = begins {
            self.fragments = Some(Fragments { is_text, bytes: BytesMut::new() });
        }
        let Some(Fragments { bytes, .. }) = &mut self.fragments else { return self.close(Reason::Protocol, ctx) };
        if bytes.len() + part.len() > limits::INBOUND_BYTES {
            self.fragments = None;
            return self.close(Reason::TooBig, ctx);
        }
        bytes.extend_from_slice(&part);
        if ends && let Some(Fragments { is_text, bytes }) = self.fragments.take() {
            if is_text { self.text(&bytes, ctx) } else { self.refuse_binary() }
        }
    }

    fn refuse_binary(&self) {
        self.refuse(&Refusal::new(ErrorCode::Malformed, "messages are JSON text, not binary"));
    }

    fn text(&mut self, text: &[u8], ctx: &mut Context<Self>) {
        if std::str::from_utf8(text).is_err() {
            return self.close(Reason::NotText, ctx);
        }
        self.receive(text, ctx);
    }
}

async fn toggle(
    worker: &Rc<Worker>,
    user: &UserId,
    server: &ServerId,
    device: String,
) -> Result<(), (ErrorCode, &'static str)> {
    let again = (ErrorCode::Internal, "the command failed, try again");
    let command = Toggle { server: server.clone(), user: user.clone(), device };
    let outcome = worker.hub.send(command).await.map_err(|_| again)?;
    outcome.map(|_| ()).map_err(|failed| match failed {
        ToggleFailed::UnknownServer => (ErrorCode::UnknownServer, "no such paired server"),
        ToggleFailed::UnknownDevice => (ErrorCode::UnknownDevice, "no such device"),
        ToggleFailed::NotASwitch => (ErrorCode::NotASwitch, "the device is not a smart switch"),
        ToggleFailed::Unavailable => (ErrorCode::GameServerUnavailable, "no link to the game server"),
        ToggleFailed::Internal => again,
        ToggleFailed::TimedOut => (ErrorCode::GameServerTimeout, "the game server did not answer in time"),
    })
}

impl Actor for ClientSocket {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX);
        self.worker.hub.do_send(Opened { connection: self.admission.id, close: ctx.address().recipient() });
        ctx.add_stream(Inbound::new(self.socket.clone(), std::mem::take(&mut self.early)));
        ctx.run_interval(HEARTBEAT, |actor, ctx| {
            actor.heard = false;
            actor.socket.push_control(close::heartbeat(OpCode::Ping, b""));
            ctx.run_later(PONG_DEADLINE, |actor, ctx| {
                // One that talks and does not read is no better than a silent one.
                let slow = actor.socket.blocked_for() >= PONG_DEADLINE;
                if slow || !actor.heard {
                    let reason = if slow { "does not read" } else { "is silent" };
                    log::debug!(user = actor.user().as_str(); "relay socket is dropped: its client {reason}");
                    ctx.stop();
                }
            });
        });
    }

    fn stopped(&mut self, _: &mut Self::Context) {
        let feeds = self.socket.outbox.borrow_mut().unwatch_all();
        for feed in feeds {
            feed.unwatch(&self.socket);
        }
    }
}

impl StreamHandler<Result<Frame, ProtocolError>> for ClientSocket {
    fn handle(&mut self, frame: Result<Frame, ProtocolError>, ctx: &mut Self::Context) {
        self.heard = true;
        let now = self.socket.now();
        if self.received.available_at(now, limits::INBOUND_MESSAGES).is_some() {
            return self.close(Reason::Flooding, ctx);
        }
        self.received.record(now);
        match frame {
            Ok(Frame::Text(text)) => self.text(&text, ctx),
            Ok(Frame::Binary(_)) => self.refuse_binary(),
            Ok(Frame::Continuation(item)) => self.fragment(item, ctx),
            Ok(Frame::Ping(payload)) => self.socket.push_control(close::heartbeat(OpCode::Pong, &payload)),
            Ok(Frame::Pong(_)) => {}
            Ok(Frame::Close(_)) => {
                self.socket.close(Reason::Goodbye);
                ctx.stop();
            }
            Err(ProtocolError::Overflow) => self.close(Reason::TooBig, ctx),
            Err(_) => self.close(Reason::Protocol, ctx),
        }
    }
}

impl Handler<Close> for ClientSocket {
    type Result = ();

    fn handle(&mut self, Close(reason): Close, ctx: &mut Self::Context) {
        self.close(reason, ctx);
    }
}
