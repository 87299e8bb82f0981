//! Tests of [`super::Space`]: a random life against a map of bytes.

use std::ops::Range;

use super::{LARGE, Space, WINDOW};
use crate::layout::PAGE;
use uruk_testing::Random;

const BASE: usize = 0x10_0000;

fn check(space: &Space) {
    let stats = space.stats();
    let sum = stats.used
        + stats.retired
        + stats.free
        + stats.fragmented
        + stats.frozen
        + stats.quarantined;
    assert_eq!(sum, stats.capacity, "{stats:?}");
}

/// Gives dead pages back at once.
fn recycle(space: &mut Space) -> usize {
    let whole = space.take_whole();
    let bytes = whole.iter().map(Range::len).sum();
    for run in whole {
        space.reuse(run);
    }
    bytes
}

#[test]
fn low_runs_are_preferred_to_new_memory() {
    let mut space = Space::new(BASE..BASE + (1 << 20));
    let blocks: Vec<usize> = (0..1024)
        .map(|_| space.allocate(256, 16).unwrap().start)
        .collect();
    assert_eq!(blocks[1023], BASE + 1023 * 256);
    for &block in &blocks[32..64] {
        space.retire(256);
        space.free(block, 256);
    }
    assert_eq!(recycle(&mut space), 2 * PAGE);
    check(&space);
    // The open window is filled first; it is full here.
    assert_eq!(space.allocate(256, 16).unwrap().start, blocks[32]);
    assert_eq!(space.allocate(LARGE, 16).unwrap().start, BASE + 4 * WINDOW);
    let aligned = space.allocate(16, 2 * PAGE).unwrap();
    assert!(aligned.start.is_multiple_of(2 * PAGE));
    assert_eq!(space.allocate(2 << 20, 16), None);
    check(&space);
}

#[test]
fn a_dropped_draft_at_the_end_is_used_again_and_is_dirty() {
    let mut space = Space::new(BASE..BASE + (1 << 20));
    let first = space.allocate(64, 16).unwrap().start;
    let second = space.allocate(6000, 16).unwrap();
    space.give_back(second.start, 6000);
    let again = space.allocate(7008, 16).unwrap();
    assert_eq!((again.start, again.dirty), (second.start, 6000));
    space.give_back(first, 64);
    space.give_back(again.start, 7008);
    check(&space);
    // Dirty pages of a closed window are the parent's.
    space.freeze_in_child();
    check(&space);
    assert_eq!(space.stats().used, 0);
    assert_eq!(space.stats().frozen, 2 * PAGE);
}

#[test]
fn frozen_pages_are_not_reused() {
    let mut space = Space::new(BASE..BASE + (1 << 20));
    let kept = space.allocate(5000 & !15, 16).unwrap().start;
    let low: Vec<usize> = (0..16)
        .map(|_| space.allocate(PAGE, PAGE).unwrap().start)
        .collect();
    space.retire(PAGE);
    space.free(low[3], PAGE);
    recycle(&mut space);
    let unused = space.freeze_in_child();
    check(&space);
    assert!(unused.start > low[15] && unused.end == BASE + (1 << 20));
    for &block in &low[4..6] {
        assert!(space.is_frozen(block));
        space.retire(PAGE);
        space.free(block, PAGE);
    }
    check(&space);
    assert!(space.take_whole().is_empty());
    assert!(space.is_frozen(kept) && space.is_frozen(low[3]));
    let fresh = space.allocate(64, 16).unwrap().start;
    assert!(unused.contains(&fresh) && !space.is_frozen(fresh));
}

/// A fork while another thread empties pages: they are frozen in the child, too.
#[test]
fn pages_in_the_limbo_at_a_fork_are_frozen() {
    let mut space = Space::new(BASE..BASE + (1 << 20));
    let block = space.allocate(4 * PAGE, PAGE).unwrap().start;
    space.retire(4 * PAGE);
    space.free(block, 4 * PAGE);
    let whole = space.take_whole();
    assert_eq!(whole.len(), 1);
    assert_eq!(whole[0], block..block + 4 * PAGE);
    space.freeze_in_child();
    check(&space);
    let stats = space.stats();
    assert_eq!((stats.frozen, stats.quarantined), (4 * PAGE, 0));
    assert_ne!(space.allocate(4 * PAGE, PAGE).unwrap().start, block);
}

#[test]
fn a_random_life_agrees_with_a_map() {
    const PAGES: usize = 128;
    let mut space = Space::new(BASE..BASE + PAGES * PAGE);
    // By granule: whether it belongs to a living block.
    let mut taken = [false; PAGES * PAGE / 16];
    let mut frozen = [false; PAGES];
    let mut blocks: Vec<(usize, usize)> = Vec::new();
    let mut limbo: Vec<Range<usize>> = Vec::new();
    let mut numbers = Random::new(0x2545_f491_4f6c_dd1d);
    let mut random = |below: usize| numbers.below(below);
    let granules = |start: usize, len: usize| (start - BASE) / 16..(start - BASE + len) / 16;
    for step in 0..60_000 {
        match random(100) {
            0..48 => {
                let large = random(30) == 0;
                let len = 16 * (1 + random(if large { 2000 } else { 40 }));
                let align = 16 << random(if large { 10 } else { 4 });
                let Some(grant) = space.allocate(len, align) else {
                    continue;
                };
                assert!(grant.start.is_multiple_of(align));
                for granule in granules(grant.start, len) {
                    assert!(!taken[granule], "handed out twice");
                    assert!(!frozen[granule * 16 / PAGE], "frozen");
                    taken[granule] = true;
                }
                let in_limbo =
                    |run: &Range<usize>| grant.start < run.end && run.start < grant.start + len;
                assert!(!limbo.iter().any(in_limbo));
                blocks.push((grant.start, len));
            }
            48..97 if !blocks.is_empty() => {
                let (start, len) = blocks.swap_remove(random(blocks.len()));
                taken[granules(start, len)].fill(false);
                if random(8) == 0 {
                    space.give_back(start, len);
                } else {
                    space.retire(len);
                    space.free(start, len);
                }
            }
            97 | 98 => limbo.extend(space.take_whole()),
            _ => {
                for run in limbo.drain(..) {
                    let pages = (run.start - BASE) / PAGE..(run.end - BASE) / PAGE;
                    for page in pages {
                        let granules = page * PAGE / 16..(page + 1) * PAGE / 16;
                        assert!(!taken[granules].contains(&true), "given back alive");
                    }
                    space.reuse(run);
                }
            }
        }
        if step == 40_000 {
            // In the child no thread is left to give these back.
            limbo.clear();
            space.freeze_in_child();
            for (page, frozen) in frozen.iter_mut().enumerate() {
                *frozen = space.is_frozen(BASE + page * PAGE);
                let granules = page * PAGE / 16..(page + 1) * PAGE / 16;
                assert!(*frozen || !taken[granules].contains(&true));
            }
        }
        check(&space);
    }
}
