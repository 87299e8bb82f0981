//! Line tables of a unit: which source line its instructions come from.
//!
//! A function's own debug information hangs on its whole compile unit, types and all,
//! and so is dropped from every unit. Where somebody asks ([`Compile::lines`]), places
//! are read off the copied instructions before that, and written back as little as a
//! debugger needs: one compile unit, one subprogram without types for each function
//! copied, and locations.
//!
//! What was inlined before it came to us, by the compiler that made the bitcode or while
//! the callee was simplified, stays so: its locations name the call they are inlined at,
//! and the function they come from gets a subprogram as well.
//!
//! # Invariants
//! - Nothing of the reader's debug information is reached from the unit but files.
//! - The outermost scope of a location is the subprogram of the function it is in.
//! - Every call in a function with a subprogram has a location, as LLVM's inliner wants.
//!
//! [`Compile::lines`]: crate::Compile::lines
//!
//! # Why
//! Debug info is dropped from function units: each would carry its whole compile unit. With
//! `--gdb` line tables are written anew, one compile unit and one subprogram without types for
//! each function (`codegen::lines`), and code lies in private memory: the kernel lets debuggers
//! write breakpoints there, but not into pages of a shared file.

use std::ptr::{null, null_mut};
use std::slice::from_raw_parts;

use inkwell::llvm_sys::core::{
    LLVMGetMDNodeNumOperands, LLVMGetMDNodeOperands, LLVMGetMDString, LLVMMetadataAsValue,
    LLVMValueAsMetadata,
};
use inkwell::llvm_sys::debuginfo::{
    LLVMCreateDIBuilder, LLVMDIBuilderCreateCompileUnit, LLVMDIBuilderCreateDebugLocation,
    LLVMDIBuilderCreateFunction, LLVMDIBuilderCreateLexicalBlockFile,
    LLVMDIBuilderCreateSubroutineType, LLVMDIBuilderFinalize, LLVMDIFlagZero,
    LLVMDILocationGetColumn, LLVMDILocationGetInlinedAt, LLVMDILocationGetLine,
    LLVMDILocationGetScope, LLVMDIScopeGetFile, LLVMDISubprogramGetLine, LLVMDWARFEmissionKind,
    LLVMDWARFSourceLanguage, LLVMDebugMetadataVersion, LLVMDisposeDIBuilder, LLVMGetMetadataKind,
    LLVMGetSubprogram, LLVMInstructionGetDebugLoc, LLVMInstructionSetDebugLoc, LLVMMetadataKind,
    LLVMSetSubprogram,
};
use inkwell::llvm_sys::prelude::{LLVMContextRef, LLVMDIBuilderRef, LLVMMetadataRef, LLVMValueRef};
use rustc_hash::FxHashMap;

use crate::copying::Copying;
use crate::handles::{FunctionRef, InstructionRef};

/// The version every debugger reads, with the fewest sections.
const DWARF_VERSION: u64 = 4;
const PRODUCER: &str = "uruk";

/// Operands of LLVM's nodes (`DebugInfoMetadata.h`): (file, scope, name, ..) and (file,
/// scope, ..).
const SUBPROGRAM_NAME: usize = 2;
const BLOCK_SCOPE: usize = 1;

/// Calls that are inlined in each other, at most; and scopes. Where there are more, or a
/// scope is not known, an instruction seems to stand in the function itself.
const DEPTH: usize = 100;

/// The places of one function of the unit.
struct Function<'r> {
    new: FunctionRef<'r>,
    name: String,
    file: LLVMMetadataRef,
    line: u32,
    /// With its old location; calls may have none, which is null.
    places: Vec<(InstructionRef<'r>, LLVMMetadataRef)>,
}

/// What is known of a unit before its debug information is dropped.
#[derive(Default)]
pub(crate) struct Lines<'r> {
    functions: Vec<Function<'r>>,
}

impl<'r> Copying<'r> {
    /// Reads the places of all copied instructions, if lines are asked for.
    pub(crate) fn take_lines(&self) -> Lines<'r> {
        let read = |&(old, new): &(FunctionRef<'r>, FunctionRef<'r>)| read_function(old, new);
        Lines {
            functions: self.defined.iter().filter_map(read).collect(),
        }
    }

    /// Writes them into the unit, whose own debug information is gone.
    pub(crate) fn put_lines(&self, lines: Lines<'r>) {
        let Some(first) = lines.functions.first() else {
            return;
        };
        let context = self.source.reader.context();
        // SAFETY: only a number.
        let version = unsafe { LLVMDebugMetadataVersion() };
        let module = self.module;
        module.set_flag(context, "Debug Info Version", u64::from(version));
        module.set_flag(context, "Dwarf Version", DWARF_VERSION);
        // SAFETY: a live module without a compile unit; pointers and lengths describe
        // strings, empty ones are null. The builder is finished before it is disposed,
        // and before the module is used.
        unsafe {
            let builder = LLVMCreateDIBuilder(module.raw());
            LLVMDIBuilderCreateCompileUnit(
                builder,
                LLVMDWARFSourceLanguage::LLVMDWARFSourceLanguageC99,
                first.file,
                PRODUCER.as_ptr().cast(),
                PRODUCER.len(),
                i32::from(self.optimizes()),
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
            let mut writer = Writer {
                context: context.raw(),
                builder,
                optimized: i32::from(self.optimizes()),
                inlined: FxHashMap::default(),
            };
            for function in &lines.functions {
                writer.function(function);
            }
            LLVMDIBuilderFinalize(builder);
            LLVMDisposeDIBuilder(builder);
        }
    }
}

