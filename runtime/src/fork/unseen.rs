//! Children that are made past `fork`, and how they are made whole.
//!
//! | made by | before | in the child |
//! |---|---|---|
//! | `fork` and its callers | handlers: no other thread is inside, this one has the locks | handlers: made whole at once |
//! | `_Fork`, `clone`, `syscall` called by JIT'd code; by any code of a native program | [`hold`]: no other thread is inside | at its first need |
//! | the same in a library of JIT'd code's, or an instruction | nothing | at its first need, if possible |
//!
//! The first need is a call of a function without code, before it waits ([`attend`]), or the first
//! pass of the gate: until then the child runs compiled code, and copies nothing. It may be about
//! to call `exec`, or be in a handler that interrupted the allocator; that is why no more is done
//! at once. Its parent keeps the code that it runs (`uruk_heap`).
//!
//! The child is detected by a word that the kernel clears in every copy of the memory
//! (`MADV_WIPEONFORK`, Linux 4.14; on older ones such a child waits for ever), and only in copies:
//! `vfork`'s child shares its parent's workers.
//!
//! A child can be made whole if no other thread was inside at the moment of the copy: a thread that
//! is not inside holds no lock of the runtime and is not in LLVM. If one was, none of that state is
//! usable any more: the child prints a message and ends.
//!
//! The C library's allocator: threads of the runtime use it inside only ([`crate::fork::thread`]),
//! so a child of [`hold`] finds its locks as the program's own threads left them. A child made by
//! an instruction may find one locked for ever by a thread of the runtime that started, compiled or
//! ended at that moment; `fork` prevents that for all.

use std::sync::MutexGuard;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use uruk_base::locks::Cover;
use uruk_base::sandbox;

use super::gate::{self, GateState};
use super::shield::Shield;
use super::thread::leaving;
use super::{FORK, ForkState, HeldMembers, close, made_in_child, members};

/// Target of [`SEEN`] when children cannot be detected.
static ALWAYS: AtomicU32 = AtomicU32::new(1);

/// The word: not zero in a process that was made whole. Both are relaxed: the word is written where
/// a thread that reads it is waited for, or does not exist yet.
static SEEN: AtomicPtr<AtomicU32> = AtomicPtr::new((&raw const ALWAYS).cast_mut());

/// The process that is being made whole, 0 if none is. Acquire and release, with itself. In a
/// child it may hold the parent's.
static TURN: AtomicU32 = AtomicU32::new(0);

fn seen() -> &'static AtomicU32 {
    // SAFETY: a static, or the start of a page that stays.
    unsafe { &*SEEN.load(Ordering::Relaxed) }
}

/// Whether this process is one that its parent's handlers did not see.
#[inline]
pub(super) fn is_unseen() -> bool {
    seen().load(Ordering::Relaxed) == 0
}

/// Marks this process as whole.
pub(super) fn mark() {
    seen().store(1, Ordering::Relaxed);
}

/// Makes the word, once, before there are sessions.
pub(super) fn prepare() {
    const PAGE: usize = 4096;
    // SAFETY: a new page, that no other code knows and that stays.
    unsafe {
        let page = libc::mmap(
            std::ptr::null_mut(),
            PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        if page != libc::MAP_FAILED && libc::madvise(page, PAGE, libc::MADV_WIPEONFORK) == 0 {
            let word = page.cast::<AtomicU32>();
            (*word).store(1, Ordering::Relaxed);
            SEEN.store(word, Ordering::Relaxed);
        }
    }
}

/// Keeps all other threads outside while it lives, and handlers off this thread. It is copied with
/// the process: each side drops its own.
pub(crate) struct OthersExcluded {
    cover: Option<Cover>,
    closed: Option<MutexGuard<'static, GateState>>,
    _shield: Shield,
    /// Dropped after the gate is open.
    _seen: HeldMembers,
}

/// To be held around a system call that copies the process. Holds nothing in a process that is not
/// whole itself: it has no thread of the runtime, and its copy is in the same state.
pub(crate) fn hold() -> OthersExcluded {
    let shield = Shield::raise();
    let held = (!is_unseen()).then(close);
    if held.is_some() {
        leaving::wait();
    }
    let (closed, cover, seen) = match held {
        Some((closed, cover, seen)) => (Some(closed), Some(cover), seen),
        None => (None, None, Vec::new()),
    };
    OthersExcluded {
        cover,
        closed,
        _shield: shield,
        _seen: seen,
    }
}

impl Drop for OthersExcluded {
    fn drop(&mut self) {
        drop(self.cover.take());
        drop(self.closed.take());
    }
}

/// Called before the program makes a process that shares its memory and is no thread: such a
/// process cannot be asked which code it executes.
pub(crate) fn note_sharing() {
    let _pass = gate::enter();
    members().iter().for_each(|member| member.note_sharing());
}

/// Makes sure that this process is whole. For guests, too: on any stack, in any handler.
pub(crate) extern "C-unwind" fn attend() {
    if is_unseen() {
        match sandbox::is_closed() {
            // It needs no thread of the runtime, and none can be started.
            true => mark(),
            false => catch_up(),
        }
    }
}

#[cold]
#[inline(never)]
fn catch_up() {
    // SAFETY: the calling thread's own.
    let errno = unsafe { *libc::__errno_location() };
    let _shield = Shield::raise();
    let me = std::process::id();
    loop {
        let holder = TURN.load(Ordering::Relaxed);
        let take = |holder| TURN.compare_exchange(holder, me, Ordering::Acquire, Ordering::Relaxed);
        if holder != me && take(holder).is_ok() {
            break;
        }
        std::thread::yield_now();
    }
    if is_unseen() {
        adopt();
        mark();
    }
    TURN.store(0, Ordering::Release);
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Does the work of the handlers of a fork, before and after it.
fn adopt() {
    let Some(closed) = gate::close_in_copy() else {
        give_up()
    };
    let cover = Cover::new();
    let members = members();
    if !members.iter().all(|member| member.before_fork_in_child()) {
        give_up();
    }
    if !uruk_unwind::try_before_fork() {
        give_up();
    }
    made_in_child(ForkState {
        members,
        _cover: cover,
        closed,
        _shield: Shield::raise(),
        seen: Vec::new(),
    });
    debug_assert!(FORK.take().is_none());
}

/// Ends a process that cannot go on.
fn give_up() -> ! {
    const TEXT: &[u8] = b"uruk: this process was made by a system call of its own while its \
        parent compiled: it can call no function for the first time (`fork` waits for that)\n";
    // SAFETY: a constant text; then the end, without handlers: the process is not whole.
    unsafe {
        libc::write(libc::STDERR_FILENO, TEXT.as_ptr().cast(), TEXT.len());
        libc::_exit(crate::error::EXIT_FAILURE)
    }
}
