//! Several teams on one game server: who reads and hears what, and what a test may know of it.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr},
};

use companion::{
    game::wire::{app_team_info::Note, *},
    simulator::{
        game_server::{ActKind, AddressUse, DEMO_TOKEN, GameServer, GameServerOptions, Limits},
        world::{GATE_SWITCH, LIGHTS_SWITCH, SimulatedDevice, SimulatedTeamId, SimulatedWorld, TEAM, roster},
    },
};
use tokio::time::timeout;

use crate::game_client::{
    DEADLINE, LEADER, MARLOW, Peer, get_chat, get_entity, get_info, get_markers, get_team, kick, options, promote,
    raw_bytes_of, say, set_entity, world,
};

/// Players of the second and third team; each has the token `token` gives.
struct Players(Vec<Vec<u64>>);

impl Players {
    fn of(&self, team: usize, member: usize) -> u64 {
        self.0[team][member]
    }
}

fn token(player: u64) -> i32 {
    -((player % 10_000) as i32) - 7
}

/// A game server with two teams of three beside the first, all paired; the limits are the game's own.
async fn server_with(limits: Limits) -> (GameServer, Players) {
    let mut world = world();
    let teams = roster(2, 3);
    for founders in &teams {
        world.found_team(founders);
    }
    let players: Vec<Vec<u64>> = teams.iter().map(|team| team.iter().map(|(player, _)| *player).collect()).collect();
    let mut paired: Vec<_> = players.iter().flatten().map(|player| (*player, token(*player))).collect();
    paired.push((LEADER, DEMO_TOKEN));
    let options = GameServerOptions { world, players: paired, limits, ..options() };
    (GameServer::start(options).await.expect("a free port"), Players(players))
}

async fn server() -> (GameServer, Players) {
    server_with(Limits::default()).await
}

/// A client of the player that gets the broadcasts of the team already.
async fn bound(server: &GameServer, player: u64) -> Peer {
    let mut peer = Peer::connect_as(server, player, token(player)).await;
    peer.ask(get_info()).await.info.expect("info");
    peer
}

fn members(team: &AppTeamInfo) -> Vec<u64> {
    team.members.iter().map(|member| member.steam_id).collect()
}

/// Members as the game server has them, without asking for a token.
fn real_members(server: &GameServer, player: u64) -> Vec<u64> {
    server.world(|world| world.team_of(player).map(|team| team.members().to_vec()).unwrap_or_default())
}

fn team_of(world: &SimulatedWorld, player: u64) -> SimulatedTeamId {
    world.team_of(player).expect("a team").id()
}

async fn next_team<S>(peer: &mut Peer<S>) -> AppTeamInfo
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let changed = peer.broadcast().await.team_changed.expect("teamChanged");
    assert_eq!(changed.player_id, peer.player_id, "each gets the team as they see it");
    changed.team_info
}

