//! Measures the processor time of threads that compile ahead: whether a processor is idle, and
//! whether a thread that a first call waits for makes progress.
//!
//! # Why
//! - A thread that waits for a lock, or for a page, waits for a processor no more than one that
//!   sleeps. So time without a processor counts only where the kernel took one away (`ru_nivcsw` of
//!   `getrusage(2)`).
//! - On an idle processor a thread is woken 0.05 to 0.1 ms late, where others run 1 to 3 ms late.
//!   So a napping thread detects load before it takes a processor from another thread.

use std::time::{Duration, Instant};

use crate::host::clock::thread_time;
use crate::speculation::Speculation;

/// The share of the time of compiles for which a worker must have had a processor.
const ENOUGH: f64 = 0.6;

/// The time of compiles after which that is checked.
const LOOK: Duration = Duration::from_millis(4);

/// Delay of a wake-up that shows that a thread had to wait for a processor.
const LATE: Duration = Duration::from_micros(500);

/// Shortest and longest rest of a worker that had to wait for a processor.
const REST: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(320));

/// The processor time of a worker, and how long it rests.
pub(super) struct Pace {
    had: Duration,
    took: Duration,
    /// Whether it was woken late.
    late: bool,
    /// How often the processor had been taken away from it at the last check.
    taken_away: i64,
    rest: Duration,
}

impl Pace {
    /// For the calling thread.
    pub(super) fn new() -> Pace {
        Pace {
            had: Duration::ZERO,
            took: Duration::ZERO,
            late: false,
            taken_away: taken_away(),
            rest: REST.0,
        }
    }

    /// Does some work, and returns how long to rest after it.
    pub(super) fn keep<R>(
        &mut self,
        speculation: &Speculation,
        work: impl FnOnce() -> R,
    ) -> (R, Option<Duration>) {
        let (before, start) = (thread_time(), Instant::now());
        let result = work();
        let had = thread_time().saturating_sub(before);
        speculation.counters.spent_aside(had);
        (result, self.note(had, start.elapsed()))
    }

    /// Sleeps, at most for `time`, and returns how long to rest after it.
    pub(super) fn sleep(&mut self, time: Duration) -> Option<Duration> {
        let late = overslept(time);
        if late < LATE {
            return None;
        }
        self.late = true;
        self.note(Duration::ZERO, late)
    }

    /// Rests; longer where there is no processor after it, as long as `goes_on`.
    pub(super) fn rest(&mut self, mut rest: Duration, goes_on: impl Fn() -> bool) {
        while overslept(rest) >= LATE && goes_on() {
            rest = self.next_rest();
        }
    }

    /// Notes the processor time and the duration of some work; returns how long to rest after it.
    fn note(&mut self, had: Duration, took: Duration) -> Option<Duration> {
        self.had += had;
        self.took += took;
        if self.took < LOOK {
            return None;
        }
        let now = taken_away();
        let was = std::mem::replace(&mut self.taken_away, now);
        let waited = std::mem::take(&mut self.late) || now != was;
        let enough = !waited || self.had >= self.took.mul_f64(ENOUGH);
        (self.had, self.took) = Default::default();
        if enough {
            self.rest = REST.0;
            return None;
        }
        Some(self.next_rest())
    }

    fn next_rest(&mut self) -> Duration {
        let rest = self.rest;
        self.rest = (rest * 2).min(REST.1);
        rest
    }
}

/// Sleeps for `time`; returns how much longer it took.
fn overslept(time: Duration) -> Duration {
    let start = Instant::now();
    std::thread::park_timeout(time);
    start.elapsed().saturating_sub(time)
}

/// How often the kernel took the processor away from the calling thread.
fn taken_away() -> i64 {
    // SAFETY: all bytes zero are numbers; a live place.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage.ru_nivcsw
    }
}

/// Shows other threads whether a thread makes progress.
pub(super) struct Watch {
    /// The clock of its processor time, if the C library has one.
    clock: Option<libc::clockid_t>,
    /// Its processor time at the last look, and the time of the look.
    seen: (Duration, Instant),
}

impl Watch {
    /// Watches the calling thread.
    pub(super) fn mine() -> Watch {
        let mut clock = 0;
        // SAFETY: the calling thread lives; a live place.
        let refused =
            unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) } != 0;
        Watch {
            clock: (!refused).then_some(clock),
            seen: (Duration::ZERO, Instant::now()),
        }
    }

    /// Its processor time so far; `None` where that is unknown, or the thread is gone.
    fn had(&self) -> Option<Duration> {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: a live place; the number of a thread that is gone is refused.
        let refused = unsafe { libc::clock_gettime(self.clock?, &raw mut time) } != 0;
        (!refused).then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
    }

    /// Begins a new look.
    pub(super) fn begin(&mut self) {
        self.seen = (self.had().unwrap_or_default(), Instant::now());
    }

    /// Whether it had a processor for most of the time since the last look.
    pub(super) fn gets_on(&mut self) -> bool {
        let (had, at) = self.seen;
        self.begin();
        let (more, took) = (
            self.seen.0.saturating_sub(had),
            self.seen.1.saturating_duration_since(at),
        );
        more >= took.mul_f64(ENOUGH)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    use super::{LOOK, Pace, REST, Watch};

    #[test]
    fn who_sleeps_is_seen_not_to_get_on() {
        let (tell, told) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            tell.send(Watch::mine()).expect("somebody listens");
            // Until the other end is dropped.
            let _ = ended.recv();
        });
        let mut watch = told.recv().expect("a watch");
        watch.begin();
        std::thread::sleep(Duration::from_millis(20));
        assert!(!watch.gets_on());
        drop(end);
        thread.join().expect("no panic");
        std::thread::sleep(Duration::from_millis(1));
        assert!(!watch.gets_on(), "it is gone");
    }

    #[test]
    fn who_works_is_seen_to_have_had_a_processor() {
        let watch = Watch::mine();
        let before = watch.had().expect("told");
        let start = Instant::now();
        while watch.had().expect("told") < before + Duration::from_millis(2) {
            assert!(start.elapsed() < Duration::from_secs(60));
        }
    }

    #[test]
    fn waits_for_anything_but_a_processor_are_no_reason_to_rest() {
        let mut pace = Pace::new();
        // As long as nothing was taken away from it.
        pace.taken_away = super::taken_away();
        let rests = pace.note(Duration::ZERO, LOOK);
        assert!(rests.is_none() || super::taken_away() > 0);
        let mut rest = REST.0;
        while rest < REST.1 {
            // It was, once.
            pace.taken_away = -1;
            assert_eq!(pace.note(Duration::ZERO, LOOK), Some(rest));
            rest = (rest * 2).min(REST.1);
        }
        assert_eq!(pace.note(LOOK, LOOK), None);
        pace.taken_away = -1;
        assert_eq!(pace.note(Duration::ZERO, LOOK), Some(REST.0));
    }
}
