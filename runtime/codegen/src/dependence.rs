//! Symbols that a version of a function depends on.

use crate::summary::SymbolId;

/// The kind of use that a version makes of another function or variable of its module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DependenceKind {
    /// Its body was in sight: it may have been inlined, and facts may have been
    /// inferred from it.
    Body,
    /// A fact about it was used: attributes, or the value of a constant.
    Fact,
}

/// A symbol for which a version must be recompiled when it is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dependence {
    /// The symbol it depends on.
    pub symbol: SymbolId,
    /// The kind of the dependence.
    pub kind: DependenceKind,
}
