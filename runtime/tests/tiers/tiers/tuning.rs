//! The tuner, as an embedder sees it: trials happen, what they find is told, and whatever happens
//! meanwhile, calls return what they must.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use uruk::{Event, Jit, PolicyConfig, Tier, TuningVerdict};

use super::{PATIENCE, logged};
use crate::checksum::checksummed;

/// A region of two: how often the inner one runs is what the outer one is about.
const REGION: &str = "
define internal i64 @escape(double %re, double %im) {
entry:
  br label %loop
loop:
  %n = phi i64 [ 0, %entry ], [ %more, %step ]
  %x = phi double [ 0.0, %entry ], [ %x.next, %step ]
  %y = phi double [ 0.0, %entry ], [ %y.next, %step ]
  %xx = fmul double %x, %x
  %yy = fmul double %y, %y
  %square = fadd double %xx, %yy
  %outside = fcmp ogt double %square, 4.0
  %enough = icmp eq i64 %n, 200
  %stop = or i1 %outside, %enough
  br i1 %stop, label %done, label %step
step:
  %difference = fsub double %xx, %yy
  %x.next = fadd double %difference, %re
  %xy = fmul double %x, %y
  %double = fmul double %xy, 2.0
  %y.next = fadd double %double, %im
  %more = add i64 %n, 1
  br label %loop
done:
  ret i64 %n
}
define i64 @region(i64 %size) {
entry:
  %scale = uitofp i64 %size to double
  %pixels = mul i64 %size, %size
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i.next, %loop ]
  %total = phi i64 [ 0, %entry ], [ %total.next, %loop ]
  %row = udiv i64 %i, %size
  %column = urem i64 %i, %size
  %fx = uitofp i64 %column to double
  %fy = uitofp i64 %row to double
  %ux = fdiv double %fx, %scale
  %uy = fdiv double %fy, %scale
  %sx = fmul double %ux, 3.0
  %re = fsub double %sx, 2.25
  %sy = fmul double %uy, 2.5
  %im = fsub double %sy, 1.25
  %steps = call i64 @escape(double %re, double %im)
  %total.next = add i64 %total, %steps
  %i.next = add i64 %i, 1
  %again = icmp ult i64 %i.next, %pixels
  br i1 %again, label %loop, label %done
done:
  ret i64 %total.next
}";

/// More than any test spends.
const CREDIT: Duration = Duration::from_secs(3600);

fn region(jit: &Jit) -> impl Fn() -> i64 + use<> {
    jit.add_ir("region", REGION).unwrap();
    // SAFETY: the function above, which computes.
    let region = unsafe { jit.function::<extern "C" fn(i64) -> i64>("region").unwrap() };
    move || region.call(24)
}

/// Calls until `done`, and checks each result.
fn call_until(what: &str, call: &dyn Fn() -> i64, done: impl Fn() -> bool) {
    let (begin, expected) = (Instant::now(), call());
    while !done() {
        for _ in 0..16 {
            assert_eq!(call(), expected);
        }
        assert!(
            begin.elapsed() < PATIENCE,
            "{what}: not within {PATIENCE:?}"
        );
    }
}

