//! Finds the calls of a body, and their likelihood, before it is compiled, to predict the next
//! callees.
//!
//! Chances of branches come from the module (`!prof`, `llvm.expect`), or from typical conditions. A
//! pointer is seldom null, a status seldom other than zero, two values seldom equal. The numbers
//! were fitted to the first calls of sqlite and Lua (`uruk_tiering::foresight`).

use inkwell::llvm_sys::core::{
    LLVMConstIntGetSExtValue, LLVMConstIntGetZExtValue, LLVMGetArgOperand, LLVMGetCalledValue,
    LLVMGetCondition, LLVMGetICmpPredicate, LLVMGetIntrinsicID, LLVMGetMDKindIDInContext,
    LLVMGetMDNodeNumOperands, LLVMGetMDNodeOperands, LLVMGetMetadata, LLVMGetNumSuccessors,
    LLVMGetOperand, LLVMGetSuccessor, LLVMGetTypeKind, LLVMHasMetadata, LLVMIsACallInst,
    LLVMIsAConstantInt, LLVMIsAFunction, LLVMIsAICmpInst, LLVMIsAMDNode, LLVMIsConditional,
    LLVMIsNull, LLVMTypeOf,
};
use inkwell::llvm_sys::prelude::{LLVMBasicBlockRef, LLVMValueRef};
use inkwell::llvm_sys::{LLVMIntPredicate, LLVMOpcode, LLVMTypeKind};
use rustc_hash::FxHashMap;

use crate::error::CodegenError;
use crate::handles::{BlockRef, ValueRef, is_call};
use crate::reader::{Reader, Verify};
use crate::summary::SymbolId;

pub(crate) mod plain;

/// Blocks beyond which no sketch is made.
const MOST_BLOCKS: usize = 20_000;

/// A null pointer, if the test is for one.
const NULL: f32 = 0.2;
/// A negative number.
const NEGATIVE: f32 = 0.3;
/// Zero, if the test is for equality with it: an `if (!x)`.
const ZERO: f32 = 0.6;
/// Not zero, if the test is for that: an `if (error)`.
const NOT_ZERO: f32 = 0.2;
/// Two values that are equal.
const EQUAL: f32 = 0.2;
/// A value that `llvm.expect` declares likely.
const EXPECTED: f32 = 0.95;
/// One of many ways.
const CASE: f32 = 0.25;
/// An exception.
const THROWN: f32 = 0.02;

/// The control flow of a body, and the named functions it calls. Blocks are numbered in their
/// order.
#[derive(Debug, Clone, Default)]
pub struct Sketch {
    /// The edges of block `i` are `edges[starts[i]..starts[i + 1]]`.
    pub starts: Vec<u32>,
    /// The target of an edge, and its likelihood.
    pub edges: Vec<(u32, f32)>,
    /// Blocks and the functions they call, intrinsics left out.
    pub calls: Vec<(u32, SymbolId)>,
    /// Blocks that end the program or throw.
    pub ends: Vec<u32>,
}

/// The sketch of a function the module defines; an empty one if it has no calls, or is huge.
pub(crate) fn sketch(reader: &Reader, function: SymbolId) -> Result<Sketch, CodegenError> {
    let Some(value) = reader.table().function(function) else {
        return Ok(Sketch::default());
    };
    reader.materialize(value, Verify::Yes)?;
    let blocks: Vec<BlockRef<'_>> = value.blocks().collect();
    let mut sketch = Sketch::default();
    if blocks.len() > MOST_BLOCKS {
        return Ok(sketch);
    }
    for (number, block) in (0..).zip(&blocks) {
        note_calls(reader, number, *block, &mut sketch);
    }
    if sketch.calls.is_empty() {
        return Ok(Sketch::default());
    }
    let numbers = blocks.iter().map(|block| block.raw()).zip(0..);
    let numbers: FxHashMap<LLVMBasicBlockRef, u32> = numbers.collect();
    // SAFETY: the live context, and pointer and length of the name.
    let prof = unsafe { LLVMGetMDKindIDInContext(reader.context().raw(), c"prof".as_ptr(), 4) };
    sketch.starts.push(0);
    for (number, block) in (0..).zip(&blocks) {
        if let Some(end) = block.terminator() {
            let opcode = end.opcode();
            if matches!(opcode, LLVMOpcode::LLVMUnreachable | LLVMOpcode::LLVMResume) {
                sketch.ends.push(number);
            }
            // SAFETY: a live terminator, asked for its own ways.
            unsafe {
                for way in 0..LLVMGetNumSuccessors(end.raw()) {
                    let to = numbers[&LLVMGetSuccessor(end.raw(), way)];
                    let chance = chance(end.raw(), opcode, way, prof);
                    sketch.edges.push((to, chance));
                }
            }
        }
        sketch.starts.push(sketch.edges.len() as u32);
    }
    Ok(sketch)
}

fn note_calls(reader: &Reader, number: u32, block: BlockRef<'_>, sketch: &mut Sketch) {
    for instruction in block.instructions().filter(|it| is_call(it.opcode())) {
        let called = instruction.callee().and_then(ValueRef::as_function);
        if let Some(called) = called.filter(|called| !called.is_intrinsic())
            && let Some(symbol) = reader.table().id(*called)
        {
            sketch.calls.push((number, symbol));
        }
    }
}

