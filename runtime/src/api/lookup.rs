//! Lookups of many names at once: blocking, as a callback, and as a future.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

pub use uruk_session::{
    DylibId, Found, Lookup, LookupResult, Required, StillMissing, SymbolState, Visibility,
};

use uruk_session::{Behalf, Flags, SessionError, Symbol};

use crate::api::dylib::Dylib;
use crate::api::jit::{Jit, WeakJit};
use crate::error::Error;
use crate::fork::gate;
use crate::fork::hands::EmbedderThreads;

impl From<&Dylib> for uruk_session::Dylib {
    fn from(dylib: &Dylib) -> uruk_session::Dylib {
        dylib.dylib.clone()
    }
}

impl From<Dylib> for uruk_session::Dylib {
    fn from(dylib: Dylib) -> uruk_session::Dylib {
        dylib.dylib.clone()
    }
}

/// A result with the current addresses.
fn settled(jit: &Jit, found: LookupResult) -> LookupResult {
    let session = jit.session();
    found.mapped(|found| {
        if let Some(address) = session.address_now(found.address) {
            found.address = address;
        }
    })
}

/// Calls a completion. No replacement waits for it, though it may end on a thread of one.
fn complete(hands: &Arc<EmbedderThreads>, done: impl FnOnce() + Send + 'static) {
    let _working = Behalf::now().owned(0).enter();
    hands.run(done);
}

impl Jit {
    /// Looks symbols up and waits for the answer: all symbols of the [`Lookup`], from all dylibs it
    /// names, in one step. Takes no lock if everything is ready. A function's address is its
    /// stub's; a thread-local's is that of the calling thread.
    ///
    /// ```
    /// use uruk::{Jit, Lookup, Visibility};
    ///
    /// let jit = Jit::new()?;
    /// jit.add_ir("m", "@a = global i32 1  @b = global i32 2")?;
    /// let main = jit.main();
    /// let (a, b) = (jit.intern("a"), jit.intern("b"));
    /// let lookup = Lookup::new([(&main, Visibility::All)]).symbols([a, b]);
    /// let found = jit.lookup_all(lookup.weak(jit.intern("c")))?;
    /// assert_eq!(found.len(), 2);
    /// assert!(found.address(a).is_some());
    /// # Ok::<(), uruk::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Session`]: `NotFound` with all names that are missing, `Failed` with all that
    /// failed, what a generator answered, `Removed`, `Ended`.
    pub fn lookup_all(&self, lookup: Lookup) -> Result<LookupResult, Error> {
        let session = self.session().names.session();
        if let Some(found) = session.lookup_ready(&lookup) {
            let names = &self.session().names;
            let given = found.iter().map(|found| names.give(found.address));
            // One address is given out for the first time: look it up again, as it may have been
            // removed meanwhile.
            if given.filter(|first| *first).count() == 0 {
                return Ok(settled(self, found));
            }
        }
        let _pass = gate::enter();
        Ok(settled(self, session.lookup(lookup)?))
    }

    /// Looks symbols up and passes the answer to `done`: on this thread if it is ready already,
    /// else on the thread that makes it ready.
    ///
    /// The child of a fork has the lookups that were under way too, so `done` is called in both
    /// processes. In the child it gets an error if another thread was making one of the symbols,
    /// because that thread is not there. It is then called on a thread of the library, after `fork`
    /// has returned or before; if no thread can be started, by the next lookup that waits.
    pub fn lookup_async(
        &self,
        lookup: Lookup,
        done: impl FnOnce(Result<LookupResult, Error>) + Send + 'static,
    ) {
        let weak = self.downgrade();
        let hands = Arc::clone(&self.session().hands);
        let _pass = gate::enter();
        self.session()
            .names
            .session()
            .lookup_async(lookup, move |found| {
                let found = found.map_err(Error::from);
                let found = found.and_then(|found| Ok(settled(&upgrade(&weak)?, found)));
                complete(&hands, move || done(found));
            });
    }

    /// Looks symbols up; the answer can be awaited, or waited for.
    pub fn lookup_future(&self, lookup: Lookup) -> LookupFuture {
        let _pass = gate::enter();
        LookupFuture {
            inner: self.session().names.session().lookup_future(lookup),
            jit: self.downgrade(),
            end: gate::End::default(),
        }
    }

