//! Whether code switches stacks, by its instructions.
//!
//! A function moves its stack pointer within one stack: by calls, pushes and constants, to an
//! earlier position, and down by the size of an array. Code that goes to another stack loads the
//! pointer from elsewhere. [`find`] therefore searches for a write of `rsp` that is not in this
//! table:
//!
//! | write | the same stack, as |
//! |---|---|
//! | push, pop of another register, call, ret, enter | each moves it by a constant |
//! | add, sub, and | frames, arrays, alignment |
//! | `mov rsp, r`, `lea rsp, [r + ..]` | `r` was made from `rsp` |
//! | `mov rsp, [slot]` | the slot was stored from such a register |
//! | leave | `rbp` was made from `rsp` |
//!
//! "Made from" is followed along the bytes, from each start of a function. `mov`, `lea`, `add`,
//! `sub` and `and` keep it; a push keeps it for the pop of that register. Any other write ends it,
//! and a call does for registers that a call may change. Slots are distinguished by register and
//! displacement. Code behind a return or a jump is not reached by fall-through. There, registers
//! that calls keep and slots of the frame may be anything that they ever were in the function:
//! compilers lay a path out behind the epilogue of another one. A fifth of a system's libraries was
//! taken for one that switches stacks without that, and a tenth with it. A false positive causes a
//! search of memory where none is needed. False negatives: assembly that switches stacks by adding
//! a difference, through a register that held a pointer into the old stack on another path, or by
//! `pop rsp` right behind a constant that ends in 0xf2 or 0xf3, 0x0f.
//!
//! Nearly no code has the bytes of such a write: [`suspicious`] searches for them, at about a byte
//! in a nanosecond, and only then a function is decoded. The first decoder of a process makes
//! tables of 360 KB in 0.8 ms. So subtractions of floating-point numbers, whose opcode is that of
//! `pop rsp`, are distinguished by their prefixes.

use iced_x86::{
    Decoder, DecoderOptions, Instruction, InstructionInfoFactory, InstructionInfoOptions, Mnemonic,
    OpAccess, OpKind, Register,
};

/// Largest number of slots that are followed in one function.
const SLOTS: usize = 64;

/// The place where `code`, which lies at `start`, first goes to another stack. Functions begin at
/// `bounds`, sorted.
pub(crate) fn find(code: &[u8], start: u64, bounds: &[u64]) -> Option<u64> {
    let mut track = None;
    // Data before a function must not swallow its beginning: each part is decoded for itself.
    let end = start.wrapping_add(code.len() as u64);
    let within = bounds
        .iter()
        .copied()
        .filter(|bound| (start..end).contains(bound));
    let mut from = start;
    for to in within.chain([end]) {
        let part = code.get((from - start) as usize..(to - start) as usize)?;
        if suspicious(part) {
            let track = track.get_or_insert_with(Track::new);
            track.forget();
            let mut decoder = Decoder::with_ip(64, part, from, DecoderOptions::NONE);
            if let Some(found) = decoder.iter().find(|instruction| track.step(instruction)) {
                return Some(found.ip());
            }
        }
        from = to;
    }
    None
}

/// False: no instruction in `code` writes `rsp` or `esp` but by push, pop, call, return,
/// addition or a mask. Data may be among it.
fn suspicious(code: &[u8]) -> bool {
    let mut before = 0u8;
    for (at, pair) in code.windows(2).enumerate() {
        let (opcode, modrm) = (pair[0], pair[1]);
        // Extensions of the register fields, if there is a prefix for that.
        let rex = if before & 0xf0 == 0x40 { before } else { 0 };
        let in_reg = modrm & 0x38 == 0x20 && rex & 4 == 0;
        let in_rm = modrm & 0xc7 == 0xc4 && rex & 1 == 0;
        let found = match opcode {
            // mov, lea.
            0x8b | 0x8d => in_reg,
            0x89 => in_rm,
            // xchg.
            0x87 => in_reg || in_rm,
            0x94 => rex != 0 && rex & 1 == 0,
            // mov of a constant, pop.
            0xc7 | 0x8f => in_rm,
            0xbc => rex & 8 != 0 && rex & 1 == 0,
            // pop rsp; with 0x24 behind it is the operand `[rsp + ..]` of another one.
            0x5c => modrm != 0x24 && rex & 1 == 0 && !subtracts(&code[..at]),
            // cmov.
            0x40..=0x4f => before == 0x0f && in_reg,
            // leave needs a frame pointer that was changed.
            _ => false,
        };
        if found {
            return true;
        }
        before = opcode;
    }
    code.last()
        .is_some_and(|&last| last == 0x5c || last == 0x94)
}

