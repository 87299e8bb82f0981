//! Guarded calls: each has a guard, to which it can be left from any point.
//!
//! A guard is set below a call of JIT'd code. An error above it, in JIT'd code, ends the call and
//! is returned as a value ([`Trap`]):
//!
//! | error | detected by |
//! |---|---|
//! | a fault of an instruction, stack overflow | a signal handler ([`fault`](crate::guarded::fault)) |
//! | an interrupt, a deadline | the handler of a timer's signal ([`interrupt`](crate::guarded::interrupt)), or code that counts fuel |
//! | fuel | code that counts it ([`passes`](crate::guarded::passes)) |
//! | an error of a function of the host | the function's own frame, once it has returned ([`raise`]) |
//! | a call of a function without code | the failure handler ([`leave_address`]) |
//!
//! # Invariants
//! - The skipped frames are those of JIT'd code and of C in between, never frames of Rust with
//!   pending destructors: a function of the host ([`host`](crate::calls::host)) *covers* the guards below
//!   it while it runs ([`Covered`]). An error in JIT'd code that it calls without a guard of its
//!   own has the same effect as without any guard.
//! - Frames are not unwound: destructors of C++ and cleanups of Rust in skipped frames do not run,
//!   their locks stay locked, and their `setjmp` buffers must not be used.
//! - A guard is written by its own thread, in handlers too, and read by no other.
//!
//! # Why
//! Frames are not unwound because tables describe a frame at its calls only: at a fault,
//! personality functions of C++ find no entry and call `std::terminate`. And a destructor might use
//! the very memory that made the program fault.

use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use uruk_stubs::{Landing, call_landed, land};

use crate::error::Error;
use crate::error::trap::{HostError, Trap, TrapKind};
use crate::fork::shield::Shield;
use crate::guarded::backtrace::Addresses;
use crate::guarded::chain::{self, Slot};
use crate::guarded::fault;
use crate::guarded::interrupt::{self, Serial};
use crate::guarded::passes::{self, Limits};
use crate::guarded::probe;
use crate::guarded::stacks;

/// The reason for leaving a call, as far as a handler may write it.
#[derive(Clone, Copy)]
pub(crate) enum Caught {
    Nothing,
    Fault(fault::Fault),
    Interrupted,
    Deadline,
    /// The details are in `Guard::cause`.
    Raised,
}

/// The record below a guarded call.
pub(crate) struct Guard {
    landing: UnsafeCell<Landing>,
    /// The address in the frame below its call where its mark lies.
    pub(crate) top: u64,
    /// Whether `top` is on the thread's own stack.
    pub(crate) is_own: bool,
    /// The enclosing guarded call on the same fiber, if any.
    pub(crate) outer: Serial,
    /// The lowest address known to be on its stack, for a guard on a fiber.
    pub(super) lowest: Cell<u64>,
    /// Number of functions of the host that run above it.
    pub(crate) covers: Cell<u32>,
    pub(super) serial: Serial,
    /// The deadline of the call, by the monotonic clock; 0: none.
    pub(crate) deadline: Cell<u64>,
    /// The last pass of its thread that its fuel allows, if limited.
    pub(super) last_pass: Cell<Option<u64>>,
    /// Whether the code that it calls counts fuel.
    pub(crate) looks: bool,
    /// The time limit from which `deadline` was computed.
    pub(crate) limit: Option<Duration>,
    pub(crate) caught: Cell<Caught>,
    pub(crate) addresses: UnsafeCell<Addresses>,
    cause: UnsafeCell<Option<TrapKind>>,
}

impl Guard {
    /// Whether JIT'd code right above it may be left.
    pub(crate) fn is_open(&self) -> bool {
        self.covers.get() == 0
    }

    /// The place where its thread continues, for a handler.
    pub(super) fn landing(&self) -> *const Landing {
        self.landing.get()
    }

    /// The stack address below which its call's frames lie.
    pub(crate) fn stack(&self) -> u64 {
        // SAFETY: written before the call, by this thread.
        unsafe { (*self.landing.get()).stack() }
    }

    /// The word at its top while its call is active.
    pub(crate) fn mark(&self) -> u64 {
        /// Bits that no address and no small number has.
        const MARK: u64 = 0xa5c3_0000_0000_0000;
        MARK ^ self.serial.rotate_left(32) ^ self.top
    }

