//! Filters of system calls (seccomp), read before they are installed: whether the runtime's threads
//! could continue under one.
//!
//! A filter is a program in classic BPF that only jumps forward. It is interpreted once for each
//! call that the runtime's threads make, in the order of its instructions, where each value is a
//! known number or unknown. Arguments are unknown, so both sides of a test of one are followed. The
//! answer errs towards "deadly", which costs better code, and never a process.

/// An instruction, as the kernel takes it (`struct sock_filter`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Instruction {
    pub(crate) code: u16,
    pub(super) on_true: u8,
    pub(super) on_false: u8,
    pub(crate) k: u32,
}

/// The longest program that the kernel takes.
pub(crate) const LONGEST: usize = 4096;

/// `AUDIT_ARCH_X86_64`.
const ARCHITECTURE: u32 = 0xc000_003e;

/// Length of a filter's input (`struct seccomp_data`).
const DATA: u32 = 64;

/// Calls that the runtime's threads make. Not `perf_event_open`: the profiler tries it in a child
/// first.
const CALLS: [i64; 50] = [
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_write,
    libc::SYS_openat,
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_lseek,
    libc::SYS_ioctl,
    libc::SYS_fcntl,
    libc::SYS_getdents64,
    libc::SYS_poll,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_brk,
    libc::SYS_memfd_create,
    libc::SYS_ftruncate,
    libc::SYS_futex,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_exit,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_rseq,
    libc::SYS_prctl,
    libc::SYS_prlimit64,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_tgkill,
    libc::SYS_sched_yield,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_getaffinity,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_membarrier,
    libc::SYS_process_vm_readv,
    libc::SYS_timer_create,
    libc::SYS_timer_settime,
    libc::SYS_timer_delete,
    libc::SYS_wait4,
];

/// Calls that the runtime's threads, the C library's allocator and its locks cannot do without. If
/// all calls of one return an error, the threads must end.
const ESSENTIAL: [i64; 5] = [
    libc::SYS_futex,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_rt_sigprocmask,
];

/// Whether a call that the runtime's threads make could be answered by the end of the thread or of
/// the process, by a signal or by another process. Also true if an essential call is always
/// refused. False for a program that the kernel refuses as a filter.
pub(super) fn is_deadly(program: &[Instruction]) -> bool {
    let kills = |&call: &i64| answers(program, call as u32).kills;
    let refuses = |&call: &i64| answers(program, call as u32).refuses();
    CALLS.iter().any(kills) || ESSENTIAL.iter().any(refuses)
}

/// The possible answers of a filter to a call.
#[derive(Clone, Copy, Default)]
struct Answers {
    kills: bool,
    errs: bool,
    allows: bool,
}

impl Answers {
    fn refuses(self) -> bool {
        self.errs && !self.allows
    }

    /// Adds an action. An unknown one ends the process, as in the kernel.
    fn add(&mut self, action: KnownValue) {
        match action.map(|action| action & libc::SECCOMP_RET_ACTION_FULL) {
            Some(libc::SECCOMP_RET_ALLOW | libc::SECCOMP_RET_LOG) => self.allows = true,
            // An error, unless another process traces this one.
            Some(libc::SECCOMP_RET_ERRNO | libc::SECCOMP_RET_TRACE) => self.errs = true,
            _ => self.kills = true,
        }
    }
}

/// A value, if it is known.
type KnownValue = Option<u32>;

/// Values that are known at an instruction.
#[derive(Clone, Copy)]
struct KnownValues {
    a: KnownValue,
    x: KnownValue,
    memory: [KnownValue; 16],
}

impl KnownValues {
    /// Keeps the values that are equal on both joining paths.
    fn meet(self, other: KnownValues) -> KnownValues {
        let meet = |one: KnownValue, other: KnownValue| one.filter(|_| one == other);
        let mut memory = self.memory;
        for (one, other) in memory.iter_mut().zip(other.memory) {
            *one = meet(*one, other);
        }
        KnownValues {
            a: meet(self.a, other.a),
            x: meet(self.x, other.x),
            memory,
        }
    }
}

/// The outcome of an instruction.
enum InstructionOutcome {
    Next,
    Return(KnownValue),
    /// Jumps by these distances behind the next instruction.
    Jump(u32),
    Either(u32, u32),
    /// The kernel refuses the program.
    Refused,
}

