use std::sync::Arc;

use super::*;
use crate::{
    clock::Clock,
    crypto::{keys::Key32, sealer::Sealer},
    db::{
        engine::pool::Pool,
        testing::{self, later, now},
    },
    domain::limits::NEW_GAME_SERVERS_PER_USER,
};

const ALICE: &str = "76561198000000001";
const BOB: &str = "76561198000000002";

fn vault(pool: &Pool) -> Vault {
    Vault::new(pool.clone(), Arc::new(Sealer::new(&Key32::new([1; 32]), None, 1, Random::system())))
}

fn request(source: PairingSource, address: &str) -> PairingRequest {
    PairingRequest {
        owner: "owner".into(),
        source,
        name: None,
        address: GameAddress::parse(address).unwrap(),
        port: 28_082,
        player_id: ALICE.into(),
        player_token: SecretBox::new(Box::new(1)),
        at: Some(now()),
    }
}

fn by_hand(address: &str) -> PairingRequest {
    request(PairingSource::Hand, address)
}

fn pushed(game_server_id: &str, address: &str) -> PairingRequest {
    request(PairingSource::Push { game_server_id: Some(game_server_id.into()) }, address)
}

/// The request with this token, sent or entered at this time.
fn with(token: i32, at: Timestamp, request: PairingRequest) -> PairingRequest {
    PairingRequest { player_token: SecretBox::new(Box::new(token)), at: Some(at), ..request }
}

fn outbound(allows_private: bool) -> Outbound {
    Outbound::new(Clock::system(), allows_private)
}

fn tried(pool: &Pool, request: PairingRequest, at: Timestamp) -> Result<PairingOutcome, PairingRefused> {
    let (vault, outbound) = (vault(pool), outbound(false));
    pool.write_blocking(|db| pair_server(db, &vault, &Random::system(), request, &outbound, at)).unwrap()
}

#[track_caller]
fn paired(pool: &Pool, request: PairingRequest) -> PairingOutcome {
    tried(pool, request, now()).unwrap()
}

fn servers(pool: &Pool) -> Vec<PairedServer> {
    pool.read_blocking(|db| paired_servers::list_for(db, &"owner".into())).unwrap()
}

/// The token that the row holds, when it opens.
fn holds(pool: &Pool, server: &PairedServer, token: i32) -> bool {
    vault(pool).is_player_token(server, token)
}

#[test]
fn the_same_pairing_again_changes_nothing_and_anything_else_does() {
    testing::on_each_database(|pool| {
        testing::user(pool, "owner");
        let first = paired(pool, by_hand("one.example.com"));
        assert_eq!((first.is_new, first.changed, first.server.name.as_str()), (true, true, "one.example.com"));
        let id = first.server.id;
        let same = tried(pool, by_hand("one.example.com"), later(1)).unwrap();
        assert_eq!((same.is_new, same.changed, &same.server.id), (false, false, &id));
        let renamed = paired(pool, PairingRequest { name: Some("Home".into()), ..by_hand("one.example.com") });
        assert_eq!((renamed.changed, renamed.server.name.as_str()), (false, "Home"));
        // Its game-server id is all that a push adds; its name stays when the owner pairs by hand again.
        let named = paired(pool, pushed("game", "one.example.com"));
        assert_eq!((named.changed, &named.server.id), (false, &id));
        assert_eq!(named.server.game_server_id.as_deref(), Some("game"));
        let again = paired(pool, by_hand("one.example.com")).server;
        assert_eq!((again.game_server_id.as_deref(), again.name.as_str()), (Some("game"), "Home"));

        let token = PairingRequest { player_token: SecretBox::new(Box::new(2)), ..by_hand("one.example.com") };
        let replaced = paired(pool, token);
        assert_eq!((replaced.is_new, replaced.changed, &replaced.server.id), (false, true, &id));
        assert!(holds(pool, &replaced.server, 2));
        let moved = paired(pool, pushed("game", "two.example.com"));
        assert_eq!((moved.is_new, moved.changed, &moved.server.id), (false, true, &id));
        // The token went with it.
        assert!(holds(pool, &moved.server, 1));
        assert!(!holds(pool, &PairedServer { address: "one.example.com".into(), ..moved.server }, 1));
        assert_eq!((servers(pool).len(), moved.displaced), (1, None));
    });
}

