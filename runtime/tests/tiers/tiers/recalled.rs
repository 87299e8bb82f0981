//! A run uses the results of the run before about native code. Native code that was faster stays
//! without being compared again. Compiled code that was faster comes before the policy would have
//! it.

use std::arch::global_asm;
use std::time::Duration;

use uruk::{Event, Jit, JitBuilder, NativeCode, PolicyConfig, Replacement, Tier};

use super::{Log, busy, logged, processor_time, publications, wait_until};

/// Returns 7, after some microseconds.
const WORK: &str = "
define i32 @work() {
entry:
  %place = alloca i32
  br label %loop
loop:
  %left = phi i32 [ 5000, %entry ], [ %next, %loop ]
  store volatile i32 %left, ptr %place
  %now = load volatile i32, ptr %place
  %next = sub i32 %now, 1
  %more = icmp ne i32 %next, 0
  br i1 %more, label %loop, label %done
done:
  ret i32 7
}";

// The same, in a tenth of the time, and in ten times the time.
global_asm!(
    "recalled_quick:",
    "mov ecx, 1000",
    "2:",
    "dec ecx",
    "jnz 2b",
    "mov eax, 7",
    "ret",
    "recalled_quick_end:",
    "nop",
    "recalled_slow:",
    "mov ecx, 300000",
    "2:",
    "dec ecx",
    "jnz 2b",
    "mov eax, 7",
    "ret",
    "recalled_slow_end:",
);

unsafe extern "C" {
    fn recalled_quick();
    fn recalled_quick_end();
    fn recalled_slow();
    fn recalled_slow_end();
}

/// Native code, with so many bytes behind it that are taken for a part of it.
fn native(begin: unsafe extern "C" fn(), end: unsafe extern "C" fn(), more: u64) -> NativeCode {
    let entry = begin as *const () as u64;
    NativeCode {
        entry,
        code: entry..end as *const () as u64 + more,
        beside: Vec::new(),
        holds: Vec::new(),
    }
}

fn quick(more: u64) -> NativeCode {
    native(recalled_quick, recalled_quick_end, more)
}

fn slow() -> NativeCode {
    native(recalled_slow, recalled_slow_end, 0)
}

/// A session that was told `before`, and expects better code to be so many times as fast.
fn builder(before: Option<&str>, speedup: f64) -> JitBuilder {
    let builder = Jit::builder()
        .over_native(true)
        .tune(true)
        .policy(PolicyConfig {
            speedup_native: speedup,
            ..PolicyConfig::default()
        });
    match before {
        Some(text) => builder.tuned_before(text.to_owned()),
        None => builder,
    }
}

/// The function over its native code.
fn adopted(builder: JitBuilder, native: &NativeCode) -> (Jit, Log, impl Fn() + use<>) {
    let (jit, log) = logged(builder);
    uruk::live::NativeFiles::of(&jit).attend(native.code.clone());
    jit.add_ir("work", WORK).unwrap();
    // SAFETY: both return the same number, and the code is this program's.
    unsafe { jit.main().adopt("work", native).unwrap() };
    // SAFETY: the function above.
    let work = unsafe { jit.function::<extern "C" fn() -> i32>("work").unwrap() };
    (jit, log, move || assert_eq!(work.call(), 7))
}

fn compared(log: &Log) -> bool {
    let log = log.lock().unwrap();
    let is_native =
        |event: &Event| matches!(event, Event::Tuned { tier, .. } if *tier == Tier::Native);
    log.iter().any(is_native)
}

fn compiled(log: &Log) -> bool {
    publications(log, "work")
        .iter()
        .any(|(tier, _)| *tier == Tier::Optimized)
}

/// The text of a run that compared the two.
fn learned(native: &NativeCode, word: &str) -> String {
    let (jit, log, call) = adopted(builder(None, 1000.0), native);
    wait_until("a comparison with native code", || {
        (0..64).for_each(|_| call());
        compared(&log)
    });
    // It is told when it was kept.
    let text = jit.tuning_text();
    let mut lines = text.lines();
    let told = lines.find(|line| line.starts_with("native "));
    assert!(
        told.is_some_and(|line| line.contains(&format!(" {word} #"))),
        "{text}"
    );
    text
}

