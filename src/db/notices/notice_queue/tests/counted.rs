//! Messages that say how often an alarm went off.

use super::*;
use crate::db::notices::count_updates::UPDATED;

/// The alarm goes off for this time, at this second.
fn ring_at(pool: &Pool, server: &ServerId, count: u32, second: i64) {
    let mut write = testing::incident_write("incident", count);
    for (incident, _) in write.incidents.values_mut() {
        incident.last_at = later(second);
    }
    pool.write_blocking(|db| incidents::write(db, server, &write)).unwrap();
}

/// The first messages were taken at once.
fn rung(pool: &Pool, server: &ServerId) {
    ring_at(pool, server, 1, 0);
    step(pool, later(0));
    for message in sent(pool, later(0)) {
        end(pool, &message, &ACCEPTED, later(0));
    }
}

/// The channels by which the count is said at this second.
fn said(pool: &Pool, second: i64) -> Vec<NoticeDelivery> {
    sent(pool, later(second)).into_iter().filter(|message| message.round == UPDATED).collect()
}

#[test]
fn a_browser_that_shows_the_alarm_is_sent_its_count_half_a_minute_apart() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        rung(pool, &server);
        assert!(said(pool, 60).is_empty(), "it went off once");
        for (count, second) in [(2, 12), (3, 14), (4, 16)] {
            ring_at(pool, &server, count, second);
        }
        assert!(said(pool, 29).is_empty());
        let [first] = &said(pool, 30)[..] else { panic!("the guest has a webhook alone") };
        assert_eq!((&*first.channel_id, first.queued_at), ("browser", later(12)));
        assert!(!pool.read_blocking(|db| are_any_ahead(db, later(16))).unwrap(), "no clock was set back");
        assert!(first.is_aside() && !first.is_acknowledgement());
        end(pool, first, &ACCEPTED, later(31));
        assert!(said(pool, 90).is_empty(), "there is no news");
        ring_at(pool, &server, 5, 45);
        assert!(said(pool, 60).is_empty());
        assert_eq!(said(pool, 61).len(), 1, "half a minute after the one before");
        let listed =
            pool.read_blocking(|db| crate::db::notices::deliveries::list(db, "incident", &"owner".into())).unwrap();
        assert_eq!(listed.len(), 1, "the message of the alarm alone");
    });
}

#[test]
fn no_count_is_said_by_one_who_shows_nothing_nor_once_there_is_something_better_to_say() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        ring_at(pool, &server, 1, 0);
        step(pool, later(0));
        ring_at(pool, &server, 2, 12);
        assert!(said(pool, 42).is_empty(), "the first message was not taken");
        let first = sent(pool, later(42)).into_iter().find(|message| message.channel_id == "browser").unwrap();
        end(pool, &first, &ACCEPTED, later(43));
        assert!(said(pool, 80).is_empty(), "it had the count");

        let steps = vec![EscalationStep { after_seconds: 0, channels: vec!["browser".into()] }];
        put_rules(pool, &server, "owner", &AlarmRules { steps, ..AlarmRules::default() });
        ring_at(pool, &server, 3, 85);
        assert_eq!(said(pool, 115).len(), 1);
        step(pool, later(116));
        pool.write_blocking(|db| hasten_all(db, later(116))).unwrap();
        step(pool, later(116));
        assert!(said(pool, 116).is_empty(), "the next round says it aloud");
        for message in sent(pool, later(116)) {
            end(pool, &message, &ACCEPTED, later(116));
        }
        ring_at(pool, &server, 4, 130);
        assert_eq!(said(pool, 146).len(), 1);
        pool.write_blocking(|db| incidents::acknowledge(db, &server, "incident", &"owner".into(), later(147))).unwrap();
        assert!(said(pool, 148).is_empty());
        ring_at(pool, &server, 5, 160);
        assert!(said(pool, 200).is_empty(), "acknowledged");
    });
}

#[test]
fn a_browser_that_shows_each_message_beside_the_one_before_is_spared() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        let stacks = |db: &mut Db| {
            let phone = channel_rows::table.find("browser");
            Ok(diesel::update(phone).set(channel_rows::host.eq("web.push.apple.com")).execute(db)?)
        };
        assert_eq!(pool.write_blocking(stacks).unwrap(), 1);
        rung(pool, &server);
        ring_at(pool, &server, 2, 12);
        assert!(said(pool, 60).is_empty());
    });
}
