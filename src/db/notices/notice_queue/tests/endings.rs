//! When raids are over for their users.

use super::*;
use crate::db::alarms::{
    emergencies::{self, Emergencies, Emergency, OrphanedEmergency},
    notice_steps::TooLateMessage,
};

fn at_seconds(after_seconds: u32, channel: &str) -> EscalationStep {
    EscalationStep { after_seconds, channels: vec![channel.into()] }
}

#[test]
fn a_step_or_repeat_that_comes_after_a_quarter_of_an_hour_is_made() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        let steps = vec![at_seconds(0, "browser"), at_seconds(900, "ntfy")];
        put_rules(pool, &server, "owner", &AlarmRules { steps, rounds: 1, ..AlarmRules::default() });
        let steps = vec![at_seconds(0, "hook")];
        put_rules(pool, &server, "guest", &AlarmRules { steps, repeat_seconds: 900, ..AlarmRules::default() });
        ring(pool, &server, 1);
        assert_eq!(step(pool, later(0)), 2);
        for message in sent(pool, later(0)) {
            end(pool, &message, &ACCEPTED, later(1));
        }
        assert_eq!(step(pool, later(899)), 0);
        assert_eq!(step(pool, later(900)), 2, "the owner's second channel, and the guest's again");
        assert_eq!(channels_of(&sent(pool, later(959))), ["hook", "ntfy"]);
        assert!(sent(pool, later(960)).is_empty(), "over");
        assert_eq!(step(pool, later(1_800)), 0);
        assert_eq!((due_at(pool, "owner"), due_at(pool, "guest")), (None, None));
    });
}

#[test]
fn an_acknowledgement_ends_late_steps_too() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        let steps = vec![at_seconds(0, "browser"), at_seconds(1_800, "ntfy")];
        put_rules(pool, &server, "owner", &AlarmRules { steps, ..AlarmRules::default() });
        ring(pool, &server, 1);
        step(pool, later(0));
        let acknowledge = |db: &mut Db| incidents::acknowledge(db, &server, "incident", &"owner".into(), later(1_000));
        pool.write_blocking(acknowledge).unwrap().unwrap();
        assert!(sent(pool, later(1_000)).iter().all(|message| message.user_id == "guest"));
        assert_eq!(step(pool, later(1_800)), 0);
        assert_eq!(due_at(pool, "owner"), None);
    });
}

/// The user's messages about the raid: channel, state and reason.
fn listed(pool: &Pool, user: &str) -> Vec<(String, String, Option<String>)> {
    let list = pool.read_blocking(|db| crate::db::notices::deliveries::list(db, "incident", &user.into())).unwrap();
    list.into_iter().map(|message| (message.channel_id, message.state, message.reason)).collect()
}

#[test]
fn a_raid_that_is_over_before_anything_was_sent_is_listed_as_too_late() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        let add = |db: &mut Db| channels::insert(db, &channel("deaf", "deaf", ChannelKind::Gotify, "deaf"), 9);
        pool.write_blocking(add).unwrap().unwrap();
        put_rules(pool, &server, "deaf", &quiet(&[EventKind::Raid], false));
        ring(pool, &server, 1);
        let acknowledge = |db: &mut Db| incidents::acknowledge(db, &server, "incident", &"guest".into(), later(1));
        pool.write_blocking(acknowledge).unwrap().unwrap();
        // The process was away until then.
        let made = steps(pool, later(960));
        let owners = TooLateMessage {
            incident: "incident".to_owned(),
            user: "owner".to_owned(),
            channel: "browser".to_owned(),
            kind: ChannelKind::WebPush,
        };
        assert_eq!((made.notices, made.queued, made.too_late), (3, 0, vec![owners]));
        let too_late = Some("too_late".to_owned());
        assert_eq!(listed(pool, "owner"), [("browser".to_owned(), "failed".to_owned(), too_late)]);
        assert_eq!(listed(pool, "deaf"), [("deaf".to_owned(), "suppressed".to_owned(), None)], "quiet hours");
        assert!(listed(pool, "guest").is_empty(), "acknowledged");
        assert_eq!((steps(pool, later(961)).notices, sent(pool, later(961))), (0, Vec::new()));
    });
}

