//! Bodies for other modules: functions that one module offers to the inliner of another.
//!
//! Contexts share no data, so a body travels as bitcode: a module with one function, the simplified
//! body that the `library` has of it. All globals that the body mentions are declarations under
//! their *link names*, which are unique in a session. So a static variable, a string or a
//! thread-local of the original module stays that module's own, wherever the body is inlined.
//! `foreign` unpacks parcels.
//!
//! Invariants:
//! - A parcel is made from the bound definition, and holds as long as [`Parcel::uses`] does: each
//!   version that uses it depends on all of that.
//! - It mentions nothing but names a linker knows: no labels, no private copies, no
//!   metadata that leads to other globals.
//! - Constants it mentions come with their values if they are small.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};

use inkwell::llvm_sys::LLVMLinkage;
use inkwell::llvm_sys::bit_writer::LLVMWriteBitcodeToMemoryBuffer;
use inkwell::llvm_sys::core::{
    LLVMDisposeValueMetadataEntries, LLVMGetMDKindIDInContext,
    LLVMInstructionGetAllMetadataOtherThanDebugLoc, LLVMSetMetadata,
    LLVMValueMetadataEntriesGetKind,
};
use rustc_hash::FxHashMap;

use crate::candidates::Wanted;
use crate::compile::{Compile, Dependence, DependenceKind};
use crate::context::{Buffer, LlvmContext};
use crate::copying::{Copying, Unit};
use crate::error::CodegenError;
use crate::handles::{FunctionRef, InstructionRef, ValueRef};
use crate::instrument::is_hook;
use crate::library::{Entry, globals};
use crate::plan::{Access, ModulePlan};
use crate::planning::Planning;
use crate::reader::Reader;
use crate::source::Source;
use crate::summary::{Kind, SymbolId};
use crate::survey::scan;

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

/// The simplified body of one function; see the module.
#[derive(Debug)]
pub struct Parcel {
    /// Identifies the parcel in its process.
    pub(crate) number: u64,
    name: Box<str>,
    pub(crate) bitcode: Box<[u8]>,
    /// Instructions after simplification.
    pub(crate) instructions: u32,
    mentions: Vec<Box<str>>,
    near: HashSet<Box<str>>,
    callees: Vec<Box<str>>,
    uses: Vec<Dependence>,
    has_assembly: bool,
}

impl Parcel {
    /// The function's link name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Instructions after simplification.
    #[must_use]
    pub fn instructions(&self) -> u32 {
        self.instructions
    }

    /// Link names of the functions it calls directly.
    pub fn callees(&self) -> impl Iterator<Item = &str> {
        self.callees.iter().map(|name| &**name)
    }

    /// Link names of all globals it mentions, which mean the same as in its own module.
    pub fn mentions(&self) -> impl Iterator<Item = &str> {
        self.mentions.iter().map(|name| &**name)
    }

    /// The symbols of its module that it was made of, the function itself included.
    #[must_use]
    pub fn uses(&self) -> &[Dependence] {
        &self.uses
    }

    /// True if it contains assembly, whose text may name symbols that are not in `mentions`.
    #[must_use]
    pub fn has_assembly(&self) -> bool {
        self.has_assembly
    }

    /// True for data that can be addressed directly.
    pub(crate) fn is_near(&self, name: &str) -> bool {
        self.near.contains(name)
    }
}

impl Reader {
    /// The body of `function` for other modules; `None` if it may not be inlined, or cannot travel.
    /// Only two settings of `how` matter: the tier, which limits its size, and contraction.
    ///
    /// # Errors
    /// A body that cannot be read; an error reported by LLVM; that it was cancelled.
    pub fn parcel(
        &mut self,
        plan: &ModulePlan,
        function: SymbolId,
        how: &Compile,
    ) -> Result<Option<Parcel>, CodegenError> {
        self.watched(how, |reader| {
            let made = reader.try_parcel(plan, function, how);
            match reader.is_cancelled() {
                // A body that was not simplified because of a cancellation is not unfit to travel.
                true => Err(reader.cancelled("parcel")),
                false => made,
            }
        })
    }

    fn try_parcel(
        &mut self,
        plan: &ModulePlan,
        function: SymbolId,
        how: &Compile,
    ) -> Result<Option<Parcel>, CodegenError> {
        let how = Compile::at(how.tier).contracting(how.contract);
        let old = *self.function(function)?;
        let body = Source { reader: self, plan }.candidate(old);
        if body.map(|body| *body) != Some(old) {
            return Ok(None);
        }
        self.stock(plan, Wanted::Body(function), &how);
        let source = Source { reader: self, plan };
        let Some(entry) = self.library().entry(plan, function) else {
            return Ok(None);
        };
        if entry.instructions > Planning::new(source, &how).most_kept() {
            return Ok(None);
        }
        let name = &*plan.import(function).name;
        let module = source.fresh("parcel");
        let mut copying = Copying::new(source, &how, "parcel", &module);
        let linkage = LLVMLinkage::LLVMExternalLinkage;
        copying.define_simplified(source.value(function), entry, name, linkage)?;
        copying.copy_pending()?;
        let (contents, homes) = copying.finish_with_homes()?;
        // A label of the module's assembly means nothing elsewhere.
        let local = contents.has_asm && self.summary().has_inline_asm;
        if contents.is_split || local || contents.needs_passes || contents.has_matrices {
            return Ok(None);
        }
        let unit = Unit { module, contents };
        let mentioned = self.mentioned(plan, &unit, &homes);
        Ok(mentioned.and_then(|mentioned| self.pack(&unit, name, entry, mentioned)))
    }

    /// The globals that a unit with one function mentions; `None` if one of them has no link name.
    fn mentioned<'u>(
        &self,
        plan: &ModulePlan,
        unit: &'u Unit,
        homes: &FxHashMap<String, SymbolId>,
    ) -> Option<Mentioned<'u>> {
        let mut near = HashSet::new();
        let mut known: HashMap<ValueRef<'u>, Box<str>> = HashMap::new();
        for global in globals(&unit.module) {
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
            let thread_local = self.summary().symbols[id.index()].kind == Kind::ThreadLocal;
            if import.access == Access::Near && !thread_local {
                near.insert(text.clone());
            }
            known.insert(global, text);
        }
        Some(Mentioned { near, known })
    }

    /// Writes a unit with one function.
    fn pack(
        &self,
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
        strip(self.context(), function);
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
