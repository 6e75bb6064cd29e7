//! Checks the state of the service itself, for `/health/db`, `/ready`, `/status` and `/metrics`.

use std::{
    path::Path,
    sync::{Arc, PoisonError, atomic::Ordering},
    time::Duration,
};

use actix_web::web;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::{
    api::{
        answer::error::{ApiError, FieldError},
        caches::service_health::{LONGEST_ALARM_WAIT, ServiceHealth, WriteState, free_bytes},
        context::{ACTOR_DEADLINE, ApiContext, in_time},
    },
    config,
    db::{
        alarms::incidents,
        engine::{self, error::DbError, pool::Db, write_check},
        files::{journal, last_run},
        ledger_check, sessions, users,
    },
    domain::{
        clock_skew::ClockSkew,
        ids::{SessionId, UserId},
    },
    ownership::Ownership,
    push::{
        session_status::PushCounts,
        worker::{CountSessions, SessionsLoaded},
    },
    relay::hub::{CountLinks, LinkCounts, LinksLoaded},
};

const TAKES_NOTHING: &str = "takes nothing that is written";
/// Time between two checks of the service by itself.
const WATCHED_EVERY: Duration = Duration::from_secs(30);

/// Err if the data directory was removed, with what to do.
fn is_there(data_dir: &Path) -> Result<(), String> {
    data_dir.is_dir().then_some(()).ok_or_else(|| {
        format!(
            "{} was removed while the service runs; see docs/alerts.md, A data directory that was removed",
            data_dir.display()
        )
    })
}

impl ApiContext {
    /// The service is about to end.
    pub fn is_stopping(&self) -> bool {
        self.health.relay_health.draining.load(Ordering::Relaxed)
    }

    /// Writes something small, unless that was done a moment ago.
    pub async fn written(&self) -> Result<Arc<WriteState>, ApiError> {
        let check = || async {
            let now = self.clock.now();
            let written = timeout(ACTOR_DEADLINE, self.pool.write(move |db| write_check::write(db, now))).await;
            let database = match written {
                Ok(Ok(())) => Ok(()),
                Ok(Err(error)) => Err(engine::with_advice(&error)),
                Err(_) => Err("no answer in time; `companion doctor` says why, as far as it can be seen".to_owned()),
            };
            // After the write, so that a connection reads pages again that it knew.
            let (ledger, channels, sign_ins) = match &database {
                Ok(()) => tokio::join!(
                    self.read_tables(ledger_check::check),
                    self.read_tables(ledger_check::check_channels),
                    self.read_sign_ins()
                ),
                // All of it is reported as one fault.
                Err(_) => (Ok(()), Ok(()), Ok(())),
            };
            let (data_dir, file) = (self.settings.data_dir.clone(), self.pool.file());
            let look = move || {
                let (file, log) = file.map_or((Ok(()), Ok(())), |file| (file.check(), file.check_log()));
                let directory = is_there(&data_dir)
                    .and_then(|()| config::is_writable(&data_dir))
                    .and_then(|()| journal::check(&data_dir));
                (free_bytes(&data_dir), directory, file, log)
            };
            // On a thread that may wait: a file system may hang.
            let looked = timeout(ACTOR_DEADLINE, web::block(look)).await;
            let (free, directory, file, log) =
                looked.ok().and_then(Result::ok).unwrap_or((None, Ok(()), Ok(()), Ok(())));
            let state = WriteState { database: database.and(file), sign_ins, log, ledger, channels, free, directory };
            self.report_faults(&state);
            Ok(state)
        };
        self.health.write_state.get(&self.clock, check).await
    }

    /// Reads where the next alarm is written, or the next message of a channel.
    async fn read_tables(&self, check: fn(&mut Db) -> Result<(), DbError>) -> Result<(), String> {
        match timeout(ACTOR_DEADLINE, self.pool.read(check)).await {
            Ok(checked) => checked.map_err(|error| error.to_string()),
            Err(_) => Err("no answer in time".to_owned()),
        }
    }

