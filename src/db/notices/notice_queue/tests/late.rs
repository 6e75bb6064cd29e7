//! Channels and rules that come while an alarm goes on.

use super::*;

fn add(pool: &Pool, user: &str, id: &str, at: Timestamp) {
    let channel = channel(id, user, ChannelKind::Ntfy, id);
    let insert = |db: &mut Db| {
        channels::insert(db, &channel, 9)?.unwrap();
        late_notices::open(db, &user.into(), at)
    };
    pool.write_blocking(insert).unwrap();
}

/// The message of the guest's webhook, which is sent then.
fn hook(pool: &Pool, at: i64) -> NoticeDelivery {
    sent(pool, later(at)).into_iter().find(|message| message.channel_id == "hook").unwrap()
}

const REFUSED: DeliveryOutcome =
    DeliveryOutcome::Failed { status: Some(403), fault: ChannelFault::Refused, retry_at: None };

#[test]
fn a_channel_that_is_added_rings_when_the_only_one_was_gone_or_failed() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        let rules = AlarmRules { rounds: 1, ..AlarmRules::default() };
        put_rules(pool, &server, "guest", &rules);
        ring(pool, &server, 1);
        pool.write_blocking(|db| Ok(diesel::delete(crate::db::schema::channels::table.find("hook")).execute(db)?))
            .unwrap();
        step(pool, later(0));
        assert_eq!(due_at(pool, "guest"), None, "no channel is left");
        add(pool, "guest", "second", later(10));
        assert_eq!(due_at(pool, "guest"), Some(later(10)));
        step(pool, later(10));
        let messages = sent(pool, later(10));
        let second = messages.iter().find(|message| message.channel_id == "second").unwrap();
        end(pool, second, &REFUSED, later(11));
        step(pool, later(11));
        assert_eq!(due_at(pool, "guest"), None, "there is one round");
        add(pool, "guest", "third", later(20));
        step(pool, later(20));
        let messages = sent(pool, later(20));
        let of_guest: Vec<_> = messages.iter().filter(|message| message.user_id == "guest").collect();
        assert_eq!(channels_of_guest(&of_guest), [("third", 0)], "a step of the only round");
        assert_eq!(due_at(pool, "guest"), None);
    });
}

fn channels_of_guest<'a>(messages: &[&'a NoticeDelivery]) -> Vec<(&'a str, i32)> {
    messages.iter().map(|message| (message.channel_id.as_str(), message.round)).collect()
}

#[test]
fn a_channel_that_works_again_after_the_last_round_has_the_message_of_that_round_once_more() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        let add_other = |db: &mut Db| channels::insert(db, &channel("other", "guest", ChannelKind::Gotify, "other"), 9);
        pool.write_blocking(add_other).unwrap().unwrap();
        put_rules(pool, &server, "guest", &AlarmRules { rounds: 1, ..AlarmRules::default() });
        ring(pool, &server, 1);
        step(pool, later(0));
        end(pool, &hook(pool, 0), &REFUSED, later(1));
        step(pool, later(1));
        let of_guest = |at| {
            let messages = sent(pool, later(at));
            messages.into_iter().filter(|message| message.user_id == "guest").collect::<Vec<_>>()
        };
        end(pool, &of_guest(1)[0], &REFUSED, later(2));
        assert_eq!((due_at(pool, "guest"), of_guest(3)), (None, Vec::new()));
        let works = |db: &mut Db| {
            channels::note_accepted(db, &[("hook", "hook")], later(20))?;
            late_notices::open(db, &"guest".into(), later(20))
        };
        pool.write_blocking(works).unwrap();
        step(pool, later(20));
        let again = of_guest(20);
        assert_eq!(channels_of_guest(&again.iter().collect::<Vec<_>>()), [("hook", 0)], "the other one still fails");
        assert_eq!((again[0].attempts, due_at(pool, "guest")), (0, None), "no second round");
        end(pool, &again[0], &ACCEPTED, later(21));
        pool.write_blocking(works).unwrap();
        assert_eq!(of_guest(22), [], "the guest was reached");
    });
}

