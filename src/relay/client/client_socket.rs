//! Actor: one WebSocket client. Started on its worker thread once the handshake is done; speaks to the subscriptions of
//! its thread and, for commands, to the hub. Its mailbox carries only inbound messages; the subscriptions write the
//! outbound ones straight into its [`Socket`]. Stops when the connection is over.

use std::{rc::Rc, time::Duration};

use actix::prelude::*;
use actix_http::ws::{self, Item, ProtocolError};
use bytes::BytesMut;
use smallvec::SmallVec;
use tokio::time::sleep;

use crate::{
    domain::{
        backoff::Backoff,
        ids::{ServerId, UserId},
        limits,
        rate::Window,
        sections::Sections,
    },
    net::{Stream, budgets::whole_seconds},
    panics::{self, Part},
    relay::{
        client::{
            admission::{Admission, SocketOrder},
            permission,
            relay_worker::{FindFailed, RelayWorker},
            server_subscription::Subscription,
            socket::{Inbound, ReceivedFrame, Socket},
        },
        game::commands::{AcknowledgeRaid, CommandError, DeviceToggle, UserCommand, Wish},
        wire::{
            close::{self, Reason},
            deflate::InflateError,
            frame::SharedFrame,
            protocol::{ClientMessage, ErrorCode, Refusal, ServerMessage},
            publication::{Lane, Position},
        },
    },
};

/// Longest pause between two look-ups of a server.
const LOOKED_UP_WITHIN: Duration = Duration::from_secs(30);
/// No timer can be set for longer; no socket lives that long.
const LONGEST_TIMER: Duration = Duration::from_secs(365 * 24 * 3_600);
/// Messages to this actor from within the process: closing, and news of the user's devices.
const MAILBOX: usize = 16;

/// See the module.
pub struct ClientSocket {
    worker: Rc<RelayWorker>,
    socket: Rc<Socket>,
    /// In a box, as the task of an actor grows by 128 bytes at a time.
    rest: Box<Rest>,
    /// A message that comes in fragments. Boxed, as it is rare.
    fragments: Option<Box<Fragments>>,
    received: Window,
    /// The servers that this socket watches.
    subscriptions: SmallVec<[Rc<Subscription>; 1]>,
}

// Up to this the task of its actor is 512 bytes; beyond it 640, which alignment makes 768.
const _: () = assert!(size_of::<ClientSocket>() <= 112);

/// The fields that are seldom needed.
struct Rest {
    admission: Admission,
    /// Subscriptions being looked up.
    pending: Vec<PendingSubscription>,
}

struct PendingSubscription {
    server: ServerId,
    /// Position that the client says it has.
    from: Option<Position>,
    sections: Sections,
    /// Unsubscribed meanwhile.
    cancelled: bool,
}

struct Fragments {
    is_text: bool,
    is_deflated: bool,
    bytes: BytesMut,
}

impl ClientSocket {
    /// Owns a stream from after its handshake, in which permessage-deflate was agreed or was not; `early` is what the
    /// client has already sent behind it.
    pub fn start(
        worker: Rc<RelayWorker>,
        user: UserId,
        admission: Admission,
        stream: Stream,
        early: BytesMut,
        deflates: bool,
    ) {
        let socket = worker.sockets.open(user, stream, deflates);
        socket.sees.set(admission.access.sections());
        Self::create(|ctx| {
            ctx.add_stream(Inbound::new(socket.clone(), early));
            Self {
                worker,
                socket,
                rest: Box::new(Rest { admission, pending: Vec::new() }),
                fragments: None,
                received: Window::new(limits::INBOUND_MESSAGES, limits::INBOUND_SPAN),
                subscriptions: SmallVec::new(),
            }
        });
    }

    fn user(&self) -> &UserId {
        &self.socket.user
    }

    fn close(&self, reason: Reason) {
        if self.socket.closing().is_none() {
            log::debug!(user = self.user().as_str(), code = reason.code(); "relay socket is closed");
            self.socket.close(reason);
        }
    }

    fn refuse(&self, refusal: &Refusal) {
        self.socket.push(Lane::Reply, refusal.frame());
    }

