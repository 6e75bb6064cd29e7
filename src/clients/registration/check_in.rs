//! The messages of Google's check-in (protobuf): the few fields that are sent and read.

use prost::Message as _;
use secrecy::{ExposeSecret as _, SecretBox};

use crate::clients::registration::device::DeviceIdentity;

/// Chrome 63 on a Mac, as every tool says.
const CHROME_VERSION: &str = "63.0.3234.0";
const CHROME_DEVICE: i32 = 3;
const MAC: i32 = 2;
const STABLE: i32 = 1;

#[derive(Clone, PartialEq, prost::Message)]
#[prost(skip_debug)]
struct CheckInRequest {
    /// The identity of a known device.
    #[prost(int64, optional, tag = "2")]
    id: Option<i64>,
    #[prost(message, optional, tag = "4")]
    checkin: Option<CheckIn>,
    #[prost(fixed64, optional, tag = "13")]
    security_token: Option<u64>,
    #[prost(int32, optional, tag = "14")]
    version: Option<i32>,
    #[prost(int32, optional, tag = "22")]
    user_serial_number: Option<i32>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct CheckIn {
    #[prost(int32, optional, tag = "12")]
    kind: Option<i32>,
    #[prost(message, optional, tag = "13")]
    chrome_build: Option<ChromeBuild>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ChromeBuild {
    #[prost(int32, optional, tag = "1")]
    platform: Option<i32>,
    #[prost(string, optional, tag = "2")]
    chrome_version: Option<String>,
    #[prost(int32, optional, tag = "3")]
    channel: Option<i32>,
}

#[derive(Clone, PartialEq, prost::Message)]
#[prost(skip_debug)]
struct CheckInResponse {
    #[prost(fixed64, optional, tag = "7")]
    android_id: Option<u64>,
    #[prost(fixed64, optional, tag = "8")]
    security_token: Option<u64>,
}

/// The request of a device that is new, or known. Fields of a new one are absent, not 0.
pub fn request(known: Option<&DeviceIdentity>) -> Vec<u8> {
    let chrome_build =
        ChromeBuild { platform: Some(MAC), chrome_version: Some(CHROME_VERSION.to_owned()), channel: Some(STABLE) };
    let request = CheckInRequest {
        // Two's complement above 2^63.
        id: known.map(|identity| identity.android_id.cast_signed()),
        checkin: Some(CheckIn { kind: Some(CHROME_DEVICE), chrome_build: Some(chrome_build) }),
        security_token: known.map(|identity| *identity.security_token.expose_secret()),
        version: Some(3),
        user_serial_number: Some(0),
    };
    request.encode_to_vec()
}

/// The identity in an answer; `None` when there is none.
pub fn read(answer: &[u8]) -> Option<DeviceIdentity> {
    let CheckInResponse { android_id, security_token } = CheckInResponse::decode(answer).ok()?;
    let there = |number: &u64| *number != 0;
    Some(DeviceIdentity {
        android_id: android_id.filter(there)?,
        security_token: SecretBox::new(Box::new(security_token.filter(there)?)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::digest::{from_hex, to_hex};

    const FIRST: &str = "22156003 6a110802120b36332e302e333233342e301801 7003 b00100";
    const AGAIN: &str =
        "108180d0a7a4b0e4b145 22156003 6a110802120b36332e302e333233342e301801 6915 81e97df4102211 7003 b00100";
    const ANSWER: &str = "0801 1880d095ffbc31 390100f44482916345 4115 81e97df4102211";

    fn identity(android_id: u64) -> DeviceIdentity {
        DeviceIdentity { android_id, security_token: SecretBox::new(Box::new(1_234_567_890_123_456_789)) }
    }

    #[test]
    fn a_check_in_is_exact_to_the_byte() {
        assert_eq!(to_hex(&request(None)), FIRST.replace(' ', ""));
        assert_eq!(to_hex(&request(Some(&identity(5_000_000_000_000_000_001)))), AGAIN.replace(' ', ""));
        // An id above 2^63 takes ten bytes.
        let long = to_hex(&request(Some(&identity(u64::MAX))));
        assert!(long.starts_with("10ffffffffffffffffff0122"), "{long}");
    }

    #[test]
    fn the_identity_is_read_without_a_sign() {
        let answer = from_hex(&ANSWER.replace(' ', "")).unwrap();
        let read_identity = read(&answer).unwrap();
        assert_eq!(read_identity.android_id, 5_000_000_000_000_000_001);
        assert_eq!(*read_identity.security_token.expose_secret(), 1_234_567_890_123_456_789);
        let high = CheckInResponse { android_id: Some(u64::MAX), security_token: Some(1 << 63) };
        assert_eq!(read(&high.encode_to_vec()).unwrap().android_id, u64::MAX);
        for (android_id, security_token) in [(None, Some(1)), (Some(1), None), (Some(0), Some(1)), (Some(1), Some(0))] {
            assert!(read(&CheckInResponse { android_id, security_token }.encode_to_vec()).is_none());
        }
        assert!(read(b"<html>").is_none());
    }
}