/// True if `before` ends like the bytes before the opcode of `subss` and `subsd`.
fn subtracts(before: &[u8]) -> bool {
    matches!(
        before,
        [.., 0xf2 | 0xf3, 0x0f] | [.., 0xf2 | 0xf3, 0x40..=0x4f, 0x0f]
    )
}

/// Registers and slots that are known to be made from the stack pointer.
struct Track {
    made: [bool; 16],
    slots: Vec<(Register, u64)>,
    /// Registers that were ever made from it in this function, and pushed.
    ever: [bool; 16],
    ever_slots: Vec<(Register, u64)>,
    pushed: [bool; 16],
    info: InstructionInfoFactory,
}

fn is_rsp(register: Register) -> bool {
    register.full_register() == Register::RSP
}

fn index(register: Register) -> Option<usize> {
    register.is_gpr().then(|| register.full_register().number())
}

impl Track {
    fn new() -> Track {
        let mut track = Track {
            made: [false; 16],
            slots: Vec::new(),
            ever: [false; 16],
            ever_slots: Vec::new(),
            pushed: [false; 16],
            info: InstructionInfoFactory::new(),
        };
        track.forget();
        track
    }

    /// Resets the state at the start of a function.
    fn forget(&mut self) {
        self.made = [false; 16];
        for register in [Register::RSP, Register::RBP] {
            self.made[register.number()] = true;
        }
        self.slots.clear();
        self.ever = [false; 16];
        self.ever_slots.clear();
        self.pushed = [false; 16];
    }

    /// Joins the states of other paths, behind code without fall-through.
    fn join(&mut self) {
        for kept in [3, 5, 12, 13, 14, 15] {
            self.made[kept] |= self.ever[kept];
        }
        self.made[Register::RBP.number()] = true;
        for &slot in &self.ever_slots {
            if !self.slots.contains(&slot) {
                self.slots.push(slot);
            }
        }
    }

    fn is_made(&self, register: Register) -> bool {
        index(register).is_some_and(|index| self.made[index])
    }

    fn slot(instruction: &Instruction) -> Option<(Register, u64)> {
        let plain = instruction.memory_index() == Register::None;
        let base = instruction.memory_base().full_register();
        plain.then_some((base, instruction.memory_displacement64()))
    }

    /// Whether the value of operand `operand` is made from the stack pointer.
    fn source(&self, instruction: &Instruction, operand: u32) -> bool {
        match instruction.op_kind(operand) {
            OpKind::Register => self.is_made(instruction.op_register(operand)),
            OpKind::Memory => {
                Self::slot(instruction).is_some_and(|slot| self.slots.contains(&slot))
            }
            _ => false,
        }
    }

    /// Follows an instruction; true if it goes to another stack.
    fn step(&mut self, instruction: &Instruction) -> bool {
        let mnemonic = instruction.mnemonic();
        match mnemonic {
            Mnemonic::Leave => {
                let same = self.is_made(Register::RBP);
                self.made[Register::RBP.number()] = true;
                return !same;
            }
            Mnemonic::Pop => {
                let to = instruction.op0_register();
                if let Some(index) = index(to) {
                    // A caller's frame pointer.
                    self.made[index] = to == Register::RBP || self.pushed[index];
                }
                return is_rsp(to);
            }
            Mnemonic::Call => {
                for scratch in [0, 1, 2, 6, 7, 8, 9, 10, 11] {
                    self.made[scratch] = false;
                }
                return false;
            }
            Mnemonic::Push => {
                if let Some(index) = index(instruction.op0_register()) {
                    self.pushed[index] |= self.made[index];
                }
                return false;
            }
            Mnemonic::Ret | Mnemonic::Jmp | Mnemonic::Ud2 | Mnemonic::Hlt => {
                self.join();
                return false;
            }
            Mnemonic::Enter | Mnemonic::Cmp | Mnemonic::Test => return false,
            _ => {}
        }
        let made = match mnemonic {
            Mnemonic::Mov => self.source(instruction, 1),
            Mnemonic::Lea => {
                let base = instruction.memory_base();
                self.is_made(base) || self.is_made(instruction.memory_index())
            }
            Mnemonic::Add | Mnemonic::Sub | Mnemonic::And | Mnemonic::Inc | Mnemonic::Dec => {
                self.source(instruction, 0)
            }
            _ => false,
        };
        self.write(instruction, made)
    }

