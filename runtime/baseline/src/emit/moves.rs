//! Several moves at once: phis, arguments, parameters, results.

use crate::asm::{Gpr, Mem, Rm, Width};
use crate::ir::{Operand, Type};
use crate::moves::{Move, Scratch, Size, Source, Spot, Step};
use crate::places::Place;

use super::operands::{bits_of, sign_extended, width_of};
use super::{Emitter, VECTOR_SCRATCH};

/// One of several moves. Its source may be an operand without a place: a constant, an address.
pub(crate) type Movement = Move<(Operand, Type)>;

/// The bytes of a type that are moved.
pub(super) fn size_of(ty: Type) -> Size {
    match ty {
        Type::Int(bits) if bits <= 32 => Size::B4,
        Type::Int(_) | Type::F64 | Type::V64 => Size::B8,
        Type::F32 => Size::B4,
        Type::F80 | Type::V128 => Size::B16,
    }
}

/// The spot of a place.
pub(super) fn spot_of(place: Place) -> Option<Spot> {
    match place {
        Place::Gpr(register) => Some(Spot::Gpr(register)),
        Place::Xmm(register) => Some(Spot::Xmm(register)),
        Place::Slot(at) => Some(Spot::Frame(at)),
        Place::None => None,
    }
}

impl Emitter<'_> {
    /// Adds a move from a spot to a place.
    pub(super) fn move_spot(&mut self, to: Place, from: Spot, ty: Type) {
        if let Some(to) = spot_of(to)
            && to != from
        {
            self.moves.push(Move {
                to,
                from: Source::Spot(from),
                size: size_of(ty),
            });
        }
    }

    /// Adds a move of an operand to a spot.
    pub(super) fn move_operand(&mut self, to: Spot, operand: Operand, ty: Type) {
        let from = match operand {
            Operand::Value(value) => match spot_of(self.place(value)) {
                Some(spot) => Source::Spot(spot),
                None => Source::Constant((operand, ty)),
            },
            // An undefined value keeps the old contents.
            Operand::Undef if ty != Type::F80 => match to {
                Spot::Gpr(_) | Spot::Frame(_) => return,
                _ => Source::Constant((operand, ty)),
            },
            _ => Source::Constant((operand, ty)),
        };
        if from != Source::Spot(to) {
            self.moves.push(Move {
                to,
                from,
                size: size_of(ty),
            });
        }
    }

    /// Emits the collected moves. `gpr` must be neither a source nor a destination of any of them.
    pub(super) fn do_moves(&mut self, gpr: Gpr) {
        if self.moves.is_empty() {
            return;
        }
        let scratch = Scratch {
            gpr,
            xmms: VECTOR_SCRATCH,
        };
        let moves = std::mem::take(self.moves);
        let mut mover = std::mem::take(self.mover);
        mover.sequence(&moves, scratch, |step| match step {
            Step::Move { to, from, size } => self.move_step(to, from, size),
            Step::Constant { to, constant, .. } => self.constant_step(to, constant, gpr),
        });
        *self.mover = mover;
        *self.moves = moves;
        self.moves.clear();
    }

    fn move_step(&mut self, to: Spot, from: Spot, size: Size) {
        let width = match size {
            Size::B4 => Width::W32,
            _ => Width::W64,
        };
        let is_double = size != Size::B4;
        match (to, from) {
            (Spot::Gpr(to), Spot::Gpr(from)) => self.asm.mov(width, to, from),
            (Spot::Xmm(to), Spot::Xmm(from)) => self.asm.movaps(to, from),
            (Spot::Gpr(to), Spot::Xmm(from)) => self.asm.mov_to_gpr(width, to, from),
            (Spot::Xmm(to), Spot::Gpr(from)) => {
                self.asm.mov_from_gpr(width, to, Rm::Gpr(from));
            }
            (Spot::Gpr(to), from) => self.asm.load(width, to, memory(from)),
            (to, Spot::Gpr(from)) => self.asm.store(width, memory(to), from),
            (Spot::Xmm(to), from) if size == Size::B16 => {
                self.asm.load_vector(true, to, memory(from));
            }
            (to, Spot::Xmm(from)) if size == Size::B16 => {
                self.asm.store_vector(true, memory(to), from);
            }
            (Spot::Xmm(to), from) => self.asm.load_float(is_double, to, memory(from)),
            (to, Spot::Xmm(from)) => self.asm.store_float(is_double, memory(to), from),
            // A sequence has no steps from memory to memory.
            (_, _) => {}
        }
    }

    fn constant_step(&mut self, to: Spot, (operand, ty): (Operand, Type), scratch: Gpr) {
        match to {
            Spot::Gpr(register) if ty.is_int() && operand == Operand::Int(0) => {
                self.asm.zero(register);
            }
            Spot::Gpr(register) => self.load_into(operand, ty, register),
            Spot::Xmm(register) => self.load_vector_into(operand, ty, register),
            Spot::Frame(_) | Spot::Outgoing(_) => {
                let mem = memory(to);
                if let (Operand::Int(constant), true) = (operand, ty.is_int()) {
                    let constant = sign_extended(constant, bits_of(ty));
                    if let Ok(small) = i32::try_from(constant) {
                        self.asm.store_imm(width_of(ty), mem, small);
                        return;
                    }
                }
                if size_of(ty) == Size::B16 {
                    self.load_vector_into(operand, ty, VECTOR_SCRATCH[0]);
                    self.asm.store_vector(true, mem, VECTOR_SCRATCH[0]);
                } else {
                    let ty = match ty {
                        Type::F32 => Type::Int(32),
                        Type::Int(_) => ty,
                        _ => Type::Int(64),
                    };
                    self.load_into(operand, ty, scratch);
                    self.asm.store(width_of(ty), mem, scratch);
                }
            }
        }
    }
}

/// Memory of a spot.
fn memory(spot: Spot) -> Mem {
    match spot {
        Spot::Frame(at) => Mem::at(Gpr::RBP, at),
        Spot::Outgoing(at) => Mem::at(Gpr::RSP, at),
        Spot::Gpr(_) | Spot::Xmm(_) => Mem::at(Gpr::RBP, 0),
    }
}
