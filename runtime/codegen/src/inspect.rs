//! Tests whether LLVM can read all of an input, before it is relied on.
//!
//! For untrusted input the test runs in a process of its own: LLVM's reader crashes on some damaged
//! input, and no check before it finds all of that. A [`Reader`] checks the bits of each body, too.

use crate::bitcode::Bitcode;
use crate::error::CodegenError;
use crate::plan::plan_alone;
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
