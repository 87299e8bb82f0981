//! The end of a thread's stack, and the alternate stack on which an overflow is handled.
//!
//! | thread-local | written by | read by |
//! |---|---|---|
//! | `OWN` | the thread, with its first guarded call | its handlers |
//! | `ALTERNATE` | likewise, and at its end ([`ends`]) | the thread |

use std::cell::Cell;
use std::ptr;

use uruk_roots::{leave_unsearched, search_again, set_alternate_stack};

use crate::guarded::ends;
use crate::guarded::fault::{ALTERNATE as BYTES, NEAR};
use crate::guarded::probe;

thread_local! {
    /// The thread's stack, as far as it may grow; empty: not known.
    static OWN: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
    static ALTERNATE: Cell<Option<Alternate>> = const { Cell::new(None) };
}

/// An alternate stack of the runtime, in use.
#[derive(Clone, Copy)]
struct Alternate {
    memory: *mut libc::c_void,
    before: libc::stack_t,
}

/// Removes the thread's alternate stack, at its end.
pub(super) fn end_thread() {
    let Some(alternate) = ALTERNATE.take() else {
        return;
    };
    let mut now: libc::stack_t = empty();
    // SAFETY: a plain query; an alternate stack that other code has set since is kept.
    unsafe { libc::sigaltstack(ptr::null(), &mut now) };
    if now.ss_sp == alternate.memory {
        change(&alternate.before);
    }
    search_again(alternate.memory as u64);
    // SAFETY: mapped by `prepare`, and no handler runs on it: the thread is here.
    unsafe { libc::munmap(alternate.memory, BYTES) };
}

fn empty() -> libc::stack_t {
    libc::stack_t {
        ss_sp: ptr::null_mut(),
        ss_flags: libc::SS_DISABLE,
        ss_size: 0,
    }
}

/// Sets the calling thread's alternate stack, and informs the search for return addresses.
fn change(stack: &libc::stack_t) -> bool {
    let bytes = match stack.ss_flags & libc::SS_DISABLE {
        0 => stack.ss_size,
        _ => 0,
    };
    let mut done = false;
    set_alternate_stack(bytes, || {
        // SAFETY: a stack that exists as long as it is set.
        done = unsafe { libc::sigaltstack(stack, ptr::null_mut()) } == 0;
        done
    });
    done
}

/// Prepares the calling thread: finds its stack's end, and sets an alternate stack, unless it has
/// one that is large enough.
pub(crate) fn prepare() {
    OWN.set(own());
    provide();
}

/// Sets it again where other code may have removed it, as the standard library does at the thread's
/// end.
pub(super) fn prepare_again() {
    provide();
}

fn provide() {
    let mut before = empty();
    // SAFETY: a plain query.
    unsafe { libc::sigaltstack(ptr::null(), &mut before) };
    let has_one = before.ss_flags & libc::SS_DISABLE == 0;
    if has_one && (before.ss_size >= BYTES || before.ss_flags & libc::SS_ONSTACK != 0) {
        return;
    }
    if let Some(known) = ALTERNATE.get() {
        let stack = libc::stack_t {
            ss_sp: known.memory,
            ss_flags: 0,
            ss_size: BYTES,
        };
        if change(&stack) {
            let memory = known.memory;
            ALTERNATE.set(Some(Alternate { memory, before }));
        }
        return;
    }
    // SAFETY: maps fresh memory.
    let memory = unsafe {
        libc::mmap(
            ptr::null_mut(),
            BYTES,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK,
            -1,
            0,
        )
    };
    if memory == libc::MAP_FAILED {
        return;
    }
    let stack = libc::stack_t {
        ss_sp: memory,
        ss_flags: 0,
        ss_size: BYTES,
    };
    if !change(&stack) {
        // SAFETY: mapped above, and not used.
        unsafe { libc::munmap(memory, BYTES) };
        return;
    }
    leave_unsearched(memory as u64..memory as u64 + BYTES as u64);
    ALTERNATE.set(Some(Alternate { memory, before }));
    ends::note();
}

/// The calling thread's stack, from its lowest address to its end.
fn own() -> (u64, u64) {
    // SAFETY: attributes that the call fills, and that are destroyed.
    unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        if libc::pthread_getattr_np(libc::pthread_self(), &mut attributes) != 0 {
            return (0, 0);
        }
        let (mut start, mut size) = (ptr::null_mut(), 0);
        let found = libc::pthread_attr_getstack(&attributes, &mut start, &mut size) == 0;
        libc::pthread_attr_destroy(&mut attributes);
        match found {
            true => (start as u64, start as u64 + size as u64),
            false => (0, 0),
        }
    }
}

/// Whether a fault at `address` is an overflow of the stack with pointer `sp`: near it, and below
/// the thread's stack; on another stack, as a fiber's, right below or at it.
pub(super) fn is_end(address: u64, sp: u64, near: u64) -> bool {
    /// Size of the region that an overflow touches at the end of a stack other than the thread's.
    const PAGE: u64 = 4096;
    let (lowest, end) = OWN.get();
    let close = address >= sp.saturating_sub(near) && address < sp.saturating_add(PAGE);
    // The kernel keeps some pages free below the main thread's stack, into which it may not grow:
    // it ends up to that much before its limit.
    const GAP: u64 = 1 << 20;
    let own = (lowest.saturating_sub(near)..end).contains(&sp);
    match own {
        true => close && address < lowest + GAP.min(near),
        false => close && address < sp + 8,
    }
}

/// Whether an address is on the calling thread's own stack, and not below it.
pub(super) fn is_within(address: u64) -> bool {
    let (lowest, end) = OWN.get();
    (lowest..end).contains(&address)
}

/// Whether an address is on the calling thread's own stack. A stack pointer below its end is, unless
/// another stack is there.
pub(crate) fn is_own(address: u64) -> bool {
    let (lowest, _) = OWN.get();
    let below = lowest.saturating_sub(NEAR)..lowest;
    is_within(address) || (below.contains(&address) && probe::word(address & !7).is_none())
}
