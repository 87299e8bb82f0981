//! Turns to replace: one thread at a time has the turn.
//!
//! A turn lasts as long as compiles do, and handlers run meanwhile. So it is no lock, and
//! waiting for it takes none: a handler may have interrupted the thread that waits. A handler that
//! requests the turn of its own thread gets an error, as does a constructor or a callback of a
//! replacement; it would wait for itself. So does a generator or a unit that a lookup of the
//! replacement needs, on whatever thread it runs: work that it starts is on its behalf (`Behalf`).
//!
//! A turn can be *lent* to first bodies (`calls::lazy`) while its owner changes nothing: around the
//! constructors of a replacement, which may be the first to call a function, and in between two
//! tries of a `Quiescent` replacement, since threads in old code may need a first body to leave it.
//! The owner goes on once the last borrower has given the turn back.
//!
//! | field | writer | ordering |
//! |---|---|---|
//! | `word`, the owner's bits | zero to a thread's id by that thread, and back by it; the child of a fork | acquire to take, sequentially consistent to give back: before the look at `waiting` |
//! | `word`, `LENT` | the owner, around the time in which it lends | the same |
//! | `word`, `BORROWED` | a first body, around its work; only while `LENT` is set | the same |
//! | `number`, `borrower` | the owner and a borrower, before their first work, and zero before they give the turn back | relaxed: it concerns work that the owner started |
//! | `waiting` | a thread that waits, around it | sequentially consistent: before the kernel looks at `word` |
//! | `first_bodies` | a first body that waits, around it | relaxed: a hint to the owner, which looks again |

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use uruk_session::{Behalf, Working};

use crate::error::replace::ReplaceError;
use crate::fork::futex;

/// First bodies may borrow the turn.
const LENT: u32 = 1 << 31;
/// A first body borrows the turn.
const BORROWED: u32 = 1 << 30;
const OWNER: u32 = BORROWED - 1;

/// Time between two checks whether first bodies wait for a turn.
const LOOK: Duration = Duration::from_millis(2);

/// Numbers of turns, of all sessions.
static NUMBERS: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// Whether this thread borrows a turn, or is about to: a handler would wait for it for ever.
    static BORROWS: Cell<bool> = const { Cell::new(false) };
}

/// The turn and its waiting threads; see the module.
#[derive(Default)]
pub(super) struct Turns {
    /// The kernel's id of the thread that has the turn, or 0, and flags.
    word: AtomicU32,
    /// The number of the turn, of [`NUMBERS`]; 0 if none is taken.
    number: AtomicU64,
    /// The number of the first body that borrows it, or 0.
    borrower: AtomicU64,
    waiting: AtomicU32,
    first_bodies: AtomicU32,
}

/// The right to replace; one at a time.
pub(crate) struct ReplacementTurn<'a> {
    turns: &'a Turns,
    borrowed: bool,
    /// Work that is started meanwhile is on behalf of the turn.
    _working: Working,
}

/// Lends the turn to first bodies while it lives.
pub(super) struct Lent<'a>(&'a Turns);

