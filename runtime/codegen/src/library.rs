//! Callees as they are after simplification, kept by a reader for all who call them.
//!
//! A whole-program compiler inlines bottom-up: it simplifies every function once, and
//! what it inlines is the simplified body. The library does the same on demand. Before a
//! unit is optimized, those of its candidates that no unit has wanted yet are copied into
//! a module of their own, with their own candidates, and run through the first half of
//! the pipeline (see `optimize`); that module is a *shelf* and stays. Units then copy
//! their candidates from shelves. Passes leave such a copy alone: it is
//! `available_externally` and `optnone`, which keeps passes from it but not the inliner.
//!
//! Invariants:
//! - An entry says what it was made of ([`Entry::uses`]): whoever uses the entry depends
//!   on all of that. It holds for a plan that binds those symbols as the plan did for
//!   which it was made; any other plan is answered as if there were no entry.
//! - Globals of shelves stand for globals of the reader's module, function by function:
//!   a copy names what the unit's own plan says. A body that mentions anything else (a
//!   string that a pass has made) is not kept.
//! - Whose callees did not fit into the budget of the unit that wanted it is *short*:
//!   calls stay in it that a compiler of whole programs would have inlined. A later unit
//!   that wants it makes it again with its own budget, [`MOST_REMAKES`] times. The same
//!   holds of one whose callees were left out as they were rare ([`Rare`]), once one of
//!   these no longer is, [`MOST_WARMED`] times.
//! - Shelves hold no more than [`MOST_INSTRUCTIONS`]; then all of them go.
//!
//! # Why
//! Callees are simplified once per reader (`codegen::library`): units copy simplified bodies,
//! `optnone` and `available_externally`, which only the inliner looks into. What they were made
//! of is recorded with them and becomes a dependence of whoever uses them.

use inkwell::llvm_sys::LLVMValueKind;
use inkwell::llvm_sys::core::{
    LLVMGetFirstBasicBlock, LLVMGetFirstFunction, LLVMGetFirstGlobal, LLVMGetFirstInstruction,
    LLVMGetIntrinsicID, LLVMGetNamedFunction, LLVMGetNextBasicBlock, LLVMGetNextFunction,
    LLVMGetNextGlobal, LLVMGetNextInstruction, LLVMGetNumOperands, LLVMGetOperand,
    LLVMGetPersonalityFn, LLVMGetValueKind, LLVMHasPersonalityFn, LLVMIsDeclaration,
};
use inkwell::llvm_sys::prelude::LLVMValueRef;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::candidates::{Missing, Wanted};
use crate::compile::{Compile, DependenceKind, Rare, Tier};
use crate::context::OwnedModule;
use crate::error::CodegenError;
use crate::extract::{Extraction, Unit};
use crate::instrument::is_hook;
use crate::optimize;
use crate::plan::ModulePlan;
use crate::reader::{Reader, c_name, value_name};
use crate::summary::SymbolId;

/// Instructions kept in all: some 20 MB.
const MOST_INSTRUCTIONS: usize = 100_000;

/// How often a short entry is made again.
const MOST_REMAKES: u8 = 1;

/// How often an entry was made, at most, when it is made again for a callee that is no
/// longer rare.
const MOST_WARMED: u8 = 4;

/// One simplified function.
pub(crate) struct Entry {
    /// Its definition on a shelf.
    pub(crate) function: LLVMValueRef,
    /// Instructions after simplification.
    pub(crate) instructions: u32,
    /// What it was made of, itself included.
    pub(crate) uses: Vec<Use>,
    /// A candidate that it calls, or that was inlined calls, was left out.
    short: bool,
    /// Candidates that it calls, or that was inlined calls, which were rare then.
    rare: Vec<SymbolId>,
    /// How often it was made again.
    remakes: u8,
}

/// Something of the module that a simplified body was made of.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Use {
    pub(crate) symbol: SymbolId,
    pub(crate) kind: DependenceKind,
    /// Whether the module's definition was the bound one.
    defined: bool,
}

/// What a reader keeps.
#[derive(Default)]
pub(crate) struct Library {
    /// `None` for what cannot be kept.
    entries: FxHashMap<SymbolId, Option<Entry>>,
    /// Global of a shelf -> global of the reader's module.
    homes: FxHashMap<LLVMValueRef, LLVMValueRef>,
    shelves: Vec<OwnedModule>,
    instructions: usize,
    /// The setting all were made with.
    contract: bool,
    /// Number of the plan they were made under.
    plan: u64,
}