#[test]
fn a_raid_of_which_something_was_sent_ends_without_further_messages() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        ring(pool, &server, 1);
        step(pool, later(0));
        let made = steps(pool, later(901));
        assert_eq!((made.notices, made.queued, made.too_late), (2, 0, Vec::new()));
        assert_eq!((listed(pool, "owner").len(), listed(pool, "guest").len()), (1, 1));
    });
}

/// Lets each of these messages fail, to be tried again then.
fn fail(pool: &Pool, messages: &[NoticeDelivery], retry_at: i64) {
    let (fault, retry_at) = (ChannelFault::Unavailable, Some(later(retry_at)));
    for message in messages {
        let failed = DeliveryOutcome::Failed { status: None, fault, retry_at };
        end(pool, message, &failed, later(1));
    }
}

#[test]
fn a_webhook_is_tried_for_a_day_also_when_the_raid_is_over_and_a_phone_is_not() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        ring(pool, &server, 1);
        step(pool, later(0));
        let first = sent(pool, later(0));
        assert_eq!(channels_of(&first), ["browser", "hook"]);
        fail(pool, &first, 1_200);
        let again = sent(pool, later(1_200));
        assert_eq!(channels_of(&again), ["hook"]);
        fail(pool, &again, 80_000);
        assert_eq!(channels_of(&sent(pool, later(86_399))), ["hook"]);
        assert!(sent(pool, later(86_400)).is_empty());
        assert_eq!(listed(pool, "guest")[0].1, "cancelled");
    });
}

#[test]
fn a_webhook_is_not_tried_once_the_raid_is_over_and_acknowledged() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        ring(pool, &server, 1);
        step(pool, later(0));
        fail(pool, &sent(pool, later(0)), 1_200);
        let acknowledge = |db: &mut Db| incidents::acknowledge(db, &server, "incident", &"guest".into(), later(950));
        pool.write_blocking(acknowledge).unwrap().unwrap();
        assert!(sent(pool, later(1_200)).is_empty());
    });
}

#[test]
fn a_webhook_is_not_tried_once_the_raid_is_over_and_the_access_is_gone_or_it_took_a_message() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        testing::user(pool, "other");
        testing::guest(pool, "g3", "one", "other");
        let add = |db: &mut Db| channels::insert(db, &channel("other", "other", ChannelKind::Webhook, "other"), 9);
        pool.write_blocking(add).unwrap().unwrap();
        ring(pool, &server, 1);
        step(pool, later(0));
        for message in sent(pool, later(0)).iter().filter(|message| message.channel_id == "hook") {
            end(pool, message, &ACCEPTED, later(1));
        }
        step(pool, later(180));
        fail(pool, &sent(pool, later(180)), 1_200);
        pool.write_blocking(|db| crate::db::guests::leave(db, &"other".into(), &server)).unwrap();
        assert!(sent(pool, later(1_200)).is_empty());
        let rounds =
            pool.read_blocking(|db| crate::db::notices::deliveries::list(db, "incident", &"guest".into())).unwrap();
        let rounds: Vec<_> = rounds.iter().map(|message| (message.round, message.state.as_str())).collect();
        assert_eq!(rounds, [(0, "accepted"), (1, "cancelled")]);
    });
}

#[test]
fn a_channel_in_an_unknown_state_holds_up_no_outcome() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        ring(pool, &server, 1);
        step(pool, later(0));
        let spoil = "UPDATE channels SET state = 'odd' WHERE id = 'hook'";
        pool.write_blocking(|db| Ok(diesel::sql_query(spoil).execute(db)?)).unwrap();
        fail(pool, &sent(pool, later(0)), 60);
        let channel = pool.read_blocking(|db| channels::get(db, &"hook".into())).unwrap().unwrap();
        assert_eq!((channel.state().unwrap(), channel.failures), (ChannelState::Failing, 1));
        assert_eq!(channels_of(&sent(pool, later(60))), ["browser", "hook"]);
    });
}

#[test]
fn only_what_waits_can_be_ahead_of_a_clock_that_was_set_back() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        let rules = AlarmRules { rounds: 1, ..AlarmRules::default() };
        put_rules(pool, &server, "guest", &rules);
        put_rules(pool, &server, "owner", &AlarmRules { enabled: false, ..rules });
        ring(pool, &server, 1);
        let is_ahead = || pool.read_blocking(|db| are_any_ahead(db, later(-60))).unwrap();
        assert!(is_ahead(), "a step");
        assert_eq!(step(pool, later(0)), 1);
        assert_eq!((due_at(pool, "owner"), due_at(pool, "guest")), (None, None));
        assert!(is_ahead(), "a message");
        end(pool, &sent(pool, later(0))[0], &ACCEPTED, later(1));
        assert!(!is_ahead());
    });
}

