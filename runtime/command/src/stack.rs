//! A stack of the command's own, if the main thread's is small.
//!
//! The program runs on the main thread, with the stack that its user allows (`ulimit -s`). The command's
//! work before, parsing its command line and loading the program, takes more than 64 KiB.

use std::arch::naked_asm;
use std::ffi::c_void;

/// Main stacks from this size on are large enough.
const ENOUGH: u64 = 1 << 20;
/// Bytes of the command's own stack.
const SIZE: usize = 8 << 20;

/// Runs `work` on the main thread, with enough stack.
pub fn roomy<R>(work: impl FnOnce() -> R) -> R {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the limit may be written to.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_STACK, &raw mut limit) } == 0;
    if !known || limit.rlim_cur >= ENOUGH {
        return work();
    }
    // SAFETY: a fresh mapping.
    let stack = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            SIZE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK,
            -1,
            0,
        )
    };
    if stack == libc::MAP_FAILED {
        return work();
    }
    let result = on(stack.cast::<u8>().wrapping_add(SIZE), work);
    // SAFETY: the mapping made above, which is not used any more.
    unsafe { libc::munmap(stack, SIZE) };
    result
}

/// Runs `work` on the stack that ends at `top`.
fn on<R, F: FnOnce() -> R>(top: *mut u8, work: F) -> R {
    /// The work, then its result.
    struct Job<F, R>(Option<F>, Option<R>);

    /// # Safety
    /// 1. `job` is a job that no other code uses meanwhile.
    unsafe extern "C" fn run<R, F: FnOnce() -> R>(job: *mut c_void) {
        // SAFETY: duty 1.
        let job = unsafe { &mut *job.cast::<Job<F, R>>() };
        job.1 = job.0.take().map(|work| work());
    }

    let mut job = Job(Some(work), None);
    // SAFETY: the top of a fresh mapping, aligned to a page; a job that no other code uses.
    unsafe { switch(top.cast(), (&raw mut job).cast(), run::<R, F>) };
    job.1.expect("the work was run")
}

/// Calls `function` with `argument` on another stack.
///
/// # Safety
/// 1. `top` is the end of memory for a stack that nothing else uses, aligned to 16 bytes.
/// 2. `function` may be called with `argument`, and does not unwind.
#[unsafe(naked)]
unsafe extern "C" fn switch(
    top: *mut c_void,
    argument: *mut c_void,
    function: unsafe extern "C" fn(*mut c_void),
) {
    naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "mov rsp, rdi",
        "mov rdi, rsi",
        "call rdx",
        "mov rsp, rbp",
        "pop rbp",
        "ret",
    )
}
