//! Errors of a session, with their operands.
//!
//! Errors share their contents and keep the names alive, so they can be cloned for each of a
//! thousand waiting lookups and outlive their session. A set of symbols is kept as symbols and
//! formatted only when the error is shown.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::symbol::{Symbol, SymbolPool};

/// Symbols by dylib, for errors.
#[derive(Clone)]
pub struct Names {
    pool: Arc<SymbolPool>,
    sets: Arc<[(Arc<str>, Vec<Symbol>)]>,
}

impl Names {
    pub(crate) fn new(pool: &Arc<SymbolPool>, sets: Vec<(Arc<str>, Vec<Symbol>)>) -> Self {
        Self {
            pool: Arc::clone(pool),
            sets: sets.into(),
        }
    }

    /// Each dylib's name with its symbols.
    pub fn sets(&self) -> &[(Arc<str>, Vec<Symbol>)] {
        &self.sets
    }

    /// Each symbol's name as it is shown, with the name of its dylib.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.sets.iter().flat_map(|(dylib, symbols)| {
            symbols
                .iter()
                .map(|symbol| (&**dylib, self.pool.shown(*symbol)))
        })
    }

    /// The symbols' names, sorted, without their dylibs.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<_> = self.iter().map(|(_, name)| name).collect();
        names.sort_unstable();
        names
    }
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (dylib, symbols)) in self.sets.iter().enumerate() {
            let mut names: Vec<_> = symbols.iter().map(|s| self.pool.shown(*s)).collect();
            names.sort_unstable();
            let separator = if n == 0 { "" } else { ", " };
            write!(f, "{separator}{dylib}: {{{}}}", names.join(", "))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// An error of an operation on a session. The session stays usable.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// No dylib of the search order defines these; the set names the first
    /// dylib of the order.
    #[error("symbols not found: {0}")]
    NotFound(Names),
    /// Strong definitions of these exist.
    #[error("duplicate definition: {0}")]
    Duplicate(Names),
    /// These could not be materialized, or depend on something that could not.
    #[error("failed to materialize {symbols}")]
    Failed {
        /// All symbols that failed at once.
        symbols: Names,
        /// The unit's error.
        #[source]
        cause: Option<Arc<SessionError>>,
    },
    /// Code was emitted that depends on symbols which failed or were removed.
    #[error("dependences are not available: {0}")]
    DependenceFailed(Names),
    /// These were removed while a lookup waited for them.
    #[error("symbols removed: {0}")]
    Removed(Names),
    /// These cannot be removed while their materialization is in flight.
    #[error("symbols are being materialized: {0}")]
    InFlight(Names),
    /// A responsibility for these was dropped without an answer.
    #[error("materialization abandoned: {0}")]
    Abandoned(Names),
    /// A responsibility was given symbols that are not its own.
    #[error("not responsible for {0}")]
    NotResponsible(Names),
    /// Symbols were emitted before they were resolved.
    #[error("emitted without an address: {0}")]
    Unresolved(Names),
    /// These were resolved to more than one address.
    #[error("resolved to several addresses: {0}")]
    SeveralAddresses(Names),
    /// These are callable, and were resolved to address 0.
    #[error("callable, but resolved to address 0: {0}")]
    NullCallable(Names),
    /// Aliases lead back to themselves.
    #[error("aliases form a cycle: {0}")]
    AliasCycle(Names),
    /// The tracker was removed or transferred.
    #[error("a tracker of dylib {dylib} is defunct")]
    TrackerDefunct {
        /// The dylib's name.
        dylib: Arc<str>,
    },
    /// A tracker was used with another dylib than its own.
    #[error("a tracker of dylib {tracker} does not belong to dylib {dylib}")]
    ForeignTracker {
        /// The name of the tracker's dylib.
        tracker: Arc<str>,
        /// The name of the other.
        dylib: Arc<str>,
    },
    /// A handle of one session was used in another.
    #[error("dylib {dylib} belongs to another session")]
    ForeignDylib {
        /// The name of the handle's dylib.
        dylib: Arc<str>,
    },
    /// A generator looks up a symbol that its own request asks for.
    #[error("a generator needs itself: {0}")]
    GeneratorCycle(Names),
    /// The dylib was removed.
    #[error("dylib {dylib} is defunct")]
    DylibDefunct {
        /// The dylib's name.
        dylib: Arc<str>,
    },
    /// A dylib of that name exists already.
    #[error("dylib {dylib} exists")]
    DylibExists {
        /// The name.
        dylib: Arc<str>,
    },
    /// A generator was removed while a lookup was inside it or queued for it.
    #[error("a generator of dylib {dylib} was removed during a lookup")]
    GeneratorRemoved {
        /// The dylib's name.
        dylib: Arc<str>,
    },
    /// A generator dropped a request that it had kept.
    #[error("a generator of dylib {dylib} abandoned a lookup")]
    GeneratorAbandoned {
        /// The dylib's name.
        dylib: Arc<str>,
    },
    /// Lookups that wait inside materializers nest too deep for the threads.
    #[error("waiting lookups nest too deep for {jobs} workers")]
    WaitTooDeep {
        /// The pool's `jobs`.
        jobs: usize,
    },
    /// A unit, generator or callback of the embedder panicked.
    #[error("a callback panicked: {text}")]
    Panicked {
        /// The panic's text.
        text: Arc<str>,
    },
    /// The embedder's own error.
    #[error("{context}")]
    Unit {
        /// The operation, e.g. the unit's name.
        context: Arc<str>,
        /// The cause.
        #[source]
        source: Arc<dyn Error + Send + Sync>,
    },
    /// The session was ended.
    #[error("the session was ended")]
    Ended,
    /// The operation is declared, but not implemented.
    #[error("not supported yet: {what}")]
    Unsupported {
        /// The operation.
        what: &'static str,
    },
}

impl SessionError {
    /// An error of the embedder; `context` is e.g. the unit's name.
    pub fn unit(context: &str, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        SessionError::Unit {
            context: context.into(),
            source: Arc::from(source.into()),
        }
    }

    /// Whether the root cause is a missing definition.
    pub fn is_missing(&self) -> bool {
        match self {
            SessionError::NotFound(_) => true,
            SessionError::Failed { cause, .. } => cause.as_ref().is_some_and(|c| c.is_missing()),
            _ => false,
        }
    }

    /// The symbols that the error is about.
    pub fn names(&self) -> Option<&Names> {
        match self {
            SessionError::NotFound(names)
            | SessionError::Duplicate(names)
            | SessionError::DependenceFailed(names)
            | SessionError::Removed(names)
            | SessionError::InFlight(names)
            | SessionError::Abandoned(names)
            | SessionError::NotResponsible(names)
            | SessionError::Unresolved(names)
            | SessionError::SeveralAddresses(names)
            | SessionError::NullCallable(names)
            | SessionError::AliasCycle(names)
            | SessionError::GeneratorCycle(names)
            | SessionError::Failed { symbols: names, .. } => Some(names),
            _ => None,
        }
    }
}
