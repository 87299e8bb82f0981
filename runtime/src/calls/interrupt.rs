//! Interrupts and deadlines of guarded calls.
//!
//! A thread that makes guarded calls has a timer of its own, whose signal comes to it. When a
//! deadline passes, or somebody interrupts a call, the handler of that signal looks where the
//! thread is. In JIT'd code right above the innermost guard: it goes on below the guard. Anywhere
//! else, in the library, in libc or in a function of the host, it is let go on, and looked at again
//! [`AGAIN_NS`] later, until it is back in JIT'd code, or the call is over.
//!
//! # Why
//! Code looks at a word at its loops and entries only where somebody asks for it
//! ([`passes`](super::passes)): it pays for that. A signal costs what is not interrupted nothing, in
//! every tier, and reaches code of object files and units. What it cannot do: end a call at the same
//! place each time it is run, as counted fuel does; wake a thread that sleeps in the system; or reach
//! one that blocks the signal. Of code that looks, the signal comes [`GRACE_NS`] late, for what does
//! not look.
//!
//! | field of `Thread` | written by | ordering |
//! |---|---|---|
//! | `current` | the thread: serial of its innermost guarded call | release; acquire in `interrupt` |
//! | `looks` | the thread: whether its code looks by itself | relaxed: it is only how long to wait |
//! | `asked` | whoever interrupts: the call that is to end | release; acquire in the handler |
//! | `timer` | the thread, with the first use, in a child of `fork` again, and at its end | its lock |
//! | `armed_by`, `of` | likewise; read by the thread and its handlers only | relaxed |

use std::cell::{Cell, OnceCell};
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use uruk_base::locks::Mutex;
use uruk_stubs::landing_address;

use super::fault::{is_jitted, note_from};
use super::guard::{Caught, Guard, from, innermost};
use super::passes;
use super::trap::TrapKind;
use crate::fork::gate;

/// The number of a guarded call on its thread, from 1.
pub(super) type Serial = u64;

/// When a thread is looked at again that cannot be interrupted where it is.
const AGAIN_NS: u64 = 200_000;

/// How long code that looks is waited for, before it gets a signal: it may be in code that does not.
const GRACE_NS: u64 = 20_000_000;

/// The signal of the timers; 0: none is there yet, -1: there is none.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

/// What is shared of a thread that makes guarded calls.
#[derive(Debug, Default)]
struct Thread {
    current: AtomicU64,
    asked: AtomicU64,
    /// Whether code of the innermost guarded call looks.
    looks: AtomicBool,
    timer: Mutex<Timer>,
    /// The same without the lock, for the thread and its handlers: the timer's number and one.
    armed_by: AtomicU64,
    /// The process that has it, likewise.
    of: AtomicI32,
}

#[derive(Debug, Default)]
struct Timer {
    /// Its number, and the process that has it.
    made: Option<(usize, libc::pid_t)>,
    over: bool,
}

/// A thread that makes guarded calls, for [`Jit::interrupt`](crate::Jit::interrupt). Cheap to
/// clone, usable from any thread.
#[derive(Debug, Clone)]
pub struct GuestThread {
    shared: Arc<Thread>,
}

thread_local! {
    static OWN: Own = const { Own { shared: OnceCell::new() } };
    static SERIAL: Cell<Serial> = const { Cell::new(0) };
    /// What handlers see of `OWN`: null before there is one, and at the thread's end.
    static SEEN: Cell<*const Thread> = const { Cell::new(ptr::null()) };
}

struct Own {
    shared: OnceCell<Arc<Thread>>,
}

impl Drop for Own {
    fn drop(&mut self) {
        SEEN.set(ptr::null());
        let Some(shared) = self.shared.get() else {
            return;
        };
        let _pass = gate::enter();
        let mut timer = shared.timer.lock().unwrap_or_else(PoisonError::into_inner);
        timer.over = true;
        if let Some((number, process)) = timer.made.take()
            && process == getpid()
        {
            // SAFETY: a timer of this process, which nobody uses any more: the lock is held.
            unsafe { libc::timer_delete(ptr::without_provenance_mut(number)) };
        }
    }
}

