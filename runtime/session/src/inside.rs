//! On whose behalf a lookup is made: the questions to generators that wait for it.
//!
//! A generator that looks up, on the way to its answer, what it is being asked for would
//! wait for itself. So each question knows the one on behalf of which its own lookup was
//! made, and lookups and units that begin on a thread belong to the question the thread
//! works for. The thread's own call of the generator sets it; work that is started meanwhile
//! takes it along ([`Session::spawn`](crate::Session)); whoever answers later from elsewhere
//! says so ([`GeneratorRequest::scope`](crate::GeneratorRequest::scope)).
//!
//! A question also knows the thread that is about to answer it: in a child that another thread
//! forks, it never does ([`Session::give_up_lost`](crate::Session::give_up_lost)).
//!
//! Invariant: a chain of questions has no circle, for a question is made after the one it is
//! on behalf of.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use uruk_base::locks::thread_mark;

use crate::dylib::DylibShared;
use crate::generator::GeneratorId;
use crate::symbol::Symbol;

/// What a lookup asks of a generator.
#[derive(Debug)]
pub(crate) struct Question {
    pub id: GeneratorId,
    pub shared: Arc<DylibShared>,
    /// What the generator is asked for.
    pub symbols: Vec<Symbol>,
    /// Whether the lookup went in past the line: it is made on behalf of the one inside.
    pub nested: bool,
    outer: Option<Arc<Question>>,
    /// It was answered. Relaxed: written and read under the session's lock.
    over: AtomicBool,
    /// The thread that answers it, by its mark; 0: none does now. Relaxed: read in the child of a
    /// fork, before which other threads left the session's locks.
    thread: AtomicUsize,
}

impl Question {
    /// A question that is not answered, asked on behalf of `outer`.
    pub(crate) fn new(
        id: GeneratorId,
        shared: &Arc<DylibShared>,
        symbols: Vec<Symbol>,
        nested: bool,
        outer: Option<Arc<Question>>,
    ) -> Question {
        Question {
            id,
            shared: Arc::clone(shared),
            symbols,
            nested,
            outer,
            over: AtomicBool::new(false),
            thread: AtomicUsize::new(0),
        }
    }

    /// Says that it was answered: nobody waits on its behalf any more.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// Whether it was answered.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Says that the calling thread answers it, until the guard goes.
    pub(crate) fn answering(self: &Arc<Self>) -> Answering {
        let before = self.thread.swap(thread_mark(), Ordering::Relaxed);
        Answering(Arc::clone(self), before)
    }

    /// Whether another thread answers it now.
    pub(crate) fn is_answered_elsewhere(&self) -> bool {
        let thread = self.thread.load(Ordering::Relaxed);
        thread != 0 && thread != thread_mark()
    }

    /// This one and those it is on behalf of, innermost first.
    pub(crate) fn chain(self: &Arc<Self>) -> impl Iterator<Item = &Arc<Question>> {
        std::iter::successors(Some(self), |question| question.outer.as_ref())
    }
}

impl Drop for Question {
    /// Chains are as long as lookups nest: taken apart link by link, not by recursion.
    fn drop(&mut self) {
        let mut next = self.outer.take();
        while let Some(question) = next.and_then(Arc::into_inner) {
            let mut question = question;
            next = question.outer.take();
        }
    }
}

/// The calling thread answers a question while it lives.
#[derive(Debug)]
pub struct Answering(Arc<Question>, usize);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.thread.store(self.1, Ordering::Relaxed);
    }
}

thread_local! {
    static INSIDE: RefCell<Option<Arc<Question>>> = const { RefCell::new(None) };
}

/// On whose behalf a thread works, to be taken along to another one that does part of the work.
#[derive(Clone, Debug)]
pub struct Behalf(Option<Arc<Question>>);

impl Behalf {
    /// The calling thread's.
    pub fn now() -> Behalf {
        Behalf(now())
    }

    /// Does `work` on this behalf: a lookup in it that needs the answer which it is made for is
    /// an error, instead of a wait without end.
    pub fn scope<R>(self, work: impl FnOnce() -> R) -> R {
        let _inside = set(self.0);
        work()
    }
}

/// Makes what is kept here on the calling thread.
pub(crate) fn prepare() {
    INSIDE.with(|_| ());
}

/// The question this thread works for.
pub(crate) fn now() -> Option<Arc<Question>> {
    INSIDE.with(|inside| inside.borrow().clone())
}

/// Has this thread work for another question until the guard goes.
pub(crate) fn set(question: Option<Arc<Question>>) -> Inside {
    Inside(INSIDE.with(|inside| inside.replace(question)))
}

/// Puts the question of before back.
pub(crate) struct Inside(Option<Arc<Question>>);

impl Drop for Inside {
    fn drop(&mut self) {
        let before = self.0.take();
        // What it worked for until now goes after the table was given back.
        let _last = INSIDE.with(|inside| inside.replace(before));
    }
}
