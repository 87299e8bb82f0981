//! Checks emitted code without running it: decodes every instruction, and tracks registers and the
//! stack along all paths through the code.
//!
//! It checks that each instruction decodes, and that jumps lead only to the start of one; that no
//! undefined register or flag is read; that callee-saved registers and the stack are restored at
//! returns and jumps out; that no access is below the stack pointer; that the stack is aligned at
//! calls; that unwind rows are right before every instruction (`rows`), and landing pads too
//! (`handlers`); that fix-ups are fields of instructions.

mod fixups;
mod handlers;
mod rows;
mod state;

use std::collections::{BTreeSet, HashMap};

use iced_x86::{
    Code as Opcode, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory,
    Mnemonic, OpKind, Register,
};
use uruk_baseline::Code;
use uruk_baseline::ir::{Block, Function, Op, Operand, Value};

use self::handlers::Site;
use self::rows::Rows;
use self::state::State;

/// Checks code.
///
/// # Errors
/// The error, with the offset of its instruction.
pub fn check(function: &Function, code: &Code, exits: &Code) -> Result<(), String> {
    let strict = !may_be_undefined(function);
    let at_exits = check_one(function, code, |_| {
        vec![(0, State::at_entry(function, strict))]
    })?;
    let block = |exit: u32| {
        function
            .counting
            .heads
            .iter()
            .find(|head| head.exit == exit)
    };
    let place = |exit: u32| {
        let block = block(exit)?.block;
        exits.blocks.iter().find(|it| it.0 == block).map(|it| it.1)
    };
    let mut starts = Vec::new();
    for (exit, state) in at_exits {
        let place = place(exit).ok_or(format!("a jump to the exit at {exit}, which is none"))?;
        starts.push((u64::from(place), state));
    }
    if starts.is_empty() {
        return Ok(());
    }
    let left = check_one(function, exits, |_| starts).map_err(|what| format!("exits: {what}"))?;
    match left.is_empty() {
        true => Ok(()),
        false => Err("an exit jumps to an exit".to_string()),
    }
}

/// Checks one piece of code from the offsets where control enters it; returns the jumps to exits,
/// with the states there.
fn check_one(
    function: &Function,
    code: &Code,
    starts: impl FnOnce(&Code) -> Vec<(u64, State)>,
) -> Result<Vec<(u32, State)>, String> {
    let size = code.size as usize;
    let bytes = code
        .bytes
        .get(..size)
        .ok_or("a function that is longer than its code")?;
    let mut decoder = Decoder::with_ip(64, bytes, 0, DecoderOptions::NONE);
    let all: Vec<Instruction> = decoder.iter().collect();
    let mut places = HashMap::new();
    for (index, instruction) in all.iter().enumerate() {
        if instruction.is_invalid() {
            return Err(format!("{:#x}: no instruction", instruction.ip()));
        }
        places.insert(instruction.ip(), index);
    }
    fixups::check(code, &all, bytes)?;
    let walk = Walk {
        function,
        code,
        all,
        places,
        rows: Rows::read(code)?,
        sites: handlers::sites(code)?,
    };
    walk.check(starts(code))
}

/// Whether the function itself may read undefined data: undef, or memory of the frame that is not
/// initialized at its allocation.
fn may_be_undefined(function: &Function) -> bool {
    let mut undefined = false;
    for instruction in &function.instructions {
        instruction
            .op
            .operands(|operand| undefined |= operand == Operand::Undef);
        if matches!(instruction.op, Op::Alloca { .. }) {
            let made = Operand::Value(Value(instruction.results.start));
            let filled = function.of_block(Block(0)).any(|(_, one)| match one.op {
                Op::Store { address, .. } => address == made,
                Op::Memory(_, [to, ..], _) => to == made,
                _ => false,
            });
            undefined |= !filled;
        }
    }
    undefined
}

struct Walk<'a> {
    function: &'a Function,
    code: &'a Code,
    all: Vec<Instruction>,
    places: HashMap<u64, usize>,
    rows: Rows,
    sites: Vec<Site>,
}

/// The control flow after an instruction.
enum After {
    /// To these instructions.
    Goes(Vec<usize>),
    /// Out of the function.
    Leaves,
    /// To the exit of a loop whose address is at this offset.
    Exits(u32),
    /// It ends.
    Ends,
}

