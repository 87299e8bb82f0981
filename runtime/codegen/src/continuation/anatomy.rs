//! Describes a body in LLVM's memory as an [`Anatomy`].
//!
//! The description must equal the one of the body's bitcode (`uruk_lower`): a test compares them.

use std::sync::OnceLock;

use inkwell::llvm_sys::core::{
    LLVMConstIntGetZExtValue, LLVMGetAllocatedType, LLVMGetCallSiteEnumAttribute,
    LLVMGetEnumAttributeAtIndex, LLVMGetEnumAttributeKindForName, LLVMGetGC, LLVMGetIndices,
    LLVMGetIntTypeWidth, LLVMGetNumArgOperands, LLVMGetNumIndices, LLVMGetOrdering,
    LLVMGetPointerAddressSpace, LLVMGetTailCallKind, LLVMGetTypeKind, LLVMGetVolatile,
    LLVMIsAConstantInt, LLVMIsAInlineAsm, LLVMIsConstant, LLVMTypeIsSized, LLVMTypeOf,
};
use inkwell::llvm_sys::prelude::LLVMTypeRef;
use inkwell::llvm_sys::target::{LLVMABISizeOfType, LLVMGetModuleDataLayout, LLVMTargetDataRef};
use inkwell::llvm_sys::{LLVMAtomicOrdering, LLVMOpcode, LLVMTailCallKind, LLVMTypeKind};
use rustc_hash::FxHashMap;
use uruk_leaving::{Anatomy, Carried, Code, Facts, Meaning, NONE, Reason, Simple};

use super::intrinsics::meaning_of;
use super::parts::{incoming, parameters};
use crate::attributes::AttributeKinds;
use crate::context::OwnedModule;
use crate::flow::Flow;
use crate::handles::{FunctionRef, InstructionRef, ValueRef};

/// A body to describe: a copy, or the original in its module, described as its copy would be.
#[derive(Clone, Copy)]
pub(crate) struct LlvmBody<'a, 'm> {
    pub(crate) function: FunctionRef<'m>,
    /// The layout that sizes are of.
    layout: LLVMTargetDataRef,
    /// Tells whether the copy has a multiplication and an addition in place of this instruction.
    is_fused: &'a dyn Fn(InstructionRef<'m>) -> bool,
}

impl<'a, 'm> LlvmBody<'a, 'm> {
    /// A copy, in a module for the target.
    pub(crate) fn copied(module: &OwnedModule, function: FunctionRef<'m>) -> LlvmBody<'a, 'm> {
        LlvmBody {
            function,
            // SAFETY: a live module, which owns the layout.
            layout: unsafe { LLVMGetModuleDataLayout(module.raw()) },
            is_fused: &|_| false,
        }
    }

    /// The original in its module; tier 1 code made without a copy is described from bitcode.
    ///
    /// # Safety
    /// The layout lives as long as this.
    pub(crate) unsafe fn in_place(
        function: FunctionRef<'m>,
        layout: LLVMTargetDataRef,
        is_fused: &'a dyn Fn(InstructionRef<'m>) -> bool,
    ) -> LlvmBody<'a, 'm> {
        LlvmBody {
            function,
            layout,
            is_fused,
        }
    }
}

/// A described body, and LLVM's value for each number.
pub(crate) struct DescribedBody<'m> {
    pub(crate) anatomy: Anatomy,
    /// LLVM's values, by number.
    pub(super) values: Vec<ValueRef<'m>>,
    pub(super) numbers: FxHashMap<ValueRef<'m>, u32>,
}

struct BodyDescription<'a, 'm> {
    body: LlvmBody<'a, 'm>,
    told: DescribedBody<'m>,
    /// Blocks by their addresses.
    blocks: FxHashMap<usize, u32>,
    types: FxHashMap<LLVMTypeRef, Carried>,
}

