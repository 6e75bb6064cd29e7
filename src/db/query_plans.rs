//! No statement of the service reads a whole table, but for those that list all that it has to run.

mod channel_queries;
mod export_queries;
mod statement_plans;

use std::collections::BTreeSet;

use serde_json::Value;

use self::statement_plans::{plan, prepare_plans, statements};
use crate::{
    db::{
        PURGE_BATCH, access,
        alarms::{
            alarm_ledger,
            incidents::{self, HeardBy, LedgerWrite},
        },
        alias_answers,
        api_tokens::{self, ApiToken},
        audit::{self, AuditPage, AuditPayload, NewAuditEntry},
        bot_links, chat_lines,
        conveyor_rows::{self, ConveyorRow},
        daily_counts, day_speeds, device_groups, edited_items, encryption_keys,
        engine::{
            pool::{Db, Pool},
            write_check,
        },
        files::erasure_list,
        guests::{self, InviteKey, Invitee},
        held_parts, helper_devices,
        idempotency_keys::{self, KeyCaller, KeyedRequest},
        images::{self, UploadedImage},
        invite_refusals, map_notes, maps, markets, members,
        money::{
            beta_testers, customers_to_end, payment_customers,
            payment_events::{self, EventState, Payer},
            refund_attempts::{self, RefundAttempt},
            subscriptions::{self, OwnedSubscription},
            tiers,
        },
        node_news,
        notices::new_devices,
        openid_nonces, paired_servers, pairing_codes, pairing_requests, player_sessions, player_stats_spending,
        push_credentials, push_registrations, push_seen,
        row_checks::ROW_CHECKS,
        server_matches, server_places, sessions,
        shop_history::{self, HistoryPage},
        shop_watches, shops, smart_devices, stores, switch_backs, team_chat_settings, team_timers,
        testing::{self, later, now},
        timeline,
        tracked_players::{self, NewTrackedPlayer, TrackedPlayerChange},
        users, wiki_pages,
    },
    domain::{
        audit::{AdminAction, AuditResult},
        chat::{ChatLine, StoredLine},
        ids::{NodeId, PartId, UserId},
        image_name::{ImageName, UploadFormat},
        items::ItemEdit,
        money::{
            payment::{ChargeReport, ParkReason, ReportKind},
            tier::{SubscriptionStatus, TierSubscription},
        },
        pairing::PairingCode,
        player_name::NameKey,
        player_session::SessionStep,
        shop::VendorId,
        stores::StoreName,
        team_timer::TimerTeam,
        timeline::{Cursor, TimelineOwner, TimelinePage},
        token_scope::TokenScopes,
        wiki::{WikiPage, WikiSlug},
    },
};

/// Queries of the content that admins write for everybody to read.
fn content_queries(db: &mut Db) {
    let (faq, by) = (StoreName::Faq, "admin".into());
    stores::put(db, faq, "1", "digest", &by, now()).unwrap();
    stores::newest(db, faq).unwrap();
    stores::versions(db, faq).unwrap();
    stores::get(db, faq, 1).unwrap();
    let (slug, page) =
        (WikiSlug::parse("a/b").unwrap(), WikiPage { frontmatter: Default::default(), body: "a".into() });
    wiki_pages::put(db, &slug, &page, "digest", &by, now()).unwrap();
    wiki_pages::head(db, &slug).unwrap();
    wiki_pages::versions(db, &slug).unwrap();
    wiki_pages::get(db, &slug, 1).unwrap();
    wiki_pages::delete(db, &slug).unwrap();
    wiki_pages::forget(db, &slug).unwrap();
    let item =
        ItemEdit { id: 7, shortname: "a".into(), name: "A".into(), category: "".into(), stack_size: None, icon: None };
    edited_items::put(db, &item, now()).unwrap();
    edited_items::find(db, 7).unwrap();
    edited_items::version(db).unwrap();
    edited_items::delete(db, 7).unwrap();
    let row = ConveyorRow { shortname: "a".into(), item_id: 7, category: "".into(), updated_at: now() };
    conveyor_rows::insert(db, &row).unwrap();
    conveyor_rows::list(db, Some("a"), 9).unwrap();
    conveyor_rows::set_category(db, "a", "b", now()).unwrap();
    conveyor_rows::delete(db, "a").unwrap();
    let name = ImageName::new(&"a".repeat(64), UploadFormat::Png);
    images::insert(db, &UploadedImage { name: name.clone(), bytes: 1, width: 1, height: 1 }, now()).unwrap();
    assert!(images::use_by(db, &name, "item:7").unwrap());
    images::is_known(db, &name).unwrap();
    assert_eq!(images::release(db, "item:7", now()).unwrap().len(), 1);
    images::unused(db, now(), 9).unwrap();
    images::mark_for_deletion(db, &name).unwrap();
    images::forget(db, &name).unwrap();
}

