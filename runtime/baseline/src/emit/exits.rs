//! OSR exits of loops: code of its own, which continues in the frame of its function.
//!
//! ```text
//! exit:  sub rsp, room                      ; rax is the address to call
//!        mov [rsp + spare], rax
//!        mov dword [loops + count], -1      ; the next pass leaves, too
//!        inc dword [loops + left]
//!        ...values that cross in memory...
//!        ...arguments...; call [rsp + spare]
//!        ...epilogue...
//! ```
//! The room, from `rsp` up: arguments on the stack, the areas of values that cross in memory,
//! addresses that are computed here, and the spare word. The result of the continuation is returned
//! unchanged: it is already in the result registers.
//!
//! An exit is written from the same analysis and the same places as its function. So each value is
//! where the function keeps it at the head, if it does ([`crate::analysis`], `crossing`).

use smallvec::SmallVec;

use crate::abi::{self, ArgumentPlace};
use crate::analysis::{Contents, State};
use crate::asm::{Alu, Gpr, Label, Mem, Rm, Width};
use crate::coverage;
use crate::ir::{Argument, Head, Op, Operand, Symbol, Type};
use crate::moves::{Move, Source, Spot};

use super::frame::PAGE;
use super::moves::size_of;
use super::{Emitter, VECTOR_SCRATCH};

/// Limit of the room of an exit, bytes.
const MOST_ROOM: u32 = 1 << 16;

/// An exit that is being written.
struct Exit<'e, 'a> {
    emitter: &'e mut Emitter<'a>,
    head: &'a Head,
    /// The number of the instruction before which it reads values.
    number: u32,
    room: Room,
}

/// The layout of an exit's room, as offsets from `rsp`.
struct Room {
    /// Arguments that are addresses of copies of variables.
    copies: Copies,
    /// Of each argument that is the address of memory here: its index, and its area.
    areas: SmallVec<[(u32, u32); 4]>,
    /// The first address that is computed here.
    addresses: u32,
    spare: u32,
    size: u32,
}

/// An argument that is the address of a copy of a variable.
#[derive(Debug, Clone, Copy)]
struct Copied {
    argument: u32,
    variable: u32,
    /// Bytes.
    size: u64,
}

type Copies = SmallVec<[Copied; 4]>;

/// Writes the exit of a loop, if that is possible.
pub(super) fn write<'a>(emitter: &mut Emitter<'a>, head: &'a Head) -> Option<Label> {
    let function = emitter.function;
    let number = emitter.analysis.number_of_head(function, head.block)?;
    let refused = !head.has_exit || coverage::of_head(function, head).is_some();
    if refused || !can_read(emitter, head, number) || has_two_copies(emitter, head) {
        return None;
    }
    let folded = head.arguments.iter();
    let folded = folded.filter(|it| is_folded(emitter, it.operand)).count();
    let room = Room::of(head, folded as u32, copies(emitter, head));
    if room.size > MOST_ROOM {
        return None;
    }
    let loops = function.counting.loops?;
    let mut exit = Exit {
        emitter,
        head,
        number,
        room,
    };
    Some(exit.write(loops))
}

/// Whether the function keeps all values that cross at a head.
fn can_read(emitter: &Emitter<'_>, head: &Head, number: u32) -> bool {
    let (function, analysis) = (emitter.function, emitter.analysis);
    let can_pass = |at: u32, operand: Operand| {
        let is_spared = analysis.is_unread(operand) && !head.assumed.contains(&at);
        is_spared || analysis.reaches(function, operand, number)
    };
    let mut stored = head.stored.iter();
    let mut arguments = (0..).zip(&head.arguments);
    stored.all(|it| can_pass(it.argument, it.operand))
        && arguments.all(|(at, argument)| match head.loaded.contains(&at) {
            true => analysis.contents(argument.operand, number) != Contents::Lost,
            false => {
                can_pass(at, argument.operand) || variable_of(emitter, argument.operand).is_some()
            }
        })
}

/// Whether the contents of one variable would cross at two places, which would not change together.
fn has_two_copies(emitter: &Emitter<'_>, head: &Head) -> bool {
    let variable = |at: u32| {
        emitter
            .analysis
            .variable(head.arguments[at as usize].operand)
    };
    let copies = copies(emitter, head);
    (0..).zip(&head.loaded).any(|(place, &at)| {
        let is_same = |&other: &u32| variable(other) == variable(at);
        let is_copied = copies.iter().any(|it| Some(it.variable) == variable(at));
        variable(at).is_some() && (is_copied || head.loaded[..place].iter().any(is_same))
    })
}

