//! The world as the engine's environment. Threads move before and between all its actions.

use uruk_reclaim::{
    Affinity, Block, Copied, CopyError, Dead, Edge, Environment, EnvironmentError, FunctionId,
    MayHold, Memory, Missing, Nanos, Pin, ScanAnswer, Silence, Space, Span, Swing, ThreadId,
};

use super::{Guard, Violation, World};

impl World<'_> {
    /// All threads, with the words on their stacks.
    fn look(&self) -> Vec<(ThreadId, Vec<u64>)> {
        let threads = self.threads.iter();
        threads
            .map(|thread| {
                let words = thread.stack.iter().map(|frame| frame.word).collect();
                (thread.id, words)
            })
            .collect()
    }

    fn pins(&self, ranges: &[Span], thread: ThreadId, words: &[u64]) -> Vec<Pin> {
        let hit = |span: &Span| {
            words.iter().any(|&word| match self.has(Guard::EndOfRange) {
                true => span.is_pinned_by(word),
                false => span.start <= word && word < span.end,
            })
        };
        let hits = ranges.iter().enumerate().filter(|(_, span)| hit(span));
        hits.map(|(range, _)| Pin { range, thread }).collect()
    }
}

impl Environment for World<'_> {
    fn fork_generation(&self) -> u64 {
        if self.has(Guard::ForkGeneration) {
            self.generation
        } else {
            0
        }
    }

    fn memory(&self) -> Memory {
        Memory {
            fragmented: self.fragmented(),
            held: self.held(),
        }
    }

    fn affinity(&mut self) -> Affinity {
        let published = self.functions.iter().filter_map(|f| f.published);
        Affinity {
            heat: published
                .map(|block| (block.version, block.version.0 % 3))
                .collect(),
            calls: vec![Edge {
                from: FunctionId(0),
                to: FunctionId(1),
                weight: 1,
            }],
        }
    }

    fn flip(&mut self) -> Result<Space, EnvironmentError> {
        self.interlude();
        if self.below(16) == 1 {
            return Err(EnvironmentError::NoSpace("a choice".to_owned()));
        }
        self.current = self.current.other();
        Ok(self.current)
    }

    fn copy(&mut self, block: &Block) -> Result<Copied, CopyError> {
        self.interlude();
        if block.fixed.is_some() {
            self.fail(Violation::Moved(block.id));
        }
        let Some(new) = self.place(block) else {
            return Err(CopyError::OutOfSpace {
                asked: block.span.len(),
                held: self.held(),
            });
        };
        if self.has(Guard::RegisterCopy) {
            self.rows.insert(new.span.start, new);
        }
        Ok(Copied {
            id: new.id,
            span: new.span,
            space: new.space,
        })
    }

    fn swing(&mut self, old: &Block, new: &Block) -> Swing {
        self.interlude();
        let check = self.has(Guard::VersionCheck);
        let function = &mut self.functions[old.function.0 as usize];
        let is_old = |block: Option<Block>| block.is_some_and(|block| block.id == old.id);
        if is_old(function.fallback) {
            function.fallback = Some(*new);
        } else if is_old(function.published) {
            (function.published, function.slot) = (Some(*new), Some(*new));
        } else if !check {
            function.slot = Some(*new);
        } else {
            return Swing::Superseded;
        }
        Swing::Done
    }

    fn fence(&mut self) -> Result<(), EnvironmentError> {
        if !self.has(Guard::ListAfterFence) {
            self.before = self.look();
        }
        self.interlude();
        self.interlude();
        if self.below(24) == 1 {
            return Err(EnvironmentError::NoFence("a choice".to_owned()));
        }
        if self.has(Guard::Fence) {
            self.show_stores();
        }
        Ok(())
    }

    fn scan(&mut self, ranges: &[Span]) -> Result<ScanAnswer, EnvironmentError> {
        if self.below(24) == 1 {
            return Err(EnvironmentError::NoScan("a choice".to_owned()));
        }
        let mut answer = ScanAnswer::default();
        let early = !self.has(Guard::ScanAfter) || !self.has(Guard::ListAfterFence);
        let listed = if early {
            std::mem::take(&mut self.before)
        } else {
            self.look()
        };
        for (id, words_before) in listed {
            self.interlude();
            if self.below(48) == 1 {
                self.fork();
            }
            let Some(thread) = self.threads.iter().find(|thread| thread.id == id) else {
                continue;
            };
            let words = thread.stack.iter().map(|frame| frame.word).collect();
            let words = if self.has(Guard::ScanAfter) {
                words
            } else {
                words_before
            };
            let mut hit = vec![false; ranges.len()];
            for pin in self.pins(ranges, id, &words) {
                hit[pin.range] = true;
            }
            if thread.silent && self.has(Guard::Completeness) {
                // For some threads, the ranges they held before they fell silent are known.
                let may_hold = match id.0 % 2 {
                    0 => MayHold::All,
                    _ => MayHold::Ranges((0..ranges.len()).filter(|&at| hit[at]).collect()),
                };
                answer.missing.push(Missing {
                    thread: id,
                    why: Silence::TimedOut,
                    may_hold,
                });
            } else if !thread.silent {
                answer.threads += 1;
                answer.longest_handshake = Nanos(1);
                if self.has(Guard::Pins) {
                    answer.pins.extend(self.pins(ranges, id, &words));
                }
            }
        }
        if !self.has(Guard::ScanAfter) {
            self.before = self.look();
        }
        Ok(answer)
    }

    fn drain_samples(&mut self) {
        self.interlude();
        if self.has(Guard::DrainBeforeFree) {
            self.drain();
        }
    }

    fn unregister(&mut self, block: &Block) {
        self.interlude();
        if self.has(Guard::Unregister) {
            self.rows.remove(&block.span.start);
        }
    }

    fn free(&mut self, batch: Vec<Dead>) {
        self.interlude();
        for dead in batch {
            if self.has(Guard::Free) {
                World::free(self, dead.span(), dead.frozen());
            }
        }
        if self.has(Guard::Serialise) {
            self.serialise();
        }
    }
}
