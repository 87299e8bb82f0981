//! Code that does not answer, forks, and removal at bad moments; freed code is closed, so that a
//! thread that executes it dies of it.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use uruk::{
    Error, Event, Freed, Func, FunctionId, HeapConfig, Jit, ReclaimConfig, ReclaimKind, Removal,
    Tier,
};

/// Long enough for a cycle on a busy machine.
const SOON: Duration = Duration::from_secs(120);

fn jit() -> Jit {
    let mut heap = HeapConfig::default();
    heap.freed = Freed::Protect {
        quarantine: 4 << 20,
    };
    let mut reclaim = ReclaimConfig::default();
    for (name, value) in [
        ("backoff_min", "1ms"),
        ("backoff_max", "10ms"),
        ("interval", "0ns"),
    ] {
        reclaim.set(name, value).expect("a setting");
    }
    let builder = Jit::builder().heap(heap).reclaim(reclaim).jobs(1);
    builder.on_failure(on_failure).build().expect("a session")
}

extern "C" fn called_in_vain() -> u64 {
    u64::MAX
}

extern "C" fn on_failure(_: FunctionId) -> u64 {
    called_in_vain as *const () as u64
}

static SPIN: AtomicBool = AtomicBool::new(true);
static SPINNING: AtomicI32 = AtomicI32::new(0);

/// A thread that runs with all signals blocked answers no question: nothing is freed
/// meanwhile, the statistics name it, and everything else goes on.
#[test]
fn a_thread_that_does_not_answer_is_waited_for() {
    let jit = jit();
    jit.add_ir(
        "m",
        "define i64 @spin(ptr %go, ptr %tid, i32 %id) {
         entry:
           store atomic i32 %id, ptr %tid seq_cst, align 4
           br label %head
         head:
           %v = load atomic i8, ptr %go seq_cst, align 1
           %c = icmp eq i8 %v, 0
           br i1 %c, label %end, label %head
         end:
           ret i64 42
         }
         define i64 @other(i64 %x) { %y = add i64 %x, 1 ret i64 %y }",
    )
    .expect("valid IR");
    type Spin = extern "C" fn(*const AtomicBool, *const AtomicI32, i32) -> u64;
    // SAFETY: the functions above.
    let spin = unsafe { jit.function::<Spin>("spin") }.expect("typed");
    // SAFETY: as above.
    let other = unsafe { jit.function::<extern "C" fn(u64) -> u64>("other") }.expect("typed");
    assert_eq!(other.call(1), 2);
    let spinner = std::thread::spawn(move || {
        // SAFETY: a set of signals is integers.
        let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: fills the set and sets this thread's mask.
        unsafe {
            libc::sigfillset(&mut all);
            libc::syscall(
                libc::SYS_rt_sigprocmask,
                libc::SIG_SETMASK,
                &all,
                std::ptr::null_mut::<c_void>(),
                8,
            );
        }
        // SAFETY: no arguments.
        let id = unsafe { libc::gettid() };
        spin.call(&SPIN, &SPINNING, id)
    });
    while SPINNING.load(Ordering::SeqCst) == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let freed = jit.stats().memory.freed;
    for round in 0..3 {
        jit.compile_at("other", Tier::Optimized).expect("goes on");
        jit.compile_at("spin", Tier::Optimized).expect("goes on");
        assert!(
            jit.reclaim(ReclaimKind::Evacuate, SOON),
            "a cycle ends without it"
        );
        assert_eq!(other.call(round), round + 1);
    }
    let memory = jit.stats().memory;
    assert_eq!(memory.freed, freed, "nothing is proved dead");
    // Threads of other tests may be among them for a moment.
    let spinner_id = SPINNING.load(Ordering::SeqCst);
    let named = |silent: &[(i32, String)]| {
        let mut silent = silent.iter();
        silent.any(|(id, why)| *id == spinner_id && !why.is_empty())
    };
    assert!(named(&memory.silent), "{:?}", memory.silent);
    SPIN.store(false, Ordering::SeqCst);
    assert_eq!(spinner.join().expect("it ends"), 42);
    let began = Instant::now();
    while jit.stats().memory.freed == freed {
        assert!(began.elapsed() < SOON, "{:?}", jit.stats().memory);
        assert!(jit.reclaim(ReclaimKind::Sweep, SOON));
    }
    assert!(!named(&jit.stats().memory.silent));
}

