//! Functions that change their tier while they are called: 16 threads call 1,000
//! functions and check every result, while another thread compiles, pins, unpins,
//! pauses and resumes at random, the policy promotes what is hot, LLVM dies in some of
//! the compiles, and memory runs out in the end.
//!
//! `URUK_STRESS_SEED` is the seed (1), `URUK_STRESS_SECONDS` how long (6).

use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use uruk::{Error, Event, Func, Jit, PolicyConfig, Tier};
use uruk_testing::Random;

/// Longest wait for what the test is about to have happened.
const PATIENCE: Duration = Duration::from_secs(120);

const FUNCTIONS: u32 = 1000;
const THREADS: u64 = 16;

/// Functions that LLVM dies of above tier 1; each such compile costs a thread.
const FATAL: u32 = 8;

/// Bytes for code and data: room for all functions at tier 1, and for most of the
/// changes of so many seconds.
fn memory(seconds: u64) -> usize {
    (320 + 15 * seconds as usize) << 10
}

type Function = Func<extern "C" fn(u64) -> u64>;

fn setting(name: &str, otherwise: u64) -> u64 {
    let value = env::var(name).map(|text| text.parse());
    value.map_or(otherwise, |number| number.expect("a number"))
}

/// Function `i` of `x`, as the text below has it.
fn right(i: u32, x: u64) -> u64 {
    let number = u64::from(i);
    match i % 4 {
        0 => x.wrapping_mul(2 * number + 3) ^ (x >> (i % 17)),
        1 => (0..x & 15).fold(number, |sum, step| {
            sum.wrapping_mul(31).wrapping_add(step ^ x)
        }),
        2 => right(i - 2, x).wrapping_add(right(i - 1, x ^ number)),
        _ => right((x & 7) as u32, x.wrapping_add(number)).wrapping_mul(5),
    }
}

/// Straight code, loops, calls that can be inlined, calls through a table of addresses.
/// Every function counts its calls in a variable of its own.
fn text() -> String {
    let mut text = String::from("declare void @llvm.aarch64.hint(i32)\n@never = global i32 0\n");
    let table: Vec<String> = (0..8).map(|i| format!("ptr @f{i}")).collect();
    text += &format!("@table = global [8 x ptr] [{}]\n", table.join(", "));
    for i in 0..FUNCTIONS {
        let body = match i % 4 {
            0 => format!(
                "  %a = mul i64 %x, {}\n  %b = lshr i64 %x, {}\n  %r = xor i64 %a, %b\n  ret i64 %r\n",
                2 * i + 3,
                i % 17
            ),
            1 => format!(
                "  %n = and i64 %x, 15\n  br label %head\n\
                 head:\n  %k = phi i64 [ 0, %entry ], [ %k1, %body ]\n  \
                 %s = phi i64 [ {i}, %entry ], [ %s1, %body ]\n  \
                 %c = icmp ult i64 %k, %n\n  br i1 %c, label %body, label %end\n\
                 body:\n  %m = mul i64 %s, 31\n  %y = xor i64 %k, %x\n  %s1 = add i64 %m, %y\n  \
                 %k1 = add i64 %k, 1\n  br label %head\n\
                 end:\n  ret i64 %s\n"
            ),
            2 => format!(
                "  %y = xor i64 %x, {i}\n  %a = call i64 @f{}(i64 %x)\n  \
                 %b = call i64 @f{}(i64 %y)\n  %r = add i64 %a, %b\n  ret i64 %r\n",
                i - 2,
                i - 1
            ),
            _ => format!(
                "  %k = and i64 %x, 7\n  %p = getelementptr ptr, ptr @table, i64 %k\n  \
                 %f = load ptr, ptr %p\n  %y = add i64 %x, {i}\n  \
                 %a = call i64 %f(i64 %y)\n  %r = mul i64 %a, 5\n  ret i64 %r\n"
            ),
        };
        text += &format!("define i64 @f{i}(i64 %x) {{\nentry:\n{body}}}\n");
    }
    for i in 0..FATAL {
        text += &format!(
            "define i64 @unable{i}(i64 %x) {{\n  call void @llvm.aarch64.hint(i32 {i})\n  ret i64 %x\n}}\n\
             define i64 @fatal{i}(i64 %x) {{\n  %n = load volatile i32, ptr @never\n  \
             %c = icmp eq i32 %n, 0\n  br i1 %c, label %good, label %bad\n\
             good:\n  %y = add i64 %x, {i}\n  ret i64 %y\n\
             bad:\n  %z = call i64 @unable{i}(i64 %x)\n  ret i64 %z\n}}\n"
        );
    }
    text
}

/// The counts of the events.
#[derive(Default)]
struct Told {
    calls: AtomicU64,
    up: AtomicU64,
    down: AtomicU64,
    background: AtomicU64,
    lost: AtomicU64,
    failed: AtomicU64,
}

