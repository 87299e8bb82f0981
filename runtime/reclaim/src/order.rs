//! The order in which live blocks are copied: hot ones first, callees behind their callers.
//!
//! Call-chain clustering (C3): G. Ottoni, B. Maher, *Optimizing Function Placement for
//! Large-Scale Data-Center Applications*, CGO 2017; `hfsort` of HHVM. Chosen over
//! Pettis-Hansen, because a call fetches the callee ahead of the caller's next lines only
//! in one direction: C3 keeps caller before callee, Pettis-Hansen merges without regard to
//! it; and because each block is merged once, after its heaviest caller, in
//! `O(n log n + m)`.
//!
//! 1. Each block with heat is a cluster.
//! 2. Blocks from the densest (`heat / bytes`) down: the cluster of the block is appended to
//!    that of its heaviest caller, unless they are one, together they exceed
//!    `cluster_bytes`, or the caller's cluster would lose more than 7/8 of its density.
//! 3. Clusters from the densest down; then cold blocks, by address.
//!
//! Ties go by position in the input, so equal input gives equal output.

use std::cmp::Ordering;

use crate::ids::BlockId;

/// A block to be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// The block.
    pub id: BlockId,
    /// Its address; the order of cold blocks.
    pub start: u64,
    /// Its size.
    pub bytes: u64,
    /// Execution count; 0 is cold.
    pub heat: u64,
}

/// A call edge. Of several edges between the same two the heaviest counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge<T> {
    /// The caller.
    pub from: T,
    /// The callee.
    pub to: T,
    /// Number of calls.
    pub weight: u64,
}

/// Maximal factor by which the density may fall when a cluster grows.
const DEGRADATION: u64 = 8;

/// Heat by byte, compared without rounding.
#[derive(Clone, Copy)]
struct Density {
    heat: u64,
    bytes: u64,
}

impl Density {
    fn compare(self, other: Density) -> Ordering {
        let left = u128::from(self.heat) * u128::from(other.bytes.max(1));
        left.cmp(&(u128::from(other.heat) * u128::from(self.bytes.max(1))))
    }

    fn joined(self, other: Density) -> Density {
        Density {
            heat: self.heat.saturating_add(other.heat),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }
}

struct Cluster {
    members: Vec<u32>,
    density: Density,
}

/// All blocks of `nodes`, each once, in the order of placement. Edges are between positions in
/// `nodes`; others are ignored.
pub fn order(nodes: &[Node], edges: &[Edge<usize>], cluster_bytes: u64) -> Vec<BlockId> {
    let density = |at: usize| Density {
        heat: nodes[at].heat,
        bytes: nodes[at].bytes,
    };
    let callers = heaviest_callers(nodes, edges);
    let mut hot: Vec<usize> = (0..nodes.len()).filter(|&at| nodes[at].heat > 0).collect();
    hot.sort_by(|&a, &b| density(b).compare(density(a)));

    let mut cluster_of: Vec<u32> = (0..nodes.len() as u32).collect();
    let mut clusters: Vec<Cluster> = (0..nodes.len())
        .map(|at| Cluster {
            members: if nodes[at].heat > 0 {
                vec![at as u32]
            } else {
                vec![]
            },
            density: density(at),
        })
        .collect();
    for &at in &hot {
        let Some(caller) = callers[at] else { continue };
        let (into, from) = (root(&mut cluster_of, caller), root(&mut cluster_of, at));
        let (caller, callee) = (
            clusters[into as usize].density,
            clusters[from as usize].density,
        );
        let joined = caller.joined(callee);
        let thinner = Density {
            heat: joined.heat.saturating_mul(DEGRADATION),
            bytes: joined.bytes,
        };
        let too_thin = thinner.compare(caller) == Ordering::Less;
        if into == from || joined.bytes > cluster_bytes || too_thin {
            continue;
        }
        let members = std::mem::take(&mut clusters[from as usize].members);
        cluster_of[from as usize] = into;
        clusters[into as usize].members.extend(members);
        clusters[into as usize].density = joined;
    }
    clusters.retain(|cluster| !cluster.members.is_empty());
    clusters.sort_by(|a, b| b.density.compare(a.density));

    let mut cold: Vec<&Node> = nodes.iter().filter(|node| node.heat == 0).collect();
    cold.sort_by_key(|node| node.start);
    let hot = clusters.iter().flat_map(|cluster| &cluster.members);
    hot.map(|&at| nodes[at as usize].id)
        .chain(cold.into_iter().map(|node| node.id))
        .collect()
}

/// The cluster a block is in; paths are halved on the way.
fn root(cluster_of: &mut [u32], at: usize) -> u32 {
    let mut at = at;
    while cluster_of[at] as usize != at {
        cluster_of[at] = cluster_of[cluster_of[at] as usize];
        at = cluster_of[at] as usize;
    }
    at as u32
}

/// The caller with the heaviest edge into each node, among hot ones and not itself.
fn heaviest_callers(nodes: &[Node], edges: &[Edge<usize>]) -> Vec<Option<usize>> {
    let mut callers: Vec<Option<(u64, usize)>> = vec![None; nodes.len()];
    for edge in edges {
        let hot = |at: usize| nodes.get(at).is_some_and(|node| node.heat > 0);
        if edge.from == edge.to || edge.weight == 0 || !hot(edge.from) || !hot(edge.to) {
            continue;
        }
        let best = &mut callers[edge.to];
        let better = best.is_none_or(|(weight, from)| {
            (edge.weight, std::cmp::Reverse(edge.from)) > (weight, std::cmp::Reverse(from))
        });
        if better {
            *best = Some((edge.weight, edge.from));
        }
    }
    callers.into_iter().map(|best| Some(best?.1)).collect()
}