/// Every query of the service that has a condition.
fn every_query(db: &mut Db) {
    content_queries(db);
    let (user, server, key): (UserId, _, _) = ("user".into(), "server".into(), "key");
    let code = PairingCode::new("LINK", [0, 0, 0, 1]);
    sessions::purge(db, now()).unwrap();
    pairing_codes::purge(db, now()).unwrap();
    push_seen::purge(db, now()).unwrap();
    timeline::purge(db, now()).unwrap();
    map_notes::list(db, &server, now()).unwrap();
    map_notes::count(db, &server).unwrap();
    map_notes::replace_game_notes(db, &server, &[]).unwrap();
    map_notes::purge(db, now()).unwrap();
    let line = ChatLine { author: key.into(), author_id: None, text: key.into(), ts: now() };
    chat_lines::insert(db, &server, &StoredLine { id: key.into(), line }).unwrap();
    // Here, so that some of them find rows to read.
    for check in ROW_CHECKS {
        (check.next)(db, Some("0")).unwrap();
    }
    chat_lines::list(db, &server, Some(now()), Some(&Cursor { ts: now(), id: key.into() }), 9).unwrap();
    chat_lines::purge(db, now()).unwrap();
    bot_links::issue(db, &key.into(), key, now()).unwrap();
    bot_links::take(db, key, now()).unwrap();
    bot_links::link(db, &user, &key.into(), now()).unwrap();
    bot_links::user_of(db, &key.into()).unwrap();
    bot_links::linked(db, std::slice::from_ref(&user)).unwrap();
    bot_links::unlink(db, &user).unwrap();
    bot_links::purge(db, now()).unwrap();
    maps::get(db, key, 1).unwrap();
    maps::put(db, key, 1, &testing::world_map(1, b"jpeg"), now()).unwrap();
    maps::put(db, key, 1, &testing::world_map(2, b"other"), now()).unwrap();
    maps::picture(db, key, 1, key, maps::AS_SENT).unwrap();
    maps::purge(db, now()).unwrap();
    map_notes::wipe(db, &server, now()).unwrap();
    let before = Some(Cursor { ts: now(), id: key.to_owned() });
    let all = TimelinePage { since: Some(now()), before, kinds: None, limit: 200 };
    timeline::list(db, &server, &all).unwrap();
    timeline::list(db, &server, &TimelinePage { kinds: Some(vec!["raid".to_owned()]), ..all }).unwrap();
    let kinds = Some(["cargo", "heli", "wipe"].map(str::to_owned).into());
    timeline::list(db, &server, &TimelinePage { since: None, before: None, kinds, limit: 50 }).unwrap();
    alarm_ledger::purge(db, now()).unwrap();
    openid_nonces::purge(db, now()).unwrap();
    let (node, gone) = (NodeId::from(key), BTreeSet::from([NodeId::from("gone")]));
    let parts = BTreeSet::from([PartId::from(key)]);
    held_parts::note(db, &parts, now()).unwrap();
    held_parts::untaken(db, &gone).unwrap();
    let taken = held_parts::take(db, &parts, &gone, &node, now()).unwrap();
    held_parts::check(db, &taken.iter().collect()).unwrap();
    held_parts::of_node(db, &node).unwrap();
    held_parts::holder(db, &PartId::from(key)).unwrap();
    held_parts::holders_of(db, &parts).unwrap();
    server_places::list(db, Some(now())).unwrap();
    alarm_ledger::all_waiting(db, Some((now(), key.into())), 9).unwrap();
    node_news::purge(db, key, now()).unwrap();
    node_news::purge_left_behind(db, now()).unwrap();
    access::role(db, &user, &server).unwrap();
    access::watchers(db, &server).unwrap();
    access::servers_of(db, &user).unwrap();
    let link = Invitee::Link { token_hash: key.into() };
    let account = Invitee::Account("new".into());
    for (id, invitee) in [("link", link), ("account", account)] {
        guests::invite(db, &id.into(), &server, &invitee, None, now()).unwrap().unwrap();
    }
    guests::preview(db, key, now()).unwrap().unwrap();
    let guest = users::sign_in(db, &"guest".into(), &"guest".into(), None, now()).unwrap();
    let by_link = InviteKey::Link { token_hash: key.into() };
    guests::accept(db, &by_link, &guest, now()).unwrap().unwrap();
    let new = users::sign_in(db, &"new".into(), &"new".into(), None, now()).unwrap();
    assert_eq!(guests::invitations(db, &new).unwrap().len(), 1);
    guests::refuse(db, &new, &server, now()).unwrap();
    invite_refusals::block(db, &new.id, &user, now()).unwrap().unwrap();
    invite_refusals::blocked(db, &new.id).unwrap();
    invite_refusals::unblock(db, &new.id, &user).unwrap();
    guests::accept(db, &InviteKey::Account("account".into()), &new, now()).unwrap().unwrap();
    sessions::list(db, &new.id, now()).unwrap();
    guests::list(db, &server, now()).unwrap();
    guests::shared_with(db, &guest.id).unwrap();
    guests::guest_ready(db, std::slice::from_ref(&guest.id)).unwrap();
    access::role(db, &guest.id, &server).unwrap();
    guests::leave(db, &guest.id, &server).unwrap();
    guests::remove(db, &server, &"account".into()).unwrap();
    guests::purge(db, now()).unwrap();
    incidents::open(db, std::slice::from_ref(&server)).unwrap();
    alarm_ledger::waiting(db, &server).unwrap();
    alarm_ledger::waits_for(db, key).unwrap();
    alarm_ledger::newest_finished(db, &server, 9).unwrap();
    alarm_ledger::assign(db, &server, key, alarm_ledger::AlarmState::Merged, key, now()).unwrap();
    alarm_ledger::wait_in(db, &[key], key).unwrap();
    alarm_ledger::incident_of(db, &[key]).unwrap();
    alarm_ledger::waits_in(db, key).unwrap();
    alarm_ledger::tally(db).unwrap();
    alarm_ledger::last_unmatched(db, &user, now()).unwrap();
    let heard = [(key.to_owned(), HeardBy { sockets: 1, at: now() })].into();
    let values = [(key.to_owned(), true)].into();
    incidents::write(db, &server, &LedgerWrite { heard, values, ..Default::default() }).unwrap();
    alarm_ledger::merge(db, key, key).unwrap();
    incidents::list(db, &server, Some(key), 50).unwrap();
    incidents::shown(db, &server, now()).unwrap();
    incidents::acknowledge(db, &server, key, &user, now()).unwrap();
    incidents::expire(db, now()).unwrap();
    incidents::purge(db, now()).unwrap();
    incidents::tally(db).unwrap();
    incidents::oldest_unheard(db).unwrap();
    channel_queries::make(db, &user, &server, key);
    incidents::last_heard(db).unwrap();
    push_credentials::count_older(db, 2).unwrap();
    paired_servers::count_older(db, 2).unwrap();
    write_check::write(db, now()).unwrap();
    encryption_keys::number(db, key).unwrap();
    helper_devices::find_by_token(db, key).unwrap();
    helper_devices::owners(db, &[key.into()]).unwrap();
    sessions::owners(db, &[key.into()], now()).unwrap();
    helper_devices::list(db, &user).unwrap();
    helper_devices::count(db, &user).unwrap();
    helper_devices::touch(db, &key.into(), now()).unwrap();
    new_devices::list_to_announce(db, now(), 9).unwrap();
    new_devices::announce_next(db, &key.into(), true, now()).unwrap();
    new_devices::note_seen(db, &user, &key.into(), now()).unwrap();
    helper_devices::delete(db, &user, &key.into()).unwrap();
    let token = ApiToken {
        id: key.into(),
        user_id: user.clone(),
        label: key.into(),
        scopes: TokenScopes::default(),
        server: None,
        created_at: now(),
        expires_at: None,
        last_used_at: None,
    };
    let _ = api_tokens::insert(db, &token, key, 1);
    api_tokens::find(db, key, now()).unwrap();
    api_tokens::owners(db, &[key.into()], now()).unwrap();
    api_tokens::list(db, &user).unwrap();
    api_tokens::touch(db, &key.into(), now()).unwrap();
    api_tokens::delete(db, &user, &key.into()).unwrap();
    api_tokens::delete_of_server(db, &user, &server).unwrap();
    let _ = paired_servers::get(db, &server);
    paired_servers::list_for(db, &user).unwrap();
    paired_servers::change_credentials(db, &server).unwrap();
    paired_servers::set_accepted(db, &server, 0).unwrap();
    paired_servers::list_older(db, 9, &"".into(), 50).unwrap();
    pairing_codes::find(db, &code, key, now()).unwrap();
    pairing_requests::ask(db, &code, key, key, now()).unwrap();
    pairing_requests::list(db, &user, now()).unwrap();
    pairing_requests::confirm(db, &user, key, now()).unwrap();
    pairing_codes::take(db, &code, now()).unwrap();
    push_credentials::get(db, &user).unwrap();
    push_credentials::mark_proven(db, &user, now(), now()).unwrap();
    push_credentials::promote_staged(db, &user, now(), now()).unwrap();
    push_credentials::list_older(db, 9, &"".into(), 50).unwrap();
    push_credentials::extend(db, &user, now(), now()).unwrap();
    push_credentials::list_to_warn(db, now(), 50).unwrap();
    push_credentials::warn_next(db, &user, now(), now()).unwrap();
    push_registrations::get(db, &user).unwrap();
    push_registrations::list_due(db, now(), 16).unwrap();
    push_registrations::list_older(db, 9, "", 50).unwrap();
    push_registrations::count_older(db, 2).unwrap();
    push_registrations::purge(db, now()).unwrap();
    push_seen::list(db, &user).unwrap();
    sessions::find(db, &key.into(), now()).unwrap();
    sessions::touch(db, &key.into(), later(100)).unwrap();
    smart_devices::list(db, &server).unwrap();
    team_chat_settings::get(db, &server).unwrap();
    device_groups::list(db, &server).unwrap();
    device_groups::delete(db, &server, key).unwrap();
    team_timers::list(db, &server).unwrap();
    team_timers::delete(db, key).unwrap();
    team_timers::wipe(db, &server, now()).unwrap();
    team_timers::leave(db, &server, &[key.into()]).unwrap();
    team_timers::set_team(db, &server, &TimerTeam::new(None, [7])).unwrap();
    switch_backs::list(db, &server).unwrap();
    switch_backs::delete(db, &server, key).unwrap();
    day_speeds::get(db, &"a:1".into()).unwrap();
    markets::load(db, &"a:1".into(), now()).unwrap();
    markets::reports(db, &"a:1".into()).unwrap();
    shops::list(db, &"a:1".into(), 7, now()).unwrap();
    shops::end(db, &"a:1".into(), 7, now()).unwrap();
    shops::purge(db, now()).unwrap();
    shop_history::purge(db, now()).unwrap();
    for (vendor, item) in [(None, None), (None, Some(7)), (Some(VendorId::at(1.0, 2.0)), None)] {
        let page = HistoryPage { vendor, item, before: None, limit: 200 };
        shop_history::list(db, &"a:1".into(), 7, &page).unwrap();
    }
    shop_watches::list(db, &server).unwrap();
    shop_watches::delete(db, &server, key).unwrap();
    let _ = smart_devices::get(db, &server, key);
    paired_servers::monuments(db, &server).unwrap();
    users::find(db, &user).unwrap();
    let player = tracked_players::get(db, &server, key).unwrap();
    tracked_players::list(db, &server).unwrap();
    tracked_players::count(db, &server).unwrap();
    let change = TrackedPlayerChange { tag: Some(None), note: Some(None), platform_id: Some(None) };
    tracked_players::update(db, &server, &player.id, &change).unwrap();
    for change in
        [SessionStep { begins: true, ..Default::default() }, SessionStep { missed: Some(1), ..Default::default() }]
    {
        let player = tracked_players::get(db, &server, &player.id).unwrap();
        tracked_players::step(db, &player, &change, now()).unwrap();
    }
    tracked_players::seen(db, &server, now()).unwrap();
    tracked_players::delete(db, &server, &player.id).unwrap();
    player_sessions::list(db, key, 9).unwrap();
    player_sessions::purge(db, now()).unwrap();
    server_matches::get(db, key, 1).unwrap();
    server_matches::polled(db, key, 1, true, now()).unwrap();
    server_matches::purge(db, now()).unwrap();
    alias_answers::get(db, &NameKey::of("name").unwrap(), key).unwrap();
    alias_answers::purge(db, now()).unwrap();
    player_stats_spending::list(db, now().date_naive()).unwrap();
    player_stats_spending::purge(db, now()).unwrap();
    let payload = AuditPayload::of_change(Value::Null, Value::Null);
    let (action, result) = (AdminAction::Refund, AuditResult::Done);
    let entry = NewAuditEntry { actor: &key.into(), action, target: key, payload: &payload, result };
    let head = audit::lock(db).unwrap();
    audit::append(db, head, &entry, now()).unwrap();
    audit::get(db, 1).unwrap();
    audit::about_since(db, action, "key", 0).unwrap();
    let attempt = RefundAttempt {
        begun: 1,
        charge_id: "key".into(),
        issued_at: now(),
        claimed_until: now(),
        outcome: None,
        named_at: None,
    };
    refund_attempts::insert(db, &attempt, None).unwrap();
    refund_attempts::of_charge(db, "key").unwrap();
    refund_attempts::get(db, 1).unwrap();
    refund_attempts::claim(db, 1, now(), later(1)).unwrap();
    refund_attempts::abandoned(db, 9, now()).unwrap();
    refund_attempts::settle(db, 1, 1).unwrap();
    refund_attempts::purge(db, now()).unwrap();
    refund_attempts::name(db, 1, now()).unwrap();
    refund_attempts::delete_shown(db, 1).unwrap();
    let text = || Some(key.to_owned());
    let all = AuditPage { since: Some(now()), before: Some((now(), 1)), limit: 9, ..Default::default() };
    for page in [
        all.clone(),
        AuditPage { action: text(), ..all.clone() },
        AuditPage { actor: text(), ..all.clone() },
        AuditPage { target: text(), ..all },
    ] {
        audit::list(db, &page).unwrap();
    }
    erasure_list::present(db, std::slice::from_ref(&user)).unwrap();
    users::search(db, NameKey::of("user").as_ref(), Some(&"u".into()), 9, 0).unwrap();
    let members = vec![users::sign_in(db, &user, &"user".into(), None, now()).unwrap()];
    members::statuses(db, members, now()).unwrap();
    sessions::delete_all(db, &user).unwrap();
    incidents::summary(db, std::slice::from_ref(&server)).unwrap();
    daily_counts::add(db, &[("chat", 1)].into(), now()).unwrap();
    while daily_counts::roll_up(db, later(3 * 86_400)).unwrap() > 0 {}
    daily_counts::days(db, now()).unwrap();
    beta_testers::find(db, &key.into()).unwrap();
    payment_customers::put_first(db, &user, key).unwrap();
    payment_customers::of_user(db, &user).unwrap();
    payment_customers::user_of(db, key).unwrap();
    payment_customers::open_checkout(db, &user).unwrap();
    payment_customers::replace_checkout(db, &user, None, key).unwrap();
    payment_customers::replace_checkout(db, &user, Some(key), key).unwrap();
    let subscription = TierSubscription {
        id: key.into(),
        tier: None,
        interval: None,
        status: SubscriptionStatus::Active,
        price: None,
        period_start: None,
        period_end: None,
        cancel_at_period_end: false,
        lapsed: false,
        started_at: now(),
        past_due_since: None,
        paid_tier: None,
    };
    let owned = OwnedSubscription { user: user.clone(), customer: key.into(), subscription };
    for known in [None, Some(1)] {
        subscriptions::put(db, &owned, known, now()).unwrap();
    }
    subscriptions::page(db, "", 9).unwrap();
    subscriptions::customers_of(db, &user).unwrap();
    subscriptions::end_unknown(db, key, 1).unwrap();
    customers_to_end::put_due(db, key, now()).unwrap();
    let turn = customers_to_end::claim(db, now()).unwrap().unwrap();
    customers_to_end::remove(db, &turn).unwrap();
    tiers::effective_of(db, &user, now()).unwrap();
    tiers::used(db, &user, now()).unwrap();
    payment_events::is_settled(db, key).unwrap();
    payment_events::record(db, key, key, None, EventState::Parked(ParkReason::UnknownUser), now()).unwrap();
    payment_events::due(db, 9, now()).unwrap();
    payment_events::claim(db, later(60)).unwrap();
    payment_events::parked(db, None, 9).unwrap();
    let place = Cursor { ts: now(), id: key.to_owned() };
    payment_events::parked(db, Some(&place), 9).unwrap();
    payment_events::reported(db, Some(&place), 9).unwrap();
    let report = ChargeReport { kind: ReportKind::DisputeOpened, charge: None };
    payment_events::report(db, "reported", key, &report, Payer { customer: Some(key), user: None }, now()).unwrap();
    payment_events::reported(db, None, 9).unwrap();
    payment_events::purge(db, now()).unwrap();
    let caller = KeyCaller::Admin("user".into());
    let keyed = KeyedRequest { id: key.into(), caller, request: key.into() };
    idempotency_keys::take(db, &keyed, b"", Some(now()), now()).unwrap();
    idempotency_keys::is_taken_since(db, key, now()).unwrap();
    idempotency_keys::find(db, &keyed).unwrap();
    idempotency_keys::reclaim(db, key, now(), later(1)).unwrap();
    idempotency_keys::forget(db, key, now()).unwrap();
    idempotency_keys::answer(db, key, b"", None).unwrap();
    idempotency_keys::purge(db, now()).unwrap();
    paired_servers::delete(db, &user, &server).unwrap();
}

