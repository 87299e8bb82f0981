//! Clocks of the process and of its threads.

use std::time::Duration;

use uruk_base::Nanos;

/// A time as the tiering policy counts it.
pub(crate) fn nanos(time: Duration) -> Nanos {
    Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// Processor time of the process.
pub(crate) fn process_time() -> Duration {
    clock(libc::CLOCK_PROCESS_CPUTIME_ID)
}

pub(crate) fn clock(id: libc::clockid_t) -> Duration {
    let (tv_sec, tv_nsec) = (0, 0);
    let mut time = libc::timespec { tv_sec, tv_nsec };
    // SAFETY: a valid out pointer; the clock always exists.
    unsafe { libc::clock_gettime(id, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Processor time of the calling thread.
pub(crate) fn thread_time() -> Duration {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}
