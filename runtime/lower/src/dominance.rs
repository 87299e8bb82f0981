//! Finds the dominators of blocks.
//!
//! Lengauer and Tarjan, "A Fast Algorithm for Finding Dominators in a Flowgraph" (1979), with
//! simple linking: `m log n` steps for `m` edges between `n` blocks, for any flow.
//!
//! # Why
//! Rounds over the blocks in reverse postorder (Cooper, Harvey and Kennedy, 2001) take a step for
//! each block between two predecessors of one. With 100,000 blocks that may all go to one, this
//! took most of 30 seconds.

/// No block.
const NONE: u32 = u32::MAX;

/// Dominators of blocks that are all reached from block 0. Buffers are kept.
#[derive(Debug, Default)]
pub(crate) struct Dominance {
    /// Numbers in a walk of the tree of dominators, and how many blocks are in the part below each.
    number: Vec<u32>,
    size: Vec<u32>,
    walk: Walk,
    /// By number of the walk: the least one from which a way leads there past greater ones only.
    semi: Vec<u32>,
    /// The number of least `semi` on the path to the root of the forest, in its visited part.
    label: Vec<u32>,
    /// The next one on that way, or [`NONE`].
    ancestor: Vec<u32>,
    path: Vec<u32>,
}

/// A depth-first walk.
#[derive(Debug, Default)]
struct Walk {
    /// Blocks by number, and numbers by block.
    blocks: Vec<u32>,
    numbers: Vec<u32>,
    /// For each number, the number it was first reached from.
    parents: Vec<u32>,
    stack: Vec<(u32, u32)>,
}

impl Dominance {
    /// Finds the dominators of so many blocks.
    pub(crate) fn find<'a>(
        &mut self,
        count: usize,
        successors: impl Fn(u32) -> &'a [u32],
        predecessors: impl Fn(u32) -> &'a [u32],
    ) {
        self.walk.go(count, successors);
        let over = self.immediate(predecessors);
        self.number_tree(&over);
    }

    /// Whether a block dominates another.
    pub(crate) fn dominates(&self, over: u32, block: u32) -> bool {
        let (first, at) = (self.number[over as usize], self.number[block as usize]);
        first <= at && at - first < self.size[over as usize]
    }

    /// For each number of the walk, the number of the immediate dominator.
    fn immediate<'a>(&mut self, predecessors: impl Fn(u32) -> &'a [u32]) -> Vec<u32> {
        let count = self.walk.blocks.len();
        for list in [&mut self.semi, &mut self.label] {
            list.clear();
            list.extend(0..count as u32);
        }
        self.ancestor.clear();
        self.ancestor.resize(count, NONE);
        let mut over = vec![0; count];
        // Blocks whose `semi` is known and whose dominator is not, in lists by it.
        let (mut first, mut next) = (vec![NONE; count], vec![NONE; count]);
        for at in (1..count as u32).rev() {
            for &from in predecessors(self.walk.blocks[at as usize]) {
                let least = self.least(self.walk.numbers[from as usize]);
                let semi = &mut self.semi;
                semi[at as usize] = semi[at as usize].min(semi[least as usize]);
            }
            let list = &mut first[self.semi[at as usize] as usize];
            next[at as usize] = std::mem::replace(list, at);
            let parent = self.walk.parents[at as usize];
            self.ancestor[at as usize] = parent;
            let mut waiting = std::mem::replace(&mut first[parent as usize], NONE);
            while waiting != NONE {
                let least = self.least(waiting);
                let nearer = self.semi[least as usize] < self.semi[waiting as usize];
                over[waiting as usize] = if nearer { least } else { parent };
                waiting = next[waiting as usize];
            }
        }
        for at in 1..count {
            if over[at] != self.semi[at] {
                over[at] = over[over[at] as usize];
            }
        }
        over
    }

    /// The one of least `semi` on the way from a number to the root of its tree, without the root.
    fn least(&mut self, number: u32) -> u32 {
        let mut at = number;
        loop {
            let above = self.ancestor[at as usize];
            if above == NONE || self.ancestor[above as usize] == NONE {
                break;
            }
            self.path.push(at);
            at = above;
        }
        while let Some(at) = self.path.pop() {
            let above = self.ancestor[at as usize] as usize;
            let semi = |label: u32| self.semi[label as usize];
            if semi(self.label[above]) < semi(self.label[at as usize]) {
                self.label[at as usize] = self.label[above];
            }
            self.ancestor[at as usize] = self.ancestor[above];
        }
        self.label[number as usize]
    }

    /// Numbers the tree of dominators: each block takes the numbers behind those that its siblings
    /// have taken. A dominator comes before what it dominates in the walk.
    fn number_tree(&mut self, over: &[u32]) {
        let count = over.len();
        let blocks = &self.walk.blocks;
        self.size.clear();
        self.size.resize(count, 1);
        for at in (1..count).rev() {
            let above = blocks[over[at] as usize] as usize;
            self.size[above] += self.size[blocks[at] as usize];
        }
        self.number.clear();
        self.number.resize(count, 0);
        let mut next = vec![1; count];
        for at in 1..count {
            let (block, above) = (blocks[at] as usize, over[at] as usize);
            self.number[block] = next[above];
            next[above] += self.size[block];
            next[at] = self.number[block] + 1;
        }
    }
}

impl Walk {
    fn go<'a>(&mut self, count: usize, successors: impl Fn(u32) -> &'a [u32]) {
        self.blocks.clear();
        self.parents.clear();
        self.numbers.clear();
        self.numbers.resize(count, NONE);
        self.reach(0, 0);
        while let Some((block, taken)) = self.stack.last_mut() {
            let block = *block;
            match successors(block).get(*taken as usize) {
                Some(&to) => {
                    *taken += 1;
                    if self.numbers[to as usize] == NONE {
                        self.reach(to, self.numbers[block as usize]);
                    }
                }
                None => {
                    self.stack.pop();
                }
            }
        }
    }

    fn reach(&mut self, block: u32, parent: u32) {
        self.numbers[block as usize] = self.blocks.len() as u32;
        self.blocks.push(block);
        self.parents.push(parent);
        self.stack.push((block, 0));
    }
}