    /// One whole message.
    fn receive(&mut self, text: &[u8], ctx: &mut Context<Self>) {
        let message = match ClientMessage::parse(text) {
            Ok(message) => message,
            Err(refusal) => return self.refuse(&refusal),
        };
        if let Some(refusal) = permission::refusal(&self.rest.admission.access, &message) {
            return self.refuse(&refusal);
        }
        match message {
            ClientMessage::Ping => self.socket.push(Lane::Reply, ServerMessage::Pong.frame()),
            ClientMessage::Subscribe { server, epoch, seq, sections } => {
                let from = epoch.zip(seq).map(|(epoch, seq)| Position { epoch, seq });
                let wanted = sections.map_or(Sections::ALL, Sections::from_iter);
                self.subscribe(server, from, wanted.and(self.socket.sees.get()), ctx);
            }
            ClientMessage::Unsubscribe { server } => self.unsubscribe(&server),
            ClientMessage::DeviceToggle { server, device, value, request } => {
                if let Err(spent) = self.worker.toggles.take(self.user()) {
                    let seconds = whole_seconds(spent.reset);
                    let message = format!("too many toggles in a minute, try again in {seconds} s");
                    let (code, server_id) = (ErrorCode::RateLimited, Some(server));
                    return self.refuse(&Refusal { code, message, server_id, request_id: request });
                }
                let toggle = DeviceToggle { device, wish: Wish { value, by: self.user().clone() } };
                let command = UserCommand { server: server.clone(), toggle };
                let sent = self.worker.hub.commands.send(command);
                self.answer(sent, server, request, ctx);
            }
            ClientMessage::RaidAck { server, incident, request } => {
                let user = self.user().clone();
                let command = AcknowledgeRaid { server: server.clone(), user, incident, by_link: false };
                let sent = self.worker.hub.acknowledgements.send(command);
                self.answer(sent, server, request, ctx);
            }
        }
    }

    fn subscribe(&mut self, server: ServerId, from: Option<Position>, sections: Sections, ctx: &mut Context<Self>) {
        if let Some(pending) = self.rest.pending.iter_mut().find(|pending| pending.server == server) {
            (pending.from, pending.sections, pending.cancelled) = (from, sections, false);
            return;
        }
        // Servers whose access ended are no longer watched.
        let queue = self.socket.queue.borrow();
        self.subscriptions.retain(|subscription| queue.watches(&subscription.feed.server));
        let known = queue.watches(&server);
        drop(queue);
        if self.subscriptions.len() + self.rest.pending.len() >= limits::SUBSCRIPTIONS && !known {
            let message = format!("at most {} subscriptions on a connection", limits::SUBSCRIPTIONS);
            let code = ErrorCode::TooManySubscriptions;
            return self.refuse(&Refusal { code, message, server_id: Some(server), request_id: None });
        }
        self.rest.pending.push(PendingSubscription { server: server.clone(), from, sections, cancelled: false });
        self.look_up(server, Duration::ZERO, Backoff::between(Backoff::FIRST, LOOKED_UP_WITHIN), ctx);
    }

    /// Looks the server up after a pause.
    fn look_up(&self, server: ServerId, pause: Duration, backoff: Backoff, ctx: &mut Context<Self>) {
        let (worker, user) = (self.worker.clone(), self.user().clone());
        let found = async move {
            if !pause.is_zero() {
                sleep(pause).await;
            }
            let subscription = worker.subscription(&server, &user).await;
            (server, subscription)
        };
        ctx.spawn(found.into_actor(self).map(move |(server, found), actor, ctx| match found {
            Ok(subscription) => actor.watch(server, subscription),
            Err(FindFailed) => actor.look_up_again(server, pause, backoff, ctx),
        }));
    }

    /// The subscription stays wanted until the database answers; its client is notified once that it takes longer.
    fn look_up_again(&mut self, server: ServerId, paused: Duration, mut backoff: Backoff, ctx: &mut Context<Self>) {
        let cancelled = |pending: &PendingSubscription| pending.server == server && pending.cancelled;
        if self.socket.closing().is_some() || self.rest.pending.iter().any(cancelled) {
            return self.rest.pending.retain(|pending| pending.server != server);
        }
        if paused.is_zero() {
            let message = "the server could not be looked up; it is tried again until it can".to_owned();
            let code = ErrorCode::Internal;
            self.refuse(&Refusal { code, message, server_id: Some(server.clone()), request_id: None });
        }
        let pause = backoff.after(Duration::ZERO, Duration::ZERO, self.rest.admission.jitter());
        self.look_up(server, pause, backoff, ctx);
    }

