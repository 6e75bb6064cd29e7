use super::*;
use crate::{
    db::{
        alarms::{incidents, late_notices, notice_messages, notice_steps},
        engine::pool::Pool,
        notices::{alarm_rules, channels::tests::channel, waiting_notices},
        testing::{self, later, now},
        timeline,
    },
    domain::{
        channels::{
            channel_lane::{ChannelLane, LaneLoad},
            escalation::{AlarmRules, EscalationStep},
            quiet_hours::QuietHours,
            user_channel::{ChannelKind, ChannelState},
        },
        limits::EVENT_NOTICES_PER_HOUR,
        timeline::{TimelineEntry, TimelineOwner},
        world_event::EventKind,
    },
};

/// A server with an owner, who has a browser and ntfy, and a guest with a webhook.
fn furnish(pool: &Pool) -> ServerId {
    for user in ["owner", "guest", "deaf"] {
        testing::user(pool, user);
    }
    let server = testing::server(pool, "owner", "one").id;
    testing::guest(pool, "g1", "one", "guest");
    testing::guest(pool, "g2", "one", "deaf");
    for (id, user, kind) in [
        ("browser", "owner", ChannelKind::WebPush),
        ("ntfy", "owner", ChannelKind::Ntfy),
        ("hook", "guest", ChannelKind::Webhook),
    ] {
        pool.write_blocking(|db| channels::insert(db, &channel(id, user, kind, id), 9)).unwrap().unwrap();
    }
    server
}

/// The alarm goes off, or once more.
fn ring(pool: &Pool, server: &ServerId, count: u32) {
    let write = testing::incident_write("incident", count);
    pool.write_blocking(|db| incidents::write(db, server, &write)).unwrap();
}

/// Makes all steps that are due; returns how many messages were queued.
fn step(pool: &Pool, at: Timestamp) -> usize {
    steps(pool, at).queued
}

fn steps(pool: &Pool, at: Timestamp) -> notice_steps::StepsMade {
    pool.write_blocking(|db| notice_steps::make_due(db, at, 100)).unwrap()
}

/// When the user's step is due.
fn due_at(pool: &Pool, user: &str) -> Option<Timestamp> {
    let of_user = |db: &mut Db| {
        let notice = notices::table.filter(notices::user_id.eq(user)).filter(notices::event.is_null());
        Ok(notice.select(notices::due_at).first(db)?)
    };
    pool.read_blocking(of_user).unwrap()
}

/// When the steps of all of the user's notices are due.
fn due_at_all(pool: &Pool, user: &str) -> Vec<Option<Timestamp>> {
    let of_user =
        |db: &mut Db| Ok(notices::table.filter(notices::user_id.eq(user)).select(notices::due_at).load(db)?);
    pool.read_blocking(of_user).unwrap()
}

/// The messages that are due, and ends those that concern their users no longer.
fn sent(pool: &Pool, at: Timestamp) -> Vec<NoticeDelivery> {
    ChannelLane::ALL.into_iter().flat_map(|lane| sent_in(pool, lane, &LaneLoad::default(), at)).collect()
}

/// The messages of this lane, beside those that have their turn now.
fn sent_in(pool: &Pool, lane: ChannelLane, load: &LaneLoad, at: Timestamp) -> Vec<NoticeDelivery> {
    let load = LaneLoad { room: 100, ..load.clone() };
    let messages = pool.read_blocking(|db| notice_messages::due(db, at, lane, &load)).unwrap();
    pool.write_blocking(|db| notice_messages::end_over(db, &messages.over, at)).unwrap();
    messages.sendable.into_iter().map(|message| message.delivery).collect()
}

/// Their channels.
fn channels_of(messages: &[NoticeDelivery]) -> Vec<&str> {
    let mut channels: Vec<&str> = messages.iter().map(|message| message.channel_id.as_str()).collect();
    channels.sort_unstable();
    channels
}

