//! Threads that enter code by counted calls only, and are outside of it now.
//!
//! Such a thread registers once ([`CountedThread`]) and counts itself in and out of each call
//! ([`Inside`]). While its count is zero its stacks hold nothing of the code: a scan neither asks it nor
//! reads them. The thread promises to enter in no other way. Calls that a library makes through a
//! pointer pass none of our checks, so the promise cannot be verified. Other threads are scanned.
//!
//! Each thread has a cache line of its own. A call costs two plain stores to it, and no barrier, as the
//! scan has one. With `slot` being the pointer through which a call is made,
//!
//! ```text
//! thread                       scan
//! count = 1                    slot = elsewhere
//! (compiler's fence)           membarrier: every thread passes a full barrier
//! call [slot]                  count == 0: outside
//! count = 0, release
//! ```
//!
//! A scan that reads zero comes before the thread's store to the count. So the thread's barrier came
//! before its load of the slot, which gives the new value. A scan that reads the zero of a return comes
//! after all effects of the call.
//!
//! | field | written by | ordering |
//! |---|---|---|
//! | `tid` 0 to the id | the thread | acq-rel; pairs with the release of the owner before, and with the acquire in `outside`: what ran before the promise |
//! | `tid` to 0, or to `LOST` inside a call | the thread | release; pairs with the acquire of the next owner; the barrier of the scan orders it before later calls |
//! | `count` up | the thread | relaxed; the barrier of the scan orders it |
//! | `count` down | the thread | release; pairs with the acquire in `outside` |

use crate::sync::{AtomicI32, AtomicU32, Ordering};

/// Threads that may be counted at once.
const PLACES: usize = 256;

/// State of a line in which a call still counts after its thread stopped being counted.
const LOST: i32 = -1;

/// One thread's count.
#[repr(align(64))]
#[derive(Debug)]
pub(crate) struct Line {
    tid: AtomicI32,
    count: AtomicU32,
}

impl Line {
    #[cfg(not(loom))]
    const fn new() -> Self {
        Self {
            tid: AtomicI32::new(0),
            count: AtomicU32::new(0),
        }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self {
            tid: AtomicI32::new(0),
            count: AtomicU32::new(0),
        }
    }

