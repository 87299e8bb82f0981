//! Generators: they define symbols that a dylib lacks.

use std::fmt;

pub use uruk_session::{GeneratorId, LookupKind, Need};

use uruk_session::{SessionError, Symbol};

use crate::api::dylib::Dylib;
use crate::api::jit::{Jit, WeakJit};
use crate::fork::errands::Errand;
use crate::fork::gate;

/// A callback that can define symbols which a lookup does not find.
///
/// It defines symbols in [`GeneratorRequest::dylib`] and calls [`GeneratorRequest::finish`];
/// defining none is no error. Closures that take `&GeneratorRequest` answer at once.
///
/// It runs without any lock, as a [`Unit`](crate::Unit) does. A generator handles one lookup at a
/// time; later lookups queue. A lookup that is made inside it and needs its own answer is an error.
///
/// ```
/// use uruk::{GeneratorRequest, Jit};
///
/// let jit = Jit::new()?;
/// // Functions that return the number they are named after.
/// jit.main().add_generator(|ask: &GeneratorRequest| {
///     for (symbol, _) in ask.missing() {
///         let name = ask.jit().name_of(*symbol).to_owned();
///         if let Some(Ok(number)) = name.strip_prefix("n").map(str::parse::<i64>) {
///             let ir = format!("define i64 @{name}() {{ ret i64 {number} }}");
///             ask.dylib().add_ir(&name, &ir)?;
///         }
///     }
///     Ok(())
/// })?;
/// // SAFETY: it is made above.
/// let n42 = unsafe { jit.function::<extern "C" fn() -> i64>("n42")? };
/// assert_eq!(n42.call(), 42);
/// # Ok::<(), uruk::Error>(())
/// ```
pub trait Generator: Send + Sync + 'static {
    /// Answers one lookup, now or, by keeping `ask`, later.
    fn generate(&self, ask: GeneratorRequest);
}

impl<F> Generator for F
where
    F: Fn(&GeneratorRequest) -> Result<(), crate::error::Error> + Send + Sync + 'static,
{
    fn generate(&self, ask: GeneratorRequest) {
        let answer = self(&ask);
        ask.finish(answer);
    }
}

/// A lookup inside a generator. Dropping it unanswered fails the lookup.
pub struct GeneratorRequest {
    /// `None` once answered.
    inner: Option<uruk_session::GeneratorRequest>,
    jit: Jit,
}

impl fmt::Debug for GeneratorRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl Drop for GeneratorRequest {
    fn drop(&mut self) {
        if self.inner.is_some() {
            let _pass = gate::enter();
            self.inner = None;
        }
    }
}

impl GeneratorRequest {
    fn inner(&self) -> &uruk_session::GeneratorRequest {
        self.inner.as_ref().expect("only the end takes it out")
    }

    /// The session.
    pub fn jit(&self) -> &Jit {
        &self.jit
    }

    /// The dylib that asks.
    pub fn dylib(&self) -> Dylib {
        self.jit.dylib_of(&self.inner().dylib())
    }

    /// The reason for the lookup.
    pub fn kind(&self) -> LookupKind {
        self.inner().kind()
    }

    /// The symbols without a definition so far.
    pub fn missing(&self) -> &[(Symbol, Need)] {
        self.inner().missing()
    }

    /// Does `work` on behalf of this request. An embedder that keeps the request and looks
    /// something up for its answer elsewhere must do it here. A lookup that needs this request's
    /// own answer is then an error, instead of an endless wait. Within [`Generator::generate`] the
    /// scope is set already.
    pub fn scope<R>(&self, work: impl FnOnce() -> R) -> R {
        self.inner().scope(work)
    }

    /// Continues the lookup, or fails it.
    pub fn finish<E: Into<SessionError>>(mut self, answer: Result<(), E>) {
        let answer = answer.map_err(Into::into);
        let _pass = gate::enter();
        if let Some(inner) = self.inner.take() {
            inner.finish(answer);
        }
    }
}

/// Adapts the embedder's generator to the session's trait.
pub(crate) struct GeneratorAdapter<G> {
    pub(crate) jit: WeakJit,
    pub(crate) generator: std::sync::Arc<G>,
}

impl<G: Generator> uruk_session::Generator for GeneratorAdapter<G> {
    fn generate(&self, ask: uruk_session::GeneratorRequest) {
        let Some(jit) = self.jit.upgrade() else {
            return ask.finish(Err(SessionError::Ended));
        };
        let session = std::sync::Arc::clone(jit.session());
        let ask = GeneratorRequest {
            inner: Some(ask),
            jit,
        };
        let generator = std::sync::Arc::clone(&self.generator);
        let work = move || {
            let _others = Errand::Others.begin();
            let _answering = ask.inner().answering();
            generator.generate(ask);
        };
        // Without a thread for it the question is dropped, which fails the lookup.
        session.hands.run(work);
    }
}
