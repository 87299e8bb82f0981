//! Calls: moves arguments to their ABI places, and results to theirs.

use std::ops::Range;

use crate::abi::{self, ArgumentPlace, ResultPlace, Taken};
use crate::asm::{Gpr, Label, Mem, Rm, Width};
use crate::ir::{Argument, Call, Callee, Extension, Operand, Passing, Returned, Type, Value};
use crate::moves::Spot;
use crate::places::{Place, SAVED};

use super::Emitter;
use super::operands::{sign_extended, width_of, zero_extended};

/// The register of a callee's address; no argument is passed in it.
pub(super) const CALLEE: Gpr = Gpr::R11;

impl Emitter<'_> {
    pub(super) fn call(&mut self, call: &Call, results: Range<u32>) {
        self.call_arguments(call);
        self.call_results(&call.returns, &results);
    }

    /// Moves arguments and emits the call; returns the labels of its start and end.
    pub(super) fn call_arguments(&mut self, call: &Call) -> (Label, Label) {
        let callee = match call.callee {
            Callee::Symbol(_) => None,
            Callee::Operand(operand) => Some(operand),
        };
        self.moves.clear();
        let callee = callee.map(|operand| self.callee(operand));
        let taken = self.add_arguments(&call.arguments);
        if call.is_variadic {
            self.asm.mov_imm(Gpr::RAX, u64::from(taken.xmms));
        }
        let from = self.asm.here();
        match (call.callee, callee) {
            (Callee::Symbol(symbol), _) => self.asm.call_symbol(symbol),
            (_, callee) => self.asm.call(callee.unwrap_or(Rm::Gpr(CALLEE))),
        }
        (from, self.asm.here())
    }

    /// Moves arguments together with moves that were added before.
    fn add_arguments(&mut self, arguments: &[Argument]) -> Taken {
        self.first_to_stack(arguments);
        let mut places = abi::Arguments::default();
        for argument in arguments {
            let extension = extension_of(argument);
            let to = match places.next(argument.ty, argument.passing) {
                ArgumentPlace::Gpr(register) => Spot::Gpr(register),
                ArgumentPlace::Xmm(register) => Spot::Xmm(register),
                ArgumentPlace::Stack(at) if extension.is_none() => Spot::Outgoing(at as i32),
                _ => continue,
            };
            let (operand, ty) = extended(argument.operand, argument.ty, extension);
            self.move_operand(to, operand, ty);
        }
        self.do_moves(Gpr::RAX);
        let taken = places.taken();
        let mut places = abi::Arguments::default();
        for argument in arguments {
            let place = places.next(argument.ty, argument.passing);
            if let (ArgumentPlace::Gpr(register), Some(extension), Operand::Value(_)) =
                (place, extension_of(argument), argument.operand)
            {
                self.extend_argument(register, argument.ty, extension);
            }
        }
        taken
    }

    /// The operand of an indirect call: the callee's own place if no argument overwrites it, else a
    /// register without an argument.
    fn callee(&mut self, operand: Operand) -> Rm {
        if let Operand::Value(value) = operand {
            match self.place(value) {
                Place::Gpr(register) if SAVED >> register.number() & 1 != 0 => {
                    return Rm::Gpr(register);
                }
                Place::Slot(at) => return Rm::Mem(Mem::at(Gpr::RBP, at)),
                _ => {}
            }
        }
        self.move_operand(Spot::Gpr(CALLEE), operand, Type::PTR);
        Rm::Gpr(CALLEE)
    }

    /// Stores extended stack arguments and copies of memory first; no argument is read from there.
    fn first_to_stack(&mut self, arguments: &[Argument]) {
        let mut places = abi::Arguments::default();
        for argument in arguments {
            let place = places.next(argument.ty, argument.passing);
            if let (ArgumentPlace::Memory(at), Passing::Memory { size, .. }) =
                (place, argument.passing)
            {
                self.copy_argument(argument.operand, size, at);
            }
            if let (ArgumentPlace::Stack(at), Some(extension)) = (place, extension_of(argument)) {
                let width = width_of(argument.ty);
                self.extend_into(argument.operand, argument.ty, extension, width, Gpr::RAX);
                let mem = Mem::at(Gpr::RSP, at as i32);
                self.asm.store(Width::W64, mem, Gpr::RAX);
            }
        }
    }

    /// Moves results of a call to their places.
    pub(super) fn call_results(&mut self, returns: &[Returned], results: &Range<u32>) {
        self.x87_results(returns, results);
        if results.is_empty() {
            return;
        }
        let first = results.start;
        self.moves.clear();
        let mut places = abi::ResultPlaces::default();
        for (at, returned) in returns.iter().enumerate() {
            let Ok(from) = places.next(returned.ty) else {
                continue;
            };
            let value = first + at as u32;
            let Some(life) = self.analysis.lives.get(value as usize) else {
                continue;
            };
            if life.uses == 0 {
                continue;
            }
            let from = match from {
                ResultPlace::Gpr(register) => Spot::Gpr(register),
                ResultPlace::Xmm(register) => Spot::Xmm(register),
                ResultPlace::X87(_) => continue,
            };
            let place = self.place(Value(value));
            self.move_spot(place, from, returned.ty);
        }
        // No value lives in result registers, except vectors.
        self.do_moves(Gpr::RAX);
    }
}

/// The extension of an argument's upper bits.
pub(super) fn extension_of(argument: &Argument) -> Option<Extension> {
    match argument.passing {
        Passing::SignExtended => Some(Extension::Sign),
        Passing::ZeroExtended => Some(Extension::Zero),
        _ => None,
    }
}

/// A constant extended to a whole register, as an integer; other operands unchanged.
pub(super) fn extended(
    operand: Operand,
    ty: Type,
    extension: Option<Extension>,
) -> (Operand, Type) {
    let (Operand::Int(constant), Some(extension), Type::Int(bits)) = (operand, extension, ty)
    else {
        return (operand, ty);
    };
    let constant = match extension {
        Extension::Sign => sign_extended(constant, bits) as u64,
        Extension::Zero => zero_extended(constant, bits),
    };
    match width_of(ty) {
        Width::W64 => (Operand::Int(constant), Type::Int(64)),
        _ => (Operand::Int(u64::from(constant as u32)), Type::Int(32)),
    }
}
