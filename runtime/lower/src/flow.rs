//! The control flow of a body: the reached blocks, in order, loops, and dominance. Buffers are kept
//! from body to body; properties that few bodies need are computed on demand.
//!
//! Blocks have two numbers: that of the body, and their place in reverse postorder, which is their
//! number in the result.
//!
//! A back edge is an edge to a block that is still on the stack of a depth-first walk from the
//! entry; its target heads a loop. For reducible flow that is the textbook's definition; in
//! irreducible flow it finds one edge of each cycle.

use uruk_bitcode::ir::{Body, Op};
use uruk_leaving::Graph;

use crate::dominance::Dominance;

/// Instead of a place: the block is not reached.
pub(crate) const UNREACHED: u32 = u32::MAX;

/// Visited blocks times loops: beyond that the loops of a body are not distinguished.
const LOOP_WORK: usize = 4_000_000;

/// The control flow of one body.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    /// The graph of the body's blocks.
    pub(crate) graph: Graph,
    /// Blocks that are reached, in reverse postorder.
    pub(crate) order: Vec<u32>,
    /// The places of blocks among those.
    pub(crate) places: Vec<u32>,
    /// Back edges, as (from, to).
    pub(crate) back: Vec<(u32, u32)>,
    predecessors: Predecessors,
    dominance: Dominance,
    knows_dominance: bool,
    stack: Vec<(u32, u32)>,
    states: Vec<State>,
}

#[derive(Debug, Default)]
struct Predecessors {
    known: bool,
    /// Stored like successors, but by place, and with places.
    starts: Vec<u32>,
    list: Vec<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    New,
    Open,
    Done,
}

/// The successors of a terminator; none for other instructions.
pub(crate) fn successors(op: &Op) -> &[uruk_bitcode::ir::BlockId] {
    match op {
        Op::Jump(to) => std::slice::from_ref(to),
        Op::Branch(to) | Op::Invoke(_, to) => to,
        Op::Switch(to) | Op::IndirectBranch(to) => to,
        _ => &[],
    }
}

impl Flow {
    /// Computes the flow of a body.
    pub(crate) fn look(&mut self, body: &Body) {
        self.predecessors.known = false;
        self.knows_dominance = false;
        self.back.clear();
        self.order.clear();
        self.graph.clear();
        self.places.clear();
        if body.blocks.len() == 1 && successors_of(body, 0).is_empty() {
            self.graph.add([]);
            self.order.push(0);
            self.places.push(0);
            return;
        }
        for block in 0..body.blocks.len() {
            self.graph
                .add(successors_of(body, block).iter().map(|to| to.0));
        }
        if self.walk(body.blocks.len()) {
            self.find_back_edges(body.blocks.len());
        }
    }

    /// The number of loops.
    pub(crate) fn loops(&mut self) -> u32 {
        self.heads().len() as u32
    }

    fn heads(&self) -> Vec<u32> {
        let mut heads: Vec<u32> = self.back.iter().map(|&(_, head)| head).collect();
        heads.sort_unstable();
        heads.dedup();
        heads
    }

    /// The places of blocks that a back edge leaves from, rising.
    pub(crate) fn latches(&self) -> Vec<u32> {
        let latches = self
            .back
            .iter()
            .map(|&(from, _)| self.places[from as usize]);
        let mut latches: Vec<u32> = latches.collect();
        latches.sort_unstable();
        latches.dedup();
        latches
    }

    /// Whether a loop is in another.
    pub(crate) fn is_nested(&mut self) -> bool {
        let heads = self.heads();
        if heads.len() < 2 {
            return false;
        }
        if heads.len() * self.places.len() > LOOP_WORK {
            return true;
        }
        self.know_predecessors();
        let heads: Vec<u32> = heads.iter().map(|&it| self.places[it as usize]).collect();
        let mut inside = vec![UNREACHED; self.order.len()];
        let mut work = Vec::new();
        heads.iter().any(|&head| {
            inside[head as usize] = head;
            let to = |&&(_, to): &&(u32, u32)| self.places[to as usize] == head;
            let latches = self.back.iter().filter(to);
            work.extend(latches.map(|&(from, _)| self.places[from as usize]));
            while let Some(block) = work.pop() {
                if std::mem::replace(&mut inside[block as usize], head) != head {
                    work.extend_from_slice(self.predecessors.of(block));
                }
            }
            let mut others = heads.iter().filter(|&&other| other != head);
            others.any(|&other| inside[other as usize] == head)
        })
    }

    /// Successors of a block of the body.
    pub(crate) fn successors(&self, block: u32) -> &[u32] {
        self.graph.successors(block)
    }

    /// The blocks that lead to one, once for each edge; all by place.
    pub(crate) fn predecessors(&mut self, place: u32) -> &[u32] {
        self.know_predecessors();
        self.predecessors.of(place)
    }

    /// Whether a block dominates another; both by place.
    pub(crate) fn dominates(&mut self, over: u32, place: u32) -> bool {
        if over == 0 || over == place {
            return true;
        }
        // A dominated block comes later.
        if over > place {
            return false;
        }
        self.know_dominance();
        self.dominance.dominates(over, place)
    }

