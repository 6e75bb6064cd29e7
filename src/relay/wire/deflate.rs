//! permessage-deflate (RFC 7692), each message by itself: without context from one to the next there is nothing to keep
//! for a connection, and what is compressed for one client is right for all.
//!
//! Snapshots gain most: they get a seventh as long or shorter, and 10 000 clients that come at once have those of 1 000
//! markers after 0.8 s instead of 1.1 (`docs/sizing.md`). A patch gains little by itself, and most servers have few
//! clients to share the work, so that `RELAY_DEFLATE` is off by default (`cargo bench --bench update -- deflate` prints
//! bytes and time of both).

use std::cell::RefCell;

use actix_web::http::header::{HeaderMap, SEC_WEBSOCKET_EXTENSIONS};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

/// The answer that accepts an offer (RFC 7692, 7.1.1).
pub const ACCEPTED: &str = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";
/// Bytes that a sender leaves out at the end of each message (RFC 7692, 7.2.1).
const TAIL: [u8; 4] = [0, 0, 0xFF, 0xFF];
/// Room asked for at a time, bytes.
const ROOM: usize = 1024;

/// True if the client offers compression in a way that is accepted as [`ACCEPTED`]. An offer that limits our window is
/// not: all clients share what we compress.
pub fn is_offered(headers: &HeaderMap) -> bool {
    let lists = headers.get_all(SEC_WEBSOCKET_EXTENSIONS).filter_map(|value| value.to_str().ok());
    lists.flat_map(|list| list.split(',')).any(is_acceptable)
}

fn is_acceptable(offer: &str) -> bool {
    let mut parts = offer.split(';').map(str::trim);
    if !parts.next().is_some_and(|name| name.eq_ignore_ascii_case("permessage-deflate")) {
        return false;
    }
    let mut known = Vec::new();
    parts.all(|parameter| {
        let (name, value) = match parameter.split_once('=') {
            Some((name, value)) => (name.trim_end(), Some(value.trim_start().trim_matches('"'))),
            None => (parameter, None),
        };
        let is_valid = match name {
            "server_no_context_takeover" | "client_no_context_takeover" => value.is_none(),
            "client_max_window_bits" => {
                value.is_none_or(|bits| ["8", "9", "10", "11", "12", "13", "14", "15"].contains(&bits))
            }
            _ => false,
        };
        let is_new = !known.contains(&name);
        known.push(name);
        is_valid && is_new
    })
}

/// Not a compressed message.
#[derive(Debug, PartialEq, Eq)]
pub enum InflateError {
    /// The message is longer than it may be.
    TooBig,
    Corrupt,
}

/// Compressor and decompressor of one thread. Holds its memory from the first use on.
#[derive(Default)]
pub struct Deflate {
    compress: RefCell<Option<Compress>>,
    decompress: RefCell<Option<Decompress>>,
}

impl Deflate {
    /// The payload of a compressed message.
    pub fn compress(&self, message: &[u8]) -> Vec<u8> {
        let mut compress = self.compress.borrow_mut();
        let compress = compress.get_or_insert_with(|| Compress::new(Compression::fast(), false));
        compress.reset();
        let mut payload = Vec::with_capacity(message.len() / 2 + ROOM);
        loop {
            let taken = compress.total_in() as usize;
            let status = compress.compress_vec(&message[taken..], &mut payload, FlushCompress::Sync);
            status.expect("it is reset, and asked for one message after the other");
            // Room that is left says that everything is flushed.
            if payload.len() < payload.capacity() {
                break;
            }
            payload.reserve(ROOM);
        }
        payload.truncate(payload.len() - TAIL.len());
        payload
    }

