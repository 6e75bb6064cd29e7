use super::*;
use crate::db::{
    access,
    engine::pool::Pool,
    pairing_codes::CodePurpose,
    testing::{self, later, now},
    users as user_table,
};

const WEEK: i64 = 7 * 24 * 3_600;

fn on_each_server(test: impl Fn(&Pool)) {
    testing::on_each_database(|pool| {
        for user in ["owner", "alice", "bob"] {
            testing::user(pool, user);
        }
        testing::server(pool, "owner", "server");
        test(pool);
    });
}

fn invite_in(pool: &Pool, server: &str, id: &str, invitee: Invitee) -> Result<Guest, InviteRefused> {
    pool.write_blocking(|db| invite(db, &id.into(), &server.into(), &invitee, Some("pal"), now())).unwrap()
}

fn account(id: &str) -> Invitee {
    Invitee::Account(id.into())
}

fn link(token: &str) -> Invitee {
    Invitee::Link { token_hash: token.into() }
}

fn accept_key(pool: &Pool, key: &InviteKey, user: &str, at: Timestamp) -> Result<ServerId, LinkRefused> {
    let user = pool.read_blocking(|db| user_table::find(db, &user.into())).unwrap().unwrap();
    pool.write_blocking(|db| accept(db, key, &user, at)).unwrap()
}

fn accept_at(pool: &Pool, token: &str, user: &str, at: Timestamp) -> Result<ServerId, LinkRefused> {
    accept_key(pool, &InviteKey::Link { token_hash: token.into() }, user, at)
}

/// Accepts the invitation of this id, now.
fn accept_id(pool: &Pool, id: &str, user: &str) -> Result<ServerId, LinkRefused> {
    accept_key(pool, &InviteKey::Account(id.into()), user, now())
}

/// The ids of the invitations that this user is shown.
fn shown(pool: &Pool, user: &str) -> Vec<String> {
    let user = pool.read_blocking(|db| user_table::find(db, &user.into())).unwrap().unwrap();
    let invited = pool.read_blocking(|db| invitations(db, &user)).unwrap();
    invited.into_iter().map(|invite| invite.guest.to_string()).collect()
}

/// Users and ids of a list, `-` where no user has accepted.
fn listed(pool: &Pool, at: Timestamp) -> Vec<(String, String)> {
    let list = pool.read_blocking(|db| list(db, &"server".into(), at)).unwrap();
    let name = |guest: &Guest| guest.accepted.as_ref().map_or("-".to_owned(), |(user, _)| user.id.to_string());
    list.iter().map(|guest| (guest.id.to_string(), name(guest))).collect()
}

fn entries(entries: &[(&str, &str)]) -> Vec<(String, String)> {
    entries.iter().map(|(id, user)| ((*id).to_owned(), (*user).to_owned())).collect()
}

fn remove_guest(pool: &Pool, id: &str) -> bool {
    pool.write_blocking(|db| remove(db, &"server".into(), &id.into())).unwrap().is_some()
}

