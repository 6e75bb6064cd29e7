//! Messages that say that the user has acknowledged.

use super::*;

/// The alarm went off, and all of its messages that are due then were taken; gives them.
pub(super) fn rung(pool: &Pool, server: &ServerId) -> Vec<NoticeDelivery> {
    let first: Vec<ChannelId> = vec!["browser".into(), "ntfy".into()];
    let steps = vec![EscalationStep { after_seconds: 0, channels: first }];
    put_rules(pool, server, "owner", &AlarmRules { steps, ..AlarmRules::default() });
    ring(pool, server, 1);
    step(pool, later(0));
    sent(pool, later(0))
}

/// The messages that are due then and say that the user has acknowledged.
pub(super) fn said(pool: &Pool, at: Timestamp) -> Vec<NoticeDelivery> {
    sent(pool, at).into_iter().filter(NoticeDelivery::is_acknowledgement).collect()
}

/// The user acknowledges the alarm, or the raid that it is a part of.
pub(super) fn acknowledge(pool: &Pool, server: &ServerId, user: &str, at: Timestamp) {
    pool.write_blocking(|db| incidents::acknowledge(db, server, "incident", &user.into(), at)).unwrap().unwrap();
}

#[test]
fn what_rang_and_has_a_word_for_it_hears_of_the_acknowledgement_once() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        for message in rung(pool, &server) {
            end(pool, &message, &ACCEPTED, later(1));
        }
        acknowledge(pool, &server, "owner", later(2));
        acknowledge(pool, &server, "owner", later(3));
        let said = sent(pool, later(3));
        assert_eq!(channels_of(&said), ["browser"], "ntfy has no word for it, and the guest's webhook rings on");
        assert!(said[0].is_acknowledgement());
        end(pool, &said[0], &ACCEPTED, later(4));
        acknowledge(pool, &server, "owner", later(5));
        assert_eq!(sent(pool, later(5)), []);
        let listed =
            pool.read_blocking(|db| crate::db::notices::deliveries::list(db, "incident", &"owner".into())).unwrap();
        assert_eq!(listed.len(), 2, "the messages of the alarm alone");

        acknowledge(pool, &server, "guest", later(6));
        assert_eq!(channels_of(&sent(pool, later(6))), ["hook"]);
        assert_eq!(channels_of(&sent(pool, later(3_600))), ["hook"], "a program wants it late");
    });
}

#[test]
fn a_message_that_was_on_its_way_is_followed_by_the_acknowledgement_and_what_never_rang_by_none() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        let rung = rung(pool, &server);
        acknowledge(pool, &server, "owner", later(1));
        let of_owner = rung.iter().filter(|message| message.user_id == "owner");
        assert_eq!(channels_of(&sent(pool, later(1))), ["hook"], "none of the owner's was taken yet");
        let browser = of_owner.clone().find(|message| message.channel_id == "browser").unwrap();
        end(pool, browser, &ACCEPTED, later(2));
        let said: Vec<_> = sent(pool, later(2)).into_iter().filter(|message| message.user_id == "owner").collect();
        assert_eq!(channels_of(&said), ["browser"]);
        let failed =
            DeliveryOutcome::Failed { status: Some(503), fault: ChannelFault::Unavailable, retry_at: Some(later(9)) };
        end(pool, &said[0], &failed, later(3));
        assert_eq!(sent(pool, later(9)).iter().filter(|message| message.is_acknowledgement()).count(), 1);
        assert_eq!(sent(pool, later(3_600)).iter().filter(|message| message.is_acknowledgement()).count(), 0);
    });
}

#[test]
fn a_channel_that_is_gone_since_is_not_tried_again() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        for message in rung(pool, &server) {
            end(pool, &message, &ACCEPTED, later(1));
        }
        let fail = |db: &mut Db| {
            let browser = channels::get(db, &"browser".into())?.expect("it is there");
            note_channel_failure(db, &browser.id(), &browser.target_hash, ChannelFault::Gone, later(2))?;
            channels::get(db, &browser.id())
        };
        let browser = pool.write_blocking(fail).unwrap().expect("it is listed");
        assert_eq!(browser.state, ChannelState::Gone.word());
        acknowledge(pool, &server, "owner", later(3));
        assert_eq!(sent(pool, later(3)), []);
    });
}

