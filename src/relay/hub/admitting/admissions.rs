//! Checks of sessions for sockets that are to be admitted: the database is asked for all that wait, one query at a time.
//! A session whose socket was admitted unchecked is checked later. Pure bookkeeping.

use std::{
    collections::{HashMap, HashSet},
    mem,
    sync::Arc,
};

use actix::WeakRecipient;
use tokio::sync::oneshot;

use crate::{
    db::engine::error::DbError,
    domain::{
        ids::{SessionId, UserId},
        relay_access::RelayAccess,
    },
    relay::client::admission::{Admission, SocketEvent},
};

/// True if the session goes on.
pub type SessionAnswer = Result<bool, Arc<DbError>>;

/// See the module.
#[derive(Default)]
pub struct Admissions {
    /// Where all sockets say that they are open or gone; known from the first socket on.
    events: Option<Arc<WeakRecipient<SocketEvent>>>,
    /// Sessions that are asked for as soon as the database has answered for others.
    pending: Vec<PendingSessionCheck>,
    in_flight: bool,
    /// Sessions whose sockets were admitted unchecked, because the database did not answer.
    unchecked: HashMap<SessionId, UserId>,
}

/// A session that a caller asks for, and the caller's channel.
struct PendingSessionCheck {
    user: UserId,
    session: SessionId,
    answer: oneshot::Sender<SessionAnswer>,
}

/// Sessions that one query asks for.
pub struct SessionQuery(Vec<PendingSessionCheck>);

impl SessionQuery {
    /// The sessions, in the order in which they came.
    pub fn sessions(&self) -> Vec<SessionId> {
        self.0.iter().map(|check| check.session.clone()).collect()
    }
}

impl Admissions {
    /// The right to the socket of this number. All sockets have the same `events`.
    pub fn admission(
        &mut self,
        number: u64,
        access: RelayAccess,
        events: impl FnOnce() -> WeakRecipient<SocketEvent>,
    ) -> Admission {
        let events = self.events.get_or_insert_with(|| Arc::new(events()));
        Admission::new(number, access, events.clone())
    }

    /// Has this session wait for its query.
    pub fn ask(&mut self, user: UserId, session: SessionId) -> oneshot::Receiver<SessionAnswer> {
        let (answer, answered) = oneshot::channel();
        self.pending.push(PendingSessionCheck { user, session, answer });
        answered
    }

    /// The query that is to begin now; `None` while another one is under way, or if no session waits.
    pub fn begin(&mut self) -> Option<SessionQuery> {
        if self.in_flight || self.pending.is_empty() {
            return None;
        }
        self.in_flight = true;
        Some(SessionQuery(mem::take(&mut self.pending)))
    }

    /// The query has ended with the users of the sessions that go on. Answers each caller.
    pub fn end(&mut self, query: SessionQuery, owners: Result<HashMap<SessionId, UserId>, DbError>) {
        self.in_flight = false;
        let owners = owners.map_err(Arc::new);
        for PendingSessionCheck { user, session, answer } in query.0 {
            let goes_on = owners.as_ref().map(|owners| owners.get(&session) == Some(&user));
            // The caller may have given up.
            let _ = answer.send(goes_on.map_err(Arc::clone));
        }
    }

    /// Keeps a session that is to be checked; true if it is the first, and its check is to begin.
    pub fn check_later(&mut self, user: UserId, session: SessionId) -> bool {
        let is_first = self.unchecked.is_empty();
        self.unchecked.insert(session, user);
        is_first
    }

    /// The sessions to check. One without sockets, which are `present`, needs no check.
    pub fn unchecked(&mut self, present: &HashSet<&SessionId>) -> Vec<SessionId> {
        self.unchecked.retain(|session, _| present.contains(session));
        self.unchecked.keys().cloned().collect()
    }

    /// These sessions are checked: those of them that go on have these users. Returns the others, which have ended.
    pub fn checked(&mut self, sessions: Vec<SessionId>, owners: &HashMap<SessionId, UserId>) -> Vec<SessionId> {
        let has_ended = |session: &SessionId| self.unchecked.remove(session).as_ref() != owners.get(session);
        sessions.into_iter().filter(has_ended).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(sessions: &[&str]) -> Vec<SessionId> {
        sessions.iter().map(|session| SessionId::from(*session)).collect()
    }

    /// These sessions go on, all of Alice.
    fn owners(sessions: &[&str]) -> HashMap<SessionId, UserId> {
        ids(sessions).into_iter().map(|session| (session, UserId::from("alice"))).collect()
    }

    #[test]
    fn sessions_that_come_during_a_query_are_asked_for_together_after_it() {
        let mut admissions = Admissions::default();
        assert!(admissions.begin().is_none(), "no session waits");
        let mut first = admissions.ask("alice".into(), "first".into());
        let query = admissions.begin().expect("a session waits");
        assert_eq!(query.sessions(), ids(&["first"]));
        let mut of_bob = admissions.ask("bob".into(), "of alice".into());
        let mut ended = admissions.ask("alice".into(), "ended".into());
        assert!(admissions.begin().is_none(), "a query is under way");
        admissions.end(query, Ok(owners(&["first"])));
        assert!(matches!(first.try_recv(), Ok(Ok(true))));
        let query = admissions.begin().expect("two sessions wait");
        assert_eq!(query.sessions(), ids(&["of alice", "ended"]));
        admissions.end(query, Ok(owners(&["of alice"])));
        assert!(matches!((of_bob.try_recv(), ended.try_recv()), (Ok(Ok(false)), Ok(Ok(false)))));
        let mut failed = admissions.ask("alice".into(), "failed".into());
        let query = admissions.begin().expect("a session waits");
        admissions.end(query, Err(DbError::Panicked));
        assert!(matches!(failed.try_recv(), Ok(Err(_))));
        assert!(admissions.begin().is_none(), "no session waits");
    }

    #[test]
    fn unchecked_sessions_are_checked_once_while_they_have_sockets() {
        let mut admissions = Admissions::default();
        let begins = ["valid", "ended", "left"].map(|session| admissions.check_later("alice".into(), session.into()));
        assert_eq!(begins, [true, false, false]);
        let known = ids(&["valid", "ended"]);
        let present: HashSet<&SessionId> = known.iter().collect();
        let unchecked = admissions.unchecked(&present);
        assert_eq!(unchecked.iter().collect::<HashSet<_>>(), present);
        assert_eq!(admissions.checked(unchecked, &owners(&["valid", "left"])), ids(&["ended"]));
        assert_eq!(admissions.unchecked(&present), ids(&[]));
        assert!(admissions.check_later("alice".into(), "later".into()), "no check is under way");
    }
}
