//! The boundary: code between caller and callee that sees all registers on the way in and out.
//!
//! Callers call [`boundary`], which notes all registers, gives those that the convention preserves
//! and those that hold no argument other contents, and jumps to the callee with a return address
//! of its own. On return it notes all registers again, restores the caller's, spoils those that
//! hold no result and are not preserved, and returns. It uses no memory of the stack but the word
//! of the return address, so arguments on the stack are where the caller put them.
//!
//! One call is made at a time: state is one static.

use std::arch::global_asm;
use std::cell::UnsafeCell;
use std::mem::offset_of;

/// The boundary's treatment of registers, by number.
#[derive(Debug, Clone, Copy)]
pub struct Registers {
    /// General registers that must be as before after the call.
    pub kept: u32,
    /// Vector registers likewise.
    pub kept_vectors: u32,
    /// General registers that get other contents before the callee begins.
    pub filled: u32,
    /// General registers that get other contents behind the callee.
    pub spoiled: u32,
    /// Whether vector registers that hold no argument, or no result, do.
    pub spoils_vectors: bool,
}

/// All registers at one time.
#[repr(C, align(64))]
#[derive(Debug, Clone)]
pub struct Seen {
    /// As `fxsave64` writes it.
    pub vectors: [u8; 512],
    /// By number.
    pub general: [u64; 16],
    pub flags: u64,
}

const NOTHING: Seen = Seen {
    vectors: [0; 512],
    general: [0; 16],
    flags: 0,
};

/// The memory that code below reads and writes.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct State {
    /// At the callee's first instruction, before anything was filled.
    pub entry: Seen,
    /// Behind the callee.
    pub exit: Seen,
    /// The values that registers are filled with.
    pub canaries: [u64; 16],
    load: [u64; 16],
    pub target: u64,
    /// The target of a call of [`hop`].
    pub hop: u64,
    back: u64,
    filled: u64,
    kept: u64,
    spoiled: u64,
    vectors: u64,
    /// How often the callee returned.
    pub returned: u64,
}

#[repr(transparent)]
struct Shared(UnsafeCell<State>);

// SAFETY: one thread makes calls, as `run` has it.
unsafe impl Sync for Shared {}

static STATE: Shared = Shared(UnsafeCell::new(State {
    entry: NOTHING,
    exit: NOTHING,
    canaries: [0; 16],
    load: [0; 16],
    target: 0,
    hop: 0,
    back: 0,
    filled: 0,
    kept: 0,
    spoiled: 0,
    vectors: 0,
    returned: 0,
}));

unsafe extern "C" {
    /// Goes to the callee. It is called in any convention.
    #[link_name = "uruk_abi_boundary"]
    pub fn boundary();
    /// Goes where [`State::hop`] says, without a trace.
    #[link_name = "uruk_abi_hop"]
    pub fn hop();
}

