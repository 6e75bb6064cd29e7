//! The service's own state for everyone: no user, no server, nothing that shows who is watched.

use std::collections::BTreeMap;

use actix_web::{
    HttpRequest, HttpResponse,
    http::header::{self, HeaderValue},
    web,
};
use chrono::{DurationRound as _, TimeDelta};
use maud::html;
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    api::{
        answer::{
            error::ApiError,
            page::{self, answer, whole},
        },
        caches::service_health::{ServiceHealth, links_are_down, push_is_down},
        context::ApiContext,
        operation::version::{COMMIT, VERSION},
    },
    domain::time::Timestamp,
    ownership::NodeFigures,
};

/// Seconds after which a browser asks again.
const RENEWED_AFTER: u16 = 15;

/// State of the service and of each part that it needs.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceState {
    state: OverallState,
    version: &'static str,
    /// Commit of the source it was built from, or `unknown`.
    commit: &'static str,
    started_at: Timestamp,
    /// Seconds since start.
    uptime: u64,
    /// The database takes what is written, and answers signed-in requests.
    database: bool,
    /// `false`: the database is damaged, or its log was removed. The operator has to restore a backup, or to restart.
    database_intact: bool,
    /// The data directory has room, and takes files.
    disk: bool,
    /// The database takes alarms, and none has waited for it for more than a minute.
    alarms_stored: bool,
    /// The database answers channels, by which alarms are sent.
    alarms_sent: bool,
    /// Users can sign in: the identity provider answers, and the clock of the service is not minutes away from its own.
    sign_in: bool,
    /// Number of links to game servers in each state; absent while they do not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    links: Option<BTreeMap<&'static str, usize>>,
    /// Number of push sessions in each state; absent while they do not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    push: Option<BTreeMap<&'static str, usize>>,
    /// With several nodes: how many live, and the game servers, push sessions and kinds of work for all that this one has; all 0
    /// while it has no lease. Absent where one process serves alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<BTreeMap<&'static str, usize>>,
    /// Open WebSockets.
    sockets: usize,
    /// Requests come over a reverse proxy that `TRUSTED_PROXIES` does not name: all of its clients share the limits of
    /// one address.
    unnamed_proxy: bool,
    /// Stored credentials that do not open with the service's keys.
    unreadable_secrets: usize,
    /// Rows of the database that cannot be read.
    unreadable_rows: usize,
    /// The hour in which an alarm was last delivered. Not the minute: raiders have no use for it then.
    last_alarm_delivered_at: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum OverallState {
    Ok,
    /// Something does not work; the other fields say what.
    Degraded,
    Stopping,
}

impl ServiceState {
    fn new(own: &ServiceHealth, started_at: Timestamp, uptime: u64) -> Self {
        let (database, disk) = (own.written.serves(), own.written.has_room() && own.written.directory.is_ok());
        let alarms_stored = database && own.written.ledger.is_ok() && own.overdue_alarm.is_none();
        let alarms_sent = database && own.written.channels.is_ok();
        let links = own.links.as_ref().is_some_and(|links| !links_are_down(links));
        let push = own.push.as_ref().is_some_and(|push| !push_is_down(push));
        let works = database
            && own.intact
            && disk
            && alarms_stored
            && alarms_sent
            && links
            && push
            && own.node.is_none_or(|node| node.holds)
            && own.sign_in
            && own.unreadable_secrets == 0
            && own.unreadable_rows == 0;
        let state = match (own.stopping, works) {
            (true, _) => OverallState::Stopping,
            (false, true) => OverallState::Ok,
            (false, false) => OverallState::Degraded,
        };
        Self {
            state,
            version: VERSION,
            commit: COMMIT,
            started_at,
            uptime,
            database,
            database_intact: own.intact,
            disk,
            alarms_stored,
            alarms_sent,
            sign_in: own.sign_in,
            links: own.links.as_ref().map(|links| links.by_state.into_iter().collect()),
            push: own.push.map(|push| push.into_iter().collect()),
            node: own.node.map(|node| node_counts(&node)),
            sockets: own.sockets,
            unnamed_proxy: own.unnamed_proxy,
            unreadable_secrets: own.unreadable_secrets,
            unreadable_rows: own.unreadable_rows,
            last_alarm_delivered_at: own
                .last_alarm
                .and_then(|at| at.duration_trunc(TimeDelta::hours(1)).ok())
                .map(Timestamp::from),
        }
    }

