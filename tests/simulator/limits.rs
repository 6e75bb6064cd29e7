//! The game's limits: tokens, connections, messages.

use std::time::Duration;

use companion::{
    game::wire::*,
    simulator::game_server::{DEMO_TOKEN, GameServer, GameServerOptions, Limits},
};
use futures_util::SinkExt as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use tokio_tungstenite::tungstenite::Message;

use crate::game_client::{
    DEADLINE, LEADER, MARLOW, MARLOWS_TOKEN, Peer, get_info, get_markers, get_time, options, raw_bytes_of, say, server,
};

#[actix_web::test]
async fn wrong_token_is_not_found_and_the_connection_stays() {
    let server = server().await;
    let mut peer = Peer::connect_as(&server, LEADER, 1).await;
    assert_eq!(peer.refusal(get_info()).await, "not_found");
    assert_eq!(peer.refusal(get_markers()).await, "not_found");
    server.world(|world| world.kill(MARLOW));
    peer.player_token = DEMO_TOKEN;
    assert!(peer.broadcasts_so_far().await.is_empty(), "no broadcasts before the first valid request");
    server.set_token(LEADER, None);
    assert_eq!(peer.refusal(get_info()).await, "not_found");
}

#[actix_web::test]
async fn repeated_wrong_tokens_block_the_address() {
    let limits = Limits { bad_tokens: (3.0, 0.0), ..Default::default() };
    let server = GameServer::start(GameServerOptions { limits, ..options() }).await.expect("a free port");
    let mut peer = Peer::connect_as(&server, LEADER, 1).await;
    for _ in 0..3 {
        assert_eq!(peer.refusal(get_info()).await, "not_found");
    }
    peer.send(get_info()).await;
    assert_eq!(peer.next_bytes().await, None);
    let mut honest = Peer::connect(&server).await;
    honest.send(get_info()).await;
    assert_eq!(honest.next_bytes().await, None, "the address is cut off, whatever the token");
}

#[actix_web::test]
async fn player_bucket_holds_25_tokens() {
    let limits = Limits { player_tokens: (25.0, 0.0), ..Default::default() };
    let server = GameServer::start(GameServerOptions { limits, ..options() }).await.expect("a free port");
    let mut peer = Peer::connect(&server).await;
    peer.ask(AppRequest { get_map: Some(AppEmpty {}), ..Default::default() }).await.map.expect("5 tokens");
    peer.ask(say("one")).await.success.expect("2 tokens");
    for _ in 0..17 {
        peer.ask(get_info()).await.info.expect("1 token");
    }
    assert_eq!(peer.refusal(say("no")).await, "rate_limit");
    peer.ask(get_info()).await.info.expect("the last token");
    assert_eq!(peer.refusal(get_info()).await, "rate_limit");
    let mut mate = Peer::connect_as(&server, MARLOW, MARLOWS_TOKEN).await;
    mate.ask(get_info()).await.info.expect("another player, another bucket");
}

#[actix_web::test]
async fn address_bucket_is_shared_by_its_players() {
    let limits = Limits { address_tokens: (4.0, 0.0), ..Default::default() };
    let server = GameServer::start(GameServerOptions { limits, ..options() }).await.expect("a free port");
    let mut peer = Peer::connect(&server).await;
    let mut mate = Peer::connect_as(&server, MARLOW, MARLOWS_TOKEN).await;
    for peer in [&mut peer, &mut mate] {
        peer.ask(get_info()).await.info.expect("1 token");
        peer.ask(get_time()).await.time.expect("1 token");
    }
    assert_eq!(peer.refusal(get_info()).await, "rate_limit");
    assert_eq!(mate.refusal(get_info()).await, "rate_limit");
}

#[actix_web::test]
async fn sixth_connection_of_an_address_gets_the_refusal_bytes() {
    let server = server().await;
    let mut peers = Vec::new();
    for _ in 0..5 {
        peers.push(Peer::connect(&server).await);
    }
    assert_eq!(server.connections(), 5);
    assert_eq!(raw_bytes_of(server.addr()).await, [0x88, 0x02, 0x03, 0xE8]);
    for peer in &mut peers {
        peer.ask(get_info()).await.info.expect("the others are served");
    }
}

#[actix_web::test]
async fn compression_is_declined() {
    let server = server().await;
    let mut stream = TcpStream::connect(server.addr()).await.expect("a listener");
    let request = "GET /x?y=z HTTP/1.1\r\nHost: game\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                   Origin: http://elsewhere.test\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                   Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n\r\n";
    stream.write_all(request.as_bytes()).await.expect("an open socket");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(timeout(DEADLINE, stream.read_u8()).await.expect("a head in time").expect("a head"));
    }
    let head = String::from_utf8(head).expect("text").to_lowercase();
    assert!(head.starts_with("http/1.1 101"), "{head}");
    assert!(!head.contains("sec-websocket-extensions"), "{head}");
}

#[actix_web::test]
async fn large_messages_and_text_are_ignored_and_rubbish_closes() {
    let server = server().await;
    let mut peer = Peer::connect(&server).await;
    peer.socket.send(Message::binary(vec![0; (1 << 20) + 1])).await.expect("an open socket");
    peer.socket.send(Message::text("hello")).await.expect("an open socket");
    peer.ask(get_info()).await.info.expect("still open, nothing answered before");
    peer.socket.send(Message::binary(vec![0xFF; 8])).await.expect("an open socket");
    assert_eq!(peer.next_bytes().await, None);
}

#[actix_web::test]
async fn waiting_requests_beyond_the_queue_get_no_answer() {
    let limits = Limits { queue: 2, ..Default::default() };
    let server = GameServer::start(GameServerOptions { limits, ..options() }).await.expect("a free port");
    let mut peer = Peer::in_memory(&server).await;
    tokio::time::pause();
    server.faults(|faults| faults.delay = Some(Duration::from_secs(1)));
    for _ in 0..4 {
        peer.send(get_info()).await;
    }
    let mut answered = vec![peer.next().await.response.expect("an answer").seq];
    answered.push(peer.next().await.response.expect("an answer").seq);
    answered.sort_unstable();
    assert_eq!(answered, [1, 2]);
    server.faults(|faults| faults.delay = None);
    peer.ask(get_info()).await.info.expect("the third and fourth were dropped");
}

#[actix_web::test]
async fn a_client_that_does_not_read_is_cut() {
    let server = server().await;
    let (mut peer, mut other) = (Peer::connect(&server).await, Peer::connect_as(&server, 5, 5).await);
    peer.ask(get_info()).await;
    server.world(|world| (0..2000).for_each(|_| world.say(LEADER, &"x".repeat(200))));
    assert_eq!(server.connections(), 1);
    assert_eq!(other.refusal(get_info()).await, "not_found", "other clients are served");
    while peer.next_bytes().await.is_some() {}
}
