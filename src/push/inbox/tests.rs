use super::*;
use crate::{
    clock::Clock,
    crypto::{keys::Key32, sealer::Sealer},
    db::{
        engine::pool::Pool,
        testing::{self, later, now},
    },
    domain::game_address::GameAddress,
};

fn vault(pool: &Pool) -> Vault {
    Vault::new(pool.clone(), Arc::new(Sealer::new(&Key32::new([1; 32]), None, 1, Random::system())))
}

fn alice() -> PushOwner {
    let outbound = Arc::new(Outbound::new(Clock::adjustable(later(9)), true));
    PushOwner { user: "alice".into(), platform: "76561198000000001".into(), outbound }
}

fn alarm_of(server: &PairedServer) -> Notification {
    let identity = ServerIdentity { game_server_id: None, name: server.name.clone(), address: None };
    let (title, message) = ("Alarm".to_owned(), "words".to_owned());
    Notification::Alarm(AlarmPush { server: Some(identity), title, message })
}

#[test]
fn an_alarm_finds_its_server_by_id_then_address_then_name_then_by_what_is_left() {
    testing::on_each_database(|pool| {
        testing::user(pool, "alice");
        let server = |id: &str, game: Option<&str>, name: &str, address: &str| {
            let pairing = paired_servers::StoredPairing {
                game_server_id: game.map(Into::into),
                name: name.into(),
                address: address.into(),
                ..testing::pairing("alice")
            };
            pool.write_blocking(|db| paired_servers::put(db, &id.into(), &pairing, now())).unwrap()
        };
        let servers = [
            server("pushed", Some("guid"), "Valley", "192.0.2.1"),
            server("hand", None, "Home", "play.example.com"),
            server("twin", Some("twin"), "Valley", "192.0.2.3"),
            server("third", Some("third"), "Hill", "192.0.2.4"),
        ];
        let of = |servers: &[PairedServer], id: &str, name: &str, ip: &str| {
            let identity = ServerIdentity {
                game_server_id: Some(id.to_owned()).filter(|id| !id.is_empty()),
                name: name.into(),
                address: GameAddress::parse(ip).map(|address| (address, 28_082)),
            };
            alarmed(servers, &identity).map(|server| server.id.to_string())
        };
        let is = |id: &str| Some(id.to_owned());
        assert_eq!(of(&servers, "guid", "Home", "192.0.2.4"), is("pushed"), "by its id");
        assert_eq!(of(&servers, "new", "Home", "192.0.2.4"), is("third"), "by its address");
        assert_eq!(of(&servers, "new", "Hill", "192.0.2.9"), is("third"), "by its name");
        assert_eq!(of(&servers, "", "Hill", ""), is("third"), "a name alone is enough");
        assert_eq!(of(&servers, "new", "Valley", "192.0.2.9"), is("hand"), "two have this name, one has no id");
        assert_eq!(of(&servers, "new", "", "192.0.2.9"), is("hand"), "the one without an id");
        let all_known = [servers[0].clone(), servers[2].clone()];
        assert_eq!(of(&all_known, "new", "Valley", "192.0.2.9"), None);
        let two_by_hand = [servers[1].clone(), server("other", None, "Beach", "192.0.2.5")];
        assert_eq!(of(&two_by_hand, "new", "", "192.0.2.9"), None, "it may be either");
    });
}

#[test]
fn one_alarm_has_one_server_as_long_as_that_is_paired() {
    testing::on_each_database(|pool| {
        testing::user(pool, "alice");
        let server = |id: &str, name: &str, address: &str| {
            let pairing = paired_servers::StoredPairing {
                game_server_id: None,
                name: name.into(),
                address: address.into(),
                ..testing::pairing("alice")
            };
            pool.write_blocking(|db| paired_servers::put(db, &id.into(), &pairing, now())).unwrap()
        };
        let hand = server("hand", "Home", "192.0.2.2");
        let of_valley = ServerIdentity { game_server_id: None, name: "Valley".into(), address: None };
        let alarm_server = AlarmServer::default();
        assert_eq!(alarm_server.among_known(&[], &of_valley), None);
        assert_eq!(
            alarm_server.among_known(std::slice::from_ref(&hand), &of_valley),
            Some("hand".into()),
            "the only one"
        );
        let valley = server("valley", "Valley", "192.0.2.1");
        let both = [hand, valley.clone()];
        assert_eq!(alarm_server.among_known(&both, &of_valley), Some("hand".into()), "it was reported");
        assert_eq!(alarm_server.among_stored(&both, &of_valley), Some("hand".into()), "it was reported");
        assert_eq!(alarm_server.among_stored(&[valley], &of_valley), Some("valley".into()), "the other is gone");
        assert_eq!(alarm_server.among_known(&both[..1], &of_valley), Some("valley".into()), "it is stored");
    });
}

