//! Ends of blocks, and where exceptions come in.

use inkwell::llvm_sys::core::{
    LLVMConstIntGetZExtValue, LLVMGetAggregateElement, LLVMGetClause, LLVMGetCondition,
    LLVMGetNumClauses, LLVMGetNumOperands, LLVMGetSwitchCaseValue, LLVMGetTypeKind, LLVMIsCleanup,
    LLVMTypeOf,
};
use inkwell::llvm_sys::{LLVMTypeKind, LLVMValueKind};
use uruk_baseline::ir::{Clause, Op, Operand, Operands, Symbol, Type};

use super::reading::{Covered, Reading, not};
use super::types::Shape;
use crate::handles::{InstructionRef, ValueRef};

const TYPE: &str = "an unusual type of exception";

impl<'m> Reading<'_, 'm> {
    pub(super) fn branch(&mut self, it: InstructionRef<'m>) -> Covered<()> {
        // SAFETY: a branch.
        if unsafe { LLVMGetNumOperands(it.raw()) } == 1 {
            return self.end(Op::Jump);
        }
        // SAFETY: one that has a condition.
        let condition = unsafe { ValueRef::of(LLVMGetCondition(it.raw())) };
        let condition = self.one(condition)?;
        self.end(Op::Branch(condition))
    }

    pub(super) fn switch(&mut self, it: InstructionRef<'m>) -> Covered<()> {
        let value = self.operand(it, 0);
        let known = self.known_type(value);
        let Shape::Scalar(ty) = self.shape_of(known) else {
            return not("a switch of more than 64 bits");
        };
        let operand = self.one(value)?;
        // SAFETY: a switch; its first successor is the one without a value.
        let values = unsafe {
            let count = inkwell::llvm_sys::core::LLVMGetNumSuccessors(it.raw());
            (1..count).map(|index| {
                let value = LLVMGetSwitchCaseValue(it.raw(), index);
                LLVMConstIntGetZExtValue(value)
            })
        };
        let values = values.collect();
        self.end(Op::Switch(ty, operand, values))
    }

    pub(super) fn ret(&mut self, it: InstructionRef<'m>) -> Covered<()> {
        // SAFETY: a return.
        if unsafe { LLVMGetNumOperands(it.raw()) } == 0 {
            return self.end(Op::Return(Operands::new()));
        }
        let value = self.operand(it, 0);
        let scalars = self.scalars(value)?;
        let operands = self.known.values.of(scalars).into();
        self.end(Op::Return(operands))
    }

    pub(super) fn resume(&mut self, it: InstructionRef<'m>) -> Covered<()> {
        let value = self.operand(it, 0);
        let scalars = self.scalars(value)?;
        match *self.known.values.of(scalars) {
            [exception, selector] => self.end(Op::Resume([exception, selector])),
            _ => not(TYPE),
        }
    }

    pub(super) fn landing_pad(&mut self, it: InstructionRef<'m>) -> Covered<()> {
        let known = self.known_type(*it);
        let leaves = self.leaves(known)?;
        let types = leaves.iter().map(|leaf| leaf.ty);
        if !types.eq([Type::PTR, Type::Int(32)]) {
            return not(TYPE);
        }
        // SAFETY: a landing pad.
        let (cleanup, count) =
            unsafe { (LLVMIsCleanup(it.raw()) != 0, LLVMGetNumClauses(it.raw())) };
        let mut clauses = Vec::with_capacity(count as usize);
        for index in 0..count {
            // SAFETY: an index below the count.
            let (clause, kind) = unsafe {
                let clause = ValueRef::of(LLVMGetClause(it.raw(), index));
                (clause, LLVMGetTypeKind(LLVMTypeOf(clause.raw())))
            };
            clauses.push(match kind {
                LLVMTypeKind::LLVMArrayTypeKind => Clause::Filter(self.filter(clause)?),
                _ => Clause::Catch(self.caught(clause)?),
            });
        }
        self.emit_for(it, Op::LandingPad { cleanup, clauses })
    }

    /// A type that is caught; nothing for all.
    pub(super) fn caught(&mut self, value: ValueRef<'m>) -> Covered<Option<Symbol>> {
        match self.one(value)? {
            Operand::Address(symbol, 0) => Ok(Some(symbol)),
            Operand::Int(0) => Ok(None),
            _ => not(TYPE),
        }
    }

    fn filter(&mut self, array: ValueRef<'m>) -> Covered<Vec<Option<Symbol>>> {
        let mut types = Vec::new();
        let is_array = matches!(
            array.kind(),
            LLVMValueKind::LLVMConstantArrayValueKind
                | LLVMValueKind::LLVMConstantAggregateZeroValueKind
        );
        // Of an empty array LLVM has kinds without elements too.
        for index in 0.. {
            // SAFETY: a live constant, whose parts live as it does; null behind the last.
            let part = unsafe {
                let part = match is_array {
                    true => LLVMGetAggregateElement(array.raw(), index),
                    false => std::ptr::null_mut(),
                };
                ValueRef::from_raw(part)
            };
            match part {
                Some(part) => types.push(self.caught(part)?),
                None => break,
            }
        }
        Ok(types)
    }
}