impl Library {
    /// The simplified body of `symbol`, if there is one that holds for `plan`.
    pub(crate) fn entry(&self, plan: &ModulePlan, symbol: SymbolId) -> Option<&Entry> {
        let entry = self.entries.get(&symbol)?.as_ref()?;
        let holds = |used: &Use| plan.import(used.symbol).defined == used.defined;
        entry.uses.iter().all(holds).then_some(entry)
    }

    /// True if there is nothing to be gained by another try to keep `symbol`.
    pub(crate) fn knows(&self, symbol: SymbolId, rare: &Rare) -> bool {
        let known = self.entries.get(&symbol);
        known.is_some_and(|entry| {
            let warmed = |entry: &Entry| entry.rare.iter().any(|&callee| !rare.has(callee));
            entry.as_ref().is_none_or(|entry| {
                (!entry.short || entry.remakes >= MOST_REMAKES)
                    && (entry.remakes >= MOST_WARMED || !warmed(entry))
            })
        })
    }

    fn is_short(&self, symbol: SymbolId) -> bool {
        let entry = self.entries.get(&symbol).and_then(Option::as_ref);
        entry.is_some_and(|entry| entry.short)
    }

    /// Puts what became of `symbol` into its place.
    fn file(&mut self, symbol: SymbolId, mut entry: Entry) {
        let old = self.entries.get(&symbol).and_then(Option::as_ref);
        entry.remakes = old.map_or(0, |old| old.remakes);
        self.instructions += entry.instructions as usize;
        self.entries.insert(symbol, Some(entry));
    }

    /// The global of the reader's module for which one of a shelf stands.
    pub(crate) fn home(&self, global: LLVMValueRef) -> Option<LLVMValueRef> {
        self.homes.get(&global).copied()
    }

    fn forget(&mut self) {
        self.entries.clear();
        self.homes.clear();
        self.shelves.clear();
        self.instructions = 0;
    }
}

/// Candidates that were copied to be simplified together.
struct Batch {
    unit: Unit,
    members: Vec<Member>,
    /// Names on the shelf -> globals of the reader's module.
    homes: FxHashMap<String, LLVMValueRef>,
}

struct Member {
    symbol: SymbolId,
    name: String,
    /// Symbols of the candidates it calls.
    callees: Vec<SymbolId>,
    /// One of them is not at hand, though it could be.
    short: bool,
    /// Those that are not at hand because they are rare.
    rare: Vec<SymbolId>,
}

impl Reader {
    /// Simplifies what is wanted and not in the library. What cannot be simplified is no
    /// candidate: errors are told where it is compiled itself.
    pub(crate) fn stock(&mut self, plan: &ModulePlan, wanted: Wanted, how: &Compile) {
        let library = self.library_mut();
        if library.instructions > MOST_INSTRUCTIONS
            || library.contract != how.contract
            || library.plan != plan.number
        {
            library.forget();
            library.contract = how.contract;
            library.plan = plan.number;
        }
        let mut tried = Vec::new();
        let made = self.simplify(plan, wanted, how, &mut tried);
        if self.is_cancelled() {
            // A body that was not read for that reason is none the worse.
            return;
        }
        let library = self.library_mut();
        for symbol in tried {
            if let Some(entry) = library.entries.entry(symbol).or_insert(None) {
                entry.remakes += 1;
            }
        }
        if let Ok(Some((module, entries, homes))) = made {
            for (symbol, entry) in entries {
                library.file(symbol, entry);
            }
            library.homes.extend(homes);
            library.shelves.push(module);
        }
    }

    #[expect(clippy::type_complexity, reason = "taken apart at once")]
    fn simplify(
        &mut self,
        plan: &ModulePlan,
        wanted: Wanted,
        how: &Compile,
        tried: &mut Vec<SymbolId>,
    ) -> Result<
        Option<(
            OwnedModule,
            Vec<(SymbolId, Entry)>,
            FxHashMap<LLVMValueRef, LLVMValueRef>,
        )>,
        CodegenError,
    > {
        let Some(batch) = self.gather(plan, wanted, how, tried)? else {
            return Ok(None);
        };
        self.context()
            .gate()
            .expect(batch.unit.candidate_instructions);
        self.run(&batch.unit, "callees", Tier::Optimized, optimize::simplify)?;
        Ok(Some(self.shelve(plan, batch)))
    }

