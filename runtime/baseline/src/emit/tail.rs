//! Calls that must be tail calls: the callee reuses this function's argument area, and returns to
//! its caller.
//!
//! Stack arguments overwrite this function's own ones, so they are moved together with all others.
//! `coverage.rs` ensures that the callee's need no more room than this function's.

use crate::abi::{self, ArgumentPlace};
use crate::asm::{Gpr, Mem, Width};
use crate::ir::{Argument, Call, Callee, Operand, Type};
use crate::moves::Spot;

use super::Emitter;
use super::calls::{CALLEE, extended, extension_of};
use super::operands::bits_of;

/// The offset from `rbp` of an argument on the stack.
fn incoming(at: u32) -> i32 {
    16 + at as i32
}

impl Emitter<'_> {
    /// Emits the call with this function's epilogue.
    pub(super) fn tail_call(&mut self, call: &Call) {
        self.moves.clear();
        // Callee-saved registers are restored before the jump.
        if let Callee::Operand(operand) = call.callee {
            self.move_operand(Spot::Gpr(CALLEE), operand, Type::PTR);
        }
        let mut places = abi::Arguments::default();
        for argument in &call.arguments {
            let to = match places.next(argument.ty, argument.passing) {
                ArgumentPlace::Gpr(register) => Spot::Gpr(register),
                ArgumentPlace::Xmm(register) => Spot::Xmm(register),
                ArgumentPlace::Stack(at) => Spot::Frame(incoming(at)),
                ArgumentPlace::Memory(_) => continue,
            };
            let (operand, ty) = extended(argument.operand, argument.ty, extension_of(argument));
            self.move_operand(to, operand, ty);
        }
        self.do_moves(Gpr::RAX);
        self.extend_in_place(&call.arguments);
        self.take_down();
        let restored = self.asm.here();
        match call.callee {
            Callee::Symbol(symbol) => self.asm.jump_symbol(symbol),
            Callee::Operand(_) => self.asm.jump_to(CALLEE),
        }
        let ended = self.asm.here();
        self.epilogues.push((restored, ended));
    }

    /// Extends arguments that are already in their ABI places.
    fn extend_in_place(&mut self, arguments: &[Argument]) {
        let mut places = abi::Arguments::default();
        for argument in arguments {
            let place = places.next(argument.ty, argument.passing);
            let Some(extension) = extension_of(argument) else {
                continue;
            };
            match place {
                ArgumentPlace::Gpr(register) if matches!(argument.operand, Operand::Value(_)) => {
                    self.extend_argument(register, argument.ty, extension);
                }
                ArgumentPlace::Stack(at) if bits_of(argument.ty) < 64 => {
                    let mem = Mem::at(Gpr::RBP, incoming(at));
                    self.asm.load(Width::W64, Gpr::RAX, mem);
                    self.extend_argument(Gpr::RAX, argument.ty, extension);
                    self.asm.store(Width::W64, mem, Gpr::RAX);
                }
                _ => {}
            }
        }
    }
}