#[test]
fn a_channel_that_is_gone_ends_all_that_waits_for_it_and_makes_the_next_steps_due() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        ring(pool, &server, 1);
        let write = testing::incident_write("another", 1);
        pool.write_blocking(|db| incidents::write(db, &server, &write)).unwrap();
        assert_eq!(step(pool, later(0)), 4);
        let messages = sent(pool, later(0));
        let first = messages.iter().find(|message| message.channel_id == "browser").unwrap();
        let gone = DeliveryOutcome::Failed { status: Some(410), fault: ChannelFault::Gone, retry_at: None };
        end(pool, first, &gone, later(1));
        assert_eq!(channels_of(&sent(pool, later(1))), ["hook", "hook"]);
        for incident in ["incident", "another"] {
            let list =
                pool.read_blocking(|db| crate::db::notices::deliveries::list(db, incident, &"owner".into())).unwrap();
            let [message] = &*list else { panic!("{list:?}") };
            let reason = message.reason.as_deref();
            assert_eq!((message.state.as_str(), reason, message.ended_at), ("failed", Some("gone"), Some(later(1))));
        }
        assert_eq!(step(pool, later(1)), 2, "by ntfy, about both");
    });
}

#[test]
fn a_message_that_was_taken_before_its_channel_was_gone_does_not_bring_it_back() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        for incident in ["incident", "another"] {
            let write = testing::incident_write(incident, 1);
            pool.write_blocking(|db| incidents::write(db, &server, &write)).unwrap();
        }
        step(pool, later(0));
        let gone = DeliveryOutcome::Failed { status: Some(410), fault: ChannelFault::Gone, retry_at: None };
        let messages = sent(pool, later(0)).into_iter().filter(|message| message.channel_id == "browser");
        let ended: Vec<_> =
            messages.zip([ACCEPTED, gone]).map(|(message, outcome)| attempt(message, outcome)).collect();
        assert_eq!(ended.len(), 2);
        // The database took nothing meanwhile, and stores both at once, or the older one last.
        for outcomes in [&ended[..], &ended[..1]] {
            pool.write_blocking(|db| note_outcomes(db, outcomes, later(1))).unwrap();
            let stored = pool.read_blocking(|db| channels::get(db, &"browser".into())).unwrap().unwrap();
            assert_eq!((&*stored.state, stored.reason.as_deref()), ("gone", Some("gone")));
        }
        let list =
            pool.read_blocking(|db| crate::db::notices::deliveries::list(db, "incident", &"owner".into())).unwrap();
        let other =
            pool.read_blocking(|db| crate::db::notices::deliveries::list(db, "another", &"owner".into())).unwrap();
        let mut states: Vec<_> = list.iter().chain(&other).map(|message| message.state.as_str()).collect();
        states.sort_unstable();
        assert_eq!(states, ["accepted", "failed"]);
    });
}

#[test]
fn only_a_message_that_is_over_is_cancelled() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        ring(pool, &server, 1);
        step(pool, later(0));
        let messages = sent(pool, later(0));
        let ids: Vec<String> = messages.iter().map(|message| message.id.clone()).collect();
        let cancel = |at| pool.write_blocking(|db| notice_messages::end_over(db, &ids, at)).unwrap();
        cancel(later(899));
        assert_eq!(channels_of(&sent(pool, later(899))), channels_of(&messages));
        cancel(later(86_400));
        assert!(sent(pool, later(86_400)).is_empty());
    });
}