impl Walk<'_> {
    /// Follows all paths; returns the jumps to exits of loops.
    fn check(&self, starts: Vec<(u64, State)>) -> Result<Vec<(u32, State)>, String> {
        let mut states: Vec<Option<State>> = vec![None; self.all.len()];
        // In order, so that most paths are known when their join is checked.
        let mut open = BTreeSet::new();
        let mut exits: HashMap<u32, State> = HashMap::new();
        for (at, state) in starts {
            let place = self.place(at)?;
            states[place] = Some(state);
            open.insert(place);
        }
        let mut factory = InstructionInfoFactory::new();
        while let Some(index) = open.pop_first() {
            let instruction = &self.all[index];
            let Some(mut state) = states[index].clone() else {
                continue;
            };
            self.rows
                .check(instruction.ip(), &state)
                .map_err(|what| self.at(index, what))?;
            state
                .step(instruction, &mut factory)
                .map_err(|what| self.at(index, what))?;
            let after = self
                .after(index, &state)
                .map_err(|what| self.at(index, what))?;
            let next = match after {
                After::Goes(next) => next,
                After::Ends => continue,
                After::Exits(exit) => {
                    exits.insert(exit, state);
                    continue;
                }
                After::Leaves => {
                    state.check_leaving().map_err(|what| self.at(index, what))?;
                    continue;
                }
            };
            for to in next {
                let merged = match &states[to] {
                    None => state.clone(),
                    Some(old) => old.meet(&state).map_err(|what| self.at(to, what))?,
                };
                if states[to].as_ref() != Some(&merged) {
                    states[to] = Some(merged);
                    open.insert(to);
                }
            }
        }
        Ok(exits.into_iter().collect())
    }

    /// The word of `@loops` that a jump reads: the address of an exit.
    fn exit_of(&self, index: usize) -> Option<u32> {
        let jump = &self.all[index];
        if jump.op0_kind() != OpKind::Memory {
            return None;
        }
        if !jump.is_ip_rel_memory_operand() {
            return Some(jump.memory_displacement32());
        }
        let field = jump.next_ip() - 4;
        let mut fixups = self.code.fixups.iter();
        let fixup = fixups.find(|fixup| u64::from(fixup.at) == field)?;
        let is_loops = Some(fixup.symbol) == self.function.counting.loops;
        is_loops.then_some(fixup.addend as u32)
    }

    fn at(&self, index: usize, what: impl std::fmt::Display) -> String {
        let instruction = &self.all[index];
        format!("{:#x} `{instruction}`: {what}", instruction.ip())
    }

    fn place(&self, ip: u64) -> Result<usize, String> {
        let place = self.places.get(&ip).copied();
        place.ok_or(format!(
            "control comes to {ip:#x}, where no instruction begins"
        ))
    }

    fn after(&self, index: usize, state: &State) -> Result<After, String> {
        let instruction = &self.all[index];
        let next = || self.place(instruction.next_ip());
        Ok(match instruction.flow_control() {
            FlowControl::Return => After::Leaves,
            FlowControl::Exception | FlowControl::Interrupt => After::Ends,
            FlowControl::UnconditionalBranch => {
                After::Goes(vec![self.place(instruction.near_branch_target())?])
            }
            FlowControl::ConditionalBranch => {
                After::Goes(vec![self.place(instruction.near_branch_target())?, next()?])
            }
            FlowControl::IndirectBranch if state.is_at_return_address() => After::Leaves,
            FlowControl::IndirectBranch => match self.exit_of(index) {
                Some(exit) => After::Exits(exit),
                None => After::Goes(self.targets(index)?),
            },
            FlowControl::Call | FlowControl::IndirectCall => {
                let mut to: Vec<usize> = self.landings(instruction)?;
                // A call that does not return may be the last instruction.
                to.extend(next().ok());
                After::Goes(to)
            }
            _ => After::Goes(vec![next()?]),
        })
    }

    /// The targets of a jump through a register: those of the table whose address was just loaded,
    /// or, without one, all blocks whose address is taken.
    fn targets(&self, index: usize) -> Result<Vec<usize>, String> {
        let size = self.code.size as usize;
        let near = self.all[index.saturating_sub(6)..index].iter();
        if let Some(table) = near.rev().find_map(table_of(size)) {
            // It ends at the start of the next table, if not before.
            let others = self
                .all
                .iter()
                .filter_map(table_of(size))
                .filter(|&at| at > table);
            let end = others.min().unwrap_or(self.code.bytes.len());
            let entries = self
                .code
                .bytes
                .get(table..end)
                .unwrap_or_default()
                .chunks_exact(4);
            let mut targets: Vec<usize> = entries
                .map_while(|entry| {
                    let distance = i32::from_le_bytes(entry.try_into().ok()?);
                    let to = table as i64 + i64::from(distance);
                    self.places.get(&(to as u64)).copied()
                })
                .collect();
            targets.sort_unstable();
            targets.dedup();
            return match targets.is_empty() {
                true => Err(format!("no table of jumps at {table:#x}")),
                false => Ok(targets),
            };
        }
        // The targets are taken addresses: of a block, or of the stub with its moves.
        let taken = self.all.iter().filter(|one| {
            let inside = one.ip_rel_memory_address() < self.code.size.into();
            one.mnemonic() == Mnemonic::Lea && one.is_ip_rel_memory_operand() && inside
        });
        let fixed = |at: u64| self.code.fixups.iter().any(|one| u64::from(one.at) == at);
        // Relocated distances lead to symbols.
        let taken = taken.filter(|one| !fixed(one.next_ip() - 4));
        taken
            .map(|one| self.place(one.ip_rel_memory_address()))
            .collect()
    }

    /// The landing pads of a call: the unwinder has restored the registers that the frame had at
    /// the call, and put its words into `rax` and `rdx`, as if they were results.
    fn landings(&self, call: &Instruction) -> Result<Vec<usize>, String> {
        // The unwinder looks up the byte before the return address.
        let at = call.next_ip() - 1;
        let site = self.sites.iter().find(|site| site.range.contains(&at));
        match site {
            None if self.sites.is_empty() => Ok(Vec::new()),
            None => Err("the table of handlers does not have this call".to_string()),
            Some(site) => match site.landing {
                0 => Ok(Vec::new()),
                landing => Ok(vec![self.place(landing)?]),
            },
        }
    }
}

