//! Allocation, writing, sealing and running, with both backings.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use uruk_heap::{BackingChoice, Heap, HeapConfig, HeapError, PAGE, Pool};

mod support;

use support::{all_mappings, call, function, heap, heaps, peek};

#[test]
fn functions_run_and_are_packed() {
    for heap in heaps() {
        let functions: Vec<_> = (0..1000).map(|n| function(&heap, n).unwrap()).collect();
        for (n, code) in functions.iter().enumerate() {
            assert_eq!(call(code.address()), n as u32);
            assert!(heap.contains(code.address()));
            assert!(heap.pool_range(Pool::Code).contains(&code.address()));
            assert_eq!(code.bytes().unwrap()[0], 0xb8);
        }
    }
    let heap = heap(BackingChoice::Dual);
    let a = function(&heap, 1).unwrap().address();
    assert_eq!(function(&heap, 2).unwrap().address(), a + 16);
}

#[test]
fn nothing_is_ever_writable_and_executable() {
    for heap in heaps() {
        let mut draft = heap.allocate(Pool::Code, 100, 16).unwrap();
        draft.write(0, &[0xc3]).unwrap();
        let check = || {
            let both = |p: &str| p.contains('w') && p.contains('x');
            assert!(
                all_mappings()
                    .iter()
                    .all(|mapping| !both(&mapping.protection))
            );
        };
        check();
        let code = draft.seal().unwrap();
        check();
        let query = |address: u64| region::query(address as usize as *const u8).unwrap();
        assert_eq!(
            query(code.address()).protection(),
            region::Protection::READ_EXECUTE
        );
        let constant = heap.allocate(Pool::ReadOnly, 8, 8).unwrap().seal().unwrap();
        assert_eq!(
            query(constant.address()).protection(),
            region::Protection::READ
        );
        let data = heap
            .allocate(Pool::ReadWrite, 8, 8)
            .unwrap()
            .seal()
            .unwrap();
        assert_eq!(
            query(data.address()).protection(),
            region::Protection::READ_WRITE
        );
    }
}

#[test]
fn a_dropped_draft_gives_its_bytes_back_zeroed() {
    for heap in heaps() {
        let mut draft = heap.allocate(Pool::Code, 200, 16).unwrap();
        let first = draft.address();
        draft.write(0, &[0xcc; 200]).unwrap();
        drop(draft);
        let again = heap.allocate(Pool::Code, 400, 16).unwrap();
        assert_eq!(again.address(), first);
        assert!(
            again
                .seal()
                .unwrap()
                .bytes()
                .unwrap()
                .iter()
                .all(|&b| b == 0)
        );
        assert_eq!(heap.stats().code.sum().fragmented, 0);
        let below = heap.allocate(Pool::Code, 16, 16).unwrap();
        let above = heap.allocate(Pool::Code, 16, 16).unwrap();
        drop(below);
        let page = heap.backing() == uruk_heap::Backing::Flip;
        assert!(page || heap.stats().code.sum().fragmented >= 16);
        drop(above);
        assert!(
            heap.stats().code.sum().used <= uruk_heap::PAGE,
            "only what was sealed"
        );
    }
}

#[test]
fn released_data_is_reused_and_zero() {
    for heap in heaps() {
        for pool in [Pool::ReadWrite, Pool::ReadOnly] {
            for size in [24, 5000, 300_000] {
                let mut draft = heap.allocate(pool, size, 8).unwrap();
                draft.write(0, &vec![0xaa; size]).unwrap();
                let block = draft.seal().unwrap();
                let behind = heap.allocate(pool, 16, 16).unwrap().seal().unwrap();
                let address = block.address();
                // SAFETY: no code uses the block.
                unsafe { block.release() };
                assert!(heap.stats().read_write.free + heap.stats().read_only.free >= size);
                let again = heap.allocate(pool, size, 8).unwrap().seal().unwrap();
                assert_eq!(again.address(), address);
                assert!(peek(address, size).iter().all(|&b| b == 0));
                // SAFETY: no code uses the blocks.
                unsafe {
                    again.release();
                    behind.release();
                }
            }
        }
    }
}

