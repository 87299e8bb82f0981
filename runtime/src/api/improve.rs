//! Better code of a unit's functions: the reoptimizer that is asked for it, and its delivery.

use std::fmt;
use std::sync::Arc;

use uruk_base::{Tier, VersionId};
use uruk_session::{Resource, SessionError, Symbol};

use crate::api::dylib::Dylib;
use crate::api::jit::Jit;
use crate::code::kept::KeptResources;
use crate::error::Error;
use crate::units::reoptimize::PendingReoptimization;

/// Makes better code of a unit's functions on request; see
/// [`Unit::improver`](crate::Unit::improver). Closures are reoptimizers, too.
///
/// A function runs at tier 1 with the code that its unit made for its first call. Better code is
/// requested
///
/// | by | at tier |
/// |---|---|
/// | the policy, under [`Tiers::Auto`](crate::Tiers::Auto), where samples find it hot | 2, then 3 |
/// | a [pin](crate::Dylib::pin) | that one |
/// | its first call, under [`Tiers::Fixed`](crate::Tiers::Fixed) above 1 | that one |
/// | [`Dylib::compile_at`](crate::Dylib::compile_at) | that one, each time |
///
/// Samples count for a function only in code that the session linked for it
/// ([`Responsibility::link`](crate::Responsibility::link), [`ReoptimizeRequest::link`]), not in
/// code that it calls. An interpreter behind a function must count for itself, and pin.
///
/// The current code runs on until better code is published. A failure raises
/// [`Event::Failed`](crate::Event::Failed), and goes to the requester or else to the session's
/// reporter ([`JitBuilder::on_error`](crate::JitBuilder::on_error)). The policy does not ask again
/// until the function is redefined.
pub trait Reoptimizer: Send + Sync + 'static {
    /// Makes better code, now or, by keeping the request, later.
    ///
    /// Runs without any lock, on a thread of the library with all signals blocked, or on the one
    /// that called [`Dylib::compile_at`](crate::Dylib::compile_at) or
    /// [`Dylib::compile`](crate::Dylib::compile). It may use the session, and call its functions. A
    /// panic is a failure. The policy has at most as many requests in progress as there may be
    /// jobs.
    fn improve(&self, improvement: ReoptimizeRequest);
}

impl<F: Fn(ReoptimizeRequest) + Send + Sync + 'static> Reoptimizer for F {
    fn improve(&self, improvement: ReoptimizeRequest) {
        self(improvement);
    }
}

/// A request for better code of one function, to be answered once. Dropping it is a failure.
///
/// The better version has a number and a tracker of its own. It is published by one store, once its
/// dependences are ready, unless the function was replaced or removed meanwhile. The previous code
/// stays for a while, for a fallback, and is freed when no thread is in it any more.
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
    /// `None` once answered.
    asked: Option<Arc<PendingReoptimization>>,
    kept: KeptResources,
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
    pub(crate) fn new(jit: Jit, asked: Arc<PendingReoptimization>) -> ReoptimizeRequest {
        ReoptimizeRequest {
            kept: KeptResources::new(&jit.session().hands),
            jit,
            asked: Some(asked),
        }
    }

    fn asked(&self) -> &PendingReoptimization {
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

    /// The function's symbol in its unit.
    pub fn function(&self) -> Symbol {
        self.asked().unit.own
    }

    /// The tier that is requested.
    pub fn tier(&self) -> Tier {
        self.asked().request.tier
    }

    /// The number that the version will have in events and statistics.
    pub fn version(&self) -> VersionId {
        self.asked().request.version
    }

    /// Whether the code is no longer needed: the function was replaced or removed, is pinned to
    /// another tier, or the session ends. A long-running reoptimizer should check it now and then.
    pub fn is_cancelled(&self) -> bool {
        self.asked().cancel.is_cancelled()
    }

    /// Keeps a resource for as long as the version's code may run, for references that the session
    /// does not know. Released on a thread of the library; at once, if the version is never made.
    pub fn attach(&mut self, resource: impl Resource + 'static) {
        self.kept.add(Box::new(resource));
    }

    /// Links an ELF object that defines the function, as a new version of it.
    ///
    /// Other definitions of the object are private to the version, unless the function's dylib
    /// defines the same name. Then all references go to that definition, or its stub, as they do
    /// for the function itself. So data that must outlive the version is defined by the unit. If an
    /// address of a private definition can be kept (it is loaded, or stored in data), the version's
    /// memory stays until the function is removed. Other code is freed once no thread can return
    /// into it, and may be moved before: an address within it may be kept on stacks only.
    ///
    /// # Errors
    /// Not an object for this machine; an object without the function, or with constructs that only
    /// whole images may have (constructors, thread-locals, ifuncs); a missing symbol; cancellation.
    /// The requester gets the same error.
    pub fn link(mut self, name: &str, object: impl Into<Arc<[u8]>>) -> Result<(), Error> {
        let kept = self.kept.take();
        match self.asked.take() {
            Some(asked) => asked.link(name, &object.into(), kept),
            None => Ok(()),
        }
    }

    /// Redirects calls to an address of the embedder: the version is a jump there.
    ///
    /// The session cannot see threads in that code, so the version stays until none can be in it.
    ///
    /// # Errors
    /// No memory for the jump; cancellation.
    pub fn resolve(mut self, address: u64) -> Result<(), Error> {
        let kept = self.kept.take();
        match self.asked.take() {
            Some(asked) => asked.jump(address, kept),
            None => Ok(()),
        }
    }

    /// Answers that the unit has no better code at this tier.
    pub fn decline(mut self) {
        if let Some(asked) = self.asked.take() {
            asked.decline();
        }
    }

    /// Answers that better code cannot be made.
    pub fn fail(mut self, error: impl Into<SessionError>) {
        if let Some(asked) = self.asked.take() {
            asked.fail(Error::Session(error.into()));
        }
    }
}
