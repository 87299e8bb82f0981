//! The engine: records of blocks, and cycles that free what is proved dead.
//!
//! One thread owns it: it applies the notes of [`crate::Inbox`] and calls
//! [`Engine::step`] until that has nothing to do. A step is bounded
//! ([`crate::Config::step_blocks`], but for the one scan of a cycle); between steps
//! everything is consistent, and the thread may stop, for a fork or for good.
//!
//! A cycle, in steps:
//!
//! ```text
//! evacuate:  flip, order | copy, swing  (by block) | choose, fence, scan | drain, unregister, free
//! sweep:                                           | choose, fence, scan | drain, unregister, free
//! ```
//!
//! While scans prove nothing (no `/proc`, a thread that never answers), copies would only
//! add to what is held: every original stays. An evacuation then begins with a scan, and
//! ends there if that proves nothing either.
//!
//! Invariants:
//! - A block is freed only as [`crate::Dead`], which `proof` or a swing that was
//!   refused made it, and after `drain_samples` and `unregister`.
//! - Every block that is retired is in `fresh` or in `waiting`, every dead one in `dead`:
//!   none is forgotten, whatever fails.
//! - What one note or verdict costs does not depend on what else is pending, but for the
//!   logarithm of a search tree. [`Stats::visits`] counts.
//! - A fork seen at a step's beginning breaks the cycle off and freezes all blocks.

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
    /// The number is taken, or its place is ([`Slots`]).
    #[error("block {0} exists already")]
    Duplicate(BlockId),
    /// The block has no bytes.
    #[error("block {0} is empty")]
    Empty(BlockId),
    /// There is no such block, or it is freed.
    #[error("there is no block {0}")]
    Unknown(BlockId),
    /// The block is not in a state for it.
    #[error(transparent)]
    Step(#[from] StepError),
}

/// What a step came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing to do before `until`, or a note; `None`: before a note.
    Idle {
        /// When time alone will give something to do.
        until: Option<Nanos>,
    },
    /// There is more to do at once: a cycle goes on.
    Working,
    /// A cycle ended.
    Finished(Summary),
}

/// What is known of a block.
#[derive(Debug)]
struct Record {
    block: Block,
    state: State,
    /// Shared with another process.
    frozen: bool,
    /// Scans in a row that proved nothing of it.
    unproved: u32,
    /// Its key in `waiting`.
    due: Option<Nanos>,
}

/// Bytes that the engine takes for a block, in a table that is full.
pub const BLOCK_BYTES: usize = size_of::<Option<(BlockId, Record)>>();

/// Where a cycle is.
#[derive(Debug)]
enum Phase {
    Idle,
    /// Of an evacuation: whether anything can be proved.
    Probing,
    Copying(VecDeque<BlockId>),
    Proving,
    Freeing,
}

/// The cycle under way.
#[derive(Debug)]
struct Cycle {
    summary: Summary,
    /// Whether blocks are looked at before their back-off is over.
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
    /// Retired and not looked at yet, in that order.
    fresh: VecDeque<BlockId>,
    fresh_bytes: u64,
    /// Retired, looked at in vain, by the time to look again.
    waiting: BTreeSet<(Nanos, BlockId)>,
    dead: VecDeque<BlockId>,
    phase: Phase,
    cycle: Option<Cycle>,
    request: Option<Kind>,
    ticket: u64,
    answered: u64,
    published: u64,
    residue: u64,
    /// The last scan failed, or proved nothing of any block.
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

    /// Takes note of what publishers did.
    ///
    /// # Errors
    /// The note does not fit what is known; nothing changed.
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

    /// Does one bounded piece of work, if there is any. All notes that were left before the
    /// call should have been applied.
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

    /// Adds processor time that the last step took; the rate limit counts with it.
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

    /// The state of a block; `None` if there is none, or it is freed.
    pub fn state(&self, id: BlockId) -> Option<&State> {
        self.blocks.get(id).map(|record| &record.state)
    }

    /// Whether a cycle is under way.
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

    /// Starts a cycle, or says when to come again.
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

    /// Whom little code asks for waits for longer: where all memory of a program is searched, a sweep
    /// takes 40 ms.
    fn not_before(&self, reason: Reason) -> Nanos {
        let Some(start) = self.last_start else {
            return Nanos::ZERO;
        };
        let share = self.last_spent.divided(self.config.cpu_fraction);
        let little = self.stats.retired.bytes <= self.config.sweep_floor;
        let share = match reason {
            // Long before it is said to be stuck.
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

    /// Takes a step of a block's life and keeps the amounts.
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
