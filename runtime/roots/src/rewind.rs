//! A system call that our signal ended with `EINTR` is made again.
//!
//! Threads in system calls are not signalled, but one may enter a call between the look
//! and the signal. The kernel restarts most calls by itself under `SA_RESTART`; those
//! that it ends with `EINTR` all the same (`poll` and its kin, sleeps, waits with a
//! timeout) arrive in the handler as `rax == -EINTR` right behind a `syscall`
//! instruction. If the bytes before it tell the call's number,
//!
//! ```text
//! b8 imm32        mov eax, imm32          0f 05  syscall
//! 48 c7 c0 imm32  mov rax, imm32          0f 05  syscall
//! 31 c0           xor eax, eax            0f 05  syscall
//! ```
//!
//! and the call is in the table below, the context is changed: `rip -= 2, rax = number`.
//! All other registers are as they were: a system call keeps them but for rcx and r11.
//! glibc's wrappers of the calls below have the first form; its `syscall(2)` and its
//! inner futex loops (which repeat on `EINTR` themselves) do not.
//!
//! A relative timeout begins anew, so a wait can take longer by the time from its start
//! to the signal: microseconds, because only a thread seen running is signalled.
//! Deadlines are exact, and `select` is told the rest by the kernel.
//!
//! # What is left alone
//! - Calls that wait with a signal mask of their own (`ppoll`, `pselect`, `epoll_pwait`
//!   with one, `sigsuspend`): whoever uses them expects `EINTR`, and repeating a call
//!   that a signal of the program ended rightly would lose that signal.
//! - `close`, which must not be repeated, and all calls not in the table.
//! - Any call when a signal the program handles is pending: it gets `EINTR` from that.
//!
//! If the program's own handler ended the call and ours comes before the next user
//! instruction, the call is repeated, as though the program's signal had come right
//! before the call. For the calls above without a mask programs must expect that.

/// What the handler finds about the interrupted call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interrupted {
    /// To be made again.
    Again(u32),
    /// Ends with `EINTR`.
    Stays,
}

/// The instruction bytes before the return address of a system call.
pub(crate) const CODE_BYTES: usize = 16;

/// Decides by the bytes that end with the `syscall` instruction, and its arguments
/// (rdi, rsi, rdx, r10, r8, r9). `word` reads memory of the process.
pub(crate) fn decide(
    code: &[u8; CODE_BYTES],
    args: &[u64; 6],
    word: impl FnOnce(u64) -> Option<u64>,
) -> Interrupted {
    match number(code) {
        Some(number) if repeatable(number, args, word) => Interrupted::Again(number),
        _ => Interrupted::Stays,
    }
}

fn number(code: &[u8; CODE_BYTES]) -> Option<u32> {
    match code {
        [.., 0x48, 0xc7, 0xc0, a, b, c, d, 0x0f, 0x05] | [.., 0xb8, a, b, c, d, 0x0f, 0x05] => {
            Some(u32::from_le_bytes([*a, *b, *c, *d]))
        }
        [.., 0x31, 0xc0, 0x0f, 0x05] => Some(0),
        _ => None,
    }
}

/// Whether making the call again with the same registers does what the call would have
/// done without a signal.
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
    use super::{CODE_BYTES, Interrupted, decide};

    fn code(tail: &[u8]) -> [u8; CODE_BYTES] {
        let mut code = [0x90; CODE_BYTES];
        code[CODE_BYTES - tail.len()..].copy_from_slice(tail);
        code
    }

    fn check(tail: &[u8], args: [u64; 6]) -> Interrupted {
        decide(&code(tail), &args, |address| (address == 0x40).then_some(0))
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
}
