//! The guards of a thread, and the choice of the one in force at a stack pointer.
//!
//! A thread may have several stacks (fibers, coroutines), each with guarded calls in progress,
//! which may end in any order. So guards are not a list: they are records in a table of the thread,
//! each with its *top*, an address right above the frames of its call. The innermost guard at a
//! stack pointer is the one with the lowest top above it on the same stack.
//!
//! | stacks of two addresses | the same if |
//! |---|---|
//! | one is within the thread's own stack | both are |
//! | neither is | all pages between them are readable ([`probe`](crate::guarded::probe)) |
//!
//! So a fiber whose stack lies right below another one's, without a guard page, sees its guards.
//! These are covered by the function of the host in which the other fiber is suspended. For guarded
//! calls on fibers, a walk of the frames finds the enclosing one.
//!
//! A call that was left by a `longjmp` of the host, or whose fiber was freed, leaves its record. A
//! *mark* lies at its top while the call is active. A record without its mark is ignored; one at or
//! below the stack pointer of a call that begins on the thread's own stack is dropped.
//!
//! # Invariants
//! - Records lie in memory of the thread, not on stacks: each can be read until the thread ends.
//! - The table is changed by its own thread and its handlers, by single atomic operations.
//! - Marks on stacks other than the thread's own are read through the kernel: the stack may be
//!   freed.
//!
//! # Why
//! A list that is linked through frames would read frames that no longer exist, and a call that
//! unlinks by position would make another call the innermost one.

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering, compiler_fence};

use uruk_roots::{leave_unsearched, search_again};

use crate::guarded::fault;
use crate::guarded::guard::Guard;
use crate::guarded::interrupt::Serial;
use crate::guarded::probe;
use crate::guarded::stacks;

/// Number of records of a chunk.
const RECORDS: usize = 32;

/// A free record, and one that is not active yet or any more.
const FREE: u64 = 0;
const TAKEN: u64 = 1;

/// Maximal distance above a mark on a fiber's stack at which a call of a fiber begins that may have
/// left that mark's call.
const CLOSE: u64 = 1 << 16;

/// A serial of no guarded call.
const NONE: Serial = Serial::MAX;

/// Records, in memory that is zero initially.
struct Chunk {
    /// [`FREE`], [`TAKEN`], or the top of an active guard.
    tops: [AtomicU64; RECORDS],
    records: [MaybeUninit<Guard>; RECORDS],
    /// Records from here on were never used: each call of a function of the host searches the
    /// table.
    used: AtomicUsize,
    next: AtomicPtr<Chunk>,
}

thread_local! {
    static FIRST: Cell<*mut Chunk> = const { Cell::new(ptr::null_mut()) };
    /// Whether the thread made guarded calls on a stack that is not its own.
    static FIBERS: Cell<bool> = const { Cell::new(false) };
    /// The innermost guard of a thread without fibers: its record, which may be inactive.
    static INNERMOST: Cell<Option<&'static Guard>> = const { Cell::new(None) };
}

/// A record in use.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    top: *const AtomicU64,
    record: *mut Guard,
}

/// The calling function's stack pointer.
#[inline(always)]
pub(crate) fn here() -> u64 {
    let sp: u64;
    // SAFETY: reads a register.
    unsafe { std::arch::asm!("mov {}, rsp", out(reg) sp, options(nomem, nostack)) };
    sp
}

/// Whether guarded calls were made on fibers of this thread.
pub(super) fn has_fibers() -> bool {
    FIBERS.get()
}

fn chunks() -> impl Iterator<Item = &'static Chunk> {
    let next = |chunk: &&'static Chunk| {
        // SAFETY: chunks stay until the thread's end.
        unsafe { chunk.next.load(Ordering::Acquire).as_ref() }
    };
    // SAFETY: as above.
    std::iter::successors(unsafe { FIRST.get().as_ref() }, next)
}

