//! The dependence graph against a naive fixpoint, and its cost.

#![allow(unexpected_cfgs, reason = "loom")]
#![cfg(not(loom))]

use std::collections::BTreeSet;
use std::time::Duration;

use uruk_session::graph::{Graph, NodeId};
use uruk_testing::Random;

/// The definition: a node is ready when it reaches no open node.
#[derive(Default)]
struct Oracle {
    emitted: Vec<Option<Vec<usize>>>,
    gone: BTreeSet<usize>,
}

impl Oracle {
    fn reaches(&self, from: usize, stop: impl Fn(usize) -> bool) -> bool {
        let mut seen = BTreeSet::new();
        let mut stack = vec![from];
        while let Some(node) = stack.pop() {
            if self.gone.contains(&node) || !seen.insert(node) {
                continue;
            }
            if stop(node) {
                return true;
            }
            stack.extend(self.emitted[node].iter().flatten());
        }
        false
    }

    fn newly_ready(&mut self) -> BTreeSet<usize> {
        let ready: BTreeSet<usize> = (0..self.emitted.len())
            .filter(|n| !self.gone.contains(n))
            .filter(|n| !self.reaches(*n, |m| self.emitted[m].is_none()))
            .collect();
        self.gone.extend(&ready);
        ready
    }

    fn fail(&mut self, node: usize) -> BTreeSet<usize> {
        let failed: BTreeSet<usize> = (0..self.emitted.len())
            .filter(|n| self.reaches(*n, |m| m == node))
            .collect();
        self.gone.extend(&failed);
        failed
    }
}

fn check_random(seed: u64, nodes: usize, degree: usize) {
    let mut random = Random::new(seed);
    let mut graph = Graph::new();
    let ids: Vec<NodeId> = (0..nodes).map(|n| graph.add(n)).collect();
    let mut oracle = Oracle {
        emitted: vec![None; nodes],
        ..Oracle::default()
    };
    let mut order: Vec<usize> = (0..nodes).collect();
    for n in (1..nodes).rev() {
        order.swap(n, random.below(n + 1));
    }
    for node in order {
        if oracle.gone.contains(&node) {
            continue;
        }
        if random.below(12) == 0 {
            let failed: BTreeSet<usize> = graph.fail([ids[node]]).into_iter().collect();
            assert_eq!(failed, oracle.fail(node), "seed {seed}: failing {node}");
            continue;
        }
        let mut below = Vec::new();
        for _ in 0..random.below(degree + 1) {
            below.push(random.below(nodes));
        }
        let below_ids: Vec<NodeId> = below.iter().map(|n| ids[*n]).collect();
        let mut ready = Vec::new();
        graph.emit(ids[node], &below_ids, &mut ready);
        oracle.emitted[node] = Some(below);
        let unique: BTreeSet<usize> = ready.iter().copied().collect();
        assert_eq!(unique.len(), ready.len());
        assert_eq!(unique, oracle.newly_ready(), "seed {seed}: emitting {node}");
        if random.below(4) == 0 {
            let probe = random.below(nodes);
            let expected: BTreeSet<usize> = (0..nodes)
                .filter(|open| oracle.emitted[*open].is_none() && !oracle.gone.contains(open))
                .filter(|open| oracle.reaches(probe, |m| m == *open))
                .collect();
            let found: BTreeSet<usize> = graph.waits_for(ids[probe]).into_iter().collect();
            assert_eq!(found, expected, "seed {seed}: what {probe} waits for");
            let expected: BTreeSet<usize> = (0..nodes)
                .filter(|n| oracle.reaches(*n, |m| m == probe))
                .collect();
            let found: BTreeSet<usize> = graph.dependents(ids[probe]).into_iter().collect();
            assert_eq!(found, expected, "seed {seed}: who depends on {probe}");
        }
    }
    assert_eq!(graph.len(), nodes - oracle.gone.len());
}

#[test]
fn agrees_with_the_fixpoint() {
    for seed in 0..3_000 {
        check_random(seed, 2 + seed as usize % 40, 1 + seed as usize % 4);
    }
}