#[test]
fn an_account_is_a_guest_when_it_accepts_and_no_sooner() {
    on_each_server(|pool| {
        for (id, account_id) in [("a", "new"), ("b", "bob")] {
            let open = invite_in(pool, "server", id, account(account_id)).unwrap();
            assert_eq!((open.accepted, open.expires_at, open.label.as_deref()), (None, None, Some("pal")));
            assert_eq!(open.platform_id.as_deref(), Some(account_id));
        }
        testing::user(pool, "new");
        assert_eq!(listed(pool, later(100 * WEEK)), entries(&[("a", "-"), ("b", "-")]), "an account has time");
        assert_eq!(
            (shown(pool, "new"), shown(pool, "bob"), shown(pool, "alice").len()),
            (vec!["a".into()], vec!["b".into()], 0)
        );

        for (id, user) in [("a", "bob"), ("a", "owner"), ("none", "bob")] {
            assert_eq!(accept_id(pool, id, user), Err(LinkRefused::Unknown), "{id} by {user}");
        }
        let key = InviteKey::Account("a".into());
        assert_eq!(accept_key(pool, &key, "new", later(5)), Ok("server".into()));
        assert_eq!(accept_key(pool, &key, "new", later(6)), Ok("server".into()), "a second click");
        let guests = pool.read_blocking(|db| list(db, &"server".into(), now())).unwrap();
        assert_eq!(guests[0].accepted.as_ref().map(|(_, since)| *since), Some(later(5)));
        assert_eq!((listed(pool, now()), shown(pool, "new").len()), (entries(&[("a", "new"), ("b", "-")]), 0));

        for (id, refused) in
            [("owner", InviteRefused::Owner), ("bob", InviteRefused::Known), ("new", InviteRefused::Known)]
        {
            assert_eq!(invite_in(pool, "server", "c", account(id)), Err(refused), "{id}");
        }
        assert!(remove_guest(pool, "b") && !remove_guest(pool, "b"));
        assert_eq!(accept_id(pool, "b", "bob"), Err(LinkRefused::Unknown), "taken back");
        let other = pool.write_blocking(|db| invite(db, &"d".into(), &"gone".into(), &link("t"), None, now()));
        assert!(matches!(other, Err(DbError::NotFound)));
    });
}

#[test]
fn refused_invitations_and_those_of_blocked_inviters_are_not_shown() {
    on_each_server(|pool| {
        testing::server(pool, "bob", "other");
        invite_in(pool, "server", "a", account("alice")).unwrap();
        invite_in(pool, "other", "b", account("alice")).unwrap();
        let alice = pool.read_blocking(|db| user_table::find(db, &"alice".into())).unwrap().unwrap();
        let refuse_in = |server: &str| pool.write_blocking(|db| refuse(db, &alice, &server.into(), now())).unwrap();
        assert_eq!(shown(pool, "alice"), ["a", "b"]);
        assert_eq!(["server", "server", "none"].map(refuse_in), [true, false, false]);
        assert_eq!((shown(pool, "alice"), listed(pool, now())), (vec!["b".to_owned()], entries(&[("a", "-")])));
        assert!(remove_guest(pool, "a"));
        invite_in(pool, "server", "c", account("alice")).unwrap();
        assert_eq!(shown(pool, "alice"), ["b"], "a refusal is of the server");
        assert_eq!(accept_id(pool, "c", "alice"), Ok("server".into()), "a mind may change");

        pool.write_blocking(|db| invite_refusals::block(db, &alice.id, &"bob".into(), now())).unwrap().unwrap();
        assert_eq!(shown(pool, "alice"), [""; 0]);
        assert_eq!(accept_id(pool, "b", "alice"), Err(LinkRefused::Unknown));
        assert!(!refuse_in("other"), "it is not shown");
    });
}

