//! When raids are over for their users.

use super::*;

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
