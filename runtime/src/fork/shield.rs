//! Holds the program's signals back while a thread is in the runtime.
//!
//! A handler may call a function that has no code yet. It then waits for a worker, and the worker
//! may need a lock that a thread of the runtime can hold: the runtime's own, the gate before a set
//! that is exchanged, the dynamic loader's lock, the list of forks. If the interrupted thread holds
//! it, all three wait for ever. So no handler runs there: while a [`Shield`] lives, all signals are
//! blocked for its thread except those that the processor raises at an instruction ([`OPEN`]),
//! which in the runtime's code are its own faults. A signal that comes meanwhile is delivered at
//! the shield's end.
//!
//! Work as long as a compile is not done under it: a thread that waits for another lowers the
//! shield ([`lowered`]), unless it holds a lock. Code of the program does not run under it either:
//! it has the mask that the program set. Listeners and other callbacks of an embedder do.
//!
//! Threads of the runtime block all signals for life ([`never_interrupted`]).
//!
//! | thread-local | written by | when |
//! |---|---|---|
//! | `RAISED` | the thread | all signals blocked, before and after |
//! | `BEFORE` | the thread | `RAISED` is zero and all signals are blocked |
//! | `BLOCKED_NOW` | the thread | as `BEFORE`; false once a sandbox is closed (`uruk_base::sandbox`) |
//! | `NEVER` | a thread of the runtime | at its start |
//!
//! A handler that comes between a look at `RAISED` and the system call that blocks raises
//! and lowers shields of its own, and leaves zero as it found it.
//!
//! # Why
//! Two system calls, some 0.4 us each, are more than half of what a small operation costs; so
//! there is one shield around each, and none while code of the embedder runs in its middle. A
//! shield without system calls would have each handler look at `RAISED`, block all signals in
//! the frame that it returns to, and send itself the signal once more. That takes a wrapper
//! around every handler. Those of JIT'd code are set through `fork::signals`; a handler of
//! the embedder, or of a library, is not, and calls JIT'd code by its address. At a function
//! without code it would be too late: it cannot wait, for the worker may need what the thread
//! holds below it; it cannot go back, for what it did stays done; and what is below cannot be
//! finished first, for its stack is in use. Whether there is such a handler takes a system
//! call to ask, and may have changed when the lock is taken. (FreeBSD's kernel looks at a word
//! of the thread, `sigfastblock`; Linux has none.)

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{Ordering, compiler_fence};

use uruk_base::sandbox;

/// Signals of faulting instructions: they cannot wait, and crash handlers need them.
const OPEN: u64 = bit(libc::SIGSEGV)
    | bit(libc::SIGBUS)
    | bit(libc::SIGILL)
    | bit(libc::SIGFPE)
    | bit(libc::SIGTRAP)
    | bit(libc::SIGSYS);

/// Signals by which the C library cancels threads and changes their user: only it blocks them.
const LIBRARYS: u64 = bit(32) | bit(33);

/// Signals that a shield blocks.
const BLOCKED: u64 = !(OPEN | LIBRARYS);

/// A signal's place in the kernel's set.
const fn bit(signal: libc::c_int) -> u64 {
    1 << (signal - 1)
}

thread_local! {
    /// Number of shields of this thread.
    static RAISED: Cell<usize> = const { Cell::new(0) };
    /// The mask that the last shield restores.
    static BEFORE: Cell<u64> = const { Cell::new(0) };
    /// Whether `BEFORE` is to be restored.
    static BLOCKED_NOW: Cell<bool> = const { Cell::new(false) };
    static NEVER: Cell<bool> = const { Cell::new(false) };
}

/// Keeps handlers of the program off its thread while it lives. Shields nest, and may be dropped in
/// any order.
#[derive(Debug)]
pub(crate) struct Shield(PhantomData<*const ()>);

impl Shield {
    /// Raises a shield: two system calls for the outermost, one here and one at its end.
    #[inline]
    pub(crate) fn raise() -> Shield {
        if !NEVER.get() {
            if RAISED.get() == 0 {
                block();
            }
            RAISED.set(RAISED.get() + 1);
            compiler_fence(Ordering::SeqCst);
        }
        Shield(PhantomData)
    }
}

