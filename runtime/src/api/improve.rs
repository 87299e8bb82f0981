//! Better code of a unit's functions: who is asked for it, and how it is handed over.

use std::fmt;
use std::sync::Arc;

use uruk_base::{Tier, VersionId};
use uruk_session::{Resource, SessionError, Symbol};

use crate::api::dylib::Dylib;
use crate::api::error::Error;
use crate::api::jit::Jit;
use crate::version::better::{Asked, Kept};

/// Makes better code of a unit's functions when it is asked to; see
/// [`Unit::improver`](crate::Unit::improver). Closures are improvers, too.
///
/// A function runs at tier 1 with the code that its unit made for its first call. It is asked for
/// better code of it
///
/// | by | at tier |
/// |---|---|
/// | the policy, under [`Tiers::Auto`](crate::Tiers::Auto), where samples find it hot | 2, then 3 |
/// | a [pin](crate::Dylib::pin) | that one |
/// | its first call, under [`Tiers::Fixed`](crate::Tiers::Fixed) above 1 | that one |
/// | [`Dylib::compile_at`](crate::Dylib::compile_at) | that one, each time |
///
/// Samples find a function in code that the session linked for it
/// ([`Responsibility::link`](crate::Responsibility::link), [`ReoptimizeRequest::link`]), not where
/// that leads: who runs an interpreter behind it counts for himself, and pins.
///
/// Whatever comes of it, the code there is runs on until there is better. What cannot be made is
/// said in an [`Event::Failed`](crate::Event::Failed), is told to who asked or else to the
/// session's reporter ([`JitBuilder::on_error`](crate::JitBuilder::on_error)), and the policy
/// does not ask for it again until the function is defined anew.
pub trait Reoptimizer: Send + Sync + 'static {
    /// Makes better code, now or, by keeping the improvement, later.
    ///
    /// Runs without any lock, on a thread of the library's with all signals blocked, or on the
    /// one that called [`Dylib::compile_at`](crate::Dylib::compile_at) or
    /// [`Dylib::compile`](crate::Dylib::compile). It may use the session, and call its functions.
    /// A panic is a failure. Of the policy's questions, as many as there may be jobs are
    /// under way at the same time.
    fn improve(&self, improvement: ReoptimizeRequest);
}

impl<F: Fn(ReoptimizeRequest) + Send + Sync + 'static> Reoptimizer for F {
    fn improve(&self, improvement: ReoptimizeRequest) {
        self(improvement);
    }
}

/// The question for better code of one function, to be answered once. To drop it is a failure.
///
/// The better version has a number and a tracker of its own. It is published by one store, once
/// what it depends on is ready, unless the function was replaced or removed meanwhile; the code
/// before it stays for a while, to go back to, and is freed when no thread is in it any more.
///
/// ```
/// use std::sync::Arc;
/// use uruk::{Flags, ObjectBuilder, ReoptimizeRequest, Reoptimizer, Interface, Jit, Responsibility, Symbol, Tier, Unit};
///
/// /// `mov eax, NUMBER; ret`
/// fn constant(name: &str, number: u8) -> Vec<u8> {
///     let mut code = ObjectBuilder::new();
///     code.function(name, &[0xb8, number, 0, 0, 0, 0xc3]);
///     code.finish().unwrap()
/// }
///
/// struct Answer(Symbol);
///
/// impl Unit for Answer {
///     fn name(&self) -> &str { "answer" }
///     fn interface(&self) -> Interface {
///         [(self.0, Flags::EXPORTED | Flags::CALLABLE)].into_iter().collect()
///     }
///     fn materialize(self: Box<Self>, responsibility: Responsibility) {
///         let _ = responsibility.link("answer.o", constant("answer", 41));
///     }
///     fn improver(&self) -> Option<Arc<dyn Reoptimizer>> {
///         Some(Arc::new(|better: ReoptimizeRequest| match better.tier() {
///             // Who asked is told what is wrong.
///             Tier::Optimized => drop(better.link("better.o", constant("answer", 42))),
///             _ => better.decline(),
///         }))
///     }
/// }
///
/// let jit = Jit::new()?;
/// jit.main().define(Answer(jit.intern("answer")))?;
/// // SAFETY: the function above.
/// let answer = unsafe { jit.function::<extern "C" fn() -> i32>("answer")? };
/// assert_eq!(answer.call(), 41);
/// jit.compile_at("answer", Tier::Optimized)?;
/// assert_eq!(answer.call(), 42);
/// assert!(jit.compile_at("answer", Tier::Guided).is_err());
/// # Ok::<(), uruk::Error>(())
/// ```
pub struct ReoptimizeRequest {
    jit: Jit,
    /// `None` once it is answered.
    asked: Option<Arc<Asked>>,
    kept: Kept,
}

