//! The end of a thread that made guarded calls: its resources for them are freed.
//!
//! Uses a key of `pthread_key_create`, whose destructors run after those of thread-locals of C++
//! and Rust: these may make guarded calls, whenever they were made.

use crate::guarded::base;
use crate::guarded::chain;
use crate::guarded::interrupt;
use crate::guarded::stacks;
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::sync::{Once, OnceLock};

/// The round of key destructors in which they are freed: destructors of others may call until then.
/// The C library makes four rounds.
const ROUND: usize = 3;

thread_local! {
    static NOTED: Cell<bool> = const { Cell::new(false) };
    static LAST: Last = const { Last };
}

struct Last;

impl Drop for Last {
    fn drop(&mut self) {
        base::leave();
    }
}

/// Runs in `exit`.
extern "C" fn on_exit() {
    base::leave();
}

fn key() -> Option<libc::pthread_key_t> {
    static KEY: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();
    *KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: a destructor that lives as long as the process, see `runtime/c/build.rs`.
        let made = unsafe { libc::pthread_key_create(&mut key, Some(on_end)) } == 0;
        made.then_some(key)
    })
}

/// Notes that the calling thread has resources to be freed at its end.
pub(crate) fn note() {
    if !NOTED.replace(true) {
        // In a destructor of a thread-local the key may be gone: the base is that destructor's
        // then.
        let _ = LAST.try_with(|_| {});
        static AT_EXIT: Once = Once::new();
        // SAFETY: a function that lives as long as the process, as the key's.
        AT_EXIT.call_once(|| _ = unsafe { libc::atexit(on_exit) });
        in_round(1);
    }
}

fn in_round(round: usize) {
    if let Some(key) = key() {
        // SAFETY: a key of this module; without memory for it the thread's resources are leaked.
        unsafe { libc::pthread_setspecific(key, ptr::without_provenance(round)) };
    }
}

unsafe extern "C" fn on_end(value: *mut c_void) {
    let round = value.addr();
    if round < ROUND {
        return in_round(round + 1);
    }
    NOTED.set(false);
    interrupt::end_thread();
    stacks::end_thread();
    base::leave();
    chain::end_thread();
}
