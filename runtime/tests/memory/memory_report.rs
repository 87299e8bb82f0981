//! The memory report: rows that add up whatever they are grouped by, that are whose memory it
//! is, that go with it, and that are what the kernel says.

use crate::clang;

use std::collections::BTreeMap;

use uruk::{Jit, MemoryPurpose, MemoryReport, ReclaimKind, Tier, TrackerKey};

/// Pages of the reservation that the kernel counts and the report does not, and the other way
/// round: each pool and each half of the code ends within a page, and slots of stubs begin in one.
const ROUNDING: u64 = 16 * 4096;

fn object(source: &str) -> Vec<u8> {
    clang::compile("memory-report", "o.c", source, &["-O1"])
}

fn check_sums(memory: &MemoryReport) {
    let total = memory.total();
    let sum = |parts: Vec<u64>| parts.into_iter().sum::<u64>();
    assert_eq!(
        sum(memory.by_dylib().into_iter().map(|(_, b)| b).collect()),
        total
    );
    assert_eq!(
        sum(memory.by_tracker().into_iter().map(|(_, b)| b).collect()),
        total
    );
    assert_eq!(
        sum(memory.by_tier().into_iter().map(|(_, b)| b).collect()),
        total
    );
    assert_eq!(
        sum(memory.by_purpose().into_iter().map(|(_, b)| b).collect()),
        total
    );
    let keys: Vec<_> = memory
        .rows
        .iter()
        .map(|row| (row.owner.clone(), row.tier.map(Tier::number), row.purpose))
        .collect();
    let mut once = keys.clone();
    once.sort();
    once.dedup();
    assert_eq!(keys, once, "each row once, in order");
}

/// Bytes under a tracker, by tier and purpose.
fn under(memory: &MemoryReport, tracker: TrackerKey) -> BTreeMap<(u8, MemoryPurpose), u64> {
    let rows = memory.rows.iter();
    rows.filter(|row| row.owner.as_ref().is_some_and(|o| o.tracker == tracker))
        .map(|row| ((row.tier.map_or(0, Tier::number), row.purpose), row.bytes))
        .collect()
}

fn call(dylib: &uruk::Dylib, name: &str) -> i64 {
    // SAFETY: functions of the tests, which take nothing and return a number.
    let function = unsafe { dylib.function::<extern "C" fn() -> i64>(name) };
    function.expect("a function").call()
}

/// Bytes of a range that the kernel holds. They include pages that it has taken out of the tables
/// of this process, as it does with idle memory.
fn resident(range: &std::ops::Range<u64>) -> u64 {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("there is /proc");
    let mut sum = 0;
    for line in maps.lines() {
        let bounds = line.split(' ').next().and_then(|b| b.split_once('-'));
        let number = |text| u64::from_str_radix(text, 16).ok();
        let Some((Some(start), Some(end))) = bounds.map(|(s, e)| (number(s), number(e))) else {
            continue;
        };
        if start < range.start || end > range.end {
            continue;
        }
        let mut there = vec![0u8; (end - start) as usize / 4096];
        let first = std::ptr::with_exposed_provenance_mut(start as usize);
        // SAFETY: asks about a mapping, for which there is a byte a page.
        if unsafe { libc::mincore(first, (end - start) as usize, there.as_mut_ptr()) } == 0 {
            sum += 4096 * there.iter().filter(|it| **it & 1 != 0).count() as u64;
        }
    }
    sum
}

