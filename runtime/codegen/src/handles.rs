//! Handles of LLVM's objects in a module or a context, bound to its life.
//!
//! A handle with the life `'m` proves that the owner of the object is borrowed for `'m`. So the
//! object is neither disposed of nor changed by passes. The handle's type proves the kind, which
//! LLVM-C does not check. So the queries here are safe. Handles are made where raw references come
//! from LLVM (`unsafe fn of`), and are raw again ([`ValueRef::raw`] and the like) inside the
//! `unsafe` blocks that call it.
//!
//! # Invariants
//! - Passes, and emission, take the module for themselves (`&mut OwnedModule`): they erase objects
//!   that handles name. A function that erases a single value is `unsafe` and says which handles
//!   are left.
//! - Values kept beside the module they belong to (`table`, `library`, `foreign`) are kept raw, by
//!   their owner alone, which gives out handles that borrow both.
//!
//! # Why
//! Inkwell's values are not used: their life is that of a context, which outlives the modules read
//! in it, and their constructors panic on kinds of values that inkwell does not know.

use std::ffi::CString;
use std::marker::PhantomData;
use std::ops::Deref;
use std::slice::from_raw_parts;

use inkwell::llvm_sys::core::{
    LLVMAddAttributeAtIndex, LLVMAliasGetAliasee, LLVMBasicBlockAsValue, LLVMCreateEnumAttribute,
    LLVMCreateStringAttribute, LLVMGetBasicBlockParent, LLVMGetBasicBlockTerminator,
    LLVMGetCalledValue, LLVMGetEnumAttributeAtIndex, LLVMGetFirstBasicBlock,
    LLVMGetFirstInstruction, LLVMGetFirstUse, LLVMGetGlobalIFuncResolver, LLVMGetGlobalParent,
    LLVMGetInitializer, LLVMGetInstructionOpcode, LLVMGetInstructionParent, LLVMGetIntrinsicID,
    LLVMGetModuleContext, LLVMGetNextBasicBlock, LLVMGetNextInstruction, LLVMGetNextUse,
    LLVMGetNumOperands, LLVMGetOperand, LLVMGetStringAttributeAtIndex, LLVMGetStringAttributeValue,
    LLVMGetUser, LLVMGetValueKind, LLVMGetValueName2, LLVMGlobalGetValueType, LLVMIsAFunction,
    LLVMIsAGlobalVariable, LLVMIsAInstruction, LLVMIsConstant, LLVMIsDeclaration,
    LLVMIsGlobalConstant, LLVMRemoveEnumAttributeAtIndex, LLVMRemoveStringAttributeAtIndex,
};
use inkwell::llvm_sys::prelude::{LLVMBasicBlockRef, LLVMTypeRef, LLVMUseRef, LLVMValueRef};
use inkwell::llvm_sys::{LLVMAttributeFunctionIndex, LLVMOpcode, LLVMValueKind};

/// Defines a kind of handle over a raw reference, and the condition a raw reference must meet.
macro_rules! handle {
    ($(#[$doc:meta])* $name:ident($raw:ty): $duty:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(transparent)]
        pub(crate) struct $name<'m> {
            raw: $raw,
            life: PhantomData<&'m ()>,
        }

        impl $name<'_> {
            /// # Safety
            #[doc = $duty]
            pub(crate) unsafe fn of(raw: $raw) -> Self {
                debug_assert!(!raw.is_null());
                let life = PhantomData;
                $name { raw, life }
            }

            /// For calls of LLVM.
            pub(crate) fn raw(self) -> $raw {
                self.raw
            }
        }
    };
}

handle! {
    /// Any value: of a module, or a constant of its context.
    ValueRef(LLVMValueRef): "A value that lives for the handle's life."
}
handle! {
    /// A function, defined or declared.
    FunctionRef(LLVMValueRef): "A function that lives for the handle's life."
}
handle! {
    /// A variable, defined or declared.
    VariableRef(LLVMValueRef): "A global variable that lives for the handle's life."
}
handle! {
    /// An instruction.
    InstructionRef(LLVMValueRef): "An instruction that lives for the handle's life."
}
handle! {
    /// A block of a function.
    BlockRef(LLVMBasicBlockRef): "A block that lives for the handle's life."
}
handle! {
    /// A type; of the context, which outlives all modules.
    TypeRef(LLVMTypeRef): "A type of a context that lives for the handle's life."
}

/// Makes a handle dereference to a value.
macro_rules! is_value {
    ($name:ident) => {
        impl<'m> Deref for $name<'m> {
            type Target = ValueRef<'m>;

            fn deref(&self) -> &ValueRef<'m> {
                // SAFETY: both are the same raw reference and nothing else.
                unsafe { &*std::ptr::from_ref(self).cast::<ValueRef<'m>>() }
            }
        }
    };
}

