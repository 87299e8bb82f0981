//! Cold code goes and comes back: a budget that holds while results stay right, and evictions under
//! callers, in handlers' way, beside forks, replacements and better versions.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use uruk::{Event, Func, Jit, MemoryPurpose, ReclaimKind, Replacement, Tier, Tiers};

/// Longest wait for something that is to happen on another thread.
const PATIENCE: Duration = Duration::from_secs(120);

type Number = extern "C" fn(i64) -> i64;

/// `f_N(x)` computes something that depends on all of N and x, by a loop that nothing folds.
fn module(functions: usize) -> String {
    let mut text = String::from("@calls = global i64 0\n");
    for n in 0..functions {
        text += &format!(
            "define i64 @f_{n}(i64 %x) {{
             entry:
               %old = atomicrmw add ptr @calls, i64 1 monotonic
               br label %loop
             loop:
               %i = phi i64 [ 0, %entry ], [ %j, %loop ]
               %s = phi i64 [ %x, %entry ], [ %t, %loop ]
               %m = mul i64 %s, {}
               %t = add i64 %m, {n}
               %j = add i64 %i, 1
               %more = icmp ult i64 %j, 3
               br i1 %more, label %loop, label %done
             done:
               ret i64 %t }}\n",
            2 * n + 3
        );
    }
    text
}

fn expected(n: usize, x: i64) -> i64 {
    let (n, factor) = (n as i64, 2 * n as i64 + 3);
    (0..3).fold(x, |s, _| s.wrapping_mul(factor).wrapping_add(n))
}

fn function(jit: &Jit, n: usize) -> Func<Number> {
    // SAFETY: the functions above, which only compute and count.
    unsafe { jit.function(&format!("f_{n}")) }.expect("a function")
}

/// Bytes of code of functions that calls reach.
fn live_code(jit: &Jit) -> u64 {
    let memory = jit.memory();
    let rows = memory.rows.iter().filter(|row| row.tier.is_some());
    let live = [MemoryPurpose::Code, MemoryPurpose::Unwind];
    let rows = rows.filter(|row| live.contains(&row.purpose));
    rows.map(|row| row.bytes).sum()
}

