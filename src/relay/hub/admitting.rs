//! Admission of sockets. While the database does not answer, a token is enough: it is signed, and minutes old. Its
//! session is checked as soon as the database answers, and the socket closed if it has ended.

pub mod admissions;

use std::{collections::HashMap, future::Future, time::Duration};

use actix::{fut::ready, prelude::*};
use tokio::{
    sync::oneshot,
    time::{sleep, timeout},
};

use self::admissions::SessionAnswer;
use super::{ANSWERED_WITHIN, Hub};
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
    fn ask(&mut self, user: UserId, session: SessionId, ctx: &mut Context<Self>) -> oneshot::Receiver<SessionAnswer> {
        let answered = self.admissions.ask(user, session);
        self.ask_for_all(ctx);
        answered
    }

    fn ask_for_all(&mut self, ctx: &mut Context<Self>) {
        let Some(query) = self.admissions.begin() else { return };
        let owners = owners(&self.context.pool, &self.context.clock, query.sessions());
        ctx.spawn(owners.into_actor(self).map(move |owners, hub, ctx| {
            hub.admissions.end(query, owners);
            hub.ask_for_all(ctx);
        }));
    }

    /// Checks this session once the database answers, with all others that wait for it.
    pub(super) fn check_later(&mut self, user: UserId, session: SessionId, ctx: &mut Context<Self>) {
        if self.admissions.check_later(user, session) {
            self.check_unchecked(Duration::ZERO, Backoff::between(Backoff::FIRST, CHECKED_WITHIN), ctx);
        }
    }

    fn check_unchecked(&mut self, pause: Duration, mut backoff: Backoff, ctx: &mut Context<Self>) {
        let unchecked = self.admissions.unchecked(&self.presence.sessions());
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
            for session in hub.admissions.checked(unchecked, &owners) {
                hub.end_session(&session);
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
            Ok(number) => self.admissions.admission(number, access, || ctx.address().downgrade().recipient()),
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