is_value!(FunctionRef);
is_value!(VariableRef);
is_value!(InstructionRef);

impl<'m> ValueRef<'m> {
    /// A value that may not be there.
    ///
    /// # Safety
    /// Null, or as [`ValueRef::of`].
    pub(crate) unsafe fn from_raw(raw: LLVMValueRef) -> Option<ValueRef<'m>> {
        // SAFETY: by the caller's promise.
        (!raw.is_null()).then(|| unsafe { ValueRef::of(raw) })
    }

    /// The kind of the value; LLVM-C shows constant kinds it has no name for as instructions.
    pub(crate) fn kind(self) -> LLVMValueKind {
        // SAFETY: a live value.
        unsafe { LLVMGetValueKind(self.raw) }
    }

    /// Its name; the escape byte that suppresses mangling is dropped.
    pub(crate) fn name(self) -> String {
        let mut length = 0;
        // SAFETY: a live value; LLVM returns pointer and length of its name.
        let bytes = unsafe {
            let start = LLVMGetValueName2(self.raw, &mut length);
            from_raw_parts(start.cast::<u8>(), length)
        };
        let bytes = bytes.strip_prefix(b"\x01").unwrap_or(bytes);
        String::from_utf8_lossy(bytes).into_owned()
    }

    pub(crate) fn as_function(self) -> Option<FunctionRef<'m>> {
        // SAFETY: a live value, which lives on as the kind found; here and below.
        unsafe { (!LLVMIsAFunction(self.raw).is_null()).then(|| FunctionRef::of(self.raw)) }
    }

    pub(crate) fn as_variable(self) -> Option<VariableRef<'m>> {
        // SAFETY: see above.
        unsafe { (!LLVMIsAGlobalVariable(self.raw).is_null()).then(|| VariableRef::of(self.raw)) }
    }

    pub(crate) fn as_instruction(self) -> Option<InstructionRef<'m>> {
        // SAFETY: see above.
        unsafe { (!LLVMIsAInstruction(self.raw).is_null()).then(|| InstructionRef::of(self.raw)) }
    }

    /// The target of an alias.
    pub(crate) fn aliasee(self) -> Option<ValueRef<'m>> {
        let is_alias = self.kind() == LLVMValueKind::LLVMGlobalAliasValueKind;
        // SAFETY: a live alias, whose aliasee lives as it does.
        is_alias.then(|| unsafe { ValueRef::of(LLVMAliasGetAliasee(self.raw)) })
    }

    /// The resolver of an ifunc.
    pub(crate) fn resolver(self) -> Option<ValueRef<'m>> {
        let is_ifunc = self.kind() == LLVMValueKind::LLVMGlobalIFuncValueKind;
        // SAFETY: a live ifunc, whose resolver lives as it does.
        is_ifunc.then(|| unsafe { ValueRef::of(LLVMGetGlobalIFuncResolver(self.raw)) })
    }

    /// True if it is a function, a variable, an alias or an ifunc.
    pub(crate) fn is_global(self) -> bool {
        matches!(
            self.kind(),
            LLVMValueKind::LLVMFunctionValueKind
                | LLVMValueKind::LLVMGlobalVariableValueKind
                | LLVMValueKind::LLVMGlobalAliasValueKind
                | LLVMValueKind::LLVMGlobalIFuncValueKind
        )
    }

    /// The function that a `dso_local_equivalent` or `no_cfi` constant has the address of. Every
    /// function of a session is in reach of its code, and calls pass no tables of control-flow
    /// integrity. LLVM-C shows both kinds as instructions.
    pub(crate) fn stands_for(self) -> Option<ValueRef<'m>> {
        // SAFETY: a live value, which has operands if it is a constant of these kinds; a function
        // lives as its users do.
        unsafe {
            let is_one = self.kind() == LLVMValueKind::LLVMInstructionValueKind
                && LLVMIsConstant(self.raw) != 0
                && LLVMGetNumOperands(self.raw) == 1;
            let operand = is_one.then(|| ValueRef::of(LLVMGetOperand(self.raw, 0)))?;
            operand.is_global().then_some(operand)
        }
    }

    /// The type of a global's content or function.
    pub(crate) fn content_type(self) -> Option<TypeRef<'m>> {
        // SAFETY: a live global has such a type.
        (self.is_global()).then(|| unsafe { TypeRef::of(LLVMGlobalGetValueType(self.raw)) })
    }

    /// True for constants that are made of others.
    pub(crate) fn is_composite(self) -> bool {
        matches!(
            self.kind(),
            LLVMValueKind::LLVMConstantExprValueKind
                | LLVMValueKind::LLVMConstantArrayValueKind
                | LLVMValueKind::LLVMConstantStructValueKind
                | LLVMValueKind::LLVMConstantVectorValueKind
        )
    }

    /// The operands of a composite constant; none for other constants.
    pub(crate) fn parts(self) -> impl ExactSizeIterator<Item = ValueRef<'m>> {
        let count = match self.is_composite() {
            // SAFETY: a constant with operands.
            true => unsafe { LLVMGetNumOperands(self.raw) }.max(0) as u32,
            false => 0,
        };
        // SAFETY: the index is below the count; operands of constants are constants.
        (0..count).map(move |index| unsafe { ValueRef::of(LLVMGetOperand(self.raw, index)) })
    }

    /// The users of the value, once for each use.
    pub(crate) fn users(self) -> impl Iterator<Item = ValueRef<'m>> {
        // SAFETY: walks the use list of a live value to its null end.
        let mut item: LLVMUseRef = unsafe { LLVMGetFirstUse(self.raw) };
        std::iter::from_fn(move || {
            if item.is_null() {
                return None;
            }
            // SAFETY: an item of the list; users of a live value are live.
            unsafe {
                let user = ValueRef::of(LLVMGetUser(item));
                item = LLVMGetNextUse(item);
                Some(user)
            }
        })
    }
}

