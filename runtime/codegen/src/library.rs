//! Simplified bodies of callees, kept by a reader for all callers.
//!
//! A whole-program compiler inlines bottom-up: it simplifies every function once, and inlines the
//! simplified body. The library does the same on demand. Before a unit is optimized, its candidates
//! that are not in the library are copied into a module of their own, with their own candidates.
//! The first half of the pipeline runs on it (see `optimize`); that module is a *shelf* and stays.
//! Units then copy their candidates from shelves. Passes leave such a copy alone: it is
//! `available_externally` and `optnone`, which keeps passes from it but not the inliner.
//!
//! Invariants:
//! - An entry lists the symbols it was made of ([`Entry::uses`]): each version that uses the entry
//!   depends on all of them. It holds for a plan that binds those symbols as its own plan did;
//!   under any other plan the library answers that it has no entry.
//! - Globals of shelves stand for globals of the reader's module, function by function: a copy gets
//!   the names of the unit's own plan. A body that mentions anything else (a string that a pass has
//!   made) is not kept.
//! - An entry is *short* if some of its callees did not fit into the budget of the unit that wanted
//!   it. Calls stay in it that a compiler of whole programs would have inlined. A later unit that
//!   wants it makes it again with its own budget, [`MOST_REMAKES`] times. The same holds of an
//!   entry whose callees were left out as they were rare ([`Rare`]), once one of these no longer
//!   is, [`MOST_WARMED`] times.
//! - Shelves hold no more than [`MOST_INSTRUCTIONS`]; then all of them are dropped.
//!
//! # Why
//! Callees are simplified once per reader (`codegen::library`): units copy simplified bodies,
//! `optnone` and `available_externally`, which only the inliner looks into. The symbols they were
//! made of are recorded with them and become dependences of each version that uses them.

use inkwell::llvm_sys::LLVMValueKind;
use inkwell::llvm_sys::core::{LLVMGetPersonalityFn, LLVMHasPersonalityFn};
use inkwell::llvm_sys::prelude::LLVMValueRef;
use rustc_hash::{FxHashMap, FxHashSet};

use uruk_base::Tier;

use crate::candidates::{Found, Missing, Wanted};
use crate::compile::{Compile, DependenceKind, Rare};
use crate::context::OwnedModule;
use crate::copying::{Contents, Copying, Unit};
use crate::error::CodegenError;
use crate::handles::{FunctionRef, ValueRef};
use crate::instrument::is_hook;
use crate::optimize;
use crate::plan::ModulePlan;
use crate::planning::Planning;
use crate::reader::Reader;
use crate::source::Source;
use crate::summary::SymbolId;

/// Instructions kept in all: some 20 MB.
const MOST_INSTRUCTIONS: usize = 100_000;

/// Most remakes of a short entry.
const MOST_REMAKES: u8 = 1;

/// How often an entry was made, at most, when it is made again for a callee that is no
/// longer rare.
const MOST_WARMED: u8 = 4;

/// One simplified function.
pub(crate) struct Entry {
    /// Its definition on a shelf, which the library keeps as long as the entry.
    function: LLVMValueRef,
    /// Instructions after simplification.
    pub(crate) instructions: u32,
    /// The symbols it was made of, itself included.
    pub(crate) uses: Vec<Use>,
    /// A candidate was left out that it calls, or that an inlined callee calls.
    short: bool,
    /// Rare candidates that it calls, or that an inlined callee calls.
    rare: Vec<SymbolId>,
    /// Number of times it was made again.
    remakes: u8,
}

impl Entry {
    /// Its definition on a shelf.
    pub(crate) fn function(&self) -> FunctionRef<'_> {
        // SAFETY: entries are lent by their library only, which keeps the shelf.
        unsafe { FunctionRef::of(self.function) }
    }
}

/// Something of the module that a simplified body was made of.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Use {
    pub(crate) symbol: SymbolId,
    pub(crate) kind: DependenceKind,
    /// Whether the module's definition was the bound one.
    defined: bool,
}

/// The simplified bodies that a reader keeps.
#[derive(Default)]
pub(crate) struct Library {
    /// `None` for functions that cannot be kept.
    entries: FxHashMap<SymbolId, Option<Entry>>,
    homes: Homes,
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

    /// True if another try to keep `symbol` would gain nothing.
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

    /// Enters an entry for `symbol`; it keeps the number of remakes of the one it replaces.
    fn file(&mut self, symbol: SymbolId, mut entry: Entry) {
        let old = self.entries.get(&symbol).and_then(Option::as_ref);
        entry.remakes = old.map_or(0, |old| old.remakes);
        self.instructions += entry.instructions as usize;
        self.entries.insert(symbol, Some(entry));
    }

