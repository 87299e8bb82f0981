//! The end of a program whose main thread left by `pthread_exit`.
//!
//! The C library ends the process with status 0 when its last thread ends. Compile
//! workers are threads too and would keep it alive for ever; so when the main thread
//! is gone, a watcher waits until only threads of ours are left, and ends it then.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;

use uruk_locks::{Mutex, MutexGuard};

use crate::sampling::EXCLUDED;
use crate::service::{self, Pass};

/// How often the watcher looks, once it has reason to.
const WATCH_INTERVAL: Duration = Duration::from_millis(1);

/// Rounds of key destructors libc promises at least; the watcher starts in the last.
const DESTRUCTOR_ROUNDS: u32 = 4;

/// The threads that are not the program's. Locked by [`ours`] only.
static OURS: Mutex<Vec<Own>> = Mutex::new(Vec::new());

/// A thread of ours: its kernel id, and whether it runs code of the embedder.
type Own = (i32, Arc<AtomicBool>);

thread_local! {
    static ROUNDS: Cell<u32> = const { Cell::new(0) };
    static GUEST: Cell<Option<Arc<AtomicBool>>> = const { Cell::new(None) };
}

/// Held by a thread that is not one of the program's.
pub(crate) struct Mark(i32);

/// Runs code of the embedder, which may call code of the session, on any thread. One of
/// ours counts as one of the program's meanwhile.
pub(crate) fn as_guest<R>(run: impl FnOnce() -> R) -> R {
    let Some(flag) = GUEST.take() else {
        return run();
    };
    // SeqCst, as whoever looks for return addresses has to see it before it can matter;
    // its partner is the load in `idle`.
    flag.store(true, Ordering::SeqCst);
    let result = run();
    flag.store(false, Ordering::SeqCst);
    GUEST.set(Some(flag));
    result
}

/// Kernel ids of threads of ours that run no code of any session.
pub(crate) fn idle() -> Vec<i32> {
    let ours = ours();
    let idle = ours.list.iter();
    idle.filter(|(_, guest)| !guest.load(Ordering::SeqCst))
        .map(|&(id, _)| id)
        .collect()
}

/// Says that the calling thread is not one of the program's, until the mark goes.
pub(crate) fn mark_ours() -> Mark {
    // SAFETY: takes nothing, cannot fail.
    let id = unsafe { libc::gettid() };
    let guest = Arc::new(AtomicBool::new(false));
    GUEST.set(Some(Arc::clone(&guest)));
    // Also for the list of who is excluded, which is made when it is first used.
    let _pass = service::enter();
    ours().list.push((id, guest));
    // One too many is sampled, which costs accuracy only.
    EXCLUDED.add(id);
    Mark(id)
}

impl Drop for Mark {
    fn drop(&mut self) {
        let _pass = service::enter();
        EXCLUDED.remove(self.0);
        GUEST.take();
        ours().list.retain(|&(id, _)| id != self.0);
    }
}

/// True on a thread that is not one of the program's.
pub(crate) fn is_ours() -> bool {
    // SAFETY: takes nothing, cannot fail.
    let id = unsafe { libc::gettid() };
    ours().list.iter().any(|&(ours, _)| ours == id)
}

/// The locked list. No fork happens meanwhile, which would leave the child with a lock
/// nobody opens: a worker starts while its program may already fork.
struct Ours {
    // Unlocked before the pass goes: fields drop in this order.
    list: MutexGuard<'static, Vec<Own>>,
    _pass: Pass,
}

fn ours() -> Ours {
    let pass = service::enter();
    Ours {
        list: OURS.lock().unwrap_or_else(PoisonError::into_inner),
        _pass: pass,
    }
}

/// In the child of a fork, while no pass is given: none of the threads is there.
pub(crate) fn after_fork_child() {
    let mut ours = OURS.lock().unwrap_or_else(PoisonError::into_inner);
    ours.drain(..).for_each(|(id, _)| EXCLUDED.remove(id));
}

/// Called on the main thread before the program starts.
pub(crate) fn watch_main_thread() {
    static KEY: OnceLock<libc::pthread_key_t> = OnceLock::new();
    let key = *KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: a valid out pointer and a destructor with the right signature.
        unsafe { libc::pthread_key_create(&mut key, Some(on_main_thread_exit)) };
        key
    });
    // SAFETY: a key of ours; the value is its own number, so the destructor can set
    // it again.
    unsafe { libc::pthread_setspecific(key, (key as usize + 1) as *mut c_void) };
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
    // If no thread can be made the process stays, which is the lesser evil.
    let _ = crate::thread::spawn(String::from("uruk-exit"), || {
        while program_threads() {
            std::thread::sleep(WATCH_INTERVAL);
        }
        // SAFETY: what the C library does when the last thread ends.
        unsafe { libc::exit(0) }
    });
}

/// True while a thread of the program is left; the main thread does not count.
fn program_threads() -> bool {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else {
        return true;
    };
    // SAFETY: takes nothing, cannot fail.
    let main = unsafe { libc::getpid() };
    let ours = ours();
    tasks
        .flatten()
        .filter_map(|task| task.file_name().to_str()?.parse::<i32>().ok())
        .any(|id| id != main && !ours.list.iter().any(|&(ours, _)| ours == id))
}
