//! Debug information of a unit: source lines of its instructions and, for a debugger, places of
//! source variables.
//!
//! A function's own debug information refers to its whole compile unit, types and all, and so is
//! dropped from every unit. If requested ([`Compile::lines`], [`Compile::variables`]), places and
//! records of variables are first read from the copied body. Then the minimum that a debugger needs
//! is written: one compile unit, one subprogram for each function copied, locations, and
//! [`variables`] with the [`types`] near to them.
//!
//! Inlining done earlier, by the compiler that made the bitcode or while the callee was simplified,
//! is kept. Its locations name the call they are inlined at, and the inlined function gets a
//! subprogram as well.
//!
//! # Invariants
//! - The unit reaches nothing of the reader's debug information except files, namespaces, and types
//!   that refer to nothing.
//! - The outermost scope of a location is the subprogram of the function it is in.
//! - Every call in a function with a subprogram has a location, as LLVM's inliner wants.
//!
//! [`Compile::lines`]: crate::Compile::lines
//! [`Compile::variables`]: crate::Compile::variables
//!
//! # Why
//! Debug info is dropped from function units: each would carry its whole compile unit. With `--gdb`
//! it is written anew, one compile unit and one subprogram for each function (`codegen::lines`).
//! Code then lies in private memory: the kernel lets debuggers write breakpoints there, but not
//! into pages of a shared file.

mod nodes;
mod types;
mod variables;

use std::ptr::{null, null_mut};

use inkwell::llvm_sys::debuginfo::{
    LLVMCreateDIBuilder, LLVMDIBuilderCreateCompileUnit, LLVMDIBuilderCreateDebugLocation,
    LLVMDIBuilderCreateFunction, LLVMDIBuilderCreateLexicalBlock,
    LLVMDIBuilderCreateLexicalBlockFile, LLVMDIBuilderCreateSubroutineType, LLVMDIBuilderFinalize,
    LLVMDIFlagZero, LLVMDILocationGetColumn, LLVMDILocationGetInlinedAt, LLVMDILocationGetLine,
    LLVMDILocationGetScope, LLVMDIScopeGetFile, LLVMDISubprogramGetLine, LLVMDWARFEmissionKind,
    LLVMDWARFSourceLanguage, LLVMDebugMetadataVersion, LLVMDisposeDIBuilder, LLVMGetMetadataKind,
    LLVMGetSubprogram, LLVMInstructionGetDebugLoc, LLVMInstructionSetDebugLoc, LLVMMetadataKind,
    LLVMSetSubprogram,
};
use inkwell::llvm_sys::prelude::{LLVMContextRef, LLVMDIBuilderRef, LLVMMetadataRef};
use rustc_hash::FxHashMap;

use crate::copying::Copying;
use crate::handles::{FunctionRef, InstructionRef};
use nodes::{child, is_namespace, operand, printed, text};
use types::Types;
use variables::Record;

/// The version every debugger reads, with the fewest sections.
const DWARF_VERSION: u64 = 4;
const PRODUCER: &str = "uruk";

/// Operands of LLVM's nodes (`DebugInfoMetadata.h`): (file, scope, name, ..) and (file,
/// scope, ..).
const SUBPROGRAM_NAME: usize = 2;
const SUBPROGRAM_TYPE: usize = 4;
const SUBPROGRAM_UNIT: usize = 5;
/// The same operand in subprograms.
const BLOCK_SCOPE: usize = 1;

/// Most calls inlined in each other, and most nested scopes. If there are more, or a scope is not
/// known, an instruction appears in the function itself.
const DEPTH: usize = 100;

/// The places of one function of the unit.
struct FunctionLines<'r> {
    new: FunctionRef<'r>,
    /// The name of its symbol.
    name: String,
    /// The subprogram it is copied from.
    subprogram: LLVMMetadataRef,
    file: LLVMMetadataRef,
    /// Each with its old location; calls may have none, which is null.
    places: Vec<(InstructionRef<'r>, LLVMMetadataRef)>,
    /// Records of its variables, if they are requested.
    records: Vec<Record<'r>>,
}

/// The debug information read from a unit before it is dropped.
#[derive(Default)]
pub(crate) struct Lines<'r> {
    functions: Vec<FunctionLines<'r>>,
}