impl Shield {
    /// A shield that was raised and forgotten, to be lowered.
    pub(crate) fn again() -> Shield {
        Shield(PhantomData)
    }
}

impl Drop for Shield {
    #[inline]
    fn drop(&mut self) {
        if !NEVER.get() {
            compiler_fence(Ordering::SeqCst);
            let left = RAISED.get() - 1;
            RAISED.set(left);
            if left == 0 {
                restore();
            }
        }
    }
}

/// Runs `wait` with the mask the program set, whatever shields there are, unless a lock is held.
/// `wait` takes no lock that another thread takes.
pub(crate) fn lowered<R>(wait: impl FnOnce() -> R) -> R {
    /// Raises the shields again, also when `wait` panics.
    struct Again(usize);

    impl Drop for Again {
        fn drop(&mut self) {
            block();
            RAISED.set(self.0);
            compiler_fence(Ordering::SeqCst);
        }
    }

    if NEVER.get() || RAISED.get() == 0 || uruk_base::locks::held() != 0 {
        return wait();
    }
    let _again = Again(RAISED.replace(0));
    restore();
    wait()
}

/// Marks the calling thread, which has blocked all signals and never opens them.
pub(crate) fn never_interrupted() {
    NEVER.set(true);
}

/// Whether a handler may interrupt the calling thread.
pub(crate) fn is_interruptible() -> bool {
    !NEVER.get() && RAISED.get() == 0
}

/// Offsets of `RAISED` and `NEVER` from a thread's `fs`, the same on all threads: in an executable,
/// whose thread-locals are right below that place. `None` in a library that was opened late, whose
/// thread-locals are elsewhere on each thread.
pub(crate) fn marks() -> Option<(i32, i32)> {
    /// Thread-locals of files loaded at the start lie within this many bytes.
    const STATIC: u64 = 1 << 20;
    let own: u64;
    // SAFETY: reads the first word at `fs`, which by the x86-64 psABI holds its own address.
    unsafe { std::arch::asm!("mov {}, fs:[0]", out(reg) own, options(nostack, readonly)) };
    let from = |place: u64| {
        let below = own.checked_sub(place)?;
        (below <= STATIC).then_some(-(below as i32))
    };
    let raised = RAISED.with(|cell| cell.as_ptr() as u64);
    let never = NEVER.with(|cell| cell.as_ptr() as u64);
    Some((from(raised)?, from(never)?))
}

#[cfg(test)]
thread_local! {
    static BLOCKS: Cell<usize> = const { Cell::new(0) };
}

/// How often this thread has blocked signals.
#[cfg(test)]
pub(crate) fn blocks() -> usize {
    BLOCKS.get()
}

/// Blocks all signals of [`BLOCKED`], and keeps the old mask.
fn block() {
    // The runtime has no thread left that a handler could wait for, and the call may be forbidden.
    if sandbox::is_closed() {
        return;
    }
    #[cfg(test)]
    BLOCKS.set(BLOCKS.get() + 1);
    let before = change(libc::SIG_BLOCK, BLOCKED);
    // A handler may have used the cell just before, and is done.
    compiler_fence(Ordering::SeqCst);
    BEFORE.set(before);
    BLOCKED_NOW.set(true);
}

/// Restores the mask that [`block`] found.
fn restore() {
    if !BLOCKED_NOW.replace(false) {
        return;
    }
    // Read before a handler can run, which would write another.
    let before = BEFORE.get();
    compiler_fence(Ordering::SeqCst);
    change(libc::SIG_SETMASK, before);
}

/// Changes the calling thread's mask; returns the old one. By the kernel's own call: the C
/// library's set is 16 times as long, and the rest of it would be stale stack contents. These
/// contain addresses of code, which a scan of stacks finds.
fn change(how: libc::c_int, set: u64) -> u64 {
    let mut before = 0_u64;
    let (from, to) = (&raw const set, &raw mut before);
    // SAFETY: both are as long as the last argument says; the mask is the calling thread's.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, how, from, to, size_of::<u64>()) };
    before
}
