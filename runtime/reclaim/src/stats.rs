//! What the engine counted: how much is where, what was done, and what stands in the way.

use std::collections::BTreeMap;

use crate::block::State;
use crate::env::{Missing, Silence};
use crate::ids::{BlockId, FunctionId, Nanos, Span, ThreadId, VersionId};
use crate::policy::{Kind, Reason};

/// Blocks and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// How many.
    pub blocks: u64,
    /// Of how many bytes together.
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
    /// Where it lies.
    pub span: Span,
    /// Whose code it is.
    pub function: FunctionId,
    /// Which code of the function.
    pub version: VersionId,
    /// Who holds it, as far as listed.
    pub by: Vec<ThreadId>,
    /// Since when it is retired.
    pub since: Nanos,
    /// How often it was found.
    pub tries: u32,
}

/// Copies that were not made, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GivenUp {
    /// There was no memory.
    pub out_of_space: u64,
    /// The block turned out to be fixed.
    pub fixed: u64,
    /// The version was superseded before its copy, or before the swing.
    pub superseded: u64,
    /// The copy's description was not one of a new block; it is left alone.
    pub strange: u64,
}

/// Counters of an engine; amounts are of now, counts since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// What can be started.
    pub live: Amount,
    /// What cannot, and was not found by the last scan, if there was one.
    pub retired: Amount,
    /// What the last scan found on some stack.
    pub pinned: Amount,
    /// What is proved and not freed yet.
    pub dead: Amount,
    /// Of all these, what is shared with another process since a fork.
    pub frozen: Amount,
    /// Blocks that a scan could not prove, because a thread did not answer, by the last
    /// scan.
    pub unproved: u64,
    /// Cycles that ran to their end, without copies.
    pub sweeps: u64,
    /// Cycles that ran to their end, with copies.
    pub evacuations: u64,
    /// Cycles by reason.
    pub reasons: BTreeMap<Reason, u64>,
    /// Cycles that a fork broke off.
    pub forked: u64,
    /// Cycles without a proof: no fence, no scan.
    pub failed: u64,
    /// Evacuations that became sweeps, because there was no space to copy to.
    pub without_space: u64,
    /// Copies that took the place of their original.
    pub moved: Amount,
    /// Blocks given to the heap.
    pub freed: Amount,
    /// Copies that were not made or not used.
    pub given_up: GivenUp,
    /// Scans that were answered.
    pub scans: u64,
    /// Of these, those that a thread did not answer.
    pub incomplete: u64,
    /// Threads without an answer, by reason.
    pub silent: BTreeMap<Silence, u64>,
    /// Who did not answer the last scan.
    pub missing: Vec<Missing>,
    /// The longest a thread was held up.
    pub longest_handshake: Nanos,
    /// Processor time of all cycles, as charged.
    pub spent: Nanos,
    /// Records looked at: the engine's own work, in units that no clock blurs.
    pub visits: u64,
    /// The largest pinned blocks, as far as listed.
    pub pins: Vec<PinnedBlock>,
    /// Pinned or unproved blocks that are retired for longer than the patience.
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

/// What a cycle did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// What it was.
    pub kind: Kind,
    /// Why it ran.
    pub reason: Reason,
    /// When it began.
    pub began: Nanos,
    /// How it ended.
    pub end: End,
    /// Copies that took the place of their original.
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

/// How a cycle ended. In each case what it did so far holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// All of it was done.
    Complete,
    /// Not all could be copied; the rest was done.
    OutOfSpace,
    /// Nothing was proved.
    NoProof(crate::env::EnvironmentError),
    /// The process forked meanwhile.
    Forked,
}