fn answers(program: &[Instruction], call: u32) -> Answers {
    let mut answers = Answers::default();
    let start = KnownValues {
        a: Some(0),
        x: Some(0),
        memory: [Some(0); 16],
    };
    let mut at: Vec<Option<KnownValues>> = vec![None; program.len()];
    if let Some(first) = at.first_mut() {
        *first = Some(start);
    }
    for (index, instruction) in program.iter().enumerate() {
        let Some(mut known) = at[index] else {
            continue;
        };
        let targets = match step(*instruction, &mut known, call) {
            InstructionOutcome::Return(action) => {
                answers.add(action);
                continue;
            }
            InstructionOutcome::Refused => return Answers::default(),
            InstructionOutcome::Next => [Some(0), None],
            InstructionOutcome::Jump(distance) => [Some(distance), None],
            InstructionOutcome::Either(one, other) => [Some(one), Some(other)],
        };
        for distance in targets.into_iter().flatten() {
            let target = at.get_mut(index + 1 + distance as usize);
            if let Some(target) = target {
                *target = Some(target.map_or(known, |before| before.meet(known)));
            }
        }
    }
    answers
}

/// Executes one instruction.
fn step(instruction: Instruction, known: &mut KnownValues, call: u32) -> InstructionOutcome {
    let Instruction { code, k, .. } = instruction;
    let code = u32::from(code);
    let cell = known.memory.get_mut(k as usize);
    match code & 7 {
        libc::BPF_LD | libc::BPF_LDX => {
            let loaded = match (code & 0xe0, cell) {
                (libc::BPF_IMM, _) => Some(k),
                (libc::BPF_MEM, Some(cell)) => *cell,
                (libc::BPF_LEN, _) => Some(DATA),
                (libc::BPF_ABS, _) => match k {
                    0 => Some(call),
                    4 => Some(ARCHITECTURE),
                    _ => None,
                },
                _ => return InstructionOutcome::Refused,
            };
            match code & 7 {
                libc::BPF_LD => known.a = loaded,
                _ => known.x = loaded,
            }
            InstructionOutcome::Next
        }
        libc::BPF_ST | libc::BPF_STX => match cell {
            Some(cell) if code & 7 == libc::BPF_ST => {
                *cell = known.a;
                InstructionOutcome::Next
            }
            Some(cell) => {
                *cell = known.x;
                InstructionOutcome::Next
            }
            None => InstructionOutcome::Refused,
        },
        libc::BPF_ALU => {
            let operand = operand(code, k, known);
            known.a = compute(code & 0xf0, known.a, operand);
            InstructionOutcome::Next
        }
        libc::BPF_JMP => jump(instruction, known),
        libc::BPF_RET if code & 0x18 == libc::BPF_A => InstructionOutcome::Return(known.a),
        libc::BPF_RET => InstructionOutcome::Return(Some(k)),
        _ => {
            match code & 0xf8 == libc::BPF_TXA {
                true => known.a = known.x,
                false => known.x = known.a,
            }
            InstructionOutcome::Next
        }
    }
}

/// The second operand.
fn operand(code: u32, k: u32, known: &KnownValues) -> KnownValue {
    match code & libc::BPF_X {
        0 => Some(k),
        _ => known.x,
    }
}

fn jump(instruction: Instruction, known: &KnownValues) -> InstructionOutcome {
    let Instruction {
        on_true, on_false, ..
    } = instruction;
    let (code, k) = (u32::from(instruction.code), instruction.k);
    let (yes, no) = (u32::from(on_true), u32::from(on_false));
    let decide: fn(u32, u32) -> bool = match code & 0xf0 {
        libc::BPF_JA => return InstructionOutcome::Jump(k),
        libc::BPF_JEQ => |a, b| a == b,
        libc::BPF_JGT => |a, b| a > b,
        libc::BPF_JGE => |a, b| a >= b,
        libc::BPF_JSET => |a, b| a & b != 0,
        _ => return InstructionOutcome::Refused,
    };
    match (known.a, operand(code, k, known)) {
        (Some(a), Some(b)) if decide(a, b) => InstructionOutcome::Jump(yes),
        (Some(_), Some(_)) => InstructionOutcome::Jump(no),
        _ => InstructionOutcome::Either(yes, no),
    }
}

