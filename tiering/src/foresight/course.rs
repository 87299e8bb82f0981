//! The control flow of one function, for the order and chances of its calls.
//!
//! Blocks are kept in an order in which each comes after its predecessors, without back edges. The
//! chance that control reaches a block is propagated along the edges in that order, from the entry
//! or from a call that was just seen. A loop is entered or not, and left once: an edge out of it at
//! its head or end takes the chance of the whole loop.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::ids::FunctionId;

/// The control flow of a function's body. Blocks are numbered, the entry is the first.
#[derive(Clone, Debug, Default)]
pub struct Sketch<C> {
    /// The edges of block `i` are `edges[starts[i]..starts[i + 1]]`.
    pub starts: Vec<u32>,
    /// The target block of each edge, and the chance that it is taken.
    pub edges: Vec<(u32, f32)>,
    /// Blocks and their callees, in the order of blocks and of calls in each.
    pub calls: Vec<(u32, C)>,
    /// Blocks that end the program or throw.
    pub ends: Vec<u32>,
}

/// The chance of an edge that leads only to an end of the program, or an exception.
const BAD: f32 = 0.02;
/// The chance to stay in a loop at an exit.
const STAY: f32 = 0.8;
/// The chance to leave a loop in its middle.
const LEAVE: f32 = 0.2;
/// Limit of steps to find the blocks of loops; beyond it, a function has no loops.
const LOOP_WORK: usize = 200_000;

/// Callees examined after a call. A program is followed by each of its first calls, so more distant
/// callees are examined in time.
const SIGHT: usize = 256;
/// Blocks, and calls, passed in the search for them.
const WAY: usize = 2_048;

/// A forward edge.
#[derive(Clone, Copy, Debug)]
struct Edge {
    to: u32,
    chance: f32,
    /// The chance belongs to the loop with this head, and not to the block.
    of: Option<u32>,
}

/// The control flow of a function whose callees are known; see the module.
#[derive(Debug)]
pub struct Course {
    starts: Vec<u32>,
    edges: Vec<Edge>,
    /// Blocks and callees, in the order of the blocks.
    calls: Vec<(u32, FunctionId)>,
    /// Callees and the numbers of their calls, sorted.
    by_callee: Vec<(FunctionId, usize)>,
    /// Callees, with the chance that a call of the function calls them.
    ahead: Vec<(FunctionId, f32)>,
}

const NONE: u32 = u32::MAX;

/// The loops of a function, by their heads.
struct Loops {
    /// By block, the head of the innermost loop it is in.
    innermost: Vec<u32>,
    /// By head, that of the enclosing loop.
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
    /// Makes the course of a complete sketch: all edges lead to existing blocks. Other edges are
    /// left out.
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

    /// The functions that the body calls by name, each once.
    pub(super) fn callees(&self) -> impl Iterator<Item = FunctionId> {
        self.by_callee
            .chunk_by(|a, b| a.0 == b.0)
            .map(|calls| calls[0].0)
    }

    /// The number of blocks.
    pub(super) fn blocks(&self) -> usize {
        self.starts.len() - 1
    }

    /// The functions that a call of the function may call, with chances.
    pub(super) fn ahead(&self) -> &[(FunctionId, f32)] {
        &self.ahead
    }

    /// The number of the first call of `callee` after the one at `after`; without one, the first
    /// before it.
    pub(super) fn find(&self, callee: FunctionId, after: Option<usize>) -> Option<usize> {
        let from = after.map_or(0, |at| at + 1);
        let first = |from| {
            let at = self.by_callee.partition_point(|it| *it < (callee, from));
            let found = self.by_callee.get(at).filter(|it| it.0 == callee)?;
            Some(found.1)
        };
        first(from).or_else(|| first(0))
    }

    /// Functions that may be called after the call numbered `after`, or after the entry, with their
    /// chances, within [`SIGHT`] and [`WAY`].
    pub(super) fn chances(&self, after: Option<usize>) -> Vec<(FunctionId, f32)> {
        let count = self.blocks();
        if self.calls.is_empty() || count == 0 {
            return Vec::new();
        }
        let start = after.map_or(0, |at| self.calls[at].0 as usize);
        let last = self.calls.last().map_or(0, |call| call.0 as usize);
        let last = last.min(start + WAY - 1);
        // The chances of blocks from the first one on.
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
                    // A start inside of a loop is in it for sure.
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

/// The forward edges, with their chances; `ends` are blocks that lead to an end of the program.
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

/// Reachable blocks, in reverse postorder.
struct Order {
    /// Numbers in the sketch.
    blocks: Vec<u32>,
    /// By the sketch's number, the position in the order.
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

    /// The natural loop of every back edge of the order.
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
                // A block before the head enters the loop from the side.
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
