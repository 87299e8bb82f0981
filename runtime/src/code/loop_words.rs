//! The memory of the words of the loops of one version.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use uruk_codegen::Heads;
use uruk_heap::Sealed;

use crate::fork::gate;

/// The memory of the words of one version's loops: lives as long as the code that counts in it, and
/// as long as it is read.
#[derive(Debug)]
pub(crate) struct LoopWordMemory {
    words: Option<Sealed>,
    /// The sum of the counts if no head was passed since the last reading.
    expected: AtomicU32,
}

impl LoopWordMemory {
    /// The words of a version, with all counts at zero.
    pub(super) fn new(words: Sealed) -> LoopWordMemory {
        LoopWordMemory {
            words: Some(words),
            expected: AtomicU32::new(0),
        }
    }

    pub(super) fn address(&self) -> u64 {
        self.words.as_ref().map_or(0, Sealed::address)
    }

    /// Bytes of the words.
    pub(super) fn bytes(&self) -> usize {
        self.words.as_ref().map_or(0, Sealed::held)
    }

    /// Sets the sum of the counts that shows that no head was passed.
    pub(super) fn expect(&self, sum: u32) {
        self.expected.store(sum, Ordering::Relaxed);
    }

    /// The word of 4 bytes at an offset.
    pub(super) fn word32(&self, offset: usize) -> &AtomicU32 {
        let words = self.words.as_ref().map_or(&[][..], Sealed::words32);
        &words[offset / size_of::<AtomicU32>()]
    }

    /// The word of 8 bytes at an offset.
    pub(super) fn word64(&self, offset: usize) -> &AtomicU64 {
        let words = self.words.as_ref().map_or(&[][..], Sealed::words64);
        &words[offset / size_of::<AtomicU64>()]
    }
}

impl Drop for LoopWordMemory {
    fn drop(&mut self) {
        // The last holder may have no pass.
        let _pass = gate::enter();
        if let Some(memory) = self.words.take() {
            // SAFETY: the code that counts in it holds its `Loops`, which holds `self`, until it
            // is freed, and it is freed when no thread can be in it.
            unsafe { memory.release() };
        }
    }
}

/// The counts of one version's loops, also after the version is freed.
#[derive(Debug)]
pub(crate) struct Passes {
    memory: Arc<LoopWordMemory>,
    /// Offset of the first count.
    first: usize,
    loops: usize,
}

impl Passes {
    /// The counts of so many loops with words in `memory`.
    pub(super) fn of(memory: &Arc<LoopWordMemory>, loops: usize) -> Passes {
        Passes {
            memory: Arc::clone(memory),
            first: Heads::places(0, loops).count,
            loops,
        }
    }

    /// True if a head was passed since the last reading, or asked on behalf of an offer.
    pub(crate) fn have_changed(&self) -> bool {
        self.sum() != self.memory.expected.load(Ordering::Relaxed)
    }

    /// Takes the counts as they are for expected: those of a version that is gone change no more.
    pub(crate) fn settle(&self) {
        self.memory.expected.store(self.sum(), Ordering::Relaxed);
    }

    fn sum(&self) -> u32 {
        let count = |place: usize| {
            let at = self.first + place * size_of::<AtomicU32>();
            self.memory.word32(at).load(Ordering::Relaxed)
        };
        (0..self.loops).map(count).fold(0, u32::wrapping_add)
    }
}