/// Reads the places of all copied instructions, if lines are requested.
pub(crate) fn read<'r>(copying: &Copying<'r>) -> Lines<'r> {
    let read = |&(old, new): &(FunctionRef<'r>, FunctionRef<'r>)| {
        let mut function = read_function(old, new)?;
        if copying.how.variables {
            function.records = variables::read(copying, old, new);
        }
        Some(function)
    };
    Lines {
        functions: copying.defined.iter().filter_map(read).collect(),
    }
}

/// Writes the lines into the unit, whose own debug information was dropped.
pub(crate) fn write<'r>(copying: &Copying<'r>, lines: Lines<'r>) {
    let Some(first) = lines.functions.first() else {
        return;
    };
    let context = copying.source.reader.context();
    // SAFETY: only a number.
    let version = unsafe { LLVMDebugMetadataVersion() };
    let module = copying.module;
    module.set_flag(context, "Debug Info Version", u64::from(version));
    module.set_flag(context, "Dwarf Version", DWARF_VERSION);
    // SAFETY: a live module without a compile unit; pointers and lengths describe
    // strings, empty ones are null. The builder is finished before it is disposed,
    // and before the module is used.
    unsafe {
        let is_cpp = is_cpp(context.raw(), first.subprogram);
        let builder = LLVMCreateDIBuilder(module.raw());
        LLVMDIBuilderCreateCompileUnit(
            builder,
            match is_cpp {
                true => LLVMDWARFSourceLanguage::LLVMDWARFSourceLanguageC_plus_plus_14,
                false => LLVMDWARFSourceLanguage::LLVMDWARFSourceLanguageC99,
            },
            first.file,
            PRODUCER.as_ptr().cast(),
            PRODUCER.len(),
            i32::from(copying.optimizes()),
            null(),
            0,
            0,
            null(),
            0,
            // Names of functions, too: those of symbols are not the program's.
            LLVMDWARFEmissionKind::LLVMDWARFEmissionKindFull,
            0,
            1,
            0,
            null(),
            0,
            null(),
            0,
        );
        let mut writer = LineWriter {
            context: context.raw(),
            builder,
            optimized: i32::from(copying.optimizes()),
            inlined: FxHashMap::default(),
            scopes: FxHashMap::default(),
            variables: FxHashMap::default(),
            types: Types::new(context.raw(), builder, first.file),
            describes: copying.how.variables,
            is_cpp,
        };
        for function in &lines.functions {
            writer.function(function);
        }
        writer.types.fill();
        LLVMDIBuilderFinalize(builder);
        LLVMDisposeDIBuilder(builder);
    }
}

/// Writes locations and variables of functions of a unit.
struct LineWriter {
    context: LLVMContextRef,
    builder: LLVMDIBuilderRef,
    optimized: i32,
    /// Old subprogram -> new one, of functions that were inlined.
    inlined: FxHashMap<LLVMMetadataRef, LLVMMetadataRef>,
    /// (Old scope, new subprogram) -> new scope.
    scopes: FxHashMap<(LLVMMetadataRef, LLVMMetadataRef), LLVMMetadataRef>,
    /// (Old variable, new subprogram) -> new variable.
    variables: FxHashMap<(LLVMMetadataRef, LLVMMetadataRef), LLVMMetadataRef>,
    types: Types,
    /// True if functions get types, too.
    describes: bool,
    is_cpp: bool,
}

/// Translated locations of one function.
struct Locations {
    subprogram: LLVMMetadataRef,
    /// Old location -> new one.
    translated: FxHashMap<LLVMMetadataRef, LLVMMetadataRef>,
}

impl LineWriter {
    /// # Safety
    /// A live builder of the unit's module, after its compile unit was made.
    unsafe fn function(&mut self, function: &FunctionLines<'_>) {
        // SAFETY: by the caller's promise; files, locations and instructions are of this
        // context, and the latter of this function.
        unsafe {
            let subprogram = self.subprogram(function.subprogram, Some(&function.name));
            LLVMSetSubprogram(function.new.raw(), subprogram);
            let mut locations = Locations {
                subprogram,
                translated: FxHashMap::default(),
            };
            for &(instruction, old) in &function.places {
                let new = if old.is_null() {
                    // Line 0: made by the compiler.
                    LLVMDIBuilderCreateDebugLocation(self.context, 0, 0, subprogram, null_mut())
                } else {
                    self.location(&mut locations, old, DEPTH)
                };
                LLVMInstructionSetDebugLoc(instruction.raw(), new);
            }
            for record in &function.records {
                self.record(&mut locations, record);
            }
        }
    }