/// An attempt by a channel as it was furnished.
fn attempt(delivery: NoticeDelivery, outcome: DeliveryOutcome) -> EndedAttempt {
    let id = delivery.channel_id.as_str();
    EndedAttempt { channel: channel(id, &delivery.user_id, ChannelKind::Webhook, id), delivery, outcome }
}

fn end(pool: &Pool, delivery: &NoticeDelivery, outcome: &DeliveryOutcome, at: Timestamp) {
    let ended = [attempt(delivery.clone(), outcome.clone())];
    pool.write_blocking(|db| note_outcomes(db, &ended, at)).unwrap();
}

fn put_rules(pool: &Pool, server: &ServerId, user: &str, rules: &AlarmRules) {
    pool.write_blocking(|db| alarm_rules::put(db, server, &user.into(), rules)).unwrap();
}

/// Stores an event of the server.
fn happen(pool: &Pool, server: &ServerId, entry: &TimelineEntry) {
    let owner = TimelineOwner::Server(server.clone());
    pool.write_blocking(|db| timeline::insert(db, &owner, entry)).unwrap();
}

const ACCEPTED: DeliveryOutcome = DeliveryOutcome::Accepted { status: Some(201), receipt: None };

#[test]
fn an_incident_opens_one_notice_for_each_watcher_with_a_channel_and_a_repeat_opens_none() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        ring(pool, &server, 1);
        ring(pool, &server, 2);
        assert!(pool.read_blocking(|db| is_due(db, later(0))).unwrap());
        let made = steps(pool, later(0));
        assert_eq!((made.notices, made.queued), (2, 2), "the owner and the guest with a channel");
        assert!(!pool.read_blocking(|db| is_due(db, later(59))).unwrap());
        assert_eq!(channels_of(&sent(pool, later(0))), ["browser", "hook"]);
        assert_eq!(step(pool, later(0)), 0, "no step is due");
        assert_eq!(due_at(pool, "owner"), Some(later(60)));
    });
}

#[test]
fn an_acknowledgement_cancels_what_waits_and_what_would_follow() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        ring(pool, &server, 1);
        step(pool, later(0));
        let acknowledge = |db: &mut Db| incidents::acknowledge(db, &server, "incident", &"owner".into(), later(1));
        pool.write_blocking(acknowledge).unwrap().unwrap();
        assert_eq!(channels_of(&sent(pool, later(2))), ["hook"], "the guest's own is not silenced");
        let states: Vec<String> = pool
            .read_blocking(|db| {
                Ok(deliveries::table.order(deliveries::channel_id).select(deliveries::state).load(db)?)
            })
            .unwrap();
        assert_eq!(states, ["cancelled", "queued"]);
        assert_eq!(step(pool, later(60)), 0);
        assert_eq!(due_at(pool, "owner"), None);
    });
}

#[test]
fn nothing_is_sent_once_the_alarm_is_quiet_or_the_access_is_gone() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        ring(pool, &server, 1);
        pool.write_blocking(|db| crate::db::guests::leave(db, &"guest".into(), &server)).unwrap();
        assert_eq!(step(pool, later(901)), 0);
        assert_eq!((due_at(pool, "owner"), due_at(pool, "guest")), (None, None));
    });
}

