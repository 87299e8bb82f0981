//! Words in which the probes of a version count.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use uruk_codegen::Probes;
use uruk_heap::Sealed;

use crate::fork::gate;

/// The words of a version's probes, in the heap's private data. They are freed with the last handle
/// of the counting code and of readers.
#[derive(Debug, Clone)]
pub(crate) struct ProbeWords {
    pub(crate) probes: Probes,
    memory: Arc<ProbeMemory>,
}

#[derive(Debug)]
struct ProbeMemory(Option<Sealed>);

impl Drop for ProbeMemory {
    fn drop(&mut self) {
        // The last holder may be a thread without a pass.
        let _pass = gate::enter();
        if let Some(memory) = self.0.take() {
            // SAFETY: the code that counts in it holds a `ProbeWords` until it is freed, and
            // it is freed when no thread can be in it.
            unsafe { memory.release() };
        }
    }
}

impl ProbeWords {
    pub(crate) fn new(probes: Probes, memory: Sealed) -> ProbeWords {
        let memory = Arc::new(ProbeMemory(Some(memory)));
        ProbeWords { probes, memory }
    }

    pub(crate) fn address(&self) -> u64 {
        self.memory.0.as_ref().map_or(0, Sealed::address)
    }

    /// Bytes that they take.
    pub(crate) fn bytes(&self) -> usize {
        self.memory.0.as_ref().map_or(0, Sealed::held)
    }

    /// The counts so far.
    pub(crate) fn read(&self) -> Vec<u64> {
        let words = self.memory.0.as_ref().map_or(&[][..], Sealed::words64);
        let counts = words.iter().map(|word| word.load(Ordering::Relaxed));
        counts.take(self.probes.words() as usize).collect()
    }
}
