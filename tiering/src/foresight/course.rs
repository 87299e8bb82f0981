//! The control flow of one function, as far as it says which calls are to come.
//!
//! Blocks are kept in an order in which each comes after those that lead to it, back edges left
//! out. The chance that control comes to a block is passed on along the edges in that order, from
//! the entry or from a call that was just seen. A loop is entered or not, and left once: an edge
//! out of it at its head or end takes on the chance of the whole loop.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::ids::FunctionId;

/// What is known of a function's body. Blocks are numbered, the entry is the first.
#[derive(Clone, Debug, Default)]
pub struct Sketch<C> {
    /// The edges of block `i` are `edges[starts[i]..starts[i + 1]]`.
    pub starts: Vec<u32>,
    /// Where an edge leads, and how likely it is taken.
    pub edges: Vec<(u32, f32)>,
    /// Blocks and what they call, in the order of blocks and of calls in each.
    pub calls: Vec<(u32, C)>,
    /// Blocks that end the program or throw.
    pub ends: Vec<u32>,
}

/// The chance of an edge that leads to nothing but an end of the program, or an exception.
const BAD: f32 = 0.02;
/// The chance that a loop is stayed in where it can be left.
const STAY: f32 = 0.8;
/// The chance that a loop is left in its middle.
const LEAVE: f32 = 0.2;
/// Steps that are taken to find the blocks of loops; beyond, a function has none.
const LOOP_WORK: usize = 200_000;

/// Callees that are looked at behind a call: a program is followed by each of its first calls, so
/// that those that are further on come into sight in time.
const SIGHT: usize = 256;
/// Blocks, and calls, that are passed for them.
const WAY: usize = 2_048;

/// An edge, forwards.
#[derive(Clone, Copy, Debug)]
struct Edge {
    to: u32,
    chance: f32,
    /// The chance is one of the loop, whose head this is, and not of the block.
    of: Option<u32>,
}

/// The flow of a function whose callees are known; see the module.
#[derive(Debug)]
pub struct Course {
    starts: Vec<u32>,
    edges: Vec<Edge>,
    /// Block and callee, in the order of the blocks.
    calls: Vec<(u32, FunctionId)>,
    /// Callees and the numbers of calls of them, sorted.
    by_callee: Vec<(FunctionId, usize)>,
    /// Callees and the chance that a call of the function comes to calling them.
    ahead: Vec<(FunctionId, f32)>,
}

const NONE: u32 = u32::MAX;

/// Loops by their heads.
struct Loops {
    /// By block, the head of the innermost loop it is in.
    innermost: Vec<u32>,
    /// By head, that of the loop around.
    around: Vec<u32>,
}

impl Loops {
    fn contains(&self, head: u32, block: u32) -> bool {
        let mut at = self.innermost[block as usize];
        while at != NONE && at != head {
            at = self.around[at as usize];
        }
        at == head
    }
}

impl Course {
    /// Of a sketch that is whole: edges lead to blocks there are. Others are left out.
    pub fn new(sketch: &Sketch<FunctionId>) -> Course {
        let order = Order::new(sketch);
        let count = order.blocks.len();
        let forward = |from: u32, to: u32| to > from;
        let mut ends = vec![false; count];
        for &end in &sketch.ends {
            if let Some(&at) = order.places.get(end as usize).filter(|&&at| at != NONE) {
                ends[at as usize] = true;
            }
        }
        for block in (0..count).rev() {
            let successors = order.successors(block as u32);
            let mut all = !successors.is_empty();
            for &(to, _) in successors {
                all &= ends[to as usize] && forward(block as u32, to);
            }
            ends[block] |= all;
        }
        let (starts, edges) = edges(&order, &ends);
        let places = &order.places;
        let place = |block: u32| places.get(block as usize).copied().unwrap_or(NONE);
        let calls = sketch
            .calls
            .iter()
            .map(|&(block, callee)| (place(block), callee));
        let mut calls: Vec<_> = calls.filter(|call| call.0 != NONE).collect();
        calls.sort_by_key(|call| call.0);
        let mut course = Course {
            starts,
            edges,
            by_callee: Vec::new(),
            calls,
            ahead: Vec::new(),
        };
        let numbered = course.calls.iter().enumerate();
        course.by_callee = numbered.map(|(at, &(_, callee))| (callee, at)).collect();
        course.by_callee.sort_unstable();
        course.ahead = course.chances(None);
        course
    }