/// Candidates are tried, each trial is told, and what it found is what runs.
#[test]
fn trials_are_told_and_their_winners_stay() {
    let (jit, log) = logged(Jit::builder().tune(true).tuning_budget(1.0, CREDIT));
    let call = region(&jit);
    call_until("two trials", &call, || jit.stats().tuning.trials >= 2);
    let told: Vec<_> = log
        .lock()
        .unwrap()
        .iter()
        .filter_map(|event| match event {
            Event::Tuned {
                function,
                candidate,
                verdict,
                version,
                variant,
                ..
            } => Some((*function, *candidate, *verdict, *version, *variant)),
            _ => None,
        })
        .collect();
    assert!(told.len() >= 2, "{told:?}");
    for &(function, candidate, verdict, stays, _) in &told {
        assert!(["region", "escape"].contains(&function), "{function}");
        assert_eq!(
            candidate == stays,
            verdict == TuningVerdict::Faster,
            "{told:?}"
        );
    }
    let views = jit.tuning();
    let view = views
        .iter()
        .find(|view| !view.trials.is_empty())
        .expect("what was told");
    let won = |trial: &&uruk::TrialView| trial.verdict == TuningVerdict::Faster;
    let last = view.trials.iter().rev().find(won);
    let last = last.map_or_else(Default::default, |trial| trial.variant);
    assert_eq!(view.variant, last, "{view}");
    for trial in &view.trials {
        let ratio = trial.ratio;
        assert!(
            ratio.low <= ratio.point && ratio.point <= ratio.high,
            "{view}"
        );
    }
    let stats = jit.stats();
    assert!(stats.tuning.ran > Duration::ZERO && stats.tuning.won <= stats.tuning.trials);

    // The next session compiles it that way at once.
    let text = jit.tuning_text();
    let next = Jit::builder()
        .tune(true)
        .tuned_before(text.clone())
        .build()
        .unwrap();
    let known = next.stats().tuning.before.expect("there was a text");
    let functions = text
        .lines()
        .filter(|l| l.starts_with("open") || l.starts_with("settled"));
    assert_eq!(known, format!("{} functions known", functions.count()));
    let call = region(&next);
    call_until("who is known is looked at", &call, || {
        !next.tuning().is_empty()
    });
}

/// Sums up the digits of numbers, in a base that is always the same.
const DIGITS: &str = "
define i64 @digits(i64 %count, i64 %base) {
entry:
  br label %outer
outer:
  %i = phi i64 [ 1, %entry ], [ %i.next, %next ]
  %total = phi i64 [ 0, %entry ], [ %sum.next, %next ]
  br label %inner
inner:
  %left = phi i64 [ %i, %outer ], [ %rest, %inner ]
  %sum = phi i64 [ %total, %outer ], [ %sum.next, %inner ]
  %digit = urem i64 %left, %base
  %rest = udiv i64 %left, %base
  %sum.next = add i64 %sum, %digit
  %more = icmp ne i64 %rest, 0
  br i1 %more, label %inner, label %next
next:
  %i.next = add i64 %i, 1
  %again = icmp ule i64 %i.next, %count
  br i1 %again, label %outer, label %done
done:
  ret i64 %sum.next
}";

/// The text of a run that found a change to help everywhere: the change is tried first.
fn with_lesson(change: &str) -> String {
    let nothing = Jit::builder().tune(true).build().unwrap().tuning_text();
    nothing + &checksummed(&format!("lesson 1 0 0 1 1000 500.00000 {change}"))
}

fn digit_sums(count: u64, base: u64) -> i64 {
    let sum = |number| {
        let (mut left, mut sum) = (number, 0);
        while left > 0 {
            (left, sum) = (left / base, sum + left % base);
        }
        sum
    };
    (1..=count).map(sum).sum::<u64>() as i64
}

/// An argument that is nearly always the same gets code of its own, which is behind a comparison:
/// other values have the code they had. (The value is no small limit of a loop: those get such code at
/// tier 3 without a trial.)
#[test]
fn values_that_arguments_nearly_always_have_are_tried() {
    let builder = Jit::builder().tune(true).tuning_budget(1.0, CREDIT);
    let jit = builder.tuned_before(with_lesson("values")).build().unwrap();
    let before = jit.stats().tuning.before;
    assert_eq!(before.as_deref(), Some("0 functions known"));
    jit.add_ir("digits", DIGITS).unwrap();
    // SAFETY: the function above, which computes.
    let digits = unsafe {
        jit.function::<extern "C" fn(i64, i64) -> i64>("digits")
            .unwrap()
    };
    let others = [2, 3, 7, 16, i64::MAX].map(|base| (base, digit_sums(500, base as u64)));
    let tried = || {
        let views = jit.tuning();
        let mut trials = views.iter().flat_map(|view| &view.trials);
        trials.any(|trial| trial.variant.values)
    };
    let call = || digits.call(1500, 1000);
    assert_eq!(call(), digit_sums(1500, 1000));
    let turn = Cell::new(0usize);
    call_until("a trial of a constant", &call, || {
        turn.set(turn.get() + 1);
        if turn.get().is_multiple_of(8) {
            let (base, sum) = others[turn.get() / 8 % others.len()];
            assert_eq!(digits.call(500, base), sum, "base {base}");
        }
        tried()
    });
    assert_eq!(digits.call(500, 16), digit_sums(500, 16));
}

