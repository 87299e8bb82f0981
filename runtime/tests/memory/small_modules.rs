//! Programs that add a small module for each function: what one costs that is alive, and that
//! thousands of them are called, replaced, moved up and removed like any other.

use std::collections::HashMap;

use uruk::{Jit, Replacement, Tier, Tracker};
use uruk_testing::{Child, Random};

/// Set in the child that measures: how many modules are alive.
const ALIVE: &str = "URUK_ALIVE";

/// Resident memory of a module that is alive and was called: it is some 13 KB, the session's own
/// included that grows meanwhile. A context or a target machine of its own costs ten times that.
const MOST: u64 = 48 << 10;

/// `f_N` adds its argument to a variable of the module's own, and gives the sum.
fn text(number: usize, start: i64) -> String {
    format!(
        "@g_{number} = global i64 {start}
         define i64 @f_{number}(i64 %x) {{
           %old = load i64, ptr @g_{number}
           %new = add i64 %old, %x
           store i64 %new, ptr @g_{number}
           ret i64 %new }}"
    )
}

fn add(jit: &Jit, number: usize) -> Tracker {
    let tracker = jit.main().create_tracker().expect("a tracker");
    tracker
        .add_ir("module", &text(number, number as i64))
        .expect("valid");
    tracker
}

fn call(jit: &Jit, number: usize, argument: i64) -> i64 {
    let name = format!("f_{number}");
    // SAFETY: the functions of the modules above, which only compute.
    let function = unsafe { jit.function::<extern "C" fn(i64) -> i64>(&name) };
    function.expect("typed").call(argument)
}

/// Resident memory that no file backs.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("there is /proc");
    let of = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        let number = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        number.unwrap_or(0) * 1024
    };
    of("RssAnon:") + of("RssShmem:")
}

#[test]
fn a_live_module_takes_little_memory() {
    let Some(alive) = std::env::var(ALIVE)
        .ok()
        .and_then(|text| text.parse::<usize>().ok())
    else {
        let child = Child::of(module_path!(), "a_live_module_takes_little_memory");
        child.env(ALIVE, "600").passes();
        return;
    };
    let jit = Jit::builder().jobs(1).build().expect("a session");
    // Memory that only the first modules need is there from now on.
    let mut trackers: Vec<Tracker> = (0..alive / 4).map(|number| add(&jit, number)).collect();
    (0..alive / 4).for_each(|number| assert_eq!(call(&jit, number, 1), number as i64 + 1));
    let before = resident();
    trackers.extend((alive / 4..alive).map(|number| add(&jit, number)));
    let added = resident();
    (alive / 4..alive).for_each(|number| assert_eq!(call(&jit, number, 1), number as i64 + 1));
    let called = resident();
    let count = (alive - alive / 4) as u64;
    let each = [added, called].map(|now| now.saturating_sub(before) / count);
    println!(
        "bytes for each module: {} added, {} called",
        each[0], each[1]
    );
    assert!(each.iter().all(|&bytes| bytes < MOST), "{each:?}");
    // All of them are what they were.
    (0..alive).for_each(|number| assert_eq!(call(&jit, number, 1), number as i64 + 2));
    drop(trackers);
}

/// A live module, and the numbers in its expected answers.
struct Live {
    tracker: Tracker,
    sum: i64,
    /// Times what it adds: another one after a replacement.
    factor: i64,
}

