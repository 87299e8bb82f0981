//! Ends all threads of the runtime, before the process gives up system calls.
//!
//! A program that decodes untrusted input forbids itself all system calls but a few (seccomp), for
//! all of its threads. The runtime's threads compile, sample and wait with other calls: the kernel
//! would end the process at the first of them. So every callable function is compiled first, then
//! all threads of the runtime end. From then on its code on threads of the program makes no system
//! call of its own ([`sandbox`]).
//!
//! | step | by | why |
//! |---|---|---|
//! | all is compiled | a thread of the runtime | the program's may have a small stack, and LLVM takes threads down |
//! | members end their threads | same | |
//! | threads that wait for work end | same | |
//! | no thread but this one is left | same, with a limit | a job may be in one long pass of LLVM |
//! | first calls that wait are failed | same | functions that were added meanwhile are not compiled; later calls see the sandbox |
//! | code reads the cycle counter no more | same | `SECCOMP_MODE_STRICT` forbids that instruction, too |
//! | [`sandbox::close`] | same | |
//! | the filter is installed | the caller, once that thread is gone | its end makes system calls |
//!
//! Threads that run code of an embedder beyond the limit are left alone: the system calls of that
//! code are not known.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tracing::{info, warn};
use uruk_base::sandbox;

use super::thread::{self, leaving, rest};
use super::{LAST_COMPILES, futex, gate, members, unseen};
use crate::error::Error;
use crate::fork::threads;

/// The progress of the confinement. Acquire and release, with itself.
static STATE: AtomicU32 = AtomicU32::new(OPEN);
const OPEN: u32 = 0;
const UNDER_WAY: u32 = 1;
const CLOSED: u32 = 2;

/// The kernel's id of the confining thread.
static WORKER: AtomicI32 = AtomicI32::new(0);

/// Called once the runtime's threads are to end.
static AT_END: OnceLock<fn()> = OnceLock::new();

/// Sets `run` to be called once all threads of the runtime are to end. The first call counts.
pub(crate) fn at_end(run: fn()) {
    let _ = AT_END.set(run);
}

/// Whether code may read the processor's cycle counter. Relaxed: new code is entered into a list whose
/// lock [`super::ForkMember::end_cycles`] takes, and this is read again behind it.
static CYCLES: AtomicBool = AtomicBool::new(true);

/// Whether code may read the processor's cycle counter.
pub(crate) fn may_read_cycles() -> bool {
    CYCLES.load(Ordering::Relaxed)
}

/// Makes the code of all sessions read the processor's cycle counter no more, now and later.
pub(crate) fn end_cycles() {
    CYCLES.store(false, Ordering::Relaxed);
    uruk_stubs::end_cycles();
    uruk_roots::end_cycles();
    let members = {
        let _pass = gate::enter();
        members()
    };
    members.iter().for_each(|member| member.end_cycles());
}

/// Time between two looks.
const LOOK: Duration = Duration::from_micros(200);

/// Whether all threads of the runtime are to end, or have ended.
pub(crate) fn is_begun() -> bool {
    STATE.load(Ordering::Acquire) != OPEN
}

/// Compiles all functions and ends all threads of the runtime; returns once they are gone.
///
/// # Errors [`Error::Thread`]: no thread could be started, or the calling thread is one of the
/// runtime's.
pub(crate) fn confine() -> Result<(), Error> {
    const NAME: &str = "uruk-sandbox";
    unseen::attend();
    // A process made by `vfork` is about to call `exec`; the threads are its parent's.
    if sandbox::is_closed() || !threads::is_this_process() {
        return Ok(());
    }
    if threads::is_ours() {
        return Err(Error::Thread {
            name: NAME.to_owned(),
            room: None,
            cause: Arc::new(io::Error::from_raw_os_error(libc::EDEADLK)),
        });
    }
    let step = STATE.compare_exchange(OPEN, UNDER_WAY, Ordering::Acquire, Ordering::Acquire);
    if step.is_ok()
        && let Err(cause) = thread::spawn(NAME.to_owned(), close)
    {
        STATE.store(OPEN, Ordering::Release);
        futex::wake(&STATE, u32::MAX);
        return Err(cause);
    }
    gate::outside(|| {
        while STATE.load(Ordering::Acquire) == UNDER_WAY {
            futex::wait(&STATE, UNDER_WAY);
        }
        leaving::wait_for(WORKER.load(Ordering::Relaxed));
    });
    Ok(())
}

/// The main function of the confining thread.
fn close() {
    // SAFETY: takes nothing, cannot fail.
    WORKER.store(unsafe { libc::gettid() }, Ordering::Relaxed);
    let members = {
        let _pass = gate::enter();
        members()
    };
    for member in &members {
        Arc::clone(member).finish_code();
    }
    sandbox::begin_to_end();
    if let Some(run) = AT_END.get() {
        run();
    }
    members.iter().for_each(|member| member.end_threads());
    let left = wait_for_others();
    members.iter().for_each(|member| member.fail_requests());
    end_cycles();
    {
        let _pass = gate::enter();
        drop(members);
        match left {
            0 => info!("a sandbox: all is compiled, and no thread of ours is left"),
            left => warn!(left, "a sandbox: threads of ours are still at work"),
        }
        leaving::wait();
        sandbox::close();
    }
    STATE.store(CLOSED, Ordering::Release);
    futex::wake(&STATE, u32::MAX);
}

/// In the child of a fork during the confinement: the confining thread is not there. If all code is
/// finished, the child is confined; else it begins anew, if it has to.
pub(super) fn after_fork_child() {
    if STATE.load(Ordering::Relaxed) == UNDER_WAY {
        let ended = sandbox::is_ending();
        if ended {
            sandbox::close();
        }
        STATE.store(if ended { CLOSED } else { OPEN }, Ordering::Relaxed);
    }
}

/// Waits until the calling thread is the runtime's only one; returns the number of others.
fn wait_for_others() -> usize {
    let start = Instant::now();
    loop {
        let others = {
            let _pass = gate::enter();
            rest::end_all();
            threads::alive().saturating_sub(1)
        };
        if others == 0 || start.elapsed() > LAST_COMPILES {
            return others;
        }
        std::thread::sleep(LOOK);
    }
}
