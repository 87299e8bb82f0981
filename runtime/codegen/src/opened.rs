//! A module read at a desk: lazily from bitcode, or as a whole from text.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use inkwell::llvm_sys::bit_reader::LLVMGetBitcodeModuleInContext2;
use inkwell::llvm_sys::core::{LLVMGetDataLayoutStr, LLVMGetModuleInlineAsm, LLVMGetTarget};
use inkwell::llvm_sys::prelude::LLVMModuleRef;
use rustc_hash::FxHashSet;
use uruk_base::allocated::of_arc;

use crate::attributes::AttributeKinds;
use crate::bitcode::Bitcode;
use crate::context::{Buffer, LlvmContext, OwnedModule};
use crate::error::CodegenError;
use crate::foreign::Foreign;
use crate::handles::c_name;
use crate::library::Library;
use crate::origin;
use crate::scan;
use crate::structure::Structure;
use crate::summary::{ModuleSummary, SymbolId, versions};
use crate::table::SymbolTable;
use crate::verifying::verify_module;

/// Knowledge about a module that one reader leaves for the next.
pub(crate) struct Known {
    pub(crate) summary: Arc<ModuleSummary>,
    /// Only for a large module: for a small one it takes as much memory as the module.
    pub(crate) structure: OnceLock<Arc<Structure>>,
    /// LLVM has read the module, and found nothing wrong.
    verified: AtomicBool,
}

impl Known {
    /// Bytes allocated for this knowledge.
    pub(crate) fn bytes(&self) -> usize {
        of_arc::<ModuleSummary>() + self.summary.bytes()
    }

    /// The knowledge of a reader.
    pub(crate) fn by_llvm(
        summary: &Arc<ModuleSummary>,
        structure: Option<Arc<Structure>>,
    ) -> Known {
        Known {
            summary: Arc::clone(summary),
            structure: structure.map_or_else(OnceLock::new, OnceLock::from),
            verified: AtomicBool::new(true),
        }
    }

    /// The knowledge from a summary made without LLVM.
    pub(crate) fn without_llvm(summary: &Arc<ModuleSummary>) -> Known {
        Known {
            summary: Arc::clone(summary),
            structure: OnceLock::new(),
            verified: AtomicBool::new(false),
        }
    }

    /// Whether LLVM has verified the module. Relaxed: a reader that sees an old value verifies once
    /// more.
    pub(crate) fn is_verified(&self) -> bool {
        self.verified.load(Ordering::Relaxed)
    }
}

/// The parts of a desk that reading a module takes.
#[derive(Clone, Copy)]
pub(crate) struct ReadingContext<'d> {
    pub(crate) llvm: &'d LlvmContext,
    pub(crate) kinds: &'d AttributeKinds,
    /// True if the context is shared by many modules.
    pub(crate) is_shared: bool,
}

/// A module read at a desk, with the data derived from it there.
pub(crate) struct Opened {
    // Field order is drop order: modules go before the bytes a lazy one still points into.
    pub(crate) module: OwnedModule,
    pub(crate) library: Library,
    pub(crate) foreign: Foreign,
    pub(crate) bitcode: Bitcode,
    pub(crate) table: SymbolTable,
    pub(crate) summary: Arc<ModuleSummary>,
    /// Functions whose bodies were found valid: nothing changes them afterwards.
    pub(crate) verified: RefCell<FxHashSet<SymbolId>>,
    /// The shape of its bitcode; `None` for a module parsed from text, whose bodies are all read.
    pub(crate) structure: Option<Arc<Structure>>,
}

impl Opened {
    /// Reads the symbol table of `bitcode`, and computes all properties that `known` lacks.
    pub(crate) fn read(
        context: ReadingContext<'_>,
        bitcode: &Bitcode,
        known: Option<&Known>,
    ) -> Result<Opened, CodegenError> {
        let (module, structure) = read_lazily(context.llvm, bitcode, known)?;
        check_target(&module, bitcode.name())?;
        let verified = known.is_some_and(Known::is_verified);
        // Bodies are verified one by one, when they are read.
        let broken = match verified {
            true => None,
            false => verify_module(&module),
        };
        match broken.or_else(|| context.llvm.take_errors()) {
            Some(message) => Err(CodegenError::Load {
                module: bitcode.name().to_owned(),
                message,
            }),
            None => {
                let mut opened = Opened::of(context, module, bitcode, known)?;
                if let (Some(known), false) = (known, verified) {
                    opened.compare(context)?;
                    if !context.is_shared {
                        let _ = known.structure.set(Arc::clone(&structure));
                    }
                    known.verified.store(true, Ordering::Relaxed);
                }
                opened.structure = Some(structure);
                Ok(opened)
            }
        }
    }

