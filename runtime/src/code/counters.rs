//! Counters that the threads of a session add to.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use uruk_base::parts::Parts;

use crate::host::clock::nanos;
use crate::host::clock::thread_time;

/// Counters that workers add to. Statistics only: every access is relaxed.
#[derive(Debug)]
pub(crate) struct Counters {
    pub(crate) started: Instant,
    pub(crate) functions: AtomicU64,
    pub(crate) compiled: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) cancelled: AtomicU64,
    pub(crate) emit_ns: AtomicU64,
    pub(crate) link_ns: AtomicU64,
    pub(crate) load_ns: AtomicU64,
    pub(crate) data_ns: AtomicU64,
    pub(crate) code_bytes: AtomicU64,
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

    /// Adds the time since `start` to `counter`.
    pub(crate) fn add_time(counter: &AtomicU64, start: Instant) {
        counter.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }

    /// Counts a version of so many bytes of code that was compiled and linked in these times;
    /// `first` if its function had none.
    pub(crate) fn add_compile(
        &self,
        first: bool,
        compiling: Duration,
        linking: Duration,
        bytes: u64,
    ) {
        let add = |counter: &AtomicU64, amount: u64| {
            counter.fetch_add(amount, Ordering::Relaxed);
        };
        if first {
            add(&self.compiled, 1);
        }
        add(&self.emit_ns, compiling.as_nanos() as u64);
        add(&self.link_ns, linking.as_nanos() as u64);
        add(&self.code_bytes, bytes);
    }
}
