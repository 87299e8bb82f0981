//! Variadic functions: `va_list` (psABI, 3.5.7).
//!
//! | offset | field of `va_list` |
//! |---|---|
//! | 0 | `gp_offset`: offset of the next general register in the save area; 48 if there is none |
//! | 4 | `fp_offset`: offset of the next vector register; 176 if there is none |
//! | 8 | `overflow_arg_area`: the next argument on the stack |
//! | 16 | `reg_save_area`: 6 general registers, then 8 vector registers |

use crate::abi::{ARGUMENT_GPRS, ARGUMENT_XMMS};
use crate::asm::{Alu, Condition, Gpr, Mem, Width, Xmm};
use crate::ir::{Operand, Type};

use super::{Emitter, VECTOR_SCRATCH};

/// Bytes of general registers in the save area.
const GPRS: i32 = 48;

/// Bytes of the save area.
pub(super) const SAVE_AREA: u32 = 176;

impl Emitter<'_> {
    /// Saves the registers that may hold variable arguments, in the prologue. Vector registers are
    /// saved only if `al` is not zero: kernels' threads have none.
    pub(super) fn save_arguments(&mut self) {
        let Some(area) = self.frame.save_area else {
            return;
        };
        let taken = self.frame.taken;
        for (number, &register) in ARGUMENT_GPRS.iter().enumerate() {
            if number >= usize::from(taken.gprs) {
                let mem = Mem::at(Gpr::RBP, area + 8 * number as i32);
                self.asm.store(Width::W64, mem, register);
            }
        }
        if taken.xmms >= ARGUMENT_XMMS {
            return;
        }
        let end = self.asm.new_label();
        self.asm.test(Width::W8, Gpr::RAX, Gpr::RAX);
        self.asm.jump_if(Condition::Equal, end);
        for number in taken.xmms..ARGUMENT_XMMS {
            let mem = Mem::at(Gpr::RBP, area + GPRS + 16 * i32::from(number));
            self.asm.store_vector(true, mem, Xmm::new(number));
        }
        self.asm.bind(end);
    }

    /// Initializes a list.
    pub(super) fn va_start(&mut self, list: Operand) {
        let list = self.address(list, Gpr::RCX);
        let taken = self.frame.taken;
        let at = |offset| list.plus(offset).unwrap_or(list);
        self.asm
            .store_imm(Width::W32, at(0), 8 * i32::from(taken.gprs));
        let vectors = GPRS + 16 * i32::from(taken.xmms);
        self.asm.store_imm(Width::W32, at(4), vectors);
        let stack = Mem::at(Gpr::RBP, 16 + taken.stack as i32);
        self.asm.lea(Width::W64, Gpr::RAX, stack);
        self.asm.store(Width::W64, at(8), Gpr::RAX);
        let area = self.frame.save_area.unwrap_or(0);
        self.asm.lea(Width::W64, Gpr::RAX, Mem::at(Gpr::RBP, area));
        self.asm.store(Width::W64, at(16), Gpr::RAX);
    }

    /// Copies a list.
    pub(super) fn va_copy(&mut self, [to, from]: [Operand; 2]) {
        let from = self.address(from, Gpr::RCX);
        let at = |mem: Mem, offset| mem.plus(offset).unwrap_or(mem);
        self.asm.load_vector(false, VECTOR_SCRATCH[0], from);
        self.asm.load(Width::W64, Gpr::RAX, at(from, 16));
        let to = self.address(to, Gpr::RCX);
        self.asm.store_vector(false, to, VECTOR_SCRATCH[0]);
        self.asm.store(Width::W64, at(to, 16), Gpr::RAX);
    }

    /// The next argument of a list, an integer or a number: from the save area if it has one left
    /// of its kind, else from the stack.
    pub(super) fn va_arg(&mut self, ty: Type, list: Operand, result: u32) {
        let (offset, limit, step) = match ty.is_int() {
            true => (0, GPRS - 8, 8),
            false => (4, SAVE_AREA as i32 - 16, 16),
        };
        self.load_into(list, Type::PTR, Gpr::RCX);
        let field = |offset| Mem::at(Gpr::RCX, offset);
        let (stack, end) = (self.asm.new_label(), self.asm.new_label());
        self.asm.load(Width::W32, Gpr::RAX, field(offset));
        self.asm.alu_imm(Alu::Cmp, Width::W32, Gpr::RAX, limit);
        self.asm.jump_if(Condition::Above, stack);
        self.asm.alu_imm(Alu::Add, Width::W32, field(offset), step);
        self.asm.alu(Alu::Add, Width::W64, Gpr::RAX, field(16));
        self.asm.jump(end);
        self.asm.bind(stack);
        self.asm.load(Width::W64, Gpr::RAX, field(8));
        self.asm.alu_imm(Alu::Add, Width::W64, field(8), 8);
        self.asm.bind(end);
        let argument = Mem::at(Gpr::RAX, 0);
        if ty.is_int() {
            let target = self.target(result, Gpr::RAX);
            let width = super::operands::width_of(ty);
            self.asm.load(width, target, argument);
            self.put(result, target);
        } else {
            let target = self.vector_target(result);
            self.read_vector(ty, target, argument, false);
            self.put_vector(result, target);
        }
    }
}
