//! Faults while functions move between tiers; the session goes on. LLVM dies in a compile that was
//! asked for. Memory runs out in the middle of a tier-up. Better code is slower. Samples find no
//! room.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use uruk::{Error, Event, Hit, Jit, JitBuilder, ReclaimKind, SamplingChoice, SamplingSizes, Tier};
use uruk_testing::in_own_process;

/// Longest wait for something that happens in the background.
const PATIENCE: Duration = Duration::from_secs(120);

type Log = Arc<Mutex<Vec<Event>>>;

fn logged(builder: JitBuilder) -> (Jit, Log) {
    let log = Log::default();
    let sink = Arc::clone(&log);
    let listener = move |event: &Event| sink.lock().expect("not poisoned").push(event.clone());
    let jit = builder.on_event(listener).build();
    (jit.expect("a session"), log)
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(
            start.elapsed() < PATIENCE,
            "{what}: not within {PATIENCE:?}"
        );
    }
}

fn any(log: &Log, of: impl Fn(&Event) -> bool) -> bool {
    log.lock().expect("not poisoned").iter().any(of)
}

/// `f` runs at tier 1; what it inlines above that, LLVM dies of. `g` LLVM dies of at
/// every tier.
const FATAL: &str = "
declare void @llvm.aarch64.hint(i32)
@never = global i32 0
define i32 @g() {
  call void @llvm.aarch64.hint(i32 1)
  ret i32 1
}
define i32 @f(i32 %x) {
  %n = load volatile i32, ptr @never
  %c = icmp eq i32 %n, 0
  br i1 %c, label %good, label %bad
good:
  %y = add i32 %x, 1
  ret i32 %y
bad:
  %z = call i32 @g()
  ret i32 %z
}
define i32 @h(i32 %x) {
  %y = mul i32 %x, 3
  ret i32 %y
}";

#[test]
fn a_compile_that_llvm_dies_of_is_an_error_of_the_caller() {
    let (jit, log) = logged(Jit::builder());
    jit.add_ir("m", FATAL).expect("valid IR");
    // SAFETY: plain functions of the module above.
    let (f, h) = unsafe {
        (
            jit.function::<extern "C" fn(i32) -> i32>("f")
                .expect("typed"),
            jit.function::<extern "C" fn(i32) -> i32>("h")
                .expect("typed"),
        )
    };
    assert_eq!(f.call(1), 2);
    // More often than a function may have versions under way.
    for tier in [Tier::Optimized, Tier::Guided, Tier::Optimized] {
        let error = jit.compile_at("f", tier).expect_err("LLVM dies");
        assert!(matches!(error, Error::Codegen(_)), "{error:?}");
        assert!(error.to_string().contains("aarch64"), "{error}");
        assert_eq!(jit.tier("f").expect("known"), Some(Tier::Baseline));
        assert_eq!(f.call(1), 2);
    }
    for _ in 0..3 {
        let error = jit.main().compile("g").expect_err("LLVM dies");
        assert!(error.to_string().contains("aarch64"), "{error}");
    }
    jit.compile_at("f", Tier::Baseline).expect("as before");
    jit.compile_at("h", Tier::Guided).expect("sound");
    assert_eq!((f.call(4), h.call(4)), (5, 12));
    assert!(any(&log, |event| matches!(event, Event::WorkerLost { .. })));
}

#[test]
fn a_function_that_cannot_be_optimized_stays_and_is_not_tried_for_ever() {
    let (jit, log) = logged(Jit::builder());
    jit.add_ir("m", FATAL).expect("valid IR");
    // SAFETY: plain functions of the module above.
    let (f, h) = unsafe {
        (
            jit.function::<extern "C" fn(i32) -> i32>("f")
                .expect("typed"),
            jit.function::<extern "C" fn(i32) -> i32>("h")
                .expect("typed"),
        )
    };
    let lost = || {
        let log = log.lock().expect("not poisoned");
        let lost = |event: &&Event| matches!(event, Event::WorkerLost { .. });
        log.iter().filter(lost).count()
    };
    wait_until("the first worker is lost", || {
        (0..1000).for_each(|x| assert_eq!(f.call(x), x + 1));
        lost() > 0
    });
    // Another worker took its place, and does other work.
    wait_until("another function moves up", || {
        (0..1000).for_each(|x| assert_eq!((f.call(x), h.call(x)), (x + 1, 3 * x)));
        jit.tier("h").expect("known") >= Some(Tier::Optimized)
    });
    assert_eq!(jit.tier("f").expect("known"), Some(Tier::Baseline));
    assert!(lost() <= 2, "tried {} times", lost());
}

