//! The frame: its layout, prologue and epilogue, and the places of parameters.
//!
//! ```text
//! rbp + 16 ..        arguments on the stack
//! rbp + 8            return address
//! rbp                the caller's rbp
//! rbp - 8 ..         saved registers, in the order of `SAVE_ORDER`
//!                    slots of values
//!                    registers of variable arguments
//!                    allocas
//! rsp ..             arguments of calls, `outgoing` bytes; rsp is a multiple of 16
//! ```
//! Memory of an [`Op::DynamicAlloca`] lies between allocas and arguments of calls.

use crate::abi::{self, ArgumentPlace, Taken};
use crate::analysis::{Analysis, State};
use crate::asm::{Alu, Gpr, Mem, Width};
use crate::code::Uncovered;
use crate::ir::{Block, Function, Op, Type, Value};
use crate::moves::Spot;

use super::Emitter;
use super::varargs::SAVE_AREA;

/// Saved registers in the order in which they are pushed.
pub(crate) const SAVE_ORDER: [Gpr; 5] = [Gpr::RBX, Gpr::R12, Gpr::R13, Gpr::R14, Gpr::R15];

/// Limit of the size of a frame, bytes.
const LARGEST: u64 = 1 << 30;

/// Bytes between touches of the stack.
pub(super) const PAGE: u32 = 4096;

/// Pages that are touched without a loop.
const FEW_PAGES: u32 = 4;

/// Layout of a frame.
#[derive(Debug, Clone, Default)]
pub(crate) struct Frame {
    /// Bytes below the saved `rbp`, a multiple of 16.
    pub(crate) size: u32,
    /// Bytes at its end for arguments of calls.
    pub(crate) outgoing: u32,
    /// Registers that are saved, by number.
    pub(crate) saved: u32,
    /// Whether the function moves the stack pointer.
    pub(crate) is_dynamic: bool,
    /// Offsets of allocas, by the index of their instruction, rising.
    allocas: Vec<(u32, i32)>,
    /// Places of parameters on entry.
    parameters: Vec<ArgumentPlace>,
    /// Registers and stack taken by parameters.
    pub(super) taken: Taken,
    /// Offset from `rbp` of 16 bytes for numbers on their way to the x87 stack.
    pub(super) room: Option<i32>,
    /// Offset from `rbp` of the save area of variable arguments.
    pub(super) save_area: Option<i32>,
}

impl Frame {
    /// Creates a frame with the places of parameters.
    pub(crate) fn of(function: &Function) -> Frame {
        let mut places = abi::Arguments::default();
        let parameters = &function.parameters;
        let parameters = parameters
            .iter()
            .map(|parameter| places.next(parameter.ty, parameter.passing))
            .collect();
        Frame {
            parameters,
            taken: places.taken(),
            ..Frame::default()
        }
    }

    /// Offset from `rbp` of a parameter that arrives on the stack; 0 for others.
    pub(crate) fn home(&self, value: usize) -> i32 {
        match self.parameters.get(value) {
            Some(ArgumentPlace::Stack(at)) => 16 + *at as i32,
            _ => 0,
        }
    }

    /// Offset from `rbp` of a parameter in memory.
    pub(super) fn parameter(&self, value: u32) -> i32 {
        match self.parameters.get(value as usize) {
            Some(ArgumentPlace::Memory(at) | ArgumentPlace::Stack(at)) => 16 + *at as i32,
            _ => 0,
        }
    }

    /// Offset from `rbp` of the alloca of an instruction.
    pub(super) fn alloca(&self, by: u32) -> i32 {
        match self.allocas.binary_search_by_key(&by, |&(id, _)| id) {
            Ok(at) => self.allocas[at].1,
            Err(_) => 0,
        }
    }

    /// Lays out the frame, below `below` bytes of saved registers and slots.
    ///
    /// # Errors
    /// [`Uncovered`] if the frame would be too large.
    pub(crate) fn lay_out(
        &mut self,
        function: &Function,
        analysis: &Analysis,
        saved: u32,
        below: u32,
    ) -> Result<(), Uncovered> {
        self.saved = saved;
        self.outgoing = analysis.outgoing.next_multiple_of(16);
        let mut size = u64::from(below);
        self.is_dynamic = analysis.has.moves_stack;
        if function.types.contains(&Type::F80) {
            size = (size + 16).next_multiple_of(16);
            self.room = Some(-(size as i64) as i32);
        }
        if analysis.has.starts_list {
            size = (size + u64::from(SAVE_AREA)).next_multiple_of(16);
            self.save_area = Some(-(size as i64) as i32);
        }
        if analysis.order.blocks.is_empty() {
            return Ok(());
        }
        for (id, instruction) in function.of_block(Block(0)) {
            let Op::Alloca { size: bytes, align } = instruction.op else {
                continue;
            };
            let state = analysis.lives[instruction.results.start as usize].state;
            if matches!(state, State::Variable(_) | State::Dead) {
                continue;
            }
            // An address with an alignment above 16 is rounded at its definition, in that much more
            // memory.
            let more = if align > 16 { u64::from(align) } else { 0 };
            size = (size.saturating_add(bytes).saturating_add(more))
                .next_multiple_of(u64::from(align.clamp(1, 16)));
            if size > LARGEST {
                return Err(Uncovered {
                    what: "a frame of more than a gigabyte",
                });
            }
            self.allocas.push((id.0, -(size as i64) as i32));
        }
        size += u64::from(self.outgoing);
        if size > LARGEST {
            return Err(Uncovered {
                what: "a frame of more than a gigabyte",
            });
        }
        self.size = (size as u32).next_multiple_of(16);
        Ok(())
    }

