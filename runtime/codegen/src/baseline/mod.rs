//! A function of a module as the baseline compiler takes it, read in place.

use uruk_baseline::{Uncovered, ir};

use crate::compile::{Compile, Compiled};
use crate::error::CodegenError;
use crate::plan::ModulePlan;
use crate::reader::Reader;
use crate::summary::SymbolId;

/// A function that was read.
#[derive(Debug, Clone)]
pub struct Read {
    /// What is compiled.
    pub function: ir::Function,
    /// What a compile would have found out about it; its object is empty.
    pub compiled: Compiled,
}

impl Reader {
    /// Reads one function for a compile of tier 1 as `how` says. Its body is made available and
    /// verified, and nothing of the module is changed.
    ///
    /// Symbols have the names of `plan`; a call of a function, itself too, is one of its plain
    /// name. Counters and words of loops are [`COUNTERS`](crate::COUNTERS) and
    /// [`LOOPS`](crate::LOOPS).
    ///
    /// # Errors
    /// An unreadable or invalid body; that it was cancelled. Inside, why it is not covered.
    pub fn baseline(
        &mut self,
        plan: &ModulePlan,
        function: SymbolId,
        how: &Compile,
    ) -> Result<Result<Read, Uncovered>, CodegenError> {
        let _ = (plan, function, how);
        Ok(Err(Uncovered {
            what: "nothing yet",
        }))
    }
}