impl<'m> FunctionRef<'m> {
    /// True for a function without a body; one with an unread body has a body.
    pub(crate) fn is_declaration(self) -> bool {
        // SAFETY: a live function, here and below.
        unsafe { LLVMIsDeclaration(self.raw) != 0 }
    }

    /// True for an intrinsic of LLVM.
    pub(crate) fn is_intrinsic(self) -> bool {
        self.intrinsic() != 0
    }

    /// Its number among LLVM's intrinsics; 0 if it is none.
    pub(crate) fn intrinsic(self) -> u32 {
        // SAFETY: see above.
        unsafe { LLVMGetIntrinsicID(self.raw) }
    }

    /// Whether it has a body that was not read.
    pub(crate) fn is_unread(self) -> bool {
        !self.is_declaration() && self.blocks().next().is_none()
    }

    /// Its blocks, of a body that was read.
    pub(crate) fn blocks(self) -> impl Iterator<Item = BlockRef<'m>> {
        // SAFETY: walks the blocks of a live function to the null end.
        let mut next = unsafe { LLVMGetFirstBasicBlock(self.raw) };
        std::iter::from_fn(move || {
            if next.is_null() {
                return None;
            }
            // SAFETY: a block of a live function.
            unsafe {
                let block = BlockRef::of(next);
                next = LLVMGetNextBasicBlock(next);
                Some(block)
            }
        })
    }

    /// Its instructions, block by block.
    pub(crate) fn instructions(self) -> impl Iterator<Item = InstructionRef<'m>> {
        self.blocks().flat_map(BlockRef::instructions)
    }

    /// True if it has the enum attribute `kind`.
    pub(crate) fn has(self, kind: u32) -> bool {
        // SAFETY: a live function.
        let attribute =
            unsafe { LLVMGetEnumAttributeAtIndex(self.raw, LLVMAttributeFunctionIndex, kind) };
        !attribute.is_null()
    }

    /// Gives it the attribute `kind`, one that has no value.
    pub(crate) fn add(self, kind: u32) {
        // SAFETY: a live function, of a module, and an attribute of its context.
        unsafe {
            let context = LLVMGetModuleContext(LLVMGetGlobalParent(self.raw));
            let attribute = LLVMCreateEnumAttribute(context, kind, 0);
            LLVMAddAttributeAtIndex(self.raw, LLVMAttributeFunctionIndex, attribute);
        }
    }

    /// Gives it the attribute `kind` with a number for its value.
    pub(crate) fn add_number(self, kind: u32, value: u64) {
        // SAFETY: as in `add`.
        unsafe {
            let context = LLVMGetModuleContext(LLVMGetGlobalParent(self.raw));
            let attribute = LLVMCreateEnumAttribute(context, kind, value);
            LLVMAddAttributeAtIndex(self.raw, LLVMAttributeFunctionIndex, attribute);
        }
    }

    /// Takes the attribute `kind` away, if it has it.
    pub(crate) fn remove(self, kind: u32) {
        // SAFETY: a live function; removing an absent attribute does nothing.
        unsafe { LLVMRemoveEnumAttributeAtIndex(self.raw, LLVMAttributeFunctionIndex, kind) };
    }

    /// Gives it a string attribute; one of the same key is replaced.
    pub(crate) fn set_text(self, key: &str, value: &str) {
        // SAFETY: a live function, of a module, and its context; pointers and lengths describe
        // the strings.
        unsafe {
            let attribute = LLVMCreateStringAttribute(
                LLVMGetModuleContext(LLVMGetGlobalParent(self.raw)),
                key.as_ptr().cast(),
                key.len() as u32,
                value.as_ptr().cast(),
                value.len() as u32,
            );
            LLVMAddAttributeAtIndex(self.raw, LLVMAttributeFunctionIndex, attribute);
        }
    }

    /// The value of a string attribute; empty if there is none.
    pub(crate) fn text(self, key: &str) -> String {
        // SAFETY: a live function; LLVM returns pointer and length of a string it keeps.
        unsafe {
            let attribute = LLVMGetStringAttributeAtIndex(
                self.raw,
                LLVMAttributeFunctionIndex,
                key.as_ptr().cast(),
                key.len() as u32,
            );
            if attribute.is_null() {
                return String::new();
            }
            let mut length = 0;
            let start = LLVMGetStringAttributeValue(attribute, &mut length);
            let bytes = from_raw_parts(start.cast::<u8>(), length as usize);
            String::from_utf8_lossy(bytes).into_owned()
        }
    }

    /// Takes a string attribute away, if it has it.
    pub(crate) fn remove_text(self, key: &str) {
        // SAFETY: a live function; pointer and length describe the key. One that is not there
        // is no matter.
        unsafe {
            LLVMRemoveStringAttributeAtIndex(
                self.raw,
                LLVMAttributeFunctionIndex,
                key.as_ptr().cast(),
                key.len() as u32,
            );
        }
    }
}

