//! A first call changes no register and no stack word that the callee may see.
//!
//! An assembly driver loads every register with a pattern, pushes stack arguments and calls; an
//! assembly callee records what it receives. The same driver calling the callee directly is the
//! oracle.

mod support;

use std::arch::{global_asm, is_x86_feature_detected};
use std::mem::offset_of;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use support::{jumps_to, serve, table};
use uruk_stubs::{EntryAddress, FunctionId};
use uruk_testing::Random;

/// All state that a callee can observe. Order of `general`: rax rcx rdx rbx rbp rsi rdi
/// r8 to r15.
#[derive(Clone, PartialEq)]
#[repr(C, align(64))]
struct State {
    vectors: [[u64; 8]; 32],
    masks: [u64; 8],
    general: [u64; 15],
    /// Return address, then stack arguments.
    stack: [u64; 9],
    rsp: u64,
    flags: u64,
    /// `fnsave` image: 28 bytes of environment, 80 of registers.
    x87: [u8; 108],
    mxcsr: u32,
    control: u32,
}

const ZERO: State = State {
    vectors: [[0; 8]; 32],
    masks: [0; 8],
    general: [0; 15],
    stack: [0; 9],
    rsp: 0,
    flags: 0,
    x87: [0; 108],
    mxcsr: 0,
    control: 0,
};

/// Buffer of the callee, the vector level (0 SSE, 1 AVX, 2 AVX-512), and the address that the
/// driver calls.
#[unsafe(no_mangle)]
static mut URUK_SEEN: State = ZERO;
#[unsafe(no_mangle)]
static mut URUK_LEVEL: u64 = 0;
#[unsafe(no_mangle)]
static mut URUK_TARGET: u64 = 0;
#[unsafe(no_mangle)]
static mut URUK_SAVED: [u64; 2] = [0; 2];

unsafe extern "C" {
    fn uruk_drive(input: *const State);
    fn uruk_observe();
}

