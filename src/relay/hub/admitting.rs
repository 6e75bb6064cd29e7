//! Who may open a socket. While the database does not answer, a token is enough: it is signed, and minutes old. Its
//! session is checked as soon as the database answers, and the socket closed if it has ended.

use std::{future::Future, time::Duration};

use actix::prelude::*;
use tokio::time::{sleep, timeout};

use super::{ANSWERED_WITHIN, Hub};
use crate::{
    clock::Clock,
    db::{
        error::DbError,
        helper_devices,
        pool::{Db, Pool},
        sessions,
    },
    domain::{
        backoff::Backoff,
        ids::{SessionId, UserId},
    },
    relay::{
        admission::{Admission, Admit, AdmitRefused, Close, SocketEvent},
        close::Reason,
    },
};

/// Longest pause between two checks of sessions that nobody could check.
const CHECKED_WITHIN: Duration = Duration::from_secs(5);

/// Whether this session of the user goes on.
fn goes_on(
    pool: &Pool,
    clock: &Clock,
    user: UserId,
    session: SessionId,
) -> impl Future<Output = Result<bool, DbError>> + use<> {
    let (pool, now) = (pool.clone(), clock.now());
    let holds = move |db: &mut Db| match session.device() {
        Some(device) => helper_devices::belongs_to(db, &user, &device),
        None => Ok(sessions::find(db, &session, now)?.is_some_and(|session| session.user_id == user)),
    };
    async move { pool.read(holds).await }
}

impl Hub {
    /// Checks this session once the database answers; one at a time.
    fn check_later(&mut self, user: UserId, session: SessionId, ctx: &mut Context<Self>) {
        let idle = self.unchecked.is_empty();
        self.unchecked.insert(session, user);
        if idle {
            self.check_next(Duration::ZERO, Backoff::between(Backoff::FIRST, CHECKED_WITHIN), ctx);
        }
    }

    fn check_next(&mut self, pause: Duration, mut backoff: Backoff, ctx: &mut Context<Self>) {
        let Some((session, user)) = self.unchecked.iter().next() else { return };
        let (session, user) = (session.clone(), user.clone());
        let context = self.context.clone();
        let (asked, of) = (session.clone(), user.clone());
        let checked = async move {
            sleep(pause).await;
            goes_on(&context.pool, &context.clock, of, asked).await
        };
        ctx.spawn(checked.into_actor(self).map(move |checked, hub, ctx| {
            let pause = match checked {
                Ok(goes_on) => {
                    hub.unchecked.remove(&session);
                    if !goes_on {
                        for close in hub.presence.end_session(&session) {
                            close.do_send(Close(Reason::SignedOut));
                        }
                    }
                    Duration::ZERO
                }
                // Its sockets are gone: nothing hangs on it any more.
                Err(_) if !hub.presence.has_session(&session) => {
                    hub.unchecked.remove(&session);
                    Duration::ZERO
                }
                Err(_) => backoff.after(Duration::ZERO, Duration::ZERO, hub.context.random.byte()),
            };
            hub.check_next(pause, backoff, ctx);
        }));
    }
}

impl Handler<Admit> for Hub {
    type Result = ResponseActFuture<Self, Result<Admission, AdmitRefused>>;

    fn handle(&mut self, Admit { user, session, overlay }: Admit, ctx: &mut Self::Context) -> Self::Result {
        // The place is taken before the database is asked, so that many at once cannot share the last one.
        let place = match self.draining {
            true => Err(AdmitRefused::Unavailable),
            false => self.presence.admit(&user, &session, overlay.as_ref()).ok_or(AdmitRefused::TooManyConnections),
        };
        self.count_sockets();
        let admission =
            place.map(|number| Admission::new(user.clone(), number, ctx.address().recipient()).of_overlay(overlay));
        let context = self.context.clone();
        let (asked, of) = (session.clone(), user.clone());
        let checked = async move {
            let admission = admission?;
            let answer = timeout(ANSWERED_WITHIN, goes_on(&context.pool, &context.clock, of, asked)).await;
            Ok((admission, answer.unwrap_or_else(|_| Err(DbError::Unavailable("no answer in time".to_owned())))))
        };
        Box::pin(checked.into_actor(self).map(move |checked, hub, ctx| {
            let (admission, answer) = checked?;
            match answer {
                Ok(true) => Ok(admission),
                Ok(false) => Err(AdmitRefused::SignedOut),
                Err(DbError::Unavailable(reason)) => {
                    log::warn!("a socket is admitted, its session is checked later: {reason}");
                    hub.check_later(user, session, ctx);
                    Ok(admission)
                }
                Err(error) => {
                    log::error!("a session could not be checked: {error}");
                    Err(AdmitRefused::Unavailable)
                }
            }
        }))
    }
}

impl Handler<SocketEvent> for Hub {
    type Result = ();

    fn handle(&mut self, event: SocketEvent, _: &mut Self::Context) {
        match event {
            SocketEvent::Opened { connection, close } => {
                let reason = self.presence.open(connection, close.clone());
                if let Some(reason) = reason.or(self.draining.then_some(Reason::Restarting)) {
                    close.do_send(Close(reason));
                }
            }
            SocketEvent::Closed { connection } => self.presence.leave(connection),
        }
        self.count_sockets();
    }
}