fn compute(operation: u32, a: KnownValue, b: KnownValue) -> KnownValue {
    let a = a?;
    if operation == libc::BPF_NEG {
        return Some(a.wrapping_neg());
    }
    let b = b?;
    match operation {
        libc::BPF_ADD => Some(a.wrapping_add(b)),
        libc::BPF_SUB => Some(a.wrapping_sub(b)),
        libc::BPF_MUL => Some(a.wrapping_mul(b)),
        libc::BPF_DIV => a.checked_div(b),
        libc::BPF_OR => Some(a | b),
        libc::BPF_AND => Some(a & b),
        libc::BPF_XOR => Some(a ^ b),
        libc::BPF_LSH => a.checked_shl(b),
        libc::BPF_RSH => a.checked_shr(b),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{CALLS, Instruction, answers, is_deadly};

    const fn one(code: u32, k: u32) -> Instruction {
        test(code, k, 0, 0)
    }

    const fn test(code: u32, k: u32, on_true: u8, on_false: u8) -> Instruction {
        Instruction {
            code: code as u16,
            on_true,
            on_false,
            k,
        }
    }

    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

    /// Answers `call` with one action and all others with another.
    fn about(call: i64, action: u32, others: u32) -> Vec<Instruction> {
        vec![
            one(LOAD, 0),
            test(EQUAL, call as u32, 0, 1),
            one(RETURN, action),
            one(RETURN, others),
        ]
    }

    #[test]
    fn actions_are_told_apart() {
        use libc::{SECCOMP_RET_ALLOW as ALLOW, SECCOMP_RET_ERRNO as ERRNO};
        for deadly in [
            libc::SECCOMP_RET_KILL_PROCESS,
            libc::SECCOMP_RET_KILL_THREAD,
            libc::SECCOMP_RET_TRAP,
            libc::SECCOMP_RET_USER_NOTIF,
            0x1234_0000,
        ] {
            assert!(is_deadly(&about(libc::SYS_write, ALLOW, deadly)));
            assert!(is_deadly(&about(libc::SYS_futex, deadly, ALLOW)));
            assert!(!is_deadly(&about(libc::SYS_execve, deadly, ALLOW)));
            assert!(!is_deadly(&about(libc::SYS_perf_event_open, deadly, ALLOW)));
        }
        assert!(!is_deadly(&about(libc::SYS_timer_create, ERRNO | 1, ALLOW)));
        assert!(is_deadly(&about(libc::SYS_mmap, ERRNO | 1, ALLOW)));
        assert!(is_deadly(&about(libc::SYS_read, ALLOW, ERRNO | 1)));
        assert!(!is_deadly(&[]));
    }

    #[test]
    fn a_filter_that_checks_the_architecture_is_followed() {
        let mut program = vec![
            one(LOAD, 4),
            test(EQUAL, 0xc000_003e, 1, 0),
            one(RETURN, libc::SECCOMP_RET_KILL_PROCESS),
        ];
        let kill = libc::SECCOMP_RET_KILL_PROCESS;
        program.extend(about(libc::SYS_ptrace, kill, libc::SECCOMP_RET_ALLOW));
        assert!(!is_deadly(&program));
    }

    #[test]
    fn both_sides_of_a_test_of_an_argument_are_followed() {
        // `mmap` with a third argument that has a bit: in either order of the two results.
        let has = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
        let results = [libc::SECCOMP_RET_KILL_THREAD, libc::SECCOMP_RET_ALLOW];
        for (first, second) in [(0, 1), (1, 0)] {
            let program = [
                one(LOAD, 0),
                test(EQUAL, libc::SYS_mmap as u32, 0, 3),
                one(LOAD, 32),
                test(has, 4, 0, 1),
                one(RETURN, results[first]),
                one(RETURN, results[second]),
            ];
            assert!(answers(&program, libc::SYS_mmap as u32).kills);
        }
        // `mmap` is refused for some arguments only: the heap finds another way.
        let program = [
            one(LOAD, 0),
            test(EQUAL, libc::SYS_mmap as u32, 0, 2),
            one(LOAD, 32),
            test(has, 4, 1, 0),
            one(RETURN, libc::SECCOMP_RET_ALLOW),
            one(RETURN, libc::SECCOMP_RET_ERRNO | 1),
        ];
        assert!(!is_deadly(&program));
    }

    #[test]
    fn numbers_are_followed_through_registers_and_memory() {
        let (ld_memory, ldx_memory) = (libc::BPF_LD | libc::BPF_MEM, libc::BPF_LDX | libc::BPF_MEM);
        let equal_x = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_X;
        let add = libc::BPF_ALU | libc::BPF_ADD | libc::BPF_K;
        let program = [
            one(LOAD, 0),
            one(libc::BPF_ST, 3),
            one(libc::BPF_LD | libc::BPF_IMM, libc::SYS_futex as u32 - 1),
            one(add, 1),
            one(libc::BPF_MISC | libc::BPF_TAX, 0),
            one(libc::BPF_STX, 4),
            one(ldx_memory, 4),
            one(ld_memory, 3),
            test(equal_x, 0, 0, 1),
            one(RETURN, libc::SECCOMP_RET_TRAP),
            one(RETURN, libc::SECCOMP_RET_ALLOW),
        ];
        for call in CALLS {
            let kills = answers(&program, call as u32).kills;
            assert_eq!(kills, call == libc::SYS_futex);
        }
    }

    #[test]
    fn an_action_that_is_not_known_is_deadly() {
        let program = [one(LOAD, 16), one(libc::BPF_RET | libc::BPF_A, 0)];
        assert!(is_deadly(&program));
        let refused = [one(LOAD, 0), one(libc::BPF_LD | 0x60 | 0xe0, 0)];
        assert!(!is_deadly(&refused));
    }
}