global_asm!(
    ".macro all_vectors insn, reg, count, toward",
    ".set i, 0",
    ".rept \\count",
    ".if \\toward",
    "move_out \\insn, \\reg, %i",
    ".else",
    "move_in \\insn, \\reg, %i",
    ".endif",
    ".set i, i + 1",
    ".endr",
    ".endm",
    ".altmacro",
    ".macro move_in insn, reg, i",
    "\\insn \\reg\\i, [rdi + {vectors} + 64 * \\i]",
    ".endm",
    ".macro move_out insn, reg, i",
    "\\insn [rax + {vectors} + 64 * \\i], \\reg\\i",
    ".endm",
    ".macro masks_in i",
    "kmovq k\\i, [rdi + {masks} + 8 * \\i]",
    ".endm",
    ".macro masks_out i",
    "kmovq [rax + {masks} + 8 * \\i], k\\i",
    ".endm",
    // void uruk_drive(const State *)
    ".globl uruk_drive",
    "uruk_drive:",
    "push rbp",
    "push rbx",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "mov [rip + URUK_SAVED], rsp",
    "stmxcsr [rip + URUK_SAVED + 8]",
    "fnstcw [rip + URUK_SAVED + 12]",
    "cmp qword ptr [rip + URUK_LEVEL], 1",
    "ja 2f",
    "je 1f",
    "all_vectors movups, xmm, 16, 0",
    "jmp 3f",
    "1:",
    "all_vectors vmovups, ymm, 16, 0",
    "jmp 3f",
    "2:",
    "all_vectors vmovups, zmm, 32, 0",
    ".set i, 0",
    ".rept 8",
    "masks_in %i",
    ".set i, i + 1",
    ".endr",
    "3:",
    "ldmxcsr [rdi + {mxcsr}]",
    "fninit",
    "fldcw [rdi + {control}]",
    "fldpi",
    "fldl2e",
    "fld qword ptr [rdi + {masks}]",
    // Stack arguments, the last first.
    ".set i, 8",
    ".rept 8",
    "push qword ptr [rdi + {stack} + 8 * i]",
    ".set i, i - 1",
    ".endr",
    "mov rax, [rdi + {general}]",
    "mov rcx, [rdi + {general} + 8]",
    "mov rdx, [rdi + {general} + 16]",
    "mov rbx, [rdi + {general} + 24]",
    "mov rbp, [rdi + {general} + 32]",
    "mov rsi, [rdi + {general} + 40]",
    "mov r8, [rdi + {general} + 56]",
    "mov r9, [rdi + {general} + 64]",
    "mov r10, [rdi + {general} + 72]",
    "mov r11, [rdi + {general} + 80]",
    "mov r12, [rdi + {general} + 88]",
    "mov r13, [rdi + {general} + 96]",
    "mov r14, [rdi + {general} + 104]",
    "mov r15, [rdi + {general} + 112]",
    "mov rdi, [rdi + {general} + 48]",
    "call [rip + URUK_TARGET]",
    "mov rsp, [rip + URUK_SAVED]",
    "fninit",
    "fldcw [rip + URUK_SAVED + 12]",
    "ldmxcsr [rip + URUK_SAVED + 8]",
    "cmp qword ptr [rip + URUK_LEVEL], 0",
    "je 4f",
    "vzeroall",
    "4:",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbx",
    "pop rbp",
    "ret",
    // void uruk_observe(anything)
    ".globl uruk_observe",
    "uruk_observe:",
    "mov [rip + URUK_SEEN + {general}], rax",
    "lea rax, [rip + URUK_SEEN]",
    "mov [rax + {general} + 8], rcx",
    "mov [rax + {general} + 16], rdx",
    "mov [rax + {general} + 24], rbx",
    "mov [rax + {general} + 32], rbp",
    "mov [rax + {general} + 40], rsi",
    "mov [rax + {general} + 48], rdi",
    "mov [rax + {general} + 56], r8",
    "mov [rax + {general} + 64], r9",
    "mov [rax + {general} + 72], r10",
    "mov [rax + {general} + 80], r11",
    "mov [rax + {general} + 88], r12",
    "mov [rax + {general} + 96], r13",
    "mov [rax + {general} + 104], r14",
    "mov [rax + {general} + 112], r15",
    "mov [rax + {rsp}], rsp",
    "pushfq",
    "pop [rax + {flags}]",
    ".set i, 0",
    ".rept 9",
    "mov rcx, [rsp + 8 * i]",
    "mov [rax + {stack} + 8 * i], rcx",
    ".set i, i + 1",
    ".endr",
    "stmxcsr [rax + {mxcsr}]",
    "fnsave [rax + {x87}]",
    "cmp qword ptr [rip + URUK_LEVEL], 1",
    "ja 2f",
    "je 1f",
    "all_vectors movups, xmm, 16, 1",
    "ret",
    "1:",
    "all_vectors vmovups, ymm, 16, 1",
    "ret",
    "2:",
    "all_vectors vmovups, zmm, 32, 1",
    ".set i, 0",
    ".rept 8",
    "masks_out %i",
    ".set i, i + 1",
    ".endr",
    "ret",
    ".noaltmacro",
    ".purgem all_vectors",
    ".purgem move_in",
    ".purgem move_out",
    ".purgem masks_in",
    ".purgem masks_out",
    vectors = const offset_of!(State, vectors),
    masks = const offset_of!(State, masks),
    general = const offset_of!(State, general),
    stack = const offset_of!(State, stack),
    rsp = const offset_of!(State, rsp),
    flags = const offset_of!(State, flags),
    x87 = const offset_of!(State, x87),
    mxcsr = const offset_of!(State, mxcsr),
    control = const offset_of!(State, control),
);

/// One user of the statics at a time.
static STATICS: Mutex<()> = Mutex::new(());

fn observe() -> u64 {
    uruk_observe as *const () as usize as u64
}

fn pattern() -> State {
    let mut state = ZERO;
    let mut random = Random::new(1);
    let mut next = || random.next();
    state.vectors.iter_mut().flatten().for_each(|w| *w = next());
    state.masks.iter_mut().for_each(|w| *w = next());
    // An ordinary number for the third x87 register.
    state.masks[0] = 1234.5678_f64.to_bits();
    state.general.iter_mut().for_each(|w| *w = next());
    state.stack.iter_mut().for_each(|w| *w = next());
    // Round up, flush to zero, all exceptions masked, two sticky flags.
    state.mxcsr = 0x5f80 | 0x8000 | 0x21;
    // Round down, 53 bits.
    state.control = 0x067f;
    state
}