    /// # Safety
    /// As [`LineWriter::function`]; a live location.
    unsafe fn location(
        &mut self,
        locations: &mut Locations,
        old: LLVMMetadataRef,
        depth: usize,
    ) -> LLVMMetadataRef {
        if let Some(&new) = locations.translated.get(&old) {
            return new;
        }
        // SAFETY: by the caller's promise; nodes that a location refers to live as it does.
        unsafe {
            let (line, column) = (LLVMDILocationGetLine(old), LLVMDILocationGetColumn(old));
            let (subprogram, call) = self.home(locations, old, depth);
            let call = match call.is_null() {
                true => call,
                false => self.location(locations, call, depth - 1),
            };
            let scope = self.scope(LLVMDILocationGetScope(old), subprogram, DEPTH);
            let new = LLVMDIBuilderCreateDebugLocation(self.context, line, column, scope, call);
            locations.translated.insert(old, new);
            new
        }
    }

    /// The new subprogram that a location is in, and the old location of the call that it was
    /// inlined at, if it was.
    ///
    /// # Safety
    /// As [`LineWriter::location`].
    unsafe fn home(
        &mut self,
        locations: &Locations,
        old: LLVMMetadataRef,
        depth: usize,
    ) -> (LLVMMetadataRef, LLVMMetadataRef) {
        // SAFETY: by the caller's promise; nodes that a location refers to live as it does.
        unsafe {
            let call = LLVMDILocationGetInlinedAt(old);
            let callee = match call.is_null() || depth == 0 {
                true => None,
                false => self.inlined(LLVMDILocationGetScope(old)),
            };
            callee.map_or((locations.subprogram, null_mut()), |callee| (callee, call))
        }
    }

    /// The new scope for one within the function that has the new `subprogram`.
    ///
    /// # Safety
    /// As [`LineWriter::function`]; a live scope.
    unsafe fn scope(
        &mut self,
        old: LLVMMetadataRef,
        subprogram: LLVMMetadataRef,
        depth: usize,
    ) -> LLVMMetadataRef {
        if let Some(&known) = self.scopes.get(&(old, subprogram)) {
            return known;
        }
        // SAFETY: by the caller's promise; a scope's operands live as it does.
        unsafe {
            let kind = LLVMGetMetadataKind(old);
            let file = LLVMDIScopeGetFile(old);
            let is_block = matches!(
                kind,
                LLVMMetadataKind::LLVMDILexicalBlockMetadataKind
                    | LLVMMetadataKind::LLVMDILexicalBlockFileMetadataKind
            );
            let around = match is_block && depth > 0 {
                true => child(self.context, old, BLOCK_SCOPE),
                false => null_mut(),
            };
            let parent = match around.is_null() {
                true => subprogram,
                false => self.scope(around, subprogram, depth - 1),
            };
            let new = match kind {
                _ if file.is_null() => parent,
                LLVMMetadataKind::LLVMDILexicalBlockMetadataKind => {
                    LLVMDIBuilderCreateLexicalBlock(self.builder, parent, file, 0, 0)
                }
                _ if file == LLVMDIScopeGetFile(parent) => parent,
                _ => LLVMDIBuilderCreateLexicalBlockFile(self.builder, parent, file, 0),
            };
            self.scopes.insert((old, subprogram), new);
            new
        }
    }

