//! The interface through which the compiler calls the rooms above it. These advise it for a
//! compile, are notified of versions, and answer first calls. Rooms below `session` use it, too.
//!
//! # Invariants
//! - The compiler knows the rooms above by this interface only. It has a weak handle of them; only
//!   its threads have strong ones. After a session has ended, the answers are neutral
//!   ([`NoEngines`]).
//! - Methods are called under a pass of the gate, unless a method says otherwise.

use std::sync::Arc;
use std::time::Duration;

use uruk_base::{FunctionId, Tier};
use uruk_codegen::{Compile, Compiled, Heads, ModulePlan, Sketch, Steady};
use uruk_heap::HeapError;

use crate::code::host_state::HostState;
use crate::code::life::Life;
use crate::code::loops::Loops;
use crate::code::module::Module;
use crate::code::unit_body::UnitBody;
use crate::error::Error;
use crate::version::plan::BodyOf;
use crate::version::request::Made;
use crate::version::request::Request;
use uruk_base::VersionId;
use uruk_codegen::Cancellation;
use uruk_session::Resource;
use uruk_session::SessionError;
use uruk_tiering::EntryAddress;

/// Starts another thread in place of the calling one, which LLVM took down or whose state is
/// uncertain; gets the message.
pub(crate) type OnLostThread = Arc<dyn Fn(&str) + Send + Sync>;

/// The rooms above the compiler. The default of each method is the answer of a session without that
/// room.
pub(crate) trait Engines: Send + Sync {
    /// The tier at which the program's entry point is compiled.
    fn start_tier(&self, _id: FunctionId) -> Tier {
        Tier::Baseline
    }

    /// The settings of a guided compile.
    fn guide(&self, _id: FunctionId, how: Compile) -> Compile {
        how
    }

    /// Values that arguments nearly always had while a function was counted.
    fn steady(&self, _id: FunctionId) -> Vec<Steady> {
        Vec::new()
    }

    /// Samples in native code that is compiled with its callers only; `None` if there is no such
    /// code.
    fn native_samples(&self, _id: FunctionId) -> Option<u32> {
        None
    }

    /// Passes of the loops of a function, and of its continuations.
    fn passes(&self, _id: FunctionId) -> u64 {
        0
    }

    /// The words of the loops of a version that is being linked.
    ///
    /// # Errors
    /// The heap has no memory for them.
    fn loops_of(
        self: Arc<Self>,
        _of: &BodyOf,
        _compiled: &Compiled,
    ) -> Result<Option<Arc<Loops>>, Error> {
        Ok(None)
    }

    /// Told which loops of a function cannot be left, once their exits are compiled; `_some`: others can.
    fn loops_told(&self, _id: FunctionId, _heads: &Heads, _some: bool) {}

    /// Whether a function is compiled ahead now, without a caller.
    fn is_guess(&self, _id: FunctionId) -> bool {
        false
    }

    /// Whether the body of a function is to be sketched.
    fn wants_sketch(&self, _id: FunctionId) -> bool {
        false
    }

    /// Takes the sketch of a function that is being compiled.
    fn sketched(
        &self,
        _id: FunctionId,
        _module: &Arc<Module>,
        _plan: &Arc<ModulePlan>,
        _sketch: Sketch,
    ) {
    }

    /// Notes new code of a function; returns whether earlier code of it was evicted.
    fn note_code(&self, _id: FunctionId, _bytes: u64) -> bool {
        false
    }

    /// Called when a function has its first code.
    fn compiled(&self, _now: Duration, _id: FunctionId, _tier: Tier, _made: &Made) {}

    /// Called when a version was published that the controller did not ask for.
    fn published(&self, _now: Duration, _id: FunctionId, _tier: Tier, _made: &Made) {}

    /// Called when native code of so many bytes was adopted as a function's first version.
    fn adopted(&self, _id: FunctionId, _bytes: u64) {}

    /// Evicts cold code, if there is more code than its budget allows.
    fn keep_budget(self: Arc<Self>) {}

    /// Called after an allocation failed; returns whether another try is worth it.
    fn reclaim_for_more(self: Arc<Self>, _cause: &HeapError) -> bool {
        false
    }

