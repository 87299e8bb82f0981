//! Functions of the C library whose names the file with this code may export itself.

use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One of them: the next definition after that of the executable or library with this code.
///
/// Looked up once: `dlsym` takes the dynamic loader's lock, under which constructors of libraries
/// call this, and must not be called in a signal handler. Relaxed: all callers find the same
/// address.
pub(crate) struct NextDefinition(&'static CStr, AtomicUsize);

impl NextDefinition {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self(name, AtomicUsize::new(0))
    }

    /// Its address, 0 if there is none.
    pub(crate) fn address(&self) -> usize {
        let mut found = self.1.load(Ordering::Relaxed);
        if found == 0 {
            // SAFETY: a C string.
            found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.0.as_ptr()) } as usize;
            self.1.store(found, Ordering::Relaxed);
        }
        found
    }
}
