//! Memory for copies of stacks. It is zeroed when it is freed: the next search of all memory would find
//! old return addresses.

use std::ops::{Deref, DerefMut};

/// Words, zero at first and in the end.
#[derive(Debug)]
pub(crate) struct Scratch(Box<[u64]>);

impl Scratch {
    pub(crate) fn new(words: usize) -> Self {
        Self(vec![0; words].into_boxed_slice())
    }
}

impl Deref for Scratch {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        &self.0
    }
}

impl DerefMut for Scratch {
    fn deref_mut(&mut self) -> &mut [u64] {
        &mut self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.0.fill(0);
        // Else the stores would be dead.
        std::hint::black_box(&mut self.0);
    }
}
