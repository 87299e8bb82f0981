//! Generators: they define symbols that a dylib lacks.
//!
//! A generator handles one lookup at a time; later ones queue and enter in order. Lookups made on
//! behalf of the one inside bypass the queue, as that one waits for them. If they need the symbols
//! that the generator is asked for, they fail. A [`GeneratorRequest`] is that lookup: answered at
//! once, or kept and answered later from any thread.
//!
//! Lookups in two generators, each made on behalf of the one inside the other, would wait for each
//! other. When the last lookup of such a cycle arrives, all of them bypass their queues.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use crate::dylib::Dylib;
use crate::error::SessionError;
use crate::inside::{Answering, Behalf, Question};
use crate::job::Job;
use crate::lookup::{LookupKind, Need};
use crate::number::GeneratorId;
use crate::session::Session;
use crate::symbol::Symbol;
use crate::sync::Mutex;

/// A callback that can define symbols which a lookup does not find.
///
/// Not called under a lock. It defines symbols in [`GeneratorRequest::dylib`] and calls
/// [`GeneratorRequest::finish`]; defining none is no error.
pub trait Generator: Send + Sync {
    /// Answers one lookup, now or, by keeping `ask`, later.
    fn generate(&self, ask: GeneratorRequest);
}

/// A closure that answers at once.
impl<F> Generator for F
where
    F: Fn(&GeneratorRequest) -> Result<(), SessionError> + Send + Sync,
{
    fn generate(&self, ask: GeneratorRequest) {
        let answer = self(&ask);
        ask.finish(answer);
    }
}

/// A generator of a dylib.
pub(crate) struct GeneratorCell {
    pub id: GeneratorId,
    pub generator: Arc<dyn Generator>,
    /// A lookup is inside, or the next in the queue was resumed.
    pub busy: bool,
    /// The question of the lookup inside, unless that bypassed the queue.
    pub inside: Option<Arc<Question>>,
    pub line: VecDeque<Job>,
}

/// A lookup about to enter a generator.
pub(crate) struct Asking {
    pub generator: Arc<dyn Generator>,
    pub question: Arc<Question>,
    pub job: Job,
    pub missing: Vec<(Symbol, Need)>,
}

/// Whether the call of the generator is still on the stack.
pub(crate) enum Progress {
    Calling,
    Answered(Job, Result<(), SessionError>),
    /// It returned without an answer.
    Suspended,
}

/// A lookup inside a generator. Dropping it unanswered fails the lookup.
pub struct GeneratorRequest {
    session: Session,
    question: Arc<Question>,
    kind: LookupKind,
    missing: Vec<(Symbol, Need)>,
    job: Option<Job>,
    progress: Arc<Mutex<Progress>>,
}

impl fmt::Debug for GeneratorRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GeneratorRequest")
            .field("dylib", &self.question.shared.name)
            .field("kind", &self.kind)
            .field("missing", &self.missing)
            .finish_non_exhaustive()
    }
}

impl GeneratorRequest {
    pub(crate) fn new(session: &Session, asking: Asking) -> (Self, Arc<Mutex<Progress>>) {
        let progress = Arc::new(Mutex::new(Progress::Calling));
        let ask = Self {
            session: session.clone(),
            question: asking.question,
            kind: asking.job.kind,
            missing: asking.missing,
            job: Some(asking.job),
            progress: Arc::clone(&progress),
        };
        (ask, progress)
    }

    /// The session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The dylib that asks.
    pub fn dylib(&self) -> Dylib {
        Dylib::new(&self.session, &self.question.shared)
    }

    /// The reason for the lookup.
    pub fn kind(&self) -> LookupKind {
        self.kind
    }

    /// The symbols without a definition so far.
    pub fn missing(&self) -> &[(Symbol, Need)] {
        &self.missing
    }

    pub(crate) fn question(&self) -> &Arc<Question> {
        &self.question
    }

    /// Does `work` on behalf of this request. An embedder that keeps the request and looks
    /// something up for its answer elsewhere must do it here. A lookup that needs this request's
    /// own answer is then an error, instead of an endless wait. Within [`Generator::generate`] the
    /// scope is set already.
    pub fn scope<R>(&self, work: impl FnOnce() -> R) -> R {
        let _working = Behalf::of(&self.question).enter();
        work()
    }

    /// Declares that the calling thread is about to answer, until the guard is dropped: in a fork's
    /// child made by another thread, the lookup's place is given up. Within [`Generator::generate`]
    /// this is set already.
    pub fn answering(&self) -> Answering {
        self.question.answering()
    }

    /// Continues the lookup, or fails it.
    pub fn finish(mut self, answer: Result<(), SessionError>) {
        self.answer(answer);
    }

    fn answer(&mut self, answer: Result<(), SessionError>) {
        let Some(job) = self.job.take() else { return };
        {
            let mut progress = self.progress.lock();
            if matches!(*progress, Progress::Calling) {
                *progress = Progress::Answered(job, answer);
                return;
            }
        }
        let session = self.session.clone();
        let question = Arc::clone(&self.question);
        self.session.pool().spawn(move || {
            if let Some(job) = session.leave_generator(&question, job, answer) {
                session.run_job(job, false);
            }
        });
    }
}

impl Drop for GeneratorRequest {
    fn drop(&mut self) {
        let dylib = Arc::clone(&self.question.shared.name);
        self.answer(Err(SessionError::GeneratorAbandoned { dylib }));
    }
}
