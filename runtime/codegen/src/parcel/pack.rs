//! Makes parcels.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};

use inkwell::llvm_sys::bit_writer::LLVMWriteBitcodeToMemoryBuffer;
use inkwell::llvm_sys::core::{
    LLVMDisposeValueMetadataEntries, LLVMGetMDKindIDInContext,
    LLVMInstructionGetAllMetadataOtherThanDebugLoc, LLVMSetMetadata,
    LLVMValueMetadataEntriesGetKind,
};
use rustc_hash::FxHashMap;

use super::Parcel;
use crate::candidates::Wanted;
use crate::compile::Compile;
use crate::context::{Buffer, LlvmContext};
use crate::copy::UnitCopy;
use crate::dependence::{Dependence, DependenceKind};
use crate::error::CodegenError;
use crate::handles::{FunctionRef, InstructionRef, ValueRef};
use crate::instrument::is_hook;
use crate::library::Entry;
use crate::library::stock::stock;
use crate::plan::{Access, ModulePlan};
use crate::planning::Planning;
use crate::reader::Reader;
use crate::source::Source;
use crate::summary::{Kind, ModuleSummary, SymbolId};
use crate::survey::scan;
use crate::unit::Unit;

/// Metadata of instructions that travels. The rest may lead to globals or debug
/// information; all of it may be left out.
const METADATA: [&str; 17] = [
    "alias.scope",
    "align",
    "dereferenceable",
    "dereferenceable_or_null",
    "fpmath",
    "invariant.group",
    "invariant.load",
    "llvm.access.group",
    "llvm.loop",
    "noalias",
    "nonnull",
    "noundef",
    "prof",
    "range",
    "tbaa",
    "tbaa.struct",
    "unpredictable",
];

/// The body of `function` for other modules; `None` if it may not be inlined, or cannot travel.
pub(crate) fn parcel(
    reader: &mut Reader,
    plan: &ModulePlan,
    function: SymbolId,
    how: &Compile,
) -> Result<Option<Parcel>, CodegenError> {
    reader.watched(how, |reader| {
        let made = try_parcel(reader, plan, function, how);
        match reader.is_cancelled() {
            // A body that was not simplified because of a cancellation is not unfit to travel.
            true => Err(reader.cancelled("parcel")),
            false => made,
        }
    })
}

fn try_parcel(
    reader: &mut Reader,
    plan: &ModulePlan,
    function: SymbolId,
    how: &Compile,
) -> Result<Option<Parcel>, CodegenError> {
    let how = Compile::at(how.tier).contracting(how.contract);
    let old = *reader.function(function)?;
    let body = Source { reader, plan }.candidate(old);
    if body.map(|body| *body) != Some(old) {
        return Ok(None);
    }
    stock(reader, plan, Wanted::Body(function), &how);
    let source = Source { reader, plan };
    let Some(entry) = reader.library().entry(plan, function) else {
        return Ok(None);
    };
    if entry.instructions > Planning::new(source, &how).most_kept() {
        return Ok(None);
    }
    let name = &*plan.import(function).name;
    let module = source.fresh("parcel");
    let mut copy = UnitCopy::new(source, &how, "parcel", &module);
    copy.simplified(function, entry, name)?;
    let (contents, homes) = copy.finish_with_homes()?;
    // A label of the module's assembly means nothing elsewhere.
    let local = contents.has_asm && reader.summary().has_inline_asm;
    if contents.is_split || local || contents.needs_passes || contents.has_matrices {
        return Ok(None);
    }
    let unit = Unit { module, contents };
    let mentioned = mentioned(reader.summary(), plan, &unit, &homes);
    Ok(mentioned.and_then(|mentioned| pack(reader.context(), &unit, name, entry, mentioned)))
}

