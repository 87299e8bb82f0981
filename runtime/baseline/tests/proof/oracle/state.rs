//! The state of registers and the stack before an instruction, valid on all paths to it.

use std::collections::BTreeMap;

use iced_x86::{
    Instruction, InstructionInfoFactory, MemorySize, Mnemonic, OpAccess, OpKind, Register,
    UsedMemory,
};
use uruk_baseline::ir::Function;

use super::rows::Row;
use super::{ignores_operands, merges};
use crate::native::abi::{Where, places};

/// Callee-saved registers with DWARF's numbers.
const KEPT: [(Register, u8); 6] = [
    (Register::RBX, 3),
    (Register::RBP, 6),
    (Register::R12, 12),
    (Register::R13, 13),
    (Register::R14, 14),
    (Register::R15, 15),
];

const ARGUMENTS: [Register; 6] = [
    Register::RDI,
    Register::RSI,
    Register::RDX,
    Register::RCX,
    Register::R8,
    Register::R9,
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// The CFA minus the stack pointer, if known.
    depth: Option<i64>,
    /// The CFA minus `rbp`, if known.
    frame: Option<i64>,
    /// Registers with defined contents, by their numbers.
    general: u16,
    vectors: u16,
    /// Defined flags.
    flags: u32,
    /// Callee-saved registers that still hold their entry values.
    kept: u16,
    /// Places of saved entry values: the CFA minus the address, and the register.
    saved: BTreeMap<i64, u8>,
    /// Whether only defined data may be read.
    strict: bool,
}

fn bit(register: Register) -> u16 {
    1 << register.number()
}

impl State {
    pub fn at_entry(function: &Function, strict: bool) -> State {
        let parameters = function.parameters.iter().map(|one| (one.ty, one.passing));
        let mut state = State {
            depth: Some(8),
            frame: None,
            general: bit(Register::RSP),
            vectors: 0,
            flags: 0,
            kept: KEPT.iter().map(|(register, _)| bit(*register)).sum(),
            saved: BTreeMap::new(),
            strict,
        };
        let all = places(parameters);
        for place in all.places {
            match place {
                Where::Int(nth) => state.general |= bit(ARGUMENTS[nth]),
                Where::Sse(nth) => state.vectors |= 1 << nth,
                Where::Nest => state.general |= bit(Register::R10),
                Where::Stack(_) | Where::Memory(..) => {}
            }
        }
        if function.is_variadic {
            state.general |= ARGUMENTS.iter().map(|one| bit(*one)).sum::<u16>();
            state.general |= bit(Register::RAX);
            state.vectors |= 0xff;
        }
        state
    }

    /// The state that is valid on both paths.
    pub fn meet(&self, other: &State) -> Result<State, String> {
        let (a, b) = (self.depth, other.depth);
        if a.is_some() && b.is_some() && a != b {
            return Err(format!(
                "the stack is {a:?} deep on one way and {b:?} on another"
            ));
        }
        let mut saved = self.saved.clone();
        saved.retain(|at, register| other.saved.get(at) == Some(register));
        Ok(State {
            depth: a.and(b),
            frame: self.frame.filter(|_| self.frame == other.frame),
            general: self.general & other.general,
            vectors: self.vectors & other.vectors,
            flags: self.flags & other.flags,
            kept: self.kept & other.kept,
            saved,
            strict: self.strict,
        })
    }

    pub fn is_at_return_address(&self) -> bool {
        self.depth == Some(8)
    }

    /// Checks the state at a return.
    pub fn check_leaving(&self) -> Result<(), String> {
        for (register, _) in KEPT {
            if self.kept & bit(register) == 0 {
                return Err(format!("{register:?} is not restored"));
            }
        }
        Ok(())
    }

    pub fn check_row(&self, row: &Row) -> Result<(), String> {
        let (register, distance) = row.cfa;
        let is = match register {
            7 => self.depth == Some(distance),
            6 => self.frame == Some(distance),
            _ => false,
        };
        if !is {
            return Err(format!(
                "the row says CFA = r{register} + {distance}: {self:x?}"
            ));
        }
        if row.saved.get(&16) != Some(&8) {
            return Err("the row has no return address".to_string());
        }
        for (register, number) in KEPT {
            let is = match row.saved.get(&number) {
                Some(at) => self.saved.get(at) == Some(&number),
                None => self.kept & bit(register) != 0,
            };
            if !is {
                return Err(format!("the row does not know where {register:?} is"));
            }
        }
        Ok(())
    }