#[test]
fn a_channel_that_cannot_be_read_holds_up_no_other_message() {
    testing::on_sqlite(|pool| {
        let server = furnish(pool);
        ring(pool, &server, 1);
        step(pool, later(0));
        testing::spoil(pool, "UPDATE channels SET created_at = 'no time' WHERE id = 'hook'");
        let load = LaneLoad { room: 100, ..LaneLoad::default() };
        let due = || pool.read_blocking(|db| notice_messages::due(db, later(0), ChannelLane::Unproven, &load)).unwrap();
        let read = due();
        let sendable: Vec<&str> = read.sendable.iter().map(|message| message.channel.id.as_str()).collect();
        assert_eq!((sendable, read.over.len(), read.unreadable.len()), (vec!["browser"], 0, 1));
        pool.write_blocking(|db| notice_messages::end_unreadable(db, &read.unreadable, later(0))).unwrap();
        assert_eq!((due().sendable.len(), due().unreadable.len()), (1, 0));
        let unreadable = Some("unreadable".to_owned());
        assert_eq!(listed(pool, "guest"), [("hook".to_owned(), "failed".to_owned(), unreadable)]);
    });
}

#[test]
fn messages_that_are_over_end_beside_a_notice_that_cannot_be_read() {
    testing::on_sqlite(|pool| {
        let server = furnish(pool);
        let add = |db: &mut Db| channels::insert(db, &channel("deaf", "deaf", ChannelKind::Gotify, "deaf"), 9);
        pool.write_blocking(add).unwrap().unwrap();
        ring(pool, &server, 1);
        step(pool, later(0));
        testing::spoil(pool, "UPDATE notices SET round_at = 'no time' WHERE user_id = 'guest'");
        let (at, load) = (later(86_400), LaneLoad { room: 100, ..LaneLoad::default() });
        let due = || pool.read_blocking(|db| notice_messages::due(db, at, ChannelLane::Unproven, &load)).unwrap();
        let read = due();
        assert_eq!((read.sendable.len(), read.over.len(), read.unreadable.len()), (0, 2, 1));
        let too_late = pool.write_blocking(|db| notice_messages::end_over(db, &read.over, at)).unwrap();
        let mut users: Vec<&str> = too_late.iter().map(|message| message.user.as_str()).collect();
        users.sort_unstable();
        assert_eq!((users, due().over.len()), (vec!["deaf", "owner"], 0));
    });
}

#[test]
fn an_emergency_is_over_with_its_raid_and_until_it_expires() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        ring(pool, &server, 1);
        step(pool, later(0));
        for message in sent(pool, later(0)) {
            let receipt = Some(format!("r{}", message.user_id));
            end(pool, &message, &DeliveryOutcome::Accepted { status: Some(200), receipt }, later(1));
        }
        let page = |at, after| pool.read_blocking(|db| emergencies::over(db, later(at), after, 1)).unwrap();
        let over = |at| {
            let (mut over, mut after) = (Vec::new(), None);
            loop {
                let Emergencies { over: of_page, next } = page(at, after);
                over.extend(of_page);
                match next {
                    Some(next) => after = Some(next),
                    None => return over,
                }
            }
        };
        assert_eq!(over(2), []);
        let acknowledge = |db: &mut Db| incidents::acknowledge(db, &server, "incident", &"owner".into(), later(3));
        pool.write_blocking(acknowledge).unwrap().unwrap();
        let [emergency] = &*over(180) else { panic!("{:?}", over(180)) };
        assert_eq!((&*emergency.channel_id, emergency.receipt.as_deref()), ("browser", Some("rowner")));
        assert_eq!(over(182), [], "it has ended by itself");
        let note_ended = |ended: &Emergency| pool.write_blocking(|db| emergencies::note_ended(db, ended)).unwrap();
        note_ended(&Emergency { receipt: Some("another".to_owned()), ..emergency.clone() });
        assert_eq!(over(4), std::slice::from_ref(emergency), "the message has begun this one beside it");
        note_ended(emergency);
        assert_eq!(over(4), []);
    });
}