/// The address behind the function that an instruction loads, if it does.
fn table_of(size: usize) -> impl Fn(&Instruction) -> Option<usize> {
    move |one| {
        let is = one.mnemonic() == Mnemonic::Lea && one.is_ip_rel_memory_operand();
        let at = one.ip_rel_memory_address() as usize;
        (is && at >= size).then_some(at)
    }
}

/// Whether an instruction reads its destination only because the hardware keeps the rest of it.
fn merges(instruction: &Instruction) -> bool {
    let is_register = instruction.op0_kind() == OpKind::Register;
    let merging = matches!(
        instruction.mnemonic(),
        Mnemonic::Cvtsi2sd
            | Mnemonic::Cvtsi2ss
            | Mnemonic::Cvtss2sd
            | Mnemonic::Cvtsd2ss
            | Mnemonic::Sqrtsd
            | Mnemonic::Sqrtss
            | Mnemonic::Movsd
            | Mnemonic::Movss
            | Mnemonic::Roundsd
            | Mnemonic::Roundss
            | Mnemonic::Bsf
            | Mnemonic::Bsr
    );
    is_register && merging
}

/// Whether an instruction makes a register zero, or all ones, for any old contents.
fn ignores_operands(instruction: &Instruction) -> bool {
    let same = instruction.op0_register() == instruction.op1_register();
    let both = instruction.op_count() == 2
        && instruction.op0_kind() == OpKind::Register
        && instruction.op1_kind() == OpKind::Register;
    both && same
        && instruction.op0_register() != Register::None
        && matches!(
            instruction.mnemonic(),
            Mnemonic::Xor
                | Mnemonic::Sub
                | Mnemonic::Pxor
                | Mnemonic::Xorps
                | Mnemonic::Xorpd
                | Mnemonic::Pcmpeqd
                | Mnemonic::Pcmpeqb
                | Mnemonic::Pcmpeqw
        )
        && instruction.code() != Opcode::INVALID
}
