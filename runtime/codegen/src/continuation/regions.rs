//! Chooses the blocks of a body that a continuation copies, and how many copies.
//!
//! # The nest stays whole
//! Entering an inner loop would put a second way into the loops around it, and no pass touches a
//! loop with two. So the rest of the current iterations is peeled. With the loops `s0` (the head
//! that is entered) to `sm` (the outermost) there are `m + 1` copies. Copy `k` starts at the head
//! of `sk` and holds the rest of one iteration of the loop around it. It ends before the head of
//! that loop, which belongs to copy `k + 1`. The last copy is the nest as it was, entered at its
//! head. Outer loops that are not in `nest` are entered in the middle. Then there is one copy less,
//! and the last one has a part of an iteration before the first whole one. The loops of a block
//! choose its copy:
//!
//! ```text
//! least i > 0 with block in si       -> copy i - 1, or the one that is under way if that is later
//! the head of si, i > k under way    -> copy i
//! in none                            -> copy m
//! ```

use std::collections::VecDeque;

use crate::flow::{Flow, Loop, around};

/// The copied blocks, and the number of their copies.
pub(super) struct Regions<'a, 'm> {
    pub(super) flow: &'a Flow<'m>,
    /// For each block, one less than the least loop around the start that it is in.
    levels: Vec<u32>,
    /// Heads of the loops around the start, by number, from the start itself.
    pub(super) heads: Vec<u32>,
    /// All loops around the start are in the nest, so the last copy is the nest as it was.
    is_whole: bool,
    /// The copied blocks: number of the copy and block, those of one copy together.
    pub(super) pieces: Vec<(u32, u32)>,
}

impl<'a, 'm> Regions<'a, 'm> {
    /// With the loops `nest`, from the start out: some or all of those around it.
    pub(super) fn new(flow: &'a Flow<'m>, loops: &[Loop], nest: Vec<usize>) -> Regions<'a, 'm> {
        let is_whole = nest
            .first()
            .is_none_or(|&it| around(loops, it).len() < nest.len());
        let last = nest.len() as u32 - 1;
        let level = |block: usize| {
            let mut outer = nest.iter().skip(1);
            outer
                .position(|&it| loops[it].inside[block])
                .map_or(last, |at| at as u32)
        };
        let mut regions = Regions {
            flow,
            levels: (0..flow.blocks.len()).map(level).collect(),
            heads: nest.iter().map(|&it| loops[it].head).collect(),
            is_whole,
            pieces: Vec::new(),
        };
        regions.pieces = regions.reach();
        regions
    }

    /// The copy in which an edge from copy `from` to `block` ends.
    pub(super) fn copy_of(&self, from: u32, block: u32) -> u32 {
        let as_head = self.heads.iter().rposition(|&head| head == block);
        match as_head.map(|at| at as u32) {
            Some(at) if at > from => at,
            _ => from.max(self.levels[block as usize]),
        }
    }

    fn reach(&self) -> Vec<(u32, u32)> {
        let blocks = self.flow.blocks.len();
        let mut seen = vec![false; blocks * self.heads.len()];
        let mut work = VecDeque::from([(0u32, self.heads[0])]);
        let mut found = Vec::new();
        while let Some((copy, block)) = work.pop_front() {
            if std::mem::replace(&mut seen[copy as usize * blocks + block as usize], true) {
                continue;
            }
            found.push((copy, block));
            for &next in self.flow.graph.successors(block) {
                work.push_back((self.copy_of(copy, next), next));
            }
        }
        found.sort_unstable();
        found
    }

    /// True for the copy that is the nest as it was, if there is one.
    pub(super) fn is_nest(&self, copy: u32) -> bool {
        self.is_whole && self.is_last(copy)
    }

    fn is_last(&self, copy: u32) -> bool {
        copy as usize == self.heads.len() - 1
    }

    /// Instructions of copies but the last.
    pub(super) fn peeled(&self) -> usize {
        let peeled = self.pieces.iter().filter(|(copy, _)| !self.is_last(*copy));
        peeled
            .map(|&(_, block)| self.flow.blocks[block as usize].instructions().count())
            .sum()
    }
}
