//! The machine: the data directory, its disk, open files and ports.

use std::{
    fs, io,
    net::{SocketAddr, TcpListener},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    time::Duration,
};

use rustix::fs::statvfs;
use serde_json::Value;

use super::{observation::Observation, open_files};
use crate::{
    api::operation::process_metrics,
    clients::{
        http::{self, read_capped},
        relay_health::RelayHealthClient,
    },
    clock::Clock,
    config::{Config, ImageStorage, LOCK_FILE, is_data_dir_taken, is_writable, write_remedy},
    db::files::{
        journal::{self, JOURNAL, REFUSED},
        last_backup, last_run,
    },
    domain::problem,
    net::{descriptors, memory_limit, tls_config},
    uploads::ImageStore,
};

/// Room on the disk of the data directory, bytes: with less, alarms will soon not be kept; with less, look now.
const TOO_LITTLE: u64 = 64 << 20;
const LITTLE: u64 = 1 << 30;
/// Limits of a service's answer about its state: its time, and its bytes.
const STATUS_DEADLINE: Duration = Duration::from_secs(5);
const MOST_STATUS: usize = 64 * 1024;

pub(super) fn examine(config: &Config) -> Vec<Observation> {
    let mut findings = of_data_dir(&config.data_dir);
    findings.push(limit_of_open_files(config));
    findings.extend(memory(memory_limit::limit()));
    findings.extend(in_use(&config.data_dir));
    if let ImageStorage::Directory(directory) = &config.images {
        findings.extend(images(directory));
    }
    findings
}

pub(super) fn of_data_dir(path: &Path) -> Vec<Observation> {
    [data_dir(path), disk(path)].into_iter().chain(last_run(path)).chain(kept_alarms(path)).collect()
}

/// An end of the last process that was no stop, while none runs.
fn last_run(path: &Path) -> Option<Observation> {
    let end = last_run::unclean_end(path).ok().flatten().filter(|_| !is_data_dir_taken(path))?;
    let text = format!(
        "the last process ended without being stopped (a kill, a crash or a power cut), and was {end}; its log and \
         the kernel's (`journalctl -k`) say more"
    );
    Some(Observation::doubtful("last run", text))
}

/// The limit of memory, if there is one.
fn memory(limit: Option<u64>) -> Option<Observation> {
    const SUBJECT: &str = "memory";
    let mib = limit? >> 20;
    Some(match limit? < memory_limit::LEAST {
        true => Observation::doubtful(
            SUBJECT,
            format!(
                "the control group of this command may have {mib} MiB, and with more the kernel ends it; if it is the \
                 service's, give it 512 MiB (MemoryMax=, mem_limit): docs/operations.md, Cores, memory, disk"
            ),
        ),
        false => Observation::fine(SUBJECT, format!("the control group of this command may have {mib} MiB")),
    })
}

/// Memory and cores of the process that serves from this directory, if this user may look at it.
fn in_use(data_dir: &Path) -> Option<Observation> {
    let server = Some(data_dir.join(LOCK_FILE)).filter(|_| is_data_dir_taken(data_dir));
    let used = process_metrics::used_by(open_files::holder(&server?)?)?;
    let cores = used.cores.map(|cores| format!(", and has used {cores:.2} cores on average")).unwrap_or_default();
    let [now, most] = [used.resident, used.most_resident].map(|bytes| bytes >> 20);
    Some(Observation::fine("in use", format!("the service has {now} MiB of memory, {most} MiB at most so far{cores}")))
}

/// The directory of images, if it takes none.
fn images(directory: &Path) -> Option<Observation> {
    let fault = ImageStore::fault_of(directory)?;
    Some(Observation::broken("images", format!("no image can be uploaded: the directory {fault}")))
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
            "{REFUSED} has {refused} bytes of alarms that the database did not take; see docs/alerts.md, \
             CompanionAlarmsRefused"
        );
        Observation::broken(SUBJECT, text)
    });
    waiting.into_iter().chain(refused).collect()
}

/// The age of the last backup; none where there was none, and none is expected.
pub(super) fn backup(path: &Path, is_expected: bool, clock: &Clock) -> Option<Observation> {
    const SUBJECT: &str = "backup";
    let now = clock.now();
    let age = match last_backup::read(path, now) {
        Ok(noted) => noted.map(|at| now - at),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            return Some(Observation::doubtful(SUBJECT, format!("when the last one was is not known: {error}")));
        }
        Err(error) => {
            return Some(Observation::broken(SUBJECT, format!("when the last one was cannot be read: {error}")));
        }
    };
    Some(match age {
        Some(age) if age <= last_backup::LONGEST_AGE => {
            Observation::fine(SUBJECT, format!("the last is {} h old", age.num_hours()))
        }
        Some(age) => Observation::doubtful(
            SUBJECT,
            format!("the last is {} h old; see companion-backup.service, or the container `backup`", age.num_hours()),
        ),
        None if !is_expected => return None,
        None => Observation::doubtful(SUBJECT, "none was noted yet; see docs/operations.md, Backups"),
    })
}

