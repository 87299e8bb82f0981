//! Real unwinding through JIT'd frames by libgcc.

use std::ffi::c_void;
use std::time::{Duration, Instant};

use uruk_unwind::{UnwindError, find, interposed, name_at, register_region};

#[path = "support/interpose.rs"]
mod interpose;
mod support;

use support::{Code, STRIDE, backtrace, throw_through};

/// Frames of a backtrace above the JIT'd function.
fn frames(code: &Code, i: usize) -> Vec<u64> {
    let mut list: Vec<u64> = Vec::new();
    // SAFETY: the function calls `backtrace` with the list.
    unsafe { code.function(i)(backtrace, (&raw mut list).cast::<c_void>()) };
    list
}

#[test]
fn this_executable_interposes() {
    assert!(interposed());
}

#[test]
fn host_frames_unwind_as_before() {
    let caught = std::panic::catch_unwind(|| std::panic::resume_unwind(Box::new(7)));
    assert_eq!(caught.unwrap_err().downcast_ref::<i32>(), Some(&7));
    assert!(
        std::backtrace::Backtrace::force_capture()
            .to_string()
            .contains("unwinding")
    );
}

#[test]
fn a_backtrace_walks_through_a_jit_frame() {
    let code = Code::new(4);
    let return_address = code.rows[2].start + 12;
    let without = frames(&code, 2);
    // The walk ends in the frame without a description.
    assert_eq!(without.last(), Some(&return_address), "{without:x?}");

    let region = register_region(code.base, code.size).unwrap();
    // SAFETY: the rows describe the code and stay for ever.
    unsafe { region.insert(&code.rows, &[]) }.unwrap();
    let with = frames(&code, 2);
    let at = with.iter().position(|&pc| pc == return_address).unwrap();
    assert!(with.len() > at + 3, "{with:x?}");

    assert_eq!(region.remove(code.base..code.base + code.size as u64), 1);
    assert_eq!(frames(&code, 2).last(), Some(&return_address));
}

#[test]
fn a_panic_passes_through_jit_frames() {
    let code = Code::new(8);
    let region = register_region(code.base, code.size).unwrap();
    for row in &code.rows {
        // SAFETY: the rows describe the code and stay for ever.
        unsafe { region.insert(std::slice::from_ref(row), &[]) }.unwrap();
    }
    // Odd functions end with their call: the return address is one past the
    // row, and libgcc asks for the byte before it.
    for i in 0..code.rows.len() {
        assert_eq!(throw_through(&code, i, i + 100), i + 100);
    }
}

#[test]
fn objects_come_and_go_many_at_a_time() {
    let code = Code::new(5);
    let region = register_region(code.base, code.size).unwrap();
    let (rows, name) = (&code.rows, |pc| {
        let mut buffer = [0; 8];
        let (_, len) = name_at(pc, &mut buffer)?;
        Some(String::from_utf8_lossy(&buffer[..len]).into_owned())
    });
    let outside = uruk_unwind::Row {
        start: rows[0].start,
        end: code.base - 1,
        fde: 0,
    };
    let bad = [(&rows[..1], "a"), (std::slice::from_ref(&outside), "b")];
    // SAFETY: nothing is inserted.
    let refused = unsafe { region.insert_all(bad) };
    assert!(matches!(refused, Err(UnwindError::BadRow { .. })));
    assert_eq!(find(rows[0].start), None, "of a bad batch none is inserted");
    let good = [(&rows[..2], "a"), (&rows[2..3], "b"), (&rows[3..], "c")];
    // SAFETY: the rows describe the code and stay for ever.
    unsafe { region.insert_all(good) }.unwrap();
    let names: Vec<_> = rows.iter().map(|row| name(row.start)).collect();
    assert_eq!(
        names,
        ["a", "a", "b", "c", "c"].map(|name| Some(name.to_owned()))
    );
    // The second range has only a part of its object.
    let gone = [rows[0].start..rows[2].end, rows[4].start..rows[4].end];
    assert_eq!(region.remove_all(&gone), 2);
    let left: Vec<_> = rows.iter().map(|row| name(row.start).is_some()).collect();
    assert_eq!(left, [false, false, false, true, true]);
}