    /// The new subprogram for that of a scope; `None` if it has none with a name.
    ///
    /// # Safety
    /// As [`LineWriter::function`]; a live scope.
    unsafe fn inlined(&mut self, scope: LLVMMetadataRef) -> Option<LLVMMetadataRef> {
        let mut scope = scope;
        for _ in 0..DEPTH {
            // SAFETY: a live scope, whose operands live as it does.
            unsafe {
                match LLVMGetMetadataKind(scope) {
                    LLVMMetadataKind::LLVMDISubprogramMetadataKind => {
                        if let Some(&known) = self.inlined.get(&scope) {
                            return Some(known);
                        }
                        text(operand(self.context, scope, SUBPROGRAM_NAME)?)?;
                        let new = self.subprogram(scope, None);
                        self.inlined.insert(scope, new);
                        return Some(new);
                    }
                    LLVMMetadataKind::LLVMDILexicalBlockMetadataKind
                    | LLVMMetadataKind::LLVMDILexicalBlockFileMetadataKind => {
                        scope = child(self.context, scope, BLOCK_SCOPE);
                        if scope.is_null() {
                            return None;
                        }
                    }
                    _ => return None,
                }
            }
        }
        None
    }

    /// A new subprogram for an old one, of a function with that symbol, if it has one.
    ///
    /// # Safety
    /// As [`LineWriter::function`]; a live subprogram.
    unsafe fn subprogram(&mut self, old: LLVMMetadataRef, symbol: Option<&str>) -> LLVMMetadataRef {
        // SAFETY: by the caller's promise; pointers and lengths describe names, or nothing.
        unsafe {
            let name = operand(self.context, old, SUBPROGRAM_NAME).and_then(|name| text(name));
            let name = name.as_deref().or(symbol).unwrap_or_default();
            // Debuggers show it demangled, but only of C++.
            let linked = symbol.filter(|&symbol| self.is_cpp && symbol != name);
            let (link, link_length) =
                linked.map_or((null(), 0), |it| (it.as_ptr().cast(), it.len()));
            let (file, line) = (LLVMDIScopeGetFile(old), LLVMDISubprogramGetLine(old));
            let (builder, flags) = (self.builder, LLVMDIFlagZero);
            let mut ty = match self.describes {
                true => self.types.copy(child(self.context, old, SUBPROGRAM_TYPE)),
                false => null_mut(),
            };
            if ty.is_null() {
                ty = LLVMDIBuilderCreateSubroutineType(builder, file, null_mut(), 0, flags);
            }
            // The linkage name shows the scope of a method.
            let around = child(self.context, old, BLOCK_SCOPE);
            let scope = match self.is_cpp && is_namespace(self.context, around) {
                true => around,
                false => file,
            };
            LLVMDIBuilderCreateFunction(
                builder,
                scope,
                name.as_ptr().cast(),
                name.len(),
                link,
                link_length,
                file,
                line,
                ty,
                0,
                1,
                line,
                flags,
                self.optimized,
            )
        }
    }
}

/// Whether a subprogram is of C++. All other languages are declared as C. Gdb expects certain
/// fields in each Rust type it knows by name; version 13 crashes if one is missing, also in native
/// programs.
///
/// # Safety
/// A live subprogram of the context.
unsafe fn is_cpp(context: LLVMContextRef, subprogram: LLVMMetadataRef) -> bool {
    // SAFETY: by the caller's promise; its operands live as it does.
    unsafe {
        let unit = child(context, subprogram, SUBPROGRAM_UNIT);
        !unit.is_null() && printed(context, unit).contains("_C_plus_plus")
    }
}

/// The places of `new`, a copy of `old`, if `old` has any.
fn read_function<'r>(old: FunctionRef<'r>, new: FunctionRef<'r>) -> Option<FunctionLines<'r>> {
    // SAFETY: a live function. Locations belong to the context, which outlives what is read
    // here.
    let (subprogram, file) = unsafe {
        let subprogram = LLVMGetSubprogram(old.raw());
        if subprogram.is_null() {
            return None;
        }
        (subprogram, LLVMDIScopeGetFile(subprogram))
    };
    if file.is_null() {
        return None;
    }
    let place = |instruction: InstructionRef<'r>| {
        // SAFETY: a live instruction; as above.
        let location = unsafe { LLVMInstructionGetDebugLoc(instruction.raw()) };
        let counts = !location.is_null() || instruction.callee().is_some();
        counts.then_some((instruction, location))
    };
    Some(FunctionLines {
        new,
        name: old.name(),
        subprogram,
        file,
        places: new.instructions().filter_map(place).collect(),
        records: Vec::new(),
    })
}