impl<'m> DescribedBody<'m> {
    /// Describes a body, whose blocks are in `flow`.
    pub(crate) fn of(
        body: LlvmBody<'_, 'm>,
        kinds: &AttributeKinds,
        flow: &Flow<'m>,
    ) -> DescribedBody<'m> {
        let parameters = parameters(body.function);
        let instructions = flow.blocks.iter().flat_map(|it| it.instructions());
        let values: Vec<ValueRef<'m>> = (parameters.iter().copied())
            .chain(instructions.map(|it| *it))
            .collect();
        let numbers = values.iter().copied().zip(0..).collect();
        let blocks = flow.blocks.iter().zip(0..);
        let mut telling = BodyDescription {
            body,
            told: DescribedBody {
                anatomy: Anatomy::default(),
                values,
                numbers,
            },
            blocks: blocks.map(|(it, at)| (it.raw() as usize, at)).collect(),
            types: FxHashMap::default(),
        };
        telling.head(kinds);
        for (block, at) in flow.blocks.iter().zip(0..) {
            telling.told.anatomy.begin_block();
            for instruction in block.instructions() {
                telling.instruction(instruction, at == 0);
            }
        }
        telling.told.anatomy.finish();
        telling.told
    }
}

impl<'m> BodyDescription<'_, 'm> {
    /// Describes properties of the body as a whole, and its parameters.
    fn head(&mut self, kinds: &AttributeKinds) {
        let function = self.body.function;
        // SAFETY: a live function, here and below.
        let collected = unsafe { !LLVMGetGC(function.raw()).is_null() };
        let is_odd = collected || function.has(kinds.naked) || function.has(kinds.returns_twice);
        let anatomy = &mut self.told.anatomy;
        anatomy.whole = match function.has(kinds.presplit_coroutine) {
            true => Some(Reason::Coroutine),
            false => is_odd.then_some(Reason::Other),
        };
        for (index, parameter) in (1..).zip(parameters(function)) {
            // SAFETY: there is an index for each parameter, behind that of the result.
            let (promised, ty) = unsafe {
                let kind = kind("noalias");
                let promise = LLVMGetEnumAttributeAtIndex(function.raw(), index, kind);
                (!promise.is_null(), LLVMTypeOf(parameter.raw()))
            };
            let carried = self.carried(ty);
            self.told.anatomy.add_parameter(carried, promised);
        }
    }

    fn instruction(&mut self, it: InstructionRef<'m>, is_entry: bool) {
        let opcode = it.opcode();
        let (code, mut facts) = (code_of(opcode), Facts::none());
        let meaning = match code {
            Code::Call | Code::Invoke => meaning_of(it),
            _ => Meaning::Nothing,
        };
        // SAFETY: a live instruction, asked only for properties of its kind; sizes are asked of
        // allocated types, and numbers of constants.
        let carried = unsafe {
            match code {
                Code::Load => facts = Facts::SPECIAL.when(is_special(it)),
                Code::Store => facts = Facts::SPECIAL.when(is_special(it)),
                Code::ExtractValue => facts = Facts::FIRST.when(is_first(it)),
                Code::GetElementPtr | Code::BitCast => {
                    let mut added = it.operands().flatten().skip(1);
                    let fixed = added.all(|it| LLVMIsConstant(it.raw()) != 0);
                    let kind = LLVMGetTypeKind(LLVMTypeOf(it.raw()));
                    facts = Facts::FIXED.when(fixed)
                        | Facts::POINTER.when(kind == LLVMTypeKind::LLVMPointerTypeKind);
                }
                Code::Alloca => facts = self.room(it, is_entry),
                Code::Call | Code::Invoke => facts = self.call(it, meaning),
                _ => {}
            }
            match (code, it.operands().next().flatten()) {
                (Code::Store, Some(value)) => self.carried(LLVMTypeOf(value.raw())),
                (Code::Alloca, _) => self.carried(LLVMGetAllocatedType(it.raw())),
                _ => self.carried(LLVMTypeOf(it.raw())),
            }
        };
        self.operands(it, code);
        self.told.anatomy.add(code, meaning, facts, carried);
    }

    fn operands(&mut self, it: InstructionRef<'m>, code: Code) {
        let DescribedBody {
            anatomy, numbers, ..
        } = &mut self.told;
        let number = |it: ValueRef<'m>| numbers.get(&it).copied().unwrap_or(NONE);
        if code == Code::Phi {
            for (value, from) in incoming(it) {
                if let Some(&from) = self.blocks.get(&from) {
                    anatomy.add_incoming(number(value), from);
                }
            }
            return;
        }
        for operand in it.operands().flatten() {
            let operand = number(operand);
            if operand != NONE || code == Code::Store {
                anatomy.add_operand(operand);
            }
        }
    }

    /// # Safety
    /// An `alloca`.
    unsafe fn room(&mut self, it: InstructionRef<'m>, is_entry: bool) -> Facts {
        let count = it.operands().next().flatten();
        // SAFETY: by the caller's promise; sizes of types of known size are asked for.
        unsafe {
            let Some(count) = count.filter(|it| !LLVMIsAConstantInt(it.raw()).is_null()) else {
                return Facts::none();
            };
            let ty = LLVMGetAllocatedType(it.raw());
            if is_entry && LLVMGetTypeKind(ty) == LLVMTypeKind::LLVMScalableVectorTypeKind {
                self.told.anatomy.scalable = true;
            } else if is_entry {
                let bytes = LLVMABISizeOfType(self.body.layout, ty);
                let count = LLVMConstIntGetZExtValue(count.raw());
                self.told.anatomy.add_room(bytes, count);
            }
        }
        Facts::COUNTED
    }

    /// # Safety
    /// A call.
    unsafe fn call(&self, it: InstructionRef<'m>, meaning: Meaning) -> Facts {
        // SAFETY: by the caller's promise; a flag of an intrinsic is a constant number.
        unsafe {
            let volatile = meaning == Meaning::Memory
                && (it.operands().nth(3).flatten())
                    .is_none_or(|it| LLVMConstIntGetZExtValue(it.raw()) != 0);
            let must_tail = it.opcode() == LLVMOpcode::LLVMCall
                && LLVMGetTailCallKind(it.raw()) == LLVMTailCallKind::LLVMTailCallKindMustTail;
            let is_asm = it
                .callee()
                .is_some_and(|it| !LLVMIsAInlineAsm(it.raw()).is_null());
            Facts::SPECIAL.when(volatile)
                | Facts::MUST_TAIL.when(must_tail)
                | Facts::PASSES_SPECIALLY.when(!is_asm && passes_specially(it))
                | Facts::FUSED.when((self.body.is_fused)(it))
        }
    }

    /// The representation of values of a type across a head.
    fn carried(&mut self, ty: LLVMTypeRef) -> Carried {
        if let Some(&known) = self.types.get(&ty) {
            return known;
        }
        // SAFETY: a live type, asked only for properties of its kind.
        let carried = unsafe {
            let kind = LLVMGetTypeKind(ty);
            let sized = !matches!(
                kind,
                LLVMTypeKind::LLVMTokenTypeKind
                    | LLVMTypeKind::LLVMMetadataTypeKind
                    | LLVMTypeKind::LLVMLabelTypeKind
                    | LLVMTypeKind::LLVMX86_AMXTypeKind
                    | LLVMTypeKind::LLVMTargetExtTypeKind
                    | LLVMTypeKind::LLVMVoidTypeKind
                    | LLVMTypeKind::LLVMScalableVectorTypeKind
            ) && LLVMTypeIsSized(ty) != 0;
            match sized {
                true => Carried::or_stored(simple(ty)),
                false => Carried::Never,
            }
        };
        self.types.insert(ty, carried);
        carried
    }
}

