//! Threads that hold made-up return addresses, and nothing else that looks like one.
//!
//! Addresses lie in a region where nothing is mapped. They are never written down: the
//! holder computes `address(i)` from a key, so only the place under test holds it.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use uruk_roots::{Config, How, Report, Roots, ThreadReport, Wanted, Why};

/// Requested ranges; range `i` is `[base + 4096 i, base + 4096 i + 256)`. No thread points into the
/// first and the last: the scanner itself computes with their ends, and leaves them on stacks that glibc
/// gives to later threads.
pub const RANGES: usize = 10;

/// How long to wait for what a fault alone keeps from happening: machines may be busy.
pub const LONG: Duration = Duration::from_secs(120);

const KEY: u64 = 0x5a5a_0000_a5a5_0000;

/// The start of range `i` plus 64, computed afresh: negated so that no constant of the
/// program is an address.
#[inline(always)]
pub fn address(i: usize) -> u64 {
    black_box(KEY) ^ (0x5a5a_0000_a5a5_0000 ^ (0x4a5b_c040 + 4096 * i as u64))
}

/// One scanner for the process.
pub static ROOTS: LazyLock<Roots> =
    LazyLock::new(|| Roots::new(0x4000_0000..0x6000_0000, Config::default()).expect("a scanner"));

static ALONE: Mutex<()> = Mutex::new(());

/// Tests of a file run one after the other: each looks at all threads of the process.
pub fn alone() -> MutexGuard<'static, ()> {
    ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

pub fn wanted() -> Wanted {
    let ranges = (0..RANGES).map(|i| {
        let start = !black_box(!(0x4a5b_c000 + 4096 * i as u64));
        start..start + 256
    });
    Wanted::new(ranges.collect()).expect("sorted ranges")
}

/// Scans on a fresh thread, so that what a test left on its own stack does not count.
pub fn scan() -> Report {
    scan_beside(0)
}

/// [`scan`] beside a thread that blocks the signal for the test.
pub fn scan_beside(blocker: i32) -> Report {
    settled(blocker, || scan_within(LONG))
}

/// Scans until no thread but `blocker` blocks the signal. The C library blocks all signals of a
/// thread that starts, that ends or that makes another, and such a thread may be without a
/// processor for longer than the scanner is patient: nothing is proved then, and the next
/// scan meets it elsewhere.
pub fn settled(blocker: i32, mut scan: impl FnMut() -> Report) -> Report {
    let why = Why::SignalBlocked;
    let began = Instant::now();
    loop {
        let report = scan();
        let blocks = |thread: &ThreadReport| thread.how == How::Unanswered { why };
        let mut others = report.threads.iter().filter(|thread| thread.tid != blocker);
        if !others.any(blocks) {
            return report;
        }
        assert!(began.elapsed() < LONG, "signals stay blocked: {report:#?}");
    }
}

/// Whether a test that repeats something goes on: until it did so `wanted` times or three
/// seconds are over, but not before it did so once, as on a busy machine it takes long.
pub fn goes_on(began: Instant, done: u64, wanted: u64) -> bool {
    let limit = match done {
        0 => LONG,
        _ => Duration::from_secs(3),
    };
    done < wanted && began.elapsed() < limit
}

pub fn scan_within(within: Duration) -> Report {
    let scan = move || ROOTS.scan(&wanted(), within);
    std::thread::Builder::new()
        .name("scanner".into())
        .spawn(scan)
        .expect("a thread")
        .join()
        .expect("a scan")
}

pub fn of(report: &Report, tid: i32) -> &ThreadReport {
    let found = report.threads.iter().find(|thread| thread.tid == tid);
    found.unwrap_or_else(|| panic!("thread {tid} is not in {report:#?}"))
}

/// A thread under test.
pub struct Holder {
    pub tid: i32,
    pub stop: Arc<Stop>,
    thread: JoinHandle<()>,
}