    /// Copies the candidates that are missing into a unit; `tried` are their symbols.
    fn gather(
        &self,
        plan: &ModulePlan,
        wanted: Wanted,
        how: &Compile,
        tried: &mut Vec<SymbolId>,
    ) -> Result<Option<Batch>, CodegenError> {
        let mut extraction = Extraction::new(self, plan, "callees", how)?;
        let Missing {
            found,
            left_out,
            rare,
        } = extraction.missing_candidates(wanted)?;
        if found.is_empty() {
            return Ok(None);
        }
        let symbol = |old: &LLVMValueRef| self.table().index[old];
        tried.extend(found.iter().map(|found| symbol(&found.function)));
        let made: FxHashSet<SymbolId> = tried.iter().copied().collect();
        let mut members = Vec::new();
        let instructions: u32 = found.iter().map(|found| found.instructions).sum();
        for found in found {
            let name = extraction.define_candidate(found.function, found.wide)?;
            let is_short = |callee: &LLVMValueRef| {
                let symbol = symbol(callee);
                left_out.contains(callee)
                    || (!made.contains(&symbol) && self.library().is_short(symbol))
            };
            let is_rare = |callee: &&LLVMValueRef| rare.contains(*callee);
            members.push(Member {
                symbol: symbol(&found.function),
                name,
                callees: found.callees.iter().map(symbol).collect(),
                short: found.callees.iter().any(is_short),
                rare: found.callees.iter().filter(is_rare).map(symbol).collect(),
            });
            for &callee in &found.callees {
                if !made.contains(&symbol(&callee)) {
                    extraction.define_kept(callee)?;
                }
            }
        }
        extraction.candidate_instructions += instructions;
        extraction.copy_pending()?;
        let (unit, homes) = extraction.finish_with_homes()?;
        Ok(Some(Batch {
            unit,
            members,
            homes,
        }))
    }

    /// What became of a batch: its module, the entries, and where globals belong.
    fn shelve(
        &self,
        plan: &ModulePlan,
        batch: Batch,
    ) -> (
        OwnedModule,
        Vec<(SymbolId, Entry)>,
        FxHashMap<LLVMValueRef, LLVMValueRef>,
    ) {
        let Batch {
            unit,
            members,
            homes: names,
        } = batch;
        let homes: FxHashMap<_, _> = globals(&unit.module)
            .into_iter()
            .filter_map(|global| Some((global, *names.get(&value_name(global))?)))
            .collect();
        let used = |symbol, kind| Use {
            symbol,
            kind,
            defined: plan.import(symbol).defined,
        };
        let inlined = unit.inlined.iter().map(|&id| (id, DependenceKind::Body));
        let facts = unit.facts.iter().map(|&id| (id, DependenceKind::Fact));
        let common: FxHashSet<Use> = inlined
            .chain(facts)
            .map(|(symbol, kind)| used(symbol, kind))
            .collect();
        let by_symbol: FxHashMap<SymbolId, &Member> = members
            .iter()
            .map(|member| (member.symbol, member))
            .collect();
        let mut entries = Vec::new();
        for member in &members {
            let name = c_name(&member.name);
            // SAFETY: a live module and a C string.
            let function = unsafe { LLVMGetNamedFunction(unit.module.raw(), name.as_ptr()) };
            // SAFETY: a live function where it is not null; members have bodies.
            let body = (!function.is_null()).then(|| unsafe { measure(function, &homes) });
            let Some(instructions) = body.flatten() else {
                continue;
            };
            let mut uses = common.clone();
            let (mut short, mut rare) = (false, FxHashSet::default());
            for symbol in closure(member.symbol, &by_symbol) {
                if let Some(member) = by_symbol.get(&symbol) {
                    short |= member.short;
                    rare.extend(&member.rare);
                } else if let Some(entry) = self.library().entry(plan, symbol) {
                    uses.extend(entry.uses.iter().copied());
                    rare.extend(&entry.rare);
                } else {
                    // Its body was not in sight.
                    continue;
                }
                uses.insert(used(symbol, DependenceKind::Body));
            }
            entries.push((
                member.symbol,
                Entry {
                    function,
                    instructions,
                    uses: uses.into_iter().collect(),
                    short,
                    rare: rare.into_iter().collect(),
                    remakes: 0,
                },
            ));
        }
        (unit.module, entries, homes)
    }
}