    /// Takes a free line.
    pub(crate) fn take(&self, tid: i32) -> bool {
        // Acquire: the owner before is done with it; release: pairs with `outside`.
        self.tid
            .compare_exchange(0, tid, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Ends the counting.
    pub(crate) fn give(&self) {
        let inside = self.count.load(Ordering::Relaxed) != 0;
        // Release: pairs with the acquire in `take`.
        self.tid
            .store(if inside { LOST } else { 0 }, Ordering::Release);
        // A scan must not miss a call that is not counted any more: if the scan still finds the line,
        // the call finds the new slot.
        asymmetric_fence();
    }

    /// Counts a call in; returns the count to restore.
    #[inline(always)]
    pub(crate) fn enter(&self) -> u32 {
        let before = self.count.load(Ordering::Relaxed);
        self.count.store(before.wrapping_add(1), Ordering::Relaxed);
        asymmetric_fence();
        before
    }

    /// Counts a call out, and calls that were left by a jump.
    #[inline(always)]
    pub(crate) fn leave(&self, before: u32) {
        // Release: pairs with the acquire in `outside`.
        self.count.store(before, Ordering::Release);
    }

    /// Whether it is the line of `tid`, which is outside of all calls.
    pub(crate) fn outside(&self, tid: i32) -> bool {
        // Acquire: pairs with `take` and `leave`.
        self.tid.load(Ordering::Acquire) == tid && self.count.load(Ordering::Acquire) == 0
    }
}

/// The thread's half of the fence whose other half is the scan's `membarrier`.
#[inline(always)]
fn asymmetric_fence() {
    #[cfg(not(loom))]
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    // The model has no `membarrier`: both sides pay.
    #[cfg(loom)]
    loom::sync::atomic::fence(Ordering::SeqCst);
}

#[cfg(not(loom))]
pub use of_process::{CountedThread, Inside};
#[cfg(not(loom))]
pub(crate) use of_process::{after_fork_child, is_outside};

#[cfg(not(loom))]
mod of_process {
    use std::cell::Cell;
    use std::marker::PhantomData;

    use super::{Line, Ordering, PLACES};
    use crate::sys;

    static LINES: [Line; PLACES] = [const { Line::new() }; PLACES];

    thread_local! {
        static OWN: Cell<Option<&'static Line>> = const { Cell::new(None) };
    }

    /// Counts the thread on which it was made while this lives.
    #[derive(Debug)]
    pub struct CountedThread {
        line: Option<&'static Line>,
        _on_its_thread: PhantomData<*const ()>,
    }

    impl CountedThread {
        /// Begins to count the calling thread. Without a free place, or if it is counted
        /// already, nothing changes.
        ///
        /// # Safety
        /// Until the result is dropped:
        /// 1. The thread has no code of any region on its stacks now, and runs such code only
        ///    within the life of an [`Inside`].
        /// 2. The result is dropped, on this thread.
        pub unsafe fn begin() -> Self {
            let line = match OWN.get() {
                Some(_) => None,
                None => LINES.iter().find(|line| line.take(sys::gettid())),
            };
            if line.is_some() {
                OWN.set(line);
            }
            Self {
                line,
                _on_its_thread: PhantomData,
            }
        }
    }

    impl Drop for CountedThread {
        fn drop(&mut self) {
            if let Some(line) = self.line {
                OWN.set(None);
                line.give();
            }
        }
    }

    /// A call into code, from before its slot is read until it has returned.
    #[derive(Debug)]
    pub struct Inside {
        line: Option<(&'static Line, u32)>,
        _on_its_thread: PhantomData<*const ()>,
    }

    impl Inside {
        /// Counts the calling thread in, if it is counted at all.
        #[inline(always)]
        pub fn begin() -> Self {
            Self {
                line: OWN.get().map(|line| (line, line.enter())),
                _on_its_thread: PhantomData,
            }
        }
    }

    impl Drop for Inside {
        #[inline(always)]
        fn drop(&mut self) {
            if let Some((line, before)) = self.line {
                line.leave(before);
            }
        }
    }

    /// Whether `tid` is counted, and outside of all calls. A barrier of all threads came
    /// before.
    pub(crate) fn is_outside(tid: i32) -> bool {
        LINES.iter().any(|line| line.outside(tid))
    }

    /// Resets the table in a child: its other threads are gone, and this one has another id.
    pub(crate) fn after_fork_child() {
        let own = OWN.get();
        for line in &LINES {
            let is_own = own.is_some_and(|own| std::ptr::eq(own, line));
            let tid = if is_own { sys::gettid() } else { 0 };
            if is_own || line.tid.load(Ordering::Relaxed) > 0 {
                line.count.store(
                    if is_own {
                        line.count.load(Ordering::Relaxed)
                    } else {
                        0
                    },
                    Ordering::Relaxed,
                );
                // Relaxed: threads that are made later see all that this one did.
                line.tid.store(tid, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{CountedThread, Inside, is_outside};
    use crate::sys::gettid;

    #[test]
    fn a_thread_is_outside_between_its_calls() {
        let tid = gettid();
        let counted = || {
            // SAFETY: no code is run at all.
            unsafe { CountedThread::begin() }
        };
        assert!(!is_outside(tid), "nobody promised anything");
        let outer = Inside::begin();
        let thread = counted();
        assert!(is_outside(tid));
        // It began before the counting.
        drop(outer);
        assert!(is_outside(tid));
        let again = counted();
        drop(again);
        assert!(is_outside(tid), "once is enough");
        let call = Inside::begin();
        assert!(!is_outside(tid));
        let nested = Inside::begin();
        drop(nested);
        assert!(!is_outside(tid));
        // A jump past frames: the outer call counts for all.
        std::mem::forget(Inside::begin());
        drop(call);
        assert!(is_outside(tid));
        let caught = std::panic::catch_unwind(|| {
            let _call = Inside::begin();
            std::panic::resume_unwind(Box::new(()));
        });
        assert!(caught.is_err() && is_outside(tid));
        drop(thread);
        assert!(!is_outside(tid));
    }

    #[test]
    fn a_line_that_is_counted_in_is_not_given_away() {
        std::thread::spawn(|| {
            let tid = gettid();
            // SAFETY: no code is run at all.
            let thread = unsafe { CountedThread::begin() };
            let call = Inside::begin();
            drop(thread);
            // SAFETY: as above.
            let thread = unsafe { CountedThread::begin() };
            let inner = Inside::begin();
            drop(call);
            assert!(!is_outside(tid), "the first call has another line");
            drop(inner);
            assert!(is_outside(tid));
            drop(thread);
        })
        .join()
        .expect("a thread");
    }
}