    /// Whether its frame still exists.
    pub(super) fn is_marked(&self) -> bool {
        let found = match self.is_own {
            // SAFETY: on the thread's own stack, which stays.
            true => Some(unsafe { (self.top as *const u64).read_volatile() }),
            false => probe::word(self.top),
        };
        found == Some(self.mark())
    }
}

/// An active guard, until its call ends, or a panic or an exception passes.
struct Standing {
    guard: &'static Guard,
    slot: Slot,
    counts: bool,
}

impl Standing {
    fn begin(limits: Limits, mark: &Cell<u64>) -> Option<Standing> {
        let top = mark.as_ptr() as u64;
        let is_own = stacks::is_own(top);
        chain::drop_left(top, is_own);
        let outer = chain::outer_of(top, is_own);
        let slot = chain::take()?;
        let guard = Guard {
            landing: UnsafeCell::new(Landing::new()),
            top,
            is_own,
            outer,
            lowest: Cell::new(top),
            covers: Cell::new(0),
            serial: interrupt::next_serial(),
            deadline: Cell::new(0),
            last_pass: Cell::new(None),
            looks: limits.looks,
            limit: limits.time,
            caught: Cell::new(Caught::Nothing),
            addresses: UnsafeCell::new(Addresses::NONE),
            cause: UnsafeCell::new(None),
        };
        // SAFETY: taken above; the mark is a word of an active frame.
        let guard = unsafe { slot.put(guard, top) };
        // Only now, so that an interrupt of the call finds it.
        interrupt::begun(guard);
        Some(Standing {
            guard,
            slot,
            counts: true,
        })
    }

    /// Deactivates the guard at the call's end.
    fn hide(&mut self) {
        if std::mem::replace(&mut self.counts, false) {
            self.slot.hide();
            // SAFETY: a word of the frame below, which is active.
            unsafe { (self.guard.top as *mut u64).write_volatile(0) };
            chain::note_innermost();
            interrupt::ended(self.guard);
            if self.guard.last_pass.get().is_some() {
                passes::end(current());
            }
        }
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        self.hide();
        self.slot.free();
    }
}

/// Runs `body`, which only calls JIT'd code; `Err` if the call was left. Writes of `body` before
/// that remain.
pub(crate) fn run<F: FnOnce()>(limits: Limits, body: F) -> Result<(), Trap> {
    unsafe extern "C-unwind" fn call<F: FnOnce()>(data: *mut u8) {
        // SAFETY: the argument that `run` passes: a body that was not taken yet.
        let body = unsafe { (*data.cast::<Option<F>>()).take() };
        if let Some(body) = body {
            body();
        }
    }
    if let Some(kind) = limits.refused() {
        let backtrace = Vec::new();
        return Err(Trap { kind, backtrace });
    }
    let mut body = Some(body);
    run_with(limits, call::<F>, (&raw mut body).cast())
}

fn run_with(
    limits: Limits,
    call: unsafe extern "C-unwind" fn(*mut u8),
    data: *mut u8,
) -> Result<(), Trap> {
    fault::attend();
    let refused = |what| Trap {
        kind: TrapKind::Refused(what),
        backtrace: Vec::new(),
    };
    // A word of this frame: see `chain`.
    let mark = Cell::new(0);
    let Some(mut standing) = Standing::begin(limits, &mark) else {
        return Err(refused("memory"));
    };
    let guard = standing.guard;
    if let Some(limit) = limits.time
        && !interrupt::arm(guard, limit)
    {
        return Err(refused("a timer"));
    }
    if let Some(fuel) = limits.fuel {
        passes::begin(guard, fuel);
    }
    // SAFETY: `call` takes this data; the landing is of this call. Above are frames of JIT'd code,
    // and `call`'s, which has no pending destructors: `covers` ensures that.
    let left = unsafe { call_landed(guard.landing.get(), call, data) };
    standing.hide();
    match left {
        0 => Ok(()),
        _ => {
            // Names are looked up under locks of the allocator and of the dynamic loader, and a
            // handler of the host may make guarded calls as well.
            let _shield = Shield::raise();
            Err(guard.take_trap())
        }
    }
}

impl Guard {
    fn take_trap(&self) -> Trap {
        let kind = match self.caught.get() {
            Caught::Fault(fault) => fault.kind(),
            Caught::Deadline => TrapKind::Deadline(self.limit.unwrap_or_default()),
            Caught::Raised => {
                // SAFETY: the call was left: no other code uses it.
                let cause = unsafe { (*self.cause.get()).take() };
                cause.unwrap_or(TrapKind::Interrupted)
            }
            Caught::Interrupted | Caught::Nothing => TrapKind::Interrupted,
        };
        // SAFETY: it is not written any more: the call was left.
        let backtrace = unsafe { (*self.addresses.get()).frames() };
        Trap { kind, backtrace }
    }

