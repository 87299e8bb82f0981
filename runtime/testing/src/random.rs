//! Pseudorandom numbers: SplitMix64 (Steele, Lea, Flood: *Fast splittable pseudorandom number
//! generators*, OOPSLA 2014).

/// A generator of pseudorandom numbers. All seeds are equally good. If the thread panics while it
/// exists, the seed is printed.
#[derive(Debug, Clone)]
pub struct Random {
    seed: u64,
    state: u64,
}

impl Random {
    pub fn new(seed: u64) -> Self {
        Self { seed, state: seed }
    }

    /// The next number, of all 2^64.
    #[expect(clippy::should_implement_trait, reason = "the numbers have no end")]
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// The next two numbers as one.
    pub fn wide(&mut self) -> u128 {
        u128::from(self.next()) << 64 | u128::from(self.next())
    }

    /// A number from 0 up to but not including 1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number below `limit`, which is greater than 0.
    pub fn below<N: Limit>(&mut self, limit: N) -> N {
        limit.scale(self.next())
    }

    /// True in one of `n` cases.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// One of `values`, which are not empty.
    pub fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }

    /// Fills `bytes` with random ones.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            let number = self.next().to_le_bytes();
            part.copy_from_slice(&number[..part.len()]);
        }
    }
}

/// The types of numbers that [`Random::below`] returns.
pub trait Limit {
    /// The number below `self` that is to it as `random` is to 2^64.
    fn scale(self, random: u64) -> Self;
}

macro_rules! limits {
    ($($number:ty)*) => {$(
        impl Limit for $number {
            fn scale(self, random: u64) -> Self {
                let limit = u128::try_from(self).expect("a limit is greater than 0");
                assert_ne!(limit, 0, "there is no number below 0");
                // Below `self`, so that it fits.
                ((u128::from(random) * limit) >> 64) as Self
            }
        }
    )*};
}

limits! { u8 u16 u32 u64 usize i32 i64 }

impl Drop for Random {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the seed of the random numbers is {:#x}", self.seed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn numbers_are_those_of_the_reference() {
        // Of the C program by S. Vigna (https://prng.di.unimi.it/splitmix64.c), for this state.
        let mut random = Random::new(1_234_567);
        let numbers = [(); 3].map(|()| random.next());
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        assert_eq!(numbers, expected);
    }

    #[test]
    fn numbers_keep_limits_and_reach_them() {
        let mut random = Random::new(1);
        let mut counts = [0_u32; 5];
        (0..1000).for_each(|_| counts[random.below(5)] += 1);
        assert!(counts.iter().all(|&count| count > 150), "{counts:?}");
        assert_eq!(random.below(1), 0);
        assert_eq!(random.one_of(&[7]), 7);
        assert_ne!(random.wide() >> 64, 0);
        let mut bytes = [0; 11];
        random.fill(&mut bytes);
        assert_ne!(bytes[8..], [0; 3]);
    }
}
