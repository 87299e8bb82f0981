//! Native code that is faster than plain code of tier 2, and slower than a variant of that. In a
//! process of its own: trials compare the processor time of the process, of which other tests would
//! be most.

use std::arch::global_asm;
use std::fmt::Write;
use std::time::Duration;

use uruk::{Event, Jit, NativeCode, PolicyConfig, Tier, TuningVerdict};
use uruk_testing::in_own_process;

use crate::support::{Log, logged, wait_until};

/// Operations in a pass of the callee's loop: too many to be inlined, but eagerly.
const OPERATIONS: u32 = 60;

/// Returns 7. A word that is zero masks the result of `@part`. A compiler that inlines `@part` sees
/// the zero. An estimate of the gain does not see it.
fn work() -> String {
    let mut passes = String::from("  %x0 = add i64 %before, %left\n");
    for number in 0..OPERATIONS / 2 {
        let (factor, one) = (2 * number + 3, 2 * number);
        let (two, three) = (one + 1, one + 2);
        writeln!(
            passes,
            "  %x{two} = mul i64 %x{one}, {factor}\n  %x{three} = xor i64 %x{two}, %left"
        )
        .unwrap();
    }
    format!(
        "
define i64 @part(ptr %mask, i64 %seed) {{
entry:
  br label %loop
loop:
  %left = phi i64 [ 100, %entry ], [ %next, %loop ]
  %before = phi i64 [ %seed, %entry ], [ %x{OPERATIONS}, %loop ]
{passes}
  %next = sub i64 %left, 1
  %more = icmp ne i64 %next, 0
  br i1 %more, label %loop, label %done
done:
  %bits = load i64, ptr %mask
  %result = and i64 %x{OPERATIONS}, %bits
  ret i64 %result
}}
define i64 @work() {{
entry:
  %mask = alloca i64
  store i64 0, ptr %mask
  br label %loop
loop:
  %left = phi i64 [ 10, %entry ], [ %next, %loop ]
  %sum = phi i64 [ 7, %entry ], [ %all, %loop ]
  %result = call i64 @part(ptr %mask, i64 %left)
  %all = add i64 %sum, %result
  %next = sub i64 %left, 1
  %more = icmp ne i64 %next, 0
  br i1 %more, label %loop, label %done
done:
  ret i64 %all
}}"
    )
}

// Between the two.
global_asm!(
    "contested_native:",
    "mov ecx, 3000",
    "2:",
    "dec ecx",
    "jnz 2b",
    "mov eax, 7",
    "ret",
    "contested_native_end:",
);

unsafe extern "C" {
    fn contested_native();
    fn contested_native_end();
}

/// Whether a comparison about `work` was won by its native code, or by other code.
fn won(log: &Log, natively: bool) -> bool {
    log.lock().unwrap().iter().any(|event| match event {
        Event::Tuned {
            function,
            tier,
            verdict: TuningVerdict::Faster,
            ..
        } => &**function == "work" && (*tier == Tier::Native) == natively,
        _ => false,
    })
}

#[test]
fn variants_are_tried_on_native_code_that_was_faster() {
    if !in_own_process(
        module_path!(),
        "variants_are_tried_on_native_code_that_was_faster",
    ) {
        return;
    }
    let builder = Jit::builder()
        .over_native(true)
        .tune(true)
        .tuning_budget(1.0, Duration::from_secs(3600))
        .policy(PolicyConfig {
            speedup_native: 1000.0,
            // Guided code lets in what is called all the time, too.
            max_tier: Tier::Optimized,
            ..PolicyConfig::default()
        });
    let (jit, log) = logged(builder);
    let entry = contested_native as *const () as u64;
    let native = NativeCode {
        entry,
        code: entry..contested_native_end as *const () as u64,
        beside: Vec::new(),
        holds: Vec::new(),
    };
    uruk::live::NativeFiles::of(&jit).attend(native.code.clone());
    jit.add_ir("work", &work()).unwrap();
    // SAFETY: both return the same number, and the code is this program's.
    unsafe { jit.main().adopt("work", &native).unwrap() };
    // SAFETY: the function above.
    let work = unsafe { jit.function::<extern "C" fn() -> i64>("work").unwrap() };
    let pass = || (0..64).for_each(|_| assert_eq!(work.call(), 7));
    wait_until("native code wins", || {
        pass();
        won(&log, true)
    });
    wait_until("a variant wins over native code", || {
        pass();
        won(&log, false)
    });
    wait_until("it runs", || {
        pass();
        jit.tier("work").unwrap() > Some(Tier::Native)
    });
    let text = jit.tuning_text();
    let native = text.lines().find(|line| line.starts_with("native "));
    assert!(
        native.is_some_and(|line| line.contains(" slower #")),
        "{text}"
    );
}
