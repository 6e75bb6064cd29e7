//! Waits of admins with 100 000 members and 1 000 000 entries in the audit log: searching members, the overview
//! (its totals, which are kept for seconds, and a page of it), analytics, and the audit log by each filter. On SQLite,
//! and with `TEST_POSTGRES_URL`, a role that may create databases, on PostgreSQL.

#![allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::time::Instant;

use chrono::{TimeDelta, Utc};
use companion::{
    config::Database,
    crypto::random::Random,
    db::{
        PURGE_BATCH,
        audit::{self, AuditPage, AuditPayload, NewAuditEntry},
        daily_counts,
        engine::pool::{Db, Pool},
        guests::{self, InviteKey, Invitee},
        members,
        money::{
            beta_testers,
            subscriptions::{self, OwnedSubscription},
        },
        paired_servers::{self, StoredPairing},
        push_credentials::{self, SealedBundle},
        timeline,
        usage::Usage,
        users::{self, StoredProfile},
    },
    domain::{
        audit::{AdminAction, AuditResult},
        ids::{PlatformId, UserId},
        money::{
            billing_interval::BillingInterval,
            tier::{BetaEntry, SubscriptionStatus, Tier, TierSubscription},
        },
        player_name::NameKey,
        time::Timestamp,
        timeline::{TimelineEntry, TimelineOwner},
    },
};
use serde_json::json;

mod databases;

const MEMBERS: i64 = 100_000;
const ENTRIES: i64 = 1_000_000;
/// Events of the last week.
const EVENTS: i64 = 200_000;
/// Rows in a transaction. PostgreSQL keeps each version of the log's head until its end, and passes all of them.
const BATCH: i64 = 1_000;
const QUERIES: usize = 300;
const NAMES: [&str; 10] = ["Ada", "Vex", "Nox", "Marlow", "Juniper", "[Wolf] Eve", "Löwe", "Zed", "Kit", "Omar"];
const ACTIONS: [AdminAction; 4] =
    [AdminAction::PutBetaTester, AdminAction::DeleteBetaTester, AdminAction::Refund, AdminAction::SignUserOut];

fn account(number: i64) -> PlatformId {
    PlatformId::from((76_561_198_000_000_000 + number).to_string())
}

fn id(number: i64) -> UserId {
    UserId::from(format!("{number:036}"))
}

/// Does this for every number, this many in a transaction.
fn in_batches(pool: &Pool, all: i64, each: impl Fn(&mut Db, i64) + Sync) {
    for begin in (0..all).step_by(BATCH as usize) {
        let written = pool.write_blocking(|db| {
            (begin..all.min(begin + BATCH)).for_each(|number| each(db, number));
            Ok(())
        });
        written.expect("the rows are stored");
    }
}

/// Out of ten members: six subscribe, one tests, seven have a credential, five a server, one is a guest.
fn member(db: &mut Db, number: i64, now: Timestamp) {
    let name = format!("{} {number}", NAMES[(number % 10) as usize]);
    let profile = StoredProfile { display_name: name, avatar_url: None };
    let seen = now - TimeDelta::minutes(number % 86_400);
    let user = users::sign_in(db, &id(number), &account(number), Some(&profile), seen).expect("a user").id;
    if number % 10 < 6 {
        let subscription = TierSubscription {
            id: format!("sub_{number}"),
            tier: Some(Tier::ALL[(number % 3) as usize]),
            interval: Some(BillingInterval::Month),
            status: if number % 60 == 0 { SubscriptionStatus::PastDue } else { SubscriptionStatus::Active },
            price: Some("price_1".to_owned()),
            period_start: Some(now),
            period_end: Some(now + TimeDelta::days(30)),
            cancel_at_period_end: false,
            lapsed: false,
            started_at: now,
            past_due_since: None,
            paid_tier: Some(Tier::Operator),
        };
        let owned = OwnedSubscription { user: user.clone(), customer: format!("cus_{number}"), subscription };
        subscriptions::put(db, &owned, None, now).expect("a subscription");
    }
    if number % 10 == 9 {
        let entry = BetaEntry { tier: Tier::Scout, expires_at: None };
        beta_testers::put(db, &account(number), &entry, None, now).expect("a tester");
    }
    if number % 10 < 7 {
        let (sealed, uploaded_by) = (vec![0; 600], None);
        let bundle = SealedBundle {
            sealed,
            key_version: 1,
            uploaded_at: now,
            uploaded_by,
            expires_at: now + TimeDelta::days(9),
        };
        push_credentials::upload(db, &user, &bundle).expect("a credential");
    }
    if number % 10 < 5 {
        let pairing = StoredPairing {
            owner: user.clone(),
            game_server_id: None,
            name: "Bench".into(),
            address: "192.0.2.1".into(),
            port: 28_082,
            player_id: account(number).to_string(),
            player_token_sealed: b"sealed".to_vec(),
            key_version: 1,
        };
        paired_servers::put(db, &format!("server-{number}").into(), &pairing, now).expect("a server");
    }
    if number % 10 == 8 {
        let (host, guest) = (format!("server-{}", number - 8), Invitee::Account(account(number)));
        let id = format!("guest-{number}").into();
        let invited = guests::invite(db, &id, &host.into(), &guest, None, now);
        invited.expect("the database answers").expect("an invitation");
        let user = users::find(db, &user).expect("the database answers").expect("it was made");
        let accepted = guests::accept(db, &InviteKey::Account(id), &user, now);
        accepted.expect("the database answers").expect("a guest");
    }
}

