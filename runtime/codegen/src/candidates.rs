//! Which callees an optimized unit copies along, so that they can be inlined and so
//! that facts about them can be inferred from their bodies.
//!
//! Candidates are functions that are called directly, or that a small constant lists
//! (tables of methods), whose definition is the one calls really reach; from the root,
//! from `alwaysinline` functions it calls, and from candidates. They are found
//! breadth-first, nearest first, until a bound is met: the estimated cost of one,
//! instructions of all together (a multiple of the root's), and depth. Tiny ones are
//! free, and all that is taken of functions that are known to be hardly called
//! ([`Rare`](crate::Rare)): a call that passes the address of a local should still go. All
//! bodies are read before anything is copied, see [`Extraction::read_bodies`].
//!
//! A candidate is taken from the `library`, where it was simplified with its own
//! candidates. One with a profile of its own is taken as it is, so that its counts are
//! used; it is defined under its link name, as `weak_odr`: it can be inlined, but passes
//! infer nothing from it. Only of an *exact* definition would they infer attributes and
//! dead arguments, from a body they simplified, and a call that is left may reach tier 1
//! code, which still executes what they removed. Before code is generated every candidate is a declaration again, so that
//! what was not inlined is called through its slot (see `optimize`).
//!
//! Functions compiled at -O0 are `noinline`, whoever said so. Those whose results tell
//! whether they were inlined stay apart there: those that ask for addresses in their
//! frame, and those with a stack protector whatever they hold.
//!
//! # Why
//! Nothing is inferred from candidates' bodies. They are `weak_odr`, or taken from the library:
//! a fact that a simplified body shows need not hold for tier 1 code, which a call that is left
//! may reach.

use std::collections::VecDeque;

use inkwell::llvm_sys::LLVMLinkage;
use inkwell::llvm_sys::core::{LLVMGetUnnamedAddress, LLVMSetUnnamedAddress};
use inkwell::llvm_sys::prelude::LLVMValueRef;
use rustc_hash::FxHashSet;

use crate::compile::{DependenceKind, Tier};
use crate::error::CodegenError;
use crate::extract::{Extraction, has_function_attribute};
use crate::globals::add_function_attribute;
use crate::summary::{Kind, Linkage, Placement, SymbolId};
use crate::survey::{Scan, scan};

/// How much is looked at. Processor time of the program with all functions at tier 2,
/// one run each on a loaded machine (seconds; input of -O3 without passes). Steady speed
/// differed by up to a tenth either way, which those runs cannot tell from noise:
///
/// | | sqlite | Lua |
/// |---|---|---|
/// | every unit simplifies its candidates | 14.4 | 4.3 |
/// | the library | 11.8 | 4.0 |
///
/// Of a unit's time a third to a half is code generation of what was inlined. With `each`
/// at 250 and `kept` at 45 Lua's compiles take 0.85 of the time and sqlite's 0.88, but C
/// n-body runs at 0.84 of its speed, most likely as `attract` is not inlined. With `least` at
/// 1,000 the budget ended half-way through Rust's layers: hash-mix took 26.6 ms an iteration
/// at tier 2, 16.6 at 2,000, 15.8 at 5,000 and 15.1 at 15,000.
struct Bounds {
    /// [`Scan::cost`] of one candidate.
    each: u32,
    /// Instructions of one candidate after simplification.
    kept: u32,
    /// Instructions of all that one unit wants simplified, in multiples of the root's.
    factor: u32,
    /// Of all together, whatever the root's size.
    least: u32,
    most: u32,
}

impl Bounds {
    fn budget(&self, instructions: u32) -> u32 {
        instructions
            .saturating_mul(self.factor)
            .clamp(self.least, self.most)
    }
}

/// LLVM inlines a callee of cost 225, or more where arguments are constants.
const OPTIMIZED: Bounds = Bounds {
    each: 450,
    kept: 100,
    factor: 4,
    least: 5_000,
    most: 15_000,
};

/// A call that is known to be hot lets larger callees in.
const GUIDED: Bounds = Bounds {
    each: 1_000,
    kept: 300,
    factor: 4,
    least: 5_000,
    most: 40_000,
};

/// [`Scan::cost`] of candidates that no budget counts.
const TINY: u32 = 60;

/// Instructions of bodies from other modules that no budget counts.
pub(crate) const TINY_KEPT: u32 = 15;

/// Calls between the root and a candidate.
const DEPTH: u32 = 24;

/// What is to be simplified: the candidates of a function, or its own body, and theirs.
#[derive(Clone, Copy)]
pub(crate) enum Wanted {
    CalleesOf(SymbolId),
    Body(SymbolId),
}

/// A callee that is to be simplified.
pub(crate) struct Found {
    pub(crate) function: LLVMValueRef,
    pub(crate) wide: bool,
    pub(crate) instructions: u32,
    /// The candidates it calls.
    pub(crate) callees: Vec<LLVMValueRef>,
}