    /// Compares LLVM's reading with a summary made without it: both must have the same symbol
    /// numbers. LLVM renames intrinsics whose names do not fit their types, which happens in no
    /// module that LLVM wrote. A debug build compares all properties.
    fn compare(&self, context: ReadingContext<'_>) -> Result<(), CodegenError> {
        let (theirs, ours) = (self.table.values(), &self.summary.symbols);
        let mut same = theirs.len() == ours.len()
            && theirs
                .zip(ours)
                .all(|(value, info)| value.name() == info.name);
        if cfg!(debug_assertions) {
            let mut theirs = scan::summarize(&self.table, context.kinds);
            theirs.has_inline_asm = self.summary.has_inline_asm;
            theirs.versions.clone_from(&self.summary.versions);
            same &= theirs == *self.summary;
        }
        match same {
            true => Ok(()),
            false => Err(CodegenError::Load {
                module: self.bitcode.name().to_owned(),
                message: String::from("its symbols are others when LLVM reads it"),
            }),
        }
    }

    /// A module with its derived data.
    pub(crate) fn of(
        context: ReadingContext<'_>,
        module: OwnedModule,
        bitcode: &Bitcode,
        known: Option<&Known>,
    ) -> Result<Opened, CodegenError> {
        let always_inline = context.kinds.always_inline;
        // SAFETY: both become fields of one `Opened`, which gives neither out.
        let table = unsafe { SymbolTable::new(&module, always_inline) };
        let summary = known.map(|known| Arc::clone(&known.summary));
        let summary = summary.unwrap_or_else(|| {
            let mut summary = scan::summarize(&table, context.kinds);
            let mut length = 0;
            // SAFETY: a live module.
            let text = unsafe { LLVMGetModuleInlineAsm(module.raw(), &mut length) };
            if length != 0 {
                // SAFETY: that many bytes of the module's, which lives.
                let text = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), length) };
                summary.has_inline_asm = true;
                summary.versions = versions(&String::from_utf8_lossy(text));
            }
            Arc::new(summary)
        });
        if let Some(message) = context.llvm.take_errors() {
            return Err(CodegenError::Load {
                module: bitcode.name().to_owned(),
                message,
            });
        }
        Ok(Opened {
            module,
            library: Library::default(),
            foreign: Foreign::default(),
            bitcode: bitcode.clone(),
            table,
            summary,
            verified: RefCell::default(),
            structure: None,
        })
    }
}

fn read_lazily(
    context: &LlvmContext,
    bitcode: &Bitcode,
    known: Option<&Known>,
) -> Result<(OwnedModule, Arc<Structure>), CodegenError> {
    let fail = |message: Option<String>| CodegenError::Load {
        module: bitcode.name().to_owned(),
        message: message.unwrap_or_else(|| String::from("no message")),
    };
    if bitcode.bytes().is_empty() {
        return Err(fail(Some(String::from("the file is empty"))));
    }
    let structure = match known.and_then(|known| known.structure.get().cloned()) {
        Some(structure) => structure,
        None => Arc::new(bitcode.check()?),
    };
    // SAFETY: the reader keeps `bitcode` alive until its module is dropped.
    let buffer = unsafe { Buffer::view(bitcode.bytes(), &c_name(bitcode.name())) };
    let mut module: LLVMModuleRef = std::ptr::null_mut();
    // SAFETY: live context; the function takes the buffer over in every case.
    let failed =
        unsafe { LLVMGetBitcodeModuleInContext2(context.raw(), buffer.into_raw(), &mut module) };
    if failed != 0 || module.is_null() {
        return Err(fail(context.take_errors()));
    }
    // SAFETY: a fresh module, ours.
    Ok((unsafe { OwnedModule::new(module) }, structure))
}

/// Refuses a module made for another machine (`origin`).
pub(crate) fn check_target(module: &OwnedModule, name: &str) -> Result<(), CodegenError> {
    // SAFETY: a live module; both are C strings that it owns.
    let (triple, layout) = unsafe {
        let text = |text| std::ffi::CStr::from_ptr(text).to_string_lossy();
        let triple = text(LLVMGetTarget(module.raw()));
        (triple, text(LLVMGetDataLayoutStr(module.raw())))
    };
    if !origin::is_ours(&triple) {
        return Err(CodegenError::Target {
            module: name.to_owned(),
            triple: triple.into_owned(),
        });
    }
    match origin::strange_part(&layout) {
        None => Ok(()),
        Some(part) => Err(CodegenError::Layout {
            module: name.to_owned(),
            part: part.to_owned(),
            layout: layout.into_owned(),
        }),
    }
}