/// A function that the policy leaves at tier 2 is compared with code of tier 3: its counts are
/// known.
#[test]
fn code_of_tier_3_is_tried_where_tier_2_runs() {
    let policy = PolicyConfig {
        guided_samples: 60_000,
        ..PolicyConfig::default()
    };
    let builder = Jit::builder().tune(true).tuning_budget(1.0, CREDIT);
    let (jit, log) = logged(builder.policy(policy));
    let call = region(&jit);
    let trials = || {
        let log = log.lock().unwrap();
        let trials = log.iter().filter_map(|event| match event {
            Event::Tuned { id, tier, .. } => Some((*id, *tier)),
            _ => None,
        });
        trials.collect::<Vec<_>>()
    };
    let is_guided = |trial: &&(_, Tier)| trial.1 == Tier::Guided;
    call_until("a trial of tier 3", &call, || {
        trials().iter().any(|trial| is_guided(&trial))
    });
    let trials = trials();
    let guided = trials.iter().find(is_guided).expect("it was there");
    let first = trials.iter().find(|(id, _)| *id == guided.0);
    assert_eq!(first, Some(guided), "before variants are");
}

/// Ways to compile that give code which was tried are not tried: there are fewer codes than ways.
#[test]
fn equal_code_is_not_tried_twice() {
    let (jit, log) = logged(Jit::builder().tune(true).tuning_budget(1.0, CREDIT));
    let call = region(&jit);
    // No callee is vectorized here, and no switch is in sight.
    call_until("equal code", &call, || jit.stats().tuning.equal >= 2);
    let trials = jit.stats().tuning.trials as usize;
    let log = log.lock().unwrap();
    let is_trial = |event: &&Event| matches!(event, Event::Tuned { .. });
    assert!(log.iter().filter(is_trial).count() >= trials);
}

/// A run goes on where the one before ended: what was tried then is not tried again.
#[test]
fn the_next_run_goes_on_where_one_ended() {
    let builder = || Jit::builder().tune(true).tuning_budget(1.0, CREDIT);
    let lines = |text: &str, kind: &str| -> Vec<String> {
        let lines = text.lines().filter_map(|line| line.strip_prefix(kind));
        lines.map(str::to_owned).collect()
    };
    let text = {
        let (jit, _log) = logged(builder());
        let call = region(&jit);
        call_until("three that need no second trial", &call, || {
            let text = jit.tuning_text();
            lines(&text, "tried ").len() >= 3 || !lines(&text, "settled ").is_empty()
        });
        jit.tuning_text()
    };
    let before = lines(&text, "tried ");
    let (jit, log) = logged(builder().tuned_before(text.clone()));
    let call = region(&jit);
    let tried = || {
        let log = log.lock().unwrap();
        let tried = log.iter().filter_map(|event| match event {
            Event::Tuned { variant, .. } if *variant != uruk::Variant::default() => Some(*variant),
            _ => None,
        });
        tried.collect::<Vec<_>>()
    };
    let settled = || !lines(&jit.tuning_text(), "settled ").is_empty();
    call_until("a trial", &call, || !tried().is_empty() || settled());
    for variant in tried() {
        let again = before
            .iter()
            .any(|line| line.contains(&format!(" {variant} #")));
        assert!(!again, "{variant} was tried:\n{text}");
    }
    // Results that were known before are known after.
    let after = jit.tuning_text();
    let kept = |line: &String| lines(&after, "tried ").contains(line) || settled();
    assert!(before.iter().all(kept), "{text}\n{after}");
}

