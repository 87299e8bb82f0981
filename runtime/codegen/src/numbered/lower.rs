//! Lowers functions for the baseline compiler from the module's bytes, without LLVM.
//!
//! # Invariants
//! - A constant text names each uncovered construct, and a failed attempt leaves no state behind.
//! - Symbols have the names and the reach that a copy's declarations would have, so the code is
//!   linked likewise. They are those of the plan, except that calls of functions, also of itself,
//!   use plain names.
//! - A loop can be left if the copy's could be, for the same continuation: both ask
//!   [`uruk_leaving`].

use std::cell::RefCell;

use rustc_hash::FxHashMap;
use uruk_base::Tier;
use uruk_base::parts::{self, Part};
use uruk_baseline::Uncovered;
use uruk_baseline::ir::{Function, Reach, SymbolData};
use uruk_bitcode::ir::{Body, Constant, Global, GlobalKind, Instruction, Op};
use uruk_lower::{Buffers, Lowering, Outside, Refused, Wanted};

use super::Numbered;
use crate::compile::{COUNTERS, Compile, Compiled, Counters, LOOPS};
use crate::labels::{Labels, space_name};
use crate::plan::{Access, ModulePlan};
use crate::sketch::{self, Sketch};
use crate::summary::{Kind, Linkage, SymbolId};

/// A body, and buffers that are reused between bodies, of any modules.
#[derive(Default)]
pub struct Plain {
    body: Body,
    buffers: Buffers,
}

impl Plain {
    /// Takes back a function made with these buffers: its memory is used again.
    pub fn take_back(&mut self, function: Function) {
        self.buffers.take_back(function);
    }
}

/// A lowered function.
#[derive(Debug, Clone)]
pub struct Read {
    /// The function to compile.
    pub function: Function,
    /// The properties that a compile would have found; its object is empty.
    pub compiled: Compiled,
}

/// A setting of a compile that is not covered, if any.
fn asks_for_more(how: &Compile, body: &Body) -> Option<&'static str> {
    match how {
        _ if how.tier != Tier::Baseline => Some("a higher tier"),
        _ if how.start.is_some() => Some("a continuation"),
        _ if how.counters == Counters::Full => Some("probes"),
        _ if how.transform.is_some() => Some("a change of the code by the embedder"),
        _ if how.lines && body.has_lines() => Some("lines"),
        _ => None,
    }
}

/// Most nested inlined functions that are checked.
const DEPTH: u32 = 8;

/// The meaning of a module's names to one function.
pub(super) struct ModuleNames<'a> {
    pub(super) numbered: &'a Numbered,
    pub(super) plan: &'a ModulePlan,
    /// For each global, whether it is independent of its frame.
    pub(super) inlined: RefCell<FxHashMap<u32, bool>>,
}

impl Outside for ModuleNames<'_> {
    fn symbol(&self, global: u32) -> Result<SymbolData, Refused> {
        let id = self.numbered.symbol(global);
        let info = &self.numbered.summary.symbols[id.index()];
        let import = self.plan.import(id);
        let reach = match self.numbered.effective_kind(id) {
            Kind::Function | Kind::Ifunc { .. } => Reach::Indirect,
            Kind::ThreadLocal => Reach::ThreadLocal,
            _ if import.access == Access::Near => Reach::Near,
            _ => Reach::Indirect,
        };
        Ok(SymbolData {
            name: import.name.clone(),
            reach,
            is_weak: info.linkage == Linkage::DeclaredWeak,
        })
    }

    fn label_space(&self, function: u32) -> Result<SymbolData, Refused> {
        let globals = &self.numbered.source.module.globals;
        let is_function = |it: &&Global| it.kind == GlobalKind::Function && it.is_definition;
        if globals.get(function as usize).filter(is_function).is_none() {
            return Err(Refused::Invalid("a label of no function"));
        }
        let id = self.numbered.symbol(function);
        let name = &self.plan.import(id).name;
        Ok(SymbolData {
            name: space_name(name).into(),
            reach: Reach::Near,
            is_weak: false,
        })
    }

    fn must_be_inlined(&self, global: u32) -> bool {
        let id = self.numbered.symbol(global);
        self.is_inline_body(global)
            && !(self.plan.import(id).defined && self.minds_no_frame(global, 0))
    }
}

impl ModuleNames<'_> {
    /// True for an `alwaysinline` function whose body this module has.
    fn is_inline_body(&self, global: u32) -> bool {
        let id = self.numbered.symbol(global);
        self.numbered.summary.symbols[id.index()].always_inline
            && !self.plan.import(id).replaced
            && self.numbered.body(id).is_some()
    }

    /// Whether an `alwaysinline` function behaves the same in any caller: it does not inspect the
    /// frame it is inlined into.
    fn minds_no_frame(&self, global: u32, depth: u32) -> bool {
        if let Some(&known) = self.inlined.borrow().get(&global) {
            return known;
        }
        let numbered = self.numbered;
        let mut body = Body::default();
        let read = numbered.body(numbered.symbol(global)).map(|number| {
            let source = &numbered.source;
            source.read_body(numbered.bytes(), number, &mut body)
        });
        let minds_none = depth < DEPTH
            && matches!(read, Some(Ok(())))
            && numbered.lowering().minds_no_frame(&body, &mut |callee| {
                !self.is_inline_body(callee) || self.minds_no_frame(callee, depth + 1)
            });
        self.inlined.borrow_mut().insert(global, minds_none);
        minds_none
    }
}