/// The globals that a unit with one function mentions; `None` if one of them has no link name.
fn mentioned<'u>(
    summary: &ModuleSummary,
    plan: &ModulePlan,
    unit: &'u Unit,
    homes: &FxHashMap<String, SymbolId>,
) -> Option<Mentioned<'u>> {
    let mut near = HashSet::new();
    let mut known: HashMap<ValueRef<'u>, Box<str>> = HashMap::new();
    for global in unit.module.globals() {
        if global.as_function().is_some_and(FunctionRef::is_intrinsic) {
            continue;
        }
        let text: Box<str> = global.name().into();
        if is_hook(&text) && !homes.contains_key(&*text) {
            known.insert(global, text);
            continue;
        }
        let id = *homes.get(&*text)?;
        let import = plan.import(id);
        let thread_local = summary.symbols[id.index()].kind == Kind::ThreadLocal;
        if import.access == Access::Near && !thread_local {
            near.insert(text.clone());
        }
        known.insert(global, text);
    }
    Some(Mentioned { near, known })
}

/// Writes a unit with one function.
fn pack(
    context: &LlvmContext,
    unit: &Unit,
    name: &str,
    entry: &Entry,
    mentioned: Mentioned<'_>,
) -> Option<Parcel> {
    static LATEST: AtomicU64 = AtomicU64::new(0);
    let Mentioned { near, known } = mentioned;
    let function = unit.module.function(name)?;
    let callees = scan(function).callees;
    let callees = callees.iter().filter_map(|callee| known.get(callee));
    let callees = callees
        .filter(|callee| &***callee != name)
        .cloned()
        .collect();
    strip(context, function);
    // SAFETY: a live module, all of whose values are its own; the buffer is ours.
    let buffer = unsafe { Buffer::from_raw(LLVMWriteBitcodeToMemoryBuffer(unit.module.raw())) };
    Some(Parcel {
        // Relaxed: only its being unique counts.
        number: LATEST.fetch_add(1, Ordering::Relaxed),
        bitcode: buffer.bytes().into(),
        instructions: entry.instructions,
        mentions: known.into_values().filter(|text| **text != *name).collect(),
        near,
        callees,
        uses: uses(unit, entry),
        has_assembly: unit.contents.has_asm,
        name: name.into(),
    })
}

/// The globals that a unit with one function mentions, with their link names, and the names of data
/// near it.
struct Mentioned<'u> {
    near: HashSet<Box<str>>,
    known: HashMap<ValueRef<'u>, Box<str>>,
}

/// The symbols that a unit made of the simplified body `entry` depends on.
fn uses(unit: &Unit, entry: &Entry) -> Vec<Dependence> {
    let body = entry.uses.iter().map(|used| Dependence {
        symbol: used.symbol,
        kind: used.kind,
    });
    let facts = unit.contents.facts.iter().map(|&symbol| Dependence {
        symbol,
        kind: DependenceKind::Fact,
    });
    let mut uses: Vec<Dependence> = body.chain(facts).collect();
    uses.sort_unstable();
    uses.dedup_by_key(|used| used.symbol);
    uses
}

/// Removes the metadata of instructions of a complete function that does not travel.
fn strip(context: &LlvmContext, function: FunctionRef<'_>) {
    let kept = METADATA.map(|name| {
        let (start, length) = (name.as_ptr().cast(), name.len() as u32);
        // SAFETY: a live context; pointer and length describe the name.
        unsafe { LLVMGetMDKindIDInContext(context.raw(), start, length) }
    });
    for instruction in function.instructions() {
        strip_instruction(instruction, &kept);
    }
}

fn strip_instruction(instruction: InstructionRef<'_>, kept: &[u32]) {
    let mut count = 0;
    // SAFETY: a live instruction; the entries are a copy of ours, as many as counted, and are
    // disposed once.
    unsafe {
        let instruction = instruction.raw();
        let entries = LLVMInstructionGetAllMetadataOtherThanDebugLoc(instruction, &mut count);
        if entries.is_null() {
            return;
        }
        for index in 0..count {
            let kind = LLVMValueMetadataEntriesGetKind(entries, index as u32);
            if !kept.contains(&kind) {
                LLVMSetMetadata(instruction, kind, std::ptr::null_mut());
            }
        }
        LLVMDisposeValueMetadataEntries(entries);
    }
}
