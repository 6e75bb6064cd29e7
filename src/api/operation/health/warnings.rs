//! Faults that need the operator, though the service is ready: each by the name of the part and what to do.

use std::{
    path::Path,
    sync::{PoisonError, atomic::Ordering},
};

use actix_web::web;

use crate::{
    api::{
        answer::error::FieldError,
        caches::service_health::{count_in, links_are_down, push_is_down},
        context::ApiContext,
        operation::process_metrics,
    },
    db::files::last_backup,
    domain::time::Timestamp,
    net::{descriptors, memory_limit},
    push::session_status::PushCounts,
    uploads::ImageStore,
};

/// Percent of the memory limit; more in use is a fault.
const MOST_MEMORY_PERCENT: u64 = 90;

/// The parts of warnings that no other metric shows.
pub const UNMEASURED: [&str; 4] = ["erasures", "openFiles", "images", "memory"];

/// The name of a part, and what is wrong with it.
pub type PartWarning = (&'static str, String);

impl ApiContext {
    /// Looks at what no request meets and the disk or an actor knows, and logs when that changes.
    pub(super) async fn note_warnings(&self) {
        let (images, data_dir, now) =
            (self.caches.images.store().clone(), self.settings.data_dir.clone(), self.clock.now());
        // On a thread that may wait: a file system may hang.
        let look = web::block(move || of_machine(&images, &data_dir, now));
        let (links, push, machine) = tokio::join!(self.link_counts(), self.push_counts(), look);
        let links = links.is_ok_and(|links| links_are_down(&links));
        let links =
            links.then(|| ("gameLinks", "most game servers cannot be reached: is this machine online?".to_owned()));
        let push = push.map(|push| of_push(&push)).unwrap_or_default();
        let found: Vec<PartWarning> = links.into_iter().chain(push).chain(machine.unwrap_or_default()).collect();
        let mut known = self.health.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        let is_in = |part: &str, warnings: &[PartWarning]| warnings.iter().any(|(known, _)| *known == part);
        for (part, message) in found.iter().filter(|(part, _)| !is_in(part, &known)) {
            log::warn!("{part}: {message}");
        }
        for (part, _) in known.iter().filter(|(part, _)| !is_in(part, &found)) {
            log::info!("{part}: this is well again");
        }
        *known = found;
    }

    /// All of them, as of the last minute.
    pub async fn warnings(&self) -> Vec<FieldError> {
        let log_is_lost = self.written().await.is_ok_and(|state| state.log.is_err());
        let database = match (self.is_damaged(), log_is_lost) {
            (true, _) => Some("is damaged: restore a backup; see `companion doctor`".to_owned()),
            (false, true) => Some("its log was removed: restart the service; see `companion doctor`".to_owned()),
            (false, false) => None,
        };
        let unreadable = self.keys.vault.unreadable();
        let secrets = (unreadable > 0)
            .then(|| format!("{unreadable} do not open with the keys that are set; see `companion keys status`"));
        let alarms = self.overdue_alarm().map(|wait| {
            format!("the oldest has waited for the database for {} s; see `companion doctor`", wait.as_secs())
        });
        let unreadable = self.health.unreadable_rows.load(Ordering::Relaxed);
        let rows = (unreadable > 0).then(|| format!("{unreadable} cannot be read; see `companion doctor`"));
        let unlisted = self.health.erasure_notes.count_unlisted();
        let erasures = (unlisted > 0).then(|| {
            format!(
                "{unlisted} are not on the list that keeps users erased after a restore: its file takes nothing; see \
                 docs/operations.md, Erasures and backups"
            )
        });
        let sign_in = self.identity_fault().map(|fault| {
            format!("the identity provider does not answer, and no user can sign in: {fault}; see `companion doctor`")
        });
        let clock = self.clock_off().map(|skew| {
            let effect = if skew.refuses_sign_ins() { ": no user can sign in" } else { "" };
            format!("it {skew} that of the identity provider{effect}; set it by NTP")
        });
        let (files, connections) = self.room_for_clients();
        let is_no_node = self.health.ownership.as_ref().is_some_and(|ownership| !ownership.figures().holds);
        let node = is_no_node.then(|| {
            "this process has no lease in NATS, and so no links and push sessions; see docs/alerts.md, \
             CompanionNodeWithoutLease"
                .to_owned()
        });
        let own = [
            ("database", database),
            ("node", node),
            ("alarms", alarms),
            ("storedSecrets", secrets),
            ("storedRows", rows),
            ("erasures", erasures),
            ("signIn", sign_in),
            ("clock", clock),
            ("openFiles", files),
            ("connections", connections),
        ];
        let own = own.into_iter().filter_map(|(path, message)| Some((path, message?)));
        let noted = self.health.warnings.lock().unwrap_or_else(PoisonError::into_inner).clone();
        own.chain(noted).map(|(path, message)| FieldError { path: path.to_owned(), message }).collect()
    }

    /// The faults of the limit of open files, and of the connections of clients that it leaves.
    fn room_for_clients(&self) -> (Option<String>, Option<String>) {
        let (open, clients) = self.limits.connections.load();
        let connections = is_almost_full(open, clients).then(|| {
            format!(
                "{open} of {clients} are open, and further clients are refused when all are; see docs/alerts.md, \
                 CompanionAlmostFull"
            )
        });
        let (wanted, workers) = (self.settings.connections_per_address, self.settings.workers);
        // One address never has more than half of them.
        let files = (clients / 2 < wanted).then(|| {
            format!(
                "the limit of {} leaves {clients} for connections of clients; raise it to {} or more (ulimit -n, LimitNOFILE=), \
                 or lower CONNECTIONS_PER_ADDRESS",
                descriptors::limit(),
                descriptors::limit_for(wanted.saturating_mul(2), workers)
            )
        });
        (files, connections)
    }
}

/// True from nine in ten connections of clients on, as in the alert rule.
fn is_almost_full(open: usize, limit: usize) -> bool {
    open.saturating_mul(10) > limit.saturating_mul(9)
}

fn of_push(push: &PushCounts) -> Vec<PartWarning> {
    let down = push_is_down(push).then(|| {
        let message = "most sessions do not reach the push service: pairings and pushed alarms wait there";
        ("pushSessions", message.to_owned())
    });
    let unreadable = count_in(push, "unreadable");
    let unreadable = (unreadable > 0).then(|| {
        let message = format!(
            "{unreadable} cannot be read, and their users get no pushed alarms; see docs/alerts.md, \
             CompanionCredentialsUnreadable"
        );
        ("pushCredentials", message)
    });
    down.into_iter().chain(unreadable).collect()
}

/// Reads files. Blocks.
fn of_machine(images: &ImageStore, data_dir: &Path, now: Timestamp) -> Vec<PartWarning> {
    let backup = match last_backup::read(data_dir, now) {
        Ok(noted) => noted
            .map(|at| now - at)
            .filter(|age| *age > last_backup::LONGEST_AGE)
            .map(|age| format!("the last is {} h old; see docs/alerts.md, CompanionBackupOld", age.num_hours())),
        Err(error) => Some(format!("when the last one was is not known: {error}")),
    };
    let backup = backup.map(|message| ("backup", message));
    let images = images.fault().map(|fault| ("images", format!("no image can be uploaded: the directory {fault}")));
    let memory = memory_limit::limit().zip(process_metrics::resident_bytes());
    let memory = memory.filter(|(limit, used)| used.saturating_mul(100) > limit.saturating_mul(MOST_MEMORY_PERCENT));
    let memory = memory.map(|(limit, used)| {
        let message = format!(
            "{} of the {} MiB that its control group may have are in use, and with more the kernel ends the service: raise \
             the limit (MemoryMax=, mem_limit)",
            used >> 20,
            limit >> 20
        );
        ("memory", message)
    });
    backup.into_iter().chain(images).chain(memory).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::push::session_status::PushState;

    #[test]
    fn the_last_tenth_of_the_connections_is_a_warning() {
        assert!(is_almost_full(91, 100) && is_almost_full(1, 0));
        assert!(!is_almost_full(90, 100) && !is_almost_full(0, 0));
    }

    #[test]
    fn a_credential_that_cannot_be_read_is_a_warning_beside_sessions_that_are_down() {
        let counts = |unreachable, unreadable| {
            let count = |state| match state {
                PushState::Unreachable => unreachable,
                PushState::Unreadable => unreadable,
                _ => 0,
            };
            PushState::WORDS.map(|(state, word)| (word, count(state)))
        };
        let parts = |counts| of_push(&counts).into_iter().map(|(part, _)| part).collect::<Vec<_>>();
        assert_eq!(parts(counts(0, 0)), [""; 0]);
        assert_eq!(parts(counts(2, 1)), ["pushSessions", "pushCredentials"]);
        assert!(of_push(&counts(0, 3))[0].1.starts_with("3 cannot be read"), "{:?}", of_push(&counts(0, 3)));
    }
}
