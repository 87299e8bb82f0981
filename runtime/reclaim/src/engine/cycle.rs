//! The phases of a cycle. Each takes one bounded step and sets the next phase.

use std::collections::VecDeque;

use super::{Engine, Phase};
use crate::block::{Block, Dead, Event, State};
use crate::env::{CopyError, Environment, Swing};
use crate::ids::{BlockId, FunctionId, IdMap, Nanos, Space, VersionId};
use crate::order::{Edge, Node, order};
use crate::policy::Kind;
use crate::proof::{Fenced, NoProof, Scanned, Verdict, judge};
use crate::stats::{End, Summary};

impl Engine {
    /// Flips the spaces and orders the blocks of the other one.
    pub(super) fn evacuate(&mut self, env: &mut dyn Environment) {
        self.published = 0;
        match env.flip() {
            Ok(space) => self.phase = Phase::Copying(self.evacuees(env, space).into()),
            Err(_) => {
                self.stats.without_space += 1;
                self.end(End::OutOfSpace);
                self.phase = Phase::Proving;
            }
        }
    }

    fn evacuees(&mut self, env: &mut dyn Environment, current: Space) -> Vec<BlockId> {
        let affinity = env.affinity();
        let heat: IdMap<VersionId, u64> = affinity.heat.into_iter().collect();
        self.stats.visits += self.blocks.len() as u64;
        let blocks = self.blocks.iter().map(|(_, record)| record);
        let live = blocks.filter(|record| record.state == State::Live);
        let movable = live.filter(|record| {
            let block = &record.block;
            block.space != current && block.fixed.is_none()
        });
        let mut movable: Vec<&Block> = movable.map(|record| &record.block).collect();
        movable.sort_unstable_by_key(|block| (block.span.start, block.id));
        let node = |block: &&Block| Node {
            id: block.id,
            start: block.span.start,
            bytes: block.span.len(),
            heat: heat.get(&block.version).copied().unwrap_or(0),
        };
        let nodes: Vec<Node> = movable.iter().map(node).collect();
        // The newest live version represents its function.
        let mut newest: IdMap<FunctionId, (VersionId, usize)> = IdMap::default();
        for (at, block) in movable.iter().enumerate() {
            let entry = newest.entry(block.function);
            let entry = entry.or_insert((block.version, at));
            *entry = (*entry).max((block.version, at));
        }
        let at = |function| newest.get(&function).map(|&(_, at)| at);
        let edge = |edge: &Edge<FunctionId>| {
            Some(Edge {
                from: at(edge.from)?,
                to: at(edge.to)?,
                weight: edge.weight,
            })
        };
        let edges: Vec<Edge<usize>> = affinity.calls.iter().filter_map(edge).collect();
        order(&nodes, &edges, self.config.cluster_bytes)
    }

    pub(super) fn copy_some(
        &mut self,
        env: &mut dyn Environment,
        mut queue: VecDeque<BlockId>,
        now: Nanos,
    ) {
        let count = queue.len().min(self.config.step_blocks as usize);
        let live = |id| {
            let record = self.blocks.get(id)?;
            (record.state == State::Live).then_some(record.block)
        };
        let olds: Vec<Block> = queue.drain(..count).filter_map(live).collect();
        let answers = env.copy_all(&olds);
        let left = (olds.len() - answers.len().min(olds.len())) as u64;
        let mut copies = Vec::with_capacity(olds.len());
        for (old, answer) in olds.into_iter().zip(answers) {
            match answer {
                Ok(copied) => {
                    let new = Block {
                        id: copied.id,
                        span: copied.span,
                        space: copied.space,
                        ..old
                    };
                    if self.insert(new, State::Draft).is_ok() {
                        copies.push((old, new));
                    } else {
                        // Not a new block: nothing starts it, and it is not freed.
                        self.stats.given_up.strange += 1;
                    }
                }
                Err(CopyError::OutOfSpace { .. }) => {
                    self.stats.given_up.out_of_space += 1 + left + queue.len() as u64;
                    self.end(End::OutOfSpace);
                    queue.clear();
                }
                Err(CopyError::Fixed(why)) => {
                    self.stats.given_up.fixed += 1;
                    if let Some(record) = self.blocks.get_mut(old.id) {
                        record.block.fixed = Some(why);
                    }
                }
                Err(CopyError::Superseded) => self.stats.given_up.superseded += 1,
            }
        }
        let swings = env.swing_all(&copies);
        debug_assert_eq!(swings.len(), copies.len());
        // A copy without an answer: its state is unknown, so it is not freed.
        for ((old, new), swing) in copies.into_iter().zip(swings) {
            self.swung(&old, &new, swing, now);
        }
        self.phase = match queue.is_empty() {
            true => Phase::Proving,
            false => Phase::Copying(queue),
        };
    }

