//! Preparation of a process that gives up system calls.

use crate::error::Error;
use crate::fork::confine::confine;

/// Prepares the process for a sandbox that allows only the system calls of the embedder: seccomp with
/// `SECCOMP_FILTER_FLAG_TSYNC`, strict mode, or a filter of the calling thread.
///
/// All functions of all sessions that have no code are compiled, at the tier of first code; then
/// all threads of the library end, before this returns. From then on
/// - existing code runs, without a system call of the library; loops stay in it;
/// - nothing is compiled, sampled, moved or freed any more;
/// - a function without code fails as one that could not be compiled
///   ([`JitBuilder::on_failure`](crate::JitBuilder::on_failure)), and operations that need a
///   compile fail with [`Error::Thread`];
/// - exceptions pass, and guarded calls catch their traps.
///
/// Ending a session unmaps memory: a process whose sandbox forbids that keeps its sessions until it
/// ends by `exit_group`.
///
/// Waits 10 s at most for listeners and other code of the embedder that runs on threads of the
/// library. Must not be called in such code, or with locks that such code takes. It cannot be
/// undone.
///
/// JIT'd code that installs such a filter itself, by `prctl`, `syscall` or a library, need not call
/// this: threads of the library end before any filter that would end them.
///
/// ```
/// let jit = uruk::Jit::new()?;
/// jit.add_ir("m", "define i32 @one() { ret i32 1 }")?;
/// // SAFETY: the function above.
/// let one = unsafe { jit.function::<extern "C" fn() -> i32>("one")? };
/// uruk::prepare_sandbox()?;
/// // A filter of system calls would be installed here.
/// assert_eq!(one.call(), 1);
/// # Ok::<(), uruk::Error>(())
/// ```
///
/// # Errors
/// [`Error::Thread`]: no thread could be started for the work, or the calling thread is one of the
/// library's.
pub fn prepare_sandbox() -> Result<(), Error> {
    confine()
}
