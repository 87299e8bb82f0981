//! Counters of a version at tier 1, and the OSR exits of its loops.
//!
//! | where | code |
//! |---|---|
//! | entry | `inc dword [counters]` |
//! | latch of a loop without a head | `inc dword [counters + 4]` |
//! | head of a loop | `inc dword [loops + count]; js out` `back:` |
//! | entry of a function with tight loops | `mov r11d, [counters]; and r11d, 63; mov [passes], r11d` |
//! | head of a tight loop | `dec dword [passes]; js out` `back:` |
//!
//! A loop is tight if no other loop and no call is in it. Its passes are counted in the frame, and in the
//! words of all threads only once in 64 passes. They begin with another number at each entry, so that
//! loops of fewer passes are counted correctly, too, over 64 entries. So threads in one loop do not wait
//! for each other's cache line at every pass. Entries are still counted in words of all threads: two
//! threads that call one function at tier 1 in a loop wait at every call.
//!
//! Behind the function, for each head:
//! ```text
//! out:   mov dword [passes], 63             ; the first two for tight loops only
//!        add dword [loops + count], 64
//!        mov rax, [loops + slot]            ; read once: another thread writes it
//!        test rax, rax; jne leave
//!        and dword [loops + count], 0x7fffffff
//!        jmp back
//! leave: mov [spare], rax
//!        inc dword [loops + left]
//!        ...values that cross in memory...
//!        ...arguments...; call [spare]
//!        ...epilogue...
//! ```
//! The result of the continuation is returned unchanged: it is already in the result registers.

use smallvec::SmallVec;

use crate::abi::{self, ArgumentPlace};
use crate::analysis::effects::calls;
use crate::analysis::{Analysis, head_of};
use crate::asm::{Alu, Condition, Gpr, Label, Mem, Rm, Unary, Width};
use crate::ir::{Block, Function, Head, Operand, Symbol, Type};

use super::{Emitter, VECTOR_SCRATCH};

/// Passes of tight loops that are counted at once; a power of two.
const AT_ONCE: i32 = 64;

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
        if self.frame.tight.is_empty() {
            return;
        }
        let passes = Mem::at(Gpr::RBP, self.frame.passes);
        match self.function.counting.counters {
            Some(counters) => {
                let entries = self.address(Operand::Address(counters, 0), Gpr::R11);
                self.asm.load(Width::W32, Gpr::R11, entries);
                self.asm
                    .alu_imm(Alu::And, Width::W32, Gpr::R11, AT_ONCE - 1);
                self.asm.store(Width::W32, passes, Gpr::R11);
            }
            None => self.asm.store_imm(Width::W32, passes, AT_ONCE / 2),
        }
    }

    /// Counts at the beginning of a block, behind its phis.
    pub(super) fn count(&mut self, block: Block) {
        let counting = &self.function.counting;
        if let Some(head) = head_of(self.function, block)
            && let Some(loops) = counting.loops
        {
            if self.is_tight(block) {
                let passes = Mem::at(Gpr::RBP, self.frame.passes);
                self.asm.unary(Unary::Dec, Width::W32, passes);
            } else {
                self.increment(loops, i64::from(head.count), Gpr::RAX);
            }
            let out = self.asm.new_label();
            self.asm.jump_if(Condition::Sign, out);
            let back = self.asm.here();
            self.exits.push(Exit { block, out, back });
        }
        if let Some(counters) = counting.counters
            && counting.latches.binary_search(&block).is_ok()
        {
            self.increment(counters, 4, Gpr::RAX);
        }
    }

    fn is_tight(&self, head: Block) -> bool {
        self.frame.tight.binary_search(&head).is_ok()
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
            if self.is_tight(exit.block) {
                let passes = Mem::at(Gpr::RBP, self.frame.passes);
                self.asm.store_imm(Width::W32, passes, AT_ONCE - 1);
                let count = self.address(word(head.count), Gpr::RAX);
                self.asm.alu_imm(Alu::Add, Width::W32, count, AT_ONCE);
            }
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

/// The heads of tight loops, by rising block.
pub(super) fn tight_heads(function: &Function, analysis: &Analysis) -> SmallVec<[Block; 2]> {
    let order = &analysis.order;
    if function.counting.each_pass {
        return SmallVec::new();
    }
    let is_tight = |head: &&Head| {
        let place = order.place[head.block.index()];
        let Some(&around) = order.loop_of.get(place as usize) else {
            return false;
        };
        let Some(of_head) = order
            .loops
            .get(around as usize)
            .filter(|it| it.head == place)
        else {
            return false;
        };
        // Loops within come behind.
        let next = order.loops.get(around as usize + 1);
        let mut blocks = order.blocks[of_head.head as usize..=of_head.last as usize].iter();
        next.is_none_or(|next| next.parent != around)
            && blocks.all(|&block| function.of_block(block).all(|(_, it)| !calls(&it.op)))
    };
    let heads = function.counting.heads.iter();
    heads.filter(is_tight).map(|head| head.block).collect()
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