#[test]
fn other_credentials_are_not_accepted_because_those_before_were() {
    testing::on_each_database(|pool| {
        testing::user(pool, "owner");
        let first = paired(pool, by_hand("one.example.com")).server;
        assert!(!first.is_accepted());
        let accept = |server: &PairedServer| {
            pool.write_blocking(|db| paired_servers::set_accepted(db, &server.id, server.credentials_version))
        };
        accept(&first).unwrap();
        let token =
            |token| PairingRequest { player_token: SecretBox::new(Box::new(token)), ..by_hand("one.example.com") };
        assert!(paired(pool, token(1)).server.is_accepted(), "the same ones");
        let other = paired(pool, token(2)).server;
        assert!(!other.is_accepted());
        accept(&first).unwrap();
        assert!(!servers(pool)[0].is_accepted(), "what a link with the former ones reports late");
        accept(&other).unwrap();
        assert!(servers(pool)[0].is_accepted());
        let pushed_to = |address| {
            paired(pool, PairingRequest { player_token: SecretBox::new(Box::new(2)), ..pushed("game", address) })
        };
        assert!(pushed_to("one.example.com").server.is_accepted());
        assert!(!pushed_to("two.example.com").server.is_accepted());
    });
}

#[test]
fn a_push_that_was_sent_before_the_stored_pairing_replaces_nothing() {
    testing::on_each_database(|pool| {
        testing::user(pool, "owner");
        let from = |token, at, address: &str| with(token, at, pushed("game", address));
        let pushed = |token, at| from(token, at, "one.example.com");
        let newer = tried(pool, pushed(2, later(2)), later(9)).unwrap();
        let late = tried(pool, pushed(1, later(1)), later(9)).unwrap();
        assert_eq!((late.is_new, late.changed, &late.server), (false, false, &newer.server));
        assert_eq!(
            tried(pool, from(1, later(1), "two.example.com"), later(9)).unwrap().server.address,
            "one.example.com"
        );
        assert!(holds(pool, &servers(pool)[0], 2));
        assert!(tried(pool, pushed(3, later(2)), later(9)).unwrap().changed, "sent at the same time");
        // The owner enters the newest there is, whatever the clock says.
        let by_hand = |token, at| with(token, at, by_hand("one.example.com"));
        assert!(tried(pool, by_hand(4, later(1)), later(1)).unwrap().changed);
        assert!(tried(pool, by_hand(5, later(5)), later(5)).unwrap().changed);
        assert!(!tried(pool, pushed(2, later(4)), later(9)).unwrap().changed, "it was sent before that");
        assert!(holds(pool, &servers(pool)[0], 5));
        assert!(tried(pool, pushed(6, later(6)), later(9)).unwrap().changed);
        assert!(tried(pool, pushed(7, later(3)), later(4)).unwrap().changed, "the clock was set back");
    });
}

#[test]
fn the_stored_pairing_entered_once_more_shuts_out_no_push() {
    testing::on_each_database(|pool| {
        testing::user(pool, "owner");
        let by_hand = |token, at| with(token, at, by_hand("one.example.com"));
        assert!(tried(pool, by_hand(1, now()), now()).unwrap().is_new);
        assert!(!tried(pool, by_hand(1, later(5)), later(5)).unwrap().changed);
        let late = with(2, later(3), pushed("game", "one.example.com"));
        assert!(tried(pool, late, later(6)).unwrap().changed, "it is newer than the token that is stored");
        assert!(holds(pool, &servers(pool)[0], 2));
    });
}