#[test]
fn names_come_without_allocation() {
    let code = Code::new(3);
    let region = register_region(code.base, code.size).unwrap();
    // SAFETY: the rows describe the code and stay for ever.
    unsafe { region.insert(&code.rows, &["first", "second", "third"]) }.unwrap();
    let mut buffer = [0; 16];
    let (found, len) = name_at(code.rows[1].start + 3, &mut buffer).unwrap();
    assert_eq!(
        (found.start, &buffer[..len]),
        (code.rows[1].start, &b"second"[..])
    );
    let mut short = [0; 3];
    let (_, len) = name_at(code.rows[2].start, &mut short).unwrap();
    assert_eq!(&short[..len], b"thi");
    assert_eq!(find(code.rows[2].end), None);
    assert_eq!(name_at(0, &mut buffer), None);
}

#[test]
fn regions_are_checked_and_end_with_their_handle() {
    let code = Code::new(1);
    let (base, size) = (code.base, code.size);
    let region = register_region(base, size).unwrap();
    assert_eq!(
        register_region(base + 4096, 4096).unwrap_err(),
        UnwindError::Overlap {
            base: base + 4096,
            size: 4096
        }
    );
    assert_eq!(
        register_region(base + 1, 4096).unwrap_err(),
        UnwindError::Shape {
            base: base + 1,
            size: 4096
        }
    );
    let outside = uruk_unwind::Row {
        start: base - 8,
        end: base,
        fde: 0,
    };
    // SAFETY: refused.
    let refused = unsafe { region.insert(&[outside], &[]) };
    assert_eq!(
        refused.unwrap_err(),
        UnwindError::BadRow {
            start: base - 8,
            end: base
        }
    );
    // SAFETY: the rows describe the code and stay for ever.
    unsafe { region.insert(&code.rows, &[]) }.unwrap();
    assert!(find(code.rows[0].start).is_some());
    drop(region);
    assert_eq!(find(code.rows[0].start), None);
    let again = register_region(base, size).unwrap();
    assert_eq!(again.find(code.rows[0].start), None);
}

/// Time the thread was on a processor.
fn processor_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes the time.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The cheapest of some throws.
fn throw_cost(code: &Code, i: usize) -> Duration {
    (0..400)
        .map(|_| {
            let start = Instant::now();
            throw_through(code, i, 1);
            start.elapsed()
        })
        .min()
        .unwrap()
}

#[test]
fn the_cost_of_a_throw_does_not_depend_on_how_much_is_registered() {
    const COUNT: usize = 50_000;
    let code = Code::new(COUNT);
    let region = register_region(code.base, code.size).unwrap();
    let middle = COUNT / 2;
    // SAFETY: the rows describe the code and stay for ever.
    unsafe { region.insert(&code.rows[middle..=middle], &[]) }.unwrap();
    let alone = throw_cost(&code, middle);
    // The cheapest of many batches, with few and with many rows present: the machine may be busy
    // with other work.
    let mut inserts = Vec::new();
    for batch in code.rows.chunks(500) {
        let start = Instant::now();
        for row in batch {
            if row != &code.rows[middle] {
                // SAFETY: as above.
                unsafe { region.insert(std::slice::from_ref(row), &[]) }.unwrap();
            }
        }
        inserts.push(start.elapsed() / batch.len() as u32);
    }
    let cheapest = |inserts: &[Duration]| inserts.iter().min().copied().expect("some batches");
    let (early, late) = inserts.split_at(inserts.len() / 2);
    let (early, late) = (cheapest(early), cheapest(late));
    let first = processor_time();
    throw_through(&code, middle + 1, 1);
    let first = processor_time() - first;
    let crowded = throw_cost(&code, middle);
    let per_page = 4096 / STRIDE;
    println!(
        "insert {early:?}, then {late:?}; throw: alone {alone:?}, {COUNT} registered ({per_page} a page): first {first:?}, then {crowded:?}"
    );
    let most = 4 * early + Duration::from_micros(1);
    assert!(late < most, "{early:?} {late:?}");
    assert!(
        crowded < 4 * alone + Duration::from_micros(5),
        "{alone:?} {crowded:?}"
    );
    // Nothing is sorted at the first throw. Processor time does not count other work on the
    // machine.
    assert!(first < Duration::from_millis(20), "{first:?}");
}