#[test]
fn an_alarm_that_cannot_be_read_holds_up_no_channel_that_is_added() {
    testing::on_sqlite(|pool| {
        let server = furnish(pool);
        let spoil = |sql| testing::spoil(pool, sql);
        for incident in ["another", "incident", "third"] {
            let write = testing::incident_write(incident, 1);
            pool.write_blocking(|db| incidents::write(db, &server, &write)).unwrap();
        }
        step(pool, later(0));
        spoil("UPDATE incidents SET first_at = 'no time' WHERE id = 'another'");
        spoil("UPDATE deliveries SET queued_at = 'no time' WHERE incident_id = 'third' AND user_id = 'guest'");
        add(pool, "guest", "second", later(10));
        add(pool, "deaf", "first", later(10));
        let due = |user: &str| -> Vec<(String, Option<Timestamp>)> {
            let of_user = |db: &mut Db| {
                let rows = notices::table.filter(notices::user_id.eq(user)).order(notices::incident_id);
                Ok(rows.select((notices::incident_id, notices::due_at)).load(db)?)
            };
            pool.read_blocking(of_user).unwrap()
        };
        let at = |incident: &str, at| (incident.to_owned(), Some(later(at)));
        assert_eq!(due("deaf"), [at("incident", 10), at("third", 10)]);
        assert_eq!(due("guest"), [at("another", 180), at("incident", 10), at("third", 180)]);
    });
}

#[test]
fn a_round_that_waits_for_its_time_begins_when_nothing_of_the_last_is_on_its_way() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        ring(pool, &server, 1);
        step(pool, later(0));
        end(pool, &hook(pool, 0), &REFUSED, later(1));
        assert_eq!(due_at(pool, "guest"), Some(later(180)), "the next round");
        pool.write_blocking(|db| late_notices::open(db, &"guest".into(), later(20))).unwrap();
        step(pool, later(20));
        let again = hook(pool, 20);
        assert_eq!(again.round, 1);
        end(pool, &again, &ACCEPTED, later(21));
        let planned = due_at(pool, "guest");
        add(pool, "guest", "second", later(30));
        assert_eq!(due_at(pool, "guest"), planned, "the guest was reached");
    });
}

#[test]
fn rules_that_are_switched_on_ring_while_the_alarm_goes_on() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        let off = AlarmRules { enabled: false, ..AlarmRules::default() };
        put_rules(pool, &server, "guest", &off);
        ring(pool, &server, 1);
        step(pool, later(0));
        assert_eq!(due_at(pool, "guest"), None);
        put_rules(pool, &server, "guest", &AlarmRules::default());
        let hasten =
            |at| pool.write_blocking(|db| late_notices::hasten_unsent(db, &server, &"guest".into(), at)).unwrap();
        hasten(later(901));
        assert_eq!(due_at(pool, "guest"), None, "the alarm is quiet");
        hasten(later(30));
        step(pool, later(30));
        assert_eq!(hook(pool, 30).round, 0);
        let planned = due_at(pool, "guest");
        hasten(later(40));
        assert_eq!(due_at(pool, "guest"), planned, "a message is on its way");
    });
}

#[test]
fn what_was_sent_early_by_rules_from_before_waits_for_its_outcome() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        ring(pool, &server, 1);
        put_rules(pool, &server, "owner", &AlarmRules { enabled: false, ..AlarmRules::default() });
        assert_eq!(step(pool, later(0)), 1, "the guest's");
        let early = [NoticeDelivery::untried("incident", &"owner".into(), &"browser".into(), 0, later(0))];
        let passed = pool.read_blocking(|db| passed_by_steps(db, &early, later(1))).unwrap();
        assert_eq!(passed, early);
        pool.write_blocking(|db| insert_sent(db, &passed, later(1))).unwrap();
        assert_eq!(channels_of(&sent(pool, later(2))), ["hook"], "another node sends it no second time");
        end(pool, &early[0], &ACCEPTED, later(2));
        assert_eq!(channels_of(&sent(pool, later(61))), ["hook"]);
    });
}