    /// The CFA minus the address of an operand in the frame, if known.
    fn slot(&self, base: Register, index: Register, displacement: u64) -> Option<i64> {
        let from = match base {
            Register::RSP => self.depth?,
            Register::RBP => self.frame?,
            _ => return None,
        };
        (index == Register::None).then(|| from - displacement as i64)
    }

    /// Applies an instruction.
    pub fn step(
        &mut self,
        instruction: &Instruction,
        factory: &mut InstructionInfoFactory,
    ) -> Result<(), String> {
        let info = factory.info(instruction);
        let is_stack = instruction.is_stack_instruction();
        for memory in info.used_memory() {
            self.check_access(memory, is_stack, instruction)?;
        }
        let saves = self.saved_by(instruction);
        if !ignores_operands(instruction) && saves.is_none() {
            let skipped = match merges(instruction) {
                true => instruction.op0_register().full_register(),
                false => Register::None,
            };
            for used in info.used_registers() {
                let register = used.register().full_register();
                let reads = matches!(
                    used.access(),
                    OpAccess::Read
                        | OpAccess::CondRead
                        | OpAccess::ReadWrite
                        | OpAccess::ReadCondWrite
                );
                if reads && register != skipped {
                    self.check_read(register)?;
                }
            }
        }
        let needed = instruction.rflags_read();
        if needed & !self.flags != 0 {
            return Err(format!(
                "it reads flags that mean nothing: {:#x}",
                needed & !self.flags
            ));
        }
        self.flags |= instruction.rflags_modified();
        self.flags &= !instruction.rflags_undefined();
        let writes: Vec<_> = info
            .used_memory()
            .iter()
            .filter(|one| matches!(one.access(), OpAccess::Write | OpAccess::ReadWrite))
            .copied()
            .collect();
        for memory in writes {
            self.forget(&memory);
        }
        if let Some((at, number)) = saves {
            self.saved.insert(at, number);
        }
        let restored = self.restored_by(instruction);
        let written: Vec<Register> = info
            .used_registers()
            .iter()
            .filter(|one| {
                !matches!(
                    one.access(),
                    OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess
                )
            })
            .map(|one| one.register().full_register())
            .collect();
        let (old_depth, old_frame) = (self.depth, self.frame);
        for register in written {
            self.write(register);
        }
        if let Some(register) = restored {
            self.kept |= bit(register);
        }
        self.move_stack(instruction, old_depth, old_frame);
        if instruction.mnemonic() == Mnemonic::Call {
            self.call(old_depth)?;
        }
        Ok(())
    }

    /// Rejects accesses below the stack pointer.
    fn check_access(
        &self,
        memory: &UsedMemory,
        is_stack: bool,
        instruction: &Instruction,
    ) -> Result<(), String> {
        let is_real = !matches!(memory.access(), OpAccess::NoMemAccess | OpAccess::None);
        if is_stack || !is_real || instruction.mnemonic() == Mnemonic::Lea {
            return Ok(());
        }
        let slot = self.slot(memory.base(), memory.index(), memory.displacement());
        let (Some(slot), Some(depth)) = (slot, self.depth) else {
            return Ok(());
        };
        match slot > depth {
            true => Err(format!(
                "it touches {} bytes below the stack pointer",
                slot - depth
            )),
            false => Ok(()),
        }
    }

    fn check_read(&self, register: Register) -> Result<(), String> {
        let is = match register {
            _ if !self.strict => true,
            Register::RSP => true,
            Register::RBP if self.frame.is_some() => true,
            one if one.is_gpr64() => self.general & bit(one) != 0,
            one if one.is_vector_register() => self.vectors & bit(one) != 0,
            _ => true,
        };
        is.then_some(())
            .ok_or(format!("{register:?} is read, and nobody wrote it"))
    }

    /// The place where an instruction saves an entry value, if it does.
    fn saved_by(&self, instruction: &Instruction) -> Option<(i64, u8)> {
        let (register, at) = match instruction.mnemonic() {
            Mnemonic::Push if instruction.op0_kind() == OpKind::Register => {
                (instruction.op0_register(), self.depth? + 8)
            }
            Mnemonic::Mov if instruction.op0_kind() == OpKind::Memory => {
                let at = self.slot(
                    instruction.memory_base(),
                    instruction.memory_index(),
                    instruction.memory_displacement64(),
                );
                (instruction.op1_register(), at?)
            }
            _ => return None,
        };
        let (register, number) = KEPT.into_iter().find(|(one, _)| *one == register)?;
        (self.kept & bit(register) != 0).then_some((at, number))
    }

