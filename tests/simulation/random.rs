//! Choices of a seed: SplitMix64, a stream of its own for every purpose, so that taking one thing out of a script
//! does not shift the rest.

/// Where an FNV-1a hash begins.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;

/// Folds bytes into an FNV-1a hash.
pub fn fold(hash: u64, bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(hash, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

pub struct Stream(u64);

impl Stream {
    /// The stream of a purpose.
    pub fn of(seed: u64, purpose: &str) -> Self {
        Self(seed ^ fold(FNV_OFFSET, purpose.bytes()))
    }

    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to `limit` - 1.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.bits() % limit.max(1)
    }

    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low)
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}
