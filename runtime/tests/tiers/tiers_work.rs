//! The tuner where the embedder says what counts as work. A program of its own: what trials compare is
//! the processor time of all threads of the process, and other tests that begin and end would be most
//! of it.

use std::cell::{Cell, RefCell};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::support::{Log, logged, wait_until};
use uruk::{Event, Func, Jit, TuningUnit, TuningVerdict};
use uruk_testing::in_own_process;

/// More than any test spends.
const CREDIT: Duration = Duration::from_secs(3600);

/// Held by the test that runs.
static ALONE: Mutex<()> = Mutex::new(());

/// So many steps; where its code lies is what it returns.
const STEPS: &str = "
@sink = internal global i64 0
define i64 @steps(i64 %count) {
entry:
  %place = call i64 asm sideeffect \"leaq 0(%rip), $0\", \"=r,~{dirflag},~{fpsr},~{flags}\"()
  br label %loop
loop:
  %left = phi i64 [ %count, %entry ], [ %less, %loop ]
  %x = phi i64 [ 1, %entry ], [ %y, %loop ]
  %odd = mul i64 %x, 6364136223846793005
  %high = lshr i64 %odd, 33
  %y = xor i64 %odd, %high
  %less = sub i64 %left, 1
  %more = icmp ne i64 %less, 0
  br i1 %more, label %loop, label %done
done:
  store i64 %y, ptr @sink
  ret i64 %place
}";

/// Steps of a short call.
const SHORT: i64 = 5_000;

type Steps = Func<extern "C" fn(i64) -> i64>;

fn steps(jit: &Jit) -> Steps {
    jit.add_ir("steps", STEPS).unwrap();
    // SAFETY: the function above, which computes.
    unsafe { jit.function::<extern "C" fn(i64) -> i64>("steps").unwrap() }
}

/// Which verdict each trial about the function had, in order.
fn verdicts(log: &Log) -> Vec<TuningVerdict> {
    let log = log.lock().unwrap();
    let verdicts = log.iter().filter_map(|event| match event {
        Event::Tuned {
            function: "steps",
            verdict,
            ..
        } => Some(*verdict),
        _ => None,
    });
    verdicts.collect()
}

/// Both codes of each trial are the same. Calls are four times as long while the newer one runs, and
/// do eight times the work: by entries it would be four times as slow, by work it is twice as fast.
#[test]
fn trials_go_by_the_work_that_is_told() {
    if !in_own_process(module_path!(), "trials_go_by_the_work_that_is_told") {
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let builder = Jit::builder().tune(true).tune_same(true);
    let (jit, log) = logged(builder.tuning_budget(1.0, CREDIT));
    let steps = steps(&jit);
    let places = RefCell::new(Vec::new());
    let is_new = Cell::new(false);
    let call = || {
        let length = if is_new.get() { 4 } else { 1 };
        let place = steps.call(length * SHORT);
        let mut places = places.borrow_mut();
        if !places.contains(&place) {
            places.push(place);
        }
        is_new.set(places.last() == Some(&place));
        let rate = if is_new.get() { 2 } else { 1 };
        jit.work_done(rate * length as u64);
    };
    wait_until("a trial", || {
        (0..16).for_each(|_| call());
        !verdicts(&log).is_empty()
    });
    assert_eq!(verdicts(&log)[0], TuningVerdict::Faster, "{places:x?}");
    let views = jit.tuning();
    let view = views.iter().find(|view| view.function == "steps");
    let view = view.expect("it was tuned");
    let trial = &view.trials[0];
    assert_eq!(trial.unit, TuningUnit::Work, "{view}");
    assert!((1.2..3.5).contains(&trial.ratio.point), "{view}");
    assert!(view.to_string().contains(" pairs by work done"), "{view}");
}

/// The same without a word of work: it is told that entries were counted, and the newer code, whose
/// entries are four times as long, is slower, or may be.
#[test]
fn trials_go_by_entries_where_no_work_is_told() {
    if !in_own_process(module_path!(), "trials_go_by_entries_where_no_work_is_told") {
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let builder = Jit::builder().tune(true).tune_same(true);
    let (jit, log) = logged(builder.tuning_budget(1.0, CREDIT));
    let steps = steps(&jit);
    let (mut places, mut length) = (Vec::new(), 1);
    wait_until("a trial", || {
        for _ in 0..16 {
            let place = steps.call(length * SHORT);
            if !places.contains(&place) {
                places.push(place);
            }
            length = if places.last() == Some(&place) { 4 } else { 1 };
        }
        !verdicts(&log).is_empty()
    });
    assert_ne!(verdicts(&log)[0], TuningVerdict::Faster, "{places:x?}");
    let views = jit.tuning();
    let trial = views.iter().flat_map(|view| &view.trials).next();
    let trial = trial.expect("it was told");
    assert_eq!(trial.unit, TuningUnit::Entries);
    assert!((0.1..0.6).contains(&trial.ratio.point), "{trial:?}");
    assert!(trial.lost > Duration::ZERO, "it was paid for");
}
