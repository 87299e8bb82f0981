//! The calling thread's id and the time, as perf defines them.

use rustix::thread::gettid;
use rustix::time::{ClockId, clock_gettime};

/// Kernel id of the calling thread.
pub(crate) fn current_tid() -> u32 {
    gettid().as_raw_nonzero().get().unsigned_abs()
}

/// `CLOCK_MONOTONIC` in nanoseconds, as in records of `perf record -k 1`.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let (seconds, rest) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
    seconds * 1_000_000_000 + rest
}