    /// The flags of symbols. Materializes nothing, but asks generators.
    ///
    /// # Errors
    /// `NotFound` with all required names that are missing, what a generator answered, `Ended`.
    pub fn lookup_flags(&self, lookup: Lookup) -> Result<Vec<(Symbol, Flags)>, Error> {
        let _pass = gate::enter();
        Ok(self.session().names.session().lookup_flags(lookup)?)
    }

    /// Like [`Jit::lookup_flags`], without waiting.
    pub fn lookup_flags_async(
        &self,
        lookup: Lookup,
        done: impl FnOnce(Result<Vec<(Symbol, Flags)>, Error>) + Send + 'static,
    ) {
        let hands = Arc::clone(&self.session().hands);
        let _pass = gate::enter();
        let session = self.session().names.session();
        session.lookup_flags_async(lookup, move |found| {
            complete(&hands, move || done(found.map_err(Error::from)));
        });
    }

    /// Reports an error to the session's callback for errors that no caller waits for
    /// ([`JitBuilder::on_error`](crate::JitBuilder::on_error)).
    pub fn report(&self, error: &SessionError) {
        let _pass = gate::enter();
        self.session().names.session().report(error);
    }

    /// The lookups that wait: for definitions ([`Lookup::wait_for_missing`]), and for symbols that
    /// units make. Units that wait for each other, or for themselves by a generator, wait forever
    /// and stay listed here. The session cannot detect that, as any of them may continue by itself.
    /// Examines all symbols.
    pub fn still_missing(&self) -> Vec<StillMissing> {
        let _pass = gate::enter();
        self.session().names.session().still_missing()
    }
}

fn upgrade(jit: &WeakJit) -> Result<Jit, Error> {
    Ok(jit.upgrade().ok_or(SessionError::Ended)?)
}

/// The result of a lookup that may not be there yet: to be awaited, or waited for. The clones
/// are one lookup. When the last is dropped, a lookup that waits for definitions
/// ([`Lookup::wait_for_missing`]) ends; one that is being answered goes on.
///
/// The child of a fork has the future, too; its lookup is treated as one of [`Jit::lookup_async`].
#[derive(Clone)]
pub struct LookupFuture {
    inner: uruk_session::LookupFuture,
    jit: WeakJit,
    /// Dropping the last clone takes the session's lock.
    end: gate::End,
}

impl Drop for LookupFuture {
    fn drop(&mut self) {
        if !self.inner.is_done() {
            self.end.begin();
        }
    }
}

impl std::fmt::Debug for LookupFuture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

impl LookupFuture {
    /// Whether the result is there.
    pub fn is_done(&self) -> bool {
        self.inner.is_done()
    }

    /// The result, if it is there.
    pub fn result(&self) -> Option<Result<LookupResult, Error>> {
        Some(self.settle(self.inner.result()?))
    }

    /// Waits for the result.
    ///
    /// # Errors
    /// Those of [`Jit::lookup_all`].
    pub fn wait(&self) -> Result<LookupResult, Error> {
        let _pass = gate::enter();
        self.settle(self.inner.wait())
    }

    /// Waits for the result, at most for `limit`; `None` if it is not there then. The lookup goes
    /// on.
    pub fn wait_for(&self, limit: Duration) -> Option<Result<LookupResult, Error>> {
        let Some(end) = Instant::now().checked_add(limit) else {
            return Some(self.wait());
        };
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        let mut future = self.clone();
        loop {
            if let Poll::Ready(found) = Pin::new(&mut future).poll(&mut context) {
                return Some(found);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            std::thread::park_timeout(left);
        }
    }

    fn settle(&self, found: Result<LookupResult, SessionError>) -> Result<LookupResult, Error> {
        Ok(settled(&upgrade(&self.jit)?, found?))
    }
}

/// Wakes a thread that waits with a limit.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Future for LookupFuture {
    type Output = Result<LookupResult, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match Pin::new(&mut self.inner).poll(context) {
            Poll::Ready(found) => Poll::Ready(self.settle(found)),
            Poll::Pending => Poll::Pending,
        }
    }
}