fn note(label: &str) -> Note {
    Note { r#type: 1, label: Some(label.to_owned()), ..Default::default() }
}

#[actix_web::test]
async fn each_player_reads_their_own_team_and_its_players_on_the_map() {
    let (server, players) = server().await;
    server.world(|world| {
        world.add_note(players.of(0, 0), note("of the leader"));
        world.add_note(players.of(0, 1), note("my own"));
        world.add_note(players.of(1, 0), note("of another team"));
    });
    let mut shops = BTreeSet::new();
    for team in 0..2 {
        let mut mate = bound(&server, players.of(team, 1)).await;
        let info = mate.ask(get_team()).await.team_info.expect("a team");
        assert_eq!((info.leader_steam_id, members(&info)), (players.of(team, 0), players.0[team].clone()));
        assert_eq!(members(&info), real_members(&server, players.of(team, 2)));
        let labels = |notes: &[Note]| notes.iter().filter_map(|note| note.label.clone()).collect::<Vec<_>>();
        let (own, leaders) = (labels(&info.map_notes), labels(&info.leader_map_notes));
        match team {
            0 => assert_eq!((own, leaders), (vec!["my own".into()], vec!["of the leader".into()])),
            _ => assert_eq!((own, leaders), (vec![], vec!["of another team".into()])),
        }
        let markers = mate.ask(get_markers()).await.map_markers.expect("markers").markers;
        let (shown, rest): (Vec<_>, Vec<_>) = markers.into_iter().partition(|marker| marker.steam_id.is_some());
        assert_eq!(shown.iter().filter_map(|marker| marker.steam_id).collect::<Vec<_>>(), players.0[team]);
        shops.insert(format!("{rest:?}"));
    }
    assert_eq!(shops.len(), 1, "everything else on the map is the same for all");
}

#[actix_web::test]
async fn chat_and_changes_of_a_team_stay_in_it() {
    let (server, players) = server().await;
    let (mut one, mut mate) = (bound(&server, players.of(0, 0)).await, bound(&server, players.of(0, 1)).await);
    let (mut other, mut leader) = (bound(&server, players.of(1, 0)).await, Peer::connect(&server).await);
    leader.ask(get_info()).await.info.expect("info");
    one.ask(say("only for us")).await.success.expect("said");
    server.world(|world| world.kill(players.of(0, 2)));
    for peer in [&mut one, &mut mate] {
        let line = peer.broadcast().await.team_message.expect("teamMessage").message;
        assert_eq!((line.steam_id, line.message.as_str()), (players.of(0, 0), "only for us"));
        assert!(next_team(peer).await.members.iter().any(|member| !member.is_alive));
    }
    for peer in [&mut other, &mut leader] {
        assert!(peer.broadcasts_so_far().await.is_empty());
        assert!(peer.ask(get_chat()).await.team_chat.expect("chat").messages.is_empty());
    }
    assert_eq!(mate.ask(get_chat()).await.team_chat.expect("chat").messages.len(), 1);
    let said = server.world(|world| world.teams().map(|team| team.lines().count()).collect::<Vec<_>>());
    assert_eq!(said, [0, 1, 0]);
}

#[actix_web::test]
async fn devices_are_for_players_who_are_authorised_at_their_cupboard() {
    let (server, players) = server().await;
    let gate = SimulatedWorld::device_of(1, GATE_SWITCH);
    let (mut mate, mut other) = (bound(&server, players.of(0, 1)).await, bound(&server, players.of(1, 0)).await);
    mate.ask(get_entity(gate)).await.entity_info.expect("their own switch");
    let entity = AppRequest { entity_id: Some(gate), ..Default::default() };
    let check = AppRequest { check_subscription: Some(AppEmpty {}), ..entity.clone() };
    let wanted = AppRequest { set_subscription: Some(AppFlag { value: true }), ..entity };
    for request in [get_entity(gate), set_entity(gate, true), check, wanted, get_entity(GATE_SWITCH)] {
        assert_eq!(other.refusal(request).await, "not_found");
    }
    assert!(mate.broadcasts_so_far().await.is_empty(), "nothing was turned");

    server.world(|world| world.authorise(1, players.of(1, 0), true));
    other.ask(set_entity(gate, true)).await.success.expect("turned by one who is authorised now");
    for peer in [&mut mate, &mut other] {
        assert_eq!(peer.entity_changed().await.payload.value, Some(true));
    }
    server.world(|world| world.authorise(1, players.of(1, 0), false));
    assert_eq!(other.refusal(get_entity(gate)).await, "not_found");
    server.world(|world| {
        world.add_device(9, "On the road", SimulatedDevice::Switch { on: false });
        world.leave_team(players.of(0, 1));
    });
    other.ask(get_entity(9)).await.entity_info.expect("no cupboard covers it");
    mate.broadcasts.clear();
    mate.ask(get_entity(gate)).await.entity_info.expect("authorised as before, in the team or not");
}

#[actix_web::test]
async fn players_leave_and_join_and_each_sees_the_team_they_are_in() {
    let (server, players) = server().await;
    let (first, second, third) = (players.of(0, 0), players.of(0, 1), players.of(0, 2));
    let host = players.of(1, 0);
    let mut leader = bound(&server, first).await;
    let (mut mate, mut hosts) = (bound(&server, second).await, bound(&server, host).await);
    hosts.ask(say("before you came")).await.success.expect("said");
    hosts.broadcast().await.team_message.expect("teamMessage");

    server.world(|world| world.leave_team(first));
    assert_eq!(members(&next_team(&mut leader).await), [first], "the view of one without a team");
    let left = next_team(&mut mate).await;
    assert_eq!((left.leader_steam_id, members(&left)), (second, vec![second, third]));
    for request in [get_chat(), say("hello?"), kick(second)] {
        assert_eq!(leader.refusal(request).await, "no_team");
    }

    assert!(server.world(|world| world.join_team(first, team_of(world, host))));
    let joined = next_team(&mut leader).await;
    assert_eq!(joined, AppTeamInfo { map_notes: Vec::new(), ..next_team(&mut hosts).await });
    assert_eq!((joined.leader_steam_id, members(&joined).last()), (host, Some(&first)));
    let lines = leader.ask(get_chat()).await.team_chat.expect("chat").messages;
    assert_eq!(lines.iter().map(|line| line.message.as_str()).collect::<Vec<_>>(), ["before you came"]);
    assert!(mate.broadcasts_so_far().await.is_empty(), "the team that was left has heard all of that");

    hosts.ask(kick(first)).await.success.expect("the leader kicks");
    assert_eq!(members(&next_team(&mut leader).await), [first]);
    assert_eq!(members(&next_team(&mut hosts).await), players.0[1]);
    hosts.ask(promote(players.of(1, 2))).await.success.expect("the leader hands on");
    assert_eq!(next_team(&mut hosts).await.leader_steam_id, players.of(1, 2));
    assert_eq!(hosts.refusal(kick(players.of(1, 1))).await, "access_denied");

    server.world(|world| world.make_team(first));
    next_team(&mut leader).await;
    assert!(leader.ask(get_chat()).await.team_chat.expect("a chat of one").messages.is_empty());
}

#[actix_web::test]
async fn a_team_has_eight_members_at_most_and_ends_with_the_last() {
    let (server, players) = server().await;
    let crowd: Vec<u64> = (1..=6).collect();
    server.world(|world| {
        let team = team_of(world, LEADER);
        let joined: Vec<bool> = crowd.iter().map(|player| world.join_team(*player, team)).collect();
        assert_eq!(joined, [true, true, true, true, false, false]);
        assert!(!world.join_team(MARLOW, team), "a member already");
        assert_eq!(world.team_of(LEADER).expect("a team").members().len(), 8);

        let team = team_of(world, players.of(0, 0));
        for player in &players.0[0] {
            world.leave_team(*player);
        }
        assert!(world.teams().all(|left| left.id() != team));
        assert!(!world.join_team(players.of(0, 0), team), "there is no such team");
        world.wipe();
        assert_eq!(world.team_of(LEADER).expect("a team").members(), TEAM.map(|(player, _)| player));
        assert_eq!(world.team_of(players.of(0, 0)).expect("a team").members(), players.0[0]);
    });
}

#[actix_web::test]
async fn five_connections_are_open_for_an_address_and_others_have_their_own() {
    let (server, players) = server().await;
    let here = IpAddr::from(Ipv4Addr::LOCALHOST);
    let mut peers = Vec::new();
    for player in players.0.iter().flatten().take(5) {
        peers.push(bound(&server, *player).await);
    }
    assert_eq!(raw_bytes_of(server.addr()).await, [0x88, 0x02, 0x03, 0xE8]);
    let last = players.of(1, 2);
    let elsewhere = Ipv4Addr::new(127, 0, 0, 2);
    let mut from_elsewhere = Peer::connect_from(&server, elsewhere, last, token(last)).await;
    from_elsewhere.ask(get_info()).await.info.expect("another address");
    let addresses = server.addresses();
    assert_eq!(addresses[&here], AddressUse { open: 5, most: 5, refused: 1, ..Default::default() });
    assert_eq!(addresses[&elsewhere.into()], AddressUse { open: 1, most: 1, ..Default::default() });
    let clients: Vec<_> = server.clients().into_iter().map(|client| (client.address, client.player)).collect();
    let mut real: Vec<_> = players.0.iter().flatten().take(5).map(|player| (here, Some(*player))).collect();
    real.push((elsewhere.into(), Some(last)));
    assert_eq!(clients, real);

    drop(peers.pop());
    let left = async {
        while server.addresses()[&here].open == 5 {
            tokio::task::yield_now().await;
        }
    };
    timeout(DEADLINE, left).await.expect("the server notices");
    bound(&server, last).await;
    assert_eq!((server.addresses()[&here].most, server.addresses()[&here].refused), (5, 1));
}

#[actix_web::test]
async fn buckets_are_per_player_and_per_address_however_many_connections_there_are() {
    let limits = Limits { player_tokens: (3.0, 0.0), address_tokens: (5.0, 0.0), ..Limits::default() };
    let (server, players) = server_with(limits).await;
    let (one, mate) = (players.of(0, 0), players.of(0, 1));
    let mut peers = [bound(&server, one).await, bound(&server, one).await];
    peers[0].ask(get_info()).await.info.expect("the third token of the player");
    assert_eq!(peers[1].refusal(get_info()).await, "rate_limit");
    let mut peer = bound(&server, mate).await;
    peer.ask(get_info()).await.info.expect("the fifth token of the address");
    assert_eq!(peer.refusal(get_info()).await, "rate_limit");
    let mut elsewhere = Peer::connect_from(&server, Ipv4Addr::new(127, 0, 0, 2), mate, token(mate)).await;
    elsewhere.ask(get_info()).await.info.expect("the third token of the player, at another address");
    assert_eq!(server.addresses()[&IpAddr::from(Ipv4Addr::LOCALHOST)].rate_limited, 2);
}

#[actix_web::test]
async fn tokens_are_revoked_one_by_one_and_given_again() {
    let (server, players) = server().await;
    let (one, mate) = (players.of(0, 0), players.of(0, 1));
    let (mut peer, mut other) = (bound(&server, one).await, bound(&server, mate).await);
    server.set_token(one, None);
    assert_eq!(peer.refusal(get_team()).await, "not_found");
    other.ask(get_team()).await.team_info.expect("the mate's token is good");
    server.world(|world| world.say(mate, "still there?"));
    peer.broadcast().await.team_message.expect("the connection stays, and so do its broadcasts");
    server.set_token(one, Some(5));
    assert_eq!(peer.refusal(get_team()).await, "not_found", "the earlier token");
    peer.player_token = 5;
    peer.ask(get_team()).await.team_info.expect("the new token, on the same connection");
    server.set_token(mate, None);
    assert_eq!(other.refusal(get_team()).await, "not_found");
    assert_eq!(server.addresses()[&IpAddr::from(Ipv4Addr::LOCALHOST)].bad_tokens, 3);
    let mut late = Peer::connect_as(&server, mate, token(mate)).await;
    assert_eq!(late.refusal(get_info()).await, "not_found");
}

#[actix_web::test]
async fn acts_have_the_player_who_did_them_and_the_connection() {
    let (server, players) = server().await;
    let (one, mate) = (players.of(0, 0), players.of(0, 1));
    let (gate, lights) = (SimulatedWorld::device_of(1, GATE_SWITCH), SimulatedWorld::device_of(1, LIGHTS_SWITCH));
    let (mut first, mut second) = (bound(&server, one).await, bound(&server, mate).await);
    first.ask(say("mine")).await.success.expect("said");
    first.ask(say("  ")).await.success.expect("answered, and nothing was said");
    second.ask(set_entity(gate, true)).await.success.expect("turned");
    assert_eq!(second.refusal(set_entity(1, true)).await, "not_found");
    server.world(|world| world.say(mate, "said in the game"));
    first.ask(promote(mate)).await.success.expect("promoted");
    second.ask(kick(one)).await.success.expect("kicked");
    // One connection that goes over to another player: what a client of several players must not do.
    (second.player_id, second.player_token) = (players.of(0, 2), token(players.of(0, 2)));
    second.ask(set_entity(lights, false)).await.success.expect("turned");

    let connections: Vec<u64> = server.clients().iter().map(|client| client.connection).collect();
    let [first_connection, second_connection] = connections[..] else { panic!("{connections:?}") };
    let acts: Vec<_> = server.acts().into_iter().map(|act| (act.player, act.connection, act.kind)).collect();
    let turned = |entity_id, on| ActKind::Turned { entity_id, on };
    assert_eq!(
        acts,
        [
            (one, first_connection, ActKind::Said("mine".to_owned())),
            (mate, second_connection, turned(gate, true)),
            (one, first_connection, ActKind::Promoted(mate)),
            (mate, second_connection, ActKind::Kicked(one)),
            (players.of(0, 2), second_connection, turned(lights, false)),
        ]
    );
    let team = server.world(|world| team_of(world, mate));
    assert!(server.acts().iter().all(|act| act.team == Some(team)));
    assert_eq!(server.addresses()[&IpAddr::from(Ipv4Addr::LOCALHOST)].rebound, 1);
    assert_eq!(server.connections_of(mate), 0);
}

#[actix_web::test]
async fn changes_of_a_lively_world_reach_the_players_that_they_concern() {
    let (server, players) = server_with(Limits::unlimited()).await;
    server.world(SimulatedWorld::enliven_teams);
    let everybody: Vec<u64> = players.0.iter().flatten().copied().chain([LEADER]).collect();
    let mut peers = Vec::new();
    for player in &everybody {
        let token = if *player == LEADER { DEMO_TOKEN } else { token(*player) };
        let mut peer = Peer::connect_as(&server, *player, token).await;
        let team = peer.ask(get_team()).await.team_info.expect("a team");
        peers.push((peer, members(&team)));
    }
    let mut seen = BTreeSet::new();
    for _ in 0..48 {
        server.advance(std::time::Duration::from_secs(15));
        for (peer, known) in &mut peers {
            for broadcast in peer.broadcasts_so_far().await {
                if let Some(line) = broadcast.team_message {
                    let speaker = line.message.steam_id;
                    seen.insert((peer.player_id, speaker));
                }
                if let Some(changed) = broadcast.team_changed {
                    *known = members(&changed.team_info);
                }
            }
            let real = real_members(&server, peer.player_id);
            assert_eq!(*known, if real.is_empty() { vec![peer.player_id] } else { real });
        }
    }
    let traveller = players.of(0, 2);
    assert!(seen.contains(&(traveller, players.of(1, 0))), "the last founder of a team visits the next one");
    assert!(!seen.iter().any(|(player, speaker)| *player == players.of(0, 0) && *speaker == players.of(1, 0)));
}