impl Numbered {
    /// The kind of a symbol, behind all aliases.
    fn effective_kind(&self, mut id: SymbolId) -> Kind {
        for _ in 0..64 {
            match self.summary.symbols[id.index()].kind {
                Kind::Alias {
                    base: Some(base), ..
                } => id = base,
                Kind::Alias { .. } => break,
                kind => return kind,
            }
        }
        Kind::Data
    }

    pub(super) fn lowering(&self) -> &Lowering {
        let module = &self.source.module;
        self.lowering.get_or_init(|| Lowering::new(module.clone()))
    }

    /// Reads the body of a function into `plain`.
    ///
    /// # Errors
    /// The construct that is not read here.
    pub fn read_into(&self, function: SymbolId, plain: &mut Plain) -> Result<(), Refused> {
        let number = self.body(function).ok_or(Refused::Unread("no body"))?;
        let _reading = parts::enter(Part::Reading);
        let read = self.source.read_body(self.bytes(), number, &mut plain.body);
        read.map_err(|_| Refused::Unread("an unusual body"))
    }

    /// The number of blocks in the body of a function, if it is read here.
    pub(crate) fn blocks(&self, function: SymbolId) -> Option<usize> {
        Some(self.body_of(function)?.blocks.len())
    }

    /// True if a function is known neither to have labels with addresses nor to use any.
    pub(crate) fn has_no_labels(&self, function: SymbolId) -> bool {
        let Some(body) = self.body_of(function) else {
            return false;
        };
        let is_jump = |it: &Instruction| matches!(it.op, Op::IndirectBranch(_));
        let is_label = |it: &Constant| matches!(it, Constant::Label(..));
        !body.labels_elsewhere
            && !body.instructions.iter().any(is_jump)
            && !body.constants.iter().any(is_label)
            && !self.lowering().has_labels(self.global(function))
    }

    fn body_of(&self, function: SymbolId) -> Option<Body> {
        let mut body = Body::default();
        let number = self.body(function)?;
        let read = self.source.read_body(self.bytes(), number, &mut body);
        read.is_ok().then_some(body)
    }

    /// The sketch of the body in `plain`.
    pub fn sketch_of(&self, plain: &Plain) -> Sketch {
        sketch::plain::sketch(self, &plain.body)
    }

    /// Lowers one function, whose body is in `plain`, for a compile of tier 1 with the settings
    /// `how`. Counters and words of loops are [`COUNTERS`] and [`LOOPS`].
    ///
    /// # Errors
    /// The reason why it is not covered, or LLVM has to read it.
    pub fn baseline(
        &self,
        plan: &ModulePlan,
        function: SymbolId,
        how: &Compile,
        plain: &mut Plain,
    ) -> Result<Read, Refused> {
        self.lower_for_baseline(plan, function, how, false, plain)
    }

    /// Like [`Numbered::baseline`], for the exits of loops of a function that was compiled so
    /// before: with the values that cross at their heads, and the fingerprints of those that can be
    /// left.
    ///
    /// # Errors
    /// Like [`Numbered::baseline`].
    pub fn baseline_exits(
        &self,
        plan: &ModulePlan,
        function: SymbolId,
        how: &Compile,
        plain: &mut Plain,
    ) -> Result<Read, Refused> {
        self.lower_for_baseline(plan, function, how, true, plain)
    }

    fn lower_for_baseline(
        &self,
        plan: &ModulePlan,
        function: SymbolId,
        how: &Compile,
        exits: bool,
        plain: &mut Plain,
    ) -> Result<Read, Refused> {
        if let Some(what) = asks_for_more(how, &plain.body) {
            return Err(Refused::Uncovered(Uncovered { what }));
        }
        let _lowering = parts::enter(Part::Lowering);
        let counts = how.counters == Counters::Entry;
        let names = ModuleNames {
            numbered: self,
            plan,
            inlined: RefCell::default(),
        };
        let wanted = Wanted {
            counters: counts.then_some(COUNTERS),
            leaves: how.leaves.then_some(LOOPS),
            exits,
            contract: how.contract,
        };
        let Plain { body, buffers } = plain;
        let global = self.global(function);
        let lowered = self
            .lowering()
            .lower(body, global, &names, wanted, buffers)?;
        Ok(Read {
            compiled: Compiled {
                instructions: lowered.instructions,
                unit_instructions: lowered.instructions,
                loops: lowered.loops,
                nested: lowered.nested,
                calls: lowered.calls,
                keeps_stack: lowered.keeps_stack,
                counts: lowered.counts,
                heads: lowered.heads,
                labels: match lowered.has_labels {
                    true => Labels::Escape,
                    false => Labels::None,
                },
                ..Compiled::default()
            },
            function: lowered.function,
        })
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod verdicts;
