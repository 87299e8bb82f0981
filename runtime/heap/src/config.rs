//! What an embedder chooses when a heap is made.

use crate::layout::MAX_RESERVATION;

/// Settings of a [`Heap`](crate::Heap); start from [`HeapConfig::default`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HeapConfig {
    /// Bytes of address space to reserve, clamped to [`MIN_RESERVATION`]
    /// ..= [`MAX_RESERVATION`](crate::MAX_RESERVATION), less with
    /// [`Place::Near`] and [`Place::Low`]. Where address space is
    /// limited (`RLIMIT_AS`), the heap takes a share of what is left of it
    /// ([`Room`](crate::Room)); when the kernel refuses, it halves that and retries down to
    /// [`MIN_RESERVATION`]. Address space is not memory: nothing is used until
    /// it is touched.
    ///
    /// [`MIN_RESERVATION`]: crate::MIN_RESERVATION
    pub reservation: usize,
    /// Where the reservation lies.
    pub place: Place,
    /// Bytes of writable data to have room for. Half of the reservation is there for it in
    /// any case; what is more takes from code and constants, which keep an eighth of theirs
    /// at least.
    pub data: usize,
    /// The most bytes the heap may hold (handed out, retired and wasted, over
    /// all pools together; slots and stubs are not counted). `None`: only the
    /// capacity of the pools limits.
    pub limit: Option<usize>,
    /// How code becomes writable without ever being writable and executable.
    pub backing: BackingChoice,
    /// What becomes of code that was freed.
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

/// Which addresses a heap gets. All are chosen at random, unless randomization is off for
/// the process, as under a debugger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// Anywhere.
    #[default]
    Random,
    /// Within 2 GiB of the shared libraries of the process, where code that reaches their
    /// variables by its own address (`R_X86_64_PC32`) does without a copy of them. Such a
    /// reservation is at most [`MAX_NEAR_RESERVATION`](crate::MAX_NEAR_RESERVATION) bytes.
    Near,
    /// Below 2 GiB, where code of the small non-PIC model, whose fields of 32 bits hold
    /// addresses (`R_X86_64_32`, `R_X86_64_32S`), reaches everything as in a static
    /// program. Such a reservation is at most
    /// [`MAX_LOW_RESERVATION`](crate::MAX_LOW_RESERVATION) bytes, and there is room for
    /// few of them in a process.
    Low,
}

/// What becomes of code memory after [`Heap::free`](crate::Heap::free). The last two
/// make a thread that executes freed code stop there, for tests and for hardening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Freed {
    /// Pages without living code go to the kernel and are used again.
    Reuse,
    /// It is filled with `int3` (with [`Backing::Flip`], closed) and never reused.
    Poison,
    /// Like [`Freed::Reuse`], but pages are closed first, and the latest of them
    /// stay closed. Each closed run costs kernel mappings.
    Protect {
        /// Bytes of pages that are kept closed; what comes on top of them lets
        /// the oldest go.
        quarantine: usize,
    },
}

/// The choice an embedder makes; [`Backing`] is what came of it.
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

/// How the executable and read-only regions are backed.
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
