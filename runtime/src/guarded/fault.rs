//! Faults of instructions in JIT'd code above a guard: from the signal to the landing.
//!
//! Handlers for `SIGSEGV`, `SIGBUS`, `SIGFPE`, `SIGILL` and `SIGTRAP` are set when the process
//! makes its first guarded call, or has a session whose embedder handles memory faults before all
//! others ([`crate::guarded::asked`]). A fault that is not a guard's goes to the previous handler, with its
//! mask. If there was none, the default action is set again and the instruction runs once more, so
//! that a core file shows it. A handler that is set later gets all of these signals, the runtime's
//! included, and can call the previous one (`sigaction` returns it).
//!
//! A fault is a guard's if
//! 1. its instruction is of a session (it lies in the memory of one), or is being fetched from an
//!    unmapped address, by a call from such code: a null function pointer. (Where the call was a
//!    jump, as a tail call is, the stack identifies the caller: up to the guard there is no other
//!    code.);
//! 2. the processor raised it, not `kill`; and
//! 3. the innermost guard of the stack ([`chain`]) is not covered by a function of the host.
//!
//! So a fault in the C library is not, even if JIT'd code passed the pointer: the library may hold
//! a lock.
//!
//! # Stack overflow
//! A fault on memory that was never mapped, within [`NEAR`] of the stack pointer and beyond the
//! lowest page of the thread's stack, is a stack overflow. The handler runs on an alternate stack.
//! Each thread gets one of [`ALTERNATE`] bytes with its first guarded call, unless it has a larger
//! one, and keeps it until it ends. If other code removes it at the thread's end, the thread gets
//! it again ([`base`](crate::guarded::base)). A function whose frame is larger than the guard page below a
//! stack, compiled without probes, may miss the page, as it may natively.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{Ordering, compiler_fence};

use uruk_stubs::landing_address;

use crate::error::trap::{Access, TrapKind};
use crate::guarded::asked::MemoryFault;
use crate::guarded::backtrace::Addresses;
use crate::guarded::chain;
use crate::guarded::guard::Caught;

/// The signals of faulting instructions.
const SIGNALS: [c_int; 5] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
];

/// Bytes of a thread's alternate stack: two frames of a signal with the largest registers (11 KiB
/// each), and the needs of unwinding.
pub(crate) const ALTERNATE: usize = 128 << 10;

/// Maximal distance below the stack pointer at which an instruction may touch the stack: more than
/// a frame without probes has.
pub(super) const NEAR: u64 = 1 << 20;

/// A fault, as the kernel reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    signal: c_int,
    code: c_int,
    address: u64,
    /// The processor's error code of a page fault.
    error: u64,
    /// Whether it is a stack overflow.
    stack: bool,
}

impl Fault {
    pub(crate) fn kind(self) -> TrapKind {
        /// Integer division, and other integer traps (`FPE_INTDIV`, `FPE_INTOVF`).
        const INTEGER: [c_int; 2] = [1, 2];
        match self.signal {
            libc::SIGFPE if INTEGER.contains(&self.code) => TrapKind::Division,
            libc::SIGFPE => TrapKind::FloatingPoint,
            libc::SIGILL => TrapKind::Illegal,
            libc::SIGTRAP => TrapKind::Breakpoint,
            _ if self.stack => TrapKind::StackOverflow,
            _ => TrapKind::Memory {
                address: self.address,
                access: access(self.error),
            },
        }
    }
}

/// The kind of memory access, by the processor's error code of a page fault.
fn access(error: u64) -> Access {
    /// Bits of a write, and of an instruction fetch.
    const WRITE: u64 = 1 << 1;
    const FETCH: u64 = 1 << 4;
    match error {
        error if error & FETCH != 0 => Access::Execute,
        error if error & WRITE != 0 => Access::Write,
        _ => Access::Read,
    }
}

/// Whether an embedder's handler has removed the cause of a memory fault. `errno` belongs to the
/// interrupted code, and is preserved.
fn mended(address: u64, error: u64, instruction: u64) -> bool {
    // SAFETY: the thread's own word.
    let errno = unsafe { &mut *libc::__errno_location() };
    let before = *errno;
    let mended = crate::guarded::asked::mended(|| MemoryFault {
        address,
        access: access(error),
        instruction,
    });
    *errno = before;
    mended
}

