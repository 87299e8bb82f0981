//! Clocks. On a busy machine wall-clock time says little, so most measurements
//! take processor time, of the thread or of all threads of the process.

use std::time::{Duration, Instant};

/// Nanoseconds the calling thread has run.
pub fn thread_ns() -> f64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Nanoseconds all threads of the process have run.
pub fn process_ns() -> f64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Nanoseconds of the monotonic clock.
pub fn wall_ns() -> f64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// A moment of the calling thread.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    wall_ns: f64,
    delay_ns: f64,
}

impl Moment {
    /// This moment.
    pub fn now() -> Moment {
        let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let delay = schedstat
            .split(' ')
            .nth(1)
            .and_then(|word| word.parse().ok());
        Moment {
            wall_ns: wall_ns(),
            delay_ns: delay.unwrap_or(0.0),
        }
    }

    /// On the monotonic clock.
    pub fn wall_ns(self) -> f64 {
        self.wall_ns
    }

    /// Nanoseconds since `earlier` in which the thread was ready to run and others
    /// had its processor.
    pub fn delay_since(self, earlier: Moment) -> f64 {
        self.delay_ns - earlier.delay_ns
    }
}

/// Keeps the calling thread on one of the processors it may use, of which `index`
/// counts round; undone when dropped. Left to itself, the scheduler keeps short-lived
/// threads on one processor, one after the other.
pub fn pin(index: usize) -> Pinned {
    // SAFETY: plain calls with live sets; all bytes zero is the empty set, and
    // numbers are below the size of a set.
    unsafe {
        let mut before: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut before);
        let all = 0..libc::CPU_SETSIZE as usize;
        let allowed: Vec<usize> = all.filter(|cpu| libc::CPU_ISSET(*cpu, &before)).collect();
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        if let Some(cpu) = allowed.get(index % allowed.len().max(1)) {
            libc::CPU_SET(*cpu, &mut one);
        }
        // Where that is refused, the figures are noisier and nothing else.
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &one);
        Pinned { before }
    }
}

/// The thread stays where it is until this is dropped.
pub struct Pinned {
    before: libc::cpu_set_t,
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: the set this thread had.
        unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &self.before) };
    }
}

/// Waits until this is the process's only thread: those of a session that was
/// dropped still take its modules apart, and that time is not the next one's.
pub fn until_one_thread() {
    const LONGEST: Duration = Duration::from_secs(10);
    let start = Instant::now();
    let threads = || std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    while threads() > 1 && start.elapsed() < LONGEST {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Bytes of memory of this process that are resident.
pub fn resident_bytes() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm
        .split(' ')
        .nth(1)
        .and_then(|word| word.parse::<f64>().ok());
    pages.unwrap_or(f64::NAN) * 4096.0
}

fn clock_ns(clock: libc::clockid_t) -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a live place for the result; clocks every Linux has.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}
