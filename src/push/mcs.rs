//! The frames of Google's MCS protocol: a tag, the length of the payload as a varint, the payload. Each side writes one
//! version byte before its first frame.

use bytes::{Buf as _, BufMut as _, BytesMut};
use prost::Message;

use super::wire::{
    DataMessageStanza, HeartbeatAck, HeartbeatPing, IqStanza, LoginRequest, LoginResponse, StreamErrorStanza,
};

/// The version of both sides.
pub const VERSION: u8 = 41;
/// An older one, which servers still announce and every client accepts.
const OLD_VERSION: u8 = 38;
/// Bytes of a payload. A push carries 4 KiB; a login with its 1 000 received ids is well below this too.
pub const PAYLOAD_LIMIT: usize = 256 * 1024;
/// Bytes of a length; [`PAYLOAD_LIMIT`] needs three, a varint of 32 bits has at most five.
const LENGTH_BYTES: usize = 5;

/// A message of MCS with its tag, in either direction.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame {
    HeartbeatPing(HeartbeatPing),
    HeartbeatAck(HeartbeatAck),
    LoginRequest(LoginRequest),
    LoginResponse(LoginResponse),
    Close,
    IqStanza(IqStanza),
    DataMessage(DataMessageStanza),
    StreamError(StreamErrorStanza),
    /// A tag that is not for us; skipped by its length.
    Other(u8),
    /// A frame of a known tag whose payload is no such message; skipped too, because a message that we cannot read
    /// would otherwise be delivered again after each reconnect.
    Unreadable(u8),
}

/// Bytes that are not the protocol: nothing after them can be read either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("version {0} of the protocol is not known")]
    Version(u8),
    #[error("a frame has no readable length")]
    Length,
    #[error("a frame of {0} bytes is larger than {PAYLOAD_LIMIT}")]
    TooLarge(usize),
}

impl Frame {
    /// Appends the frame's bytes.
    pub fn encode(&self, out: &mut BytesMut) {
        match self {
            Self::HeartbeatPing(message) => put(out, 0, message),
            Self::HeartbeatAck(message) => put(out, 1, message),
            Self::LoginRequest(message) => put(out, 2, message),
            Self::LoginResponse(message) => put(out, 3, message),
            Self::Close => out.put_slice(&[4, 0]),
            Self::IqStanza(message) => put(out, 7, message),
            Self::DataMessage(message) => put(out, 8, message),
            Self::StreamError(message) => put(out, 10, message),
            Self::Other(tag) | Self::Unreadable(tag) => out.put_slice(&[*tag, 0]),
        }
    }

    fn read(tag: u8, payload: &[u8]) -> Self {
        fn message<M: Message + Default>(tag: u8, payload: &[u8], frame: impl FnOnce(M) -> Frame) -> Frame {
            M::decode(payload).map_or(Frame::Unreadable(tag), frame)
        }
        match tag {
            0 => message(tag, payload, Self::HeartbeatPing),
            1 => message(tag, payload, Self::HeartbeatAck),
            2 => message(tag, payload, Self::LoginRequest),
            3 => message(tag, payload, Self::LoginResponse),
            4 => Self::Close,
            7 => message(tag, payload, Self::IqStanza),
            8 => message(tag, payload, Self::DataMessage),
            10 => message(tag, payload, Self::StreamError),
            other => Self::Other(other),
        }
    }
}

fn put(out: &mut BytesMut, tag: u8, message: &impl Message) {
    out.put_u8(tag);
    message.encode_length_delimited(out).expect("a BytesMut grows");
}

/// Reads the frames of one direction, however the stream is cut.
#[derive(Debug, Default)]
pub struct Decoder {
    version_seen: bool,
}

impl Decoder {
    /// Removes the next frame from the front of `buffer`; `None` until it is complete.
    pub fn next(&mut self, buffer: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
        if !self.version_seen {
            let Some(&version) = buffer.first() else { return Ok(None) };
            if version < VERSION && version != OLD_VERSION {
                return Err(FrameError::Version(version));
            }
            buffer.advance(1);
            self.version_seen = true;
        }
        let Some((&tag, rest)) = buffer.split_first() else { return Ok(None) };
        let Some((length, length_bytes)) = length(rest)? else { return Ok(None) };
        let Some(payload) = rest.get(length_bytes..length_bytes + length) else { return Ok(None) };
        let frame = Frame::read(tag, payload);
        buffer.advance(1 + length_bytes + length);
        Ok(Some(frame))
    }
}

