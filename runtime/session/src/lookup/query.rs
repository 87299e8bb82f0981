//! The query of a lookup: its symbols, and the dylibs that it searches.

use crate::dylib::Dylib;
use crate::inside::Behalf;
use crate::job::{Job, Outcome};
use crate::lookup::{LookupKind, Missing, Need, Required};
use crate::shared::Visibility;
use crate::symbol::Symbol;

/// A query of symbols.
#[derive(Clone, Debug, Default)]
pub struct Lookup {
    /// The reason.
    pub kind: LookupKind,
    /// The dylibs to search, in this order; the first match wins.
    pub order: Vec<(Dylib, Visibility)>,
    /// The symbols.
    pub symbols: Vec<(Symbol, Need)>,
    /// The required state.
    pub required: Required,
    /// The treatment of symbols that are defined nowhere.
    pub missing: Missing,
}

impl Lookup {
    /// A static lookup of ready symbols in `order`.
    pub fn new<D: Into<Dylib>>(order: impl IntoIterator<Item = (D, Visibility)>) -> Self {
        let order = order.into_iter();
        Self {
            order: order.map(|(dylib, seen)| (dylib.into(), seen)).collect(),
            ..Self::default()
        }
    }

    /// Adds a required symbol.
    #[must_use]
    pub fn symbol(mut self, symbol: Symbol) -> Self {
        self.symbols.push((symbol, Need::Required));
        self
    }

    /// Adds required symbols.
    #[must_use]
    pub fn symbols(mut self, symbols: impl IntoIterator<Item = Symbol>) -> Self {
        self.symbols
            .extend(symbols.into_iter().map(|symbol| (symbol, Need::Required)));
        self
    }

    /// Adds a weakly referenced symbol.
    #[must_use]
    pub fn weak(mut self, symbol: Symbol) -> Self {
        self.symbols.push((symbol, Need::Weak));
        self
    }

    /// Sets the required state.
    #[must_use]
    pub fn at(mut self, required: Required) -> Self {
        self.required = required;
        self
    }

    /// Sets the kind.
    #[must_use]
    pub fn kind(mut self, kind: LookupKind) -> Self {
        self.kind = kind;
        self
    }

    /// Waits for symbols that are defined nowhere.
    #[must_use]
    pub fn wait_for_missing(mut self) -> Self {
        self.missing = Missing::Wait;
        self
    }

    /// The lookup in progress, on behalf of `inside`; `caller` is [`Job::caller`].
    pub(crate) fn into_job(self, outcome: Outcome, inside: Behalf, caller: usize) -> Job {
        Job {
            kind: self.kind,
            order: self
                .order
                .iter()
                .map(|(dylib, visibility)| (dylib.id(), *visibility))
                .collect(),
            symbols: self.symbols,
            required: self.required,
            missing: self.missing,
            asked: Vec::new(),
            granted: None,
            past: false,
            inside,
            caller,
            outcome,
        }
    }
}