    /// The symbol of the reader's module for which a global of a shelf stands.
    pub(crate) fn home(&self, global: ValueRef<'_>) -> Option<SymbolId> {
        self.homes.of(global)
    }

    /// Takes up a shelf, and its entries.
    fn take(&mut self, shelf: Shelf) {
        for (symbol, entry) in shelf.entries {
            self.file(symbol, entry);
        }
        self.homes.0.extend(shelf.homes.0);
        self.shelves.push(shelf.module);
    }

    fn forget(&mut self) {
        self.entries.clear();
        self.homes.0.clear();
        self.shelves.clear();
        self.instructions = 0;
    }
}

/// Candidates that were copied to be simplified together.
struct Batch {
    unit: Unit,
    members: Vec<Member>,
    /// Names on the shelf -> symbols of the reader's module.
    homes: FxHashMap<String, SymbolId>,
}

/// Result of a batch: its module, entries for functions of it, and the symbols that its globals
/// stand for.
struct Shelf {
    module: OwnedModule,
    entries: Vec<(SymbolId, Entry)>,
    homes: Homes,
}

/// Global of a shelf -> symbol of the reader's module. The keys are never dereferenced.
#[derive(Default)]
struct Homes(FxHashMap<LLVMValueRef, SymbolId>);

impl Homes {
    fn of(&self, global: ValueRef<'_>) -> Option<SymbolId> {
        self.0.get(&global.raw()).copied()
    }
}

struct Member {
    symbol: SymbolId,
    name: String,
    /// Symbols of the candidates it calls.
    callees: Vec<SymbolId>,
    /// A callee is not available, though it could be.
    short: bool,
    /// Callees that are not available because they are rare.
    rare: Vec<SymbolId>,
}

impl Reader {
    /// Simplifies wanted functions that are not in the library. A function that cannot be
    /// simplified is no candidate: its own compile reports the error.
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
        if let Ok(Some(shelf)) = made {
            library.take(shelf);
        }
    }

    fn simplify(
        &mut self,
        plan: &ModulePlan,
        wanted: Wanted,
        how: &Compile,
        tried: &mut Vec<SymbolId>,
    ) -> Result<Option<Shelf>, CodegenError> {
        let Some(mut batch) = self.gather(plan, wanted, how, tried)? else {
            return Ok(None);
        };
        let instructions = batch.unit.contents.candidate_instructions;
        self.context().gate().expect(instructions);
        let (tier, optnone) = (Tier::Optimized, self.kinds().optnone);
        self.run(
            &mut batch.unit,
            "callees",
            tier,
            |context, emitter, unit| optimize::simplify(context, emitter, unit, optnone),
        )?;
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
        let source = Source { reader: self, plan };
        let mut planning = Planning::new(source, how);
        let missing = planning.missing_candidates(wanted)?;
        if missing.found.is_empty() {
            return Ok(None);
        }
        tried.extend(missing.found.iter().map(|found| found.callee.id));
        let module = source.fresh("callees");
        let mut copying = Copying::new(source, how, "callees", &module);
        let made: FxHashSet<SymbolId> = tried.iter().copied().collect();
        let mut members = Vec::new();
        for found in &missing.found {
            let name = copying.define_candidate(&found.callee)?;
            members.push(self.member(source, name, found, &missing, &made));
            copying.contents.candidate_instructions += found.callee.instructions;
            for callee in found
                .callees
                .iter()
                .filter_map(|callee| source.id(**callee))
            {
                if !made.contains(&callee)
                    && let Some(entry) = planning.kept(callee)
                {
                    copying.define_kept(callee, entry)?;
                }
            }
        }
        copying.copy_pending()?;
        let (contents, homes) = copying.finish_with_homes()?;
        Ok(Some(Batch {
            unit: Unit { module, contents },
            members,
            homes,
        }))
    }

    /// The properties of a member of a batch before it is simplified; `made` are the symbols of all
    /// members.
    fn member(
        &self,
        source: Source<'_>,
        name: String,
        found: &Found<'_>,
        missing: &Missing<'_>,
        made: &FxHashSet<SymbolId>,
    ) -> Member {
        let symbol = |callee: &FunctionRef<'_>| source.id(**callee);
        let is_short = |callee: &FunctionRef<'_>| {
            let kept_short = symbol(callee)
                .is_some_and(|symbol| !made.contains(&symbol) && self.library().is_short(symbol));
            missing.left_out.contains(callee) || kept_short
        };
        let is_rare = |callee: &&FunctionRef<'_>| missing.rare.contains(*callee);
        let rare = found.callees.iter().filter(is_rare);
        Member {
            symbol: found.callee.id,
            name,
            callees: found.callees.iter().filter_map(symbol).collect(),
            short: found.callees.iter().any(is_short),
            rare: rare.filter_map(symbol).collect(),
        }
    }

    fn shelve(&self, plan: &ModulePlan, batch: Batch) -> Shelf {
        let Unit { module, contents } = batch.unit;
        let globals = globals(&module).into_iter();
        let homes = globals.filter_map(|it| Some((it.raw(), *batch.homes.get(&it.name())?)));
        let homes = Homes(homes.collect());
        let common = common_uses(plan, &contents);
        let members = batch.members.iter();
        let by_symbol: FxHashMap<SymbolId, &Member> =
            members.map(|member| (member.symbol, member)).collect();
        let mut entries = Vec::new();
        for member in &batch.members {
            let function = module.function(&member.name);
            let measured = function.and_then(|it| Some((it.raw(), measure(it, &homes)?)));
            if let Some((function, instructions)) = measured {
                let entry = Entry {
                    function,
                    instructions,
                    uses: Vec::new(),
                    short: false,
                    rare: Vec::new(),
                    remakes: 0,
                };
                let entry = self.describe(plan, member, &by_symbol, &common, entry);
                entries.push((member.symbol, entry));
            }
        }
        Shelf {
            module,
            entries,
            homes,
        }
    }

    /// Records in an entry the symbols that the body of a member may be made of.
    fn describe(
        &self,
        plan: &ModulePlan,
        member: &Member,
        members: &FxHashMap<SymbolId, &Member>,
        common: &FxHashSet<Use>,
        entry: Entry,
    ) -> Entry {
        let mut uses = common.clone();
        let (mut short, mut rare) = (false, FxHashSet::default());
        for symbol in closure(member.symbol, members) {
            if let Some(member) = members.get(&symbol) {
                short |= member.short;
                rare.extend(&member.rare);
            } else if let Some(entry) = self.library().entry(plan, symbol) {
                uses.extend(entry.uses.iter().copied());
                rare.extend(&entry.rare);
            } else {
                // Its body was not in sight.
                continue;
            }
            uses.insert(Use::of(plan, symbol, DependenceKind::Body));
        }
        Entry {
            uses: uses.into_iter().collect(),
            short,
            rare: rare.into_iter().collect(),
            ..entry
        }
    }
}

