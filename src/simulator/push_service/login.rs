//! The login of a client: what real clients send, and the answers.

use std::collections::HashSet;

use prost::Message as _;

use crate::push::wire::{ErrorInfo, Extension, IqStanza, LoginRequest, LoginResponse, Setting, iq_stanza};

/// Extension of an `IqStanza`: the ids of the login that the service received.
const SELECTIVE_ACK: i32 = 12;

/// The Android id of a login that looks like one of a real client, or what is wrong with it. The token is not checked.
pub fn check(login: &LoginRequest) -> Result<u64, String> {
    let android_id: u64 = login.user.parse().map_err(|_| "the user is not an Android id")?;
    let setting = |setting: &Setting| setting.name == "new_vc" && setting.value == "1";
    for (good, what) in [
        (login.id.starts_with("chrome-"), "id"),
        (login.domain == "mcs.android.com", "domain"),
        (login.resource == login.user, "resource"),
        (login.auth_token.parse::<u64>().is_ok(), "auth_token"),
        (login.device_id.as_ref().is_some_and(|id| id.starts_with("android-")), "device_id"),
        (login.setting.iter().any(setting), "setting"),
        (login.use_rmq2 == Some(true), "use_rmq2"),
        (login.auth_service == Some(2), "auth_service"),
        (login.network_type == Some(1), "network_type"),
    ] {
        if !good {
            return Err(format!("{what} of the login is not what clients send"));
        }
    }
    Ok(android_id)
}

/// A login that is accepted at this Unix time in milliseconds.
pub fn accepted(id: String, android_id: u64, now: i64) -> LoginResponse {
    LoginResponse {
        id,
        jid: Some(format!("{android_id}@mcs.android.com/{android_id}")),
        stream_id: Some(1),
        last_stream_id_received: Some(1),
        server_timestamp: Some(now),
        ..LoginResponse::default()
    }
}

/// A login that is refused with this code.
pub fn refused(id: String, code: i32) -> LoginResponse {
    let error = ErrorInfo { code, message: Some("refused".to_owned()), ..ErrorInfo::default() };
    LoginResponse { id, error: Some(error), ..LoginResponse::default() }
}

/// Acknowledges the received ids that the login listed.
pub fn selective_ack(ids: HashSet<String>) -> IqStanza {
    #[derive(Clone, PartialEq, prost::Message)]
    struct SelectiveAck {
        #[prost(string, repeated, tag = "1")]
        id: Vec<String>,
    }
    let data = SelectiveAck { id: ids.into_iter().collect() }.encode_to_vec().into();
    IqStanza {
        r#type: iq_stanza::Type::Set.into(),
        extension: Some(Extension { id: SELECTIVE_ACK, data }),
        ..IqStanza::default()
    }
}
