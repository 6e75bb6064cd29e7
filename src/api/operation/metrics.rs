//! Metrics for operators, in the text format of Prometheus.
//!
//! Most are read on request; frequent events are counted where they happen, without a lock. No label names a user, a
//! server or anything else of which there may be any number.

use std::{
    io,
    sync::{Arc, OnceLock},
    time::Duration,
};

use actix_web::{
    HttpRequest, HttpResponse,
    guard::GuardContext,
    http::header::{self, HeaderMap},
    web,
};
use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::timeout;

use crate::{
    api::{
        account::sign_in,
        answer::error::{ApiError, Problem},
        caches::service_health::WriteState,
        context::{ACTOR_DEADLINE, ApiContext},
        middleware::route_class,
        operation::{
            health::warnings::UNMEASURED,
            process_metrics,
            version::{COMMIT, VERSION},
        },
        rate_limits,
    },
    channels::figures,
    config::Environment,
    crypto::digest::sha256_hex,
    db::{
        alarms::{
            alarm_ledger::{self, Tally},
            incidents,
        },
        engine::{
            error::DbError,
            pool::{Db, PoolLoad},
        },
        files::{journal, last_backup},
        notices::waiting_notices::{self, WaitingNotices},
    },
    domain::{
        money::payment::{EventResult, ReportKind},
        problem,
        time::Timestamp,
    },
    game::paced_link,
    net::{neighbour, refusals, unread_forwarding},
    ownership::{NodeFigures, Ownership},
    panics,
    push::failure::FAULTS,
    relay::hub::{LinkCounts, SendTotals},
    vault,
};

/// Interval at which samples of histograms are put into their buckets, so that they do not pile up without requests.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// Seconds. An alarm that takes longer than the last bucket waits for a socket that does not read.
const RAID_LATENCY: [f64; 11] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];
const HTTP_SECONDS: [f64; 6] = [0.005, 0.025, 0.1, 0.5, 2.0, 10.0];
const DATABASE_WAIT: [f64; 9] = [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 2.5];

/// Codes of refusals that are counted before there is one; those of limits are so by their class.
const NOTABLE: [&str; 10] = [
    problem::INVALID_SIGNATURE.code,
    problem::INVALID_INTERACTION_SIGNATURE.code,
    problem::SIGN_IN_REJECTED.code,
    problem::INVALID_PAIRING_CODE.code,
    problem::CONFIRMATION_NEEDED.code,
    problem::UNKNOWN_INVITE.code,
    problem::UNKNOWN_CHAT_CODE.code,
    problem::UNAUTHENTICATED.code,
    problem::INVALID_RELAY_TOKEN.code,
    problem::TOO_MANY_CONNECTIONS.code,
];

/// The process's recorder; the first call installs it.
pub fn recorder() -> Option<&'static PrometheusHandle> {
    static RECORDER: OnceLock<Option<PrometheusHandle>> = OnceLock::new();
    RECORDER.get_or_init(install).as_ref()
}

fn install() -> Option<PrometheusHandle> {
    let histograms =
        [("companion_raid_latency_seconds", &RAID_LATENCY[..]), ("companion_database_wait_seconds", &DATABASE_WAIT)];
    let by_label = [(route_class::SECONDS, &HTTP_SECONDS[..]), (figures::SECONDS, &figures::SECONDS_BUCKETS)];
    let histograms = histograms.into_iter().chain(by_label);
    let mut builder = PrometheusBuilder::new();
    for (name, buckets) in histograms.clone() {
        builder = builder.set_buckets_for_metric(Matcher::Full(name.to_owned()), buckets).ok()?;
    }
    let recorder = builder.install_recorder().ok()?;
    describe();
    panics::describe();
    route_class::describe();
    sign_in::describe();
    unread_forwarding::describe();
    neighbour::describe();
    figures::describe();
    paced_link::describe();
    let connections = [problem::UNAVAILABLE.code, problem::TOO_MANY_CONNECTIONS.code];
    refusals::describe(
        &NOTABLE,
        &connections,
        problem::RATE_LIMITED.code,
        rate_limits::classes().map(|class| class.name),
    );
    // An event that has not happened yet is 0, not absent: a rate needs the 0 before the first one.
    let of_one = histograms.filter(|(name, _)| by_label.iter().all(|(labelled, _)| labelled != name));
    of_one.for_each(|(name, _)| drop(metrics::histogram!(name)));
    counter!("companion_alarms_kept_nowhere_total").absolute(0);
    for reason in FAULTS {
        counter!("companion_push_dead_letters_total", "reason" => reason).absolute(0);
    }
    gauge!("companion_payment_events_parked").set(0.0);
    for outcome in EventResult::WORDS {
        counter!("companion_payment_events_total", "outcome" => outcome).absolute(0);
    }
    for kind in ReportKind::ALL {
        counter!("companion_payment_reports_total", "kind" => kind.word()).absolute(0);
    }
    gauge!("companion_payment_customers_to_end").set(0.0);
    gauge!("companion_sealed_secrets_waiting").set(0.0);
    gauge!("companion_rows_unreadable").set(0.0);
    gauge!("companion_clock_behind_seconds").set(0.0);
    gauge!("companion_identity_provider_up").set(1.0);
    gauge!("companion_serving").set(1.0);
    gauge!("companion_build_info", "version" => VERSION, "commit" => COMMIT).set(1.0);
    Some(recorder)
}