    /// Leaves the call.
    ///
    /// # Safety
    /// It is its thread's innermost guard, with only JIT'd code and C above it.
    pub(crate) unsafe fn leave(&self, kind: TrapKind) -> ! {
        // SAFETY: its own thread's.
        unsafe {
            *self.cause.get() = Some(kind);
            self.caught.set(Caught::Raised);
            land(self.landing.get())
        }
    }
}

/// The innermost guard on the thread's current stack.
pub(crate) fn current() -> Option<&'static Guard> {
    chain::innermost()
}

/// The innermost guard, if the code above it may be left.
fn open_guard() -> Option<&'static Guard> {
    current().filter(|guard| guard.is_open())
}

/// Guard that marks a running function of the host: errors in it do not concern the guards below.
pub(crate) struct Covered {
    guard: Option<(&'static Guard, Serial)>,
    /// Bound to the thread it was made on.
    _thread: PhantomData<*const ()>,
}

impl Covered {
    #[inline]
    pub(crate) fn begin() -> Covered {
        let guard = current();
        if let Some(guard) = guard {
            guard.covers.set(guard.covers.get() + 1);
        }
        Covered {
            guard: guard.map(|guard| (guard, guard.serial)),
            _thread: PhantomData,
        }
    }
}

impl Drop for Covered {
    #[inline]
    fn drop(&mut self) {
        // Another serial: the record belongs to another call by now.
        if let Some((guard, serial)) = self.guard
            && guard.serial == serial
        {
            guard.covers.set(guard.covers.get().saturating_sub(1));
            if chain::has_fibers() {
                interrupt::resumed(guard);
            }
        }
    }
}

/// Ends the guarded call in which a function of the host was called. Without one it panics, which
/// unwinds JIT'd code as any other panic does.
///
/// To be called in the frame that JIT'd code called, without pending destructors.
pub(crate) fn raise(error: HostError) -> ! {
    let Some(guard) = open_guard() else {
        drop_and_panic(error);
    };
    // SAFETY: the addresses are the calling thread's own.
    unsafe { fault::note_callers(&mut *guard.addresses.get(), guard.stack()) };
    // SAFETY: the innermost; above it is JIT'd code, and the caller's frame.
    unsafe { guard.leave(TrapKind::Host(error)) }
}

/// Runs `body` as a function of the host: errors in it do not end the enclosing guarded call. For
/// libraries that JIT'd code may call otherwise than by
/// [`Dylib::define_fn`](crate::Dylib::define_fn), such as an interface for C.
pub fn covered<R>(body: impl FnOnce() -> R) -> R {
    let _covered = Covered::begin();
    body()
}

/// Ends the enclosing guarded call by an error ([`TrapKind::Host`]), and does not return. It
/// returns, without calling `error`, if there is no such call, or if a function of the host
/// ([`HostFn`](crate::HostFn)) runs in it.
///
/// Frames between are left as by `longjmp`, without unwinding.
///
/// # Safety
/// Frames of this thread above the guarded call are of JIT'd code, of C, and of the caller, and
/// have no pending destructors.
pub unsafe fn raise_error(error: impl FnOnce() -> HostError) {
    if open_guard().is_some() {
        raise(error());
    }
}

#[cold]
fn drop_and_panic(error: HostError) -> ! {
    std::panic::panic_any(format!("a function of the host failed: {error}"));
}

/// Notes that a function without code was called above an open guard; returns the address where the
/// call continues, with any arguments. `None` without such a guard.
pub(crate) fn leave_address(function: &str, cause: Option<&Arc<Error>>) -> Option<u64> {
    let guard = open_guard()?;
    // SAFETY: its own thread's.
    unsafe {
        fault::note_callers(&mut *guard.addresses.get(), guard.stack());
        *guard.cause.get() = Some(TrapKind::NotCompiled {
            function: function.to_owned(),
            cause: cause.cloned(),
        });
    }
    guard.caught.set(Caught::Raised);
    Some(leave_now as *const c_void as u64)
}

/// Continues below the innermost guard, with any arguments.
extern "C" fn leave_now() -> ! {
    let Some(guard) = current() else {
        // `leave_address` found one here.
        std::process::abort()
    };
    // SAFETY: its call is active; above it are JIT'd code and this frame.
    unsafe { land(guard.landing()) }
}
