//! Processes of embedders that give up system calls: a filter that ends the process at each call but
//! a few, and strict mode. Each test runs itself in a process of its own.

use std::sync::atomic::{AtomicI32, AtomicI64, Ordering};

use std::sync::Arc;
use std::time::Duration;

use uruk::{Error, Func, Jit, JitBuilder, Tier, Tiers, TrapKind};
use uruk_testing::Child;

/// Says that the process is one to be closed.
const CHILD: &str = "URUK_TEST_SANDBOX";

const CODE: &str = "
define i64 @mix(i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %s = phi i64 [ %n, %entry ], [ %mixed, %loop ]
  %m = mul i64 %s, 6364136223846793005
  %a = add i64 %m, %i
  %h = lshr i64 %a, 29
  %mixed = xor i64 %a, %h
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, 3000000
  br i1 %more, label %loop, label %done
done:
  ret i64 %mixed
}
define i64 @later(i64 %n) { %a = call i64 @mix(i64 %n) %b = call i64 @latest(i64 %a) ret i64 %b }
define internal i64 @latest(i64 %n) { %a = add i64 %n, 7 ret i64 %a }
define i64 @div(i64 %n) { %q = sdiv i64 100, %n ret i64 %q }
";

/// The result of `later(1)`.
fn expected() -> i64 {
    let mut state = 1_u64;
    for i in 0..3_000_000 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(i);
        state ^= state >> 29;
    }
    state.wrapping_add(7).cast_signed()
}

fn instruction(code: u32, k: u32, on_true: u8) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt: on_true,
        jf: 0,
        k,
    }
}

/// Ends the process at each system call of any thread but these.
fn close(allowed: &[i64]) {
    let mut code = vec![instruction(
        libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
        0,
        0,
    )];
    for (index, &call) in allowed.iter().enumerate() {
        let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        code.push(instruction(
            equal,
            call as u32,
            (allowed.len() - index) as u8,
        ));
    }
    let ret = libc::BPF_RET | libc::BPF_K;
    code.push(instruction(ret, libc::SECCOMP_RET_KILL_PROCESS, 0));
    code.push(instruction(ret, libc::SECCOMP_RET_ALLOW, 0));
    let program = libc::sock_fprog {
        len: code.len() as u16,
        filter: code.as_mut_ptr(),
    };
    // SAFETY: a program that the kernel copies.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let (operation, flags) = (
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_TSYNC,
        );
        assert_eq!(
            libc::syscall(libc::SYS_seccomp, operation, flags, &program),
            0
        );
    }
}

/// Runs a test in a process of its own, which ends with 0 if all was right in it.
fn apart(test: &str, closed: fn() -> i32) {
    if std::env::var_os(CHILD).is_some() {
        // The main thread, which waits for this one, is one more that the filter is for.
        let status = closed();
        // SAFETY: does not return.
        unsafe { libc::_exit(status) };
    }
    Child::of(module_path!(), test).env(CHILD, "1").passes();
}

const FEW: [i64; 3] = [libc::SYS_write, libc::SYS_exit, libc::SYS_exit_group];

type F = Func<extern "C" fn(i64) -> i64>;

/// Whether all is as it was, without a system call.
fn works(later: &F) -> bool {
    (0..40).all(|_| later.call(1) == expected())
}

/// A session that stays: its end would give memory back.
fn session(builder: JitBuilder) -> (&'static Jit, &'static F) {
    let jit = builder.build().expect("a session");
    jit.add_ir("m", CODE).expect("it loads");
    // SAFETY: a function of `CODE`.
    let later = unsafe { jit.function("later") }.expect("it is there");
    (Box::leak(Box::new(jit)), Box::leak(Box::new(later)))
}

fn closed_at(builder: JitBuilder) -> i32 {
    let (_, later) = session(builder);
    uruk::prepare_sandbox().expect("prepared");
    uruk::prepare_sandbox().expect("it is");
    close(&FEW);
    i32::from(!works(later))
}

#[test]
fn functions_that_were_never_called_run_in_a_sandbox() {
    apart("functions_that_were_never_called_run_in_a_sandbox", || {
        closed_at(Jit::builder())
    });
}