#[test]
fn a_budget_holds_over_thousands_of_functions() {
    const FUNCTIONS: usize = 2_000;
    let one = {
        let jit = Jit::builder()
            .tiers(Tiers::Fixed(Tier::Baseline))
            .build()
            .unwrap();
        jit.add_ir("m", &module(8)).unwrap();
        for n in 0..8 {
            function(&jit, n).call(1);
        }
        live_code(&jit) / 8
    };
    let budget = 200 * one;
    let jit = Jit::builder().code_budget(budget).build().unwrap();
    jit.add_ir("m", &module(FUNCTIONS)).unwrap();
    let all: Vec<_> = (0..FUNCTIONS).map(|n| function(&jit, n)).collect();
    let stop = AtomicBool::new(false);
    let ready = Barrier::new(3);
    std::thread::scope(|scope| {
        let mut hot = Vec::new();
        for worker in 0..2 {
            let (all, stop, ready) = (&all, &stop, &ready);
            hot.push(scope.spawn(move || {
                ready.wait();
                // Twenty functions all the time.
                let mut calls = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    let n = (calls as usize + worker) % 20;
                    assert_eq!(all[n].call(7), expected(n, 7));
                    calls += 1;
                }
                calls
            }));
        }
        ready.wait();
        let mut most = 0;
        for (n, f) in all.iter().enumerate() {
            let x = n as i64 - 5;
            assert_eq!(f.call(x), expected(n, x));
            if n % 100 == 99 {
                most = most.max(live_code(&jit));
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(hot.into_iter().all(|thread| thread.join().unwrap() > 0));
        // Code that was published during a look comes on top; and code of tier 2 is larger.
        assert!(most <= budget + 40 * one, "{most} bytes of {budget}");
    });
    let stats = jit.stats();
    let evictions = stats.evictions;
    assert!(evictions.evicted >= FUNCTIONS as u64 / 2, "{evictions:?}");
    assert!(evictions.evicted_bytes > budget, "{evictions:?}");
    assert_eq!(stats.compiled, FUNCTIONS as u64, "each is new once");
    // Once more all of them: what went comes back.
    for (n, f) in all.iter().enumerate() {
        assert_eq!(f.call(3), expected(n, 3));
    }
    let evictions = jit.stats().evictions;
    assert!(evictions.returned > 0, "{evictions:?}");
    assert!(jit.reclaim(ReclaimKind::Sweep, PATIENCE));
    assert!(live_code(&jit) <= budget + 40 * one);
}

#[test]
fn who_is_inside_finishes_there() {
    static THERE: AtomicBool = AtomicBool::new(false);
    static GO: AtomicBool = AtomicBool::new(false);
    extern "C" fn wait(depth: i64) -> i64 {
        THERE.store(true, Ordering::Release);
        while !GO.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        depth
    }
    let jit = Jit::new().unwrap();
    // SAFETY: of the type it is declared with.
    unsafe { jit.main().define_address("wait", wait as *const ()) }.unwrap();
    jit.add_ir(
        "m",
        "declare i64 @wait(i64)
         define i64 @f_0(i64 %x) {
           %inner = icmp eq i64 %x, 0
           br i1 %inner, label %there, label %deeper
         there:
           %w = call i64 @wait(i64 40)
           ret i64 %w
         deeper:
           %y = sub i64 %x, 1
           %r = call i64 @f_0(i64 %y)
           %s = add i64 %r, 1
           ret i64 %s }",
    )
    .unwrap();
    let f = function(&jit, 0);
    let thread = std::thread::spawn(move || f.call(2));
    // At the bottom: a call on the way down would have it compiled again.
    while !THERE.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
    while !jit.main().evict("f_0").unwrap() {
        std::thread::yield_now();
    }
    assert_eq!(jit.main().tier("f_0").unwrap(), None);
    // Others are compiled and freed where it was, if that could be.
    jit.add_ir("n", &module(50).replace("@f_", "@g_")).unwrap();
    for n in 0..50 {
        jit.main().compile(&format!("g_{n}")).unwrap();
    }
    assert!(jit.evict_cold(0) > 0);
    assert!(jit.reclaim(ReclaimKind::Evacuate, PATIENCE));
    GO.store(true, Ordering::Release);
    assert_eq!(thread.join().unwrap(), 42);
    assert_eq!(function(&jit, 0).call(1), 41);
}

#[test]
fn all_is_evicted_again_and_again_under_callers() {
    const FUNCTIONS: usize = 24;
    let jit = Jit::new().unwrap();
    jit.add_ir("m", &module(FUNCTIONS)).unwrap();
    let stop = AtomicBool::new(false);
    let calls = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for worker in 0..3 {
            let all: Vec<_> = (0..FUNCTIONS).map(|n| function(&jit, n)).collect();
            let (stop, calls) = (&stop, &calls);
            scope.spawn(move || {
                let mut at = worker;
                while !stop.load(Ordering::Relaxed) {
                    at = (at * 7 + 5) % FUNCTIONS;
                    assert_eq!(all[at].call(at as i64), expected(at, at as i64));
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for round in 0..60 {
            let before = calls.load(Ordering::Relaxed);
            while calls.load(Ordering::Relaxed) < before + 50 {
                std::thread::yield_now();
            }
            jit.evict_cold(0);
            match round % 6 {
                2 => {
                    let _ = jit.compile_at(&format!("f_{}", round % FUNCTIONS), Tier::Optimized);
                }
                5 => {
                    jit.reclaim(ReclaimKind::Evacuate, PATIENCE);
                }
                _ => {}
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    let evictions = jit.stats().evictions;
    assert!(
        evictions.evicted > 0 && evictions.returned > 0,
        "{evictions:?}"
    );
    // SAFETY: a variable of the module; no thread writes it any more.
    let counted = unsafe { *(jit.lookup("calls").unwrap() as *const i64) };
    assert_eq!(counted as u64, calls.load(Ordering::Relaxed));
}

#[test]
fn what_was_evicted_goes_up_again() {
    let jit = Jit::new().unwrap();
    jit.add_ir("m", &module(2)).unwrap();
    let f = function(&jit, 0);
    for _ in 0..2 {
        assert_eq!(f.call(5), expected(0, 5));
        jit.compile_at("f_0", Tier::Optimized).unwrap();
        assert_eq!(jit.main().tier("f_0").unwrap(), Some(Tier::Optimized));
        while !jit.main().evict("f_0").unwrap() {
            std::thread::yield_now();
        }
        assert_eq!(jit.main().tier("f_0").unwrap(), None);
        assert_eq!(f.call(6), expected(0, 6));
        assert_eq!(jit.main().tier("f_0").unwrap(), Some(Tier::Baseline));
    }
    // By itself, too.
    let deadline = std::time::Instant::now() + PATIENCE;
    while jit.main().tier("f_0").unwrap() == Some(Tier::Baseline) {
        assert_eq!(f.call(7), expected(0, 7));
        assert!(std::time::Instant::now() < deadline, "it stays at tier 1");
    }
    // A pinned function stays, and so does a function without code.
    jit.main().pin("f_1", Some(Tier::Baseline)).unwrap();
    assert!(!jit.main().evict("f_1").unwrap());
    function(&jit, 1).call(1);
    assert!(!jit.main().evict("f_1").unwrap());
    jit.evict_cold(0);
    assert_eq!(jit.main().tier("f_1").unwrap(), Some(Tier::Baseline));
    assert!(jit.main().evict("nothing").is_err());
}

#[test]
fn replaced_bodies_come_back_and_so_do_those_before() {
    let jit = Jit::new().unwrap();
    let text = |value: i64| format!("define i64 @f_0(i64 %x) {{ ret i64 {value} }}");
    jit.add_ir("m", &text(1)).unwrap();
    let f = function(&jit, 0);
    assert_eq!(f.call(0), 1);
    jit.main()
        .replace(Replacement::ir("new", &text(2)))
        .unwrap();
    assert_eq!(f.call(0), 2);
    assert!(jit.main().evict("f_0").unwrap());
    assert_eq!(f.call(0), 2);
    assert!(jit.main().evict("f_0").unwrap());
    jit.rollback().unwrap();
    assert_eq!(f.call(0), 1);
    assert!(jit.main().evict("f_0").unwrap());
    assert_eq!(f.call(0), 1);
}

#[test]
fn an_address_taken_before_is_called_after() {
    let events = Arc::new(AtomicU64::new(0));
    let told = Arc::clone(&events);
    let jit = Jit::builder().on_event(move |event: &Event| {
        if let Event::Evicted {
            function, bytes, ..
        } = event
        {
            assert!(*bytes > 0 && function.starts_with("f_"));
            told.fetch_add(1, Ordering::Relaxed);
        }
    });
    let jit = jit.build().unwrap();
    jit.add_ir("m", &module(3)).unwrap();
    jit.add_ir(
        "n",
        "declare i64 @f_1(i64)
         @pointer = global ptr @f_1
         define i64 @f_9(i64 %x) { %f = load ptr, ptr @pointer %r = call i64 %f(i64 %x) ret i64 %r }",
    )
    .unwrap();
    let f = function(&jit, 9);
    let address = jit.lookup("f_1").unwrap();
    for round in 0..3 {
        assert_eq!(f.call(round), expected(1, round));
        assert_eq!(jit.lookup("f_1").unwrap(), address);
        assert!(jit.main().evict("f_1").unwrap());
        assert!(!jit.main().evict("f_1").unwrap(), "it is gone");
    }
    assert_eq!(events.load(Ordering::Relaxed), 3);
    assert_eq!(jit.stats().evictions.returned, 2);
}

#[test]
fn a_child_of_a_fork_evicts_for_itself() {
    let jit = Jit::new().unwrap();
    jit.add_ir("m", &module(10)).unwrap();
    let all: Vec<_> = (0..10).map(|n| function(&jit, n)).collect();
    for (n, f) in all.iter().enumerate() {
        assert_eq!(f.call(2), expected(n, 2));
    }
    jit.main().evict("f_3").unwrap();
    // Some rest when the child is made.
    jit.evict_cold(u64::MAX);
    // SAFETY: the child calls what a child of the library may, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let right = |x| {
            all.iter()
                .enumerate()
                .all(|(n, f)| f.call(x) == expected(n, x))
        };
        let mut fine = right(4);
        fine &= jit.evict_cold(0) > 0;
        fine &= right(5);
        // SAFETY: ends the child without the test harness's handlers.
        unsafe { libc::_exit(i32::from(!fine)) };
    }
    assert!(child > 0);
    jit.evict_cold(0);
    for (n, f) in all.iter().enumerate() {
        assert_eq!(f.call(6), expected(n, 6));
    }
    let mut status = 0;
    // SAFETY: waits for the child above.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
}