fn map_chunk() -> Option<*mut Chunk> {
    // SAFETY: maps fresh memory.
    let memory = unsafe {
        libc::mmap(
            ptr::null_mut(),
            size_of::<Chunk>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if memory == libc::MAP_FAILED {
        return None;
    }
    leave_unsearched(memory as u64..memory as u64 + size_of::<Chunk>() as u64);
    Some(memory.cast())
}

fn take_free() -> Option<Slot> {
    chunks().find_map(|chunk| {
        let place = chunk.tops.iter().position(|top| {
            top.load(Ordering::Relaxed) == FREE
                && top
                    .compare_exchange(FREE, TAKEN, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok()
        })?;
        if chunk.used.load(Ordering::Relaxed) <= place {
            chunk.used.fetch_max(place + 1, Ordering::Relaxed);
        }
        Some(Slot {
            top: &raw const chunk.tops[place],
            record: chunk.records[place].as_ptr().cast_mut(),
        })
    })
}

/// Takes a record for a guard; `None` if the system gives no memory.
pub(crate) fn take() -> Option<Slot> {
    if let Some(slot) = take_free() {
        return Some(slot);
    }
    for (slot, guard) in counted() {
        if !guard.is_marked() {
            slot.free();
        }
    }
    if let Some(slot) = take_free() {
        return Some(slot);
    }
    let chunk = map_chunk()?;
    match chunks().last() {
        Some(last) => last.next.store(chunk, Ordering::Release),
        None => FIRST.set(chunk),
    }
    crate::guarded::ends::note();
    take_free()
}

impl Slot {
    /// Fills the record, and activates it from `top` down.
    ///
    /// # Safety
    /// It was taken and is not filled. A word of the caller's frame is at `top`.
    pub(crate) unsafe fn put(self, guard: Guard, top: u64) -> &'static Guard {
        if !guard.is_own {
            FIBERS.set(true);
        }
        // SAFETY: by the caller's promise no other thread uses the record, which stays.
        unsafe {
            self.record.write(guard);
            compiler_fence(Ordering::SeqCst);
            let guard = &*self.record;
            (top as *mut u64).write_volatile(guard.mark());
            compiler_fence(Ordering::SeqCst);
            (*self.top).store(top, Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
            INNERMOST.set(Some(guard));
            guard
        }
    }

    /// Deactivates the guard. Its record stays.
    pub(crate) fn hide(self) {
        compiler_fence(Ordering::SeqCst);
        // SAFETY: tops stay.
        unsafe { (*self.top).store(TAKEN, Ordering::Relaxed) };
        compiler_fence(Ordering::SeqCst);
    }

    /// Frees the record.
    pub(crate) fn free(self) {
        self.hide();
        // SAFETY: it was filled, and is not active any more.
        unsafe {
            ptr::drop_in_place(self.record);
            (*self.top).store(FREE, Ordering::Release);
        }
    }
}

/// The active guards, in no order; marks are not checked.
fn counted() -> impl Iterator<Item = (Slot, &'static Guard)> {
    let of = |chunk: &'static Chunk| {
        let places = chunk.tops.iter().zip(&chunk.records);
        let used = chunk.used.load(Ordering::Relaxed);
        places.take(used).filter_map(|(top, record)| {
            let counts = top.load(Ordering::Relaxed) > TAKEN;
            let slot = Slot {
                top,
                record: record.as_ptr().cast_mut(),
            };
            // SAFETY: an active record is filled.
            counts.then(|| (slot, unsafe { record.assume_init_ref() }))
        })
    };
    chunks().flat_map(of)
}

/// The guards of the thread's active calls, on all stacks, in no order.
pub(crate) fn all() -> impl Iterator<Item = &'static Guard> {
    let guards = counted().map(|(_, guard)| guard);
    guards.filter(|guard| guard.is_marked())
}

/// The innermost guard at the caller's place.
pub(super) fn innermost() -> Option<&'static Guard> {
    let sp = here();
    if !FIBERS.get() {
        match INNERMOST.get() {
            // Without guards on fibers, a call on a fiber has none.
            None => return None,
            Some(guard) if guard.top > sp && stacks::is_within(sp) && guard.is_marked() => {
                return Some(guard);
            }
            Some(_) => {}
        }
    }
    at(sp)
}

