//! The environment of the engine: copies, stores, scans and frees, implemented by the owner of the
//! memory.
//!
//! Invariants the implementor keeps; the engine's proof depends on them:
//! 1. [`Environment::swing`] stores under the lock that every publication of the function takes,
//!    and only if the slot (or the record of a fallback version) still holds exactly this version
//!    in exactly this block.
//! 2. [`Environment::fence`]: every earlier store that made a block unreachable is visible to every
//!    thread before it returns (`membarrier` PRIVATE_EXPEDITED).
//! 3. [`Environment::scan`] lists the threads after it was called, and examines each, or reports
//!    those that it could not examine.
//! 4. [`Environment::free`] makes memory reusable only after every core was serialised.
//! 5. The process forks between steps of the engine, or while `scan` waits for threads; the
//!    generation changes before the fork's parent or child steps again.

use thiserror::Error;

use crate::block::{Block, Dead, Fixed};
use crate::ids::{BlockId, FunctionId, Nanos, Space, Span, ThreadId, VersionId};
use crate::order::Edge;

/// The copy of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Its new number.
    pub id: BlockId,
    /// Its address range.
    pub span: Span,
    /// The space that holds it.
    pub space: Space,
}

/// Reason for which a block was not copied. The block stays as it is.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CopyError {
    /// No memory; the engine copies no more in this cycle.
    #[error("no memory for a copy of {asked} bytes; {held} bytes are held")]
    OutOfSpace {
        /// Bytes of the copy.
        asked: u64,
        /// Code memory that is held.
        held: u64,
    },
    /// It can never be moved; the engine does not try again.
    #[error("cannot be moved: {0}")]
    Fixed(Fixed),
    /// It was retired meanwhile.
    #[error("is no longer wanted")]
    Superseded,
}

/// The result of a swing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swing {
    /// All references that could start the old block start the new one.
    Done,
    /// The version is neither in the slot nor the function's fallback. Nothing was stored; no
    /// thread knows the copy.
    Superseded,
}

/// The other space could not be opened, or threads could not be examined.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EnvironmentError {
    /// No other space exists to copy into.
    #[error("the other code space is not usable: {0}")]
    NoSpace(String),
    /// No thread can be examined.
    #[error("threads cannot be scanned: {0}")]
    NoScan(String),
    /// Stores cannot be made visible to other threads.
    #[error("no barrier for other threads: {0}")]
    NoFence(String),
}

/// Reason for which a thread gave no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Silence {
    /// It has the signal blocked.
    SignalBlocked,
    /// It did not answer before the deadline.
    TimedOut,
    /// Its stack could not be read.
    Unreadable,
    /// The program replaced the signal's handler.
    HandlerReplaced,
    /// Its alternate stack has no room for a signal.
    SmallStack,
    /// It kept changing while it was read.
    Unsteady,
}

impl std::fmt::Display for Silence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Silence::SignalBlocked => "has the signal blocked",
            Silence::TimedOut => "did not answer in time",
            Silence::Unreadable => "has a stack that cannot be read",
            Silence::HandlerReplaced => "never got the signal: its handler was replaced",
            Silence::SmallStack => "has an alternate stack without room for a signal",
            Silence::Unsteady => "kept changing while it was read",
        })
    }
}

/// The ranges that a thread without an answer could be in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MayHold {
    /// Any of them.
    All,
    /// Those with these indexes; known, for example, by an epoch the thread published.
    Ranges(Vec<usize>),
}

/// A thread that gave no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The thread.
    pub thread: ThreadId,
    /// The reason.
    pub why: Silence,
    /// The ranges it could be in.
    pub may_hold: MayHold,
}

/// One thread found in one range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pin {
    /// Index of the queried range.
    pub range: usize,
    /// The thread that could return into it.
    pub thread: ThreadId,
}