/// A user with a paired server and a tracked player.
fn fill(pool: &Pool) {
    testing::user(pool, "user");
    testing::server(pool, "user", "server");
    let new = NewTrackedPlayer {
        id: "key".into(),
        server: "server".into(),
        tracker_name: "Vex".into(),
        key: NameKey::of("Vex").unwrap(),
        tag: None,
        note: None,
        author: "user".into(),
    };
    pool.write_blocking(|db| tracked_players::insert(db, &new, now())).unwrap();
}

/// A step of a plan that reads a whole table.
fn is_scan(step: &str) -> bool {
    step.contains("Seq Scan") || (step.starts_with("SCAN ") && step != "SCAN CONSTANT ROW")
}

#[test]
fn no_statement_reads_a_whole_table() {
    testing::on_each_database(|pool| {
        fill(pool);
        pool.write_blocking(|db| {
            let mut statements = statements(db, every_query);
            // An INSERT looks for nothing, and neither does a list without members.
            statements.retain(|statement| !statement.starts_with("INSERT") && !statement.ends_with("(1=0)"));
            assert!(statements.len() > 30 && statements.iter().any(|statement| statement.contains("DELETE")));
            prepare_plans(db);
            for statement in statements {
                let plan = plan(db, &statement);
                assert!(!plan.is_empty() && !plan.iter().any(|step| is_scan(step)), "{statement}\n{}", plan.join("\n"));
            }
            Ok(())
        })
        .unwrap();
    });
}

#[test]
fn a_purge_deletes_no_more_than_a_batch_at_once() {
    testing::on_each_database(|pool| {
        testing::user(pool, "user");
        pool.write_blocking(|db| {
            for second in 0..PURGE_BATCH as i64 + 3 {
                let entry = testing::timeline_entry(&second.to_string(), "news", later(second));
                timeline::insert(db, &TimelineOwner::User("user".into()), &entry)?;
            }
            let purged = [(); 3].map(|()| timeline::purge(db, later(PURGE_BATCH as i64 + 1)).unwrap());
            assert_eq!(purged, [PURGE_BATCH, 2, 0], "the newest stays");
            Ok(())
        })
        .unwrap();
    });
}
