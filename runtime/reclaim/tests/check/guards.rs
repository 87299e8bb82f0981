//! The conditions of the protocol, each with a switch.

use std::fmt;

/// A barrier or check that can be left out of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Guard {
    /// `fence` makes stores visible.
    Fence,
    /// A scan examines threads as they are now, not as an earlier one found them.
    ScanAfter,
    /// Threads are listed after the fence.
    ListAfterFence,
    /// Threads without an answer are reported.
    Completeness,
    /// A return address at a block's end counts.
    EndOfRange,
    /// Pins are reported.
    Pins,
    /// `swing` compares version and block with those in the slot.
    VersionCheck,
    /// A fallback version is not retired.
    FallbackIsLive,
    /// A block is retired after the store that makes it unreachable.
    NoteAfterStore,
    /// Samples are drained before memory is freed.
    DrainBeforeFree,
    /// Rows are removed before memory is freed.
    Unregister,
    /// A copy has rows before it runs.
    RegisterCopy,
    /// Cores are serialised before memory is reused.
    Serialise,
    /// The engine learns of forks.
    ForkGeneration,
    /// A forked block's memory is left alone.
    Frozen,
    /// Freed memory reaches the heap.
    Free,
}

impl Guard {
    /// All of them.
    pub const ALL: [Guard; 16] = [
        Guard::Fence,
        Guard::ScanAfter,
        Guard::ListAfterFence,
        Guard::Completeness,
        Guard::EndOfRange,
        Guard::Pins,
        Guard::VersionCheck,
        Guard::FallbackIsLive,
        Guard::NoteAfterStore,
        Guard::DrainBeforeFree,
        Guard::Unregister,
        Guard::RegisterCopy,
        Guard::Serialise,
        Guard::ForkGeneration,
        Guard::Frozen,
        Guard::Free,
    ];
}

impl fmt::Display for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Guard::Fence => "fence between swing and scan",
            Guard::ScanAfter => "scan begins after unreachable",
            Guard::ListAfterFence => "threads listed after the fence",
            Guard::Completeness => "every thread answered",
            Guard::EndOfRange => "return address at a block's end",
            Guard::Pins => "found blocks stay",
            Guard::VersionCheck => "version check in swing",
            Guard::FallbackIsLive => "fallback counts as live",
            Guard::NoteAfterStore => "retired after the store",
            Guard::DrainBeforeFree => "samples drained before free",
            Guard::Unregister => "rows removed before free",
            Guard::RegisterCopy => "rows before a copy runs",
            Guard::Serialise => "cores serialised before reuse",
            Guard::ForkGeneration => "fork generation is read",
            Guard::Frozen => "shared pages are not written",
            Guard::Free => "freed memory reaches the heap",
        })
    }
}
