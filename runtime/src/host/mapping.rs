//! Zero-initialized memory of large variables.

use std::ffi::c_void;
use std::io;
use std::ops::Range;
use std::ptr::null_mut;

/// Memory of a variable, unmapped on drop.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: *mut c_void,
    size: usize,
}

// SAFETY: a range of addresses that is owned; nothing is read or written through it here.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps that many bytes, which are zero.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn new(size: usize) -> io::Result<Mapping> {
        // Memory is counted once it is touched.
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, at any free address.
        let start = unsafe { libc::mmap(null_mut(), size, protection, flags, -1, 0) };
        match start {
            libc::MAP_FAILED => Err(io::Error::last_os_error()),
            _ => Ok(Mapping { start, size }),
        }
    }

    /// Its addresses.
    pub(crate) fn range(&self) -> Range<u64> {
        let start = self.start as u64;
        start..start + self.size as u64
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made; it is held by what was linked against it.
        unsafe { libc::munmap(self.start, self.size) };
    }
}