#[rustfmt::skip]
fn describe() {
    describe_gauge!("companion_build_info", "What runs, in its labels; always 1.");
    describe_gauge!("companion_serving", "1; 0 at a process that waits for another one to end, which has no other metrics.");
    describe_gauge!("companion_ready", "1 while /ready says yes.");
    describe_gauge!("companion_warning", "1 while /ready warns of the part; parts that have a metric of their own are not here.");
    describe_gauge!("companion_relay_connections", "Open WebSockets.");
    describe_gauge!("companion_client_connections", "Connections of clients to both listeners.");
    describe_gauge!("companion_client_connections_limit", "How many of them there may be; further ones are refused.");
    describe_gauge!("companion_relay_subscriptions", "Watched servers, once for each WebSocket.");
    describe_counter!("companion_relay_frames_total", "Data frames sent to WebSockets, by kind.");
    describe_counter!("companion_relay_bytes_total", "Bytes that the kernel took for WebSockets.");
    describe_counter!("companion_relay_merged_patches_total", "Patches that were several in one, because their client was slower.");
    describe_gauge!("companion_relay_messages_waiting", "Messages that wait for a WebSocket, by lane.");
    describe_gauge!("companion_snapshot_age_seconds", "Time since the game servers of connected links last said something.");
    describe_histogram!("companion_raid_latency_seconds", "From an alarm that was heard to a WebSocket that took it.");
    describe_gauge!("companion_links", "Links to game servers, by state.");
    describe_gauge!("companion_push_sessions", "Push sessions, by state.");
    describe_gauge!("companion_link_slots", "Connections that game servers count, and links that wait for one.");
    describe_gauge!("companion_links_shared", "Paired servers that read over the link of a mate and let their own rest.");
    describe_gauge!("companion_request_budget_ratio", "The part of the request budgets of game servers that is left.");
    describe_gauge!("companion_alarms", "Alarms in the ledger, by state.");
    describe_gauge!("companion_alarms_oldest_unfinished_seconds", "Age of the oldest alarm that is in no incident yet, or waits in the journal for the database; 0 if there is none.");
    describe_gauge!("companion_alarms_refused_bytes", "Size of alarms.refused, where alarms are that no database took.");
    describe_counter!("companion_alarms_kept_nowhere_total", "Alarms that neither the database nor the journal took in time.");
    describe_gauge!("companion_incidents", "Incidents in the ledger, by state.");
    describe_gauge!("companion_channel_messages_waiting", "Messages of channels that are queued or tried again.");
    describe_gauge!("companion_channel_messages_oldest_seconds", "Age of the oldest of them; 0 if there is none.");
    describe_gauge!("companion_channel_overdue_seconds", "For how long a step of a user's rules, or the first attempt of a message, has waited to be made, or the worker for the database; 0 if none is due.");
    describe_gauge!("companion_incidents_oldest_unheard_seconds", "Age of the oldest incident that no one heard of; 0 if there is none.");
    describe_gauge!("companion_database_up", "1 while the database takes what is written, and alarms, which channels read, and answers signed-in requests.");
    describe_gauge!("companion_database_intact", "1; 0 while the database is damaged, or its log was removed.");
    describe_gauge!("companion_database_connections", "Connections to the database: open ones, and those that run a query.");
    describe_gauge!("companion_database_queries_waiting", "Queries that wait for a connection.");
    describe_histogram!("companion_database_wait_seconds", "How long queries waited for a connection.");
    describe_gauge!("companion_last_backup_timestamp_seconds", "When `companion store-backup` last noted a backup, in seconds since 1970; 0: never, or the note has no such time.");
    describe_gauge!("companion_disk_free_bytes", "Free bytes where the data directory is.");
    describe_gauge!("companion_sealed_secrets_older", "Stored secrets that an older key sealed; 0 when a rotation is done.");
    describe_gauge!("companion_sealed_secrets_waiting", "Stored secrets that cannot be opened with the keys that are set.");
    describe_gauge!("companion_rows_unreadable", "Rows of the database that cannot be read, as of the last look.");
    describe_gauge!("companion_clock_behind_seconds", "How far the machine's clock is behind the identity provider's, below 0 ahead of it, as of the last minute; 0 while it is not known.");
    describe_gauge!("companion_identity_provider_up", "1 while the identity provider answers, as of the last minute: users can sign in.");
    describe_gauge!("companion_node_without_lease", "1 while this process is to be one of several nodes and has no lease: it has no links then.");
    describe_gauge!("companion_nodes", "Nodes that live, as far as this one sees; 1 for a process that serves alone.");
    describe_gauge!("companion_node_parts", "Game servers, push sessions and kinds of work for all that this node has; 0 for a process that serves alone.");
    describe_gauge!("companion_parts_untaken_seconds", "For how long the oldest of the parts that no live node has has waited for one; 0 if each has its node, and without a lease.");
    describe_counter!("companion_node_messages_lost_total", "Messages of nodes to one another that were lost, because too many waited.");
    describe_counter!("companion_node_messages_unreadable_total", "Messages of other nodes that could not be read, as those of a newer program.");
    describe_counter!("companion_push_ignored_total", "Pushes that are not for this service, by reason.");
    describe_counter!("companion_push_dead_letters_total", "Pushes that could not be handled and were set aside, by reason.");
    describe_counter!("companion_payment_events_total", "Events of the payment provider, by outcome.");
    describe_gauge!("companion_payment_customers_to_end", "Customers of erased users, for which something may still run at the payment provider.");
    describe_counter!("companion_payment_reports_total", "Charges at which an admin has to look, by kind.");
    describe_gauge!("companion_payment_events_parked", "Payment events that wait because something about them is unknown.");
    describe_counter!("companion_player_stats_requests_total", "Requests to the player-statistics service, by whether the budget paid for them.");
    describe_gauge!("process_start_time_seconds", "When the service started, in seconds since 1970.");
    describe_counter!("process_cpu_seconds_total", "Time of the processors that was used.");
    describe_gauge!("process_resident_memory_bytes", "Memory in use.");
    describe_gauge!("process_open_fds", "Open files.");
    describe_gauge!("process_max_fds", "The limit of open files.");
}

