//! Limits of what a client may send, and of what it is sent.

use companion::simulator::world::{GATE_SWITCH, TEAM};
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;

use crate::harness::{
    app::TestApp,
    game::{self, ALICE, add_device, is_complete, pair},
    raw_socket::{BINARY_BEGINS, CONTINUES, ENDS, RawSocket, TEXT, TEXT_BEGINS, frame},
    relay_client::{self, RelayClient},
};

/// Bytes of the largest message.
const LARGEST: usize = 64 * 1024;

/// A client without subscriptions, and the token that opened it.
async fn connected() -> (TestApp, RelayClient, String) {
    let app = TestApp::start().await;
    let mut alice = app.signed_in(ALICE).await;
    let token = relay_client::token(&mut alice).await;
    let client = RelayClient::connect(&app, &mut alice).await;
    (app, client, token)
}

#[actix_web::test]
async fn no_ten_seconds_hold_more_than_sixty_frames() {
    let app = TestApp::start_beside_games().await;
    let game = game::still(&app).await;
    let mut alice = app.signed_in(ALICE).await;
    let server = pair(&mut alice, &game).await;
    add_device(&mut alice, &server, GATE_SWITCH).await;
    let mut client = RelayClient::watching(&app, &mut alice, &server).await;
    client.until(&server, |state| is_complete(state, 1)).await;
    // The client counts every frame. Every change, line of chat and pong is one that wants out; 29 pings are no flood.
    for _ in 0..29 {
        client.send(json!({ "type": "ping" })).await;
    }
    let (before, mut turn) = (client.frames, 0);
    while client.frames - before < 75 {
        turn += 1;
        game.world(|world| {
            world.set_switch(GATE_SWITCH, turn % 2 == 0).unwrap();
            if turn % 2 == 0 {
                world.say(TEAM[1].0, &format!("line {turn}"));
            }
        });
        client.next_frame().await;
    }
    // The last words come too, and so does the last change.
    game.world(|world| {
        world.set_switch(GATE_SWITCH, true).unwrap();
        world.say(TEAM[1].0, "the last line");
    });
    client.expect_where("chat", |message| message["chat"]["text"] == "the last line").await;
    client.until(&server, |state| state["devices"][GATE_SWITCH.to_string()]["value"] == true).await;
}

/// More lines than may wait for a socket, from several game servers, because each is cut at a hundred in ten seconds.
/// Slow: the number of dropped lines is sent after ten seconds.
#[actix_web::test]
async fn a_flood_of_chat_stops_neither_patches_nor_pongs_and_is_reported() {
    const SERVERS: usize = 10;
    const LINES: usize = 100;
    let app = TestApp::start_beside_games().await;
    let mut alice = app.signed_in(ALICE).await;
    let mut client = RelayClient::connect(&app, &mut alice).await;
    let mut games = Vec::new();
    for _ in 0..SERVERS {
        let game = game::still(&app).await;
        let server = pair(&mut alice, &game).await;
        add_device(&mut alice, &server, GATE_SWITCH).await;
        client.subscribe(&server).await;
        client.until(&server, |state| is_complete(state, 1)).await;
        games.push((game, server));
    }
    for (game, _) in &games {
        game.world(|world| {
            (0..LINES).for_each(|line| world.say(TEAM[1].0, &format!("line {line}")));
            world.set_switch(GATE_SWITCH, true).unwrap();
        });
    }
    let (mut said, mut dropped, mut pongs) = (0, 0, 0);
    let mut last = std::collections::HashMap::new();
    for (_, server) in &games {
        client.until(server, |state| state["devices"][GATE_SWITCH.to_string()]["value"] == true).await;
        client.send(json!({ "type": "ping" })).await;
    }
    while said + dropped < SERVERS * LINES || pongs < SERVERS {
        let message = client.next_message().await;
        match message["type"].as_str().unwrap() {
            "pong" => pongs += 1,
            "chat" => {
                let line = message["chat"]["text"].as_str().unwrap()["line ".len()..].parse::<usize>().unwrap();
                let before = last.insert(message["serverId"].to_string(), line);
                assert!(before.is_none_or(|before| before < line), "in the order in which it was said");
                said += 1;
            }
            "event" if message["event"]["kind"] == "chat" => {
                assert_eq!(message["event"]["action"], "dropped");
                assert!(games.iter().any(|(_, server)| message["serverId"] == **server), "{message}");
                dropped += message["event"]["data"]["lines"].as_u64().unwrap() as usize;
            }
            _ => {}
        }
    }
    assert_eq!((said + dropped, pongs), (SERVERS * LINES, SERVERS));
    assert!(said <= 2 * 20, "{said} lines of two windows");
    client.ping().await;
}

