//! Protocol between the check of a thread and the signal to it: changes of the thread's state meanwhile
//! must not make the signal harmful.
//!
//! A thread must not be sent the signal when it blocks it (the signal would stay pending,
//! for `sigwait`, `signalfd`, `sigpending` and the next image after `exec` to find), nor
//! when its alternate stack does not take the kernel's frame, which the kernel answers with
//! `SIGSEGV`. The requester sets [`ASKED`], checks, sends and clears it. The thread
//! changes its state, waits until it is not [`ASKED`], and looks whether a signal came:
//!
//! ```text
//! asks                              thread
//! ASKED = thread                    mask changed, or stack noted as small
//! fence                             fence
//! blocked or small? then not        ASKED == me? wait
//! LAST[thread] = thread, send       LAST[me] == me? then take what is pending
//! ASKED = 0
//! ```
//!
//! Either the look sees the change, or the thread sees that it is asked, and by the time it
//! goes on the signal is pending for it. The mask lies in the kernel, behind a lock. One
//! scan at a time asks (`turn`), so one word suffices. JIT'd code calls the thread's side
//! ([`mask_changed`], [`set_alternate_stack`]). Code that reaches the kernel in other ways can still be
//! left with a pending signal in the few microseconds of that window. That is harmless to `exec` and to
//! handlers, but not to threads that take signals by `sigwait`.
//!
//! | field | written by | ordering |
//! |---|---|---|
//! | `ASKED` | the requester | sequentially consistent with the fences on both sides |
//! | `LAST` place to id | the requester, before the signal | relaxed; ordered by `ASKED` |
//! | `LAST` place to 0 | the thread, in the handler or when it took the signal | relaxed: its own |
//! | `SMALL` place to id and count | the thread itself | release; ordered by `ASKED` |
//! | `SMALL` place to 0 | the thread, or the requester if the thread is gone | compare-exchange with the whole word |

use crate::shadow::{CANDIDATES, MARK};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::sys::{self, Info};

/// The thread that is being checked and signalled, or 0.
static ASKED: AtomicU32 = AtomicU32::new(0);

/// Threads that were sent a signal and may not have handled it, by id modulo the length. A thread whose
/// entry another one overwrites loses nothing unless it changes its mask in the microseconds until the
/// signal comes.
static LAST: [AtomicU32; 1024] = [const { AtomicU32::new(0) }; 1024];

/// Threads whose alternate stack is too small: the id, and above it a count of changes, so that a thread
/// that ended is not confused with a later one with its id.
static SMALL: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];

/// Set permanently when `SMALL` was full: then any thread may have a small one.
static MANY_SMALL: AtomicU32 = AtomicU32::new(0);

/// Counts the changes of `SMALL`.
static CHANGES: AtomicU32 = AtomicU32::new(0);

/// Evidence that a thread sees, or can see, that it is being asked.
#[derive(Debug)]
pub(crate) struct Asking {
    tid: i32,
}

impl Asking {
    pub(crate) fn begin(tid: i32) -> Self {
        ASKED.store(tid as u32, Ordering::SeqCst);
        // SeqCst: pairs with the fence in `settled`.
        std::sync::atomic::fence(Ordering::SeqCst);
        Self { tid }
    }

    /// Whether the thread's alternate stack is known to be too small.
    pub(crate) fn has_small_stack(&self) -> bool {
        let tid = self.tid as u32;
        MANY_SMALL.load(Ordering::Relaxed) != 0
            || SMALL
                .iter()
                .any(|place| place.load(Ordering::Acquire) as u32 == tid)
    }

    /// Sends the signal; false: no such thread, or no room in its queue.
    pub(crate) fn send(&self, pid: i32, signal: i32) -> bool {
        let last = last(self.tid);
        last.store(self.tid as u32, Ordering::Relaxed);
        let sent = sys::send(pid, self.tid, &Info::queued(signal, pid, MARK));
        if !sent {
            last.store(0, Ordering::Relaxed);
        }
        sent
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        // SeqCst: a thread that reads this sees `LAST`, and the kernel has the signal.
        ASKED.store(0, Ordering::SeqCst);
    }
}

fn last(tid: i32) -> &'static AtomicU32 {
    &LAST[tid as usize % LAST.len()]
}

/// Records in the handler that the signal has arrived.
pub(crate) fn came(tid: i32) {
    let last = last(tid);
    if last.load(Ordering::Relaxed) == tid as u32 {
        last.store(0, Ordering::Relaxed);
    }
}

/// Waits until no requester signals the calling thread because of its earlier state.
fn settled(tid: i32) {
    // SeqCst: pairs with the fence in `begin`.
    std::sync::atomic::fence(Ordering::SeqCst);
    while ASKED.load(Ordering::SeqCst) == tid as u32 {
        sys::futex_wait(ASKED.as_ptr(), tid as u32, 100_000);
    }
}

/// Takes away a pending signal of ours. Called by a thread that has just blocked signals, while they are
/// blocked. Usable in signal handlers.
pub fn mask_changed() {
    // No scan comes any more, and the calls below may be forbidden.
    if uruk_base::sandbox::is_closed() {
        return;
    }
    let tid = sys::gettid();
    settled(tid);
    if last(tid).load(Ordering::Relaxed) != tid as u32 {
        return;
    }
    let blocked = sys::pending();
    for signal in CANDIDATES {
        let set = 1u64 << (signal - 1);
        if blocked & set == 0 {
            continue;
        }
        let Some(info) = sys::take(set) else { continue };
        came(tid);
        if !is_ours(&info) {
            // It was the program's own signal, behind which ours was lost.
            sys::send(sys::getpid(), tid, &info);
        }
    }
}