/// Writes locations of functions of a unit.
struct Writer {
    context: LLVMContextRef,
    builder: LLVMDIBuilderRef,
    optimized: i32,
    /// Old subprogram -> new one, of functions that were inlined.
    inlined: FxHashMap<LLVMMetadataRef, LLVMMetadataRef>,
}

/// Of one function: what its locations are translated to.
struct Locations {
    subprogram: LLVMMetadataRef,
    /// (Subprogram, file) -> scope of lines of the file.
    scopes: FxHashMap<(LLVMMetadataRef, LLVMMetadataRef), LLVMMetadataRef>,
    /// Old location -> new one.
    translated: FxHashMap<LLVMMetadataRef, LLVMMetadataRef>,
}

impl Writer {
    /// # Safety
    /// A live builder of the unit's module, after its compile unit was made.
    unsafe fn function(&mut self, function: &Function<'_>) {
        // SAFETY: by the caller's promise; files, locations and instructions are of this
        // context, and the latter of this function.
        unsafe {
            let subprogram = self.subprogram(&function.name, function.file, function.line);
            LLVMSetSubprogram(function.new.raw(), subprogram);
            let mut locations = Locations {
                subprogram,
                scopes: FxHashMap::from_iter([((subprogram, function.file), subprogram)]),
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
        }
    }

    /// # Safety
    /// As [`Writer::function`]; a live location.
    unsafe fn location(
        &mut self,
        locations: &mut Locations,
        old: LLVMMetadataRef,
        depth: usize,
    ) -> LLVMMetadataRef {
        if let Some(&new) = locations.translated.get(&old) {
            return new;
        }
        // SAFETY: by the caller's promise; what a location refers to lives as it does.
        unsafe {
            let (line, column) = (LLVMDILocationGetLine(old), LLVMDILocationGetColumn(old));
            let scope = LLVMDILocationGetScope(old);
            let call = LLVMDILocationGetInlinedAt(old);
            let callee = match call.is_null() || depth == 0 {
                true => None,
                false => self.inlined(scope),
            };
            let (subprogram, call) = match callee {
                Some(callee) => (callee, self.location(locations, call, depth - 1)),
                None => (locations.subprogram, null_mut()),
            };
            let file = LLVMDIScopeGetFile(scope);
            let scope = match file.is_null() {
                true => subprogram,
                false => *(locations.scopes.entry((subprogram, file))).or_insert_with(|| {
                    LLVMDIBuilderCreateLexicalBlockFile(self.builder, subprogram, file, 0)
                }),
            };
            let new = LLVMDIBuilderCreateDebugLocation(self.context, line, column, scope, call);
            locations.translated.insert(old, new);
            new
        }
    }

    /// The new subprogram for that of a scope; `None` if it has none with a name.
    ///
    /// # Safety
    /// As [`Writer::function`]; a live scope.
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
                        let name = text(self.operand(scope, SUBPROGRAM_NAME)?)?;
                        let file = LLVMDIScopeGetFile(scope);
                        let line = LLVMDISubprogramGetLine(scope);
                        let new = self.subprogram(&name, file, line);
                        self.inlined.insert(scope, new);
                        return Some(new);
                    }
                    LLVMMetadataKind::LLVMDILexicalBlockMetadataKind
                    | LLVMMetadataKind::LLVMDILexicalBlockFileMetadataKind => {
                        scope = LLVMValueAsMetadata(self.operand(scope, BLOCK_SCOPE)?);
                    }
                    _ => return None,
                }
            }
        }
        None
    }

    /// An operand of a node, as a value; `None` if there is none.
    ///
    /// # Safety
    /// A live node of the context.
    unsafe fn operand(&self, node: LLVMMetadataRef, index: usize) -> Option<LLVMValueRef> {
        // SAFETY: by the caller's promise; there is room for all operands.
        unsafe {
            let value = LLVMMetadataAsValue(self.context, node);
            let mut operands = vec![null_mut(); LLVMGetMDNodeNumOperands(value) as usize];
            LLVMGetMDNodeOperands(value, operands.as_mut_ptr());
            let found = *operands.get(index)?;
            (!found.is_null()).then_some(found)
        }
    }

    /// # Safety
    /// As [`Writer::function`]; a live file, or null.
    unsafe fn subprogram(&self, name: &str, file: LLVMMetadataRef, line: u32) -> LLVMMetadataRef {
        let (start, length) = (name.as_ptr().cast(), name.len());
        let (builder, flags) = (self.builder, LLVMDIFlagZero);
        // SAFETY: by the caller's promise; pointer and length describe the name.
        unsafe {
            let ty = LLVMDIBuilderCreateSubroutineType(builder, file, null_mut(), 0, flags);
            LLVMDIBuilderCreateFunction(
                builder,
                file,
                start,
                length,
                null(),
                0,
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

/// The text of a metadata string.
///
/// # Safety
/// A live value.
unsafe fn text(value: LLVMValueRef) -> Option<String> {
    let mut length = 0;
    // SAFETY: by the caller's promise; LLVM returns what it keeps, or null.
    unsafe {
        let start = LLVMGetMDString(value, &mut length);
        let bytes = (!start.is_null()).then(|| from_raw_parts(start.cast(), length as usize))?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    }
}

/// The places of `new`, a copy of `old`, if `old` has any.
fn read_function<'r>(old: FunctionRef<'r>, new: FunctionRef<'r>) -> Option<Function<'r>> {
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
    Some(Function {
        new,
        name: old.name(),
        file,
        // SAFETY: a live subprogram.
        line: unsafe { LLVMDISubprogramGetLine(subprogram) },
        places: new.instructions().filter_map(place).collect(),
    })
}