#[test]
fn a_message_that_fails_makes_the_next_step_due_and_is_tried_again_itself() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        ring(pool, &server, 1);
        step(pool, later(0));
        let message = sent(pool, later(0)).into_iter().find(|message| message.user_id == "owner").unwrap();
        let failed =
            DeliveryOutcome::Failed { status: Some(503), fault: ChannelFault::Unavailable, retry_at: Some(later(6)) };
        end(pool, &message, &failed, later(1));
        assert_eq!(due_at(pool, "owner"), Some(later(1)));
        assert_eq!(step(pool, later(1)), 1);
        let again = sent(pool, later(6)).into_iter().find(|delivery| delivery.channel_id == "browser").unwrap();
        assert_eq!((&again.id, again.attempts), (&message.id, 1));
        end(pool, &again, &ACCEPTED, later(6));
        let channel = pool.read_blocking(|db| channels::get(db, &"browser".into())).unwrap().unwrap();
        assert_eq!((&*channel.state, channel.accepted_at), (ChannelState::Active.word(), Some(later(6))));

        let ntfy = sent(pool, later(6)).into_iter().find(|delivery| delivery.channel_id == "ntfy").unwrap();
        let gone = DeliveryOutcome::Failed { status: Some(410), fault: ChannelFault::Gone, retry_at: None };
        end(pool, &ntfy, &gone, later(7));
        assert_eq!(channels_of(&sent(pool, later(99))), ["hook"]);
        let usable = pool.read_blocking(|db| channels::usable(&channels::list(db, &"owner".into())?)).unwrap();
        assert_eq!(usable.len(), 1, "a channel that is gone is not tried");
    });
}

#[test]
fn an_answer_of_the_old_subscription_leaves_the_new_one_and_its_message_alone() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        ring(pool, &server, 1);
        step(pool, later(0));
        let message = sent(pool, later(0)).into_iter().find(|message| message.channel_id == "browser").unwrap();
        let new = channel("browser", "owner", ChannelKind::WebPush, "new");
        pool.write_blocking(|db| channels::replace_target(db, &new)).unwrap();
        let gone = DeliveryOutcome::Failed { status: Some(410), fault: ChannelFault::Gone, retry_at: None };
        for late in [gone, ACCEPTED] {
            end(pool, &message, &late, later(1));
            assert_eq!(pool.read_blocking(|db| channels::get(db, &"browser".into())).unwrap().unwrap(), new);
            assert!(sent(pool, later(1)).contains(&message), "it goes to the new one");
        }
    });
}

#[test]
fn what_was_planned_before_the_clock_was_set_back_does_not_wait_for_it() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        ring(pool, &server, 1);
        step(pool, later(0));
        let message = sent(pool, later(0)).into_iter().find(|message| message.channel_id == "hook").unwrap();
        let (fault, retry_at) = (ChannelFault::Unavailable, Some(later(900)));
        end(pool, &message, &DeliveryOutcome::Failed { status: None, fault, retry_at }, later(0));
        let (same, back) = (later(1), later(-3_600));
        assert!(!pool.read_blocking(|db| are_any_ahead(db, same)).unwrap());
        assert!(pool.read_blocking(|db| are_any_ahead(db, back)).unwrap());
        assert!(pool.write_blocking(|db| hasten_all(db, back)).unwrap() > 0);
        assert!(step(pool, back) > 0, "the owner's second step");
        assert_eq!(channels_of(&sent(pool, later(0))), ["browser", "hook", "ntfy"]);
        assert_eq!(due_at(pool, "owner"), Some(later(-3_600 + 180)), "a round after this step");
    });
}

#[test]
fn a_first_channel_that_is_added_while_an_alarm_goes_on_rings() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        ring(pool, &server, 1);
        step(pool, later(0));
        let add = |user: &str, id: &str, at| {
            let channel = channel(id, user, ChannelKind::Ntfy, id);
            let insert = |db: &mut Db| {
                channels::insert(db, &channel, 9)?.unwrap();
                late_notices::open(db, &user.into(), at)
            };
            pool.write_blocking(insert).unwrap();
        };
        add("deaf", "first", later(10));
        add("guest", "second", later(10));
        assert_eq!(step(pool, later(10)), 2, "nothing has reached the guest yet");
        assert_eq!(channels_of(&sent(pool, later(10))), ["browser", "first", "hook", "second"]);
        testing::user(pool, "later");
        testing::guest(pool, "g3", "one", "later");
        add("later", "third", later(901));
        assert_eq!(due_at_all(pool, "later"), Vec::new(), "the alarm is quiet");
    });
}

