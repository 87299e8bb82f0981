//! Lookups: the ready path without a lock, and the walk through dylibs and
//! generators when something is not ready.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use smallvec::SmallVec;
use uruk_base::locks::{Covered, thread_mark};

use super::{Inner, Session, StillMissing};
use crate::dylib::Dylib;
use crate::effects::{Effects, Launching};
use crate::error::SessionError;
use crate::flags::Flags;
use crate::generator::{GeneratorRequest, Progress};
use crate::inside::{Behalf, Question};
use crate::job::{Job, Outcome};
use crate::lookup::query::Lookup;
use crate::lookup::{Completion, Found, LookupFuture, LookupResult, Need, WaitList};
use crate::number::DylibId;
use crate::ready::Ready;
use crate::shared::Visibility;
use crate::slab::Key;
use crate::state::State;
use crate::state::search::{Short, Step};
use crate::symbol::Symbol;
use crate::sync::Mutex;

impl Session {
    /// The future of a lookup.
    fn future<T: Clone>(&self) -> LookupFuture<T> {
        let waiting: Weak<Inner> = Arc::downgrade(&self.0);
        LookupFuture::new(waiting, self.0.pool.clone())
    }

    /// Begins a lookup, unless it names a dylib of another session; see [`Session::run_job`].
    /// `caller` is [`Job::caller`].
    fn begin(
        &self,
        lookup: Lookup,
        outcome: Outcome,
        caller: usize,
        keep: bool,
    ) -> Option<Launching> {
        let foreign = lookup.order.iter().find_map(|(d, _)| self.own(d).err());
        let job = lookup.into_job(outcome, Behalf::now(), caller);
        match foreign {
            None => self.run_job(job, keep),
            Some(error) => {
                let mut effects = Effects::default();
                effects.finish(job, Err(error));
                effects.run_but_one(self, keep)
            }
        }
    }

    /// Advances a lookup as far as possible. With `keep`, one unit that it starts is returned for
    /// the caller to run.
    pub(crate) fn run_job(&self, job: Job, keep: bool) -> Option<Launching> {
        let _working = job.inside.clone().enter();
        let mut job = job;
        loop {
            let mut effects = Effects::default();
            let step = self.lock().step(job, &mut effects);
            let kept = effects.run_but_one(self, keep);
            let Step::Ask(asking) = step else { return kept };
            let generator = Arc::clone(&asking.generator);
            let (ask, progress) = GeneratorRequest::new(self, *asking);
            let question = Arc::clone(ask.question());
            self.guarded(|| {
                let _working = Behalf::of(&question).enter();
                let _calling = question.calling();
                generator.generate(ask);
            });
            let answer = std::mem::replace(&mut *progress.lock(), Progress::Suspended);
            let Progress::Answered(back, answer) = answer else {
                return None;
            };
            job = self.leave_generator(&question, back, answer)?;
        }
    }

    /// Leaves a generator that has answered; returns the lookup, unless it ends here.
    pub(crate) fn leave_generator(
        &self,
        question: &Question,
        job: Job,
        answer: Result<(), SessionError>,
    ) -> Option<Job> {
        self.change(|state, effects| {
            question.end();
            let there = match question.nested {
                true => state.has_generator(question.shared.id, question.id),
                false => state.leave_generator(question.shared.id, question.id, effects),
            };
            let removed = || SessionError::GeneratorRemoved {
                dylib: Arc::clone(&question.shared.name),
            };
            match answer.and_then(|()| if there { Ok(()) } else { Err(removed()) }) {
                Ok(()) => Some(job),
                Err(error) => {
                    effects.finish(job, Err(error));
                    None
                }
            }
        })
    }

