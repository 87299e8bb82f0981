//! The operations of a reader, each of which another part of the package does.

use std::sync::Arc;

use uruk_leaving::Described;

use crate::compile::{Compile, Compiled};
use crate::compiler;
use crate::continuation::describe;
use crate::error::CodegenError;
use crate::interface::{self, Layout};
use crate::parcel::{Parcel, pack};
use crate::plan::ModulePlan;
use crate::query;
use crate::reader::{Reader, Verify};
use crate::shape::{self, Measure};
use crate::sketch::{self, Sketch};
use crate::stored::{self, Key};
use crate::summary::SymbolId;
use crate::wanted;
use crate::whole;

/// Compiles.
impl Reader {
    /// Compiles one function with the settings `how`.
    ///
    /// # Errors
    /// An unreadable or invalid body, a construct that cannot be extracted, an error reported by
    /// LLVM, or a cancellation, after which the reader is as good as before.
    pub fn compile(
        &mut self,
        plan: &ModulePlan,
        function: SymbolId,
        how: &Compile,
    ) -> Result<Compiled, CodegenError> {
        compiler::compile(self, plan, function, how)
    }

    /// Like [`Reader::compile`] with [`Compile::baseline`]; returns the object.
    ///
    /// # Errors
    /// As [`Reader::compile`].
    pub fn compile_function(
        &mut self,
        plan: &ModulePlan,
        function: SymbolId,
    ) -> Result<Vec<u8>, CodegenError> {
        let compiled = self.compile(plan, function, &Compile::baseline())?;
        Ok(compiled.object)
    }

    /// Compiles the module's data: every variable the plan says is defined here,
    /// aliases into data, module-level assembly, and the functions that cannot be
    /// split from them. `None` if there is nothing to compile.
    ///
    /// # Errors
    /// As [`Reader::compile_function`].
    pub fn compile_data(&mut self, plan: &ModulePlan) -> Result<Option<Vec<u8>>, CodegenError> {
        whole::compile_data(self, plan)
    }

    /// Compiles all that the plan says is defined here to one object, functions under their plain
    /// names: the result of a static compiler for the module.
    ///
    /// # Errors
    /// As [`Reader::compile_function`].
    pub fn compile_everything(
        &mut self,
        plan: &ModulePlan,
    ) -> Result<Option<Vec<u8>>, CodegenError> {
        whole::compile_everything(self, plan)
    }

    /// The key of the result of compiling `function` with `how` under `plan`.
    pub fn key(&self, plan: &ModulePlan, function: SymbolId, how: &Compile) -> Key {
        stored::key_of(self.bitcode(), plan, function, how)
    }

    /// The body of `function` for other modules; `None` if it may not be inlined, or cannot travel.
    /// Only two settings of `how` matter: the tier, which limits its size, and contraction.
    ///
    /// # Errors
    /// A body that cannot be read; an error reported by LLVM; that it was cancelled.
    pub fn parcel(
        &mut self,
        plan: &ModulePlan,
        function: SymbolId,
        how: &Compile,
    ) -> Result<Option<Parcel>, CodegenError> {
        pack::parcel(self, plan, function, how)
    }

    /// The functions of other modules that `function` might inline, directly or after
    /// its own callees, in the order of their first call.
    ///
    /// # Errors
    /// A body that cannot be read; that it was cancelled.
    pub fn wanted(
        &mut self,
        plan: &ModulePlan,
        function: SymbolId,
        how: &Compile,
    ) -> Result<Vec<SymbolId>, CodegenError> {
        wanted::wanted(self, plan, function, how)
    }
}

/// Questions about bodies.
impl Reader {
    /// Size and loops of a function the module defines, without compiling it.
    ///
    /// # Errors
    /// An unreadable or invalid body.
    pub fn measure(&mut self, function: SymbolId) -> Result<Measure, CodegenError> {
        let function = self.function(function)?;
        self.materialize(function, Verify::Yes)?;
        Ok(shape::measure(function).measure)
    }

    /// The sketch of a function the module defines; an empty one if it has no calls, or is huge.
    ///
    /// # Errors
    /// An unreadable or invalid body.
    pub fn sketch(&mut self, function: SymbolId) -> Result<Sketch, CodegenError> {
        sketch::sketch(self, function)
    }

    /// The heads of a function's loops where a continuation could start, and the values that live
    /// across each.
    ///
    /// # Errors
    /// An unreadable or invalid body.
    pub fn heads_of(
        &mut self,
        plan: &ModulePlan,
        function: SymbolId,
    ) -> Result<Vec<Described>, CodegenError> {
        describe::heads_of(self, plan, function)
    }

    /// For each of `symbols`, names of functions and variables that mention it;
    /// empty for one that nothing mentions. Reads every body.
    ///
    /// # Errors
    /// An unreadable body.
    pub fn users(&mut self, symbols: &[SymbolId]) -> Result<Vec<Vec<String>>, CodegenError> {
        query::users(self, symbols)
    }

    /// Functions and variables that mention `symbol`, each once, aliases of it included.
    /// Reads every body.
    ///
    /// # Errors
    /// An unreadable body.
    pub fn mentions(&self, symbol: SymbolId) -> Result<Vec<SymbolId>, CodegenError> {
        interface::mentions(self, symbol)
    }
}

/// Questions about declarations.
impl Reader {
    /// The types of all symbols, by number, as LLVM writes them: `i32 (ptr, double)`. Each type is
    /// written once, unless arguments or results are marked with how they are passed: `i16 zeroext
    /// (ptr byval(24), i8 signext)`. The reader must [name structs as their files
    /// do](crate::ReaderPool::faithful).
    pub fn types(&self) -> Vec<Arc<str>> {
        query::types(self)
    }

    /// The calling signature of a function: its type, and attributes that change how values are
    /// passed.
    pub fn signature(&self, function: SymbolId) -> String {
        interface::signature(self, function)
    }

    /// Type and size of a variable.
    pub fn layout(&self, variable: SymbolId) -> Layout {
        interface::layout(self, variable)
    }

    /// The value of a variable's initializer, local constants written out; `None` for a
    /// declaration.
    pub fn initializer(&self, variable: SymbolId) -> Option<String> {
        interface::initializer(self, variable)
    }

    /// A sign that passes which look at several functions at once have seen this module. Some
    /// function may then hold the body of another, or rely on it, without a record of it. `None`
    /// for the output of a front end at `-O0`, or at `-O1` and up with `-Xclang
    /// -disable-llvm-passes`.
    ///
    /// The evidence is attributes that only such passes write: `local_unnamed_addr` (GlobalOpt),
    /// and `nofree`, `nosync` or `norecurse` on a definition (FunctionAttrs; a front end itself
    /// writes `norecurse` at `main` and at `optnone` functions).
    pub fn interprocedural(&self) -> Option<String> {
        interface::interprocedural(self)
    }
}
