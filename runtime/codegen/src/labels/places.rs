//! Decides where the addresses of a function's labels go, from its body and from mentions in other
//! bodies.

use rustc_hash::FxHashSet;

use super::{Labels, matter, tables};
use crate::error::CodegenError;
use crate::handles::{FunctionRef, VariableRef};
use crate::mentions::Mentions;
use crate::reader::{Reader, Verify};
use crate::summary::SymbolId;

/// Where the labels of a function, whose body was read, go; if they stay inside, the tables that
/// it loads them from.
pub(crate) fn of<'r>(
    reader: &Reader,
    id: SymbolId,
    function: FunctionRef<'r>,
) -> (Labels, FxHashSet<VariableRef<'r>>) {
    if function.has(reader.kinds().presplit_coroutine) {
        // A coroutine's frame holds addresses of its parts.
        return (Labels::Fixed, FxHashSet::default());
    }
    if !matter(function) {
        return (Labels::None, FxHashSet::default());
    }
    let is_own = |table: &VariableRef<'_>, mentions: &Mentions| {
        let table = reader.table().id(**table);
        table.is_some_and(|it| mentions.is_only_in(it, id))
    };
    let inside = tables(function).filter(|tables| {
        let mentions = reader.bitcode().mentions();
        mentions.is_some_and(|mentions| {
            !mentions.is_exposed(id) && tables.iter().all(|it| is_own(it, mentions))
        })
    });
    match inside {
        Some(tables) => (Labels::Inside, tables.into_iter().collect()),
        None => (Labels::Escape, FxHashSet::default()),
    }
}

/// Whether the addresses of a function's labels, or of its code, may be elsewhere, or are in
/// variables.
///
/// # Errors
/// An unreadable body.
pub(crate) fn keeps(reader: &Reader, function: SymbolId) -> Result<bool, CodegenError> {
    let root = reader.function(function)?;
    reader.materialize(root, Verify::No)?;
    let (labels, tables) = of(reader, function, root);
    Ok(labels >= Labels::Escape || tables.iter().any(|it| !it.is_constant()))
}

/// The number of blocks of a body.
///
/// # Errors
/// An unreadable body.
pub(crate) fn blocks(reader: &Reader, function: SymbolId) -> Result<usize, CodegenError> {
    let root = reader.function(function)?;
    reader.materialize(root, Verify::No)?;
    Ok(root.blocks().count())
}
