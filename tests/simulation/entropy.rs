//! Entropy of the simulation's thread comes from its seed: std's hash keys, tokio's `select!`, WebSocket masks. One
//! process runs one seed.

use std::cell::RefCell;

use crate::random::Stream;

thread_local! {
    static ENTROPY: RefCell<Option<Stream>> = const { RefCell::new(None) };
}

/// From now on this thread draws from the seed.
pub fn seed(seed: u64) {
    ENTROPY.with_borrow_mut(|entropy| *entropy = Some(Stream::of(seed, "entropy")));
}

/// Replaces libc's. Other threads (the connection pool's) get bytes that are always the same, and decide nothing.
///
/// # Safety
/// `buffer` holds `length` bytes, as libc demands it.
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(buffer: *mut u8, length: usize, _flags: u32) -> isize {
    // SAFETY: as above.
    let bytes = unsafe { std::slice::from_raw_parts_mut(buffer, length) };
    let seeded = ENTROPY.try_with(|entropy| match entropy.try_borrow_mut().as_deref_mut() {
        Ok(Some(stream)) => bytes.fill_with(|| stream.bits() as u8),
        _ => bytes.fill(0x5a),
    });
    if seeded.is_err() {
        bytes.fill(0x5a);
    }
    length as isize
}