impl Told {
    fn note(&self, event: &Event) {
        let count = match event {
            Event::Published {
                tier,
                replaced: Some((_, before)),
                ..
            } if tier > before => &self.up,
            Event::Published {
                tier,
                replaced: Some((_, before)),
                ..
            } if tier < before => &self.down,
            Event::Compiled {
                queued: Some(_), ..
            } => &self.background,
            Event::WorkerLost { .. } => &self.lost,
            Event::Failed { .. } => &self.failed,
            _ => return,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Calls functions at random until it is told to stop; counts the calls of all threads.
fn call(
    functions: &[Function],
    fatal: &[Function],
    mut random: Random,
    told: &Told,
    stop: &AtomicBool,
) {
    let mut calls = 0;
    while !stop.load(Ordering::Relaxed) {
        // Some at random, and some in a row, which makes them hot.
        let first = random.below(u64::from(FUNCTIONS)) as u32;
        for step in 0..64 {
            let i = if step % 2 == 0 {
                random.below(u64::from(FUNCTIONS)) as u32
            } else {
                first
            };
            let x = random.next();
            assert_eq!(functions[i as usize].call(x), right(i, x), "f{i}({x})");
        }
        let i = random.below(u64::from(FATAL));
        assert_eq!(fatal[i as usize].call(calls), calls + i, "fatal{i}");
        calls += 65;
        told.calls.fetch_add(65, Ordering::Relaxed);
        // Leaves the processors to compiles: changes are what this is about.
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The results of the thread that changes things, counted.
#[derive(Default, Debug)]
struct Changes {
    compiled: u64,
    fatal: u64,
    no_memory: u64,
    late: u64,
}

/// Changes tiers at random until it is told to stop.
fn change(jit: &Jit, mut random: Random, stop: &AtomicBool) -> Changes {
    let mut changes = Changes::default();
    let mut to_die = 0;
    while !stop.load(Ordering::Relaxed) {
        let name = format!("f{}", random.below(u64::from(FUNCTIONS)));
        let tier = Tier::ALL[random.below(3) as usize];
        match random.below(100) {
            0..55 => match jit.compile_at(&name, tier) {
                Ok(()) => changes.compiled += 1,
                Err(Error::Heap(_)) => {
                    changes.no_memory += 1;
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(Error::Version { .. }) => changes.late += 1,
                Err(error) => panic!("{name} at {tier}: {error}"),
            },
            55..70 => jit.main().pin(&name, Some(tier)).expect("a function"),
            70..85 => jit.main().pin(&name, None).expect("a function"),
            85..88 => jit.pause_tiers(),
            88..91 => jit.resume_tiers(),
            91..96 if to_die < FATAL => {
                let name = format!("fatal{to_die}");
                to_die += 1;
                let error = jit.compile_at(&name, Tier::Guided).expect_err("LLVM dies");
                // Memory may run out before.
                let died = error.to_string().contains("aarch64");
                assert!(died || matches!(error, Error::Heap(_)), "{name}: {error}");
                changes.fatal += u64::from(died);
            }
            _ => {
                let tier = jit.tier(&name).expect("a function");
                assert!(tier.is_some(), "{name} had code");
            }
        }
    }
    changes
}

#[test]
fn functions_change_their_tier_while_they_are_called() {
    let seed = setting("URUK_STRESS_SEED", 1);
    let seconds = setting("URUK_STRESS_SECONDS", 6);
    let time = Duration::from_secs(seconds);
    let told = Arc::new(Told::default());
    let listener = Arc::clone(&told);
    // Every called function is worth a compile, as far as the policy's settings allow.
    let mut policy = PolicyConfig::default();
    for (name, value) in [("outlook", "1s"), ("lindy", "20")] {
        policy.set(name, value).expect("in range");
    }
    let jit = Jit::builder()
        .jobs(2)
        .memory_limit(memory(seconds))
        .policy(policy)
        .on_event(move |event| listener.note(event))
        .build()
        .expect("a session");
    jit.add_ir("m", &text()).expect("valid IR");
    // SAFETY: plain functions of the module.
    let named = |name: String| unsafe { jit.function(&name) }.expect("typed");
    let functions: Vec<Function> = (0..FUNCTIONS).map(|i| named(format!("f{i}"))).collect();
    let fatal: Vec<Function> = (0..FATAL).map(|i| named(format!("fatal{i}"))).collect();
    // First code for all, while there is memory.
    for (i, function) in (0..).zip(&functions) {
        assert_eq!(function.call(u64::from(i)), right(i, u64::from(i)));
    }
    for (i, function) in (0..).zip(&fatal) {
        assert_eq!(function.call(1), 1 + i);
    }
    let stop = AtomicBool::new(false);
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let changes = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let random = Random::new(seed << 8 | thread);
                let (functions, fatal, told, stop) = (&functions, &fatal, &*told, &stop);
                scope.spawn(move || call(functions, fatal, random, told, stop))
            })
            .collect();
        let changer = scope.spawn(|| change(&jit, Random::new(!seed), &stop));
        let start = Instant::now();
        // On a busy machine it takes longer until all of it was seen.
        let seen = || {
            let [up, down, background] = [&told.up, &told.down, &told.background].map(count);
            up > 50 && down > 20 && background > 5 && count(&told.lost) > 0
        };
        let enough = || seen() && count(&told.calls) > 10_000;
        let goes_on = || start.elapsed() < time || (!enough() && start.elapsed() < PATIENCE);
        while goes_on() && !callers.iter().any(|caller| caller.is_finished()) {
            std::thread::sleep(Duration::from_millis(20));
        }
        stop.store(true, Ordering::Relaxed);
        let join = |caller: ScopedJoinHandle<_>| caller.join().expect("right results");
        callers.into_iter().for_each(join);
        changer.join().expect("right answers")
    });
    let calls = count(&told.calls);
    println!(
        "seed {seed}: {calls} calls, {changes:?}, {} up, {} down, {} in the background, {} workers lost, {} failed",
        count(&told.up),
        count(&told.down),
        count(&told.background),
        count(&told.lost),
        count(&told.failed)
    );
    for (i, function) in (0..).zip(&functions) {
        assert_eq!(function.call(77), right(i, 77), "f{i} in the end");
    }
    assert!(calls > 10_000, "{calls} calls");
    assert!(
        count(&told.up) > 50 && count(&told.down) > 20,
        "{changes:?}"
    );
    assert!(count(&told.background) > 5, "the policy did nothing");
    assert!(changes.fatal > 0 && count(&told.lost) >= changes.fatal);
    assert_eq!(jit.stats().failed, 0, "first calls");
}