#[test]
fn native_code_that_was_faster_stays_until_it_is_other_code() {
    let text = learned(&quick(0), "stays");
    // The same body, but the program was built anew.
    let begin = processor_time();
    let (_other, log, call) = adopted(builder(Some(&text), 1000.0), &quick(1));
    wait_until("other native code is not known", || {
        (0..64).for_each(|_| call());
        compiled(&log)
    });
    let took = processor_time() - begin;
    let (jit, log, call) = adopted(builder(Some(&text), 1000.0), &quick(0));
    let known = jit.stats().tuning.before;
    assert_eq!(
        known.as_deref(),
        Some("0 functions known, 1 beside native code")
    );
    let long = (took * 4).max(Duration::from_millis(500));
    busy(long.as_millis() as u64, &call);
    assert!(!compiled(&log) && !compared(&log), "it is compared again");
    assert_eq!(jit.tier("work").unwrap(), Some(Tier::Native));
    // And the next run knows as much.
    assert_eq!(jit.tuning_text(), text);
}

#[test]
fn code_that_was_faster_than_native_code_comes_before_the_policy_would_have_it() {
    let text = learned(&slow(), "slower");
    // Nothing is gained by any compile, says the policy.
    let (_without, log, call) = adopted(builder(None, 1.0), &slow());
    busy(500, &call);
    assert!(!compiled(&log), "the policy compiles what is worth nothing");
    let (jit, log, call) = adopted(builder(Some(&text), 1.0), &slow());
    wait_until("what was faster is compiled", || {
        (0..16).for_each(|_| call());
        compiled(&log)
    });
    // The comparison counts as made.
    busy(700, &call);
    assert!(!compared(&log));
    assert_ne!(jit.tier("work").unwrap(), Some(Tier::Native));
}

/// Neither a request nor the tuner puts native code of another body back.
#[test]
fn native_code_goes_with_its_body() {
    let (jit, log, call) = adopted(builder(None, 1000.0), &quick(0));
    call();
    let main = jit.main();
    let other = WORK.replace("ret i32 7", "ret i32 8");
    let replaced = main.replace(Replacement::ir("other", &other)).unwrap();
    main.compile_at("work", Tier::Native)
        .expect_err("native code of another body");
    // SAFETY: the function above.
    let work = unsafe { jit.function::<extern "C" fn() -> i32>("work").unwrap() };
    wait_until("the new body is compiled", || {
        assert_eq!(work.call(), 8);
        compiled(&log)
    });
    // A comparison with native code takes 50 ms.
    busy(700, || assert_eq!(work.call(), 8));
    assert!(!compared(&log), "with another body's code");
    replaced.rollback().unwrap();
    call();
    main.compile_at("work", Tier::Native).unwrap();
    call();
    assert_eq!(jit.tier("work").unwrap(), Some(Tier::Native));
}

#[test]
fn a_function_goes_at_once_to_the_tier_that_it_ended_at() {
    // Nothing is gained by any compile, says the policy, or much.
    let session = |before: Option<&str>, speedup: f64| {
        let builder = Jit::builder().tune(true).policy(PolicyConfig {
            speedup_optimized: speedup,
            speedup_guided: speedup,
            ..PolicyConfig::default()
        });
        let (jit, log) = logged(match before {
            Some(text) => builder.tuned_before(text.to_owned()),
            None => builder,
        });
        jit.add_ir("work", WORK).unwrap();
        // SAFETY: the function above.
        let work = unsafe { jit.function::<extern "C" fn() -> i32>("work").unwrap() };
        (jit, log, move || assert_eq!(work.call(), 7))
    };
    let ended_guided = |jit: &Jit| {
        let text = jit.tuning_text();
        let mut lines = text.lines();
        lines.any(|line| line.starts_with("tier ") && line.contains(" 3 #"))
    };
    let (jit, _log, call) = session(None, 1000.0);
    let mut text = String::new();
    wait_until("guided code", || {
        (0..64).for_each(|_| call());
        // It is in this text, if it was in the one before.
        let ended = ended_guided(&jit);
        text = jit.tuning_text();
        ended
    });
    let (without, log, call) = session(None, 1.0);
    busy(500, &call);
    assert!(!compiled(&log), "the policy compiles what is worth nothing");
    assert!(!ended_guided(&without));
    let (_jit, log, call) = session(Some(&text), 1.0);
    wait_until("guided code, without a price", || {
        (0..64).for_each(|_| call());
        let all = publications(&log, "work");
        all.iter().any(|(tier, _)| *tier == Tier::Guided)
    });
}
