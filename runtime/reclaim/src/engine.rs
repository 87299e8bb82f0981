//! The engine: records of blocks, and cycles that free proved blocks.
//!
//! One thread owns it: it applies the notes of [`crate::Inbox`] and calls [`Engine::step`] until
//! that is idle. A step is bounded ([`crate::Config::step_blocks`], except for the one scan of a
//! cycle). Between steps everything is consistent, and the thread may pause for a fork, or end.
//!
//! A cycle, in steps:
//!
//! ```text
//! evacuate:  flip, order | copy, swing  (by block) | choose, fence, scan | drain, unregister, free
//! sweep:                                           | choose, fence, scan | drain, unregister, free
//! ```
//!
//! While scans prove nothing (no `/proc`, a thread that never answers), copies would only add to
//! held memory: every original stays. An evacuation then begins with a scan, and ends if that
//! proves nothing either.
//!
//! Invariants:
//! - A block is freed only as [`crate::Dead`], which is made by `proof` or by a refused swing, and
//!   after `drain_samples` and `unregister`.
//! - Every retired block is in `fresh` or in `waiting`, every dead one in `dead`: none is lost,
//!   whatever fails.
//! - The cost of one note or verdict does not depend on other pending work, except for the
//!   logarithm of a search tree. [`Stats::visits`] counts.
//! - A fork detected at a step's beginning aborts the cycle and freezes all blocks.

mod cycle;
mod records;
#[cfg(all(test, not(loom)))]
mod tests;

use std::collections::{BTreeSet, VecDeque};

use thiserror::Error;

use crate::block::{Block, Event, State, StepError};
use crate::config::Config;
use crate::env::Environment;
use crate::ids::{BlockId, Nanos};
use crate::inbox::Note;
use crate::policy::{self, Kind, Reason, Situation};
use crate::slots::Slots;
use crate::stats::{Amount, End, Stats, Summary};

/// A note that was not applied. Nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NoteError {
    /// The number, or its place ([`Slots`]), is taken.
    #[error("block {0} exists already")]
    Duplicate(BlockId),
    /// The block has no bytes.
    #[error("block {0} is empty")]
    Empty(BlockId),
    /// The block does not exist, or is freed.
    #[error("there is no block {0}")]
    Unknown(BlockId),
    /// The block's state does not allow it.
    #[error(transparent)]
    Step(#[from] StepError),
}

/// The result of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// No work before `until`, or a note; `None`: before a note.
    Idle {
        /// The time at which work is due without a note.
        until: Option<Nanos>,
    },
    /// More work is due at once: a cycle continues.
    Working,
    /// A cycle ended.
    Finished(Summary),
}

/// The record of a block.
#[derive(Debug)]
struct Record {
    block: Block,
    state: State,
    /// Whether its pages are shared with another process.
    frozen: bool,
    /// Number of successive scans that proved nothing of it.
    unproved: u32,
    /// Its key in `waiting`.
    due: Option<Nanos>,
}

/// Bytes of the engine's memory per block, in a full table.
pub const BLOCK_BYTES: usize = size_of::<Option<(BlockId, Record)>>();

/// The phase of a cycle.
#[derive(Debug)]
enum Phase {
    Idle,
    /// Of an evacuation: checks whether scans can prove anything.
    Probing,
    Copying(VecDeque<BlockId>),
    Proving,
    Freeing,
}

/// The cycle in progress.
#[derive(Debug)]
struct Cycle {
    summary: Summary,
    /// Whether blocks are examined before their back-off is over.
    all: bool,
    /// The ticket it answers.
    ticket: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Engine {
    config: Config,
    generation: u64,
    blocks: Slots<Record>,
    /// Retired and not examined yet, in that order.
    fresh: VecDeque<BlockId>,
    fresh_bytes: u64,
    /// Retired, examined without success, by the time of the next search.
    waiting: BTreeSet<(Nanos, BlockId)>,
    dead: VecDeque<BlockId>,
    phase: Phase,
    cycle: Option<Cycle>,
    request: Option<Kind>,
    ticket: u64,
    answered: u64,
    published: u64,
    residue: u64,
    /// Whether the last scan failed, or proved nothing of any block.
    barren: bool,
    last_start: Option<Nanos>,
    last_spent: Nanos,
    stats: Stats,
}

impl Engine {
    /// An engine without blocks, for a process that forked `generation` times
    /// ([`Environment::fork_generation`]).
    pub fn new(config: &Config, generation: u64) -> Engine {
        Engine {
            config: config.clamped(),
            generation,
            blocks: Slots::default(),
            fresh: VecDeque::new(),
            fresh_bytes: 0,
            waiting: BTreeSet::new(),
            dead: VecDeque::new(),
            phase: Phase::Idle,
            cycle: None,
            request: None,
            ticket: 0,
            answered: 0,
            published: 0,
            residue: 0,
            barren: false,
            last_start: None,
            last_spent: Nanos::ZERO,
            stats: Stats::default(),
        }
    }

    /// Applies a note of a publisher.
    ///
    /// # Errors
    /// The note contradicts the records; nothing changed.
    pub fn apply(&mut self, note: Note, now: Nanos) -> Result<(), NoteError> {
        match note {
            Note::Born(block) => self.born(block)?,
            Note::Retired(id) => self.retire(id, now)?,
            Note::Request { kind, ticket } => {
                self.request = self.request.max(Some(kind));
                self.ticket = self.ticket.max(ticket);
            }
        }
        Ok(())
    }