/// The chance of one way out of a block.
///
/// # Safety
/// `end` is a live terminator with that opcode, and has that way.
unsafe fn chance(end: LLVMValueRef, opcode: LLVMOpcode, way: u32, prof: u32) -> f32 {
    // SAFETY: by the caller's promise; only conditional branches are asked for a condition.
    unsafe {
        if let Some(said) = weighed(end, way, prof) {
            return said;
        }
        match opcode {
            LLVMOpcode::LLVMBr if LLVMIsConditional(end) != 0 => {
                let holds = holds(LLVMGetCondition(end));
                if way == 0 { holds } else { 1.0 - holds }
            }
            LLVMOpcode::LLVMInvoke if way == 0 => 1.0 - THROWN,
            LLVMOpcode::LLVMInvoke => THROWN,
            _ if LLVMGetNumSuccessors(end) > 1 => CASE,
            _ => 1.0,
        }
    }
}

/// The chance of one way out of a block, from the module's own weights.
///
/// # Safety
/// `end` is a live terminator, and has that way.
unsafe fn weighed(end: LLVMValueRef, way: u32, prof: u32) -> Option<f32> {
    // SAFETY: by the caller's promise; operands go to a vector of their number, and only
    // integers are asked for their value.
    unsafe {
        if LLVMHasMetadata(end) == 0 {
            return None;
        }
        let node = LLVMGetMetadata(end, prof);
        if node.is_null() || LLVMIsAMDNode(node).is_null() {
            return None;
        }
        let ways = LLVMGetNumSuccessors(end) as usize;
        let count = LLVMGetMDNodeNumOperands(node) as usize;
        // A name, maybe another, and the weights.
        if ways < 2 || !(ways + 1..=ways + 2).contains(&count) {
            return None;
        }
        let mut operands = vec![std::ptr::null_mut(); count];
        LLVMGetMDNodeOperands(node, operands.as_mut_ptr());
        let mut weights = Vec::with_capacity(ways);
        for &operand in &operands[count - ways..] {
            if operand.is_null() || LLVMIsAConstantInt(operand).is_null() {
                return None;
            }
            weights.push(LLVMConstIntGetZExtValue(operand) as f32);
        }
        let sum: f32 = weights.iter().sum();
        (sum > 0.0).then(|| weights[way as usize] / sum)
    }
}

/// The chance that a condition holds.
///
/// # Safety
/// A live value of type `i1`.
unsafe fn holds(condition: LLVMValueRef) -> f32 {
    // SAFETY: by the caller's promise; only instructions are asked for an opcode, and only
    // comparisons for their operands.
    unsafe {
        if LLVMIsAICmpInst(condition).is_null() {
            return 0.5;
        }
        let predicate = LLVMGetICmpPredicate(condition);
        let (left, right) = (LLVMGetOperand(condition, 0), LLVMGetOperand(condition, 1));
        use LLVMIntPredicate::{LLVMIntEQ, LLVMIntNE};
        if let Some(expected) = expected(left)
            && !LLVMIsAConstantInt(right).is_null()
        {
            let same = LLVMConstIntGetSExtValue(right) == expected;
            return match predicate {
                LLVMIntEQ if same => EXPECTED,
                LLVMIntNE if !same => EXPECTED,
                LLVMIntEQ | LLVMIntNE => 1.0 - EXPECTED,
                _ => 0.5,
            };
        }
        let pointer = LLVMGetTypeKind(LLVMTypeOf(left)) == LLVMTypeKind::LLVMPointerTypeKind;
        compared(predicate as u32, pointer, LLVMIsNull(right) != 0)
    }
}

/// The chance that a comparison holds, by LLVM's number of its predicate, of pointers or with zero.
fn compared(predicate: u32, pointer: bool, zero: bool) -> f32 {
    const EQ: u32 = LLVMIntPredicate::LLVMIntEQ as u32;
    const NE: u32 = LLVMIntPredicate::LLVMIntNE as u32;
    const SLT: u32 = LLVMIntPredicate::LLVMIntSLT as u32;
    const SGE: u32 = LLVMIntPredicate::LLVMIntSGE as u32;
    const SGT: u32 = LLVMIntPredicate::LLVMIntSGT as u32;
    match predicate {
        EQ if pointer && zero => NULL,
        NE if pointer && zero => 1.0 - NULL,
        EQ if zero => ZERO,
        NE if zero => NOT_ZERO,
        EQ => EQUAL,
        NE => 1.0 - EQUAL,
        SLT if zero => NEGATIVE,
        SGE | SGT if zero => 1.0 - NEGATIVE,
        _ => 0.5,
    }
}

/// The value that `llvm.expect` gives for `value`.
///
/// # Safety
/// A live value.
unsafe fn expected(value: LLVMValueRef) -> Option<i64> {
    // SAFETY: by the caller's promise; only calls are asked for their callee, and that call has
    // two arguments.
    unsafe {
        if LLVMIsACallInst(value).is_null() {
            return None;
        }
        let called = LLVMGetCalledValue(value);
        if LLVMIsAFunction(called).is_null() || LLVMGetIntrinsicID(called) == 0 {
            return None;
        }
        let constant = ValueRef::of(called).name().starts_with("llvm.expect.");
        let constant = constant.then(|| LLVMGetArgOperand(value, 1))?;
        (!LLVMIsAConstantInt(constant).is_null()).then(|| LLVMConstIntGetSExtValue(constant))
    }
}
