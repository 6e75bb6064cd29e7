//! Checks the state of the service itself, for `/health/db`, `/ready`, `/status` and `/metrics`.

use std::{
    sync::{Arc, PoisonError, atomic::Ordering},
    time::Duration,
};

use actix_web::web;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::{
    api::{
        answer::error::{ApiError, FieldError},
        caches::own_state::{LONGEST_ALARM_WAIT, OwnState, WriteState, free_bytes},
        context::{ACTOR_DEADLINE, ApiContext, in_time},
    },
    config,
    db::{engine::write_check, incidents, journal, users},
    domain::ids::UserId,
    push::{
        session_status::PushCounts,
        worker::{CountSessions, SessionsLoaded},
    },
    relay::hub::{CountLinks, LinkCounts, LinksLoaded},
};

/// Time between two checks of the service by itself.
const WATCHED_EVERY: Duration = Duration::from_secs(60);

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
            let (data_dir, file) = (self.data_dir.clone(), self.pool.file());
            let look = move || {
                let file = file.map_or(Ok(()), |file| file.check());
                let directory = config::is_writable(&data_dir).and_then(|()| journal::check(&data_dir));
                (free_bytes(&data_dir), directory, file)
            };
            // On a thread that may wait: a file system may hang.
            let looked = timeout(ACTOR_DEADLINE, web::block(look)).await;
            let (free, directory, file) = looked.ok().and_then(Result::ok).unwrap_or((None, Ok(()), Ok(())));
            let state = WriteState { database: database.and(file), free, directory };
            self.report_faults(&state);
            Ok(state)
        };
        self.write_state.get(&self.clock, check).await
    }

    /// Logs what cannot be written, when it changes.
    fn report_faults(&self, state: &WriteState) {
        let faults = state.faults();
        let mut known = self.write_faults.lock().unwrap_or_else(PoisonError::into_inner);
        if *known != faults {
            faults.iter().for_each(|fault| log::error!("{fault}"));
            if faults.is_empty() {
                log::info!("the database and the data directory take what is written again");
            }
            *known = faults;
        }
    }

    /// Checks without end that the service can write: there may be no other request for it.
    pub async fn watch_writes(&self) {
        let mut ticks = interval(WATCHED_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let journal = self.journal.clone();
            // On a thread that may wait; a panic in it is reported there.
            let _ = web::block(move || journal.look_after()).await;
            // Its faults are in the log.
            let _ = self.written().await;
            if let Some(wait) = self.overdue_alarm() {
                log::error!(
                    "alarms have waited for the database for {} s: `companion doctor` looks at it",
                    wait.as_secs()
                );
            }
        }
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

    /// Parts that are not ready, each by its name and the reason; empty when everything is.
    pub async fn not_ready(&self) -> Vec<FieldError> {
        let (database, written, links, sessions) = tokio::join!(
            timeout(ACTOR_DEADLINE, self.ping()),
            self.written(),
            in_time(self.hub.send(LinksLoaded)),
            in_time(self.push.send(SessionsLoaded)),
        );
        let answers = matches!(database, Ok(Ok(())));
        let (takes, disk) = written.map_or((false, None), |state| {
            let disk = match (state.has_room(), &state.directory) {
                (false, _) => Some("almost full"),
                (true, Err(_)) => Some("takes no files"),
                (true, Ok(())) => None,
            };
            (state.database.is_ok(), disk)
        });
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
            ("disk", disk),
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
        let secrets = (unreadable > 0)
            .then(|| format!("{unreadable} do not open with the keys that are set; see `companion keys status`"));
        let alarms = self.overdue_alarm().map(|wait| {
            format!("the oldest has waited for the database for {} s; see `companion doctor`", wait.as_secs())
        });
        let warnings = [("alarms", alarms), ("storedSecrets", secrets)].into_iter();
        warnings.filter_map(|(path, message)| Some(FieldError { path: path.to_owned(), message: message? })).collect()
    }

    /// For how long the oldest alarm has waited for the database, if that is for too long.
    fn overdue_alarm(&self) -> Option<Duration> {
        self.journal.oldest_wait().filter(|wait| *wait > LONGEST_ALARM_WAIT)
    }

    /// Number of links in each state.
    pub async fn link_counts(&self) -> Result<LinkCounts, ApiError> {
        in_time(self.hub.send(CountLinks)).await
    }

    /// Number of push sessions in each state.
    pub async fn push_counts(&self) -> Result<PushCounts, ApiError> {
        in_time(self.push.send(CountSessions)).await
    }

    /// Number of open sockets.
    pub fn sockets(&self) -> usize {
        self.relay_health.active.load(Ordering::Relaxed)
    }

    /// State of the service, as of a moment ago.
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
                overdue_alarm: self.overdue_alarm(),
                unreadable_secrets: self.vault.unreadable(),
                sockets: self.sockets(),
                unnamed_proxy: self.connections.unread_forwarding.is_noticed(self.clock.moment()),
                last_alarm: last_alarm.ok().and_then(Result::ok).flatten(),
            })
        };
        self.own_state.get(&self.clock, look).await
    }
}
