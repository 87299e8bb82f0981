//! Atomic accesses to memory that have no plain x86-64 instruction.
//!
//! Plain loads acquire, plain stores release. Only a sequentially consistent store is stronger; it
//! is an exchange (LLVM's "Atomic Instructions and Concurrency Guide").

use crate::asm::{Alu, Arith, Condition, Gpr, Mem, Sse, Unary, Width};
use crate::ir::{Operand, Ordering, RmwOp, Type};

use super::Emitter;
use super::VECTOR_SCRATCH;
use super::operands::{IntSource, bits_of};

/// The integer that has the bits of a type.
fn as_int(ty: Type) -> Type {
    match ty {
        Type::Int(_) => ty,
        other => Type::Int(other.bytes() as u8 * 8),
    }
}

impl Emitter<'_> {
    /// A sequentially consistent store.
    pub(super) fn store_strong(&mut self, ty: Type, address: Operand, value: Operand) {
        let mem = self.address(address, Gpr::RCX);
        let ty = as_int(ty);
        self.load_into(value, ty, Gpr::RAX);
        self.asm
            .xchg_mem(Width::of_bits(bits_of(ty)), mem, Gpr::RAX);
    }

    /// A fence.
    pub(super) fn fence(&mut self, ordering: Ordering) {
        if ordering == Ordering::Strong {
            self.asm.mfence();
        }
    }

    /// Emits a compare-exchange: its results are the old value and whether it was the expected one.
    pub(super) fn compare_exchange(
        &mut self,
        ty: Type,
        address: Operand,
        [expected, value]: [Operand; 2],
        result: u32,
    ) {
        let ty = as_int(ty);
        let mem = self.address(address, Gpr::RCX);
        self.load_into(expected, ty, Gpr::RAX);
        let value = self.gpr(value, ty, Gpr::RDX);
        self.asm
            .lock_cmpxchg(Width::of_bits(bits_of(ty)), mem, value);
        self.asm.setcc(Condition::Equal, Gpr::RDX);
        self.put(result, Gpr::RAX);
        self.put(result + 1, Gpr::RDX);
    }

    /// Swaps memory with the result of an operation, and gives the old value.
    pub(super) fn rmw(&mut self, op: RmwOp, ty: Type, [address, value]: [Operand; 2], result: u32) {
        if matches!(op, RmwOp::FAdd | RmwOp::FSub) {
            self.rmw_float(op, ty, [address, value], result);
            return;
        }
        let int = as_int(ty);
        let width = Width::of_bits(bits_of(int));
        let mem = self.address(address, Gpr::RCX);
        let is_unused = self.analysis.lives[result as usize].uses == 0;
        let alu = match op {
            RmwOp::Add => Some(Alu::Add),
            RmwOp::Sub => Some(Alu::Sub),
            RmwOp::And => Some(Alu::And),
            RmwOp::Or => Some(Alu::Or),
            RmwOp::Xor => Some(Alu::Xor),
            _ => None,
        };
        match (op, alu) {
            (_, Some(alu)) if is_unused => {
                match self.source(value, int, Gpr::RAX) {
                    IntSource::Imm(value) => self.asm.lock_alu_imm(alu, width, mem, value),
                    IntSource::Gpr(value) => self.asm.lock_alu(alu, width, mem, value),
                    IntSource::Mem(_) => {
                        self.load_into(value, int, Gpr::RAX);
                        self.asm.lock_alu(alu, width, mem, Gpr::RAX);
                    }
                }
                return;
            }
            (RmwOp::Exchange, _) => {
                self.load_into(value, int, Gpr::RAX);
                self.asm.xchg_mem(width, mem, Gpr::RAX);
            }
            (RmwOp::Add | RmwOp::Sub, _) => {
                self.load_into(value, int, Gpr::RAX);
                if op == RmwOp::Sub {
                    self.asm.unary(Unary::Neg, width.at_least_32(), Gpr::RAX);
                }
                self.asm.lock_xadd(width, mem, Gpr::RAX);
            }
            _ => self.rmw_loop(op, int, width, mem, value),
        }
        self.put_bits(ty, result);
    }

    /// Moves `rax` to the place of a result of any type.
    fn put_bits(&mut self, ty: Type, result: u32) {
        if ty.is_int() {
            self.put(result, Gpr::RAX);
        } else {
            let target = self.vector_target(result);
            let width = Width::of_bits(bits_of(as_int(ty)));
            self.asm.mov_from_gpr(width, target, Gpr::RAX);
            self.put_vector(result, target);
        }
    }

    /// Retries until no other thread wrote in between; the old value is in `rax`.
    fn rmw_loop(&mut self, op: RmwOp, ty: Type, width: Width, mem: Mem, value: Operand) {
        self.asm.load(width, Gpr::RAX, mem);
        let again = self.asm.here();
        // The new value is computed from the operand in `rdx`: no more registers are free.
        self.load_into(value, ty, Gpr::RDX);
        match op {
            RmwOp::And | RmwOp::Nand => {
                self.asm.alu(Alu::And, Width::W64, Gpr::RDX, Gpr::RAX);
                if op == RmwOp::Nand {
                    self.asm.unary(Unary::Not, Width::W64, Gpr::RDX);
                }
            }
            RmwOp::Or => self.asm.alu(Alu::Or, Width::W64, Gpr::RDX, Gpr::RAX),
            RmwOp::Xor => self.asm.alu(Alu::Xor, Width::W64, Gpr::RDX, Gpr::RAX),
            _ => {
                let condition = match op {
                    RmwOp::Max => Condition::Greater,
                    RmwOp::Min => Condition::Less,
                    RmwOp::UMax => Condition::Above,
                    _ => Condition::Below,
                };
                self.asm.alu(Alu::Cmp, width, Gpr::RAX, Gpr::RDX);
                self.asm.cmov(condition, Width::W64, Gpr::RDX, Gpr::RAX);
            }
        }
        self.asm.lock_cmpxchg(width, mem, Gpr::RDX);
        self.asm.jump_if(Condition::NotEqual, again);
    }

    fn rmw_float(&mut self, op: RmwOp, ty: Type, [address, value]: [Operand; 2], result: u32) {
        let is_double = ty == Type::F64;
        let width = Width::of_bits(bits_of(as_int(ty)));
        let arith = match op {
            RmwOp::FAdd => Arith::Add,
            _ => Arith::Sub,
        };
        let value = self.xmm(value, ty, VECTOR_SCRATCH[0]);
        let sum = VECTOR_SCRATCH[1];
        let mem = self.address(address, Gpr::RCX);
        self.asm.load(width, Gpr::RAX, mem);
        let again = self.asm.here();
        self.asm.mov_from_gpr(width, sum, Gpr::RAX);
        self.asm.sse(Sse::scalar(arith, is_double), sum, value);
        self.asm.mov_to_gpr(width, Gpr::RDX, sum);
        self.asm.lock_cmpxchg(width, mem, Gpr::RDX);
        self.asm.jump_if(Condition::NotEqual, again);
        self.put_bits(ty, result);
    }
}