fn getpid() -> libc::pid_t {
    // SAFETY: asks.
    unsafe { libc::getpid() }
}

fn now_ns() -> u64 {
    // SAFETY: a valid structure; async-signal-safe.
    unsafe {
        let mut now: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }
}

impl GuestThread {
    /// The calling thread. It gets a timer with the first call of this.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let jit = uruk::Jit::new()?;
    /// jit.add_ir("m", "define void @spin() { br label %l l: br label %l }")?;
    /// // SAFETY: the function above.
    /// let spin = unsafe { jit.function::<extern "C" fn()>("spin")? };
    /// let thread = uruk::GuestThread::current();
    /// let other = jit.clone();
    /// std::thread::spawn(move || {
    ///     // Until the call is there.
    ///     while !other.interrupt(&thread) {
    ///         std::thread::sleep(Duration::from_millis(1));
    ///     }
    /// });
    /// let trap = spin.call_guarded().expect_err("interrupted");
    /// assert!(matches!(trap.kind, uruk::TrapKind::Interrupted));
    /// # Ok::<(), uruk::Error>(())
    /// ```
    pub fn current() -> GuestThread {
        let shared = OWN.with(|own| {
            let shared = own.shared.get_or_init(Arc::default);
            SEEN.set(Arc::as_ptr(shared));
            Arc::clone(shared)
        });
        shared.make_timer();
        // SAFETY: it stands as long as the call above it, which goes on.
        let looks = unsafe { innermost().as_ref() }.is_some_and(|guard| guard.looks);
        shared.looks.store(looks, Ordering::Relaxed);
        shared.current.store(serial_now(), Ordering::Release);
        GuestThread { shared }
    }

    /// Passes that the calling thread has made in code that counts them
    /// ([`JitBuilder::count_passes`](crate::JitBuilder::count_passes), which has an example). What
    /// a call made is the difference.
    pub fn passes() -> u64 {
        passes::made()
    }

    /// Interrupts the thread's innermost guarded call; false if it is in none.
    pub(crate) fn interrupt(&self) -> bool {
        let current = self.shared.current.load(Ordering::Acquire);
        if current == 0 {
            return false;
        }
        self.shared.asked.store(current, Ordering::Release);
        let _pass = gate::enter();
        let timer = self
            .shared
            .timer
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match timer.made {
            Some((number, process)) if !timer.over && process == getpid() => {
                let looks = self.shared.looks.load(Ordering::Relaxed);
                set(number, if looks { GRACE_NS } else { 1 });
            }
            _ => return false,
        }
        true
    }
}

/// The serial of the innermost guard.
fn serial_now() -> Serial {
    // SAFETY: it stands as long as the call above it, which goes on.
    unsafe { innermost().as_ref() }.map_or(0, |guard| guard.serial)
}

/// The number of a guarded call that begins.
pub(super) fn begin(looks: bool) -> Serial {
    let serial = SERIAL.get() + 1;
    SERIAL.set(serial);
    // SAFETY: as long as it is not null it is the thread's own, which lives.
    if let Some(shared) = unsafe { SEEN.get().as_ref() } {
        shared.looks.store(looks, Ordering::Relaxed);
        shared.current.store(serial, Ordering::Release);
    }
    serial
}

/// A guarded call is over.
pub(super) fn end(guard: &Guard) {
    // SAFETY: as above.
    if let Some(shared) = unsafe { SEEN.get().as_ref() } {
        // SAFETY: what was below it stands.
        let before = unsafe { guard.previous.as_ref() };
        let looks = before.is_some_and(|guard| guard.looks);
        shared.looks.store(looks, Ordering::Relaxed);
        let before = before.map_or(0, |guard| guard.serial);
        shared.current.store(before, Ordering::Release);
    }
}

