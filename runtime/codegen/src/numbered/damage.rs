//! Damaged bitcode, for tests: a few bits are others, the same ones each time.

use uruk_testing::Random;

/// `count` copies of `good`, each with one to four bits changed.
pub(super) fn damaged(good: &[u8], seed: u64, count: usize) -> impl Iterator<Item = Vec<u8>> {
    let mut random = Random::new(seed);
    (0..count).map(move |_| {
        let mut bytes = good.to_vec();
        for _ in 0..1 + random.below(4) {
            let at = random.below(bytes.len());
            bytes[at] ^= 1 << random.below(8);
        }
        bytes
    })
}