/// The variable whose address an operand would be, with its type and its size in bytes.
fn variable_of(emitter: &Emitter<'_>, operand: Operand) -> Option<(u32, Type, u64)> {
    let variable = emitter.analysis.variable(operand)?;
    let life = &emitter.analysis.lives[variable as usize];
    match emitter.function.instructions[life.by as usize].op {
        Op::Alloca { size, .. } => Some((variable, life.ty, size)),
        _ => None,
    }
}

/// The arguments that are addresses of variables: a continuation gets the address of a copy. The
/// function uses such an address for loads and stores only, so no other pointer to it exists but
/// the arguments, which share one copy.
fn copies(emitter: &Emitter<'_>, head: &Head) -> Copies {
    let arguments = (0..).zip(&head.arguments);
    let copied = arguments.filter_map(|(argument, it)| {
        let is_address = !head.loaded.contains(&argument);
        let (variable, _, size) = variable_of(emitter, it.operand).filter(|_| is_address)?;
        Some(Copied {
            argument,
            variable,
            size,
        })
    });
    copied.collect()
}

/// Whether an operand is an address that its users compute from values.
fn is_folded(emitter: &Emitter<'_>, operand: Operand) -> bool {
    let Operand::Value(value) = operand else {
        return false;
    };
    let home = emitter.analysis.home(value);
    emitter.analysis.lives[home as usize].state == State::Folded
}

impl Exit<'_, '_> {
    fn write(&mut self, loops: Symbol) -> Label {
        let exit = self.emitter.asm.here();
        self.emitter.block = self.emitter.analysis.order.place[self.head.block.index()];
        self.make_room();
        let spare = Mem::at(Gpr::RSP, self.room.spare as i32);
        self.emitter.asm.store(Width::W64, spare, Gpr::RAX);
        let count = Operand::Address(loops, i64::from(self.head.count));
        let count = self.emitter.address(count, Gpr::RAX);
        self.emitter.asm.store_imm(Width::W32, count, -1);
        let left = i64::from(self.head.left);
        self.emitter.increment(loops, left, Gpr::RAX);
        self.store_crossing();
        self.pass();
        self.emitter.asm.call(Rm::Mem(spare));
        self.emitter.epilogue();
        exit
    }

    /// Moves the stack pointer; touches each page, as prologues do. Only `rax` must be kept, and
    /// registers with values.
    fn make_room(&mut self) {
        let bytes = self.room.size;
        let pages = if self.emitter.function.probes_stack {
            bytes / PAGE
        } else {
            0
        };
        for _ in 0..pages {
            self.emitter
                .asm
                .alu_imm(Alu::Sub, Width::W64, Gpr::RSP, PAGE as i32);
            self.emitter
                .asm
                .alu_imm(Alu::Or, Width::W32, Mem::at(Gpr::RSP, 0), 0);
        }
        let rest = bytes - pages * PAGE;
        if rest > 0 {
            self.emitter
                .asm
                .alu_imm(Alu::Sub, Width::W64, Gpr::RSP, rest as i32);
        }
    }

    /// Stores the values that cross in memory, and copies of variables.
    fn store_crossing(&mut self) {
        for stored in &self.head.stored {
            let area = self.room.area(stored.argument).unwrap_or_default();
            self.store_at(area + stored.offset, stored.operand, stored.ty);
        }
        for copied in self.room.copies.clone() {
            let operand = self.head.arguments[copied.argument as usize].operand;
            if self.emitter.analysis.contents(operand, self.number) == Contents::Kept
                && let Some((_, ty, _)) = variable_of(self.emitter, operand)
                && let Some(area) = self.room.area(copied.argument)
            {
                self.store_at(area, operand, ty);
            }
        }
    }

    /// Stores an operand at an offset from `rsp`.
    fn store_at(&mut self, offset: u32, operand: Operand, ty: Type) {
        let mem = Mem::at(Gpr::RSP, offset as i32);
        match (ty, operand) {
            (_, Operand::Undef) => {}
            (_, operand) if self.emitter.analysis.is_unread(operand) => {}
            (ty @ Type::Int(bits), operand) => self.emitter.store_int(ty, bits, mem, operand),
            (Type::F80, operand) => {
                self.emitter.x87_push(operand, Type::F80);
                self.emitter.asm.x87_store(Type::F80.bytes(), mem);
            }
            (ty, operand) => {
                let scratch = VECTOR_SCRATCH[0];
                self.emitter.load_vector_into(operand, ty, scratch);
                self.emitter.write_vector(ty, mem, scratch, false);
            }
        }
    }

