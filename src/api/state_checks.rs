//! Finds out how the service itself is: what `/health/db`, `/ready`, `/status` and `/metrics` say, each in its way.

use std::sync::{Arc, atomic::Ordering};

use tokio::time::timeout;

use crate::{
    api::{
        context::{ACTOR_DEADLINE, ApiContext, in_time},
        error::{ApiError, FieldError},
        own_state::{OwnState, WriteState, free_bytes},
    },
    db::{incidents, users, write_check},
    domain::ids::UserId,
    push::{
        session_status::PushCounts,
        worker::{CountSessions, SessionsLoaded},
    },
    relay::hub::{CountLinks, LinkCounts, LinksLoaded},
};

impl ApiContext {
    /// The service is about to end.
    pub fn is_stopping(&self) -> bool {
        self.relay_health.draining.load(Ordering::Relaxed)
    }

    /// Writes something small, unless that was done a moment ago.
    pub async fn written(&self) -> Result<Arc<WriteState>, ApiError> {
        let check = || async {
            let now = self.clock.now();
            let written = timeout(ACTOR_DEADLINE, self.pool.write(move |db| write_check::write(db, now))).await;
            let database = match written {
                Ok(Ok(())) => Ok(()),
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err("no answer in time".to_owned()),
            };
            if let Err(error) = &database {
                log::error!("the database takes nothing: {error}");
            }
            let directory = self.data_dir.clone();
            // On a thread that may wait: a file system may hang.
            let free = timeout(ACTOR_DEADLINE, self.pool.read(move |_| Ok(free_bytes(&directory)))).await;
            Ok(WriteState { database, free: free.ok().and_then(Result::ok).flatten() })
        };
        self.write_state.get(&self.clock, check).await
    }

    /// The database answers, and takes what is written.
    pub async fn check_database(&self) -> Result<(), ApiError> {
        self.ping().await?;
        match &self.written().await?.database {
            Ok(()) => Ok(()),
            Err(error) => Err(ApiError::Unavailable(error.clone().into())),
        }
    }

    /// Runs a small query, to see that the database answers.
    async fn ping(&self) -> Result<(), ApiError> {
        self.pool.read(|db| users::find(db, &UserId::from(""))).await?;
        Ok(())
    }

    /// What is not ready, each by its name and why; empty when everything is.
    pub async fn not_ready(&self) -> Vec<FieldError> {
        let (database, written, links, sessions) = tokio::join!(
            timeout(ACTOR_DEADLINE, self.ping()),
            self.written(),
            in_time(self.hub.send(LinksLoaded)),
            in_time(self.push.send(SessionsLoaded)),
        );
        let answers = matches!(database, Ok(Ok(())));
        let (takes, room) = written.map_or((false, true), |state| (state.database.is_ok(), state.has_room()));
        let loaded = |state: Result<bool, ApiError>| match state {
            Ok(true) => None,
            Ok(false) => Some("not loaded yet"),
            Err(_) => Some("no answer"),
        };
        [
            ("service", self.is_stopping().then_some("stopping")),
            (
                "database",
                if !answers { Some("no answer") } else { (!takes).then_some("takes nothing that is written") },
            ),
            ("disk", (!room).then_some("almost full")),
            ("gameLinks", loaded(links)),
            ("pushSessions", loaded(sessions)),
        ]
        .into_iter()
        .filter_map(|(path, message)| Some(FieldError { path: path.to_owned(), message: message?.to_owned() }))
        .collect()
    }

    /// Faults that need the operator, though the service is ready.
    pub fn warnings(&self) -> Vec<FieldError> {
        let unreadable = self.vault.unreadable();
        let message = format!("{unreadable} do not open with the keys that are set; see `companion keys status`");
        let warning = FieldError { path: "storedSecrets".to_owned(), message };
        Vec::from_iter((unreadable > 0).then_some(warning))
    }

    /// How many links there are in each state.
    pub async fn link_counts(&self) -> Result<LinkCounts, ApiError> {
        in_time(self.hub.send(CountLinks)).await
    }

    /// How many push sessions there are in each state.
    pub async fn push_counts(&self) -> Result<PushCounts, ApiError> {
        in_time(self.push.send(CountSessions)).await
    }

    /// How many sockets are open.
    pub fn sockets(&self) -> usize {
        self.relay_health.active.load(Ordering::Relaxed)
    }

    /// How the service is, as of a moment ago.
    pub async fn own_state(&self) -> Result<Arc<OwnState>, ApiError> {
        let look = || async {
            let (written, links, push, last_alarm) = tokio::join!(
                self.written(),
                self.link_counts(),
                self.push_counts(),
                timeout(ACTOR_DEADLINE, self.pool.read(incidents::last_heard)),
            );
            Ok(OwnState {
                stopping: self.is_stopping(),
                written: written?,
                links: links.ok(),
                push: push.ok(),
                unreadable_secrets: self.vault.unreadable(),
                sockets: self.sockets(),
                unnamed_proxy: self.connections.unread_forwarding.is_noticed(self.clock.moment()),
                last_alarm: last_alarm.ok().and_then(Result::ok).flatten(),
            })
        };
        self.own_state.get(&self.clock, look).await
    }
}
