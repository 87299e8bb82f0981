//! The ring a perf event writes to: one control page, then data.
//!
//! The kernel appends at `data_head`, we read up to it and then move `data_tail`; both
//! count bytes and never wrap. The data is copied out before the tail moves, so that
//! everything after (`records`) is safe code on a slice of our own.
//!
//! | field | written by | ordering | partner |
//! |---|---|---|---|
//! | data_head | kernel, after the data | acquire load | its write barrier |
//! | data_tail | us, after the copy | release store | its read of the tail |
//!
//! The kernel does not copy these mappings into the child of a fork. In the child their addresses
//! are unmapped, or hold a mapping of the program. So no code touches a ring in a process that did
//! not map it.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use perf_event_open_sys::bindings::perf_event_mmap_page;

use crate::source::SourceError;
use crate::threads;

const PAGE: usize = 4096;

/// A mapped ring.
#[derive(Debug)]
pub(super) struct Ring {
    base: *mut u8,
    data_bytes: usize,
    /// The process that mapped it.
    process: i32,
}

// SAFETY: the mapping belongs to the value and has no tie to a thread.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps a ring of up to `data_bytes` for an event, half as much if the kernel's
    /// budget of locked memory is used up, down to one page.
    pub(super) fn map(event: BorrowedFd<'_>, data_bytes: usize) -> Result<Ring, SourceError> {
        let mut data_bytes = data_bytes.max(PAGE).next_power_of_two();
        loop {
            // SAFETY: a new mapping at an address of the kernel's choice.
            let base = unsafe {
                libc::mmap(
                    ptr::null_mut(),
                    PAGE + data_bytes,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_SHARED,
                    event.as_raw_fd(),
                    0,
                )
            };
            if base != libc::MAP_FAILED {
                return Ok(Ring {
                    base: base.cast(),
                    data_bytes,
                    process: threads::process_id(),
                });
            }
            let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
            let budget = errno == libc::EPERM || errno == libc::ENOMEM;
            if !budget || data_bytes == PAGE {
                let bytes = data_bytes;
                return Err(SourceError::Ring { bytes, errno });
            }
            data_bytes /= 2;
        }
    }

    pub(super) fn bytes(&self) -> usize {
        PAGE + self.data_bytes
    }

    fn head(&self) -> &AtomicU64 {
        let page = self.base.cast::<perf_event_mmap_page>();
        // SAFETY: the control page is mapped while `self` lives in the process that
        // mapped it, which `take` checks; the field is aligned, and the kernel writes
        // it as one word.
        unsafe { AtomicU64::from_ptr(&raw mut (*page).data_head) }
    }

    fn tail(&self) -> &AtomicU64 {
        let page = self.base.cast::<perf_event_mmap_page>();
        // SAFETY: as for the head; the kernel only reads it.
        unsafe { AtomicU64::from_ptr(&raw mut (*page).data_tail) }
    }

    /// Moves the whole records in the ring into `bytes`.
    pub(super) fn take(&mut self, bytes: &mut Vec<u8>) {
        bytes.clear();
        if self.process != threads::process_id() {
            return;
        }
        // Partner: the kernel's write barrier before it moves the head.
        let head = self.head().load(Ordering::Acquire);
        // Relaxed: only we write it.
        let tail = self.tail().load(Ordering::Relaxed);
        let len = (head.wrapping_sub(tail) as usize).min(self.data_bytes);
        let at = tail as usize % self.data_bytes;
        let first = len.min(self.data_bytes - at);
        bytes.reserve(len);
        for (at, len) in [(at, first), (0, len - first)] {
            // SAFETY: inside the data pages, which are mapped; the kernel does not
            // write between tail and head.
            let part = unsafe { std::slice::from_raw_parts(self.base.add(PAGE + at), len) };
            bytes.extend_from_slice(part);
        }
        // Partner: the kernel reads the tail before it writes over the data.
        self.tail().store(head, Ordering::Release);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.process == threads::process_id() {
            // SAFETY: our own mapping, with no reference into it left.
            unsafe { libc::munmap(self.base.cast(), self.bytes()) };
        }
    }
}