impl Thread {
    /// Makes the timer of the calling thread, whose this is, unless it has one.
    fn make_timer(&self) {
        let process = getpid();
        // Relaxed: the thread's own.
        if self.of.load(Ordering::Relaxed) == process {
            return;
        }
        let _pass = gate::enter();
        let mut timer = self.timer.lock().unwrap_or_else(PoisonError::into_inner);
        timer.made = new_timer().map(|number| (number, process));
        let seen = timer.made.map_or(0, |(number, _)| number as u64 + 1);
        self.armed_by.store(seen, Ordering::Relaxed);
        self.of.store(process, Ordering::Relaxed);
    }
}

/// Has a call be over in time. Without a timer it has no limit: there are as many timers as
/// signals that may be pending (`ulimit -i`).
pub(super) fn arm(guard: &Guard, limit: Duration) {
    let thread = GuestThread::current();
    let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
    let deadline = now_ns().saturating_add(limit).max(1);
    guard.deadline.set(deadline);
    let armed = thread.shared.armed_by.load(Ordering::Relaxed);
    if let Some(number) = armed.checked_sub(1) {
        let earliest = earliest(guard).unwrap_or(deadline);
        set(number as usize, earliest.saturating_sub(now_ns()).max(1));
    }
}

/// A call with a deadline is over: the timer goes on for those below.
pub(super) fn disarm(below: *const Guard) {
    // SAFETY: as in `begin`.
    let Some(shared) = (unsafe { SEEN.get().as_ref() }) else {
        return;
    };
    let Some(number) = shared.armed_by.load(Ordering::Relaxed).checked_sub(1) else {
        return;
    };
    // Whoever was asked to end meanwhile is looked at again.
    let asked = shared.asked.load(Ordering::Acquire);
    // SAFETY: what is below stands.
    let next = unsafe { below.as_ref() }.and_then(earliest);
    let wait = match next {
        _ if asked != 0 => 1,
        Some(deadline) => deadline.saturating_sub(now_ns()).max(1),
        None => 0,
    };
    set(number as usize, wait);
}

/// When the first of them gets a signal.
fn earliest(guard: &Guard) -> Option<u64> {
    let deadlines = from(guard).filter(|guard| guard.deadline.get() != 0);
    let signals = deadlines.map(|guard| {
        let grace = if guard.looks { GRACE_NS } else { 0 };
        guard.deadline.get().saturating_add(grace)
    });
    signals.min()
}

/// Why the innermost guarded call of the calling thread is over, if it or one below it is; for code
/// that looks.
pub(super) fn why_over(guard: &Guard) -> Option<TrapKind> {
    // SAFETY: null, or the thread's own.
    let thread = unsafe { SEEN.get().as_ref() }?;
    let asked = thread.asked.load(Ordering::Acquire);
    let timed = from(guard).any(|guard| guard.deadline.get() != 0);
    if asked == 0 && !timed {
        return None;
    }
    let now = now_ns();
    let passed = |guard: &Guard| guard.deadline.get() != 0 && guard.deadline.get() <= now;
    if guard.serial == asked {
        thread.asked.store(0, Ordering::Relaxed);
        return Some(TrapKind::Interrupted);
    }
    if passed(guard) {
        return Some(TrapKind::Deadline(guard.limit.unwrap_or_default()));
    }
    let is_due = |guard: &Guard| guard.serial == asked || passed(guard);
    from(guard).any(is_due).then_some(TrapKind::Interrupted)
}

/// Has a timer expire once, in so many nanoseconds; 0: not at all. Async-signal-safe.
fn set(number: usize, after_ns: u64) {
    let at = libc::timespec {
        tv_sec: (after_ns / 1_000_000_000).min(i64::MAX as u64) as i64,
        tv_nsec: (after_ns % 1_000_000_000) as i64,
    };
    let none = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let when = libc::itimerspec {
        it_interval: none,
        it_value: at,
    };
    let timer = ptr::without_provenance_mut(number);
    // SAFETY: a timer of the process; a valid structure.
    unsafe { libc::timer_settime(timer, 0, &when, ptr::null_mut()) };
}

