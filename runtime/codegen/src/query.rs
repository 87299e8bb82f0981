//! Queries on a module that need types or bodies: signatures, sizes, and the users of a symbol
//! (only to explain an error).

use std::sync::Arc;

use inkwell::llvm_sys::target::LLVMGetModuleDataLayout;
use rustc_hash::FxHashMap;

use crate::error::CodegenError;
use crate::handles::{TypeRef, ValueRef};
use crate::interface::printed_type;
use crate::reader::{Reader, Verify};
use crate::shape;
use crate::signature::Passing;
use crate::summary::SymbolId;

/// The size of a function before optimization.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measure {
    /// IR instructions.
    pub instructions: u32,
    /// Loops: targets of back edges.
    pub loops: u32,
    /// True if one of them lies inside another.
    pub nested: bool,
    /// Calls of named functions, intrinsics left out.
    pub calls: u32,
}

/// Users named per symbol; the rest would not make the message clearer.
const USERS_SHOWN: usize = 3;

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

    /// The types of all symbols, by number, as LLVM writes them: `i32 (ptr, double)`. Each type is
    /// written once, unless arguments or results are marked with how they are passed: `i16 zeroext
    /// (ptr byval(24), i8 signext)`. The reader must [name structs as their files
    /// do](crate::ReaderPool::faithful).
    pub fn types(&self) -> Vec<Arc<str>> {
        debug_assert!(self.names_as_in_file());
        let mut written: FxHashMap<TypeRef<'_>, Arc<str>> = FxHashMap::default();
        let mut types = Vec::new();
        // A global has a type.
        // SAFETY: a live module, whose layout lives as it does.
        let passing = Passing::new(unsafe { LLVMGetModuleDataLayout(self.module().raw()) });
        for value in self.table().values() {
            let Some(ty) = ValueRef::content_type(value) else {
                continue;
            };
            let text = written.entry(ty).or_insert_with(|| printed_type(ty).into());
            let function = value.as_function();
            let marked = function.and_then(|function| passing.marked(function, text));
            types.push(marked.map_or_else(|| Arc::clone(text), Arc::from));
        }
        types
    }

    /// For each of `symbols`, names of functions and variables that mention it;
    /// empty for one that nothing mentions. Reads every body.
    ///
    /// # Errors
    /// An unreadable body.
    pub fn users(&mut self, symbols: &[SymbolId]) -> Result<Vec<Vec<String>>, CodegenError> {
        self.read_all()?;
        Ok(symbols
            .iter()
            .map(|symbol| {
                let mut users = Vec::new();
                collect(self.table().value(*symbol), &mut users, 0);
                users
            })
            .collect())
    }

    /// Reads every body, also invalid ones.
    pub(crate) fn read_all(&self) -> Result<(), CodegenError> {
        for (index, info) in self.summary().symbols.iter().enumerate() {
            let function = self.table().function(SymbolId(index as u32));
            if let Some(function) = function
                && info.linkage.is_definition()
            {
                self.materialize(function, Verify::No)?;
            }
        }
        Ok(())
    }
}

fn collect(value: ValueRef<'_>, users: &mut Vec<String>, depth: u32) {
    // Constants nest a few levels deep at most.
    if depth > 16 {
        return;
    }
    for user in value.users() {
        if users.len() >= USERS_SHOWN {
            return;
        }
        let name = match user.as_instruction() {
            Some(instruction) => instruction.function().map_or(String::new(), |it| it.name()),
            None if user.is_global() => user.name(),
            None => {
                collect(user, users, depth + 1);
                String::new()
            }
        };
        if !name.is_empty() && !users.contains(&name) {
            users.push(name);
        }
    }
}
