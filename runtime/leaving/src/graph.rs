//! Blocks and edges of a body, and its loops.
//!
//! A back edge is an edge to a block that is still on the stack of a depth-first walk from the
//! entry; its target heads a loop. The loop's blocks are those from which the edge is reached
//! without passing the head. Both are the textbook's definitions for reducible flow; for
//! irreducible flow they still find one edge per cycle, which is all that counters need. A loop
//! with an entry beside its head is marked irreducible.

/// Limit of visited blocks times loops: beyond it the loops of a body are not computed.
const LOOP_WORK: usize = 4_000_000;

/// Successors by block.
#[derive(Debug)]
pub struct Graph {
    /// Successors of block `i` are `edges[starts[i]..starts[i + 1]]`.
    starts: Vec<u32>,
    edges: Vec<u32>,
}

/// Predecessors by block.
#[derive(Debug)]
pub struct Predecessors(Graph);

/// A natural loop.
#[derive(Debug)]
pub struct Loop {
    /// Its first block.
    pub head: u32,
    /// Blocks that lead back to the head.
    pub latches: Vec<u32>,
    /// By block.
    pub inside: Vec<bool>,
    /// Whether it has an entry beside its head.
    pub irreducible: bool,
    /// The index of the innermost loop around it.
    pub around: Option<usize>,
}

impl Default for Graph {
    fn default() -> Graph {
        Graph {
            starts: vec![0],
            edges: Vec::new(),
        }
    }
}

impl Graph {
    /// Removes all blocks; buffers keep their capacity.
    pub fn clear(&mut self) {
        self.starts.truncate(1);
        self.edges.clear();
    }

    /// Adds a block with its successors, which must be added too.
    pub fn add(&mut self, to: impl IntoIterator<Item = u32>) {
        self.edges.extend(to);
        self.starts.push(self.edges.len() as u32);
    }

    /// Number of blocks.
    #[expect(clippy::len_without_is_empty, reason = "there is an entry")]
    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// The successors of a block.
    pub fn successors(&self, block: u32) -> &[u32] {
        let block = block as usize;
        &self.edges[self.starts[block] as usize..self.starts[block + 1] as usize]
    }

