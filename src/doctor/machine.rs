//! The machine: the data directory, its disk, open files and ports.

use std::{
    fs, io,
    net::{SocketAddr, TcpListener},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    time::Duration,
};

use chrono::TimeDelta;
use rustix::fs::statvfs;
use serde_json::Value;

use super::observation::Observation;
use crate::{
    clients::{
        http::{self, read_capped},
        relay_health::RelayHealthClient,
    },
    clock::Clock,
    config::{Config, is_data_dir_taken},
    db::{
        journal::{self, JOURNAL, REFUSED},
        last_backup,
    },
    net::{descriptors, tls_config},
};

/// Room on the disk of the data directory, bytes: with less, alarms will soon not be kept; with less, look now.
const TOO_LITTLE: u64 = 64 << 20;
const LITTLE: u64 = 1 << 30;
/// A day and two hours, as in the alert rule.
const BACKUP_AGE: TimeDelta = TimeDelta::hours(26);
/// Limits of a service's answer about its state: its time, and its bytes.
const STATUS_DEADLINE: Duration = Duration::from_secs(5);
const MOST_STATUS: usize = 64 * 1024;

pub(super) fn examine(config: &Config) -> Vec<Observation> {
    let mut findings = of_data_dir(&config.data_dir);
    findings.push(open_files(config));
    findings
}

pub(super) fn of_data_dir(path: &Path) -> Vec<Observation> {
    [data_dir(path), disk(path)].into_iter().chain(kept_alarms(path)).collect()
}

/// Alarms that are in files of the data directory, and not in the database.
fn kept_alarms(path: &Path) -> Vec<Observation> {
    const SUBJECT: &str = "alarms";
    let waiting = journal::waiting(path).ok().flatten().unwrap_or_default();
    let waiting = (waiting > 0).then(|| {
        let text = format!(
            "{waiting} writes of alarms wait in {JOURNAL} for the database; a service that runs, or the next start, \
             stores them once the database takes them"
        );
        Observation::doubtful(SUBJECT, text)
    });
    let refused = journal::refused_bytes(path).unwrap_or_default();
    let refused = (refused > 0).then(|| {
        let text = format!(
            "{REFUSED} has {refused} bytes of alarms that the database did not take; see docs/operations.md, \
             CompanionAlarmsRefused"
        );
        Observation::broken(SUBJECT, text)
    });
    waiting.into_iter().chain(refused).collect()
}

/// The age of the last backup.
pub(super) fn backup(path: &Path, clock: &Clock) -> Observation {
    const SUBJECT: &str = "backup";
    let age = match last_backup::read(path) {
        Ok(noted) => noted.map(|at| clock.now() - at),
        Err(error) => return Observation::broken(SUBJECT, format!("when the last one was cannot be read: {error}")),
    };
    match age {
        Some(age) if age <= BACKUP_AGE => Observation::fine(SUBJECT, format!("the last is {} h old", age.num_hours())),
        Some(age) => Observation::doubtful(
            SUBJECT,
            format!("the last is {} h old; see companion-backup.service, or the container `backup`", age.num_hours()),
        ),
        None => Observation::doubtful(SUBJECT, "none was noted yet; see docs/operations.md, Backups"),
    }
}

fn data_dir(path: &Path) -> Observation {
    const SUBJECT: &str = "data dir";
    let shown = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let shown = shown.display();
    let mode = match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => metadata.permissions().mode(),
        Ok(_) => return Observation::broken(SUBJECT, format!("{shown} is no directory; set DATA_DIR")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Observation::doubtful(
                SUBJECT,
                format!(
                    "{shown} does not exist; the first `companion serve` makes it. If it has run before, set DATA_DIR"
                ),
            );
        }
        Err(error) => return Observation::broken(SUBJECT, format!("{shown}: {error}; the service's user must own it")),
    };
    if let Err(error) = tempfile::tempfile_in(path) {
        return Observation::broken(
            SUBJECT,
            format!("{shown} cannot be written: {error}; the service's user must own it"),
        );
    }
    if let Err(fault) = journal::check(path) {
        return Observation::broken(SUBJECT, format!("{shown} {fault}"));
    }
    if mode & 0o007 != 0 {
        return Observation::doubtful(
            SUBJECT,
            format!("{shown} is open to every user of this machine; chmod 700 {shown}"),
        );
    }
    let note = if is_data_dir_taken(path) { "a companion serves from it" } else { "no companion serves from it now" };
    Observation::fine(SUBJECT, format!("{shown}; {note}"))
}

