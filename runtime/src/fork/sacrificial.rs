//! Work on a thread that can be given up: should LLVM report a fatal error in it, or should it
//! panic, whoever waits gets an error.
//!
//! Whoever waits may be a thread of the program, and may be interrupted by a handler that
//! calls members of a set this very work exchanges. So it waits without a lock, and what the
//! other thread does to end the wait takes none that it could hold.
//!
//! A handler may also fork there, and its child return to the wait. Work that had begun is done
//! by then, as a fork waits for passes, unless it waited for others itself; the thread of the
//! rest is not in the child. So each thread knows what it waits for ([`AWAITED`]), and a child
//! gives those waits up: [`Error::Copied`].
//!
//! A thread that came to the end of its work waits for more of the same kind for a while
//! ([`PATIENCE`]): starting one takes 50 to 100 us of processor time, a tenth of what it takes
//! to add, call and remove a small module. One that LLVM took down, or that panicked, gets no
//! more. In a child of a fork none waits ([`SEATS`]).

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use uruk_codegen::fatal;

use uruk_session::Behalf;

use crate::api::error::Error;
use crate::fork::futex;
use crate::fork::gate::{enter, leave_lost};
use crate::fork::panics;
use crate::fork::shield::{self, Shield};
use crate::fork::thread;

/// The result of work that another thread does.
struct Answer<R> {
    /// Locked by one side before the word says [`GIVEN`], by the other one after.
    result: Mutex<Option<Result<R, Error>>>,
    /// Release and acquire: the result comes before it.
    word: Arc<AtomicU32>,
}

/// How long a thread without work waits for more.
const PATIENCE: Duration = Duration::from_millis(50);

/// Threads that wait for work.
const MOST_SEATS: usize = 4;

/// What a thread is to do; true if it can do more afterwards.
type Work = Box<dyn FnOnce() -> bool + Send>;

/// Where a thread without work waits.
struct Seat {
    /// The thread's name.
    name: String,
    work: uruk_base::locks::Mutex<Option<Work>>,
    /// Release and acquire: the work comes before [`GIVEN`].
    word: AtomicU32,
}

/// Threads without work, the last one to come last. Who gives one work takes it out, under a
/// pass: so no thread that is listed is about to work, and a child, which has none of them,
/// begins with an empty list.
static SEATS: uruk_base::locks::Mutex<Vec<Arc<Seat>>> = uruk_base::locks::Mutex::new(Vec::new());

/// Whether threads wait for work at all, see [`end_soon`]. Relaxed: of no account for what is
/// under way.
static SEATED: AtomicBool = AtomicBool::new(true);

/// From now on threads end as soon as they have done their work: the process becomes a program,
/// which may copy itself by bare system calls. A thread that ends uses the C library's allocator to
/// its very last, and no copy waits for that, so none is to end at some later moment.
pub(crate) fn end_soon() {
    SEATED.store(false, Ordering::Relaxed);
}

const AWAITED_YET: u32 = 0;
const GIVEN: u32 = 1;
/// Nobody is there to give it.
const LOST: u32 = 2;

thread_local! {
    /// The words this thread waits for, the innermost last. Changed where no handler runs.
    static AWAITED: RefCell<Vec<Arc<AtomicU32>>> = const { RefCell::new(Vec::new()) };
}

/// In the child of a fork, on its only thread: nobody gives the answers it waits for.
pub(crate) fn after_fork_child() {
    seats().clear();
    AWAITED.with_borrow(|words| {
        for word in words {
            let _ = word.compare_exchange(AWAITED_YET, LOST, Ordering::Relaxed, Ordering::Relaxed);
        }
    });
}

impl<R> Answer<R> {
    /// Takes no lock that somebody waits for: a handler may have interrupted whoever waits
    /// for the answer. A second answer would not be looked at.
    fn give(&self, result: Result<R, Error>) {
        *self.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        self.word.store(GIVEN, Ordering::Release);
        futex::wake(&self.word, u32::MAX);
    }

