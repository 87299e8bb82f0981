//! One sample, and the kinds of source it may come from.

use std::fmt;

/// The position of a thread at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Address of the interrupted user instruction.
    pub pc: u64,
    /// Kernel id of the thread.
    pub tid: i32,
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub time: u64,
    /// CPU time that this sample stands for, nanoseconds. Compare sums of weights between threads
    /// and rates, not counts of samples.
    pub weight: u64,
}

/// The mechanism that makes samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// perf events on the CPU's cycle counter.
    Cycles,
    /// perf events on the kernel's software clock of each CPU.
    CpuClock,
    /// POSIX timers on each thread's CPU clock.
    Timers,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Cycles => "perf cycles",
            Kind::CpuClock => "perf cpu-clock",
            Kind::Timers => "thread timers",
        })
    }
}
