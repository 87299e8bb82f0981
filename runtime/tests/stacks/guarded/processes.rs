//! Guarded calls in processes that fork, have no timers, or end threads.

use std::cell::{Cell, RefCell};
use std::os::unix::process::ExitStatusExt;
use std::process::Output;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use uruk::{Func, GuestThread, TrapKind};
use uruk_testing::Child;

use super::{DIVISION, F, SHORT, function, kind, session};

/// Runs one of the parts below in a process of its own.
fn in_a_child(part: &str) -> Output {
    let child = Child::of(module_path!(), "parts").env("PART", part);
    child.in_first_thread().output()
}

#[test]
fn parts_that_need_a_process() {
    for part in [
        "fork",
        "refused",
        "ends",
        "ends deep",
        "ends later",
        "first ends",
        "blocked",
        "handlers",
    ] {
        let output = in_a_child(part);
        let fine = output.status.success() && output.status.signal().is_none();
        assert!(fine, "{part}: {output:?}");
    }
}

#[test]
#[ignore = "parts of another test"]
fn parts() {
    match std::env::var("PART").unwrap_or_default().as_str() {
        "fork" => fork(),
        "refused" => refused(),
        "blocked" => blocked(),
        "handlers" => handlers(),
        "ends" => ends(false, false),
        "ends deep" => ends(true, false),
        "ends later" => ends(true, true),
        "first ends" => ends_first_thread(),
        _ => {}
    }
}

/// A limit comes in a child, too, and timers of the child's stay.
fn fork() {
    let jit = session();
    let made = Cell::new(0_usize);
    let forks = function(&jit, "forks");
    jit.main().compile("forks").expect("it compiles");
    let pid = jit.lookup("pid").expect("a variable") as *const i64;
    let limit = Duration::from_millis(100);
    let ended = forks.within(limit).call_guarded(0);
    let ended =
        matches!(ended.map_err(|trap| trap.kind), Err(TrapKind::Deadline(it)) if it == limit);
    // SAFETY: the variable of `CODE`.
    let child = unsafe { *pid } as i32;
    if child == 0 {
        let again = function(&jit, "spin")
            .within(SHORT)
            .call_guarded(0)
            .is_err();
        // SAFETY: a timer that no thread waits for.
        let kept = unsafe {
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_NONE;
            let mut timer: libc::timer_t = std::ptr::null_mut();
            assert_eq!(
                libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer),
                0
            );
            let mut when: libc::itimerspec = std::mem::zeroed();
            when.it_value.tv_sec = 3600;
            libc::timer_settime(timer, 0, &when, std::ptr::null_mut());
            made.set(timer.addr());
            let _ = function(&jit, "spin").within(SHORT).call_guarded(0);
            libc::timer_gettime(timer, &mut when);
            when.it_value.tv_sec > 0
        };
        // SAFETY: a child ends without the harness.
        unsafe { libc::_exit(i32::from(!(ended && again && kept))) };
    }
    assert!(ended);
    let mut status = -1;
    for _ in 0..2000 {
        // SAFETY: waits for the child.
        if unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == child {
            assert_eq!(status, 0);
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    // SAFETY: the child, which hangs.
    unsafe { libc::kill(child, libc::SIGKILL) };
    panic!("the child's limit does not come");
}

/// Where there are no timers a call with a limit fails, and one without does not.
fn refused() {
    let jit = session();
    let (spin, div) = (function(&jit, "spin"), function(&jit, "div"));
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: valid structures.
    unsafe {
        libc::getrlimit(libc::RLIMIT_SIGPENDING, &mut limit);
        let before = limit.rlim_cur;
        limit.rlim_cur = 0;
        assert_eq!(libc::setrlimit(libc::RLIMIT_SIGPENDING, &limit), 0);
        limit.rlim_cur = before;
    }
    let trap = spin.within(SHORT).call_guarded(0).expect_err("no timer");
    assert!(matches!(trap.kind, TrapKind::Refused("a timer")), "{trap}");
    assert_eq!(kind(div.call_guarded(4)), "25");
    assert_eq!(kind(div.call_guarded(0)), DIVISION);
    // SAFETY: as above.
    unsafe { libc::setrlimit(libc::RLIMIT_SIGPENDING, &limit) };
    let trap = spin.within(SHORT).call_guarded(0).expect_err("it spins");
    assert!(matches!(trap.kind, TrapKind::Deadline(_)), "{trap}");
}

/// A thread that blocks all signals has limits and interrupts, from its first guarded call on and if it
/// blocks them later.
fn blocked() {
    fn block() {
        // SAFETY: a set, which is filled.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
        }
    }
    let jit = session();
    let (spin, div) = (function(&jit, "spin"), function(&jit, "div"));
    block();
    assert_eq!(kind(div.call_guarded(4)), "25");
    assert_eq!(
        kind(spin.within(SHORT).call_guarded(0)),
        "not done within 3ms"
    );
    let (thread, other) = (GuestThread::current(), jit.clone());
    let asking = std::thread::spawn(move || {
        while !other.interrupt(&thread) {
            std::thread::yield_now();
        }
    });
    assert_eq!(kind(spin.call_guarded(0)), "interrupted");
    asking.join().expect("no panic");
    block();
    assert_eq!(
        kind(spin.within(SHORT).call_guarded(0)),
        "not done within 3ms"
    );
}

