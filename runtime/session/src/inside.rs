//! The generator question on behalf of which a lookup is made, and the outer ones that wait for it.
//!
//! A generator that needs, for its answer, a symbol that it is being asked for would wait for
//! itself. So each question knows the one on behalf of which its own lookup was made. Lookups and
//! units that begin on a thread belong to the question the thread works for. The thread's own call
//! of the generator sets it; work that is started meanwhile inherits it
//! ([`Session::spawn`](crate::Session)); an answer from elsewhere sets it by
//! [`GeneratorRequest::scope`](crate::GeneratorRequest::scope).
//!
//! A question also knows the thread that is about to answer it: in a child forked by another
//! thread, it is never answered ([`Session::give_up_lost`](crate::Session::give_up_lost)).
//!
//! Work of an embedder that takes turns, as replacements do, has an owner's number. It is inherited
//! in the same way, through the questions of its lookups: who works for an owner must not wait until
//! the owner is done.
//!
//! Invariant: a chain of questions has no cycle, as a question is created after the one it is on
//! behalf of.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use uruk_base::locks::thread_mark;

use crate::number::GeneratorId;
use crate::shared::DylibShared;
use crate::symbol::Symbol;

/// A lookup's question to a generator.
#[derive(Debug)]
pub(crate) struct Question {
    pub id: GeneratorId,
    pub shared: Arc<DylibShared>,
    /// The symbols that the generator is asked for.
    pub symbols: Vec<Symbol>,
    /// Whether the lookup bypassed the queue: it is made on behalf of the one inside.
    pub nested: bool,
    outer: Option<Arc<Question>>,
    /// The owner's number of the work that it belongs to; 0 if there is none.
    owner: u64,
    /// Whether it was answered. Relaxed: written and read under the session's lock.
    over: AtomicBool,
    /// The mark of the thread that calls the generator, and of the last one that declared to answer;
    /// 0 if there is none. Two words: a generator that passes the question to another thread may
    /// still run while that thread answers. Relaxed: read in the child of a fork, before which other
    /// threads left the session's locks.
    caller: AtomicUsize,
    declared: AtomicUsize,
}

impl Question {
    /// A new, unanswered question, asked on behalf of another.
    pub(crate) fn new(
        id: GeneratorId,
        shared: &Arc<DylibShared>,
        symbols: Vec<Symbol>,
        nested: bool,
        behalf: Behalf,
    ) -> Question {
        Question {
            id,
            shared: Arc::clone(shared),
            symbols,
            nested,
            outer: behalf.question,
            owner: behalf.owner,
            over: AtomicBool::new(false),
            caller: AtomicUsize::new(0),
            declared: AtomicUsize::new(0),
        }
    }

    /// Marks the question as answered: no lookup waits on its behalf any more.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// Whether it was answered.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Marks the calling thread as the one that calls the generator, until the guard is dropped.
    pub(crate) fn calling(self: &Arc<Self>) -> Answering {
        Answering::new(self, |question| &question.caller)
    }

    /// Marks the calling thread as the one that answers, until the guard is dropped or another
    /// thread is marked.
    pub(crate) fn answering(self: &Arc<Self>) -> Answering {
        Answering::new(self, |question| &question.declared)
    }

    /// Whether another thread answers it now.
    pub(crate) fn is_answered_elsewhere(&self) -> bool {
        let thread = match self.declared.load(Ordering::Relaxed) {
            0 => self.caller.load(Ordering::Relaxed),
            declared => declared,
        };
        thread != 0 && thread != thread_mark()
    }

    /// This question and its outer ones, innermost first.
    pub(crate) fn chain(self: &Arc<Self>) -> impl Iterator<Item = &Arc<Question>> {
        std::iter::successors(Some(self), |question| question.outer.as_ref())
    }
}

impl Drop for Question {
    /// Chains are as long as lookups nest: dropped link by link, not by recursion.
    fn drop(&mut self) {
        let mut next = self.outer.take();
        while let Some(question) = next.and_then(Arc::into_inner) {
            let mut question = question;
            next = question.outer.take();
        }
    }
}

/// Guard: the calling thread answers a question while it lives.
#[derive(Debug)]
pub struct Answering {
    question: Arc<Question>,
    word: fn(&Question) -> &AtomicUsize,
    /// The thread's mark, if this guard is the one that removes it.
    mark: Option<usize>,
}

impl Answering {
    fn new(question: &Arc<Question>, word: fn(&Question) -> &AtomicUsize) -> Answering {
        let mark = thread_mark();
        let before = word(question).swap(mark, Ordering::Relaxed);
        Answering {
            question: Arc::clone(question),
            word,
            mark: (before != mark).then_some(mark),
        }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        let Some(mark) = self.mark else { return };
        let word = (self.word)(&self.question);
        // Another thread's mark stays.
        let _ = word.compare_exchange(mark, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

thread_local! {
    /// Never dropped: handlers of `atexit` and last destructors of threads may look names up. It is
    /// empty outside of an answer.
    static INSIDE: ManuallyDrop<RefCell<Behalf>> =
        const { ManuallyDrop::new(RefCell::new(Behalf::OWN)) };
}

/// The question and the owner that a thread works for, to be passed to another thread that does part
/// of the work.
#[derive(Clone, Debug)]
pub struct Behalf {
    pub(crate) question: Option<Arc<Question>>,
    owner: u64,
}

/// Guard that restores the work of the calling thread before it.
#[derive(Debug)]
pub struct Working {
    before: Behalf,
    /// Another thread has work of its own.
    _here: PhantomData<*const ()>,
}

impl Behalf {
    /// Work of the thread itself.
    pub const OWN: Behalf = Behalf {
        question: None,
        owner: 0,
    };

    /// That of the calling thread.
    pub fn now() -> Behalf {
        INSIDE.with(|inside| inside.borrow().clone())
    }

    /// That of an answer to a question.
    pub(crate) fn of(question: &Arc<Question>) -> Behalf {
        Behalf {
            question: Some(Arc::clone(question)),
            owner: question.owner,
        }
    }

    /// The same question, for the owner with this number; 0: for none.
    #[must_use]
    pub fn owned(self, owner: u64) -> Behalf {
        Behalf { owner, ..self }
    }

    /// The owner's number; 0 if there is none.
    pub fn owner(&self) -> u64 {
        self.owner
    }

    /// Makes the calling thread work on this behalf until the guard is dropped.
    pub fn enter(self) -> Working {
        Working {
            before: INSIDE.with(|inside| inside.replace(self)),
            _here: PhantomData,
        }
    }

    /// Does `work` on behalf of this question: a lookup in it that needs the answer which it is
    /// made for is an error, instead of an endless wait.
    pub fn scope<R>(self, work: impl FnOnce() -> R) -> R {
        let _working = self.enter();
        work()
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        let before = std::mem::replace(&mut self.before, Behalf::OWN);
        // The last reference is dropped after the thread-local was released.
        let _last = INSIDE.with(|inside| inside.replace(before));
    }
}
