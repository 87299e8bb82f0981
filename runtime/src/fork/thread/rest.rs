//! Threads of the runtime that have done their work, and wait for more.
//!
//! Starting a thread takes 50 to 100 us of processor time, a tenth of the time to add, call and
//! remove a small module: so a few threads wait for [`PATIENCE`]. In a process that is a program
//! all wait, for ever ([`for_ever`]): one that ended would hand its arena of the C library's
//! allocator to the next thread of the program. The runtime's data lies in the arenas of its
//! threads, and a child that the program makes by `_Fork` or `clone` uses it: the child would wait
//! for ever for an arena that such a thread held at the copy, as it does while it grows.
//!
//! The thread that gives work takes the idle thread off the list, under a pass. So no listed thread
//! is about to work, and a child, which has none of them, begins with an empty list.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use uruk_base::locks::{Mutex, MutexGuard, ranks};
use uruk_base::sandbox;

use super::ThreadStart;
use crate::fork::{futex, gate};

/// How long a thread waits, unless for ever.
const PATIENCE: Duration = Duration::from_millis(50);

/// How many threads wait, unless all do.
const MOST: usize = 4;

/// The place where one thread waits.
pub(super) struct Bed {
    start: Mutex<Option<Box<ThreadStart>>>,
    /// Release and acquire: the work is stored before [`GIVEN`].
    word: AtomicU32,
}

const EMPTY: u32 = 0;
const GIVEN: u32 = 1;

/// The waiting threads, the latest last.
static RESTING: Mutex<Vec<Arc<Bed>>, ranks::Resting> = Mutex::new(Vec::new());

/// Whether all wait for ever. Relaxed: it does not concern threads that wait already.
static FOR_EVER: AtomicBool = AtomicBool::new(false);

thread_local! {
    static UNFIT: Cell<bool> = const { Cell::new(false) };
}

/// Keeps all threads of the runtime from now on: the process becomes a program, which may copy
/// itself.
pub(crate) fn for_ever() {
    FOR_EVER.store(true, Ordering::Relaxed);
}

/// Marks the calling thread of the runtime: it gets no more work after this, since LLVM's objects
/// of it may be half changed, or the free memory that the C library keeps for it is to be given back.
pub(crate) fn unfit() {
    UNFIT.set(true);
}

/// In a child: none of these threads is there.
pub(crate) fn after_fork_child() {
    resting().clear();
}

/// Ends all threads that wait, after [`sandbox::begin_to_end`]. Under a pass.
pub(in crate::fork) fn end_all() {
    for bed in resting().drain(..) {
        bed.word.store(GIVEN, Ordering::Release);
        futex::wake(&bed.word, 1);
    }
}

fn resting() -> MutexGuard<'static, Vec<Arc<Bed>>> {
    RESTING.lock()
}

/// Gives the work to a waiting thread; returns it if there is none. Under a pass.
pub(super) fn wake(start: Box<ThreadStart>) -> Option<Box<ThreadStart>> {
    let mut resting = resting();
    let Some(bed) = resting.pop() else {
        return Some(start);
    };
    *bed.start.lock() = Some(start);
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

    /// The thread's next work, with a pass; `None` once it has waited for too long, or is to end.
    pub(super) fn wait(self: &Arc<Bed>) -> (gate::Pass, Option<Box<ThreadStart>>) {
        let begun = Instant::now();
        loop {
            if self.word.load(Ordering::Acquire) == GIVEN {
                let pass = gate::enter();
                let mut start = self.start.lock();
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
            // Off the list, the thread has work, which was stored before the list was unlocked.
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
            // The thread lies down meanwhile, as a rule.
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