    /// Reads what each signed-in request needs.
    async fn read_sign_ins(&self) -> Result<(), String> {
        let now = self.clock.now();
        let reads = tokio::join!(
            timeout(ACTOR_DEADLINE, self.pool.read(|db| users::find(db, &UserId::from("")).map(drop))),
            timeout(ACTOR_DEADLINE, self.pool.read(move |db| sessions::find(db, &SessionId::from(""), now).map(drop))),
        );
        for (table, read) in [("users", reads.0), ("sessions", reads.1)] {
            match read {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return Err(format!("{table} cannot be read: {}", engine::with_advice(&error))),
                Err(_) => {
                    return Err(format!(
                        "{table} do not answer in time: another session of the database may have locked them, see pg_locks"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Logs what cannot be written, when it changes.
    fn report_faults(&self, state: &WriteState) {
        let faults = state.faults();
        let mut known = self.health.write_faults.lock().unwrap_or_else(PoisonError::into_inner);
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
            let (journal, data_dir, now) =
                (self.health.journal.clone(), self.settings.data_dir.clone(), self.clock.now());
            let look_after = move || {
                journal.look_after();
                last_run::note_alive(&data_dir, now)
            };
            // On a thread that may wait; a panic in it is reported there, and a directory that takes no files is below.
            let _ = web::block(look_after).await;
            // Its faults are in the log.
            let _ = self.written().await;
            self.copy_erasures().await;
            self.settle_erasures().await;
            self.note_warnings().await;
            if let Some(wait) = self.overdue_alarm() {
                log::error!(
                    "alarms have waited for the database for {} s: `companion doctor` looks at it",
                    wait.as_secs()
                );
            }
        }
    }

    /// The database takes what is written, and answers signed-in requests.
    pub async fn check_database(&self) -> Result<(), ApiError> {
        let written = self.written().await?;
        match written.database.as_ref().and(written.sign_ins.as_ref()) {
            Ok(()) => Ok(()),
            Err(error) => Err(ApiError::Unavailable(error.clone().into())),
        }
    }

    /// Parts that are not ready, each by its name and the reason; empty when everything is.
    pub async fn not_ready(&self) -> Vec<FieldError> {
        let (written, links, sessions) = tokio::join!(
            self.written(),
            in_time(self.services.hub.send(LinksLoaded)),
            in_time(self.services.push.send(SessionsLoaded)),
        );
        let (database, disk) = written.map_or((Some(TAKES_NOTHING), None), |state| {
            let disk = match (state.has_room(), &state.directory) {
                (false, _) => Some("almost full"),
                (true, Err(_)) => Some("takes no files"),
                (true, Ok(())) => None,
            };
            let database = match &*state {
                WriteState { database: Err(_), .. } => Some(TAKES_NOTHING),
                WriteState { sign_ins: Err(_), .. } => Some("does not answer signed-in requests"),
                WriteState { ledger: Err(_), .. } => Some("takes no alarms, which are kept in a file"),
                WriteState { channels: Err(_), .. } => {
                    Some("does not answer channels, by which alarms wait to be sent")
                }
                _ => None,
            };
            (database, disk)
        });
        let loaded = |state: Result<bool, ApiError>| match state {
            Ok(true) => None,
            Ok(false) => Some("not loaded yet"),
            Err(_) => Some("no answer"),
        };
        [
            ("service", self.is_stopping().then_some("stopping")),
            ("database", database),
            ("disk", disk),
            ("gameLinks", loaded(links)),
            ("pushSessions", loaded(sessions)),
        ]
        .into_iter()
        .filter_map(|(path, message)| Some(FieldError { path: path.to_owned(), message: message?.to_owned() }))
        .collect()
    }

    /// True if parts of the database are damaged, as of the last look at all rows.
    pub(super) fn is_damaged(&self) -> bool {
        self.health.damage.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// True if the database is not damaged, and its log is where it was opened.
    pub fn is_intact(&self, written: &WriteState) -> bool {
        written.log.is_ok() && !self.is_damaged()
    }

    /// For how long the oldest alarm has waited for the database, if that is for too long.
    pub(super) fn overdue_alarm(&self) -> Option<Duration> {
        self.health.journal.oldest_wait().filter(|wait| *wait > LONGEST_ALARM_WAIT)
    }

    /// Number of links in each state.
    pub async fn link_counts(&self) -> Result<LinkCounts, ApiError> {
        in_time(self.services.hub.send(CountLinks)).await
    }

    /// Number of push sessions in each state.
    pub async fn push_counts(&self) -> Result<PushCounts, ApiError> {
        in_time(self.services.push.send(CountSessions)).await
    }

    /// Number of open sockets.
    pub fn sockets(&self) -> usize {
        self.health.relay_health.active.load(Ordering::Relaxed)
    }

    /// State of the service, as of a moment ago.
    pub async fn service_health(&self) -> Result<Arc<ServiceHealth>, ApiError> {
        let look = || async {
            let (written, links, push, last_alarm) = tokio::join!(
                self.written(),
                self.link_counts(),
                self.push_counts(),
                timeout(ACTOR_DEADLINE, self.pool.read(incidents::last_heard)),
            );
            let written = written?;
            Ok(ServiceHealth {
                stopping: self.is_stopping(),
                intact: self.is_intact(&written),
                written,
                links: links.ok(),
                push: push.ok(),
                overdue_alarm: self.overdue_alarm(),
                sign_in: self.identity_fault().is_none() && !self.clock_off().is_some_and(ClockSkew::refuses_sign_ins),
                unreadable_secrets: self.keys.vault.unreadable(),
                unreadable_rows: self.health.unreadable_rows.load(Ordering::Relaxed),
                sockets: self.sockets(),
                unnamed_proxy: self.limits.connections.unread_forwarding.is_noticed(self.clock.moment()),
                last_alarm: last_alarm.ok().and_then(Result::ok).flatten(),
                node: self.health.ownership.as_ref().map(Ownership::figures),
            })
        };
        self.health.report.get(&self.clock, look).await
    }
}