#[actix_web::test]
async fn a_flood_closes_the_socket() {
    let (_app, mut client, _token) = connected().await;
    for _ in 0..200 {
        // The relay may hang up before all is sent.
        if client.try_send(Message::text(r#"{"type":"ping"}"#)).await.is_err() {
            break;
        }
    }
    assert_eq!(client.expect_close().await, 4429);
}

#[actix_web::test]
async fn thirty_messages_are_no_flood() {
    let (_app, mut client, _token) = connected().await;
    for _ in 0..30 {
        client.send(json!({ "type": "ping" })).await;
    }
    for _ in 0..30 {
        client.expect("pong").await;
    }
}

#[actix_web::test]
async fn a_message_counts_once_and_control_frames_apart() {
    let (app, _client, token) = connected().await;
    let mut full = RawSocket::open(app.relay, &token, None).await;
    for byte in 0..30 {
        full.send(TEXT_BEGINS, br#"{"type":"ping"}"#).await;
        full.send(CONTINUES, b" ").await;
        full.send(0x8A, &[byte]).await;
        full.send(ENDS, b"").await;
    }
    full.send(0x88, &4000_u16.to_be_bytes()).await;
    let (close, texts) = full.until_close().await;
    assert_eq!((close, texts.len()), (4000, 30));

    let mut pings = RawSocket::open(app.relay, &token, None).await;
    pings.write(&frame(0x89, b"").repeat(3_000)).await;
    assert_eq!(pings.expect_close().await, 4429);
    let mut parts = RawSocket::open(app.relay, &token, None).await;
    parts.write(&[frame(TEXT_BEGINS, b""), frame(CONTINUES, b"").repeat(3_000)].concat()).await;
    assert_eq!(parts.expect_close().await, 4429);
}

#[actix_web::test]
async fn a_close_is_answered_by_its_own_code_and_nothing_behind_it() {
    let (app, _client, token) = connected().await;
    let close = |code: u16| code.to_be_bytes().to_vec();
    for (said, answer) in [
        (close(1000), 1000),
        (close(1001), 1001),
        ([close(4000), b"why".to_vec()].concat(), 4000),
        (Vec::new(), 1005),
        (close(1005), 1002),
        (close(999), 1002),
        (vec![3], 1002),
        ([close(1000), vec![0xFF]].concat(), 1002),
    ] {
        let mut socket = RawSocket::open(app.relay, &token, None).await;
        let behind = [frame(TEXT, br#"{"type":"ping"}"#), frame(0x89, b"x")].concat();
        socket.write(&[frame(0x88, &said), behind].concat()).await;
        assert_eq!(socket.until_close().await, (answer, Vec::new()), "{said:?}");
        assert_eq!(socket.drain().await, 0, "and the stream ends");
    }
}

#[actix_web::test]
async fn one_byte_too_many_closes_the_socket() {
    let (app, mut client, token) = connected().await;
    client.send_raw(Message::text("x".repeat(LARGEST))).await;
    client.expect_error("malformed").await;
    let largest = vec![b'x'; LARGEST];

    let mut whole = RawSocket::open(app.relay, &token, None).await;
    whole.send(TEXT, &[&largest[..], b"x"].concat()).await;
    assert_eq!(whole.expect_close().await, 1009);

    let mut parts = RawSocket::open(app.relay, &token, None).await;
    parts.send(TEXT_BEGINS, &largest).await;
    parts.send(CONTINUES, b"").await;
    parts.send(ENDS, b"x").await;
    assert_eq!(parts.expect_close().await, 1009);

    // A frame of a terabyte is not waited for.
    let mut announced = RawSocket::open(app.relay, &token, None).await;
    announced.write(&[0x81, 0xFF, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]).await;
    announced.write(&largest).await;
    announced.write(b"x").await;
    assert_eq!(announced.expect_close().await, 1009);
}

#[actix_web::test]
async fn what_is_not_websocket_closes_the_socket() {
    let (app, _client, token) = connected().await;
    let ping = br#"{"type":"ping"}"#;
    let unmasked = [&[0x81, ping.len() as u8][..], ping].concat();
    let reserved_bit = frame(0xC1, ping);
    let reserved_opcode = frame(0x83, ping);
    let continues_nothing = frame(ENDS, ping);
    let fragmented_ping = frame(0x09, b"x");
    let long_ping = frame(0x89, &[b'x'; 126]);
    for (what, bytes) in [
        ("unmasked", unmasked),
        ("reserved bit", reserved_bit),
        ("reserved opcode", reserved_opcode),
        ("continues nothing", continues_nothing),
        ("a ping in fragments", fragmented_ping),
        ("a ping of 126 bytes", long_ping),
    ] {
        let mut socket = RawSocket::open(app.relay, &token, None).await;
        socket.write(&bytes).await;
        assert_eq!(socket.expect_close().await, 1002, "{what}");
    }
    let not_utf8 = b"{\"type\":\"\xFF\xFE\"}";
    let mut whole = RawSocket::open(app.relay, &token, None).await;
    whole.send(TEXT, not_utf8).await;
    assert_eq!(whole.expect_close().await, 1007);
    let mut parts = RawSocket::open(app.relay, &token, None).await;
    parts.send(TEXT_BEGINS, &not_utf8[..10]).await;
    parts.send(ENDS, &not_utf8[10..]).await;
    assert_eq!(parts.expect_close().await, 1007);
}

#[actix_web::test]
async fn what_makes_no_sense_is_answered_and_the_socket_stays() {
    let (app, mut client, token) = connected().await;
    for text in [
        String::new(),
        "null".to_owned(),
        "{".to_owned(),
        r#"{"type":7}"#.to_owned(),
        r#"{"serverId":"x"}"#.to_owned(),
        r#"{"type":"subscribe"}"#.to_owned(),
        r#"{"type":"subscribe","serverId":7}"#.to_owned(),
        format!(r#"{{"type":"subscribe","serverId":"{}"}}"#, "x".repeat(129)),
        "[".repeat(60_000),
        format!("{{\"type\":\"ping\",\"x\":{}", "[".repeat(60_000)),
    ] {
        client.send_raw(Message::text(text)).await;
        client.expect_error("malformed").await;
    }
    client.send(json!({ "type": "deviceToggle", "serverId": "s", "requestId": "r" })).await;
    let missing = client.expect_error("malformed").await;
    assert_eq!((&missing["serverId"], &missing["requestId"]), (&json!("s"), &json!("r")));
    client.send(json!({ "type": "fly", "requestId": "r" })).await;
    assert_eq!(client.expect_error("unknown_type").await["requestId"], "r");
    client.send_raw(Message::binary(&b"{\"type\":\"ping\"}"[..])).await;
    client.expect_error("malformed").await;
    client.send(json!({ "type": "unsubscribe", "serverId": "never subscribed" })).await;
    client.send_raw(Message::Ping(b"hello"[..].into())).await;
    assert_eq!(client.expect_control_pong().await, b"hello");
    client.ping().await;

    let mut raw = RawSocket::open(app.relay, &token, None).await;
    raw.send(BINARY_BEGINS, b"{").await;
    raw.send(ENDS, b"}").await;
    // A whole message in fragments, with a ping between them, and a goodbye.
    raw.send(TEXT_BEGINS, b"{\"type\":").await;
    raw.send(0x89, b"?").await;
    raw.send(ENDS, b"\"ping\"}").await;
    raw.send(0x88, &1000_u16.to_be_bytes()).await;
    let (close, texts) = raw.until_close().await;
    assert_eq!(close, 1000);
    assert!(texts[0].contains("malformed") && texts[1].contains("pong"), "{texts:?}");
}
