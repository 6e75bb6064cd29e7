//! The generator behind everything that happens by chance in a simulated world.

/// A small seeded generator (SplitMix64): the same seed gives the same world.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// low..high.
    pub fn between(&mut self, low: f32, high: f32) -> f32 {
        low + (self.bits() >> 40) as f32 / (1u32 << 24) as f32 * (high - low)
    }

    /// 0..count; `count` is at least 1.
    pub fn below(&mut self, count: usize) -> usize {
        (self.bits() % count as u64) as usize
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f32) -> bool {
        self.between(0.0, 1.0) < probability
    }

    /// Radians, any direction.
    pub fn angle(&mut self) -> f32 {
        self.between(0.0, std::f32::consts::TAU)
    }
}

/// Spreads the bits of a number: SplitMix64's output function, which also serves as a hash.
pub fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
