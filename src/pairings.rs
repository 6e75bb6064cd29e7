//! Pairing a game server or a smart device, for the API and for the game's pushes alike.
//!
//! Call these functions in a transaction ([`Pool::write`](crate::db::engine::pool::Pool::write)).

use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretBox};

use crate::{
    crypto::random::Random,
    db::{
        engine::{error::DbError, pool::Db},
        paired_servers::{self, PairedServer, StoredPairing},
        smart_devices::{self, SmartDevice},
        users,
    },
    domain::{
        camera::CameraId,
        device::DeviceKind,
        game_address::GameAddress,
        ids::{PlatformId, ServerId, UserId},
        limits::{DEVICES_PER_SERVER, PAIRED_SERVERS_PER_USER},
        time::Timestamp,
    },
    game::outbound::Outbound,
    vault::Vault,
};

/// A game server, and a player's token for it.
pub struct PairingRequest {
    pub owner: UserId,
    pub source: PairingSource,
    /// `None` keeps the name; a server that is new gets its address for a name.
    pub name: Option<String>,
    pub address: GameAddress,
    /// The companion port.
    pub port: u16,
    pub player_id: PlatformId,
    pub player_token: SecretBox<i32>,
}

/// Where a pairing comes from, which decides the row that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PairingSource {
    /// Typed in: belongs to the owner's row with this address, port and player.
    Hand,
    /// Pushed by the game, for the owner's own player: belongs to the owner's row with this game-server id, otherwise
    /// with this address, port and player, otherwise with this address and port. It replaces the player of that row,
    /// because the game itself reports who the owner is there.
    Push { game_server_id: Option<String> },
}

/// A pairing that is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairingOutcome {
    pub server: PairedServer,
    /// True if it was not paired before.
    pub is_new: bool,
    /// Address, port, player or token are not what they were: a link that is up must be opened again.
    pub changed: bool,
    /// Another row of the owner had this address, port and player. It is deleted, because its server is no longer there.
    pub displaced: Option<ServerId>,
}

/// A smart device. What is `None` stays as it is; a new device is named after its id, and of unknown kind.
pub struct DeviceRequest {
    /// The game's entity id.
    pub entity_id: u64,
    pub kind: Option<DeviceKind>,
    pub name: Option<String>,
    pub label: Option<String>,
}

/// A device that is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceOutcome {
    pub device: SmartDevice,
    /// True if it was not paired before.
    pub is_new: bool,
}

/// Reasons against a pairing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PairingRefused {
    #[error("The address is not a public one.")]
    PrivateAddress,
    #[error("The user has paired many new addresses in the last minute.")]
    TooManyNewAddresses(Duration),
    #[error("The key of the pairing that is stored is missing.")]
    AwaitsKey,
    #[error("One user can pair {PAIRED_SERVERS_PER_USER} game servers at most.")]
    TooManyServers,
    #[error("One server can have {DEVICES_PER_SERVER} devices at most.")]
    TooManyDevices,
}