    /// The answer if everything is ready, without a lock.
    pub fn lookup_ready(&self, lookup: &Lookup) -> Option<LookupResult> {
        // A lookup in a dylib of another session fails on the slow path.
        let mut order = lookup.order.iter();
        if !order.all(|(dylib, _)| self.is(dylib.session())) {
            return None;
        }
        let mut found = SmallVec::with_capacity(lookup.symbols.len());
        'symbols: for (symbol, need) in &lookup.symbols {
            for (dylib, visibility) in &lookup.order {
                match dylib.peek(*symbol) {
                    Ready::At(address, flags) if visibility.sees(flags) => {
                        found.push(Found {
                            symbol: *symbol,
                            address,
                            flags,
                            dylib: dylib.id(),
                            ready: true,
                        });
                        continue 'symbols;
                    }
                    Ready::Defined(flags) if visibility.sees(flags) => return None,
                    Ready::Undefined if dylib.shared().has_generators() => return None,
                    _ => {}
                }
            }
            if *need == Need::Required {
                return None;
            }
        }
        Some(LookupResult::new(found))
    }

    /// Looks symbols up and waits for the answer; helps to produce it. Takes no
    /// lock if everything is ready.
    ///
    /// # Errors
    /// `NotFound` with all names that are missing, `Failed` with all that failed, the error of a
    /// generator, `Removed`, `WaitTooDeep`, `Ended`.
    pub fn lookup(&self, lookup: Lookup) -> Result<LookupResult, SessionError> {
        if let Some(result) = self.lookup_ready(&lookup) {
            return Ok(result);
        }
        let future = self.future();
        let outcome = Outcome::Addresses(Completion::Future(future.promise()));
        let pool = &self.0.pool;
        let keep = pool.may_help();
        let _waits = pool.will_wait(future.waiter());
        let begin = || self.begin(lookup, outcome, thread_mark(), keep);
        let kept = pool.for_the_sake_of(future.waiter(), begin);
        if let Some(launching) = kept {
            let waiter = Arc::clone(future.waiter());
            pool.run(|| self.materialize(launching), Some(waiter));
        }
        future.wait()
    }

    /// Waits for the address of a symbol that is not ready: in `dylib`, or also in its link order;
    /// `None` if it is defined nowhere there, and not required. Like `lookup`, under a cover except
    /// while the unit runs.
    pub(crate) fn find(
        &self,
        dylib: &Dylib,
        in_order: bool,
        (symbol, need): (Symbol, Need),
    ) -> Result<Option<u64>, SessionError> {
        let pool = &self.0.pool;
        if pool.may_help() {
            let mut future = None;
            let asked = || {
                let made = future.insert(self.future());
                Completion::Future(made.promise())
            };
            let id = dylib.id();
            let way = self.lock().take_short_way(id, in_order, symbol, asked);
            match (way, future) {
                (Short::Ready(address), _) => return Ok(Some(address)),
                (Short::Started(launching), Some(future)) => {
                    let waiter = Arc::clone(future.waiter());
                    pool.run(|| self.materialize(launching), Some(waiter));
                    // The unit's work may continue on another thread, and the wait may run other
                    // tasks.
                    let _covered = (!future.is_done()).then(Covered::ensure);
                    return future.wait().map(|found| found.address(symbol));
                }
                _ => {}
            }
        }
        let _covered = Covered::ensure();
        let order = match in_order {
            true => dylib.search_order(),
            false => vec![(dylib.clone(), Visibility::All)],
        };
        let mut lookup = Lookup::new(order);
        lookup.symbols.push((symbol, need));
        let found = self.lookup(lookup)?;
        Ok(found.address(symbol))
    }

    /// Looks symbols up and passes the answer to `done`: on this thread if it is ready already,
    /// else on the thread that makes it ready. In a child of `fork`, `done` is called as well; see
    /// [`Session::give_up_lost`].
    pub fn lookup_async(
        &self,
        lookup: Lookup,
        done: impl FnOnce(Result<LookupResult, SessionError>) + Send + 'static,
    ) {
        if let Some(result) = self.lookup_ready(&lookup) {
            return done(Ok(result));
        }
        let done = Completion::Call(Box::new(done));
        self.begin(lookup, Outcome::Addresses(done), 0, false);
    }

    /// Looks symbols up; the answer can be waited for.
    pub fn lookup_future(&self, lookup: Lookup) -> LookupFuture {
        let future = self.future();
        match self.lookup_ready(&lookup) {
            Some(result) => future.finish(Ok(result)),
            None => {
                let told = Completion::Future(future.promise());
                self.begin(lookup, Outcome::Addresses(told), 0, false);
            }
        }
        future
    }

    /// The flags of symbols. Materializes nothing, but asks generators.
    ///
    /// # Errors
    /// `NotFound` with all required names that are missing, the error of a generator, `Ended`.
    pub fn lookup_flags(&self, lookup: Lookup) -> Result<Vec<(Symbol, Flags)>, SessionError> {
        let future = self.future();
        let told = future.clone();
        let done = Outcome::Flags(Box::new(move |result| told.finish(result)));
        self.begin(lookup, done, thread_mark(), false);
        future.wait()
    }

    /// Like [`Session::lookup_flags`], without waiting.
    pub fn lookup_flags_async(
        &self,
        lookup: Lookup,
        done: impl FnOnce(Result<Vec<(Symbol, Flags)>, SessionError>) + Send + 'static,
    ) {
        self.begin(lookup, Outcome::Flags(Box::new(done)), 0, false);
    }

    /// Ends the lookups that wait for definitions, when no more will come.
    pub fn end_waits(&self) {
        self.change(|state, effects| state.end_waits(effects));
    }

    /// The lookups that wait: for definitions, and for symbols that units make. Examines all
    /// symbols.
    pub fn still_missing(&self) -> Vec<StillMissing> {
        let state = self.lock();
        let waiting = state.waiting.iter().map(|(job, symbols)| StillMissing {
            order: job.order.to_vec(),
            symbols: symbols.clone(),
            ..StillMissing::default()
        });
        let mut all: Vec<StillMissing> = waiting.collect();
        all.extend(in_production(&state));
        all
    }
}

