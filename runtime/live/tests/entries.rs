//! Entries that flip while threads call through them: each call gets one whole answer.
//!
//! The functions are laid out as the compiler lays them out, in a mapping of their own, so that no other
//! text is written to.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use uruk_live::entries::{Entries, EntryError};

/// Functions in the text.
const FUNCTIONS: usize = 16;

/// Bytes from one to the next.
const STRIDE: usize = 32;

/// `xchg ax, ax; mov eax, NUMBER; ret`.
fn body(number: u32) -> Vec<u8> {
    let mut code = vec![0x66, 0x90, 0xb8];
    code.extend(number.to_le_bytes());
    code.push(0xc3);
    code
}

/// Functions that return 1 to 16, with rooms, in a page of text; the address of the first room.
fn text() -> u64 {
    text_with(&[])
}

/// The same, with something at each entry.
fn text_with(first: &[u8]) -> u64 {
    let size = 4096;
    // SAFETY: a fresh mapping, which is written to before it is executed.
    unsafe {
        let (flags, none) = (
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            std::ptr::null_mut(),
        );
        let page = libc::mmap(none, size, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        assert_ne!(page, libc::MAP_FAILED);
        let bytes = std::slice::from_raw_parts_mut(page.cast::<u8>(), size);
        bytes.fill(0x90);
        for number in 0..FUNCTIONS {
            let code = [first, &body(number as u32 + 1)].concat();
            bytes[number * STRIDE + 14..][..code.len()].copy_from_slice(&code);
        }
        assert_eq!(
            libc::mprotect(page, size, libc::PROT_READ | libc::PROT_EXEC),
            0
        );
        page as u64
    }
}

extern "C" fn other() -> u32 {
    1000
}

fn call(entry: u64) -> u32 {
    // SAFETY: one of the functions above, or what it was redirected to.
    unsafe { std::mem::transmute::<u64, extern "C" fn() -> u32>(entry)() }
}

#[test]
fn a_redirected_entry_leads_elsewhere_until_it_is_restored() {
    // `endbr64`, as with `-fcf-protection`
    for first in [&[][..], &[0xf3, 0x0f, 0x1e, 0xfa]] {
        let start = text_with(first);
        // SAFETY: the mapping stays, and no other code writes to it.
        let entries = unsafe { Entries::new(std::iter::once(start..start + 4096).collect()) };
        let entry = start + 14;
        let behind = entries.behind(entry);
        assert_eq!(behind, entry + first.len() as u64 + 2);
        assert_eq!(call(entry), 1);
        let target = other as *const () as u64;
        for _ in 0..3 {
            // SAFETY: `other` is for ever, and has the same type.
            unsafe { entries.redirect(entry, target) }.expect("there is room");
            assert!(entries.is_redirected(entry));
            assert_eq!((call(entry), call(entry + STRIDE as u64)), (1000, 2));
            assert_eq!(call(behind), 1);
            entries.restore(entry);
            assert!(!entries.is_redirected(entry));
            assert_eq!(call(entry), 1);
        }
    }
}

#[test]
fn what_a_program_makes_of_an_entry_itself_is_left_alone() {
    let start = text();
    // SAFETY: as above.
    let entries = unsafe { Entries::new(std::iter::once(start..start + 4096).collect()) };
    let entry = start + 14;
    let target = other as *const () as u64;
    // SAFETY: as above.
    unsafe { entries.redirect(entry, target) }.expect("there is room");
    // `mov eax, 7; ret`
    let own = [0xb8, 7, 0, 0, 0, 0xc3];
    // SAFETY: text of this test's own, which no thread runs now.
    unsafe {
        let all = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        assert_eq!(libc::mprotect(start as *mut _, 4096, all), 0);
        (entry as *mut u8).copy_from_nonoverlapping(own.as_ptr(), own.len());
    }
    entries.restore(entry);
    assert_eq!(call(entry), 7);
    // SAFETY: as above.
    let again = unsafe { entries.redirect(entry, target) };
    assert!(matches!(again, Err(EntryError::Occupied { .. })));
    assert_eq!(call(entry), 7);
}

#[test]
fn what_the_compiler_did_not_prepare_is_refused() {
    let start = text();
    // SAFETY: as above.
    let entries = unsafe { Entries::new(std::iter::once(start..start + 4096).collect()) };
    let refused = |entry| entries.check(entry).unwrap_err();
    // Two bytes into the first function.
    assert!(matches!(refused(start + 16), EntryError::Occupied { .. }));
    assert!(matches!(refused(start + 15), EntryError::Unaligned { .. }));
    assert!(matches!(refused(start + 2), EntryError::Elsewhere { .. }));
    assert!(matches!(
        refused(start + 8192),
        EntryError::Elsewhere { .. }
    ));
}

/// Whether text is ever writable at the address where it is executed.
fn is_writable_text(address: u64) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("on Linux");
    maps.lines().any(|line| {
        let (range, rest) = line.split_once(' ').unwrap_or_default();
        let (from, to) = range.split_once('-').unwrap_or_default();
        let number = |hex| u64::from_str_radix(hex, 16).unwrap_or(0);
        (number(from)..number(to)).contains(&address) && rest[..3].contains('w')
    })
}

#[test]
fn eight_threads_call_while_entries_flip_a_million_times() {
    const THREADS: usize = 8;
    const FLIPS: usize = 1_000_000;
    let start = text();
    // SAFETY: as above.
    let entries = unsafe { Entries::new(std::iter::once(start..start + 4096).collect()) };
    let (stop, calls, odd) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (stop, calls, odd) = (&stop, &calls, &odd);
            scope.spawn(move || {
                let mut number = thread;
                while !stop.load(Ordering::Relaxed) {
                    for _ in 0..256 {
                        number = (number * 5 + 1) % FUNCTIONS;
                        let got = call(start + (number * STRIDE + 14) as u64);
                        match got {
                            1000 => {}
                            got if got == number as u32 + 1 => {}
                            _ => drop(odd.fetch_add(1, Ordering::Relaxed)),
                        }
                    }
                    calls.fetch_add(256, Ordering::Relaxed);
                }
            });
        }
        let target = other as *const () as u64;
        for flip in 0..FLIPS {
            let entry = start + ((flip / 2 * 7 % FUNCTIONS) * STRIDE + 14) as u64;
            match flip % 2 {
                // SAFETY: as above.
                0 => unsafe { entries.redirect(entry, target) }.expect("there is room"),
                _ => entries.restore(entry),
            }
            if flip % 4096 == 0 {
                assert!(!is_writable_text(start));
                // On few processors the others would wait for the end of a slice each time.
                std::thread::yield_now();
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(odd.into_inner(), 0);
    assert!(calls.into_inner() > 0);
}
