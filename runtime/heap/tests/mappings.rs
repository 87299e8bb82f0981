//! Kernel mappings and memory use. One test, because it looks at the whole
//! process.

use std::time::{Duration, Instant};

use uruk_heap::{BackingChoice, DUAL_MAPPINGS, Heap, HeapConfig, Pool};

mod support;

use support::{all_mappings, function, heap, mappings, resident};

#[test]
fn mappings_are_constant_and_memory_is_used_when_touched() {
    let rss = resident();
    let start = Instant::now();
    let big = Heap::new(HeapConfig::default()).unwrap();
    println!("a heap of {} MiB: {:?}", big.size() >> 20, start.elapsed());
    assert_eq!(big.size(), uruk_heap::MAX_RESERVATION);
    let bss = big.allocate(Pool::ReadWrite, 700 << 20, 64).unwrap();
    let bss = bss.seal().unwrap();
    let far = (bss.address() as usize + (600 << 20)) as *mut u8;
    // SAFETY: inside the allocation.
    unsafe { far.write(1) };
    assert!(resident() - rss < 8 << 10, "700 MiB of bss were touched");
    let (stats, before) = (big.stats(), Instant::now());
    assert!(stats.memfd_bytes == 0 && stats.read_write.used == 700 << 20);
    let address = bss.address();
    // SAFETY: no code uses it.
    unsafe { bss.release() };
    let again = big.allocate(Pool::ReadWrite, 800 << 20, 64).unwrap();
    assert_eq!(again.address(), address);
    // SAFETY: mapped.
    assert_eq!(unsafe { far.read() }, 0);
    println!("release and reuse of 700 MiB: {:?}", before.elapsed());
    drop((again, big));

    let heap = heap(BackingChoice::Dual);
    let before = (mappings(&heap), all_mappings().len());
    println!("{:#?}", before.0);
    assert_eq!(heap.stats().mappings, Some(DUAL_MAPPINGS));
    // The other mappings are the alias and its guards.
    assert_eq!(before.0.len(), DUAL_MAPPINGS - 3);
    let aliases = |all: Vec<support::Mapping>| {
        let alias = |m: &&support::Mapping| m.name.contains("uruk") && m.protection == "rw-s";
        all.iter().filter(alias).count()
    };
    assert_eq!(aliases(all_mappings()), 1);
    // By batch: the times of its rounds.
    const BATCH: u32 = 1_000;
    let (mut rounds, mut start) = (Vec::new(), Instant::now());
    for n in 0..100_000_u32 {
        let code = function(&heap, n).unwrap();
        if n % 2 == 0 {
            // SAFETY: no thread calls it.
            unsafe { heap.free([code.retire()]) };
        }
        let mut data = heap.allocate(Pool::ReadWrite, 40, 8).unwrap();
        data.write(0, &[1; 40]).unwrap();
        let data = data.seal().unwrap();
        if n % 3 == 0 {
            // SAFETY: no code uses it.
            unsafe { data.release() };
        }
        drop(heap.allocate(Pool::ReadOnly, 20, 4).unwrap());
        if n % BATCH == BATCH - 1 {
            rounds.push(start.elapsed() / BATCH);
            start = Instant::now();
        }
    }
    // The fastest of each half, because other processes run here, too. The amount of live code
    // changes nothing.
    let fastest = |rounds: &[Duration]| rounds.iter().min().copied().unwrap();
    let (early, late) = rounds.split_at(rounds.len() / 2);
    let (early, late) = (fastest(early), fastest(late));
    println!("three allocations, two writes and a release: {early:?}, later {late:?}");
    assert!(late < 4 * early, "{early:?} {late:?}");
    assert_eq!(mappings(&heap), before.0);
    assert_eq!(heap.stats().mappings, Some(DUAL_MAPPINGS));
    assert!(
        all_mappings().len() <= before.1 + 2,
        "the allocator's own may grow"
    );

    drop(heap);
    assert_eq!(aliases(all_mappings()), 0);
}