    /// Computes the predecessors of each block, once per edge.
    pub fn predecessors(&self) -> Predecessors {
        let mut starts = vec![0u32; self.len() + 2];
        for &to in &self.edges {
            starts[to as usize + 2] += 1;
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut edges = vec![0; self.edges.len()];
        for block in 0..self.len() as u32 {
            for &to in self.successors(block) {
                let next = &mut starts[to as usize + 1];
                edges[*next as usize] = block;
                *next += 1;
            }
        }
        starts.pop();
        Predecessors(Graph { starts, edges })
    }

    /// The reachable blocks in reverse postorder, each before the blocks that it dominates; the
    /// first successor comes first.
    pub fn reverse_postorder(&self) -> Vec<u32> {
        let mut order = Vec::with_capacity(self.len());
        let mut seen = vec![false; self.len()];
        // Successors are walked from the last, as the order is reversed.
        let mut stack = vec![(0u32, self.successors(0).len())];
        seen[0] = true;
        while let Some((block, left)) = stack.last_mut() {
            let block = *block;
            let Some(next) = left.checked_sub(1) else {
                order.push(block);
                stack.pop();
                continue;
            };
            *left = next;
            let to = self.successors(block)[next];
            if !std::mem::replace(&mut seen[to as usize], true) {
                stack.push((to, self.successors(to).len()));
            }
        }
        order.reverse();
        order
    }

    /// Edges to a block on the stack of a depth-first walk, as (from, to).
    pub fn back_edges(&self) -> Vec<(u32, u32)> {
        #[derive(Clone, Copy, PartialEq)]
        enum State {
            New,
            Open,
            Done,
        }
        let mut found = Vec::new();
        if self.edges.is_empty() {
            return found;
        }
        let mut state = vec![State::New; self.len()];
        let mut stack = vec![(0u32, 0usize)];
        state[0] = State::Open;
        while let Some((block, next)) = stack.last_mut() {
            let block = *block;
            let Some(&to) = self.successors(block).get(*next) else {
                state[block as usize] = State::Done;
                stack.pop();
                continue;
            };
            *next += 1;
            match state[to as usize] {
                State::New => {
                    state[to as usize] = State::Open;
                    stack.push((to, 0));
                }
                State::Open => found.push((block, to)),
                State::Done => {}
            }
        }
        found
    }

    /// The loops of these back edges, by their heads; `None` if there are too many.
    pub fn loops(&self, back: &[(u32, u32)]) -> Option<Vec<Loop>> {
        let mut heads: Vec<u32> = back.iter().map(|&(_, head)| head).collect();
        heads.sort_unstable();
        heads.dedup();
        if heads.is_empty() {
            return Some(Vec::new());
        }
        if heads.len() * self.len() > LOOP_WORK {
            return None;
        }
        let predecessors = self.predecessors();
        let mut loops: Vec<Loop> = heads
            .iter()
            .map(|&head| {
                let latches = back.iter().filter(|&&(_, to)| to == head);
                let mut latches: Vec<u32> = latches.map(|&(latch, _)| latch).collect();
                latches.sort_unstable();
                latches.dedup();
                let mut inside = vec![false; self.len()];
                inside[head as usize] = true;
                let mut work = latches.clone();
                while let Some(block) = work.pop() {
                    if !std::mem::replace(&mut inside[block as usize], true) {
                        work.extend(predecessors.of(block));
                    }
                }
                Loop {
                    head,
                    latches,
                    // If the entry is not in the loop, every path to the loop passes its head; the
                    // entry has no predecessors.
                    irreducible: head == 0 || inside[0],
                    inside,
                    around: None,
                }
            })
            .collect();
        let sizes: Vec<usize> = loops
            .iter()
            .map(|it| it.inside.iter().filter(|&&inside| inside).count())
            .collect();
        for index in 0..loops.len() {
            let head = loops[index].head as usize;
            let around = |&other: &usize| other != index && loops[other].inside[head];
            let least = (0..loops.len()).filter(around).min_by_key(|&it| sizes[it]);
            loops[index].around = least;
        }
        Some(loops)
    }
}

impl Predecessors {
    /// The predecessors of a block, rising, once for each edge.
    pub fn of(&self, block: u32) -> &[u32] {
        self.0.successors(block)
    }
}

/// The loops around a loop, from the inside out, without itself. In irreducible flow two loops can
/// be around each other: each occurs once.
pub fn around(loops: &[Loop], index: usize) -> Vec<usize> {
    let mut found = Vec::new();
    let mut next = loops[index].around;
    while let Some(outer) = next.filter(|it| *it != index && !found.contains(it)) {
        found.push(outer);
        next = loops[outer].around;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(successors: &[&[u32]]) -> Graph {
        let mut graph = Graph::default();
        for list in successors {
            graph.add(list.iter().copied());
        }
        graph
    }

    /// Pairs of blocks: edges, or loops and their outer loops, by their heads.
    type Pairs<T> = Vec<(u32, T)>;

    /// Back edges, and the loop around each loop.
    fn check(successors: &[&[u32]]) -> (Pairs<u32>, Pairs<Option<u32>>) {
        let graph = graph(successors);
        let mut back = graph.back_edges();
        back.sort_unstable();
        let loops = graph.loops(&back).expect("few");
        let nest = |it: &Loop| (it.head, it.around.map(|outer| loops[outer].head));
        (back, loops.iter().map(nest).collect())
    }

    #[test]
    fn straight_code_has_no_loop() {
        assert_eq!(check(&[&[1, 2], &[2], &[]]), (vec![], vec![]));
    }

    #[test]
    fn loops_one_after_the_other_do_not_nest() {
        let flow: [&[u32]; 4] = [&[1], &[1, 2], &[2, 3], &[]];
        let nest = vec![(1, None), (2, None)];
        assert_eq!(check(&flow), (vec![(1, 1), (2, 2)], nest));
    }

    #[test]
    fn a_loop_in_a_loop_nests() {
        let flow: [&[u32]; 5] = [&[1], &[2, 4], &[2, 3], &[1], &[]];
        let nest = vec![(1, None), (2, Some(1))];
        assert_eq!(check(&flow), (vec![(2, 2), (3, 1)], nest));
    }

    #[test]
    fn every_cycle_is_cut_in_irreducible_flow() {
        let flow: [&[u32]; 4] = [&[1, 2], &[2], &[1, 3], &[]];
        let graph = graph(&flow);
        let back = graph.back_edges();
        assert_eq!(back.len(), 1);
        assert!(graph.loops(&back).expect("few")[0].irreducible);
    }
}
