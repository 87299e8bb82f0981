//! What an embedder chooses when a heap is made.

use crate::layout::MAX_RESERVATION;

/// Settings of a [`Heap`](crate::Heap); start from [`HeapConfig::default`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HeapConfig {
    /// Bytes of address space to reserve, clamped to [`MIN_RESERVATION`]
    /// ..= [`MAX_RESERVATION`](crate::MAX_RESERVATION). When the kernel refuses
    /// (`RLIMIT_AS`, containers), the heap halves it and retries down to
    /// [`MIN_RESERVATION`]. Address space is not memory: nothing is used until
    /// it is touched.
    ///
    /// [`MIN_RESERVATION`]: crate::MIN_RESERVATION
    pub reservation: usize,
    /// The most bytes the heap may hold (handed out, retired and wasted, over
    /// all pools together; slots and stubs are not counted). `None`: only the
    /// capacity of the pools limits.
    pub limit: Option<usize>,
    /// How code becomes writable without ever being writable and executable.
    pub backing: BackingChoice,
}

impl Default for HeapConfig {
    fn default() -> HeapConfig {
        HeapConfig {
            reservation: MAX_RESERVATION,
            limit: None,
            backing: BackingChoice::Auto,
        }
    }
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
