//! Numbers of a record that are indices into tables: of values, types, attributes, metadata.
//!
//! All other numbers of a record mean the same in every module.

use crate::ir::{AttributesId, TypeId, ValueId};

/// A number of a record that is an index into a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The number's place in the record.
    pub(crate) at: usize,
    pub(crate) to: Mentioned,
}

/// An entry of a table that a record refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mentioned {
    Value(ValueId),
    Type(TypeId),
    Attributes(AttributesId),
    /// Metadata by its number, of the module or of the body.
    Metadata(u32),
}
