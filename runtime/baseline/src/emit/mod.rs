//! Machine code from a function, block by block, in one pass.
//!
//! Invariants:
//! - Each value stays in its place from its first write to its last read, and no other write goes
//!   there meanwhile. Temporaries of an instruction are in scratch registers: `rax` for results,
//!   `rcx` and `rdx` for operands, and [`VECTOR_SCRATCH`]. They hold no value between instructions.
//! - An instruction reads all operands before it writes its result's place, which may be an
//!   operand's place too; or it computes the result in a scratch register ([`Emitter::target`]
//!   chooses between the two).
//! - Folded values have no place: their users compute them ([`Emitter::address`],
//!   [`Emitter::source`], [`Emitter::test`]).
//!
//! | file | emits |
//! |---|---|
//! | `operands` | operands as registers, memory, immediates; results to their places |
//! | `vectors` | like `operands`, for vector registers |
//! | `addresses` | operands as addresses |
//! | `moves` | several moves at once |
//! | `frame` | the frame, prologue, parameters, epilogue |
//! | `ints`, `division`, `compare`, `casts`, `select` | integers |
//! | `memory`, `copies` | loads and stores; `memcpy`, `memmove`, `memset` |
//! | `control`, `switch`, `threads` | the ends of blocks |
//! | `calls`, `tail` | calls; tail calls |
//! | `counting` | counters, and the ways to OSR exits of loops |
//! | `exits` | OSR exits of loops |
//! | `bits`, `overflow`, `wide` | bits; limits of integers; integers of 128 bits |
//! | `floats`, `float_casts` | floating point |
//! | `goto` | jumps to addresses of blocks |
//! | `exceptions` | invokes and landing pads |
//! | `varargs` | variable arguments |
//! | `x87` | `x86_fp80` |
//! | `atomics` | atomic accesses |
//! | `machine` | the stack pointer, addresses of frames, thread-local variables, hints |
//!
//! # A new family
//! 1. A file here with an `impl Emitter<'_>` and one method for each [`Op`] of the family, which
//!    takes the op's fields and the number of its first result.
//! 2. A line for it in [`Emitter::instruction`].
//! 3. Remove the lines in `coverage.rs` that refuse the op. Call library functions with
//!    [`Emitter::call_library`], and list such an op in `analysis/effects.rs` `calls`.
//! 4. If it can read an operand from memory, a line in `analysis/fold.rs` `loads`: then
//!    [`Emitter::rm`] or [`Emitter::vector_rm`] of that operand may be any memory.
//!
//! A method of a binary operation on integers looks like this:
//! ```text
//! let target = self.target(result, Gpr::RAX);        // the result's register, or the scratch one
//! let b = self.rm(b, ty, Gpr::RCX);                  // rcx and rdx may be part of it
//! if b.uses(target) { target = Gpr::RAX }            // b is still to be read
//! self.load_into(a, ty, target);
//! self.asm.alu(Alu::Add, width, target, b);
//! self.put(result, target);                          // to its place, if it is not there
//! ```

mod addresses;
mod atomics;
mod bits;
mod calls;
mod casts;
mod compare;
mod control;
mod copies;
mod counting;
mod division;
mod exceptions;
mod exits;
mod float_casts;
mod floats;
mod frame;
mod goto;
mod ints;
mod machine;
mod memory;
mod moves;
mod operands;
mod overflow;
mod select;
mod switch;
mod tail;
mod threads;
mod varargs;
mod vectors;
mod wide;
mod x87;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::analysis::{Analysis, Order, State};
use crate::asm::{Asm, Gpr, Label, Xmm};
use crate::handlers::Exceptions;
use crate::ir::{Block, Cast, Function, Instruction, IntOp, NO_LINE, Op, Ordering, Symbol, Tail};
use crate::moves::Mover;
use crate::places::Place;
use crate::{Code, Options, unwind};

pub(crate) use frame::Frame;
pub(crate) use goto::{has_phis, one_goto};
use moves::Movement;

/// Vector registers that single instructions may clobber.
pub(crate) const VECTOR_SCRATCH: [Xmm; 2] = [Xmm::new(14), Xmm::new(15)];

/// Buffers that are reused for the next function.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    asm: Asm,
    mover: Mover,
    moves: Vec<Movement>,
    labels: Vec<Label>,
    targets: Vec<u32>,
    lines: Vec<(u32, Label)>,
    cases: Vec<switch::Case>,
    /// Of the current switch: by block, the label of the edge to it.
    case_labels: Vec<Option<Label>>,
    exceptions: Exceptions,
}