    fn page(&self, now: Timestamp) -> String {
        let title = match self.state {
            OverallState::Ok => "Everything works",
            OverallState::Degraded => "Something does not work",
            OverallState::Stopping => "The service is stopping",
        };
        let Self { version, commit, .. } = self;
        let content = html! {
            h1 { (title) }
            table {
                @for (part, state) in self.parts(now) { tr { th { (part) } td { (state) } } }
            }
            p.quiet {
                "Version " (version) ", commit " (commit) ", up for " (duration(self.uptime)) ". This page renews itself."
            }
        };
        whole(&format!("companion: {title}"), &content)
    }

    /// Each part, and its state in words.
    fn parts(&self, now: Timestamp) -> Vec<(&'static str, String)> {
        let database = match (self.database, self.database_intact) {
            (false, _) => "takes nothing that is written, or does not answer",
            (true, false) => "has a damage; the operator is repairing this",
            (true, true) => "takes and keeps what is written",
        };
        let disk = if self.disk { "has room" } else { "is almost full, or takes no files" };
        let alarms = match (self.alarms_stored, self.alarms_sent) {
            (false, _) => "are kept in a file until the database takes them",
            (true, false) => "are stored, and wait for the database to be sent by channels",
            (true, true) => "are stored",
        };
        let sockets = match self.sockets {
            0 => "none is connected".to_owned(),
            1 => "1 is connected".to_owned(),
            sockets => format!("{sockets} are connected"),
        };
        let unreadable = |count: usize, none: &str| match count {
            0 => none.to_owned(),
            count => format!("{count} cannot be read; the operator is repairing this"),
        };
        let alarm = match self.last_alarm_delivered_at.map(|at| (now - at).num_hours()) {
            None => "none yet".to_owned(),
            Some(..1) => "within the last hour".to_owned(),
            Some(hours @ 1..48) => format!("within the last {} hours", hours + 1),
            Some(hours) => format!("within the last {} days", hours / 24 + 1),
        };
        let proxy = if self.unnamed_proxy { "not named in TRUSTED_PROXIES" } else { "nothing unusual" };
        let sign_in = if self.sign_in {
            "works"
        } else {
            "fails: the identity provider does not answer, or the clock of the service is wrong"
        };
        let parts = [
            ("Database", database.to_owned()),
            ("Disk", disk.to_owned()),
            ("Alarms", alarms.to_owned()),
            ("Stored credentials", unreadable(self.unreadable_secrets, "all open")),
            ("Stored rows", unreadable(self.unreadable_rows, "all can be read")),
            ("Sign-in", sign_in.to_owned()),
            ("Links to game servers", counted(self.links.as_ref())),
            ("Push sessions", counted(self.push.as_ref())),
            ("Dashboards and overlays", sockets),
            ("Reverse proxy", proxy.to_owned()),
            ("Last alarm delivered", alarm),
        ];
        parts.into_iter().chain(self.node.as_ref().map(|counts| ("Node", node_in_words(counts)))).collect()
    }
}

fn node_counts(node: &NodeFigures) -> BTreeMap<&'static str, usize> {
    let NodeFigures { holds, live, links, push_sessions, sweeps, .. } = *node;
    let counts = [("live", live), ("gameServers", links), ("pushSessions", push_sessions), ("sweeps", sweeps)];
    counts.into_iter().map(|(name, count)| (name, if holds { count } else { 0 })).collect()
}

fn node_in_words(counts: &BTreeMap<&'static str, usize>) -> String {
    let count = |of: &str| counts.get(of).copied().unwrap_or_default();
    match count("live") {
        0 => "has no lease, and so no links and push sessions; if no node has one, no one is watched".to_owned(),
        live => {
            let (servers, sessions) = (count("gameServers"), count("pushSessions"));
            format!("one of {live} nodes, which has {servers} game servers and {sessions} push sessions")
        }
    }
}

/// The states that there are, in words.
fn counted(states: Option<&BTreeMap<&'static str, usize>>) -> String {
    let Some(states) = states else { return "no answer".to_owned() };
    let there = states.iter().filter(|(_, count)| **count > 0);
    let words: Vec<String> = there.map(|(state, count)| format!("{count} {}", state.replace('_', " "))).collect();
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}

