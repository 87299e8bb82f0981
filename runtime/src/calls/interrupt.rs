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
//! | `current` | the thread: serial of its innermost guarded call, which counts by then | release; acquire in `interrupt` |
//! | `looks` | the thread: whether its code looks by itself | relaxed: it is only how long to wait |
//! | `asks` | see there | see there |
//! | `timer` | the thread, with the first use, in a child of `fork` again, and at its end | its lock |
//! | `armed_by`, `of` | likewise; read by the thread and its handlers only | relaxed |
//!
//! Who interrupts asks first, then sets the timer. The thread sets it, then looks whether somebody
//! has asked meanwhile ([`Thread::rearm`]). So the timer is never set later than what was asked.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use uruk_base::locks::Mutex;
use uruk_stubs::landing_address;

use super::asks::Asks;
use super::chain::{self, from};
use super::fault::{Reached, is_jitted, note_from};
use super::guard::{Caught, Guard, current};
use super::timers::{self, new_timer, set};
use super::trap::Addresses;
use super::trap::TrapKind;
use super::{ends, passes};
use crate::fork::gate;

/// The number of a guarded call on its thread, from 1.
pub(super) type Serial = u64;

/// When a thread is looked at again that cannot be interrupted where it is.
const AGAIN_NS: u64 = 200_000;

/// How long code that looks is waited for, before it gets a signal: it may be in code that does not.
const GRACE_NS: u64 = 20_000_000;

/// When a thread is looked at again where the call that is to end is on another stack of it.
const ELSEWHERE_NS: u64 = 10_000_000;

/// What is shared of a thread that makes guarded calls.
#[derive(Debug, Default)]
struct Thread {
    current: AtomicU64,
    asks: Asks,
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
    static SERIAL: Cell<Serial> = const { Cell::new(0) };
    /// What is shared of the thread, of which it has a reference; null before there is one.
    static SEEN: Cell<*const Thread> = const { Cell::new(ptr::null()) };
}

/// At the thread's end.
pub(super) fn end_thread() {
    let seen = SEEN.replace(ptr::null());
    if seen.is_null() {
        return;
    }
    // SAFETY: the thread's own reference, which it uses no more.
    let shared = unsafe { Arc::from_raw(seen) };
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

/// What is shared of the calling thread, if there is such.
fn seen() -> Option<&'static Thread> {
    // SAFETY: null, or the thread's own, which lives until its end.
    unsafe { SEEN.get().as_ref() }
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
        if SEEN.get().is_null() {
            SEEN.set(Arc::into_raw(Arc::default()));
            ends::note();
        }
        let shared = SEEN.get();
        // SAFETY: made by `into_raw`; the thread has a reference, and this is another one.
        let shared = unsafe {
            Arc::increment_strong_count(shared);
            Arc::from_raw(shared)
        };
        shared.make_timer();
        shared.goes_on(current());
        GuestThread { shared }
    }

    /// Passes that the calling thread has made in code that counts them
    /// ([`JitBuilder::count_fuel`](crate::JitBuilder::count_fuel), which has an example). What
    /// a call made is the difference.
    pub fn fuel_used() -> u64 {
        passes::made()
    }

    /// Interrupts the thread's innermost guarded call; false if it is in none.
    pub(crate) fn interrupt(&self) -> bool {
        let current = self.shared.current.load(Ordering::Acquire);
        if current == 0 {
            return false;
        }
        let _pass = gate::enter();
        let timer = self
            .shared
            .timer
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match timer.made {
            Some((number, process)) if !timer.over && process == getpid() => {
                self.shared.asks.add(current);
                set(number, self.shared.soon());
            }
            _ => return false,
        }
        true
    }
}

/// The number of a guarded call that begins.
pub(super) fn next_serial() -> Serial {
    let mut serial: u64 = 1;
    SERIAL.with(|place| {
        // SAFETY: adds to a word of the thread's, by one instruction, so that no handler's call gets
        // the same number; other threads do not see it, so no lock of the bus.
        unsafe {
            std::arch::asm!(
                "xadd [{}], {}",
                in(reg) place.as_ptr(),
                inout(reg) serial,
                options(nostack)
            )
        };
    });
    serial + 1
}

/// A guarded call has begun: its guard counts.
pub(super) fn begun(guard: &Guard) {
    if let Some(thread) = seen() {
        thread.goes_on(Some(guard));
    }
}

/// A guarded call is over: its guard counts no more. The timer goes on for others.
pub(super) fn ended(guard: &Guard) {
    let Some(thread) = seen() else { return };
    thread.goes_on(current());
    if (guard.deadline.get() != 0 || thread.asks.any())
        && let Some(number) = thread.number()
    {
        thread.asks.retain(|serial| serial != guard.serial);
        thread.rearm(number, thread.soon());
    }
}

/// A function of the host returns into a guarded call, on a thread that has fibers: it may have
/// been another one's turn meanwhile.
pub(super) fn resumed(guard: &Guard) {
    let Some(thread) = seen() else { return };
    thread.goes_on(Some(guard));
    if (guard.deadline.get() != 0 || thread.asks.any())
        && let Some(number) = thread.number()
    {
        thread.rearm(number, thread.soon());
    }
}

/// In the child of a fork, on its only thread: timers are not copied.
pub(crate) fn after_fork_child() {
    if let Some(thread) = seen()
        && thread.of.load(Ordering::Relaxed) != 0
    {
        thread.make_timer_inside();
        if let Some(number) = thread.number() {
            thread.rearm(number, thread.soon());
        }
    }
}

impl Thread {
    /// The thread goes on in a guarded call, or in none.
    fn goes_on(&self, guard: Option<&Guard>) {
        let looks = guard.is_some_and(|guard| guard.looks);
        self.looks.store(looks, Ordering::Relaxed);
        let serial = guard.map_or(0, |guard| guard.serial);
        self.current.store(serial, Ordering::Release);
    }

