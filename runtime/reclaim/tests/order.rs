//! Orders of evacuation: by example, as a permutation, and how long one takes.
#![allow(unexpected_cfgs, reason = "loom")]
#![cfg(not(loom))]

use std::time::Duration;

use uruk_reclaim::{BlockId, Edge, Node, order};
use uruk_testing::Random;

const PAGE: u64 = 4096;

fn nodes(parts: &[(u64, u64)]) -> Vec<Node> {
    let node = |(at, &(bytes, heat)): (usize, &(u64, u64))| Node {
        id: BlockId(at as u64),
        start: 0x1000 * (at as u64 + 1),
        bytes,
        heat,
    };
    parts.iter().enumerate().map(node).collect()
}

fn check(nodes: &[Node], edges: &[(usize, usize, u64)], expected: &[u64]) {
    let edge = |&(from, to, weight): &(usize, usize, u64)| Edge { from, to, weight };
    let edges: Vec<Edge<usize>> = edges.iter().map(edge).collect();
    let got: Vec<u64> = order(nodes, &edges, PAGE).iter().map(|id| id.0).collect();
    assert_eq!(got, expected);
}

#[test]
fn hot_ones_come_first_and_cold_ones_keep_their_order() {
    let mut nodes = nodes(&[(100, 0), (100, 5), (100, 0), (100, 9), (50, 4)]);
    check(&nodes, &[], &[3, 4, 1, 0, 2]);
    nodes[0].start = 0x9000;
    check(&nodes, &[], &[3, 4, 1, 2, 0]);
    check(&[], &[], &[]);
}

#[test]
fn callees_follow_their_heaviest_caller() {
    let nodes = nodes(&[(100, 20), (100, 40), (100, 30), (100, 10)]);
    // 3 calls 0 more often than 1 does; 2 stands alone.
    check(&nodes, &[(1, 0, 5), (3, 0, 9)], &[1, 2, 3, 0]);
    // A chain, whatever the order of the edges.
    check(&nodes, &[(2, 3, 1), (0, 1, 8), (1, 2, 7)], &[0, 1, 2, 3]);
    check(&nodes, &[(1, 2, 7), (2, 3, 1), (0, 1, 8)], &[0, 1, 2, 3]);
    // A cycle is cut; calls to oneself and to unknown blocks do not count.
    check(
        &nodes,
        &[(0, 1, 8), (1, 0, 8), (2, 2, 99), (7, 3, 9)],
        &[0, 1, 2, 3],
    );
}

#[test]
fn clusters_are_bounded_in_size_and_thinness() {
    // Both halves fill a page and a bit.
    check(&nodes(&[(2100, 20), (2100, 40)]), &[(0, 1, 9)], &[1, 0]);
    check(&nodes(&[(2000, 20), (2000, 40)]), &[(0, 1, 9)], &[0, 1]);
    // A small hot caller would be thinned by more than 8 times by its large callee.
    let thin = [(10, 100), (1000, 2), (50, 10)];
    check(&nodes(&thin), &[(0, 1, 2)], &[0, 2, 1]);
    let bearable = [(10, 100), (60, 2), (50, 10)];
    check(&nodes(&bearable), &[(0, 1, 2)], &[0, 1, 2]);
}

/// 2,000 blocks and 10,000 calls, from a seed.
fn large(seed: u64) -> (Vec<Node>, Vec<Edge<usize>>) {
    let mut bytes = vec![0; 2_000 * 4 + 10_000 * 5];
    Random::new(seed).fill(&mut bytes);
    let wide = |at: usize| usize::from(bytes[at]) << 8 | usize::from(bytes[at + 1]);
    let parts = (0..2_000).map(|at| {
        (
            64 + wide(at * 4) as u64 % 2_000,
            u64::from(bytes[at * 4 + 2]),
        )
    });
    let parts: Vec<(u64, u64)> = parts.collect();
    let edge = |at: usize| Edge {
        from: wide(8_000 + at * 5) % 2_000,
        to: wide(8_002 + at * 5) % 2_000,
        weight: u64::from(bytes[8_004 + at * 5]),
    };
    (nodes(&parts), (0..10_000).map(edge).collect())
}

#[test]
fn every_block_is_placed_once_and_equally_each_time() {
    for seed in 0..20 {
        let (nodes, edges) = large(seed);
        let placed = order(&nodes, &edges, PAGE);
        assert_eq!(placed, order(&nodes, &edges, PAGE));
        let mut sorted = placed.clone();
        sorted.sort_unstable();
        assert!(sorted.iter().copied().eq((0..2_000).map(BlockId)));
        // Most heavy calls end up close to each other; by chance, few would.
        let mut at = vec![0; nodes.len()];
        for (place, id) in placed.iter().enumerate() {
            at[id.0 as usize] = place;
        }
        let hot = |edge: &&Edge<usize>| nodes[edge.from].heat > 0 && nodes[edge.to].heat > 0;
        let heavy = edges.iter().filter(hot).filter(|edge| edge.weight > 250);
        let (mut close, mut all) = (0, 0);
        for edge in heavy {
            all += 1;
            close += u32::from(at[edge.from].abs_diff(at[edge.to]) < 8);
        }
        assert!(close * 8 > all, "{close} of {all}");
    }
}

/// Time the thread was on a processor, to about a tick of the kernel: others may have it for long.
fn on_processor() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("readable");
    let first = text.split(' ').next().expect("a number");
    Duration::from_nanos(first.parse().expect("nanoseconds"))
}

/// Under 1 ms in release builds; the bound here is for a slow machine's debug build.
#[test]
fn orders_are_fast() {
    const ROUNDS: u32 = 20;
    let (nodes, edges) = large(7);
    let start = on_processor();
    for _ in 0..ROUNDS {
        assert_eq!(order(&nodes, &edges, PAGE).len(), nodes.len());
    }
    let each = ((on_processor() - start) / ROUNDS).as_micros();
    println!("2,000 blocks and 10,000 calls: {each} us");
    assert!(each < 20_000, "{each} us");
}