/// Free space of the directory, or of the nearest one above that exists.
fn disk(path: &Path) -> Observation {
    const SUBJECT: &str = "disk";
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let room =
        path.ancestors().find_map(|path| statvfs(path).ok()).map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize));
    match room {
        None => Observation::doubtful(SUBJECT, "the room on it cannot be read"),
        Some(room @ ..TOO_LITTLE) => Observation::broken(
            SUBJECT,
            format!("{} MiB are free; make room, or what happens is not stored", room >> 20),
        ),
        Some(room @ ..LITTLE) => {
            Observation::doubtful(SUBJECT, format!("{} MiB are free; make room before it is full", room >> 20))
        }
        Some(room) => Observation::fine(SUBJECT, format!("{} GiB are free", room >> 30)),
    }
}

fn open_files(config: &Config) -> Observation {
    let (workers, wanted) = (config.listen.workers.get(), config.listen.connections_per_address.get());
    let limit = descriptors::raise_limit();
    let clients = descriptors::for_clients(limit, workers);
    if clients / 2 < wanted {
        let needed = descriptors::limit_for(wanted.saturating_mul(2), workers);
        return Observation::doubtful(
            "open files",
            format!(
                "the limit here is {limit}, which leaves {clients} for clients; raise it to {needed} or more \
                 (ulimit -n; LimitNOFILE= of a systemd unit; nofile of a container)"
            ),
        );
    }
    Observation::fine("open files", format!("the limit here is {limit}, which leaves {clients} for clients"))
}

/// Each is free, or a companion answers on it.
pub(super) async fn ports(config: &Config) -> Vec<Observation> {
    const SUBJECT: &str = "port";
    let client = tls_config(None).and_then(http::client);
    let mut findings = Vec::new();
    for (variable, address) in [("API_LISTEN", config.listen.api), ("RELAY_LISTEN", config.listen.relay)] {
        let bound = TcpListener::bind(address).map(drop);
        findings.push(match (bound, &client) {
            (Ok(()), _) => Observation::fine(SUBJECT, format!("{address} is free ({variable})")),
            (Err(error), Ok(client)) if error.kind() == io::ErrorKind::AddrInUse => {
                match RelayHealthClient::new(client.clone(), address).check().await {
                    Ok(()) if is_proxy_unnamed(client, address).await => Observation::doubtful(
                        SUBJECT,
                        format!(
                            "a companion answers on {address} ({variable}), and a reverse proxy before it is not in \
                             TRUSTED_PROXIES: all of its clients share the limits of one address; name it there, the log \
                             says which it is"
                        ),
                    ),
                    Ok(()) if !is_data_dir_taken(&config.data_dir) => Observation::doubtful(
                        SUBJECT,
                        format!(
                            "a companion answers on {address} ({variable}), and it does not serve from this DATA_DIR: what \
                             is said here is not of it; run doctor with its settings"
                        ),
                    ),
                    Ok(()) => Observation::fine(SUBJECT, format!("a companion answers on {address} ({variable})")),
                    Err(reason) if is_data_dir_taken(&config.data_dir) => Observation::broken(
                        SUBJECT,
                        format!(
                            "the companion that serves from this DATA_DIR does not answer on {address} ({variable}): \
                             {reason}; it is full or hangs, see its log and companion_client_connections"
                        ),
                    ),
                    Err(reason) => Observation::broken(
                        SUBJECT,
                        format!(
                            "another program has {address} ({reason}); stop it (`ss -ltnp` names it) or change {variable}"
                        ),
                    ),
                }
            }
            (Err(error), _) => Observation::broken(SUBJECT, format!("{address}: {error}; change {variable}")),
        });
    }
    findings
}

/// True if the service that answers there has noticed a proxy that is not named; only the API says so.
async fn is_proxy_unnamed(client: &reqwest::Client, address: SocketAddr) -> bool {
    let asked = client.get(format!("http://{address}/status")).timeout(STATUS_DEADLINE).send();
    let Ok(answer) = asked.await else { return false };
    let body = read_capped(answer, MOST_STATUS).await.unwrap_or_default();
    serde_json::from_slice::<Value>(&body).is_ok_and(|status| status["unnamedProxy"] == true)
}
