//! Makes simplified bodies, and enters them in the library of a reader.

use inkwell::llvm_sys::LLVMValueKind;
use inkwell::llvm_sys::core::{LLVMGetPersonalityFn, LLVMHasPersonalityFn};
use rustc_hash::{FxHashMap, FxHashSet};

use uruk_base::Tier;

use super::{Entry, EntryUse, Homes, Library, Shelf};
use crate::candidates::{FoundCandidate, Missing, Wanted};
use crate::compile::Compile;
use crate::copy::UnitCopy;
use crate::dependence::DependenceKind;
use crate::error::CodegenError;
use crate::handles::{FunctionRef, ValueRef};
use crate::instrument::is_hook;
use crate::optimize;
use crate::plan::ModulePlan;
use crate::planning::Planning;
use crate::reader::Reader;
use crate::source::Source;
use crate::summary::SymbolId;
use crate::unit::{Unit, UnitContents};

/// Candidates that were copied to be simplified together.
struct Batch {
    unit: Unit,
    members: Vec<BatchMember>,
    /// Names on the shelf -> symbols of the reader's module.
    homes: FxHashMap<String, SymbolId>,
}

struct BatchMember {
    symbol: SymbolId,
    name: String,
    /// Symbols of the candidates it calls.
    callees: Vec<SymbolId>,
    /// A callee is not available, though it could be.
    short: bool,
    /// Callees that are not available because they are rare.
    rare: Vec<SymbolId>,
}

/// Simplifies wanted functions that are not in the library. A function that cannot be
/// simplified is no candidate: its own compile reports the error.
pub(crate) fn stock(reader: &mut Reader, plan: &ModulePlan, wanted: Wanted, how: &Compile) {
    reader.library_mut().prepare(plan, how.contract);
    let mut tried = Vec::new();
    let made = simplify(reader, plan, wanted, how, &mut tried);
    if reader.is_cancelled() {
        // A body that was not read for that reason is none the worse.
        return;
    }
    let library = reader.library_mut();
    library.note_tried(tried);
    if let Ok(Some(shelf)) = made {
        library.take(shelf);
    }
}

fn simplify(
    reader: &mut Reader,
    plan: &ModulePlan,
    wanted: Wanted,
    how: &Compile,
    tried: &mut Vec<SymbolId>,
) -> Result<Option<Shelf>, CodegenError> {
    let Some(mut batch) = gather(reader, plan, wanted, how, tried)? else {
        return Ok(None);
    };
    let instructions = batch.unit.contents.candidate_instructions;
    reader.context().gate().expect(instructions);
    let (tier, optnone) = (Tier::Optimized, reader.kinds().optnone);
    reader.run(
        &mut batch.unit,
        "callees",
        tier,
        |context, emitter, unit| optimize::simplify(context, emitter, unit, optnone),
    )?;
    Ok(Some(shelve(reader.library(), plan, batch)))
}

/// Copies the candidates that are missing into a unit; `tried` are their symbols.
fn gather(
    reader: &Reader,
    plan: &ModulePlan,
    wanted: Wanted,
    how: &Compile,
    tried: &mut Vec<SymbolId>,
) -> Result<Option<Batch>, CodegenError> {
    let source = Source { reader, plan };
    let mut planning = Planning::new(source, how);
    let missing = planning.missing_candidates(wanted)?;
    if missing.found.is_empty() {
        return Ok(None);
    }
    tried.extend(missing.found.iter().map(|found| found.callee.id));
    let module = source.fresh("callees");
    let mut copy = UnitCopy::new(source, how, "callees", &module);
    let made: FxHashSet<SymbolId> = tried.iter().copied().collect();
    let mut members = Vec::new();
    for found in &missing.found {
        let name = copy.define_candidate(&found.callee)?;
        members.push(member(source, name, found, &missing, &made));
        for callee in found
            .callees
            .iter()
            .filter_map(|callee| source.id(**callee))
        {
            if !made.contains(&callee)
                && let Some(entry) = planning.kept(callee)
            {
                copy.define_kept(callee, entry)?;
            }
        }
    }
    copy.copy_pending()?;
    let (contents, homes) = copy.finish_with_homes()?;
    Ok(Some(Batch {
        unit: Unit { module, contents },
        members,
        homes,
    }))
}

/// The properties of a member of a batch before it is simplified; `made` are the symbols of all
/// members.
fn member(
    source: Source<'_>,
    name: String,
    found: &FoundCandidate<'_>,
    missing: &Missing<'_>,
    made: &FxHashSet<SymbolId>,
) -> BatchMember {
    let symbol = |callee: &FunctionRef<'_>| source.id(**callee);
    let is_short = |callee: &FunctionRef<'_>| {
        let kept_short = symbol(callee).is_some_and(|symbol| {
            !made.contains(&symbol) && source.reader.library().is_short(symbol)
        });
        missing.left_out.contains(callee) || kept_short
    };
    let is_rare = |callee: &&FunctionRef<'_>| missing.rare.contains(*callee);
    let rare = found.callees.iter().filter(is_rare);
    BatchMember {
        symbol: found.callee.id,
        name,
        callees: found.callees.iter().filter_map(symbol).collect(),
        short: found.callees.iter().any(is_short),
        rare: rare.filter_map(symbol).collect(),
    }
}

fn shelve(library: &Library, plan: &ModulePlan, batch: Batch) -> Shelf {
    let Unit { module, contents } = batch.unit;
    let globals = module.globals();
    let homes = globals.filter_map(|it| Some((it.raw(), *batch.homes.get(&it.name())?)));
    let homes = Homes(homes.collect());
    let common = common_uses(plan, &contents);
    let members = batch.members.iter();
    let by_symbol: FxHashMap<SymbolId, &BatchMember> =
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
            let entry = describe(library, plan, member, &by_symbol, &common, entry);
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
    library: &Library,
    plan: &ModulePlan,
    member: &BatchMember,
    members: &FxHashMap<SymbolId, &BatchMember>,
    common: &FxHashSet<EntryUse>,
    entry: Entry,
) -> Entry {
    let mut uses = common.clone();
    let (mut short, mut rare) = (false, FxHashSet::default());
    for symbol in closure(member.symbol, members) {
        if let Some(member) = members.get(&symbol) {
            short |= member.short;
            rare.extend(&member.rare);
        } else if let Some(entry) = library.entry(plan, symbol) {
            uses.extend(entry.uses.iter().copied());
            rare.extend(&entry.rare);
        } else {
            // Its body was not in sight.
            continue;
        }
        uses.insert(EntryUse::of(plan, symbol, DependenceKind::Body));
    }
    Entry {
        uses: uses.into_iter().collect(),
        short,
        rare: rare.into_iter().collect(),
        ..entry
    }
}

/// The symbols that each member of a batch may be made of.
fn common_uses(plan: &ModulePlan, contents: &UnitContents) -> FxHashSet<EntryUse> {
    let inlined = contents
        .inlined
        .iter()
        .map(|&id| (id, DependenceKind::Body));
    let facts = contents.facts.iter().map(|&id| (id, DependenceKind::Fact));
    let both = inlined.chain(facts);
    both.map(|(symbol, kind)| EntryUse::of(plan, symbol, kind))
        .collect()
}

/// `start`, its callees in the batch, directly and through others, and one step beyond.
fn closure(start: SymbolId, members: &FxHashMap<SymbolId, &BatchMember>) -> FxHashSet<SymbolId> {
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
