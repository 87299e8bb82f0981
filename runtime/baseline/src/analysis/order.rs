//! The order in which blocks are emitted, and loops in it.
//!
//! Invariants:
//! - Blocks that can be reached are there once, the entry first; others are not there.
//! - A block comes after all that dominate it.
//! - Loops are ranges of the order that lie within each other or apart, and each edge that leads
//!   back lies in a loop that begins with its target.
//!
//! # How
//! Blocks are numbered in reverse postorder of a depth-first walk, and the body of each loop is
//! what leads back to its head without passing it (Havlak, 1997, without his care for loops of
//! several entries: those only become larger than they need). Then the blocks of a loop are moved
//! together behind its head. Where ranges still cross, as they may for loops with several entries,
//! the outer one is made longer.
//!
//! # Why
//! A dominator comes first, in a reverse postorder and in this one too: if a block outside of a
//! loop dominated one inside, but not the head, it would lie on a path from the head to it, and be
//! inside. So a value that is used behind its definition lives from there to the use. It also lives
//! to the end of each loop between that contains the use and not the definition. No equations need
//! to be solved.

use crate::ir::{Block, Function};

/// No place, no loop.
pub(crate) const NONE: u32 = u32::MAX;

/// A loop, as a range of the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Loop {
    /// Place of its head.
    pub(crate) head: u32,
    /// Place of its last block.
    pub(crate) last: u32,
    /// The loop around it, or [`NONE`].
    pub(crate) parent: u32,
    /// A loop further out, or [`NONE`]: parents and these lead from a loop to any one around it
    /// in a logarithmic number of steps (Myers, "An Applicative Random-Access Stack", 1983).
    jump: u32,
    /// How many loops are around it.
    level: u32,
}

/// Blocks in order.
#[derive(Debug, Default)]
pub(crate) struct Order {
    /// Blocks by place.
    pub(crate) blocks: Vec<Block>,
    /// Places by block; [`NONE`] if it cannot be reached.
    pub(crate) place: Vec<u32>,
    /// How many loops are around a block, by place.
    pub(crate) depth: Vec<u8>,
    /// The innermost loop around a block, by place, or [`NONE`].
    pub(crate) loop_of: Vec<u32>,
    /// Loops, outer ones before those within.
    pub(crate) loops: Vec<Loop>,
    /// The number of the first instruction, by place, and at last the number after all.
    /// Instructions are numbered from 1 in this order.
    pub(crate) start: Vec<u32>,
    /// Predecessors of each reachable block, once for each edge.
    predecessors: Lists,
    work: Work,
}

/// Lists of blocks, by block.
#[derive(Debug, Default)]
struct Lists {
    from: Vec<u32>,
    blocks: Vec<u32>,
}

#[derive(Debug, Default)]
struct Work {
    stack: Vec<(u32, u32)>,
    /// Blocks in reverse postorder, and their numbers in it.
    order: Vec<u32>,
    number: Vec<u32>,
    /// By number: the head of the innermost loop around it, by number; its own number if it is the
    /// head of a loop that is not finished yet.
    around: Vec<u32>,
    /// Like `around`, or the head of a loop further out.
    skip: Vec<u32>,
    /// By number: lists of the members of a loop, and at the end of the outermost level.
    first: Vec<u32>,
    next: Vec<u32>,
    list: Vec<u32>,
}

impl Order {
    /// Computes the order of a function.
    pub(crate) fn of(&mut self, function: &Function) {
        self.walk(function);
        self.find_predecessors(function);
        self.find_bodies();
        self.move_together();
        self.find_ranges(function);
        self.number_instructions(function);
    }

    /// The place of a block that can be reached.
    pub(crate) fn place_of(&self, block: Block) -> u32 {
        self.place[block.index()]
    }

