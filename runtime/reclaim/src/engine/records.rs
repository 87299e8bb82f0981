//! Records outside of cycles: birth, retirement, forks, lists.

use std::cmp::Reverse;

use super::{Engine, NoteError, Phase, Record};
use crate::block::{Block, Event, State};
use crate::env::Environment;
use crate::ids::{BlockId, Nanos};
use crate::stats::{End, PinnedBlock, Stats, Summary};

impl Engine {
    pub(super) fn born(&mut self, block: Block) -> Result<(), NoteError> {
        self.insert(block, State::Live)?;
        self.published += 1;
        Ok(())
    }

    pub(super) fn insert(&mut self, block: Block, state: State) -> Result<(), NoteError> {
        self.stats.visits += 1;
        if block.span.is_empty() {
            return Err(NoteError::Empty(block.id));
        }
        let record = Record {
            block,
            state,
            frozen: false,
            unproved: 0,
            due: None,
        };
        if let Err(refused) = self.blocks.insert(block.id, record) {
            return Err(NoteError::Duplicate(refused.block.id));
        }
        let record = self.blocks.get(block.id);
        if let Some(amount) = record.and_then(|record| self.stats.amount(&record.state)) {
            amount.add(block.span.len());
        }
        Ok(())
    }

    pub(super) fn retire(&mut self, id: BlockId, now: Nanos) -> Result<(), NoteError> {
        self.advance(id, Event::Retire { now })?;
        self.put_fresh(id);
        Ok(())
    }

    fn put_fresh(&mut self, id: BlockId) {
        if let Some(record) = self.blocks.get(id) {
            self.fresh_bytes += record.block.span.len();
            self.fresh.push_back(id);
        }
    }

    pub(super) fn take_fresh(&mut self) -> Option<BlockId> {
        let id = self.fresh.pop_front()?;
        let record = self.blocks.get(id);
        self.fresh_bytes -= record.map_or(0, |record| record.block.span.len());
        Some(id)
    }

    /// Schedules a search for a block at `due`.
    pub(super) fn put_waiting(&mut self, id: BlockId, due: Nanos) {
        if let Some(record) = self.blocks.get_mut(id) {
            record.due = Some(due);
            self.waiting.insert((due, id));
        }
    }

    /// Removes the record of a freed block.
    pub(super) fn forget(&mut self, id: BlockId) {
        let Some(record) = self.blocks.remove(id) else {
            return;
        };
        if record.frozen {
            self.stats.frozen.take(record.block.span.len());
        }
    }

    /// The time at which a block was retired.
    pub(super) fn since(&self, id: BlockId) -> Option<Nanos> {
        match self.blocks.get(id)?.state {
            State::Retired { since } | State::Pinned { since, .. } => Some(since),
            State::Draft | State::Live | State::Dead | State::Freed => None,
        }
    }

    /// Handles a fork, in either process: all existing blocks share pages with the other process,
    /// the threads that hold them may be gone, and the cycle in progress is aborted.
    pub(super) fn meet_fork(&mut self, env: &dyn Environment) -> Option<Summary> {
        let generation = env.fork_generation();
        if generation == self.generation {
            return None;
        }
        self.generation = generation;
        let waiting = std::mem::take(&mut self.waiting);
        for record in self.blocks.values_mut() {
            self.stats.visits += 1;
            if !record.frozen {
                record.frozen = true;
                self.stats.frozen.add(record.block.span.len());
            }
        }
        for (_, id) in waiting {
            // Due at once: in a child the threads that held it are gone.
            self.put_waiting(id, Nanos::ZERO);
        }
        self.phase = Phase::Idle;
        let cycle = self.cycle.take()?;
        // Requests that it would have answered are queued again.
        if cycle.ticket > self.answered {
            self.request = self.request.max(Some(cycle.summary.kind));
        }
        self.stats.forked += 1;
        Some(Summary {
            end: End::Forked,
            ..cycle.summary
        })
    }

    pub(super) fn list_pins(&self, stats: &mut Stats, now: Nanos) {
        let mut pins = Vec::new();
        for &(_, id) in &self.waiting {
            let Some(record) = self.blocks.get(id) else {
                continue;
            };
            let since = self.since(id).unwrap_or(now);
            stats.stuck += u64::from(since + self.config.patience <= now);
            if let State::Pinned { by, tries, .. } = &record.state {
                pins.push(PinnedBlock {
                    block: id,
                    span: record.block.span,
                    function: record.block.function,
                    version: record.block.version,
                    by: by.clone(),
                    since,
                    tries: *tries,
                });
            }
        }
        pins.sort_by_key(|pin| (Reverse(pin.span.len()), pin.block));
        pins.truncate(self.config.listed as usize);
        stats.pins = pins;
    }
}
