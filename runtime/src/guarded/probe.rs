//! Reads of memory that may be unmapped: stacks of fibers that may have been freed. The kernel
//! reads it (`process_vm_readv`), which fails on unmapped memory. Async-signal-safe.

use std::ffi::c_void;

/// The page size of x86-64.
const PAGE: u64 = 4096;

/// Maximal pages that one system call examines.
const PAGES: usize = 32;

/// Maximal part of a fiber's stack that a guarded call may use.
const LARGEST: u64 = 64 << 20;

/// Maximal pages below a stack in which its stack pointer may be on overflow.
const BEYOND: u64 = 256;

/// Reads places of one byte, or of one word, through the kernel: the number of bytes it could read,
/// and `None` if the system forbids the call.
fn read(places: &[libc::iovec], into: &mut [u8]) -> Option<usize> {
    let to = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    // SAFETY: writes to `into` only; reads the process itself.
    let (count, cause) = unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        // The calling thread stands for the process, whose first thread may have ended.
        let count = libc::process_vm_readv(
            libc::gettid(),
            &to,
            1,
            places.as_ptr(),
            places.len() as u64,
            0,
        );
        let cause = *errno;
        *errno = before;
        (count, cause)
    };
    match usize::try_from(count) {
        Ok(count) => Some(count),
        Err(_) => (cause == libc::EFAULT).then_some(0),
    }
}

/// The word at an address; `None` if it is unmapped.
pub(crate) fn word(address: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    let place = libc::iovec {
        iov_base: address as *mut c_void,
        iov_len: bytes.len(),
    };
    match read(&[place], &mut bytes) {
        Some(count) => (count == bytes.len()).then(|| u64::from_ne_bytes(bytes)),
        // SAFETY: if the system forbids the call, stacks of active calls are assumed to stay.
        None => Some(unsafe { (address as *const u64).read_volatile() }),
    }
}

/// The first page from `from` on, up to `end`, that cannot be read; both are page addresses.
fn first_gap(from: u64, end: u64) -> Option<u64> {
    let mut at = from;
    while at < end {
        let mut places = [libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 1,
        }; PAGES];
        let count = (((end - at) / PAGE) as usize).min(PAGES);
        for (place, page) in places.iter_mut().zip(0..) {
            place.iov_base = (at + page * PAGE) as *mut c_void;
        }
        // Without the kernel's answer, fibers cannot be distinguished otherwise.
        let readable = read(&places[..count], &mut [0; PAGES][..count])?;
        at += readable as u64 * PAGE;
        if readable < count {
            return Some(at);
        }
    }
    None
}

/// Whether two addresses on stacks other than the thread's own are on one stack: all pages between
/// them are mapped. A stack pointer right below the end of its stack belongs to it.
pub(super) fn is_one_stack(sp: u64, top: u64) -> bool {
    let (mut low, high) = (sp & !(PAGE - 1), (top & !(PAGE - 1)) + PAGE);
    if high.saturating_sub(low) > LARGEST {
        return false;
    }
    for _ in 0..BEYOND {
        match first_gap(low, high) {
            None => return true,
            Some(gap) if gap == low => low += PAGE,
            Some(_) => return false,
        }
    }
    false
}
