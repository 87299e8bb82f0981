//! Operands of general registers, and moves of results to their places.
//!
//! Bits above a value's type are undefined in registers and slots. A slot is always written with 32
//! or 64 bits, so 32 bits may be read of a narrower value.

use crate::analysis::State;
use crate::asm::{Base, Gpr, Mem, Rm, Width};
use crate::ir::{Extension, Op, Operand, Reach, Type, Value};
use crate::places::Place;

use super::Emitter;

/// The operand from which an instruction reads an integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IntSource {
    /// A register, which must not be changed.
    Gpr(Gpr),
    /// Memory.
    Mem(Mem),
    /// An immediate; for 64 bits it is sign-extended.
    Imm(i32),
}

impl IntSource {
    /// Whether reading it uses a register.
    pub(super) fn uses(self, register: Gpr) -> bool {
        match self {
            IntSource::Gpr(own) => own == register,
            IntSource::Mem(mem) => uses(mem, register),
            IntSource::Imm(_) => false,
        }
    }
}

impl From<Rm> for IntSource {
    fn from(rm: Rm) -> IntSource {
        match rm {
            Rm::Gpr(register) => IntSource::Gpr(register),
            Rm::Mem(mem) => IntSource::Mem(mem),
        }
    }
}

/// Whether a register is part of an address.
pub(super) fn uses(mem: Mem, register: Gpr) -> bool {
    mem.base == Base::Gpr(register) || mem.index.is_some_and(|(index, _)| index == register)
}

/// The width in which integers of a type are computed.
pub(super) fn width_of(ty: Type) -> Width {
    match ty {
        Type::Int(bits) if bits <= 32 => Width::W32,
        _ => Width::W64,
    }
}

/// The bits of a type.
pub(super) fn bits_of(ty: Type) -> u8 {
    match ty {
        Type::Int(bits) => bits,
        Type::F32 => 32,
        _ => 64,
    }
}

/// A constant of `bits` bits, sign-extended.
pub(super) fn sign_extended(value: u64, bits: u8) -> i64 {
    let above = 64 - u32::from(bits);
    (value << above) as i64 >> above
}

/// A constant of `bits` bits, zero-extended.
pub(super) fn zero_extended(value: u64, bits: u8) -> u64 {
    let above = 64 - u32::from(bits);
    value << above >> above
}

