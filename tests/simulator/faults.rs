//! A game server that misbehaves, restarts or is wiped.

use std::time::Duration;

use companion::{
    game::wire::*,
    simulator::{game_server::GameServerFaults, world::GATE_SWITCH},
};
use futures_util::{SinkExt as _, StreamExt as _};
use prost::Message as _;
use tokio::{net::TcpStream, time::timeout};
use tokio_tungstenite::tungstenite::Message;

use crate::game_client::{DEADLINE, MARLOW, Peer, get_entity, get_info, raw_bytes_of, server};

#[actix_web::test]
async fn a_frozen_server_answers_pings_only() {
    let server = server().await;
    let mut peer = Peer::connect(&server).await;
    peer.ask(get_info()).await;
    server.faults(|faults| faults.frozen = true);
    peer.send(get_info()).await;
    server.world(|world| world.kill(MARLOW));
    peer.socket.send(Message::Ping("?".into())).await.expect("an open socket");
    let answer = timeout(DEADLINE, peer.socket.next()).await.expect("in time").expect("open").expect("a frame");
    assert_eq!(answer, Message::Pong("?".into()));
    server.faults(|faults| *faults = GameServerFaults::default());
    peer.broadcast().await.team_changed.expect("the broadcast, now that the game is not frozen");
    peer.ask(get_info()).await.info.expect("answers again");
}

#[actix_web::test]
async fn each_fault_does_what_its_name_says() {
    let server = server().await;
    let mut peer = Peer::connect(&server).await;
    server.faults(|faults| faults.rate_limit = true);
    assert_eq!(peer.refusal(get_info()).await, "rate_limit");
    server.faults(|faults| *faults = GameServerFaults { reject_tokens: true, ..GameServerFaults::default() });
    assert_eq!(peer.refusal(get_info()).await, "not_found");
    server.faults(|faults| *faults = GameServerFaults { unknown_fields: true, ..GameServerFaults::default() });
    peer.ask(get_info()).await.info.expect("unknown fields are skipped");
    for faults in [
        GameServerFaults { rubbish: true, ..GameServerFaults::default() },
        GameServerFaults { truncate: true, ..GameServerFaults::default() },
    ] {
        server.faults(|current| *current = faults);
        peer.send(get_info()).await;
        let data = peer.next_bytes().await.expect("an open connection");
        assert!(AppMessage::decode(data).is_err());
    }
    server.faults(|faults| *faults = GameServerFaults { refuse: true, ..GameServerFaults::default() });
    assert_eq!(raw_bytes_of(server.addr()).await, [0x88, 0x02, 0x03, 0xE8]);
    server.faults(|faults| {
        *faults = GameServerFaults { delay: Some(Duration::from_millis(20)), ..GameServerFaults::default() }
    });
    peer.ask(get_info()).await.info.expect("a late answer");
}

#[actix_web::test]
async fn restart_and_dropped_connections_end_subscriptions() {
    let server = server().await;
    let mut peer = Peer::connect(&server).await;
    peer.ask(get_entity(GATE_SWITCH)).await;
    server.drop_connections();
    assert_eq!(peer.next_bytes().await, None);
    let mut peer = Peer::connect(&server).await;
    peer.ask(get_info()).await;
    server.world(|world| world.set_switch(GATE_SWITCH, true)).expect("a switch");
    assert!(peer.broadcasts_so_far().await.is_empty(), "the subscription ended with the connection");
    server.stop().await;
    assert_eq!(peer.next_bytes().await, None);
    assert!(TcpStream::connect(server.addr()).await.is_err(), "the port is closed");
    server.restart().await.expect("the same port");
    let mut peer = Peer::connect(&server).await;
    let info = peer.ask(get_entity(GATE_SWITCH)).await.entity_info.expect("the world survives");
    assert_eq!(info.payload.value, Some(true));
}

#[actix_web::test]
async fn a_wipe_cuts_connections_and_brings_another_map_without_devices() {
    let server = server().await;
    let mut peer = Peer::connect(&server).await;
    let before = peer.ask(get_info()).await.info.expect("info");
    server.wipe();
    assert_eq!(peer.next_bytes().await, None);
    let mut peer = Peer::connect(&server).await;
    let after = peer.ask(get_info()).await.info.expect("the token survives");
    assert_ne!(after.seed, before.seed);
    assert!(after.wipe_time > before.wipe_time + 60);
    assert_eq!(peer.refusal(get_entity(GATE_SWITCH)).await, "not_found");
}
