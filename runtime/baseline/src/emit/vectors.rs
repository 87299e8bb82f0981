//! Operands of vector registers, and moves of results to their places: `float`, `double`, vectors.

use crate::asm::{Gpr, Mem, Xmm, XmmRm};
use crate::ir::{Op, Operand, Type, Value};
use crate::places::Place;

use super::{Emitter, VECTOR_SCRATCH};

impl Emitter<'_> {
    /// A value of a vector register as a readable operand: its register, memory, or else the
    /// scratch register. A memory address may use `rcx` and `rdx`. Memory of vectors is aligned.
    pub(super) fn vector_rm(&mut self, operand: Operand, ty: Type, scratch: Xmm) -> XmmRm {
        match operand {
            Operand::Value(value) => match self.place(value) {
                Place::Xmm(register) => return XmmRm::Xmm(register),
                Place::Slot(at) => return XmmRm::Mem(Mem::at(Gpr::RBP, at)),
                _ => {
                    if let Some(&Op::Load { address, .. }) = self.folded(value) {
                        return XmmRm::Mem(self.address(address, Gpr::RCX));
                    }
                }
            },
            Operand::Float(bits) | Operand::Int(bits) if bits != 0 => match ty {
                Type::F32 => return XmmRm::Mem(self.asm.constant4(bits as u32)),
                Type::F64 => return XmmRm::Mem(self.asm.constant8(bits)),
                _ => {}
            },
            Operand::Wide(at) if ty == Type::V128 => {
                let bytes = self.function.wide[at as usize];
                return XmmRm::Mem(self.asm.constant16(bytes));
            }
            _ => {}
        }
        match operand {
            Operand::Value(_) | Operand::Address(..) | Operand::Label(_) => {
                self.zero_vector(scratch);
            }
            constant => self.load_vector_into(constant, ty, scratch),
        }
        XmmRm::Xmm(scratch)
    }

    /// A value in a vector register that must not be changed: its own, or the scratch one.
    pub(super) fn xmm(&mut self, operand: Operand, ty: Type, scratch: Xmm) -> Xmm {
        match self.vector_register_of(operand) {
            Some(register) => register,
            None => {
                self.load_vector_into(operand, ty, scratch);
                scratch
            }
        }
    }

    /// The vector register that an operand is in, if it is in one.
    pub(super) fn vector_register_of(&self, operand: Operand) -> Option<Xmm> {
        match operand {
            Operand::Value(value) => match self.place(value) {
                Place::Xmm(register) => Some(register),
                _ => None,
            },
            _ => None,
        }
    }

    /// Loads a value into a vector register.
    pub(super) fn load_vector_into(&mut self, operand: Operand, ty: Type, register: Xmm) {
        let is_none = match operand {
            Operand::Float(bits) | Operand::Int(bits) => bits == 0,
            Operand::Undef => true,
            _ => false,
        };
        if is_none {
            self.zero_vector(register);
            return;
        }
        if let Operand::Wide(at) = operand {
            let bytes = self.function.wide[at as usize];
            let mem = self.asm.constant16(bytes);
            self.asm.load_vector(true, register, mem);
            return;
        }
        if let (Operand::Float(bits) | Operand::Int(bits), true) =
            (operand, matches!(ty, Type::V64))
        {
            let mem = self.asm.constant8(bits);
            self.asm.load_float(true, register, mem);
            return;
        }
        match self.vector_rm(operand, ty, register) {
            XmmRm::Xmm(own) => {
                if own != register {
                    self.asm.movaps(register, own);
                }
            }
            XmmRm::Mem(mem) => self.read_vector(ty, register, mem, true),
        }
    }

    /// Zeroes a vector register.
    pub(super) fn zero_vector(&mut self, register: Xmm) {
        self.asm.sse(crate::asm::Sse::XORPS, register, register);
    }

    /// Loads a type from memory; `aligned`: a vector's address is a multiple of 16.
    pub(super) fn read_vector(&mut self, ty: Type, register: Xmm, mem: Mem, aligned: bool) {
        match ty {
            Type::F32 => self.asm.load_float(false, register, mem),
            Type::V128 | Type::F80 => self.asm.load_vector(aligned, register, mem),
            _ => self.asm.load_float(true, register, mem),
        }
    }

    /// Stores a type to memory; `aligned`: a vector's address is a multiple of 16.
    pub(super) fn write_vector(&mut self, ty: Type, mem: Mem, register: Xmm, aligned: bool) {
        match ty {
            Type::F32 => self.asm.store_float(false, mem, register),
            Type::V128 | Type::F80 => self.asm.store_vector(aligned, mem, register),
            _ => self.asm.store_float(true, mem, register),
        }
    }

    /// The vector register in which a result is computed: its own, or the first scratch register.
    pub(super) fn vector_target(&self, result: u32) -> Xmm {
        match self.place(Value(result)) {
            Place::Xmm(register) => register,
            _ => VECTOR_SCRATCH[0],
        }
    }

    /// Moves a result from a vector register to its place.
    pub(super) fn put_vector(&mut self, result: u32, register: Xmm) {
        let ty = self.function.types[result as usize];
        match self.place(Value(result)) {
            Place::Xmm(own) => {
                if own != register {
                    self.asm.movaps(own, register);
                }
            }
            Place::Slot(at) => self.write_vector(ty, Mem::at(Gpr::RBP, at), register, true),
            Place::Gpr(_) | Place::None => {}
        }
    }
}
