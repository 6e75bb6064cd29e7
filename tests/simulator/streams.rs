//! The game server without TCP: any stream will do.

use companion::simulator::{
    game_server::{GameServer, GameServerOptions, Limits},
    world::GATE_SWITCH,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

use crate::game_client::{Peer, get_entity, get_info, options};

#[actix_web::test]
async fn a_stream_that_the_caller_accepted_is_served_like_a_connection() {
    let server = GameServer::new(options());
    let mut peer = Peer::in_memory(&server).await;
    peer.ask(get_entity(GATE_SWITCH)).await.entity_info.expect("entity info");
    server.world(|world| world.set_switch(GATE_SWITCH, true)).expect("a switch");
    assert_eq!(peer.entity_changed().await.payload.value, Some(true));
    assert_eq!(server.connections(), 1);
    server.drop_connections();
    assert_eq!(peer.next_bytes().await, None);
    drop(peer);

    let mut again = Peer::in_memory(&server).await;
    again.ask(get_info()).await.info.expect("info");
    drop(server);
    assert_eq!(again.next_bytes().await, None, "the connection ends with the server");
}

#[actix_web::test]
async fn a_full_server_refuses_a_stream() {
    let limits = Limits { connections: 0, ..Limits::default() };
    let server = GameServer::new(GameServerOptions { limits, ..options() });
    let (mut ours, theirs) = duplex(1024);
    actix_web::rt::spawn(server.serve(theirs, [127, 0, 0, 1].into()));
    ours.write_all(b"GET / HTTP/1.1\r\n\r\n").await.expect("an open stream");
    let mut bytes = [0; 4];
    ours.read_exact(&mut bytes).await.expect("the refusal");
    assert_eq!(bytes, [0x88, 0x02, 0x03, 0xE8]);
}

#[actix_web::test]
async fn a_map_picture_can_be_given() {
    let picture = &b"not even a JPEG"[..];
    let server = GameServer::new(GameServerOptions { map_picture: Some(picture.into()), ..options() });
    let mut peer = Peer::in_memory(&server).await;
    let request = companion::game::wire::AppRequest { get_map: Some(Default::default()), ..Default::default() };
    assert_eq!(peer.ask(request).await.map.expect("a map").jpg_image, picture);
}