    /// Notes the target that an instruction writes; true if that is a stack pointer from elsewhere.
    fn write(&mut self, instruction: &Instruction, made: bool) -> bool {
        let into_memory = instruction.op0_kind() == OpKind::Memory;
        if into_memory && instruction.mnemonic() == Mnemonic::Mov {
            if let Some(slot) = Self::slot(instruction) {
                self.slots.retain(|&held| held != slot);
                if made && self.slots.len() < SLOTS {
                    self.slots.push(slot);
                    let frame = slot.0 == Register::RBP && !self.ever_slots.contains(&slot);
                    if frame && self.ever_slots.len() < SLOTS {
                        self.ever_slots.push(slot);
                    }
                }
            }
            return false;
        }
        let operands = instruction.op_count().min(2);
        let registers = (0..operands).filter_map(|operand| {
            let register = instruction.op_kind(operand) == OpKind::Register;
            register.then(|| (operand, index(instruction.op_register(operand))))
        });
        let registers: [Option<usize>; 2] = registers.fold([None; 2], |mut all, (at, index)| {
            all[at as usize] = index;
            all
        });
        if registers == [None; 2] {
            return false;
        }
        let options =
            InstructionInfoOptions::NO_MEMORY_USAGE | InstructionInfoOptions::NO_REGISTER_USAGE;
        let info = self.info.info_options(instruction, options);
        let mut elsewhere = false;
        for (operand, index) in registers.into_iter().enumerate() {
            let written = matches!(
                info.op_access(operand as u32),
                OpAccess::Write
                    | OpAccess::CondWrite
                    | OpAccess::ReadWrite
                    | OpAccess::ReadCondWrite
            );
            let Some(index) = index.filter(|_| written) else {
                continue;
            };
            if index == Register::RSP.number() {
                elsewhere |= !made;
            } else {
                self.made[index] = made && operand == 0;
                self.ever[index] |= self.made[index];
            }
        }
        elsewhere
    }
}

#[cfg(test)]
mod tests {
    use super::{find, suspicious};

    fn check(code: &[u8], expected: Option<u64>) {
        assert_eq!(find(code, 0x1000, &[0x1000]), expected, "{code:x?}");
    }

    /// push rbp; mov rbp, rsp
    const FRAME: [u8; 4] = [0x55, 0x48, 0x89, 0xe5];

    fn in_frame(code: &[u8]) -> Vec<u8> {
        [&FRAME[..], code].concat()
    }

    #[test]
    fn ways_to_another_stack() {
        let switches: [&[u8]; 11] = [
            &[0x48, 0x89, 0xfc],                   // mov rsp, rdi
            &[0x49, 0x8b, 0xe0],                   // mov rsp, r8
            &[0x48, 0x8b, 0x26],                   // mov rsp, [rsi]
            &[0x48, 0x8b, 0x65, 0xf0],             // mov rsp, [rbp - 16]
            &[0x48, 0x87, 0xe0],                   // xchg rsp, rax
            &[0x48, 0x94],                         // xchg rax, rsp
            &[0x5c],                               // pop rsp
            &[0x48, 0x8d, 0x67, 0x10],             // lea rsp, [rdi + 16]
            &[0x48, 0x0f, 0x44, 0xe0],             // cmove rsp, rax
            &[0x48, 0xbc, 0, 0, 0, 0, 1, 0, 0, 0], // mov rsp, 1 << 32
            &[0x89, 0xfc],                         // mov esp, edi
        ];
        for code in switches {
            assert!(suspicious(code), "{code:x?}");
            check(code, Some(0x1000));
            check(&in_frame(code), Some(0x1004));
        }
        // mov rbp, rdi; leave: the first byte of interest is not one of rsp's.
        let code = [0x48, 0x89, 0xfd, 0xc9, 0x90, 0x48, 0x89, 0xe0];
        assert_eq!(find(&code, 0, &[0]), None, "no write of rsp is among it");
        let code = [&code[..], &[0x48, 0x89, 0xc4]].concat();
        check(&code, Some(0x1003));
    }

    #[test]
    fn ways_on_the_same_stack() {
        let same: [&[u8]; 7] = [
            // mov rax, rsp; sub rax, rcx; and rax, -16; mov rsp, rax
            &[
                0x48, 0x89, 0xe0, 0x48, 0x29, 0xc8, 0x48, 0x83, 0xe0, 0xf0, 0x48, 0x89, 0xc4,
            ],
            // mov rcx, rsp; mov [rbp - 24], rcx; mov rax, [rbp - 24]; mov rsp, rax
            &[
                0x48, 0x89, 0xe1, 0x48, 0x89, 0x4d, 0xe8, 0x48, 0x8b, 0x45, 0xe8, 0x48, 0x89, 0xc4,
            ],
            // mov [rbp - 16], rsp; mov rsp, [rbp - 16]
            &[0x48, 0x89, 0x65, 0xf0, 0x48, 0x8b, 0x65, 0xf0],
            // mov rsp, rbp; pop rbp; ret
            &[0x48, 0x89, 0xec, 0x5d, 0xc3],
            // lea rsp, [rbp - 40]
            &[0x48, 0x8d, 0x65, 0xd8],
            // mov rbx, rsp; call; mov rsp, rbx
            &[0x48, 0x89, 0xe3, 0xe8, 0, 0, 0, 0, 0x48, 0x89, 0xdc],
            // mov [rsp + 8], rbx; sub rsp, 64; add rsp, rax
            &[
                0x48, 0x89, 0x5c, 0x24, 8, 0x48, 0x83, 0xec, 0x40, 0x48, 0x01, 0xc4,
            ],
        ];
        for code in same {
            check(&in_frame(code), None);
        }
    }

