//! Retention: what is stored, how long it is kept, and the task that removes what has expired. A test prints the list
//! into docs/privacy.md.

use std::time::Duration;

use actix_web::web;
use chrono::TimeDelta;

use crate::{
    api::context::ApiContext,
    db::{
        PURGE_BATCH,
        alarms::{alarm_ledger, incidents, spoken_alarms},
        alias_answers, bot_links, chat_lines, daily_counts,
        engine::{error::DbError, pool::Db, query_failures::log_failure},
        failed_pushes, guests, idempotency_keys, map_notes, maps,
        money::{payment_events, refund_attempts},
        node_news,
        notices::{channels, notice_queue},
        openid_nonces, pairing_codes, player_sessions, player_stats_spending, push_registrations, push_seen,
        server_matches, sessions, shop_history, shops, timeline,
    },
    domain::{
        bot::chat_link,
        game_login,
        limits::{
            CHAT_LINES_PER_SERVER, DEAD_LETTERS_PER_USER, IDEMPOTENCY_HOURS, INVITE_DAYS, PROVIDER_CLOCK_SKEW,
            PUSH_SEEN_DAYS, PUSH_SEEN_PER_USER, STORE_VERSIONS, UNUSED_IMAGE_HOURS, WIKI_VERSIONS,
        },
        pairing, raid,
        retention::{
            AVATAR, EXPIRED_INVITE, GONE_BROWSER, HISTORY, IDLE_SESSION, PAYMENT_EVENT, SESSION, SPENDING, UNPAIRED_MAP,
        },
        time::Timestamp,
    },
    net::refusals,
};

/// Interval at which expired rows are removed.
const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// A nonce may come back as long as its time passes the check: twice the skew, from one end to the other.
const NONCE: Duration = PROVIDER_CLOCK_SKEW.saturating_mul(3);
/// A node removes its own news after minutes. A process that has ended, or serves alone since, left some: they name users.
const NODE_NEWS: TimeDelta = TimeDelta::hours(1);

const _: () = assert!(STORE_VERSIONS == WIKI_VERSIONS, "the list has one rule for both");

/// Deletes a batch of what has expired, and gives how many rows that were.
type Purge = fn(&mut Db, Timestamp) -> Result<usize, DbError>;

/// The time for which something is kept.
pub struct RetentionRule {
    /// The data, in English.
    pub stored: &'static str,
    /// The time, in English.
    pub kept: fn() -> String,
    /// Removes what has expired; empty if it goes with something else.
    purges: &'static [Purge],
}