#[test]
fn a_message_that_waited_until_its_raid_was_over_is_too_late_unless_its_user_acknowledged() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        let add = |db: &mut Db| channels::insert(db, &channel("deaf", "deaf", ChannelKind::Gotify, "deaf"), 9);
        pool.write_blocking(add).unwrap().unwrap();
        put_rules(pool, &server, "owner", &AlarmRules { rounds: 1, ..AlarmRules::default() });
        put_rules(pool, &server, "deaf", &AlarmRules { rounds: 1, ..AlarmRules::default() });
        ring(pool, &server, 1);
        step(pool, later(0));
        let waiting = sent(pool, later(0));
        let of = |channel: &str| waiting.iter().find(|message| message.channel_id == channel).unwrap().clone();
        let held = [of("browser"), of("deaf")];
        pool.write_blocking(|db| pass_over(db, &held, ChannelFault::Throttled, later(1))).unwrap();
        let acknowledge = |db: &mut Db| incidents::acknowledge(db, &server, "incident", &"deaf".into(), later(2));
        pool.write_blocking(acknowledge).unwrap().unwrap();
        fail(pool, &[of("hook")], 80_000);
        let ids: Vec<String> = waiting.iter().map(|message| message.id.clone()).collect();
        let too_late = pool.write_blocking(|db| notice_messages::end_over(db, &ids, later(86_400))).unwrap();
        let owners = TooLateMessage {
            incident: "incident".to_owned(),
            user: "owner".to_owned(),
            channel: "browser".to_owned(),
            kind: ChannelKind::WebPush,
        };
        assert_eq!(too_late, [owners]);
        let ended = |user| listed(pool, user).into_iter().map(|(_, state, reason)| (state, reason)).collect::<Vec<_>>();
        let [failed, cancelled] = ["failed", "cancelled"].map(str::to_owned);
        assert_eq!(ended("owner"), [(failed, Some("too_late".to_owned()))]);
        assert_eq!(ended("deaf"), [(cancelled.clone(), Some("throttled".to_owned()))], "acknowledged");
        assert_eq!(ended("guest"), [(cancelled, Some("unavailable".to_owned()))], "its attempts were counted");
    });
}

#[test]
fn a_message_that_cannot_be_read_holds_up_none_that_waits_for_its_origin() {
    testing::on_sqlite(|pool| {
        let server = furnish(pool);
        ring(pool, &server, 1);
        step(pool, later(0));
        let origins: Vec<String> = [ChannelKind::WebPush, ChannelKind::Webhook]
            .map(|kind| format!("{}https://example.com", kind.word()))
            .into();
        let held = || pool.read_blocking(|db| notice_messages::at_origins(db, later(0), &origins, 9)).unwrap();
        assert_eq!((channels_of(&held().waiting), held().unreadable), (vec!["browser", "hook"], vec![]));
        testing::spoil(pool, "UPDATE deliveries SET queued_at = 'no time' WHERE channel_id = 'hook'");
        assert_eq!((channels_of(&held().waiting), held().unreadable.len()), (vec!["browser"], 1));
        pool.write_blocking(|db| notice_messages::end_unreadable(db, &held().unreadable, later(0))).unwrap();
        assert_eq!((held().waiting.len(), held().unreadable.len()), (1, 0));
    });
}

#[test]
fn a_warning_of_a_channel_that_is_switched_off_does_not_wait_for_a_clock_that_was_set_back() {
    testing::on_each_database(|pool| {
        furnish(pool);
        let plan = |db: &mut Db| {
            use crate::db::schema::channels::{state, table, warn_at};
            let planned = (state.eq(ChannelState::Disabled.word()), warn_at.eq(later(3_600)));
            Ok(diesel::update(table.find("hook")).set(planned).execute(db)?)
        };
        pool.write_blocking(plan).unwrap();
        let back = later(-3_600);
        assert!(pool.read_blocking(|db| are_any_ahead(db, back)).unwrap());
        pool.write_blocking(|db| hasten_all(db, back)).unwrap();
        let due = pool.read_blocking(|db| disabled_channels::list_to_warn(db, back, 9)).unwrap();
        assert_eq!(due, [ChannelId::from("hook")]);
    });
}

