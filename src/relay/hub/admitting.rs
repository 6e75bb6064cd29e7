//! Admission of sockets. While the database does not answer, a token is enough: it is signed, and minutes old. Its
//! session is checked as soon as the database answers, and the socket closed if it has ended.

use std::{collections::HashMap, future::Future, sync::Arc, time::Duration};

use actix::{fut::ready, prelude::*};
use tokio::{
    sync::oneshot,
    time::{sleep, timeout},
};

use super::{ANSWERED_WITHIN, Hub, PendingSessionCheck};
use crate::{
    clock::Clock,
    db::{
        api_tokens,
        engine::{
            error::DbError,
            pool::{Db, Pool},
        },
        helper_devices, sessions,
    },
    domain::{
        backoff::Backoff,
        ids::{ApiTokenId, HelperDeviceId, SessionId, UserId},
    },
    relay::{
        client::admission::{Admission, Admit, AdmitRefused, SocketEvent, SocketOrder},
        wire::close::Reason,
    },
};

/// Sessions that one query asks for.
const ASKED_AT_ONCE: usize = 500;
/// Longest pause between two checks of sessions that could not be checked so far.
const CHECKED_WITHIN: Duration = Duration::from_secs(5);

/// The sessions among `asked` that go on, with their users.
fn owners(
    pool: &Pool,
    clock: &Clock,
    asked: Vec<SessionId>,
) -> impl Future<Output = Result<HashMap<SessionId, UserId>, DbError>> + use<> {
    let (pool, now) = (pool.clone(), clock.now());
    let look = move |db: &mut Db| {
        let mut owners = HashMap::new();
        for asked in asked.chunks(ASKED_AT_ONCE) {
            let devices: Vec<HelperDeviceId> = asked.iter().filter_map(SessionId::device).collect();
            let tokens: Vec<ApiTokenId> = asked.iter().filter_map(SessionId::token).collect();
            if devices.len() + tokens.len() < asked.len() {
                owners.extend(sessions::owners(db, asked, now)?);
            }
            if !devices.is_empty() {
                let devices = helper_devices::owners(db, &devices)?.into_iter();
                owners.extend(devices.map(|(device, user)| (SessionId::of_device(&device), user)));
            }
            if !tokens.is_empty() {
                let tokens = api_tokens::owners(db, &tokens, now)?.into_iter();
                owners.extend(tokens.map(|(token, user)| (SessionId::of_token(&token), user)));
            }
        }
        Ok(owners)
    };
    async move { pool.read(look).await }
}

impl Hub {
    /// Asks the database for a session. Until it answers, further sessions wait, and are then asked for together.
    fn ask(
        &mut self,
        user: UserId,
        session: SessionId,
        ctx: &mut Context<Self>,
    ) -> oneshot::Receiver<Result<bool, Arc<DbError>>> {
        let (answer, answered) = oneshot::channel();
        self.pending_checks.push(PendingSessionCheck { user, session, answer });
        if !std::mem::replace(&mut self.check_in_flight, true) {
            self.ask_for_all(ctx);
        }
        answered
    }

    fn ask_for_all(&mut self, ctx: &mut Context<Self>) {
        let pending = std::mem::take(&mut self.pending_checks);
        self.check_in_flight = !pending.is_empty();
        if !self.check_in_flight {
            return;
        }
        let sessions = pending.iter().map(|check| check.session.clone()).collect();
        let owners = owners(&self.context.pool, &self.context.clock, sessions);
        ctx.spawn(owners.into_actor(self).map(move |owners, hub, ctx| {
            let owners = owners.map_err(Arc::new);
            for PendingSessionCheck { user, session, answer } in pending {
                let goes_on = owners.as_ref().map(|owners| owners.get(&session) == Some(&user));
                // The caller may have given up.
                let _ = answer.send(goes_on.map_err(Arc::clone));
            }
            hub.ask_for_all(ctx);
        }));
    }

