//! permessage-deflate (RFC 7692), from outside.

use companion::simulator::world::GATE_SWITCH;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};
use serde_json::{Value, json};

use crate::harness::{
    app::TestApp,
    game::{self, ALICE, add_device, is_complete, pair},
    raw_socket::{CONTINUES, ENDS, RawSocket, TEXT, TEXT_BEGINS},
    relay_client::{self, RelayClient},
};

const OFFER: &str = "permessage-deflate; client_max_window_bits";
const AGREED: &str = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";
/// Compressed.
const RSV1: u8 = 0x40;
const PING: &str = r#"{"type":"ping"}"#;

fn deflated(message: &[u8]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(message.len() + 100);
    Compress::new(Compression::best(), false).compress_vec(message, &mut payload, FlushCompress::Sync).unwrap();
    payload.strip_suffix(&[0, 0, 0xFF, 0xFF]).unwrap().to_vec()
}

/// The message of a frame, however it came, as JSON.
fn message((first, payload): (u8, Vec<u8>)) -> Value {
    let text = match first {
        TEXT => payload,
        first => {
            assert_eq!(first, TEXT | RSV1);
            let mut text = Vec::with_capacity(1 << 20);
            let payload = [&payload[..], &[0, 0, 0xFF, 0xFF]].concat();
            Decompress::new(false).decompress_vec(&payload, &mut text, FlushDecompress::Sync).unwrap();
            text
        }
    };
    serde_json::from_slice(&text).unwrap()
}

/// A service that compresses, and a token.
async fn deflating() -> (TestApp, String) {
    let app = TestApp::start_with(&["--relay-deflate=true"]).await;
    let mut alice = app.signed_in(ALICE).await;
    let token = relay_client::token(&mut alice).await;
    (app, token)
}

#[actix_web::test]
async fn who_offers_it_is_sent_less_and_sees_the_same() {
    let app = TestApp::start_with(&["--allow-private-game-servers=true", "--relay-deflate=true"]).await;
    let game = game::still(&app).await;
    let mut alice = app.signed_in(ALICE).await;
    let server = pair(&mut alice, &game).await;
    add_device(&mut alice, &server, GATE_SWITCH).await;
    let mut plain = RelayClient::watching(&app, &mut alice, &server).await;
    plain.until(&server, |state| is_complete(state, 1)).await;
    let token = relay_client::token(&mut alice).await;
    let mut sockets = Vec::new();
    for _ in 0..2 {
        let mut socket = RawSocket::offering(app.relay, &token, OFFER).await;
        assert!(socket.answer.to_lowercase().contains(&format!("sec-websocket-extensions: {AGREED}\r\n")));
        let subscribe = json!({ "type": "subscribe", "serverId": server }).to_string();
        socket.send(TEXT | RSV1, &deflated(subscribe.as_bytes())).await;
        let (first, payload) = socket.expect_frame().await;
        let bytes = payload.len();
        let snapshot = message((first, payload));
        assert_eq!((first, &snapshot["state"]), (TEXT | RSV1, plain.state(&server)));
        assert!(bytes < snapshot.to_string().len() / 2, "{bytes} bytes");
        sockets.push(socket);
    }
    game.world(|world| world.set_switch(GATE_SWITCH, true)).unwrap();
    let patch = plain.expect_patch(&server).await;
    for mut socket in sockets {
        assert_eq!(message(socket.expect_frame().await), patch);
    }
}

