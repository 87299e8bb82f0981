//! Scans the thread that asks: its registers, and its own stack from there upwards.

use crate::look::{Looker, why};
use crate::report::How;
use crate::sys;
use crate::walk::{RED_ZONE, Trouble};

/// Callee-saved registers and the stack pointer.
#[inline(always)]
pub(crate) fn caller_registers() -> [u64; 7] {
    let mut registers = [0u64; 7];
    // SAFETY: writes the seven words.
    unsafe {
        core::arch::asm!(
            "mov [{to}], rbx",
            "mov [{to} + 8], rbp",
            "mov [{to} + 16], r12",
            "mov [{to} + 24], r13",
            "mov [{to} + 32], r14",
            "mov [{to} + 40], r15",
            "mov [{to} + 48], rsp",
            to = in(reg) registers.as_mut_ptr(),
            options(nostack, preserves_flags),
        );
    }
    registers
}

/// Scans the calling thread from where `registers` were taken upwards. There is no red zone: below are
/// the scan's own frames.
pub(crate) fn scan_caller(looker: &mut Looker<'_>, registers: &[u64; 7]) -> How {
    let tcb = sys::robust_list(0);
    let mut trouble = Trouble::Stale(0);
    for _ in 0..4 {
        let range = looker.range().clone();
        looker.hits.reset(&range);
        registers.iter().for_each(|&word| looker.hits.note(word));
        match looker.walk(sys::gettid(), tcb, registers[6] + RED_ZONE) {
            Ok(scanned) => return How::Caller { scanned },
            Err(found) => trouble = found,
        }
        if let Err(why) = looker.cure(trouble) {
            return How::Unanswered { why };
        }
    }
    How::Unanswered { why: why(trouble) }
}