impl Turns {
    /// Waits until no other thread replaces anything.
    ///
    /// # Errors
    /// [`ReplaceError::Nested`].
    pub(super) fn take(&self) -> Result<ReplacementTurn<'_>, ReplaceError> {
        let me = thread();
        loop {
            match self.step(0, me) {
                Ok(()) => return Ok(self.turn(false)),
                Err(word) if word & OWNER == me || BORROWS.get() || self.is_worked_for() => {
                    return Err(ReplaceError::Nested);
                }
                Err(word) => self.wait(word),
            }
        }
    }

    /// A turn, if no thread has one.
    pub(super) fn try_take(&self) -> Option<ReplacementTurn<'_>> {
        self.step(0, thread()).ok().map(|()| self.turn(false))
    }

    /// Whether the calling thread works for the owner of the turn, which waits for it.
    fn is_for_owner(&self) -> bool {
        is_for(&self.number)
    }

    /// Whether it works for either of both.
    fn is_worked_for(&self) -> bool {
        self.is_for_owner() || self.is_for_borrower()
    }

    /// The same for the first body that borrows it.
    fn is_for_borrower(&self) -> bool {
        is_for(&self.borrower)
    }

    /// A turn for a first body, which may be one that is lent.
    ///
    /// # Errors
    /// [`ReplaceError::Nested`].
    pub(super) fn take_for_first_body(&self) -> Result<ReplacementTurn<'_>, ReplaceError> {
        let me = thread();
        if BORROWS.get() {
            return Err(ReplaceError::Nested);
        }
        loop {
            let Err(word) = self.step(0, me) else {
                return Ok(self.turn(false));
            };
            if word & (LENT | BORROWED) == LENT {
                // Before the step: a handler that comes behind it finds that it would wait.
                BORROWS.set(true);
                if self.step(word, word | BORROWED).is_ok() {
                    return Ok(self.turn(true));
                }
                BORROWS.set(false);
                continue;
            }
            let for_owner = word & OWNER == me || self.is_for_owner();
            if self.is_for_borrower() || (word & LENT == 0 && for_owner) {
                return Err(ReplaceError::Nested);
            }
            self.first_bodies.fetch_add(1, Ordering::Relaxed);
            self.wait(word);
            self.first_bodies.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn turn(&self, borrowed: bool) -> ReplacementTurn<'_> {
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let of = match borrowed {
            true => &self.borrower,
            false => &self.number,
        };
        of.store(number, Ordering::Relaxed);
        ReplacementTurn {
            turns: self,
            borrowed,
            _working: Behalf::now().owned(number).enter(),
        }
    }

    /// Lends the turn, which is taken.
    pub(super) fn lend(&self) -> Lent<'_> {
        self.word.fetch_or(LENT, Ordering::SeqCst);
        self.wake();
        Lent(self)
    }

    /// Whether a first body waits for a turn.
    pub(super) fn is_wanted(&self) -> bool {
        self.first_bodies.load(Ordering::Relaxed) != 0
    }

    /// Lends the turn, which is taken, to first bodies that wait for it.
    pub(super) fn give_way(&self, deadline: Instant) {
        let lent = self.lend();
        while self.is_wanted() && Instant::now() < deadline {
            std::thread::sleep(LOOK);
        }
        drop(lent);
    }

    /// Whether any thread has the turn. Relaxed: the caller has read, under a lock, the state that
    /// the owner takes under the same lock.
    pub(super) fn is_taken(&self) -> bool {
        self.word.load(Ordering::Relaxed) != 0
    }

    /// In the child of a fork: no thread replaces anything.
    pub(super) fn after_fork_child(&self) {
        self.word.store(0, Ordering::Relaxed);
        self.number.store(0, Ordering::Relaxed);
        self.borrower.store(0, Ordering::Relaxed);
        self.waiting.store(0, Ordering::Relaxed);
        self.first_bodies.store(0, Ordering::Relaxed);
    }

    fn step(&self, from: u32, to: u32) -> Result<(), u32> {
        // Acquire: pairs with the step that gave it back.
        let step = self
            .word
            .compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed);
        step.map(drop)
    }

    fn wait(&self, word: u32) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        futex::wait(&self.word, word);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    /// Wakes all: of those that wait, some may only borrow.
    fn wake(&self) {
        // A thread that is not counted yet finds the word changed.
        if self.waiting.load(Ordering::SeqCst) != 0 {
            futex::wake(&self.word, u32::MAX);
        }
    }
}

impl Drop for ReplacementTurn<'_> {
    fn drop(&mut self) {
        match self.borrowed {
            true => {
                self.turns.borrower.store(0, Ordering::Relaxed);
                self.turns.word.fetch_and(!BORROWED, Ordering::SeqCst);
                BORROWS.set(false);
            }
            false => {
                self.turns.number.store(0, Ordering::Relaxed);
                self.turns.word.store(0, Ordering::SeqCst);
            }
        }
        self.turns.wake();
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        loop {
            let word = self.0.word.load(Ordering::Relaxed);
            match word & (LENT | BORROWED) {
                LENT if self.0.step(word, word & !LENT).is_ok() => return,
                LENT => {}
                // The child of a fork, in which the turn is free.
                0 => return,
                _ => self.0.wait(word),
            }
        }
    }
}

