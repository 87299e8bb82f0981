//! The end of a program whose main thread exits before other threads.
//!
//! By `pthread_exit`: the C library ends the process with status 0 when its last thread ends. By
//! the system call `exit`: the C library does not know, and the kernel ends the process with the
//! last thread. Its status is the main thread's before Linux 6.0; from then on the last one's, or 0
//! if that returned from its function. Without any other thread it is the main thread's. Compile
//! workers are threads too and would keep the process alive; so when the main thread has exited, a
//! watcher waits until only threads of the runtime are left. Then it ends the process in the way
//! that it would have ended.
//!
//! | main thread | noticed by |
//! |---|---|
//! | `pthread_exit` | the destructor of a key, in the last round |
//! | `syscall(SYS_exit)` in the program's code | `host::processes`, before it |
//! | the same in a library, or an instruction | a worker's check of its state, each [`LOOK_INTERVAL`] |

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Duration;

use uruk_base::locks::{Mutex, MutexGuard};
use uruk_base::sandbox;
use uruk_profiler::{Excluded, time_of_thread};

use crate::fork::gate::{self, Pass};
use crate::fork::thread::leaving;
use crate::fork::unseen;

/// Threads of the runtime, which are not sampled.
pub(crate) static EXCLUDED: LazyLock<Arc<Excluded>> = LazyLock::new(Arc::default);

/// Interval of the watcher's checks.
const WATCH_INTERVAL: Duration = Duration::from_millis(1);

/// Interval of the checks whether the main thread exists. A check takes 20 us.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The state of the main thread.
static MAIN: AtomicU8 = AtomicU8::new(UNKNOWN);
/// It runs no program, or the watch was not requested.
const UNKNOWN: u8 = 0;
/// It runs the program.
const RUNS: u8 = 1;
/// It has exited, or is about to, and a watcher waits for the other threads.
const WATCHED: u8 = 2;

/// The process of that main thread: `vfork`'s child sees its parent's words. Relaxed, as it is
/// written while no other thread reads it.
static PROCESS: AtomicI32 = AtomicI32::new(0);

/// Minimal rounds of key destructors that libc guarantees; the watcher starts in the last.
const DESTRUCTOR_ROUNDS: u32 = 4;

/// The threads that are not the program's. Locked by [`ours`] only.
static OURS: Mutex<Vec<OwnThread>> = Mutex::new(Vec::new());

/// A thread of the runtime: its kernel id, and whether it runs code of the embedder.
type OwnThread = (i32, Arc<AtomicBool>);

/// The number of threads of the runtime that start and are not in [`OURS`] yet.
pub(super) static STARTING: AtomicUsize = AtomicUsize::new(0);

/// The number of threads of the runtime that LLVM has stopped: they never end, and do nothing any
/// more. Relaxed: a hint.
static LOST: AtomicUsize = AtomicUsize::new(0);

/// Processor time of threads of the runtime that have ended, in nanoseconds.
static ENDED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static ROUNDS: Cell<u32> = const { Cell::new(0) };
    static GUEST: Cell<Option<Arc<AtomicBool>>> = const { Cell::new(None) };
    /// Whether this thread is in [`OURS`].
    static OWN: Cell<bool> = const { Cell::new(false) };
}

/// Guard of a thread that is not one of the program's.
pub(crate) struct ThreadMark(i32);

/// Runs code of the embedder, which may call code of the session, on any thread. A thread of the
/// runtime counts as one of the program's meanwhile.
pub(crate) fn as_guest<R>(run: impl FnOnce() -> R) -> R {
    // A thread that is destroying its thread-locals counts as the program's.
    let Some(flag) = GUEST.try_with(Cell::take).ok().flatten() else {
        return run();
    };
    // SeqCst, as the search for return addresses must see it before the code runs; its partner is
    // the load in `idle`.
    flag.store(true, Ordering::SeqCst);
    let result = run();
    flag.store(false, Ordering::SeqCst);
    GUEST.set(Some(flag));
    result
}

/// Kernel ids of threads of the runtime that run no code of any session.
pub(crate) fn idle() -> Vec<i32> {
    let ours = ours();
    let idle = ours.list.iter();
    idle.filter(|(_, guest)| !guest.load(Ordering::SeqCst))
        .map(|&(id, _)| id)
        // Those that leave are no longer in the list.
        .chain(leaving::recent())
        .collect()
}

/// Whether a thread of the runtime starts that is not listed yet. It blocks all signals, and answers no
/// scan.
pub(crate) fn is_any_starting() -> bool {
    // Acquire, as in `alive`.
    STARTING.load(Ordering::Acquire) != 0
}

