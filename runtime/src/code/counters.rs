//! Counters that the threads of a session add to.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use uruk_base::Mode;
use uruk_base::parts::Parts;

use crate::host::clock::nanos;
use crate::host::clock::thread_time;

/// Counters that workers add to. Statistics only: every access is relaxed.
#[derive(Debug)]
pub(crate) struct Counters {
    pub(crate) started: Instant,
    functions: AtomicU64,
    compiled: AtomicU64,
    failed: AtomicU64,
    cancelled: AtomicU64,
    emit_ns: AtomicU64,
    link_ns: AtomicU64,
    load_ns: AtomicU64,
    data_ns: AtomicU64,
    code_bytes: AtomicU64,
    /// Processor time, in ns, of threads that compile ahead of requests: they give way, and are no
    /// load. Each adds its time at the end of a compile.
    aside: AtomicU64,
    pub(crate) parts: Arc<Parts>,
    /// Processor time of the process when the session was made.
    pub(crate) before: OnceLock<Duration>,
}

impl Default for Counters {
    fn default() -> Counters {
        let zero = || AtomicU64::new(0);
        Counters {
            started: Instant::now(),
            functions: zero(),
            compiled: zero(),
            failed: zero(),
            cancelled: zero(),
            emit_ns: zero(),
            link_ns: zero(),
            load_ns: zero(),
            data_ns: zero(),
            code_bytes: zero(),
            aside: zero(),
            parts: Parts::new(thread_time),
            before: OnceLock::new(),
        }
    }
}

impl Counters {
    /// Adds processor time that a thread spent on compiles that no caller requested.
    pub(crate) fn spent_aside(&self, time: Duration) {
        self.aside.fetch_add(nanos(time).0, Ordering::Relaxed);
    }

    /// Processor time spent on compiles that no caller requested.
    pub(crate) fn aside(&self) -> Duration {
        Duration::from_nanos(self.aside.load(Ordering::Relaxed))
    }

    /// SessionCounts functions that were defined; in `mode`, whether they have code already.
    pub(crate) fn defined(&self, functions: u64, mode: Mode) {
        add(&self.functions, functions);
        if mode == Mode::Eager {
            add(&self.compiled, functions);
        }
    }

    /// Functions that were defined.
    pub(crate) fn functions(&self) -> u64 {
        self.functions.load(Ordering::Relaxed)
    }

    /// SessionCounts a compile that failed.
    pub(crate) fn failed(&self) {
        add(&self.failed, 1);
    }

    /// SessionCounts a compile that was cancelled.
    pub(crate) fn cancelled(&self) {
        add(&self.cancelled, 1);
    }

    /// Adds the time since `start` to that of reading and binding files.
    pub(crate) fn loaded(&self, start: Instant) {
        add(&self.load_ns, start.elapsed().as_nanos() as u64);
    }

    /// Adds the time since `start` to that of linking data.
    pub(crate) fn linked_data(&self, start: Instant) {
        add(&self.data_ns, start.elapsed().as_nanos() as u64);
    }

    /// The counts so far.
    pub(crate) fn counts(&self) -> SessionCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let time = |counter: &AtomicU64| Duration::from_nanos(get(counter));
        SessionCounts {
            functions: get(&self.functions),
            compiled: get(&self.compiled),
            failed: get(&self.failed),
            cancelled: get(&self.cancelled),
            load_time: time(&self.load_ns),
            data_time: time(&self.data_ns),
            emit_time: time(&self.emit_ns),
            link_time: time(&self.link_ns),
            code_bytes: get(&self.code_bytes),
        }
    }

    /// SessionCounts a version of so many bytes of code that was compiled and linked in these times;
    /// `first` if its function had none.
    pub(crate) fn add_compile(
        &self,
        first: bool,
        compiling: Duration,
        linking: Duration,
        bytes: u64,
    ) {
        if first {
            add(&self.compiled, 1);
        }
        add(&self.emit_ns, compiling.as_nanos() as u64);
        add(&self.link_ns, linking.as_nanos() as u64);
        add(&self.code_bytes, bytes);
    }
}

fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

/// The counts of a session at one time.
pub(crate) struct SessionCounts {
    pub(crate) functions: u64,
    pub(crate) compiled: u64,
    pub(crate) failed: u64,
    pub(crate) cancelled: u64,
    pub(crate) load_time: Duration,
    pub(crate) data_time: Duration,
    pub(crate) emit_time: Duration,
    pub(crate) link_time: Duration,
    pub(crate) code_bytes: u64,
}
