//! A call into guest code that can be left at any instruction. The registers that a call preserves
//! are saved before it; to *land* is to load them again.
//!
//! Like `setjmp` and `longjmp`, but the caller sees one return only, as of any call, so compilers
//! need no special case. Frames in between are dropped without being unwound. A signal handler
//! lands by making its thread continue at [`landing_address`], with the landing in `rdi`; so the
//! kernel ends the handler, with its mask and its stack.
//!
//! | register | kept |
//! |---|---|
//! | `rbx`, `rbp`, `rsp`, `r12` to `r15` | as the psABI asks of every call |
//! | `mxcsr`'s and the x87 control word | likewise; the x87 stack is emptied, as it is after every call |
//! | the direction flag | clear, likewise |

use std::arch::naked_asm;

/// The saved registers of a call that can be left.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Landing {
    rsp: u64,
    rbp: u64,
    rbx: u64,
    r12: u64,
    r13: u64,
    r14: u64,
    r15: u64,
    rip: u64,
    mxcsr: u32,
    control: u32,
}

impl Landing {
    /// An empty landing, not used for a call yet.
    pub const fn new() -> Landing {
        Landing {
            rsp: 0,
            rbp: 0,
            rbx: 0,
            r12: 0,
            r13: 0,
            r14: 0,
            r15: 0,
            rip: 0,
            mxcsr: 0,
            control: 0,
        }
    }

    /// The stack pointer of the call; its frames lie below.
    pub fn stack(&self) -> u64 {
        self.rsp
    }
}

/// Calls `f(data)`; 0 if it returned, 1 if it was left by [`land`]. Unwinding passes.
///
/// # Safety
/// 1. `f` may be called with `data`.
/// 2. `landing` is valid, and not used elsewhere during the call.
/// 3. Frames between this one and the one that lands need no cleanup when they end.
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn call_landed(
    landing: *mut Landing,
    f: unsafe extern "C-unwind" fn(*mut u8),
    data: *mut u8,
) -> u32 {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov [rdi], rsp",
        "mov [rdi + 8], rbp",
        "mov [rdi + 16], rbx",
        "mov [rdi + 24], r12",
        "mov [rdi + 32], r13",
        "mov [rdi + 40], r14",
        "mov [rdi + 48], r15",
        "lea rax, [rip + 2f]",
        "mov [rdi + 56], rax",
        "stmxcsr [rdi + 64]",
        "fnstcw [rdi + 68]",
        "mov rax, rsi",
        "mov rdi, rdx",
        "call rax",
        "xor eax, eax",
        "2:",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}

/// Leaves the innermost frames, up to the [`call_landed`] of `landing`.
///
/// # Safety
/// 1. `landing` is of a call in progress, on this thread.
/// 2. Duty 3 of [`call_landed`].
#[unsafe(naked)]
pub unsafe extern "C" fn land(landing: *const Landing) -> ! {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined rip",
        "cld",
        "fninit",
        "fldcw [rdi + 68]",
        "ldmxcsr [rdi + 64]",
        "mov rsp, [rdi]",
        "mov rbp, [rdi + 8]",
        "mov rbx, [rdi + 16]",
        "mov r12, [rdi + 24]",
        "mov r13, [rdi + 32]",
        "mov r14, [rdi + 40]",
        "mov r15, [rdi + 48]",
        "mov eax, 1",
        "jmp [rdi + 56]",
        ".cfi_endproc",
    )
}

/// The address at which a thread must continue to [`land`].
pub fn landing_address() -> u64 {
    land as *const () as u64
}

/// Registers before and after a call whose type is known only at run time ([`call_values`]).
#[repr(C)]
#[derive(Debug, Default, Clone, Copy)]
pub struct Values {
    /// `rdi`, `rsi`, `rdx`, `rcx`, `r8`, `r9`.
    pub general: [u64; 6],
    /// The low halves of `xmm0` to `xmm7`.
    pub vector: [u64; 8],
    /// Result: `rax` and `rdx`.
    pub general_result: [u64; 2],
    /// Result: the low halves of `xmm0` and `xmm1`.
    pub vector_result: [u64; 2],
}

