//! The stack pointer, the frame's own addresses, thread-local variables, and hints.

use crate::asm::{Alu, Gpr, Mem, Shift, Width};
use crate::ir::{Operand, Symbol, Type};

use super::Emitter;
use super::operands::IntSource;

impl Emitter<'_> {
    /// Allocates memory at the end of the stack. Arguments of calls stay at the stack's end, so the
    /// allocated memory lies above them.
    pub(super) fn dynamic_alloca(
        &mut self,
        (count, size, align): (Operand, u64, u32),
        result: u32,
    ) {
        let align = align.max(16);
        let outgoing = self.frame.outgoing.next_multiple_of(align);
        // With the rounding, and the gap between the end and a multiple of a large alignment.
        let more = 15 + u64::from(outgoing - self.frame.outgoing);
        match self.source(count, Type::PTR, Gpr::RAX) {
            IntSource::Imm(count) => {
                let bytes = (count as u64).wrapping_mul(size);
                let bytes = bytes.wrapping_add(more) & !15;
                self.asm.mov_imm(Gpr::RAX, bytes);
            }
            _ => {
                self.load_into(count, Type::PTR, Gpr::RAX);
                self.multiply_count(size);
                self.asm
                    .alu_imm(Alu::Add, Width::W64, Gpr::RAX, more as i32);
                self.asm.alu_imm(Alu::And, Width::W64, Gpr::RAX, -16);
            }
        }
        if self.function.probes_stack {
            self.take_touching();
        } else {
            self.asm.alu(Alu::Sub, Width::W64, Gpr::RSP, Gpr::RAX);
        }
        if align > 16 {
            let mask = (align as i32).wrapping_neg();
            self.asm.alu_imm(Alu::And, Width::W64, Gpr::RSP, mask);
        }
        let target = self.target(result, Gpr::RAX);
        self.lea(target, Mem::at(Gpr::RSP, outgoing as i32));
        self.put(result, target);
    }

    /// Multiplies `rax` with the size of an element.
    fn multiply_count(&mut self, size: u64) {
        if size.is_power_of_two() {
            let by = size.trailing_zeros() as u8;
            if by != 0 {
                self.asm.shift_imm(Shift::Shl, Width::W64, Gpr::RAX, by);
            }
        } else if let Ok(small) = i32::try_from(size) {
            self.asm.imul_imm(Width::W64, Gpr::RAX, Gpr::RAX, small);
        } else {
            self.asm.mov_imm(Gpr::RCX, size);
            self.asm.imul(Width::W64, Gpr::RAX, Gpr::RCX);
        }
    }

    /// Allocates `rax` bytes of stack and touches each page.
    fn take_touching(&mut self) {
        use crate::asm::Condition;
        const PAGE: i32 = 4096;
        let (again, last) = (self.asm.new_label(), self.asm.new_label());
        // The new stack pointer.
        self.asm.unary(crate::asm::Unary::Neg, Width::W64, Gpr::RAX);
        self.asm.alu(Alu::Add, Width::W64, Gpr::RAX, Gpr::RSP);
        self.asm.bind(again);
        self.asm.lea(Width::W64, Gpr::RCX, Mem::at(Gpr::RSP, -PAGE));
        self.asm.alu(Alu::Cmp, Width::W64, Gpr::RCX, Gpr::RAX);
        self.asm.jump_if(Condition::BelowEqual, last);
        self.asm.mov(Width::W64, Gpr::RSP, Gpr::RCX);
        self.asm
            .alu_imm(Alu::Or, Width::W32, Mem::at(Gpr::RSP, 0), 0);
        self.asm.jump(again);
        self.asm.bind(last);
        self.asm.mov(Width::W64, Gpr::RSP, Gpr::RAX);
        self.asm
            .alu_imm(Alu::Or, Width::W32, Mem::at(Gpr::RSP, 0), 0);
    }

    /// Saves the stack pointer.
    pub(super) fn stack_save(&mut self, result: u32) {
        self.put(result, Gpr::RSP);
    }

    /// Restores the stack pointer.
    pub(super) fn stack_restore(&mut self, operand: Operand) {
        self.load_into(operand, Type::PTR, Gpr::RSP);
    }

    /// The saved `rbp` of the frame `level` frames up.
    pub(super) fn frame_address(&mut self, level: u32, result: u32) {
        let target = self.target(result, Gpr::RAX);
        let frame = self.frame_at(level, target);
        if frame != target {
            self.asm.mov(Width::W64, target, frame);
        }
        self.put(result, target);
    }

    /// The return address of a frame.
    pub(super) fn return_address(&mut self, level: u32, result: u32) {
        let target = self.target(result, Gpr::RAX);
        let frame = self.frame_at(level, target);
        self.asm.load(Width::W64, target, Mem::at(frame, 8));
        self.put(result, target);
    }

    /// A register that holds the address of a frame: `rbp`, or the given one.
    fn frame_at(&mut self, level: u32, register: Gpr) -> Gpr {
        let mut frame = Gpr::RBP;
        for _ in 0..level {
            self.asm.load(Width::W64, register, Mem::at(frame, 0));
            frame = register;
        }
        frame
    }

    /// The address of a thread-local variable.
    pub(super) fn thread_local(&mut self, symbol: Symbol, result: u32) {
        let get = self.library("__tls_get_addr");
        self.asm.thread_local(symbol, get);
        self.put(result, Gpr::RAX);
    }

    /// The thread pointer.
    pub(super) fn thread_pointer(&mut self, result: u32) {
        let target = self.target(result, Gpr::RAX);
        self.asm.thread_pointer(target);
        self.put(result, target);
    }

    /// Emits a prefetch.
    pub(super) fn prefetch(&mut self, address: Operand) {
        let mem = self.address(address, Gpr::RCX);
        self.asm.prefetch(mem);
    }

    /// Reads the x87 control word through the stack: the area below the stack pointer is free.
    pub(super) fn control_word(&mut self, result: u32) {
        self.asm.push(Gpr::RAX);
        self.asm.x87_store_control(Mem::at(Gpr::RSP, 0));
        let target = self.target(result, Gpr::RAX);
        self.asm.pop(target);
        self.put(result, target);
    }

    /// `fnstcw`.
    pub(super) fn store_control(&mut self, address: Operand) {
        let mem = self.address(address, Gpr::RCX);
        self.asm.x87_store_control(mem);
    }

    /// `fldcw`.
    pub(super) fn load_control(&mut self, address: Operand) {
        let mem = self.address(address, Gpr::RCX);
        self.asm.x87_load_control(mem);
    }

    /// The processor's counter of cycles.
    pub(super) fn cycle_counter(&mut self, result: u32) {
        self.asm.rdtsc();
        self.asm.shift_imm(Shift::Shl, Width::W64, Gpr::RDX, 32);
        self.asm.alu(Alu::Or, Width::W64, Gpr::RAX, Gpr::RDX);
        self.put(result, Gpr::RAX);
    }
}