#[test]
fn a_late_push_replaces_no_newer_row_at_the_address_to_which_its_server_moved() {
    testing::on_each_database(|pool| {
        testing::user(pool, "owner");
        let one = tried(pool, with(1, now(), pushed("game", "one.example.com")), now()).unwrap().server;
        let two = tried(pool, with(3, later(3), by_hand("two.example.com")), later(3)).unwrap().server;
        let push = |token, at| tried(pool, with(token, at, pushed("game", "two.example.com")), later(9)).unwrap();
        let late = push(2, later(2));
        assert_eq!((late.changed, &late.displaced, &late.server), (false, &None, &two));
        assert_eq!(servers(pool), [one.clone(), two.clone()]);
        assert!(holds(pool, &two, 3));
        let newer = push(4, later(4));
        assert_eq!((&newer.server.id, newer.displaced), (&one.id, Some(two.id)));
    });
}

#[test]
fn a_push_that_does_not_say_when_it_was_sent_is_neither_older_nor_newer() {
    testing::on_each_database(|pool| {
        testing::user(pool, "owner");
        let sent = |token, at| {
            let player_token = SecretBox::new(Box::new(token));
            let request = PairingRequest { player_token, at, ..pushed("game", "one.example.com") };
            tried(pool, request, later(9)).unwrap()
        };
        assert!(sent(1, Some(later(2))).is_new);
        assert!(sent(2, None).changed);
        assert!(sent(3, Some(later(3))).changed, "it is newer than the last that said when it was sent");
        assert!(!sent(2, Some(later(1))).changed);
        assert!(holds(pool, &servers(pool)[0], 3));
    });
}

#[test]
fn a_push_replaces_the_player_of_a_server_that_was_paired_by_hand() {
    testing::on_each_database(|pool| {
        testing::user(pool, "owner");
        let by_hand = paired(
            pool,
            PairingRequest { player_id: BOB.into(), name: Some("Home".into()), ..by_hand("one.example.com") },
        );
        let token = SecretBox::new(Box::new(2));
        let pushed = paired(pool, PairingRequest { player_token: token, ..pushed("game", "one.example.com") });
        assert_eq!((pushed.is_new, pushed.changed, &pushed.server.id), (false, true, &by_hand.server.id));
        assert_eq!((pushed.server.player_id.as_str(), servers(pool).as_slice()), (ALICE, &[pushed.server.clone()][..]));
        assert!(holds(pool, &pushed.server, 2));
    });
}

#[test]
fn a_push_belongs_to_the_row_of_its_player_before_that_of_another() {
    testing::on_each_database(|pool| {
        testing::user(pool, "owner");
        let bob = paired(pool, PairingRequest { player_id: BOB.into(), ..by_hand("one.example.com") }).server;
        let alice = tried(pool, by_hand("one.example.com"), later(1)).unwrap();
        assert!(alice.is_new, "a teammate's view is a server of its own");
        let pushed = paired(pool, pushed("game", "one.example.com"));
        assert_eq!((&pushed.server.id, pushed.changed), (&alice.server.id, false));
        assert_eq!(servers(pool), [bob, pushed.server]);
    });
}

#[test]
fn a_game_server_keeps_its_row_when_it_moves_and_when_it_is_installed_again() {
    testing::on_each_database(|pool| {
        testing::user(pool, "owner");
        let one = paired(pool, pushed("game-1", "one.example.com")).server.id;
        let two = paired(pool, pushed("game-2", "two.example.com")).server.id;
        let moved = paired(pool, pushed("game-1", "two.example.com"));
        assert_eq!((&moved.server.id, moved.displaced), (&one, Some(two)));
        let again = paired(pool, pushed("game-3", "two.example.com"));
        assert_eq!((&again.server.id, again.server.game_server_id.as_deref()), (&one, Some("game-3")));
        assert_eq!((again.changed, servers(pool).len()), (false, 1));
    });
}