/// A function that is entered every few nanoseconds cannot be timed. Its entries are not counted,
/// either.
#[test]
fn what_is_entered_too_often_counts_nothing() {
    let policy = PolicyConfig {
        speedup_optimized: 1000.0,
        speedup_guided: 1000.0,
        ..PolicyConfig::default()
    };
    let jit = Jit::builder().tune(true).policy(policy).build().unwrap();
    let ir = "
        define i64 @tiny(i64 %x) noinline {
          %y = mul i64 %x, 3
          %z = xor i64 %y, 5
          ret i64 %z
        }
        define i64 @often(i64 %n) {
        entry: br label %loop
        loop:
          %i = phi i64 [ 0, %entry ], [ %next, %loop ]
          %x = phi i64 [ 1, %entry ], [ %y, %loop ]
          %y = call i64 @tiny(i64 %x)
          %next = add i64 %i, 1
          %more = icmp ult i64 %next, %n
          br i1 %more, label %loop, label %done
        done: ret i64 %y
        }";
    jit.add_ir("often", ir).unwrap();
    // SAFETY: the function above, which computes.
    let often = unsafe { jit.function::<extern "C" fn(i64) -> i64>("often").unwrap() };
    let call = || often.call(20_000);
    let tiny = || {
        let all = jit.hottest(10);
        all.into_iter().find(|hot| hot.function == "tiny")
    };
    let is_guided = || tiny().is_some_and(|hot| hot.tier == Some(Tier::Guided));
    call_until("guided code", &call, is_guided);
    let before = tiny().map(|hot| hot.entries);
    (0..64).for_each(|_| {
        call();
    });
    assert_eq!(tiny().map(|hot| hot.entries), before);
}

/// Trials, and everything else that happens to functions, at once.
#[test]
fn whatever_happens_meanwhile_calls_return_what_they_must() {
    let jit = Jit::builder()
        .tune(true)
        .tune_same(true)
        .tuning_budget(1.0, CREDIT)
        .build();
    let jit = jit.unwrap();
    let call = region(&jit);
    let (expected, over) = (call(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    assert_eq!(call(), expected);
                }
            });
        }
        let begin = Instant::now();
        let mut round = 0;
        while round < 60 || jit.stats().tuning.trials == 0 {
            std::thread::sleep(Duration::from_millis(20));
            round += 1;
            // Only so often that trials begin.
            match round % 60 {
                10 => drop(jit.main().evict("region")),
                20 => jit.compile_at("region", uruk::Tier::Guided).unwrap(),
                30 => drop(jit.compile_at("region", uruk::Tier::Baseline)),
                _ => {}
            }
            assert!(begin.elapsed() < PATIENCE, "no trial within {PATIENCE:?}");
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!(jit.stats().tuning.trials > 0);
}

/// How many of so many trials call one of two versions of the same code faster, in a real run.
fn picked(trials: usize) -> usize {
    // At the same place of a cache line: otherwise one may well be faster.
    let builder = Jit::builder().tune(true).tune_same(true);
    let (jit, log) = logged(builder.tuning_budget(1.0, CREDIT));
    let call = region(&jit);
    let (begin, expected) = (Instant::now(), call());
    let told = || {
        let log = log.lock().unwrap();
        let verdicts = log.iter().filter_map(|event| match event {
            // The first trial may be about a function that is inlined from then on.
            Event::Tuned {
                verdict,
                function: "region",
                ..
            } => Some(*verdict),
            _ => None,
        });
        verdicts.collect::<Vec<_>>()
    };
    while told().len() < trials {
        for _ in 0..256 {
            assert_eq!(call(), expected);
        }
        assert!(begin.elapsed() < PATIENCE * trials as u32, "{:?}", told());
    }
    let verdicts = told().into_iter().take(trials);
    let told_apart =
        |verdict: &TuningVerdict| matches!(verdict, TuningVerdict::Faster | TuningVerdict::Slower);
    verdicts.filter(told_apart).count()
}

/// Each of three trials is wrong with a probability of 2 %.
#[test]
fn of_equal_code_neither_is_picked() {
    assert!(picked(3) <= 1);
}

/// The figure; takes minutes.
#[test]
#[ignore = "minutes"]
fn of_equal_code_neither_is_picked_in_95_of_100_trials() {
    let picked = picked(100);
    println!("{picked} of 100 trials of equal code found a difference");
    assert!(picked <= 5, "{picked} of 100");
}