    /// Handlers of the program's run meanwhile, unless the caller holds a lock.
    fn wait(&self, work: &str) -> Result<R, Error> {
        let _shield = Shield::raise();
        AWAITED.with_borrow_mut(|words| words.push(Arc::clone(&self.word)));
        let end = shield::lowered(|| {
            loop {
                match self.word.load(Ordering::Acquire) {
                    AWAITED_YET => futex::wait(&self.word, AWAITED_YET),
                    end => return end,
                }
            }
        });
        AWAITED.with_borrow_mut(Vec::pop);
        if end == LOST {
            return Err(Error::Copied {
                work: work.to_owned(),
            });
        }
        let mut result = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        result.take().expect("given before it is said to be there")
    }
}

/// Runs `work` on a thread that is given up should LLVM report a fatal error in it;
/// `lost` makes the error of LLVM's message. A panic is an error, too. Handlers of the
/// program's run meanwhile, unless the caller holds a lock. What it looks up is looked up on the
/// caller's behalf.
pub(crate) fn sacrificial<R: Send + 'static>(
    name: &str,
    lost: impl Fn(&str) -> Error + Send + 'static,
    work: impl FnOnce() -> Result<R, Error> + Send + 'static,
) -> Result<R, Error> {
    let answer = Arc::new(Answer {
        result: Mutex::new(None),
        word: Arc::default(),
    });
    let behalf = Behalf::now();
    let work = move || behalf.scope(work);
    let given = Arc::clone(&answer);
    let work: Work = Box::new(move || {
        let to_lose = Arc::clone(&given);
        let on_fatal = move |message: &str| {
            to_lose.give(Err(lost(message)));
            leave_lost();
        };
        fatal::guard(on_fatal, move || {
            let result = panics::caught(work);
            let whole = !matches!(&result, Err(cause) if cause.panic().is_some());
            // A fork that comes once the pass is gone finds the answer there.
            given.give(result);
            whole
        })
    });
    if let Some(work) = seat(name, work) {
        // Taken by the thread, which runs once.
        let once = Cell::new(Some((name.to_owned(), work)));
        thread::spawn(name.to_owned(), move || {
            if let Some((name, work)) = once.take() {
                live(name, work);
            }
        })?;
    }
    answer.wait(name)
}

fn seats() -> uruk_base::locks::MutexGuard<'static, Vec<Arc<Seat>>> {
    SEATS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives work to a thread of that name that waits for some; the work, if there is none.
fn seat(name: &str, work: Work) -> Option<Work> {
    let _pass = enter();
    let mut waiting = seats();
    let Some(at) = waiting.iter().rposition(|seat| seat.name == name) else {
        return Some(work);
    };
    let seat = waiting.remove(at);
    *seat.work.lock().unwrap_or_else(PoisonError::into_inner) = Some(work);
    seat.word.store(GIVEN, Ordering::Release);
    futex::wake(&seat.word, 1);
    None
}

/// Works, and waits for more, until none comes.
fn live(name: String, first: Work) {
    let seat = {
        let _pass = enter();
        Arc::new(Seat {
            name,
            work: uruk_base::locks::Mutex::default(),
            word: AtomicU32::new(AWAITED_YET),
        })
    };
    let mut next = Some(first);
    while let Some(work) = next.take() {
        let busy = enter();
        if !work() || !sit_down(&seat) {
            break;
        }
        drop(busy);
        next = await_work(&seat);
    }
    let _pass = enter();
    drop(seat);
}

/// Enters a thread in the list of those without work, unless there are enough.
fn sit_down(seat: &Arc<Seat>) -> bool {
    let mut waiting = seats();
    let room = waiting.len() < MOST_SEATS && SEATED.load(Ordering::Relaxed);
    if room {
        seat.word.store(AWAITED_YET, Ordering::Relaxed);
        waiting.push(Arc::clone(seat));
    }
    room
}

/// The next work of a thread that is seated; `None` once it waited for too long.
fn await_work(seat: &Arc<Seat>) -> Option<Work> {
    let start = Instant::now();
    loop {
        if seat.word.load(Ordering::Acquire) == GIVEN {
            let _pass = enter();
            return seat
                .work
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
        }
        let left = PATIENCE.saturating_sub(start.elapsed());
        if left.is_zero() {
            let _pass = enter();
            let mut waiting = seats();
            if let Some(at) = waiting.iter().position(|one| Arc::ptr_eq(one, seat)) {
                waiting.remove(at);
                return None;
            }
            // Somebody has taken the seat, and given its work before the list was unlocked.
            continue;
        }
        futex::wait_for(&seat.word, AWAITED_YET, left);
    }
}