/// All rules: those of a time first, then those of an event.
pub static RULES: &[RetentionRule] = &[
    rule(
        "sessions",
        || format!("{} after sign-in, {} after the last use", days(SESSION), days(IDLE_SESSION)),
        &[sessions::purge],
    ),
    rule("pairing codes, codes that link chat accounts", code_minutes, &[pairing_codes::purge, bot_links::purge]),
    rule(
        "invitations by link",
        || format!("{INVITE_DAYS} days, and {} as expired", days(EXPIRED_INVITE)),
        &[|db, now| guests::purge(db, now - EXPIRED_INVITE)],
    ),
    rule(
        "ids of received pushes",
        || format!("{PUSH_SEEN_DAYS} days, the newest {PUSH_SEEN_PER_USER} of a user"),
        &[push_seen::purge],
    ),
    rule(
        "pushes that could not be handled",
        || format!("{}, the newest {DEAD_LETTERS_PER_USER} of a user", days(HISTORY)),
        &[failed_pushes::purge],
    ),
    rule(
        "alarms, incidents, their messages by channels, timeline, sessions of tracked players",
        || days(HISTORY),
        &[
            |db, now| timeline::purge(db, now - HISTORY),
            |db, now| alarm_ledger::purge(db, now - HISTORY),
            |db, now| incidents::expire(db, now - raid::SHOWN_FOR),
            |db, now| incidents::purge(db, now - HISTORY),
            |db, now| notice_queue::purge(db, now - HISTORY),
            |db, now| spoken_alarms::purge(db, now - HISTORY),
            |db, now| player_sessions::purge(db, now - HISTORY),
        ],
    ),
    rule(
        "channels of browsers whose subscription has ended",
        || days(GONE_BROWSER),
        &[|db, now| channels::purge_gone_browsers(db, now - GONE_BROWSER)],
    ),
    rule(
        "team chat",
        || format!("{}, the newest {CHAT_LINES_PER_SERVER} lines of a server", days(HISTORY)),
        &[|db, now| chat_lines::purge(db, now - HISTORY)],
    ),
    rule(
        "shops that are gone, prices of shops",
        || days(HISTORY),
        &[|db, now| shops::purge(db, now - HISTORY), |db, now| shop_history::purge(db, now - HISTORY)],
    ),
    rule(
        "names at the player-statistics service",
        || days(HISTORY),
        &[|db, now| server_matches::purge(db, now - HISTORY), |db, now| alias_answers::purge(db, now - HISTORY)],
    ),
    rule(
        "number of questions to that service, of a user and day",
        || days(SPENDING),
        &[|db, now| player_stats_spending::purge(db, now - SPENDING)],
    ),
    rule("pictures of players, in memory only", || days(AVATAR), &[]),
    rule(
        "maps of game servers that are no longer paired",
        || days(UNPAIRED_MAP),
        &[|db, now| maps::purge(db, now - UNPAIRED_MAP)],
    ),
    rule(
        "events of the payment provider",
        || days(PAYMENT_EVENT),
        &[|db, now| payment_events::purge(db, now - PAYMENT_EVENT)],
    ),
    rule(
        "answers to requests with an `Idempotency-Key`, attempts at refunds",
        || format!("{IDEMPOTENCY_HOURS} hours"),
        &[
            |db, now| idempotency_keys::purge(db, now - TimeDelta::hours(IDEMPOTENCY_HOURS)),
            |db, now| refund_attempts::purge(db, now - TimeDelta::hours(IDEMPOTENCY_HOURS)),
        ],
    ),
    rule(
        "numbers of the identity provider's answers, each of which counts once",
        || format!("{} minutes", NONCE.as_secs() / 60),
        &[|db, now| openid_nonces::purge(db, now - NONCE)],
    ),
    rule(
        "news of nodes for one another: sessions and accounts that ended, servers that changed",
        || format!("{} hour", NODE_NEWS.num_hours()),
        &[|db, now| node_news::purge_left_behind(db, now - NODE_NEWS)],
    ),
    rule("versions of stores and wiki pages", || format!("the newest {STORE_VERSIONS}"), &[]),
    rule("uploaded images that nothing uses", || format!("{UNUSED_IMAGE_HOURS} hours"), &[]),
    rule(
        "registrations for pushes whose login did not come back",
        || format!("{} hour", game_login::LOGIN_WITHIN.num_hours()),
        &[push_registrations::purge],
    ),
    rule(
        "days on which a user was active",
        || format!("until they are counted, a day later; the counts {} days", daily_counts::KEPT_DAYS),
        &[daily_counts::roll_up],
    ),
    rule(
        "token of an account at the game, sealed",
        || "until its registration is made; with renewal, until the credential is deleted".into(),
        &[],
    ),
    rule(
        "the identity at Google of a device that is registered for a user, sealed",
        || "until the user is erased".into(),
        &[],
    ),
    rule("map notes", || "until they expire, or the wipe".into(), &[map_notes::purge]),
    rule("timers of the team's chat", || "until they end, or the wipe".into(), &[]),
    rule("switches that turn back", || "until they have".into(), &[]),
    rule("settings of the team's chat, groups of devices", || "with the paired server".into(), &[]),
    rule(
        "accounts, servers, devices, watches, credentials and the devices registered for them, channels and rules for them, API tokens, subscriptions",
        || "until they are deleted".into(),
        &[],
    ),
    rule("customers of the payment provider whose users are gone", || "until nothing runs for them there".into(), &[]),
    rule(
        "keyed hashes of the accounts that had a subscription and erased themselves; a new `SESSION_SECRET` makes them worthless",
        || "for good".into(),
        &[],
    ),
    rule(
        "the audit log: accounts, and the names, addresses and notes that admins changed, of erased users too",
        || "for good".into(),
        &[],
    ),
];

const fn rule(stored: &'static str, kept: fn() -> String, purges: &'static [Purge]) -> RetentionRule {
    RetentionRule { stored, kept, purges }
}

fn days(span: TimeDelta) -> String {
    match span.num_days() {
        1 => "1 day".to_owned(),
        days => format!("{days} days"),
    }
}

/// The time of both kinds of codes.
fn code_minutes() -> String {
    let (codes, links) = (pairing::LIFETIME.num_minutes(), chat_link::LIFETIME.num_minutes());
    if codes == links { format!("{codes} minutes") } else { format!("{codes} and {links} minutes") }
}

/// Removes what has expired, as long as it runs.
pub async fn sweep(context: web::Data<ApiContext>) {
    let mut ticks = tokio::time::interval(SWEEP_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let now = context.clock.now();
        refusals::log_connections();
        context.limits.refusals.log_left_out();
        context.limits.rate_limits.forget_idle(context.clock.moment());
        context.caches.images.sweep(&context.pool, now).await;
        context.caches.activity.store(&context.pool, &context.clock).await;
        for &purge in RULES.iter().flat_map(|rule| rule.purges) {
            // A transaction for each batch: other writers get a turn in between.
            loop {
                match context.pool.write(move |db| purge(db, now)).await {
                    Ok(PURGE_BATCH..) => {}
                    Ok(_) => break,
                    Err(error) => {
                        log_failure("expired rows were not removed", &error);
                        break;
                    }
                }
            }
        }
        if let Err(error) = context.pool.empty_log().await {
            log_failure("the log of the database still has what was removed", &error);
        }
    }
}
