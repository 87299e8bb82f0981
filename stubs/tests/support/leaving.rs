//! Leaves a call from a signal handler, as `siglongjmp` does, in assembly: Rust code must not call
//! `setjmp`.

use std::arch::naked_asm;
use std::cell::Cell;
use std::ptr;

/// The place at which [`attempt`] continues when it is left, like a `jmp_buf`.
#[repr(C)]
pub struct Resume {
    pub rip: u64,
    pub rsp: u64,
}

/// Calls `entry`; returns its value with bit 63 clear, or bit 63 set if a handler set rip and rsp
/// to those in `resume`. Executes `int3` before if `trap` is set.
#[unsafe(naked)]
pub unsafe extern "C" fn attempt(entry: u64, resume: *const Resume, trap: u64) -> u64 {
    naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "sub rsp, 8",
        "mov rbx, rsi",
        "mov [rsi + 8], rsp",
        "lea rax, [rip + 2f]",
        "mov [rsi], rax",
        // Notify a tracer.
        "test rdx, rdx",
        "jz 4f",
        "int3",
        "4:",
        "call rdi",
        // The attempt is over: a handler that runs now finds no place.
        "mov qword ptr [rbx], 0",
        "jmp 3f",
        "2:",
        "movabs rax, 0x8000000000000000",
        "3:",
        "add rsp, 8",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}

pub const LEFT: u64 = 1 << 63;

thread_local! {
    pub static RESUME: Cell<*const Resume> = const { Cell::new(ptr::null()) };
}

/// Leaves the attempt in progress on this thread, as `siglongjmp` would.
pub fn leave(context: *mut libc::ucontext_t) -> bool {
    let resume = RESUME.get();
    if resume.is_null() {
        return false;
    }
    // SAFETY: set by the attempt in progress, in a frame below the handler.
    let (rip, rsp) = unsafe { ((&raw const (*resume).rip).read_volatile(), (*resume).rsp) };
    if rip == 0 {
        return false;
    }
    // SAFETY: the handler's own context.
    let registers = unsafe { &mut (*context).uc_mcontext.gregs };
    registers[libc::REG_RIP as usize] = rip as i64;
    registers[libc::REG_RSP as usize] = rsp as i64;
    // SAFETY: as above; an attempt is left once.
    unsafe { (&raw mut (*resume.cast_mut()).rip).write_volatile(0) };
    true
}

/// Calls `entry`, a function without arguments; `None` if the call was left.
pub fn attempt_here(entry: u64, trap: bool) -> Option<u64> {
    let mut resume = Resume { rip: 0, rsp: 0 };
    RESUME.set(&raw mut resume);
    // SAFETY: a function without arguments.
    let got = unsafe { attempt(entry, &raw mut resume, u64::from(trap)) };
    RESUME.set(ptr::null());
    (got != LEFT).then_some(got)
}
