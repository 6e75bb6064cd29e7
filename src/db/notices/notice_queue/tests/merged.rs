//! Notices of incidents that turned out to be parts of others.

use super::{
    acknowledged::{acknowledge, rung, said},
    *,
};
use crate::db::{alarms::emergencies, notices::merged_notices};

/// The alarm "incident" turned out to be a part of "whole".
pub(super) fn merge(pool: &Pool, server: &ServerId) {
    let mut write = testing::incident_write("whole", 2);
    write.merged = [("incident".to_owned(), "whole".to_owned())].into();
    pool.write_blocking(|db| incidents::write(db, server, &write)).unwrap();
}

#[test]
fn a_first_step_that_waits_is_no_later_for_a_part() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        let steps = vec![EscalationStep { after_seconds: 300, channels: vec!["browser".into()] }];
        put_rules(pool, &server, "owner", &AlarmRules { steps, ..AlarmRules::default() });
        pool.write_blocking(|db| incidents::write(db, &server, &testing::incident_write("whole", 1))).unwrap();
        assert_eq!((step(pool, later(0)), due_at(pool, "owner")), (1, Some(later(300))), "the guest's alone");
        let mut part = testing::incident_write("incident", 1);
        for (incident, _) in part.incidents.values_mut() {
            (incident.first_at, incident.last_at) = (later(60), later(60));
        }
        pool.write_blocking(|db| incidents::write(db, &server, &part)).unwrap();
        merge(pool, &server);
        assert_eq!(due_at_all(pool, "owner"), [Some(later(300))]);
        step(pool, later(300));
        let of_owner: Vec<_> =
            sent(pool, later(300)).into_iter().filter(|message| message.user_id == "owner").collect();
        assert_eq!(channels_of(&of_owner), ["browser"]);
    });
}

#[test]
fn what_repeats_of_a_part_ends_although_the_whole_has_rung_by_the_same_channel() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        pool.write_blocking(|db| incidents::write(db, &server, &testing::incident_write("whole", 1))).unwrap();
        let rung = rung(pool, &server);
        let taken = |message: &NoticeDelivery| DeliveryOutcome::Accepted {
            status: Some(200),
            receipt: Some(message.id.clone()),
        };
        let is_under_way =
            |message: &&NoticeDelivery| message.incident_id == "incident" && message.channel_id == "hook";
        for message in rung.iter().filter(|message| !is_under_way(message)) {
            end(pool, message, &taken(message), later(1));
        }
        merge(pool, &server);
        let ended: Vec<EndedAttempt> =
            rung.iter().filter(is_under_way).map(|message| attempt(message.clone(), taken(message))).collect();
        assert_eq!(ended.len(), 1);
        let store = |db: &mut Db| {
            merged_notices::adopt(db, &ended, later(2))?;
            note_outcomes(db, &ended, later(2))?;
            emergencies::unkept(db, &ended, later(2))
        };
        assert_eq!(pool.write_blocking(store).unwrap(), []);
        let over = || pool.read_blocking(|db| emergencies::over(db, later(3), None, 100)).unwrap().over;
        assert_eq!(over(), [], "the raid goes on");
        ["owner", "guest"].into_iter().for_each(|user| acknowledge(pool, &server, user, later(3)));
        let mut receipts: Vec<String> = over().into_iter().filter_map(|emergency| emergency.receipt).collect();
        let mut all: Vec<String> = rung.into_iter().map(|message| message.id).collect();
        receipts.sort_unstable();
        all.sort_unstable();
        assert_eq!((all.len(), receipts), (6, all));
        let listed =
            pool.read_blocking(|db| crate::db::notices::deliveries::list(db, "whole", &"owner".into())).unwrap();
        assert_eq!(listed.len(), 2, "of the rounds alone");
    });
}

#[test]
fn an_acknowledgement_that_was_said_is_said_once_more_for_a_part_that_rang_since() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        pool.write_blocking(|db| incidents::write(db, &server, &testing::incident_write("whole", 1))).unwrap();
        step(pool, later(0));
        for message in sent(pool, later(0)) {
            end(pool, &message, &ACCEPTED, later(1));
        }
        for user in ["owner", "guest"] {
            let acknowledge = |db: &mut Db| incidents::acknowledge(db, &server, "whole", &user.into(), later(2));
            pool.write_blocking(acknowledge).unwrap().unwrap();
        }
        let before = said(pool, later(2));
        assert_eq!(channels_of(&before), ["browser", "hook"]);
        for message in &before {
            end(pool, message, &ACCEPTED, later(3));
        }
        let rung = rung(pool, &server);
        let by = |channel: &str| rung.iter().find(|message| message.channel_id == channel).cloned().unwrap();
        end(pool, &by("browser"), &ACCEPTED, later(4));
        merge(pool, &server);
        assert_eq!(channels_of(&said(pool, later(5))), ["browser"], "the guest's was not taken yet");
        let ended = [attempt(by("hook"), ACCEPTED)];
        let store = |db: &mut Db| {
            merged_notices::adopt(db, &ended, later(6))?;
            note_outcomes(db, &ended, later(6))
        };
        pool.write_blocking(store).unwrap();
        let again = said(pool, later(6));
        assert_eq!(channels_of(&again), ["browser", "hook"]);
        let are_new = again.iter().all(|message| before.iter().all(|known| known.id != message.id));
        assert!(are_new, "a receiver that has the one drops what has its id: {again:?}");
    });
}

#[test]
fn an_acknowledgement_that_is_under_way_is_said_once_more_for_a_part_that_is_found_meanwhile() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        pool.write_blocking(|db| incidents::write(db, &server, &testing::incident_write("whole", 1))).unwrap();
        for message in rung(pool, &server) {
            end(pool, &message, &ACCEPTED, later(1));
        }
        let acknowledge = |db: &mut Db| incidents::acknowledge(db, &server, "whole", &"owner".into(), later(2));
        pool.write_blocking(acknowledge).unwrap().unwrap();
        let under_way = said(pool, later(2));
        assert_eq!(channels_of(&under_way), ["browser"]);
        merge(pool, &server);
        end(pool, &under_way[0], &ACCEPTED, later(3));
        let again = said(pool, later(4));
        assert_eq!(channels_of(&again), ["browser"], "the one under way has named no part");
        assert_ne!(again[0].id, under_way[0].id, "a receiver that has the one drops what has its id");
        end(pool, &again[0], &ACCEPTED, later(5));
        assert_eq!(said(pool, later(6)), []);
    });
}
