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
    // Raw, as the module is kept beside the table; handles borrow the table, and with it the owner
    // of both.
    values: Vec<LLVMValueRef>,
    index: FxHashMap<LLVMValueRef, SymbolId>,
    /// The number of each global's body in the module.
    bodies: Vec<Option<u32>>,
    /// Declarations of intrinsics whose calls copies replace.
    rewritten: Vec<(LLVMValueRef, Rewritten)>,
    has_always_inline: bool,
}

/// The code that replaces an intrinsic's call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rewritten {
    /// A product and a sum, for `llvm.fmuladd`.
    MulAdd,
    /// The constant true, for `llvm.type.test`.
    TypeTest,
    /// A load and the constant true, for `llvm.type.checked.load`.
    CheckedLoad {
        /// The table holds distances from its own address, of 32 bits.
        relative: bool,
    },
}

impl Rewritten {
    fn of(name: &str) -> Option<Rewritten> {
        match name {
            "llvm.type.test" | "llvm.public.type.test" => Some(Rewritten::TypeTest),
            "llvm.type.checked.load" => Some(Rewritten::CheckedLoad { relative: false }),
            "llvm.type.checked.load.relative" => Some(Rewritten::CheckedLoad { relative: true }),
            name => (name.starts_with("llvm.fmuladd.")).then_some(Rewritten::MulAdd),
        }
    }
}

impl SymbolTable {
    /// The table of a module; `always_inline` is the number of that attribute.
    ///
    /// # Safety
    /// The table is kept beside the module, and dropped with it.
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
        let rewritten = functions()
            .filter(|function| function.is_intrinsic())
            .filter_map(|function| Some((function.raw(), Rewritten::of(&function.name())?)))
            .collect();
        let has_always_inline = functions().any(|function| function.has(always_inline));
        SymbolTable {
            index,
            bodies,
            rewritten,
            has_always_inline,
            values,
        }
    }

    /// All globals, by number.
    pub(crate) fn values(&self) -> impl ExactSizeIterator<Item = ValueRef<'_>> {
        // SAFETY: a global of the module, which is kept beside the table; here and below.
        self.values.iter().map(|&raw| unsafe { ValueRef::of(raw) })
    }

    /// The global of that number.
    pub(crate) fn value(&self, id: SymbolId) -> ValueRef<'_> {
        // SAFETY: see above.
        unsafe { ValueRef::of(self.values[id.index()]) }
    }

    /// The function of that number; `None` if the number is another kind of global's, or unused.
    pub(crate) fn function(&self, id: SymbolId) -> Option<FunctionRef<'_>> {
        let &raw = self.values.get(id.index())?;
        // SAFETY: see above.
        unsafe { ValueRef::of(raw) }.as_function()
    }

    /// The number of a global of the module.
    pub(crate) fn id(&self, value: ValueRef<'_>) -> Option<SymbolId> {
        self.index.get(&value.raw()).copied()
    }

    /// The number of a function's body in the module.
    pub(crate) fn body(&self, id: SymbolId) -> Option<u32> {
        self.bodies[id.index()]
    }

    /// The code that replaces calls of `value` in copies, if it is one of those intrinsics.
    pub(crate) fn rewritten(&self, value: ValueRef<'_>) -> Option<Rewritten> {
        let mut all = self.rewritten.iter();
        let found = all.find(|(declaration, _)| *declaration == value.raw());
        found.map(|&(_, rewritten)| rewritten)
    }

    /// True if any function is `alwaysinline`.
    pub(crate) fn has_always_inline(&self) -> bool {
        self.has_always_inline
    }
}
