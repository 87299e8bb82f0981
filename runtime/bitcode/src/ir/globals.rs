//! Globals: the data for compiling bodies, and those for linking.

use std::ops::Range;

#[cfg(doc)]
use super::Module;
use super::{AttributesId, TypeId, ValueId};

/// The properties of a global that bodies use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Global {
    /// Its kind.
    pub kind: GlobalKind,
    /// Its name: a range of the string table.
    pub name: Range<u32>,
    /// The type of the object at its address.
    pub ty: TypeId,
    /// Whether it is thread-local.
    pub is_thread_local: bool,
    /// The calling convention of a function.
    pub convention: u32,
    /// Attributes of a function.
    pub attributes: AttributesId,
    /// The personality of a function.
    pub personality: Option<ValueId>,
    /// Whether a function has a collector, prefix or prologue data, or another property that a body
    /// cannot be compiled without.
    pub is_special: bool,
    /// Whether it has a body, or a value.
    pub is_definition: bool,
    /// The target of an alias, as a value.
    pub aliasee: Option<ValueId>,
}

/// The kind of a global.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GlobalKind {
    /// A variable.
    Variable,
    /// A function.
    Function,
    /// An alias.
    Alias,
    /// A function that a resolver chooses when the program starts.
    Ifunc,
}

/// The properties of a global that linking uses; bodies are compiled without them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Details {
    /// Its linkage.
    pub linkage: Linkage,
    /// Its visibility.
    pub visibility: Visibility,
    /// Whether its address is significant.
    pub unnamed: Unnamed,
    /// Its group, by its place in [`Module::comdats`].
    pub comdat: Option<u32>,
    /// Its section, by its place in [`Module::sections`].
    pub section: Option<u32>,
    /// Its alignment in bytes; 0 for that of its type.
    pub align: u64,
    /// Whether a variable is constant.
    pub is_constant: bool,
    /// The value of a variable.
    pub initializer: Option<ValueId>,
    /// Whether other code may set the value of a variable before the program runs.
    pub is_externally_initialized: bool,
    /// The collector of a function, by its place in [`Module::collectors`].
    pub collector: Option<u32>,
    /// Whether data lies before a function.
    pub has_prefix: bool,
    /// Whether it has a property that is not listed here: a partition, a storage class, a code model.
    pub is_unusual: bool,
}

/// The linkage of a global.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[allow(missing_docs)]
pub enum Linkage {
    #[default]
    External,
    AvailableExternally,
    LinkOnce,
    LinkOnceOdr,
    Weak,
    WeakOdr,
    Appending,
    Internal,
    Private,
    ExternalWeak,
    Common,
}

/// The visibility of a global.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[allow(missing_docs)]
pub enum Visibility {
    #[default]
    Default,
    Hidden,
    Protected,
}

/// Whether the address of a global is significant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Unnamed {
    /// It is significant.
    #[default]
    Significant,
    /// It is not significant within its module.
    LocallyUnnamed,
    /// It is not significant.
    Unnamed,
}

/// The selection kind of a group of definitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ComdatKind {
    Any,
    Exact,
    Largest,
    /// Only one definition may exist; the group keeps its members together.
    NoDuplicates,
    SameSize,
}
