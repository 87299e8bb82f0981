//! Clocks of the process and of its threads.

use std::cell::Cell;
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

/// Processor time of a thread, without the time that its work spends [`apart`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct WorkTime {
    total: Duration,
    apart: Duration,
}

thread_local! {
    static APART: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

impl WorkTime {
    /// The time of the calling thread until now.
    pub(crate) fn now() -> WorkTime {
        WorkTime {
            total: thread_time(),
            apart: APART.get(),
        }
    }

    /// The time of the calling thread, which called [`WorkTime::now`] before, since then.
    pub(crate) fn elapsed(self) -> Duration {
        let now = WorkTime::now();
        let apart = now.apart.saturating_sub(self.apart);
        now.total.saturating_sub(self.total).saturating_sub(apart)
    }
}

/// Calls `work`, whose time is not counted as time of the work that it is needed for: it is spent
/// once, whatever is done with its result.
pub(crate) fn apart<T>(work: impl FnOnce() -> T) -> T {
    let before = WorkTime::now();
    let result = work();
    APART.set(APART.get() + before.elapsed());
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spin(time: Duration) {
        let start = thread_time();
        while thread_time() - start < time {}
    }

    #[test]
    fn time_apart_is_not_counted() {
        let ms = Duration::from_millis;
        let start = WorkTime::now();
        spin(ms(2));
        apart(|| {
            spin(ms(30));
            apart(|| spin(ms(30)));
        });
        let elapsed = start.elapsed();
        assert!((ms(2)..ms(30)).contains(&elapsed), "{elapsed:?}");
    }
}