/// Whether the calling thread works for the owner with that number.
fn is_for(number: &AtomicU64) -> bool {
    let owner = Behalf::now().owner();
    owner != 0 && owner == number.load(Ordering::Relaxed)
}

fn thread() -> u32 {
    // SAFETY: takes nothing, cannot fail. Ids have 22 bits (`PID_MAX_LIMIT`).
    unsafe { libc::gettid() as u32 }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::{Duration, Instant};

    use super::{Behalf, ReplaceError, Turns};

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
                        let first = turns.take_for_first_body();
                        assert_eq!(first.err(), Some(ReplaceError::Nested));
                        inside.fetch_sub(1, Ordering::Relaxed);
                        drop(turn);
                    }
                });
            }
        });
        turns.take().expect("free");
        assert_eq!(turns.waiting.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_turn_that_is_lent_is_borrowed_by_one_at_a_time() {
        let turns = Turns::default();
        let (inside, owns) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        let turn = turns.take_for_first_body().expect("not nested");
                        assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
                        assert_eq!(owns.load(Ordering::Relaxed), 0, "beside the owner");
                        assert_eq!(turns.take().err(), Some(ReplaceError::Nested));
                        let again = turns.take_for_first_body();
                        assert_eq!(again.err(), Some(ReplaceError::Nested));
                        inside.fetch_sub(1, Ordering::Relaxed);
                        drop(turn);
                    }
                });
            }
            scope.spawn(|| {
                for round in 0..500 {
                    let turn = turns.take().expect("not nested");
                    for _ in 0..3 {
                        owns.store(1, Ordering::Relaxed);
                        assert_eq!(inside.load(Ordering::Relaxed), 0);
                        owns.store(0, Ordering::Relaxed);
                        let lent = turns.lend();
                        if round % 7 == 0 {
                            // On the same thread, as a constructor does.
                            turns.take_for_first_body().expect("lent to itself");
                        }
                        drop(lent);
                    }
                    drop(turn);
                }
            });
        });
        turns.take().expect("free");
        assert_eq!(turns.waiting.load(Ordering::Relaxed), 0);
        assert_eq!(turns.first_bodies.load(Ordering::Relaxed), 0);
    }

    /// The results of both requests of the turn on this behalf, on another thread.
    fn asked(turns: &Turns, behalf: Behalf) -> [Option<ReplaceError>; 2] {
        let take = move || [turns.take().err(), turns.take_for_first_body().err()];
        std::thread::scope(|scope| {
            let asking = scope.spawn(move || behalf.scope(take));
            asking.join().expect("no panic")
        })
    }

    #[test]
    fn work_for_the_owner_or_the_borrower_never_waits_for_them() {
        let turns = Turns::default();
        let nested = [(); 2].map(|()| Some(ReplaceError::Nested));
        let before = Behalf::now().owner();
        let turn = turns.take().expect("free");
        assert_eq!(asked(&turns, Behalf::now()), nested);
        let lent = turns.lend();
        std::thread::scope(|scope| {
            let borrowing = scope.spawn(|| {
                let _first = turns.take_for_first_body().expect("lent");
                asked(&turns, Behalf::now())
            });
            assert_eq!(borrowing.join().expect("no panic"), nested);
        });
        drop(lent);
        let old = Behalf::now();
        drop(turn);
        assert_eq!(Behalf::now().owner(), before);
        assert_eq!(asked(&turns, old), [None, None], "the turn is over");
    }

    #[test]
    fn the_owner_gives_way_to_first_bodies_that_wait() {
        let turns = Turns::default();
        let turn = turns.take().expect("free");
        std::thread::scope(|scope| {
            let first = scope.spawn(|| drop(turns.take_for_first_body().expect("lent")));
            while !turns.is_wanted() {
                std::thread::yield_now();
            }
            turns.give_way(Instant::now() + Duration::from_secs(600));
            first.join().expect("it had a turn");
        });
        drop(turn);
    }
}