    /// Under [`Tiers::Churn`](uruk_base::Tiers::Churn), moves the next function to another tier.
    ///
    /// # Errors
    /// Those of the compile.
    fn churn(self: Arc<Self>) -> Result<(), Error> {
        Ok(())
    }

    /// Answers the first call of a unit's function.
    fn answer_from_unit(self: Arc<Self>, _id: FunctionId, _unit: UnitBody) {}

    /// Compiles a unit's function now, at a tier, or for its first call. Without a pass.
    ///
    /// # Errors
    /// The unit's.
    fn compile_unit(
        self: Arc<Self>,
        _id: FunctionId,
        _unit: &UnitBody,
        _tier: Option<Tier>,
    ) -> Result<(), Error> {
        Ok(())
    }

    /// State of the host to which the functions of a file refer.
    fn state_for(&self, _file: &str) -> Option<HostState> {
        None
    }

    /// Checks declarations of functions of the host in modules of an image against their types.
    ///
    /// # Errors
    /// The first difference.
    fn check_modules(&self, _modules: &[(usize, Arc<Module>)]) -> Result<(), Error> {
        Ok(())
    }

    /// Lets threads that compile ahead read modules too, while their data is linked.
    fn read_ahead(&self, _modules: &[(usize, Arc<Module>)]) {}

    /// Called when there was no slot left for thread-locals; returns whether another try is worth
    /// it.
    fn reclaim_for_slots(self: Arc<Self>, _cause: &Error) -> bool {
        false
    }

    /// The resource that removes functions of an image when it is released, once none of them can
    /// be called.
    fn removal_of(
        self: Arc<Self>,
        _image: &Arc<Life>,
        _functions: Vec<FunctionId>,
    ) -> Box<dyn Resource> {
        Box::new(|| ())
    }

    /// Whether code above tier 1 must count its entries, so that it can be tuned.
    fn counts_for_tuning(&self, _id: FunctionId) -> bool {
        false
    }

    /// Called when samples were seen in a function. Under the lock of samples.
    fn sampled(&self, _id: FunctionId) {}

    /// The settings of a compile above tier 1, of the variant that tuning found best.
    fn tuned(&self, _id: FunctionId, how: Compile) -> Compile {
        how
    }

    /// Updates the address of a version that is kept for a rollback; false, without a change, if
    /// none is kept at `_from`.
    fn moved(
        &self,
        _id: FunctionId,
        _version: VersionId,
        _from: EntryAddress,
        _to: EntryAddress,
    ) -> bool {
        false
    }

    /// Makes a better version of a unit's function, and reports a failure. On a thread for code of
    /// embedders.
    ///
    /// # Errors
    /// The unit's; cancellation.
    fn improve(
        self: Arc<Self>,
        _request: Request,
        _unit: &UnitBody,
        _queued: Option<Duration>,
        _cancel: &Cancellation,
    ) -> Result<Made, Error>;

    /// Removes a function: calls of it go to the failure handler, its code is retired.
    fn remove_function(self: Arc<Self>, _id: FunctionId) {}

    /// Whether a first call waits for a compile ahead. Without a pass, too.
    fn is_joined(&self) -> bool {
        false
    }

    /// Leaves the answer to a first call to the thread that compiles the function already; false if
    /// there is none.
    fn join_ahead(&self, _id: FunctionId) -> bool {
        false
    }

    /// A first call that joined a compile whose thread makes no progress.
    fn stranded(&self) -> Option<FunctionId> {
        None
    }

    /// Compiles a function ahead while a call waits for a long compile ahead; returns the text of a
    /// panic.
    fn help_ahead(self: Arc<Self>, _lost: &OnLostThread) -> Option<String> {
        None
    }
}

/// Stands for the rooms above after the session has ended.
pub(super) struct NoEngines;

impl Engines for NoEngines {
    fn improve(
        self: Arc<Self>,
        _request: Request,
        _unit: &UnitBody,
        _queued: Option<Duration>,
        _cancel: &Cancellation,
    ) -> Result<Made, Error> {
        Err(Error::Session(SessionError::Ended))
    }
}