/// Sorts samples into buckets, without end.
pub async fn upkeep() {
    let mut ticks = tokio::time::interval(UPKEEP_EVERY);
    loop {
        ticks.tick().await;
        if let Some(recorder) = recorder() {
            recorder.run_upkeep();
        }
    }
}

/// True if there are metrics for a request. With a token, for every one, which then has to bring it. Without, in development,
/// for one straight from this machine, not through a proxy that says it is one; in production for none, as a proxy may say
/// nothing. For `Resource::guard`.
pub fn is_offered(request: &GuardContext<'_>) -> bool {
    let Some(context) = request.app_data::<web::Data<ApiContext>>() else { return false };
    let by_token = context.settings.metrics_token.is_some();
    if !by_token && context.settings.environment == Environment::Production {
        return false;
    }
    let peer = request.head().peer_addr;
    by_token
        || peer.is_some_and(|peer| peer.ip().to_canonical().is_loopback()) && !is_forwarded(request.head().headers())
}

fn is_forwarded(headers: &HeaderMap) -> bool {
    let mut names = headers.keys().map(|name| name.as_str());
    names.any(|name| matches!(name, "forwarded" | "via" | "x-real-ip") || name.starts_with("x-forwarded-"))
}

/// True if the request brings this token. Digests are compared, so that the time reveals nothing of it.
fn brings(headers: &HeaderMap, token: &SecretString) -> bool {
    let brought = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    brought.is_some_and(|brought| sha256_hex(brought.as_bytes()) == sha256_hex(token.expose_secret().as_bytes()))
}