    /// Finds the order; returns whether there is a cycle.
    fn walk(&mut self, blocks: usize) -> bool {
        self.states.clear();
        self.states.resize(blocks, State::New);
        self.places.resize(blocks, UNREACHED);
        // Successors are walked from the last, as the order is turned around.
        let mut cyclic = false;
        let leads = |graph: &Graph, block| graph.successors(block).len() as u32;
        self.stack.push((0, leads(&self.graph, 0)));
        self.states[0] = State::Open;
        while let Some((block, left)) = self.stack.last_mut() {
            let block = *block;
            if *left == 0 {
                self.states[block as usize] = State::Done;
                self.order.push(block);
                self.stack.pop();
                continue;
            }
            *left -= 1;
            let to = self.graph.successors(block)[*left as usize];
            match self.states[to as usize] {
                State::New => {
                    self.states[to as usize] = State::Open;
                    self.stack.push((to, leads(&self.graph, to)));
                }
                State::Open => cyclic = true,
                State::Done => {}
            }
        }
        self.order.reverse();
        for (place, &block) in (0..).zip(&self.order) {
            self.places[block as usize] = place;
        }
        cyclic
    }

    fn find_back_edges(&mut self, blocks: usize) {
        self.states.clear();
        self.states.resize(blocks, State::New);
        self.stack.push((0, 0));
        self.states[0] = State::Open;
        while let Some((block, next)) = self.stack.last_mut() {
            let block = *block;
            let Some(&to) = self.graph.successors(block).get(*next as usize) else {
                self.states[block as usize] = State::Done;
                self.stack.pop();
                continue;
            };
            *next += 1;
            match self.states[to as usize] {
                State::New => {
                    self.states[to as usize] = State::Open;
                    self.stack.push((to, 0));
                }
                State::Open => self.back.push((block, to)),
                State::Done => {}
            }
        }
    }

    fn know_predecessors(&mut self) {
        if std::mem::replace(&mut self.predecessors.known, true) {
            return;
        }
        let Predecessors { starts, list, .. } = &mut self.predecessors;
        starts.clear();
        starts.resize(self.order.len() + 1, 0);
        let edges = |block: u32| self.graph.successors(block).iter();
        for &block in &self.order {
            for &to in edges(block) {
                starts[self.places[to as usize] as usize + 1] += 1;
            }
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        list.clear();
        list.resize(starts[self.order.len()] as usize, 0);
        let mut next = starts.clone();
        for (place, &block) in (0..).zip(&self.order) {
            for &to in edges(block) {
                let next = &mut next[self.places[to as usize] as usize];
                list[*next as usize] = place;
                *next += 1;
            }
        }
    }

    fn know_dominance(&mut self) {
        if std::mem::replace(&mut self.knows_dominance, true) {
            return;
        }
        self.know_predecessors();
        // Successors by place.
        let mut places = Graph::default();
        for &block in &self.order {
            let to = self.graph.successors(block).iter();
            places.add(to.map(|&to| self.places[to as usize]));
        }
        self.dominance.find(
            self.order.len(),
            |place| places.successors(place),
            |place| self.predecessors.of(place),
        );
    }
}

impl Predecessors {
    fn of(&self, place: u32) -> &[u32] {
        let place = place as usize;
        &self.list[self.starts[place] as usize..self.starts[place + 1] as usize]
    }
}

fn successors_of(body: &Body, block: usize) -> &[uruk_bitcode::ir::BlockId] {
    // A block has one instruction at least, its terminator.
    let end = body.blocks[block].end as usize;
    successors(&body.instructions[end - 1].op)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(successors: &[&[u32]]) -> Flow {
        let mut flow = Flow::default();
        for list in successors {
            flow.graph.add(list.iter().copied());
        }
        if flow.walk(successors.len()) {
            flow.find_back_edges(successors.len());
        }
        flow
    }

    #[test]
    fn loops_are_counted_and_nest() {
        /// Edges of each block, loops, whether they are nested, latches.
        type Case<'a> = (&'a [&'a [u32]], u32, bool, &'a [u32]);
        let cases: [Case<'_>; 5] = [
            (&[&[1, 2], &[2], &[]], 0, false, &[]),
            (&[&[1], &[1, 2], &[2, 3], &[]], 2, false, &[1, 2]),
            (&[&[1], &[2, 4], &[2, 3], &[1], &[]], 2, true, &[2, 3]),
            (&[&[1, 2], &[2], &[1, 3], &[]], 1, false, &[1]),
            (&[&[2], &[1], &[]], 0, false, &[]),
        ];
        for (successors, loops, nested, latches) in cases {
            let mut flow = flow(successors);
            assert_eq!(flow.loops(), loops);
            assert_eq!(flow.is_nested(), nested);
            if loops != 1 {
                assert_eq!(flow.latches(), latches);
            }
        }
    }

    #[test]
    fn dominance_is_what_all_ways_go_through() {
        let mut state = 7u32;
        let mut random = move |below: u32| {
            state = state.wrapping_mul(1_103_515_245).wrapping_add(12345);
            (state >> 16) % below
        };
        for _ in 0..300 {
            let blocks = 2 + random(9);
            let edges: Vec<Vec<u32>> = (0..blocks)
                .map(|_| (0..random(3)).map(|_| 1 + random(blocks - 1)).collect())
                .collect();
            let lists: Vec<&[u32]> = edges.iter().map(Vec::as_slice).collect();
            let mut flow = flow(&lists);
            for over in 0..flow.order.len() as u32 {
                // The blocks reached without it.
                let without = flow.order[over as usize];
                let mut seen = vec![false; blocks as usize];
                let mut work = vec![0];
                while let Some(block) = work.pop() {
                    if block != without && !std::mem::replace(&mut seen[block as usize], true) {
                        work.extend_from_slice(&edges[block as usize]);
                    }
                }
                for place in 0..flow.order.len() as u32 {
                    let expected = !seen[flow.order[place as usize] as usize];
                    assert_eq!(flow.dominates(over, place), expected, "{edges:?}");
                }
            }
        }
    }
}
