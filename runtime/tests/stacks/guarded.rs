//! Calls that fail with a value: what a fault, a host's error or an interrupt leaves behind, and what
//! stays the host's own.

mod passes;

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use uruk::{Access, Func, GuestThread, Jit, Tier, Tiers, Trap, TrapKind};
use uruk_testing::Child;

const FAULTS: &str = r#"
declare void @llvm.trap()
declare void @llvm.debugtrap()
declare i64 @host(i64)
define i64 @div(i64 %a, i64 %b) { %q = sdiv i64 %a, %b ret i64 %q }
define i64 @outer(i64 %a, i64 %b) noinline {
  %q = call i64 @div(i64 %a, i64 %b) %r = add i64 %q, 1 ret i64 %r }
define i64 @load(ptr %p) { %v = load i64, ptr %p ret i64 %v }
define void @store(ptr %p) { store i64 1, ptr %p ret void }
define void @jump(ptr %p) { call void %p() ret void }
define void @trap() { call void @llvm.trap() unreachable }
define void @stop() { call void @llvm.debugtrap() ret void }
define i64 @deep(i64 %n) {
  %m = alloca [64 x i64]
  store volatile i64 %n, ptr %m
  %k = add i64 %n, 1
  %r = call i64 @deep(i64 %k)
  %v = load volatile i64, ptr %m
  %s = add i64 %r, %v
  ret i64 %s
}
define void @spin() { br label %l l: br label %l }
define i64 @calls(i64 %x) { %y = call i64 @host(i64 %x) %z = add i64 %y, 1 ret i64 %z }
"#;

const ALL_TIERS: [Tier; 3] = [Tier::Baseline, Tier::Optimized, Tier::Guided];

#[derive(Debug, thiserror::Error)]
#[error("number {0} is not wanted")]
struct Unwanted(i64);

fn session(tiers: Tiers) -> Jit {
    let jit = Jit::builder().tiers(tiers).build().expect("a session");
    jit.define_fn("host", |x: i64| match x {
        0.. => Ok(2 * x),
        _ => Err(Unwanted(x)),
    })
    .expect("defined");
    jit.add_ir("faults", FAULTS).expect("it loads");
    jit
}

fn function<F: uruk::Signature>(jit: &Jit, name: &str) -> Func<F> {
    // SAFETY: a function of `FAULTS`, which is called with what it takes or made to fail.
    unsafe { jit.function(name) }.expect("it is there")
}

fn names(trap: &Trap) -> Vec<&str> {
    let names = trap.backtrace.iter().map(|frame| frame.function.as_deref());
    names.map(|name| name.unwrap_or("?")).collect()
}

type Load = extern "C" fn(*const i64) -> i64;
type Two = extern "C" fn(i64, i64) -> i64;

#[test]
fn faults_are_values_at_every_tier_and_the_thread_goes_on() {
    for tier in ALL_TIERS {
        let jit = session(Tiers::Fixed(tier));
        let div = function::<Two>(&jit, "div");
        let load = function::<Load>(&jit, "load");
        let store = function::<extern "C" fn(*mut i64)>(&jit, "store");
        let jump = function::<extern "C" fn(*const ())>(&jit, "jump");
        for _ in 0..3 {
            assert_eq!(div.call_guarded(84, 2).expect("no fault"), 42);
            let trap = div.call_guarded(1, 0).expect_err("by zero");
            assert!(matches!(trap.kind, TrapKind::Division), "{trap}");
            assert_eq!(names(&trap), ["div"], "{tier:?}");
            let trap = div.call_guarded(i64::MIN, -1).expect_err("it does not fit");
            assert!(matches!(trap.kind, TrapKind::Division), "{trap}");
            let nowhere = std::ptr::without_provenance_mut(0x70);
            let trap = load.call_guarded(nowhere).expect_err("nothing is there");
            assert!(
                matches!(
                    trap.kind,
                    TrapKind::Memory {
                        address: 0x70,
                        access: Access::Read
                    }
                ),
                "{trap}"
            );
            let trap = store.call_guarded(nowhere).expect_err("nothing is there");
            assert!(
                matches!(
                    trap.kind,
                    TrapKind::Memory {
                        address: 0x70,
                        access: Access::Write
                    }
                ),
                "{trap}"
            );
            assert_eq!(load.call_guarded(&7).expect("it is there"), 7);
            let trap = jump
                .call_guarded(std::ptr::null())
                .expect_err("nothing is there");
            assert!(
                matches!(
                    trap.kind,
                    TrapKind::Memory {
                        address: 0,
                        access: Access::Execute
                    }
                ),
                "{trap}"
            );
            // Above tier 1 the call is a jump, and leaves no frame.
            let callers = &names(&trap)[1..];
            assert!(callers == ["jump"] || tier > Tier::Baseline, "{callers:?}");
        }
        let trap = function::<extern "C" fn()>(&jit, "trap")
            .call_guarded()
            .expect_err("a trap");
        assert!(matches!(trap.kind, TrapKind::Illegal), "{trap}");
        let trap = function::<extern "C" fn()>(&jit, "stop")
            .call_guarded()
            .expect_err("a trap");
        assert!(matches!(trap.kind, TrapKind::Breakpoint), "{trap}");
        assert_eq!(trap.function(), Some("stop"));
    }
}

