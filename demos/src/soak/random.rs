//! Pseudorandom numbers that a seed repeats.

use uruk_testing::Random;

/// Another sequence for each seed and number.
pub fn numbers(seed: u64, number: usize) -> Random {
    Random::new(Random::new(seed).next() ^ number as u64)
}