    /// The message of a compressed payload, at most `longest` bytes.
    pub fn decompress(&self, payload: &[u8], longest: usize) -> Result<Vec<u8>, InflateError> {
        let mut decompress = self.decompress.borrow_mut();
        let decompress = decompress.get_or_insert_with(|| Decompress::new(false));
        decompress.reset(false);
        let mut message = Vec::new();
        for mut part in [payload, &TAIL[..]] {
            loop {
                if message.len() == message.capacity() {
                    message.reserve(ROOM);
                }
                let taken = decompress.total_in();
                let status = decompress.decompress_vec(part, &mut message, FlushDecompress::Sync);
                let status = status.map_err(|_| InflateError::Corrupt)?;
                part = &part[(decompress.total_in() - taken) as usize..];
                if message.len() > longest {
                    return Err(InflateError::TooBig);
                }
                let has_room = message.len() < message.capacity();
                match status {
                    // Bytes after a last block are another stream (RFC 7692, 7.2.3.4).
                    Status::StreamEnd => decompress.reset(false),
                    Status::BufError if has_room && !part.is_empty() => return Err(InflateError::Corrupt),
                    Status::Ok | Status::BufError => {}
                }
                if part.is_empty() && has_room {
                    break;
                }
            }
        }
        Ok(message)
    }
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn offered(lists: &[&'static str]) -> bool {
        let mut headers = HeaderMap::new();
        for list in lists {
            headers.append(SEC_WEBSOCKET_EXTENSIONS, HeaderValue::from_static(list));
        }
        is_offered(&headers)
    }

    #[test]
    fn offers_that_can_be_kept_are_accepted() {
        for lists in [
            &["permessage-deflate"][..],
            &["permessage-deflate; client_max_window_bits"],
            &["Permessage-Deflate;client_max_window_bits=10 ; server_no_context_takeover"],
            &["permessage-deflate; client_max_window_bits=\"15\"; client_no_context_takeover"],
            &["x-webkit-deflate-frame, permessage-deflate; client_max_window_bits"],
            &["permessage-deflate; server_max_window_bits=10, permessage-deflate"],
            &["permessage-bzip2", "permessage-deflate"],
        ] {
            assert!(offered(lists), "{lists:?}");
        }
        for lists in [
            &[][..],
            &[""],
            &["permessage-bzip2"],
            &["permessage-deflate; server_max_window_bits=12; client_max_window_bits=12"],
            &["permessage-deflate; server_no_context_takeover=1"],
            &["permessage-deflate; client_max_window_bits=16"],
            &["permessage-deflate; client_max_window_bits=010"],
            &["permessage-deflate; client_max_window_bits="],
            &["permessage-deflate; client_max_window_bits; client_max_window_bits=9"],
            &["permessage-deflate; faster"],
            &["permessage-deflate;"],
        ] {
            assert!(!offered(lists), "{lists:?}");
        }
    }

    #[test]
    fn the_examples_of_the_standard_are_understood() {
        let deflate = Deflate::default();
        let hello = |payload: &[u8]| deflate.decompress(payload, 5).unwrap();
        // RFC 7692, 7.2.3: in one block, without compression, with a last block, in two blocks.
        assert_eq!(hello(&[0xF2, 0x48, 0xCD, 0xC9, 0xC9, 0x07, 0x00]), b"Hello");
        assert_eq!(hello(&[0x00, 0x05, 0x00, 0xFA, 0xFF, 0x48, 0x65, 0x6C, 0x6C, 0x6F, 0x00]), b"Hello");
        assert_eq!(hello(&[0xF3, 0x48, 0xCD, 0xC9, 0xC9, 0x07, 0x00, 0x00]), b"Hello");
        let two = [0xF2, 0x48, 0x05, 0x00, 0x00, 0x00, 0xFF, 0xFF, 0xCA, 0xC9, 0xC9, 0x07, 0x00];
        assert_eq!(hello(&two), b"Hello");
        // 7.2.3.6: an empty message.
        assert_eq!(deflate.decompress(&[0x00], 5), Ok(Vec::new()));
        assert_eq!(deflate.decompress(&two, 4), Err(InflateError::TooBig));
        assert_eq!(deflate.decompress(&[0xFF; 9], 5), Err(InflateError::Corrupt));
    }

    #[test]
    fn little_that_says_much_is_too_big() {
        let deflate = Deflate::default();
        let bomb = deflate.compress(&vec![b' '; 1 << 20]);
        assert!(bomb.len() < 64 * 1024);
        assert_eq!(deflate.decompress(&bomb, 64 * 1024), Err(InflateError::TooBig));
        assert_eq!(
            deflate.decompress(&deflate.compress(&[b' '; 64]), 64),
            Ok(vec![b' '; 64]),
            "what came before is gone"
        );
    }

    proptest! {
        #[test]
        fn what_is_compressed_is_read_back(messages in prop::collection::vec(prop::collection::vec(0_u8..4, 0..5_000), 1..4)) {
            let deflate = Deflate::default();
            for message in messages {
                let payload = deflate.compress(&message);
                prop_assert_eq!(deflate.decompress(&payload, message.len()), Ok(message));
            }
        }

        #[test]
        fn no_payload_panics_or_is_longer_than_it_may_be(payload in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(message) = Deflate::default().decompress(&payload, 1_000) {
                prop_assert!(message.len() <= 1_000);
            }
        }
    }
}