impl<'m> VariableRef<'m> {
    /// Its value at start; `None` for a declaration.
    pub(crate) fn initializer(self) -> Option<ValueRef<'m>> {
        // SAFETY: a live variable, whose initializer lives as it does.
        unsafe { ValueRef::from_raw(LLVMGetInitializer(self.raw)) }
    }

    /// True if nothing may write to it.
    pub(crate) fn is_constant(self) -> bool {
        // SAFETY: a live variable.
        unsafe { LLVMIsGlobalConstant(self.raw) != 0 }
    }
}

impl<'m> BlockRef<'m> {
    /// The block as a value: the form in branches and labels.
    pub(crate) fn value(self) -> ValueRef<'m> {
        // SAFETY: a live block.
        unsafe { ValueRef::of(LLVMBasicBlockAsValue(self.raw)) }
    }

    /// Its instructions.
    pub(crate) fn instructions(self) -> impl Iterator<Item = InstructionRef<'m>> {
        // SAFETY: walks the instructions of a live block to the null end.
        let mut next = unsafe { LLVMGetFirstInstruction(self.raw) };
        std::iter::from_fn(move || {
            if next.is_null() {
                return None;
            }
            // SAFETY: an instruction of a live block.
            unsafe {
                let instruction = InstructionRef::of(next);
                next = LLVMGetNextInstruction(next);
                Some(instruction)
            }
        })
    }

    /// Its last instruction; `None` in a body that was not verified and lacks it.
    pub(crate) fn terminator(self) -> Option<InstructionRef<'m>> {
        // SAFETY: a live block, whose instructions are live.
        unsafe {
            let end = LLVMGetBasicBlockTerminator(self.raw);
            (!end.is_null()).then(|| InstructionRef::of(end))
        }
    }
}

impl<'m> InstructionRef<'m> {
    pub(crate) fn opcode(self) -> LLVMOpcode {
        // SAFETY: a live instruction, here and below.
        unsafe { LLVMGetInstructionOpcode(self.raw) }
    }

    /// The callee, if it is a call.
    pub(crate) fn callee(self) -> Option<ValueRef<'m>> {
        // SAFETY: a call has a callee.
        is_call(self.opcode()).then(|| unsafe { ValueRef::of(LLVMGetCalledValue(self.raw)) })
    }

    /// Its operands; a few kinds of instructions have empty ones.
    pub(crate) fn operands(self) -> impl ExactSizeIterator<Item = Option<ValueRef<'m>>> {
        // SAFETY: see above.
        let count = unsafe { LLVMGetNumOperands(self.raw) }.max(0) as u32;
        // SAFETY: the index is below the count; operands of a live instruction are live.
        (0..count).map(move |index| unsafe { ValueRef::from_raw(LLVMGetOperand(self.raw, index)) })
    }

    /// The function it is in, if it is in one.
    pub(crate) fn function(self) -> Option<FunctionRef<'m>> {
        // SAFETY: see above; an instruction's block and function live as it does.
        unsafe {
            let block = LLVMGetInstructionParent(self.raw);
            (!block.is_null()).then(|| FunctionRef::of(LLVMGetBasicBlockParent(block)))
        }
    }
}

/// True for instructions that have a callee.
pub(crate) fn is_call(opcode: LLVMOpcode) -> bool {
    matches!(
        opcode,
        LLVMOpcode::LLVMCall | LLVMOpcode::LLVMInvoke | LLVMOpcode::LLVMCallBr
    )
}

/// A name for LLVM, which ends names at the first zero byte.
pub(crate) fn c_name(name: &str) -> CString {
    CString::new(name.replace('\0', "?")).unwrap_or_default()
}