    /// Last place of the live range of a value that is defined in the block at one place and used
    /// at another: the last block of the outermost loop around the use that does not contain the
    /// definition.
    pub(crate) fn lives_until(&self, defined: u32, used: u32) -> Option<u32> {
        let apart = |at: u32| at != NONE && self.loops[at as usize].head > defined;
        let mut at = self.loop_of[used as usize];
        if !apart(at) {
            return None;
        }
        loop {
            let Loop {
                parent, jump, last, ..
            } = self.loops[at as usize];
            at = match (apart(jump), apart(parent)) {
                (true, _) => jump,
                (_, true) => parent,
                _ => return Some(last),
            };
        }
    }

    /// Computes the reverse postorder; the first successor follows directly where possible.
    fn walk(&mut self, function: &Function) {
        let work = &mut self.work;
        let blocks = function.blocks.len();
        work.number.clear();
        work.number.resize(blocks, NONE);
        work.order.clear();
        if blocks == 0 {
            return;
        }
        work.stack.clear();
        work.stack
            .push((0, function.blocks[0].successors.len() as u32));
        work.number[0] = 0;
        while let Some((block, left)) = work.stack.last_mut() {
            let block = *block;
            if *left == 0 {
                work.order.push(block);
                work.stack.pop();
                continue;
            }
            *left -= 1;
            let next = function.blocks[block as usize].successors[*left as usize].0;
            if work.number[next as usize] == NONE {
                work.number[next as usize] = 0;
                let successors = function.blocks[next as usize].successors.len();
                work.stack.push((next, successors as u32));
            }
        }
        work.order.reverse();
        for (number, &block) in work.order.iter().enumerate() {
            work.number[block as usize] = number as u32;
        }
    }

    fn find_predecessors(&mut self, function: &Function) {
        let lists = &mut self.predecessors;
        lists.from.clear();
        lists.from.resize(function.blocks.len() + 1, 0);
        let mut edges = 0;
        for &block in &self.work.order {
            for successor in &function.blocks[block as usize].successors {
                lists.from[successor.index()] += 1;
                edges += 1;
            }
        }
        let mut sum = 0;
        for from in &mut lists.from {
            sum += *from;
            *from = sum;
        }
        lists.blocks.clear();
        lists.blocks.resize(edges, 0);
        // Filled from the end, so that each entry ends as the start of its list.
        for &block in self.work.order.iter().rev() {
            for successor in function.blocks[block as usize].successors.iter().rev() {
                let from = &mut lists.from[successor.index()];
                *from -= 1;
                lists.blocks[*from as usize] = block;
            }
        }
    }

    /// Finds the loop of each block, by numbers of the reverse postorder: heads of inner loops come
    /// before those around them.
    fn find_bodies(&mut self) {
        let work = &mut self.work;
        let count = work.order.len();
        work.around.clear();
        work.around.resize(count, NONE);
        work.skip.clear();
        work.skip.resize(count, NONE);
        for head in (0..count as u32).rev() {
            work.list.clear();
            let block = work.order[head as usize];
            for &before in self.predecessors.of(block) {
                let number = work.number[before as usize];
                if number >= head {
                    work.list.push(number);
                }
            }
            while let Some(number) = work.list.pop() {
                let outer = outermost(&mut work.skip, number, head);
                if outer <= head {
                    continue;
                }
                work.around[outer as usize] = head;
                work.skip[outer as usize] = head;
                for &before in self.predecessors.of(work.order[outer as usize]) {
                    let number = work.number[before as usize];
                    if number > head {
                        work.list.push(number);
                    }
                }
            }
        }
    }

    /// The order: of each level, blocks and loops by the number of their first block.
    fn move_together(&mut self) {
        let work = &mut self.work;
        let count = work.order.len();
        work.first.clear();
        work.first.resize(count + 1, NONE);
        work.next.clear();
        work.next.resize(count, NONE);
        for number in (0..count).rev() {
            let around = work.around[number];
            let list = if around == NONE {
                count
            } else {
                around as usize
            };
            work.next[number] = work.first[list];
            work.first[list] = number as u32;
        }
        self.blocks.clear();
        self.place.clear();
        self.place.resize(work.number.len(), NONE);
        work.list.clear();
        let mut at = work.first[count];
        loop {
            if at == NONE {
                match work.list.pop() {
                    Some(back) => at = back,
                    None => break,
                }
                continue;
            }
            let block = work.order[at as usize];
            self.place[block as usize] = self.blocks.len() as u32;
            self.blocks.push(Block(block));
            let inside = work.first[at as usize];
            if inside == NONE {
                at = work.next[at as usize];
            } else {
                work.list.push(work.next[at as usize]);
                at = inside;
            }
        }
    }

