//! Replacing at a moment when no thread runs old code, and the threads that are said to run it.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use uruk::{Error, Func, Jit, Level, ReplaceError, Replacement, Rollback, Tier};
use uruk_testing::in_own_process;

pub(crate) type Answer = extern "C" fn() -> i32;

const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) fn jit(ir: &str) -> Jit {
    let jit = Jit::builder().jobs(2).build().expect("a session");
    jit.add_ir("m", ir).expect("valid IR");
    jit
}

pub(crate) fn answer(jit: &Jit, name: &str) -> Func<Answer> {
    // SAFETY: functions of the tests' modules, which compute and wait.
    unsafe { jit.function(name) }.expect("typed")
}

fn quiescent(ir: &str, wait: Duration) -> Replacement {
    Replacement::ir("new", ir).level(Level::Quiescent { wait })
}

/// `pair` takes one half, works a while, and takes the other.
fn halves(version: u32) -> String {
    format!(
        "define i32 @one() {{ ret i32 {version} }}
        define i32 @two() {{ ret i32 {version} }}
        define i32 @pair() {{
        entry:
          %a = call i32 @one()
          br label %loop
        loop:
          %i = phi i32 [ 0, %entry ], [ %j, %loop ]
          %j = add i32 %i, 1
          call void asm sideeffect \"\", \"\"()
          %more = icmp slt i32 %j, 2000
          br i1 %more, label %loop, label %done
        done:
          %b = call i32 @two()
          %d = sub i32 %a, %b
          ret i32 %d
        }}"
    )
}

#[test]
fn nobody_sees_one_half_old_and_the_other_new() {
    let jit = jit(&halves(0));
    let stop = AtomicBool::new(false);
    let calls = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let pair = answer(&jit, "pair");
                while !stop.load(Ordering::Relaxed) {
                    assert_eq!(pair.call(), 0);
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for version in 1..=40 {
            let replaced = jit.main().replace(quiescent(&halves(version), PATIENCE));
            if let Err(cause) = replaced {
                stop.store(true, Ordering::Relaxed);
                panic!("{version}: {cause}");
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(calls.load(Ordering::Relaxed) > 40);
    assert_eq!(answer(&jit, "one").call(), 40);
}

/// `spin` runs until the flag is set, calling `step` all the time, and counts its turns.
pub(crate) const SPIN: &str = "
@flag = global i32 0
@inside = global i32 0
@turns = global i32 0
define i32 @step() { ret i32 1 }
define i32 @spin() {
entry:
  store atomic i32 1, ptr @inside seq_cst, align 4
  br label %loop
loop:
  %t = load atomic i32, ptr @turns seq_cst, align 4
  %u = add i32 %t, 1
  store atomic i32 %u, ptr @turns seq_cst, align 4
  %s = call i32 @step()
  %f = load atomic i32, ptr @flag seq_cst, align 4
  %go = icmp eq i32 %f, 0
  br i1 %go, label %loop, label %done
done:
  ret i32 %s
}";

pub(crate) const NEW: &str = "
@flag = external global i32
define i32 @step() { ret i32 2 }
define i32 @spin() { ret i32 2 }";

/// Sets a flag when it goes.
struct Stop<'a>(&'a AtomicI32);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(1, Ordering::SeqCst);
    }
}

/// Runs `spin` on a thread while `work` runs, with the flag.
pub(crate) fn while_spinning(jit: &Jit, work: impl FnOnce(&dyn Fn())) -> i32 {
    let flag = jit.lookup("flag").expect("defined") as *const AtomicI32;
    let inside = jit.lookup("inside").expect("defined") as *const AtomicI32;
    // SAFETY: 4 aligned bytes of the session, used as atomics only.
    let (flag, inside) = unsafe { (&*flag, &*inside) };
    std::thread::scope(|scope| {
        let spin = answer(jit, "spin");
        let spinning = std::thread::Builder::new().name(String::from("spinner"));
        let spinning = spinning
            .spawn_scoped(scope, move || spin.call())
            .expect("a thread");
        while inside.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        {
            // Also when an assertion fails.
            let _guard = Stop(flag);
            work(&|| flag.store(1, Ordering::SeqCst));
        }
        spinning.join().expect("returns")
    })
}