/// Many functions, each of its own size.
fn functions(count: u32) -> String {
    let each = (0..count).map(|i| {
        format!(
            "define i32 @f{i}(i32 %x) {{
               %a = mul i32 %x, {}
               %b = xor i32 %a, {i}
               ret i32 %b
             }}\n",
            2 * i + 1
        )
    });
    each.collect()
}

#[test]
fn memory_that_runs_out_in_a_tier_up_costs_only_the_better_version() {
    const COUNT: u32 = 64;
    let limit = 128 << 10;
    let (jit, log) = logged(Jit::builder().memory_limit(limit));
    jit.add_ir("m", &functions(COUNT)).expect("valid IR");
    // SAFETY: plain functions of the module above.
    let all: Vec<_> = (0..COUNT)
        .map(|i| unsafe { jit.function::<extern "C" fn(u32) -> u32>(&format!("f{i}")) })
        .map(|f| f.expect("typed"))
        .collect();
    let right = |x: u32, i: u32| x.wrapping_mul(2 * i + 1) ^ i;
    let check = |x| (0..COUNT).for_each(|i| assert_eq!(all[i as usize].call(x), right(x, i)));
    check(5);
    // Replaced code makes room for new code.
    for round in 0..1000 {
        let index = round % COUNT;
        let tier = Tier::ALL[round as usize % 3];
        jit.compile_at(&format!("f{index}"), tier)
            .expect("memory comes back");
    }
    assert!(jit.reclaim(ReclaimKind::Sweep, PATIENCE));
    // Live memory makes no room.
    let mut number = 0;
    let mut fill = || {
        for size in [4096, 256, 16] {
            let mut fits = true;
            while fits {
                let data = format!("@fill{number} = global [{size} x i8] zeroinitializer");
                fits = jit.add_ir("fill", &data).is_ok();
                number += 1;
            }
        }
    };
    // Code that a thread without a processor held back is freed later, and makes room once more.
    let full = (0..100).find_map(|_| {
        fill();
        jit.compile_at("f0", Tier::Optimized).err()
    });
    let full = full.expect("the limit is reached");
    assert!(matches!(full, Error::Heap(_)), "{full:?}");
    assert!(full.to_string().contains(&limit.to_string()), "{full}");
    // The policy meets the same error, reports it and waits. The functions go on.
    let told = |event: &Event| matches!(event, Event::Failed { message, .. } if message.contains("memory limit"));
    log.lock().expect("not poisoned").clear();
    for i in 0..COUNT {
        let pinned = if jit.tier(&format!("f{i}")).expect("known") == Some(Tier::Guided) {
            Tier::Optimized
        } else {
            Tier::Guided
        };
        jit.main()
            .pin(&format!("f{i}"), Some(pinned))
            .expect("known");
    }
    wait_until("a background compile without memory", || {
        check(7);
        any(&log, told)
    });
    check(9);
    let failed = jit.add_ir("n", "@big = global [200000 x i8] zeroinitializer");
    assert!(matches!(failed, Err(Error::Heap(_))), "{failed:?}");
    check(11);
}

/// An entry does as much as `amount` says.
const WORK: &str = "
@amount = global i64 4000
define i64 @work(i64 %x) {
entry:
  %n = load volatile i64, ptr @amount
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %y = phi i64 [ %x, %entry ], [ %mixed, %loop ]
  %product = mul i64 %y, 6364136223846793005
  %high = lshr i64 %product, 29
  %mixed = xor i64 %product, %high
  %next = add i64 %i, 1
  %done = icmp uge i64 %next, %n
  br i1 %done, label %exit, label %loop
exit:
  ret i64 %mixed
}";

fn worked(mut x: u64, amount: u64) -> u64 {
    for _ in 0..amount {
        x = x.wrapping_mul(6364136223846793005);
        x ^= x >> 29;
    }
    x
}