    /// The register whose entry value an instruction restores, if it does.
    fn restored_by(&self, instruction: &Instruction) -> Option<Register> {
        let (register, at) = match instruction.mnemonic() {
            Mnemonic::Pop => (instruction.op0_register(), self.depth?),
            Mnemonic::Leave => (Register::RBP, self.frame?),
            Mnemonic::Mov if instruction.op1_kind() == OpKind::Memory => {
                let at = self.slot(
                    instruction.memory_base(),
                    instruction.memory_index(),
                    instruction.memory_displacement64(),
                );
                (instruction.op0_register(), at?)
            }
            _ => return None,
        };
        let (register, number) = KEPT.into_iter().find(|(one, _)| *one == register)?;
        (self.saved.get(&at) == Some(&number)).then_some(register)
    }

    /// Forgets entry values that are overwritten.
    fn forget(&mut self, memory: &UsedMemory) {
        let slot = self.slot(memory.base(), memory.index(), memory.displacement());
        let Some(slot) = slot else {
            return;
        };
        let size = match memory.memory_size() {
            MemorySize::Unknown => 16,
            size => size.size() as i64,
        };
        self.saved
            .retain(|&at, _| at <= slot - size || at - 8 >= slot);
    }

    fn write(&mut self, register: Register) {
        if register.is_gpr64() {
            self.general |= bit(register);
            self.kept &= !bit(register);
            if register == Register::RBP {
                self.frame = None;
            }
        } else if register.is_vector_register() {
            self.vectors |= bit(register);
        }
    }

    /// Tracks changes of the stack pointer and the frame pointer.
    fn move_stack(&mut self, instruction: &Instruction, depth: Option<i64>, frame: Option<i64>) {
        let first = instruction.op0_register();
        let is_immediate = instruction.op_count() == 2
            && !matches!(instruction.op1_kind(), OpKind::Register | OpKind::Memory);
        let by = match is_immediate {
            true => instruction.immediate(1) as i64,
            false => 0,
        };
        match (instruction.mnemonic(), first) {
            (Mnemonic::Push, _) => self.depth = depth.map(|depth| depth + 8),
            (Mnemonic::Pop, _) => self.depth = depth.map(|depth| depth - 8),
            (Mnemonic::Leave, _) => self.depth = frame.map(|frame| frame - 8),
            (Mnemonic::Mov, Register::RBP)
                if instruction.op1_kind() == OpKind::Register
                    && instruction.op1_register() == Register::RSP =>
            {
                self.frame = depth;
            }
            (Mnemonic::Mov, Register::RSP) => {
                let is = instruction.op1_kind() == OpKind::Register
                    && instruction.op1_register() == Register::RBP;
                self.depth = frame.filter(|_| is);
            }
            (Mnemonic::Sub, Register::RSP) => {
                self.depth = depth.filter(|_| is_immediate).map(|depth| depth + by);
            }
            (Mnemonic::Add, Register::RSP) => {
                self.depth = depth.filter(|_| is_immediate).map(|depth| depth - by);
            }
            (Mnemonic::Lea, Register::RSP) => {
                let before = State {
                    depth,
                    frame,
                    ..self.clone()
                };
                self.depth = before.slot(
                    instruction.memory_base(),
                    instruction.memory_index(),
                    instruction.memory_displacement64(),
                );
            }
            (Mnemonic::And, Register::RSP) => self.depth = None,
            _ => {}
        }
    }

    /// Applies a call: checks its requirements, and clobbers registers.
    fn call(&mut self, depth: Option<i64>) -> Result<(), String> {
        self.depth = depth;
        if depth.is_some_and(|depth| depth % 16 != 0) {
            return Err("the stack is not aligned".to_string());
        }
        // Results may be in these.
        let results = [Register::RAX, Register::RDX, Register::RCX];
        let lost = [
            Register::RSI,
            Register::RDI,
            Register::R8,
            Register::R9,
            Register::R10,
            Register::R11,
        ];
        self.general |= results.iter().map(|one| bit(*one)).sum::<u16>();
        self.general &= !lost.iter().map(|one| bit(*one)).sum::<u16>();
        self.vectors = 0b11;
        self.flags = 0;
        Ok(())
    }
}
