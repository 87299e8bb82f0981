//! One walk over a body: its size, an estimate of its inlining cost, the functions it names, and
//! constructs that prevent copying.

use std::sync::OnceLock;

use inkwell::llvm_sys::core::{
    LLVMCountParamTypes, LLVMCountStructElementTypes, LLVMGetElementType, LLVMGetIntTypeWidth,
    LLVMGetNumArgOperands, LLVMGetParamTypes, LLVMGetReturnType, LLVMGetTypeKind,
    LLVMGetVectorSize, LLVMGlobalGetValueType, LLVMIsAAllocaInst, LLVMIsAInlineAsm,
    LLVMLookupIntrinsicID, LLVMStructGetTypeAtIndex, LLVMTypeOf,
};
use inkwell::llvm_sys::prelude::LLVMTypeRef;
use inkwell::llvm_sys::{LLVMOpcode, LLVMTypeKind, LLVMValueKind};
use rustc_hash::FxHashSet;

use crate::handles::{BlockRef, FunctionRef, InstructionRef, ValueRef, VariableRef, is_call};

/// Parts of a constant up to which it is searched for functions.
const TABLE_PARTS: usize = 12;
/// Nesting up to which types are searched for a vector; deeper ones count as one.
const TYPE_DEPTH: u32 = 8;

/// The results of a walk over one body.
#[derive(Default)]
pub(crate) struct Scan<'m> {
    pub(crate) instructions: u32,
    /// The cost that LLVM's inliner is likely to compute once the body is simplified.
    pub(crate) cost: u32,
    /// Functions called directly, each once, in the order of their first call.
    pub(crate) callees: Vec<ValueRef<'m>>,
    /// Functions whose addresses are used, or are in a small constant that is used: tables of
    /// methods. Inlined callees may call them directly.
    pub(crate) mentioned: Vec<ValueRef<'m>>,
    /// True if the code passes or returns vectors in registers whose choice depends on
    /// the CPU's features.
    pub(crate) wide: bool,
    /// True if its labels' addresses are taken, or it uses those of other labels.
    pub(crate) labels: bool,
    /// True if it asks for addresses in its own frame.
    pub(crate) frame: bool,
}

impl<'m> Scan<'m> {
    /// The functions that code could call directly once callees are inlined.
    pub(crate) fn in_sight(&self) -> impl Iterator<Item = ValueRef<'m>> {
        self.callees.iter().chain(&self.mentioned).copied()
    }
}

/// Walks a body that was read.
pub(crate) fn scan(function: FunctionRef<'_>) -> Scan<'_> {
    let mut scan = Scan {
        wide: has_wide_signature(function),
        ..Scan::default()
    };
    let mut seen = FxHashSet::default();
    let mut known = FxHashSet::default();
    for block in function.blocks() {
        scan.labels |= is_label(block);
        for instruction in block.instructions() {
            scan.instructions = scan.instructions.saturating_add(1);
            let opcode = instruction.opcode();
            scan.cost = scan.cost.saturating_add(cost(instruction, opcode));
            if let Some(callee) = instruction.callee() {
                scan_call(instruction, callee, &mut scan, &mut seen);
            }
            let Scan {
                mentioned, labels, ..
            } = &mut scan;
            scan_operands(instruction, mentioned, &mut known, labels);
            scan.labels |= matches!(opcode, LLVMOpcode::LLVMIndirectBr | LLVMOpcode::LLVMCallBr);
        }
    }
    scan
}

/// True if a parameter or the result is wide.
fn has_wide_signature(function: FunctionRef<'_>) -> bool {
    // SAFETY: a live function and its own type; there is room for all parameters.
    unsafe {
        let ty = LLVMGlobalGetValueType(function.raw());
        let mut parameters = vec![std::ptr::null_mut(); LLVMCountParamTypes(ty) as usize];
        LLVMGetParamTypes(ty, parameters.as_mut_ptr());
        parameters.push(LLVMGetReturnType(ty));
        parameters.iter().any(|&ty| is_wide(ty, 0))
    }
}

/// An estimate of the inlining cost of an instruction, after simplification: 5, with two
/// exceptions. Instructions that become a register or are folded into another one cost 0. A call,
/// which may be inlined itself, costs 10.
fn cost(instruction: InstructionRef<'_>, opcode: LLVMOpcode) -> u32 {
    let is_local = |index| {
        let operand = instruction.operands().nth(index).flatten();
        // SAFETY: a live value.
        operand.is_some_and(|it| unsafe { !LLVMIsAAllocaInst(it.raw()).is_null() })
    };
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
        LLVMOpcode::LLVMBr if instruction.operands().len() == 1 => 0,
        LLVMOpcode::LLVMTrunc
        | LLVMOpcode::LLVMZExt
        | LLVMOpcode::LLVMSExt
        | LLVMOpcode::LLVMGetElementPtr => 2,
        _ if is_call(opcode) => {
            let callee = instruction.callee().and_then(ValueRef::as_function);
            let is_intrinsic = callee.is_some_and(FunctionRef::is_intrinsic);
            // SAFETY: a live instruction and its type.
            let ty = unsafe { LLVMGetTypeKind(LLVMTypeOf(instruction.raw())) };
            match (is_intrinsic, ty) {
                // Marks of lifetimes and similar, or copies of memory.
                (true, LLVMTypeKind::LLVMVoidTypeKind) => 2,
                (true, _) => 5,
                (false, _) => 10,
            }
        }
        _ => 5,
    }
}

