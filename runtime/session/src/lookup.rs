//! The terms of lookups, and their results. The query itself is in `lookup/query.rs`.

pub(crate) mod query;

use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, Waker};

use smallvec::SmallVec;
use uruk_base::locks::uncovered;

use crate::error::SessionError;
use crate::flags::Flags;
use crate::number::DylibId;
use crate::pool::{Pool, Waiter};
use crate::slab::Key;
use crate::symbol::Symbol;
use crate::sync::{AtomicU64, Mutex};

/// The reason for a lookup; generators may answer differently.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum LookupKind {
    /// To link code: archives pull in members.
    #[default]
    Static,
    /// As `dlsym` would: archives stay closed.
    Dlsym,
}

/// The treatment of a symbol that is not found.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Need {
    /// The lookup fails.
    #[default]
    Required,
    /// The symbol is left out of the result.
    Weak,
}

/// The state that symbols must have reached.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Required {
    /// They have addresses: enough to link against them.
    Resolved,
    /// They can be run or read.
    #[default]
    Ready,
}

/// The treatment of a required symbol that is defined nowhere in the order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Missing {
    /// The lookup fails and names all such symbols.
    #[default]
    Fail,
    /// The lookup waits until they are defined; meanwhile
    /// [`Session::still_missing`](crate::Session::still_missing) lists them.
    Wait,
}

/// One symbol that was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// The symbol.
    pub symbol: Symbol,
    /// Its address.
    pub address: u64,
    /// Its flags.
    pub flags: Flags,
    /// The dylib in which it was found.
    pub dylib: DylibId,
    /// Whether it was ready. If not, code that uses it depends on it.
    pub ready: bool,
}

/// The found symbols, in the order of the lookup, without the missing ones.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LookupResult(SmallVec<[Found; 1]>);

impl LookupResult {
    pub(crate) fn new(found: SmallVec<[Found; 1]>) -> Self {
        Self(found)
    }

    /// Applies `change` to each entry, for layers that give addresses a meaning of their own.
    #[must_use]
    pub fn mapped(mut self, change: impl FnMut(&mut Found)) -> Self {
        self.0.iter_mut().for_each(change);
        self
    }

    /// All entries.
    pub fn iter(&self) -> std::slice::Iter<'_, Found> {
        self.0.iter()
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The entry of a symbol.
    pub fn get(&self, symbol: Symbol) -> Option<&Found> {
        self.0.iter().find(|found| found.symbol == symbol)
    }

    /// The address of a symbol.
    pub fn address(&self, symbol: Symbol) -> Option<u64> {
        self.get(symbol).map(|found| found.address)
    }

    /// The symbols that were not ready: the dependences of code that uses the result.
    pub fn dependences(&self) -> Vec<(DylibId, Symbol)> {
        self.0
            .iter()
            .filter(|found| !found.ready)
            .map(|found| (found.dylib, found.symbol))
            .collect()
    }
}

impl<'a> IntoIterator for &'a LookupResult {
    type Item = &'a Found;
    type IntoIter = std::slice::Iter<'a, Found>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

/// The receiver of a lookup's result.
pub(crate) enum Completion {
    Call(Box<dyn FnOnce(Result<LookupResult, SessionError>) + Send>),
    Future(Promise<LookupResult>),
}

impl Completion {
    pub(crate) fn tell(self, result: Result<LookupResult, SessionError>) {
        match self {
            Completion::Call(done) => done(result),
            Completion::Future(promise) => promise.finish(result),
        }
    }
}

/// The lookups of a session that wait for definitions.
pub(crate) trait WaitList: Send + Sync {
    /// Ends the lookup with that key, if it is still waiting.
    fn end_wait(self: Arc<Self>, at: &Mutex<Option<Key>>);
}

/// The shared result of a future, and the tasks to be woken when it arrives. Such a task has
/// checked the result under the lock of `wakers` and found none.
struct Slot<T> {
    waiting: Weak<dyn WaitList>,
    pool: Pool,
    waiter: Arc<Waiter>,
    result: OnceLock<Result<T, SessionError>>,
    wakers: Mutex<Vec<Waker>>,
    /// Number of futures of this lookup. At 0 the result cannot be read any more.
    futures: AtomicU64,
    /// Key of the lookup among those that wait for definitions. Changes under the session's lock.
    waits: Mutex<Option<Key>>,
}

/// The lookup's half of a [`LookupFuture`]. It keeps no lookup waiting.
pub(crate) struct Promise<T>(Arc<Slot<T>>);

impl<T> Clone for Promise<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Promise<T> {
    pub(crate) fn waiter(&self) -> &Arc<Waiter> {
        &self.0.waiter
    }