    /// Handles the result of a swing: the copy replaced its original, or is dead.
    fn swung(&mut self, old: &Block, new: &Block, swing: Swing, now: Nanos) {
        let bytes = new.span.len();
        let stepped = match swing {
            Swing::Done => {
                self.stats.moved.add(bytes);
                if let Some(summary) = self.summary() {
                    summary.moved.add(bytes);
                }
                let swung = self.advance(new.id, Event::Swung);
                swung.and_then(|()| self.retire(old.id, now))
            }
            Swing::Superseded => {
                self.stats.given_up.superseded += 1;
                let refused = self.advance(new.id, Event::Refused);
                refused.map(|()| self.dead.push_back(new.id))
            }
        };
        debug_assert!(stepped.is_ok(), "{stepped:?}");
    }

    /// Chooses retired blocks for a scan, at most `scan_blocks`: half of them old ones whose time
    /// has come, the others new, so that neither kind waits forever.
    fn choose(&mut self, now: Nanos) -> Vec<BlockId> {
        let all = self.cycle.as_ref().is_some_and(|cycle| cycle.all);
        let limit = self.config.scan_blocks as usize;
        let mut chosen = Vec::new();
        let old = if self.fresh.len() > limit / 2 {
            limit.div_ceil(2)
        } else {
            limit
        };
        while chosen.len() < old
            && let Some(&(due, id)) = self.waiting.first()
            && (all || due <= now)
        {
            self.waiting.pop_first();
            chosen.push(id);
        }
        while chosen.len() < limit
            && let Some(id) = self.take_fresh()
        {
            chosen.push(id);
        }
        chosen
    }

    /// Chooses, fences, scans, and applies the verdicts.
    pub(super) fn prove(&mut self, env: &mut dyn Environment, now: Nanos) {
        self.phase = Phase::Freeing;
        let chosen = self.choose(now);
        if chosen.is_empty() {
            // Without retired blocks, no proof failed.
            self.barren &= !self.waiting.is_empty();
            return;
        }
        let span = |id: &BlockId| Some((self.blocks.get(*id)?.block.span, *id));
        let asked = chosen.iter().filter_map(span).collect();
        let fenced = Fenced::new(env, self.generation, asked);
        let scanned = fenced.map_err(NoProof::Failed);
        match scanned.and_then(|fenced| fenced.scan(env)) {
            Ok(scanned) => self.take_answer(scanned, now),
            Err(why) => {
                for id in chosen {
                    self.put_off(id, now);
                }
                if let NoProof::Failed(error) = why {
                    self.barren = true;
                    self.stats.failed += 1;
                    self.end(End::NoProof(error));
                }
            }
        }
    }