/// The previous handlers, by place in [`SIGNALS`]. Written before the runtime's are set, and not
/// after.
struct PreviousHandlers(std::cell::UnsafeCell<[MaybeUninit<libc::sigaction>; SIGNALS.len()]>);

// SAFETY: written once, under `Once`, before the handlers that read it can run.
unsafe impl Sync for PreviousHandlers {}

static BEFORE: PreviousHandlers = PreviousHandlers(std::cell::UnsafeCell::new(
    [const { MaybeUninit::uninit() }; SIGNALS.len()],
));

/// Sets the handlers, once, and ensures that the thread has an alternate stack.
#[inline]
pub(crate) fn attend() {
    if crate::guarded::base::is_left() {
        attend_anew();
    }
}

#[cold]
fn attend_anew() {
    thread_local! {
        static ATTENDED: Cell<bool> = const { Cell::new(false) };
    }
    if ATTENDED.replace(true) {
        crate::guarded::stacks::prepare_again();
    } else {
        set();
        crate::guarded::timers::unblock();
        crate::guarded::stacks::prepare();
    }
    crate::guarded::base::note();
}

/// The signals that the runtime's handlers block. A handler of the host must not run inside of
/// them. Its guarded call would find the signal of its trap or of its limit blocked. Its stack
/// overflow would be one of the alternate stack on which the runtime's handler runs.
pub(super) fn all_but_faults() -> libc::sigset_t {
    // SAFETY: a set, which is filled.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut set);
        for fault in SIGNALS {
            libc::sigdelset(&mut set, fault);
        }
        set
    }
}

/// Sets the handlers, once.
pub(crate) fn set() {
    static SET: Once = Once::new();
    SET.call_once(set_handlers);
}

fn set_handlers() {
    for (place, &signal) in SIGNALS.iter().enumerate() {
        // SAFETY: valid structures; the previous action is noted before the handler can run. Only
        // this closure writes the place: `call_once`.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            let mut before: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, ptr::null(), &mut before);
            (*BEFORE.0.get())[place].write(before);
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            action.sa_mask = all_but_faults();
            libc::sigaction(signal, &action, ptr::null_mut());
        }
    }
}

/// # Safety
/// Called by the kernel, with its own arguments.
unsafe extern "C" fn handler(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel's own, valid while the handler runs.
    let taken = unsafe { take(signal, &*info, &mut *context.cast::<libc::ucontext_t>()) };
    if !taken {
        // SAFETY: likewise.
        unsafe { pass_on(signal, info, context) }
    }
}

/// Whether an instruction is of a session: reads only lock-free data. Does not use unwind rows:
/// functions may have none.
pub(super) fn is_jitted(pc: u64) -> bool {
    uruk_unwind::covers(pc)
}

/// The kernel's report of an instruction that faulted.
#[derive(Clone, Copy)]
struct Report {
    pc: u64,
    sp: u64,
    /// Whether the signal is one of memory accesses; then `address` was accessed.
    memory: bool,
    address: u64,
    /// The processor's error code of a page fault.
    error: u64,
}

impl Report {
    fn read(signal: c_int, info: &libc::siginfo_t, context: &libc::ucontext_t) -> Report {
        let register = |which: c_int| context.uc_mcontext.gregs[which as usize] as u64;
        Report {
            pc: register(libc::REG_RIP),
            sp: register(libc::REG_RSP),
            memory: matches!(signal, libc::SIGSEGV | libc::SIGBUS),
            // SAFETY: these signals carry an address.
            address: unsafe { info.si_addr() } as u64,
            error: register(libc::REG_ERR),
        }
    }

    /// An address in the instruction that faulted, and false; if an instruction is being fetched
    /// from memory without code of a session, one in the call that led there, and true.
    fn code(self, signal: c_int) -> (u64, bool) {
        if self.memory && self.address == self.pc && !is_jitted(self.pc) {
            // SAFETY: the return address that a call has just pushed, if it was a call; the stack is
            // readable there, or the fault would be another one.
            let back = unsafe { *(self.sp as *const u64) };
            return (back.wrapping_sub(1), true);
        }
        // A trap is reported at the address behind its instruction.
        let behind = u64::from(signal == libc::SIGTRAP);
        (self.pc.wrapping_sub(behind), false)
    }
}

