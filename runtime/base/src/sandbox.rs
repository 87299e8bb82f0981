//! Whether the process has closed a sandbox around itself.
//!
//! A filter of system calls (seccomp) that allows only the calls of the program ends the process,
//! or a thread, at any other call. Before such a filter is installed, all threads of ours end
//! (`uruk::prepare_sandbox`). From then on our code on threads of the program makes no system call
//! of its own. Nothing is compiled, and no signal has to be blocked for threads that have ended.
//!
//! Relaxed: the flags are set before the filter is installed, by a thread that the installing
//! thread waits for; a thread that sees the first flag late ends a moment later.

use std::sync::atomic::{AtomicBool, Ordering};

static ENDING: AtomicBool = AtomicBool::new(false);
static CLOSED: AtomicBool = AtomicBool::new(false);

/// True once our threads were told to end.
#[inline]
pub fn is_ending() -> bool {
    ENDING.load(Ordering::Relaxed)
}

/// Tells our threads to end.
pub fn begin_to_end() {
    ENDING.store(true, Ordering::Relaxed);
}

/// True once none of our threads is left, and our code makes no system calls.
#[inline]
pub fn is_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}

/// Records that none of our threads is left.
pub fn close() {
    CLOSED.store(true, Ordering::Relaxed);
}
