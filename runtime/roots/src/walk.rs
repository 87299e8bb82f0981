//! Scans one thread's stacks: reads words, notes hits, follows signal frames.
//!
//! The walk begins at a stack pointer less the red zone (128 bytes that code below the pointer may still
//! use) and ends at the end of the stack by [`Maps`]. The kernel saves an interrupted context as a
//! `ucontext`; its words, from `<sys/ucontext.h>`:
//!
//! | offset from `gregs[REG_CSGSFS]` | word |
//! |---|---|
//! | 0 | `0x002b_0000_0000_0033`: ss, fs, gs, cs of 64-bit code |
//! | -8 | flags |
//! | -16 | interrupted instruction pointer |
//! | -24 | interrupted stack pointer |
//! | -184 | start of the `ucontext` |
//! | 40 | address of the saved vector registers, which the kernel puts right above |
//!
//! So that word gives the interrupted stack pointer. If it points outside of the scanned memory, that
//! stack is scanned as well. This finds the stack below an alternate signal stack, and nested handlers,
//! whether the thread runs or sleeps. A stale frame costs a scan of memory that need not be scanned, or
//! nothing if its memory is gone. Part of a stale frame may be overwritten, and the word in place of the
//! stack pointer may lead anywhere, as to a heap that is longer than any stack: the thread could never
//! be scanned while the word is there. Flags and the address of the vector registers distinguish a frame
//! from such a rest ([`is_frame`]), and no stack lies in code, where return addresses lead.
//!
//! A thread may also have left its own stack by `swapcontext`, or in a way that leaves no usable stack
//! pointer (a handler of an overflow). If no scanned stack reaches the top of its own stack, all of that
//! is scanned, and the thread's place is noted: if its current stack is unregistered, others without a
//! running thread may exist.
//!
//! The walk runs in signal handlers: no allocation, no lock, no panic.

use crate::contexts::note_elsewhere;
use crate::hits::Hits;
use crate::maps::Maps;
use crate::words::scan_words;

/// `gregs[REG_CSGSFS]` of code that runs in 64-bit mode: cs 0x33, ss 0x2b; the kernel
/// writes 0 for fs and gs.
pub(crate) const FRAME_MARK: u64 = 0x002b_0000_0000_0033;

/// Bytes below the stack pointer that belong to the running function (System V ABI).
pub(crate) const RED_ZONE: u64 = 128;

/// Most separate stacks of one thread: its own, an alternate one, those of nested handlers.
pub(crate) const MAX_SPANS: usize = 16;

/// Reads memory: directly where that is certain not to fault, else through the kernel.
pub(crate) trait Memory {
    /// The words at `at`, at least one and up to `end`; empty if unreadable. `direct`:
    /// plain loads from `at` to `end` cannot fault.
    fn words(&mut self, at: u64, end: u64, direct: bool) -> &[u64];

    /// One word.
    fn word(&mut self, at: u64) -> Option<u64>;
}

/// Reasons why a walk proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The snapshot lacks this stack, or has an old state of it.
    Stale(u64),
    /// More than [`MAX_SPANS`] stacks.
    ManySpans,
    /// More bytes than the limit.
    Large(u64),
    /// More distinct hits than the table holds.
    Overflow,
}

/// Stacks that have been scanned, or will be.
#[derive(Debug, Default)]
pub(crate) struct Spans {
    spans: [(u64, u64, bool, bool); MAX_SPANS],
    len: usize,
}

/// Properties that stay the same during a walk.
#[derive(Debug)]
pub(crate) struct Ground<'a> {
    pub(crate) maps: &'a Maps,
    /// The thread's control block, or 0.
    pub(crate) tcb: u64,
    /// Whether it is the process's first thread.
    pub(crate) first: bool,
    /// The known alternate stack of the thread (start, end), or zeros.
    pub(crate) alternate: (u64, u64),
    /// Most bytes to scan.
    pub(crate) limit: u64,
}

/// Scans from `sp` (the red zone included) all connected stacks. Returns the bytes scanned.
pub(crate) fn walk(
    memory: &mut impl Memory,
    ground: &Ground<'_>,
    sp: u64,
    hits: &mut Hits,
) -> Result<u64, Trouble> {
    let mut spans = Spans::default();
    add(memory, ground, &mut spans, sp)?;
    if spans.len == 0 {
        return Err(Trouble::Stale(sp));
    }
    let mut bytes = 0u64;
    let mut next = 0;
    drain(memory, ground, &mut spans, (&mut next, &mut bytes), hits)?;
    // The first thread of a child of `fork` has two: the process's, and the one on which it forked.
    let owned = ground.maps.own(ground.tcb, ground.first);
    let mut home = owned.iter().all(Option::is_none);
    for (own, grows) in owned.into_iter().flatten() {
        let known = spans.spans.iter().take(spans.len);
        if known.into_iter().any(|&(_, to, ..)| to == own.end) {
            home = true;
            continue;
        }
        if grows && memory.word(own.start.wrapping_sub(8)).is_some() {
            return Err(Trouble::Stale(own.start));
        }
        push(&mut spans, (own.start, own.end, false, false))?;
    }
    if !home {
        note_elsewhere(sp);
    }
    drain(memory, ground, &mut spans, (&mut next, &mut bytes), hits)?;
    if hits.overflowed() {
        return Err(Trouble::Overflow);
    }
    Ok(bytes)
}

