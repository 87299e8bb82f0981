//! What happens to records outside of cycles: birth, retirement, groups, forks, lists.

use std::cmp::Reverse;

use super::{Engine, Group, NoteError, Phase, Record};
use crate::block::{Block, Event, State};
use crate::env::Environment;
use crate::ids::{BlockId, GroupId, Nanos};
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
        let group = self.groups.entry(block.group).or_default();
        let after = group.first;
        let record = Record {
            block,
            state,
            frozen: false,
            unproved: 0,
            due: None,
            before: None,
            after,
        };
        if let Err(refused) = self.blocks.insert(block.id, record) {
            let Record { block, .. } = refused;
            self.drop_if_empty(block.group);
            return Err(NoteError::Duplicate(block.id));
        }
        group.first = Some(block.id);
        if let Some(next) = after.and_then(|id| self.blocks.get_mut(id)) {
            next.before = Some(block.id);
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

    /// Has a block looked at again at `due`.
    pub(super) fn put_waiting(&mut self, id: BlockId, due: Nanos) {
        if let Some(record) = self.blocks.get_mut(id) {
            record.due = Some(due);
            self.waiting.insert((due, id));
        }
    }

    /// Retires what is live of a group; costs by its own blocks.
    pub(super) fn drop_group(&mut self, id: GroupId, now: Nanos) -> Result<(), NoteError> {
        let group = self.groups.entry(id).or_default();
        group.dropped = true;
        let mut blocks = Vec::new();
        let mut next = group.first;
        while let Some(id) = next {
            blocks.push(id);
            next = self.blocks.get(id).and_then(|record| record.after);
        }
        // Oldest first.
        blocks.reverse();
        if blocks.is_empty() {
            self.gone.push_back(id);
        }
        for block in blocks {
            self.stats.visits += 1;
            if self.state(block) == Some(&State::Live) {
                self.retire(block, now)?;
            }
        }
        Ok(())
    }

    /// Forgets a freed block, and its group when it was the last of one that was dropped.
    pub(super) fn forget(&mut self, id: BlockId) {
        let Some(record) = self.blocks.remove(id) else {
            return;
        };
        if record.frozen {
            self.stats.frozen.take(record.block.span.len());
        }
        if let Some(next) = record.after.and_then(|id| self.blocks.get_mut(id)) {
            next.before = record.before;
        }
        match record.before.and_then(|id| self.blocks.get_mut(id)) {
            Some(before) => before.after = record.after,
            None => {
                let key = record.block.group;
                if let Some(group) = self.groups.get_mut(&key) {
                    group.first = record.after;
                }
                self.drop_if_empty(key);
            }
        }
    }

    /// Forgets a group without blocks, or has its data go if it was dropped.
    fn drop_if_empty(&mut self, key: GroupId) {
        match self.groups.get(&key) {
            Some(Group {
                first: None,
                dropped: true,
            }) => self.gone.push_back(key),
            Some(Group { first: None, .. }) => {
                self.groups.remove(&key);
            }
            _ => {}
        }
    }

    /// Lets the data of some groups go. A group that got a block meanwhile is kept.
    pub(super) fn release_some(&mut self, env: &mut dyn Environment) {
        for _ in 0..self.config.step_blocks {
            let Some(id) = self.gone.pop_front() else {
                return;
            };
            let empty = |group: &Group| group.first.is_none();
            if self.groups.get(&id).is_some_and(empty) {
                self.groups.remove(&id);
                self.stats.released += 1;
                env.release(id);
            }
        }
    }

    /// Since when a block is retired.
    pub(super) fn since(&self, id: BlockId) -> Option<Nanos> {
        match self.blocks.get(id)?.state {
            State::Retired { since } | State::Pinned { since, .. } => Some(since),
            State::Draft | State::Live | State::Dead | State::Freed => None,
        }
    }

    /// After a fork, in either process: all blocks there are share pages with the other
    /// one, what holds them may have gone, and the cycle under way is broken off.
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
        // Requests that it would have answered are made again.
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