/// Removed while its first call is compiling on another thread: the call gets the
/// function or the failure handler, and the session goes on.
#[test]
fn a_function_removed_while_it_is_compiled() {
    let jit = jit();
    let mut answers = [0u32; 2];
    for round in 0..30u64 {
        let tracker = jit.main().create_tracker().expect("a tracker");
        let adds: String = (0..400)
            .map(|i| format!("%v{} = add i64 %v{i}, %x\n", i + 1))
            .collect();
        let text =
            format!("define i64 @late(i64 %x) {{\n%v0 = add i64 %x, 0\n{adds}ret i64 %v400\n}}");
        tracker.add_ir("m", &text).expect("valid IR");
        // SAFETY: the function above.
        let late: Func<extern "C" fn(u64) -> u64> = unsafe { jit.function("late") }.expect("typed");
        let begun = Arc::new(AtomicBool::new(false));
        let caller = {
            let begun = Arc::clone(&begun);
            std::thread::spawn(move || {
                begun.store(true, Ordering::Release);
                late.call(1)
            })
        };
        while !begun.load(Ordering::Acquire) {
            std::hint::spin_loop();
        }
        std::thread::sleep(Duration::from_micros(100 * round));
        // SAFETY: a thread that calls it gets the handler's answer.
        unsafe { tracker.remove() }.expect("once");
        match caller.join().expect("an answer") {
            401 => answers[0] += 1,
            u64::MAX => answers[1] += 1,
            other => panic!("round {round}: {other}"),
        }
        // SAFETY: nothing is left to remove.
        assert!(unsafe { tracker.remove() }.is_err(), "removed twice");
    }
    println!("{answers:?} calls were answered, and in vain");
    assert!(jit.reclaim(ReclaimKind::Evacuate, SOON));
    jit.add_ir("n", "define i64 @late(i64 %x) { ret i64 7 }")
        .expect("the name is free");
    // SAFETY: the function above.
    let late = unsafe { jit.function::<extern "C" fn(u64) -> u64>("late") }.expect("typed");
    jit.main().compile("late").expect("compiles");
    assert_eq!(late.call(1), 7);
}

