//! A function as the baseline compiler takes it ([`uruk_baseline::ir`]), made of what a reader of
//! bitcode gives ([`uruk_bitcode::ir`]), and a module's [`data`] as a linker takes it: no LLVM is
//! asked.
//!
//! | file | is about |
//! |---|---|
//! | [`Lowering`] | what is found out once of a module |
//! | `reading` | the function as far as it was read, its blocks in order, phis |
//! | `flow` | which blocks are reached, loops, dominance |
//! | `values`, `operands` | which scalars stand for what; constants and symbols |
//! | `types`, `attributes` | what types and attributes come to |
//! | `arithmetic`, `wide` | integers, floating point; 128 bits |
//! | `lanes`, `pieces` | vectors: their lanes; how they are passed |
//! | `memory`, `atomics` | memory, addresses, aggregates; atomics |
//! | `signatures` | which signatures are covered, and how values are passed |
//! | `calls`, `intrinsics`, `lowering`, `numbers`, `reductions` | whom calls reach, and intrinsics |
//! | `assembly` | assembly without instructions |
//! | `control`, `phis` | ends of blocks, landing pads; phis |
//! | `jumps` | labels, and jumps by their addresses |
//! | `loops`, `anatomy` | which loops can be left, and what of the body is told to find that out |
//! | `valid`, `unreached`, `prototypes` | what LLVM asks for of operands, of blocks that nothing leads to, and of intrinsics |
//! | [`data`] | what a module has beside functions |
//!
//! # Invariants
//! - What is made keeps a reader's promises ([`uruk_baseline::ir::check`]), whatever the body is: a
//!   body that is no valid IR in what counts here is refused, as is what is not covered.
//! - No input panics, and none takes more than some times as long as it is large.
//! - Addresses and integers of 64 bits are not told apart.
//!
//! # Why
//! LLVM takes 150 us to read and verify a body of sqlite, and its C interface some nanoseconds for
//! each question that is asked of it then. Here values are numbers, which index tables.

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

/// What lies outside of a body: what names mean, once modules are bound.
pub trait Outside {
    /// What a global of the module is for code that names it.
    ///
    /// # Errors
    /// That it is none for this.
    fn symbol(&self, global: u32) -> Result<SymbolData, Refused>;

    /// The label space of a function of the module: its labels are so many bytes behind it as their
    /// blocks' numbers.
    ///
    /// # Errors
    /// That it has none.
    fn label_space(&self, function: u32) -> Result<SymbolData, Refused>;

    /// Whether a call of that function cannot be one: its body has to be where the call is.
    fn must_be_inlined(&self, global: u32) -> bool;
}

/// What is wanted besides the function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wanted<'a> {
    /// The name of the words that entries and loops are counted in; nothing is counted without.
    pub counters: Option<&'a str>,
    /// The name of the words of loops that can be left; none can be without.
    pub leaves: Option<&'a str>,
    /// Whether other compiles of the function may fuse a multiplication and an addition.
    pub contract: bool,
}

/// Why a function was not lowered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The baseline compiler does not have it, whoever reads it.
    #[error(transparent)]
    Uncovered(#[from] Uncovered),
    /// It is no valid IR, as far as was seen: LLVM says what is wrong.
    #[error("invalid: {0}")]
    Invalid(&'static str),
    /// Something that only LLVM tells.
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
    /// What is compiled.
    pub function: Function,
    /// Instructions of the body.
    pub instructions: u32,
    /// Calls of named functions, intrinsics left out.
    pub calls: u32,
    /// Loops: targets of back edges.
    pub loops: u32,
    /// Whether one of them lies inside another.
    pub nested: bool,
    /// Whether it never goes back to an earlier stack pointer by itself.
    pub keeps_stack: bool,
    /// Whether anything is counted.
    pub counts: bool,
    /// Which loops can be left.
    pub heads: Heads,
    /// Whether it mentions labels by their addresses, or jumps by addresses of its own.
    pub has_labels: bool,
}

/// Tables that are kept from function to function, whatever modules they are of.
#[derive(Debug, Default)]
pub struct Buffers {
    values: values::Values,
    flow: flow::Flow,
    phis: Vec<(u32, u32)>,
    edges: Vec<(u32, u32)>,
    anatomy: Anatomy,
    /// A function whose room is used again.
    spare: Function,
}

impl Buffers {
    /// Takes back a function that was made with them: its room is used again.
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

/// What a global is to a call.
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
    /// By global: which parameters of an intrinsic take constants.
    immediates: Box<[u32]>,
    known: anatomy::Known,
    /// Whether any body may need bytes of the frame that it does not say.
    may_need_room: bool,
    /// Why nothing of it is lowered.
    not: Option<Refused>,
}

impl Lowering {
    /// Looks at a module.
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

    /// Tells of the body of the function with that number among globals what says which of its
    /// loops can be left; `contract` is as in [`Wanted`].
    ///
    /// # Errors
    /// What is not told here.
    pub fn tell(&self, body: &Body, function: u32, contract: bool) -> Result<Anatomy, Refused> {
        let mut anatomy = Anatomy::default();
        anatomy::tell(self, body, function, contract, &mut anatomy)?;
        Ok(anatomy)
    }

    /// Lowers the body of the function with that number among globals.
    ///
    /// # Errors
    /// Why not.
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

    /// Whether calls within a body that is inlined elsewhere ask nothing of the frame that they
    /// are in; `inlined` is asked about functions whose own body would be.
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