    /// Loops as ranges, and depths.
    fn find_ranges(&mut self, function: &Function) {
        let count = self.blocks.len();
        self.loops.clear();
        self.loop_of.clear();
        self.loop_of.resize(count, NONE);
        self.depth.clear();
        self.depth.resize(count, 0);
        // The last source of edges that lead back to a place. Crossing ranges are extended from
        // behind: a loop that begins in a range ends in it.
        let last = &mut self.work.first;
        last.clear();
        last.resize(count, NONE);
        for (place, block) in self.blocks.iter().enumerate() {
            for successor in &function.blocks[block.index()].successors {
                let to = self.place[successor.index()] as usize;
                if to <= place {
                    last[to] = place as u32;
                }
            }
        }
        let open = &mut self.work.list;
        open.clear();
        for place in (0..count as u32).rev() {
            // Ranges that begin behind this place, the nearest last.
            if last[place as usize] == NONE {
                continue;
            }
            while let Some(&inner) = open.last() {
                if inner > last[place as usize] {
                    break;
                }
                last[place as usize] = last[place as usize].max(last[inner as usize]);
                open.pop();
            }
            open.push(place);
        }
        let mut around = NONE;
        for place in 0..count as u32 {
            while around != NONE && self.loops[around as usize].last < place {
                around = self.loops[around as usize].parent;
            }
            if last[place as usize] != NONE {
                let (jump, level) = above(&self.loops, around);
                self.loops.push(Loop {
                    head: place,
                    last: last[place as usize],
                    parent: around,
                    jump,
                    level,
                });
                around = self.loops.len() as u32 - 1;
            }
            self.loop_of[place as usize] = around;
            let outer = match around {
                NONE => 0,
                _ => match self.loops[around as usize] {
                    Loop { head, parent, .. } if head == place => {
                        1 + depth_of(&self.depth, &self.loops, parent)
                    }
                    Loop { head, .. } => self.depth[head as usize],
                },
            };
            self.depth[place as usize] = outer;
        }
    }

    fn number_instructions(&mut self, function: &Function) {
        self.start.clear();
        let mut number = 1;
        for block in &self.blocks {
            self.start.push(number);
            number += function.blocks[block.index()].instructions.len() as u32;
        }
        self.start.push(number);
    }
}

impl Lists {
    fn of(&self, block: u32) -> &[u32] {
        let block = block as usize;
        &self.blocks[self.from[block] as usize..self.from[block + 1] as usize]
    }
}

/// The head of the outermost finished loop around a block; all finished loops begin behind `head`.
/// Shortens the path for the next lookup.
fn outermost(skip: &mut [u32], mut number: u32, head: u32) -> u32 {
    let within = |to: u32| to != NONE && to > head;
    let mut top = number;
    while within(skip[top as usize]) {
        top = skip[top as usize];
    }
    while number != top {
        number = std::mem::replace(&mut skip[number as usize], top);
    }
    if skip[top as usize] == head {
        head
    } else {
        top
    }
}

/// The jump and the level of a loop inside of `parent`.
fn above(loops: &[Loop], parent: u32) -> (u32, u32) {
    let Some(&Loop { jump, level, .. }) = loops.get(parent as usize) else {
        return (NONE, 0);
    };
    let level_of = |at: u32| loops.get(at as usize).map_or(0, |it| it.level + 1);
    let far = loops.get(jump as usize).map_or(NONE, |it| it.jump);
    let equal = level + 1 - level_of(jump) == level_of(jump) - level_of(far);
    (if equal { far } else { parent }, level + 1)
}

