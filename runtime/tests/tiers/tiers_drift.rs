//! The tuner where the load of a function changes. A program of its own: a reading is the processor time
//! of all threads of the process, and other tests that begin and end would be changes.

use std::time::Duration;

use crate::checksum::checksummed;
use crate::support::{Log, logged, wait_until};
use uruk::{Event, Func, Jit};
use uruk_testing::in_own_process;

/// A function that takes as long as its argument says.
const STEPS: &str = "
@sink = internal global i64 0
define i64 @steps(i64 %count) {
entry:
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
  ret i64 %y
}";

/// Steps of a short call.
const SHORT: i64 = 5_000;

/// More than the test spends.
const CREDIT: Duration = Duration::from_secs(3600);

fn steps(jit: &Jit) -> Func<extern "C" fn(i64) -> i64> {
    jit.add_ir("steps", STEPS).unwrap();
    // SAFETY: the function above, which computes.
    unsafe { jit.function::<extern "C" fn(i64) -> i64>("steps").unwrap() }
}

/// Lessons of a run that had nothing left to try on any function.
fn all_settled(text: &str) -> String {
    let lines = text.lines().map(|line| match line.strip_prefix("open ") {
        Some(rest) => {
            let (rest, _) = rest.rsplit_once(" #").expect("a checksum");
            checksummed(&format!("settled {rest}"))
        }
        None => format!("{line}\n"),
    });
    lines.collect()
}

/// The place of the first event about the function that is wanted.
fn first(log: &Log, wanted: fn(&Event) -> bool) -> Option<usize> {
    log.lock().unwrap().iter().position(wanted)
}

fn tuned(log: &Log) -> Option<usize> {
    first(log, |event| {
        matches!(
            event,
            Event::Tuned {
                function: "steps",
                ..
            }
        )
    })
}

fn drifted(log: &Log) -> Option<usize> {
    first(log, |event| {
        matches!(
            event,
            Event::Drifted {
                function: "steps",
                ..
            }
        )
    })
}

/// A function that is settled is left alone until its entries take another time. That is told, and it
/// is tried again. The load changes once the usual one is known, however long that takes.
#[test]
fn a_function_whose_load_changes_is_tried_again() {
    if !in_own_process(
        module_path!(),
        "a_function_whose_load_changes_is_tried_again",
    ) {
        return;
    }
    let builder = || Jit::builder().tune(true).tuning_budget(1.0, CREDIT);
    let known = {
        let (jit, log) = logged(builder());
        let steps = steps(&jit);
        wait_until("a trial", || {
            steps.call(SHORT);
            tuned(&log).is_some()
        });
        all_settled(&jit.tuning_text())
    };
    assert!(known.lines().any(|line| line.starts_with("settled ")));
    let (jit, log) = logged(builder().tuned_before(known));
    let steps = steps(&jit);
    let is_watched = || {
        let views = jit.tuning();
        views
            .iter()
            .any(|view| view.function == "steps" && view.watched)
    };
    wait_until("the usual load is known", || {
        (0..1000).for_each(|_| _ = steps.call(SHORT));
        is_watched()
    });
    assert_eq!(tuned(&log), None, "it is settled");
    wait_until("a drift", || {
        steps.call(4 * SHORT);
        drifted(&log).is_some()
    });
    wait_until("a trial after the drift", || {
        steps.call(4 * SHORT);
        tuned(&log).is_some()
    });
    assert!(drifted(&log) < tuned(&log), "it was settled before");
    assert!(jit.stats().tuning.drifted >= 1);
}