    fn take_answer(&mut self, scanned: Scanned, now: Nanos) {
        let Scanned { ids, answer } = scanned;
        let verdicts = judge(ids.len(), &answer, self.config.listed.max(1) as usize);
        self.stats.scans += 1;
        self.stats.incomplete += u64::from(!answer.missing.is_empty() || answer.overflow);
        for missing in &answer.missing {
            *self.stats.silent.entry(missing.why).or_default() += 1;
        }
        self.stats.longest_handshake = self.stats.longest_handshake.max(answer.longest_handshake);
        self.stats.missing = answer.missing;
        self.stats.missing.truncate(self.config.listed as usize);
        if verdicts.iter().all(|verdict| *verdict == Verdict::Unknown) {
            self.barren = true;
        } else if std::mem::take(&mut self.barren) {
            // Blocks that could not be evacuated before may be movable now.
            self.residue = 0;
        }
        let (mut pinned, mut unproved) = (0, 0);
        for (id, verdict) in ids.into_iter().zip(verdicts) {
            match verdict {
                Verdict::Clear => {
                    let stepped = self.advance(id, Event::Absent);
                    debug_assert!(stepped.is_ok(), "{stepped:?}");
                    self.dead.push_back(id);
                }
                Verdict::Pinned(by) => {
                    pinned += 1;
                    let tries = match self.state(id) {
                        Some(State::Pinned { tries, .. }) => *tries,
                        _ => 0,
                    };
                    if let Some(record) = self.blocks.get_mut(id) {
                        record.unproved = 0;
                    }
                    let due = now + self.backoff(tries);
                    let stepped = self.advance(id, Event::Found { due, by });
                    debug_assert!(stepped.is_ok(), "{stepped:?}");
                    self.put_waiting(id, due);
                }
                Verdict::Unknown => {
                    unproved += 1;
                    self.put_off(id, now);
                }
            }
        }
        self.stats.unproved = unproved;
        if let Some(summary) = self.summary() {
            (summary.pinned, summary.unproved) = (pinned, unproved);
        }
    }

    /// Schedules a later search for a block of which nothing was proved.
    fn put_off(&mut self, id: BlockId, now: Nanos) {
        self.stats.visits += 1;
        let Some(record) = self.blocks.get_mut(id) else {
            return;
        };
        let tries = record.unproved;
        record.unproved = tries.saturating_add(1);
        let due = now + self.backoff(tries);
        self.put_waiting(id, due);
    }

    /// `min(backoff_max, backoff_min * 2^tries)`.
    fn backoff(&self, tries: u32) -> Nanos {
        let wait = self.config.backoff_min.doubled(tries);
        wait.min(self.config.backoff_max)
    }

    /// Frees a batch; returns whether no block is left to free.
    pub(super) fn free_some(&mut self, env: &mut dyn Environment) -> bool {
        let count = self.dead.len().min(self.config.step_blocks as usize);
        if count > 0 {
            env.drain_samples();
        }
        let ids: Vec<BlockId> = self.dead.drain(..count).collect();
        let mut batch = Vec::with_capacity(count);
        let mut blocks = Vec::with_capacity(count);
        for id in ids {
            let stepped = self.advance(id, Event::Free);
            debug_assert!(stepped.is_ok(), "{stepped:?}");
            let Some(record) = self.blocks.get(id) else {
                continue;
            };
            let block = record.block;
            blocks.push(block);
            batch.push(Dead {
                id,
                span: block.span,
                space: block.space,
                frozen: record.frozen,
            });
            self.stats.freed.add(block.span.len());
            if let Some(summary) = self.summary() {
                summary.freed.add(block.span.len());
            }
        }
        if !batch.is_empty() {
            env.unregister_all(&blocks);
            env.free(batch);
        }
        for block in blocks {
            self.forget(block.id);
        }
        let done = self.dead.is_empty();
        if !done {
            self.phase = Phase::Freeing;
        }
        done
    }

    pub(super) fn finish(&mut self, env: &mut dyn Environment) -> Summary {
        self.phase = Phase::Idle;
        let cycle = self.cycle.take().expect("a cycle ends that began");
        let mut summary = cycle.summary;
        match summary.kind {
            Kind::Sweep => self.stats.sweeps += 1,
            Kind::Evacuate => {
                self.stats.evacuations += 1;
                self.residue = env.memory().fragmented;
            }
        }
        self.answered = self.answered.max(cycle.ticket);
        summary.answered = self.answered;
        summary
    }
}
