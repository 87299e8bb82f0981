//! Code memory that is given back: reuse, flat memory, islands, forks, and the modes that stop the
//! execution of freed code.

mod support;

use std::sync::{Mutex, MutexGuard, PoisonError};

use support::{call, fork, function, heap, heaps, peek, returning, wait};
use uruk_heap::{Backing, BackingChoice, Freed, Heap, HeapConfig, HeapError, PAGE, Pool, Sealed};

fn with(backing: BackingChoice, freed: Freed) -> Heap {
    let mut config = HeapConfig::default();
    config.reservation = 64 << 20;
    config.backing = backing;
    config.freed = freed;
    Heap::new(config).unwrap()
}

fn free(heap: &Heap, code: impl IntoIterator<Item = Sealed>) -> usize {
    let batch: Vec<_> = code.into_iter().map(Sealed::retire).collect();
    // SAFETY: the tests free code that no thread calls any more.
    unsafe { heap.free(batch) }.given_back
}

fn sized(heap: &Heap, number: u32, size: usize) -> Sealed {
    let mut draft = heap.allocate(Pool::Code, size, 16).unwrap();
    draft.write(0, &returning(number)).unwrap();
    draft.seal().unwrap()
}

/// One test at a time: a child keeps code that its parent frees meanwhile, also that of another
/// test.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The signal that ends a child that calls `address`, or 0.
fn signal_of(heap: &Heap, address: u64) -> i32 {
    heap.before_fork();
    // SAFETY: the child calls one function and ends.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        call(address);
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    }
    heap.after_fork_parent();
    let mut status = 0;
    // SAFETY: waits for our child.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    if libc::WIFSIGNALED(status) {
        libc::WTERMSIG(status)
    } else {
        0
    }
}

#[test]
fn memory_is_flat_over_many_cycles() {
    let _alone = alone();
    for (heap, cycles) in [
        (heap(BackingChoice::Dual), 100_000),
        (heap(BackingChoice::Flip), 4000),
    ] {
        let paged = heap.backing() == Backing::Flip;
        let kept: Vec<_> = (0..100).map(|n| sized(&heap, n, 200)).collect();
        let (mut batch, mut highest) = (Vec::new(), 0);
        for n in 0..cycles {
            let code = sized(&heap, n, 200);
            if n % 97 == 0 {
                assert_eq!(call(code.address()), n);
            }
            highest = highest.max(code.address());
            batch.push(code);
            if batch.len() == 500 {
                free(&heap, batch.drain(..));
            }
        }
        free(&heap, batch.drain(..));
        let each = if paged { PAGE } else { 208 };
        // Living code, one batch, and two windows.
        let bound = 600 * each + (128 << 10);
        let stats = heap.stats().code;
        assert!(
            (highest - heap.pool_range(Pool::Code).start) < bound as u64,
            "{highest:#x}"
        );
        assert!(stats.sum().resident < bound, "{stats:?}");
        assert!(stats.given_back > cycles as usize * each * 9 / 10);
        assert!(stats.reuses && stats.sum().retired == 0 && stats.sum().used == 100 * each);
        for (n, code) in kept.iter().enumerate() {
            assert_eq!(call(code.address()), n as u32);
        }
    }
}

#[test]
fn an_evacuation_leaves_islands_and_goes_back_and_forth() {
    let _alone = alone();
    for heap in heaps() {
        let mut live: Vec<Sealed> = (0..400).map(|n| sized(&heap, n, 300)).collect();
        let island = live.swap_remove(200);
        let numbers: Vec<u32> = live.iter().map(|code| call(code.address())).collect();
        for round in 1..=6 {
            let to = heap.flip_spaces();
            assert_eq!(to, round % 2);
            let copies: Vec<Sealed> = live
                .iter()
                .map(|code| {
                    let bytes = code.bytes().unwrap().to_vec();
                    let mut draft = heap.allocate(Pool::Code, bytes.len(), 16).unwrap();
                    draft.write(0, &bytes).unwrap();
                    draft.seal().unwrap()
                })
                .collect();
            free(&heap, live);
            live = copies;
            assert!(live.iter().all(|code| code.space() == to));
            for (code, &number) in live.iter().zip(&numbers) {
                assert_eq!(call(code.address()), number);
            }
            assert_eq!(call(island.address()), 200);
            let stats = heap.stats().code;
            assert_eq!((stats.flips, stats.current), (round as u64, to));
            assert!(stats.spaces[1 - to].used <= PAGE);
            let left = stats.spaces[1 - to];
            assert!(
                left.resident <= 4 * PAGE,
                "only the island's page stays: {left:?}"
            );
        }
    }
}