/// The state that the callee observed in a call of `target`.
fn drive(target: u64, level: u64) -> State {
    let input = pattern();
    // SAFETY: the statics are ours (STATICS is held); the driver keeps the
    // callee-saved state, and `target` leads to `uruk_observe`.
    unsafe {
        (&raw mut URUK_SEEN).write(ZERO);
        (&raw mut URUK_LEVEL).write(level);
        (&raw mut URUK_TARGET).write(target);
        uruk_drive(&raw const input);
        (&raw const URUK_SEEN).read()
    }
}

fn levels() -> Vec<u64> {
    let avx512 = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
    [true, is_x86_feature_detected!("avx"), avx512]
        .into_iter()
        .zip(0..)
        .filter_map(|(has, level)| has.then_some(level))
        .collect()
}

#[track_caller]
fn check(direct: &State, seen: &State, level: u64) {
    assert_eq!(direct.general, seen.general, "general registers");
    assert_eq!(direct.vectors, seen.vectors, "vectors at level {level}");
    assert_eq!(direct.masks, seen.masks, "masks at level {level}");
    assert_eq!(direct.stack, seen.stack, "stack");
    assert_eq!(direct.rsp, seen.rsp, "rsp");
    assert_eq!(direct.mxcsr, seen.mxcsr, "mxcsr");
    // Control, status and tag words; not the address of the last instruction,
    // which processors do not keep.
    assert_eq!(direct.x87[..12], seen.x87[..12], "x87 state");
    assert_eq!(direct.x87[28..], seen.x87[28..], "x87 registers");
    let direction_and_alignment = (1 << 10) | (1 << 18);
    assert_eq!((direct.flags ^ seen.flags) & direction_and_alignment, 0);
}

/// The oracle itself observes the whole input.
#[test]
fn a_direct_call_is_seen_whole() {
    let _statics = STATICS.lock().unwrap();
    let input = pattern();
    for level in levels() {
        let seen = drive(observe(), level);
        assert_eq!(seen.general, input.general);
        assert_eq!(seen.stack[1..], input.stack[1..]);
        let words = [2, 4, 8][level as usize];
        for (seen, input) in seen.vectors.iter().zip(&input.vectors).take(16) {
            assert_eq!(seen[..words], input[..words]);
        }
        assert_eq!(seen.mxcsr, input.mxcsr);
    }
}

#[test]
fn a_first_call_changes_nothing() {
    let _statics = STATICS.lock().unwrap();
    let (_heap, table) = table();
    let service = serve(&table, |table, f| {
        table.publish(f, EntryAddress(observe()));
    });
    for (i, level) in levels().into_iter().enumerate() {
        let f = table.allocate().unwrap();
        let direct = drive(observe(), level);
        check(&direct, &drive(table.stub_address(f).0, level), level);
        assert_eq!(service.served.load(Ordering::Relaxed), i + 1);
        check(&direct, &drive(table.stub_address(f).0, level), level);
        assert_eq!(service.served.load(Ordering::Relaxed), i + 1);
    }
}

#[test]
fn a_first_call_of_prepared_code_changes_nothing() {
    let _statics = STATICS.lock().unwrap();
    let (heap, table) = table();
    for level in levels() {
        let f = table.allocate().unwrap();
        let entry = jumps_to(&heap, observe());
        assert!(table.prepare(f, EntryAddress(entry)));
        assert!(table.rests(f));
        let direct = drive(observe(), level);
        check(&direct, &drive(table.stub_address(f).0, level), level);
        assert!(!table.rests(f));
        assert_eq!(table.entry(f).map(u64::from), Some(entry));
    }
}

#[test]
fn a_failed_call_reaches_the_handlers_answer_unchanged() {
    static ASKED: AtomicU64 = AtomicU64::new(0);
    extern "C" fn handler(f: FunctionId, _: u64) -> u64 {
        ASKED.store(u64::from(f.index()) + 1, Ordering::Relaxed);
        observe()
    }
    let _statics = STATICS.lock().unwrap();
    let (_heap, table) = table();
    table.set_failure_handler(handler, 0);
    for level in levels() {
        let f = table.allocate().unwrap();
        assert!(table.fail(f));
        let direct = drive(observe(), level);
        check(&direct, &drive(table.stub_address(f).0, level), level);
        let asked = u64::from(f.index()) + 1;
        assert_eq!(ASKED.load(Ordering::Relaxed), asked);
    }
}