/// Calls the function at `entry` with these registers and with `words` words on the stack, the
/// first at `stack`.
///
/// # Safety
/// 1. `entry` is the address of a function that may be called with these values.
/// 2. `values` is valid; `stack` is, for `words` words.
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn call_values(
    entry: u64,
    values: *mut Values,
    stack: *const u64,
    words: usize,
) {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "push rbx",
        ".cfi_offset rbx, -24",
        "push r12",
        ".cfi_offset r12, -32",
        "mov rbx, rsi",
        "mov r11, rdi",
        // Rounded up to an even number of words, so that the stack stays aligned.
        "lea rax, [rcx + 1]",
        "and rax, -2",
        "shl rax, 3",
        "sub rsp, rax",
        "xor eax, eax",
        "2:",
        "cmp rax, rcx",
        "jae 3f",
        "mov r10, [rdx + rax * 8]",
        "mov [rsp + rax * 8], r10",
        "inc rax",
        "jmp 2b",
        "3:",
        "movq xmm0, [rbx + 48]",
        "movq xmm1, [rbx + 56]",
        "movq xmm2, [rbx + 64]",
        "movq xmm3, [rbx + 72]",
        "movq xmm4, [rbx + 80]",
        "movq xmm5, [rbx + 88]",
        "movq xmm6, [rbx + 96]",
        "movq xmm7, [rbx + 104]",
        "mov rdi, [rbx]",
        "mov rsi, [rbx + 8]",
        "mov rdx, [rbx + 16]",
        "mov rcx, [rbx + 24]",
        "mov r8, [rbx + 32]",
        "mov r9, [rbx + 40]",
        // The number of vector registers that a variadic function may read.
        "mov eax, 8",
        "call r11",
        "mov [rbx + 112], rax",
        "mov [rbx + 120], rdx",
        "movq [rbx + 128], xmm0",
        "movq [rbx + 136], xmm1",
        "lea rsp, [rbp - 16]",
        "pop r12",
        "pop rbx",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The data of a call that can be left.
    struct Work {
        landing: *const Landing,
        leave: bool,
        done: u32,
    }

    unsafe extern "C-unwind" fn work(data: *mut u8) {
        // SAFETY: the test's own.
        let work = unsafe { &mut *data.cast::<Work>() };
        work.done += 1;
        if work.leave {
            // SAFETY: the test's call is in progress; no frame in between needs cleanup.
            unsafe { land(work.landing) }
        }
        work.done += 10;
    }

    #[test]
    fn a_call_returns_or_is_left_and_what_was_there_is_there() {
        for leave in [false, true] {
            let mut landing = Landing::new();
            let kept: Vec<u32> = (0..20).collect();
            let mut of = Work {
                landing: &raw const landing,
                leave,
                done: 0,
            };
            // SAFETY: `work` takes a `Work`.
            let left = unsafe { call_landed(&raw mut landing, work, (&raw mut of).cast()) };
            assert_eq!((left, of.done), if leave { (1, 1) } else { (0, 11) });
            assert_eq!(kept.iter().sum::<u32>(), 190);
        }
    }

    extern "C" fn ten(
        a: u64,
        b: f64,
        c: u64,
        d: u64,
        e: u64,
        f: u64,
        g: u64,
        h: u64,
        i: u64,
    ) -> f64 {
        (a + 2 * c + 3 * d + 4 * e + 5 * f + 6 * g + 7 * h + 8 * i) as f64 * b
    }

    #[test]
    fn values_go_to_registers_and_the_stack() {
        let mut values = Values {
            general: [1, 2, 3, 4, 5, 6],
            ..Values::default()
        };
        values.vector[0] = 0.5_f64.to_bits();
        let stack = [7_u64, 8];
        let entry = ten as *const () as u64;
        // SAFETY: as `ten` wants them.
        unsafe { call_values(entry, &raw mut values, stack.as_ptr(), stack.len()) };
        let expected = ten(1, 0.5, 2, 3, 4, 5, 6, 7, 8);
        assert_eq!(f64::from_bits(values.vector_result[0]), expected);
    }
}
