//! Threads of ours that have done what they were there for, and wait for something else.
//!
//! Starting a thread takes 50 to 100 us of processor time, a tenth of what it takes to add, call
//! and remove a small module: so a few wait for [`PATIENCE`]. In a process that is a program all
//! wait, for ever ([`for_ever`]): one that ended would hand its arena of the C library's
//! allocator to the next thread of the program. What we keep lies in the arenas of our threads,
//! and a child that the program makes by `_Fork` or `clone` goes on with it: it would wait for
//! ever for an arena that such a thread held at the copy, as it does while it grows.
//!
//! Whoever gives a thread something takes it off the list, under a pass: so no thread that is
//! listed is about to work, and a child, which has none of them, begins with an empty list.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use uruk_base::locks::{Mutex, MutexGuard};
use uruk_base::sandbox;

use super::Start;
use crate::fork::{futex, gate};

/// How long a thread waits, where it does not for ever.
const PATIENCE: Duration = Duration::from_millis(50);

/// How many wait, where not all do.
const MOST: usize = 4;

/// Where one thread waits.
pub(super) struct Bed {
    start: Mutex<Option<Box<Start>>>,
    /// Release and acquire: what is to be done comes before [`GIVEN`].
    word: AtomicU32,
}

const EMPTY: u32 = 0;
const GIVEN: u32 = 1;

/// The threads that wait, the last one to come last.
static RESTING: Mutex<Vec<Arc<Bed>>> = Mutex::new(Vec::new());

/// Whether all wait for ever. Relaxed: of no account for who waits already.
static FOR_EVER: AtomicBool = AtomicBool::new(false);

thread_local! {
    static UNFIT: Cell<bool> = const { Cell::new(false) };
}

/// From now on no thread of ours ends: the process becomes a program, which may copy itself.
pub(crate) fn for_ever() {
    FOR_EVER.store(true, Ordering::Relaxed);
}

/// Says that the calling thread, one of ours, is to do nothing more after this: what LLVM has of
/// it may be half changed.
pub(crate) fn unfit() {
    UNFIT.set(true);
}

/// In a child: none of them is there.
pub(crate) fn after_fork_child() {
    resting().clear();
}

/// Has all threads that wait end, after [`sandbox::begin_to_end`]. Under a pass.
pub(crate) fn end_all() {
    for bed in resting().drain(..) {
        bed.word.store(GIVEN, Ordering::Release);
        futex::wake(&bed.word, 1);
    }
}

fn resting() -> MutexGuard<'static, Vec<Arc<Bed>>> {
    RESTING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has a thread that waits begin something else; gives it back if there is none. Under a pass.
pub(super) fn wake(start: Box<Start>) -> Option<Box<Start>> {
    let mut resting = resting();
    let Some(bed) = resting.pop() else {
        return Some(start);
    };
    *bed.start.lock().unwrap_or_else(PoisonError::into_inner) = Some(start);
    bed.word.store(GIVEN, Ordering::Release);
    futex::wake(&bed.word, 1);
    None
}

impl Bed {
    pub(super) fn new() -> Arc<Bed> {
        Arc::new(Bed {
            start: Mutex::new(None),
            word: AtomicU32::new(EMPTY),
        })
    }

    /// Enters the calling thread in the list, unless it is to end. Under a pass.
    pub(super) fn lie_down(self: &Arc<Bed>) -> bool {
        let mut resting = resting();
        let room = FOR_EVER.load(Ordering::Relaxed) || resting.len() < MOST;
        let stays = room && !UNFIT.get() && !sandbox::is_ending();
        if stays {
            self.word.store(EMPTY, Ordering::Relaxed);
            resting.push(Arc::clone(self));
        }
        stays
    }

    /// The thread's next work, with a pass; `None` once it waited for too long, or is to end.
    pub(super) fn wait(self: &Arc<Bed>) -> (gate::Pass, Option<Box<Start>>) {
        let begun = Instant::now();
        loop {
            if self.word.load(Ordering::Acquire) == GIVEN {
                let pass = gate::enter();
                let mut start = self.start.lock().unwrap_or_else(PoisonError::into_inner);
                return (pass, start.take());
            }
            if FOR_EVER.load(Ordering::Relaxed) {
                futex::wait(&self.word, EMPTY);
                continue;
            }
            let left = PATIENCE.saturating_sub(begun.elapsed());
            if !left.is_zero() {
                futex::wait_for(&self.word, EMPTY, left);
                continue;
            }
            let pass = gate::enter();
            let mut resting = resting();
            if let Some(at) = resting.iter().position(|bed| Arc::ptr_eq(bed, self)) {
                resting.remove(at);
                drop(resting);
                return (pass, None);
            }
            // It was taken off the list, and has something to do since before that was unlocked.
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::mpsc;

    use super::unfit;
    use crate::fork::thread::spawn;

    /// The kernel's ids of threads that did something, one after the other.
    fn ids(count: usize, last: fn()) -> Vec<i32> {
        let (sender, receiver) = mpsc::channel();
        let one = |_| {
            let told = sender.clone();
            let work = move || {
                // SAFETY: takes nothing.
                told.send(unsafe { libc::gettid() }).expect("heard");
                last();
            };
            spawn(String::from("uruk-test"), work).expect("a thread");
            let id = receiver.recv().expect("told");
            // It lies down meanwhile, as a rule.
            std::thread::sleep(std::time::Duration::from_millis(1));
            id
        };
        (0..count).map(one).collect()
    }

    #[test]
    fn threads_begin_something_else_unless_they_are_unfit() {
        let different = |ids: Vec<i32>| ids.into_iter().collect::<HashSet<_>>().len();
        assert!(different(ids(100, || {})) < 100, "none was used again");
        let once = ids(20, unfit);
        assert_eq!(different(once.clone()), once.len());
        assert!(ids(20, || {}).iter().all(|id| !once.contains(id)));
    }
}
