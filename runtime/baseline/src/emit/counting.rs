//! Counters of a version at tier 1, and the ways to the OSR exits of its loops.
//!
//! | where | code |
//! |---|---|
//! | entry | `inc dword [counters]` |
//! | latch of a loop without a head | `inc dword [counters + 4]` |
//! | head of a loop | `cmp dword [loops + count], 0; jl out` `back:` |
//!
//! A loop counts its passes when it is asked to: the count is negative then, and rises to zero. Else its
//! head only reads a word, which a processor does beside the work of the loop. To write to a word in
//! each pass takes as long as the pass of a small loop, and much longer where two threads do it.
//!
//! Behind the function, for each head:
//! ```text
//! out:   inc dword [loops + count]
//!        jne back
//!        mov rax, [loops + slot]            ; read once: another thread writes it
//!        test rax, rax; jne leave
//!        cmp dword [loops + timed], 0; je back
//!        rdtsc; mov [loops + when], eax; mov [loops + when + 4], edx
//!        jmp back
//! leave: jmp [loops + exit]                 ; `exits`: rax is the address to call
//! ```

use crate::analysis::head_of;
use crate::asm::{Alu, Condition, Gpr, Label, Rm, Unary, Width};
use crate::ir::{Block, Operand, Symbol};

use super::Emitter;

/// The way to the exit of a loop, whose code is still to be written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way {
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
            let count = self.address(Operand::Address(loops, i64::from(head.count)), Gpr::RAX);
            self.asm.alu_imm(Alu::Cmp, Width::W32, count, 0);
            let out = self.asm.new_label();
            self.asm.jump_if(Condition::Less, out);
            let back = self.asm.here();
            self.ways.push(Way { block, out, back });
        }
        if let Some(counters) = counting.counters
            && counting.latches.binary_search(&block).is_ok()
        {
            self.increment(counters, 4, Gpr::RAX);
        }
    }

    pub(super) fn increment(&mut self, symbol: Symbol, offset: i64, scratch: Gpr) {
        let mem = self.address(Operand::Address(symbol, offset), scratch);
        self.asm.unary(Unary::Inc, Width::W32, mem);
    }

    /// Writes the ways to the OSR exits of loops.
    pub(super) fn ways_out(&mut self) {
        let function = self.function;
        let Some(loops) = function.counting.loops else {
            return;
        };
        for way in std::mem::take(&mut self.ways) {
            let Some(head) = head_of(function, way.block) else {
                continue;
            };
            let word = |offset: u32| Operand::Address(loops, i64::from(offset));
            self.asm.bind(way.out);
            self.increment(loops, i64::from(head.count), Gpr::RAX);
            self.asm.jump_if(Condition::NotEqual, way.back);
            let slot = self.address(word(head.slot), Gpr::RAX);
            self.asm.load(Width::W64, Gpr::RAX, slot);
            self.asm.test(Width::W64, Gpr::RAX, Gpr::RAX);
            let leave = self.asm.new_label();
            self.asm.jump_if(Condition::NotEqual, leave);
            if let Some(time) = head.time {
                let timed = self.address(word(time.timed), Gpr::RAX);
                self.asm.alu_imm(Alu::Cmp, Width::W32, timed, 0);
                self.asm.jump_if(Condition::Equal, way.back);
                self.asm.rdtsc();
                for (half, register) in [(0, Gpr::RAX), (4, Gpr::RDX)] {
                    // The other half is in neither of the two.
                    let when = self.address(word(time.when + half), Gpr::RCX);
                    self.asm.store(Width::W32, when, register);
                }
            }
            self.asm.jump(way.back);
            self.asm.bind(leave);
            // `exits` compiles the code there.
            let to = self.address(word(head.exit), Gpr::RCX);
            self.asm.jump_to(Rm::Mem(to));
        }
    }
}