    /// Does one bounded piece of work, if there is any. All notes that were left before the call
    /// should have been applied.
    pub fn step(&mut self, env: &mut dyn Environment, now: Nanos) -> Step {
        if let Some(summary) = self.meet_fork(env) {
            return Step::Finished(summary);
        }
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Idle => return self.begin(env, now),
            Phase::Probing => {
                self.prove(env, now);
                if !self.barren {
                    self.evacuate(env);
                }
            }
            Phase::Copying(queue) => self.copy_some(env, queue, now),
            Phase::Proving => self.prove(env, now),
            Phase::Freeing => {
                if self.free_some(env) {
                    return Step::Finished(self.finish(env));
                }
            }
        }
        Step::Working
    }

    /// Adds processor time of the last step, for the rate limit.
    pub fn charge(&mut self, spent: Nanos) {
        self.stats.spent = self.stats.spent + spent;
        self.last_spent = self.last_spent + spent;
    }

    /// Counters as of now.
    pub fn stats(&self, now: Nanos) -> Stats {
        let mut stats = self.stats.clone();
        self.list_pins(&mut stats, now);
        stats
    }

    /// The state of a block; `None` if it does not exist, or is freed.
    pub fn state(&self, id: BlockId) -> Option<&State> {
        self.blocks.get(id).map(|record| &record.state)
    }

    /// Whether a cycle is in progress.
    pub fn is_busy(&self) -> bool {
        self.cycle.is_some()
    }

    fn situation(&mut self, env: &dyn Environment) -> Situation {
        let fragmented = env.memory().fragmented;
        self.residue = self.residue.min(fragmented);
        let oldest = self.fresh.front().and_then(|id| self.since(*id));
        Situation {
            live: self.stats.live.bytes,
            fresh: self.fresh_bytes,
            oldest,
            due: self.waiting.first().map(|&(due, _)| due),
            leftover: !self.dead.is_empty(),
            fragmented,
            residue: self.residue,
            published: self.published,
            request: self.request,
        }
    }

    /// Starts a cycle, or returns the time of the next one.
    fn begin(&mut self, env: &mut dyn Environment, now: Nanos) -> Step {
        let situation = self.situation(env);
        let Some((kind, reason)) = policy::decide(&self.config, &situation, now) else {
            let wake = policy::wake(&self.config, &situation);
            return Step::Idle {
                until: wake.map(|wake| wake.max(self.not_before(Reason::Aged))),
            };
        };
        let not_before = self.not_before(reason);
        let urgent = reason.is_urgent() || policy::presses(&self.config, &situation);
        if now < not_before && !urgent {
            return Step::Idle {
                until: Some(not_before),
            };
        }
        self.start(kind, reason, now);
        match kind {
            Kind::Sweep => self.phase = Phase::Proving,
            Kind::Evacuate if self.barren => {
                self.published = 0;
                self.phase = Phase::Probing;
            }
            Kind::Evacuate => self.evacuate(env),
        }
        Step::Working
    }

    fn start(&mut self, kind: Kind, reason: Reason, now: Nanos) {
        *self.stats.reasons.entry(reason).or_default() += 1;
        self.last_start = Some(now);
        self.last_spent = Nanos::ZERO;
        let summary = Summary {
            kind,
            reason,
            began: now,
            end: End::Complete,
            moved: Amount::default(),
            freed: Amount::default(),
            pinned: 0,
            unproved: 0,
            answered: self.answered,
        };
        self.cycle = Some(Cycle {
            summary,
            all: reason.is_urgent(),
            ticket: self.ticket,
        });
        self.request = None;
    }

    /// A cycle for little code waits longer: if all memory of a program is searched, a sweep takes
    /// 40 ms.
    fn not_before(&self, reason: Reason) -> Nanos {
        let Some(start) = self.last_start else {
            return Nanos::ZERO;
        };
        let share = self.last_spent.divided(self.config.cpu_fraction);
        let little = self.stats.retired.bytes <= self.config.sweep_floor;
        let share = match reason {
            // Long before it counts as stuck.
            Reason::Aged | Reason::Retry if little => {
                let dear = share.divided(self.config.aged_part);
                dear.min(self.config.patience.divided(2.0)).max(share)
            }
            _ => share,
        };
        start + share.max(self.config.interval)
    }

    fn summary(&mut self) -> Option<&mut Summary> {
        self.cycle.as_mut().map(|cycle| &mut cycle.summary)
    }

    fn end(&mut self, end: End) {
        if let Some(summary) = self.summary() {
            summary.end = end;
        }
    }

    /// Applies an event to a block and updates the amounts.
    fn advance(&mut self, id: BlockId, event: Event) -> Result<(), NoteError> {
        self.stats.visits += 1;
        let record = self.blocks.get_mut(id).ok_or(NoteError::Unknown(id))?;
        let next = record.state.step(id, event)?;
        let bytes = record.block.span.len();
        if let Some(amount) = self.stats.amount(&record.state) {
            amount.take(bytes);
        }
        if let Some(amount) = self.stats.amount(&next) {
            amount.add(bytes);
        }
        record.state = next;
        Ok(())
    }
}