#[test]
fn an_emergency_ends_with_its_channel_and_its_user() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        ring(pool, &server, 1);
        step(pool, later(0));
        for message in sent(pool, later(0)) {
            let receipt = Some(format!("r{}", message.user_id));
            end(pool, &message, &DeliveryOutcome::Accepted { status: Some(200), receipt }, later(1));
        }
        let receipts = |orphaned: Vec<OrphanedEmergency>| {
            orphaned.into_iter().map(|one| (one.channel.id, one.emergency.receipt.unwrap())).collect::<Vec<_>>()
        };
        let of_channel = |user: &str, channel: &str, at| {
            let read = |db: &mut Db| emergencies::of_channel(db, &user.into(), &channel.into(), later(at));
            receipts(pool.read_blocking(read).unwrap())
        };
        let owners = || vec![("browser".to_owned(), "rowner".to_owned())];
        assert_eq!((of_channel("owner", "browser", 2), of_channel("owner", "browser", 181)), (owners(), vec![]));
        assert_eq!((of_channel("guest", "browser", 2), of_channel("owner", "ntfy", 2)), (vec![], vec![]));
        let of_user = pool.read_blocking(|db| emergencies::of_user(db, &"owner".into(), later(2))).unwrap();
        assert_eq!(receipts(of_user), owners());
        let of_server = |id: &ServerId| {
            let mut all = receipts(pool.read_blocking(|db| emergencies::of_server(db, id, later(2))).unwrap());
            all.sort();
            all
        };
        let of_guest = ("hook".to_owned(), "rguest".to_owned());
        assert_eq!((of_server(&server), of_server(&"other".into())), ([owners(), vec![of_guest]].concat(), vec![]));

        let over = || pool.read_blocking(|db| emergencies::over(db, later(2), None, 9)).unwrap().over;
        assert_eq!(over(), []);
        let spoil = "UPDATE channels SET state = 'disabled' WHERE id = 'hook'";
        pool.write_blocking(|db| Ok(diesel::sql_query(spoil).execute(db)?)).unwrap();
        let over = over();
        assert_eq!(over.iter().map(|one| one.channel_id.as_str()).collect::<Vec<_>>(), ["hook"], "it is switched off");
    });
}

#[test]
fn a_notice_or_raid_that_cannot_be_read_holds_up_no_other_alarm() {
    testing::on_sqlite(|pool| {
        let server = furnish(pool);
        let spoil = |sql| testing::spoil(pool, sql);
        ring(pool, &server, 1);
        spoil("UPDATE notices SET round_at = 'no time' WHERE user_id = 'guest'");
        let made = steps(pool, later(0));
        let of_guest = |incident: &str| NoticeKey { incident: incident.to_owned(), user: "guest".into() };
        assert_eq!((made.notices, made.queued, made.ended), (2, 1, vec![of_guest("incident")]));
        let messages = sent(pool, later(0));
        assert_eq!(channels_of(&messages), ["browser"]);
        assert_eq!(steps(pool, later(0)), notice_steps::StepsMade::default(), "it has ended");
        spoil("DELETE FROM notices WHERE user_id = 'guest'");

        let write = testing::incident_write("another", 1);
        pool.write_blocking(|db| incidents::write(db, &server, &write)).unwrap();
        spoil("UPDATE incidents SET last_at = 'no time' WHERE id = 'another'");
        let made = steps(pool, later(60));
        assert_eq!((made.notices, made.queued, made.ended.len()), (3, 1, 2), "the owner's second step");
        assert!(made.ended.contains(&of_guest("another")));
    });
}

#[test]
fn a_message_that_was_passed_over_hastens_no_second_step() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        let steps = vec![at_seconds(0, "browser"), at_seconds(60, "ntfy"), at_seconds(600, "last")];
        let add = |db: &mut Db| channels::insert(db, &channel("last", "owner", ChannelKind::Gotify, "last"), 9);
        pool.write_blocking(add).unwrap().unwrap();
        put_rules(pool, &server, "owner", &AlarmRules { steps, ..AlarmRules::default() });
        for incident in ["incident", "another"] {
            let write = testing::incident_write(incident, 1);
            pool.write_blocking(|db| incidents::write(db, &server, &write)).unwrap();
        }
        step(pool, later(0));
        let waiting: Vec<_> = sent(pool, later(0)).into_iter().filter(|one| one.channel_id == "browser").collect();
        pool.write_blocking(|db| pass_over(db, &waiting, ChannelFault::Throttled, later(1))).unwrap();
        assert_eq!((step(pool, later(1)), waiting.len()), (2, 2), "by ntfy, about both");
        let planned = due_at_all(pool, "owner");
        assert!(planned.iter().all(|at| at.is_some_and(|at| at >= later(600))), "{planned:?}");
        fail(pool, &waiting[..1], 60);
        assert_eq!(due_at_all(pool, "owner"), planned, "a first attempt after that");
        let gone = DeliveryOutcome::Failed { status: Some(410), fault: ChannelFault::Gone, retry_at: None };
        end(pool, &waiting[0], &gone, later(2));
        assert_eq!(due_at_all(pool, "owner"), planned, "the others that wait for the channel");
    });
}