fn fill(pool: &Pool, now: Timestamp) {
    in_batches(pool, MEMBERS, |db, number| member(db, number, now));
    in_batches(pool, EVENTS, |db, number| {
        let entry = TimelineEntry {
            id: format!("{number:032}"),
            kind: ["cargo", "heli", "crate", "death", "login"][(number % 5) as usize].to_owned(),
            action: "entered".to_owned(),
            ts: now - TimeDelta::seconds(3 * number),
            grid: "K12".to_owned(),
            x: None,
            y: None,
            title: "The cargo ship has entered the map".to_owned(),
            data: Default::default(),
        };
        timeline::insert(db, &TimelineOwner::User(id(number % 100)), &entry).expect("an event");
    });
    in_batches(pool, ENTRIES, |db, number| {
        let (actor, target) = (account(number % 5), account(number % 50_000).to_string());
        let payload = AuditPayload::of_change(json!(null), json!({ "tier": "SCOUT", "note": number }));
        let (action, result) = (ACTIONS[(number % 4) as usize], AuditResult::Done);
        let entry = NewAuditEntry { actor: &actor, action, target: &target, payload: &payload, result };
        let head = audit::lock(db).expect("the end of the chain");
        audit::append(db, head, &entry, now - TimeDelta::seconds(ENTRIES - number)).expect("an entry");
    });
    while pool.write_blocking(|db| daily_counts::roll_up(db, now)).expect("the days are counted") == PURGE_BATCH {}
}

fn measure(engine: &str, database: &Database) {
    let (pool, now, begun) =
        (Pool::open(database).expect("the database opens"), Timestamp::from(Utc::now()), Instant::now());
    fill(&pool, now);
    databases::vacuum(database);
    println!("{engine}: {MEMBERS} members, {ENTRIES} audit entries, {EVENTS} events in {:.1?}", begun.elapsed());
    let random = Random::seeded(7);
    let any = |below: i64| (0..4).fold(0, |number, _| number << 8 | i64::from(random.byte())) % below;
    let key = |text: &str| NameKey::of(text);
    let page = || AuditPage { limit: 200, ..Default::default() };
    type Ask<'a> = Box<dyn Fn(&mut Db) + 'a>;
    let search = |db: &mut Db, text: &str, offset| {
        drop(users::search(db, key(text).as_ref(), None, 50, offset).expect("members"))
    };
    let log = |db: &mut Db, page: AuditPage| drop(audit::list(db, &page).expect("the log"));
    let all: Vec<(&str, Ask<'_>)> = vec![
        ("users, all", Box::new(|db| search(db, "", any(MEMBERS)))),
        ("users, an account", Box::new(|db| search(db, account(any(MEMBERS)).as_str(), 0))),
        ("users, a name", Box::new(|db| search(db, &format!("vex {}", any(1_000)), 0))),
        ("users, a tenth", Box::new(|db| search(db, "marlow", any(MEMBERS / 20)))),
        ("overview, totals", Box::new(|db| drop(members::totals(db, now).expect("totals")))),
        (
            "overview, 200",
            Box::new(|db| {
                let (_, users) = users::search(db, None, None, 200, 0).expect("members");
                members::statuses(db, users, now).expect("their status");
            }),
        ),
        ("analytics", Box::new(|db| drop(Usage::read(db, now).expect("analytics")))),
        ("audit, all", Box::new(|db| log(db, page()))),
        (
            "audit, a target",
            Box::new(|db| log(db, AuditPage { target: Some(account(any(50_000)).to_string()), ..page() })),
        ),
        ("audit, an action", Box::new(|db| log(db, AuditPage { action: Some("refund".to_owned()), ..page() }))),
        ("audit, an actor", Box::new(|db| log(db, AuditPage { actor: Some(account(any(5)).to_string()), ..page() }))),
        (
            "audit, before any",
            Box::new(|db| log(db, AuditPage { before: Some((now - TimeDelta::seconds(any(ENTRIES)), 0)), ..page() })),
        ),
        ("audit, since a day", Box::new(|db| log(db, AuditPage { since: Some(now - TimeDelta::days(1)), ..page() }))),
    ];
    for (name, ask) in all {
        databases::print_time(name, QUERIES, || {
            let asked = pool.read_blocking(|db| {
                ask(db);
                Ok(())
            });
            asked.expect("the database answers");
        });
    }
    let begun = Instant::now();
    let verified = pool.read_blocking(|db| audit::verify(db, |_, _| ()));
    verified.expect("the log is read").expect("the chain is whole");
    println!("{:>20}: {:.1?}", "audit verify", begun.elapsed());
}

fn main() {
    databases::on_each(measure);
}
