//! Conditions of the world: after every move, and in the end when all is quiet.

use uruk_reclaim::{Block, BlockId, FunctionId};

use super::{Violation, World};

impl World<'_> {
    /// Lets all threads return and answer, ends the other process, and completes all stores.
    pub(super) fn come_back(&mut self) {
        self.settle_stores();
        for at in 0..self.threads.len() {
            while let Some(frame) = self.threads[at].stack.pop() {
                self.execute(at, frame.word - 1, &frame.block);
            }
            self.threads[at].silent = false;
        }
        self.drain();
        self.shared.clear();
    }

    /// Returns the first violation so far, slots included.
    pub(super) fn check(&mut self) -> Result<(), Violation> {
        for at in 0..self.functions.len() {
            let function = self.functions[at];
            let version = |block: Option<Block>| block.map(|block| block.version);
            let (expected, found) = (version(function.published), version(function.slot));
            let late = self.late.iter().any(|&(late, _)| late == at);
            if expected != found && !late {
                self.fail(Violation::Slot {
                    function: FunctionId(at as u32),
                    expected,
                    found,
                });
            }
        }
        self.broken.clone().map_or(Ok(()), Err)
    }

    /// Checks that exactly the live blocks are known, mapped and in use.
    pub(super) fn check_end(&self, known: &dyn Fn(BlockId) -> bool) -> Result<(), Violation> {
        let functions = self.functions.iter();
        let live: Vec<Block> = functions
            .flat_map(|function| [function.published, function.fallback])
            .flatten()
            .collect();
        let mut expected: Vec<BlockId> = live.iter().map(|block| block.id).collect();
        expected.sort_unstable();
        let mut rows: Vec<BlockId> = self.rows.values().map(|row| row.id).collect();
        rows.sort_unstable();
        let every = (0..=self.numbers).map(BlockId);
        let found: Vec<BlockId> = every.filter(|id| known(*id)).collect();
        for found in [found, rows] {
            if found != expected {
                return Err(Violation::Leak { expected, found });
            }
        }
        let (bytes, held) = (live.iter().map(|block| block.span.len()).sum(), self.held());
        if held != bytes {
            return Err(Violation::Memory {
                expected: bytes,
                found: held,
            });
        }
        Ok(())
    }
}
