//! One walk over a body: its size, an estimate of what it costs to inline, which
//! functions it names, and what forbids to copy it.

use std::sync::OnceLock;

use inkwell::llvm_sys::core::{
    LLVMBasicBlockAsValue, LLVMCountParamTypes, LLVMCountStructElementTypes, LLVMGetCalledValue,
    LLVMGetElementType, LLVMGetFirstBasicBlock, LLVMGetFirstInstruction, LLVMGetFirstUse,
    LLVMGetInitializer, LLVMGetInstructionOpcode, LLVMGetIntTypeWidth, LLVMGetIntrinsicID,
    LLVMGetNextBasicBlock, LLVMGetNextInstruction, LLVMGetNextUse, LLVMGetNumArgOperands,
    LLVMGetNumOperands, LLVMGetOperand, LLVMGetParamTypes, LLVMGetReturnType, LLVMGetTypeKind,
    LLVMGetUser, LLVMGetValueKind, LLVMGetVectorSize, LLVMGlobalGetValueType, LLVMIsAAllocaInst,
    LLVMIsAFunction, LLVMIsAInlineAsm, LLVMIsGlobalConstant, LLVMLookupIntrinsicID,
    LLVMStructGetTypeAtIndex, LLVMTypeOf,
};
use inkwell::llvm_sys::prelude::{LLVMBasicBlockRef, LLVMTypeRef, LLVMValueRef};
use inkwell::llvm_sys::{LLVMOpcode, LLVMTypeKind, LLVMValueKind};
use rustc_hash::FxHashSet;

use crate::body::is_call;

/// Parts of a constant up to which it is searched for functions.
const TABLE_PARTS: u32 = 12;
/// Types inside types looked at to find a vector; deeper ones count as one.
const TYPE_DEPTH: u32 = 8;

/// What a walk over one body tells.
#[derive(Default)]
pub(crate) struct Scan {
    pub(crate) instructions: u32,
    /// What LLVM's inliner is likely to count for it once it is simplified.
    pub(crate) cost: u32,
    /// Functions called directly, each once, in the order of their first call.
    pub(crate) callees: Vec<LLVMValueRef>,
    /// Functions whose addresses are used, or are in a small constant that is: tables
    /// of methods. What is inlined may call them directly.
    pub(crate) mentioned: Vec<LLVMValueRef>,
    /// True if the code passes or returns vectors in registers whose choice depends on
    /// the CPU's features.
    pub(crate) wide: bool,
    /// True if its labels' addresses are taken.
    pub(crate) labels: bool,
    /// True if it asks for addresses in its own frame.
    pub(crate) frame: bool,
}

impl Scan {
    /// What code could call directly once callees are inlined.
    pub(crate) fn in_sight(&self) -> impl Iterator<Item = LLVMValueRef> {
        self.callees.iter().chain(&self.mentioned).copied()
    }
}

/// Walks a body that was read.
pub(crate) fn scan(function: LLVMValueRef) -> Scan {
    let mut scan = Scan::default();
    let mut seen = FxHashSet::default();
    let mut mentioned = FxHashSet::default();
    // SAFETY: walks types, blocks and instructions of a live function; call operands
    // are asked for of calls only.
    unsafe {
        let ty = LLVMGlobalGetValueType(function);
        let mut parameters = vec![std::ptr::null_mut(); LLVMCountParamTypes(ty) as usize];
        LLVMGetParamTypes(ty, parameters.as_mut_ptr());
        parameters.push(LLVMGetReturnType(ty));
        scan.wide = parameters.iter().any(|&ty| is_wide(ty, 0));
        let mut block = LLVMGetFirstBasicBlock(function);
        while !block.is_null() {
            scan.labels |= is_label(block);
            let mut instruction = LLVMGetFirstInstruction(block);
            while !instruction.is_null() {
                scan.instructions = scan.instructions.saturating_add(1);
                let opcode = LLVMGetInstructionOpcode(instruction);
                scan.cost = scan.cost.saturating_add(cost(instruction, opcode));
                if is_call(opcode) {
                    scan_call(instruction, &mut scan, &mut seen);
                }
                scan_operands(instruction, &mut scan.mentioned, &mut mentioned);
                scan.labels |=
                    matches!(opcode, LLVMOpcode::LLVMIndirectBr | LLVMOpcode::LLVMCallBr);
                instruction = LLVMGetNextInstruction(instruction);
            }
            block = LLVMGetNextBasicBlock(block);
        }
    }
    scan
}