/// Makes the thread continue below its guard, if the fault is a guard's. Runs in a signal handler,
/// with all that it calls: nothing may allocate or take a lock.
fn take(signal: c_int, info: &libc::siginfo_t, context: &mut libc::ucontext_t) -> bool {
    // The signal was sent by `kill` or similar.
    if info.si_code <= 0 {
        return false;
    }
    let report = Report::read(signal, info, context);
    let Report { address, error, .. } = report;
    if report.memory && mended(address, error, report.pc) {
        return true;
    }
    let (code, fetch) = report.code(signal);
    if !fetch && !is_jitted(code) {
        return false;
    }
    // Thread-locals come last: they may be created at their first use.
    let Some(guard) = chain::at(report.sp) else {
        return false;
    };
    if !guard.is_open() {
        return false;
    }
    // SAFETY: its own thread's.
    let addresses = unsafe { &mut *guard.addresses.get() };
    if !note_stack(addresses, context, report, (code, fetch), guard.stack()) {
        return false;
    }
    let is_end = || crate::guarded::stacks::is_end(address, report.sp, NEAR);
    guard.caught.set(Caught::Fault(Fault {
        signal,
        code: info.si_code,
        address,
        error,
        stack: report.memory && !fetch && is_end(),
    }));
    let registers = &mut context.uc_mcontext.gregs;
    registers[libc::REG_RIP as usize] = landing_address() as i64;
    registers[libc::REG_RDI as usize] = guard.landing() as i64;
    // A handler begins with the direction flag clear; the code that continues must find it so.
    registers[libc::REG_EFL as usize] &= !(1 << 10);
    true
}

/// Notes the stack of a fault up to the guarded call below `stack`; returns whether that call led
/// to it. If not, addresses and registers are as before.
fn note_stack(
    addresses: &mut Addresses,
    context: &mut libc::ucontext_t,
    Report { pc, sp, .. }: Report,
    (code, fetch): (u64, bool),
    stack: u64,
) -> bool {
    let registers = &mut context.uc_mcontext.gregs;
    if fetch {
        addresses.add(pc);
        // As though the call had not happened: the unwinder has no frame for an unmapped address.
        // It finds these registers where the kernel put them.
        registers[libc::REG_RIP as usize] = code as i64;
        registers[libc::REG_RSP as usize] = (sp + 8) as i64;
    }
    compiler_fence(Ordering::SeqCst);
    let is_ours = match note_from(addresses, code, stack) {
        Reached::Elsewhere => false,
        Reached::Guard => is_jitted(code) || addresses.none(is_jitted),
        Reached::Unknown => is_jitted(code),
    };
    if !is_ours {
        // Called by a library, which JIT'd code has called; or on a fiber without a guard.
        *addresses = Addresses::NONE;
        registers[libc::REG_RIP as usize] = pc as i64;
        registers[libc::REG_RSP as usize] = sp as i64;
    }
    is_ours
}

/// Notes the callers: the stack from the first frame of JIT'd code on, up to `stack`.
pub(super) fn note_callers(addresses: &mut Addresses, stack: u64) {
    note_frames(addresses, None, stack);
}

/// Notes the stack from the frame whose instruction is `pc`, up to the guarded call below `stack`.
pub(super) fn note_from(addresses: &mut Addresses, pc: u64, stack: u64) -> Reached {
    let reached = note_frames(addresses, Some(pc), stack);
    if addresses.is_empty() {
        addresses.add(pc);
    }
    reached
}

unsafe extern "C" {
    fn _Unwind_Backtrace(
        each: extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        data: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> u64;
    fn _Unwind_GetCFA(context: *mut c_void) -> u64;
}

/// Whether the caller runs above a guarded call whose frames lie below `stack`, on the same stack.
#[inline(never)]
pub(super) fn is_called_by(stack: u64) -> bool {
    extern "C" fn look(context: *mut c_void, data: *mut c_void) -> c_int {
        // SAFETY: the unwinder's own, and the two words below.
        let (frame, (stack, met)) = unsafe {
            let data = &mut *data.cast::<(u64, bool)>();
            (_Unwind_GetCFA(context), data)
        };
        *met = frame == *stack;
        // Frames above it belong to its caller, or to the code that resumed this fiber.
        if *met || frame > *stack { END } else { GO_ON }
    }
    let mut data = (stack, false);
    // SAFETY: `look` gets two words.
    unsafe { _Unwind_Backtrace(look, (&raw mut data).cast()) };
    data.1
}

/// Return values of a step of a walk.
const GO_ON: c_int = 0;
const END: c_int = 4;

struct FrameWalk<'a> {
    addresses: &'a mut Addresses,
    /// The first frame; `None`: the first frame of JIT'd code.
    from: Option<u64>,
    begun: bool,
    stack: u64,
    reached: Reached,
}

