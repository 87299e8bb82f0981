//! Runs work on a thread that can be given up: if LLVM reports a fatal error in it, or if it
//! panics, the waiting thread gets an error.
//!
//! The waiting thread may be one of the program, and may be interrupted by a handler that calls
//! members of a set which this very work exchanges. So it waits without a lock, and the other
//! thread ends the wait without a lock that the waiting thread could hold.
//!
//! A handler may also fork there, and its child return to the wait. Work that had begun is done by
//! then, as a fork waits for passes, unless it waited for others itself; the thread of the other
//! work is not in the child. So each thread keeps a list of its waits ([`AWAITED`]), and a child
//! gives them up: [`Error::Copied`].
//!
//! Work that may turn out to need no LLVM, and is small, is tried by its caller first ([`spared`]):
//! to hand it over and back takes longer than to do it.
//!
//! A thread that panicked gets no more work ([`rest::unfit`]), and one that LLVM took down is gone.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use uruk_base::ThreadStack;
use uruk_codegen::fatal;

use uruk_session::Behalf;

use crate::error::Error;
use crate::fork::futex;
use crate::fork::gate::{enter, leave_lost};
use crate::fork::panics;
use crate::fork::shield::{self, Shield};
use crate::fork::thread::{self, rest};

/// The result of work that another thread does.
struct Answer<R> {
    /// Locked by the giving side before the word is [`GIVEN`], by the waiting side after.
    result: Mutex<Option<Result<R, Error>>>,
    /// Release and acquire: the result comes before it.
    word: Arc<AtomicU32>,
}

const AWAITED_YET: u32 = 0;
const GIVEN: u32 = 1;
/// No thread is left to give the answer.
const LOST: u32 = 2;

thread_local! {
    /// The words this thread waits for, the innermost last. Changed where no handler runs.
    static AWAITED: ThreadStack<Arc<AtomicU32>> = const { ThreadStack::new() };
}

/// In the child of a fork, on its only thread: its waits have no thread that would answer.
pub(crate) fn after_fork_child() {
    let lose = |words: &[Arc<AtomicU32>]| {
        for word in words {
            let _ = word.compare_exchange(AWAITED_YET, LOST, Ordering::Relaxed, Ordering::Relaxed);
        }
    };
    AWAITED.with(|words| words.read(lose));
}

impl<R> Answer<R> {
    /// Takes no lock that a thread waits for: a handler may have interrupted the thread that waits
    /// for the answer. A second answer would be ignored.
    fn give(&self, result: Result<R, Error>) {
        *self.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        self.word.store(GIVEN, Ordering::Release);
        futex::wake(&self.word, u32::MAX);
    }

    /// Waits for the answer. Signal handlers of the program run meanwhile, unless the caller holds
    /// a lock.
    fn wait(&self, work: &str) -> Result<R, Error> {
        let _shield = Shield::raise();
        AWAITED.with(|words| words.push(Arc::clone(&self.word)));
        let end = shield::lowered(|| {
            loop {
                match self.word.load(Ordering::Acquire) {
                    AWAITED_YET => futex::wait(&self.word, AWAITED_YET),
                    end => return end,
                }
            }
        });
        AWAITED.with(ThreadStack::pop);
        if end == LOST {
            return Err(Error::Copied {
                work: work.to_owned(),
            });
        }
        let mut result = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        result.take().expect("given before it is said to be there")
    }
}

/// Runs `work` on the calling thread, where LLVM is refused; `None` if it needed LLVM, and has
/// changed nothing. A panic becomes an error.
pub(crate) fn spared<R>(work: impl FnOnce() -> Result<R, Error>) -> Option<Result<R, Error>> {
    let _busy = enter();
    match fatal::refused(|| panics::caught(work)) {
        Err(cause) if cause.is_refusal() => None,
        done => Some(done),
    }
}

/// Runs `work` on a thread that is given up if LLVM reports a fatal error in it; `lost` makes the
/// error from LLVM's message. A panic becomes an error, too. Signal handlers of the program run
/// meanwhile, unless the caller holds a lock. Its lookups are made on the caller's behalf.
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
    let work = move || {
        let to_lose = Arc::clone(&given);
        let on_fatal = move |message: &str| {
            to_lose.give(Err(lost(message)));
            leave_lost();
        };
        fatal::guard(on_fatal, move || {
            let result = panics::caught(work);
            let whole = !matches!(&result, Err(cause) if cause.panic().is_some());
            // A fork after the end of the pass finds the answer there.
            given.give(result);
            whole
        })
    };
    // Taken by the thread, which runs this once.
    let once = Cell::new(Some(work));
    thread::spawn(name.to_owned(), move || {
        let _busy = enter();
        if let Some(work) = once.take()
            && !work()
        {
            rest::unfit();
        }
    })?;
    answer.wait(name)
}