fn data_dir(path: &Path) -> Observation {
    const SUBJECT: &str = "data dir";
    let shown = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let shown = shown.display();
    let mode = match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => metadata.permissions().mode(),
        Ok(_) => return Observation::broken(SUBJECT, format!("{shown} is no directory; set DATA_DIR")),
        Err(error) if error.kind() == io::ErrorKind::NotFound && is_removed(path) => {
            return Observation::broken(
                SUBJECT,
                format!(
                    "{shown} was removed while a companion serves from it; see docs/alerts.md, A data directory that was \
                     removed"
                ),
            );
        }
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
    if let Err(fault) = is_writable(path) {
        return Observation::broken(SUBJECT, format!("it {fault}"));
    }
    if let Err(error) = tempfile::tempfile_in(path) {
        return Observation::broken(SUBJECT, format!("{shown} cannot be written: {error}{}", write_remedy(&error)));
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

/// True if a process has the lock of this directory open, which is not there.
pub(super) fn is_removed(path: &Path) -> bool {
    let lock = path.join(LOCK_FILE);
    open_files::holder_of_removed(&std::path::absolute(&lock).unwrap_or(lock)).is_some()
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

fn limit_of_open_files(config: &Config) -> Observation {
    let (workers, wanted) = (config.listen.workers.get(), config.listen.connections_per_address.get());
    let limit = descriptors::raise_limit();
    let clients = descriptors::for_clients(limit, workers);
    if clients / 2 < wanted {
        let needed = descriptors::limit_for(wanted.saturating_mul(2), workers);
        return Observation::doubtful(
            "open files",
            format!(
                "the limit of this command is {limit}, which leaves {clients} for clients; raise it to {needed} or more \
                 (ulimit -n; LimitNOFILE= of a systemd unit; nofile of a container)"
            ),
        );
    }
    Observation::fine(
        "open files",
        format!(
            "the limit of this command is {limit}, which leaves {clients} for clients; that of the service is in its log and in companion_client_connections_limit"
        ),
    )
}

/// Each is free, or a companion answers on it.
pub(super) async fn ports(config: &Config) -> Vec<Observation> {
    const SUBJECT: &str = "port";
    let client = tls_config(None).and_then(http::client);
    let is_served = is_data_dir_taken(&config.data_dir) || is_removed(&config.data_dir);
    let mut findings = Vec::new();
    for (variable, address) in [("API_LISTEN", config.listen.api), ("RELAY_LISTEN", config.listen.relay)] {
        let bound = TcpListener::bind(address).map(drop);
        let finding = match (bound, &client) {
            (Ok(()), _) if is_served => Observation::doubtful(
                SUBJECT,
                format!(
                    "{address} is free ({variable}), and a companion serves from this DATA_DIR: it listens elsewhere; run \
                     doctor with its settings"
                ),
            ),
            (Ok(()), _) => Observation::fine(SUBJECT, format!("{address} is free ({variable})")),
            (Err(error), Ok(client)) if error.kind() == io::ErrorKind::AddrInUse => {
                match RelayHealthClient::new(client.clone(), address).check().await {
                    Ok(()) => {
                        let status = answer(client, address, "status").await.unwrap_or_default();
                        let waits = waits_for(&status);
                        if variable == "API_LISTEN" {
                            findings.extend(shown_by(&status, address));
                            let ready = answer(client, address, "ready").await.unwrap_or_default();
                            findings.extend(said_by(&ready, address));
                        }
                        let answers = format!("a companion answers on {address} ({variable})");
                        // One that waits has not taken it yet.
                        match waits.is_some() || is_served {
                            true => Observation::fine(SUBJECT, answers),
                            false => Observation::doubtful(
                                SUBJECT,
                                format!(
                                    "{answers}, and it does not serve from this DATA_DIR: what is said here is not of it; \
                                     run doctor with its settings"
                                ),
                            ),
                        }
                    }
                    Err(reason) if is_served => Observation::broken(
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
        };
        findings.push(finding);
    }
    findings
}

/// The service's own words about its state at this path, or the problem in their place; only the API says so.
async fn answer(client: &reqwest::Client, address: SocketAddr, path: &str) -> Option<Value> {
    let answer = client.get(format!("http://{address}/{path}")).timeout(STATUS_DEADLINE).send().await.ok()?;
    serde_json::from_slice(&read_capped(answer, MOST_STATUS).await.ok()?).ok()
}

/// The words of a service that waits instead of serving.
fn waits_for(status: &Value) -> Option<&str> {
    (status["code"] == problem::UNAVAILABLE.code).then(|| status["errors"][0]["message"].as_str()).flatten()
}

/// Faults that the service at this address names in the answer of its probe.
fn said_by(ready: &Value, address: SocketAddr) -> Vec<Observation> {
    let lines = |list: &Value, made: fn(&'static str, String) -> Observation| {
        let faults = list.as_array().into_iter().flatten();
        let faults = faults.filter_map(|fault| Some((fault["path"].as_str()?, fault["message"].as_str()?)));
        faults
            // One that waits has a line of its own.
            .filter(|(path, _)| *path != "service")
            .map(|(path, message)| made("service", format!("the companion on {address} says of {path}: {message}")))
            .collect::<Vec<_>>()
    };
    [lines(&ready["errors"], Observation::broken), lines(&ready["warnings"], Observation::doubtful)].concat()
}

/// Words of the service at this address about itself that its operator should know.
fn shown_by(status: &Value, address: SocketAddr) -> Vec<Observation> {
    let mut findings = Vec::new();
    if let Some(reason) = waits_for(status) {
        findings
            .push(Observation::doubtful("standby", format!("the companion on {address} does not serve: it {reason}")));
    }
    if status["unnamedProxy"] == true {
        let text = format!(
            "requests to {address} bring X-Forwarded-For from an address that TRUSTED_PROXIES does not name: it may be a \
             reverse proxy, all of whose clients then share the limits of one address; the log says which it is, name it \
             there if it is yours"
        );
        findings.push(Observation::doubtful("port", text));
    }
    for (subject, states, remedy) in [
        ("game links", &status["links"], "see the network, DNS and GAME_PROXY_URL if they are most"),
        ("push sessions", &status["push"], "see `push`"),
    ] {
        let Some(states) = states.as_object() else { continue };
        let all: u64 = states.values().filter_map(Value::as_u64).sum();
        let count = |state| states.get(state).and_then(Value::as_u64).unwrap_or_default();
        let unreachable = count("unreachable");
        if unreachable > 0 {
            findings.push(Observation::doubtful(subject, format!("{unreachable} of {all} are unreachable; {remedy}")));
        }
        // As in the alert rules: one in five at once is no coincidence.
        for (state, text) in [
            ("rejected", "are not taken by their game servers: see docs/alerts.md, CompanionPairingsRejected"),
            ("refresh_needed", "are refused by the push service: see docs/alerts.md, CompanionCredentialsRefused"),
            ("waiting", "wait for their turn at their game servers: see docs/alerts.md, CompanionLinksWait"),
        ] {
            let affected = count(state);
            if affected > all / 5 {
                findings.push(Observation::doubtful(subject, format!("{affected} of {all} {text}")));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_service_says_of_itself_is_passed_on() {
        let said = |status: Value| -> Vec<String> {
            shown_by(&status, ([127, 0, 0, 1], 80).into()).iter().map(ToString::to_string).collect()
        };
        let well = json!({ "state": "ok", "unnamedProxy": false, "links": { "connected": 2, "unreachable": 0 } });
        assert_eq!(said(well), [""; 0]);
        let links = json!({ "links": { "connected": 2, "unreachable": 3 }, "push": { "unreachable": 1 } });
        let said_of_links = said(links);
        assert!(said_of_links[0].starts_with("warn  game links    3 of 5 are unreachable"), "{said_of_links:?}");
        assert!(said_of_links[1].starts_with("warn  push sessions") && said_of_links.len() == 2, "{said_of_links:?}");
        let refused = said(json!({ "links": { "connected": 8, "rejected": 2 }, "push": { "refresh_needed": 1 } }));
        assert!(refused.len() == 1 && refused[0].contains("1 of 1 are refused by the push service"), "{refused:?}");
        let rejected = said(json!({ "links": { "connected": 7, "rejected": 3 } }));
        assert!(rejected[0].contains("3 of 10 are not taken"), "{rejected:?}");
        let waiting = said(json!({ "links": { "connected": 5, "waiting": 2 } }));
        assert!(waiting.len() == 1 && waiting[0].contains("2 of 7 wait for their turn"), "{waiting:?}");
        assert_eq!(said(json!({ "links": { "connected": 8, "waiting": 2 } })), [""; 0]);
        let waits = "waits for process 7 on vm, which serves since 2026-11-25T16:58:53.177Z";
        let standby = said(json!({ "code": "unavailable", "errors": [{ "path": "service", "message": waits }] }));
        assert!(standby[0].ends_with(&format!("does not serve: it {waits}")), "{standby:?}");
        let ready = json!({ "ok": true, "warnings": [{ "path": "signIn", "message": "it is away" }] });
        let warned: Vec<String> =
            said_by(&ready, ([127, 0, 0, 1], 80).into()).iter().map(ToString::to_string).collect();
        assert_eq!(warned, ["warn  service       the companion on 127.0.0.1:80 says of signIn: it is away"]);
        let not_ready =
            json!({ "errors": [{ "path": "service", "message": waits }, { "path": "disk", "message": "full" }] });
        assert_eq!(said_by(&not_ready, ([127, 0, 0, 1], 80).into()).len(), 1);
        let proxy = said(json!({ "unnamedProxy": true }));
        assert!(proxy[0].contains("it may be a reverse proxy"), "{proxy:?}");
    }
}
