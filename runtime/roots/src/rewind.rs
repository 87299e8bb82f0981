//! Restarts a system call that our signal ended with `EINTR`.
//!
//! Threads in system calls are not signalled, but one may enter a call between the look and the signal.
//! The kernel restarts most calls itself under `SA_RESTART`. Those that it still ends with `EINTR`
//! (`poll` and its kin, sleeps, waits with a timeout) arrive in the handler as `rax == -EINTR` right
//! behind a `syscall` instruction. If the bytes before it show the call's number,
//!
//! ```text
//! b8 imm32        mov eax, imm32          0f 05  syscall
//! 48 c7 c0 imm32  mov rax, imm32          0f 05  syscall
//! 31 c0           xor eax, eax            0f 05  syscall
//! ```
//!
//! with at most four loads of arguments from the stack between the two (glibc's `pselect` and `recvfrom`
//! have them), and the call is in the table below, the context is changed: `rip -= 2, rax = number`. All
//! other registers are unchanged: a system call preserves them except rcx and r11. glibc's wrappers of
//! the calls below have the first form. Its inner futex loops (which repeat on `EINTR` themselves) do
//! not. Nor has its `syscall(2)`, which [`program_syscall`] replaces for JIT'd code, and for all code of
//! a native program.
//!
//! A stop ends no call: when the process is continued, the kernel continues with the rest of the time by
//! `restart_syscall`. But a signal that is handled right before that makes the kernel forget the call to
//! restart, and the call ends with `EINTR`. In the handler this is `rax == 219` at a `syscall`
//! instruction; the call is then begun anew, too.
//!
//! A relative timeout begins anew, so a wait can take longer by the time from its start to the signal:
//! microseconds, because only a thread seen running is signalled. Deadlines are exact, and the kernel
//! updates the timeout of `select`.
//!
//! # Calls that are not restarted
//! - Calls that wait with a signal mask of their own (`ppoll`, `pselect`, `epoll_pwait` with one,
//!   `sigsuspend`): their callers expect `EINTR`, and repeating a call that a signal of the program
//!   ended rightly would lose that signal.
//! - `close`, which must not be repeated, and all calls not in the table.
//! - Any call when a signal the program handles is pending: it gets `EINTR` from that.
//!
//! If the program's own handler ended the call and ours comes before the next user
//! instruction, the call is repeated, as though the program's signal had come right
//! before the call. For the calls above without a mask programs must expect that.

use std::arch::naked_asm;

/// The handler's decision about the interrupted call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interrupted {
    /// It is restarted.
    Again(u32),
    /// It ends with `EINTR`.
    Stays,
}

/// Examined instruction bytes before the return address of a system call.
pub(crate) const CODE_BYTES: usize = 32;

/// The instruction itself.
pub(crate) const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// Most loads of arguments that glibc puts between the number and the instruction.
const LOADS: usize = 4;

/// High half of the mark that [`program_syscall`] leaves in `xmm15`.
const NOTE: u64 = 0x7572_756b;

/// Decides by the call's number and its arguments (rdi, rsi, rdx, r10, r8, r9). `word` reads
/// memory of the process.
pub(crate) fn decide(
    number: Option<u32>,
    args: &[u64; 6],
    word: impl FnOnce(u64) -> Option<u64>,
) -> Interrupted {
    match number {
        Some(number) if repeatable(number, args, word) => Interrupted::Again(number),
        _ => Interrupted::Stays,
    }
}

/// The number that the bytes before the end of the instruction load, if they have a known form.
pub(crate) fn number(code: &[u8; CODE_BYTES]) -> Option<u32> {
    let mut code = code.strip_suffix(&SYSCALL)?;
    for _ in 0..=LOADS {
        match code {
            // No call has a number of three bytes: such bytes are another instruction.
            [.., 0x48, 0xc7, 0xc0, a, b, 0, 0] | [.., 0xb8, a, b, 0, 0] => {
                return Some(u32::from_le_bytes([*a, *b, 0, 0]));
            }
            [.., 0x31, 0xc0] => return Some(0),
            _ => {}
        }
        code = without_load(code)?;
    }
    None
}

