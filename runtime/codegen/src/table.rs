//! The globals of a module, by number.

use inkwell::llvm_sys::LLVMValueKind;
use inkwell::llvm_sys::core::{
    LLVMGetFirstFunction, LLVMGetFirstGlobal, LLVMGetFirstGlobalAlias, LLVMGetFirstGlobalIFunc,
    LLVMGetIntrinsicID, LLVMGetNextFunction, LLVMGetNextGlobal, LLVMGetNextGlobalAlias,
    LLVMGetNextGlobalIFunc, LLVMGetValueKind, LLVMIsDeclaration,
};
use inkwell::llvm_sys::prelude::{LLVMModuleRef, LLVMValueRef};
use rustc_hash::FxHashMap;

use crate::context::OwnedModule;
use crate::extract::has_function_attribute;
use crate::reader::value_name;
use crate::summary::SymbolId;

/// The module's globals in a fixed order: functions, variables, aliases, ifuncs.
pub(crate) struct SymbolTable {
    pub(crate) values: Vec<LLVMValueRef>,
    pub(crate) index: FxHashMap<LLVMValueRef, SymbolId>,
    /// For each of them, which of the module's bodies is its own.
    pub(crate) bodies: Vec<Option<u32>>,
    /// Declarations of `llvm.fmuladd`.
    pub(crate) fmuladd: Vec<LLVMValueRef>,
    /// True if any function is `alwaysinline`.
    pub(crate) has_always_inline: bool,
}

impl SymbolTable {
    /// Of a module; `always_inline` is the number of that attribute.
    pub(crate) fn new(module: &OwnedModule, always_inline: u32) -> SymbolTable {
        type First = unsafe extern "C" fn(LLVMModuleRef) -> LLVMValueRef;
        type Next = unsafe extern "C" fn(LLVMValueRef) -> LLVMValueRef;
        let lists: [(First, Next); 4] = [
            (LLVMGetFirstFunction, LLVMGetNextFunction),
            (LLVMGetFirstGlobal, LLVMGetNextGlobal),
            (LLVMGetFirstGlobalAlias, LLVMGetNextGlobalAlias),
            (LLVMGetFirstGlobalIFunc, LLVMGetNextGlobalIFunc),
        ];
        let mut values = Vec::new();
        for (first, next) in lists {
            // SAFETY: walks a list of a live module to its null end.
            let mut value = unsafe { first(module.raw()) };
            while !value.is_null() {
                values.push(value);
                // SAFETY: as above.
                value = unsafe { next(value) };
            }
        }
        let index = values
            .iter()
            .enumerate()
            .map(|(i, &v)| (v, SymbolId(i as u32)))
            .collect();
        // SAFETY: a live global.
        let is_function =
            |v| unsafe { LLVMGetValueKind(v) } == LLVMValueKind::LLVMFunctionValueKind;
        let functions = || values.iter().copied().filter(|&v| is_function(v));
        let mut bodies = 0..;
        let bodies = values.iter().map(|&v| {
            // SAFETY: a live function; one whose body was not read yet is no declaration.
            let defined = is_function(v) && unsafe { LLVMIsDeclaration(v) } == 0;
            if defined { bodies.next() } else { None }
        });
        let bodies = bodies.collect();
        let fmuladd = functions()
            // SAFETY: a live function.
            .filter(|&v| unsafe { LLVMGetIntrinsicID(v) } != 0)
            .filter(|&v| value_name(v).starts_with("llvm.fmuladd."))
            .collect();
        let has_always_inline = functions().any(|v| has_function_attribute(v, always_inline));
        SymbolTable {
            index,
            bodies,
            fmuladd,
            has_always_inline,
            values,
        }
    }
}