    fn watch(&mut self, server: ServerId, found: Option<Rc<Subscription>>) {
        let pending = self.rest.pending.iter().position(|pending| pending.server == server);
        let pending = pending.map(|index| self.rest.pending.swap_remove(index));
        self.rest.pending.shrink_to_fit();
        let pending = pending.filter(|pending| !pending.cancelled && self.socket.closing().is_none());
        let Some(PendingSubscription { from, sections, .. }) = pending else { return };
        match found {
            Some(subscription) => {
                self.socket.queue.borrow_mut().watch(&subscription.feed, from, sections);
                subscription.watchers.add(&self.socket);
                self.subscriptions.retain(|known| known.feed.server != server);
                self.subscriptions.push(subscription);
                self.socket.pump();
            }
            None => self.refuse(&Refusal::unknown_server(server)),
        }
    }

    fn unsubscribe(&mut self, server: &ServerId) {
        if let Some(pending) = self.rest.pending.iter_mut().find(|pending| pending.server == *server) {
            pending.cancelled = true;
        }
        self.socket.queue.borrow_mut().unwatch(server, self.socket.now());
        let subscription = self.subscriptions.iter().position(|known| known.feed.server == *server);
        if let Some(index) = subscription {
            self.subscriptions.swap_remove(index).watchers.remove(&self.socket);
        }
    }

    /// Answers a command, which goes by way of the hub and needs no subscription, once it is carried out or refused.
    fn answer<T: 'static>(
        &self,
        sent: impl Future<Output = Result<Result<T, CommandError>, MailboxError>> + 'static,
        server: ServerId,
        request: Option<String>,
        ctx: &mut Context<Self>,
    ) {
        let done = async move {
            match sent.await.unwrap_or(Err(CommandError::Internal)) {
                Ok(_) => request.map(|id| ServerMessage::Ack { request_id: &id }.frame()),
                Err(error) => {
                    let (code, message) = refusal(error);
                    let message = message.to_owned();
                    Some(Refusal { code, message, server_id: Some(server), request_id: request }.frame())
                }
            }
        };
        ctx.spawn(done.into_actor(self).map(|reply: Option<SharedFrame>, actor, _| {
            if let Some(reply) = reply {
                actor.socket.push(Lane::Reply, reply);
            }
        }));
    }

    fn fragment(&mut self, item: Item, is_deflated: bool, ctx: &mut Context<Self>) {
        let (part, begins, ends) = match item {
            Item::FirstText(part) => (part, Some(true), false),
            Item::FirstBinary(part) => (part, Some(false), false),
            Item::Continue(part) => (part, None, false),
            Item::Last(part) => (part, None, true),
        };
        if let Some(is_text) = begins {
            self.fragments = Some(Box::new(Fragments { is_text, is_deflated, bytes: BytesMut::new() }));
        }
        let Some(fragments) = &mut self.fragments else { return self.close(Reason::Protocol) };
        let bytes = &mut fragments.bytes;
        if bytes.len() + part.len() > limits::INBOUND_BYTES {
            self.fragments = None;
            return self.close(Reason::TooBig);
        }
        bytes.extend_from_slice(&part);
        if ends && let Some(fragments) = self.fragments.take() {
            let Fragments { is_text, is_deflated, bytes } = *fragments;
            if is_text { self.text(&bytes, is_deflated, ctx) } else { self.refuse_binary() }
        }
    }

    /// Counts a frame. A message counts once, in however many fragments it comes; the other frames have a limit of
    /// their own, so that a client which sends all the messages it may can still answer a ping and say goodbye.
    fn is_too_much(&mut self, frame: &Result<ws::Frame, ProtocolError>) -> bool {
        use Item::{FirstBinary, FirstText};
        use ws::Frame::{Binary, Continuation, Text};
        if !matches!(frame, Ok(Text(_) | Binary(_) | Continuation(FirstText(_) | FirstBinary(_)))) {
            return self.socket.heard_part() > limits::INBOUND_PARTS;
        }
        let now = self.socket.now();
        let flood = self.received.available_at(now, limits::INBOUND_MESSAGES).is_some();
        self.received.record(now);
        flood
    }

    fn refuse_binary(&self) {
        self.refuse(&Refusal::new(ErrorCode::Malformed, "messages are JSON text, not binary"));
    }

    fn text(&mut self, payload: &[u8], is_deflated: bool, ctx: &mut Context<Self>) {
        let text = match is_deflated.then(|| self.socket.decompress(payload)).transpose() {
            Ok(text) => text,
            Err(InflateError::TooBig) => return self.close(Reason::TooBig),
            Err(InflateError::Corrupt) => return self.close(Reason::NotText),
        };
        let text = text.as_deref().unwrap_or(payload);
        if std::str::from_utf8(text).is_err() {
            return self.close(Reason::NotText);
        }
        self.receive(text, ctx);
    }
}