global_asm!(
    // Notes registers, and leaves the state's address in r8.
    ".macro uruk_note at",
    "mov qword ptr [rip + {state} + \\at + {general}], rax",
    "mov qword ptr [rip + {state} + \\at + {general} + 64], r8",
    "lea r8, [rip + {state}]",
    "mov [r8 + \\at + {general} + 8], rcx",
    "mov [r8 + \\at + {general} + 16], rdx",
    "mov [r8 + \\at + {general} + 24], rbx",
    "mov [r8 + \\at + {general} + 32], rsp",
    "mov [r8 + \\at + {general} + 40], rbp",
    "mov [r8 + \\at + {general} + 48], rsi",
    "mov [r8 + \\at + {general} + 56], rdi",
    "mov [r8 + \\at + {general} + 72], r9",
    "mov [r8 + \\at + {general} + 80], r10",
    "mov [r8 + \\at + {general} + 88], r11",
    "mov [r8 + \\at + {general} + 96], r12",
    "mov [r8 + \\at + {general} + 104], r13",
    "mov [r8 + \\at + {general} + 112], r14",
    "mov [r8 + \\at + {general} + 120], r15",
    "pushfq",
    "pop qword ptr [r8 + \\at + {flags}]",
    "cld",
    "fxsave64 [r8 + \\at]",
    ".endm",
    // Sets one vector register, if the bit that the carry says is set.
    ".macro uruk_spoil number",
    "movq xmm\\number, [r8 + {canaries} + 8 * (\\number & 15)]",
    "pshufd xmm\\number, xmm\\number, 0x1b",
    ".endm",
    // Loads all general registers but rsp, r8 last.
    ".macro uruk_load",
    "mov rax, [r8 + {load}]",
    "mov rcx, [r8 + {load} + 8]",
    "mov rdx, [r8 + {load} + 16]",
    "mov rbx, [r8 + {load} + 24]",
    "mov rbp, [r8 + {load} + 40]",
    "mov rsi, [r8 + {load} + 48]",
    "mov rdi, [r8 + {load} + 56]",
    "mov r9, [r8 + {load} + 72]",
    "mov r10, [r8 + {load} + 80]",
    "mov r11, [r8 + {load} + 88]",
    "mov r12, [r8 + {load} + 96]",
    "mov r13, [r8 + {load} + 104]",
    "mov r14, [r8 + {load} + 112]",
    "mov r15, [r8 + {load} + 120]",
    "mov r8, [r8 + {load} + 64]",
    ".endm",
    ".globl uruk_abi_boundary",
    ".type uruk_abi_boundary, @function",
    "uruk_abi_boundary:",
    "uruk_note {entry}",
    "mov rax, [rsp]",
    "mov [r8 + {back}], rax",
    "lea rax, [rip + 3f]",
    "mov [rsp], rax",
    "mov rdx, [r8 + {filled}]",
    "xor ecx, ecx",
    "2:",
    "mov rax, [r8 + {entry} + {general} + 8 * rcx]",
    "bt rdx, rcx",
    "cmovc rax, [r8 + {canaries} + 8 * rcx]",
    "mov [r8 + {load} + 8 * rcx], rax",
    "inc ecx",
    "cmp ecx, 16",
    "jne 2b",
    "cmp qword ptr [r8 + {vectors}], 0",
    "je 2f",
    "uruk_spoil 8",
    "uruk_spoil 9",
    "uruk_spoil 10",
    "uruk_spoil 11",
    "uruk_spoil 12",
    "uruk_spoil 13",
    "uruk_spoil 14",
    "uruk_spoil 15",
    "2:",
    "uruk_load",
    "jmp qword ptr [rip + {state} + {target}]",
    // Behind the callee.
    "3:",
    "uruk_note {exit}",
    "inc qword ptr [r8 + {returned}]",
    "mov rdx, [r8 + {kept}]",
    "mov rsi, [r8 + {spoiled}]",
    "xor ecx, ecx",
    "2:",
    "mov rax, [r8 + {exit} + {general} + 8 * rcx]",
    "bt rdx, rcx",
    "cmovc rax, [r8 + {entry} + {general} + 8 * rcx]",
    "bt rsi, rcx",
    "cmovc rax, [r8 + {canaries} + 8 * rcx]",
    "mov [r8 + {load} + 8 * rcx], rax",
    "inc ecx",
    "cmp ecx, 16",
    "jne 2b",
    "cmp qword ptr [r8 + {vectors}], 0",
    "je 2f",
    "uruk_spoil 4",
    "uruk_spoil 5",
    "uruk_spoil 6",
    "uruk_spoil 7",
    "uruk_spoil 8",
    "uruk_spoil 9",
    "uruk_spoil 10",
    "uruk_spoil 11",
    "uruk_spoil 12",
    "uruk_spoil 13",
    "uruk_spoil 14",
    "uruk_spoil 15",
    "2:",
    "uruk_load",
    "jmp qword ptr [rip + {state} + {back}]",
    ".size uruk_abi_boundary, . - uruk_abi_boundary",
    ".globl uruk_abi_hop",
    ".type uruk_abi_hop, @function",
    "uruk_abi_hop:",
    "jmp qword ptr [rip + {state} + {hop}]",
    ".size uruk_abi_hop, . - uruk_abi_hop",
    state = sym STATE,
    entry = const offset_of!(State, entry),
    exit = const offset_of!(State, exit),
    general = const offset_of!(Seen, general),
    flags = const offset_of!(Seen, flags),
    canaries = const offset_of!(State, canaries),
    load = const offset_of!(State, load),
    target = const offset_of!(State, target),
    hop = const offset_of!(State, hop),
    back = const offset_of!(State, back),
    filled = const offset_of!(State, filled),
    kept = const offset_of!(State, kept),
    spoiled = const offset_of!(State, spoiled),
    vectors = const offset_of!(State, vectors),
    returned = const offset_of!(State, returned),
);

/// The type of callers in IR: `void (ptr, ptr)`.
pub type Caller = extern "C" fn(*const u8, *mut u8);

/// The record of one call.
#[derive(Debug, Clone)]
pub struct Passed {
    pub entry: Seen,
    pub exit: Seen,
    pub canaries: [u64; 16],
    pub returned: u64,
}

/// Calls a caller that calls `target` through the boundary, which may call `hop` by the other name.
///
/// # Safety
/// 1. The addresses are of functions that fit each other.
/// 2. One thread calls this.
pub unsafe fn run(
    registers: Registers,
    caller: impl FnOnce(),
    target: u64,
    hop: u64,
    canaries: [u64; 16],
) -> Passed {
    let state = STATE.0.get();
    // SAFETY: by the second duty, nothing else uses the state now.
    unsafe {
        (*state).target = target;
        (*state).hop = hop;
        (*state).canaries = canaries;
        (*state).filled = registers.filled.into();
        (*state).kept = (registers.kept & registers.filled).into();
        (*state).spoiled = registers.spoiled.into();
        (*state).vectors = registers.spoils_vectors.into();
        (*state).returned = 0;
    }
    caller();
    // SAFETY: as above; code that the caller reached has written it.
    unsafe {
        Passed {
            entry: (*state).entry.clone(),
            exit: (*state).exit.clone(),
            canaries,
            returned: (*state).returned,
        }
    }
}
