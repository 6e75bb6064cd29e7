//! Decodes the messages of game servers, so that no server can hold up the others: small messages where they are read,
//! large ones on a few threads of their own and within one budget of bytes for the whole process. Maps, the largest,
//! are awaited a few at a time.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message as _;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task,
};

use crate::game::{
    counting::{self, Repeated},
    wire::AppMessage,
};

/// A message up to this size is decoded where it is read: that takes a millisecond at most.
pub const SMALL: usize = 256 * 1024;
/// Large messages that are decoded at once.
const THREADS: usize = 2;
/// Bytes of large messages that wait, are decoded or are not handled yet, in all links together.
const BUDGET: usize = 64 * 1024 * 1024;
/// Maps that are awaited at once, in all links together.
const MAPS: usize = 8;
/// Bytes of one permit of the budget.
const PERMIT: usize = 1_024;

/// Failure of reading a message.
#[derive(Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The bytes are no message of the protocol.
    NoMessage,
    /// An element is repeated more often than is accepted; with the `seq` of the response in it, if any.
    TooMany { repeated: Repeated, seq: Option<u32> },
}

/// A part of the budget; returned when dropped.
pub type DecodingPermit = OwnedSemaphorePermit;

/// See the module. Clones share the threads and the budget.
#[derive(Clone, Debug)]
pub struct MessageDecoder {
    /// `None`: large messages are decoded where they are read, too.
    threads: Option<Arc<Semaphore>>,
    budget: Arc<Semaphore>,
    maps: Arc<Semaphore>,
}

impl MessageDecoder {
    /// Large messages go to threads.
    pub fn on_threads() -> Self {
        Self { threads: Some(Arc::new(Semaphore::new(THREADS))), ..Self::inline() }
    }

    /// Everything is decoded where it is read: for simulations, which have one thread.
    pub fn inline() -> Self {
        let budget = Arc::new(Semaphore::new(BUDGET / PERMIT));
        Self { threads: None, budget, maps: Arc::new(Semaphore::new(MAPS)) }
    }

    /// Waits until one more map may be awaited, which it may until the permit is dropped.
    pub async fn turn_of_map(&self) -> Option<DecodingPermit> {
        self.maps.clone().acquire_owned().await.ok()
    }

    /// Decodes a large message, when it is its turn. The permit is held until the message is
    /// handled.
    #[allow(clippy::disallowed_methods, reason = "beside the database the one place with blocking work")]
    pub async fn decode_large(&self, payload: Bytes) -> Result<(AppMessage, Option<DecodingPermit>), DecodeError> {
        let permits = payload.len().div_ceil(PERMIT).min(BUDGET / PERMIT) as u32;
        // Neither semaphore is ever closed.
        let permit = self.budget.clone().acquire_many_owned(permits).await.ok();
        let Some(threads) = &self.threads else { return Ok((decode(payload)?, permit)) };
        let thread = threads.clone().acquire_owned().await.ok();
        // Both permits move along: a caller that stops waiting does not end the work.
        let decoding = task::spawn_blocking(move || {
            let _thread = thread;
            Ok((decode(payload)?, permit))
        });
        decoding.await.unwrap_or(Err(DecodeError::NoMessage))
    }
}

/// Decodes a message, unless it repeats something too often.
pub fn decode(payload: Bytes) -> Result<AppMessage, DecodeError> {
    match counting::excess(&payload) {
        Ok(None) => AppMessage::decode(payload).map_err(|_| DecodeError::NoMessage),
        Ok(Some(repeated)) => Err(DecodeError::TooMany { repeated, seq: counting::response_seq(&payload) }),
        Err(_) => Err(DecodeError::NoMessage),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::game::wire::{AppMap, AppResponse};

    fn map(bytes: usize) -> Bytes {
        let map = AppMap { jpg_image: vec![7; bytes].into(), ..AppMap::default() };
        let response = AppResponse { seq: 3, map: Some(map), ..AppResponse::default() };
        AppMessage { response: Some(response), ..AppMessage::default() }.encode_to_vec().into()
    }

    #[tokio::test]
    async fn large_messages_wait_for_the_budget_until_those_before_are_handled() {
        let decoder = MessageDecoder::on_threads();
        let (first, permit) = decoder.decode_large(map(40 << 20)).await.expect("a message");
        assert_eq!(first.response.and_then(|response| response.map).map(|map| map.jpg_image.len()), Some(40 << 20));
        let second = tokio::spawn({
            let decoder = decoder.clone();
            async move { decoder.decode_large(map(30 << 20)).await.is_ok() }
        });
        // A small one that comes later waits its turn, too: no large one is overtaken for ever.
        tokio::task::yield_now().await;
        assert!(!second.is_finished() && decoder.budget.available_permits() * PERMIT < 30 << 20);
        drop(permit);
        assert!(second.await.expect("no panic"));
        assert_eq!(decoder.budget.available_permits() * PERMIT, BUDGET);
    }

    #[test]
    fn what_repeats_something_too_often_is_refused_before_it_is_decoded() {
        // Markers of two bytes each: nine megabytes in memory for one on the wire.
        let markers = [0x0a, 0x00].repeat(40_000);
        let mut response = vec![0x08, 0x07, 0x6a];
        prost::encode_length_delimiter(markers.len(), &mut response).expect("a Vec");
        response.extend(markers);
        let mut message = vec![0x0a];
        prost::encode_length_delimiter(response.len(), &mut message).expect("a Vec");
        message.extend(response);
        let refused = DecodeError::TooMany { repeated: Repeated::Markers, seq: Some(7) };
        assert_eq!(decode(message.into()), Err(refused));
        assert_eq!(decode(Bytes::from_static(&[0xff, 0x07])), Err(DecodeError::NoMessage));
    }
}