#[test]
fn who_stays_in_old_code_is_named_and_the_old_set_goes_on() {
    let jit = jit(SPIN);
    let old = while_spinning(&jit, |_| {
        // A thread that has no processor meanwhile is not named: then with more time.
        let named = [400, 4_000, 40_000].into_iter().find_map(|ms| {
            let refused = jit
                .main()
                .replace(quiescent(NEW, Duration::from_millis(ms)));
            let Err(Error::Replace(cause)) = refused else {
                panic!("replaced under a running member: {refused:?}")
            };
            let ReplaceError::StillRunning { activations } = &*cause else {
                panic!("{cause}")
            };
            let spinner = activations.iter().find(|held| held.thread == "spinner");
            Some((spinner?.clone(), cause))
        });
        let (spinner, cause) = named.expect("it is named");
        assert!(
            spinner.functions.iter().any(|name| name == "spin"),
            "{cause}"
        );
        assert_eq!(answer(&jit, "step").call(), 1);
        assert!(jit.rollback().is_err());
    });
    assert_eq!(old, 1);
    jit.main()
        .replace(quiescent(NEW, PATIENCE))
        .expect("nobody is in it");
    assert_eq!(
        (answer(&jit, "step").call(), answer(&jit, "spin").call()),
        (2, 2)
    );
}

/// A thread that blocks all signals is seen at the gate only. Afterwards it is not listed, as no thread is
/// in old code then.
#[test]
fn no_thread_is_listed_after_a_quiescent_replacement() {
    let jit = jit(&halves(0));
    let stop = AtomicI32::new(0);
    let calls = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let _guard = Stop(&stop);
        scope.spawn(|| {
            let pair = answer(&jit, "pair");
            // SAFETY: a set that is filled before it is used; the mask of this thread.
            unsafe {
                let mut all = std::mem::zeroed();
                libc::sigfillset(&mut all);
                libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
            }
            while stop.load(Ordering::SeqCst) == 0 {
                assert_eq!(pair.call(), 0);
                calls.fetch_add(1, Ordering::Relaxed);
            }
        });
        wait_until("it calls", || calls.load(Ordering::Relaxed) > 0);
        for version in 1..=3 {
            let new = quiescent(&halves(version), PATIENCE);
            let replaced = jit.main().replace(new).expect("quiet at the gate");
            assert_eq!(replaced.activations().expect("known"), []);
        }
    });
}

/// A thread of which can be told whether it waits.
#[derive(Default)]
struct Watched(AtomicI32);

impl Watched {
    /// Does work on the calling thread, which is watched from then on.
    fn run<R>(&self, work: impl FnOnce() -> R) -> R {
        // SAFETY: takes nothing, cannot fail.
        self.0.store(unsafe { libc::gettid() }, Ordering::SeqCst);
        work()
    }

    /// Whether it sleeps until another thread wakes it.
    fn waits(&self) -> bool {
        let thread = self.0.load(Ordering::SeqCst);
        let call = std::fs::read_to_string(format!("/proc/self/task/{thread}/syscall"));
        call.is_ok_and(|call| call.starts_with(&format!("{} ", libc::SYS_futex)))
    }
}

pub(crate) fn wait_until(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::yield_now();
    }
}

/// Threads of the process that prepare or commit a replacement.
fn replacing() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("proc");
    let names =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names
        .filter(|name| name.trim_end() == "uruk-replace")
        .count()
}

/// Replaces what spins by `NEW`, which waits until `leave` is called, and does `work` once the
/// calls of members are held up.
fn while_first_waits(jit: &Jit, work: impl FnOnce(&dyn Fn())) -> i32 {
    let (step, caller) = (answer(jit, "step"), Watched::default());
    // Compiled: a call waits at the gate only.
    assert_eq!(step.call(), 1);
    while_spinning(jit, |leave| {
        std::thread::scope(|scope| {
            let first = scope.spawn(|| jit.main().replace(quiescent(NEW, PATIENCE)));
            scope.spawn(|| caller.run(|| while step.call() == 1 {}));
            wait_until("the gate is closed", || caller.waits());
            assert!(!first.is_finished());
            work(leave);
            let first = first.join().expect("no panic");
            first.expect("quiet in the end");
        });
    })
}

