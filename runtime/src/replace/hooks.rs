//! Constructors that come with a replacement, and their destructors.
//!
//! They run on the thread that replaces: guest code never runs on a thread of ours. No
//! lock of ours is held then, but it is that thread's turn to replace.

use std::ffi::c_void;
use std::sync::PoisonError;

use crate::core::Core;
use crate::guest::exit;

use super::prepare::Hooks;

impl Hooks {
    /// Names of all.
    pub(super) fn names(self) -> Vec<String> {
        let hooks = self.constructors.into_iter().chain(self.destructors);
        self.again
            .into_iter()
            .chain(hooks.map(|(.., name)| name))
            .collect()
    }
}

/// Destructors of one replacement, for a program's exit.
struct AtExit(Vec<u64>);

impl Core {
    /// Runs constructors and registers destructors; the names of those that exist already.
    pub(super) fn run_hooks(&self, hooks: Hooks) -> Vec<String> {
        let nothing = [std::ptr::null()];
        for &(_, address, _) in &hooks.constructors {
            // SAFETY: duty 1 of `Replacement::run_constructors`; empty vectors end themselves.
            unsafe { uruk_stubs::call_init(address, 0, nothing.as_ptr(), nothing.as_ptr()) };
        }
        let destructors = hooks.destructors.iter().map(|&(_, address, _)| address);
        let destructors: Vec<u64> = destructors.collect();
        if destructors.is_empty() {
            return hooks.again;
        }
        if self.is_program() {
            let list = Box::into_raw(Box::new(AtExit(destructors)));
            // SAFETY: the handler takes the list, and is part of this executable.
            unsafe { exit::at_exit_with(run_at_exit, list.cast::<c_void>()) };
        } else {
            let mut held = self
                .destructors
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            held.insert(hooks.image, destructors);
        }
        hooks.again
    }
}

unsafe extern "C-unwind" fn run_at_exit(list: *mut c_void) {
    // SAFETY: `run_hooks` registered it with a list, once.
    let list = unsafe { Box::from_raw(list.cast::<AtExit>()) };
    for &address in &list.0 {
        // SAFETY: destructors of an input that was allowed to run its constructors.
        unsafe { uruk_stubs::call_void(address) };
    }
}
