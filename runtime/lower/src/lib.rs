//! Lowers functions for the baseline compiler ([`uruk_baseline::ir`]) from decoded bitcode
//! ([`uruk_bitcode::ir`]), and lays out a module's [`data`] for a linker, without LLVM.
//!
//! | file | is about |
//! |---|---|
//! | [`Lowering`] | properties of a module that are computed once |
//! | `reading` | the function being read, its blocks in order, phis |
//! | `flow` | reached blocks, loops, dominance |
//! | `values`, `operands` | scalars of values; constants and symbols |
//! | `types`, `attributes` | the effects of types and attributes |
//! | `arithmetic`, `wide` | integers, floating point; 128 bits |
//! | `lanes`, `pieces` | vectors: their lanes; how they are passed |
//! | `memory`, `atomics` | memory, addresses, aggregates; atomics |
//! | `signatures` | which signatures are covered, and how values are passed |
//! | `calls`, `intrinsics`, `lowering`, `numbers`, `reductions` | callees, and intrinsics |
//! | `assembly` | assembly without instructions |
//! | `control`, `phis` | ends of blocks, landing pads; phis |
//! | `jumps` | labels, and jumps by their addresses |
//! | `loops`, `anatomy` | loops that can be left, and the description of the body that decides this |
//! | `valid`, `unreached`, `prototypes` | LLVM's rules for operands, for unreachable blocks, and for intrinsics |
//! | [`data`] | the module beside its functions |
//!
//! # Invariants
//! - The result meets the requirements of [`uruk_baseline::ir`], for any body: a body is refused if
//!   it is invalid IR in a part that matters here, or not covered.
//! - No input panics, and the time for each is bounded by a multiple of its size.
//! - Addresses and integers of 64 bits are one type.
//!
//! # Why
//! LLVM takes 150 us to read and verify a body of sqlite, and its C interface some nanoseconds for
//! each later query. Here values are numbers, which index tables.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

use std::sync::Arc;

use uruk_baseline::Uncovered;
use uruk_baseline::ir::{Function, SymbolData};
use uruk_bitcode::ir::{Body, GlobalKind, Module};
use uruk_leaving::{Anatomy, Heads};

mod anatomy;
mod arithmetic;
mod assembly;
mod atomics;
mod attributes;
mod calls;
mod control;
pub mod data;
mod dominance;
mod flow;
pub mod intrinsics;
mod jumps;
mod lanes;
mod loops;
mod lowering;
mod memory;
mod numbers;
mod operands;
mod phis;
mod pieces;
mod prototypes;
mod reading;
mod reductions;
mod refused;
mod rounding;
mod signatures;
mod types;
mod unreached;
mod valid;
mod values;
mod wide;

use attributes::Lists;
use intrinsics::Becomes;
use types::Types;

pub use types::Sizes;

/// The outside of a body: the meaning of names, once modules are bound.
pub trait Outside {
    /// The symbol of a global of the module for code that names it.
    ///
    /// # Errors
    /// The global cannot be used here.
    fn symbol(&self, global: u32) -> Result<SymbolData, Refused>;

    /// The label space of a function of the module: the distance of a label from its start, in
    /// bytes, is the number of its block.
    ///
    /// # Errors
    /// It has none.
    fn label_space(&self, function: u32) -> Result<SymbolData, Refused>;

    /// Whether a call of that function must not remain: its body has to be inlined.
    fn must_be_inlined(&self, global: u32) -> bool;
}

/// Parts that are requested besides the function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wanted<'a> {
    /// The name of the words that count entries and loops; without it nothing is counted.
    pub counters: Option<&'a str>,
    /// The name of the words of loops that can be left; without it none can be.
    pub leaves: Option<&'a str>,
    /// Whether exits of these loops are compiled: the function then lists the values that cross at
    /// each head, which takes a fourth of the time of a lowering. All else of it is the same.
    pub exits: bool,
    /// Whether other compiles of the function may fuse a multiplication and an addition.
    pub contract: bool,
}

