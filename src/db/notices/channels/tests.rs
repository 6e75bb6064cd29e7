use super::*;
use crate::db::{
    engine::pool::Pool,
    testing::{self, later, now},
};

/// A channel of this user to this target.
pub fn channel(id: &str, user: &str, kind: ChannelKind, target: &str) -> StoredChannel {
    StoredChannel {
        id: id.to_owned(),
        user_id: user.to_owned(),
        kind: kind.word().to_owned(),
        name: "Phone".to_owned(),
        host: "example.com".to_owned(),
        target_hash: target.to_owned(),
        sealed: b"sealed".to_vec(),
        key_version: 1,
        state: ChannelState::Active.word().to_owned(),
        reason: None,
        failing_since: None,
        accepted_at: None,
        created_at: now(),
        failures: 0,
        origin: "https://example.com".to_owned(),
    }
}

fn add(pool: &Pool, channel: &StoredChannel) -> Result<(), ChannelNotAdded> {
    pool.write_blocking(|db| insert(db, channel, 3)).unwrap().map(drop)
}

fn ids(pool: &Pool, user: &str) -> Vec<String> {
    let channels = pool.read_blocking(|db| list(db, &user.into())).unwrap();
    channels.into_iter().map(|channel| channel.id).collect()
}

#[test]
fn a_user_has_each_target_once_and_a_browser_is_of_one_account() {
    testing::on_each_database(|pool| {
        for user in ["user", "other"] {
            testing::user(pool, user);
        }
        let (hook, phone) = (ChannelKind::Webhook, ChannelKind::WebPush);
        assert_eq!(add(pool, &channel("a", "user", hook, "1")), Ok(()));
        assert_eq!(add(pool, &channel("b", "user", hook, "1")), Err(ChannelNotAdded::Known));
        assert_eq!(add(pool, &channel("c", "other", hook, "1")), Ok(()));
        assert_eq!(add(pool, &channel("d", "user", phone, "2")), Ok(()));
        assert_eq!(add(pool, &channel("e", "user", hook, "3")), Ok(()));
        assert_eq!(add(pool, &channel("f", "user", hook, "4")), Err(ChannelNotAdded::LimitReached));
        assert_eq!(add(pool, &channel("g", "other", phone, "2")), Ok(()));
        assert_eq!(
            (ids(pool, "user"), ids(pool, "other")),
            (vec!["a".into(), "e".into()], vec!["c".into(), "g".into()])
        );
    });
}

#[test]
fn a_browser_with_another_subscription_keeps_its_channel() {
    testing::on_each_database(|pool| {
        for user in ["user", "other"] {
            testing::user(pool, user);
        }
        let phone = ChannelKind::WebPush;
        add(pool, &channel("a", "user", phone, "1")).unwrap();
        add(pool, &channel("b", "user", phone, "2")).unwrap();
        add(pool, &channel("c", "other", phone, "3")).unwrap();
        let fail = |db: &mut Db| note_failure(db, &"a".into(), "1", ChannelFault::Gone, now());
        assert_eq!(pool.write_blocking(fail).unwrap(), Some(ChannelState::Gone));
        for target in ["2", "3", "3"] {
            pool.write_blocking(|db| replace_target(db, &channel("a", "user", phone, target))).unwrap();
        }
        assert_eq!((ids(pool, "user"), ids(pool, "other")), (vec!["a".to_owned()], Vec::new()));
        assert_eq!(pool.write_blocking(fail).unwrap(), None, "a late answer is about the old subscription");
        pool.write_blocking(|db| note_accepted(db, &[("a", "1")], later(1))).unwrap();
        let stored = pool.read_blocking(|db| get(db, &"a".into())).unwrap().unwrap();
        assert_eq!(stored, channel("a", "user", phone, "3"));
    });
}

#[test]
fn the_channels_that_end_for_a_browser_are_known() {
    testing::on_each_database(|pool| {
        for user in ["user", "other"] {
            testing::user(pool, user);
        }
        let added = |channel: &StoredChannel| pool.write_blocking(|db| insert(db, channel, 3)).unwrap().unwrap();
        let replaced = |channel: &StoredChannel| pool.write_blocking(|db| replace_target(db, channel)).unwrap();
        let (hook, phone) = (ChannelKind::Webhook, ChannelKind::WebPush);
        assert_eq!(added(&channel("a", "user", phone, "1")), []);
        assert_eq!(added(&channel("b", "user", hook, "2")), []);
        assert_eq!(added(&channel("c", "other", hook, "2")), [], "two programs may have one URL");
        assert_eq!(added(&channel("d", "other", phone, "1")), [ChannelId::from("a")]);
        assert_eq!(added(&channel("e", "user", phone, "3")), []);
        assert_eq!(replaced(&channel("e", "user", phone, "3")), []);
        assert_eq!(replaced(&channel("e", "user", phone, "1")), [ChannelId::from("d")]);
    });
}

