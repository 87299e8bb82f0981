//! Damaged bitcode, for tests: a few bits are others, the same ones each time.

/// `count` copies of `good`, each with one to four bits changed; `seed` is not zero.
pub(super) fn damaged(good: &[u8], seed: u64, count: usize) -> impl Iterator<Item = Vec<u8>> {
    let mut state = seed;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    (0..count).map(move |_| {
        let mut bytes = good.to_vec();
        for _ in 0..1 + random(4) {
            let at = random(bytes.len());
            bytes[at] ^= 1 << random(8);
        }
        bytes
    })
}
