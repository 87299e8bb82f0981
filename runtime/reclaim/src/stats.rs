//! Counters of the engine: amounts by state, work done, and obstacles.

use std::collections::BTreeMap;

use crate::block::State;
use crate::env::{Missing, Silence};
use crate::ids::{BlockId, FunctionId, Nanos, Span, ThreadId, VersionId};
use crate::policy::{Kind, Reason};

/// Blocks and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Their number.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Amount {
    pub(crate) fn add(&mut self, bytes: u64) {
        self.blocks += 1;
        self.bytes += bytes;
    }

    pub(crate) fn take(&mut self, bytes: u64) {
        self.blocks -= 1;
        self.bytes -= bytes;
    }
}

/// A block that some thread may return into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedBlock {
    /// The block.
    pub block: BlockId,
    /// Its address range.
    pub span: Span,
    /// Its function.
    pub function: FunctionId,
    /// Its version of the function.
    pub version: VersionId,
    /// The threads that hold it, as far as listed.
    pub by: Vec<ThreadId>,
    /// Time of retirement.
    pub since: Nanos,
    /// Number of scans that found it.
    pub tries: u32,
}

/// Copies that were not made, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GivenUp {
    /// Memory was short.
    pub out_of_space: u64,
    /// The block turned out to be fixed.
    pub fixed: u64,
    /// The version was superseded before its copy, or before the swing.
    pub superseded: u64,
    /// The copy's number or place was not new; it is ignored.
    pub strange: u64,
}

/// Counters of an engine; amounts are of now, counts since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Blocks that can be started.
    pub live: Amount,
    /// Retired blocks that the last scan, if any, did not find.
    pub retired: Amount,
    /// Blocks that the last scan found on a stack.
    pub pinned: Amount,
    /// Blocks that are proved dead and not freed yet.
    pub dead: Amount,
    /// Those of all these that are shared with another process since a fork.
    pub frozen: Amount,
    /// Blocks that the last scan could not prove, because a thread did not answer.
    pub unproved: u64,
    /// Cycles that ran to their end, without copies.
    pub sweeps: u64,
    /// Cycles that ran to their end, with copies.
    pub evacuations: u64,
    /// Cycles by reason.
    pub reasons: BTreeMap<Reason, u64>,
    /// Cycles that a fork aborted.
    pub forked: u64,
    /// Cycles without a proof: no fence, no scan.
    pub failed: u64,
    /// Evacuations that became sweeps, for lack of a space to copy into.
    pub without_space: u64,
    /// Copies that replaced their original.
    pub moved: Amount,
    /// Blocks given to the heap.
    pub freed: Amount,
    /// Copies that were not made or not used.
    pub given_up: GivenUp,
    /// Scans that were answered.
    pub scans: u64,
    /// Those of them that a thread did not answer.
    pub incomplete: u64,
    /// Threads without an answer, by reason.
    pub silent: BTreeMap<Silence, u64>,
    /// Threads that did not answer the last scan.
    pub missing: Vec<Missing>,
    /// The longest interruption of a thread.
    pub longest_handshake: Nanos,
    /// Processor time of all cycles, as charged.
    pub spent: Nanos,
    /// Records examined: the engine's own work, in units that do not depend on a clock.
    pub visits: u64,
    /// The largest pinned blocks, as far as listed.
    pub pins: Vec<PinnedBlock>,
    /// Pinned or unproved blocks that have been retired for longer than the patience.
    pub stuck: u64,
}

impl Stats {
    pub(crate) fn amount(&mut self, state: &State) -> Option<&mut Amount> {
        match state {
            State::Live => Some(&mut self.live),
            State::Retired { .. } => Some(&mut self.retired),
            State::Pinned { .. } => Some(&mut self.pinned),
            State::Dead => Some(&mut self.dead),
            State::Draft | State::Freed => None,
        }
    }
}

/// The results of a cycle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Its kind.
    pub kind: Kind,
    /// Its reason.
    pub reason: Reason,
    /// Its start.
    pub began: Nanos,
    /// Its end.
    pub end: End,
    /// Copies that replaced their original.
    pub moved: Amount,
    /// Blocks given to the heap.
    pub freed: Amount,
    /// Blocks that stay because a thread may return into them.
    pub pinned: u64,
    /// Blocks that stay because a thread did not answer.
    pub unproved: u64,
    /// All requests up to this ticket are answered by cycles that began after them.
    pub answered: u64,
}

/// How a cycle ended. Its results so far are valid in each case.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// All work was done.
    Complete,
    /// Not all blocks could be copied; the rest was done.
    OutOfSpace,
    /// Nothing was proved.
    NoProof(crate::env::EnvironmentError),
    /// The process forked meanwhile.
    Forked,
}
