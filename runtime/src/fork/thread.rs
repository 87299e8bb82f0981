//! Threads of the runtime.
//!
//! The C library makes them, not `std`. `std` enters each thread that starts or ends in a list
//! under a lock of its own (`stack_overflow`, for the message about an overflow, which threads with
//! all signals blocked never give). In the child of a `fork` at such a moment no thread could be
//! started. The C library's own locks are open in a child.
//!
//! A panic ends its thread only, as with `std`. A thread that has done its work may get other work
//! ([`rest`]).
//!
//! A thread of the runtime uses the C library's allocator with a pass of the gate only, from its
//! first step to its last; after that [`leaving`] lists it. So if the program copies the process
//! while no thread has a pass, no thread of the runtime holds a lock of the allocator.
//!
//! # Why
//! - Threads of the runtime are made by the C library (`thread`): `std` takes a lock of the process
//!   while a thread starts, which a child of `fork` could find held.
//! - They are no roots, except while they run a listener's code: they block the signal of the
//!   handshake like all others, and hold no return addresses into JIT'd code.

pub(crate) mod leaving;
pub(crate) mod rest;
pub(crate) mod serving;

use std::cell::RefCell;
use std::ffi::{CString, c_void};
use std::io;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use uruk_base::sandbox;
use uruk_heap::Room;
use uruk_stubs::seat;

use crate::error::Error;
use crate::fork::shield;
use crate::fork::threads;
use crate::fork::{block_signals, gate, restore_signals};
use rest::Bed;

/// Stack of a thread. LLVM's passes recurse over expressions, blocks and phis: 16,000 phis of a
/// loop that lead to each other need more than 16 MiB at tier 2. Unused parts take only addresses.
pub(crate) const STACK: usize = 64 << 20;

/// Less than [`STACK`] where address space is limited. Set under a pass when a session is made;
/// relaxed, since a thread may as well start with an older value.
static STACK_NOW: AtomicUsize = AtomicUsize::new(STACK);

/// Whether this process is the child of a fork. The C library keeps the stacks of the parent's
/// threads there, and gives them to new threads of that size: without room in the address space.
static INHERITED: AtomicBool = AtomicBool::new(false);

/// Bytes of a name that the kernel keeps.
const KEPT: usize = 15;

thread_local! {
    /// Never dropped: a last destructor of a thread may start threads. It is empty on threads of
    /// the program.
    static NAME: ManuallyDrop<RefCell<String>> =
        const { ManuallyDrop::new(RefCell::new(String::new())) };
}

/// The work and the name with which a thread begins.
struct ThreadStart {
    name: String,
    run: Box<dyn Fn() + Send>,
}

/// Sets the stack of future threads, a multiple of a page.
pub(crate) fn set_stack(bytes: usize) {
    STACK_NOW.store(bytes, Ordering::Relaxed);
}

/// In a child: no thread of the runtime is there.
pub(super) fn after_fork_child() {
    INHERITED.store(true, Ordering::Relaxed);
    rest::after_fork_child();
}

/// Runs `run` on a new thread or on one that rests: with all signals blocked, and a stack large
/// enough for LLVM's recursion.
pub(crate) fn spawn(name: String, run: impl Fn() + Send + 'static) -> Result<(), Error> {
    if sandbox::is_closed() {
        return Err(Error::Thread {
            name,
            room: None,
            cause: Arc::new(io::Error::from_raw_os_error(libc::EPERM)),
        });
    }
    let run = Box::new(run);
    let start = Box::new(ThreadStart {
        name: name.clone(),
        run,
    });
    let _pass = gate::enter();
    let Some(start) = rest::wake(start) else {
        return Ok(());
    };
    let start = Box::into_raw(start);
    threads::STARTING.fetch_add(1, Ordering::Relaxed);
    // The new thread would be bound to the processor of this one.
    seat::leave();
    let restore = block_signals();
    // SAFETY: no other thread has seen `start` yet.
    let created = unsafe { create(start) };
    restore_signals(&restore);
    created.map_err(|cause| {
        threads::STARTING.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: made above; no thread has it.
        drop(unsafe { Box::from_raw(start) });
        Error::Thread {
            name,
            room: Room::now(),
            cause: Arc::new(cause),
        }
    })
}

/// The smallest stack on which LLVM compiles code of usual depth.
pub(crate) const SMALLEST_STACK: usize = 2 << 20;

/// Bytes reserved for the host and for LLVM's compiles, where the limit of address space became
/// less than the one sessions were made for.
const SHARE: usize = 128 * MIB;

const MIB: usize = 1 << 20;