#[test]
fn failures_of_a_day_disable_a_channel_and_a_message_that_gets_through_makes_it_active() {
    testing::on_each_database(|pool| {
        testing::user(pool, "user");
        add(pool, &channel("a", "user", ChannelKind::Ntfy, "1")).unwrap();
        let id = ChannelId::from("a");
        let fail = |fault, at| pool.write_blocking(|db| note_failure(db, &id, "1", fault, at)).unwrap();
        let (away, gone) = (ChannelFault::Unavailable, ChannelFault::Gone);
        let usable = || pool.read_blocking(|db| usable(&list(db, &"user".into())?)).unwrap().len();
        assert_eq!((fail(away, now()), usable()), (Some(ChannelState::Failing), 1));
        assert_eq!((fail(away, later(200_000)), usable()), (Some(ChannelState::Failing), 1), "two of two raids");
        let ours = ChannelFault::Unreadable;
        assert!((0..20).all(|_| fail(ours, later(200_000)) == Some(ChannelState::Failing)));
        assert!((0..9).all(|_| fail(away, later(200_000)) == Some(ChannelState::Failing)));
        assert_eq!((fail(away, later(200_000)), usable()), (Some(ChannelState::Disabled), 0));
        pool.write_blocking(|db| note_accepted(db, &[(id.as_str(), "1")], later(200_100))).unwrap();
        let stored = pool.read_blocking(|db| get(db, &id)).unwrap().unwrap();
        assert_eq!((&*stored.state, stored.reason, stored.failing_since), ("active", None, None));
        assert_eq!(stored.failures, 0);
        assert_eq!(fail(gone, later(200_200)), Some(ChannelState::Gone));
        pool.write_blocking(|db| note_accepted(db, &[(id.as_str(), "1")], later(200_300))).unwrap();
        assert_eq!(usable(), 0, "it was taken before that answer");
        pool.write_blocking(|db| note_tested(db, &id, "2", later(200_300))).unwrap();
        assert_eq!(usable(), 0, "another target");
        pool.write_blocking(|db| note_tested(db, &id, "1", later(200_300))).unwrap();
        let stored = pool.read_blocking(|db| get(db, &id)).unwrap().unwrap();
        assert_eq!((&*stored.state, stored.reason, stored.failures), ("active", None, 0));
        let delete = |user: &str| pool.write_blocking(|db| delete(db, &user.into(), &id)).unwrap();
        assert!(!delete("another") && delete("user") && !delete("user"));
        assert_eq!(fail(gone, now()), None);
    });
}

#[test]
fn a_browser_whose_subscription_has_ended_makes_room_and_goes_after_its_time() {
    testing::on_each_database(|pool| {
        testing::user(pool, "user");
        let phone = ChannelKind::WebPush;
        for (id, kind) in [("a", phone), ("b", phone), ("c", ChannelKind::Gotify)] {
            add(pool, &channel(id, "user", kind, id)).unwrap();
        }
        let fail =
            |id: &str, at| pool.write_blocking(|db| note_failure(db, &id.into(), id, ChannelFault::Gone, at)).unwrap();
        assert_eq!(fail("c", now()), Some(ChannelState::Gone));
        assert_eq!(add(pool, &channel("d", "user", phone, "d")), Err(ChannelNotAdded::LimitReached));
        fail("b", later(1));
        fail("a", later(2));
        assert_eq!(add(pool, &channel("d", "user", phone, "d")), Ok(()), "in the place of the first that ended");
        assert_eq!(ids(pool, "user"), ["a", "c", "d"]);
        let purge = |before| pool.write_blocking(|db| purge_gone_browsers(db, before)).unwrap();
        assert_eq!((purge(later(1)), purge(later(2)), purge(later(2))), (0, 1, 0));
        assert_eq!(ids(pool, "user"), ["c", "d"], "another kind is its user's to mend");
    });
}
