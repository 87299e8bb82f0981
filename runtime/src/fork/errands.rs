//! Counts work of threads without a pass that a fork would cut off.
//!
//! A task that waits for another thread gives up its passes, and code of embedders runs without
//! one. A fork may come then, and the thread is not in the child: the symbols that it was making
//! are never finished there, and lookups of them would wait without end. So a fork waits for the
//! tasks of the library to end, at most [`LIMIT`]. While code of embedders runs, which may wait for
//! the thread that forks, it waits at most [`BESIDE_OTHERS`]. Symbols that are cut off after that
//! have failed in the child, where the next call makes them anew (`Session::give_up_lost`).
//!
//! | field | writer | meaning |
//! |---|---|---|
//! | `OURS` | a thread that begins or ends an errand | threads on errands of the library, outside of the pool's tasks |
//! | `OTHERS` | same | threads in code of embedders that a lookup may wait for |
//! | `ERRAND` | its own thread | the errand that this thread is counted for |

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Longest time that a fork waits for errands: they end by themselves, unless they wait for code of
/// the program that waits for the fork.
const LIMIT: Duration = Duration::from_secs(1);
/// Longest time that a fork waits while code of embedders runs.
const BESIDE_OTHERS: Duration = Duration::from_millis(200);

static OURS: AtomicUsize = AtomicUsize::new(0);
static OTHERS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static ERRAND: Cell<Option<Errand>> = const { Cell::new(None) };
}

/// The owner of the code that a thread runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Errand {
    /// The library's.
    Ours,
    /// An embedder's.
    Others,
}

impl Errand {
    /// Counts the calling thread as on this errand only, until the guard is dropped.
    pub(crate) fn begin(self) -> Begun {
        Begun(exchange(Some(self)))
    }

    fn count(self) -> &'static AtomicUsize {
        match self {
            Errand::Ours => &OURS,
            Errand::Others => &OTHERS,
        }
    }
}

/// Restores the thread's earlier errand when it is dropped.
pub(crate) struct Begun(Option<Errand>);

impl Drop for Begun {
    fn drop(&mut self) {
        exchange(self.0);
    }
}

/// Counts the calling thread as on this errand; returns the earlier one.
fn exchange(errand: Option<Errand>) -> Option<Errand> {
    let before = ERRAND.replace(errand);
    // Relaxed, as below: a fork looks under the gate's lock. A thread takes that lock after it
    // began an errand, to give up its pass. A look that comes too early or too late only causes
    // another look.
    if let Some(errand) = errand {
        errand.count().fetch_add(1, Ordering::Relaxed);
    }
    if let Some(before) = before {
        before.count().fetch_sub(1, Ordering::Relaxed);
    }
    before
}

/// Number of threads on such errands, without the calling one.
fn elsewhere(errand: Errand) -> usize {
    let own = usize::from(ERRAND.get() == Some(errand));
    errand.count().load(Ordering::Relaxed).saturating_sub(own)
}

/// Whether a fork that has waited since `start` may go on; `tasks`: whether other threads run
/// tasks of the library.
pub(super) fn may_fork(start: Instant, tasks: bool) -> bool {
    let limit = match elsewhere(Errand::Others) {
        0 => LIMIT,
        _ => BESIDE_OTHERS,
    };
    !tasks && elsewhere(Errand::Ours) == 0 || start.elapsed() >= limit
}

/// In the child of a fork: no other thread is there.
pub(super) fn after_fork_child() {
    for errand in [Errand::Ours, Errand::Others] {
        let own = usize::from(ERRAND.get() == Some(errand));
        errand.count().store(own, Ordering::Relaxed);
    }
}