#[test]
fn without_the_database_an_alarm_is_only_of_a_server_that_was_paired_when_it_was_sent() {
    testing::on_each_database(|pool| {
        testing::user(pool, "alice");
        testing::server(pool, "alice", "one");
        let servers = pool.read_blocking(|db| paired_servers::list_for(db, &"alice".into())).unwrap();
        let notification = alarm_of(&servers[0]);
        let found = |sent| {
            let message = PushMessage { persistent_id: Some("0:1".into()), sent, app_data: Vec::new() };
            let (alarm_id, alarm_server) = ("alarm", &AlarmServer::default());
            let now = later(60);
            let push = InboxPush { message: &message, notification: &notification, alarm_id, alarm_server, now };
            push.alarm_among(&servers).map(|(server, alarm)| (server.to_string(), alarm.sent))
        };
        assert_eq!(found(Some(now())), Some(("one".into(), now())));
        assert_eq!(found(Some(later(-1))), None, "it may come again");
        assert_eq!(found(None), Some(("one".into(), later(60))), "it was sent just now");
    });
}

#[test]
fn a_push_that_comes_again_reports_its_alarm_as_long_as_that_waits() {
    testing::on_each_database(|pool| {
        testing::user(pool, "alice");
        let server = testing::server(pool, "alice", "one");
        let (random, vault, owner) = (Random::system(), vault(pool), alice());
        let notification = alarm_of(&server);
        let message = PushMessage { persistent_id: Some("0:1".into()), sent: Some(now()), app_data: Vec::new() };
        let (alarm_id, alarm_server) = ("alarm", &AlarmServer::default());
        let push = InboxPush { message: &message, notification: &notification, alarm_id, alarm_server, now: now() };
        let inbox = Inbox { owner: &owner, vault: &vault, random: &random, push };
        let store = || pool.write_blocking(|db| inbox.store(db)).unwrap();
        let first = store();
        assert!(matches!(&first, PushOutcome::Alarm { server, .. } if *server == "one".into()), "{first:?}");
        assert_eq!(store(), first, "the answer that it is stored may have been lost");
        let assign = |db: &mut Db| alarm_ledger::assign(db, &server.id, "alarm", AlarmState::Opened, "incident", now());
        assert!(pool.write_blocking(assign).unwrap());
        assert_eq!(store(), PushOutcome::Ignored("duplicate"), "it has its incident");
    });
}

#[test]
fn a_pairing_is_as_new_as_its_push_says_and_no_newer_than_now() {
    testing::on_each_database(|pool| {
        testing::user(pool, "alice");
        let (random, vault, owner) = (Random::system(), vault(pool), alice());
        let changes = |token, sent| {
            let notification = Notification::ServerPairing(ServerPairing {
                game_server_id: None,
                name: "Valley".into(),
                address: GameAddress::parse("play.example.com").unwrap(),
                port: 28_082,
                player_id: owner.platform.clone(),
                player_token: SecretBox::new(Box::new(token)),
            });
            let message = PushMessage { persistent_id: None, sent, app_data: Vec::new() };
            let (alarm_id, alarm_server, now) = ("alarm", &AlarmServer::default(), later(9));
            let push = InboxPush { message: &message, notification: &notification, alarm_id, alarm_server, now };
            let inbox = Inbox { owner: &owner, vault: &vault, random: &random, push };
            let stored = pool.write_blocking(|db| inbox.store(db)).unwrap();
            matches!(stored, PushOutcome::Paired { changed: true, .. })
        };
        assert!(changes(1, None));
        assert!(changes(2, Some(later(1))), "one without a time shuts out none");
        assert!(!changes(1, Some(now())));
        assert!(changes(3, Some(later(20))));
        assert!(changes(4, Some(later(10))), "both were sent just now");
        assert!(!changes(3, Some(later(8))));
    });
}