#[test]
fn reused_pages_read_as_zero() {
    let _alone = alone();
    for heap in heaps() {
        let blocks: Vec<_> = (0..64).map(|n| sized(&heap, n, PAGE)).collect();
        let first = blocks[0].address();
        assert!(free(&heap, blocks) >= 60 * PAGE);
        for _ in 0..60 {
            let code = heap.allocate(Pool::Code, PAGE, 16).unwrap().seal().unwrap();
            assert!(code.bytes().unwrap().iter().all(|&byte| byte == 0));
            assert!(code.address() < first + 64 * PAGE as u64 + (64 << 10));
        }
    }
}

#[test]
fn freed_code_traps() {
    let _alone = alone();
    for backing in [BackingChoice::Dual, BackingChoice::Flip] {
        let heap = with(backing, Freed::Poison);
        let traps = if backing == BackingChoice::Dual {
            libc::SIGTRAP
        } else {
            libc::SIGSEGV
        };
        let code = function(&heap, 1).unwrap();
        let (address, held) = (code.address(), heap.stats().code.sum().used);
        assert_eq!(call(address), 1);
        assert_eq!(free(&heap, [code]), 0);
        assert_eq!(signal_of(&heap, address), traps);
        let stats = heap.stats().code;
        assert!(!stats.reuses && stats.sum().quarantined == held);
        for n in 0..100 {
            assert_ne!(function(&heap, n).unwrap().address(), address);
        }
    }
}

#[test]
fn protected_pages_fault_until_they_leave_quarantine() {
    let _alone = alone();
    for backing in [BackingChoice::Dual, BackingChoice::Flip] {
        let heap = with(
            backing,
            Freed::Protect {
                quarantine: 8 * PAGE,
            },
        );
        let blocks: Vec<_> = (0..16).map(|n| sized(&heap, n, PAGE)).collect();
        let addresses: Vec<u64> = blocks.iter().map(Sealed::address).collect();
        for block in blocks {
            free(&heap, [block]);
        }
        let stats = heap.stats();
        assert_eq!(
            (stats.code.sum().quarantined, stats.mappings),
            (8 * PAGE, None)
        );
        assert_eq!(signal_of(&heap, addresses[15]), libc::SIGSEGV);
        let again = heap
            .allocate(Pool::Code, 16 * PAGE, PAGE)
            .unwrap()
            .seal()
            .unwrap();
        assert!(!addresses[8..].contains(&again.address()));
        assert!(again.bytes().unwrap().iter().all(|&byte| byte == 0));
        let mut reused = 0;
        for n in 0..100 {
            let code = sized(&heap, n, PAGE);
            assert!(
                !addresses[8..].contains(&code.address()),
                "still in quarantine"
            );
            reused += usize::from(addresses[..8].contains(&code.address()));
            assert_eq!(call(code.address()), n);
        }
        assert!(reused > 0 || backing == BackingChoice::Dual);
    }
}

#[test]
fn errors_say_what_is_retired_and_freeing_helps() {
    let _alone = alone();
    let mut config = HeapConfig::default();
    config.limit = Some(64 << 10);
    let heap = Heap::new(config).unwrap();
    let code = sized(&heap, 1, 40 << 10).retire();
    let error = heap.allocate(Pool::Code, 40 << 10, 16).unwrap_err();
    assert_eq!(
        error,
        HeapError::Limit {
            asked: 40 << 10,
            held: 40 << 10,
            retired: 40 << 10,
            limit: 64 << 10,
        }
    );
    // SAFETY: no thread calls it.
    unsafe { heap.free([code]) };
    assert_eq!(call(sized(&heap, 2, 40 << 10).address()), 2);
}