static IN_HANDLER: OnceLock<(Func<F>, Func<F>)> = OnceLock::new();
static HANDLED: AtomicU64 = AtomicU64::new(0);

/// Makes a guarded call with a limit, and one that ends at the end of the stack.
extern "C" fn on_alarm(_: libc::c_int) {
    let Some((spin, deep)) = IN_HANDLER.get() else {
        return;
    };
    // Their traps are not dropped here: that would free memory in a handler.
    let limit = Duration::from_micros(200);
    for call in [spin.within(limit).call_guarded(0), deep.call_guarded(0)] {
        if call.is_ok() {
            std::process::abort();
        }
        std::mem::forget(call);
    }
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

/// Handlers of the host make guarded calls, also where they interrupt our timer's handler. The thread
/// is never in the allocator, which a trap in the handler needs.
fn handlers() {
    let jit = session();
    let (spin, deep) = (function(&jit, "spin"), function(&jit, "deep"));
    let _ = IN_HANDLER.set((spin.clone(), deep));
    on_alarm(0);
    // SAFETY: valid structures.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_alarm as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut());
    }
    let begun = HANDLED.load(Ordering::Relaxed);
    // SAFETY: asks.
    let this = unsafe { libc::pthread_self() };
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_micros(997));
                // SAFETY: a thread that waits for this one.
                unsafe { libc::pthread_kill(this, libc::SIGALRM) };
            }
        });
        while HANDLED.load(Ordering::Relaxed) - begun < 500 {
            std::mem::forget(spin.within(Duration::from_micros(50)).call_guarded(0));
        }
        ended.store(true, Ordering::Relaxed);
    });
}

/// Makes guarded calls when its thread ends.
struct AtEnd {
    spin: Func<F>,
    deep: Option<Func<F>>,
}

impl Drop for AtEnd {
    fn drop(&mut self) {
        drop(GuestThread::current());
        let spun = self.spin.within(SHORT).call_guarded(0);
        // A panic would be the end of the process as well.
        if kind(spun) != "not done within 3ms" {
            leave(3);
        }
        if let Some(deep) = &self.deep
            && kind(deep.call_guarded(0)) != "stack overflow"
        {
            leave(4);
        }
    }
}

fn leave(status: i32) -> ! {
    // SAFETY: a process of ours ends without what else runs at its end.
    unsafe { libc::_exit(status) }
}

/// Thread-locals that were made before the first guarded call end after what that made; and those made
/// after it end before that, but after the standard library's alternate stack.
fn ends(with_deep: bool, is_later: bool) {
    let jit = session();
    for _ in 0..3 {
        let (spin, deep) = (function(&jit, "spin"), function(&jit, "deep"));
        std::thread::spawn(move || end_with(spin, with_deep.then_some(deep), is_later))
            .join()
            .expect("no panic");
    }
}

/// The same of the first thread, if the harness runs the test in it.
fn ends_first_thread() {
    let jit = session();
    let (spin, deep) = (function(&jit, "spin"), function(&jit, "deep"));
    end_with(spin, Some(deep), true);
}

/// Makes a guarded call, and has the thread make others when it ends.
fn end_with(spin: Func<F>, deep: Option<Func<F>>, is_later: bool) {
    thread_local! {
        static END: RefCell<Option<AtEnd>> = const { RefCell::new(None) };
    }
    let call = spin.clone();
    let end = || END.with(|end| *end.borrow_mut() = Some(AtEnd { spin, deep }));
    if is_later {
        assert!(call.within(SHORT).call_guarded(0).is_err());
        end();
    } else {
        end();
        assert!(call.within(SHORT).call_guarded(0).is_err());
    }
}
