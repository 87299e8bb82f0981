//! What the engine needs done: copies, stores, scans and frees, by whoever owns the memory.
//!
//! Invariants the implementor keeps; the engine's proof rests on them:
//! 1. [`Environment::swing`] stores under the lock that every publication of the function
//!    takes, and only if the slot (or the record of a version to go back to) still holds
//!    exactly this version in exactly this block.
//! 2. What [`Environment::fence`] separates: every store that made a block unreachable is
//!    visible to every thread before it returns (`membarrier` PRIVATE_EXPEDITED).
//! 3. [`Environment::scan`] lists the threads after it was called, and looks at each, or
//!    says which it could not look at.
//! 4. [`Environment::free`] makes memory reusable only after every core was serialised.
//! 5. The process forks between steps of the engine, or while `scan` waits for threads;
//!    the generation changes before the fork's parent or child steps again.

use thiserror::Error;

use crate::block::{Block, Dead, Fixed};
use crate::ids::{BlockId, FunctionId, Nanos, Space, Span, ThreadId, VersionId};
use crate::order::Edge;

/// The copy of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Its name, new.
    pub id: BlockId,
    /// Where it lies.
    pub span: Span,
    /// The space that holds it.
    pub space: Space,
}

/// Why a block was not copied. The block stays as it is.
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
    /// It cannot be moved, ever; the engine does not ask again.
    #[error("cannot be moved: {0}")]
    Fixed(Fixed),
    /// It was retired meanwhile.
    #[error("is no longer wanted")]
    Superseded,
}

/// What became of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swing {
    /// Whatever could start the old block starts the new one.
    Done,
    /// The version is not what the slot holds or the function goes back to. Nothing was
    /// stored; no thread knows the copy.
    Superseded,
}

/// The other space could not be opened, or threads could not be looked at.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EnvironmentError {
    /// There is no other space to copy into.
    #[error("the other code space is not usable: {0}")]
    NoSpace(String),
    /// No thread can be looked at.
    #[error("threads cannot be scanned: {0}")]
    NoScan(String),
    /// Stores cannot be made visible to other threads.
    #[error("no barrier for other threads: {0}")]
    NoFence(String),
}

/// Why a thread gave no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Silence {
    /// It has the signal blocked.
    SignalBlocked,
    /// It did not answer before the deadline.
    TimedOut,
    /// Its stack could not be read.
    Unreadable,
    /// The program took the signal away.
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

/// Which of the ranges a thread without an answer could be in.
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
    /// Why.
    pub why: Silence,
    /// What it could be in.
    pub may_hold: MayHold,
}

/// One thread found in one range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pin {
    /// Index of the range that was asked about.
    pub range: usize,
    /// Who could return into it.
    pub thread: ThreadId,
}

/// What a scan found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanAnswer {
    /// Who is where; a word `w` pins a span by [`Span::is_pinned_by`].
    pub pins: Vec<Pin>,
    /// Threads that did not answer. Empty means: the scan is complete.
    pub missing: Vec<Missing>,
    /// Whether `pins` had to be cut off: then everything counts as pinned.
    pub overflow: bool,
    /// Threads that answered.
    pub threads: u64,
    /// The longest that one of them was held up.
    pub longest_handshake: Nanos,
}

/// What the engine knows about memory only from outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Bytes in partly used pages that hold nothing and cannot be allocated as pages.
    pub fragmented: u64,
    /// Bytes of code memory that are held, from the kernel's view.
    pub held: u64,
}

/// How much a version was executed, and who calls whom.
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
    /// How often this process, or an ancestor since its start, forked. Read before and
    /// after whatever a fork would invalidate.
    fn fork_generation(&self) -> u64;

    /// Fragmentation, as it is now. Asked in every step without a cycle: it should cost
    /// nothing.
    fn memory(&self) -> Memory;

    /// Heat and calls, asked once at the start of an evacuation.
    fn affinity(&mut self) -> Affinity {
        Affinity::default()
    }

    /// Makes the other space the one that allocations go to; returns the new one.
    ///
    /// # Errors
    /// The other space is not usable. Nothing changed.
    fn flip(&mut self) -> Result<Space, EnvironmentError>;

    /// Copies a live block into the current space, relocated, with unwind rows and a birth
    /// in the address map, ready to be executed.
    ///
    /// # Errors
    /// Nothing changed; see [`CopyError`].
    fn copy(&mut self, block: &Block) -> Result<Copied, CopyError>;

    /// Copies several blocks, in this order: the answers of [`Environment::copy`], up to
    /// the first [`CopyError::OutOfSpace`].
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

    /// Stores the copy's entry wherever `old` can be started, if it still can be.
    fn swing(&mut self, old: &Block, new: &Block) -> Swing;

    /// Swings several, each by itself: the answers of [`Environment::swing`] to each pair
    /// of an old block and its copy.
    fn swing_all(&mut self, copies: &[(Block, Block)]) -> Vec<Swing> {
        let swing = |(old, new): &(Block, Block)| self.swing(old, new);
        copies.iter().map(swing).collect()
    }

    /// Makes all earlier stores into slots visible to all threads.
    ///
    /// # Errors
    /// There is no such barrier; nothing can be proved.
    fn fence(&mut self) -> Result<(), EnvironmentError>;

    /// Asks all threads, one at a time, which of the ranges they may return into. The
    /// ranges are sorted by address.
    ///
    /// # Errors
    /// No thread could be looked at.
    fn scan(&mut self, ranges: &[Span]) -> Result<ScanAnswer, EnvironmentError>;

    /// Attributes all samples taken so far; those in dead blocks are lost otherwise, or
    /// counted for whatever lies there next.
    fn drain_samples(&mut self);

    /// Removes a dead block from unwind rows, address map and tools.
    fn unregister(&mut self, block: &Block);

    /// Removes several dead blocks, as [`Environment::unregister`] does.
    fn unregister_all(&mut self, blocks: &[Block]) {
        blocks.iter().for_each(|block| self.unregister(block));
    }

    /// Gives dead blocks to the heap: poison, give pages back, serialise, reuse.
    fn free(&mut self, batch: Vec<Dead>);
}
