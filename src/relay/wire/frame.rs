//! A message as a frame, encoded once for all clients that it goes to.

use std::sync::{Arc, OnceLock};

use actix_http::ws::{OpCode, Parser};
use bytes::{Bytes, BytesMut};

use crate::relay::wire::deflate::Deflate;

/// The bit that says that a message is compressed (RFC 7692, 6).
pub const RSV1: u8 = 0x40;
/// Shorter ones are not compressed: they fit into one packet as they are.
const WORTHWHILE: usize = 256;
/// Bytes of the longest head of a server's frame.
const HEAD: usize = 10;

/// See the module. Cloning shares it.
#[derive(Clone, Debug)]
pub struct SharedFrame(Arc<Encoded>);

#[derive(Debug)]
struct Encoded {
    plain: Bytes,
    /// Made when the first client needs it.
    deflated: OnceLock<Bytes>,
}

impl From<Bytes> for SharedFrame {
    /// The whole frame, with its head.
    fn from(plain: Bytes) -> Self {
        Self(Arc::new(Encoded { plain, deflated: OnceLock::new() }))
    }
}

impl PartialEq for SharedFrame {
    fn eq(&self, other: &Self) -> bool {
        self.0.plain == other.0.plain
    }
}

impl SharedFrame {
    /// A text message.
    pub fn text(text: &[u8]) -> Self {
        encode(text).freeze().into()
    }

    /// As every client understands it.
    pub fn plain(&self) -> &Bytes {
        &self.0.plain
    }

    /// The message itself.
    pub fn text_bytes(&self) -> &[u8] {
        payload(&self.0.plain)
    }

    /// For clients with which permessage-deflate is agreed: compressed, where that is shorter.
    pub fn deflated(&self, deflate: &Deflate) -> &Bytes {
        let Encoded { plain, deflated } = &*self.0;
        if plain.len() < WORTHWHILE {
            return plain;
        }
        deflated.get_or_init(|| {
            let mut frame = encode(&deflate.compress(payload(plain)));
            frame[0] |= RSV1;
            if frame.len() < plain.len() { frame.freeze() } else { plain.clone() }
        })
    }
}

fn encode(payload: &[u8]) -> BytesMut {
    let mut frame = BytesMut::with_capacity(payload.len() + HEAD);
    Parser::write_message(&mut frame, payload, OpCode::Text, true, false);
    frame
}

/// Payload of a server's frame, after its head (RFC 6455, 5.2).
fn payload(frame: &[u8]) -> &[u8] {
    let head = match frame[1] {
        0..126 => 2,
        126 => 4,
        _ => HEAD,
    };
    &frame[head..]
}

#[cfg(test)]
mod tests {
    use std::iter::successors;

    use super::*;

    #[test]
    fn a_frame_is_compressed_once_and_only_if_it_gets_shorter() {
        let deflate = Deflate::default();
        for length in [WORTHWHILE, 70_000] {
            let text = vec![b'x'; length];
            let frame = SharedFrame::text(&text);
            let deflated = frame.deflated(&deflate);
            assert_eq!((deflated[0], frame.plain()[0]), (0x81 | RSV1, 0x81));
            assert_eq!(deflate.decompress(payload(deflated), length), Ok(text));
            let again = frame.clone();
            assert_eq!(again.deflated(&Deflate::default()).as_ptr(), deflated.as_ptr(), "shared");
        }
        let short = SharedFrame::text(&[b'x'; WORTHWHILE - 5]);
        assert_eq!(short.deflated(&deflate), short.plain());
        let random = |last: &u64| Some(last.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        let noise: Vec<u8> = successors(Some(1), random).map(|number| (number >> 56) as u8).take(500).collect();
        let noise = SharedFrame::text(&noise);
        assert_eq!(noise.deflated(&deflate), noise.plain());
    }
}