#[test]
fn a_dylib_that_is_searched_is_removed_only_by_force() {
    let jit = jit();
    let below = jit.create_dylib("below").expect("a new name");
    let above = jit.create_dylib("above").expect("a new name");
    above.add_to_link_order(&below).expect("both are there");
    below
        .add_ir(
            "b",
            "define i64 @base(i64 %x) { %y = add i64 %x, 1 ret i64 %y }",
        )
        .expect("valid IR");
    above
        .add_ir(
            "a",
            "declare i64 @base(i64)
             define i64 @top(i64 %x) { %y = call i64 @base(i64 %x) ret i64 %y }",
        )
        .expect("valid IR");
    // SAFETY: the function above.
    let top = unsafe { above.function::<extern "C" fn(u64) -> u64>("top") }.expect("typed");
    assert_eq!(top.call(1), 2);
    // SAFETY: refused.
    match unsafe { below.remove(Removal::Refused) } {
        Err(Error::DylibInUse { dylib, by }) => {
            assert_eq!((dylib.as_str(), by), ("below", vec![String::from("above")]));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(top.call(2), 3, "nothing changed");
    // SAFETY: what is called after this goes to the handler.
    unsafe { below.remove(Removal::Forced) }.expect("by force");
    assert!(jit.reclaim(ReclaimKind::Evacuate, SOON));
    assert_eq!(top.call(2), u64::MAX);
    assert!(above.lookup("base").is_err());
    // SAFETY: it is gone.
    assert!(unsafe { below.remove(Removal::Forced) }.is_err(), "twice");
    // Code that needs what is gone compiles or fails with an error; nothing breaks.
    for tier in Tier::ALL {
        match above.compile_at("top", tier) {
            Ok(()) | Err(Error::MissingSymbols { .. } | Error::Session(_) | Error::Link(_)) => {}
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn dylibs_have_functions_of_the_same_name() {
    let jit = jit();
    let functions: Vec<Func<extern "C" fn() -> u64>> = (0..3)
        .map(|i| {
            let dylib = jit.create_dylib(&format!("d{i}")).expect("a new name");
            let text = format!("define i64 @same() {{ ret i64 {i} }}");
            dylib.add_ir("m", &text).expect("valid IR");
            // SAFETY: the function above.
            unsafe { dylib.function("same") }.expect("typed")
        })
        .collect();
    for (i, function) in (0..).zip(&functions) {
        assert_eq!(function.call(), i);
    }
}

/// Sets a flag when it goes.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A child of `fork` runs old code for long while its parent frees all of it, and the
/// other way round.
#[test]
fn a_fork_while_code_moves() {
    let published = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&published);
    let jit = Jit::builder()
        .jobs(1)
        .on_event(move |event| {
            if matches!(event, Event::Published { .. }) {
                count.fetch_add(1, Ordering::Relaxed);
            }
        })
        .build()
        .expect("a session");
    jit.add_ir(
        "m",
        "declare i32 @usleep(i32)
         define i64 @slow(i64 %x) {
           %e = call i32 @usleep(i32 100000)
           %y = mul i64 %x, 3
           ret i64 %y
         }
         define i64 @quick(i64 %x) { %y = add i64 %x, 5 ret i64 %y }",
    )
    .expect("valid IR");
    // SAFETY: the functions above.
    let slow = unsafe { jit.function::<extern "C" fn(u64) -> u64>("slow") }.expect("typed");
    // SAFETY: as above.
    let quick = unsafe { jit.function::<extern "C" fn(u64) -> u64>("quick") }.expect("typed");
    assert_eq!((slow.call(7), quick.call(1)), (21, 6));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Also when a result below is wrong: the thread must not go on for ever.
        let _end = SetAtEnd(&stop);
        scope.spawn(|| {
            let mut tiers = Tier::ALL.into_iter().cycle();
            while !stop.load(Ordering::Relaxed) {
                for name in ["slow", "quick"] {
                    let tier = tiers.next().expect("for ever");
                    jit.compile_at(name, tier).expect("a function");
                }
                jit.reclaim(ReclaimKind::Evacuate, SOON);
            }
        });
        for _ in 0..5 {
            // SAFETY: the child uses the session, which is made for that, and `_exit`.
            match unsafe { libc::fork() } {
                0 => {
                    // One bit for each thing that was wrong.
                    let mut wrong = i32::from(slow.call(7) != 21 || quick.call(1) != 6);
                    for tier in Tier::ALL {
                        wrong |= i32::from(jit.compile_at("quick", tier).is_err()) << 1;
                        wrong |= i32::from(!jit.reclaim(ReclaimKind::Evacuate, SOON)) << 2;
                        wrong |= i32::from(quick.call(2) != 7) << 3;
                    }
                    wrong |= i32::from(slow.call(8) != 24) << 4;
                    // SAFETY: ends the child at once.
                    unsafe { libc::_exit(wrong) };
                }
                child => {
                    assert!(child > 0, "fork");
                    assert_eq!((slow.call(9), quick.call(3)), (27, 8));
                    let mut status = 0;
                    // SAFETY: a child of ours.
                    unsafe { libc::waitpid(child, &mut status, 0) };
                    assert_eq!(status, 0, "the child's results");
                }
            }
        }
    });
    assert_eq!((slow.call(7), quick.call(1)), (21, 6));
    assert!(published.load(Ordering::Relaxed) > 4);
}