/// The bytes before a load from `[rsp + disp8]` of a register other than rax.
fn without_load(code: &[u8]) -> Option<&[u8]> {
    let [rest @ .., 0x8b, modrm, 0x24, _] = code else {
        return None;
    };
    if modrm & 0b1100_0111 != 0b0100_0100 {
        return None;
    }
    let (rest, high) = match rest {
        [rest @ .., prefix @ (0x44 | 0x48 | 0x4c)] => (rest, prefix & 4 != 0),
        _ => (rest, false),
    };
    (high || modrm >> 3 & 7 != 0).then_some(rest)
}

/// `syscall` for the program: like the C library's function, with the number of the call in `xmm15`
/// while it lasts. No call takes an argument in this register, the kernel preserves it and the caller
/// does not expect it back. Nothing is put on the stack, which may be another one when the kernel
/// returns.
///
/// # Safety
/// Those of `syscall`.
#[unsafe(naked)]
pub unsafe extern "C" fn program_syscall() {
    naked_asm!(
        "mov eax, edi",
        "movabs r11, {note}",
        "or rax, r11",
        "movq xmm15, rax",
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, [rsp + 8]",
        "syscall",
        ".globl uruk_roots_after_own_call",
        ".hidden uruk_roots_after_own_call",
        "uruk_roots_after_own_call:",
        "cmp rax, -4095",
        "jae 2f",
        "ret",
        "2:",
        "neg eax",
        "push rax",
        "call {errno}",
        "pop rcx",
        "mov [rax], ecx",
        "mov rax, -1",
        "ret",
        note = const NOTE << 32,
        errno = sym libc::__errno_location,
    )
}

unsafe extern "C" {
    static uruk_roots_after_own_call: u8;
}

/// The address behind the `syscall` instruction of [`program_syscall`].
pub(crate) fn own_call() -> u64 {
    (&raw const uruk_roots_after_own_call) as u64
}

/// The number that [`program_syscall`] left.
pub(crate) fn noted(register: u64) -> Option<u32> {
    (register >> 32 == NOTE).then_some(register as u32)
}