/// Scans the queued stacks.
fn drain(
    memory: &mut impl Memory,
    ground: &Ground<'_>,
    spans: &mut Spans,
    (next, bytes): (&mut usize, &mut u64),
    hits: &mut Hits,
) -> Result<(), Trouble> {
    while let Some(&(start, end, direct, probe)) = spans.spans.get(*next) {
        if *next >= spans.len {
            break;
        }
        *bytes = bytes.saturating_add(end.saturating_sub(start));
        if *bytes > ground.limit {
            return Err(Trouble::Large(*bytes));
        }
        scan_span(memory, ground, spans, (start, end, direct), hits)?;
        if probe && memory.word(end).is_some() {
            return Err(Trouble::Stale(end));
        }
        *next = next.wrapping_add(1);
    }
    Ok(())
}

/// Queues the stack at `sp` unless it is queued already or its memory is gone.
fn add(
    memory: &mut impl Memory,
    ground: &Ground<'_>,
    spans: &mut Spans,
    sp: u64,
) -> Result<(), Trouble> {
    let Some(found) = ground.maps.extent(sp, ground.tcb) else {
        // Unreadable memory is no stack now.
        return match memory.word(sp & !7) {
            Some(_) => Err(Trouble::Stale(sp)),
            None => Ok(()),
        };
    };
    let mut start = sp.wrapping_sub(RED_ZONE) & !7;
    if let Some(mapped) = found.grows_from
        && memory.word(sp & !7).is_none()
    {
        if memory.word(mapped.wrapping_sub(8)).is_some() {
            return Err(Trouble::Stale(sp));
        }
        start = mapped;
    }
    // At the very bottom of a stack the red zone may reach into the guard.
    else if start >> 12 != sp >> 12 && memory.word(start).is_none() {
        start = sp & !0xfff;
    }
    let (mut end, mut direct, mut probe) = (found.end, found.direct, found.probe);
    let (low, high) = ground.alternate;
    if low <= sp && sp < high {
        (end, direct, probe) = (high & !7, false, false);
    }
    for &(from, to, ..) in spans.spans.iter().take(spans.len) {
        if from <= start && start < to {
            return Ok(());
        }
        if start < from && from < end {
            (end, probe) = (from, false);
        }
    }
    push(spans, (start, end, direct, probe))
}

fn push(spans: &mut Spans, span: (u64, u64, bool, bool)) -> Result<(), Trouble> {
    let Some(place) = spans.spans.get_mut(spans.len) else {
        return Err(Trouble::ManySpans);
    };
    *place = span;
    spans.len = spans.len.wrapping_add(1);
    Ok(())
}

fn scan_span(
    memory: &mut impl Memory,
    ground: &Ground<'_>,
    spans: &mut Spans,
    (start, end, direct): (u64, u64, bool),
    hits: &mut Hits,
) -> Result<(), Trouble> {
    let mut at = start;
    while at < end {
        // A chunk may hold several marks; the memory behind `words` is reused by the
        // reads that follow a mark, so the chunk is read again from behind it.
        let (read, mark) = scan_words(memory.words(at, end, direct), hits);
        if read == 0 {
            return Err(Trouble::Stale(at));
        }
        at = at.wrapping_add((read as u64).wrapping_mul(8));
        if mark {
            // The mark is the last word read: at - 8; the stack pointer 24 below it.
            let frame = at.wrapping_sub(192);
            if frame >= start
                && is_frame(memory, at.wrapping_sub(8))
                && let Some(sp) = memory.word(at.wrapping_sub(32))
                && ground.maps.may_be_stack(sp)
            {
                add(memory, ground, spans, sp)?;
            }
        }
    }
    Ok(())
}

/// Most bytes from the mark to the saved vector registers: the rest of the `ucontext`, a `siginfo`, and
/// padding to 64 bytes.
const TO_VECTORS: u64 = 1024;

/// Whether a mark is in a frame that the kernel made and that was not overwritten since, as far as the
/// neighbouring words tell.
fn is_frame(memory: &mut impl Memory, mark: u64) -> bool {
    // Bit 1 is always set; there are none from 22 on.
    let flags = memory.word(mark.wrapping_sub(8)).unwrap_or(0);
    let vectors = memory.word(mark.wrapping_add(40)).unwrap_or(0);
    let above = vectors.wrapping_sub(mark);
    flags & 2 != 0 && flags >> 22 == 0 && above <= TO_VECTORS && vectors & 63 == 0
}

/// Memory read through the kernel in chunks of the buffer.
#[derive(Debug)]
pub(crate) struct Copied<'a> {
    pub(crate) pid: i32,
    pub(crate) buffer: &'a mut [u64],
}

impl Memory for Copied<'_> {
    fn words(&mut self, at: u64, end: u64, _direct: bool) -> &[u64] {
        let wanted = (end.saturating_sub(at) / 8).min(self.buffer.len() as u64) as usize;
        let Some(buffer) = self.buffer.get_mut(..wanted) else {
            return &[];
        };
        let read = crate::sys::read_words(self.pid, at, buffer);
        buffer.get(..read).unwrap_or_default()
    }

    fn word(&mut self, at: u64) -> Option<u64> {
        let mut word = [0];
        (crate::sys::read_words(self.pid, at, &mut word) == 1).then_some(word[0])
    }
}

/// Memory of the calling thread: loads where they cannot fault.
#[derive(Debug)]
pub(crate) struct Own<'a>(pub(crate) Copied<'a>);

impl Memory for Own<'_> {
    fn words(&mut self, at: u64, end: u64, direct: bool) -> &[u64] {
        if !direct {
            return self.0.words(at, end, direct);
        }
        let count = (end.saturating_sub(at) / 8) as usize;
        // SAFETY: `Maps` says that `[at, end)` is the stack this thread was interrupted
        // on, which lives as long as the thread; `at` is a multiple of 8. The bytes may
        // be the handler's own while they are read: their values do not matter then.
        unsafe { std::slice::from_raw_parts(at as *const u64, count) }
    }

    fn word(&mut self, at: u64) -> Option<u64> {
        self.0.word(at)
    }
}