/// Notes that the calling thread, one of the runtime's, will sleep forever.
pub(super) fn note_lost() {
    LOST.fetch_add(usize::from(OWN.get()), Ordering::Relaxed);
}

/// The number of threads of the runtime that start, or exist and can run.
pub(super) fn alive() -> usize {
    // Acquire, before the list is read, as in `program_threads`.
    let starting = STARTING.load(Ordering::Acquire);
    let listed = ours().list.len();
    starting + listed.saturating_sub(LOST.load(Ordering::Relaxed))
}

/// Whether this is the process that was noted last: another one that shares the memory (`vfork`)
/// has another number.
pub(super) fn is_this_process() -> bool {
    // SAFETY: takes nothing, cannot fail.
    PROCESS.load(Ordering::Relaxed) == unsafe { libc::getpid() }
}

/// Notes this process, before the runtime starts threads.
pub(super) fn note_process() {
    // SAFETY: takes nothing, cannot fail.
    PROCESS.store(unsafe { libc::getpid() }, Ordering::Relaxed);
}

/// Processor time of the threads of the runtime in this process so far, those that ended included.
pub(crate) fn own_time() -> Duration {
    let (ended, listed) = {
        let ours = ours();
        let listed: Vec<i32> = ours.list.iter().map(|&(id, _)| id).collect();
        // Relaxed: changed under the lock of the list.
        (ENDED.load(Ordering::Relaxed), listed)
    };
    let running: u64 = listed.into_iter().filter_map(time_of_thread).sum();
    Duration::from_nanos(ended + running)
}

/// Creates the calling thread's thread-local that has a destructor.
pub(super) fn prepare_thread() {
    GUEST.with(|_| ());
}

/// Marks the calling thread as not one of the program's, until the mark is dropped.
pub(super) fn mark_ours() -> ThreadMark {
    // SAFETY: takes nothing, cannot fail.
    let id = unsafe { libc::gettid() };
    let guest = Arc::new(AtomicBool::new(false));
    GUEST.set(Some(Arc::clone(&guest)));
    // The pass also covers the list of excluded threads, which is created at its first use.
    let _pass = gate::enter();
    ours().list.push((id, guest));
    OWN.set(true);
    // On failure the thread is sampled too, which costs accuracy only.
    EXCLUDED.add(id);
    ThreadMark(id)
}

impl Drop for ThreadMark {
    fn drop(&mut self) {
        let _pass = gate::enter();
        EXCLUDED.remove(self.0);
        OWN.set(false);
        GUEST.take();
        let mut ours = ours();
        ours.list.retain(|&(id, _)| id != self.0);
        ENDED.fetch_add(time_of_thread(self.0).unwrap_or(0), Ordering::Relaxed);
    }
}

/// True on a thread that is not one of the program's.
pub(crate) fn is_ours() -> bool {
    OWN.get()
}

/// The locked list. No fork happens meanwhile, which would leave the child with a locked lock: a
/// worker starts while its program may already fork.
struct Ours {
    // Unlocked before the pass is dropped: fields drop in this order.
    list: MutexGuard<'static, Vec<OwnThread>>,
    _pass: Pass,
}

fn ours() -> Ours {
    let pass = gate::enter();
    Ours {
        list: OURS.lock(),
        _pass: pass,
    }
}

/// Resets the list in the child of a fork, while no pass is given: none of the threads exists.
pub(crate) fn after_fork_child() {
    note_process();
    STARTING.store(0, Ordering::Relaxed);
    LOST.store(0, Ordering::Relaxed);
    ENDED.store(0, Ordering::Relaxed);
    leaving::after_fork_child();
    OWN.set(false);
    let mut ours = OURS.lock();
    ours.drain(..).for_each(|(id, _)| EXCLUDED.remove(id));
}

/// Starts to watch the main thread; called on it before the program starts.
pub(crate) fn watch_main_thread() {
    static KEY: OnceLock<libc::pthread_key_t> = OnceLock::new();
    let key = *KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: a valid out pointer and a destructor with the right signature.
        unsafe { libc::pthread_key_create(&mut key, Some(on_main_thread_exit)) };
        key
    });
    // SAFETY: a key of this module; the value is its own number, so the destructor can set
    // it again.
    unsafe { libc::pthread_setspecific(key, (key as usize + 1) as *mut c_void) };
    note_process();
    MAIN.store(RUNS, Ordering::Relaxed);
}

/// Relaxed: the first caller watches, whatever it has seen.
fn begin_to_watch() -> bool {
    let step = MAIN.compare_exchange(RUNS, WATCHED, Ordering::Relaxed, Ordering::Relaxed);
    step.is_ok()
}

