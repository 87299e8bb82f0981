//! A lookup on its way: what is asked, which generators were asked, and who is
//! to be told.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::dylib::{DylibId, Visibility};
use crate::error::SessionError;
use crate::flags::Flags;
use crate::generator::GeneratorId;
use crate::inside::Question;
use crate::lookup::{
    Completion, Lookup, LookupKind, LookupResult, Missing, Need, Promise, Required,
};
use crate::pool::Waiter;
use crate::symbol::Symbol;

/// The answer to a flags lookup.
pub(crate) type FlagsResult = Result<Vec<(Symbol, Flags)>, SessionError>;
/// Who is told it.
pub(crate) type FlagsCompletion = Box<dyn FnOnce(FlagsResult) + Send>;

/// What is wanted.
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
    /// A generator that is kept free for this lookup.
    pub granted: Option<(DylibId, GeneratorId)>,
    /// It enters the next generator past the line: it would wait for itself there.
    pub past: bool,
    /// The question of a generator that it is asked on behalf of.
    pub inside: Option<Arc<Question>>,
    pub outcome: Outcome,
}

impl Job {
    pub(crate) fn new(lookup: Lookup, outcome: Outcome, inside: Option<Arc<Question>>) -> Self {
        Self {
            kind: lookup.kind,
            order: lookup
                .order
                .iter()
                .map(|(dylib, visibility)| (dylib.id(), *visibility))
                .collect(),
            symbols: lookup.symbols,
            required: lookup.required,
            missing: lookup.missing,
            asked: Vec::new(),
            granted: None,
            past: false,
            inside,
            outcome,
        }
    }

    /// The end of it that a future waits for.
    pub(crate) fn promise(&self) -> Option<&Promise<LookupResult>> {
        match &self.outcome {
            Outcome::Addresses(Completion::Future(promise)) => Some(promise),
            Outcome::Addresses(Completion::Call(_)) | Outcome::Flags(_) => None,
        }
    }

    /// The wait for it, if a thread may wait.
    pub(crate) fn waiter(&self) -> Option<Arc<Waiter>> {
        self.promise().map(|promise| Arc::clone(promise.waiter()))
    }

    /// Whether nothing can ask for the result any more.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.promise().is_some_and(Promise::is_abandoned)
    }

    pub(crate) fn flags_only(&self) -> bool {
        matches!(self.outcome, Outcome::Flags(_))
    }
}