/// A timer whose signal comes to the calling thread.
fn new_timer() -> Option<usize> {
    let signal = signal()?;
    // SAFETY: a valid structure, with the calling thread's number where the kernel reads it.
    unsafe {
        let mut event: libc::sigevent = std::mem::zeroed();
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal;
        event.sigev_notify_thread_id = libc::gettid();
        let mut timer: libc::timer_t = ptr::null_mut();
        let made = libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer) == 0;
        made.then_some(timer.addr())
    }
}

/// The signal of the timers: a real-time one that nobody uses, chosen once.
fn signal() -> Option<c_int> {
    static CHOICE: Mutex<()> = Mutex::new(());
    let _choosing = CHOICE.lock().unwrap_or_else(PoisonError::into_inner);
    match SIGNAL.load(Ordering::Relaxed) {
        0 => {}
        known => return (known > 0).then_some(known),
    }
    let free = |&signal: &c_int| {
        // SAFETY: asks.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, ptr::null(), &mut action) == 0
                && action.sa_sigaction == libc::SIG_DFL
        }
    };
    // From the middle: programs take the lowest and the highest.
    let middle = (libc::SIGRTMIN() + libc::SIGRTMAX()) / 2;
    let mut candidates = (middle..libc::SIGRTMAX()).chain(libc::SIGRTMIN()..middle);
    let chosen = candidates.find(free).filter(|&signal| {
        // SAFETY: a valid structure; a handler of that type. It interrupts no system call for good.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
            libc::sigemptyset(&mut action.sa_mask);
            libc::sigaction(signal, &action, ptr::null_mut()) == 0
        }
    });
    SIGNAL.store(chosen.unwrap_or(-1), Ordering::Relaxed);
    chosen
}

/// # Safety
/// Called by the kernel, with its own arguments.
unsafe extern "C" fn handler(_: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel's own; errno is the interrupted code's.
    unsafe {
        if (*info).si_code != libc::SI_TIMER {
            return;
        }
        let errno = *libc::__errno_location();
        look(&mut *context.cast::<libc::ucontext_t>());
        *libc::__errno_location() = errno;
    }
}

/// Leaves the innermost guarded call, if it or one below it is to end and its thread is where it
/// may be left.
fn look(context: &mut libc::ucontext_t) {
    // SAFETY: null, or the thread's own; it was there when the timer was made.
    let (Some(thread), Some(guard)) = (unsafe { SEEN.get().as_ref() }, unsafe {
        innermost().as_ref()
    }) else {
        return;
    };
    let Some(number) = thread.armed_by.load(Ordering::Relaxed).checked_sub(1) else {
        return;
    };
    let (asked, now) = (thread.asked.load(Ordering::Acquire), now_ns());
    let passed = |guard: &Guard| guard.deadline.get() != 0 && guard.deadline.get() <= now;
    let is_due = |guard: &Guard| guard.serial == asked || passed(guard);
    if !from(guard).any(is_due) {
        let next = earliest(guard).map_or(0, |at| at.saturating_sub(now).max(1));
        return set(number as usize, next);
    }
    let registers = &context.uc_mcontext.gregs;
    let pc = registers[libc::REG_RIP as usize] as u64;
    if !guard.is_open() || !is_jitted(pc) {
        return set(number as usize, AGAIN_NS);
    }
    let own = guard.serial == asked;
    guard.caught.set(match passed(guard) && !own {
        true => Caught::Deadline,
        false => Caught::Interrupted,
    });
    if own {
        thread.asked.store(0, Ordering::Relaxed);
    }
    // SAFETY: its own thread's.
    note_from(unsafe { &mut *guard.addresses.get() }, pc, guard.stack());
    let registers = &mut context.uc_mcontext.gregs;
    registers[libc::REG_RIP as usize] = landing_address() as i64;
    registers[libc::REG_RDI as usize] = guard.landing() as i64;
    registers[libc::REG_EFL as usize] &= !(1 << 10);
    // For a call below that is to end, too.
    set(number as usize, AGAIN_NS);
}