#[test]
fn a_backtrace_names_callers() {
    let jit = session(Tiers::Fixed(Tier::Baseline));
    let trap = function::<Two>(&jit, "outer")
        .call_guarded(1, 0)
        .expect_err("by zero");
    assert_eq!(names(&trap), ["div", "outer"]);
    assert!(trap.backtrace.iter().all(|frame| frame.jitted));
    assert_eq!(
        trap.to_string(),
        "division by zero, or its result does not fit in div, called by outer"
    );
}

#[test]
fn the_end_of_the_stack_is_a_value_on_any_thread() {
    fn overflow() {
        for tier in ALL_TIERS {
            let jit = session(Tiers::Fixed(tier));
            let deep = function::<extern "C" fn(i64) -> i64>(&jit, "deep");
            // Where it is recursive there is a frame at each tier, as it has a variable.
            for _ in 0..2 {
                let trap = deep.call_guarded(0).expect_err("no stack is that deep");
                assert!(matches!(trap.kind, TrapKind::StackOverflow), "{trap}");
                assert_eq!(trap.backtrace.len(), Trap::FRAMES);
                assert_eq!(names(&trap)[Trap::FRAMES - 1], "deep");
            }
        }
    }
    overflow();
    std::thread::Builder::new()
        .stack_size(256 << 10)
        .spawn(overflow)
        .expect("a thread")
        .join()
        .expect("no panic");
}

#[test]
fn an_error_of_the_host_is_what_it_was() {
    for tier in ALL_TIERS {
        let jit = session(Tiers::Fixed(tier));
        let calls = function::<extern "C" fn(i64) -> i64>(&jit, "calls");
        assert_eq!(calls.call_guarded(4).expect("wanted"), 9);
        let trap = calls.call_guarded(-4).expect_err("not wanted");
        assert_eq!(trap.host_error::<Unwanted>().map(|error| error.0), Some(-4));
        assert_eq!(names(&trap), ["calls"]);
        // Without a guard it is a panic.
        let caught = std::panic::catch_unwind(|| calls.call(-4)).expect_err("a panic");
        let text = caught.downcast_ref::<String>().expect("a text");
        assert!(text.contains("number -4 is not wanted"), "{text}");
    }
}

#[test]
fn a_function_without_code_is_a_value() {
    let jit = Jit::new().expect("a session");
    jit.main().allow_missing(true);
    jit.add_ir(
        "m",
        "declare i64 @missing(i64)
        define i64 @inner(i64 %x) { %y = call i64 @missing(i64 %x) ret i64 %y }
        define i64 @f(i64 %x) { %y = call i64 @inner(i64 %x) %z = add i64 %y, 1 ret i64 %z }",
    )
    .expect("it waits");
    let f = function::<extern "C" fn(i64) -> i64>(&jit, "f");
    let trap = f.call_guarded(1).expect_err("it is missing");
    let TrapKind::NotCompiled { function, cause } = &trap.kind else {
        panic!("{trap}");
    };
    assert!(function == "inner" || function == "f", "{function}");
    assert!(
        cause
            .as_ref()
            .is_some_and(|it| it.to_string().contains("missing")),
        "{trap}"
    );
    jit.define_fn("missing", |x: i64| 10 * x).expect("defined");
    assert_eq!(f.call_guarded(1).expect("it is there"), 11);
}

/// Says that it was dropped.
struct Dropped<'a>(&'a AtomicUsize);

impl Drop for Dropped<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn frames_of_the_host_are_never_left() {
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    #[derive(Debug, thiserror::Error)]
    #[error("inner: {0}")]
    struct Inner(Box<Trap>);

