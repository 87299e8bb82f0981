//! The counters that baseline code increments: two words per function, entries and
//! back edges, in chunks of the heap's private data.
//!
//! Guest code adds without atomics, from any thread: increments may be lost, which
//! only ranks a function a little lower. A counter wraps; readers take differences.
//!
//! | what | writer | ordering |
//! |---|---|---|
//! | counter words | guest code | plain; read relaxed |
//! | `chunks` | `Counts::address` | under the lock |
//!
//! # Why
//! Counters are read by a thread and trigger nothing. Tier 1 pays two increments and no branch. The
//! cost of looks is limited by an account (`poll_overhead`, `poll_credit`), and the interval
//! doubles while there are no new counts.

use std::sync::atomic::{AtomicU32, Ordering};

use uruk_base::FunctionId;
use uruk_base::locks::{Mutex, MutexGuard, ranks};
use uruk_heap::{Heap, HeapError, Pool, Sealed};

/// Functions whose counters fit into a chunk.
const PER_CHUNK: usize = 4096;

/// Bytes of the counters of one function.
const EACH: usize = 8;

/// Entries and back edges of one function since it was first compiled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) entries: u32,
    pub(crate) loops: u32,
}

impl Count {
    /// The increments since `before`. A thread that was stopped in the middle of an increment may
    /// store an older count, which drops other threads' increments: then the difference is zero.
    pub(crate) fn since(self, before: Count) -> Count {
        let added = |before: u32, now: u32| match now.wrapping_sub(before) {
            added if added < u32::MAX / 2 => added,
            _ => 0,
        };
        Count {
            entries: added(before.entries, self.entries),
            loops: added(before.loops, self.loops),
        }
    }
}

/// All counters of a session.
#[derive(Default)]
pub(crate) struct Counts {
    /// Chunks by function index divided by [`PER_CHUNK`]; made when first needed.
    chunks: Mutex<Vec<Option<Sealed>>, ranks::CountsChunks>,
}

impl Counts {
    fn lock(&self) -> MutexGuard<'_, Vec<Option<Sealed>>> {
        self.chunks.lock()
    }

    /// Address of the counters of `id`.
    pub(crate) fn address(&self, heap: &Heap, id: FunctionId) -> Result<u64, HeapError> {
        let (chunk, offset) = place(id);
        let mut chunks = self.lock();
        if chunks.len() <= chunk {
            chunks.resize_with(chunk + 1, || None);
        }
        let held = match &mut chunks[chunk] {
            Some(held) => held,
            missing => {
                let draft = heap.allocate(Pool::ReadWrite, PER_CHUNK * EACH, 64)?;
                missing.insert(draft.seal()?)
            }
        };
        Ok(held.address() + offset as u64)
    }

    /// The present counts of a function.
    pub(crate) fn now(&self, id: FunctionId) -> Count {
        let mut seen = [(id, Count::default())];
        self.read(&mut seen, |_, _| ());
        seen[0].1
    }

    /// Resets the counts of a function to zero. Code of it that still runs may restore some of the
    /// old count.
    pub(crate) fn clear(&self, id: FunctionId) {
        let chunks = self.lock();
        let (chunk, offset) = place(id);
        if let Some(held) = chunks.get(chunk).and_then(Option::as_ref) {
            // Both words are one; the offset is a multiple of their size, within the chunk.
            let _ = held.store_word(offset, 0);
        }
    }

    /// Brings `seen` up to date and calls `each` with the increments, if there were any.
    pub(crate) fn read(
        &self,
        seen: &mut [(FunctionId, Count)],
        mut each: impl FnMut(FunctionId, Count),
    ) {
        let chunks = self.lock();
        for (id, before) in seen {
            let (chunk, offset) = place(*id);
            let Some(held) = chunks.get(chunk).and_then(Option::as_ref) else {
                continue;
            };
            let at = offset / size_of::<AtomicU32>();
            let [entries, loops, ..] = &held.words32()[at..] else {
                continue;
            };
            let now = Count {
                entries: entries.load(Ordering::Relaxed),
                loops: loops.load(Ordering::Relaxed),
            };
            if now != *before {
                let added = now.since(*before);
                *before = now;
                each(*id, added);
            }
        }
    }
}

fn place(id: FunctionId) -> (usize, usize) {
    let index = id.index() as usize;
    (index / PER_CHUNK, index % PER_CHUNK * EACH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_survive_a_wrap() {
        let before = Count {
            entries: u32::MAX,
            loops: 5,
        };
        let now = Count {
            entries: 2,
            loops: 9,
        };
        let added = now.since(before);
        assert_eq!((added.entries, added.loops), (3, 4));
    }

    #[test]
    fn a_count_that_went_back_adds_nothing() {
        let count = |entries, loops| Count { entries, loops };
        assert_eq!(count(11, 7).since(count(1000, 5)), count(0, 2));
        assert_eq!(count(u32::MAX, 3).since(count(4, 8)), count(0, 0));
    }
}