impl Emitter<'_> {
    /// The place of a value, if it has one.
    pub(super) fn place(&self, value: Value) -> Place {
        self.places[self.analysis.home(value) as usize]
    }

    /// The instruction of a folded value.
    pub(super) fn folded(&self, value: Value) -> Option<&Op> {
        let life = &self.analysis.lives[self.analysis.home(value) as usize];
        (life.state == State::Folded).then(|| &self.function.instructions[life.by as usize].op)
    }

    /// The register that an operand is in, if it is in one.
    pub(super) fn register_of(&self, operand: Operand) -> Option<Gpr> {
        match operand {
            Operand::Value(value) => match self.place(value) {
                Place::Gpr(register) => Some(register),
                _ => None,
            },
            _ => None,
        }
    }

    /// An integer as a readable operand. May change the scratch register and `rdx`; the result may
    /// use the scratch register, but not `rdx`. Read no more memory than the type has, unless it is
    /// in the frame.
    pub(super) fn source(&mut self, operand: Operand, ty: Type, scratch: Gpr) -> IntSource {
        match operand {
            Operand::Value(value) => match self.place(value) {
                Place::Gpr(register) => return IntSource::Gpr(register),
                Place::Slot(at) => return IntSource::Mem(Mem::at(Gpr::RBP, at)),
                _ => {
                    if let Some(&Op::Load { address, .. }) = self.folded(value) {
                        return IntSource::Mem(self.address(address, scratch));
                    }
                }
            },
            Operand::Int(constant) => {
                let constant = sign_extended(constant, bits_of(ty));
                if let Ok(constant) = i32::try_from(constant) {
                    return IntSource::Imm(constant);
                }
            }
            Operand::Undef => return IntSource::Imm(0),
            _ => {}
        }
        self.load_into(operand, ty, scratch);
        IntSource::Gpr(scratch)
    }

    /// Like [`Emitter::source`], in a register or memory.
    pub(super) fn rm(&mut self, operand: Operand, ty: Type, scratch: Gpr) -> Rm {
        match self.source(operand, ty, scratch) {
            IntSource::Gpr(register) => Rm::Gpr(register),
            IntSource::Mem(mem) => Rm::Mem(mem),
            IntSource::Imm(_) => {
                self.load_into(operand, ty, scratch);
                Rm::Gpr(scratch)
            }
        }
    }

    /// An integer in a register that must not be changed: its own, or the scratch one.
    pub(super) fn gpr(&mut self, operand: Operand, ty: Type, scratch: Gpr) -> Gpr {
        match self.register_of(operand) {
            Some(register) => register,
            None => {
                self.load_into(operand, ty, scratch);
                scratch
            }
        }
    }

    /// Loads an integer into a register. Keeps flags and all other registers, except `rdx` if the
    /// operand is folded.
    pub(super) fn load_into(&mut self, operand: Operand, ty: Type, register: Gpr) {
        match operand {
            Operand::Value(value) => match self.place(value) {
                Place::Gpr(own) => {
                    if own != register {
                        self.asm.mov(width_of(ty), register, own);
                    }
                }
                Place::Slot(at) => {
                    self.asm.load(width_of(ty), register, Mem::at(Gpr::RBP, at));
                }
                Place::Xmm(own) => self.asm.mov_to_gpr(width_of(ty), register, own),
                Place::None => self.make_into(value, ty, register),
            },
            Operand::Int(constant) => {
                let constant = match width_of(ty) {
                    Width::W64 => constant,
                    _ => sign_extended(constant, bits_of(ty)) as u32 as u64,
                };
                self.asm.mov_imm(register, constant);
            }
            Operand::Float(bits) => self.asm.mov_imm(register, bits),
            Operand::Wide(_) | Operand::Undef => self.asm.mov_imm(register, 0),
            Operand::Address(symbol, bytes) => self.address_of(symbol, bytes, register),
            Operand::Label(block) => match self.address_of_block(block) {
                Some(label) => self.asm.address_label(register, label),
                None => self.asm.mov_imm(register, 1),
            },
        }
    }

    /// Computes a value without a place into a register.
    fn make_into(&mut self, value: Value, ty: Type, register: Gpr) {
        if let Some(&Op::Load { address, .. }) = self.folded(value) {
            let mem = self.address(address, register);
            let width = Width::of_bits(bits_of(ty));
            self.asm.load(width, register, mem);
        } else {
            let mem = self.address(Operand::Value(value), register);
            self.lea(register, mem);
        }
    }

    /// Loads the address of a place in memory into a register.
    pub(super) fn lea(&mut self, register: Gpr, mem: Mem) {
        match mem {
            Mem {
                base: Base::Gpr(base),
                index: None,
                disp: 0,
            } => {
                if base != register {
                    self.asm.mov(Width::W64, register, base);
                }
            }
            Mem {
                base: Base::Nothing,
                index: None,
                disp,
            } => self.asm.mov_imm(register, i64::from(disp) as u64),
            mem => self.asm.lea(Width::W64, register, mem),
        }
    }

    /// Loads the address of a symbol plus `bytes` into a register; keeps flags.
    fn address_of(&mut self, symbol: crate::ir::Symbol, bytes: i64, register: Gpr) {
        let rest = match (
            self.function.symbols[symbol.index()].reach,
            i32::try_from(bytes),
        ) {
            (Reach::Near, Ok(near)) => {
                self.asm.address_near(register, symbol, near);
                return;
            }
            (Reach::Near, Err(_)) => {
                self.asm.address_near(register, symbol, 0);
                bytes
            }
            _ => {
                self.asm.address_word(register, symbol);
                bytes
            }
        };
        // In steps that fit `lea`, which keeps flags.
        let mut rest = rest;
        while rest != 0 {
            let step = rest.clamp(i64::from(i32::MIN), i64::from(i32::MAX));
            self.asm
                .lea(Width::W64, register, Mem::at(register, step as i32));
            rest -= step;
        }
    }

    /// An integer with defined bits above its type's, up to 32 or 64 bits, in a register: its own
    /// if there is nothing to extend, or the scratch one.
    pub(super) fn extended(
        &mut self,
        operand: Operand,
        ty: Type,
        extension: Extension,
        scratch: Gpr,
    ) -> Gpr {
        let bits = bits_of(ty);
        if bits == 32 || bits == 64 {
            return self.gpr(operand, ty, scratch);
        }
        self.extend_into(operand, ty, extension, width_of(ty), scratch);
        scratch
    }

    /// An integer with defined bits above its type's, up to a width of at least the type's, in a
    /// register. Flags may change.
    pub(super) fn extend_into(
        &mut self,
        operand: Operand,
        ty: Type,
        extension: Extension,
        to: Width,
        register: Gpr,
    ) {
        let bits = bits_of(ty);
        if let Operand::Int(constant) = operand {
            let constant = match extension {
                Extension::Sign => sign_extended(constant, bits) as u64,
                Extension::Zero => zero_extended(constant, bits),
            };
            let constant = match to {
                Width::W64 => constant,
                _ => u64::from(constant as u32),
            };
            self.asm.constant(register, constant);
            return;
        }
        if matches!(bits, 8 | 16 | 32) {
            let from = Width::of_bits(bits);
            let rm = self.rm(operand, ty, register);
            match extension {
                Extension::Zero => self.asm.movzx(from, register, rm),
                Extension::Sign if from == to => self.load_into(operand, ty, register),
                Extension::Sign => self.asm.movsx(from, to, register, rm),
            }
            return;
        }
        self.load_into(operand, ty, register);
        self.extend(register, bits, extension, to);
    }

    /// Extends a register from `bits` bits to a width.
    pub(super) fn extend(&mut self, register: Gpr, bits: u8, extension: Extension, to: Width) {
        use crate::asm::{Alu, Shift};
        let work = match bits {
            0..=32 if extension == Extension::Zero => Width::W32,
            _ => to,
        };
        if bits >= work.bits() && bits != 32 {
            return;
        }
        match (bits, extension) {
            (8 | 16 | 32, Extension::Zero) => {
                self.asm.movzx(Width::of_bits(bits), register, register);
            }
            (8 | 16 | 32, Extension::Sign) => {
                if Width::of_bits(bits) != to {
                    self.asm.movsx(Width::of_bits(bits), to, register, register);
                }
            }
            (1..=31, Extension::Zero) => {
                self.asm
                    .alu_imm(Alu::And, Width::W32, register, ((1u32 << bits) - 1) as i32);
            }
            _ => {
                let by = work.bits() - bits;
                let back = match extension {
                    Extension::Sign => Shift::Sar,
                    Extension::Zero => Shift::Shr,
                };
                self.asm.shift_imm(Shift::Shl, work, register, by);
                self.asm.shift_imm(back, work, register, by);
            }
        }
    }

    /// The register in which a result is computed: its own, or the scratch one.
    pub(super) fn target(&self, result: u32, scratch: Gpr) -> Gpr {
        match self.place(Value(result)) {
            Place::Gpr(register) => register,
            _ => scratch,
        }
    }

    /// Moves a result from a register to its place.
    pub(super) fn put(&mut self, result: u32, register: Gpr) {
        let width = width_of(self.function.types[result as usize]);
        match self.place(Value(result)) {
            Place::Gpr(own) => {
                if own != register {
                    self.asm.mov(width, own, register);
                }
            }
            Place::Slot(at) => self.asm.store(width, Mem::at(Gpr::RBP, at), register),
            Place::Xmm(own) => self.asm.mov_from_gpr(width, own, register),
            Place::None => {}
        }
    }
}