    let jit = session(Tiers::Fixed(Tier::Baseline));
    let div = function::<Two>(&jit, "div");
    jit.define_fn("guarded", move |a: i64, b: i64| {
        let _value = Dropped(&DROPPED);
        div.call_guarded(a, b).map_err(|trap| Inner(Box::new(trap)))
    })
    .expect("defined");
    jit.add_ir(
        "n",
        "declare i64 @guarded(i64, i64) define i64 @nested(i64 %a, i64 %b) {
          %q = call i64 @guarded(i64 %a, i64 %b) %r = add i64 %q, 1 ret i64 %r }",
    )
    .expect("it loads");
    let nested = function::<Two>(&jit, "nested");
    assert_eq!(nested.call_guarded(84, 2).expect("no fault"), 43);
    let trap = nested.call_guarded(84, 0).expect_err("by zero");
    let inner = trap.host_error::<Inner>().expect("the host's");
    assert_eq!(names(&inner.0), ["div"]);
    assert_eq!(names(&trap), ["guarded", "nested"]);
    assert_eq!(DROPPED.load(Ordering::Relaxed), 2);
}

#[test]
fn a_deadline_and_an_interrupt_end_code_that_does_not_look() {
    for tier in ALL_TIERS {
        let jit = session(Tiers::Fixed(tier));
        let spin = function::<extern "C" fn()>(&jit, "spin");
        let limit = Duration::from_millis(3);
        jit.main().compile("spin").expect("it compiles");
        for _ in 0..3 {
            let trap = spin.within(limit).call_guarded().expect_err("it spins");
            assert!(
                matches!(trap.kind, TrapKind::Deadline(it) if it == limit),
                "{trap}"
            );
            assert_eq!(names(&trap), ["spin"]);
        }
        let div = function::<Two>(&jit, "div");
        assert_eq!(
            div.within(Duration::from_secs(3600))
                .call_guarded(6, 3)
                .ok(),
            Some(2)
        );
        let (thread, other) = (GuestThread::current(), jit.clone());
        assert!(!jit.interrupt(&thread), "there is no call");
        let asking = std::thread::spawn(move || {
            while !other.interrupt(&thread) {
                std::thread::yield_now();
            }
        });
        let trap = spin.call_guarded().expect_err("it spins");
        assert!(matches!(trap.kind, TrapKind::Interrupted), "{trap}");
        asking.join().expect("no panic");
        // It was for that call.
        assert_eq!(div.call_guarded(6, 3).ok(), Some(2));
    }
}

#[test]
fn a_deadline_reaches_through_the_host() {
    let jit = session(Tiers::Fixed(Tier::Baseline));
    let spin = function::<extern "C" fn()>(&jit, "spin");
    jit.define_fn("run", move || spin.call_guarded().map_err(Box::new))
        .expect("defined");
    jit.add_ir(
        "n",
        "declare void @run() define void @outer2() { call void @run() br label %l l: br label %l }",
    )
    .expect("it loads");
    let outer = function::<extern "C" fn()>(&jit, "outer2");
    let trap = outer
        .within(Duration::from_millis(3))
        .call_guarded()
        .expect_err("both spin");
    // The inner call is interrupted on behalf of the outer one, and says so to the host, whose
    // function fails with it.
    let inner = trap.host_error::<Box<Trap>>().map(|trap| &trap.kind);
    assert!(matches!(inner, Some(TrapKind::Interrupted)), "{trap}");
}

#[test]
fn many_threads_fail_at_once() {
    let jit = session(Tiers::Auto);
    let div = function::<Two>(&jit, "div");
    let deep = function::<extern "C" fn(i64) -> i64>(&jit, "deep");
    let spin = function::<extern "C" fn()>(&jit, "spin");
    std::thread::scope(|scope| {
        for id in 0..8 {
            let (div, deep, spin) = (&div, &deep, &spin);
            scope.spawn(move || {
                for turn in 0..50 {
                    let failed = match (id + turn) % 4 {
                        0 => deep.call_guarded(0).is_err(),
                        1 => spin
                            .within(Duration::from_millis(1))
                            .call_guarded()
                            .is_err(),
                        2 => div.call_guarded(1, 1).is_ok(),
                        _ => div.call_guarded(1, 0).is_err(),
                    };
                    assert!(failed, "thread {id}, turn {turn}");
                }
            });
        }
    });
}

/// Runs one of the parts below in a process of its own.
fn in_a_child(part: &str) -> std::process::Output {
    let mut child = Child::of(module_path!(), "parts").env("PART", part);
    // SAFETY: an async-signal-safe call: no core files.
    unsafe {
        child.command().pre_exec(|| {
            let none = libc::rlimit {
                rlim_cur: 0,
                rlim_max: 0,
            };
            libc::setrlimit(libc::RLIMIT_CORE, &none);
            Ok(())
        });
    }
    child.output()
}