/// The end of a walk from JIT'd code.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reached {
    /// A frame that the unwinder does not know, or the maximal length of a backtrace.
    Unknown,
    /// To the guarded call.
    Guard,
    /// Past it, without its frame: the guarded call is on another stack.
    Elsewhere,
}

fn note_frames(addresses: &mut Addresses, from: Option<u64>, stack: u64) -> Reached {
    let mut walk = FrameWalk {
        reached: Reached::Unknown,
        addresses,
        from,
        begun: false,
        stack,
    };
    // SAFETY: `step` gets a `FrameWalk`. It may run in a handler: the thread was in JIT'd code, and
    // holds no lock of the unwinder.
    unsafe { _Unwind_Backtrace(step, (&raw mut walk).cast()) };
    walk.reached
}

extern "C" fn step(context: *mut c_void, data: *mut c_void) -> c_int {
    // SAFETY: the unwinder's own, and `note_frames`'s.
    let (walk, pc, frame) = unsafe {
        let walk = &mut *data.cast::<FrameWalk<'_>>();
        (walk, _Unwind_GetIP(context), _Unwind_GetCFA(context))
    };
    if !walk.begun {
        walk.begun = match walk.from {
            // A trap's address is behind its instruction.
            Some(from) => pc == from || pc == from + 1,
            None => is_jitted(pc.wrapping_sub(1)),
        };
        if !walk.begun {
            return GO_ON;
        }
    }
    // The handler's frames are on another stack; those below the guard are not its call's.
    if frame == walk.stack {
        walk.reached = Reached::Guard;
    }
    if frame > walk.stack && walk.reached == Reached::Unknown {
        walk.reached = Reached::Elsewhere;
    }
    if frame > walk.stack || pc == 0 {
        return END;
    }
    if walk.addresses.add(pc) { GO_ON } else { END }
}

/// Passes a fault that is not the runtime's to the previous handler.
///
/// # Safety
/// The arguments are the kernel's.
unsafe fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let Some(place) = SIGNALS.iter().position(|&known| known == signal) else {
        return;
    };
    // SAFETY: written before the handler was set.
    let before = unsafe { (*BEFORE.0.get())[place].assume_init_ref() };
    // SAFETY: the kernel's own.
    let sent = unsafe { (*info).si_code } <= 0;
    match before.sa_sigaction {
        libc::SIG_IGN if sent => {}
        // Even if ignored, an instruction that cannot run ends the process.
        libc::SIG_IGN | libc::SIG_DFL => {
            // SAFETY: async-signal-safe calls. An instruction runs again, and faults again; a
            // signal that was sent is sent again, and is pending until this handler returns.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &action, ptr::null_mut());
                if sent || signal == libc::SIGTRAP {
                    libc::syscall(libc::SYS_tgkill, libc::getpid(), libc::gettid(), signal);
                }
            }
        }
        // SAFETY: the host set this handler for this signal.
        address => unsafe { call_handler(address, before, signal, info, context) },
    }
}

/// Calls a handler with the signals blocked that the interrupted code blocks, and those in the
/// handler's mask.
///
/// # Safety
/// A handler that was set as `action` says; the arguments are the kernel's.
unsafe fn call_handler(
    address: usize,
    action: &libc::sigaction,
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) {
    // SAFETY: valid sets. The two types of handlers agree in their first argument, and the calling
    // convention lets a function ignore the others.
    unsafe {
        let mut mask: libc::sigset_t = std::mem::zeroed();
        let interrupted = &(*context.cast::<libc::ucontext_t>()).uc_sigmask;
        libc::pthread_sigmask(libc::SIG_SETMASK, interrupted, &mut mask);
        libc::pthread_sigmask(libc::SIG_BLOCK, &action.sa_mask, ptr::null_mut());
        if action.sa_flags & libc::SA_NODEFER == 0 {
            let mut own: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut own);
            libc::sigaddset(&mut own, signal);
            libc::pthread_sigmask(libc::SIG_BLOCK, &own, ptr::null_mut());
        }
        if action.sa_flags & libc::SA_SIGINFO != 0 {
            let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                std::mem::transmute(address);
            handler(signal, info, context);
        } else {
            let handler: extern "C" fn(c_int) = std::mem::transmute(address);
            handler(signal);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &mask, ptr::null_mut());
    }
}