#[test]
fn the_first_step_counts_from_the_alarm_also_for_a_channel_that_is_added_later() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        ring(pool, &server, 1);
        for user in ["waits", "late"] {
            testing::user(pool, user);
            testing::guest(pool, &format!("guest {user}"), "one", user);
            let first = EscalationStep { after_seconds: 600, channels: vec![user.into()] };
            put_rules(pool, &server, user, &AlarmRules { steps: vec![first], ..AlarmRules::default() });
        }
        let add = |user: &str, at| {
            let insert = |db: &mut Db| {
                channels::insert(db, &channel(user, user, ChannelKind::Ntfy, user), 9)?.unwrap();
                late_notices::open(db, &user.into(), at)
            };
            pool.write_blocking(insert).unwrap();
            step(pool, at);
        };
        add("waits", later(400));
        assert_eq!(due_at(pool, "waits"), Some(later(600)), "later, the alarm could be over");
        add("late", later(700));
        assert!(channels_of(&sent(pool, later(700))).contains(&"late"), "its time has passed");
        assert_eq!(due_at(pool, "late"), Some(later(700 + 180 + 600)), "no round is made up for");
    });
}

#[test]
fn only_a_first_attempt_by_a_channel_that_works_is_in_the_lane_of_those() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        pool.write_blocking(|db| channels::note_accepted(db, &[("browser", "browser"), ("hook", "hook")], now()))
            .unwrap();
        pool.write_blocking(|db| channels::note_failure(db, &"hook".into(), "hook", ChannelFault::Unavailable, now()))
            .unwrap();
        ring(pool, &server, 1);
        step(pool, later(0));
        step(pool, later(60));
        let of = |lane, load: &LaneLoad| sent_in(pool, lane, load, later(99));
        let free = LaneLoad::default();
        assert_eq!(channels_of(&of(ChannelLane::Proven, &free)), ["browser"]);
        assert_eq!(channels_of(&of(ChannelLane::Unproven, &free)), ["hook", "ntfy"], "one fails, one is untested");
        let users = LaneLoad { users: vec!["owner".to_owned()], ..LaneLoad::default() };
        let hosts = LaneLoad { hosts: vec!["example.com".to_owned()], ..LaneLoad::default() };
        assert_eq!(channels_of(&of(ChannelLane::Unproven, &users)), ["hook"]);
        assert!(of(ChannelLane::Proven, &users).is_empty() && of(ChannelLane::Unproven, &hosts).is_empty());
        let first = of(ChannelLane::Proven, &free).remove(0);
        let away =
            DeliveryOutcome::Failed { status: None, fault: ChannelFault::Unavailable, retry_at: Some(later(98)) };
        end(pool, &first, &away, later(97));
        assert!(of(ChannelLane::Proven, &free).is_empty(), "another attempt waits among the others");
    });
}

#[test]
fn outcomes_of_many_are_stored_at_once() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        ring(pool, &server, 1);
        step(pool, later(0));
        let failed = DeliveryOutcome::Failed { status: Some(403), fault: ChannelFault::Refused, retry_at: None };
        let outcomes: Vec<_> = sent(pool, later(0))
            .into_iter()
            .map(|message| {
                let outcome = if message.channel_id == "hook" { failed.clone() } else { ACCEPTED };
                attempt(message, outcome)
            })
            .collect();
        pool.write_blocking(|db| note_outcomes(db, &outcomes, later(1))).unwrap();
        let ended = |db: &mut Db| {
            let ended = deliveries::table.order(deliveries::channel_id);
            Ok(ended.select((deliveries::state, deliveries::status, deliveries::ended_at)).load(db)?)
        };
        let ended: Vec<(String, Option<i32>, Option<Timestamp>)> = pool.read_blocking(ended).unwrap();
        let at = Some(later(1));
        assert_eq!(ended, [("accepted".to_owned(), Some(201), at), ("failed".to_owned(), Some(403), at)]);
    });
}

