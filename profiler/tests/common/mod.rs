//! Shared parts of the tests of sources: work to be sampled, and a lock for one source at a time.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use uruk_profiler::{Choice, Excluded, Sample, Sizes, Source, current_tid, open};

pub const BOTH: [Choice; 2] = [Choice::CpuClock, Choice::Timers];

/// One test at a time: sources cover all threads of the process, and thread timers
/// exist once.
pub fn alone() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The source; `None`, and a printed reason, if the kernel does not have it.
pub fn source(choice: Choice, sizes: Sizes, excluded: &Arc<Excluded>) -> Option<Box<dyn Source>> {
    let opened = open(choice, sizes, excluded);
    for (kind, error) in &opened.rejected {
        eprintln!("no {kind}: {error}");
    }
    opened.source
}

pub fn plain(choice: Choice) -> Option<Box<dyn Source>> {
    source(choice, Sizes::default(), &Arc::new(Excluded::new()))
}

pub fn thread_cpu_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a valid out pointer.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// User code that takes about `ms` of the calling thread's CPU time. Returns the CPU time that it
/// took, nanoseconds.
#[inline(never)]
pub fn burn(ms: u64) -> u64 {
    let begin = thread_cpu_ns();
    let mut x = begin | 1;
    while thread_cpu_ns() - begin < ms * 1_000_000 {
        for _ in 0..20_000 {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
        }
        std::hint::black_box(x);
    }
    thread_cpu_ns() - begin
}

/// Burns `ms` again and again until there are `count` samples of the calling thread. Returns them
/// and the CPU time. (Thread timers expire at ticks of the kernel, and on a busy machine few ticks
/// come while the thread is on a processor.)
pub fn burn_until(source: &mut dyn Source, ms: u64, count: usize) -> (Vec<Sample>, u64) {
    let (mut mine, mut cpu_ns) = (Vec::new(), 0);
    until("samples of this thread", || {
        cpu_ns += burn(ms);
        mine.extend(of(&drain(source), current_tid()));
        mine.len() >= count
    });
    (mine, cpu_ns)
}

/// Drains everything.
pub fn drain(source: &mut dyn Source) -> Vec<Sample> {
    let mut samples = Vec::new();
    source.drain(&mut |sample| samples.push(sample));
    samples
}

pub fn of(samples: &[Sample], tid: i32) -> Vec<Sample> {
    let mine = samples.iter().filter(|sample| sample.tid == tid);
    mine.copied().collect()
}

pub fn sleep(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

/// Waits for an event of other threads. The limit is for a fault, not for a busy machine.
pub fn until(what: &str, mut is: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < Duration::from_secs(120), "never: {what}");
        std::thread::yield_now();
    }
}

/// Number of refreshes since the test began.
#[derive(Default)]
pub struct Refreshes(AtomicU64);

impl Refreshes {
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }

    /// Waits until a refresh began after this call and is over: the one in progress may have missed
    /// the calling thread.
    pub fn wait(&self) {
        let begin = self.0.load(Ordering::Acquire);
        until("two refreshes", || {
            sleep(1);
            self.0.load(Ordering::Acquire) > begin + 1
        });
    }
}

/// Whether a thread of this process exists, for the kernel. (A join may return before its end.)
pub fn exists(tid: i32) -> bool {
    // SAFETY: signal 0 only queries.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, 0) == 0 }
}

/// Runs `run` on one processor, the thread's present one.
pub fn on_one_processor<R>(run: impl FnOnce() -> R) -> R {
    let size = size_of::<libc::cpu_set_t>();
    // SAFETY: sets of the size that is given, of the calling thread.
    unsafe {
        let mut before: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size, &mut before), 0);
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu() as usize, &mut one);
        assert_eq!(libc::sched_setaffinity(0, size, &one), 0);
        let result = run();
        assert_eq!(libc::sched_setaffinity(0, size, &before), 0);
        result
    }
}

/// Runs `body` in the child of a fork and returns the wait status.
pub fn in_child(body: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child ends without running anything of the test harness.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        // SAFETY: as above.
        unsafe { libc::_exit(i32::from(!matches!(result, Ok(true)))) };
    }
    let mut status = 0;
    // SAFETY: a valid out pointer; retried if a signal of a test comes.
    while unsafe { libc::waitpid(child, &mut status, 0) } < 0 {}
    status
}
