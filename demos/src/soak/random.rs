//! Pseudorandom numbers that a seed repeats.

/// A generator (splitmix64).
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// Another sequence for each seed and number.
    pub fn new(seed: u64, number: usize) -> Random {
        let mut random = Random(seed);
        let mixed = random.next() ^ number as u64;
        Random(mixed)
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below a limit, which is not 0.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// True once in so many times.
    pub fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }
}
