//! How long a caller is held up when the entry it calls is written to.
//!
//! A thread calls a native function without a pause and keeps every call that took long, with its
//! moment. Another thread redirects the entry and restores it, and keeps the times. The stall of a
//! write is the longest call that overlaps it or the moment after. Moments without a write are
//! measured the same way: they show the other work of the machine. On a busy machine, the kernel
//! runs other processes then.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use uruk_live::entries::Entries;

use crate::bench::{Bench, progress};
use crate::clock;
use crate::row::{Figure, Row, Target, Unit};

/// Writes that are looked at.
const WRITES: usize = 20_000;
/// Time from one to the next, and of that the part that counts as the write's.
const EVERY: Duration = Duration::from_micros(200);
const AFTER_NS: f64 = 20_000.0;
/// Calls longer than this are kept.
const LONG_NS: f64 = 500.0;
/// Calls that are kept, at most.
const MOST: usize = 4_000_000;
/// The part of the writes that the target is about, and what it allows beyond what passes without a
/// write, in microseconds.
const PART: f64 = 0.999;
const LIMIT_US: f64 = 50.0;

/// `xchg ax, ax; mov eax, 7; ret`, with its room in front.
const CODE: [u8; 8] = [0x66, 0x90, 0xb8, 7, 0, 0, 0, 0xc3];
const ROOM: usize = 14;

extern "C" fn other() -> u32 {
    8
}

/// A call that took long.
struct Long {
    begin: f64,
    end: f64,
}

/// The stall of callers.
///
/// # Errors
/// No text can be mapped, or an entry cannot be redirected.
pub fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let entry = text()?;
    let page = entry / 4096 * 4096;
    // SAFETY: a mapping of this function's own, which stays.
    let entries = unsafe { Entries::new(std::iter::once(page..page + 4096).collect()) };
    let writes = bench.rounds(WRITES);
    progress(&format!("{writes} writes to an entry that is called"));
    let stop = AtomicBool::new(false);
    let (calls, moments) = std::thread::scope(|scope| -> Result<_> {
        let caller = scope.spawn(|| {
            let _pinned = clock::pin(1);
            call_until(&stop, entry)
        });
        let _pinned = clock::pin(0);
        let moments = flip(&entries, entry, writes);
        stop.store(true, Ordering::Relaxed);
        let calls = caller
            .join()
            .map_err(|_| anyhow::anyhow!("the caller panicked"))?;
        Ok((calls, moments?))
    })?;
    let written: Vec<f64> = stalls(
        &calls,
        moments.iter().map(|&(at, end)| (at, end + AFTER_NS)),
    );
    let half = EVERY.as_nanos() as f64 / 2.0;
    let quiet = moments
        .iter()
        .map(|&(at, end)| (at + half, end + half + AFTER_NS));
    let quiet = stalls(&calls, quiet);
    let row = Row::new(
        "live, stall at a write, 99.9 %",
        Unit::Us,
        Figure::of([quantile(written, PART) / 1e3]),
    );
    let row = row.peer("no write", Figure::of([quantile(quiet, PART) / 1e3]));
    Ok(vec![row.target(Target::AtMostAbovePeer(LIMIT_US)).note(format!(
        "the longest call within {:.0} us of each of {writes} writes to its entry, of which 99.9 % took no \
         longer than this",
        AFTER_NS / 1e3
    ))])
}

/// The entry of a function with room, in a page of text.
fn text() -> Result<u64> {
    let (read, write) = (libc::PROT_READ, libc::PROT_WRITE);
    let (flags, none) = (
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        std::ptr::null_mut(),
    );
    // SAFETY: a fresh mapping, which is written to before it is executed.
    unsafe {
        let page = libc::mmap(none, 4096, read | write, flags, -1, 0);
        ensure!(page != libc::MAP_FAILED, "no page for text");
        let bytes = std::slice::from_raw_parts_mut(page.cast::<u8>(), 4096);
        bytes.fill(0x90);
        bytes[ROOM..ROOM + CODE.len()].copy_from_slice(&CODE);
        let protected = libc::mprotect(page, 4096, read | libc::PROT_EXEC);
        ensure!(protected == 0, "no text");
        Ok(page as u64 + ROOM as u64)
    }
}

/// Calls the entry until told to stop; the calls that took long.
fn call_until(stop: &AtomicBool, entry: u64) -> Vec<Long> {
    // SAFETY: the function of `text`, or what it is redirected to.
    let call = unsafe { std::mem::transmute::<u64, extern "C" fn() -> u32>(entry) };
    let mut calls = Vec::with_capacity(1 << 16);
    let mut begin = clock::wall_ns();
    while !stop.load(Ordering::Relaxed) && calls.len() < MOST {
        std::hint::black_box(call());
        let end = clock::wall_ns();
        if end - begin >= LONG_NS {
            calls.push(Long { begin, end });
        }
        begin = end;
    }
    calls
}

/// Redirects and restores; when each began and ended.
fn flip(entries: &Entries, entry: u64, writes: usize) -> Result<Vec<(f64, f64)>> {
    let mut moments = Vec::with_capacity(writes);
    for write in 0..writes {
        std::thread::sleep(EVERY);
        let begin = clock::wall_ns();
        match write % 2 {
            // SAFETY: `other` has the same type, and stays.
            0 => unsafe { entries.redirect(entry, other as *const () as u64) }?,
            _ => entries.restore(entry),
        }
        moments.push((begin, clock::wall_ns()));
    }
    Ok(moments)
}

/// For each stretch of time, the longest call that overlaps it; both in the order of time.
fn stalls(calls: &[Long], stretches: impl Iterator<Item = (f64, f64)>) -> Vec<f64> {
    let mut first = 0;
    let longest = stretches.map(|(begin, end)| {
        while calls.get(first).is_some_and(|call| call.end < begin) {
            first += 1;
        }
        let inside = calls[first..].iter().take_while(|call| call.begin <= end);
        inside.fold(0.0, |most: f64, call| most.max(call.end - call.begin))
    });
    longest.collect()
}

fn quantile(mut figures: Vec<f64>, part: f64) -> f64 {
    figures.sort_by(f64::total_cmp);
    let rank = (figures.len() as f64 * part) as usize;
    figures
        .get(rank)
        .or(figures.last())
        .copied()
        .unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::{Long, quantile, stalls};

    #[test]
    fn a_stall_is_the_longest_call_that_overlaps() {
        let calls = [(10.0, 30.0), (40.0, 45.0), (90.0, 99.0)];
        let calls = calls.map(|(begin, end)| Long { begin, end });
        let found = stalls(
            &calls,
            [(25.0, 42.0), (50.0, 60.0), (95.0, 200.0)].into_iter(),
        );
        assert_eq!(found, [20.0, 0.0, 9.0]);
        assert_eq!(quantile((0..1000).map(f64::from).collect(), 0.999), 999.0);
    }
}
