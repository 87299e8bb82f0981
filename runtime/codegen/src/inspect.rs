//! Checks of an input before it is relied on. One checks the bits of a body before LLVM reads it,
//! the other tests whether LLVM can read all of an input.
//!
//! For untrusted input the second check runs in a process of its own: LLVM's reader crashes on some
//! damaged input, and no check before it finds all of that.

use crate::bitcode::Bitcode;
use crate::error::CodegenError;
use crate::fuzz::plan_alone;
use crate::handles::FunctionRef;
use crate::reader::{Reader, Verify};
use crate::summary::{Placement, SymbolId};

/// Reads and verifies everything in `bitcode`, and compiles it once without optimization. Functions
/// that do not compile may never be called: the check is only that LLVM returns.
///
/// # Errors
/// The first module or body that cannot be read, or is not valid.
pub fn inspect(bitcode: &Bitcode) -> Result<(), CodegenError> {
    let modules = bitcode.clone().modules();
    modules.iter().try_for_each(inspect_module)
}

fn inspect_module(bitcode: &Bitcode) -> Result<(), CodegenError> {
    let mut reader = Reader::new(bitcode)?;
    for index in 0..reader.table().values().len() {
        let id = SymbolId(index as u32);
        if let (Some(function), Some(_)) = (reader.table().function(id), reader.table().body(id)) {
            reader.materialize(function, Verify::Yes)?;
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
    pub(crate) fn check_structure(
        &self,
        id: SymbolId,
        function: FunctionRef<'_>,
    ) -> Result<(), CodegenError> {
        let Some(structure) = self.structure() else {
            return Ok(());
        };
        let Some(index) = self.table().body(id) else {
            return Ok(());
        };
        let checked = structure.check_body(self.bitcode().bytes(), index as usize);
        checked.map_err(|cause| CodegenError::Malformed {
            module: self.name().to_owned(),
            bit: cause.bit,
            block: cause.block,
            message: format!("in the body of `{}`, {}", function.name(), cause.what),
        })
    }
}
