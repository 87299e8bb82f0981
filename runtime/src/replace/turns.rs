//! Whose turn it is to replace: one thread's at a time.
//!
//! A turn lasts as long as compiles do, and handlers run meanwhile. So it is no lock, and
//! waiting for it takes none: a handler may have interrupted whoever waits. A handler that
//! wants the turn its own thread has is told so, as is a constructor or a callback of a
//! replacement; it would wait for itself.
//!
//! | field | writer | ordering |
//! |---|---|---|
//! | `owner` | zero to a thread's id by that thread, and back by it; the child of a fork | acquire to take, sequentially consistent to give back: before the look at `waiting` |
//! | `waiting` | who waits, around it | sequentially consistent: before the kernel looks at `owner` |

use std::sync::atomic::{AtomicU32, Ordering};

use super::error::ReplaceError;
use crate::fork::futex;

/// See the module.
#[derive(Default)]
pub(super) struct Turns {
    /// The kernel's id of the thread that has the turn, or 0.
    owner: AtomicU32,
    waiting: AtomicU32,
}

/// The right to replace; one at a time.
pub(crate) struct Turn<'a>(&'a Turns);

impl Turns {
    /// Waits until nobody else replaces anything.
    ///
    /// # Errors
    /// [`ReplaceError::Nested`].
    pub(super) fn take(&self) -> Result<Turn<'_>, ReplaceError> {
        // SAFETY: takes nothing, cannot fail.
        let me = unsafe { libc::gettid() } as u32;
        loop {
            // Acquire: pairs with the store that gave it back.
            let taken = self
                .owner
                .compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed);
            match taken {
                Ok(_) => return Ok(Turn(self)),
                Err(owner) if owner == me => return Err(ReplaceError::Nested),
                Err(owner) => {
                    self.waiting.fetch_add(1, Ordering::SeqCst);
                    futex::wait(&self.owner, owner);
                    self.waiting.fetch_sub(1, Ordering::SeqCst);
                }
            }
        }
    }

    /// Whether anybody has the turn. Relaxed: who asks has looked, under a lock, at what the
    /// owner takes under the same lock.
    pub(super) fn is_taken(&self) -> bool {
        self.owner.load(Ordering::Relaxed) != 0
    }

    /// In the child of a fork: nobody replaces anything.
    pub(super) fn after_fork_child(&self) {
        self.owner.store(0, Ordering::Relaxed);
        self.waiting.store(0, Ordering::Relaxed);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let Turns { owner, waiting } = self.0;
        owner.store(0, Ordering::SeqCst);
        // Who is not counted yet finds the word changed.
        if waiting.load(Ordering::SeqCst) != 0 {
            futex::wake(owner, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::{ReplaceError, Turns};

    #[test]
    fn one_thread_at_a_time_and_never_twice() {
        let turns = Turns::default();
        let inside = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        let turn = turns.take().expect("not nested");
                        assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
                        assert_eq!(turns.take().err(), Some(ReplaceError::Nested));
                        inside.fetch_sub(1, Ordering::Relaxed);
                        drop(turn);
                    }
                });
            }
        });
        turns.take().expect("free");
        assert_eq!(turns.waiting.load(Ordering::Relaxed), 0);
    }
}