    #[test]
    fn what_was_made_is_lost_by_other_writes() {
        // mov rax, rsp; mov rax, [rdi]; mov rsp, rax
        check(
            &[0x48, 0x89, 0xe0, 0x48, 0x8b, 0x07, 0x48, 0x89, 0xc4],
            Some(0x1006),
        );
        // mov rax, rsp; call; mov rsp, rax
        check(
            &[0x48, 0x89, 0xe0, 0xe8, 0, 0, 0, 0, 0x48, 0x89, 0xc4],
            Some(0x1008),
        );
        // mov [rbp - 16], rsp; mov [rbp - 16], rdi; mov rsp, [rbp - 16]
        let code = [
            0x48, 0x89, 0x65, 0xf0, 0x48, 0x89, 0x7d, 0xf0, 0x48, 0x8b, 0x65, 0xf0,
        ];
        check(&in_frame(&code), Some(0x100c));
        // mov rax, rsp; ret | mov rsp, rax
        let code = [0x48, 0x89, 0xe0, 0xc3, 0x48, 0x89, 0xc4];
        assert_eq!(find(&code, 0, &[0]), None);
        assert_eq!(find(&code, 0, &[0, 4]), Some(4));
    }

    #[test]
    fn other_paths_know_what_calls_keep() {
        // mov rbx, rsp; pop rbx; ret | mov rsp, rbx
        let kept = [0x48, 0x89, 0xe3, 0x5b, 0xc3, 0x48, 0x89, 0xdc];
        check(&in_frame(&kept), None);
        // mov rax, rsp; mov rax, [rdi]; ret | mov rsp, rax
        let lost = [0x48, 0x89, 0xe0, 0x48, 0x8b, 0x07, 0xc3, 0x48, 0x89, 0xc4];
        check(&in_frame(&lost), Some(0x100b));
        // mov rbx, [rdi]; jmp | mov rsp, rbx
        check(&[0x48, 0x8b, 0x1f, 0xeb, 0, 0x48, 0x89, 0xdc], Some(0x1005));
        // lea r10, [rsp + 8]; push r10; xor r10d, r10d; pop r10; lea rsp, [r10 - 8]
        let pushed = [
            0x4c, 0x8d, 0x54, 0x24, 8, 0x41, 0x52, 0x45, 0x31, 0xd2, 0x41, 0x5a, 0x49, 0x8d, 0x62,
            0xf8,
        ];
        check(&pushed, None);
        // pop r10; lea rsp, [r10 - 8]
        check(&pushed[10..], Some(0x1002));
    }

    #[test]
    fn functions_begin_at_their_bounds() {
        // A byte of data that would swallow the beginning of: mov rsp, [rsi]
        let code = [0x48, 0xb8, 0x48, 0x8b, 0x26, 0xc3, 0x90, 0x90, 0x90, 0x90];
        assert_eq!(find(&code, 0, &[0]), None);
        assert_eq!(find(&code, 0, &[2]), Some(2));
    }

    #[test]
    fn ordinary_code_is_not_decoded() {
        // push rbp; mov rbp, rsp; sub rsp, 32; mov [rsp + 8], rbx; pop rbp; ret
        let code = [
            0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x20, 0x48, 0x89, 0x5c, 0x24, 8, 0x5d, 0xc3,
        ];
        assert!(!suspicious(&code));
        // subsd xmm0, xmm1; subss xmm9, xmm2
        assert!(!suspicious(&[
            0xf2, 0x0f, 0x5c, 0xc1, 0xf3, 0x44, 0x0f, 0x5c, 0xca
        ]));
        // pop rsp, behind `and al, 15` and behind nothing
        assert!(suspicious(&[0x24, 0x0f, 0x5c, 0xc3]));
        assert!(suspicious(&[0x5c, 0xc3]));
    }
}
