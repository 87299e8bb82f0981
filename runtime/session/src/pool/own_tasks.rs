//! Tasks that only the thread that waits for them may run.
//!
//! A waiting thread may run any task on top of its wait. A task that needs the result of a frame
//! below it on the same stack would wait forever; so it is given to the thread whose wait it ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::parts::Task;
use super::{Pool, Waiter};
use crate::sync::Mutex;

/// Guard of a thread that waits, or is about to.
pub(crate) struct WillWait<'a> {
    waiter: &'a Waiter,
    helpers: usize,
}

impl Drop for WillWait<'_> {
    fn drop(&mut self) {
        let helpers = &self.waiter.helpers;
        helpers.fetch_sub(self.helpers, Ordering::Relaxed);
    }
}

impl Pool {
    /// Starts a task on the thread that waits for it, if one does and runs tasks: on top of another
    /// wait it could need a frame below itself. Else like [`Pool::spawn`].
    pub(crate) fn spawn_for(&self, waiter: &Arc<Waiter>, work: impl FnOnce() + Send + 'static) {
        let mut own = waiter.own.lock();
        if waiter.helpers.load(Ordering::Relaxed) == 0 {
            drop(own);
            return self.for_the_sake_of(waiter, || self.spawn(work));
        }
        own.push_back(Arc::new(Task {
            work: Mutex::new(Some(Box::new(work))),
            sake: Arc::downgrade(waiter),
        }));
        drop(own);
        waiter.parker.unpark();
    }

    /// Declares, until the result is dropped, that this thread waits or is about to, and runs tasks
    /// that are started for it.
    pub(crate) fn will_wait<'a>(&self, waiter: &'a Waiter) -> WillWait<'a> {
        let own = usize::from(self.may_help());
        // Relaxed: the lookup that is waited for is published under a lock after this, and the wait
        // does not end before its task has run.
        waiter.helpers.fetch_add(own, Ordering::Relaxed);
        WillWait {
            waiter,
            helpers: own,
        }
    }
}