/// Updates the innermost guard after another one's call.
pub(super) fn note_innermost() {
    INNERMOST.set(at(here()));
}

/// The innermost guard at a stack pointer of the thread.
pub(crate) fn at(sp: u64) -> Option<&'static Guard> {
    let mut above = sp;
    loop {
        let higher = counted().filter(|(_, guard)| guard.top > above);
        let (_, guard) = higher.min_by_key(|(_, guard)| guard.top)?;
        if !stacks_are_same(guard, sp) {
            return None;
        }
        if guard.is_marked() {
            return Some(guard);
        }
        above = guard.top;
    }
}

/// Whether a stack pointer below the top of a guard is on its stack.
fn stacks_are_same(guard: &Guard, sp: u64) -> bool {
    if guard.is_own {
        return stacks::is_own(sp);
    }
    let known = (guard.lowest.get()..guard.top).contains(&sp);
    let same = known || (!stacks::is_within(sp) && probe::is_one_stack(sp, guard.top));
    if same && !known {
        guard.lowest.set(sp);
    }
    same
}

/// The enclosing guarded call, on a fiber, of a call from `top` on, or [`NONE`].
///
/// Adjacent stacks in one mapping, as those of a pool without guard pages, look like one. So if
/// there is a guard above, the frames in between are walked.
pub(super) fn outer_of(top: u64, is_own: bool) -> Serial {
    if is_own || !FIBERS.get() {
        return NONE;
    }
    let above = at(top).filter(|guard| !guard.is_own);
    let above = above.filter(|guard| fault::is_called_by(guard.stack()));
    above.map_or(NONE, |guard| guard.serial)
}

/// A guard and those of the enclosing calls: on its stack, and for one on a fiber all on the
/// thread's own stack, from which fibers are resumed.
pub(crate) fn from<'g>(guard: &'g Guard) -> impl Iterator<Item = &'g Guard> {
    let outer = |inner: &&'g Guard| -> Option<&'g Guard> {
        let serial = inner.outer;
        let of = |(_, other): &(Slot, &'static Guard)| serial != NONE && other.serial == serial;
        let (_, found) = counted().find(of)?;
        found.is_marked().then_some(found)
    };
    let own = all().filter(move |other| other.is_own && (!guard.is_own || other.top > guard.top));
    let own = own.map(|outer| -> &'g Guard { outer });
    std::iter::successors(Some(guard), outer).chain(own)
}

/// Drops the guards of calls that were left without ending, when a call begins at `top`.
pub(super) fn drop_left(top: u64, is_own: bool) {
    for (slot, guard) in counted() {
        let left = guard.top <= top
            && match (is_own, guard.is_own) {
                (true, true) => true,
                (false, false) => top - guard.top < CLOSE && !guard.is_marked(),
                _ => false,
            };
        if left {
            slot.free();
        }
    }
}

/// Whether a call with this serial is active.
pub(crate) fn has(serial: u64) -> bool {
    all().any(|guard| guard.serial == serial)
}

/// Frees the table at the thread's end.
pub(super) fn end_thread() {
    INNERMOST.set(None);
    let mut chunk = FIRST.replace(ptr::null_mut());
    while !chunk.is_null() {
        search_again(chunk as u64);
        // SAFETY: mapped by this thread, which makes no guarded call any more.
        unsafe {
            let next = (*chunk).next.load(Ordering::Relaxed);
            libc::munmap(chunk.cast(), size_of::<Chunk>());
            chunk = next;
        }
    }
}
