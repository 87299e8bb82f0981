//! Interrupts and deadlines of guarded calls.
//!
//! A thread that makes guarded calls has a timer of its own, whose signal is sent to it. When a
//! deadline passes, or a call is interrupted, the handler of that signal checks where the thread
//! is. In JIT'd code right above the innermost guard, it continues below the guard. Anywhere else,
//! in the library, in libc or in a function of the host, it continues where it is, and is checked
//! again [`AGAIN_NS`] later, until it is back in JIT'd code, or the call ends.
//!
//! # Why
//! Code counts fuel at its loops and entries only where the embedder requests it
//! ([`passes`](crate::guarded::passes)), as that has a cost. A signal costs nothing without an interrupt, in
//! every tier, and reaches code of object files and units. It cannot end a call at the same place
//! each time it is run, as fuel does. It cannot wake a thread that sleeps in the kernel, or reach
//! one that blocks the signal. For code that counts fuel, the signal comes [`GRACE_NS`] late, for
//! parts that do not count.
//!
//! | field of `Thread` | written by | ordering |
//! |---|---|---|
//! | `current` | the thread: serial of its innermost guarded call, which is active by then | release; acquire in `interrupt` |
//! | `looks` | the thread: whether its code counts fuel | relaxed: it only determines a waiting time |
//! | `asks` | see there | see there |
//! | `timer` | the thread, at its first use, in a child of `fork` again, and at its end | its lock |
//! | `armed_by`, `of` | likewise; read by the thread and its handlers only | relaxed |
//!
//! The interrupting thread stores the request first, then sets the timer. The interrupted thread
//! sets it, then checks for requests that came meanwhile ([`Thread::rearm`]). So the timer is never
//! set later than requested.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

use uruk_base::locks::{Mutex, ranks};
use uruk_stubs::landing_address;

use crate::error::trap::TrapKind;
use crate::fork::gate;
use crate::guarded::asks::EndRequests;
use crate::guarded::backtrace::Addresses;
use crate::guarded::chain::{self, from};
use crate::guarded::ends;
use crate::guarded::fault::{Reached, is_jitted, note_from};
use crate::guarded::guard::{Caught, Guard, current};
use crate::guarded::passes;
use crate::guarded::timers::{self, new_timer, set};

/// The number of a guarded call on its thread, from 1.
pub(super) type Serial = u64;

/// Delay until a thread is checked again that could not be interrupted.
const AGAIN_NS: u64 = 200_000;

/// Time for code that counts fuel to stop by itself, before it gets a signal: it may be in code
/// that does not count.
const GRACE_NS: u64 = 20_000_000;

/// Delay until a thread is checked again whose call to be ended is on another of its stacks.
const ELSEWHERE_NS: u64 = 10_000_000;

/// The shared state of a thread that makes guarded calls.
#[derive(Debug, Default)]
struct Thread {
    current: AtomicU64,
    asks: EndRequests,
    /// Whether code of the innermost guarded call counts fuel.
    looks: AtomicBool,
    timer: Mutex<Timer, ranks::ThreadTimer>,
    /// The timer's number plus one, without the lock, for the thread and its handlers.
    armed_by: AtomicU64,
    /// The process that owns the timer, likewise.
    of: AtomicI32,
}

#[derive(Debug, Default)]
struct Timer {
    /// Its number, and the process that owns it.
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
    /// The shared state of the thread, with a reference of its own; null before it exists.
    static SEEN: Cell<*const Thread> = const { Cell::new(ptr::null()) };
}

/// Drops the shared state at the thread's end.
pub(super) fn end_thread() {
    let seen = SEEN.replace(ptr::null());
    if seen.is_null() {
        return;
    }
    // SAFETY: the thread's own reference, which it does not use any more.
    let shared = unsafe { Arc::from_raw(seen) };
    let _pass = gate::enter();
    let mut timer = shared.timer.lock();
    timer.over = true;
    if let Some((number, process)) = timer.made.take()
        && process == getpid()
    {
        // SAFETY: a timer of this process, which is not used any more: the lock is held.
        unsafe { libc::timer_delete(ptr::without_provenance_mut(number)) };
    }
}

/// The shared state of the calling thread, if it exists.
fn seen() -> Option<&'static Thread> {
    // SAFETY: null, or the thread's own state, which lives until its end.
    unsafe { SEEN.get().as_ref() }
}

