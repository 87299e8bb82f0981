//! Chooses the handshake's signal, and keeps the program's action for it.
//!
//! The handshake uses a signal whose default action is to be ignored: `SIGURG`, which libraries do not
//! use and debuggers pass on, else `SIGWINCH`. That matters if the handler is removed between a look and
//! the signal, or the signal outlives it (after `exec`, or after the program resets all signals): it is
//! dropped, where a real-time signal would end the process.
//!
//! A program may use the same signal. The action that it sets by `sigaction` and its kin (JIT'd code
//! gets them from [`set_action`]) is kept here, and the handler of the handshake stays. It recognizes
//! its own signals by their data ([`MARK`]) and passes on all others, by a jump, on the stack and with
//! the mask that the program set. A second signal of a standard number is lost while the first is
//! pending. So that none of the program's is lost behind ours, requests use the other candidate as soon
//! as the program handles one ([`choose`]).
//!
//! Code that is not JIT'd reaches the kernel directly. If it resets the signal, the handler is installed
//! again before the next request: default and ignored are the same for these signals. If it installs a
//! handler of its own, that signal is not used. If the program handles both, no thread is asked: threads
//! that run keep code until they sleep.
//!
//! A library may define `sigaction` and give the kernel a handler of its own that calls ours
//! (ThreadSanitizer). It may do so later, with the registers of the time when the signal came: the stack
//! would be searched from a place that the thread has left. No thread is asked then either.
//!
//! | field | written by | ordering |
//! |---|---|---|
//! | `ActionPlace::version` | the writer of the rest, with all signals blocked | odd: acquire-release compare-exchange; even: release, pairs with the acquire in `read` |
//! | `handler`, `flags`, `mask` | the thread that made `version` odd | relaxed between the two |
//! | `OWNER` | installing, the child of a fork | relaxed: same process |
//! | `COVERED` | a thread that finds another handler in the kernel than it set | relaxed: a hint, only ever set |
//! | `LOCK` | the thread that changes an action in the kernel, all signals blocked | acquire compare-exchange, release store |
//!
//! The lock is a word with the process's id, so that a child of `fork` takes over a lock that another
//! thread of its parent held. A child that shares memory (`vfork`) has actions of its own in the kernel:
//! its changes go there, not here.

use std::io;

use crate::handler::entry_address;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::sys::{self, Action};

/// The candidate signals, best first.
pub(crate) const CANDIDATES: [i32; 2] = [libc::SIGURG, libc::SIGWINCH];

/// The value our signals carry.
pub(crate) const MARK: u64 = 0x7572_756b_726f_6f74;

/// Flags of our handler where the program has none.
const FLAGS: u64 = (libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART) as u64;

/// Flags that are taken from the program's action.
const THEIRS: u64 = (libc::SA_ONSTACK | libc::SA_RESTART) as u64;

/// The program's action for one candidate.
struct ActionPlace {
    version: AtomicU32,
    handler: AtomicU64,
    flags: AtomicU64,
    mask: AtomicU64,
}

static PLACES: [ActionPlace; CANDIDATES.len()] = [const {
    ActionPlace {
        version: AtomicU32::new(0),
        handler: AtomicU64::new(0),
        flags: AtomicU64::new(0),
        mask: AtomicU64::new(0),
    }
}; CANDIDATES.len()];

/// The process whose actions the places are.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// The process in which a thread changes an action, or 0.
static LOCK: AtomicU32 = AtomicU32::new(0);

impl ActionPlace {
    fn read(&self) -> Action {
        loop {
            // Acquire: pairs with the release at the end of `write`.
            let before = self.version.load(Ordering::Acquire);
            let action = Action {
                handler: self.handler.load(Ordering::Relaxed),
                flags: self.flags.load(Ordering::Relaxed),
                restorer: 0,
                mask: self.mask.load(Ordering::Relaxed),
            };
            // Acquire: the loads above stay above.
            std::sync::atomic::fence(Ordering::Acquire);
            if before & 1 == 0 && self.version.load(Ordering::Relaxed) == before {
                return action;
            }
            // The writer has all signals blocked: it is another thread, and soon done.
            sys::sched_yield();
        }
    }

