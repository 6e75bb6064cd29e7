//! Queries of channels, and of the messages that wake users.

use super::statement_plans::{plan, prepare_plans, statements};
use crate::{
    db::{
        alarms::{
            emergencies::{self, OrphanedEmergency},
            incidents, late_notices, new_event_notices, notice_messages, notice_steps, reachable_watchers,
            spoken_alarms,
        },
        engine::pool::Db,
        notices::{
            alarm_rules, channels, count_updates, deliveries, disabled_channels, merged_notices, new_notices,
            notice_queue::{self, DeliveryOutcome, EndedAttempt, NoticeDelivery},
            waiting_notices,
        },
        paired_servers,
        testing::{self, now},
        users,
    },
    domain::{
        channels::{
            channel_lane::{ChannelLane, LaneLoad},
            escalation::AlarmRules,
            spoken_alarm::{SpokenLine, SpokenState},
            user_channel::{ChannelFault, ChannelKind},
        },
        ids::{ServerId, UserId},
        timeline::TimelineOwner,
        world_event::EventKind,
    },
};

/// Queries of the messages that wake users.
pub fn make(db: &mut Db, user: &UserId, server: &ServerId, key: &str) {
    let channel = channels::tests::channel(key, user.as_str(), ChannelKind::Ntfy, key);
    channels::insert(db, &channel, 9).unwrap().unwrap();
    let browser = channels::tests::channel("browser", user.as_str(), ChannelKind::WebPush, "browser");
    channels::insert(db, &browser, 9).unwrap().unwrap();
    channels::replace_target(db, &browser).unwrap();
    assert!(channels::delete(db, user, &browser.id()).unwrap());
    let rules = AlarmRules { kinds: [EventKind::Raid, EventKind::Death].into(), ..AlarmRules::default() };
    alarm_rules::put(db, server, user, &rules).unwrap();
    channels::list(db, user).unwrap();
    channels::purge_gone_browsers(db, now()).unwrap();
    disabled_channels::list_to_warn(db, now(), 9).unwrap();
    disabled_channels::put_off(db, &key.into(), now()).unwrap();
    disabled_channels::warn_next(db, &key.into(), now(), true, now()).unwrap();
    channels::insert(db, &channels::tests::channel("other", user.as_str(), ChannelKind::Ntfy, "other"), 1)
        .unwrap()
        .unwrap_err();
    channels::reachable(db, std::slice::from_ref(user)).unwrap();
    channels::count_older(db, 2).unwrap();
    channels::list_older(db, 2, "", 9).unwrap();
    alarm_rules::get(db, server, user).unwrap();
    new_notices::open(db, server, key, now()).unwrap();
    late_notices::open(db, user, now()).unwrap();
    merged_notices::merge(db, key, "other").unwrap();
    merged_notices::parts_among(db, &[key.to_owned()].into()).unwrap();
    incidents::parts(db, &[key].into()).unwrap();
    let death = testing::timeline_entry("death", "death", now());
    new_event_notices::open(db, &TimelineOwner::Server(server.clone()), &death).unwrap();
    let paired = testing::pairing(user.as_str());
    assert!(alarm_rules::are_any_at(db, &paired.address, paired.port).unwrap());
    paired_servers::at(db, key, 1).unwrap();
    deliveries::list(db, key, user).unwrap();
    notice_queue::is_due(db, now()).unwrap();
    notice_queue::are_any_ahead(db, now()).unwrap();
    notice_queue::hasten_all(db, now()).unwrap();
    channels::aimed(db, &[(key, key)]).unwrap();
    notice_steps::make_due(db, now(), 9).unwrap();
    notice_queue::stored(db, &[key.to_owned()]).unwrap();
    let (incident_id, user_id) = ("other".to_owned(), user.to_string());
    let sent = NoticeDelivery { incident_id, user_id, ..ended_attempt(key).delivery };
    notice_queue::passed_by_steps(db, std::slice::from_ref(&sent), now()).unwrap();
    notice_queue::insert_sent(db, &[sent], now()).unwrap();
    reachable_watchers::page(db, None, 9).unwrap();
    reachable_watchers::page(db, Some(server), 9).unwrap();
    reachable_watchers::of(db, &[server.to_string()].into()).unwrap();
    let name = vec![key.to_owned()];
    let (channels, users, hosts, origins) = (name.clone(), name.clone(), name.clone(), name.clone());
    let load = LaneLoad { room: 9, channels, users, hosts, origins, messages: name };
    for lane in ChannelLane::ALL {
        notice_messages::due(db, now(), lane, &load).unwrap();
    }
    notice_queue::note_outcomes(db, &[ended_attempt(key)], now()).unwrap();
    notice_queue::queue_acknowledged(db, key, user, now()).unwrap();
    count_updates::queue(db, key, now()).unwrap();
    emergencies::over(db, now(), None, 9).unwrap();
    let begun = OrphanedEmergency::begun_by(&ended_attempt(key), now()).unwrap();
    emergencies::note_ended(db, &begun.emergency).unwrap();
    emergencies::of_channel(db, user, &key.into(), now()).unwrap();
    emergencies::unkept(db, &[ended_attempt(key)], now()).unwrap();
    emergencies::delete_channel(db, user, &"absent".into(), now()).unwrap();
    emergencies::of_user(db, user, now()).unwrap();
    emergencies::of_server(db, server, now()).unwrap();
    notice_messages::at_origins(db, now(), &load.origins, 9).unwrap();
    notice_queue::pass_over(db, &[ended_attempt(key).delivery], ChannelFault::Throttled, now()).unwrap();
    notice_queue::note_channel_failure(db, &key.into(), key, ChannelFault::Gone, now()).unwrap();
    notice_queue::end_alone(db, &ended_attempt(key), now()).unwrap();
    channels::note_gone(db, (key, key), now()).unwrap();
    notice_messages::end_unreadable(db, &[key.to_owned()], now()).unwrap();
    notice_messages::end_over(db, &[key.to_owned()], now()).unwrap();
    incidents::whole(db, key).unwrap();
    notice_queue::server_of(db, key, user).unwrap();
    late_notices::hasten_unsent(db, server, user, now()).unwrap();
    let line = SpokenLine { state: SpokenState::Queued, fault: None, queued_at: now(), ended_at: None };
    spoken_alarms::put(db, server, key, line).unwrap();
    spoken_alarms::get(db, server, key).unwrap();
    spoken_alarms::newest(db, server).unwrap();
    spoken_alarms::purge(db, now()).unwrap();
    users::find_by_account(db, &key.into()).unwrap();
    waiting_notices::read(db).unwrap();
    notice_queue::purge(db, now()).unwrap();
}