    /// When the thread gets a signal that is asked to end.
    fn soon(&self) -> u64 {
        match self.looks.load(Ordering::Relaxed) {
            true => GRACE_NS,
            false => 1,
        }
    }

    /// The timer, if the thread has one in this process.
    fn number(&self) -> Option<usize> {
        let number = self.armed_by.load(Ordering::Relaxed).checked_sub(1)?;
        (self.of.load(Ordering::Relaxed) == getpid()).then_some(number as usize)
    }

    /// Makes the timer of the calling thread, whose this is, unless it has one.
    fn make_timer(&self) {
        // Relaxed: the thread's own.
        if self.number().is_none() {
            let _pass = gate::enter();
            self.make_timer_inside();
        }
    }

    /// The same under a pass, or in a child that nobody else is in.
    fn make_timer_inside(&self) {
        let process = getpid();
        let mut timer = self.timer.lock().unwrap_or_else(PoisonError::into_inner);
        timer.made = new_timer().map(|number| (number, process));
        let seen = timer.made.map_or(0, |(number, _)| number as u64 + 1);
        self.armed_by.store(seen, Ordering::Relaxed);
        self.of.store(process, Ordering::Relaxed);
    }

    /// Sets the timer for what comes next: in `due` nanoseconds if a call is to end by now.
    fn rearm(&self, number: usize, due: u64) {
        let mut due = due;
        loop {
            let count = self.asks.count();
            let now = now_ns();
            let deadline = earliest(chain::all());
            let wait = match deadline {
                Some(at) if at > now => Some(at - now),
                Some(_) => Some(due),
                None => None,
            };
            let asked = self.asks.any().then_some(due);
            set(number, asked.into_iter().chain(wait).min().unwrap_or(0));
            if self.asks.count() == count {
                return;
            }
            due = 1;
        }
    }
}

/// Has a call be over in time; false if there is no timer that would see to it.
pub(super) fn arm(guard: &Guard, limit: Duration) -> bool {
    let thread = GuestThread::current().shared;
    let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
    let deadline = now_ns().saturating_add(limit).max(1);
    guard.deadline.set(deadline);
    match thread.number() {
        Some(number) => {
            timers::unblock();
            thread.rearm(number, thread.soon());
        }
        // Code that looks sees it by itself.
        None => return guard.looks,
    }
    true
}

/// When the first of them gets a signal.
fn earliest<'g>(guards: impl Iterator<Item = &'g Guard>) -> Option<u64> {
    let deadlines = guards.filter(|guard| guard.deadline.get() != 0);
    let signals = deadlines.map(|guard| {
        let grace = if guard.looks { GRACE_NS } else { 0 };
        guard.deadline.get().saturating_add(grace)
    });
    signals.min()
}

/// Why the innermost guarded call of the calling thread is over, if it or one below it is; for code
/// that looks.
pub(super) fn why_over(guard: &Guard) -> Option<TrapKind> {
    let thread = seen()?;
    let timed = from(guard).any(|guard| guard.deadline.get() != 0);
    if !timed && !thread.asks.any() {
        return None;
    }
    let now = now_ns();
    if thread.asks.has(guard.serial) {
        thread.asks.retain(|serial| serial != guard.serial);
        return Some(TrapKind::Interrupted);
    }
    if guard.has_passed(now) {
        return Some(TrapKind::Deadline(guard.limit.unwrap_or_default()));
    }
    from(guard)
        .any(|guard| thread.is_due(guard, now))
        .then_some(TrapKind::Interrupted)
}

impl Guard {
    /// Whether its limit has passed.
    fn has_passed(&self, now: u64) -> bool {
        self.deadline.get() != 0 && self.deadline.get() <= now
    }
}

impl Thread {
    /// Whether a call is to end.
    fn is_due(&self, guard: &Guard, now: u64) -> bool {
        guard.has_passed(now) || self.asks.has(guard.serial)
    }
}

/// # Safety
/// Called by the kernel, with its own arguments.
pub(super) unsafe extern "C" fn handler(
    _: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) {
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
    let Some(thread) = seen() else { return };
    let Some(number) = thread.number() else {
        return;
    };
    thread.asks.retain(chain::has);
    let registers = &context.uc_mcontext.gregs;
    let pc = registers[libc::REG_RIP as usize] as u64;
    let sp = registers[libc::REG_RSP as usize] as u64;
    let now = now_ns();
    let due = |guard: &&Guard| from(guard).any(|guard| thread.is_due(guard, now));
    let Some(guard) = chain::at(sp).filter(due) else {
        return thread.rearm(number, ELSEWHERE_NS);
    };
    if !guard.is_open() || !is_jitted(pc) {
        return set(number, AGAIN_NS);
    }
    let own = thread.asks.has(guard.serial);
    // SAFETY: its own thread's.
    let addresses = unsafe { &mut *guard.addresses.get() };
    if note_from(addresses, pc, guard.stack()) == Reached::Elsewhere {
        // On a fiber without a guard, below the one of the guard.
        *addresses = Addresses::NONE;
        return thread.rearm(number, ELSEWHERE_NS);
    }
    guard.caught.set(match guard.has_passed(now) && !own {
        true => Caught::Deadline,
        false => Caught::Interrupted,
    });
    thread.asks.retain(|serial| serial != guard.serial);
    let registers = &mut context.uc_mcontext.gregs;
    registers[libc::REG_RIP as usize] = landing_address() as i64;
    registers[libc::REG_RDI as usize] = guard.landing() as i64;
    registers[libc::REG_EFL as usize] &= !(1 << 10);
    // For a call below that is to end, too.
    set(number, AGAIN_NS);
}
