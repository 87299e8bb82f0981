//! Threads that promise to come in through `Func` only, and stacks that the library was not told
//! of.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use uruk::{Event, FuncOnlyThread, Jit, JitBuilder, ReclaimConfig, ReclaimKind, Tier};

/// Long enough for a cycle on a busy machine.
const SOON: Duration = Duration::from_secs(120);

/// Longest wait for a cycle that never comes.
const IN_VAIN: Duration = Duration::from_secs(2);

/// Tests of this file look at all threads of the process.
static ALONE: Mutex<()> = Mutex::new(());

fn builder(stacks: &str) -> JitBuilder {
    let mut reclaim = ReclaimConfig::default();
    for (name, value) in [
        ("backoff_min", "1ms"),
        ("backoff_max", "10ms"),
        ("interval", "0ns"),
        ("stacks", stacks),
    ] {
        reclaim.set(name, value).expect("a setting");
    }
    Jit::builder().reclaim(reclaim).jobs(1)
}

fn block_all_signals() {
    let all = [u64::MAX];
    // SAFETY: sets this thread's mask; also of the signals that libc keeps for itself.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &all,
            std::ptr::null_mut::<c_void>(),
            8,
        );
    }
}

/// Makes old versions of `name`, and says how many were freed. Tiers are paused: a better
/// version that came meanwhile would refuse these.
fn freed_by(jit: &Jit, name: &str) -> u64 {
    let before = jit.stats().memory.freed;
    for tier in [Tier::Baseline, Tier::Optimized, Tier::Baseline] {
        jit.compile_at(name, tier).expect("a function");
        assert!(jit.reclaim(ReclaimKind::Evacuate, SOON), "a cycle ends");
    }
    jit.stats().memory.freed - before
}

const SPIN: &str = "
    define i64 @spin(ptr %go, ptr %in) {
    entry:
      store atomic i8 1, ptr %in seq_cst, align 1
      br label %head
    head:
      %v = load atomic i8, ptr %go seq_cst, align 1
      %c = icmp eq i8 %v, 0
      br i1 %c, label %end, label %head
    end:
      ret i64 42
    }
    define i64 @other(i64 %x) { %y = add i64 %x, 1 ret i64 %y }";

