//! Processor time of the program's threads, read from outside of them.
//!
//! The clock of the process is unsuitable for slices of milliseconds: the kernel updates the time
//! of another running thread at its timer's ticks only. The clock of a thread is updated when it is
//! read. So each is read by itself, 0.2 to 0.4 us each, except for the runtime's threads that run
//! no guest code. Threads that begin or end between two readings are not counted. With more than
//! [`MOST`] threads the process's clock is used, which is right in the long run.

use uruk_base::Nanos;

use crate::fork::threads;
use crate::host::clock::{clock, nanos, process_time};

/// Maximal number of threads that are read one by one.
const MOST: usize = 64;

/// The clocks of the threads that existed when it was made.
pub(super) struct GuestClock {
    threads: Vec<libc::clockid_t>,
}

/// A reading, by thread.
pub(super) struct Reading(Vec<Option<Nanos>>);

impl GuestClock {
    /// The clocks of the current threads. Under a pass.
    pub(super) fn new() -> GuestClock {
        let ours = threads::idle();
        let ids = uruk_files::threads().unwrap_or_default();
        let mut threads: Vec<_> = ids
            .into_iter()
            .filter(|id| !ours.contains(id))
            // The kernel's encoding of a thread's scheduler clock.
            .map(|id| (!id << 3) | 6)
            .collect();
        if threads.len() > MOST {
            threads.clear();
        }
        GuestClock { threads }
    }

    /// Reads the clocks.
    pub(super) fn read(&self) -> Reading {
        if self.threads.is_empty() {
            return Reading(vec![Some(nanos(process_time()))]);
        }
        let times = self.threads.iter().map(|&id| {
            let time = nanos(clock(id));
            // A thread that has ended has no clock, and reads as zero.
            (time != Nanos::ZERO).then_some(time)
        });
        Reading(times.collect())
    }
}

impl Reading {
    /// The time of all threads since `before`, a reading of the same clock.
    pub(super) fn since(&self, before: &Reading) -> Nanos {
        let both = self.0.iter().zip(&before.0);
        let spent = both.map(|(now, before)| match (now, before) {
            (Some(now), Some(before)) => now.since(*before).0,
            _ => 0,
        });
        Nanos(spent.sum())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use super::*;

    /// The time of another, working thread is seen to a fraction of a millisecond.
    #[test]
    fn other_threads_are_seen() {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let _pass = crate::fork::gate::enter();
            let clock = GuestClock::new();
            assert!(clock.threads.len() >= 2 || clock.threads.is_empty());
            let (start, before) = (Instant::now(), clock.read());
            let mut spent = Nanos::ZERO;
            while spent < Nanos::from_ms(5) && start.elapsed() < Duration::from_secs(60) {
                std::thread::sleep(Duration::from_millis(1));
                spent = clock.read().since(&before);
            }
            over.store(true, Ordering::Relaxed);
            assert!(spent >= Nanos::from_ms(5));
        });
    }
}