/// A type of the context that is passed as it is.
pub(crate) fn simple(ty: LLVMTypeRef) -> Option<Simple> {
    // SAFETY: a live type, asked only for properties of its kind.
    unsafe {
        match LLVMGetTypeKind(ty) {
            LLVMTypeKind::LLVMIntegerTypeKind => Simple::integer(LLVMGetIntTypeWidth(ty)),
            LLVMTypeKind::LLVMFloatTypeKind => Some(Simple::FLOAT),
            LLVMTypeKind::LLVMDoubleTypeKind => Some(Simple::DOUBLE),
            LLVMTypeKind::LLVMPointerTypeKind => {
                Some(Simple::pointer(LLVMGetPointerAddressSpace(ty)))
            }
            _ => None,
        }
    }
}

fn kind(name: &str) -> u32 {
    // SAFETY: pointer and length describe the name.
    unsafe { LLVMGetEnumAttributeKindForName(name.as_ptr().cast(), name.len()) }
}

/// True if the first part of a value is extracted.
///
/// # Safety
/// An instruction with indices.
unsafe fn is_first(extract: InstructionRef<'_>) -> bool {
    // SAFETY: by the caller's promise.
    unsafe { LLVMGetNumIndices(extract.raw()) == 1 && *LLVMGetIndices(extract.raw()) == 0 }
}

/// True for an access that is volatile or atomic.
///
/// # Safety
/// A load or store.
unsafe fn is_special(access: InstructionRef<'_>) -> bool {
    // SAFETY: by the caller's promise.
    unsafe {
        LLVMGetVolatile(access.raw()) != 0
            || LLVMGetOrdering(access.raw()) != LLVMAtomicOrdering::LLVMAtomicOrderingNotAtomic
    }
}

