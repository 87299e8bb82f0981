//! The places of heaps are unpredictable. These tests look at the whole process, so those of this
//! file take turns.

use std::collections::BTreeSet;
use std::sync::Mutex;

use uruk_heap::{BackingChoice, Heap, HeapConfig, MAX_LOW_RESERVATION, PAGE, Place, Pool};

mod support;

use support::{Mapping, all_mappings, call, fork, function, wait};

static TURN: Mutex<()> = Mutex::new(());

fn made(place: Place) -> Heap {
    let mut config = HeapConfig::default();
    config.place = place;
    config.backing = BackingChoice::Dual;
    Heap::new(config).unwrap()
}

/// The only alias in the process, between its neighbours.
fn alias() -> [Mapping; 3] {
    let all = all_mappings();
    let is_alias = |m: &Mapping| m.name.contains("uruk") && m.protection == "rw-s";
    let at = all.iter().position(is_alias).unwrap();
    let around = all[at - 1..=at + 1].to_vec();
    around.try_into().unwrap()
}

#[test]
fn slots_and_the_alias_are_elsewhere_each_time() {
    let _turn = TURN.lock();
    let (mut slots, mut aliases, mut between) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    const HEAPS: usize = 14;
    for n in 0..HEAPS {
        let heap = made(Place::Random);
        assert_eq!(call(function(&heap, n as u32).unwrap().address()), n as u32);
        let here = heap.stub_region().slots_base();
        let there = alias()[1].start;
        slots.insert(here);
        aliases.insert(there);
        between.insert(there.wrapping_sub(here));
    }
    assert_eq!(
        (slots.len(), aliases.len(), between.len()),
        (HEAPS, HEAPS, HEAPS)
    );
}

#[test]
fn the_alias_is_guarded() {
    let _turn = TURN.lock();
    let heap = made(Place::Random);
    let [before, alias, after] = alias();
    for (guard, distance) in [
        (&before, alias.start - before.end),
        (&after, after.start - alias.end),
    ] {
        assert_eq!(
            (guard.protection.as_str(), distance),
            ("---p", 0),
            "{guard:x?}"
        );
        assert!(guard.end - guard.start >= PAGE as u64);
    }
    drop(heap);
}

/// Protection of the only alias in the process.
fn protection() -> String {
    let all = all_mappings();
    let of_file = |m: &&Mapping| m.name.contains("uruk");
    let mut kinds = all
        .into_iter()
        .filter(|m| of_file(&m))
        .map(|m| m.protection);
    kinds
        .find(|kind| !["r-xs", "r--s"].contains(&&**kind))
        .unwrap()
}

#[test]
fn the_alias_is_closed_when_nothing_is_written() {
    let _turn = TURN.lock();
    let heap = made(Place::Random);
    let code = function(&heap, 4).unwrap();
    assert_eq!(protection(), "rw-s");
    assert!(!heap.rest(), "something was written");
    assert!(heap.rest());
    assert_eq!(protection(), "---s");
    assert!(heap.rest());
    assert_eq!(call(code.address()), 4);
    // Every kind of write opens it.
    assert_eq!(call(function(&heap, 5).unwrap().address()), 5);
    assert_eq!(protection(), "rw-s");
    for write in [
        |heap: &Heap| {
            heap.stub_region()
                .commit_stub_pages(0, &[0xcc; PAGE], 2)
                .unwrap()
        },
        |heap: &Heap| drop(heap.allocate_all(Pool::Code, &[(9 * PAGE, 16)])),
        |heap: &Heap| {
            let code = function(heap, 6).unwrap();
            while !heap.rest() {}
            // SAFETY: no thread calls it.
            unsafe { heap.free([code.retire()]) };
        },
    ] {
        while !heap.rest() {}
        assert_eq!(protection(), "---s");
        write(&heap);
    }
    assert_eq!(call(code.address()), 4);
    // A child writes into pages of its own, and cannot close an alias in pieces.
    while !heap.rest() {}
    wait(fork(&heap, || {
        assert!(heap.rest());
        assert_eq!(call(function(&heap, 7).unwrap().address()), 7);
        Ok(())
    }));
    assert_eq!(call(function(&heap, 8).unwrap().address()), 8);
}

#[test]
fn low_heaps_are_below_2_gib() {
    let _turn = TURN.lock();
    let bases: BTreeSet<_> = (0..14)
        .map(|_| {
            let heap = made(Place::Low);
            assert_eq!(heap.size(), MAX_LOW_RESERVATION);
            assert!(heap.base() + heap.size() as u64 <= 1 << 31);
            heap.base()
        })
        .collect();
    // Of 65,536 places or more.
    assert!(bases.len() > 7, "{bases:x?}");
}

#[test]
fn without_randomization_places_repeat() {
    let _turn = TURN.lock();
    // SAFETY: the child runs the next lines and ends.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: a setting of this process.
        unsafe { libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) };
        let twice = |place| {
            let bases = [(); 2].map(|()| {
                let heap = made(place);
                (heap.base(), alias()[1].start)
            });
            bases[0] == bases[1]
        };
        let same = twice(Place::Random) && twice(Place::Low);
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(!same)) };
    }
    wait(pid);
}
