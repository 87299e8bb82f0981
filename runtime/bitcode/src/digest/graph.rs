//! Digests of entries that mention each other.
//!
//! The digest of an entry covers everything that can be reached from it. Entries that reach each other
//! form strongly connected components (R. Tarjan, "Depth-First Search and Linear Graph Algorithms",
//! 1972). Rounds of refinement distinguish the entries of a component, like colors in tests of graphs
//! for isomorphism, and every digest covers the whole component.

use super::{Digest, Writer};
use crate::module::Refused;

/// Rounds of refinement in a component.
const ROUNDS: usize = 16;

/// An entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    /// Its contents, without the entries that it mentions.
    pub(super) content: Digest,
    /// Entries that it mentions, in their order.
    pub(super) children: Box<[u32]>,
}

/// The digests of `nodes`, the first of which has the number `first`. Entries of lower numbers have the
/// digests `below`.
pub(super) fn digests(
    below: &[Digest],
    first: u32,
    nodes: &[Node],
) -> Result<Vec<Digest>, Refused> {
    let known = |child: &u32| {
        let own = child.checked_sub(first);
        (*child as usize) < below.len() || own.is_some_and(|it| (it as usize) < nodes.len())
    };
    if !nodes.iter().all(|node| node.children.iter().all(known)) {
        return Err(Refused::OutOfRange);
    }
    let mut walk = Components {
        below,
        first,
        nodes,
        digests: vec![Digest([0; 32]); nodes.len()],
        order: vec![0; nodes.len()],
        low: vec![0; nodes.len()],
        count: 0,
        open: Vec::new(),
        is_open: vec![false; nodes.len()],
    };
    for root in 0..nodes.len() as u32 {
        if walk.order[root as usize] == 0 {
            walk.from(root);
        }
    }
    Ok(walk.digests)
}

struct Components<'a> {
    below: &'a [Digest],
    first: u32,
    nodes: &'a [Node],
    digests: Vec<Digest>,
    /// Order in which nodes were visited, from 1 on.
    order: Vec<u32>,
    /// The earliest node that is known to be reachable from it.
    low: Vec<u32>,
    count: u32,
    /// Nodes whose component is not complete.
    open: Vec<u32>,
    is_open: Vec<bool>,
}

impl Components<'_> {
    fn from(&mut self, root: u32) {
        // Nodes, each with the index of its next child.
        let mut path = vec![(root, 0)];
        self.meet(root);
        while let Some((node, next)) = path.last_mut() {
            let at = *node as usize;
            let Some(&child) = self.nodes[at].children.get(*next) else {
                path.pop();
                if let Some(&(parent, _)) = path.last() {
                    let parent = parent as usize;
                    self.low[parent] = self.low[parent].min(self.low[at]);
                }
                if self.low[at] == self.order[at] {
                    self.close(at as u32);
                }
                continue;
            };
            *next += 1;
            let Some(child) = self.own(child) else {
                continue;
            };
            if self.order[child as usize] == 0 {
                self.meet(child);
                path.push((child, 0));
            } else if self.is_open[child as usize] {
                self.low[at] = self.low[at].min(self.order[child as usize]);
            }
        }
    }

    fn meet(&mut self, node: u32) {
        self.count += 1;
        self.order[node as usize] = self.count;
        self.low[node as usize] = self.count;
        self.open.push(node);
        self.is_open[node as usize] = true;
    }

    /// The index of a node, if it is not in `below`.
    fn own(&self, child: u32) -> Option<u32> {
        child.checked_sub(self.first)
    }

    /// Computes the digests of a component whose first visited node is `node`.
    fn close(&mut self, node: u32) {
        let start = self.open.iter().rposition(|&it| it == node);
        let component = self.open.split_off(start.unwrap_or_default());
        for &one in &component {
            self.is_open[one as usize] = false;
        }
        let is_circle = component.len() > 1
            || self.nodes[node as usize]
                .children
                .iter()
                .any(|&child| self.own(child) == Some(node));
        if !is_circle {
            self.digests[node as usize] = self.one(node);
            return;
        }
        // Each digest begins with the node's content alone.
        for &one in &component {
            self.digests[one as usize] = self.nodes[one as usize].content;
        }
        for _ in 0..component.len().min(ROUNDS) {
            let refined: Vec<Digest> = component.iter().map(|&it| self.one(it)).collect();
            for (&one, refined) in component.iter().zip(refined) {
                self.digests[one as usize] = refined;
            }
        }
        let mut all: Vec<Digest> = component
            .iter()
            .map(|&it| self.digests[it as usize])
            .collect();
        all.sort_unstable();
        let mut together = Writer::default();
        for &one in &all {
            together.entry(one);
        }
        let together = together.digest();
        for &one in &component {
            let mut writer = Writer::default();
            writer.entry(self.digests[one as usize]);
            writer.entry(together);
            self.digests[one as usize] = writer.digest();
        }
    }

    /// The digest of a node from the current digests of its children.
    fn one(&self, node: u32) -> Digest {
        let node = &self.nodes[node as usize];
        let mut writer = Writer::default();
        writer.entry(node.content);
        for &child in &node.children {
            writer.entry(match self.own(child) {
                Some(own) => self.digests[own as usize],
                None => self.below[child as usize],
            });
        }
        writer.digest()
    }
}