#[test]
fn modules_of_mixed_lifetimes_are_called_replaced_and_removed_at_random() {
    let mut random = Random::new(0x5eed_1e55);
    let jit = Jit::builder().jobs(2).build().expect("a session");
    let mut live: HashMap<usize, Live> = HashMap::new();
    let mut next = 0;
    for step in 0..1500 {
        let some = |random: &mut Random, live: &HashMap<usize, Live>| {
            let mut numbers: Vec<usize> = live.keys().copied().collect();
            numbers.sort_unstable();
            (!numbers.is_empty()).then(|| numbers[random.below(numbers.len())])
        };
        match random.below(20) {
            0..=7 => {
                let tracker = add(&jit, next);
                let sum = next as i64;
                let module = Live {
                    tracker,
                    sum,
                    factor: 1,
                };
                live.insert(next, module);
                next += 1;
            }
            8..=13 => {
                let Some(number) = some(&mut random, &live) else {
                    continue;
                };
                let argument = random.below(1000) as i64;
                let module = live.get_mut(&number).expect("live");
                module.sum += argument * module.factor;
                assert_eq!(call(&jit, number, argument), module.sum, "step {step}");
            }
            14 | 15 => {
                let Some(number) = some(&mut random, &live) else {
                    continue;
                };
                let factor = random.below(50) as i64;
                let new = format!(
                    "@g_{number} = external global i64
                     define i64 @f_{number}(i64 %x) {{
                       %old = load i64, ptr @g_{number}
                       %more = mul i64 %x, {factor}
                       %new = add i64 %old, %more
                       store i64 %new, ptr @g_{number}
                       ret i64 %new }}"
                );
                let replaced = jit.main().replace(Replacement::ir("new", &new));
                replaced.expect("replaceable");
                live.get_mut(&number).expect("live").factor = factor;
            }
            16 | 17 => {
                let Some(number) = some(&mut random, &live) else {
                    continue;
                };
                let tier = [Tier::Baseline, Tier::Optimized, Tier::Guided][random.below(3)];
                jit.compile_at(&format!("f_{number}"), tier)
                    .expect("compiles");
            }
            _ => {
                let Some(number) = some(&mut random, &live) else {
                    continue;
                };
                let module = live.remove(&number).expect("live");
                // SAFETY: no thread uses it any more.
                unsafe { module.tracker.remove() }.expect("once");
            }
        }
    }
    assert!(next > 400 && live.len() > 100);
    for (number, module) in &live {
        assert_eq!(call(&jit, *number, 0), module.sum);
    }
}

#[test]
fn a_function_moves_up_after_many_others_were_read() {
    let jit = Jit::builder().jobs(1).build().expect("a session");
    jit.add_ir(
        "callee",
        "%unused = type { i32 } define i64 @twice(i64 %x) { %y = mul i64 %x, 2 ret i64 %y }",
    )
    .expect("valid");
    jit.add_ir(
        "caller",
        "declare i64 @twice(i64)
         define i64 @caller(i64 %x) {
           %a = call i64 @twice(i64 %x) %b = add i64 %a, 1 ret i64 %b }",
    )
    .expect("valid");
    let caller = || {
        // SAFETY: the function above.
        let function = unsafe { jit.function::<extern "C" fn(i64) -> i64>("caller") };
        function.expect("typed").call(20)
    };
    assert_eq!(caller(), 41);
    let read_others = |from: usize| {
        for number in from..from + 60 {
            std::mem::forget(add(&jit, number));
            assert_eq!(call(&jit, number, 1), number as i64 + 1);
        }
    };
    for (round, tier) in [Tier::Optimized, Tier::Guided, Tier::Optimized]
        .into_iter()
        .enumerate()
    {
        read_others(round * 100);
        jit.compile_at("caller", tier).expect("compiles");
        assert_eq!(jit.tier("caller").expect("defined"), Some(tier));
        assert_eq!(caller(), 41);
        // The body it has inlined is another from now on.
        let factor = round + 3;
        let new = format!("define i64 @twice(i64 %x) {{ %y = mul i64 %x, {factor} ret i64 %y }}");
        let replaced = jit.main().replace(Replacement::ir("new", &new));
        let replaced = replaced.expect("replaceable");
        assert_eq!(replaced.dependents, ["caller"], "inlined at {tier:?}");
        assert_eq!(caller(), 20 * factor as i64 + 1);
        let back = "define i64 @twice(i64 %x) { %y = mul i64 %x, 2 ret i64 %y }";
        let replaced = jit.main().replace(Replacement::ir("back", back));
        replaced.expect("replaceable");
    }
}

#[test]
fn a_child_of_a_fork_reads_modules_that_its_parent_had_read() {
    let jit = Jit::builder().jobs(1).build().expect("a session");
    for number in 0..80 {
        std::mem::forget(add(&jit, number));
        // Half of them are called, and read, before the fork.
        if number % 2 == 0 {
            assert_eq!(call(&jit, number, 1), number as i64 + 1);
        }
    }
    let all = |first: i64| {
        for number in 0..80 {
            let before = if number % 2 == 0 { 1 } else { 0 };
            assert_eq!(call(&jit, number, first), number as i64 + before + first);
        }
        for number in 1000..1020 {
            std::mem::forget(add(&jit, number));
            assert_eq!(call(&jit, number, 1), number as i64 + 1);
            jit.compile_at(&format!("f_{number}"), Tier::Optimized)
                .expect("compiles");
        }
    };
    // SAFETY: the child only calls code of the session and ends.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork");
    if pid == 0 {
        // SAFETY: as above.
        unsafe { libc::alarm(60) };
        let whole = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| all(5)));
        // SAFETY: as above.
        unsafe { libc::_exit(if whole.is_ok() { 0 } else { 1 }) };
    }
    all(7);
    let mut status = 0;
    // SAFETY: our child.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(status, 0);
}
