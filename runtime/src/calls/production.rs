//! Work that one thread does while the others that need it wait.
//!
//! ```text
//! idle ── enter ──> under way, by a thread ── end ──> ended
//!   ^                        |
//!   +── the work is dropped: an error that is not final, a panic, the child of a fork
//! ```
//!
//! Waiting takes no lock: the work runs code of the embedder, and handlers.
//!
//! | field | writer | ordering |
//! |---|---|---|
//! | `word` | *idle* to a thread's id by that thread, and to *idle* or *ended* by it; the child of a fork | acquire to read, release to end: a thread that finds it ended sees the effects of the work |
//! | `waiting` | a thread that waits, around it | sequentially consistent, as the steps of `word`: before the kernel reads the word |

use std::sync::atomic::{AtomicU32, Ordering};

use crate::fork::futex;

const IDLE: u32 = 0;
const ENDED: u32 = u32::MAX;

/// See the module.
#[derive(Default)]
pub(super) struct Production {
    word: AtomicU32,
    waiting: AtomicU32,
}

/// The state of the work, for a thread that needs it.
pub(super) enum ProductionState<'a> {
    /// This thread must do it.
    Work(ProductionWork<'a>),
    /// It was done.
    Ended,
    /// This thread is doing it, further up its stack.
    Itself,
}

/// The work; if it is dropped without an end, another thread begins it again.
pub(super) struct ProductionWork<'a>(&'a Production);

impl Production {
    /// Begins the work, or waits until it is done.
    pub(super) fn enter(&self) -> ProductionState<'_> {
        // SAFETY: takes nothing, cannot fail.
        let me = unsafe { libc::gettid() } as u32;
        loop {
            let step = self
                .word
                .compare_exchange(IDLE, me, Ordering::Acquire, Ordering::Acquire);
            match step {
                Ok(_) => return ProductionState::Work(ProductionWork(self)),
                Err(ENDED) => return ProductionState::Ended,
                Err(worker) if worker == me => return ProductionState::Itself,
                Err(worker) => {
                    self.waiting.fetch_add(1, Ordering::SeqCst);
                    futex::wait(&self.word, worker);
                    self.waiting.fetch_sub(1, Ordering::SeqCst);
                }
            }
        }
    }

    /// Resets the work in the child of a fork: the thread that does it may not exist.
    pub(super) fn after_fork_child(&self) {
        if self.word.load(Ordering::Relaxed) != ENDED {
            self.word.store(IDLE, Ordering::Relaxed);
        }
        self.waiting.store(0, Ordering::Relaxed);
    }

    fn leave(&self, word: u32) {
        self.word.store(word, Ordering::SeqCst);
        // A thread that is not counted yet finds the word changed.
        if self.waiting.load(Ordering::SeqCst) != 0 {
            futex::wake(&self.word, u32::MAX);
        }
    }
}

impl ProductionWork<'_> {
    /// Ends the work permanently.
    pub(super) fn end(self) {
        self.0.leave(ENDED);
        std::mem::forget(self);
    }
}

impl Drop for ProductionWork<'_> {
    fn drop(&mut self) {
        self.0.leave(IDLE);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::{Production, ProductionState};

    #[test]
    fn one_thread_works_and_the_others_wait_until_it_is_done() {
        for round in 0..500 {
            let production = Production::default();
            let (inside, tries) = (AtomicU32::new(0), AtomicU32::new(0));
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        loop {
                            let work = match production.enter() {
                                ProductionState::Work(work) => work,
                                ProductionState::Ended => break,
                                ProductionState::Itself => panic!("this thread does no work"),
                            };
                            assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
                            assert!(matches!(production.enter(), ProductionState::Itself));
                            inside.fetch_sub(1, Ordering::Relaxed);
                            // Some threads fail, and another thread begins again.
                            if tries.fetch_add(1, Ordering::Relaxed) == round % 4 {
                                work.end();
                            }
                        }
                        assert_eq!(tries.load(Ordering::Relaxed), round % 4 + 1);
                    });
                }
            });
        }
    }

    #[test]
    fn the_child_of_a_fork_does_the_work_itself() {
        let production = Production::default();
        let ProductionState::Work(work) = production.enter() else {
            panic!("nothing was done yet");
        };
        production.after_fork_child();
        assert!(matches!(production.enter(), ProductionState::Work(_)));
        drop(work);
        let ProductionState::Work(work) = production.enter() else {
            panic!("nothing was done yet");
        };
        work.end();
        production.after_fork_child();
        assert!(matches!(production.enter(), ProductionState::Ended));
    }
}
