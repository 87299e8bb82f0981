//! The count of kernel mappings after forks. One test, because it finds the
//! heap's alias by its name among all mappings of the process.

use uruk_heap::{BackingChoice, DUAL_MAPPINGS, Heap, PAGE};

mod support;

use support::{all_mappings, fork, function, heap, wait};

/// Mappings each generation may add: a split of stubs, of each code space and
/// of read-only data, in the view and in the alias.
const PER_GENERATION: usize = 9;

fn nested(heap: &Heap, alias: (u64, u64), depth: usize) -> Result<(), String> {
    let reservation = (heap.base(), heap.base() + heap.size() as u64);
    let all = all_mappings();
    let ours = all.iter().filter(|mapping| {
        [reservation, alias]
            .iter()
            .any(|&(start, end)| mapping.start < end && mapping.end > start)
    });
    let (claimed, count) = (heap.stats().mappings, ours.count());
    if claimed != Some(count) || count > DUAL_MAPPINGS + PER_GENERATION * depth {
        return Err(format!(
            "{claimed:?} mappings claimed at depth {depth}, have {count}"
        ));
    }
    if depth == 6 {
        return Ok(());
    }
    for n in 0..1000 {
        function(heap, n)
            .map(drop)
            .map_err(|error| error.to_string())?;
    }
    let stubs = heap.stub_region();
    stubs
        .commit_stub_pages(stubs.committed(), &[0xcc; PAGE], 2)
        .map_err(|error| error.to_string())?;
    wait(fork(heap, || nested(heap, alias, depth + 1)));
    Ok(())
}

#[test]
fn the_child_counts_its_mappings_right() {
    let heap = heap(BackingChoice::Dual);
    let all = all_mappings();
    let alias = |m: &&support::Mapping| m.name.contains("uruk") && m.protection == "rw-s";
    let alias = all.iter().find(alias).unwrap();
    // The alias with its guards.
    let page = PAGE as u64;
    nested(&heap, (alias.start - page, alias.end + page), 0).unwrap();
}