/// An estimate of what an instruction costs when a function is inlined, after
/// simplification: 5, but nothing for what becomes a register or is folded into another
/// instruction, and 10 for a call, which may be inlined itself.
///
/// # Safety
/// A live instruction with that opcode.
unsafe fn cost(instruction: LLVMValueRef, opcode: LLVMOpcode) -> u32 {
    // SAFETY: by the caller's promise; loads have one operand, stores two.
    unsafe {
        let is_local = |index| !LLVMIsAAllocaInst(LLVMGetOperand(instruction, index)).is_null();
        match opcode {
            LLVMOpcode::LLVMAlloca
            | LLVMOpcode::LLVMPHI
            | LLVMOpcode::LLVMBitCast
            | LLVMOpcode::LLVMPtrToInt
            | LLVMOpcode::LLVMIntToPtr
            | LLVMOpcode::LLVMFreeze
            | LLVMOpcode::LLVMUnreachable
            | LLVMOpcode::LLVMRet => 0,
            LLVMOpcode::LLVMLoad if is_local(0) => 0,
            LLVMOpcode::LLVMStore if is_local(1) => 0,
            LLVMOpcode::LLVMBr if LLVMGetNumOperands(instruction) == 1 => 0,
            LLVMOpcode::LLVMTrunc
            | LLVMOpcode::LLVMZExt
            | LLVMOpcode::LLVMSExt
            | LLVMOpcode::LLVMGetElementPtr => 2,
            _ if is_call(opcode) => {
                let callee = LLVMGetCalledValue(instruction);
                let is_intrinsic =
                    !LLVMIsAFunction(callee).is_null() && LLVMGetIntrinsicID(callee) != 0;
                match (is_intrinsic, LLVMGetTypeKind(LLVMTypeOf(instruction))) {
                    // Marks of lifetimes and the like; or copies of memory.
                    (true, LLVMTypeKind::LLVMVoidTypeKind) => 2,
                    (true, _) => 5,
                    (false, _) => 10,
                }
            }
            _ => 5,
        }
    }
}

/// Collects the functions whose addresses an instruction uses.
///
/// # Safety
/// A live instruction.
unsafe fn scan_operands(
    instruction: LLVMValueRef,
    functions: &mut Vec<LLVMValueRef>,
    seen: &mut FxHashSet<LLVMValueRef>,
) {
    // SAFETY: by the caller's promise; a call's last operand is its callee.
    unsafe {
        let is_call = is_call(LLVMGetInstructionOpcode(instruction));
        let count = LLVMGetNumOperands(instruction).max(0) as u32;
        for index in 0..count - u32::from(is_call && count != 0) {
            let operand = LLVMGetOperand(instruction, index);
            if operand.is_null() {
                continue;
            }
            match LLVMGetValueKind(operand) {
                LLVMValueKind::LLVMFunctionValueKind => {
                    functions.extend(seen.insert(operand).then_some(operand));
                }
                LLVMValueKind::LLVMGlobalVariableValueKind
                    if LLVMIsGlobalConstant(operand) != 0 && seen.insert(operand) =>
                {
                    scan_table(operand, functions, seen);
                }
                _ => {}
            }
        }
    }
}

/// Collects the functions in a constant, if it has few parts.
///
/// # Safety
/// A live constant variable.
unsafe fn scan_table(
    table: LLVMValueRef,
    functions: &mut Vec<LLVMValueRef>,
    seen: &mut FxHashSet<LLVMValueRef>,
) {
    // SAFETY: by the caller's promise; only aggregates are asked for their parts.
    unsafe {
        let value = LLVMGetInitializer(table);
        if value.is_null()
            || !matches!(
                LLVMGetValueKind(value),
                LLVMValueKind::LLVMConstantStructValueKind
                    | LLVMValueKind::LLVMConstantArrayValueKind
            )
        {
            return;
        }
        let count = LLVMGetNumOperands(value).max(0) as u32;
        if count > TABLE_PARTS {
            return;
        }
        for part in (0..count).map(|index| LLVMGetOperand(value, index)) {
            if !LLVMIsAFunction(part).is_null() && seen.insert(part) {
                functions.push(part);
            }
        }
    }
}