    /// Whether all futures were dropped. This is final.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.0.futures.load(Ordering::SeqCst) == 0
    }

    /// Notes the key under which the lookup waits for definitions.
    pub(crate) fn note_wait(&self, key: Key) {
        *self.0.waits.lock() = Some(key);
    }

    fn finish(&self, result: Result<T, SessionError>) {
        self.0.finish(result);
    }
}

impl<T> Slot<T> {
    fn finish(&self, result: Result<T, SessionError>) {
        // A lookup ends once.
        let _ = self.result.set(result);
        let wakers = std::mem::take(&mut *self.wakers.lock());
        self.waiter.finish();
        // Code of embedders, which may wait for a thread that forks.
        wakers
            .into_iter()
            .for_each(|waker| uncovered(|| waker.wake()));
    }
}

/// The future result of a lookup: to be waited for ([`LookupFuture::wait`]), or awaited. The clones
/// are one lookup. When the last is dropped, a lookup that waits for definitions
/// ([`Missing::Wait`]) ends; one that is being answered goes on.
pub struct LookupFuture<T = LookupResult>(Arc<Slot<T>>);

impl<T> Clone for LookupFuture<T> {
    fn clone(&self) -> Self {
        self.0.futures.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for LookupFuture<T> {
    fn drop(&mut self) {
        let last = self.0.futures.fetch_sub(1, Ordering::SeqCst) == 1;
        if last
            && !self.0.waiter.is_done()
            && let Some(waiting) = self.0.waiting.upgrade()
        {
            waiting.end_wait(&self.0.waits);
        }
    }
}

impl<T> std::fmt::Debug for LookupFuture<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LookupFuture")
            .field("done", &self.0.waiter.is_done())
            .finish_non_exhaustive()
    }
}

impl<T: Clone> LookupFuture<T> {
    /// The future of a lookup that the threads of `pool` answer, and that may come to be one of
    /// `waiting`.
    pub(crate) fn new(waiting: Weak<dyn WaitList>, pool: Pool) -> Self {
        Self(Arc::new(Slot {
            waiting,
            pool,
            waiter: Arc::new(Waiter::new()),
            result: OnceLock::new(),
            wakers: Mutex::new(Vec::new()),
            futures: AtomicU64::new(1),
            waits: Mutex::new(None),
        }))
    }

    pub(crate) fn promise(&self) -> Promise<T> {
        Promise(Arc::clone(&self.0))
    }

    pub(crate) fn waiter(&self) -> &Arc<Waiter> {
        &self.0.waiter
    }

    pub(crate) fn finish(&self, result: Result<T, SessionError>) {
        self.0.finish(result);
    }

    /// Whether the result has arrived.
    pub fn is_done(&self) -> bool {
        self.0.waiter.is_done()
    }

    /// The result, if it has arrived.
    pub fn result(&self) -> Option<Result<T, SessionError>> {
        self.0.result.get().cloned()
    }

    /// Waits for the result; helps to produce it.
    pub fn wait(&self) -> Result<T, SessionError> {
        let done = self.0.pool.wait(&self.0.waiter);
        match self.result() {
            Some(result) if done => result,
            _ => Err(SessionError::WaitTooDeep {
                jobs: self.0.pool.jobs(),
            }),
        }
    }
}

impl<T: Clone> Future for LookupFuture<T> {
    type Output = Result<T, SessionError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut wakers = self.0.wakers.lock();
        if let Some(result) = self.result() {
            return Poll::Ready(result);
        }
        let waker = context.waker();
        if !wakers.iter().any(|known| known.will_wake(waker)) {
            wakers.push(waker.clone());
        }
        Poll::Pending
    }
}