/// Pairs a game server, or brings the pairing up to date, at an address that `outbound` allows.
pub fn pair_server(
    db: &mut Db,
    vault: &Vault,
    random: &Random,
    request: PairingRequest,
    outbound: &Outbound,
    now: Timestamp,
) -> Result<Result<PairingOutcome, PairingRefused>, DbError> {
    if !outbound.allows_pairing(&request.address) {
        return Ok(Err(PairingRefused::PrivateAddress));
    }
    let PairingRequest { owner, source, name, address, port, player_id, player_token } = request;
    let (address, player_id, token) = (address.to_string(), player_id.to_string(), *player_token.expose_secret());
    users::lock(db, &owner)?;
    let servers = paired_servers::list_for(db, &owner)?;
    let at_address = |server: &&PairedServer| server.address == address && server.port == port;
    let of_player = servers.iter().filter(at_address).find(|server| server.player_id == player_id);
    let (game_server_id, known) = match source {
        PairingSource::Hand => (None, of_player),
        PairingSource::Push { game_server_id: id } => {
            let by_id = servers.iter().find(|server| id.is_some() && server.game_server_id == id);
            (id, by_id.or(of_player).or_else(|| servers.iter().find(at_address)))
        }
    };
    if known.is_none() && servers.len() >= PAIRED_SERVERS_PER_USER {
        return Ok(Err(PairingRefused::TooManyServers));
    }
    let id = known.map_or_else(|| random.id(now), |known| known.id.clone());
    if [known, of_player].into_iter().flatten().any(|row| vault.token_awaits_key(row)) {
        return Ok(Err(PairingRefused::AwaitsKey));
    }
    if !servers.iter().any(|server| at_address(&server))
        && let Err(wait) = outbound.take_new_address(&owner)
    {
        return Ok(Err(PairingRefused::TooManyNewAddresses(wait)));
    }
    let displaced = of_player.filter(|server| server.id != id).map(|server| server.id.clone());
    if let Some(displaced) = &displaced {
        paired_servers::delete(db, &owner, displaced)?;
    }
    let same = known
        .is_some_and(|known| at_address(&known) && known.player_id == player_id && vault.is_player_token(known, token));
    let player_token_sealed = vault.seal_player_token(&id, &address, port, token);
    let pairing = StoredPairing {
        owner,
        game_server_id: game_server_id.or_else(|| known?.game_server_id.clone()),
        name: name.or_else(|| Some(known?.name.clone())).unwrap_or_else(|| address.clone()),
        address,
        port,
        player_id,
        player_token_sealed,
        key_version: vault.key_version(),
    };
    let is_new = known.is_none();
    if !is_new && !same {
        paired_servers::change_credentials(db, &id)?;
    }
    let server = paired_servers::put(db, &id, &pairing, now)?;
    Ok(Ok(PairingOutcome { server, is_new, changed: !same, displaced }))
}

/// Pairs a smart device of a paired server, or changes what the request says of one that is paired.
pub fn pair_device(
    db: &mut Db,
    server: &ServerId,
    request: DeviceRequest,
    now: Timestamp,
) -> Result<Result<DeviceOutcome, PairingRefused>, DbError> {
    let DeviceRequest { entity_id, kind, name, label } = request;
    put_device(db, server, &entity_id.to_string(), kind, name.as_deref(), label.as_deref(), now)
}

/// Adds a camera to a paired server, or changes what the request says of one that is there. A new one is named after
/// its identifier.
pub fn add_camera(
    db: &mut Db,
    server: &ServerId,
    camera: &CameraId,
    name: Option<&str>,
    label: Option<&str>,
    now: Timestamp,
) -> Result<Result<DeviceOutcome, PairingRefused>, DbError> {
    put_device(db, server, camera.as_str(), Some(DeviceKind::Camera), name, label, now)
}

fn put_device(
    db: &mut Db,
    server: &ServerId,
    device_id: &str,
    kind: Option<DeviceKind>,
    name: Option<&str>,
    label: Option<&str>,
    now: Timestamp,
) -> Result<Result<DeviceOutcome, PairingRefused>, DbError> {
    paired_servers::lock(db, server)?;
    let devices = smart_devices::list(db, server)?;
    let known = devices.iter().find(|device| device.device_id == device_id);
    if known.is_none() && devices.len() >= DEVICES_PER_SERVER {
        return Ok(Err(PairingRefused::TooManyDevices));
    }
    let is_new = known.is_none();
    let known = known.map_or((DeviceKind::Unknown, device_id), |known| (known.kind, known.name.as_str()));
    smart_devices::upsert(db, server, device_id, kind.unwrap_or(known.0), name.unwrap_or(known.1), now)?;
    if let Some(label) = label {
        smart_devices::set_label(db, server, device_id, label)?;
    }
    Ok(Ok(DeviceOutcome { device: smart_devices::get(db, server, device_id)?, is_new }))
}

#[cfg(test)]
mod tests {
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
        }
    }

    fn by_hand(address: &str) -> PairingRequest {
        request(PairingSource::Hand, address)
    }

    fn pushed(game_server_id: &str, address: &str) -> PairingRequest {
        request(PairingSource::Push { game_server_id: Some(game_server_id.into()) }, address)
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
            assert_eq!(
                (pushed.server.player_id.as_str(), servers(pool).as_slice()),
                (ALICE, &[pushed.server.clone()][..])
            );
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
}