/// Notes that the calling thread is about to end by a system call.
pub(crate) fn note_exit(status: c_int) {
    // Only the program's threads are left, so the kernel and the C library count right.
    if sandbox::is_closed() {
        return;
    }
    // SAFETY: both take nothing and cannot fail.
    let (thread, process) = unsafe { (libc::gettid(), libc::getpid()) };
    let main = thread == process && process == PROCESS.load(Ordering::Relaxed);
    // A process that is not whole has no threads of the runtime.
    if main && !unseen::is_unseen() && begin_to_watch() {
        end_by_kernel(status);
    }
}

/// Detects a main thread that ended by an unobserved system call.
pub(crate) fn look_at_main_thread() {
    if MAIN.load(Ordering::Relaxed) != RUNS {
        return;
    }
    if main_thread_has_robust_list() {
        return;
    }
    let status = {
        let _pass = gate::enter();
        status_of_dead_main_thread()
    };
    if let Some(status) = status
        && begin_to_watch()
    {
        end_by_kernel(status);
    }
}

/// Whether the kernel has a list of robust mutexes of the main thread. The C library registers one
/// at the thread's start, and the kernel forgets it at the end. Checked first, as it takes no
/// descriptor: the lowest number belongs to the program.
fn main_thread_has_robust_list() -> bool {
    let mut head: usize = 0;
    let mut size: usize = 0;
    // SAFETY: two words that live; the process's own number.
    let asked = unsafe {
        let (head, size) = (&raw mut head, &raw mut size);
        libc::syscall(libc::SYS_get_robust_list, libc::getpid(), head, size)
    };
    asked == 0 && head != 0
}

/// The main thread's exit status, once it is gone.
fn status_of_dead_main_thread() -> Option<c_int> {
    let text = uruk_files::read_to_string("/proc/self/stat").ok()?;
    // Behind the name, which may hold anything: the state is the third field.
    let mut fields = text.get(text.rfind(')')? + 1..)?.split_ascii_whitespace();
    if fields.next()? != "Z" {
        return None;
    }
    // The last of all fields, the 52nd, as `wait` gives it.
    let code: c_int = fields.nth(48)?.parse().ok()?;
    Some(code >> 8 & 0xff)
}

/// Ends the process when the last thread of the program ends, as the kernel does when the main
/// thread exited with `status`. Threads that ended before the first check are not seen.
fn end_by_kernel(status: c_int) {
    if !program_threads() {
        // SAFETY: runs no code of the program.
        unsafe { libc::_exit(status) }
    }
    let release = uruk_files::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let major = release.split('.').next().and_then(|word| word.parse().ok());
    let status = if major.unwrap_or(6u32) >= 6 {
        0
    } else {
        status
    };
    // SAFETY: runs no code of the program.
    watch(move || unsafe { libc::_exit(status) });
}

unsafe extern "C" fn on_main_thread_exit(value: *mut c_void) {
    let round = ROUNDS.get() + 1;
    ROUNDS.set(round);
    if round < DESTRUCTOR_ROUNDS {
        let key = (value as usize - 1) as libc::pthread_key_t;
        // SAFETY: the key the value was made from.
        unsafe { libc::pthread_setspecific(key, value) };
        return;
    }
    MAIN.store(WATCHED, Ordering::Relaxed);
    if sandbox::is_closed() {
        return;
    }
    // SAFETY: as the C library does when the last thread ends.
    watch(|| unsafe { libc::exit(0) });
}

/// Waits in the background for the last thread of the program, and ends the process.
fn watch(end: impl Fn() + Send + 'static) {
    // If no thread can be started the process stays, which is the lesser evil.
    let _ = crate::fork::thread::spawn(String::from("uruk-exit"), move || {
        while program_threads() {
            if sandbox::is_ending() {
                return;
            }
            std::thread::sleep(WATCH_INTERVAL);
        }
        end();
    });
}

/// True while a thread of the program is left; the main thread does not count.
fn program_threads() -> bool {
    /// A thread of the runtime that takes longer to start counts as the program's, which affects
    /// the status only.
    const STARTS: u32 = 1000;
    for _ in 0..STARTS {
        let Ok(tasks) = uruk_files::threads() else {
            return true;
        };
        // Acquire, before the list is read: it has those that have started until now.
        let starting = STARTING.load(Ordering::Acquire) != 0;
        // SAFETY: takes nothing, cannot fail.
        let main = unsafe { libc::getpid() };
        let ours = ours();
        let mut others = tasks.into_iter().filter(|&id| {
            id != main && !leaving::has(id) && !ours.list.iter().any(|&(ours, _)| ours == id)
        });
        if others.next().is_none() {
            return false;
        }
        if !starting {
            return true;
        }
        drop(ours);
        std::thread::sleep(WATCH_INTERVAL);
    }
    true
}