#[test]
fn a_new_round_supersedes_what_still_waits() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        ring(pool, &server, 1);
        step(pool, later(0));
        pool.write_blocking(|db| {
            Ok(diesel::delete(deliveries::table.filter(deliveries::user_id.eq("owner"))).execute(db)?)
        })
        .unwrap();
        step(pool, later(180));
        let waiting = sent(pool, later(180));
        let hook: Vec<i32> =
            waiting.iter().filter(|message| message.channel_id == "hook").map(|message| message.round).collect();
        assert_eq!(hook, [1]);
        let figures = pool.read_blocking(waiting_notices::read).unwrap();
        // The owner's step was late: the next one is as far from it as ever.
        assert_eq!((figures.messages, figures.due_since), (2, Some(later(180))));
        assert_eq!(due_at(pool, "owner"), Some(later(240)));
        assert_eq!(pool.write_blocking(|db| purge(db, later(1))).unwrap(), 2);
        assert!(sent(pool, later(999)).is_empty());
    });
}

#[test]
fn rounds_that_a_downtime_missed_do_not_ring_at_once() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        ring(pool, &server, 1);
        step(pool, later(0));
        // Ten minutes without the worker: two steps of the owner and three rounds of the guest.
        assert_eq!((step(pool, later(600)), step(pool, later(601)), step(pool, later(779))), (2, 0, 0));
        let rounds = |db: &mut Db| Ok(notices::table.order(notices::user_id).select(notices::round).load(db)?);
        let rounds: Vec<i32> = pool.read_blocking(rounds).unwrap();
        assert_eq!((rounds, due_at(pool, "owner")), (vec![2, 1], Some(later(780))));
    });
}

#[test]
fn a_part_gives_its_notices_to_the_whole() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        ring(pool, &server, 1);
        step(pool, later(0));
        let mut write = testing::incident_write("whole", 1);
        write.merged = [("incident".to_owned(), "whole".to_owned())].into();
        pool.write_blocking(|db| incidents::write(db, &server, &write)).unwrap();
        let incidents: Vec<String> =
            pool.read_blocking(|db| Ok(notices::table.select(notices::incident_id).load(db)?)).unwrap();
        assert_eq!(incidents, ["whole", "whole"]);
        assert_eq!(step(pool, later(1)), 0, "its own have made no message, and give way");
        assert_eq!(channels_of(&sent(pool, later(1))), ["browser", "hook"]);
    });
}

#[test]
fn rules_that_cannot_be_read_ring_as_the_default_does() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        put_rules(pool, &server, "owner", &AlarmRules::default());
        let spoil = "UPDATE alarm_rules SET rules = 'no JSON'";
        pool.write_blocking(|db| Ok(diesel::sql_query(spoil).execute(db)?)).unwrap();
        ring(pool, &server, 1);
        let made = steps(pool, later(0));
        let owner = NoticeKey { incident: "incident".to_owned(), user: "owner".into() };
        assert_eq!((made.queued, made.unreadable), (2, vec![owner]));
    });
}

fn quiet(kinds: &[EventKind], raids_pierce: bool) -> AlarmRules {
    let now = now();
    let time = |minutes: i64| (now + chrono::TimeDelta::minutes(minutes)).format("%H:%M").to_string();
    let quiet = QuietHours { from: time(-5), to: time(10), time_zone: "UTC".to_owned(), raids_pierce };
    AlarmRules { kinds: kinds.iter().copied().collect(), quiet: Some(quiet), ..AlarmRules::default() }
}

#[test]
fn a_raid_that_may_not_pierce_waits_for_the_end_of_the_quiet_hours() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        put_rules(pool, &server, "owner", &quiet(&[EventKind::Raid], false));
        put_rules(pool, &server, "guest", &quiet(&[EventKind::Raid], true));
        ring(pool, &server, 1);
        assert_eq!(step(pool, later(0)), 1);
        assert_eq!(channels_of(&sent(pool, later(0))), ["hook"], "each has their own");
        let end = due_at(pool, "owner").unwrap();
        assert!(end > later(0) && end <= later(600), "{end:?}");
        assert_eq!(step(pool, end), 2, "it still goes on: the owner's first, the guest's again");
        assert_eq!(channels_of(&sent(pool, end)), ["browser", "hook"]);
    });
}

