//! A lookup in progress: its symbols, the generators already asked, and its completion.

use std::sync::Arc;

use smallvec::SmallVec;
use uruk_base::locks::thread_mark;

use crate::error::SessionError;
use crate::flags::Flags;
use crate::inside::Behalf;
use crate::lookup::{Completion, LookupKind, LookupResult, Missing, Need, Promise, Required};
use crate::number::{DylibId, GeneratorId};
use crate::pool::Waiter;
use crate::shared::Visibility;
use crate::symbol::Symbol;

/// The answer to a flags lookup.
pub(crate) type FlagsResult = Result<Vec<(Symbol, Flags)>, SessionError>;
/// Callback of a flags lookup.
pub(crate) type FlagsCompletion = Box<dyn FnOnce(FlagsResult) + Send>;

/// The kind of result, with its completion.
pub(crate) enum Outcome {
    Addresses(Completion),
    Flags(FlagsCompletion),
}

/// See the module text.
pub(crate) struct Job {
    pub kind: LookupKind,
    pub order: SmallVec<[(DylibId, Visibility); 2]>,
    pub symbols: Vec<(Symbol, Need)>,
    pub required: Required,
    pub missing: Missing,
    pub asked: Vec<GeneratorId>,
    /// A generator that is reserved for this lookup.
    pub granted: Option<(DylibId, GeneratorId)>,
    /// Whether it bypasses the next generator's queue, where it would wait for itself.
    pub past: bool,
    /// The generator question on behalf of which it is made.
    pub inside: Behalf,
    /// The mark of the thread that waits for the result and is the only one to read it; 0 for a
    /// lookup with a callback or a future.
    pub caller: usize,
    pub outcome: Outcome,
}

impl Job {
    /// The lookup's half of a future.
    pub(crate) fn promise(&self) -> Option<&Promise<LookupResult>> {
        match &self.outcome {
            Outcome::Addresses(Completion::Future(promise)) => Some(promise),
            Outcome::Addresses(Completion::Call(_)) | Outcome::Flags(_) => None,
        }
    }

    /// The wait of its caller, if a thread may wait.
    pub(crate) fn waiter(&self) -> Option<Arc<Waiter>> {
        self.promise().map(|promise| Arc::clone(promise.waiter()))
    }

    /// Whether no future can read the result any more.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.promise().is_some_and(Promise::is_abandoned)
    }

    /// Whether only a thread that is not in this child of a `fork` would read the result.
    pub(crate) fn is_lost(&self) -> bool {
        self.caller != 0 && self.caller != thread_mark()
    }

    pub(crate) fn flags_only(&self) -> bool {
        matches!(self.outcome, Outcome::Flags(_))
    }
}