    /// Blocks in it.
    pub(super) fn blocks(&self) -> usize {
        self.starts.len() - 1
    }

    /// What a call of the function may come to calling, with its chance.
    pub(super) fn ahead(&self) -> &[(FunctionId, f32)] {
        &self.ahead
    }

    /// The first call of `callee` after the one at `after`, or before, by number.
    pub(super) fn find(&self, callee: FunctionId, after: Option<usize>) -> Option<usize> {
        let from = after.map_or(0, |at| at + 1);
        let first = |from| {
            let at = self.by_callee.partition_point(|it| *it < (callee, from));
            let found = self.by_callee.get(at).filter(|it| it.0 == callee)?;
            Some(found.1)
        };
        first(from).or_else(|| first(0))
    }

    /// Functions that may be called after the call numbered `after`, or after the entry, with its chance, as
    /// far as [`SIGHT`] and [`WAY`] go.
    pub(super) fn chances(&self, after: Option<usize>) -> Vec<(FunctionId, f32)> {
        let count = self.blocks();
        if self.calls.is_empty() || count == 0 {
            return Vec::new();
        }
        let start = after.map_or(0, |at| self.calls[at].0 as usize);
        let last = self.calls.last().map_or(0, |call| call.0 as usize);
        let last = last.min(start + WAY - 1);
        // Of blocks from the first one on.
        let mut chances = vec![0f32; last + 1 - start];
        chances[0] = 1.0;
        for block in start..=last {
            let chance = chances[block - start];
            if chance == 0.0 {
                continue;
            }
            let (from, to) = (self.starts[block], self.starts[block + 1]);
            for edge in &self.edges[from as usize..to as usize] {
                let passed = match edge.of {
                    // Who starts inside of a loop is in it.
                    Some(head) if (head as usize) < start => 1.0,
                    Some(head) => chances[head as usize - start],
                    None => chance * edge.chance,
                };
                if let Some(sum) = chances.get_mut(edge.to as usize - start) {
                    *sum = (*sum + passed).min(1.0);
                }
            }
        }
        let first = after.map_or(0, |at| at + 1);
        let mut ahead: Vec<(FunctionId, f32)> = Vec::new();
        let mut known: HashMap<FunctionId, usize> = HashMap::new();
        for &(block, callee) in self.calls[first..].iter().take(WAY) {
            let Some(&chance) = chances.get(block as usize - start) else {
                break;
            };
            if chance == 0.0 {
                continue;
            }
            match known.entry(callee) {
                Entry::Occupied(known) => {
                    let known = &mut ahead[*known.get()].1;
                    *known = known.max(chance);
                }
                Entry::Vacant(new) if ahead.len() < SIGHT => {
                    new.insert(ahead.len());
                    ahead.push((callee, chance));
                }
                Entry::Vacant(_) => break,
            }
        }
        ahead
    }
}

/// The edges forwards, with their chances; `ends` are blocks that lead to an end of the program.
fn edges(order: &Order, ends: &[bool]) -> (Vec<u32>, Vec<Edge>) {
    let loops = order.loops();
    let forward = |from: u32, to: u32| to > from;
    let mut starts = vec![0];
    let mut edges = Vec::new();
    for block in 0..order.blocks.len() as u32 {
        let all = order.successors(block);
        let head = loops.innermost[block as usize];
        let leaves = |to: u32| head != NONE && !loops.contains(head, to);
        let leaving = all.iter().filter(|edge| leaves(edge.0)).count();
        let top = block == head || all.iter().any(|edge| edge.0 == head);
        let bad = |to: u32| ends[to as usize] && forward(block, to);
        let some_bad = all.iter().any(|edge| bad(edge.0)) && !all.iter().all(|edge| bad(edge.0));
        for &(to, share) in all {
            if !forward(block, to) {
                continue;
            }
            let (mut chance, mut of) = (share, None);
            if bad(to) && some_bad {
                chance = BAD;
            } else if leaving > 0 && leaving < all.len() {
                (chance, of) = match (leaves(to), top) {
                    (true, true) => (1.0, Some(head)),
                    (true, false) => (LEAVE, None),
                    (false, _) => (STAY, None),
                };
            } else if some_bad && all.len() == 2 {
                chance = 1.0 - BAD;
            }
            edges.push(Edge { to, chance, of });
        }
        starts.push(edges.len() as u32);
    }
    (starts, edges)
}