/// True for a call with arguments that are no plain values: the operand of a `swifterror` or
/// `inalloca` argument must keep its form.
///
/// # Safety
/// A call.
unsafe fn passes_specially(call: InstructionRef<'_>) -> bool {
    static KINDS: OnceLock<[u32; 3]> = OnceLock::new();
    let kinds = KINDS.get_or_init(|| ["swifterror", "inalloca", "preallocated"].map(kind));
    // SAFETY: by the caller's promise, and arguments below their count.
    unsafe {
        (1..=LLVMGetNumArgOperands(call.raw())).any(|index| {
            let has =
                |kind: &u32| !LLVMGetCallSiteEnumAttribute(call.raw(), index, *kind).is_null();
            kinds.iter().any(has)
        })
    }
}

fn code_of(opcode: LLVMOpcode) -> Code {
    use LLVMOpcode as L;
    match opcode {
        L::LLVMAdd | L::LLVMFAdd => Code::Add,
        L::LLVMSub | L::LLVMFSub => Code::Sub,
        L::LLVMMul | L::LLVMFMul => Code::Mul,
        L::LLVMUDiv => Code::UDiv,
        L::LLVMSDiv | L::LLVMFDiv => Code::SDiv,
        L::LLVMURem => Code::URem,
        L::LLVMSRem | L::LLVMFRem => Code::SRem,
        L::LLVMShl => Code::Shl,
        L::LLVMLShr => Code::LShr,
        L::LLVMAShr => Code::AShr,
        L::LLVMAnd => Code::And,
        L::LLVMOr => Code::Or,
        L::LLVMXor => Code::Xor,
        L::LLVMFNeg => Code::FNeg,
        L::LLVMTrunc => Code::Trunc,
        L::LLVMZExt => Code::ZExt,
        L::LLVMSExt => Code::SExt,
        L::LLVMFPToUI => Code::FpToUi,
        L::LLVMFPToSI => Code::FpToSi,
        L::LLVMUIToFP => Code::UiToFp,
        L::LLVMSIToFP => Code::SiToFp,
        L::LLVMFPTrunc => Code::FpTrunc,
        L::LLVMFPExt => Code::FpExt,
        L::LLVMPtrToInt => Code::PtrToInt,
        L::LLVMIntToPtr => Code::IntToPtr,
        L::LLVMBitCast => Code::BitCast,
        L::LLVMAddrSpaceCast => Code::AddrSpaceCast,
        L::LLVMPtrToAddr => Code::PtrToAddr,
        L::LLVMGetElementPtr => Code::GetElementPtr,
        L::LLVMExtractValue => Code::ExtractValue,
        L::LLVMInsertValue => Code::InsertValue,
        L::LLVMSelect => Code::Select,
        L::LLVMExtractElement => Code::ExtractElement,
        L::LLVMInsertElement => Code::InsertElement,
        L::LLVMShuffleVector => Code::ShuffleVector,
        L::LLVMICmp | L::LLVMFCmp => Code::Compare,
        L::LLVMPHI => Code::Phi,
        L::LLVMAlloca => Code::Alloca,
        L::LLVMLoad => Code::Load,
        L::LLVMStore => Code::Store,
        L::LLVMAtomicCmpXchg => Code::CompareExchange,
        L::LLVMAtomicRMW => Code::Rmw,
        L::LLVMFence => Code::Fence,
        L::LLVMCall => Code::Call,
        L::LLVMInvoke => Code::Invoke,
        L::LLVMLandingPad => Code::LandingPad,
        L::LLVMResume => Code::Resume,
        L::LLVMVAArg => Code::VaArg,
        L::LLVMFreeze => Code::Freeze,
        L::LLVMRet => Code::Return,
        L::LLVMBr => Code::Branch,
        L::LLVMSwitch => Code::Switch,
        L::LLVMIndirectBr => Code::IndirectBranch,
        L::LLVMUnreachable => Code::Unreachable,
        L::LLVMCallBr
        | L::LLVMCatchSwitch
        | L::LLVMCatchPad
        | L::LLVMCleanupPad
        | L::LLVMCatchRet
        | L::LLVMCleanupRet
        | L::LLVMUserOp1
        | L::LLVMUserOp2 => Code::Odd,
    }
}