#[test]
fn a_link_makes_one_guest_within_seven_days() {
    on_each_server(|pool| {
        for token in ["one", "two", "three"] {
            let invited = invite_in(pool, "server", token, link(token)).unwrap();
            assert_eq!((invited.platform_id, invited.expires_at), (None, Some(later(WEEK))));
        }
        assert_eq!(accept_at(pool, "none", "alice", now()), Err(LinkRefused::Unknown));
        assert_eq!(accept_at(pool, "one", "owner", now()), Err(LinkRefused::Owner));
        let seen = pool.read_blocking(|db| preview(db, "one", now())).unwrap().unwrap();
        assert_eq!(
            (seen.expires_at, seen.server.id.as_str(), seen.owner.id.as_str()),
            (Some(later(WEEK)), "server", "owner")
        );

        assert_eq!(accept_at(pool, "one", "alice", later(WEEK - 1)), Ok("server".into()));
        assert_eq!(accept_at(pool, "one", "alice", later(WEEK)), Ok("server".into()), "a second click");
        assert_eq!(accept_at(pool, "one", "bob", now()), Err(LinkRefused::Used));
        assert_eq!(accept_at(pool, "two", "alice", now()), Ok("server".into()));
        assert_eq!(accept_at(pool, "two", "bob", later(WEEK)), Err(LinkRefused::Expired));
        let refused = |token: &str, at| pool.read_blocking(|db| preview(db, token, at)).unwrap().unwrap_err();
        assert_eq!((refused("one", now()), refused("two", later(WEEK))), (LinkRefused::Used, LinkRefused::Expired));
        assert_eq!(refused("none", now()), LinkRefused::Unknown);
        assert_eq!(listed(pool, now()), entries(&[("one", "alice"), ("three", "-"), ("two", "-")]));
        assert_eq!(listed(pool, later(WEEK)), entries(&[("one", "alice")]), "what has expired is not open");
        assert_eq!(accept_at(pool, "two", "bob", later(5)), Ok("server".into()), "alice left it open");

        assert!(remove_guest(pool, "three"));
        assert_eq!(accept_at(pool, "three", "bob", now()), Err(LinkRefused::Unknown), "taken back");
        pool.write_blocking(|db| crate::db::paired_servers::delete(db, &"owner".into(), &"server".into())).unwrap();
        assert_eq!(accept_at(pool, "one", "bob", now()), Err(LinkRefused::Unknown), "the server is gone");
    });
}

#[test]
fn a_link_and_an_account_invitation_make_one_guest() {
    on_each_server(|pool| {
        invite_in(pool, "server", "account", account("new")).unwrap();
        invite_in(pool, "server", "link", link("token")).unwrap();
        testing::user(pool, "new");
        assert_eq!(accept_at(pool, "token", "new", now()), Ok("server".into()));
        assert_eq!(listed(pool, now()), entries(&[("link", "new")]), "the other one is void");
        assert_eq!(accept_id(pool, "account", "new"), Err(LinkRefused::Unknown));
    });
}

#[test]
fn guests_see_what_is_shared_with_them_and_leave() {
    on_each_server(|pool| {
        testing::guest(pool, "a", "server", "alice");
        let shared = |user: &str| pool.read_blocking(|db| shared_with(db, &user.into())).unwrap();
        let [SharedServer { guest, since, server, owner, .. }] = &shared("alice")[..] else { panic!("one server") };
        assert_eq!(
            (guest.as_str(), since.unwrap(), server.id.as_str(), owner.id.as_str()),
            ("a", now(), "server", "owner")
        );
        assert!(shared("bob").is_empty() && shared("owner").is_empty());

        let overlay = CodePurpose { user: "alice".into(), label: None, overlay: Some("server".into()), sections: None };
        let add_overlay = || pool.write_blocking(|db| helper_devices::insert(db, &"o".into(), &overlay, "hash", now()));
        let overlays = || pool.read_blocking(|db| helper_devices::count(db, &"alice".into())).unwrap();
        let leave = |user: &str| pool.write_blocking(|db| leave(db, &user.into(), &"server".into())).unwrap();
        add_overlay().unwrap();
        assert!(!leave("bob") && !leave("owner"));
        assert_eq!(overlays(), 1);
        assert!(leave("alice") && !leave("alice"));
        assert_eq!((overlays(), shared("alice").len()), (0, 0), "her overlays end, too");

        testing::guest(pool, "b", "server", "alice");
        add_overlay().unwrap();
        assert!(remove_guest(pool, "b"));
        assert_eq!(overlays(), 0);
    });
}

