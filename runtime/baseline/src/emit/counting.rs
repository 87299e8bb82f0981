//! Counters of a version at tier 1, and the OSR exits of its loops.
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
//! leave: mov [spare], rax
//!        mov dword [loops + count], -1      ; the next pass leaves, too
//!        inc dword [loops + left]
//!        ...values that cross in memory...
//!        ...arguments...; call [spare]
//!        ...epilogue...
//! ```
//! The result of the continuation is returned unchanged: it is already in the result registers.

use smallvec::SmallVec;

use crate::abi::{self, ArgumentPlace};
use crate::analysis::head_of;
use crate::asm::{Alu, Condition, Gpr, Label, Mem, Rm, Unary, Width};
use crate::ir::{Block, Head, Operand, Symbol, Type};

use super::{Emitter, VECTOR_SCRATCH};

/// The exit of a loop, whose code is still to be written.
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
            let count = self.address(Operand::Address(loops, i64::from(head.count)), Gpr::RAX);
            self.asm.alu_imm(Alu::Cmp, Width::W32, count, 0);
            let out = self.asm.new_label();
            self.asm.jump_if(Condition::Less, out);
            let back = self.asm.here();
            self.exits.push(Exit { block, out, back });
        }
        if let Some(counters) = counting.counters
            && counting.latches.binary_search(&block).is_ok()
        {
            self.increment(counters, 4, Gpr::RAX);
        }
    }

    fn increment(&mut self, symbol: Symbol, offset: i64, scratch: Gpr) {
        let mem = self.address(Operand::Address(symbol, offset), scratch);
        self.asm.unary(Unary::Inc, Width::W32, mem);
    }

    /// Writes the OSR exits of loops.
    pub(super) fn osr_loops(&mut self) {
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
            self.increment(loops, i64::from(head.count), Gpr::RAX);
            self.asm.jump_if(Condition::NotEqual, exit.back);
            let slot = self.address(word(head.slot), Gpr::RAX);
            self.asm.load(Width::W64, Gpr::RAX, slot);
            self.asm.test(Width::W64, Gpr::RAX, Gpr::RAX);
            let leave = self.asm.new_label();
            self.asm.jump_if(Condition::NotEqual, leave);
            if let Some(time) = head.time {
                let timed = self.address(word(time.timed), Gpr::RAX);
                self.asm.alu_imm(Alu::Cmp, Width::W32, timed, 0);
                self.asm.jump_if(Condition::Equal, exit.back);
                self.asm.rdtsc();
                for (half, register) in [(0, Gpr::RAX), (4, Gpr::RDX)] {
                    // The other half is in neither of the two.
                    let when = self.address(word(time.when + half), Gpr::RCX);
                    self.asm.store(Width::W32, when, register);
                }
            }
            self.asm.jump(exit.back);
            self.asm.bind(leave);
            let spare = Mem::at(Gpr::RBP, self.frame.spare);
            self.asm.store(Width::W64, spare, Gpr::RAX);
            let count = self.address(word(head.count), Gpr::RAX);
            self.asm.store_imm(Width::W32, count, -1);
            self.increment(loops, i64::from(head.left), Gpr::RAX);
            self.store_crossing(head);
            self.arguments(&head.arguments, &head.loaded);
            self.address_crossing(head);
            self.asm.call(Rm::Mem(spare));
            self.epilogue();
        }
    }

    /// Stores the values that cross in memory.
    fn store_crossing(&mut self, head: &Head) {
        let (areas, _) = areas(head);
        for stored in &head.stored {
            let area = areas.iter().find(|area| area.0 == stored.argument);
            let area = area.map_or(0, |area| area.1);
            let mem = Mem::at(
                Gpr::RBP,
                self.frame.crossing + (area + stored.offset) as i32,
            );
            match (stored.ty, stored.operand) {
                (_, Operand::Undef) => {}
                (ty @ Type::Int(bits), operand) => self.store_int(ty, bits, mem, operand),
                (Type::F80, operand) => {
                    self.x87_push(operand, Type::F80);
                    self.asm.x87_store(Type::F80.bytes(), mem);
                }
                (ty, operand) => {
                    let scratch = VECTOR_SCRATCH[0];
                    self.load_vector_into(operand, ty, scratch);
                    self.write_vector(ty, mem, scratch, false);
                }
            }
        }
    }

    /// Passes the addresses of the stored values after all other arguments, which are not read any
    /// more.
    fn address_crossing(&mut self, head: &Head) {
        let (areas, _) = areas(head);
        let mut places = abi::Arguments::default();
        for (at, argument) in (0..).zip(&head.arguments) {
            let place = places.next(argument.ty, argument.passing);
            let Some(&(_, area)) = areas.iter().find(|area| area.0 == at) else {
                continue;
            };
            let mem = Mem::at(Gpr::RBP, self.frame.crossing + area as i32);
            match place {
                ArgumentPlace::Gpr(register) => self.asm.lea(Width::W64, register, mem),
                ArgumentPlace::Stack(at) => {
                    self.asm.lea(Width::W64, Gpr::RAX, mem);
                    let to = Mem::at(Gpr::RSP, at as i32);
                    self.asm.store(Width::W64, to, Gpr::RAX);
                }
                ArgumentPlace::Xmm(_) | ArgumentPlace::Memory(_) => {}
            }
        }
    }
}

/// The areas of arguments whose values cross in memory, each at a multiple of 16, one after the
/// other; and the total size in bytes.
pub(super) fn areas(head: &Head) -> (SmallVec<[(u32, u32); 4]>, u32) {
    let mut areas = SmallVec::new();
    let mut end = 0;
    for of_one in head.stored.chunk_by(|a, b| a.argument == b.argument) {
        areas.push((of_one[0].argument, end));
        let size = of_one.iter().map(|it| it.offset + it.ty.bytes()).max();
        end += size.unwrap_or(0).next_multiple_of(16);
    }
    (areas, end)
}