/// Figures of the ledger and of the sealed secrets.
struct StoredFigures {
    tally: Tally,
    incidents: Vec<(&'static str, i64)>,
    oldest_unheard: Option<Timestamp>,
    waiting_messages: WaitingNotices,
    older_secrets: i64,
}

impl StoredFigures {
    fn read(db: &mut Db, key_version: i32) -> Result<Self, DbError> {
        Ok(Self {
            tally: alarm_ledger::tally(db)?,
            incidents: incidents::tally(db)?,
            oldest_unheard: incidents::oldest_unheard(db)?,
            waiting_messages: waiting_notices::read(db)?,
            older_secrets: vault::count_older(db, key_version)?,
        })
    }
}

/// Metrics of the service. With `METRICS_TOKEN` from everywhere, and then only with `Authorization: Bearer`; without, in
/// development and from this machine only, otherwise there is no such route.
#[utoipa::path(get, path = "/metrics", tag = "health", responses(
    (status = 200, content_type = "text/plain"),
    (status = 404, description = "`not_found`: no token is set"),
    (status = 401, body = Problem, content_type = "application/problem+json", description = "`unauthenticated`"),
))]
pub async fn metrics(request: HttpRequest, context: web::Data<ApiContext>) -> Result<HttpResponse, ApiError> {
    if let Some(token) = &context.settings.metrics_token
        && !brings(request.headers(), token)
    {
        return Err(ApiError::Unauthenticated);
    }
    let recorder = recorder().ok_or(ApiError::NotFound)?;
    let key_version = context.keys.vault.key_version();
    let read = move |db: &mut Db| StoredFigures::read(db, key_version);
    let (started_at, data_dir, now) =
        (context.health.started_at, context.settings.data_dir.clone(), context.clock.now());
    // A part that does not answer keeps its last values, and nothing else waits for it.
    let (missing, warnings, written, links, push, stored, files, _) = tokio::join!(
        context.not_ready(),
        context.warnings(),
        context.written(),
        context.link_counts(),
        context.push_counts(),
        timeout(ACTOR_DEADLINE, context.pool.read(read)),
        web::block(move || (last_backup::read(&data_dir, now), journal::refused_bytes(&data_dir))),
        web::block(move || process_metrics::report(started_at)),
    );
    gauge!("companion_ready").set(f64::from(missing.is_empty()));
    for part in UNMEASURED {
        gauge!("companion_warning", "part" => part).set(f64::from(warnings.iter().any(|warning| warning.path == part)));
    }
    if let Ok((backed_up, refused)) = files {
        report_files(backed_up, refused);
    }
    report_sent(&context.health.relay_health.sent.totals());
    report_node(context.health.ownership.as_ref().map(Ownership::figures));
    gauge!("companion_relay_connections").set(context.sockets() as f64);
    let (open, limit) = context.limits.connections.load();
    gauge!("companion_client_connections").set(open as f64);
    gauge!("companion_client_connections_limit").set(limit as f64);
    if let Ok(links) = links {
        report_links(&links);
    }
    if let Ok(push) = push {
        report_states("companion_push_sessions", &push);
    }
    report_database(&context, written.ok());
    let waited = context.health.journal.oldest_wait().unwrap_or_default().as_secs_f64();
    // While the database fails, nothing says what is due.
    let failing = context.services.channels.failing_for().num_milliseconds() as f64 / 1_000.0;
    match stored {
        Ok(Ok(stored)) => report_stored(stored, waited, failing, context.clock.now()),
        _ => {
            gauge!("companion_alarms_oldest_unfinished_seconds").set(waited);
            if failing > 0.0 {
                gauge!("companion_channel_overdue_seconds").set(failing);
            }
        }
    }
    Ok(HttpResponse::Ok().content_type("text/plain; version=0.0.4").body(recorder.render()))
}

fn report_files(backed_up: io::Result<Option<Timestamp>>, refused: io::Result<u64>) {
    let backed_up = match backed_up {
        // As if there were none.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(None),
        backed_up => backed_up,
    };
    if let Ok(backed_up) = backed_up {
        let seconds = backed_up.map_or(0.0, |at| at.timestamp() as f64);
        gauge!("companion_last_backup_timestamp_seconds").set(seconds);
    }
    if let Ok(refused) = refused {
        gauge!("companion_alarms_refused_bytes").set(refused as f64);
    }
}