fn ended_attempt(key: &str) -> EndedAttempt {
    let (id, incident_id, user_id, channel_id) = (key.to_owned(), key.to_owned(), key.to_owned(), key.to_owned());
    let delivery = NoticeDelivery { id, incident_id, user_id, channel_id, round: 0, attempts: 0, queued_at: now() };
    let outcome = DeliveryOutcome::Accepted { status: Some(200), receipt: Some(key.to_owned()) };
    EndedAttempt { delivery, channel: channels::tests::channel(key, key, ChannelKind::Pushover, key), outcome }
}

#[test]
fn an_event_counts_its_users_notices_of_an_hour_only() {
    testing::on_each_database(|pool| {
        testing::user(pool, "user");
        let (user, server) = (UserId::from("user"), testing::server(pool, "user", "server").id);
        let channel = channels::tests::channel("channel", "user", ChannelKind::Ntfy, "target");
        let rules = AlarmRules { kinds: [EventKind::Death].into(), ..AlarmRules::default() };
        let death = testing::timeline_entry("death", "death", now());
        pool.write_blocking(|db| {
            channels::insert(db, &channel, 9)?.unwrap();
            alarm_rules::put(db, &server, &user, &rules)?;
            let open =
                |db: &mut Db| new_event_notices::open(db, &TimelineOwner::Server(server.clone()), &death).unwrap();
            let statements = statements(db, open);
            prepare_plans(db);
            let is_count = |statement: &&String| statement.contains("COUNT") && statement.contains("notices");
            let counts: Vec<&String> = statements.iter().filter(is_count).collect();
            assert_eq!(counts.len(), 1, "{statements:?}");
            let plan = plan(db, counts[0]).join("\n");
            assert!(plan.contains("notices_of_user") && plan.contains("opened_at"), "{plan}");
            Ok(())
        })
        .unwrap();
    });
}
