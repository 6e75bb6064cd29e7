//! The game's messages, byte for byte as other programs write them.

use companion::game::wire::*;
use prost::Message as _;

use crate::game_client::{get_info, set_entity, steer};

fn bytes(hex: &str) -> Vec<u8> {
    hex.split(' ').map(|byte| u8::from_str_radix(byte, 16).expect("two hex digits")).collect()
}

#[test]
fn messages_are_byte_exact() {
    let requests = [
        (
            AppRequest { seq: 1, player_token: -123456789, ..get_info() },
            "08 01 10 81 98 f9 92 90 80 80 88 01 18 eb e5 90 c5 ff ff ff ff ff 01 42 00",
        ),
        (
            AppRequest { seq: 2, player_token: 123456789, ..set_entity(4242, false) },
            "08 02 10 81 98 f9 92 90 80 80 88 01 18 95 9a ef 3a 20 92 21 7a 02 08 00",
        ),
        (
            AppRequest { seq: 3, player_token: -1, ..steer(1024, 0.0, 0.0) },
            "08 03 10 81 98 f9 92 90 80 80 88 01 18 ff ff ff ff ff ff ff ff ff 01 82 02 0f 08 80 08 12 0a 0d 00 00 00 \
             00 15 00 00 00 00",
        ),
    ];
    for (request, hex) in requests {
        let request = AppRequest { player_id: 76561198000000001, ..request };
        assert_eq!(request.encode_to_vec(), bytes(hex));
        assert_eq!(AppRequest::decode(&bytes(hex)[..]), Ok(request));
    }
    let error = Some(AppError { error: "not_found".to_owned() });
    let payload = AppEntityPayload { value: Some(false), ..Default::default() };
    let entity_changed = Some(AppEntityChanged { entity_id: 4242, payload });
    let messages = [
        (
            AppMessage { response: Some(AppResponse { seq: 1, error, ..Default::default() }), ..Default::default() },
            "0a 0f 08 01 2a 0b 0a 09 6e 6f 74 5f 66 6f 75 6e 64",
        ),
        (
            AppMessage {
                response: Some(AppResponse { seq: 2, success: Some(AppSuccess {}), ..Default::default() }),
                ..Default::default()
            },
            "0a 04 08 02 22 00",
        ),
        (
            AppMessage { broadcast: Some(AppBroadcast { entity_changed, ..Default::default() }), ..Default::default() },
            "12 09 32 07 08 92 21 12 02 08 00",
        ),
    ];
    for (message, hex) in messages {
        assert_eq!(message.encode_to_vec(), bytes(hex));
        assert_eq!(AppMessage::decode(&bytes(hex)[..]), Ok(message));
    }
}

#[test]
fn a_missing_required_field_is_read_as_its_default() {
    // setEntityValue as an empty sub-message, as the Python client sends `false`.
    let request = AppRequest::decode(&bytes("08 02 20 92 21 7a 00")[..]).expect("a tolerant decoder");
    assert_eq!(request.set_entity_value, Some(AppSetEntityValue { value: false }));
    assert_eq!(request.player_id, 0);
}