/// A thread that runs with all signals blocked would have to be waited for, if anybody asked
/// it anything.
#[test]
fn a_func_only_thread_is_asked_nothing_outside_of_its_calls() {
    let _alone = ALONE.lock();
    static SPINS: AtomicBool = AtomicBool::new(true);
    static IN: AtomicBool = AtomicBool::new(false);
    static STEP: AtomicI32 = AtomicI32::new(0);
    let jit = builder("told").build().expect("a session");
    jit.pause_tiers();
    jit.add_ir("m", SPIN).expect("valid IR");
    type Spin = extern "C" fn(*const AtomicBool, *const AtomicBool) -> u64;
    // SAFETY: the functions above.
    let spin = unsafe { jit.function::<Spin>("spin") }.expect("typed");
    // SAFETY: as above.
    let other = unsafe { jit.function::<extern "C" fn(u64) -> u64>("other") }.expect("typed");
    let thread = std::thread::spawn(move || {
        block_all_signals();
        // SAFETY: this thread calls `other` and `spin`, through their handles.
        let counted = unsafe { FuncOnlyThread::begin() };
        assert_eq!(other.call(1), 2);
        let wait = |step| {
            STEP.store(step, Ordering::SeqCst);
            while STEP.load(Ordering::SeqCst) == step {
                std::hint::spin_loop();
            }
        };
        wait(1);
        let result = spin.call(&SPINS, &IN);
        assert_eq!(other.call(2), 3);
        wait(3);
        drop(counted);
        wait(5);
        result
    });
    let reach = |step| {
        while STEP.load(Ordering::SeqCst) != step {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    reach(1);
    assert!(freed_by(&jit, "other") > 0, "outside: nobody waits for it");
    STEP.store(2, Ordering::SeqCst);
    while !IN.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(freed_by(&jit, "spin"), 0, "inside: nothing is proved dead");
    SPINS.store(false, Ordering::SeqCst);
    reach(3);
    assert!(freed_by(&jit, "spin") > 0, "outside again");
    STEP.store(4, Ordering::SeqCst);
    reach(5);
    assert_eq!(freed_by(&jit, "other"), 0, "it promises nothing any more");
    STEP.store(6, Ordering::SeqCst);
    assert_eq!(thread.join().expect("it ends"), 42);
}

/// Code that may go to another stack, in each place where it can be, is noticed before it runs.
#[test]
fn code_that_switches_stacks_is_noticed() {
    let _alone = ALONE.lock();
    let plain = "define i64 @f(i64 %x) { %y = add i64 %x, 1 ret i64 %y }";
    let array = "
        declare ptr @llvm.stacksave()
        declare void @llvm.stackrestore(ptr)
        declare void @use(ptr)
        define void @use_it(i64 %n) {
          %s = call ptr @llvm.stacksave()
          %a = alloca i8, i64 %n
          store volatile i8 1, ptr %a
          call void @llvm.stackrestore(ptr %s)
          ret void
        }
        define i64 @f(i64 %x) { call void @use_it(i64 %x) ret i64 %x }";
    let inlined = "
        define i64 @f(i64 %x) {
          %c = icmp eq i64 %x, 0
          br i1 %c, label %go, label %stay
        go:
          call void asm sideeffect \"movq $0, %rsp\", \"r,~{memory}\"(i64 %x)
          ret i64 0
        stay:
          ret i64 %x
        }";
    let module = "
        module asm \".globl go_away\"
        module asm \"go_away: movq (%rsi), %rsp\"
        module asm \"ret\"
        define i64 @f(i64 %x) { ret i64 %x }";
    // Made executable below.
    let bytes = "
        @code = global [4096 x i8] zeroinitializer, align 4096
        define i64 @f(i64 %x) { ret i64 %x }";
    let jump = "
        declare void @longjmp(ptr, i32)
        declare i32 @sigaltstack(ptr, ptr)
        define i64 @f(i64 %x) {
          %c = icmp eq i64 %x, 0
          br i1 %c, label %go, label %stay
        go:
          %r = call i32 @sigaltstack(ptr null, ptr null)
          call void @longjmp(ptr null, i32 %r)
          unreachable
        stay:
          ret i64 %x
        }";
    for (name, text, switches) in [
        ("plain", plain, false),
        ("array", array, false),
        ("inlined", inlined, true),
        ("module", module, true),
        ("bytes", bytes, true),
        ("jump", jump, true),
    ] {
        let told = Arc::new(Mutex::new(Vec::new()));
        let causes = Arc::clone(&told);
        let jit = builder("auto").on_event(move |event| {
            if let Event::StacksSearched { cause, .. } = event {
                causes.lock().expect("no panic").push(cause.clone());
            }
        });
        let jit = jit.build().expect("a session");
        jit.pause_tiers();
        jit.add_ir(name, text).expect("valid IR");
        // SAFETY: the function above.
        let f = unsafe { jit.function::<extern "C" fn(u64) -> u64>("f") }.expect("typed");
        assert!(f.call(5) >= 5);
        if let Ok(code) = jit.lookup("code") {
            // SAFETY: a page of the module's own.
            unsafe { libc::mprotect(code as *mut c_void, 4096, libc::PROT_READ | libc::PROT_EXEC) };
        }
        let began = Instant::now();
        assert!(
            freed_by(&jit, "f") > 0,
            "{name}: code is reclaimed all the same"
        );
        let told = told.lock().expect("no panic");
        assert_eq!(told.len(), usize::from(switches), "{name}: {told:?}");
        println!("{name}: {told:?}, {:?}", began.elapsed());
    }
}

/// Processes that share the memory are no threads: the library cannot ask them.
#[test]
fn a_program_that_uses_clone_keeps_its_code() {
    let _alone = ALONE.lock();
    let jit = builder("auto").build().expect("a session");
    jit.pause_tiers();
    jit.add_ir(
        "m",
        "declare i32 @clone(ptr, ptr, i32, ptr)
         define i64 @f(i64 %x) {
           %c = icmp eq i64 %x, 0
           br i1 %c, label %go, label %stay
         go:
           %r = call i32 @clone(ptr null, ptr null, i32 256, ptr null)
           ret i64 0
         stay:
           ret i64 %x
         }",
    )
    .expect("valid IR");
    // SAFETY: the function above.
    let f = unsafe { jit.function::<extern "C" fn(u64) -> u64>("f") }.expect("typed");
    // It asks for one that shares memory, and is refused.
    assert_eq!((f.call(5), f.call(0)), (5, 0));
    for tier in [Tier::Baseline, Tier::Optimized, Tier::Baseline] {
        jit.compile_at("f", tier).expect("a function");
        assert!(
            !jit.reclaim(ReclaimKind::Evacuate, IN_VAIN),
            "it ended for good"
        );
    }
    assert_eq!((jit.stats().memory.freed, f.call(6)), (0, 6));
}
