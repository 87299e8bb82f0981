//! Request and result of a scan.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use crate::error::RootsError;
use crate::memory::MemoryReport;
use crate::tables::RowsOf;

/// The ranges of a request: sorted, not empty, not overlapping.
#[derive(Clone, Debug)]
pub struct Wanted {
    ranges: Vec<Range<u64>>,
    rows: Option<RowsOf>,
}

impl Wanted {
    /// Checks the ranges. Indices in reports refer to them.
    ///
    /// # Errors
    /// A range is empty, or begins before the end of the one before.
    pub fn new(ranges: Vec<Range<u64>>) -> Result<Self, RootsError> {
        let mut last = 0;
        for (index, range) in ranges.iter().enumerate() {
            if range.start < last || range.end <= range.start {
                return Err(RootsError::BadRange {
                    index,
                    start: range.start,
                    end: range.end,
                });
            }
            last = range.end;
        }
        Ok(Self { ranges, rows: None })
    }

    /// Counts only return addresses of threads that sleep on their own stacks, where unwind tables
    /// identify them. Words that ended calls left in the holes of frames do not keep ranges then. `rows`
    /// gives the entry of code that is in no file. It may be called on any thread.
    ///
    /// Only for requests about calls in progress. Requests before code is freed or moved must not use
    /// it: an address in a register or variable, through which code may be read, does not count with it.
    /// Programs that switch stacks themselves are scanned as without it.
    #[must_use]
    pub fn by_frames(mut self, rows: RowsOf) -> Self {
        self.rows = Some(rows);
        self
    }

    /// See [`Wanted::by_frames`].
    pub(crate) fn rows(&self) -> Option<RowsOf> {
        self.rows
    }

    /// The ranges.
    pub fn ranges(&self) -> &[Range<u64>] {
        &self.ranges
    }

    /// Indices of the ranges that `address` keeps: those with
    /// `start <= address <= end`. A return address may be the end of its range, when
    /// the last instruction is a call; it may then be the start of the next one too.
    pub fn kept_by(&self, address: u64) -> Range<usize> {
        let first = self.ranges.partition_point(|range| range.end < address);
        let after = self.ranges.partition_point(|range| range.start <= address);
        first..after
    }

    /// The range that covers all addresses that keep any range.
    pub(crate) fn hull(&self) -> Range<u64> {
        let start = self.ranges.first().map_or(0, |range| range.start);
        let end = self
            .ranges
            .last()
            .map_or(0, |range| range.end.saturating_add(1));
        start..end
    }
}

/// The result of a scan.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// All examined threads.
    pub threads: Vec<ThreadReport>,
    /// Every registered stack that keeps something.
    pub stacks: Vec<StackReport>,
    /// By index of the wanted range: whether a thread may still return into it. All true if `complete`
    /// is false.
    pub kept: Vec<bool>,
    /// Whether every thread and stack was scanned: only then ranges that are not kept are dead.
    pub complete: bool,
    /// The reason if the whole scan has no answer.
    pub trouble: Option<ScanTrouble>,
    /// The longest time a thread spent in the handler.
    pub longest_handshake: Duration,
    /// Longest time from the request to the handler's start: the kernel's part.
    pub longest_delivery: Duration,
    /// System calls that a signal of ours ended and that were restarted.
    pub repeated_calls: u64,
    /// System calls that ended with `EINTR` at a signal of ours.
    pub interrupted_calls: u64,
    /// A stack pointer on a stack that is no thread's own, was not registered and not made by
    /// `makecontext`. The program then switches stacks itself, and those on which no thread runs now are
    /// not scanned.
    pub unknown_stack: Option<u64>,
    /// Result of the search of all memory, if there was one
    /// ([`Roots::search_memory`](crate::Roots::search_memory)).
    pub memory: Option<MemoryReport>,
    /// Number of listings of the threads.
    pub listings: u32,
    /// Duration of the whole scan.
    pub took: Duration,
}

/// Reasons why a whole scan has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScanTrouble {
    /// Threads appear faster than they can be listed, or one was found on a stack that may have been
    /// unregistered meanwhile.
    Unsettled,
    /// `/proc/self/task` or `/proc/self/maps` cannot be read; the error's number.
    NoProc(i32),
    /// A registered stack cannot be read.
    UnreadableStack {
        /// First byte.
        start: u64,
        /// End.
        end: u64,
    },
    /// Registered stacks hold more distinct addresses than the largest table.
    ManyHits,
    /// The program made more contexts than the table holds.
    ManyContexts,
    /// Memory is to be searched, and exceeds the limit.
    LargeMemory {
        /// Bytes found until then.
        bytes: u64,
    },
    /// A process that is no thread of this one runs on its memory, or may do so.
    SharedMemory {
        /// Its id; 0 if it is unknown.
        pid: i32,
    },
}

