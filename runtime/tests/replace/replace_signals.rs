//! A set is exchanged while signals come to a thread in old code faster than rounds of waiting.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use uruk::{Func, Jit, Level, Replacement};

type Answer = extern "C" fn() -> i32;

const PATIENCE: Duration = Duration::from_secs(120);

/// How long the exchange may wait. Rounds are up to 5 ms apart: were each call at the gate to wait for
/// one, the handlers would take longer.
const WAIT: Duration = Duration::from_secs(30);

/// Handlers, which call a member three times each: two calls are those of `whole`.
const HANDLERS: u32 = 2500;

/// `whole`, for the handler.
static WHOLE: AtomicU64 = AtomicU64::new(0);
/// Handlers that are still to come, and those that found numbers of two versions.
static LEFT: AtomicU32 = AtomicU32::new(0);
static TORN: AtomicU32 = AtomicU32::new(0);
/// A thread is in old code; calls are held up at the gate.
static INSIDE: AtomicBool = AtomicBool::new(false);
static CLOSED: AtomicBool = AtomicBool::new(false);

fn text(version: u32) -> String {
    format!(
        "declare void @interrupt()
        define i32 @part() noinline {{ ret i32 {version} }}
        define i32 @whole() noinline {{
          %a = call i32 @part()
          %b = call i32 @part()
          %d = sub i32 %a, %b
          ret i32 %d
        }}
        define i32 @busy() noinline {{
          call void @interrupt()
          %p = call i32 @part()
          %d = sub i32 %p, {version}
          ret i32 %d
        }}"
    )
}

/// The next signal waits until the handler returns, and comes before the code below goes on.
extern "C" fn handle(signal: libc::c_int) {
    // SAFETY: the function of the test's module, of this type.
    let whole = unsafe { std::mem::transmute::<u64, Answer>(WHOLE.load(Ordering::SeqCst)) };
    if whole() != 0 {
        TORN.fetch_add(1, Ordering::SeqCst);
    }
    if LEFT.fetch_sub(1, Ordering::SeqCst) > 1 {
        // SAFETY: allowed in handlers.
        unsafe { libc::raise(signal) };
    }
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::yield_now();
    }
}

/// Called by old code: signals come once the gate is closed.
fn interrupt() {
    if LEFT.load(Ordering::SeqCst) > 0 {
        INSIDE.store(true, Ordering::SeqCst);
        wait_until("the gate is closed", || CLOSED.load(Ordering::SeqCst));
        // SAFETY: the handler is `handle`.
        unsafe { libc::raise(libc::SIGUSR1) };
    }
}

fn answer(jit: &Jit, name: &str) -> Func<Answer> {
    // SAFETY: functions of the test's module.
    unsafe { jit.function(name) }.expect("typed")
}

/// Whether a thread sleeps until it is woken.
fn waits(thread: i32) -> bool {
    let call = std::fs::read_to_string(format!("/proc/self/task/{thread}/syscall"));
    call.is_ok_and(|call| call.starts_with(&format!("{} ", libc::SYS_futex)))
}

#[test]
fn handlers_that_call_members_do_not_keep_a_thread_in_old_code() {
    let jit = Jit::builder().jobs(2).build().expect("a session");
    jit.define_fn("interrupt", interrupt).expect("defined");
    jit.add_ir("m", &text(0)).expect("valid IR");
    let (busy, part) = (answer(&jit, "busy"), answer(&jit, "part"));
    let whole = jit.lookup("whole").expect("defined");
    WHOLE.store(whole, Ordering::SeqCst);
    // SAFETY: plain data; the handler does what handlers may.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handle as *const () as usize;
        libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut());
    }
    // Compiled: calls wait at the gate only.
    assert_eq!((busy.call(), answer(&jit, "whole").call()), (0, 0));
    LEFT.store(HANDLERS, Ordering::SeqCst);
    let caller = AtomicI32::new(0);
    std::thread::scope(|scope| {
        let interrupted = scope.spawn(|| busy.call());
        wait_until("old code runs", || INSIDE.load(Ordering::SeqCst));
        let new = Replacement::ir("new", &text(1)).level(Level::Quiescent { wait: WAIT });
        let replaced = scope.spawn(|| jit.main().replace(new));
        scope.spawn(|| {
            // SAFETY: takes nothing, cannot fail.
            caller.store(unsafe { libc::gettid() }, Ordering::SeqCst);
            while part.call() == 0 {}
        });
        wait_until("a caller waits", || waits(caller.load(Ordering::SeqCst)));
        CLOSED.store(true, Ordering::SeqCst);
        assert_eq!(interrupted.join().expect("no panic"), 0);
        let replaced = replaced.join().expect("no panic");
        let failed = replaced.as_ref().err().map(ToString::to_string);
        if failed.is_some() {
            // The caller ends.
            jit.main()
                .replace(Replacement::ir("new", &text(1)))
                .expect("at once");
        }
        assert_eq!(failed, None);
    });
    assert_eq!(LEFT.load(Ordering::SeqCst), 0);
    assert_eq!(TORN.load(Ordering::SeqCst), 0);
    assert_eq!(part.call(), 1);
}