    /// Passes the arguments.
    fn pass(&mut self) {
        let head = self.head;
        self.emitter.moves.clear();
        // Several moves read no computed value: addresses are computed first.
        let mut address = self.room.addresses;
        let mut computed: SmallVec<[u32; 4]> = SmallVec::new();
        for argument in &head.arguments {
            if !is_folded(self.emitter, argument.operand) {
                continue;
            }
            self.emitter
                .load_into(argument.operand, Type::PTR, Gpr::RAX);
            let to = Mem::at(Gpr::RSP, address as i32);
            self.emitter.asm.store(Width::W64, to, Gpr::RAX);
            computed.push(address);
            address += 8;
        }
        let mut computed = computed.into_iter();
        let mut places = abi::Arguments::default();
        for (at, argument) in (0..).zip(&head.arguments) {
            let place = places.next(argument.ty, argument.passing);
            let own = is_folded(self.emitter, argument.operand).then(|| computed.next());
            let to = match place {
                ArgumentPlace::Gpr(register) => Spot::Gpr(register),
                ArgumentPlace::Xmm(register) => Spot::Xmm(register),
                ArgumentPlace::Stack(at) => Spot::Outgoing(at as i32),
                ArgumentPlace::Memory(_) => continue,
            };
            if self.room.area(at).is_some() {
                continue;
            }
            if !head.loaded.contains(&at) && self.emitter.analysis.is_unread(argument.operand) {
                continue;
            }
            let from = match own.flatten() {
                Some(address) => Some(Spot::Outgoing(address as i32)),
                None if head.loaded.contains(&at) => {
                    match self
                        .emitter
                        .analysis
                        .contents(argument.operand, self.number)
                    {
                        Contents::Kept => self.memory_of(argument),
                        Contents::Unused | Contents::Lost => continue,
                    }
                }
                None => None,
            };
            match from {
                Some(from) => self.emitter.moves.push(Move {
                    to,
                    from: Source::Spot(from),
                    size: size_of(argument.ty),
                }),
                None => self.emitter.move_operand(to, argument.operand, argument.ty),
            }
        }
        self.emitter.do_moves(Gpr::RAX);
        self.address_crossing();
    }

    /// The memory of an alloca that is no variable.
    fn memory_of(&self, argument: &Argument) -> Option<Spot> {
        let Operand::Value(value) = argument.operand else {
            return None;
        };
        let home = self.emitter.analysis.home(value);
        let is_frame = self.emitter.analysis.lives[home as usize].state == State::Frame;
        is_frame.then(|| Spot::Frame(self.emitter.frame_offset(home)))
    }

    /// Passes the addresses of the stored values after all other arguments, which are not read any
    /// more.
    fn address_crossing(&mut self) {
        let mut places = abi::Arguments::default();
        for (at, argument) in (0..).zip(&self.head.arguments) {
            let place = places.next(argument.ty, argument.passing);
            let Some(area) = self.room.area(at) else {
                continue;
            };
            let mem = Mem::at(Gpr::RSP, area as i32);
            match place {
                ArgumentPlace::Gpr(register) => self.emitter.asm.lea(Width::W64, register, mem),
                ArgumentPlace::Stack(at) => {
                    self.emitter.asm.lea(Width::W64, Gpr::RAX, mem);
                    let to = Mem::at(Gpr::RSP, at as i32);
                    self.emitter.asm.store(Width::W64, to, Gpr::RAX);
                }
                ArgumentPlace::Xmm(_) | ArgumentPlace::Memory(_) => {}
            }
        }
    }
}

impl Room {
    /// The room of an exit that computes so many addresses, and copies variables.
    fn of(head: &Head, addresses: u32, copies: Copies) -> Room {
        let mut places = abi::Arguments::default();
        for argument in &head.arguments {
            places.next(argument.ty, argument.passing);
        }
        let mut end = places.taken().stack.next_multiple_of(16);
        let mut areas: SmallVec<[(u32, u32); 4]> = SmallVec::new();
        let mut add = |size: u64| {
            let area = end;
            // A room that is too large is refused by its size.
            let size = size.min(u64::from(MOST_ROOM)) as u32;
            end = (end + size).min(2 * MOST_ROOM).next_multiple_of(16);
            area
        };
        for of_one in head.stored.chunk_by(|a, b| a.argument == b.argument) {
            let size = of_one.iter().map(|it| it.offset + it.ty.bytes()).max();
            areas.push((of_one[0].argument, add(size.unwrap_or(0).into())));
        }
        for (at, copied) in copies.iter().enumerate() {
            let mut others = copies[..at].iter();
            let other = others.find(|it| it.variable == copied.variable);
            let known = other.and_then(|other| areas.iter().find(|it| it.0 == other.argument));
            let area = known.map_or_else(|| add(copied.size), |it| it.1);
            areas.push((copied.argument, area));
        }
        let spare = end + 8 * addresses;
        Room {
            copies,
            areas,
            addresses: end,
            spare,
            size: (spare + 8).next_multiple_of(16),
        }
    }

    /// The area of an argument whose values cross in memory.
    fn area(&self, argument: u32) -> Option<u32> {
        let found = self.areas.iter().find(|area| area.0 == argument);
        found.map(|area| area.1)
    }
}
