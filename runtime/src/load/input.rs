//! Inputs of a binding, and their symbols.

use uruk_codegen::ModuleSummary;
use uruk_codegen::{Kind, SymbolId};

/// A definition in an object file.
#[derive(Debug, Clone)]
pub(crate) struct ObjectSymbol {
    pub(crate) name: String,
    /// Whether no other strong definition may exist.
    pub(crate) strong: bool,
    /// Whether it is a tentative definition.
    pub(super) common: bool,
    pub(crate) hidden: bool,
    pub(crate) data: bool,
    pub(crate) thread_local: bool,
    /// Whether it is in a COMDAT group: other files may have a copy.
    pub(crate) grouped: bool,
    /// Whether its code finds the definition at any distance.
    pub(super) far: bool,
    pub(crate) size: u64,
}

/// One input of an image.
pub(crate) enum Input<'a> {
    Module {
        file: &'a str,
        summary: &'a ModuleSummary,
    },
    Object {
        file: &'a str,
        symbols: &'a [ObjectSymbol],
    },
}

impl Input<'_> {
    pub(crate) fn file(&self) -> &str {
        match self {
            Input::Module { file, .. } | Input::Object { file, .. } => file,
        }
    }
}

/// The function that a symbol refers to, through aliases.
pub(crate) fn function_base(summary: &ModuleSummary, mut symbol: SymbolId) -> Option<SymbolId> {
    for _ in 0..64 {
        match summary.symbols[symbol.index()].kind {
            Kind::Function | Kind::Ifunc { .. } => return Some(symbol),
            Kind::Alias {
                base: Some(base),
                exact: true,
            } => symbol = base,
            _ => return None,
        }
    }
    None
}
