//! Inserts fuel checks, called *looks*, at entries and loops of code.
//!
//! A module is changed once, when it is added. So all code compiled from it, at every tier, inlined
//! or as a continuation, looks at the same places. A look reads a word of the calling thread, at a
//! distance from the thread pointer: the *passes* (fuel) left.
//!
//! ```text
//! look:   left = word; left -= 1; word = left
//!         if left < 0: call ask        ; which sets the word anew, or does not return
//! ```
//!
//! | where | when |
//! |---|---|
//! | entry | of a function that calls another: a function without calls and loops ends soon |
//! | loop | at the end of each latch, before it is decided whether there is another pass |
//!
//! # Loops
//! Passes simplify loops first: each is entered from one block, and decides at its end whether
//! there is another pass. In a loop without calls ([`nests`]) the word is then kept in a variable
//! of the frame, which passes make a register. Both conditions become one:
//! ```text
//! before                 after
//! head:  phis            outer: phis of what comes from elsewhere, and from ask; goto head
//!        ...             head:  phis of outer, and of the latch
//! latch: ...                    ...
//!        if c: head      latch: ...; look; if c and left >= 0: head
//!        else: exit      else:  if left >= 0: exit
//!                        ask:   call ask; if c: outer, else: exit
//! ```
//! The call is not in the inner loop but around it, and the inner loop has one end, as before. So
//! passes of LLVM compute the trip count, unroll it and vectorize it like any other. In a loop with
//! calls the look is a branch of its own. If a latch ends otherwise than by a branch or a switch,
//! or the head is reached by jumps to labels or is a landing pad, the call returns into the loop.
//!
//! Types of memory (TBAA) tell LLVM that the word is no variable of the program. The word has a
//! type of its own beside the module's types. In a module without any, all other accesses get one
//! type.
//!
//! # Invariants
//! - The IR alone determines how often a run looks: counts are in memory, which passes may not
//!   change. So attributes that promise that a function writes no memory are removed
//!   ([`PROMISES`]), from calls too.
//! - Blocks that end with a terminator keep it, so that phis elsewhere stay as they are.
//!
//! # Cost
//! `cargo xtask bench --only "counted passes"`: of thirty programs of loops, the geometric mean at
//! tiers 2 and 3 is 1.21 of the time without (0.8 to 2.5). With a branch of its own in each loop,
//! and the word in memory, it was 1.9 (up to 6.9): nothing was vectorized. The rest of the cost:
//! two conditions at the end of each pass, and a trip count that is the minimum of two numbers. It
//! is computed at each entry of an inner loop, where it was a constant.
//!
//! # Why
//! Looks are not inserted in each compiler: the baseline compiler, LLVM's tiers and continuations
//! would have to agree to the pass. A flag set by another thread would save one load and needs the
//! same comparison. But it does not count, and its check cannot be moved out of a loop. Entries of
//! functions without calls are left out because those are inlined into loops.

use std::ffi::CStr;

use inkwell::llvm_sys::bit_reader::LLVMParseBitcodeInContext2;
use inkwell::llvm_sys::core::LLVMRemoveCallSiteEnumAttribute;
use inkwell::llvm_sys::prelude::LLVMValueRef;
use inkwell::llvm_sys::transforms::pass_builder::{
    LLVMCreatePassBuilderOptions, LLVMDisposePassBuilderOptions, LLVMRunPasses,
};
use inkwell::llvm_sys::{LLVMAttributeFunctionIndex, LLVMOpcode};

use crate::bitcode::Bitcode;
use crate::context::{Buffer, LlvmContext, OwnedModule, take_error};
use crate::error::CodegenError;
use crate::handles::{FunctionRef, c_name};

mod kinds;
mod loops;
mod nests;
mod writer;

use kinds::Kinds;
use nests::{is_quiet, may_look};
use writer::CheckWriter;

/// Attributes that do not hold of code that looks, or of its callers.
const PROMISES: [&str; 3] = ["memory", "willreturn", "speculatable"];

/// Parameters of a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Distance of the word from the thread pointer.
    pub distance: i64,
    /// The address of the function that is called when no fuel is left. It takes and returns
    /// nothing.
    pub ask: u64,
}