#[test]
fn a_channel_without_a_word_for_it_is_not_asked_again() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        for message in rung(pool, &server) {
            end(pool, &message, &ACCEPTED, later(1));
        }
        acknowledge(pool, &server, "guest", later(2));
        let [said] = &sent(pool, later(2))[..] else { panic!("the webhook's alone") };
        end(pool, said, &DeliveryOutcome::Unsaid, later(3));
        assert_eq!(sent(pool, later(3_600)), []);
        let channel = pool.read_blocking(|db| channels::get(db, &"hook".into())).unwrap().unwrap();
        assert_eq!(channel.accepted_at, Some(later(1)), "nothing was sent");
    });
}

/// The whole has rung by no channel of the owner, and a part by the browser, and by the guest's webhook, which is under way
/// when they become one; gives that message.
fn merged(pool: &Pool, server: &ServerId) -> NoticeDelivery {
    let failed = DeliveryOutcome::Failed { status: Some(400), fault: ChannelFault::Rejected, retry_at: None };
    pool.write_blocking(|db| incidents::write(db, server, &testing::incident_write("whole", 1))).unwrap();
    step(pool, later(0));
    for message in sent(pool, later(0)) {
        end(pool, &message, &failed, later(0));
    }
    let part = rung(pool, server);
    let part = |channel: &str| {
        part.iter().find(|one| one.incident_id == "incident" && one.channel_id == channel).cloned().unwrap()
    };
    end(pool, &part("browser"), &ACCEPTED, later(1));
    let mut write = testing::incident_write("whole", 2);
    write.merged = [("incident".to_owned(), "whole".to_owned())].into();
    pool.write_blocking(|db| incidents::write(db, server, &write)).unwrap();
    part("hook")
}

#[test]
fn what_a_part_rang_hears_of_the_acknowledgement_of_the_whole_and_of_its_parts() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        let under_way = merged(pool, &server);
        acknowledge(pool, &server, "owner", later(2));
        acknowledge(pool, &server, "guest", later(2));
        let said = |at| {
            let due = |lane| {
                let load = LaneLoad { room: 100, ..LaneLoad::default() };
                pool.read_blocking(|db| notice_messages::due(db, at, lane, &load)).unwrap().sendable
            };
            let due = ChannelLane::ALL.into_iter().flat_map(due);
            let said = due.filter(|message| message.delivery.is_acknowledgement());
            said.map(|message| (message.delivery.incident_id, message.delivery.channel_id, message.parts))
                .collect::<Vec<_>>()
        };
        let of = |channel: &str| ("whole".to_owned(), channel.to_owned(), vec!["incident".to_owned()]);
        assert_eq!(said(later(2)), [of("browser")], "the guest's was not taken yet");
        let ended = [attempt(under_way, ACCEPTED)];
        let store = |db: &mut Db| {
            crate::db::notices::merged_notices::adopt(db, &ended, later(3))?;
            note_outcomes(db, &ended, later(3))
        };
        pool.write_blocking(store).unwrap();
        let mut all = said(later(3));
        all.sort_unstable();
        assert_eq!(all, [of("browser"), of("hook")]);
    });
}

#[test]
fn what_the_whole_rang_hears_of_the_acknowledgement_of_a_part() {
    testing::on_each_database(|pool| {
        let server = furnish(pool);
        pool.write_blocking(|db| incidents::write(db, &server, &testing::incident_write("whole", 1))).unwrap();
        for message in rung(pool, &server) {
            end(pool, &message, &ACCEPTED, later(1));
        }
        acknowledge(pool, &server, "owner", later(2));
        let of_part = sent(pool, later(2));
        assert_eq!((channels_of(&of_part), &*of_part[0].incident_id), (vec!["browser"], "incident"));
        let mut write = testing::incident_write("whole", 2);
        write.merged = [("incident".to_owned(), "whole".to_owned())].into();
        pool.write_blocking(|db| incidents::write(db, &server, &write)).unwrap();
        let of_whole = sent(pool, later(3));
        assert_eq!((channels_of(&of_whole), &*of_whole[0].incident_id), (vec!["browser"], "whole"));
        assert!(of_whole[0].is_acknowledgement());
    });
}
