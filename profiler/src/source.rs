//! The trait that all sources of samples implement, and the values it takes and returns.

use crate::sample::{Kind, Sample};

/// The reason why a source is not available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The kernel refused to open an event.
    #[error("perf_event_open for thread {tid} on CPU {cpu}: {}", message(*.errno))]
    Open {
        /// The thread.
        tid: i32,
        /// The CPU, or -1 for any.
        cpu: i32,
        /// The error number.
        errno: i32,
    },
    /// The kernel refused to map or connect a ring.
    #[error("a sample ring of {bytes} bytes: {}", message(*.errno))]
    Ring {
        /// Bytes of the smallest ring that was tried.
        bytes: usize,
        /// The error number.
        errno: i32,
    },
    /// A filter of this process answers the system call with a signal.
    #[error("a seccomp filter kills on perf_event_open (wait status {status:#x})")]
    Filtered {
        /// Wait status of the process that tried the call.
        status: i32,
    },
    /// The source opened, and no sample came.
    #[error("{kind} opened, but {cpu_ns} ns of CPU time brought no sample")]
    Silent {
        /// The source.
        kind: Kind,
        /// CPU time spent waiting, nanoseconds.
        cpu_ns: u64,
    },
    /// One event for each thread and CPU would take too many file descriptors.
    #[error("{threads} threads on {cpus} CPUs need more than {limit} file descriptors")]
    Descriptors {
        /// Threads that exist.
        threads: usize,
        /// CPUs online.
        cpus: usize,
        /// Descriptors the source may use.
        limit: usize,
    },
    /// The kernel is too old for timers that never interrupt a system call.
    #[error("Linux {major}.{minor} may interrupt system calls for thread timers; 5.9 does not")]
    OldKernel {
        /// Major version.
        major: u32,
        /// Minor version.
        minor: u32,
    },
    /// No real-time signal without a handler is left.
    #[error("the program has handlers for all real-time signals")]
    NoSignal,
    /// The handler could not be installed, or the first timer not made.
    #[error("a timer for thread {tid} with signal {signal}: {}", message(*.errno))]
    Timer {
        /// The thread, 0 if it is about the handler.
        tid: i32,
        /// The signal.
        signal: i32,
        /// The error number.
        errno: i32,
    },
    /// Timers are process-wide, and some exist already.
    #[error("another source of this process uses thread timers")]
    Busy,
}

fn message(number: i32) -> std::io::Error {
    std::io::Error::from_raw_os_error(number)
}

/// Rates of a source, in samples per second of a thread's CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    /// The rate at the start.
    pub burst_hz: u32,
    /// The highest rate afterwards.
    pub steady_hz: u32,
}

/// Limits of a source's buffers, descriptors and timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Data bytes of the perf ring of each CPU, a power of two of pages. Less is
    /// taken if the kernel's budget of locked memory says so. A sample takes 40 bytes.
    pub ring_bytes: usize,
    /// Samples in the queue of the timers; 40 bytes each.
    pub queue_samples: usize,
    /// Most file descriptors perf events may take; half of the process's limit is
    /// never exceeded.
    pub descriptors: usize,
    /// Most threads that get a timer.
    pub timers: usize,
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes {
            ring_bytes: 32 << 10,
            queue_samples: 4096,
            descriptors: 1024,
            timers: 8192,
        }
    }
}

/// Numbers of one drain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Samples given to the sink.
    pub samples: u64,
    /// Samples of excluded threads.
    pub excluded: u64,
    /// Samples that the ring had no place for.
    pub lost: u64,
}

impl Drained {
    pub(crate) fn add(&mut self, other: Drained) {
        self.samples += other.samples;
        self.excluded += other.excluded;
        self.lost += other.lost;
    }
}

/// Threads that a source samples, and resources it uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Threads with events or timers of their own. Threads that inherit events are
    /// not counted.
    pub threads: usize,
    /// Threads that are not sampled though they should be: limits, blocked signals.
    pub uncovered: usize,
    /// File descriptors in use.
    pub descriptors: usize,
    /// Bytes of all rings or queues.
    pub ring_bytes: usize,
}

/// A source of samples of this process's threads.
///
/// One thread at a time uses a source, for instance behind a lock. A thread that forks holds that
/// lock during the fork and calls [`Source::after_fork_child`] in the child. Dropping a source
/// stops it.
pub trait Source: Send {
    /// The mechanism that makes the samples.
    fn kind(&self) -> Kind;

    /// CPU time one sample takes from the interrupted thread, nanoseconds, as measured
    /// when the source was opened.
    fn cost_ns(&self) -> u64;

    /// Samples the threads that exist, unless excluded, and the threads they will make, at the
    /// burst rate. Does nothing if already started.
    ///
    /// # Errors
    /// No thread could be sampled. If only some could not, [`Source::coverage`] shows it.
    fn start(&mut self, rates: Rates) -> Result<(), SourceError>;

    /// Ends sampling; samples not drained are gone.
    fn stop(&mut self);

    /// Changes the rate (0: pause) and returns the rate set. A source may round it down, and once
    /// below the burst rate need not return to it. Samples not drained before may get the weights
    /// of the new rate.
    fn set_rate(&mut self, hz: u32) -> u32;

    /// Takes no samples until [`Source::resume`]; samples taken before can still be drained. The
    /// rest of the interval to the next sample is kept. So pauses do not change how often threads
    /// are sampled between them. A source that is not started will start paused. The rate may be
    /// changed during a pause. In the child of a fork, before [`Source::after_fork_child`], it only
    /// sets how the source starts.
    fn pause(&mut self);

    /// Ends [`Source::pause`]. Threads that began meanwhile are sampled from the next
    /// [`Source::refresh`] on, at the latest.
    fn resume(&mut self);

    /// Passes the samples since the last drain to `sink`. A thread's samples are in order of time
    /// while it stays on one processor, else in no order.
    fn drain(&mut self, sink: &mut dyn FnMut(Sample)) -> Drained;

    /// Starts sampling threads that the source does not cover yet. Call it now and then; it is
    /// cheap when nothing changed.
    fn refresh(&mut self);

    /// Threads that are sampled, and resources in use.
    fn coverage(&self) -> Coverage;

    /// Forgets the parent's state, in the child of a fork. The source is then stopped and may be
    /// started; if it was paused it starts paused.
    fn after_fork_child(&mut self);
}