fn depth_of(depth: &[u8], loops: &[Loop], at: u32) -> u8 {
    match at {
        NONE => 0,
        _ => depth[loops[at as usize].head as usize].min(200),
    }
}

#[cfg(test)]
mod tests {
    use super::{NONE, Order};
    use crate::ir::{Block, BlockData, Function};
    use uruk_testing::Random;

    fn graph(edges: &[&[u32]]) -> Function {
        Function {
            blocks: edges
                .iter()
                .enumerate()
                .map(|(at, to)| BlockData {
                    instructions: at as u32..at as u32 + 1,
                    successors: to.iter().map(|&b| Block(b)).collect(),
                })
                .collect(),
            ..Function::default()
        }
    }

    fn check(edges: &[&[u32]], blocks: &[u32], depth: &[u8]) {
        let mut order = Order::default();
        order.of(&graph(edges));
        let found: Vec<u32> = order.blocks.iter().map(|b| b.0).collect();
        assert_eq!(found, blocks);
        assert_eq!(order.depth, depth);
    }

    #[test]
    fn branches() {
        check(&[&[1, 2], &[3], &[3], &[]], &[0, 1, 2, 3], &[0; 4]);
        // Unreachable blocks are not in the order.
        check(&[&[2], &[2], &[]], &[0, 2], &[0; 2]);
    }

    #[test]
    fn loops_hang_together() {
        // The way out of the loop comes first in the walk.
        check(
            &[&[1], &[2, 3], &[], &[4], &[1]],
            &[0, 1, 3, 4, 2],
            &[0, 1, 1, 1, 0],
        );
        // A loop in a loop, each with an exit.
        check(
            &[&[1], &[6, 2], &[5, 3], &[2, 4], &[2], &[1], &[]],
            &[0, 1, 2, 3, 4, 5, 6],
            &[0, 1, 2, 2, 2, 1, 0],
        );
        check(&[&[1], &[1, 2], &[]], &[0, 1, 2], &[0, 1, 0]);
    }

    /// Dominance by brute force: the blocks that each block dominates.
    fn dominates(edges: &[Vec<u32>], by: u32) -> Vec<bool> {
        let mut seen = vec![false; edges.len()];
        let mut stack = if by == 0 { vec![] } else { vec![0] };
        while let Some(at) = stack.pop() {
            if std::mem::replace(&mut seen[at as usize], true) {
                continue;
            }
            stack.extend(edges[at as usize].iter().filter(|&&to| to != by));
        }
        seen.iter().map(|seen| !seen).collect()
    }

    /// Random graphs, most of them with loops of several entries.
    #[test]
    fn what_it_promises() {
        let mut numbers = Random::new(0x1234_5678_9abc_def1);
        let mut random = |below: usize| numbers.below(below) as u32;
        let mut order = Order::default();
        for _ in 0..2000 {
            let count = 2 + random(14) as usize;
            let edges: Vec<Vec<u32>> = (0..count)
                .map(|_| (0..random(4)).map(|_| 1 + random(count - 1)).collect())
                .collect();
            let slices: Vec<&[u32]> = edges.iter().map(Vec::as_slice).collect();
            let function = graph(&slices);
            order.of(&function);
            let place = |block: u32| order.place[block as usize];
            for by in 0..count as u32 {
                for (block, dominated) in dominates(&edges, by).into_iter().enumerate() {
                    if dominated && place(block as u32) != NONE {
                        assert!(place(by) <= place(block as u32), "{edges:?} {order:?}");
                    }
                }
            }
            for at in &order.blocks {
                for to in &edges[at.index()] {
                    if place(*to) <= place(at.0) {
                        let mut inner = order.loop_of[place(at.0) as usize];
                        while order.loops[inner as usize].head != place(*to) {
                            inner = order.loops[inner as usize].parent;
                        }
                    }
                }
            }
            for (at, inner) in order.loops.iter().enumerate() {
                if inner.parent != NONE {
                    let outer = order.loops[inner.parent as usize];
                    assert!((inner.parent as usize) < at);
                    assert!(outer.head < inner.head && inner.last <= outer.last);
                }
            }
        }
    }
}