fn report_links(links: &LinkCounts) {
    report_states("companion_links", &links.by_state);
    gauge!("companion_snapshot_age_seconds", "of" => "oldest").set(links.oldest_state);
    gauge!("companion_snapshot_age_seconds", "of" => "mean").set(links.mean_state);
    gauge!("companion_request_budget_ratio", "of" => "least").set(links.least_budget);
    gauge!("companion_request_budget_ratio", "of" => "mean").set(links.mean_budget);
    gauge!("companion_links_shared").set(links.shared as f64);
    report_states("companion_link_slots", &[("open", links.slots.open), ("waiting", links.slots.waiting)]);
}

/// `written`: what it takes; none if that is not known now.
fn report_database(context: &ApiContext, written: Option<Arc<WriteState>>) {
    let PoolLoad { open, busy, waiting } = context.pool.load();
    report_states("companion_database_connections", &[("open", open), ("busy", busy)]);
    gauge!("companion_database_queries_waiting").set(waiting as f64);
    if let Some(written) = written {
        gauge!("companion_database_up").set(f64::from(written.serves() && written.takes_alarms()));
        gauge!("companion_database_intact").set(f64::from(context.is_intact(&written)));
        if let Some(free) = written.free {
            gauge!("companion_disk_free_bytes").set(free as f64);
        }
    }
}

/// A process that serves alone has them, too: alert rules read them.
fn report_node(figures: Option<NodeFigures>) {
    let is_without = figures.is_some_and(|figures| !figures.holds);
    gauge!("companion_node_without_lease").set(f64::from(is_without));
    gauge!("companion_nodes").set(figures.map_or(1.0, |figures| figures.live as f64));
    let count = |of: fn(NodeFigures) -> usize| figures.map_or(0, of);
    for (kind, count) in [
        ("gameServers", count(|figures| figures.links)),
        ("pushSessions", count(|figures| figures.push_sessions)),
        ("sweeps", count(|figures| figures.sweeps)),
    ] {
        gauge!("companion_node_parts", "kind" => kind).set(count as f64);
    }
    let untaken_for = figures.map_or(0.0, |figures| figures.untaken_for.as_secs_f64());
    gauge!("companion_parts_untaken_seconds").set(untaken_for);
}

fn report_sent(totals: &SendTotals) {
    for (kind, frames) in totals.frames {
        counter!("companion_relay_frames_total", "kind" => kind).absolute(frames);
    }
    for (lane, waiting) in totals.waiting {
        gauge!("companion_relay_messages_waiting", "lane" => lane).set(waiting as f64);
    }
    counter!("companion_relay_bytes_total").absolute(totals.bytes);
    counter!("companion_relay_merged_patches_total").absolute(totals.merged_patches);
    gauge!("companion_relay_subscriptions").set(totals.subscriptions as f64);
}

fn report_stored(stored: StoredFigures, waited: f64, failing: f64, now: Timestamp) {
    let StoredFigures { tally, incidents, oldest_unheard, waiting_messages, older_secrets } = stored;
    for (state, count) in tally.counts {
        gauge!("companion_alarms", "state" => state).set(count as f64);
    }
    for (state, count) in incidents {
        gauge!("companion_incidents", "state" => state).set(count as f64);
    }
    let age = |since: Option<Timestamp>| since.map_or(0.0, |since| (now - since).num_milliseconds() as f64 / 1_000.0);
    gauge!("companion_alarms_oldest_unfinished_seconds").set(age(tally.oldest_unfinished).max(waited));
    gauge!("companion_incidents_oldest_unheard_seconds").set(age(oldest_unheard));
    gauge!("companion_channel_messages_waiting").set(waiting_messages.messages as f64);
    gauge!("companion_channel_messages_oldest_seconds").set(age(waiting_messages.oldest));
    gauge!("companion_channel_overdue_seconds").set(age(waiting_messages.due_since).max(failing));
    gauge!("companion_sealed_secrets_older").set(older_secrets as f64);
}

fn report_states(name: &'static str, states: &[(&'static str, usize)]) {
    for &(state, count) in states {
        gauge!(name, "state" => state).set(count as f64);
    }
}