fn duration(seconds: u64) -> String {
    match seconds {
        ..120 => format!("{seconds} seconds"),
        120..7_200 => format!("{} minutes", seconds / 60),
        7_200..172_800 => format!("{} hours", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// State of the service, as of a few seconds ago: for browsers a page in plain words, otherwise JSON.
#[utoipa::path(get, path = "/status", tag = "health", responses(
    (status = 200, content(
        (ServiceState = "application/json"),
        (String = "text/html"),
    )),
))]
pub async fn status(request: HttpRequest, context: web::Data<ApiContext>) -> Result<HttpResponse, ApiError> {
    let own = context.service_health().await?;
    let state = ServiceState::new(&own, context.health.started_at, context.health.started.elapsed().as_secs());
    let wants_page = request.headers().get_all(header::ACCEPT).any(|accept| page::is_wanted(Some(accept)));
    let mut response = match wants_page {
        true => answer(state.page(context.clock.now())),
        false => HttpResponse::Ok().json(state),
    };
    let headers = response.headers_mut();
    headers.insert(header::VARY, HeaderValue::from_static("accept"));
    if wants_page {
        headers.insert(header::REFRESH, RENEWED_AFTER.into());
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::api::caches::service_health::WriteState;

    fn own(database: Result<(), String>, last_alarm: Option<&str>) -> ServiceHealth {
        ServiceHealth {
            stopping: false,
            written: Arc::new(WriteState { database, ..WriteState::WELL }),
            intact: true,
            links: None,
            push: Some([
                ("connecting", 0),
                ("connected", 3),
                ("unreachable", 0),
                ("refresh_needed", 1),
                ("unreadable", 0),
            ]),
            overdue_alarm: None,
            sign_in: true,
            sockets: 1,
            unnamed_proxy: false,
            unreadable_secrets: 0,
            unreadable_rows: 0,
            last_alarm: last_alarm.map(|at| at.parse().unwrap()),
            node: None,
        }
    }

    #[test]
    fn a_node_says_what_it_has() {
        let now: Timestamp = "2026-11-21T12:00:00Z".parse().unwrap();
        let mut own = own(Ok(()), None);
        let state = |own: &ServiceHealth| ServiceState::new(own, now, 1);
        assert!(serde_json::to_value(state(&own)).unwrap().get("node").is_none());
        let (links, untaken_for) = (7, Default::default());
        let node = NodeFigures { holds: true, live: 3, links, push_sessions: 4, sweeps: 2, untaken_for };
        own.node = Some(node);
        let shown = serde_json::to_value(state(&own)).unwrap();
        let counts = serde_json::json!({ "live": 3, "gameServers": 7, "pushSessions": 4, "sweeps": 2 });
        assert_eq!(shown["node"], counts);
        assert!(state(&own).page(now).contains("one of 3 nodes, which has 7 game servers and 4 push sessions"));
        own.node = Some(NodeFigures { holds: false, ..node });
        let page = state(&own).page(now);
        assert!(page.contains("has no lease") && page.contains("if no node has one, no one is watched"), "{page}");
    }

    #[test]
    fn the_page_says_it_in_words() {
        let now: Timestamp = "2026-11-21T12:00:00Z".parse().unwrap();
        let page = |own: &ServiceHealth| ServiceState::new(own, now, 7_300).page(now);
        let healthy = page(&own(Ok(()), Some("2026-11-21T11:59:30Z")));
        for words in
            ["3 connected, 1 refresh needed", "no answer", "1 is connected", "within the last 2 hours", "2 hours"]
        {
            assert!(healthy.contains(words), "{words}: {healthy}");
        }
        let broken = page(&own(Err("the disk's own words".into()), None));
        assert!(broken.contains("takes nothing that is written") && broken.contains("none yet"), "{broken}");
        assert!(!broken.contains("own words"), "{broken}");
        let mut alone = own(Ok(()), None);
        alone.sign_in = false;
        assert!(page(&alone).contains("the identity provider does not answer"), "{}", page(&alone));
        let mut damaged = own(Ok(()), None);
        let written = WriteState { ledger: Err("damaged".into()), ..WriteState::WELL };
        damaged.written = Arc::new(written);
        let state = serde_json::to_value(ServiceState::new(&damaged, now, 1)).unwrap();
        assert_eq!((&state["database"], &state["alarmsStored"]), (&true.into(), &false.into()));
        damaged.written = Arc::new(WriteState { channels: Err("locked".into()), ..WriteState::WELL });
        let state = serde_json::to_value(ServiceState::new(&damaged, now, 1)).unwrap();
        let stored_and_sent = (&state["alarmsStored"], &state["alarmsSent"]);
        assert_eq!((stored_and_sent, &state["state"]), ((&true.into(), &false.into()), &"degraded".into()));
        assert!(page(&damaged).contains("wait for the database to be sent by channels"), "{}", page(&damaged));
    }

    #[test]
    fn the_hour_of_an_alarm_is_shown_and_not_its_minute() {
        let now: Timestamp = "2026-11-21T12:00:00Z".parse().unwrap();
        let state = ServiceState::new(&own(Ok(()), Some("2026-11-21T03:17:45Z")), now, 1);
        assert_eq!(state.state, OverallState::Degraded, "the links do not answer");
        let written = serde_json::to_value(state).unwrap();
        assert_eq!(written["lastAlarmDeliveredAt"], "2026-11-21T03:00:00.000Z");
        assert!(written.get("links").is_none());
    }
}
