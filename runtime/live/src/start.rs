//! How it begins: a constructor of the library, a thread of its own, and what is said at the end.
//!
//! The constructor runs before those of the program. It does nothing but read the variable of the
//! environment that `uruk live` sets, take itself out of the environment (programs that this one
//! starts run as they are), and start a thread with all signals blocked. Without the variable,
//! the library does nothing.
//!
//! The session is never ended: its threads run until the process does, as those of any embedder
//! that leaves by `exit`. Handlers of LLVM's are left out ([`__cxa_atexit`]).

use std::ffi::{c_int, c_void};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use uruk::Tier;

use crate::program::loaded;
use crate::session::{Live, LiveError};
use crate::settings::{Force, Settings, VARIABLE};
use crate::{control, explain};

/// What was in `LD_PRELOAD` before.
pub const PRELOADED_BEFORE: &str = "URUK_LIVE_PRELOAD";

/// Called by the dynamic loader when the library was loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

/// What the process has, once it is there.
static LIVE: OnceLock<Result<Live, LiveError>> = OnceLock::new();

/// Says that there is a session, or none.
static READY: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

/// As the C library's, for libraries that are loaded later: LLVM's handlers are dropped, as it is
/// asked to compile until the very end.
///
/// # Safety
/// As the C library's.
#[cfg(not(test))]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cxa_atexit(
    handler: *mut c_void,
    argument: *mut c_void,
    dso: *mut c_void,
) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe { uruk::register_exit_handler(handler, argument, dso) }
}

/// The session of this process, if there is one by now.
pub fn live() -> Option<&'static Live> {
    LIVE.get()?.as_ref().ok()
}

extern "C" fn begin() {
    // SAFETY: the program has not begun: nobody else uses the environment.
    let words = unsafe { take_variable(VARIABLE) };
    let Some(words) = words else {
        return;
    };
    // SAFETY: as above.
    unsafe { restore_preload() };
    let settings = Settings::parse(&words);
    if settings.explain || settings.stats {
        // SAFETY: a function without arguments, of a library that stays.
        unsafe { libc::atexit(tell) };
        let _ = TOLD.set(settings.clone());
    }
    let forced = settings.force != Force::No;
    if !spawn(settings) {
        eprintln!("uruk live: no thread can be started; the program runs as it is");
        return;
    }
    if forced {
        let (ready, changed) = &READY;
        let mut ready = ready.lock().unwrap_or_else(PoisonError::into_inner);
        while !*ready {
            ready = changed.wait(ready).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

static TOLD: OnceLock<Settings> = OnceLock::new();

/// At the end: what was asked to be told.
extern "C" fn tell() {
    let (Some(settings), Some(live)) = (TOLD.get(), live()) else {
        if TOLD.get().is_some() && LIVE.get().is_none() {
            eprintln!("uruk live: the program ended before it was looked at");
        }
        return;
    };
    if settings.explain {
        eprint!("{}", explain::table(live));
    }
    if settings.stats {
        eprint!("{}", explain::summary(live));
    }
}

/// # Safety
/// Nobody else uses the environment meanwhile.
unsafe fn take_variable(name: &str) -> Option<String> {
    let value = std::env::var(name).ok()?;
    // SAFETY: by the caller's promise.
    unsafe { std::env::remove_var(name) };
    Some(value)
}

/// # Safety
/// As [`take_variable`].
unsafe fn restore_preload() {
    // SAFETY: by the caller's promise.
    unsafe {
        match take_variable(PRELOADED_BEFORE) {
            Some(before) if !before.is_empty() => std::env::set_var("LD_PRELOAD", before),
            _ => std::env::remove_var("LD_PRELOAD"),
        }
    }
}

/// Starts the thread; false if there is none to be had. No handler of the program's runs on it.
fn spawn(settings: Settings) -> bool {
    // SAFETY: sets of signals of this frame; the mask is put back.
    unsafe {
        let mut all = std::mem::zeroed();
        let mut before = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let thread = std::thread::Builder::new().name("uruk-live".to_owned());
        let spawned = thread.spawn(move || run(&settings));
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        spawned.is_ok()
    }
}

/// The thread's life.
fn run(settings: &Settings) {
    let forced = settings.force != Force::No;
    if !forced {
        wait_for(settings.after);
    }
    let loaded = loaded::loaded();
    let Some(executable) = loaded.first() else {
        return;
    };
    let started = Live::start(executable, settings);
    if let Err(cause) = &started {
        eprintln!("uruk live: {cause}; the program runs as it is");
    }
    let live = LIVE.get_or_init(|| started).as_ref();
    if let Ok(live) = live {
        if forced {
            for function in live.adopted() {
                // What fails is in the table.
                let _ = live.compile(&function, Tier::Optimized);
            }
        }
    }
    let (ready, changed) = &READY;
    *ready.lock().unwrap_or_else(PoisonError::into_inner) = true;
    changed.notify_all();
    if let Ok(live) = live {
        if settings.control {
            control::serve(live);
        }
        if settings.force == Force::Flip {
            flip(live);
        }
    }
}

/// Waits until the process has used that much processor time.
fn wait_for(after: Duration) {
    loop {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: a valid out pointer; the clock always exists.
        unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
        let used = Duration::new(time.tv_sec as u64, time.tv_nsec as u32);
        if used >= after {
            return;
        }
        std::thread::sleep((after - used).max(Duration::from_millis(1)));
    }
}

/// Takes native code back and publishes compiled code, function by function, for ever.
fn flip(live: &Live) -> ! {
    loop {
        for function in live.adopted() {
            let _ = live.take_back(&function);
            std::thread::sleep(Duration::from_millis(1));
            let _ = live.compile(&function, Tier::Optimized);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