/// The varint that `bytes` begin with, and how many bytes it has; `None` if it is cut off.
fn length(bytes: &[u8]) -> Result<Option<(usize, usize)>, FrameError> {
    let mut length = 0_u64;
    for (index, byte) in bytes.iter().take(LENGTH_BYTES).enumerate() {
        length |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            let length = usize::try_from(length).map_err(|_| FrameError::Length)?;
            return if length > PAYLOAD_LIMIT {
                Err(FrameError::TooLarge(length))
            } else {
                Ok(Some((length, index + 1)))
            };
        }
    }
    if bytes.len() < LENGTH_BYTES { Ok(None) } else { Err(FrameError::Length) }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::push::wire::{AppData, Extension, Setting, iq_stanza};

    fn bytes(hex: &str) -> Vec<u8> {
        hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).expect("two digits")).collect()
    }

    fn encoded(frame: &Frame) -> Vec<u8> {
        let mut out = BytesMut::new();
        frame.encode(&mut out);
        out.to_vec()
    }

    /// The frames of a whole stream, and what ended it early.
    fn frames(stream: &[u8]) -> (Vec<Frame>, Option<FrameError>) {
        chopped(stream, &[])
    }

    /// Frames of a stream that arrives in pieces of these sizes and then the rest.
    fn chopped(mut stream: &[u8], sizes: &[usize]) -> (Vec<Frame>, Option<FrameError>) {
        let (mut decoder, mut buffer, mut frames) = (Decoder::default(), BytesMut::new(), Vec::new());
        for size in sizes.iter().copied().chain([usize::MAX]) {
            let (piece, rest) = stream.split_at(size.min(stream.len()));
            stream = rest;
            buffer.put_slice(piece);
            loop {
                match decoder.next(&mut buffer) {
                    Ok(Some(frame)) => frames.push(frame),
                    Ok(None) => break,
                    Err(error) => return (frames, Some(error)),
                }
            }
        }
        (frames, None)
    }

    fn login_request() -> LoginRequest {
        LoginRequest {
            id: "chrome-63.0.3234.0".into(),
            domain: "mcs.android.com".into(),
            user: "5000000000000000001".into(),
            resource: "5000000000000000001".into(),
            auth_token: "1234567890123456789".into(),
            device_id: Some("android-4563918244f40001".into()),
            setting: vec![Setting { name: "new_vc".into(), value: "1".into() }],
            received_persistent_id: vec!["0:1700000000000001%abc".into()],
            adaptive_heartbeat: Some(false),
            use_rmq2: Some(true),
            auth_service: Some(2),
            network_type: Some(1),
            ..LoginRequest::default()
        }
    }

    /// Byte for byte what other implementations send: (bytes after the version, frame).
    fn vectors() -> Vec<(Vec<u8>, Frame)> {
        vec![
            (
                bytes(
                    "02 ad 01 0a 12 63 68 72 6f 6d 65 2d 36 33 2e 30 2e 33 32 33 34 2e 30 12 0f 6d 63 73 2e 61 6e 64 72 \
                     6f 69 64 2e 63 6f 6d 1a 13 35 30 30 30 30 30 30 30 30 30 30 30 30 30 30 30 30 30 31 22 13 35 30 30 \
                     30 30 30 30 30 30 30 30 30 30 30 30 30 30 30 31 2a 13 31 32 33 34 35 36 37 38 39 30 31 32 33 34 35 \
                     36 37 38 39 32 18 61 6e 64 72 6f 69 64 2d 34 35 36 33 39 31 38 32 34 34 66 34 30 30 30 31 42 0b 0a \
                     06 6e 65 77 5f 76 63 12 01 31 52 16 30 3a 31 37 30 30 30 30 30 30 30 30 30 30 30 30 30 31 25 61 62 \
                     63 60 00 70 01 80 01 02 88 01 01",
                ),
                Frame::LoginRequest(login_request()),
            ),
            (
                bytes(
                    "03 1f 0a 12 63 68 72 6f 6d 65 2d 36 33 2e 30 2e 33 32 33 34 2e 30 28 01 30 01 40 80 d0 95 ff bc 31",
                ),
                Frame::LoginResponse(LoginResponse {
                    id: "chrome-63.0.3234.0".into(),
                    stream_id: Some(1),
                    last_stream_id_received: Some(1),
                    server_timestamp: Some(1_700_000_000_000),
                    ..LoginResponse::default()
                }),
            ),
            (
                bytes("01 04 08 02 10 01"),
                Frame::HeartbeatAck(HeartbeatAck {
                    stream_id: Some(2),
                    last_stream_id_received: Some(1),
                    status: None,
                }),
            ),
            (
                bytes("07 0c 10 01 1a 00 3a 04 08 0d 12 00 50 02"),
                Frame::IqStanza(IqStanza {
                    r#type: iq_stanza::Type::Set.into(),
                    extension: Some(Extension { id: 13, data: Bytes::new() }),
                    last_stream_id_received: Some(2),
                    ..IqStanza::default()
                }),
            ),
        ]
    }

    #[test]
    fn frames_are_byte_for_byte_those_of_other_implementations() {
        for (bytes, frame) in vectors() {
            assert_eq!(encoded(&frame), bytes);
            let stream = [&[VERSION], bytes.as_slice()].concat();
            assert_eq!(frames(&stream), (vec![frame], None));
        }
    }

    #[test]
    fn what_is_not_for_us_is_skipped_by_its_length() {
        let ping = encoded(&Frame::HeartbeatPing(HeartbeatPing::default()));
        // Tags 5 and 200 are not ours; the data message's field 3 claims more bytes than there are.
        let stream = [&[VERSION, 5, 3, 1, 2, 3, 200, 0, 8, 2, 0x1a, 9], ping.as_slice(), &[4, 0]].concat();
        let expected =
            [Frame::Other(5), Frame::Other(200), Frame::Unreadable(8), Frame::HeartbeatPing(HeartbeatPing::default())];
        assert_eq!(frames(&stream), ([expected.as_slice(), &[Frame::Close]].concat(), None));
    }

    #[test]
    fn versions_that_clients_accept_are_accepted() {
        for version in [38, 41, 42, 255] {
            assert_eq!(frames(&[version, 4, 0]), (vec![Frame::Close], None), "{version}");
        }
        for version in [0, 37, 39, 40] {
            assert_eq!(frames(&[version, 4, 0]), (vec![], Some(FrameError::Version(version))), "{version}");
        }
    }

    #[test]
    fn an_incomplete_frame_is_not_read() {
        for (bytes, _) in vectors() {
            let stream = [&[VERSION], bytes.as_slice()].concat();
            for end in 0..stream.len() {
                assert_eq!(frames(&stream[..end]), (vec![], None), "{end} bytes");
            }
        }
    }

    #[test]
    fn lengths_are_bounded() {
        // 256 KiB is waited for, one byte more is not, nor is a length that never ends.
        assert_eq!(frames(&[VERSION, 8, 0x80, 0x80, 0x10]), (vec![], None));
        assert_eq!(frames(&[VERSION, 8, 0x81, 0x80, 0x10]), (vec![], Some(FrameError::TooLarge(PAYLOAD_LIMIT + 1))));
        assert_eq!(
            frames(&[VERSION, 8, 0xff, 0xff, 0xff, 0xff, 0x7f]),
            (vec![], Some(FrameError::TooLarge(0x7_ffff_ffff)))
        );
        assert_eq!(frames(&[VERSION, 8, 0xff, 0xff, 0xff, 0xff, 0xff]), (vec![], Some(FrameError::Length)));
        // Longer than needed is still the same number.
        assert_eq!(frames(&[VERSION, 4, 0x80, 0x80, 0]), (vec![Frame::Close], None));
    }

    #[test]
    fn secrets_are_not_printed() {
        let login = format!("{:?}", Frame::LoginRequest(login_request()));
        assert!(!login.contains("1234567890123456789"), "{login}");
        let data = AppData { key: "body".into(), value: r#"{"playerToken":"-77"}"#.into() };
        let message = Frame::DataMessage(DataMessageStanza { app_data: vec![data], ..DataMessageStanza::default() });
        assert!(!format!("{message:?}").contains("-77"), "{message:?}");
    }

    prop_compose! {
        fn data_message()(
            id in any::<String>(), ttl in any::<i32>(), sent in any::<i64>(),
            data in prop::collection::vec((any::<String>(), any::<String>()), 0..4),
        ) -> Frame {
            Frame::DataMessage(DataMessageStanza {
                persistent_id: Some(id),
                ttl: Some(ttl),
                sent: Some(sent),
                app_data: data.into_iter().map(|(key, value)| AppData { key, value }).collect(),
                ..DataMessageStanza::default()
            })
        }
    }

    fn any_frame() -> impl Strategy<Value = Frame> {
        prop_oneof![
            data_message(),
            prop::sample::select(vectors()).prop_map(|(_, frame)| frame),
            prop::sample::select(vec![5_u8, 6, 9, 11, 16, 41, 255]).prop_map(Frame::Other),
            Just(Frame::Close),
            any::<i32>().prop_map(|id| Frame::HeartbeatPing(HeartbeatPing {
                last_stream_id_received: Some(id),
                ..HeartbeatPing::default()
            })),
        ]
    }

    proptest! {
        #[test]
        fn any_split_of_the_stream_gives_the_same_frames(
            sent in prop::collection::vec(any_frame(), 0..8),
            sizes in prop::collection::vec(0_usize..40, 0..60),
        ) {
            let mut stream = BytesMut::from(&[VERSION][..]);
            sent.iter().for_each(|frame| frame.encode(&mut stream));
            prop_assert_eq!(chopped(&stream, &sizes), (sent, None));
        }

        #[test]
        fn any_bytes_end_the_same_way_however_they_are_cut(
            noise in prop::collection::vec(any::<u8>(), 0..400),
            sizes in prop::collection::vec(0_usize..40, 0..20),
        ) {
            let stream = [&[VERSION], noise.as_slice()].concat();
            prop_assert_eq!(chopped(&stream, &sizes), frames(&stream));
        }
    }
}