/// The reason why a function was not lowered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The baseline compiler does not support it, from any reader.
    #[error(transparent)]
    Uncovered(#[from] Uncovered),
    /// It is invalid IR, in the checked parts: LLVM reports the error.
    #[error("invalid: {0}")]
    Invalid(&'static str),
    /// A construct that only LLVM can read.
    #[error("{0} is for LLVM to read")]
    Unread(&'static str),
}

impl Refused {
    /// The reason alone.
    pub fn what(self) -> &'static str {
        match self {
            Refused::Uncovered(uncovered) => uncovered.what,
            Refused::Invalid(what) | Refused::Unread(what) => what,
        }
    }
}

/// A function that was lowered.
#[derive(Debug, Clone)]
pub struct Lowered {
    /// The function to compile.
    pub function: Function,
    /// Instructions of the body.
    pub instructions: u32,
    /// Calls of named functions, intrinsics left out.
    pub calls: u32,
    /// Loops: targets of back edges.
    pub loops: u32,
    /// Whether one of them lies inside another.
    pub nested: bool,
    /// Whether it never restores an earlier stack pointer by itself.
    pub keeps_stack: bool,
    /// Whether anything is counted.
    pub counts: bool,
    /// The loops that can be left.
    pub heads: Heads,
    /// Whether it mentions labels by their addresses, or jumps by addresses of its own.
    pub has_labels: bool,
}

/// Tables that are reused from function to function, of any modules.
#[derive(Debug, Default)]
pub struct Buffers {
    values: values::Values,
    flow: flow::Flow,
    phis: Vec<(u32, u32)>,
    edges: Vec<(u32, u32)>,
    anatomy: Anatomy,
    /// A function whose memory is used again.
    spare: Function,
}

impl Buffers {
    /// Takes back a function that was made with them: its memory is used again.
    pub fn take_back(&mut self, mut function: Function) {
        function.parameters.clear();
        function.returns.clear();
        function.types.clear();
        function.blocks.clear();
        function.instructions.clear();
        function.symbols.clear();
        function.wide.clear();
        function.lines.clear();
        self.spare = Function {
            parameters: function.parameters,
            returns: function.returns,
            types: function.types,
            blocks: function.blocks,
            instructions: function.instructions,
            symbols: function.symbols,
            wide: function.wide,
            lines: function.lines,
            ..Function::default()
        };
    }
}

/// The meaning of a global to a call.
#[derive(Debug, Clone, Copy)]
enum Named {
    Function,
    Intrinsic(Becomes),
    Not(&'static str),
    /// No function, but maybe another name of one.
    Other,
}

/// A module whose functions are lowered.
#[derive(Debug)]
pub struct Lowering {
    module: Arc<Module>,
    types: Types,
    lists: Lists,
    named: Box<[Named]>,
    /// For each global, the parameters of an intrinsic that take constants.
    immediates: Box<[u32]>,
    known: anatomy::Known,
    /// Whether any body may need bytes of the frame that its IR does not show.
    may_need_room: bool,
    /// The reason why nothing of it is lowered.
    not: Option<Refused>,
}

impl Lowering {
    /// Analyses a module.
    pub fn new(module: Arc<Module>) -> Lowering {
        let named = module.globals.iter().map(|global| {
            let name = module.name(global);
            match global.kind {
                GlobalKind::Function if name.starts_with("llvm.") => {
                    intrinsics::becomes(name).map_or_else(Named::Not, Named::Intrinsic)
                }
                GlobalKind::Function => Named::Function,
                _ => Named::Other,
            }
        });
        let mut named: Box<[Named]> = named.collect();
        let mut immediates = vec![0; named.len()];
        for ((named, immediate), global) in
            named.iter_mut().zip(&mut immediates).zip(&module.globals)
        {
            if let Named::Intrinsic(becomes) = *named {
                let name = module.name(global);
                match prototypes::immediates(&module, global.ty, becomes, name) {
                    Some(some) => *immediate = some,
                    None => *named = Named::Not("an intrinsic of an unusual type"),
                }
            }
        }
        let needs_room = |it: &Named| matches!(it, Named::Intrinsic(it) if it.needs_room());
        let known = module.layout.is_empty() || &*module.layout == types::LAYOUT;
        let types = Types::of(&module.types);
        Lowering {
            known: anatomy::Known::of(&module, &types),
            may_need_room: types.have_vectors() || named.iter().any(needs_room),
            types,
            lists: Lists::of(&module.attributes),
            named,
            immediates: immediates.into(),
            not: (!known).then_some(Refused::Unread("another layout of data")),
            module,
        }
    }

    /// The number of loops of a body.
    pub fn loops(&self, body: &Body, buffers: &mut Buffers) -> u32 {
        buffers.flow.look(body);
        buffers.flow.loops()
    }

    /// Whether a constant of the module is the address of a label of the function with that number
    /// among globals.
    pub fn has_labels(&self, function: u32) -> bool {
        self.known.labelled.contains(&function)
    }

    /// Describes the body of the function with that number among globals, to decide which of its
    /// loops can be left; `contract` is as in [`Wanted`].
    ///
    /// # Errors
    /// The construct that cannot be described here.
    pub fn tell(&self, body: &Body, function: u32, contract: bool) -> Result<Anatomy, Refused> {
        let mut anatomy = Anatomy::default();
        anatomy::tell(self, body, function, contract, &mut anatomy)?;
        Ok(anatomy)
    }

    /// Lowers the body of the function with that number among globals.
    ///
    /// # Errors
    /// The reason why not.
    pub fn lower(
        &self,
        body: &Body,
        function: u32,
        outside: &dyn Outside,
        wanted: Wanted<'_>,
        buffers: &mut Buffers,
    ) -> Result<Lowered, Refused> {
        if let Some(refused) = self.not {
            return Err(refused);
        }
        reading::Reading::new(self, body, function, outside, buffers)?.run(wanted)
    }

    /// Whether calls within a body that is inlined elsewhere do not inspect their frame; `inlined`
    /// answers this for functions whose own body would be inlined.
    pub fn minds_no_frame(&self, body: &Body, inlined: &mut dyn FnMut(u32) -> bool) -> bool {
        calls::called(body, &self.module).all(|global| match self.named[global as usize] {
            Named::Intrinsic(becomes) => !becomes.minds_frame(),
            Named::Not(_) => !intrinsics::may_mind_frame(self.name(global)),
            Named::Function => inlined(global),
            Named::Other => true,
        })
    }

    fn name(&self, global: u32) -> &str {
        self.module.name(&self.module.globals[global as usize])
    }
}