/// The result of a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanAnswer {
    /// Threads by range; a word `w` pins a span by [`Span::is_pinned_by`].
    pub pins: Vec<Pin>,
    /// Threads that did not answer. If empty, the scan is complete.
    pub missing: Vec<Missing>,
    /// Whether `pins` was truncated: then everything counts as pinned.
    pub overflow: bool,
    /// Threads that answered.
    pub threads: u64,
    /// The longest interruption of one of them.
    pub longest_handshake: Nanos,
}

/// Amounts of memory that only the environment knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Unused bytes in partly used pages, which cannot be allocated as pages.
    pub fragmented: u64,
    /// Bytes of code memory that are held, as the kernel counts them.
    pub held: u64,
}

/// Execution counts of versions, and the call graph.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Affinity {
    /// Samples by version; versions that are missing are cold.
    pub heat: Vec<(VersionId, u64)>,
    /// Calls by caller and callee.
    pub calls: Vec<Edge<FunctionId>>,
}

/// Memory, slots, threads and tables, as the engine uses them; see the module's invariants.
/// All calls come from the thread that steps the engine, in the order of [`crate::Engine`].
pub trait Environment {
    /// Number of forks of this process, and of its ancestors since their start. Read before and
    /// after each step that a fork would invalidate.
    fn fork_generation(&self) -> u64;

    /// The current fragmentation. Called in every step without a cycle: it should cost nothing.
    fn memory(&self) -> Memory;

    /// Heat and calls; called once at the start of an evacuation.
    fn affinity(&mut self) -> Affinity {
        Affinity::default()
    }

    /// Makes the other space the target of allocations; returns that space.
    ///
    /// # Errors
    /// The other space is not usable. Nothing changed.
    fn flip(&mut self) -> Result<Space, EnvironmentError>;

    /// Copies a live block into the current space, relocated, with unwind rows and a birth in the
    /// address map, ready to run.
    ///
    /// # Errors
    /// Nothing changed; see [`CopyError`].
    fn copy(&mut self, block: &Block) -> Result<Copied, CopyError>;

    /// Copies several blocks, in this order: the results of [`Environment::copy`], up to the first
    /// [`CopyError::OutOfSpace`].
    fn copy_all(&mut self, blocks: &[Block]) -> Vec<Result<Copied, CopyError>> {
        let mut answers = Vec::with_capacity(blocks.len());
        for block in blocks {
            let answer = self.copy(block);
            let full = matches!(answer, Err(CopyError::OutOfSpace { .. }));
            answers.push(answer);
            if full {
                break;
            }
        }
        answers
    }

    /// Stores the copy's entry in place of `old` wherever that can be started, if it still can be.
    fn swing(&mut self, old: &Block, new: &Block) -> Swing;

    /// Swings several pairs of an old block and its copy independently: the result of
    /// [`Environment::swing`] for each.
    fn swing_all(&mut self, copies: &[(Block, Block)]) -> Vec<Swing> {
        let swing = |(old, new): &(Block, Block)| self.swing(old, new);
        copies.iter().map(swing).collect()
    }

    /// Makes all earlier stores into slots visible to all threads.
    ///
    /// # Errors
    /// The barrier is not available; nothing can be proved.
    fn fence(&mut self) -> Result<(), EnvironmentError>;

    /// Finds for all threads, one at a time, the ranges they may return into. The ranges are sorted
    /// by address.
    ///
    /// # Errors
    /// No thread could be examined.
    fn scan(&mut self, ranges: &[Span]) -> Result<ScanAnswer, EnvironmentError>;

    /// Attributes all samples taken so far; otherwise those in dead blocks are lost, or counted for
    /// the next code at that address.
    fn drain_samples(&mut self);

    /// Removes a dead block from unwind rows, address map and tools.
    fn unregister(&mut self, block: &Block);

    /// Removes several dead blocks, as [`Environment::unregister`] does.
    fn unregister_all(&mut self, blocks: &[Block]) {
        blocks.iter().for_each(|block| self.unregister(block));
    }

    /// Gives dead blocks to the heap: poison, return pages, serialise, reuse.
    fn free(&mut self, batch: Vec<Dead>);
}
