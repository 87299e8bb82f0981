//! Unregistered stacks: found by searching all memory, by the words that count there.

mod common;

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{LONG, alone, settled};
use uruk_roots::{Config, Report, Roots, ScanTrouble, Wanted, leave_unsearched, search_again};

const PAGE: usize = 4096;
const LIMIT: u64 = 1 << 30;

/// Readable memory whose address is in no other memory.
fn map(size: usize) -> u64 {
    // SAFETY: a fresh mapping.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            size,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    at as u64
}

fn store(at: u64, value: u64) {
    // SAFETY: memory of the test below.
    unsafe { (at as *mut u64).write_volatile(value) };
}

/// Code: sixteen bytes, a call that ends at 21, and a `lea` of what is at 48. Amid memory of
/// its own: the end of a mapping before it, a stack that is just made, would be its address.
fn code() -> u64 {
    let at = map(3 * PAGE) + PAGE as u64;
    // SAFETY: the page above.
    let bytes = unsafe { std::slice::from_raw_parts_mut(at as *mut u8, 64) };
    bytes.fill(0x90);
    bytes[16..21].copy_from_slice(&[0xe8, 0, 0, 0, 0]);
    bytes[24..31].copy_from_slice(&[0x48, 0x8d, 0x05, 17, 0, 0, 0]);
    // SAFETY: the page is ours. A search reads what can be written only.
    unsafe { libc::mprotect(at as *mut _, PAGE, libc::PROT_READ) };
    at
}

/// An address that is in no other memory as a word.
struct Hidden(AtomicU64);

impl Hidden {
    fn new(at: u64) -> Self {
        Self(AtomicU64::new(!at))
    }

    fn at(&self) -> u64 {
        !self.0.load(Ordering::Relaxed)
    }

    fn range(&self) -> Range<u64> {
        self.at()..self.at() + 64
    }
}

fn search(roots: &Roots, code: &Hidden) -> Report {
    search_for(roots, vec![code.range()])
}

fn search_for(roots: &Roots, ranges: Vec<Range<u64>>) -> Report {
    let wanted = Wanted::new(ranges).expect("sorted");
    // This thread knows the address.
    let _exempt = roots.exempt_current_thread();
    settled(0, || roots.scan(&wanted, LONG))
}

#[test]
fn an_unregistered_stack_is_found_in_memory() {
    let _alone = alone();
    let code = Hidden::new(code());
    let region = code.at() - 0x1000..code.at() + 0x10000;
    let roots = Roots::new(region, Config::default()).expect("a scanner");
    let stack = map(16 * PAGE);
    let word = stack + 5 * PAGE as u64 + 8;
    store(word, code.at() + 21);
    let report = search(&roots, &code);
    assert!(report.complete && report.memory.is_none(), "{report:#?}");
    assert_eq!(report.kept, [false], "it was not registered: {report:#?}");
    roots.search_memory(LIMIT, false);
    let kept = |value: u64| {
        store(word, value);
        let report = search(&roots, &code);
        assert!(report.complete, "{report:#?}");
        let memory = report.memory.as_ref().expect("a search");
        assert!(memory.bytes > 0 && report.kept[0] != memory.keeps.is_empty());
        report.kept[0]
    };
    assert!(kept(code.at() + 21), "a return address");
    assert!(
        kept(code.at() + 48),
        "an address that the code takes itself"
    );
    for other in [0, 16, 20, 22, 47, 64] {
        assert!(!kept(code.at() + other), "{other}: nobody goes on there");
    }
    // A table of functions: the start beside the end.
    for beside in [word - 8, word + 8] {
        store(beside, code.at());
        assert!(!kept(code.at() + 21), "an entry of a table");
        store(beside, 0);
        assert!(kept(code.at() + 21));
    }
    // Not at a multiple of eight: no stack pointer ever is elsewhere.
    store(word, 0);
    // SAFETY: our memory.
    unsafe { ((word + 12) as *mut u64).write_unaligned(code.at() + 21) };
    assert!(!search(&roots, &code).kept[0]);
    store(word + 8, 0);
    store(word + 16, 0);
    // An interrupted context: any place in the code.
    store(word + 8, 0x002b_0000_0000_0033);
    assert!(!kept(0));
    store(word - 8, code.at() + 3);
    assert!(kept(0));
    store(word - 8, 0);
    assert!(!kept(0));
    // SAFETY: ours.
    unsafe { libc::munmap(stack as *mut _, 16 * PAGE) };
}