#[test]
fn owners_share_no_rows() {
    testing::on_each_database(|pool| {
        testing::user(pool, "owner");
        testing::user(pool, "other");
        let mine = paired(pool, pushed("game", "one.example.com")).server;
        let theirs = paired(pool, PairingRequest { owner: "other".into(), ..pushed("game", "one.example.com") });
        assert!(theirs.is_new && theirs.server.id != mine.id);
        assert_eq!(servers(pool), [mine]);
    });
}

#[test]
fn an_address_that_is_not_allowed_is_not_paired() {
    testing::on_each_database(|pool| {
        testing::user(pool, "owner");
        assert_eq!(tried(pool, by_hand("10.0.0.1"), now()), Err(PairingRefused::PrivateAddress));
        let (vault, random, outbound) = (vault(pool), Random::system(), outbound(true));
        let pair = |db: &mut Db| pair_server(db, &vault, &random, by_hand("10.0.0.1"), &outbound, now());
        assert_eq!(pool.write_blocking(pair).unwrap().unwrap().server.address, "10.0.0.1");
    });
}

#[test]
fn a_user_pairs_few_new_addresses_at_once_and_known_ones_as_often_as_they_like() {
    testing::on_each_database(|pool| {
        testing::user(pool, "owner");
        let (vault, random, outbound) = (vault(pool), Random::system(), outbound(false));
        let pair = |port| {
            let request = PairingRequest { port, ..by_hand("one.example.com") };
            pool.write_blocking(|db| pair_server(db, &vault, &random, request, &outbound, now())).unwrap()
        };
        for port in 1..=NEW_GAME_SERVERS_PER_USER as u16 {
            assert!(pair(port).is_ok(), "{port}");
        }
        assert!(matches!(pair(100), Err(PairingRefused::TooManyNewAddresses(_))));
        assert_eq!(servers(pool).len(), NEW_GAME_SERVERS_PER_USER as usize);
        assert!(pair(1).is_ok());
    });
}

#[test]
fn limits_refuse_what_is_new_and_let_the_known_be_paired_again() {
    testing::on_each_database(|pool| {
        testing::user(pool, "owner");
        let at = |port| PairingRequest { port, ..by_hand("one.example.com") };
        for port in 1..=PAIRED_SERVERS_PER_USER as u16 {
            paired(pool, at(port));
        }
        assert_eq!(tried(pool, at(9_999), now()), Err(PairingRefused::TooManyServers));
        let server = paired(pool, at(1)).server.id;

        let device = |entity_id| DeviceRequest { entity_id, kind: None, name: None, label: None };
        let add = |request| pool.write_blocking(|db| pair_device(db, &server, request, now())).unwrap();
        pool.write_blocking(|db| {
            for entity_id in 1..=DEVICES_PER_SERVER as u64 {
                assert!(pair_device(db, &server, device(entity_id), now())?.unwrap().is_new);
            }
            Ok(())
        })
        .unwrap();
        assert_eq!(add(device(9_999_999)), Err(PairingRefused::TooManyDevices));
        assert!(!add(device(1)).unwrap().is_new);
    });
}

#[test]
fn what_a_device_request_leaves_out_stays() {
    testing::on_each_database(|pool| {
        testing::user(pool, "owner");
        let server = testing::server(pool, "owner", "server").id;
        let shown = |request| {
            let paired = pool.write_blocking(|db| pair_device(db, &server, request, now())).unwrap();
            let device = paired.unwrap().device;
            (device.device_id, device.kind, device.name, device.label)
        };
        let nothing = || DeviceRequest { entity_id: u64::MAX, kind: None, name: None, label: None };
        let id = u64::MAX.to_string();
        assert_eq!(shown(nothing()), (id.clone(), DeviceKind::Unknown, id.clone(), None));
        let pushed = DeviceRequest { kind: Some(DeviceKind::Switch), name: Some("Door".into()), ..nothing() };
        assert_eq!(shown(pushed), (id.clone(), DeviceKind::Switch, "Door".into(), None));
        let labelled = DeviceRequest { label: Some("Front".into()), ..nothing() };
        assert_eq!(shown(labelled), (id, DeviceKind::Switch, "Door".into(), Some("Front".into())));
    });
}
