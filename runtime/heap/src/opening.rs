//! Controls when the alias can be written: only during a write, and for some time after.
//!
//! One word, `users * USER + flags`:
//!
//! | flags | means | ended by |
//! |---|---|---|
//! | 0 | closed: the next writer opens it | the first writer sets `BUSY` |
//! | `BUSY` | one thread is changing the protection | that thread |
//! | `OPEN` | can be written | the closing thread sets `BUSY`, if there are no users |
//! | `OPEN`, `KEPT` | can be written for ever | never |
//!
//! A writer adds itself first and then reads the word. If it has `OPEN`, it cannot be closed before
//! the writer leaves, because closing exchanges the whole word for one without users. Two orderings
//! matter: a writer's acquire of `OPEN` is the partner of the release with which the opener sets
//! it; the closer's acquire is the partner of each writer's release on leaving.
//!
//! Closing drops the alias's pages, so that the cost of both sides depends on the pages written in
//! between and not on all code. One page written takes 12 us with opening and 1 without, closing
//! after it 18 us, with 0.25 or 64 MiB of code alike. Changing the protection of pages that are
//! present takes 93 us each time at 4 MiB and 1.7 ms at 64 MiB. A mapping of just the pages of one
//! version, made and removed, costs 11 us per publication; it would close the alias between
//! versions of a burst, too, but needs the file's descriptor.
//!
//! A thread that finds `BUSY` yields: the other side is in one system call. It is no lock, so that
//! a child of `fork` finds none held: it begins with a word of its own.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

const OPEN: usize = 1;
const BUSY: usize = 2;
const KEPT: usize = 4;
const USER: usize = 8;

/// The state of the alias: its writers, and whether it is open.
#[derive(Debug)]
pub(crate) struct Opening {
    word: AtomicUsize,
    /// Number of writes that ended. Relaxed, as is `rested`: they only tell idle from busy periods.
    writes: AtomicU64,
    rested: AtomicU64,
}

/// The right to write through the alias.
pub(crate) struct Writer<'a>(Option<&'a Opening>);

impl Opening {
    /// The state of a newly mapped alias: open. `kept` if it stays so.
    pub(crate) fn new(kept: bool) -> Opening {
        Opening {
            word: AtomicUsize::new(if kept { OPEN | KEPT } else { OPEN }),
            writes: AtomicU64::new(0),
            rested: AtomicU64::new(0),
        }
    }

    /// Keeps the alias open from now on. Call it where no other thread exists.
    pub(crate) fn keep(&self) {
        self.word.store(OPEN | KEPT, Ordering::Relaxed);
    }

    /// Keeps the alias open until the writer is dropped; `open` opens it if needed.
    pub(crate) fn write(&self, open: impl FnOnce()) -> Writer<'_> {
        let mut word = self.word.fetch_add(USER, Ordering::Acquire) + USER;
        while word & OPEN == 0 {
            if word & BUSY != 0 {
                thread::yield_now();
                word = self.word.load(Ordering::Acquire);
                continue;
            }
            let taken = self.word.compare_exchange_weak(
                word,
                word | BUSY,
                Ordering::Acquire,
                Ordering::Acquire,
            );
            match taken {
                Err(now) => word = now,
                Ok(_) => {
                    open();
                    // One step clears `BUSY` and sets `OPEN`.
                    self.word.fetch_xor(BUSY | OPEN, Ordering::Release);
                    break;
                }
            }
        }
        Writer(Some(self))
    }

    /// Closes the alias by `close`, which returns whether it could, if it was not written since the
    /// last call. Returns true if further calls before a write have nothing to do.
    pub(crate) fn rest(&self, close: impl FnOnce() -> bool) -> bool {
        let writes = self.writes.load(Ordering::Relaxed);
        if self.rested.swap(writes, Ordering::Relaxed) != writes {
            return self.word.load(Ordering::Relaxed) & KEPT != 0;
        }
        let taken = self
            .word
            .compare_exchange(OPEN, BUSY, Ordering::Acquire, Ordering::Relaxed);
        match taken {
            Ok(_) => {
                let closed = close();
                let flags = if closed { BUSY } else { BUSY | OPEN };
                // Writers that arrived meanwhile stay counted.
                self.word.fetch_xor(flags, Ordering::Release);
                closed
            }
            Err(word) => word & KEPT != 0 || word & (OPEN | BUSY) == 0,
        }
    }
}

impl Writer<'_> {
    /// The writer of memory that needs no opening.
    pub(crate) fn of_private() -> Writer<'static> {
        Writer(None)
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        if let Some(opening) = self.0 {
            opening.writes.fetch_add(1, Ordering::Relaxed);
            opening.word.fetch_sub(USER, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::thread;

    use super::Opening;

    #[test]
    fn it_closes_when_nothing_was_written_twice() {
        let opening = Opening::new(false);
        let writer = opening.write(|| panic!("it is open"));
        assert!(!opening.rest(|| panic!("it is being written")));
        drop(writer);
        assert!(!opening.rest(|| panic!("it was written")));
        assert!(!opening.rest(|| false), "could not be closed");
        assert!(opening.rest(|| true));
        assert!(opening.rest(|| panic!("it is closed")));
        let mut opened = false;
        drop(opening.write(|| opened = true));
        assert!(opened);
        opening.keep();
        assert!(opening.rest(|| panic!("it is kept")));
    }

    /// Writers never find the alias closed.
    #[test]
    fn writers_race_with_rest() {
        const ROUNDS: u32 = 20_000;
        let (opening, open) = (Opening::new(false), AtomicBool::new(true));
        let (opened, ended) = (AtomicU32::new(0), AtomicU32::new(0));
        let (opening, open, opened, ended) = (&opening, &open, &opened, &ended);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        let writer = opening.write(|| {
                            assert!(!open.swap(true, Ordering::Relaxed));
                            opened.fetch_add(1, Ordering::Relaxed);
                        });
                        assert!(open.load(Ordering::Relaxed));
                        drop(writer);
                    }
                    ended.fetch_add(1, Ordering::Relaxed);
                });
            }
            scope.spawn(move || {
                while ended.load(Ordering::Relaxed) < 2 {
                    opening.rest(|| {
                        assert!(open.swap(false, Ordering::Relaxed));
                        true
                    });
                }
            });
        });
        println!("opened {} times", opened.load(Ordering::Relaxed));
    }
}