/// Collects the functions whose addresses an instruction uses; returns whether it uses those of
/// labels.
fn scan_operands<'m>(
    instruction: InstructionRef<'m>,
    functions: &mut Vec<ValueRef<'m>>,
    seen: &mut FxHashSet<ValueRef<'m>>,
    labels: &mut bool,
) {
    let operands = instruction.operands();
    // A call's last operand is its callee.
    let count = operands.len() - usize::from(instruction.callee().is_some());
    for operand in operands.take(count).flatten() {
        *labels |= holds_label(operand);
        if operand.as_function().is_some() {
            functions.extend(seen.insert(operand).then_some(operand));
        } else if let Some(table) = operand.as_variable()
            && table.is_constant()
            && seen.insert(operand)
        {
            scan_table(table, functions, seen);
        }
    }
}

/// Whether a constant contains addresses of labels.
fn holds_label(value: ValueRef<'_>) -> bool {
    value.kind() == LLVMValueKind::LLVMBlockAddressValueKind
        || (value.is_composite() && value.parts().any(holds_label))
}

/// Collects the functions in a constant, if it has few parts.
fn scan_table<'m>(
    table: VariableRef<'m>,
    functions: &mut Vec<ValueRef<'m>>,
    seen: &mut FxHashSet<ValueRef<'m>>,
) {
    let Some(value) = table.initializer() else {
        return;
    };
    let is_table = matches!(
        value.kind(),
        LLVMValueKind::LLVMConstantStructValueKind | LLVMValueKind::LLVMConstantArrayValueKind
    );
    let parts = value.parts();
    if is_table && parts.len() <= TABLE_PARTS {
        let parts = parts.filter(|part| part.as_function().is_some());
        functions.extend(parts.filter(|part| seen.insert(*part)));
    }
}

fn scan_call<'m>(
    call: InstructionRef<'m>,
    callee: ValueRef<'m>,
    scan: &mut Scan<'m>,
    seen: &mut FxHashSet<ValueRef<'m>>,
) {
    let function = callee.as_function();
    let intrinsic = function.map_or(0, FunctionRef::intrinsic);
    // SAFETY: a live value.
    let is_asm = unsafe { !LLVMIsAInlineAsm(callee.raw()).is_null() };
    if intrinsic != 0 || is_asm {
        scan.frame |= frame_intrinsics().contains(&intrinsic);
        return;
    }
    // SAFETY: a live call; arguments are the first operands.
    scan.wide = scan.wide
        || unsafe {
            let arguments = LLVMGetNumArgOperands(call.raw()) as usize;
            let arguments = call.operands().take(arguments).flatten();
            is_wide(LLVMTypeOf(call.raw()), 0)
                || arguments
                    .map(|it| LLVMTypeOf(it.raw()))
                    .any(|ty| is_wide(ty, 0))
        };
    let direct = function.is_some() || callee.kind() == LLVMValueKind::LLVMGlobalAliasValueKind;
    if direct && seen.insert(callee) {
        scan.callees.push(callee);
    }
}

/// Intrinsics whose results show whether a function was inlined.
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
fn is_label(block: BlockRef<'_>) -> bool {
    let mut users = block.value().users();
    users.any(|user| user.kind() == LLVMValueKind::LLVMBlockAddressValueKind)
}

/// True if values of `ty` may travel in other registers when features are added: all vectors except
/// those of at most 128 bits whose elements are ordinary numbers.
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