#[test]
fn at_a_fixed_tier() {
    apart("at_a_fixed_tier", || {
        closed_at(Jit::builder().tiers(Tiers::Fixed(Tier::Optimized)))
    });
}

#[test]
fn with_a_tuner() {
    apart("with_a_tuner", || closed_at(Jit::builder().tune(true)));
}

#[test]
fn while_better_code_is_made() {
    apart("while_better_code_is_made", || {
        let (_, later) = session(Jit::builder());
        for _ in 0..60 {
            later.call(1);
        }
        uruk::prepare_sandbox().expect("prepared");
        close(&FEW);
        i32::from(!works(later))
    });
}

#[test]
fn a_compile_fails_and_traps_are_caught() {
    apart("a_compile_fails_and_traps_are_caught", || {
        let (jit, later) = session(Jit::builder());
        // SAFETY: a function of `CODE`.
        let div: F = unsafe { jit.function("div") }.expect("it is there");
        let div = Box::leak(Box::new(div));
        // Sets handlers.
        assert_eq!(div.call_guarded(1).ok(), Some(100));
        uruk::prepare_sandbox().expect("prepared");
        let refused = jit.compile_at("mix", Tier::Optimized);
        if !matches!(refused, Err(Error::Thread { .. })) {
            return 2;
        }
        // An embedder allows the calls that guarded calls need.
        let mut allowed = FEW.to_vec();
        allowed.extend([
            libc::SYS_futex,
            libc::SYS_rt_sigprocmask,
            libc::SYS_rt_sigreturn,
        ]);
        close(&allowed);
        let trap = div.call_guarded(0);
        let caught = trap.is_err_and(|trap| matches!(trap.kind, TrapKind::Division));
        i32::from(!caught || !works(later))
    });
}

/// The result of the thread in strict mode: 0 before it has one.
static FOUND: AtomicI64 = AtomicI64::new(0);
static THREAD: AtomicI32 = AtomicI32::new(0);

/// A function that is added while the threads of the runtime end is compiled, or its first call fails;
/// the call does not wait for ever.
#[test]
fn a_first_call_meanwhile_is_answered() {
    fn answered() -> ! {
        // SAFETY: does not return.
        unsafe { libc::_exit(0) }
    }
    apart("a_first_call_meanwhile_is_answered", || {
        let jit = Jit::builder().tiers(Tiers::Fixed(Tier::Optimized));
        let jit = jit
            .on_failed_call(Arc::new(|_| answered()))
            .build()
            .expect("a session");
        std::thread::spawn(move || {
            for number in 0.. {
                let name = format!("f{number}");
                let text = format!("define i64 @{name}(i64 %x) {{ ret i64 %x }}");
                // Nothing is added any more once the sandbox is closed.
                if jit.add_ir("added", &text).is_err() {
                    break;
                }
                // SAFETY: a function of that type.
                let function: Result<F, _> = unsafe { jit.function(&name) };
                match function {
                    Ok(function) => assert_eq!(function.call(7), 7),
                    Err(_) => break,
                }
            }
            answered()
        });
        std::thread::sleep(Duration::from_millis(20));
        uruk::prepare_sandbox().expect("prepared");
        std::thread::sleep(Duration::from_secs(60));
        2
    });
}

#[test]
fn strict_mode() {
    apart("strict_mode", || {
        let (_, later) = session(Jit::builder());
        std::thread::spawn(move || {
            // SAFETY: takes nothing.
            THREAD.store(unsafe { libc::gettid() }, Ordering::Release);
            uruk::prepare_sandbox().expect("prepared");
            // SAFETY: changes what this thread may call.
            unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_STRICT, 0, 0, 0) };
            FOUND.store(later.call(1), Ordering::Release);
            loop {
                std::hint::spin_loop();
            }
        });
        // The other threads of the process are not filtered. A call that is not allowed ends that one.
        let is_there = || match THREAD.load(Ordering::Acquire) {
            0 => true,
            // SAFETY: no signal is sent.
            id => unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), id, 0) == 0 },
        };
        while FOUND.load(Ordering::Acquire) == 0 && is_there() {
            std::thread::yield_now();
        }
        i32::from(FOUND.load(Ordering::Acquire) != expected())
    });
}
