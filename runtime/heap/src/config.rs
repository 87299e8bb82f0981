//! Settings that an embedder chooses when a heap is made.

use crate::layout::MAX_RESERVATION;

/// Settings of a [`Heap`](crate::Heap); start from [`HeapConfig::default`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HeapConfig {
    /// Bytes of address space to reserve, clamped to [`MIN_RESERVATION`] ..=
    /// [`MAX_RESERVATION`](crate::MAX_RESERVATION), less with [`Place::Near`] and [`Place::Low`].
    /// Where address space is limited (`RLIMIT_AS`), the heap takes a share of the rest
    /// ([`Room`](crate::Room)); when the kernel refuses, it halves the size and retries down to
    /// [`MIN_RESERVATION`]. Address space is not memory: a page takes memory when it is first used.
    ///
    /// [`MIN_RESERVATION`]: crate::MIN_RESERVATION
    pub reservation: usize,
    /// The part of the address space in which the reservation lies.
    pub place: Place,
    /// Bytes of writable data to have room for. Half of the reservation is for data in any case.
    /// More than that is taken from code and constants, which keep an eighth of theirs at least.
    pub data: usize,
    /// The most bytes the heap may hold (handed out, retired and wasted, over
    /// all pools together; slots and stubs are not counted). `None`: only the
    /// capacity of the pools limits.
    pub limit: Option<usize>,
    /// The mechanism that makes code writable, but never writable and executable at once.
    pub backing: BackingChoice,
    /// The treatment of freed code.
    pub freed: Freed,
}

impl Default for HeapConfig {
    fn default() -> HeapConfig {
        HeapConfig {
            reservation: MAX_RESERVATION,
            place: Place::Random,
            data: 0,
            limit: None,
            backing: BackingChoice::Auto,
            freed: Freed::Reuse,
        }
    }
}

/// The range of a heap's addresses. Within it the place is random, unless randomization is off for
/// the process, as under a debugger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// Anywhere.
    #[default]
    Random,
    /// Within 2 GiB of the shared libraries of the process. There, code that refers to their
    /// variables by its own address (`R_X86_64_PC32`) needs no copy of them. Such a reservation is
    /// at most [`MAX_NEAR_RESERVATION`](crate::MAX_NEAR_RESERVATION) bytes.
    Near,
    /// Below 2 GiB. There, code of the small non-PIC model, with addresses in fields of 32 bits
    /// (`R_X86_64_32`, `R_X86_64_32S`), reaches everything as in a static program. Such a
    /// reservation is at most [`MAX_LOW_RESERVATION`](crate::MAX_LOW_RESERVATION) bytes, and a
    /// process has room for few of them.
    Low,
}

/// The treatment of code memory after [`Heap::free`](crate::Heap::free). The last two make a thread
/// that executes freed code stop there, for tests and for hardening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Freed {
    /// Pages without living code go to the kernel and are used again.
    Reuse,
    /// Freed code is filled with `int3` (with [`Backing::Flip`], closed) and never reused.
    Poison,
    /// Like [`Freed::Reuse`], but pages are closed first, and the latest of them
    /// stay closed. Each closed run costs kernel mappings.
    Protect {
        /// Bytes of pages that are kept closed; beyond that the oldest pages are reused.
        quarantine: usize,
    },
}

/// The embedder's choice of a backing; [`Backing`] is the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BackingChoice {
    /// Dual mapping when the system allows it, else protection changes.
    Auto,
    /// Dual mapping or an error.
    Dual,
    /// Protection changes, page-granular allocation.
    Flip,
}

/// The backing of the executable and read-only regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Two views of one memfd: `r-x`/`r--` inside the reservation, `rw-`
    /// outside it. Writing costs a copy, the number of kernel mappings is
    /// constant, allocations are packed at 16 bytes.
    Dual,
    /// Private anonymous memory whose pages go `rw-` -> `r-x`/`r--`. One system
    /// call per draft and per seal, every allocation takes whole pages, and
    /// kernel mappings come and go with open drafts.
    Flip,
}
