//! Globals: what bodies are compiled with, and what they are linked by.

use std::ops::Range;

#[cfg(doc)]
use super::Module;
use super::{AttributesId, TypeId, ValueId};

/// What a module says of one global.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Global {
    /// What it is.
    pub kind: GlobalKind,
    /// Its name: a range of the string table.
    pub name: Range<u32>,
    /// The type of what it is the address of.
    pub ty: TypeId,
    /// Whether it is thread-local.
    pub is_thread_local: bool,
    /// The calling convention of a function.
    pub convention: u32,
    /// Attributes of a function.
    pub attributes: AttributesId,
    /// The personality of a function.
    pub personality: Option<ValueId>,
    /// The collector of a function, prefix or prologue data, or something else that a body cannot
    /// be compiled without.
    pub is_special: bool,
    /// Whether it has a body, or a value.
    pub is_definition: bool,
    /// What an alias, as a value, stands for.
    pub aliasee: Option<ValueId>,
}

/// What a global is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GlobalKind {
    /// A variable.
    Variable,
    /// A function.
    Function,
    /// An alias.
    Alias,
    /// A function that is chosen when the program starts.
    Ifunc,
}

/// What a module says of one global for those who link it; bodies are compiled without.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Details {
    /// How it binds.
    pub linkage: Linkage,
    /// Who finds it.
    pub visibility: Visibility,
    /// Whether its address tells it from others.
    pub unnamed: Unnamed,
    /// Its group, by its place in [`Module::comdats`].
    pub comdat: Option<u32>,
    /// Its section, by its place in [`Module::sections`].
    pub section: Option<u32>,
    /// In bytes; 0 for that of its type.
    pub align: u64,
    /// Whether a variable is constant.
    pub is_constant: bool,
    /// The value of a variable.
    pub initializer: Option<ValueId>,
    /// Whether somebody else may set the value of a variable before the program runs.
    pub is_externally_initialized: bool,
    /// The collector of a function, by its place in [`Module::collectors`].
    pub collector: Option<u32>,
    /// Whether data lies before a function.
    pub has_prefix: bool,
    /// Something that is not told here: a partition, a class of storage, a model of code.
    pub is_unusual: bool,
}

/// How a global binds.
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

/// Who finds a global.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[allow(missing_docs)]
pub enum Visibility {
    #[default]
    Default,
    Hidden,
    Protected,
}

/// Whether the address of a global tells it from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Unnamed {
    /// It does.
    #[default]
    Significant,
    /// It does not in its module.
    LocallyUnnamed,
    /// It does not.
    Unnamed,
}

/// Which of the definitions of a group counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ComdatKind {
    Any,
    Exact,
    Largest,
    /// There is one; the group only keeps its members together.
    NoDuplicates,
    SameSize,
}