/// Whether a signal is a request of this process.
pub(crate) fn is_ours(info: &Info) -> bool {
    info.code == libc::SI_QUEUE && info.value == MARK && info.pid == sys::getpid()
}

/// `sigaltstack` of the calling thread, for the program. `set` changes to a stack of `bytes` bytes (0:
/// to none) and returns whether that succeeded. Usable in signal handlers.
pub fn set_alternate_stack(bytes: usize, set: impl FnOnce() -> bool) {
    if uruk_base::sandbox::is_closed() {
        set();
        return;
    }
    let tid = sys::gettid();
    if bytes == 0 || bytes >= frame_bytes() {
        if set() {
            forget(tid as u32);
        }
        return;
    }
    let known = note(tid as u32);
    settled(tid);
    // A signal sent by now arrives before this returns, on the current stack.
    sys::gettid();
    if !set() && !known {
        forget(tid as u32);
    }
}

/// Notes a thread; returns whether it was noted already.
fn note(tid: u32) -> bool {
    if SMALL
        .iter()
        .any(|place| place.load(Ordering::Relaxed) as u32 == tid)
    {
        return true;
    }
    let change = CHANGES.fetch_add(1, Ordering::Relaxed);
    let word = u64::from(change) << 32 | u64::from(tid);
    let placed = SMALL.iter().any(|place| {
        // Release: pairs with the acquire in `has_small_stack`.
        place
            .compare_exchange(0, word, Ordering::Release, Ordering::Relaxed)
            .is_ok()
    });
    if !placed {
        MANY_SMALL.store(1, Ordering::Relaxed);
    }
    false
}

fn forget(tid: u32) {
    for place in &SMALL {
        let word = place.load(Ordering::Relaxed);
        if word as u32 == tid && word != 0 {
            let _ = place.compare_exchange(word, 0, Ordering::Release, Ordering::Relaxed);
        }
    }
}

/// Frees the places of threads that ended.
pub(crate) fn forget_the_dead() {
    let pid = sys::getpid();
    for place in &SMALL {
        let word = place.load(Ordering::Acquire);
        if word != 0 && !sys::exists(pid, word as u32 as i32) {
            let _ = place.compare_exchange(word, 0, Ordering::Release, Ordering::Relaxed);
        }
    }
}

/// Resets the state in the child of `fork`: its one thread has another id, and its parent's stack.
pub(crate) fn after_fork_child() {
    ASKED.store(0, Ordering::SeqCst);
    LAST.iter()
        .for_each(|last| last.store(0, Ordering::Relaxed));
    SMALL
        .iter()
        .for_each(|place| place.store(0, Ordering::Relaxed));
    MANY_SMALL.store(0, Ordering::Relaxed);
    // SAFETY: an empty structure.
    let mut stack: libc::stack_t = unsafe { std::mem::zeroed() };
    // SAFETY: only asks; writes the structure.
    let asked = unsafe { libc::sigaltstack(std::ptr::null(), &mut stack) } == 0;
    if asked && stack.ss_flags & libc::SS_DISABLE == 0 && stack.ss_size < frame_bytes() {
        note(sys::gettid() as u32);
    }
}

/// Bytes of an alternate stack that the kernel's frame may take. The handler itself takes none.
fn frame_bytes() -> usize {
    /// Tiles of matrix registers: threads that may use them have a larger stack, which the kernel
    /// ensures; frames of other threads do not contain them.
    const TILE_DATA: u32 = 18;
    const AT_MINSIGSTKSZ: u64 = 51;
    // SAFETY: no arguments but the question.
    let most = unsafe { libc::getauxval(AT_MINSIGSTKSZ) } as usize;
    let area = |of| core::arch::x86_64::__cpuid_count(0xd, of);
    if most == 0 {
        // Before Linux 5.14: the area of all registers, and the rest of the frame.
        return area(0).ebx as usize + 1024;
    }
    let enabled = area(0).eax;
    let tiles = match enabled >> TILE_DATA & 1 {
        1 => area(TILE_DATA).eax as usize,
        _ => 0,
    };
    most.saturating_sub(tiles)
}

#[cfg(test)]
mod tests {
    use super::{Asking, after_fork_child, forget_the_dead, frame_bytes, set_alternate_stack};
    use crate::sys;

    #[test]
    fn threads_with_small_stacks_are_known_until_they_end() {
        assert!((1024..8192).contains(&frame_bytes()), "{}", frame_bytes());
        let small = || {
            let asking = Asking::begin(sys::gettid());
            asking.has_small_stack()
        };
        let ended = std::thread::spawn(move || {
            let before = small();
            // It would wait for itself if it were asked.
            set_alternate_stack(512, || true);
            let noted = small();
            set_alternate_stack(1 << 16, || false);
            let kept = small();
            set_alternate_stack(1 << 16, || true);
            let large = small();
            set_alternate_stack(512, || false);
            let refused = small();
            set_alternate_stack(512, || true);
            assert_eq!(
                [before, noted, kept, large, refused],
                [false, true, true, false, false]
            );
            sys::gettid()
        });
        let tid = ended.join().expect("the thread");
        while sys::exists(sys::getpid(), tid) {
            std::thread::yield_now();
        }
        assert!(Asking { tid }.has_small_stack());
        forget_the_dead();
        assert!(!Asking { tid }.has_small_stack());
        after_fork_child();
    }
}