impl Use {
    fn of(plan: &ModulePlan, symbol: SymbolId, kind: DependenceKind) -> Use {
        Use {
            symbol,
            kind,
            defined: plan.import(symbol).defined,
        }
    }
}

/// The symbols that each member of a batch may be made of.
fn common_uses(plan: &ModulePlan, contents: &Contents) -> FxHashSet<Use> {
    let inlined = contents
        .inlined
        .iter()
        .map(|&id| (id, DependenceKind::Body));
    let facts = contents.facts.iter().map(|&id| (id, DependenceKind::Fact));
    let both = inlined.chain(facts);
    both.map(|(symbol, kind)| Use::of(plan, symbol, kind))
        .collect()
}

/// `start`, its callees in the batch, directly and through others, and one step beyond.
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
pub(crate) fn globals(module: &OwnedModule) -> Vec<ValueRef<'_>> {
    let functions = module.functions().map(|function| *function);
    functions
        .chain(module.variables().map(|variable| *variable))
        .collect()
}

/// The number of instructions of a body; `None` if there is no body, or if it mentions a
/// global without a home.
fn measure(function: FunctionRef<'_>, homes: &Homes) -> Option<u32> {
    // SAFETY: a live function, which has a personality when the getter is called.
    let personality = unsafe {
        match LLVMHasPersonalityFn(function.raw()) {
            0 => None,
            _ => ValueRef::from_raw(LLVMGetPersonalityFn(function.raw())),
        }
    };
    let is_homely = |value| is_homely(value, homes);
    if function.is_declaration() || !personality.is_none_or(is_homely) {
        return None;
    }
    let mut count = 0u32;
    for instruction in function.instructions() {
        count = count.saturating_add(1);
        if !instruction.operands().flatten().all(is_homely) {
            return None;
        }
    }
    Some(count)
}

/// True if all globals in `value` have homes; intrinsics need none, nor do hooks that the
/// module does not mention (see `instrument`): their names mean the same everywhere.
fn is_homely(value: ValueRef<'_>, homes: &Homes) -> bool {
    if value.is_global() {
        let needs_none = |function: FunctionRef<'_>| {
            function.is_intrinsic() || (function.is_declaration() && is_hook(&function.name()))
        };
        return homes.of(value).is_some() || value.as_function().is_some_and(needs_none);
    }
    value.kind() != LLVMValueKind::LLVMBlockAddressValueKind
        && value.parts().all(|part| is_homely(part, homes))
}
