//! What a version counts while it runs, and the way out of its loops.
//!
//! | where | code |
//! |---|---|
//! | entry | `inc dword [counters]` |
//! | latch of a loop without a head | `inc dword [counters + 4]` |
//! | head of a loop | `inc dword [loops + count]; js out` `back:` |
//!
//! Behind the function, for each head:
//! ```text
//! out:   mov rax, [loops + slot]            ; read once: somebody else writes it
//!        test rax, rax; jne leave
//!        and dword [loops + count], 0x7fffffff
//!        jmp back
//! leave: mov [spare], rax
//!        inc dword [loops + left]
//!        ...arguments...; call [spare]
//!        ...epilogue...
//! ```
//! What the continuation returns is returned as it is: it lies where results lie.

use crate::analysis::head_of;
use crate::asm::{Alu, Condition, Gpr, Label, Mem, Rm, Unary, Width};
use crate::ir::{Block, Operand, Symbol};

use super::Emitter;

/// The way out of a loop, which is still to be written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exit {
    block: Block,
    out: Label,
    back: Label,
}

impl Emitter<'_> {
    /// Counts an entry.
    pub(super) fn count_entry(&mut self) {
        if let Some(counters) = self.function.counting.counters {
            // No argument is in r11.
            self.increment(counters, 0, Gpr::R11);
        }
    }

    /// Counts at the beginning of a block, behind its phis.
    pub(super) fn count(&mut self, block: Block) {
        let counting = &self.function.counting;
        if let Some(head) = head_of(self.function, block)
            && let Some(loops) = counting.loops
        {
            self.increment(loops, i64::from(head.count), Gpr::RAX);
            let out = self.asm.new_label();
            self.asm.jump_if(Condition::Sign, out);
            let back = self.asm.here();
            self.exits.push(Exit { block, out, back });
        }
        if let Some(counters) = counting.counters
            && counting.latches.contains(&block)
        {
            self.increment(counters, 4, Gpr::RAX);
        }
    }

    fn increment(&mut self, symbol: Symbol, offset: i64, scratch: Gpr) {
        let mem = self.address(Operand::Address(symbol, offset), scratch);
        self.asm.unary(Unary::Inc, Width::W32, mem);
    }

    /// Writes the ways out of loops.
    pub(super) fn leave_loops(&mut self) {
        let function = self.function;
        let Some(loops) = function.counting.loops else {
            return;
        };
        for exit in std::mem::take(&mut self.exits) {
            let Some(head) = head_of(function, exit.block) else {
                continue;
            };
            let word = |offset: u32| Operand::Address(loops, i64::from(offset));
            self.asm.bind(exit.out);
            let slot = self.address(word(head.slot), Gpr::RAX);
            self.asm.load(Width::W64, Gpr::RAX, slot);
            self.asm.test(Width::W64, Gpr::RAX, Gpr::RAX);
            let leave = self.asm.new_label();
            self.asm.jump_if(Condition::NotEqual, leave);
            let count = self.address(word(head.count), Gpr::RAX);
            self.asm.alu_imm(Alu::And, Width::W32, count, 0x7fff_ffff);
            self.asm.jump(exit.back);
            self.asm.bind(leave);
            let spare = Mem::at(Gpr::RBP, self.frame.spare);
            self.asm.store(Width::W64, spare, Gpr::RAX);
            self.increment(loops, i64::from(head.left), Gpr::RAX);
            self.arguments(&head.arguments, &head.loaded);
            self.asm.call(Rm::Mem(spare));
            self.epilogue();
        }
    }
}