#[test]
fn who_must_leave_old_code_calls_old_code() {
    let jit = jit(SPIN);
    // `spin` waits before `step` and is let through, again and again.
    let old = while_first_waits(&jit, |leave| leave());
    assert_eq!(old, 1);
    assert_eq!(answer(&jit, "step").call(), 2);
}

#[test]
fn a_second_replacement_waits_for_the_first() {
    if !in_own_process(module_path!(), "a_second_replacement_waits_for_the_first") {
        return;
    }
    let jit = jit(SPIN);
    let waiting = Watched::default();
    std::thread::scope(|scope| {
        let (jit, waiting) = (&jit, &waiting);
        while_first_waits(jit, |leave| {
            let newer = Replacement::ir("newer", "define i32 @step() { ret i32 3 }");
            let second = scope.spawn(move || {
                let replaced = waiting.run(|| jit.main().replace(newer));
                replaced.expect("in its turn");
            });
            // It waits for its turn: nothing of it is prepared, on whatever thread.
            wait_until("the second waits", || {
                assert!(!second.is_finished());
                waiting.waits() && replacing() == 1
            });
            leave();
        });
    });
    let step = answer(&jit, "step");
    assert_eq!(step.call(), 3);
    for before in [2, 1] {
        jit.rollback().expect("one after the other");
        assert_eq!(step.call(), before);
    }
}

#[test]
fn who_runs_on_in_old_code_is_listed() {
    let jit = jit(SPIN);
    let old = while_spinning(&jit, |_| {
        let replaced = jit
            .main()
            .replace(Replacement::ir("new", NEW))
            .expect("at once");
        assert_eq!(answer(&jit, "spin").call(), 2);
        // A thread without a processor may not answer in time, and is listed all the same.
        wait_until("the spinner answers", || {
            let activations = replaced.activations().expect("scanned");
            let spinner = activations.iter().find(|held| held.thread == "spinner");
            let spinner = spinner.unwrap_or_else(|| panic!("{activations:?}"));
            spinner.functions.iter().any(|name| name == "spin")
        });
        let turns = jit.lookup("turns").expect("defined") as *const AtomicI32;
        // SAFETY: 4 aligned bytes of the session, used as atomics only.
        let turns = unsafe { &*turns };
        let seen = turns.load(Ordering::SeqCst);
        // The call that goes on may have begun before the replacement, its first one still being
        // compiled: the second turn from here calls what is published.
        wait_until("the spinner turns", || {
            turns.load(Ordering::SeqCst).wrapping_sub(seen) >= 2
        });
    });
    // It called the new `step` at the end.
    assert_eq!(old, 2);
}

/// A thread that rolls back holds addresses of code while it does, and waits for its turn
/// right after: what it leaves on its stack must not look like a call that goes on.
#[test]
fn who_rolls_back_does_not_hold_up_who_waits() {
    let jit = jit(&halves(0));
    answer(&jit, "pair").call();
    let stop = AtomicBool::new(false);
    let rolled_back = AtomicU64::new(0);
    let late: Vec<String> = std::thread::scope(|scope| {
        for how in [Rollback::new(), Rollback::from(Level::Immediate)] {
            let (jit, stop, rolled_back) = (&jit, &stop, &rolled_back);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    match jit.rollback_at(how.clone()) {
                        Ok(_) => rolled_back.fetch_add(1, Ordering::Relaxed),
                        Err(_) => 0,
                    };
                }
            });
        }
        let versions = 1..=30;
        let late = versions.filter_map(|version| {
            let new = quiescent(&halves(version), PATIENCE);
            jit.main().replace(new).err().map(|cause| cause.to_string())
        });
        let late = late.collect();
        stop.store(true, Ordering::Relaxed);
        late
    });
    assert!(late.is_empty(), "{} of 30: {late:#?}", late.len());
    assert!(rolled_back.load(Ordering::Relaxed) > 0);
}