#[test]
fn rows_are_whose_memory_it_is() {
    let jit = Jit::new().unwrap();
    let fresh = jit.memory();
    check_sums(&fresh);
    assert_eq!(fresh.of(MemoryPurpose::Bitcode), 0);
    let own = fresh.of(MemoryPurpose::Runtime);

    let first = jit.create_dylib("first").unwrap();
    let one = first.create_tracker().unwrap();
    let two = first.create_tracker().unwrap();
    one.add_ir(
        "a",
        "@numbers = global [10 x i128] [i128 7, i128 8, i128 9, i128 10, i128 11, i128 12,
           i128 13, i128 14, i128 15, i128 16]",
    )
    .unwrap();
    two.add_ir(
        "b",
        "@zeros = global [100000 x i8] zeroinitializer
         @fixed = constant [5 x i64] [i64 1, i64 2, i64 3, i64 4, i64 5]
         define i64 @low() { ret i64 1 }
         define i64 @high() { %p = getelementptr i64, ptr @fixed, i64 4
           %v = load i64, ptr %p ret i64 %v }
         define i64 @never() { ret i64 3 }",
    )
    .unwrap();
    let second = jit.create_dylib("second").unwrap();
    second
        .add_object(
            "o.o",
            object("long table[100] = {1}; long of(void) { return table[0]; }"),
        )
        .unwrap();
    assert_eq!(call(&first, "low"), 1);
    first.compile_at("high", Tier::Optimized).unwrap();
    assert_eq!(call(&first, "high"), 5);
    assert_eq!(call(&second, "of"), 1);

    let memory = jit.memory();
    check_sums(&memory);
    let stub = (0, MemoryPurpose::Stubs);
    let of_one = under(&memory, one.key());
    assert_eq!(of_one[&(0, MemoryPurpose::Data)], 160);
    assert!(!of_one.contains_key(&stub), "no function");
    assert!(of_one[&(0, MemoryPurpose::Bitcode)] > 100);
    let of_two = under(&memory, two.key());
    assert_eq!(of_two[&(0, MemoryPurpose::Zeroed)], 100_000);
    assert_eq!(of_two[&stub], 3 * 32);
    let constants = of_two.get(&(0, MemoryPurpose::ReadOnly));
    assert!(constants >= Some(&40), "{of_two:?}");
    for tier in [1, 2] {
        assert!(of_two[&(tier, MemoryPurpose::Code)] >= 6, "{of_two:?}");
    }
    // Tier 2 finds that `high` cannot throw.
    assert!(of_two[&(1, MemoryPurpose::Unwind)] >= 24, "{of_two:?}");
    let object = second.default_tracker().unwrap();
    let of_object = under(&memory, object.key());
    assert!(of_object[&(0, MemoryPurpose::Data)] >= 800, "{of_object:?}");
    assert!(of_object[&(0, MemoryPurpose::Code)] >= 6);
    assert!(of_object[&(0, MemoryPurpose::Unwind)] >= 24);
    assert_eq!(of_object[&stub], 32);
    let names: Vec<_> = memory
        .by_dylib()
        .into_iter()
        .filter_map(|(n, _)| n)
        .collect();
    assert_eq!(names.len(), 2, "{names:?}");
    // The runtime itself has one new part: the counters of baseline code.
    let counters = 4096 * 8;
    assert_eq!(memory.of(MemoryPurpose::Runtime), own + counters);

    // A better version: the one before waits.
    first.compile_at("low", Tier::Optimized).unwrap();
    let better = jit.memory();
    check_sums(&better);
    let of_better = under(&better, two.key());
    assert!(
        !of_better.contains_key(&(1, MemoryPurpose::Code)),
        "{of_better:?}"
    );
    assert!(of_better[&(1, MemoryPurpose::Waiting)] >= 6);

    // The transferred memory is the other tracker's.
    let whole = jit.memory();
    two.transfer_to(&one).unwrap();
    let moved = jit.memory();
    // Tables of the session change a little.
    let of_parts = |memory: &MemoryReport| memory.total() - memory.of(MemoryPurpose::Tables);
    assert_eq!(of_parts(&moved), of_parts(&whole));
    assert_eq!(under(&moved, two.key()), BTreeMap::new());
    assert_eq!(under(&moved, one.key())[&stub], 3 * 32);

    // Rows go with what they are about.
    // SAFETY: nothing of it is used any more.
    unsafe { one.remove() }.unwrap();
    let gone = jit.memory();
    check_sums(&gone);
    assert_eq!(under(&gone, one.key()), BTreeMap::new());
    // SAFETY: as above.
    unsafe { object.remove() }.unwrap();
    // A word that a call has left on this thread's stack may keep code for one scan.
    let empty = (0..100)
        .map(|_| {
            jit.reclaim(ReclaimKind::Sweep, std::time::Duration::from_secs(20));
            std::thread::sleep(std::time::Duration::from_millis(5));
            jit.memory()
        })
        .find(|memory| memory.of(MemoryPurpose::Waiting) == 0)
        .expect("everything is freed in the end");
    check_sums(&empty);
    assert_eq!(empty.by_dylib().len(), 1, "{:?}", empty.by_dylib());
    assert_eq!(empty.of(MemoryPurpose::Bitcode), 0);
    assert_eq!(empty.of(MemoryPurpose::Runtime), own + counters);
}