fn getpid() -> libc::pid_t {
    // SAFETY: a plain query.
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
    /// The calling thread. The first call creates its timer.
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

    /// The fuel that the calling thread has used in code that counts it
    /// ([`JitBuilder::count_fuel`](crate::JitBuilder::count_fuel), which has an example). The
    /// difference of two results is the fuel used in between.
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
        let timer = self.shared.timer.lock();
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

/// The serial of a new guarded call.
pub(super) fn next_serial() -> Serial {
    let mut serial: u64 = 1;
    SERIAL.with(|place| {
        // SAFETY: adds to a word of the thread by one instruction, so that no handler's call gets
        // the same number; other threads do not see it, so no lock prefix is needed.
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

/// Notes a guarded call that has begun: its guard is active.
pub(crate) fn begun(guard: &Guard) {
    if let Some(thread) = seen() {
        thread.goes_on(Some(guard));
    }
}

/// Notes a guarded call that has ended: its guard is inactive. The timer continues for others.
pub(crate) fn ended(guard: &Guard) {
    let Some(thread) = seen() else { return };
    thread.goes_on(current());
    if (guard.deadline.get() != 0 || thread.asks.any())
        && let Some(number) = thread.number()
    {
        thread.asks.retain(|serial| serial != guard.serial);
        thread.rearm(number, thread.soon());
    }
}

/// Notes that a function of the host returns into a guarded call, on a thread that has fibers:
/// another call may have run meanwhile.
pub(super) fn resumed(guard: &Guard) {
    let Some(thread) = seen() else { return };
    thread.goes_on(Some(guard));
    if (guard.deadline.get() != 0 || thread.asks.any())
        && let Some(number) = thread.number()
    {
        thread.rearm(number, thread.soon());
    }
}

/// Resets the thread in the child of a fork, whose only thread it is: timers are not copied.
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
    /// Sets the guarded call in which the thread continues, if any.
    fn goes_on(&self, guard: Option<&Guard>) {
        let looks = guard.is_some_and(|guard| guard.looks);
        self.looks.store(looks, Ordering::Relaxed);
        let serial = guard.map_or(0, |guard| guard.serial);
        self.current.store(serial, Ordering::Release);
    }

    /// Delay until the thread gets a signal if its call must end.
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

    /// Creates the timer of the calling thread, to which `self` belongs, unless it has one.
    fn make_timer(&self) {
        // Relaxed: the thread's own.
        if self.number().is_none() {
            let _pass = gate::enter();
            self.make_timer_inside();
        }
    }

    /// Like `make_timer`, under a pass, or in a child with one thread.
    fn make_timer_inside(&self) {
        let process = getpid();
        let mut timer = self.timer.lock();
        timer.made = new_timer().map(|number| (number, process));
        let seen = timer.made.map_or(0, |(number, _)| number as u64 + 1);
        self.armed_by.store(seen, Ordering::Relaxed);
        self.of.store(process, Ordering::Relaxed);
    }

    /// Sets the timer for the next event: in `due` nanoseconds if a call must end now.
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

/// Sets the deadline of a call; false if there is no timer to enforce it.
pub(crate) fn arm(guard: &Guard, limit: Duration) -> bool {
    let thread = GuestThread::current().shared;
    let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
    let deadline = now_ns().saturating_add(limit).max(1);
    guard.deadline.set(deadline);
    match thread.number() {
        Some(number) => {
            timers::unblock();
            thread.rearm(number, thread.soon());
        }
        // Code that counts fuel detects it by itself.
        None => return guard.looks,
    }
    true
}

/// The time at which the first of them gets a signal.
fn earliest<'g>(guards: impl Iterator<Item = &'g Guard>) -> Option<u64> {
    let deadlines = guards.filter(|guard| guard.deadline.get() != 0);
    let signals = deadlines.map(|guard| {
        let grace = if guard.looks { GRACE_NS } else { 0 };
        guard.deadline.get().saturating_add(grace)
    });
    signals.min()
}

/// The reason if the innermost guarded call of the calling thread, or one below it, must end; for
/// code that counts fuel.
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
    /// Whether its deadline has passed.
    fn has_passed(&self, now: u64) -> bool {
        self.deadline.get() != 0 && self.deadline.get() <= now
    }
}

impl Thread {
    /// Whether a call must end.
    fn is_due(&self, guard: &Guard, now: u64) -> bool {
        guard.has_passed(now) || self.asks.has(guard.serial)
    }
}

/// # Safety
/// Called by the kernel, with its own arguments.
pub(crate) unsafe extern "C" fn handler(
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

/// Leaves the innermost guarded call, if it or one below it must end and its thread can be
/// interrupted there.
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
        // On a fiber without a guard, below the guard's.
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
    // For another call below that must end, too.
    set(number, AGAIN_NS);
}