/// A set that was exchanged when no thread ran its functions goes back in the same way.
#[test]
fn nobody_sees_one_half_rolled_back_and_the_other_not() {
    let jit = jit(&halves(0));
    let stop = AtomicBool::new(false);
    let calls = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let pair = answer(&jit, "pair");
                while !stop.load(Ordering::Relaxed) {
                    assert_eq!(pair.call(), 0);
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let versions = 1..=40;
        let failed = versions.map(|version| {
            let replaced = jit.main().replace(quiescent(&halves(version), PATIENCE))?;
            match version % 2 {
                0 => jit.rollback(),
                _ => replaced.rollback_at(Level::Quiescent { wait: PATIENCE }),
            }
        });
        let failed = failed.filter_map(|back| back.err()).next();
        stop.store(true, Ordering::Relaxed);
        assert!(failed.is_none(), "{failed:?}");
    });
    assert!(calls.load(Ordering::Relaxed) > 40);
    assert_eq!(answer(&jit, "one").call(), 0);
}

#[test]
fn a_rollback_that_is_refused_or_withdrawn_changes_nothing() {
    let jit = jit(SPIN);
    let step = answer(&jit, "step");
    assert_eq!(step.call(), 1);
    let short = Duration::from_millis(50);
    let new = SPIN.replace("ret i32 1", "ret i32 3");
    let replaced = jit.main().replace(quiescent(&new, short));
    let replaced = replaced.expect("no thread is in it");
    while_spinning(&jit, |_| {
        let long = Level::Quiescent { wait: PATIENCE };
        let withdrawn = Rollback::from(long).withdraw_when(|| true);
        // The level of the replacement is that of its rollback.
        let refused = [jit.rollback(), replaced.rollback_at(withdrawn)].map(|refused| {
            let Err(Error::Replace(cause)) = refused else {
                panic!("{refused:?}");
            };
            assert_eq!(step.call(), 3);
            cause
        });
        assert!(matches!(
            &*refused[0],
            ReplaceError::StillRunning { activations } if !activations.is_empty()
        ));
        assert!(matches!(*refused[1], ReplaceError::Withdrawn));
        let back = replaced.rollback_at(Level::Immediate);
        assert_eq!(back.expect("it does not wait").functions, ["step", "spin"]);
        assert_eq!(step.call(), 1);
    });
    assert!(jit.rollback().is_err());
}

/// A member is inlined in its caller, which calls the other one: a thread that leaves the old caller
/// and parks anew while the set waits is not let through.
#[test]
fn a_set_is_never_torn_where_a_member_was_inlined() {
    let text = |generation: u64| {
        format!(
            "declare void @nap(i64)
            define i64 @called() noinline {{ ret i64 {generation} }}
            define i64 @inlined() {{ ret i64 {generation} }}
            define i64 @both(i64 %n) {{
              %p = call i64 @called()
              call void @nap(i64 %n)
              %q = call i64 @inlined()
              %d = sub i64 %p, %q
              ret i64 %d
            }}"
        )
    };
    let jit = Jit::builder().jobs(2).build().expect("a session");
    let nap = |n: i64| match n {
        0 => {}
        1 => std::thread::yield_now(),
        n => std::thread::sleep(Duration::from_micros(n as u64)),
    };
    jit.define_fn("nap", nap).expect("defined");
    jit.add_ir("m", &text(0)).expect("valid IR");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for first in 0..2 {
            let (jit, stop) = (&jit, &stop);
            scope.spawn(move || {
                // SAFETY: the function above.
                let both = unsafe { jit.function::<extern "C" fn(i64) -> i64>("both") };
                let both = both.expect("typed");
                for call in (first..).take_while(|_| !stop.load(Ordering::Relaxed)) {
                    let n = if call % 4 == 0 {
                        call * 37 % 300
                    } else {
                        call % 2
                    };
                    assert_eq!(both.call(n), 0);
                }
            });
        }
        let begun = Instant::now();
        let tiers = [Some(Tier::Baseline), Some(Tier::Optimized), None];
        let mut replaced = 0;
        for generation in 1.. {
            if begun.elapsed() > Duration::from_secs(4) && replaced > 0
                || begun.elapsed() > PATIENCE
            {
                break;
            }
            jit.main()
                .pin("both", tiers[generation % 3])
                .expect("its tier");
            let new = quiescent(&text(generation as u64), Duration::from_millis(300));
            replaced += u32::from(jit.main().replace(new).is_ok());
        }
        stop.store(true, Ordering::Relaxed);
        assert!(replaced > 0);
    });
}