impl WaitList for Inner {
    fn end_wait(self: Arc<Self>, at: &Mutex<Option<Key>>) {
        Session(self).change(|state, effects| {
            let key = at.lock().take();
            key.into_iter().for_each(|key| state.end_wait(key, effects));
        });
    }
}

impl Dylib {
    #[cold]
    pub(crate) fn lookup_slowly(&self, symbol: Symbol) -> Result<u64, SessionError> {
        let required = (symbol, Need::Required);
        let found = self.session().find(self, false, required)?;
        // A required symbol without an address was an error before.
        Ok(found.unwrap_or(0))
    }

    /// Waits for the address of a symbol that a search starting here finds: in this dylib, or in
    /// its link order. `None` if it is defined nowhere there.
    ///
    /// # Errors
    /// Those of [`Session::lookup`].
    pub fn find(&self, symbol: Symbol) -> Result<Option<u64>, SessionError> {
        match self.ready(symbol) {
            Some(address) => Ok(Some(address)),
            None => self.session().find(self, true, (symbol, Need::Weak)),
        }
    }
}

/// Lookups that have found all definitions, with the symbols they wait for.
fn in_production(state: &State) -> impl Iterator<Item = StillMissing> {
    let mut of: HashMap<Key, Vec<(DylibId, Symbol)>> = HashMap::new();
    for dylib in state.dylibs.values() {
        for (&symbol, entry) in &dylib.symbols {
            for &(query, _) in &entry.queries {
                of.entry(query).or_default().push((dylib.shared.id, symbol));
            }
        }
    }
    let still = |mut in_production: Vec<(DylibId, Symbol)>| {
        in_production.sort_unstable();
        StillMissing {
            in_production,
            ..StillMissing::default()
        }
    };
    of.into_values().map(still)
}