/// Answer to a command that was not carried out.
fn refusal(error: CommandError) -> (ErrorCode, &'static str) {
    match error {
        CommandError::UnknownServer => (ErrorCode::UnknownServer, "no such paired server"),
        CommandError::OwnerOnly => (ErrorCode::OwnerOnly, "only the owner of the paired server may do this"),
        CommandError::UnknownIncident => (ErrorCode::UnknownIncident, "no such incident"),
        CommandError::UnknownDevice => (ErrorCode::UnknownDevice, "no such device"),
        CommandError::NotASwitch => (ErrorCode::NotASwitch, "the device is not a smart switch"),
        CommandError::DeviceRemoved => (ErrorCode::DeviceRemoved, "the device is gone from the game"),
        CommandError::TooMany => {
            (ErrorCode::RateLimited, "too many toggles of this device wait, try again in a second")
        }
        CommandError::Unavailable => (ErrorCode::GameServerUnavailable, "no link to the game server"),
        CommandError::Internal => (ErrorCode::Internal, "the command failed, try again"),
        CommandError::TimedOut => (ErrorCode::GameServerTimeout, "the game server did not answer in time"),
    }
}

impl Actor for ClientSocket {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX);
        self.rest.admission.opened(ctx.address().downgrade().recipient());
        if let Some(at) = self.rest.admission.access.ends() {
            let left = (at - self.worker.clock.now()).to_std().unwrap_or_default();
            ctx.run_later(left.min(LONGEST_TIMER), |actor, _| actor.close(Reason::SignedOut));
        }
    }

    fn stopped(&mut self, _: &mut Self::Context) {
        panics::notice(Part::ClientSocket, self.user().as_str());
        for subscription in self.subscriptions.drain(..) {
            subscription.watchers.remove(&self.socket);
        }
        self.worker.sockets.remove(&self.socket);
    }
}

impl StreamHandler<Result<ReceivedFrame, ProtocolError>> for ClientSocket {
    fn handle(&mut self, received: Result<ReceivedFrame, ProtocolError>, ctx: &mut Self::Context) {
        self.socket.heard();
        let is_deflated = received.as_ref().is_ok_and(|received| received.is_deflated);
        let frame = received.map(|received| received.frame);
        if self.is_too_much(&frame) {
            return self.close(Reason::Flooding);
        }
        match frame {
            Ok(ws::Frame::Text(payload)) => self.text(&payload, is_deflated, ctx),
            Ok(ws::Frame::Binary(_)) => self.refuse_binary(),
            Ok(ws::Frame::Continuation(item)) => self.fragment(item, is_deflated, ctx),
            Ok(ws::Frame::Ping(payload)) => self.socket.push_control(close::pong(&payload)),
            Ok(ws::Frame::Pong(_)) => {}
            Ok(ws::Frame::Close(said)) => self.socket.answer_close(said),
            Err(ProtocolError::Overflow) => self.close(Reason::TooBig),
            Err(_) => self.close(Reason::Protocol),
        }
    }
}

impl Handler<SocketOrder> for ClientSocket {
    type Result = ();

    fn handle(&mut self, order: SocketOrder, _: &mut Self::Context) {
        match order {
            SocketOrder::Close(reason) => self.close(reason),
            SocketOrder::Send(frame) => self.socket.push(Lane::Reply, frame),
        }
    }
}
