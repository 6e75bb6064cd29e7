use super::*;

#[test]
fn the_messages_are_read() {
    let server = ServerId::from("s1");
    let read = |text: &str| ClientMessage::parse(text.as_bytes());
    assert_eq!(
        read(r#"{"type":"subscribe","serverId":"s1","extra":1}"#).unwrap(),
        ClientMessage::Subscribe { server: server.clone(), epoch: None, seq: None, sections: None }
    );
    assert_eq!(
        read(r#"{"type":"subscribe","serverId":"s1","sections":["raids","mapMarkers"]}"#).unwrap(),
        ClientMessage::Subscribe {
            server: server.clone(),
            epoch: None,
            seq: None,
            sections: Some(vec![StateKey::Raids, StateKey::MapMarkers])
        }
    );
    assert_eq!(
        read(r#"{"type":"subscribe","serverId":"s1","epoch":7,"seq":0}"#).unwrap(),
        ClientMessage::Subscribe { server: server.clone(), epoch: Some(7), seq: Some(0), sections: None }
    );
    assert_eq!(
        read(r#"{"type":"unsubscribe","serverId":"s1"}"#).unwrap(),
        ClientMessage::Unsubscribe { server: server.clone() }
    );
    assert_eq!(
        read(r#"{"type":"deviceToggle","serverId":"s1","deviceId":"7","requestId":"r"}"#).unwrap(),
        ClientMessage::DeviceToggle {
            server: server.clone(),
            device: "7".into(),
            value: None,
            request: Some("r".into())
        }
    );
    assert_eq!(
        read(r#"{"type":"raidAck","serverId":"s1","incident":"i"}"#).unwrap(),
        ClientMessage::RaidAck { server, incident: "i".into(), request: None }
    );
    assert!(read(r#"{"type":"raidAck","serverId":"s1"}"#).is_err());
    assert_eq!(read(r#"{"type":"ping"}"#).unwrap(), ClientMessage::Ping);
}

#[test]
fn a_refusal_names_what_is_wrong_and_its_ids() {
    let code = |text: &str| ClientMessage::parse(text.as_bytes()).unwrap_err().code;
    for (text, words) in [
        ("", "the message is not JSON"),
        ("{", "the message is not JSON"),
        (r#"{"type":"ping"} {}"#, "the message is not JSON"),
        ("[]", "a message is a JSON object"),
        ("null", "a message is a JSON object"),
        (r#"["ping",null,null,null,null]"#, "a message is a JSON object"),
        (r#"{"type":"deviceToggle","serverId":"s","deviceId":"7","value":true,"value":false}"#, "a field comes twice"),
        (r#"{"type":"ping","x":1,"x":1}"#, "a field comes twice"),
        (r#"{"type":7}"#, "type must be a string"),
        (r#"{"serverId":"x"}"#, "type is missing"),
        (r#"{"type":"subscribe"}"#, "serverId is missing"),
        (r#"{"type":"subscribe","serverId":null}"#, "serverId is missing"),
        (
            r#"{"type":"subscribe","serverId":"s","epoch":7,"seq":-1}"#,
            "seq must be an integer of 64 bits, not negative",
        ),
        (
            r#"{"type":"subscribe","serverId":"s","sections":["chat"]}"#,
            "sections must be a list of keys of the state: server, team, mapMarkers, devices, mapNotes, raids, timers",
        ),
        (r#"{"type":"subscribe","serverId":["s"]}"#, "serverId must be a string"),
        (r#"{"type":"raidAck","serverId":"s","incident":"i","requestId":1}"#, "requestId must be a string"),
        (r#"{"type":"deviceToggle","serverId":"s","deviceId":"7","value":1}"#, "value must be true or false"),
        (r#"{"type":"subscribe","serverId":"\u0007"}"#, "serverId has a control character"),
    ] {
        let refusal = ClientMessage::parse(text.as_bytes()).unwrap_err();
        assert_eq!((refusal.code, refusal.message.as_str()), (ErrorCode::Malformed, words), "{text}");
    }
    assert_eq!(code(&"[".repeat(100_000)), ErrorCode::Malformed);
    assert_eq!(code(&format!(r#"{{"type":"subscribe","serverId":"{}"}}"#, "x".repeat(200))), ErrorCode::Malformed);
    for (field, other) in [("serverId", "incident"), ("incident", "serverId"), ("requestId", "serverId")] {
        let text = format!(r#"{{"type":"raidAck","{field}":"x\u0000","{other}":"y"}}"#);
        assert_eq!(code(&text), ErrorCode::Malformed);
    }
    let refusal = ClientMessage::parse(br#"{"type":"deviceToggle","serverId":"s","requestId":"r"}"#).unwrap_err();
    assert_eq!((refusal.code, refusal.request_id.as_deref()), (ErrorCode::Malformed, Some("r")));
    assert_eq!(code(r#"{"type":"fly"}"#), ErrorCode::UnknownType);
}