#[test]
fn nodes_are_reused_safely() {
    let mut random = Random::new(5);
    let mut graph: Graph<usize> = Graph::new();
    let mut open: Vec<(NodeId, usize)> = Vec::new();
    for n in 0..20_000 {
        open.push((graph.add(n), n));
        if open.len() > 30 {
            let (node, _) = open.swap_remove(random.below(open.len()));
            let below: Vec<NodeId> = (0..random.below(3))
                .map(|_| open[random.below(open.len())].0)
                .collect();
            let mut ready = Vec::new();
            match random.below(8) {
                0 => drop(graph.fail([node])),
                _ => graph.emit(node, &below, &mut ready),
            }
            open.retain(|(id, _)| graph.is_pending(*id));
        }
    }
    let rest: Vec<NodeId> = open.iter().map(|(id, _)| *id).collect();
    let mut ready = Vec::new();
    for node in rest {
        graph.emit(node, &[], &mut ready);
    }
    assert!(graph.is_empty(), "{} nodes left", graph.len());
}

#[test]
fn zig_zag_and_shared_sets() {
    // a -> b -> c, emitted c, a, b; then a group in front of two open nodes.
    let mut graph = Graph::new();
    let [a, b, c, x, y] = ["a", "b", "c", "x", "y"].map(|name| graph.add(name));
    let mut ready = Vec::new();
    graph.emit(c, &[x], &mut ready);
    graph.emit(a, &[b], &mut ready);
    let group = graph.add_group();
    graph.emit(group, &[x, y, c], &mut ready);
    graph.emit(b, &[c, group, a], &mut ready);
    assert!(ready.is_empty());
    // Emitting again changes nothing.
    graph.emit(b, &[], &mut ready);
    graph.emit(x, &[a], &mut ready);
    assert!(ready.is_empty());
    graph.emit(y, &[b], &mut ready);
    ready.sort_unstable();
    assert_eq!(ready, ["a", "b", "c", "x", "y"]);
    assert!(graph.is_empty());
}

/// Time the thread was on a processor: others may have it for long.
fn on_processor() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("readable");
    let first = text.split(' ').next().expect("a number");
    Duration::from_nanos(first.parse().expect("nanoseconds"))
}

/// Compares the time of one graph of `count` nodes with as many nodes in small graphs: quadratic
/// work would take `PARTS` times as long. Uses processor time, so that other load does not matter.
fn grows_gently(what: &str, count: usize, run: impl Fn(usize)) {
    const PARTS: usize = 32;
    let timed = |times, count| {
        let start = on_processor();
        (0..times).for_each(|_| run(count));
        on_processor() - start
    };
    let (small, whole) = (timed(PARTS, count / PARTS), timed(1, count));
    println!("{what}: {whole:?}, in parts {small:?}");
    // The clock counts ticks of the kernel; what does not fit the caches takes longer.
    let most = 10 * small + Duration::from_millis(100);
    assert!(whole < most, "{what}: {whole:?}, in parts {small:?}");
}

fn chain(count: usize, forwards: bool) {
    let mut graph = Graph::new();
    let ids: Vec<NodeId> = (0..count).map(|n| graph.add(n)).collect();
    let mut ready = Vec::new();
    let mut each = |n: usize| graph.emit(ids[n], &[ids[n + 1]], &mut ready);
    match forwards {
        true => (0..count - 1).for_each(&mut each),
        false => (0..count - 1).rev().for_each(&mut each),
    }
    graph.emit(ids[count - 1], &[], &mut ready);
    assert_eq!(ready.len(), count);
}

fn ring(count: usize, forwards: bool) {
    let mut graph = Graph::new();
    let ids: Vec<NodeId> = (0..count).map(|n| graph.add(n)).collect();
    let mut ready = Vec::new();
    let mut each = |n: usize| graph.emit(ids[n], &[ids[(n + 1) % count]], &mut ready);
    match forwards {
        true => (0..count).for_each(&mut each),
        false => (0..count).rev().for_each(&mut each),
    }
    assert_eq!(ready.len(), count);
}

fn at_random(count: usize) {
    let mut random = Random::new(1);
    let mut graph = Graph::new();
    let ids: Vec<NodeId> = (0..count).map(|n| graph.add(n)).collect();
    let mut ready = Vec::new();
    for node in &ids {
        let below: Vec<NodeId> = (0..3).map(|_| ids[random.below(count)]).collect();
        graph.emit(*node, &below, &mut ready);
    }
    assert_eq!(ready.len(), count);
}

#[test]
fn large_shapes_are_cheap() {
    for forwards in [true, false] {
        let what = "chain behind one open node";
        grows_gently(what, 64_000, |count| chain(count, forwards));
        grows_gently("ring", 64_000, |count| ring(count, forwards));
    }
    grows_gently("three edges a node", 100_000, at_random);
}