/// `start` and what it calls, as far as that is in the batch, and one step beyond.
fn closure(start: SymbolId, members: &FxHashMap<SymbolId, &Member>) -> FxHashSet<SymbolId> {
    let mut seen = FxHashSet::default();
    let mut left = vec![start];
    while let Some(symbol) = left.pop() {
        if seen.insert(symbol)
            && let Some(member) = members.get(&symbol)
        {
            left.extend(&member.callees);
        }
    }
    seen
}

/// The functions and variables of a module.
pub(crate) fn globals(module: &OwnedModule) -> Vec<LLVMValueRef> {
    let mut all = Vec::new();
    // SAFETY: walks two lists of a live module to their null ends.
    unsafe {
        let mut function = LLVMGetFirstFunction(module.raw());
        while !function.is_null() {
            all.push(function);
            function = LLVMGetNextFunction(function);
        }
        let mut variable = LLVMGetFirstGlobal(module.raw());
        while !variable.is_null() {
            all.push(variable);
            variable = LLVMGetNextGlobal(variable);
        }
    }
    all
}

/// The number of instructions of a body; `None` if there is no body, or if it mentions a
/// global without a home.
///
/// # Safety
/// A live function.
unsafe fn measure(
    function: LLVMValueRef,
    homes: &FxHashMap<LLVMValueRef, LLVMValueRef>,
) -> Option<u32> {
    let mut count = 0u32;
    // SAFETY: by the caller's promise; walks blocks, instructions and operands.
    unsafe {
        if LLVMIsDeclaration(function) != 0 {
            return None;
        }
        if LLVMHasPersonalityFn(function) != 0 && !is_homely(LLVMGetPersonalityFn(function), homes)
        {
            return None;
        }
        let mut block = LLVMGetFirstBasicBlock(function);
        while !block.is_null() {
            let mut instruction = LLVMGetFirstInstruction(block);
            while !instruction.is_null() {
                count = count.saturating_add(1);
                let operands = LLVMGetNumOperands(instruction).max(0) as u32;
                if !(0..operands).all(|i| is_homely(LLVMGetOperand(instruction, i), homes)) {
                    return None;
                }
                instruction = LLVMGetNextInstruction(instruction);
            }
            block = LLVMGetNextBasicBlock(block);
        }
    }
    Some(count)
}

/// True if all globals in `value` have homes; intrinsics need none, nor do hooks that the
/// module does not mention (see `instrument`): their names mean the same everywhere.
///
/// # Safety
/// A live value, or null.
unsafe fn is_homely(value: LLVMValueRef, homes: &FxHashMap<LLVMValueRef, LLVMValueRef>) -> bool {
    // SAFETY: by the caller's promise; operands of constants are constants.
    unsafe {
        if value.is_null() {
            return true;
        }
        match LLVMGetValueKind(value) {
            LLVMValueKind::LLVMFunctionValueKind => {
                homes.contains_key(&value)
                    || LLVMGetIntrinsicID(value) != 0
                    || (LLVMIsDeclaration(value) != 0 && is_hook(&value_name(value)))
            }
            LLVMValueKind::LLVMGlobalVariableValueKind
            | LLVMValueKind::LLVMGlobalAliasValueKind
            | LLVMValueKind::LLVMGlobalIFuncValueKind => homes.contains_key(&value),
            LLVMValueKind::LLVMBlockAddressValueKind => false,
            LLVMValueKind::LLVMConstantExprValueKind
            | LLVMValueKind::LLVMConstantArrayValueKind
            | LLVMValueKind::LLVMConstantStructValueKind
            | LLVMValueKind::LLVMConstantVectorValueKind => {
                let count = LLVMGetNumOperands(value).max(0) as u32;
                (0..count).all(|i| is_homely(LLVMGetOperand(value, i), homes))
            }
            _ => true,
        }
    }
}
