//! Whether the process has closed a sandbox around itself.
//!
//! A filter of system calls (seccomp) that allows only the calls of the program ends the process,
//! or a thread, at any other call. Before such a filter is installed, all threads of ours end
//! (`uruk::prepare_sandbox`). From then on code of ours on threads of the program makes no system
//! call of its own: nothing is compiled, and no signal has to be held back for threads that are not
//! there.
//!
//! Relaxed: the flags are set before the filter is installed, by a thread that the installing
//! thread waits for; a thread that sees the first flag late ends a moment later.

use std::sync::atomic::{AtomicBool, Ordering};

static ENDING: AtomicBool = AtomicBool::new(false);
static CLOSED: AtomicBool = AtomicBool::new(false);

/// True once the threads of ours were told to end.
#[inline]
pub fn is_ending() -> bool {
    ENDING.load(Ordering::Relaxed)
}

/// Tells threads of ours to end.
pub fn begin_to_end() {
    ENDING.store(true, Ordering::Relaxed);
}

/// True once no thread of ours is left, and code of ours makes no system calls.
#[inline]
pub fn is_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}

/// No thread of ours is left.
pub fn close() {
    CLOSED.store(true, Ordering::Relaxed);
}