#[test]
fn a_table_of_functions_side_by_side_is_no_stack() {
    let _alone = alone();
    let code = Hidden::new(code());
    let region = code.at() - 0x1000..code.at() + 0x10000;
    let roots = Roots::new(region, Config::default()).expect("a scanner");
    roots.search_memory(LIMIT, false);
    let stack = map(16 * PAGE);
    let word = stack + 5 * PAGE as u64 + 8;
    // The first ends with a call, where the second one starts.
    let kept = || {
        let middle = code.at() + 21;
        search_for(&roots, vec![code.at()..middle, middle..code.at() + 64]).kept
    };
    store(word, code.at() + 21);
    assert_eq!(kept(), [true, false], "a return address");
    for beside in [word - 8, word + 8] {
        store(beside, code.at());
        assert_eq!(kept(), [false, false], "the first one's start and end");
        store(beside, 0);
    }
    // SAFETY: ours.
    unsafe { libc::munmap(stack as *mut _, 16 * PAGE) };
}

/// A search that found many addresses left them in memory that was freed, where the next found them.
#[test]
fn a_search_leaves_nothing_that_the_next_finds() {
    let _alone = alone();
    let at = map(3 * PAGE) + PAGE as u64;
    // SAFETY: the page above.
    let bytes = unsafe { std::slice::from_raw_parts_mut(at as *mut u8, PAGE) };
    bytes.fill(0x90);
    bytes.chunks_exact_mut(8).for_each(|call| call[0] = 0xe8);
    // SAFETY: the page is ours. A search reads what can be written only.
    unsafe { libc::mprotect(at as *mut _, PAGE, libc::PROT_READ) };
    let code = Hidden::new(at);
    let whole = || code.at()..code.at() + PAGE as u64;
    let kept = |roots: &Roots| {
        let wanted = Wanted::new(vec![whole()]).expect("sorted");
        let _exempt = roots.exempt_current_thread();
        let report = settled(0, || roots.scan(&wanted, LONG));
        assert!(report.complete, "{report:#?}");
        report.kept[0]
    };
    let roots = Roots::new(whole(), Config::default()).expect("a scanner");
    roots.search_memory(LIMIT, false);
    let stack = map(16 * PAGE);
    let words = || (1..200).map(|n| (stack + n * 16, n * 8 + 5));
    for _ in 0..3 {
        words().for_each(|(word, offset)| store(word, code.at() + offset));
        assert!(kept(&roots));
        words().for_each(|(word, _)| store(word, 0));
        assert!(!kept(&roots), "found where a search left it");
    }
    // SAFETY: ours.
    unsafe { libc::munmap(stack as *mut _, 16 * PAGE) };
}

/// Puts `word` far below the caller's frame.
#[inline(never)]
fn leave_below(code: &Hidden) {
    let mut words = [0u64; 2048];
    words[8] = code.at() + 21;
    std::hint::black_box(&mut words);
}

#[test]
fn what_a_thread_left_below_its_stack_pointer_is_found_only_where_asked() {
    let _alone = alone();
    let code = Hidden::new(code());
    let region = code.at() - 0x1000..code.at() + 0x10000;
    let roots = Roots::new(region, Config::default()).expect("a scanner");
    let left = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            leave_below(&code);
            left.wait();
            left.wait();
        });
        left.wait();
        roots.search_memory(LIMIT, false);
        let report = search(&roots, &code);
        assert!(report.complete && !report.kept[0], "{report:#?}");
        roots.search_memory(LIMIT, true);
        let report = search(&roots, &code);
        assert!(report.complete && report.kept[0], "{report:#?}");
        left.wait();
    });
}

#[test]
fn memory_that_is_no_stack_is_left_out_until_it_is_other_memory() {
    let _alone = alone();
    let code = Hidden::new(code());
    let region = code.at() - 0x1000..code.at() + 0x10000;
    let roots = Roots::new(region, Config::default()).expect("a scanner");
    roots.search_memory(LIMIT, false);
    let memory = map(4 * PAGE);
    store(memory + PAGE as u64, code.at() + 21);
    assert!(search(&roots, &code).kept[0]);
    leave_unsearched(memory..memory + 4 * PAGE as u64);
    assert!(!search(&roots, &code).kept[0]);
    search_again(memory);
    assert!(search(&roots, &code).kept[0]);
    // SAFETY: ours.
    unsafe { libc::munmap(memory as *mut _, 4 * PAGE) };
}

#[test]
fn too_much_memory_proves_nothing() {
    let _alone = alone();
    let code = Hidden::new(code());
    let region = code.at() - 0x1000..code.at() + 0x10000;
    let roots = Roots::new(region, Config::default()).expect("a scanner");
    roots.search_memory(64 << 10, false);
    let report = search(&roots, &code);
    let large =
        matches!(report.trouble, Some(ScanTrouble::LargeMemory { bytes }) if bytes > 64 << 10);
    assert!(large && !report.complete && report.kept[0], "{report:#?}");
    roots.search_memory(0, false);
    let report = search(&roots, &code);
    assert!(report.complete && !report.kept[0], "{report:#?}");
}