/// The stack of a thread: the planned size, or less if little address space is left. If less does not
/// suffice, an inherited stack may be there.
fn stack_now() -> io::Result<usize> {
    let planned = STACK_NOW.load(Ordering::Relaxed);
    let Some(room) = Room::now().filter(|_| planned == STACK) else {
        return Ok(planned);
    };
    let llvm = match uruk_late::is_open() {
        true => 0,
        false => uruk_late::room(),
    };
    // More threads will follow.
    let stack = room.left().saturating_sub(SHARE + llvm) / 4 / MIB * MIB;
    match stack >= SMALLEST_STACK {
        true => Ok(stack.min(planned)),
        false if INHERITED.load(Ordering::Relaxed) => Ok(planned),
        false => Err(io::Error::from_raw_os_error(libc::EAGAIN)),
    }
}

/// # Safety
/// `start` is a box of the caller's, which goes to the thread if there is one.
unsafe fn create(start: *mut ThreadStart) -> io::Result<()> {
    let stack = stack_now()?;
    let done = |code: i32| match code {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    };
    // SAFETY: attributes are plain data, initialized before use and destroyed after; the
    // thread gets a function of the right type, and by the caller's promise its argument.
    unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        done(libc::pthread_attr_init(&mut attributes))?;
        let mut thread: libc::pthread_t = 0;
        let detached = libc::PTHREAD_CREATE_DETACHED;
        let created = done(libc::pthread_attr_setstacksize(&mut attributes, stack))
            .and_then(|()| done(libc::pthread_attr_setdetachstate(&mut attributes, detached)))
            .and_then(|()| {
                done(libc::pthread_create(
                    &mut thread,
                    &attributes,
                    begin,
                    start.cast(),
                ))
            });
        libc::pthread_attr_destroy(&mut attributes);
        created
    }
}

extern "C" fn begin(start: *mut c_void) -> *mut c_void {
    // `spawn` blocks all signals, and the thread inherits that.
    shield::never_interrupted();
    // The C library notes a destructor under the dynamic loader's lock. The holder of that lock may
    // have been interrupted by a handler that forks, which waits for passes: so before this
    // thread's pass.
    threads::prepare_thread();
    // Parking needs a handle, which is made when it is first asked for.
    drop(std::thread::current());
    uruk_session::prepare_thread();
    let mut pass = gate::enter();
    // SAFETY: the box that `spawn` made for this thread alone.
    let mut next = Some(unsafe { Box::from_raw(start.cast::<ThreadStart>()) });
    let mark = threads::mark_ours();
    // Release: the thread is in the list.
    threads::STARTING.fetch_sub(1, Ordering::Release);
    let bed = Bed::new();
    while let Some(start) = next.take() {
        let ThreadStart { name, run } = *start;
        take_name(name);
        drop(pass);
        live(&*run);
        pass = gate::enter();
        drop(run);
        if bed.lie_down() {
            drop(pass);
            (pass, next) = bed.wait();
        }
    }
    drop(bed);
    drop(NAME.with(|kept| kept.take()));
    // Before the mark is dropped: a look at the threads of the program finds it by one of the two.
    leaving::note();
    drop(mark);
    drop(pass);
    null_mut()
}

/// Names the calling thread. Under a pass.
fn take_name(name: String) {
    let short = &name.as_bytes()[..name.len().min(KEPT)];
    if let Ok(short) = CString::new(short) {
        // SAFETY: the calling thread and a C string that the kernel copies.
        unsafe { libc::pthread_setname_np(libc::pthread_self(), short.as_ptr()) };
    }
    NAME.with(|kept| kept.replace(name));
}

/// Runs the thread's work.
#[inline(never)]
fn live(run: &dyn Fn()) {
    // The panic hook has reported the panic.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
        let _pass = gate::enter();
        rest::unfit();
        drop(panic);
    }
}

/// The name of the calling thread; `caller` for one without.
pub(crate) fn name() -> String {
    let ours = NAME.with(|kept| kept.borrow().clone());
    if !ours.is_empty() {
        return ours;
    }
    let current = std::thread::current();
    current.name().unwrap_or("caller").to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::{name, spawn};

    #[test]
    fn threads_have_names_block_signals_and_may_panic() {
        let (sender, receiver) = mpsc::channel();
        let told = sender.clone();
        spawn(String::from("uruk-of-a-long-name"), move || {
            let short = std::fs::read_to_string("/proc/thread-self/comm");
            let status = std::fs::read_to_string("/proc/thread-self/status");
            let _ = told.send((name(), short.expect("there"), status.expect("there")));
            std::panic::panic_any("a panic of the test's");
        })
        .expect("a thread");
        let (long, short, status) = receiver.recv().expect("told");
        assert_eq!(long, "uruk-of-a-long-name");
        assert_eq!(short, "uruk-of-a-long-\n");
        let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
        let blocked = u64::from_str_radix(blocked.expect("a line").trim(), 16);
        // All signals but SIGKILL, SIGSTOP and the two of the C library's own.
        let asked_for = !(1 << 8 | 1 << 18 | 0b11 << 31);
        assert_eq!(blocked.expect("a number") & asked_for, asked_for);
        // The process can start another thread.
        spawn(String::from("next"), move || {
            drop(sender.send(Default::default()))
        })
        .expect("a thread");
        receiver.recv().expect("told");
    }
}