/// # Safety
/// `call` is a live call.
unsafe fn scan_call(call: LLVMValueRef, scan: &mut Scan, seen: &mut FxHashSet<LLVMValueRef>) {
    // SAFETY: by the caller's promise; arguments are the first operands.
    unsafe {
        let callee = LLVMGetCalledValue(call);
        let is_function = !LLVMIsAFunction(callee).is_null();
        let intrinsic = match is_function {
            true => LLVMGetIntrinsicID(callee),
            false => 0,
        };
        if intrinsic != 0 || !LLVMIsAInlineAsm(callee).is_null() {
            scan.frame |= frame_intrinsics().contains(&intrinsic);
            return;
        }
        scan.wide = scan.wide
            || is_wide(LLVMTypeOf(call), 0)
            || (0..LLVMGetNumArgOperands(call))
                .any(|i| is_wide(LLVMTypeOf(LLVMGetOperand(call, i)), 0));
        let direct =
            is_function || LLVMGetValueKind(callee) == LLVMValueKind::LLVMGlobalAliasValueKind;
        if direct && seen.insert(callee) {
            scan.callees.push(callee);
        }
    }
}

/// Intrinsics whose results tell whether a function was inlined.
fn frame_intrinsics() -> &'static [u32; 3] {
    static IDS: OnceLock<[u32; 3]> = OnceLock::new();
    IDS.get_or_init(|| {
        [
            "llvm.returnaddress",
            "llvm.frameaddress",
            "llvm.addressofreturnaddress",
        ]
        .map(|name| {
            // SAFETY: pointer and length describe the name.
            unsafe { LLVMLookupIntrinsicID(name.as_ptr().cast(), name.len()) }
        })
    })
}

/// True if the address of `block` is a constant somewhere.
///
/// # Safety
/// `block` is live.
unsafe fn is_label(block: LLVMBasicBlockRef) -> bool {
    // SAFETY: walks the use list of a live value.
    unsafe {
        let mut item = LLVMGetFirstUse(LLVMBasicBlockAsValue(block));
        while !item.is_null() {
            if LLVMGetValueKind(LLVMGetUser(item)) == LLVMValueKind::LLVMBlockAddressValueKind {
                return true;
            }
            item = LLVMGetNextUse(item);
        }
    }
    false
}

/// True if values of `ty` may travel in other registers when features are added: all
/// vectors but those of at most 128 bits whose elements are ordinary numbers.
///
/// # Safety
/// `ty` is a live type.
unsafe fn is_wide(ty: LLVMTypeRef, depth: u32) -> bool {
    // SAFETY: by the caller's promise; each question fits the kind of type.
    unsafe {
        match LLVMGetTypeKind(ty) {
            LLVMTypeKind::LLVMVectorTypeKind => {
                let element = LLVMGetElementType(ty);
                let bits = match LLVMGetTypeKind(element) {
                    LLVMTypeKind::LLVMIntegerTypeKind => LLVMGetIntTypeWidth(element),
                    LLVMTypeKind::LLVMFloatTypeKind => 32,
                    LLVMTypeKind::LLVMDoubleTypeKind | LLVMTypeKind::LLVMPointerTypeKind => 64,
                    _ => return true,
                };
                let count = LLVMGetVectorSize(ty);
                !matches!(bits, 8 | 16 | 32 | 64)
                    || !count.is_power_of_two()
                    || count.saturating_mul(bits) > 128
            }
            LLVMTypeKind::LLVMScalableVectorTypeKind => true,
            LLVMTypeKind::LLVMArrayTypeKind => {
                depth >= TYPE_DEPTH || is_wide(LLVMGetElementType(ty), depth + 1)
            }
            LLVMTypeKind::LLVMStructTypeKind => {
                depth >= TYPE_DEPTH
                    || (0..LLVMCountStructElementTypes(ty))
                        .any(|i| is_wide(LLVMStructGetTypeAtIndex(ty, i), depth + 1))
            }
            _ => false,
        }
    }
}