impl fmt::Debug for ReoptimizeRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReoptimizeRequest")
            .field("version", &self.version())
            .field("tier", &self.tier())
            .finish_non_exhaustive()
    }
}

impl Drop for ReoptimizeRequest {
    fn drop(&mut self) {
        if let Some(asked) = self.asked.take() {
            asked.dropped();
        }
    }
}

impl ReoptimizeRequest {
    pub(crate) fn new(jit: Jit, asked: Arc<Asked>) -> ReoptimizeRequest {
        ReoptimizeRequest {
            kept: Kept::new(jit.core()),
            jit,
            asked: Some(asked),
        }
    }

    fn asked(&self) -> &Asked {
        self.asked.as_ref().expect("only an answer takes it out")
    }

    /// The session.
    pub fn jit(&self) -> &Jit {
        &self.jit
    }

    /// The dylib that the function is in.
    pub fn dylib(&self) -> Dylib {
        self.jit.dylib_of(&self.asked().unit.dylib)
    }

    /// The function, as its unit knows it.
    pub fn function(&self) -> Symbol {
        self.asked().unit.own
    }

    /// How good the code is to be.
    pub fn tier(&self) -> Tier {
        self.asked().request.tier
    }

    /// The number that the version will have in events and statistics.
    pub fn version(&self) -> VersionId {
        self.asked().request.version
    }

    /// Whether nobody wants the code any more: the function was replaced or removed, is pinned
    /// to another tier, or the session ends. Who takes long looks at it now and then.
    pub fn is_cancelled(&self) -> bool {
        self.asked().cancel.is_cancelled()
    }

    /// Keeps something for as long as the version's code may be run: what it refers to and the
    /// session knows nothing of. Released on a thread of the library's; at once, if there will
    /// be no version.
    pub fn attach(&mut self, resource: impl Resource + 'static) {
        self.kept.add(Box::new(resource));
    }

    /// Links an ELF object that defines the function, as a version of it.
    ///
    /// What the object defines besides is the version's own, unless the function's dylib defines
    /// something by that name: then all references go there, as they do for the function itself,
    /// and to its stub. So what is to outlive the version is defined by the unit. If an
    /// address of what the version has of its own can be kept (it is loaded, or stored in
    /// data), its memory stays until the function is removed. Other code is freed once no
    /// thread can return into it, and may be moved by then: no address within it may be kept
    /// but on stacks.
    ///
    /// # Errors
    /// No object for this machine, one without the function, or with what only whole images have
    /// (constructors, thread-locals, ifuncs); a missing symbol; that it is cancelled. Who asked
    /// is told the same.
    pub fn link(mut self, name: &str, object: impl Into<Arc<[u8]>>) -> Result<(), Error> {
        let kept = self.kept.take();
        match self.asked.take() {
            Some(asked) => asked.link(name, &object.into(), kept),
            None => Ok(()),
        }
    }

    /// Has calls go on at an address of the embedder's own: the version is a jump there.
    ///
    /// The session does not see who is in that code, so it stays until nobody can be.
    ///
    /// # Errors
    /// No memory for the jump; that it is cancelled.
    pub fn resolve(mut self, address: u64) -> Result<(), Error> {
        let kept = self.kept.take();
        match self.asked.take() {
            Some(asked) => asked.jump(address, kept),
            None => Ok(()),
        }
    }

    /// There is no better code at this tier.
    pub fn decline(mut self) {
        if let Some(asked) = self.asked.take() {
            asked.decline();
        }
    }

    /// Better code cannot be made.
    pub fn fail(mut self, error: impl Into<SessionError>) {
        if let Some(asked) = self.asked.take() {
            asked.fail(Error::Session(error.into()));
        }
    }
}