/// Blocks that can be reached, in reverse postorder.
struct Order {
    /// Sketch's numbers.
    blocks: Vec<u32>,
    /// By the sketch's number, the place in the order.
    places: Vec<u32>,
    starts: Vec<u32>,
    edges: Vec<(u32, f32)>,
}

impl Order {
    fn new(sketch: &Sketch<FunctionId>) -> Order {
        let count = sketch.starts.len().saturating_sub(1);
        let successors = |block: u32| {
            let (from, to) = (
                sketch.starts[block as usize],
                sketch.starts[block as usize + 1],
            );
            let edges = sketch.edges.get(from as usize..to as usize);
            edges
                .unwrap_or_default()
                .iter()
                .filter(|edge| (edge.0 as usize) < count)
        };
        let mut places = vec![NONE; count];
        let mut seen = vec![false; count];
        let mut blocks = Vec::with_capacity(count);
        let mut stack = Vec::new();
        if count > 0 {
            seen[0] = true;
            stack.push((0u32, successors(0)));
        }
        while let Some((block, edges)) = stack.last_mut() {
            match edges.next() {
                Some(&(to, _)) if !seen[to as usize] => {
                    seen[to as usize] = true;
                    stack.push((to, successors(to)));
                }
                Some(_) => {}
                None => {
                    blocks.push(*block);
                    stack.pop();
                }
            }
        }
        blocks.reverse();
        for (place, &block) in blocks.iter().enumerate() {
            places[block as usize] = place as u32;
        }
        let mut starts = vec![0];
        let mut edges = Vec::new();
        for &block in &blocks {
            edges.extend(successors(block).map(|&(to, share)| (places[to as usize], share)));
            starts.push(edges.len() as u32);
        }
        Order {
            blocks,
            places,
            starts,
            edges,
        }
    }

    fn successors(&self, block: u32) -> &[(u32, f32)] {
        let (from, to) = (self.starts[block as usize], self.starts[block as usize + 1]);
        &self.edges[from as usize..to as usize]
    }

    /// The natural loop of every edge that leads back in the order.
    fn loops(&self) -> Loops {
        let count = self.blocks.len();
        let mut loops = Loops {
            innermost: vec![NONE; count],
            around: vec![NONE; count],
        };
        let mut back: Vec<(u32, u32)> = Vec::new();
        for block in 0..count as u32 {
            let edges = self.successors(block).iter();
            back.extend(
                edges
                    .filter(|edge| edge.0 <= block)
                    .map(|edge| (edge.0, block)),
            );
        }
        if back.is_empty() {
            return loops;
        }
        back.sort_unstable();
        let mut before = vec![Vec::new(); count];
        for block in 0..count as u32 {
            for &(to, _) in self.successors(block) {
                before[to as usize].push(block);
            }
        }
        let mut found: Vec<(u32, Vec<u32>)> = Vec::new();
        let mut marks = vec![NONE; count];
        let mut work = 0;
        for latches in back.chunk_by(|a, b| a.0 == b.0) {
            let head = latches[0].0;
            marks[head as usize] = head;
            let mut left: Vec<u32> = latches.iter().map(|edge| edge.1).collect();
            let mut body = vec![head];
            while let Some(block) = left.pop() {
                // What comes before the head leads into the loop by the side.
                if block < head || marks[block as usize] == head {
                    continue;
                }
                marks[block as usize] = head;
                body.push(block);
                left.extend(&before[block as usize]);
                work += 1;
            }
            if work > LOOP_WORK {
                break;
            }
            found.push((head, body));
        }
        found.sort_by_key(|(_, body)| std::cmp::Reverse(body.len()));
        for (head, body) in found {
            loops.around[head as usize] = loops.innermost[head as usize];
            for block in body {
                loops.innermost[block as usize] = head;
            }
        }
        loops
    }
}
