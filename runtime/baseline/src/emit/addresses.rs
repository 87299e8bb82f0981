//! Operands as addresses: folded values become the parts of one.

use smallvec::SmallVec;

use crate::analysis::State;
use crate::asm::{Alu, Base, Gpr, Mem, Scale, Shift, Width};
use crate::ir::{Extension, Op, Operand, Reach, Term, Type, Value};
use crate::places::Place;

use super::Emitter;

/// Limit of displacements that leaves room for the length of an access in pieces.
const FAR: i64 = (1 << 31) - (1 << 16);

impl Emitter<'_> {
    /// Memory at an address. May change the scratch register and `rdx`; only the scratch register
    /// may be part of the result. The result's displacement leaves room for some 60,000 more bytes.
    /// Keeps flags.
    pub(super) fn address(&mut self, operand: Operand, scratch: Gpr) -> Mem {
        match operand {
            Operand::Value(value) => match self.place(value) {
                Place::Gpr(register) => return Mem::at(register, 0),
                Place::None => return self.made_address(value, scratch),
                _ => {}
            },
            Operand::Address(symbol, bytes) if bytes.abs() < FAR => {
                let symbol_data = &self.function.symbols[symbol.index()];
                if symbol_data.reach == Reach::Near {
                    return Mem::symbol(symbol, bytes as i32);
                }
                self.asm.address_word(scratch, symbol);
                return Mem::at(scratch, bytes as i32);
            }
            Operand::Int(at) if at < FAR as u64 => {
                return Mem {
                    base: Base::Nothing,
                    index: None,
                    disp: at as i32,
                };
            }
            _ => {}
        }
        self.load_into(operand, Type::PTR, scratch);
        Mem::at(scratch, 0)
    }

    /// The address that a value without a place stands for.
    fn made_address(&mut self, value: Value, scratch: Gpr) -> Mem {
        let home = self.analysis.home(value);
        if self.analysis.lives[home as usize].state == State::Frame {
            return Mem::at(Gpr::RBP, self.frame_offset(home));
        }
        let function = self.function;
        let by = self.analysis.lives[home as usize].by;
        match function.instructions.get(by as usize).map(|one| &one.op) {
            Some(Op::Offset { base, terms, bytes }) => {
                let term = terms.first();
                // The index register may be overwritten by a load; the base register may not.
                let is_taken = term.is_some_and(|it| self.register_of(it.operand) == Some(scratch));
                let base_place = match base {
                    Operand::Value(base) => self.place(*base),
                    _ => Place::None,
                };
                if is_taken && !matches!(base_place, Place::Gpr(_)) {
                    self.asm.mov(Width::W64, Gpr::RDX, scratch);
                    let mem = self.address(*base, scratch);
                    let mem = self.moved(mem, *bytes as i32, scratch);
                    return self.indexed(mem, Gpr::RDX, term, scratch);
                }
                let mem = self.address(*base, scratch);
                self.plus(mem, term, *bytes as i32, scratch)
            }
            _ => {
                // An unused value, which has no address.
                self.asm.mov_imm(scratch, 0);
                Mem::at(scratch, 0)
            }
        }
    }

    /// The offset from `rbp` of a value that is an address in the frame.
    pub(super) fn frame_offset(&self, value: u32) -> i32 {
        let mut value = value;
        let mut sum = 0;
        loop {
            let by = self.analysis.lives[value as usize].by;
            let Some(instruction) = self.function.instructions.get(by as usize) else {
                return sum + self.frame.parameter(value);
            };
            match &instruction.op {
                Op::Offset {
                    base: Operand::Value(base),
                    bytes,
                    ..
                } => {
                    sum += *bytes as i32;
                    value = self.analysis.home(*base);
                }
                _ => return sum + self.frame.alloca(by),
            }
        }
    }

    /// An address plus an index and `bytes`.
    fn plus(&mut self, mem: Mem, term: Option<&Term>, bytes: i32, scratch: Gpr) -> Mem {
        let mem = self.moved(mem, bytes, scratch);
        let Some(term) = term else {
            return mem;
        };
        let Some(scale) = Scale::of(term.scale) else {
            return mem;
        };
        let (base, disp) = match mem.base {
            Base::Gpr(base) if mem.index.is_none() => (base, mem.disp),
            _ => {
                self.lea(scratch, mem);
                (scratch, 0)
            }
        };
        if base != scratch {
            let index = self.gpr(term.operand, Type::PTR, scratch);
            return Mem::indexed(base, index, scale, disp);
        }
        let index = self.gpr(term.operand, Type::PTR, Gpr::RDX);
        let mem = Mem::indexed(base, index, scale, disp);
        if index == Gpr::RDX {
            // This frees `rdx`.
            self.asm.lea(Width::W64, scratch, mem);
            return Mem::at(scratch, 0);
        }
        mem
    }

    /// An address plus an index in `rdx`; frees `rdx`.
    fn indexed(&mut self, mem: Mem, index: Gpr, term: Option<&Term>, scratch: Gpr) -> Mem {
        let scale = term.and_then(|term| Scale::of(term.scale));
        let base = match mem.base {
            Base::Gpr(base) if mem.index.is_none() => base,
            _ => {
                self.lea(scratch, mem);
                scratch
            }
        };
        let disp = if base == scratch && mem.base != Base::Gpr(scratch) {
            0
        } else {
            mem.disp
        };
        let mem = Mem::indexed(base, index, scale.unwrap_or(Scale::S1), disp);
        self.asm.lea(Width::W64, scratch, mem);
        Mem::at(scratch, 0)
    }

    /// The address plus `bytes`.
    fn moved(&mut self, mem: Mem, bytes: i32, scratch: Gpr) -> Mem {
        match mem.plus(bytes) {
            Some(moved) if i64::from(moved.disp).abs() < FAR => moved,
            _ => {
                self.lea(scratch, mem);
                Mem::at(scratch, bytes)
            }
        }
    }

    /// Emits an offset that has a place.
    pub(super) fn offset(
        &mut self,
        base: Operand,
        terms: &SmallVec<[Term; 1]>,
        bytes: i64,
        result: u32,
    ) {
        let target = self.target(result, Gpr::RAX);
        // Terms may still be in the target.
        let is_read = terms
            .iter()
            .any(|term| self.register_of(term.operand) == Some(target));
        let sum = if is_read { Gpr::RAX } else { target };
        let small = i32::try_from(bytes)
            .ok()
            .filter(|&b| i64::from(b).abs() < FAR);
        let mut mem = self.address(base, sum);
        let mut rest = match small {
            Some(bytes) => {
                mem = self.moved(mem, bytes, sum);
                0
            }
            None => bytes,
        };
        for term in terms {
            if let Operand::Int(constant) = term.operand {
                let index = super::operands::sign_extended(constant, term.bits);
                rest = rest.wrapping_add(index.wrapping_mul(term.scale as i64));
                continue;
            }
            mem = self.add_term(mem, term, sum);
        }
        if rest != 0 {
            self.lea(sum, mem);
            match i32::try_from(rest) {
                Ok(rest) => self.asm.alu_imm(Alu::Add, Width::W64, sum, rest),
                Err(_) => {
                    self.asm.mov_imm(Gpr::RCX, rest as u64);
                    self.asm.alu(Alu::Add, Width::W64, sum, Gpr::RCX);
                }
            }
            self.put(result, sum);
        } else {
            self.lea(target, mem);
            self.put(result, target);
        }
    }

    /// Adds a term to an address; its parts are in `sum` or in registers of values.
    fn add_term(&mut self, mem: Mem, term: &Term, sum: Gpr) -> Mem {
        let ty = Type::Int(term.bits);
        let scale = Scale::of(term.scale);
        let index = match (scale, term.bits) {
            (Some(_), 64) => self.gpr(term.operand, ty, Gpr::RCX),
            _ => {
                self.extend_into(term.operand, ty, Extension::Sign, Width::W64, Gpr::RCX);
                Gpr::RCX
            }
        };
        let scale = match scale {
            Some(scale) => scale,
            None => {
                self.multiply(Gpr::RCX, term.scale);
                Scale::S1
            }
        };
        let base = match mem.base {
            Base::Gpr(base) if mem.index.is_none() => base,
            _ => {
                self.lea(sum, mem);
                let mem = Mem::indexed(sum, index, scale, 0);
                self.asm.lea(Width::W64, sum, mem);
                return Mem::at(sum, 0);
            }
        };
        let mem = Mem::indexed(base, index, scale, mem.disp);
        if index == Gpr::RCX || base == sum {
            // The next term needs the register.
            self.asm.lea(Width::W64, sum, mem);
            return Mem::at(sum, 0);
        }
        mem
    }

    /// Multiplies a register with a constant.
    fn multiply(&mut self, register: Gpr, by: u64) {
        if by.is_power_of_two() {
            let by = by.trailing_zeros() as u8;
            self.asm.shift_imm(Shift::Shl, Width::W64, register, by);
        } else if let Ok(by) = i32::try_from(by as i64) {
            self.asm.imul_imm(Width::W64, register, register, by);
        } else {
            self.asm.mov_imm(Gpr::RDX, by);
            self.asm.imul(Width::W64, register, Gpr::RDX);
        }
    }

    /// The address of an alloca that is aligned to more than the frame.
    pub(super) fn alloca(&mut self, align: u32, result: u32) {
        let by = self.analysis.lives[result as usize].by;
        let target = self.target(result, Gpr::RAX);
        // Its memory is longer by the alignment, so rounding down stays within it.
        let at = self.frame.alloca(by) + align as i32;
        self.asm.lea(Width::W64, target, Mem::at(Gpr::RBP, at));
        self.asm
            .alu_imm(Alu::And, Width::W64, target, -(align as i64) as i32);
        self.put(result, target);
    }
}