/// State shared by holder and test.
#[derive(Default)]
pub struct Stop {
    tid: AtomicI32,
    /// The holder's thread holds now what it should.
    pub ready: AtomicBool,
    pub stop: AtomicBool,
}

impl Stop {
    pub fn is_set(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub fn ready(&self) {
        self.ready.store(true, Ordering::Release);
    }
}

impl Holder {
    /// Runs `hold` on a thread of its own, and waits until it says it is ready.
    pub fn start(hold: impl FnOnce(&Stop) + Send + 'static) -> Self {
        Self::with_stack(2 << 20, hold)
    }

    pub fn with_stack(bytes: usize, hold: impl FnOnce(&Stop) + Send + 'static) -> Self {
        let holder = Self::start_unready(bytes, hold);
        holder.wait_ready();
        holder
    }

    pub fn start_unready(bytes: usize, hold: impl FnOnce(&Stop) + Send + 'static) -> Self {
        let stop = Arc::new(Stop::default());
        let its = stop.clone();
        let run = move || {
            // SAFETY: no arguments.
            let tid = unsafe { libc::gettid() };
            its.tid.store(tid, Ordering::Release);
            hold(&its);
        };
        let builder = std::thread::Builder::new().name("holder".into());
        let thread = builder.stack_size(bytes).spawn(run).expect("a thread");
        while stop.tid.load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
        let tid = stop.tid.load(Ordering::Acquire);
        Self { tid, stop, thread }
    }

    pub fn wait_ready(&self) {
        until("the holder is ready", || {
            self.stop.ready.load(Ordering::Acquire)
        });
    }

    /// Waits until the thread sleeps in a system call.
    pub fn wait_asleep(&self) {
        let path = format!("/proc/self/task/{}/syscall", self.tid);
        until("the holder sleeps", || {
            std::fs::read_to_string(&path).is_ok_and(|text| !text.starts_with("running"))
        });
    }

    pub fn stop(self) {
        self.stop.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the holder");
    }

    /// Ends the thread where it sleeps: it gets SIGUSR2, which only wakes.
    pub fn wake_and_stop(self) {
        wake_on_usr2();
        self.stop.stop.store(true, Ordering::Relaxed);
        while !self.thread.is_finished() {
            // SAFETY: a thread of ours that has not been joined.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), self.tid, libc::SIGUSR2) };
            std::thread::sleep(Duration::from_millis(1));
        }
        self.thread.join().expect("the holder");
    }
}

pub fn until(what: &str, mut is: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < LONG, "never: {what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

extern "C" fn nothing(_: libc::c_int) {}

fn wake_on_usr2() {
    handle(libc::SIGUSR2, nothing as *const () as usize, 0);
}

/// Installs a handler.
pub fn handle(signal: i32, handler: usize, flags: i32) {
    // SAFETY: an empty structure of integers.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    // SAFETY: a valid structure and handler.
    let result = unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) };
    assert_eq!(result, 0);
}

/// Checks that the holder was scanned and keeps range `i`. It may keep others: its stack
/// may be one that an earlier thread left its words on.
pub fn check_keeps(holder: &Holder, i: usize) -> Report {
    let report = scan();
    let thread = of(&report, holder.tid);
    assert!(thread.how.answered(), "{report:#?}");
    assert!(middle(&thread.keeps).contains(&i), "{report:#?}");
    assert_eq!(thread.name, "holder");
    assert!(report.complete && report.kept[i], "{report:#?}");
    report
}

/// Indices of ranges that tests use.
pub fn middle(keeps: &[usize]) -> Vec<usize> {
    let used = 1..RANGES - 1;
    keeps
        .iter()
        .copied()
        .filter(|index| used.contains(index))
        .collect()
}

/// Bytes of stack scanned.
pub fn scanned(how: How) -> u64 {
    match how {
        How::Running { scanned, .. } | How::Blocked { scanned, .. } | How::Caller { scanned } => {
            scanned
        }
        _ => 0,
    }
}