    /// Checks this session once the database answers, with all others that wait for it.
    pub(super) fn check_later(&mut self, user: UserId, session: SessionId, ctx: &mut Context<Self>) {
        let idle = self.unchecked.is_empty();
        self.unchecked.insert(session, user);
        if idle {
            self.check_unchecked(Duration::ZERO, Backoff::between(Backoff::FIRST, CHECKED_WITHIN), ctx);
        }
    }

    fn check_unchecked(&mut self, pause: Duration, mut backoff: Backoff, ctx: &mut Context<Self>) {
        // A session without sockets needs no check.
        let present = self.presence.sessions();
        self.unchecked.retain(|session, _| present.contains(session));
        let unchecked: Vec<SessionId> = self.unchecked.keys().cloned().collect();
        if unchecked.is_empty() {
            return;
        }
        let context = self.context.clone();
        let asked = unchecked.clone();
        let checked = async move {
            sleep(pause).await;
            owners(&context.pool, &context.clock, asked).await
        };
        ctx.spawn(checked.into_actor(self).map(move |owners, hub, ctx| {
            let Ok(owners) = owners else {
                let pause = backoff.after(Duration::ZERO, Duration::ZERO, hub.context.random.byte());
                return hub.check_unchecked(pause, backoff, ctx);
            };
            for session in unchecked {
                let user = hub.unchecked.remove(&session);
                if user.as_ref() != owners.get(&session) {
                    for socket in hub.presence.end_session(&session) {
                        socket.do_send(SocketOrder::Close(Reason::SignedOut));
                    }
                }
            }
            hub.check_unchecked(Duration::ZERO, Backoff::between(Backoff::FIRST, CHECKED_WITHIN), ctx);
        }));
    }
}

impl Handler<Admit> for Hub {
    type Result = ResponseActFuture<Self, Result<Admission, AdmitRefused>>;

    fn handle(&mut self, Admit { user, session, access }: Admit, ctx: &mut Self::Context) -> Self::Result {
        // The place is taken before the database is asked, so that many at once cannot share the last one.
        let place = match self.draining {
            true => Err(AdmitRefused::Unavailable),
            false => self.presence.admit(&user, &session, access.only()).ok_or(AdmitRefused::TooManyConnections),
        };
        self.count_sockets();
        let admission = match place {
            Ok(number) => {
                let events = self.socket_events.get_or_insert_with(|| Arc::new(ctx.address().downgrade().recipient()));
                Admission::new(number, access, events.clone())
            }
            Err(refused) => return Box::pin(ready(Err(refused))),
        };
        let answered = timeout(ANSWERED_WITHIN, self.ask(user.clone(), session.clone(), ctx));
        Box::pin(answered.into_actor(self).map(move |answered, hub, ctx| {
            let reason = match answered {
                Ok(Ok(Ok(true))) => return Ok(admission),
                Ok(Ok(Ok(false))) => return Err(AdmitRefused::SignedOut),
                Ok(Ok(Err(error))) if !matches!(*error, DbError::Unavailable(_) | DbError::Damaged(_)) => {
                    log::error!("a session could not be checked: {error}");
                    return Err(AdmitRefused::Unavailable);
                }
                Ok(Ok(Err(error))) => error.to_string(),
                Ok(Err(_)) | Err(_) => "no answer in time".to_owned(),
            };
            log::warn!("a socket is admitted, its session is checked later: {reason}");
            hub.check_later(user, session, ctx);
            Ok(admission)
        }))
    }
}

impl Handler<SocketEvent> for Hub {
    type Result = ();

    fn handle(&mut self, event: SocketEvent, _: &mut Self::Context) {
        match event {
            SocketEvent::Opened { connection, socket } => {
                let reason = self.presence.open(connection, socket.clone());
                let reason = reason.or(self.draining.then_some(Reason::Restarting));
                if let (Some(reason), Some(socket)) = (reason, socket.upgrade()) {
                    socket.do_send(SocketOrder::Close(reason));
                }
            }
            SocketEvent::Closed { connection } => self.presence.leave(connection),
        }
        self.count_sockets();
    }
}