    /// All signals are blocked.
    fn write(&self, action: &Action) {
        let begun = loop {
            let version = self.version.load(Ordering::Relaxed);
            let next = version.wrapping_add(1);
            // Acquire-release: what is stored below stays below.
            let swap = self.version.compare_exchange(
                version & !1,
                next | 1,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            if swap.is_ok() {
                break next;
            }
            sys::sched_yield();
        };
        std::sync::atomic::fence(Ordering::Release);
        self.handler.store(action.handler, Ordering::Relaxed);
        self.flags.store(action.flags, Ordering::Relaxed);
        self.mask.store(action.mask, Ordering::Relaxed);
        // Release: pairs with the acquire in `read`.
        self.version.store(begun.wrapping_add(1), Ordering::Release);
    }
}

/// Not 0 if `sigaction` of this process passes another handler to the kernel than its argument.
static COVERED: AtomicU32 = AtomicU32::new(0);

/// Evidence that no other thread changes actions; all signals are blocked.
struct Locked {
    mask: u64,
}

fn lock() -> Locked {
    let mask = sys::set_mask(u64::MAX);
    let pid = sys::getpid() as u32;
    loop {
        let holder = LOCK.load(Ordering::Relaxed);
        // Acquire: pairs with the release in `drop`.
        if holder != pid
            && LOCK
                .compare_exchange(holder, pid, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        {
            return Locked { mask };
        }
        sys::sched_yield();
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // Release: pairs with the acquire in `lock`.
        LOCK.store(0, Ordering::Release);
        sys::set_mask(self.mask);
    }
}

fn place(signal: i32) -> Option<&'static ActionPlace> {
    let at = CANDIDATES.iter().position(|&one| one == signal)?;
    PLACES.get(at)
}

/// Whether our handler is installed.
fn is_ours(action: &Action) -> bool {
    action.handler == entry_address()
}

/// The action with which our handler is installed if the program's action is `wanted`.
fn ours(wanted: &Action) -> Action {
    let flags = match wanted.is_handled() {
        true => libc::SA_SIGINFO as u64 | wanted.flags & THEIRS,
        false => FLAGS,
    };
    Action {
        handler: entry_address(),
        flags,
        restorer: 0,
        // All of them: also those by which glibc cancels threads, and a cancelled handler
        // would keep its request for ever.
        mask: u64::MAX,
    }
}

/// The program's action for a candidate that has our handler.
pub(crate) fn wanted(signal: i32) -> Action {
    place(signal).map_or(Action::default(), ActionPlace::read)
}

/// Resets the action in the handler, all signals blocked: a handler for one call (`SA_RESETHAND`) was
/// called.
pub(crate) fn reset(signal: i32) {
    if let Some(place) = place(signal) {
        place.write(&Action::default());
    }
}

/// The signal for requests; reinstalls the handler if code that is not JIT'd has reset it. `None`: the
/// program handles all of them.
pub(crate) fn choose() -> Option<i32> {
    if COVERED.load(Ordering::Relaxed) != 0 {
        return None;
    }
    let [first, ..] = CANDIDATES;
    let usual = sys::action(first).is_some_and(|action| is_ours(&action));
    if usual && !wanted(first).is_handled() {
        return Some(first);
    }
    let locked = lock();
    for signal in CANDIDATES {
        let Some(action) = sys::action(signal) else {
            continue;
        };
        match is_ours(&action) {
            true if !wanted(signal).is_handled() => return Some(signal),
            false if !action.is_handled() && put(&locked, signal, &action).is_ok() => {
                return Some(signal);
            }
            _ => {}
        }
    }
    None
}

/// Installs our handler where `before` was.
fn put(_: &Locked, signal: i32, before: &Action) -> io::Result<()> {
    let Some(place) = place(signal) else {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    };
    place.write(before);
    let there = set_in_kernel(signal, &ours(before))?;
    if there.handler != before.handler {
        // Code that does not use the lock set it meanwhile.
        place.write(&there);
    }
    if is_covered(signal) {
        COVERED.store(1, Ordering::Relaxed);
        set_in_kernel(signal, &there)?;
        return Err(io::Error::from_raw_os_error(libc::ENOTSUP));
    }
    Ok(())
}

/// Whether `sigaction` reports our handler as installed, while the kernel has another one.
fn is_covered(signal: i32) -> bool {
    let mut said = shown(&Action::default());
    // SAFETY: only asks; writes the structure.
    let asked = unsafe { libc::sigaction(signal, std::ptr::null(), &mut said) };
    let kernels = sys::action(signal);
    asked == 0 && is_ours(&kept(&said)) && !kernels.is_some_and(|action| is_ours(&action))
}

/// Sets an action; returns the previous one.
fn set_in_kernel(signal: i32, action: &Action) -> io::Result<Action> {
    let action = shown(action);
    let mut before = shown(&Action::default());
    // SAFETY: valid structures; the handler is async-signal-safe and lives for ever. The C library adds
    // the return address.
    match unsafe { libc::sigaction(signal, &action, &mut before) } {
        0 => Ok(kept(&before)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Prepares requests, if the program left a signal for them.
pub(crate) fn install() {
    OWNER.store(sys::getpid() as u32, Ordering::Relaxed);
    choose();
}

/// After `fork`, in the child, which has one thread.
pub(crate) fn after_fork_child() {
    if OWNER.load(Ordering::Relaxed) == 0 {
        return;
    }
    for place in &PLACES {
        // A change that another thread of the parent had begun ends here, half or not.
        if place.version.load(Ordering::Relaxed) & 1 == 1 {
            place.version.fetch_add(1, Ordering::Release);
        }
    }
    OWNER.store(sys::getpid() as u32, Ordering::Relaxed);
}

/// `sigaction` for the program: sets the action of `signal`, and returns the previous one, as though
/// there were no handshake. `None`: our handler is not involved, and the caller must use the C library.
/// Usable on any thread, also in a signal handler.
pub fn set_action(signal: i32, new: Option<&libc::sigaction>) -> Option<libc::sigaction> {
    let place = place(signal)?;
    // A child on the memory of another process leaves its places and its lock alone.
    let owner = OWNER.load(Ordering::Relaxed) == sys::getpid() as u32;
    let _locked = owner.then(lock);
    if !is_ours(&sys::action(signal)?) {
        return None;
    }
    let old = place.read();
    if let Some(new) = new {
        let wanted = kept(new);
        let kernels = match owner {
            true => ours(&wanted),
            false => wanted,
        };
        if owner {
            place.write(&wanted);
        }
        set_in_kernel(signal, &kernels).ok()?;
    }
    Some(shown(&old))
}

/// The action as the kernel would keep it.
fn kept(action: &libc::sigaction) -> Action {
    /// The C library sets the return address of handlers.
    const SA_RESTORER: u64 = 0x0400_0000;
    const NEVER: u64 = 1 << (libc::SIGKILL - 1) | 1 << (libc::SIGSTOP - 1);
    let mask = (&raw const action.sa_mask).cast::<u64>();
    // SAFETY: the set is longer than the kernel's one word.
    let mask = unsafe { mask.read() };
    Action {
        handler: action.sa_sigaction as u64,
        flags: u64::from(action.sa_flags as u32) | SA_RESTORER,
        restorer: 0,
        mask: mask & !NEVER,
    }
}

/// The action in the C library's format.
fn shown(action: &Action) -> libc::sigaction {
    // SAFETY: an empty structure of integers.
    let mut shown: libc::sigaction = unsafe { std::mem::zeroed() };
    shown.sa_sigaction = action.handler as usize;
    shown.sa_flags = action.flags as i32;
    let mask = (&raw mut shown.sa_mask).cast::<u64>();
    // SAFETY: the set is longer than the kernel's one word.
    unsafe { mask.write(action.mask) };
    shown
}
