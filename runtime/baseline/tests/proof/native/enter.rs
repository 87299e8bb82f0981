//! Enters and leaves code under test: the few instructions that set and read registers.
//!
//! One thread at a time is in such code; [`CURRENT`] is its frame. After a signal or a timeout the
//! handler moves the thread to `recover`, which returns to the caller of the code.

use std::arch::global_asm;

/// Registers and stack words on entry, and those on exit.
#[repr(C)]
#[derive(Debug, Clone)]
pub struct Entry {
    pub target: u64,
    pub ints: [u64; 6],
    pub r10: u64,
    pub rax: u64,
    pub sse: [[u64; 2]; 8],
    pub stack: *const u64,
    /// An even number.
    pub stack_words: u64,
    pub saved_rsp: u64,
    pub out_ints: [u64; 3],
    pub out_sse: [[u64; 2]; 2],
    pub x87_results: u64,
    pub out_x87: [[u64; 2]; 2],
    /// rbx, rbp, r12 to r15.
    pub kept: [u64; 6],
    pub rsp_after: u64,
    pub rsp_before: u64,
    /// The signal that ended it, or 0, with its address and the fault's address.
    pub signal: u64,
    pub at: u64,
    pub about: u64,
}

/// Values of callee-saved registers at the entry.
pub const KEPT: [u64; 6] = [
    0xb0b0_1111_2222_3333,
    0xb1b1_1111_2222_3333,
    0xb2b2_1111_2222_3333,
    0xb3b3_1111_2222_3333,
    0xb4b4_1111_2222_3333,
    0xb5b5_1111_2222_3333,
];

/// Registers on entry of a host, and its results.
#[repr(C)]
#[derive(Debug)]
pub struct Captured {
    pub host: u64,
    pub ints: [u64; 6],
    pub r10: u64,
    pub rax: u64,
    pub sse: [[u64; 2]; 8],
    /// The first argument on the stack.
    pub stack: *const u64,
    pub out_ints: [u64; 3],
    pub out_sse: [[u64; 2]; 2],
    pub x87_results: u64,
    pub out_x87: [[u64; 2]; 2],
}

/// The frame of the thread that is in code under test, or null.
pub static CURRENT: std::sync::atomic::AtomicPtr<Entry> =
    std::sync::atomic::AtomicPtr::new(std::ptr::null_mut());

global_asm!(
    ".globl uruk_proof_enter",
    "uruk_proof_enter:",
    "push rbp", "push rbx", "push r12", "push r13", "push r14", "push r15",
    "sub rsp, 8",
    "mov [rip + {current}], rdi",
    "mov [rdi + {saved_rsp}], rsp",
    "mov rcx, [rdi + {stack_words}]",
    "mov rsi, [rdi + {stack}]",
    "lea rax, [rcx * 8]",
    "sub rsp, rax",
    "2:",
    "test rcx, rcx",
    "jz 3f",
    "mov rdx, [rsi + rcx * 8 - 8]",
    "mov [rsp + rcx * 8 - 8], rdx",
    "dec rcx",
    "jmp 2b",
    "3:",
    "mov [rdi + {rsp_before}], rsp",
    "fninit",
    "cld",
    "movups xmm0, [rdi + {sse}]",
    "movups xmm1, [rdi + {sse} + 16]",
    "movups xmm2, [rdi + {sse} + 32]",
    "movups xmm3, [rdi + {sse} + 48]",
    "movups xmm4, [rdi + {sse} + 64]",
    "movups xmm5, [rdi + {sse} + 80]",
    "movups xmm6, [rdi + {sse} + 96]",
    "movups xmm7, [rdi + {sse} + 112]",
    "pcmpeqd xmm8, xmm8", "pcmpeqd xmm9, xmm9", "pcmpeqd xmm10, xmm10", "pcmpeqd xmm11, xmm11",
    "pcmpeqd xmm12, xmm12", "pcmpeqd xmm13, xmm13", "pcmpeqd xmm14, xmm14",
    "pcmpeqd xmm15, xmm15",
    "lea r11, [rip + {kept_in}]",
    "mov rbx, [r11]", "mov rbp, [r11 + 8]", "mov r12, [r11 + 16]", "mov r13, [r11 + 24]",
    "mov r14, [r11 + 32]", "mov r15, [r11 + 40]",
    "mov r11, [rdi + {target}]",
    "mov r10, [rdi + {r10}]",
    "mov rax, [rdi + {rax}]",
    "mov rsi, [rdi + {ints} + 8]", "mov rdx, [rdi + {ints} + 16]",
    "mov rcx, [rdi + {ints} + 24]", "mov r8, [rdi + {ints} + 32]",
    "mov r9, [rdi + {ints} + 40]",
    "mov rdi, [rdi + {ints}]",
    "call r11",
    "mov r11, [rip + {current}]",
    "mov [r11 + {out_ints}], rax", "mov [r11 + {out_ints} + 8], rdx",
    "mov [r11 + {out_ints} + 16], rcx",
    "movups [r11 + {out_sse}], xmm0", "movups [r11 + {out_sse} + 16], xmm1",
    "mov [r11 + {kept}], rbx", "mov [r11 + {kept} + 8], rbp", "mov [r11 + {kept} + 16], r12",
    "mov [r11 + {kept} + 24], r13", "mov [r11 + {kept} + 32], r14",
    "mov [r11 + {kept} + 40], r15",
    "mov [r11 + {rsp_after}], rsp",
    "cmp qword ptr [r11 + {x87_results}], 0",
    "je 4f",
    "fstp tbyte ptr [r11 + {out_x87}]",
    "cmp qword ptr [r11 + {x87_results}], 1",
    "je 4f",
    "fstp tbyte ptr [r11 + {out_x87} + 16]",
    "4:",
    ".globl uruk_proof_recover",
    "uruk_proof_recover:",
    "mov r11, [rip + {current}]",
    "mov rsp, [r11 + {saved_rsp}]",
    "mov qword ptr [rip + {current}], 0",
    "cld",
    "fninit",
    "add rsp, 8",
    "pop r15", "pop r14", "pop r13", "pop r12", "pop rbx", "pop rbp",
    "ret",
    current = sym CURRENT,
    kept_in = sym KEPT_IN,
    target = const std::mem::offset_of!(Entry, target),
    ints = const std::mem::offset_of!(Entry, ints),
    r10 = const std::mem::offset_of!(Entry, r10),
    rax = const std::mem::offset_of!(Entry, rax),
    sse = const std::mem::offset_of!(Entry, sse),
    stack = const std::mem::offset_of!(Entry, stack),
    stack_words = const std::mem::offset_of!(Entry, stack_words),
    saved_rsp = const std::mem::offset_of!(Entry, saved_rsp),
    rsp_before = const std::mem::offset_of!(Entry, rsp_before),
    rsp_after = const std::mem::offset_of!(Entry, rsp_after),
    out_ints = const std::mem::offset_of!(Entry, out_ints),
    out_sse = const std::mem::offset_of!(Entry, out_sse),
    kept = const std::mem::offset_of!(Entry, kept),
    x87_results = const std::mem::offset_of!(Entry, x87_results),
    out_x87 = const std::mem::offset_of!(Entry, out_x87),
);

