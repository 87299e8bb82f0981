//! A child goes on whatever its parent was replacing; what it needs costs its parent no memory
//! for good.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use uruk::{HeapConfig, Jit, Level, Replacement};
use uruk_testing::in_own_process;

type Answer = extern "C" fn() -> i32;

fn answer(jit: &Jit, name: &str) -> uruk::Func<Answer> {
    // SAFETY: functions of the tests' modules, which only compute.
    unsafe { jit.function(name) }.expect("typed")
}

fn replace(jit: &Jit, ir: &str) {
    jit.main()
        .replace(Replacement::ir("new", ir))
        .expect("replaceable");
}

/// Ends a child of `fork` with what `work` says, or by a signal if it takes too long.
fn child(work: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child only calls code of the session and ends.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork");
    if pid == 0 {
        // SAFETY: as above.
        unsafe {
            libc::alarm(20);
            libc::_exit(if work() { 0 } else { 1 });
        }
    }
    let mut status = 0;
    // SAFETY: our child.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    status == 0
}

#[test]
fn a_child_of_a_fork_during_a_replacement_goes_on() {
    if !in_own_process(
        module_path!(),
        "a_child_of_a_fork_during_a_replacement_goes_on",
    ) {
        return;
    }
    let jit = Jit::builder().jobs(1).build().expect("a session");
    jit.add_ir(
        "m",
        "define i32 @f() { ret i32 0 } define i32 @g() { ret i32 0 }
        define i32 @both() { %x = call i32 @f() %y = call i32 @g() %z = sub i32 %x, %y ret i32 %z }
        declare i32 @usleep(i32)
        define i32 @slow() { %x = call i32 @usleep(i32 3000) %y = call i32 @f() ret i32 %y }
        define i32 @late() { ret i32 5 }",
    )
    .expect("valid");
    let [f, g, both, slow, late] =
        ["f", "g", "both", "slow", "late"].map(|name| answer(&jit, name));
    let stop = AtomicBool::new(false);
    let sets = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let (jit, stop, sets) = (&jit, &stop, &sets);
        scope.spawn(move || {
            let mut value = 0;
            while !stop.load(Ordering::Relaxed) {
                value += 1;
                let text = format!(
                    "define i32 @f() {{ ret i32 {value} }} define i32 @g() {{ ret i32 {value} }}"
                );
                // Every other one holds its gate closed for milliseconds: `slow` calls `f`.
                let level = match value % 2 {
                    0 => Level::Immediate,
                    _ => Level::Quiescent {
                        wait: Duration::from_millis(20),
                    },
                };
                let new = Replacement::ir("new", &text).level(level);
                // One that waited in vain is no error of the test.
                sets.fetch_add(
                    u32::from(jit.main().replace(new).is_ok()),
                    Ordering::Relaxed,
                );
            }
        });
        for function in [&both, &slow] {
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    function.call();
                }
            });
        }
        let began = Instant::now();
        let mut forks = 0;
        // Until enough was seen, on a busy machine: not for a time.
        let enough = |forks| forks >= 5 && sets.load(Ordering::Relaxed) > 2;
        while forks < 40 && (began.elapsed() < Duration::from_secs(7) || !enough(forks)) {
            let good = child(|| {
                // The gate is open, the set whole, and replacing goes on.
                let whole = f.call() == g.call() && slow.call() == f.call();
                let late = late.call() == 5;
                replace(
                    jit,
                    "define i32 @f() { ret i32 -7 } define i32 @g() { ret i32 -7 }",
                );
                let new = (f.call(), g.call(), both.call()) == (-7, -7, 0);
                jit.rollback().expect("kept");
                whole && late && new && f.call() == g.call()
            });
            if !good {
                stop.store(true, Ordering::Relaxed);
            }
            assert!(good, "child {forks}");
            forks += 1;
            // Another moment of the replacement each time.
            std::thread::sleep(Duration::from_micros(forks * 97 % 1500));
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(sets.load(Ordering::Relaxed) > 2);
}

/// Code that is published between forks is packed as if there had been none.
#[test]
fn a_small_heap_lasts_for_many_forks() {
    if !in_own_process(module_path!(), "a_small_heap_lasts_for_many_forks") {
        return;
    }
    let mut heap = HeapConfig::default();
    heap.reservation = 8 << 20;
    let jit = Jit::builder()
        .jobs(1)
        .heap(heap)
        .build()
        .expect("a session");
    jit.add_ir("m", "define i32 @f() { ret i32 0 }")
        .expect("valid");
    let f = answer(&jit, "f");
    for value in 0..500 {
        replace(&jit, &format!("define i32 @f() {{ ret i32 {value} }}"));
        assert!(child(|| f.call() == value), "child {value}");
    }
}
