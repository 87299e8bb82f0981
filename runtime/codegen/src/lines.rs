//! Line tables of a unit: which source line its instructions come from.
//!
//! A function's own debug information hangs on its whole compile unit, types and all,
//! and so is dropped from every unit. Where somebody asks ([`Compile::lines`]), places
//! are read off the copied instructions before that, and written back as little as a
//! debugger needs: one compile unit, one subprogram without types for each function
//! copied, and locations.
//!
//! An instruction that was inlined before it came to us gets the place it comes from,
//! as if it stood in the function itself: LLVM-C does not tell which function that was.
//!
//! # Invariants
//! - Nothing of the reader's debug information is reached from the unit but files.
//! - Every call in a function with a subprogram has a location, as LLVM's inliner wants.
//!
//! [`Compile::lines`]: crate::Compile::lines

use std::ptr::{null, null_mut};

use inkwell::llvm_sys::core::{
    LLVMGetFirstBasicBlock, LLVMGetFirstInstruction, LLVMGetInstructionOpcode,
    LLVMGetNextBasicBlock, LLVMGetNextInstruction,
};
use inkwell::llvm_sys::debuginfo::{
    LLVMCreateDIBuilder, LLVMDIBuilderCreateCompileUnit, LLVMDIBuilderCreateDebugLocation,
    LLVMDIBuilderCreateFunction, LLVMDIBuilderCreateLexicalBlockFile,
    LLVMDIBuilderCreateSubroutineType, LLVMDIBuilderFinalize, LLVMDIFlagZero,
    LLVMDILocationGetColumn, LLVMDILocationGetLine, LLVMDILocationGetScope, LLVMDIScopeGetFile,
    LLVMDISubprogramGetLine, LLVMDWARFEmissionKind, LLVMDWARFSourceLanguage,
    LLVMDebugMetadataVersion, LLVMDisposeDIBuilder, LLVMGetSubprogram, LLVMInstructionGetDebugLoc,
    LLVMInstructionSetDebugLoc, LLVMSetSubprogram,
};
use inkwell::llvm_sys::prelude::{LLVMDIBuilderRef, LLVMMetadataRef, LLVMValueRef};
use rustc_hash::FxHashMap;

use crate::body::is_call;
use crate::extract::{Extraction, set_flag};
use crate::reader::value_name;

/// The version every debugger reads, with the fewest sections.
const DWARF_VERSION: u64 = 4;
const PRODUCER: &str = "uruk";

/// Where an instruction comes from.
struct Place {
    file: LLVMMetadataRef,
    line: u32,
    column: u32,
}

/// The places of one function of the unit.
struct Function {
    new: LLVMValueRef,
    name: String,
    file: LLVMMetadataRef,
    line: u32,
    /// `None` for calls without a place.
    places: Vec<(LLVMValueRef, Option<Place>)>,
}

/// What is known of a unit before its debug information is dropped.
#[derive(Default)]
pub(crate) struct Lines {
    functions: Vec<Function>,
}

impl Extraction<'_> {
    /// Reads the places of all copied instructions, if lines are asked for.
    pub(crate) fn take_lines(&self) -> Lines {
        let read = |&(old, new): &(LLVMValueRef, LLVMValueRef)| read_function(old, new);
        Lines {
            functions: self.defined.iter().filter_map(read).collect(),
        }
    }

    /// Writes them into the unit, whose own debug information is gone.
    pub(crate) fn put_lines(&self, lines: Lines) {
        let Some(first) = lines.functions.first() else {
            return;
        };
        let (context, module) = (self.reader.context().raw(), self.module.raw());
        // SAFETY: only a number.
        let version = unsafe { LLVMDebugMetadataVersion() };
        set_flag(context, module, "Debug Info Version", u64::from(version));
        set_flag(context, module, "Dwarf Version", DWARF_VERSION);
        // SAFETY: a live module without a compile unit; pointers and lengths describe
        // strings, empty ones are null. The builder is finished before it is disposed,
        // and before the module is used.
        unsafe {
            let builder = LLVMCreateDIBuilder(module);
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
            for function in &lines.functions {
                self.write_function(builder, function);
            }
            LLVMDIBuilderFinalize(builder);
            LLVMDisposeDIBuilder(builder);
        }
    }

    /// # Safety
    /// A live builder of the unit's module, after its compile unit was made.
    unsafe fn write_function(&self, builder: LLVMDIBuilderRef, function: &Function) {
        let context = self.reader.context().raw();
        // SAFETY: by the caller's promise; files, lines and instructions are of this
        // context, and of this function.
        unsafe {
            let ty = LLVMDIBuilderCreateSubroutineType(
                builder,
                function.file,
                null_mut(),
                0,
                LLVMDIFlagZero,
            );
            let subprogram = LLVMDIBuilderCreateFunction(
                builder,
                function.file,
                function.name.as_ptr().cast(),
                function.name.len(),
                null(),
                0,
                function.file,
                function.line,
                ty,
                0,
                1,
                function.line,
                LLVMDIFlagZero,
                i32::from(self.optimizes()),
            );
            LLVMSetSubprogram(function.new, subprogram);
            let mut scopes = FxHashMap::default();
            scopes.insert(function.file, subprogram);
            for (instruction, place) in &function.places {
                let (line, column, file) = match place {
                    Some(place) => (place.line, place.column, place.file),
                    // Line 0: made by the compiler.
                    None => (0, 0, function.file),
                };
                let scope = *scopes.entry(file).or_insert_with(|| {
                    LLVMDIBuilderCreateLexicalBlockFile(builder, subprogram, file, 0)
                });
                let location =
                    LLVMDIBuilderCreateDebugLocation(context, line, column, scope, null_mut());
                LLVMInstructionSetDebugLoc(*instruction, location);
            }
        }
    }
}

/// The places of `new`, a copy of `old`, if `old` has any.
fn read_function(old: LLVMValueRef, new: LLVMValueRef) -> Option<Function> {
    // SAFETY: walks a live function; scopes and files are asked of locations that are
    // there. Scopes always have a line's file, or none.
    unsafe {
        let subprogram = LLVMGetSubprogram(old);
        if subprogram.is_null() {
            return None;
        }
        let file = LLVMDIScopeGetFile(subprogram);
        if file.is_null() {
            return None;
        }
        let mut places = Vec::new();
        let mut block = LLVMGetFirstBasicBlock(new);
        while !block.is_null() {
            let mut instruction = LLVMGetFirstInstruction(block);
            while !instruction.is_null() {
                let location = LLVMInstructionGetDebugLoc(instruction);
                if !location.is_null() {
                    let own = LLVMDIScopeGetFile(LLVMDILocationGetScope(location));
                    let place = Place {
                        file: if own.is_null() { file } else { own },
                        line: LLVMDILocationGetLine(location),
                        column: LLVMDILocationGetColumn(location),
                    };
                    places.push((instruction, Some(place)));
                } else if is_call(LLVMGetInstructionOpcode(instruction)) {
                    places.push((instruction, None));
                }
                instruction = LLVMGetNextInstruction(instruction);
            }
            block = LLVMGetNextBasicBlock(block);
        }
        Some(Function {
            new,
            name: value_name(old),
            file,
            line: LLVMDISubprogramGetLine(subprogram),
            places,
        })
    }
}