impl Bitcode {
    /// The module with looks inserted. Under a [`guard`](crate::fatal::guard).
    ///
    /// # Errors
    /// Bitcode that LLVM does not read.
    pub fn looking(&self, look: Look) -> Result<Bitcode, CodegenError> {
        self.check()?;
        let context = LlvmContext::new()?;
        let module = read(&context, self)?;
        simplify(&module).map_err(|message| unreadable(self, message))?;
        insert(&context, &module, look);
        match context.take_errors() {
            Some(message) => Err(unreadable(self, message)),
            None => Ok(Bitcode::write(self.name(), &module)),
        }
    }
}

fn unreadable(bitcode: &Bitcode, message: String) -> CodegenError {
    CodegenError::Load {
        module: bitcode.name().to_owned(),
        message,
    }
}

fn read(context: &LlvmContext, bitcode: &Bitcode) -> Result<OwnedModule, CodegenError> {
    let mut raw = std::ptr::null_mut();
    // SAFETY: the buffer lives until the module was read whole; `raw` is written on success.
    let failed = unsafe {
        let buffer = Buffer::view(bitcode.bytes(), &c_name(bitcode.name()));
        LLVMParseBitcodeInContext2(context.raw(), buffer.raw(), &mut raw)
    };
    if failed != 0 || raw.is_null() {
        let message = context.take_errors();
        return Err(unreadable(bitcode, message.unwrap_or_default()));
    }
    // SAFETY: a live module, which is ours.
    Ok(unsafe { OwnedModule::new(raw) })
}

/// Simplifies loops, also in functions that are not to be optimized: each is entered and left in
/// one way, and decides at its end whether there is another pass.
fn simplify(module: &OwnedModule) -> Result<(), String> {
    let optnone = kinds::attribute("optnone");
    let apart: Vec<FunctionRef<'_>> = module.functions().filter(|it| it.has(optnone)).collect();
    apart.iter().for_each(|function| function.remove(optnone));
    // SAFETY: a live module, which no pass here deletes functions of; options are disposed.
    let error = unsafe {
        let options = LLVMCreatePassBuilderOptions();
        let none = std::ptr::null_mut();
        let error = LLVMRunPasses(module.raw(), SIMPLIFY.as_ptr(), none, options);
        LLVMDisposePassBuilderOptions(options);
        take_error(error)
    };
    apart.iter().for_each(|function| function.add(optnone));
    error.map_or(Ok(()), Err)
}

/// The passes that run first. Rotation duplicates no more than a header.
const SIMPLIFY: &CStr =
    c"function(loop-simplify,loop(loop-rotate<header-duplication;no-prepare-for-lto>))";

/// Inserts looks into a module.
fn insert(context: &LlvmContext, module: &OwnedModule, look: Look) {
    let kinds = Kinds::of(context, module);
    let functions: Vec<LLVMValueRef> = module.functions().map(|it| it.raw()).collect();
    for &function in &functions {
        // SAFETY: a function of the module; no pass deletes one.
        let function = unsafe { FunctionRef::of(function) };
        if function.is_intrinsic() || is_quiet(function) {
            continue;
        }
        for &promise in &kinds.promises {
            function.remove(promise);
        }
        if function.is_declaration() || function.has(kinds.naked) {
            continue;
        }
        let calls = soften(function, &kinds);
        kinds.mark(function);
        let mut writer = CheckWriter::new(context, module, &kinds, function, look);
        writer.loops();
        if calls {
            writer.entry();
        }
    }
}

/// Removes promises from calls; returns whether the function calls code that may look.
fn soften(function: FunctionRef<'_>, kinds: &Kinds) -> bool {
    let mut calls = false;
    for call in function.instructions() {
        if call.callee().is_none() || !may_look(call) {
            continue;
        }
        calls = true;
        for &promise in &kinds.promises {
            // SAFETY: a live call; removing an absent attribute does nothing.
            unsafe {
                LLVMRemoveCallSiteEnumAttribute(call.raw(), LLVMAttributeFunctionIndex, promise);
            }
        }
    }
    calls
}

/// Whether a terminator may be duplicated.
fn is_plain(opcode: LLVMOpcode) -> bool {
    matches!(opcode, LLVMOpcode::LLVMBr | LLVMOpcode::LLVMSwitch)
}