/// The result of one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThreadReport {
    /// Its id.
    pub tid: i32,
    /// Its name, if it keeps a range or did not answer; else empty.
    pub name: String,
    /// How it was scanned.
    pub how: How,
    /// Indices of the wanted ranges it keeps, sorted.
    pub keeps: Vec<usize>,
}

/// A registered stack that keeps a range.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StackReport {
    /// The stack.
    pub range: Range<u64>,
    /// Indices of the wanted ranges it keeps, sorted.
    pub keeps: Vec<usize>,
}

/// How a thread was scanned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum How {
    /// By its own handler.
    Running {
        /// From the request to the handler's start.
        delivered_in: Duration,
        /// In the handler.
        answered_in: Duration,
        /// Processor time of the scan, if [`Config::time_work`](crate::Config::time_work)
        /// is set: the rest of the time other threads had the processor.
        worked_for: Option<Duration>,
        /// Bytes of stack.
        scanned: u64,
    },
    /// From outside, while it slept in a system call.
    Blocked {
        /// Number of looks.
        tries: u32,
        /// Bytes of stack.
        scanned: u64,
    },
    /// The calling thread.
    Caller {
        /// Bytes of stack.
        scanned: u64,
    },
    /// Exempt by [`Roots::exempt_current_thread`](crate::Roots::exempt_current_thread).
    Exempt,
    /// It enters by counted calls only, and was in none ([`CountedThread`](crate::CountedThread)).
    Outside,
    /// It ended meanwhile.
    Gone,
    /// It was not scanned: its stacks may hold any address.
    Unanswered {
        /// The reason.
        why: Why,
    },
}

/// Reasons why a thread was not scanned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// It ran with the handshake signal blocked.
    SignalBlocked,
    /// It had not answered at the deadline.
    NoAnswer,
    /// Its handler was still scanning at the deadline.
    StillScanning,
    /// The program handles every candidate signal, or a library between it and the kernel
    /// (ThreadSanitizer) calls handlers later than signals come.
    HandlerReplaced,
    /// It ran with an alternate stack that is too small for a signal.
    SmallStack,
    /// It waits for a child of `vfork`, which runs on this memory and is no thread.
    VforkChild,
    /// Its state cannot be read (`/proc` hidden or filtered); the error's number.
    Hidden(i32),
    /// Its stack is not in any mapping that was found, or changes all the time.
    UnknownStack(u64),
    /// Its stacks are longer than the limit.
    LargeStack(u64),
    /// It has more than 16 connected stacks.
    ManyStacks,
    /// It holds more distinct addresses than the largest table.
    ManyHits,
    /// The scan had no time left for it.
    NoTime,
}

impl Why {
    /// Whether a later scan fails in the same way, for as long as the process has its rights.
    pub fn is_lasting(self) -> bool {
        matches!(self, Self::Hidden(libc::EACCES | libc::EPERM))
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SignalBlocked => f.write_str("its signals are blocked"),
            Self::NoAnswer | Self::NoTime => f.write_str("in the time that there was"),
            Self::StillScanning => f.write_str("its stack takes longer than there is time"),
            Self::HandlerReplaced => f.write_str("the program handles every signal that may ask"),
            Self::SmallStack => f.write_str("its alternate stack is too small for a signal"),
            Self::VforkChild => f.write_str("it waits for a child of vfork"),
            Self::Hidden(libc::EACCES | libc::EPERM) => {
                f.write_str("/proc hides it, as it does once a process gave up rights")
            }
            Self::Hidden(errno) => write!(f, "/proc hides it, error {errno}"),
            Self::UnknownStack(at) => write!(f, "no mapping has its stack at {at:#x}"),
            Self::LargeStack(bytes) => write!(f, "its stacks have {bytes} bytes"),
            Self::ManyStacks => f.write_str("it has more than 16 stacks"),
            Self::ManyHits => f.write_str("it holds too many addresses"),
        }
    }
}

impl How {
    /// Whether the thread was scanned, or need not be.
    pub fn answered(&self) -> bool {
        !matches!(self, Self::Unanswered { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::Wanted;

    #[test]
    #[expect(clippy::single_range_in_vec_init, reason = "a list of one range")]
    fn ends_count_and_bad_lists_are_errors() {
        let wanted = Wanted::new(vec![0x10..0x20, 0x20..0x30, 0x40..0x50]).expect("sorted");
        assert_eq!(wanted.kept_by(0xf), 0..0);
        assert_eq!(wanted.kept_by(0x10), 0..1);
        assert_eq!(wanted.kept_by(0x20), 0..2);
        assert_eq!(wanted.kept_by(0x30), 1..2);
        assert!(wanted.kept_by(0x38).is_empty());
        assert_eq!(wanted.kept_by(0x50), 2..3);
        assert!(wanted.kept_by(0x51).is_empty());
        assert_eq!(wanted.hull(), 0x10..0x51);
        for bad in [vec![5..5], vec![5..9, 8..12], vec![8..9, 1..2]] {
            assert!(Wanted::new(bad).is_err());
        }
    }
}