#[test]
fn faults_elsewhere_stay_the_hosts() {
    // Not above a guard: as without any.
    let output = in_a_child("unguarded");
    assert_eq!(output.status.signal(), Some(libc::SIGFPE), "{output:?}");
    // In the host's code, above a guard of JIT'd code.
    let output = in_a_child("in the host");
    assert_eq!(output.status.signal(), Some(libc::SIGFPE), "{output:?}");
    // A handler that was there before.
    let output = in_a_child("handler");
    assert_eq!(output.status.code(), Some(77), "{output:?}");
    // Rust's own, of the end of the stack.
    let output = in_a_child("overflow of the host");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{text}");
    assert!(text.contains("has overflowed its stack"), "{text}");
}

#[test]
fn a_handler_of_the_hosts_makes_guarded_calls() {
    let output = in_a_child("alarm");
    assert!(output.status.success(), "{output:?}");
}

/// Guarded calls that trap, in a handler that comes at any instruction, and where it comes.
fn trap_in_handlers(div: &Func<Two>) {
    static DIV: OnceLock<Func<Two>> = OnceLock::new();
    static HANDLED: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn on_alarm(_: i32) {
        let failed = DIV.get().is_some_and(|div| div.call_guarded(1, 0).is_err());
        HANDLED.fetch_add(usize::from(failed), Ordering::Relaxed);
    }
    assert!(DIV.set(div.clone()).is_ok());
    // SAFETY: a handler of that type; the timer is set as asked.
    unsafe {
        libc::signal(libc::SIGALRM, on_alarm as *const () as usize);
        let every = libc::timeval {
            tv_sec: 0,
            tv_usec: 300,
        };
        let timer = libc::itimerval {
            it_interval: every,
            it_value: every,
        };
        libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut());
    }
    while HANDLED.load(Ordering::Relaxed) < 1000 {
        assert!(div.call_guarded(1, 0).is_err());
    }
}

/// Divides by zero.
fn fault() {
    // SAFETY: it faults, which is what is wanted.
    unsafe { std::arch::asm!("xor ecx, ecx", "div ecx", out("eax") _, out("ecx") _, out("edx") _) };
}

extern "C" fn handler(_: i32) {
    // SAFETY: ends the process.
    unsafe { libc::_exit(77) }
}

#[test]
#[ignore = "a part of another test"]
fn parts() {
    let part = std::env::var("PART").unwrap_or_default();
    if part == "handler" {
        // SAFETY: a handler of that type.
        unsafe { libc::signal(libc::SIGFPE, handler as *const () as usize) };
    }
    let jit = session(Tiers::Fixed(Tier::Baseline));
    let div = function::<Two>(&jit, "div");
    assert!(div.call_guarded(1, 0).is_err());
    match part.as_str() {
        "unguarded" => drop(div.call(1, 0)),
        "in the host" | "handler" => {
            jit.define_fn("bad", fault).expect("defined");
            jit.add_ir(
                "b",
                "declare void @bad() define void @b() { call void @bad() ret void }",
            )
            .expect("it loads");
            let _ = function::<extern "C" fn()>(&jit, "b").call_guarded();
        }
        "alarm" => trap_in_handlers(&div),
        "overflow of the host" => {
            #[expect(unconditional_recursion, reason = "which is the test")]
            fn deep(n: usize) -> usize {
                let held = std::hint::black_box([n; 64]);
                deep(n + 1) + held[n % 64]
            }
            std::thread::spawn(|| {
                let jit = session(Tiers::Fixed(Tier::Baseline));
                assert!(function::<Two>(&jit, "div").call_guarded(1, 0).is_err());
                deep(0)
            })
            .join()
            .expect("it does not come back");
        }
        _ => {}
    }
}

#[test]
fn guards_and_replaced_code_go_together() {
    // Code that was left is freed as any other.
    let jit = Arc::new(session(Tiers::Fixed(Tier::Baseline)));
    let spin = function::<extern "C" fn()>(&jit, "spin");
    for turn in 0..20 {
        assert!(
            spin.within(Duration::from_millis(1))
                .call_guarded()
                .is_err()
        );
        jit.compile_at("spin", ALL_TIERS[turn % 2])
            .expect("it compiles");
    }
    assert!(jit.reclaim(uruk::ReclaimKind::Sweep, Duration::from_secs(20)));
}
