//! Questions about a module that need types or bodies: signatures, sizes, and who uses
//! a symbol (asked only to explain an error).

use std::sync::Arc;

use inkwell::llvm_sys::LLVMValueKind;
use inkwell::llvm_sys::core::{
    LLVMDisposeMessage, LLVMGetBasicBlockParent, LLVMGetFirstUse, LLVMGetInstructionParent,
    LLVMGetNextUse, LLVMGetUser, LLVMGetValueKind, LLVMGlobalGetValueType, LLVMPrintTypeToString,
};
use inkwell::llvm_sys::prelude::{LLVMTypeRef, LLVMValueRef};
use rustc_hash::FxHashMap;

use crate::error::CodegenError;
use crate::reader::{Reader, Verify, value_name};
use crate::shape;
use crate::summary::{Kind, SymbolId};

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
        let value = self.table().values[function.index()];
        self.materialize(value, Verify::Yes)?;
        // SAFETY: a live function whose body was read and verified.
        let shape = unsafe { shape::measure(value) };
        Ok(Measure {
            instructions: shape.instructions,
            loops: shape.loops(),
            nested: shape.nested,
            calls: shape.calls,
        })
    }

    /// The types of all symbols, by number, as LLVM writes them: `i32 (ptr, double)`. Each
    /// type is written once. Of a reader that
    /// [names structs as their files do](crate::ReaderPool::faithful).
    pub fn types(&self) -> Vec<Arc<str>> {
        debug_assert!(self.names_as_in_file());
        let mut written: FxHashMap<LLVMTypeRef, Arc<str>> = FxHashMap::default();
        let text = |value: &LLVMValueRef| {
            // SAFETY: a live global.
            let ty = unsafe { LLVMGlobalGetValueType(*value) };
            let text = written.entry(ty).or_insert_with(|| {
                // SAFETY: a live type; the string is ours and disposed after copying.
                unsafe {
                    let raw = LLVMPrintTypeToString(ty);
                    let text = std::ffi::CStr::from_ptr(raw).to_string_lossy().into();
                    LLVMDisposeMessage(raw);
                    text
                }
            });
            Arc::clone(text)
        };
        self.table().values.iter().map(text).collect()
    }

    /// For each of `symbols`, names of functions and variables that mention it;
    /// empty for one that nothing mentions. Reads every body.
    ///
    /// # Errors
    /// An unreadable body.
    pub fn users(&mut self, symbols: &[SymbolId]) -> Result<Vec<Vec<String>>, CodegenError> {
        for (index, info) in self.summary().symbols.iter().enumerate() {
            if info.kind == Kind::Function && info.linkage.is_definition() {
                self.materialize(self.table().values[index], Verify::No)?;
            }
        }
        Ok(symbols
            .iter()
            .map(|symbol| {
                let mut users = Vec::new();
                collect(self.table().values[symbol.index()], &mut users, 0);
                users
            })
            .collect())
    }
}

fn collect(value: LLVMValueRef, users: &mut Vec<String>, depth: u32) {
    // Constants nest a few levels deep at most.
    if depth > 16 {
        return;
    }
    // SAFETY: walks the use list of a live value; users are live values.
    unsafe {
        let mut item = LLVMGetFirstUse(value);
        while !item.is_null() && users.len() < USERS_SHOWN {
            let user = LLVMGetUser(item);
            let name = match LLVMGetValueKind(user) {
                LLVMValueKind::LLVMInstructionValueKind => {
                    let block = LLVMGetInstructionParent(user);
                    if block.is_null() {
                        String::new()
                    } else {
                        value_name(LLVMGetBasicBlockParent(block))
                    }
                }
                LLVMValueKind::LLVMGlobalVariableValueKind
                | LLVMValueKind::LLVMGlobalAliasValueKind
                | LLVMValueKind::LLVMGlobalIFuncValueKind
                | LLVMValueKind::LLVMFunctionValueKind => value_name(user),
                _ => {
                    collect(user, users, depth + 1);
                    String::new()
                }
            };
            if !name.is_empty() && !users.contains(&name) {
                users.push(name);
            }
            item = LLVMGetNextUse(item);
        }
    }
}
