//! Threads that serve a session, counted, so that the end of the session can wait until they let go
//! of it. A thread that went on alone would free what embedders gave to the session later than the
//! last handle of the session is gone.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::fork::futex;

/// The number of threads that serve one session.
#[derive(Default)]
pub(crate) struct Serving {
    count: AtomicU32,
}

thread_local! {
    /// The session that the calling thread serves. Never dropped: a last destructor of a thread may
    /// fork. It is empty while the thread serves none.
    static SERVED: ManuallyDrop<RefCell<Option<Arc<Serving>>>> =
        const { ManuallyDrop::new(RefCell::new(None)) };
}

/// Counts a thread until it is dropped.
struct ServiceCount(Arc<Serving>);

impl Drop for ServiceCount {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// Clears the calling thread's note when it is dropped, also by a panic.
struct ServiceNote;

impl ServiceNote {
    fn new(serving: &Arc<Serving>) -> Self {
        SERVED.with(|served| served.replace(Some(Arc::clone(serving))));
        Self
    }
}

impl Drop for ServiceNote {
    fn drop(&mut self) {
        SERVED.with(|served| served.take());
    }
}

/// The layer of the session that one thread serves, the keeper of the whole session, and the thread's
/// count. The session goes before the count: fields are dropped in order.
struct ServedBy<T, K: ?Sized> {
    session: Arc<T>,
    _keeper: Arc<K>,
    counted: ServiceCount,
}

impl Serving {
    /// The work of a thread that runs `serve` with a layer of the session that this counts for. The
    /// thread counts from now on, and keeps the whole session by `keeper`: what it serves may call
    /// the layers above, and the last handle must not go in the middle of its work.
    pub(crate) fn work<T: Send + Sync + 'static, K: Send + Sync + ?Sized + 'static>(
        self: &Arc<Self>,
        session: &Arc<T>,
        keeper: Arc<K>,
        serve: impl Fn(&Arc<T>) + Send + 'static,
    ) -> impl Fn() + Send + 'static {
        // Relaxed: starting the thread orders it.
        self.count.fetch_add(1, Ordering::Relaxed);
        let service = ServedBy {
            session: Arc::clone(session),
            _keeper: keeper,
            counted: ServiceCount(Arc::clone(self)),
        };
        move || {
            let ServedBy {
                session, counted, ..
            } = &service;
            let _noted = ServiceNote::new(&counted.0);
            serve(session);
        }
    }

    /// Waits until no thread serves the session, at most for `limit`.
    pub(crate) fn wait(&self, limit: Duration) {
        let start = Instant::now();
        loop {
            // Acquire: the effects of the threads that left are seen.
            let left = self.count.load(Ordering::Acquire);
            let time = limit.saturating_sub(start.elapsed());
            if left == 0 || time.is_zero() {
                return;
            }
            futex::wait_for(&self.count, left, time);
        }
    }

    /// In the child of a fork, which has no thread but the calling one.
    pub(crate) fn after_fork_child(self: &Arc<Self>) {
        let serves = |served: &RefCell<Option<Arc<Serving>>>| {
            let served = served.borrow();
            served.as_ref().is_some_and(|it| Arc::ptr_eq(it, self))
        };
        let own = u32::from(SERVED.with(|served| serves(served)));
        self.count.store(own, Ordering::Relaxed);
    }

    fn leave(&self) {
        // Release: see `wait`.
        self.count.fetch_sub(1, Ordering::Release);
        futex::wake(&self.count, u32::MAX);
    }
}

/// Counts out a thread that LLVM took down, which never returns.
pub(crate) fn leave_lost() {
    if let Some(serving) = SERVED.with(|served| served.take()) {
        serving.leave();
    }
}