#[actix_web::test]
async fn who_does_not_offer_it_or_not_so_is_sent_plain_text() {
    let (app, token) = deflating().await;
    for offer in ["", "permessage-deflate; server_max_window_bits=12", "permessage-bzip2"] {
        let mut socket = RawSocket::offering(app.relay, &token, offer).await;
        assert!(!socket.answer.to_lowercase().contains("extensions"), "{offer}: {}", socket.answer);
        socket.send(TEXT, PING.as_bytes()).await;
        assert_eq!(message(socket.expect_frame().await), json!({ "type": "pong" }));
        socket.send(TEXT | RSV1, &deflated(PING.as_bytes())).await;
        assert_eq!(socket.expect_close().await, 1002, "{offer}");
    }
    let app = TestApp::start().await;
    let mut alice = app.signed_in(ALICE).await;
    let token = relay_client::token(&mut alice).await;
    let socket = RawSocket::offering(app.relay, &token, OFFER).await;
    assert!(!socket.answer.to_lowercase().contains("extensions"), "it is off: {}", socket.answer);
}

#[actix_web::test]
async fn what_a_client_compresses_is_understood_whole_in_fragments_and_byte_by_byte() {
    let (app, token) = deflating().await;
    let mut socket = RawSocket::offering(app.relay, &token, OFFER).await;
    let ping = deflated(PING.as_bytes());
    socket.send(TEXT | RSV1, &ping).await;
    socket.send(TEXT, PING.as_bytes()).await;
    socket.send(TEXT_BEGINS | RSV1, &ping[..3]).await;
    socket.send(0x89, b"between").await;
    socket.send(CONTINUES, &ping[3..5]).await;
    socket.send(ENDS, &ping[5..]).await;
    let texts = [socket.expect_frame().await, socket.expect_frame().await].map(message);
    assert_eq!(texts, [json!({ "type": "pong" }), json!({ "type": "pong" })]);
    let rest = [socket.expect_frame().await, socket.expect_frame().await];
    assert!(rest.contains(&(0x8A, b"between".to_vec())), "{rest:?}");
    for byte in crate::harness::raw_socket::frame(TEXT | RSV1, &ping) {
        socket.stream.set_nodelay(true).unwrap();
        socket.write(&[byte]).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(message(socket.expect_frame().await), json!({ "type": "pong" }));
    // The largest that may be, in few bytes.
    let largest = format!("{PING}{}", " ".repeat(64 * 1024 - PING.len()));
    socket.send(TEXT | RSV1, &deflated(largest.as_bytes())).await;
    assert_eq!(message(socket.expect_frame().await), json!({ "type": "pong" }));
    socket.send(0x82 | RSV1, &ping).await;
    assert_eq!(message(socket.expect_frame().await)["code"], "malformed");
}

#[actix_web::test]
async fn what_is_not_compressed_right_closes_the_socket() {
    let (app, token) = deflating().await;
    let ping = deflated(PING.as_bytes());
    let bomb = deflated(&vec![b' '; 20 << 20]);
    assert!(bomb.len() < 64 * 1024);
    for (what, frames, code) in [
        ("one byte too many", vec![(TEXT | RSV1, deflated(&[b' '; 64 * 1024 + 1]))], 1009),
        ("a bomb", vec![(TEXT | RSV1, bomb.clone())], 1009),
        ("a bomb in fragments", vec![(TEXT_BEGINS | RSV1, bomb[..9].to_vec()), (ENDS, bomb[9..].to_vec())], 1009),
        ("much that says nothing", vec![(TEXT | RSV1, [3, 0].repeat(2_049))], 1009),
        ("not compressed", vec![(TEXT | RSV1, PING.into())], 1007),
        ("not UTF-8", vec![(TEXT | RSV1, deflated(b"{\"type\":\"\xFF\"}"))], 1007),
        ("compressed continuation", vec![(TEXT_BEGINS | RSV1, ping.clone()), (ENDS | RSV1, Vec::new())], 1002),
        ("compressed control frame", vec![(0x89 | RSV1, Vec::new())], 1002),
        ("another reserved bit", vec![(TEXT | RSV1 | 0x20, ping)], 1002),
    ] {
        let mut socket = RawSocket::offering(app.relay, &token, OFFER).await;
        for (first, payload) in frames {
            socket.send(first, &payload).await;
        }
        assert_eq!(socket.expect_close().await, code, "{what}");
    }
}