#[test]
fn retired_code_stays_as_it_is() {
    for heap in heaps() {
        let code = function(&heap, 5).unwrap();
        let address = code.address();
        let retired = code.retire();
        assert_eq!(
            (retired.address(), retired.len(), retired.space()),
            (address, 6, 0)
        );
        assert_eq!(call(address), 5);
        let stats = heap.stats().code.spaces[0];
        assert!(stats.retired >= 6 && stats.used == 0);
        assert_ne!(function(&heap, 6).unwrap().address(), address);
        drop(retired);
        assert_eq!(call(address), 5);
    }
}

#[test]
fn alignments_hold() {
    for heap in heaps() {
        for pool in [Pool::Code, Pool::ReadOnly, Pool::ReadWrite] {
            for shift in 0..=16 {
                let draft = heap.allocate(pool, 3, 1 << shift).unwrap();
                assert_eq!(draft.address() % (1 << shift).max(16), 0);
                assert_eq!(draft.len(), 3);
                let _ = draft.seal().unwrap();
            }
        }
        assert!(heap.allocate(Pool::Code, 0, 1).unwrap().is_empty());
    }
}

#[test]
fn errors_carry_their_numbers() {
    for heap in heaps() {
        for align in [0, 3, 48] {
            assert_eq!(
                heap.allocate(Pool::Code, 1, align).unwrap_err(),
                HeapError::Alignment { align }
            );
        }
        let mut draft = heap.allocate(Pool::ReadWrite, 10, 8).unwrap();
        for (offset, bytes) in [(8, &[0; 3][..]), (11, &[]), (usize::MAX, &[1])] {
            let (len, size) = (bytes.len(), 10);
            assert_eq!(
                draft.write(offset, bytes).unwrap_err(),
                HeapError::Bounds { offset, len, size }
            );
        }
        draft.write(10, &[]).unwrap();
        let word = draft.seal().unwrap();
        word.store_word(0, 0x1122_3344_5566_7788).unwrap();
        assert_eq!(peek(word.address(), 1), [0x88]);
        // Two bytes of ten are no word.
        let bytes = |word: u32| word.to_le_bytes();
        let halves = word.words32().iter().map(|it| it.load(Ordering::Relaxed));
        assert_eq!(
            halves.map(bytes).collect::<Vec<_>>(),
            [[0x88, 0x77, 0x66, 0x55], [0x44, 0x33, 0x22, 0x11]]
        );
        assert_eq!(word.words64().len(), 1);
        word.words64()[0].store(7, Ordering::Relaxed);
        assert_eq!(peek(word.address(), 1), [7]);
        assert!(matches!(
            word.store_word(4, 0),
            Err(HeapError::Bounds { .. })
        ));
        assert!(matches!(
            word.store_word(1, 0),
            Err(HeapError::Misaligned { .. })
        ));
        let code = function(&heap, 0).unwrap();
        assert!(matches!(
            code.store_word(0, 0),
            Err(HeapError::NotWritable { .. })
        ));
        assert!(code.words32().is_empty() && code.words64().is_empty());
        for size in [1 << 40, usize::MAX, isize::MAX as usize, (1 << 30) + 1] {
            for pool in [Pool::Code, Pool::ReadOnly, Pool::ReadWrite] {
                let error = heap.allocate(pool, size, 16).unwrap_err();
                assert!(matches!(error, HeapError::OutOfSpace { .. }), "{error}");
                let error = heap.allocate(pool, 16, 1 << 63).unwrap_err();
                assert!(matches!(error, HeapError::OutOfSpace { .. }), "{error}");
            }
        }
    }
}

