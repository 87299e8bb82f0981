//! What an input is like, before it is relied on: the bits of a body before LLVM reads it,
//! and all of an input at once, to see whether LLVM can read it.
//!
//! The latter is done in a process of its own for what strangers wrote: LLVM's reader crashes on some
//! damaged input, and no check before it finds all of that.

use inkwell::llvm_sys::prelude::LLVMValueRef;

use crate::bitcode::Bitcode;
use crate::error::CodegenError;
use crate::fuzz::plan_alone;
use crate::reader::{Reader, Verify, value_name};
use crate::summary::{Placement, SymbolId};

/// Reads and verifies everything in `bitcode`, and compiles it once without optimization.
/// What does not compile may never be called: only that LLVM comes back from it counts.
///
/// # Errors
/// What cannot be read, or is not valid; the first one met.
pub fn inspect(bitcode: &Bitcode) -> Result<(), CodegenError> {
    let mut reader = Reader::new(bitcode)?;
    let values = reader.table().values.clone();
    for (value, body) in values.into_iter().zip(reader.table().bodies.clone()) {
        if body.is_some() {
            reader.materialize(value, Verify::Yes)?;
        }
    }
    let plan = plan_alone(reader.summary());
    let _ = reader.compile_data(&plan);
    for index in 0..plan.imports.len() {
        if !reader.is_sound() {
            reader = Reader::new(bitcode)?;
        }
        if reader.summary().symbols[index].placement == Placement::Own {
            let _ = reader.compile_function(&plan, SymbolId(index as u32));
        }
    }
    Ok(())
}

impl Reader {
    /// Checks the bits of a body before LLVM reads them. Bodies are in the order of
    /// definitions, as are functions.
    pub(crate) fn check_structure(&self, function: LLVMValueRef) -> Result<(), CodegenError> {
        let Some(structure) = self.structure() else {
            return Ok(());
        };
        let body = self
            .table()
            .index
            .get(&function)
            .map(|id| self.table().bodies[id.index()]);
        let Some(Some(index)) = body else {
            return Ok(());
        };
        let checked = structure.check_body(self.bitcode().bytes(), index as usize);
        checked.map_err(|cause| CodegenError::Malformed {
            module: self.name().to_owned(),
            bit: cause.bit,
            block: cause.block,
            message: format!("in the body of `{}`, {}", value_name(function), cause.what),
        })
    }
}
