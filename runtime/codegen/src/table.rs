//! The globals of a module, by number.

use inkwell::llvm_sys::core::{
    LLVMGetFirstFunction, LLVMGetFirstGlobal, LLVMGetFirstGlobalAlias, LLVMGetFirstGlobalIFunc,
    LLVMGetNextFunction, LLVMGetNextGlobal, LLVMGetNextGlobalAlias, LLVMGetNextGlobalIFunc,
};
use inkwell::llvm_sys::prelude::{LLVMModuleRef, LLVMValueRef};
use rustc_hash::FxHashMap;

use crate::context::OwnedModule;
use crate::handles::{FunctionRef, ValueRef};
use crate::summary::SymbolId;

/// The module's globals in a fixed order: functions, variables, aliases, ifuncs.
pub(crate) struct SymbolTable {
    // Raw, as the module is kept beside the table; handles borrow the table, and so whoever
    // keeps both.
    values: Vec<LLVMValueRef>,
    index: FxHashMap<LLVMValueRef, SymbolId>,
    /// For each of them, which of the module's bodies is its own.
    bodies: Vec<Option<u32>>,
    /// Declarations of `llvm.fmuladd`.
    fmuladd: Vec<LLVMValueRef>,
    has_always_inline: bool,
}

impl SymbolTable {
    /// Of a module; `always_inline` is the number of that attribute.
    ///
    /// # Safety
    /// The table is kept beside the module, and goes with it.
    pub(crate) unsafe fn new(module: &OwnedModule, always_inline: u32) -> SymbolTable {
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
        // SAFETY: a live global of the module, which is borrowed.
        let function = |&v: &LLVMValueRef| unsafe { ValueRef::of(v) }.as_function();
        let mut bodies = 0..;
        let bodies = values.iter().map(|v| {
            let defined = function(v).is_some_and(|function| !function.is_declaration());
            if defined { bodies.next() } else { None }
        });
        let bodies = bodies.collect();
        let functions = || values.iter().filter_map(function);
        let fmuladd = functions()
            .filter(|function| function.is_intrinsic())
            .filter(|function| function.name().starts_with("llvm.fmuladd."))
            .map(|function| function.raw())
            .collect();
        let has_always_inline = functions().any(|function| function.has(always_inline));
        SymbolTable {
            index,
            bodies,
            fmuladd,
            has_always_inline,
            values,
        }
    }

    /// All of them, by number.
    pub(crate) fn values(&self) -> impl ExactSizeIterator<Item = ValueRef<'_>> {
        // SAFETY: a global of the module, which is kept beside the table; here and below.
        self.values.iter().map(|&raw| unsafe { ValueRef::of(raw) })
    }

    /// The global of that number.
    pub(crate) fn value(&self, id: SymbolId) -> ValueRef<'_> {
        // SAFETY: see above.
        unsafe { ValueRef::of(self.values[id.index()]) }
    }

    /// The function of that number; `None` if it is another's or nobody's.
    pub(crate) fn function(&self, id: SymbolId) -> Option<FunctionRef<'_>> {
        let &raw = self.values.get(id.index())?;
        // SAFETY: see above.
        unsafe { ValueRef::of(raw) }.as_function()
    }

    /// The number of a global of the module.
    pub(crate) fn id(&self, value: ValueRef<'_>) -> Option<SymbolId> {
        self.index.get(&value.raw()).copied()
    }

    /// Which of the module's bodies is that of a function.
    pub(crate) fn body(&self, id: SymbolId) -> Option<u32> {
        self.bodies[id.index()]
    }

    /// True if `value` is `llvm.fmuladd`.
    pub(crate) fn is_fmuladd(&self, value: ValueRef<'_>) -> bool {
        self.fmuladd.contains(&value.raw())
    }

    /// True if any function is `alwaysinline`.
    pub(crate) fn has_always_inline(&self) -> bool {
        self.has_always_inline
    }
}
