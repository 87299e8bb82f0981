//! A unit: a module that was filled by copying, and the description of its contents.

use rustc_hash::FxHashSet;
use uruk_base::Variant;

use crate::context::OwnedModule;
use crate::flags::{self, Extensions};
use crate::profile::Refused;
use crate::summary::SymbolId;

/// A filled module, to be emitted.
pub(crate) struct Unit {
    pub(crate) module: OwnedModule,
    pub(crate) contents: UnitContents,
}

impl Unit {
    /// Requests unwind tables for each function's frame, also where nothing unwinds: backtraces of
    /// faults, debuggers and profilers pass such frames.
    pub(crate) fn describe_frames(&self, nounwind: u32, uwtable: u32) {
        /// Frames are described at each instruction.
        const EACH: u64 = 2;
        for function in self.module.functions() {
            if !function.is_declaration() && function.has(nounwind) && !function.has(uwtable) {
                function.add_number(uwtable, EACH);
            }
        }
    }

    /// Makes each function that returns one bit clear the bits above it.
    pub(crate) fn clear_above_flags(&self, extensions: Extensions) {
        let functions = self.module.functions();
        for function in functions.filter(|function| !function.is_declaration()) {
            flags::clear_above(function, extensions);
        }
    }
}

/// Description of a filled module. It holds names, as passes may drop the definitions.
#[derive(Default)]
pub(crate) struct UnitContents {
    /// True if something in it only passes can lower: inline copies, coroutines,
    /// matrix intrinsics.
    pub(crate) needs_passes: bool,
    pub(crate) has_matrices: bool,
    /// True if it contains assembly.
    pub(crate) has_asm: bool,
    /// True if it defines coroutines that are not split yet.
    pub(crate) has_coroutines: bool,
    /// Something in it was copied along with the function: tables of labels, `alwaysinline`
    /// callees.
    pub(crate) is_split: bool,
    /// Callees defined for the optimizer only, with their link names.
    pub(crate) candidates: Vec<(SymbolId, String)>,
    /// Names of constants defined for the optimizer only.
    pub(crate) constants: Vec<String>,
    /// Names of callees defined for the optimizer only, with their simplified bodies.
    pub(crate) kept: Vec<String>,
    /// Instructions of both.
    pub(crate) candidate_instructions: u32,
    /// Functions whose bodies are in the unit besides.
    pub(crate) inlined: Vec<SymbolId>,
    /// Symbols of which more than name and type was used.
    pub(crate) facts: FxHashSet<SymbolId>,
    /// Profiles that were given and do not fit.
    pub(crate) refused: Vec<Refused>,
    /// Functions with profiles applied.
    pub(crate) guided_functions: u32,
    /// Indirect calls made direct behind a comparison.
    pub(crate) promoted: u32,
    /// The offered bodies that are in the unit.
    pub(crate) taken: Vec<usize>,
    /// True if its code may be freed before the module is: it is a version of a function.
    pub(crate) is_version: bool,
    /// True if functions in it have notes of hooks, see `instrument`.
    pub(crate) has_late_hooks: bool,
    /// The variant by which it is optimized.
    pub(crate) variant: Variant,
    /// True if it has addresses of labels of other functions than the one it is for.
    pub(crate) foreign_labels: bool,
}