#[test]
fn a_raid_that_ends_within_the_quiet_hours_is_listed_as_suppressed() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        let time = |minutes: i64| (now() + chrono::TimeDelta::minutes(minutes)).format("%H:%M").to_string();
        let mut night = quiet(&[EventKind::Raid], false);
        night.quiet = night.quiet.map(|quiet| QuietHours { to: time(60), ..quiet });
        for user in ["owner", "guest"] {
            put_rules(pool, &server, user, &night);
        }
        ring(pool, &server, 1);
        assert_eq!(step(pool, later(0)), 0);
        let acknowledge = |db: &mut Db| incidents::acknowledge(db, &server, "incident", &"guest".into(), later(1));
        pool.write_blocking(acknowledge).unwrap().unwrap();
        let end = due_at(pool, "owner").unwrap();
        assert_eq!((step(pool, end), due_at(pool, "owner")), (0, None));
        let list = |user: &str| {
            let list =
                pool.read_blocking(|db| crate::db::notices::deliveries::list(db, "incident", &user.into())).unwrap();
            list.into_iter().map(|message| (message.channel_id, message.state)).collect::<Vec<_>>()
        };
        assert_eq!(list("owner"), [("browser".to_owned(), "suppressed".to_owned())]);
        assert!(list("guest").is_empty(), "acknowledged");
        assert!(sent(pool, end).is_empty());
    });
}

#[test]
fn an_event_is_sent_once_to_those_who_want_it_after_all_raids() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        let death = |id: &str, seconds| testing::timeline_entry(id, "death", later(seconds));
        happen(pool, &server, &death("not wanted", 0));
        let both = [EventKind::Raid, EventKind::Death].into();
        put_rules(pool, &server, "owner", &AlarmRules { kinds: both, ..AlarmRules::default() });
        put_rules(pool, &server, "guest", &quiet(&[EventKind::Raid, EventKind::Death], true));
        happen(pool, &server, &death("one", 0));
        happen(pool, &server, &death("one", 0));
        happen(pool, &server, &testing::timeline_entry("cargo", "cargo", later(0)));
        ring(pool, &server, 1);
        let made = steps(pool, later(1));
        assert_eq!((made.notices, made.queued), (4, 3), "the guest's hours are quiet");
        let messages = sent(pool, later(1));
        let about: Vec<&str> = messages.iter().map(|message| message.incident_id.as_str()).collect();
        assert_eq!(about, ["incident", "incident", "one"]);
        let of_guest = |db: &mut Db| crate::db::notices::deliveries::list(db, "one", &"guest".into());
        let of_guest = pool.read_blocking(of_guest).unwrap();
        assert_eq!((of_guest.len(), &*of_guest[0].state), (1, "suppressed"));
        for message in &messages {
            end(pool, message, &ACCEPTED, later(2));
        }
        let again = steps(pool, later(899));
        assert!(again.queued > 0, "the raid comes again");
        assert!(sent(pool, later(899)).iter().all(|message| message.incident_id == "incident"));
    });
}

#[test]
fn events_of_an_hour_are_bounded_and_old_ones_are_not_sent() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        let deaths = AlarmRules { kinds: [EventKind::Death].into(), ..AlarmRules::default() };
        put_rules(pool, &server, "guest", &deaths);
        for number in 0..EVENT_NOTICES_PER_HOUR + 5 {
            happen(pool, &server, &testing::timeline_entry(&format!("{number}"), "death", later(number)));
        }
        let made = steps(pool, later(100));
        assert_eq!(made.notices as i64, EVENT_NOTICES_PER_HOUR);
        happen(pool, &server, &testing::timeline_entry("late", "death", later(4_000)));
        assert_eq!(step(pool, later(4_900)), 0);
    });
}

mod acknowledged;
mod counted;
mod endings;
mod late;
mod lock_order;
mod merged;
