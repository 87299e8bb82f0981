//! The state of a copy in progress: the values of the source that have a counterpart in the unit, and
//! the work that waits.
//!
//! `globals` and `constant` map values on demand, and declare or define the globals that they
//! mention; `body` copies bodies. `copy` decides the order.

use std::collections::VecDeque;

use inkwell::llvm_sys::LLVMLinkage;
use rustc_hash::{FxHashMap, FxHashSet};

use uruk_base::Tier;

use crate::compile::Compile;
use crate::context::{Builder, OwnedModule};
use crate::error::CodegenError;
use crate::facts::declare::DeclaredFacts;
use crate::handles::{FunctionRef, ValueRef, VariableRef};
use crate::source::Source;
use crate::summary::{Linkage, SymbolId};
use crate::unit::UnitContents;

/// Functions whose labels have the addresses of their blocks in a copy, not places in a label space.
#[derive(Default)]
pub(crate) enum PlainLabels<'r> {
    /// None.
    #[default]
    None,
    /// One, whose labels stay inside of it, and the tables that it loads them from.
    Of(FunctionRef<'r>, FxHashSet<VariableRef<'r>>),
    /// All that are defined: all of the module is.
    All,
}

impl<'r> PlainLabels<'r> {
    /// Whether the labels of a function have block addresses.
    pub(crate) fn covers(&self, function: FunctionRef<'r>) -> bool {
        match self {
            PlainLabels::None => false,
            PlainLabels::Of(one, _) => *one == function,
            PlainLabels::All => true,
        }
    }
}

/// The values of one copy in progress, from a source into a module: old ones, and new ones for them.
pub(crate) struct Copying<'r> {
    pub(crate) source: Source<'r>,
    pub(crate) how: &'r Compile,
    unit_name: &'r str,
    pub(crate) builder: Builder,
    pub(crate) module: &'r OwnedModule,
    /// Old value -> new value: globals, constants, arguments, blocks, instructions.
    pub(crate) values: FxHashMap<ValueRef<'r>, ValueRef<'r>>,
    /// Functions that are defined here, by old value.
    pub(crate) with_labels: FxHashMap<ValueRef<'r>, FunctionRef<'r>>,
    pub(crate) inline_copies: FxHashMap<ValueRef<'r>, FunctionRef<'r>>,
    pub(crate) pending: VecDeque<(FunctionRef<'r>, FunctionRef<'r>)>,
    pub(crate) tables: Vec<(VariableRef<'r>, VariableRef<'r>)>,
    /// Functions whose labels have plain addresses here.
    pub(crate) plain_labels: PlainLabels<'r>,
    /// Numbers of blocks in their bodies, of functions whose labels were needed.
    pub(crate) labels: FxHashMap<ValueRef<'r>, u32>,
    /// The function the unit is made for, old and new, when it is optimized: it calls
    /// itself directly.
    pub(crate) root: Option<(FunctionRef<'r>, FunctionRef<'r>)>,
    pub(crate) constants: Vec<(VariableRef<'r>, VariableRef<'r>)>,
    /// Facts that declarations of callees got.
    pub(crate) facts: DeclaredFacts<'r>,
    /// Functions defined here, old and new, if lines are requested.
    pub(crate) defined: Vec<(FunctionRef<'r>, FunctionRef<'r>)>,
    /// The description of the module so far.
    pub(crate) contents: UnitContents,
}

impl<'r> Copying<'r> {
    pub(crate) fn new(
        source: Source<'r>,
        how: &'r Compile,
        unit_name: &'r str,
        module: &'r OwnedModule,
    ) -> Copying<'r> {
        Copying {
            source,
            how,
            unit_name,
            builder: Builder::new(source.reader.context()),
            module,
            values: FxHashMap::default(),
            with_labels: FxHashMap::default(),
            inline_copies: FxHashMap::default(),
            pending: VecDeque::new(),
            tables: Vec::new(),
            plain_labels: PlainLabels::None,
            labels: FxHashMap::default(),
            root: None,
            constants: Vec::new(),
            facts: DeclaredFacts::default(),
            defined: Vec::new(),
            contents: UnitContents::default(),
        }
    }

    /// True if more than the baseline compiler works on the unit.
    pub(crate) fn optimizes(&self) -> bool {
        self.how.tier > Tier::Baseline
    }

    /// Maps `old` to `new` from now on.
    pub(crate) fn stands_for(&mut self, old: ValueRef<'r>, new: FunctionRef<'r>) {
        self.values.insert(old, *new);
        self.with_labels.insert(old, new);
    }

    /// The linkage of a definition of the data unit. A weak one stays weak for the linker, as other
    /// definitions may override it. Binding has chosen the definition already, so the optimizer may
    /// look into this one.
    pub(crate) fn linkage(&self, id: SymbolId) -> LLVMLinkage {
        match self.source.info(id).linkage {
            Linkage::Weak => LLVMLinkage::LLVMWeakODRLinkage,
            _ => LLVMLinkage::LLVMExternalLinkage,
        }
    }

    /// The global of the unit with that name, where one from another module may have it.
    pub(crate) fn shared(&self, name: &str) -> Option<ValueRef<'r>> {
        match self.contents.taken.is_empty() {
            true => None,
            false => self.module.global(name),
        }
    }

    pub(crate) fn unit_name(&self) -> &str {
        self.unit_name
    }

    pub(crate) fn unsupported(&self, construct: &str) -> CodegenError {
        CodegenError::Unsupported {
            module: self.source.reader.name().to_owned(),
            unit: self.unit_name.to_owned(),
            construct: construct.to_owned(),
        }
    }
}
