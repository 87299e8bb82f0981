//! Errors of the heap, with the numbers that explain them.

use rustix::io::Errno;
use thiserror::Error;

use crate::Pool;

/// An error of the heap. The heap stays usable after every one of them, except
/// that [`HeapError::Detached`] lasts.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HeapError {
    /// No address space, even after halving.
    #[error(
        "no address space for the heap: {asked} bytes were asked, refused down to {smallest} bytes"
    )]
    Reserve {
        /// Bytes that the configuration requests.
        asked: usize,
        /// The last, smallest size that was tried.
        smallest: usize,
        /// The kernel's error for that size.
        #[source]
        errno: Errno,
    },
    /// The system refuses executable memory in every way the configuration
    /// allows.
    #[error("no permission for executable memory")]
    NoExecutable {
        /// The kernel's error.
        #[source]
        errno: Errno,
    },
    /// A mapping or protection change inside the reservation was refused.
    #[error("the kernel refused to {step} {len} bytes at {address:#x}")]
    Map {
        /// The attempted step, as a verb.
        step: &'static str,
        /// First address of the range.
        address: u64,
        /// Bytes of the range.
        len: usize,
        /// The kernel's error.
        #[source]
        errno: Errno,
    },
    /// A pool is full.
    #[error(
        "out of {pool} memory: {asked} bytes asked, {held} of {capacity} bytes held, \
         {retired} of them retired"
    )]
    OutOfSpace {
        /// The pool.
        pool: Pool,
        /// Bytes requested.
        asked: usize,
        /// Bytes that cannot be handed out (used, retired, lost).
        held: usize,
        /// Bytes of them that are retired: a reclaim may give them back.
        retired: usize,
        /// Bytes of the pool in all.
        capacity: usize,
    },
    /// [`HeapConfig::limit`](crate::HeapConfig::limit) would be exceeded.
    #[error(
        "memory limit reached: {asked} bytes asked, {held} of {limit} bytes held, \
         {retired} of them retired"
    )]
    Limit {
        /// Bytes requested.
        asked: usize,
        /// Bytes held over all pools (used, retired, lost).
        held: usize,
        /// Bytes of them that are retired: a reclaim may give them back.
        retired: usize,
        /// The configured limit.
        limit: usize,
    },
    /// The alignment is no power of two.
    #[error("bad alignment {align}: not a power of two")]
    Alignment {
        /// The requested alignment.
        align: usize,
    },
    /// A write or store leaves its allocation.
    #[error("{len} bytes at offset {offset} leave an allocation of {size} bytes")]
    Bounds {
        /// First byte.
        offset: usize,
        /// Bytes.
        len: usize,
        /// Size of the allocation.
        size: usize,
    },
    /// A word store at an address that is not a multiple of 8.
    #[error("the word at {address:#x} is not aligned to 8 bytes")]
    Misaligned {
        /// Address of the word.
        address: u64,
    },
    /// A word store into memory that is not writable data.
    #[error("{pool} memory is not writable once it is sealed")]
    NotWritable {
        /// The pool.
        pool: Pool,
    },
    /// The draft was opened before a `fork` and is used in the child: its pages are the parent's.
    #[error("a draft opened before fork cannot be used in the child")]
    CrossedFork,
    /// After a `fork` the child could not get memory of its own; it can run
    /// inherited code, but code and read-only data can no longer be allocated.
    #[error("the child of a fork could not get code memory of its own")]
    Detached {
        /// The kernel's error.
        #[source]
        errno: Errno,
    },
    /// Stub pages must be committed in order, without gaps.
    #[error("stub page {first} committed before page {expected}")]
    StubGap {
        /// First page of the request.
        first: usize,
        /// The next page that has no image.
        expected: usize,
    },
    /// The request has more stub pages than the region.
    #[error("stub pages {first} to {end} asked, the region has {capacity}")]
    StubCapacity {
        /// First page of the request.
        first: usize,
        /// One past its last page (saturated).
        end: usize,
        /// Pages of the region.
        capacity: usize,
    },
}