#[test]
fn the_guests_of_a_server_and_the_servers_of_a_guest_are_limited() {
    on_each_server(|pool| {
        for number in 0..GUESTS_PER_SERVER {
            invite_in(pool, "server", &format!("{number:03}"), link(&format!("token {number}"))).unwrap();
        }
        for invitee in [link("more"), account("bob")] {
            assert_eq!(invite_in(pool, "server", "more", invitee), Err(InviteRefused::Full));
        }
        assert!(remove_guest(pool, "007"));
        testing::guest(pool, "more", "server", "alice");

        for number in 1..=SHARED_SERVERS_PER_USER {
            let (owner, id) = (format!("owner {number}"), format!("server {number:03}"));
            testing::user(pool, &owner);
            testing::server(pool, &owner, &id);
            invite_in(pool, &id, &format!("guest {number}"), account("alice")).unwrap();
            let accepted = accept_id(pool, &format!("guest {number}"), "alice");
            assert_eq!(accepted.is_ok(), number < SHARED_SERVERS_PER_USER, "{number}: {accepted:?}");
        }
        let last = format!("guest {SHARED_SERVERS_PER_USER}");
        invite_in(pool, "server 001", "late", link("late")).unwrap();
        assert_eq!(accept_id(pool, &last, "alice"), Err(LinkRefused::Full), "no more than that");
        pool.write_blocking(|db| leave(db, &"alice".into(), &"server 001".into())).unwrap();
        assert!(accept_id(pool, &last, "alice").is_ok());
        assert_eq!(accept_at(pool, "late", "alice", now()), Err(LinkRefused::Full));
        assert_eq!(accept_at(pool, "late", "bob", now()), Ok("server 001".into()));
    });
}

#[test]
fn at_once_one_link_makes_one_guest_and_one_user_is_one_guest() {
    on_each_server(|pool| {
        for token in ["a", "b", "c", "d"] {
            invite_in(pool, "server", token, link(token)).unwrap();
        }
        invite_in(pool, "server", "n", account("new")).unwrap();
        testing::user(pool, "new");
        std::thread::scope(|scope| {
            for user in ["alice", "bob"] {
                for token in ["a", "b", "c", "d"] {
                    scope.spawn(move || accept_at(pool, token, user, now()));
                }
            }
            for id in ["c", "d"] {
                scope.spawn(move || assert!(remove_guest(pool, id), "a guest or an invitation: it is gone"));
            }
            for _ in 0..2 {
                scope.spawn(|| assert_eq!(accept_id(pool, "n", "new"), Ok("server".into())));
            }
        });
        let left = listed(pool, now());
        let users: Vec<&str> = left.iter().map(|(_, user)| user.as_str()).filter(|user| *user != "-").collect();
        assert_eq!(users.len(), users.iter().collect::<HashSet<_>>().len(), "{left:?}");
        assert!(left.iter().all(|(id, _)| ["a", "b", "n"].contains(&id.as_str())), "{left:?}");
        assert!(users.contains(&"new"), "{left:?}");
        let watchers = pool.read_blocking(|db| access::watchers(db, &"server".into())).unwrap();
        assert_eq!(watchers.len(), 1 + users.len());
    });
}

#[test]
fn a_guest_without_a_server_of_their_own_is_ready() {
    on_each_server(|pool| {
        for user in ["alice", "bob"] {
            testing::guest(pool, user, "server", user);
        }
        testing::server(pool, "bob", "own");
        let ready = |among: &[&str]| {
            let among: Vec<UserId> = among.iter().map(|user| (*user).into()).collect();
            pool.read_blocking(|db| guest_ready(db, &among)).unwrap()
        };
        assert_eq!(ready(&["owner", "alice", "bob", "stranger"]), ["alice".into()].into());
        assert_eq!(ready(&["bob"]), [].into());
        assert_eq!(ready(&[]), [].into());
    });
}

#[test]
fn invitations_that_were_not_accepted_are_purged_and_guests_stay() {
    on_each_server(|pool| {
        for token in ["used", "open"] {
            invite_in(pool, "server", token, link(token)).unwrap();
        }
        invite_in(pool, "server", "account", account("new")).unwrap();
        accept_at(pool, "used", "alice", now()).unwrap();
        let purge = |before| pool.write_blocking(|db| purge(db, before)).unwrap();
        assert_eq!(purge(later(WEEK - 1)), 0);
        assert_eq!(purge(later(WEEK)), 1);
        assert_eq!(listed(pool, now()), entries(&[("account", "-"), ("used", "alice")]));
    });
}