#[test]
fn the_limit_is_kept() {
    let mut config = HeapConfig::default();
    config.limit = Some(4096);
    let heap = Heap::new(config).unwrap();
    let first = heap.allocate(Pool::ReadWrite, 4000, 16).unwrap();
    let error = heap.allocate(Pool::Code, 100, 16).unwrap_err();
    let expected = HeapError::Limit {
        asked: 112,
        held: 4000,
        retired: 0,
        limit: 4096,
    };
    assert_eq!(error, expected);
    assert_eq!(
        error.to_string(),
        "memory limit reached: 112 bytes asked, 4000 of 4096 bytes held, 0 of them retired"
    );
    drop(first);
    heap.allocate(Pool::Code, 4096, 16).unwrap();
}

#[test]
fn a_full_pool_says_so_and_goes_on() {
    let mut config = HeapConfig::default();
    config.reservation = 0;
    config.backing = BackingChoice::Dual;
    let heap = Heap::new(config).unwrap();
    assert_eq!(heap.size(), uruk_heap::MIN_RESERVATION);
    let capacity = heap.stats().code.spaces[0].capacity;
    let mut held = Vec::new();
    let error = loop {
        match heap.allocate(Pool::Code, 5000, 16) {
            Ok(draft) => held.push(draft),
            Err(error) => break error,
        }
    };
    let each = 5008;
    let HeapError::OutOfSpace {
        pool: Pool::Code,
        asked,
        held: taken,
        retired: 0,
        capacity: said,
    } = error
    else {
        panic!("{error}");
    };
    assert_eq!((asked, said), (each, capacity));
    assert!(taken >= each * held.len() && taken + 2 * each > capacity);
    while let Some(last) = held.pop() {
        drop(last);
    }
    assert_eq!(heap.stats().code.sum().fragmented, 0);
    heap.allocate(Pool::Code, capacity, 16).unwrap();
}

#[test]
fn threads_allocate_write_and_run_at_the_same_time() {
    for heap in heaps() {
        let heap = Arc::new(heap);
        let threads: Vec<_> = (0..4_u32)
            .map(|t| {
                let heap = heap.clone();
                thread::spawn(move || {
                    for n in 0..500 {
                        let code = function(&heap, t << 16 | n).unwrap();
                        let mut data = heap.allocate(Pool::ReadWrite, 100, 8).unwrap();
                        data.write(0, &[t as u8; 100]).unwrap();
                        let data = data.seal().unwrap();
                        assert_eq!(call(code.address()), t << 16 | n);
                        assert_eq!(peek(data.address(), 100), [t as u8; 100]);
                        if n % 3 == 0 {
                            let code = code.retire();
                            // SAFETY: no thread calls it any more.
                            let done = unsafe { heap.free([code]) };
                            assert!(done.freed >= 6);
                            // SAFETY: no code uses it.
                            unsafe { data.release() };
                        }
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
    }
}

#[test]
fn stubs_reach_their_slots() {
    for heap in heaps() {
        let region = heap.stub_region();
        assert_eq!(region.capacity(), region.pages() * PAGE / 16);
        // mov rax, [rip + D]; ret
        let displacement = region.distance() - 7;
        let mut image = [0xcc; PAGE];
        for cell in image.chunks_mut(16) {
            cell[..3].copy_from_slice(&[0x48, 0x8b, 0x05]);
            cell[3..7].copy_from_slice(&displacement.to_le_bytes());
            cell[7] = 0xc3;
        }
        let gap = HeapError::StubGap {
            first: 1,
            expected: 0,
        };
        assert_eq!(region.commit_stub_pages(1, &image, 1).unwrap_err(), gap);
        region.commit_stub_pages(0, &image, 2).unwrap();
        region.commit_stub_pages(1, &image, 3).unwrap();
        assert_eq!(region.committed(), 4);
        let capacity = region.pages();
        assert!(matches!(
            region.commit_stub_pages(4, &image, capacity),
            Err(HeapError::StubCapacity { .. })
        ));
        for cell in [0, 1, 255, 256, 1023] {
            let slot = (region.slots_base() + 16 * cell) as usize as *mut u64;
            // SAFETY: a slot of this heap without other users.
            unsafe { slot.write(cell + 1) };
            assert_eq!(u64::from(call(region.stubs_base() + 16 * cell)), cell + 1);
        }
        region.commit_stub_pages(0, &image, capacity).unwrap();
    }
}