/// Emits one function.
pub(crate) struct Emitter<'a> {
    function: &'a Function,
    analysis: &'a Analysis,
    /// Places by number of value or variable.
    places: &'a [Place],
    options: &'a Options,
    asm: &'a mut Asm,
    mover: &'a mut Mover,
    /// Moves collected so far.
    moves: &'a mut Vec<Movement>,
    /// The beginning of each block, by place.
    labels: &'a mut Vec<Label>,
    /// The place of the block that each block forwards to (`threads`).
    targets: &'a mut Vec<u32>,
    lines: &'a mut Vec<(u32, Label)>,
    cases: &'a mut Vec<switch::Case>,
    case_labels: &'a mut Vec<Option<Label>>,
    frame: Frame,
    /// The place of the block that is being emitted.
    block: u32,
    /// Called library functions, numbered behind the function's symbols.
    library: Vec<&'static str>,
    /// The symbols of called library functions.
    library_symbols: FxHashMap<&'static str, Symbol>,
    /// Ends of the prologue's steps: `rbp` pushed, frame made, registers saved. For each epilogue,
    /// where `rbp` is restored and where it ends.
    prologue_at: [Label; 3],
    epilogues: Vec<(Label, Label)>,
    exceptions: &'a mut Exceptions,
    /// Edges to landing pads that need moves, which are still to be written.
    pads: Vec<exceptions::Pad>,
    /// Blocks that are jumped to by address and need moves, with the labels of their stubs.
    entries: Vec<(Block, Label)>,
    /// Loops whose way to the OSR exit is still to be written.
    ways: Vec<counting::Way>,
}

