//! Sampling that is paused and resumed while functions run.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use uruk::{Event, Func, Jit, JitBuilder, SamplingChoice, SamplingSettings};

/// Sums 0 to n by a loop that no optimizer replaces.
const SUM: &str = "
define i64 @sum(i64 %n) noinline {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %s = phi i64 [ 0, %entry ], [ %t, %loop ]
  %v = call i64 asm sideeffect \"\", \"=r,0\"(i64 %i)
  %t = add i64 %s, %v
  %next = add i64 %i, 1
  %more = icmp ule i64 %next, %n
  br i1 %more, label %loop, label %done
done:
  ret i64 %t
}";

type Sum = Func<extern "C" fn(i64) -> i64>;

/// One test at a time: thread timers exist once.
static ALONE: Mutex<()> = Mutex::new(());

fn session(builder: JitBuilder) -> (Jit, Sum) {
    let jit = builder.build().unwrap();
    jit.add_ir("m", SUM).unwrap();
    // SAFETY: a plain function of the module above.
    let sum = unsafe { jit.function("sum").unwrap() };
    (jit, sum)
}

/// Longest wait for what other threads do.
const PATIENCE: Duration = Duration::from_secs(120);

fn busy(sum: &Sum, ms: u64) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(ms) {
        assert_eq!(sum.call(10_000), 50_005_000);
    }
}

/// Runs until there are more samples than `before`.
fn more_samples(jit: &Jit, sum: &Sum, before: u64) -> bool {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        busy(sum, 50);
        if jit.stats().samples.0 > before {
            return true;
        }
    }
    false
}

/// Runs in a pause until there are no more samples: what was taken before is drained in it,
/// by a thread that may get no processor for a while.
fn drained(jit: &Jit, sum: &Sum) -> (u64, u64) {
    for _ in 0..100 {
        let before = jit.stats().samples;
        busy(sum, 400);
        if jit.stats().samples == before && before.0 > 0 {
            return before;
        }
    }
    panic!("samples are taken in a pause");
}

#[test]
fn a_pause_stops_samples_and_ends() {
    let _alone = ALONE.lock();
    for choice in [SamplingChoice::Auto, SamplingChoice::Timers] {
        let (jit, sum) = session(Jit::builder().sampling(choice));
        assert!(more_samples(&jit, &sum, 0), "{choice:?}");
        for _ in 0..2 {
            jit.pause_sampling();
            jit.pause_sampling();
            busy(&sum, 400);
            let before = drained(&jit, &sum);
            jit.resume_sampling();
            jit.resume_sampling();
            assert!(more_samples(&jit, &sum, before.0), "{choice:?}");
        }
    }
}

#[test]
fn what_was_taken_before_a_pause_is_drained_in_it() {
    let _alone = ALONE.lock();
    let (jit, sum) = session(Jit::builder());
    assert!(more_samples(&jit, &sum, 0));
    // Drains come ten times a second: mostly something is left at the pause.
    let drained = (0..30).any(|round| {
        busy(&sum, 150 + 7 * round);
        let before = jit.stats().samples.0;
        jit.pause_sampling();
        let start = Instant::now();
        // Longer each time, for a machine on which the thread that drains gets no processor.
        let wait = Duration::from_millis(400 << (round / 6));
        while jit.stats().samples.0 == before && start.elapsed() < wait {
            std::thread::sleep(Duration::from_millis(10));
        }
        let drained = jit.stats().samples.0 > before && start.elapsed().as_millis() > 50;
        jit.resume_sampling();
        drained
    });
    assert!(drained);
}

#[test]
fn rates_are_the_embedders() {
    let _alone = ALONE.lock();
    let rate = Arc::new(AtomicU32::new(0));
    let listener = {
        let told = rate.clone();
        move |event: &Event| {
            if let Event::Samples { rate, .. } = event {
                told.store(*rate, Ordering::Relaxed);
            }
        }
    };
    let settings = SamplingSettings {
        burst_ns: 0,
        steady_hz: 41,
        ..SamplingSettings::default()
    };
    let builder = Jit::builder().sampling_settings(settings);
    let (jit, sum) = session(builder.on_event(listener));
    assert!(more_samples(&jit, &sum, 0));
    // They are told after they are counted.
    let start = Instant::now();
    while rate.load(Ordering::Relaxed) == 0 && start.elapsed() < PATIENCE {
        busy(&sum, 10);
    }
    let rate = rate.load(Ordering::Relaxed);
    assert!((1..=41).contains(&rate), "{rate}");
}

#[test]
fn a_child_is_paused_until_it_resumes() {
    let _alone = ALONE.lock();
    let (jit, sum) = session(Jit::builder());
    assert!(more_samples(&jit, &sum, 0));
    jit.pause_sampling();
    busy(&sum, 300);
    let before = drained(&jit, &sum);
    // SAFETY: the child ends without running anything of the test harness.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let taken = jit.stats().samples.0;
        busy(&sum, 300);
        let paused = jit.stats().samples.0 <= taken;
        jit.resume_sampling();
        // Totals begin at zero.
        let resumed = more_samples(&jit, &sum, 0);
        // SAFETY: as above.
        unsafe { libc::_exit(i32::from(!(paused && resumed))) };
    }
    let mut status = 0;
    // SAFETY: a valid out pointer.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    assert_eq!(jit.stats().samples, before, "the parent is paused still");
    jit.resume_sampling();
    assert!(more_samples(&jit, &sum, before.0));
}