/// What is to be simplified for a unit.
pub(crate) struct Missing {
    pub(crate) found: Vec<Found>,
    /// Candidates that were left out because the budget was spent.
    pub(crate) left_out: FxHashSet<LLVMValueRef>,
    /// Those that were because they are rare.
    pub(crate) rare: FxHashSet<LLVMValueRef>,
}

/// What was found out about a candidate.
enum Look {
    Taken(Scan),
    /// It cannot be one, or is larger than any may be.
    Never,
    /// The unit has no budget for it.
    Spent,
    /// It is seldom called, and not tiny.
    Rare,
}

impl Extraction<'_> {
    /// Reads the root and its candidates, and defines the latter: as they are in the
    /// library, or, with a profile of their own, as they are.
    pub(crate) fn add_candidates(&mut self, root: LLVMValueRef) -> Result<Scan, CodegenError> {
        let mut scan = scan(root);
        self.prefer(&mut scan, root);
        if self.how.alone || has_function_attribute(root, self.reader.kinds().presplit_coroutine) {
            return Ok(scan);
        }
        let bounds = self.bounds();
        let mut budget = bounds.budget(scan.instructions);
        let mut seen = FxHashSet::default();
        seen.insert(root);
        let mut found: VecDeque<LLVMValueRef> = self.callees(&scan).into();
        while let Some(old) = found.pop_front() {
            if !seen.insert(old) {
                continue;
            }
            if !self.has_profile(old) {
                self.define_kept(old)?;
                continue;
            }
            let Look::Taken(mut scan) = self.look_at(old, &bounds, &mut budget) else {
                continue;
            };
            self.prefer(&mut scan, old);
            found.extend(self.callees(&scan));
            self.candidate_instructions += scan.instructions;
            let name = self.define_candidate(old, scan.wide)?;
            self.candidates
                .push((self.reader.table().index[&old], name));
        }
        self.add_offers(&mut budget)?;
        Ok(scan)
    }

    /// What is wanted and the library does not know, or not well.
    pub(crate) fn missing_candidates(&mut self, wanted: Wanted) -> Result<Missing, CodegenError> {
        let mut missing = Missing {
            found: Vec::new(),
            left_out: FxHashSet::default(),
            rare: FxHashSet::default(),
        };
        let (Wanted::CalleesOf(root) | Wanted::Body(root)) = wanted;
        let root = self.reader.table().values[root.index()];
        self.read_bodies(root)?;
        let mut scan = scan(root);
        self.prefer(&mut scan, root);
        if has_function_attribute(root, self.reader.kinds().presplit_coroutine) {
            return Ok(missing);
        }
        let bounds = self.bounds();
        let mut budget = bounds.budget(scan.instructions);
        let mut seen = FxHashSet::default();
        let first = match wanted {
            Wanted::Body(_) => vec![root],
            Wanted::CalleesOf(_) => {
                seen.insert(root);
                self.callees(&scan)
            }
        };
        let mut found: VecDeque<(LLVMValueRef, u32)> =
            first.into_iter().map(|old| (old, 1)).collect();
        while let Some((old, depth)) = found.pop_front() {
            let symbol = self.reader.table().index[&old];
            if !seen.insert(old) || self.reader.library().knows(symbol, &self.how.rare) {
                continue;
            }
            let mut scan = match self.look_at(old, &bounds, &mut budget) {
                Look::Taken(scan) => scan,
                Look::Never => continue,
                Look::Spent => {
                    missing.left_out.insert(old);
                    continue;
                }
                Look::Rare => {
                    missing.rare.insert(old);
                    continue;
                }
            };
            let profiled = self.has_profile(old);
            if profiled {
                self.prefer(&mut scan, old);
            }
            let callees = self.callees(&scan);
            if depth < DEPTH {
                found.extend(callees.iter().map(|&callee| (callee, depth + 1)));
            }
            if !profiled {
                missing.found.push(Found {
                    function: old,
                    wide: scan.wide,
                    instructions: scan.instructions,
                    callees,
                });
            }
        }
        Ok(missing)
    }

    fn bounds(&self) -> Bounds {
        match self.how.tier {
            Tier::Baseline | Tier::Optimized => OPTIMIZED,
            Tier::Guided => GUIDED,
        }
    }

    /// Instructions of a simplified body that may be inlined.
    pub(crate) fn most_kept(&self) -> u32 {
        self.bounds().kept
    }

    fn has_profile(&self, old: LLVMValueRef) -> bool {
        let symbol = self.reader.table().index.get(&old);
        symbol.is_some_and(|symbol| self.how.profiles.contains_key(symbol))
    }

    /// Reads a candidate's body, and charges the budget for it.
    fn look_at(&mut self, old: LLVMValueRef, bounds: &Bounds, budget: &mut u32) -> Look {
        // A body that cannot be read is an error where it is compiled itself.
        if self.read_bodies(old).is_err() {
            return Look::Never;
        }
        let scan = scan(old);
        if scan.labels || scan.cost > bounds.each || (scan.frame && self.is_unoptimized(old)) {
            return Look::Never;
        }
        if scan.cost > TINY {
            if self.how.rare.has(self.reader.table().index[&old]) {
                return Look::Rare;
            }
            let Some(left) = budget.checked_sub(scan.instructions) else {
                return Look::Spent;
            };
            *budget = left;
        }
        Look::Taken(scan)
    }

    /// True for what clang compiled at -O0, where it marks every function `noinline`: the
    /// source may have said so too.
    fn is_unoptimized(&self, old: LLVMValueRef) -> bool {
        has_function_attribute(old, self.reader.kinds().optnone)
    }

    /// The candidates a body calls, also from `alwaysinline` functions it calls, in the
    /// order of their first call.
    fn callees(&mut self, scan_of_caller: &Scan) -> Vec<LLVMValueRef> {
        let mut seen = FxHashSet::default();
        let mut callees = Vec::new();
        let mut left: VecDeque<LLVMValueRef> = scan_of_caller.in_sight().collect();
        while let Some(callee) = left.pop_front() {
            if !seen.insert(callee) {
                continue;
            }
            if self.is_inline_body(callee) {
                if self.read_bodies(callee).is_ok() {
                    left.extend(scan(callee).in_sight());
                }
            } else if let Some(old) = self.candidate(callee) {
                callees.push(old);
            }
        }
        callees
    }

    /// Puts the functions that `old` is known to call indirectly before the others.
    fn prefer(&mut self, scan: &mut Scan, old: LLVMValueRef) {
        let targets = self.take_profile(old);
        scan.callees.splice(0..0, targets);
    }

    /// The function a direct call of `callee` reaches, if its body may be copied.
    pub(crate) fn candidate(&self, callee: LLVMValueRef) -> Option<LLVMValueRef> {
        let summary = self.reader.summary();
        let id = self.resolve(callee)?;
        let info = &summary.symbols[id.index()];
        let copyable = info.kind == Kind::Function
            && info.placement == Placement::Own
            && !info.always_inline
            && !self.plan.import(id).replaced
            && (self.plan.import(id).defined || info.linkage == Linkage::Available);
        let old = self.reader.table().values[id.index()];
        let kinds = self.reader.kinds();
        let has = |kind| has_function_attribute(old, kind);
        let inlinable = copyable
            && (!has(kinds.noinline) || has(kinds.optnone))
            && (!has(kinds.optnone) || !has(kinds.protect_all))
            && !has(kinds.naked)
            && !has(kinds.returns_twice)
            && !has(kinds.presplit_coroutine);
        inlinable.then_some(old)
    }

    /// The symbol a direct callee names, looking through aliases whose definition is
    /// the bound one.
    pub(crate) fn resolve(&self, callee: LLVMValueRef) -> Option<SymbolId> {
        let mut id = *self.reader.table().index.get(&callee)?;
        for _ in 0..64 {
            match self.reader.summary().symbols[id.index()].kind {
                Kind::Alias {
                    base: Some(base),
                    exact: true,
                } if self.plan.import(id).defined => id = base,
                _ => return Some(id),
            }
        }
        None
    }

    /// Defines a candidate from its body in the reader's module; its link name.
    pub(crate) fn define_candidate(
        &mut self,
        old: LLVMValueRef,
        wide: bool,
    ) -> Result<String, CodegenError> {
        let id = self.reader.table().index[&old];
        let name = self.plan.import(id).name.to_string();
        let new = self.define_function(old, &name, LLVMLinkage::LLVMWeakODRLinkage)?;
        add_function_attribute(new, self.reader.kinds().nonlazybind);
        self.prepare_for_optimizing(old, new, wide);
        self.values.insert(old, new);
        self.with_labels.insert(old, new);
        self.pending.push_back((old, new));
        Ok(name)
    }

    /// Defines a candidate from its simplified body, unless there is none or it is too
    /// large to be inlined.
    pub(crate) fn define_kept(&mut self, old: LLVMValueRef) -> Result<(), CodegenError> {
        let reader = self.reader;
        let id = reader.table().index[&old];
        let Some(entry) = reader.library().entry(self.plan, id) else {
            return Ok(());
        };
        let most = match self.how.rare.has(id) {
            true => TINY_KEPT,
            false => self.bounds().kept,
        };
        if self.with_labels.contains_key(&old) || entry.instructions > most {
            return Ok(());
        }
        let name = self.plan.import(id).name.to_string();
        self.bodies_read.insert(entry.function);
        let linkage = LLVMLinkage::LLVMAvailableExternallyLinkage;
        let new = self.define_function(entry.function, &name, linkage)?;
        // Passes that saw the shelf only know no use of its address.
        // SAFETY: live functions of one type.
        unsafe { LLVMSetUnnamedAddress(new, LLVMGetUnnamedAddress(old)) };
        self.values.insert(old, new);
        self.with_labels.insert(old, new);
        self.pending.push_back((entry.function, new));
        self.kept.push(new);
        self.candidate_instructions += entry.instructions;
        for used in &entry.uses {
            match used.kind {
                DependenceKind::Body => self.inlined.push(used.symbol),
                DependenceKind::Fact => {
                    self.facts.insert(used.symbol);
                }
            }
        }
        Ok(())
    }
}