#[test]
fn what_turns_out_slower_is_taken_back_and_told() {
    let (jit, log) = logged(Jit::builder());
    jit.add_ir("m", WORK).expect("valid IR");
    // SAFETY: a plain function of the module above.
    let work = unsafe { jit.function::<extern "C" fn(u64) -> u64>("work") }.expect("typed");
    let amount = jit.lookup("amount").expect("a variable") as *mut u64;
    let check = |amount| (0..20).for_each(|x| assert_eq!(work.call(x), worked(x, amount)));
    // The version to compare with is measured first.
    jit.pause_tiers();
    wait_until("samples at tier 1", || {
        check(4000);
        let log = log.lock().expect("not poisoned");
        let samples = log.iter().map(|event| match event {
            Event::Samples { hits, .. } => hits
                .iter()
                .filter(|hit| hit.code.is_some())
                .map(|hit| u64::from(hit.count))
                .sum(),
            _ => 0,
        });
        samples.sum::<u64>() >= 60
    });
    jit.resume_tiers();
    wait_until("tier 2", || {
        check(4000);
        jit.tier("work").expect("known") >= Some(Tier::Optimized)
    });
    // From now on an entry takes many times longer, as if the new code were to blame.
    let more = 60_000;
    // SAFETY: a live variable of the module, which nothing else writes.
    unsafe { amount.write_volatile(more) };
    // By going back to the version before; or, where that was freed before there were enough samples,
    // by another compile.
    let slower = |event: &Event| match event {
        Event::Reverted { function, tier, .. } => (*function, *tier) == ("work", Tier::Baseline),
        Event::Published {
            function,
            tier,
            replaced,
            ..
        } => (*function, *tier) == ("work", Tier::Baseline) && replaced.is_some(),
        _ => false,
    };
    wait_until("the way back", || {
        check(more);
        any(&log, slower)
    });
    assert_eq!(jit.tier("work").expect("known"), Some(Tier::Baseline));
    check(more);
}

#[test]
fn samples_are_told_with_the_times_they_were_taken_at() {
    let (jit, log) = logged(Jit::builder());
    jit.add_ir("m", WORK).expect("valid IR");
    // SAFETY: a plain function of the module above.
    let work = unsafe { jit.function::<extern "C" fn(u64) -> u64>("work") }.expect("typed");
    let drains = || {
        let log = log.lock().expect("not poisoned");
        let drains = log.iter().filter_map(|event| match event {
            Event::Samples { at, hits, .. } if !hits.is_empty() => Some((*at, hits.clone())),
            _ => None,
        });
        drains.collect::<Vec<_>>()
    };
    let times = |hits: &[Hit]| hits.chunk_by(|one, other| one.at == other.at).count();
    // Were it the time of the drain, each would have one. On a busy machine the program runs
    // rarely, and few drains have two.
    wait_until("samples of many times in the same drains", || {
        (0..100).for_each(|x| assert_eq!(work.call(x), worked(x, 4000)));
        let more = |(_, hits): &(Duration, Vec<Hit>)| times(hits) - 1;
        drains().len() >= 12 && drains().iter().map(more).sum::<usize>() >= 20
    });
    let (mut before, mut early) = (Duration::ZERO, 0);
    let drains = drains();
    for (at, hits) in &drains {
        let since = before.saturating_sub(Duration::from_millis(1));
        early += usize::from(hits[0].at <= since);
        assert!(hits.is_sorted_by_key(|hit| hit.at) && hits[hits.len() - 1].at <= *at);
        before = *at;
    }
    // A thread may lose its processor between the time of a sample and its place in the queue.
    assert!(early * 4 <= drains.len(), "{early} before the drain before");
}

#[test]
fn samples_that_find_no_room_are_counted_and_told() {
    // The queue belongs to the process, and has the size that its first session asked for.
    let name = "samples_that_find_no_room_are_counted_and_told";
    if !in_own_process(module_path!(), name) {
        return;
    }
    // Two samples fit; the timers of two busy threads bring more between two drains.
    let sizes = SamplingSizes {
        queue_samples: 2,
        ..SamplingSizes::default()
    };
    let builder = Jit::builder()
        .sampling(SamplingChoice::Timers)
        .sampling_sizes(sizes);
    let (jit, log) = logged(builder);
    jit.add_ir("m", &functions(4)).expect("valid IR");
    // SAFETY: plain functions of the module above.
    let f3 = unsafe { jit.function::<extern "C" fn(u32) -> u32>("f3") }.expect("typed");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let (f3, stop) = (f3.clone(), &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    (0..1000_u32).for_each(|x| assert_eq!(f3.call(x), x.wrapping_mul(7) ^ 3));
                }
            });
        }
        let lost = |event: &Event| matches!(event, Event::Samples { lost, .. } if *lost > 0);
        let start = Instant::now();
        // On a busy machine samples are lost long before the better code is there.
        let better = || jit.tier("f3").expect("known") >= Some(Tier::Optimized);
        while !(any(&log, lost) && better()) && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(10));
        }
        stop.store(true, Ordering::Relaxed);
        let source = |event: &Event| {
            matches!(
                event,
                Event::Sampling {
                    source: Some(_),
                    ..
                }
            )
        };
        assert!(any(&log, source), "no timers here");
        assert!(any(&log, lost), "no sample was lost");
    });
    let (samples, lost) = jit.stats().samples;
    assert!(samples > 0 && lost > 0, "{samples} taken, {lost} lost");
    assert!(jit.tier("f3").expect("known") >= Some(Tier::Optimized));
}
