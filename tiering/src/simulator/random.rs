//! The simulator's random numbers: SplitMix64 (Steele, Lea, Flood: *Fast splittable
//! pseudorandom number generators*, OOPSLA 2014). Our own six lines, because a seed must
//! give the same run for ever, which the crates do not promise across versions.

/// A stream of numbers that a seed determines.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 up to but not including 1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number below `limit`; 0 if that is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(limit)) >> 64) as u64
    }

    /// A whole number with the mean `mean`.
    pub fn round(&mut self, mean: f64) -> u64 {
        let whole = mean.max(0.0).floor();
        whole as u64 + u64::from(self.unit() < mean - whole)
    }
}