/// Code of one process survives all frees of the other, in both directions.
#[test]
fn freeing_does_not_reach_across_a_fork() {
    let _alone = alone();
    for heap in heaps() {
        let mut made: Vec<Option<Sealed>> = (0..300).map(|n| Some(sized(&heap, n, 700))).collect();
        let addresses: Vec<u64> = made.iter().flatten().map(Sealed::address).collect();
        // In the middle of an evacuation: a third is copied, and not freed yet.
        let to = heap.flip_spaces();
        let copies: Vec<Sealed> = (0..100).map(|n| sized(&heap, n, 700)).collect();
        let copied: Vec<u64> = copies.iter().map(Sealed::address).collect();
        let check = |who: &str| {
            for (n, &address) in addresses
                .iter()
                .enumerate()
                .chain(copied.iter().enumerate())
            {
                if call(address) != n as u32 {
                    return Err(format!("{who}: {n} at {address:#x}"));
                }
            }
            Ok(())
        };
        let churn = |heap: &Heap, tag: u32| {
            for round in 0..30 {
                let code: Vec<_> = (0..100).map(|n| sized(heap, tag + n, 300)).collect();
                for (n, code) in code.iter().enumerate() {
                    assert_eq!(call(code.address()), tag + n as u32);
                }
                free(heap, code);
                if round % 10 == 0 {
                    heap.flip_spaces();
                }
            }
        };
        // The parent frees and churns while the child calls the old code.
        let mut ends = [0; 2];
        // SAFETY: two integers for the result.
        assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
        let pid = fork(&heap, || {
            let mut byte = 0_u8;
            // SAFETY: room for one byte.
            unsafe { libc::read(ends[0], (&raw mut byte).cast(), 1) };
            check("child")
        });
        let bytes = peek(addresses[150], 700);
        free(&heap, made.drain(..150).flatten());
        free(&heap, made.iter_mut().filter_map(Option::take));
        churn(&heap, 10_000);
        if heap.backing() == Backing::Dual {
            assert_eq!(heap.stats().code.waiting, 300 * 704);
            assert_eq!(peek(addresses[150], 700), bytes, "the child needs it");
        }
        // SAFETY: one byte.
        let written = unsafe { libc::write(ends[1], [0_u8].as_ptr().cast(), 1) };
        assert_eq!(written, 1);
        wait(pid);
        assert_eq!(heap.stats().code.spaces[1 - to].frozen, 0);
        free(&heap, []);
        assert_eq!(heap.stats().code.waiting, 0, "nobody needs it any more");
        // The child frees and churns while the parent calls its code.
        let live: Vec<Sealed> = (0..300).map(|n| sized(&heap, n, 700)).collect();
        let addresses: Vec<u64> = live.iter().map(Sealed::address).collect();
        let mut held = Some(live);
        let pid = fork(&heap, || {
            free(&heap, held.take().into_iter().flatten());
            churn(&heap, 20_000);
            Ok(())
        });
        wait(pid);
        churn(&heap, 30_000);
        for (n, &address) in addresses.iter().enumerate() {
            assert_eq!(call(address), n as u32);
        }
        for end in ends {
            // SAFETY: our own descriptor.
            unsafe { libc::close(end) };
        }
    }
}

#[test]
fn data_is_flat_as_well() {
    let _alone = alone();
    for heap in heaps() {
        for pool in [Pool::ReadOnly, Pool::ReadWrite] {
            let mut highest = 0;
            for n in 0..5000_usize {
                let mut draft = heap.allocate(pool, 100 + n % 900, 16).unwrap();
                draft.write(0, &[7; 100]).unwrap();
                let block = draft.seal().unwrap().retire();
                highest = highest.max(block.address());
                // SAFETY: no code uses it.
                unsafe { heap.free([block]) };
            }
            assert_eq!(highest, heap.pool_range(pool).start);
        }
        let stats = heap.stats();
        assert_eq!((stats.read_only.used, stats.read_write.retired), (0, 0));
    }
}

/// Freeing many at a time is like one by one. New blocks lie next to each other; live blocks
/// between runs of dead neighbours stay as they are, and blocks that do not fit are left out.
#[test]
fn many_come_next_to_each_other_and_go_around_those_that_live() {
    let _alone = alone();
    for heap in [
        with(BackingChoice::Dual, Freed::Reuse),
        with(BackingChoice::Flip, Freed::Reuse),
    ] {
        let unit = if heap.backing() == Backing::Flip {
            PAGE
        } else {
            208
        };
        let drafts = heap.allocate_all(Pool::Code, &[(200, 16); 100]);
        assert_eq!(drafts.len(), 100);
        let code: Vec<Sealed> = (0..)
            .zip(drafts)
            .map(|(number, mut draft)| {
                draft.write(0, &returning(number)).unwrap();
                draft.seal().unwrap()
            })
            .collect();
        assert!(
            code.windows(2)
                .all(|two| two[0].address() + unit as u64 == two[1].address())
        );
        let before = heap.stats().code.sum();
        assert_eq!(before.used, 100 * unit);
        let (kept, dead): (Vec<_>, Vec<_>) = code
            .into_iter()
            .partition(|code| call(code.address()) % 10 == 3);
        let retired = heap.retire(dead);
        assert_eq!(heap.stats().code.sum().retired, 90 * unit);
        // SAFETY: no thread calls them any more.
        assert_eq!(unsafe { heap.free(retired) }.freed, 90 * unit);
        let after = heap.stats().code.sum();
        assert_eq!((after.used, after.retired), (10 * unit, 0));
        for (number, code) in kept.iter().enumerate() {
            assert_eq!(call(code.address()), 10 * number as u32 + 3);
        }
        let bad = heap.allocate_all(Pool::Code, &[(16, 16), (16, 3), (16, 16)]);
        assert_eq!(bad.len(), 1, "up to the first that is refused");
        let capacity = after.capacity;
        assert!(heap.allocate_all(Pool::Code, &[(capacity, 16)]).is_empty());
    }
}