    /// Bytes of saved registers.
    fn pushed(&self) -> u32 {
        8 * self.saved.count_ones()
    }
}

impl Emitter<'_> {
    /// Emits the prologue, then moves parameters to their places.
    pub(super) fn prologue(&mut self) {
        self.asm.push(Gpr::RBP);
        self.prologue_at[0] = self.asm.here();
        self.asm.mov(Width::W64, Gpr::RBP, Gpr::RSP);
        self.prologue_at[1] = self.asm.here();
        for register in SAVE_ORDER {
            if self.frame.saved >> register.number() & 1 != 0 {
                self.asm.push(register);
            }
        }
        self.prologue_at[2] = self.asm.here();
        let rest = self.frame.size - self.frame.pushed();
        if self.function.probes_stack && rest > PAGE {
            self.touch_pages(rest);
        } else if rest > 0 {
            self.asm
                .alu_imm(Alu::Sub, Width::W64, Gpr::RSP, rest as i32);
        }
        self.count_entry();
        self.save_arguments();
        self.parameters();
    }

    /// Allocates stack and touches each page of it, in order.
    fn touch_pages(&mut self, bytes: u32) {
        let pages = bytes / PAGE;
        let sub = |asm: &mut crate::asm::Asm, bytes: u32| {
            asm.alu_imm(Alu::Sub, Width::W64, Gpr::RSP, bytes as i32);
        };
        let touch = |asm: &mut crate::asm::Asm| {
            asm.alu_imm(Alu::Or, Width::W32, Mem::at(Gpr::RSP, 0), 0);
        };
        if pages <= FEW_PAGES {
            for _ in 0..pages {
                sub(self.asm, PAGE);
                touch(self.asm);
            }
        } else {
            // No argument is in r11.
            self.asm.lea(
                Width::W64,
                Gpr::R11,
                Mem::at(Gpr::RSP, -((pages * PAGE) as i32)),
            );
            let again = self.asm.here();
            sub(self.asm, PAGE);
            touch(self.asm);
            self.asm.alu(Alu::Cmp, Width::W64, Gpr::RSP, Gpr::R11);
            self.asm.jump_if(crate::asm::Condition::NotEqual, again);
        }
        if !bytes.is_multiple_of(PAGE) {
            sub(self.asm, bytes % PAGE);
        }
    }

    fn parameters(&mut self) {
        self.moves.clear();
        for (at, parameter) in self.function.parameters.iter().enumerate() {
            if self.analysis.lives[at].state == State::Dead {
                continue;
            }
            let from = match self.frame.parameters[at] {
                ArgumentPlace::Gpr(register) => Spot::Gpr(register),
                ArgumentPlace::Xmm(register) => Spot::Xmm(register),
                ArgumentPlace::Stack(at) => Spot::Frame(16 + at as i32),
                ArgumentPlace::Memory(_) => continue,
            };
            let place = self.place(Value(at as u32));
            self.move_spot(place, from, parameter.ty);
        }
        // Arguments may be in two of the scratch registers.
        self.do_moves(Gpr::RAX);
    }

    /// Releases the frame and returns.
    pub(super) fn epilogue(&mut self) {
        self.take_down();
        let restored = self.asm.here();
        self.asm.ret();
        let ended = self.asm.here();
        self.epilogues.push((restored, ended));
    }

    /// Releases the frame; the return address is then on top of the stack.
    pub(super) fn take_down(&mut self) {
        let frame = &self.frame;
        let rest = frame.size - frame.pushed();
        if frame.saved == 0 {
            if frame.size == 0 && !frame.is_dynamic {
                self.asm.pop(Gpr::RBP);
            } else {
                self.asm.leave();
            }
            return;
        }
        if frame.is_dynamic {
            let pushed = -(frame.pushed() as i32);
            self.asm
                .lea(Width::W64, Gpr::RSP, Mem::at(Gpr::RBP, pushed));
        } else if rest > 0 {
            self.asm
                .alu_imm(Alu::Add, Width::W64, Gpr::RSP, rest as i32);
        }
        for register in SAVE_ORDER.into_iter().rev() {
            if self.frame.saved >> register.number() & 1 != 0 {
                self.asm.pop(register);
            }
        }
        self.asm.pop(Gpr::RBP);
    }
}