static KEPT_IN: [u64; 6] = KEPT;

// A host's stub has put its number into r11. All caller-saved registers are clobbered.
global_asm!(
    ".globl uruk_proof_host",
    "uruk_proof_host:",
    "push rbp",
    "mov rbp, rsp",
    "sub rsp, {size}",
    "and rsp, -16",
    "mov [rsp + {host}], r11",
    "mov [rsp + {ints}], rdi", "mov [rsp + {ints} + 8], rsi", "mov [rsp + {ints} + 16], rdx",
    "mov [rsp + {ints} + 24], rcx", "mov [rsp + {ints} + 32], r8", "mov [rsp + {ints} + 40], r9",
    "mov [rsp + {r10}], r10",
    "mov [rsp + {rax}], rax",
    "movups [rsp + {sse}], xmm0", "movups [rsp + {sse} + 16], xmm1",
    "movups [rsp + {sse} + 32], xmm2", "movups [rsp + {sse} + 48], xmm3",
    "movups [rsp + {sse} + 64], xmm4", "movups [rsp + {sse} + 80], xmm5",
    "movups [rsp + {sse} + 96], xmm6", "movups [rsp + {sse} + 112], xmm7",
    "lea rax, [rbp + 16]",
    "mov [rsp + {stack}], rax",
    "mov rdi, rsp",
    "call {answered}",
    "cmp qword ptr [rsp + {x87_results}], 0",
    "je 3f",
    "cmp qword ptr [rsp + {x87_results}], 1",
    "je 2f",
    "fld tbyte ptr [rsp + {out_x87} + 16]",
    "2:",
    "fld tbyte ptr [rsp + {out_x87}]",
    "3:",
    "mov rax, [rsp + {out_ints}]", "mov rdx, [rsp + {out_ints} + 8]",
    "mov rcx, [rsp + {out_ints} + 16]",
    "movups xmm0, [rsp + {out_sse}]", "movups xmm1, [rsp + {out_sse} + 16]",
    "pcmpeqd xmm2, xmm2",
    "movaps xmm3, xmm2", "movaps xmm4, xmm2", "movaps xmm5, xmm2", "movaps xmm6, xmm2",
    "movaps xmm7, xmm2", "movaps xmm8, xmm2", "movaps xmm9, xmm2", "movaps xmm10, xmm2",
    "movaps xmm11, xmm2", "movaps xmm12, xmm2", "movaps xmm13, xmm2", "movaps xmm14, xmm2",
    "movaps xmm15, xmm2",
    "mov rsi, 0x5151515151515151", "mov rdi, 0x5252525252525252",
    "mov r8, 0x5353535353535353", "mov r9, 0x5454545454545454",
    "mov r10, 0x5555555555555555", "mov r11, 0x5656565656565656",
    "leave",
    "ret",
    answered = sym super::host::answered,
    size = const std::mem::size_of::<Captured>() + 16,
    host = const std::mem::offset_of!(Captured, host),
    ints = const std::mem::offset_of!(Captured, ints),
    r10 = const std::mem::offset_of!(Captured, r10),
    rax = const std::mem::offset_of!(Captured, rax),
    sse = const std::mem::offset_of!(Captured, sse),
    stack = const std::mem::offset_of!(Captured, stack),
    out_ints = const std::mem::offset_of!(Captured, out_ints),
    out_sse = const std::mem::offset_of!(Captured, out_sse),
    x87_results = const std::mem::offset_of!(Captured, x87_results),
    out_x87 = const std::mem::offset_of!(Captured, out_x87),
);

unsafe extern "C" {
    /// Enters [`Entry::target`] and returns with its results.
    ///
    /// # Safety
    /// 1. `Entry::target` is code, and `Entry::stack` has its words.
    /// 2. No other thread is within, and the handlers of signals are installed.
    pub fn uruk_proof_enter(entry: *mut Entry);
    /// The address to which a thread is moved that cannot return itself.
    pub fn uruk_proof_recover();
    /// The target of the stubs of hosts.
    pub fn uruk_proof_host();
}