#[test]
fn units_functions_are_under_their_tracker() {
    let jit = Jit::new().unwrap();
    let dylib = jit.create_dylib("custom").unwrap();
    let tracker = dylib.create_tracker().unwrap();
    let text = object("static long words[50] = {6}; long six(void) { return words[0]; }");
    let unit = uruk::LazyObject::new(&jit, "six.o", text).unwrap();
    tracker.define(unit).unwrap();
    let before = under(&jit.memory(), tracker.key());
    assert_eq!(before, BTreeMap::from([((0, MemoryPurpose::Stubs), 32)]));
    assert_eq!(call(&dylib, "six"), 6);
    let after = jit.memory();
    check_sums(&after);
    let of = under(&after, tracker.key());
    assert!(of[&(0, MemoryPurpose::Code)] >= 6, "{of:?}");
    assert!(of.contains_key(&(0, MemoryPurpose::Unwind)), "{of:?}");
}

#[test]
fn the_kernel_holds_what_is_told() {
    let jit = Jit::new().unwrap();
    let mut text = String::from("@data = global [200000 x i8] c\"");
    text += &"x".repeat(200_000);
    text += "\"\n";
    for at in 0..400 {
        text += &format!("define i64 @f{at}() {{ ret i64 {at} }}\n");
    }
    let tracker = jit.main().create_tracker().unwrap();
    tracker.add_ir("many", &text).unwrap();
    let beside = |step: &str| {
        // Memory that became free is given back beside this: the two looks are at one state at
        // last.
        let begin = std::time::Instant::now();
        let (memory, held) = loop {
            let memory = jit.memory();
            check_sums(&memory);
            let held = resident(&memory.reservation);
            let agree = held.abs_diff(memory.reserved) <= ROUNDING;
            if agree || begin.elapsed() > std::time::Duration::from_secs(20) {
                break (memory, held);
            }
        };
        assert!(
            held.abs_diff(memory.reserved) <= ROUNDING,
            "{step}: the kernel holds {held} bytes, the report tells {}: {:?}",
            memory.reserved,
            memory.by_purpose()
        );
        let (total, all) = (memory.total(), memory.resident.expect("there is /proc"));
        assert_eq!(memory.other(), Some(all - total));
    };
    beside("added");
    for at in 0..400 {
        assert_eq!(call(&jit.main(), &format!("f{at}")), at);
    }
    beside("called");
    for at in 0..200 {
        let name = format!("f{at}");
        jit.compile_at(&name, Tier::Optimized).unwrap();
    }
    beside("moved up");
    jit.reclaim(ReclaimKind::Evacuate, std::time::Duration::from_secs(20));
    beside("evacuated");
    // SAFETY: nothing of it is used any more.
    unsafe { tracker.remove() }.unwrap();
    jit.reclaim(ReclaimKind::Sweep, std::time::Duration::from_secs(20));
    beside("removed");
}