impl<'a> Emitter<'a> {
    /// Creates an emitter for a function.
    pub(crate) fn new(
        function: &'a Function,
        analysis: &'a Analysis,
        places: &'a [Place],
        frame: Frame,
        options: &'a Options,
        buffers: &'a mut Buffers,
    ) -> Emitter<'a> {
        buffers.asm.clear();
        buffers.labels.clear();
        buffers.lines.clear();
        buffers.exceptions.clear();
        let first = buffers.asm.new_label();
        Emitter {
            function,
            analysis,
            places,
            options,
            asm: &mut buffers.asm,
            mover: &mut buffers.mover,
            moves: &mut buffers.moves,
            labels: &mut buffers.labels,
            targets: &mut buffers.targets,
            lines: &mut buffers.lines,
            cases: &mut buffers.cases,
            case_labels: &mut buffers.case_labels,
            frame,
            block: 0,
            library: Vec::new(),
            library_symbols: FxHashMap::default(),
            prologue_at: [first; 3],
            epilogues: Vec::new(),
            exceptions: &mut buffers.exceptions,
            pads: Vec::new(),
            entries: Vec::new(),
            ways: Vec::new(),
        }
    }

    /// Emits the whole function.
    pub(crate) fn emit(mut self) -> Code {
        let function = self.function;
        for _ in &self.order().blocks {
            let label = self.asm.new_label();
            self.labels.push(label);
        }
        threads::find(function, self.order(), self.targets);
        self.prologue();
        for (place, &block) in self.order().blocks.iter().enumerate() {
            self.block = place as u32;
            self.asm.bind(self.labels[place]);
            if self.targets[place] != place as u32 {
                continue;
            }
            let mut is_head = true;
            for (_, instruction) in function.of_block(block) {
                if matches!(instruction.op, Op::Phi(..)) {
                    continue;
                }
                // The registers that the unwinder has set are read first.
                let is_pad = matches!(instruction.op, Op::LandingPad { .. });
                if is_pad {
                    self.instruction(block, instruction);
                }
                if std::mem::take(&mut is_head) {
                    self.count(block);
                }
                self.line(instruction.line);
                if !is_pad {
                    self.instruction(block, instruction);
                }
                if ends(&instruction.op) {
                    break;
                }
            }
        }
        self.enter_pads();
        self.enter_blocks();
        self.ways_out();
        let blocks = self.order().blocks.iter().zip(&*self.labels);
        let blocks: Vec<_> = blocks.map(|(&block, &label)| (block, label)).collect();
        self.finish(&blocks)
    }

    /// Emits the exits of all loops for which that is possible; they are the blocks of the code.
    pub(crate) fn emit_exits(mut self) -> Code {
        let function = self.function;
        let start = self.asm.here();
        self.prologue_at = [start; 3];
        // An exit's room lies below the frame.
        self.frame.is_dynamic = true;
        let mut exits = Vec::new();
        for head in &function.counting.heads {
            if let Some(exit) = exits::write(&mut self, head) {
                exits.push((head.block, exit));
            }
        }
        self.finish(&exits)
    }

    fn order(&self) -> &'a Order {
        &self.analysis.order
    }

    fn line(&mut self, line: u32) {
        if line != NO_LINE && self.lines.last().is_none_or(|&(last, _)| last != line) {
            let label = self.asm.here();
            self.lines.push((line, label));
        }
    }

    /// Emits an instruction, unless its results are folded or unused.
    fn instruction(&mut self, block: Block, instruction: &Instruction) {
        let result = instruction.results.start;
        if !instruction.results.is_empty() && !self.is_made_here(result) {
            return;
        }
        match &instruction.op {
            Op::IndirectJump(address) => self.goto(*address),
            Op::Invoke(call) => self.invoke(block, call, instruction.results.clone()),
            Op::LandingPad { .. } => self.landing_pad(result),
            Op::Resume(exception) => self.resume(*exception),
            Op::TypeId(ty) => self.type_id(*ty, result),
            Op::Call(call) if call.tail == Tail::Must => self.tail_call(call),
            Op::Call(call) => self.call(call, instruction.results.clone()),
            Op::Return(operands) => self.returns(operands),
            Op::Jump => self.jump(block),
            Op::Branch(bit) => self.branch(block, *bit),
            Op::Switch(ty, operand, values) => self.switch(block, *ty, *operand, values),
            Op::Dispatch(operand, values) => self.dispatch(block, *operand, values),
            Op::Trap | Op::Unreachable => self.asm.ud2(),
            op => self.number(op, result),
        }
    }

    /// Emits an operation on numbers, or one on memory or the machine.
    fn number(&mut self, op: &Op, result: u32) {
        match op {
            Op::Int(op, ty, operands) => match op {
                IntOp::SMin | IntOp::SMax | IntOp::UMin | IntOp::UMax => {
                    self.min_max(*op, *ty, *operands, result);
                }
                IntOp::SAddSat | IntOp::SSubSat | IntOp::UAddSat | IntOp::USubSat => {
                    self.saturate(*op, *ty, *operands, result);
                }
                op => self.int(*op, *ty, *operands, result),
            },
            Op::Overflow(op, ty, operands) => self.overflow(*op, *ty, *operands, result),
            Op::Bits(op, ty, operand) => self.bit_op(*op, *ty, *operand, result),
            Op::Funnel(left, ty, operands) => self.funnel(*left, *ty, *operands, result),
            Op::Wide(op, operands) => self.wide(*op, operands, result),
            Op::WideCompare(predicate, operands) => {
                self.wide_compare(*predicate, *operands, result);
            }
            Op::Compare(predicate, ty, operands) => {
                self.compare(*predicate, *ty, *operands, result);
            }
            Op::Cast(cast @ (Cast::Trunc | Cast::ZExt | Cast::SExt), from, to, operand) => {
                self.cast_int(*cast, *from, *to, *operand, result);
            }
            Op::Cast(cast, from, to, operand) => {
                self.cast_float(*cast, *from, *to, *operand, result);
            }
            Op::Float(op, ty, operands) => self.float(*op, *ty, *operands, result),
            Op::FloatUnary(op, ty, operand) => self.float_unary(*op, *ty, *operand, result),
            Op::FloatCompare(predicate, ty, operands) => {
                self.float_compare(*predicate, *ty, *operands, result);
            }
            Op::Fma(ty, operands) => self.fma(*ty, *operands, result),
            Op::Select(ty, operands) => self.select(*ty, *operands, result),
            op => self.memory_operation(op, result),
        }
    }

    /// Emits an operation on memory or the frame, or one on the machine.
    fn memory_operation(&mut self, op: &Op, result: u32) {
        match op {
            Op::Load { ty, address, .. } => self.load(*ty, *address, result),
            Op::Store {
                ty,
                address,
                value,
                ordering: Ordering::Strong,
                ..
            } => self.store_strong(*ty, *address, *value),
            Op::Store {
                ty, address, value, ..
            } => self.store(*ty, *address, *value),
            Op::Rmw {
                op,
                ty,
                address,
                value,
            } => self.rmw(*op, *ty, [*address, *value], result),
            Op::CompareExchange {
                ty,
                address,
                expected,
                value,
            } => self.compare_exchange(*ty, *address, [*expected, *value], result),
            Op::Fence(ordering) => self.fence(*ordering),
            Op::DynamicAlloca { count, size, align } => {
                self.dynamic_alloca((*count, *size, *align), result);
            }
            Op::StackSave => self.stack_save(result),
            Op::StackRestore(operand) => self.stack_restore(*operand),
            Op::Offset { base, terms, bytes } => self.offset(*base, terms, *bytes, result),
            Op::Alloca { align, .. } => self.alloca(*align, result),
            Op::Memory(op, operands, _) => self.memory(*op, *operands),
            op => self.machine_operation(op, result),
        }
    }

    /// Emits an operation on lists of arguments, threads, or the state of the processor.
    fn machine_operation(&mut self, op: &Op, result: u32) {
        match op {
            Op::VaStart(list) => self.va_start(*list),
            Op::VaCopy(lists) => self.va_copy(*lists),
            Op::VaArg(ty, list) => self.va_arg(*ty, *list, result),
            Op::ThreadLocal(symbol) => self.thread_local(*symbol, result),
            Op::FrameAddress(level) => self.frame_address(*level, result),
            Op::ReturnAddress(level) => self.return_address(*level, result),
            Op::Prefetch(address) => self.prefetch(*address),
            Op::CycleCounter => self.cycle_counter(result),
            Op::ThreadPointer => self.thread_pointer(result),
            Op::Pause => self.asm.pause(),
            Op::ControlWord => self.control_word(result),
            Op::StoreControl(address) => self.store_control(*address),
            Op::LoadControl(address) => self.load_control(*address),
            // Refused by `coverage.rs`.
            _ => {}
        }
    }

    /// Whether an instruction is emitted at its own position, by its first result.
    fn is_made_here(&self, result: u32) -> bool {
        match self.analysis.lives[result as usize].state {
            State::Placed => true,
            // A cast that changes nothing emits no code.
            State::Made(_) => true,
            State::Dead
            | State::Same(_)
            | State::Read(_)
            | State::Folded
            | State::Frame
            | State::Variable(_) => false,
        }
    }

    /// The symbol of a function of the C library or the compiler's runtime library.
    fn library(&mut self, name: &'static str) -> Symbol {
        let symbols = &self.function.symbols;
        let library = &mut self.library;
        *self.library_symbols.entry(name).or_insert_with(|| {
            let known = symbols.iter().position(|symbol| *symbol.name == *name);
            let at = known.unwrap_or_else(|| {
                library.push(name);
                symbols.len() + library.len() - 1
            });
            Symbol(at as u32)
        })
    }

    /// The code, with the places of these blocks.
    fn finish(self, blocks: &[(Block, Label)]) -> Code {
        let assembled = self.asm.finish();
        let offset = |label: Label| self.asm.offset_of(label);
        let [pushed, framed, saved_at] = self.prologue_at.map(offset);
        let saved: SmallVec<[Gpr; 5]> = frame::SAVE_ORDER
            .into_iter()
            .filter(|register| self.frame.saved >> register.number() & 1 != 0)
            .collect();
        let epilogues = self.epilogues.iter();
        let epilogues: SmallVec<[_; 4]> = epilogues
            .map(|&(restored, ended)| (offset(restored), offset(ended)))
            .collect();
        // Without a landing pad, exceptions pass through the function, as they do without a table.
        let has_pads = !self.exceptions.is_empty();
        let personality = self.function.personality.filter(|_| has_pads);
        let (unwind, unwind_fixups) = unwind::table(&unwind::FrameRows {
            size: assembled.size,
            pushed,
            framed,
            saved_at,
            saved: &saved,
            epilogues: &epilogues,
            personality,
        });
        let handlers = personality.map(|_| self.exceptions.write(assembled.size, offset));
        let lines = self.lines.iter();
        Code {
            bytes: assembled.bytes,
            align: 16,
            size: assembled.size,
            fixups: assembled.fixups,
            unwind,
            unwind_fixups,
            handlers,
            frame: self.frame.size,
            lines: lines.map(|&(line, label)| (offset(label), line)).collect(),
            library: self.library,
            blocks: blocks
                .iter()
                .map(|&(block, label)| (block, offset(label)))
                .collect(),
        }
    }
}

/// Whether an instruction is the last that is emitted of its block.
fn ends(op: &Op) -> bool {
    match op {
        Op::Trap => true,
        Op::Call(call) => call.tail == Tail::Must,
        _ => false,
    }
}
