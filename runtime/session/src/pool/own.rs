//! A thread's own state in a pool.
#![allow(
    clippy::missing_const_for_thread_local,
    reason = "loom's macro knows no const"
)]

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::sync::Arc;
#[cfg(not(loom))]
use std::thread_local;

#[cfg(loom)]
use loom::thread_local;

use super::parts::Waiter;

thread_local! {
    /// Tasks on this thread's stack.
    pub(super) static DEPTH: Cell<usize> = Cell::new(0);
    pub(super) static WORKER: Cell<bool> = Cell::new(false);
    /// The innermost wait for whose sake this thread works. Never dropped: handlers of `atexit` and
    /// last destructors of threads may look names up. It is empty outside of a wait.
    pub(super) static SAKE: ManuallyDrop<RefCell<Option<Arc<Waiter>>>> =
        ManuallyDrop::new(RefCell::new(None));
}

/// Guard that replaces the innermost wait and restores the old one when dropped.
pub(super) struct Sake(Option<Arc<Waiter>>);

impl Sake {
    pub(super) fn set(new: Option<Arc<Waiter>>) -> Self {
        Sake(SAKE.with(|sake| sake.replace(new)))
    }
}

impl Drop for Sake {
    fn drop(&mut self) {
        SAKE.with(|sake| *sake.borrow_mut() = self.0.take());
    }
}
