//! Functions of the C library whose names whoever holds this code may export itself.

use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One of them: the next definition after that of the executable or library with this code.
///
/// Looked for once: `dlsym` takes the lock of the dynamic loader, under which constructors of libraries
/// come here, and is nothing for a handler of a signal. Relaxed: all who look find the same.
pub(super) struct Library(&'static CStr, AtomicUsize);

impl Library {
    pub(super) const fn new(name: &'static CStr) -> Self {
        Self(name, AtomicUsize::new(0))
    }

    /// Its address, 0 if there is none.
    pub(super) fn address(&self) -> usize {
        let mut found = self.1.load(Ordering::Relaxed);
        if found == 0 {
            // SAFETY: a C string.
            found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.0.as_ptr()) } as usize;
            self.1.store(found, Ordering::Relaxed);
        }
        found
    }
}
