//! Numbers of dylibs, generators and trackers, each unique to one session; maps by such numbers.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU32, Ordering};

/// Number of a dylib in a session; never reused there. The sessions of a process number theirs from
/// different start values ([`DylibNumbers`]), so that a dylib of another session is recognized.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DylibId(u32);

/// The numbers of one session's dylibs.
///
/// Start values are multiples of 2^32 divided by the golden ratio, modulo 2^32. They lie far from
/// each other, however many there are: with 20,000 sessions each has 80,000 numbers before it
/// reaches another's.
#[derive(Debug)]
pub(crate) struct DylibNumbers {
    first: u32,
    taken: u32,
}

impl DylibNumbers {
    pub(crate) fn new() -> Self {
        const STEP: u32 = 0x9e37_79b9;
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // Relaxed: the number must be unique; nothing is ordered by it.
        let first = NEXT.fetch_add(STEP, Ordering::Relaxed);
        Self { first, taken: 0 }
    }

    /// The next one; `None` after 2^32.
    pub(crate) fn next(&mut self) -> Option<DylibId> {
        let id = DylibId(self.first.wrapping_add(self.taken));
        self.taken = self.taken.checked_add(1)?;
        Some(id)
    }

    /// How many dylibs were made before `id`; `None` if it is of another session.
    pub(crate) fn place(&self, id: DylibId) -> Option<u32> {
        let place = id.0.wrapping_sub(self.first);
        (place < self.taken).then_some(place)
    }
}

/// Identifies a generator of a session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GeneratorId(u64);

impl GeneratorId {
    pub(crate) const fn new(number: u64) -> Self {
        Self(number)
    }
}

/// Identifies a tracker of a session; never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TrackerKey(u64);

impl TrackerKey {
    /// No tracker.
    pub(crate) const NONE: TrackerKey = TrackerKey(u64::MAX);

    pub(crate) const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number, for display.
    pub const fn number(self) -> u64 {
        self.0
    }
}

/// Hashes dense numbers by one multiplication.
#[derive(Default)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }
    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }
    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }
}

pub(crate) type NumberMap<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;
pub(crate) type NumberSet<K> = HashSet<K, BuildHasherDefault<NumberHasher>>;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_sessions_differ() {
        let mut sessions: Vec<_> = (0..1000).map(|_| DylibNumbers::new()).collect();
        let ids: Vec<Vec<DylibId>> = sessions
            .iter_mut()
            .map(|numbers| (0..100).filter_map(|_| numbers.next()).collect())
            .collect();
        for (at, numbers) in sessions.iter().enumerate() {
            for (of, ids) in ids.iter().enumerate() {
                let places: Vec<_> = ids.iter().map(|&id| numbers.place(id)).collect();
                let own = (0..100).map(|place| (at == of).then_some(place));
                assert!(places.into_iter().eq(own), "of {of} in {at}");
            }
        }
    }
}