/// Whether making the call again with the same registers has the effect that the call would have had
/// without a signal.
fn repeatable(number: u32, args: &[u64; 6], word: impl FnOnce(u64) -> Option<u64>) -> bool {
    match i64::from(number) {
        libc::SYS_poll
        | libc::SYS_select
        | libc::SYS_epoll_wait
        | libc::SYS_nanosleep
        | libc::SYS_clock_nanosleep
        | libc::SYS_pause
        | libc::SYS_futex
        | libc::SYS_futex_waitv
        | libc::SYS_semop
        | libc::SYS_semtimedop
        | libc::SYS_msgrcv
        | libc::SYS_msgsnd
        | libc::SYS_rt_sigtimedwait
        | libc::SYS_io_getevents => true,
        // Sockets with a timeout; restarted by the kernel otherwise.
        libc::SYS_read
        | libc::SYS_write
        | libc::SYS_readv
        | libc::SYS_writev
        | libc::SYS_accept
        | libc::SYS_accept4
        | libc::SYS_recvfrom
        | libc::SYS_recvmsg
        | libc::SYS_sendto
        | libc::SYS_sendmsg => true,
        libc::SYS_ppoll => args[3] == 0,
        libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => args[4] == 0,
        // The last argument points at the mask's address and size.
        libc::SYS_pselect6 => args[5] == 0 || word(args[5]) == Some(0),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{CODE_BYTES, Interrupted, decide, noted, number, program_syscall};

    fn code(tail: &[u8]) -> [u8; CODE_BYTES] {
        let mut code = [0x90; CODE_BYTES];
        code[CODE_BYTES - tail.len()..].copy_from_slice(tail);
        code
    }

    fn check(tail: &[u8], args: [u64; 6]) -> Interrupted {
        decide(number(&code(tail)), &args, |address| {
            (address == 0x40).then_some(0)
        })
    }

    #[test]
    fn known_forms_of_known_calls_are_repeated() {
        let again = Interrupted::Again;
        assert_eq!(check(&[0xb8, 7, 0, 0, 0, 0x0f, 5], [0; 6]), again(7));
        let wide = [0x48, 0xc7, 0xc0, 230, 0, 0, 0, 0x0f, 5];
        assert_eq!(check(&wide, [0; 6]), again(230));
        assert_eq!(check(&[0x31, 0xc0, 0x0f, 5], [0; 6]), again(0));
        assert_eq!(check(&[0xb8, 0x0e, 1, 0, 0, 0x0f, 5], [0; 6]), again(270));
    }

    #[test]
    fn masks_closes_and_unknown_forms_stay() {
        let mask = [1, 1, 1, 1, 1, 0x48];
        for call in [271u32, 281, 441, 270, 130, 3] {
            let [a, b, c, d] = call.to_le_bytes();
            let tail = [0xb8, a, b, c, d, 0x0f, 5];
            assert_eq!(check(&tail, mask), Interrupted::Stays, "call {call}");
        }
        let null_mask = [1, 1, 1, 1, 1, 0x40];
        let pselect = [0xb8, 0x0e, 1, 0, 0, 0x0f, 5];
        assert_eq!(check(&pselect, null_mask), Interrupted::Again(270));
        assert_eq!(
            check(&[0x44, 0x89, 0xc0, 0x0f, 5], [0; 6]),
            Interrupted::Stays
        );
        assert_eq!(
            check(&[0xb8, 7, 0, 0, 0, 0xcd, 0x80], [0; 6]),
            Interrupted::Stays
        );
    }
    #[test]
    fn arguments_may_be_loaded_behind_the_number() {
        let loads = [
            0x48, 0x8b, 0x54, 0x24, 0x10, 0x8b, 0x7c, 0x24, 0x1c, 0x0f, 5,
        ];
        let with = |number: &[u8]| {
            let tail = [number, &loads[..]].concat();
            number_of(&tail)
        };
        assert_eq!(with(&[0xb8, 0x0e, 1, 0, 0]), Some(270));
        assert_eq!(with(&[0x31, 0xc0]), Some(0));
        // rax itself, another base, a number that is none.
        let rax = [0xb8, 7, 0, 0, 0, 0x48, 0x8b, 0x44, 0x24, 8, 0x0f, 5];
        assert_eq!(number_of(&rax), None);
        let r8 = [0xb8, 7, 0, 0, 0, 0x4c, 0x8b, 0x44, 0x24, 8, 0x0f, 5];
        assert_eq!(number_of(&r8), Some(7));
        assert_eq!(number_of(&[0xb8, 7, 0, 0, 0, 0x8b, 0x7d, 8, 0x0f, 5]), None);
        assert_eq!(number_of(&[0xb8, 7, 0, 1, 0, 0x0f, 5]), None);
    }

    fn number_of(tail: &[u8]) -> Option<u32> {
        number(&code(tail))
    }

    #[test]
    fn the_programs_syscall_is_the_librarys() {
        type Call = unsafe extern "C" fn(i64, u64, u64, u64, u64, u64, u64) -> i64;
        // SAFETY: `syscall` takes up to seven words.
        let call = unsafe { std::mem::transmute::<*const (), Call>(program_syscall as *const ()) };
        let mut word = [7u64];
        let read = [word.as_mut_ptr() as u64, 8];
        // SAFETY: reads a word of ours into itself, and closes nothing.
        let (copied, closed) = unsafe {
            let (at, pid) = (read.as_ptr() as u64, std::process::id().into());
            (
                call(libc::SYS_process_vm_readv, pid, at, 1, at, 1, 0),
                call(libc::SYS_close, u64::MAX, 0, 0, 0, 0, 0),
            )
        };
        let error = std::io::Error::last_os_error().raw_os_error();
        assert_eq!((copied, closed, error), (8, -1, Some(libc::EBADF)));
        // SAFETY: with six arguments the last is on the stack: flags that are not allowed.
        let refused = unsafe { call(libc::SYS_process_vm_readv, 0, 0, 0, 0, 0, 1) };
        assert_eq!(refused, -1);
        assert_eq!((noted(7), noted(0x7572_756b_0000_0007)), (None, Some(7)));
    }
}
