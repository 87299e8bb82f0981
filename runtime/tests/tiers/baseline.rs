//! Tier 1 without LLVM's code generator: who is compiled by it, that all else of a session is as
//! with LLVM's code, and what is told of it.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use uruk::{
    Baseline, CompiledBy, Event, Jit, JitBuilder, LinkGraph, ReclaimKind, Replacement, Tier, Tiers,
    ToolSettings,
};

/// Longest wait for something that happens in the background.
const PATIENCE: Duration = Duration::from_secs(120);

/// Calls, data, a constant, a loop, a pointer to a function.
const PROGRAM: &str = r#"
@total = global i64 0
@table = private unnamed_addr constant [4 x i64] [i64 1, i64 10, i64 100, i64 1000]
define internal i64 @weight(i64 %i) {
  %low = and i64 %i, 3
  %at = getelementptr inbounds [4 x i64], ptr @table, i64 0, i64 %low
  %w = load i64, ptr %at
  ret i64 %w
}
define i64 @sum(i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %s = phi i64 [ 0, %entry ], [ %more, %loop ]
  %w = call i64 @weight(i64 %i)
  %more = add i64 %s, %w
  %next = add i64 %i, 1
  %again = icmp ult i64 %next, %n
  br i1 %again, label %loop, label %done
done:
  %before = load i64, ptr @total
  %after = add i64 %before, %more
  store i64 %after, ptr @total
  ret i64 %more
}
define i64 @through(ptr %f, i64 %n) {
  %r = call i64 %f(i64 %n)
  ret i64 %r
}
define ptr @which() { ret ptr @sum }
define i64 @read() {
  %v = load i64, ptr @total
  ret i64 %v
}"#;

/// A function that the baseline compiler never takes.
const ASSEMBLY: &str = r#"define i64 @assembly(i64 %x) {
  %y = call i64 asm "leaq 1($1), $0", "=r,r"(i64 %x)
  ret i64 %y
}"#;

type Log = Arc<Mutex<Vec<(String, Tier, CompiledBy)>>>;

/// A session, and who compiled what in it.
fn session(builder: JitBuilder) -> (Jit, Log) {
    let log = Log::default();
    let sink = Arc::clone(&log);
    let builder = builder.on_event(move |event| {
        if let Event::Compiled {
            function, tier, by, ..
        } = event
        {
            let mut log = sink.lock().expect("no panic");
            log.push(((*function).to_owned(), *tier, *by));
        }
    });
    let jit = builder.build().expect("a session");
    jit.add_ir("program", PROGRAM).expect("added");
    (jit, log)
}

/// As by default.
fn on() -> JitBuilder {
    Jit::builder()
}

fn call(jit: &Jit, name: &str, argument: i64) -> i64 {
    // SAFETY: a function of the tests, which takes a number and returns one.
    let function = unsafe { jit.function::<extern "C" fn(i64) -> i64>(name) };
    function.expect("a function").call(argument)
}

fn read(jit: &Jit) -> i64 {
    // SAFETY: as above, without an argument.
    let function = unsafe { jit.function::<extern "C" fn() -> i64>("read") };
    function.expect("a function").call()
}

/// The compilers that compiled a function at tier 1.
fn compiled_by(log: &Log, name: &str) -> Vec<CompiledBy> {
    let log = log.lock().expect("no panic");
    let of = log.iter();
    let of = of.filter(|(function, tier, _)| function == name && *tier == Tier::Baseline);
    of.map(|&(_, _, by)| by).collect()
}

#[test]
fn what_is_covered_is_compiled_without_llvm() {
    let (jit, log) = session(on().tiers(Tiers::Fixed(Tier::Baseline)));
    assert_eq!(call(&jit, "sum", 9), 2223);
    // SAFETY: the functions above.
    let (which, through) = unsafe {
        let which = jit.function::<extern "C" fn() -> *const ()>("which");
        let through = jit.function::<extern "C" fn(*const (), i64) -> i64>("through");
        (which.expect("typed"), through.expect("typed"))
    };
    assert_eq!(through.call(which.call(), 4), 1111);
    assert_eq!(read(&jit), 3334);
    for name in ["sum", "weight", "which", "through", "read"] {
        assert_eq!(compiled_by(&log, name), [CompiledBy::Baseline], "{name}");
    }
    let stats = jit.stats().baseline;
    assert_eq!((stats.compiled, stats.uncovered), (5, vec![]));
}

#[test]
fn what_is_not_covered_is_llvms_with_a_reason() {
    let (jit, log) = session(on());
    jit.add_ir("assembly", ASSEMBLY).expect("added");
    assert_eq!(call(&jit, "assembly", 41), 42);
    assert_eq!(compiled_by(&log, "assembly"), [CompiledBy::Llvm]);
    let stats = jit.stats().baseline;
    assert_eq!(stats.compiled, 0);
    assert_eq!(stats.uncovered.len(), 1);
    assert_eq!(stats.uncovered[0].1, 1);
}

#[test]
fn nothing_or_a_half_is_if_wanted() {
    let (jit, log) = session(Jit::builder().baseline(Baseline::Off));
    assert_eq!(call(&jit, "sum", 9), 2223);
    assert_eq!(compiled_by(&log, "sum"), [CompiledBy::Llvm]);
    let mut both = Vec::new();
    for seed in 0..16 {
        let (jit, log) = session(Jit::builder().baseline(Baseline::Half(seed)));
        assert_eq!((call(&jit, "sum", 9), read(&jit)), (2223, 2223));
        both.extend(["sum", "weight", "read"].map(|name| compiled_by(&log, name)[0]));
    }
    assert!(both.contains(&CompiledBy::Baseline) && both.contains(&CompiledBy::Llvm));
}

#[test]
fn layers_that_need_ir_or_objects_get_them() {
    let seen = Arc::new(Mutex::new(0));
    let count = Arc::clone(&seen);
    let (jit, log) = session(on().transform_objects(Arc::new(move |_, object| {
        *count.lock().expect("no panic") += 1;
        Ok(object)
    })));
    assert_eq!(call(&jit, "sum", 9), 2223);
    assert_eq!(compiled_by(&log, "sum"), [CompiledBy::Llvm]);
    assert!(*seen.lock().expect("no panic") >= 2);

    let (jit, log) = session(on().transform_ir(uruk::Transform::new(|_| Ok(()))));
    assert_eq!(call(&jit, "sum", 9), 2223);
    assert_eq!(compiled_by(&log, "sum"), [CompiledBy::Llvm]);
}

#[test]
fn link_passes_see_code_from_memory() {
    let needed = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&needed);
    let pass = move |graph: &mut LinkGraph<'_>| {
        let defined: Vec<String> = graph.definitions().map(|d| d.name.to_owned()).collect();
        let names = graph.undefined().map(|symbol| symbol.name.to_owned());
        let names: Vec<String> = names.collect();
        if names.iter().any(|name| name == "bad") {
            return Err(String::from("not this one"));
        }
        sink.lock().expect("no panic").push((defined, names));
        Ok(())
    };
    let (jit, log) = session(on().link_pass(Arc::new(pass)));
    assert_eq!(call(&jit, "sum", 9), 2223);
    assert_eq!(compiled_by(&log, "sum"), [CompiledBy::Baseline]);
    let needed = needed.lock().expect("no panic");
    let sum = needed
        .iter()
        .find(|(defined, _)| defined.iter().any(|n| n.ends_with("sum")));
    let (_, names) = sum.expect("the pass saw it");
    assert!(names.iter().any(|name| name == "total"), "{names:?}");
    drop(needed);
    let bad = "declare void @bad() define i64 @calls(i64 %x) { call void @bad() ret i64 0 }";
    jit.main().allow_missing(true);
    jit.add_ir("bad", bad).expect("added");
    let error = jit.main().compile("calls").expect_err("refused");
    assert!(error.to_string().contains("link pass"), "{error}");
}

#[test]
fn its_code_counts_and_is_replaced_by_better_code() {
    let (jit, log) = session(on());
    assert_eq!(call(&jit, "sum", 9), 2223);
    assert_eq!(compiled_by(&log, "sum"), [CompiledBy::Baseline]);
    let start = Instant::now();
    while jit.tier("sum").expect("known") == Some(Tier::Baseline) {
        assert_eq!(call(&jit, "sum", 10_000), 2500 * 1111);
        assert!(start.elapsed() < PATIENCE);
    }
    assert_eq!(call(&jit, "sum", 9), 2223);
}

#[test]
fn its_loops_are_left_for_continuations() {
    for passes in [1, 2, 7, 60] {
        let (jit, log) = session(on().tiers(Tiers::Leave(passes)));
        assert_eq!(call(&jit, "sum", 4000), 1000 * 1111);
        assert_eq!(read(&jit), 1000 * 1111);
        assert_eq!(compiled_by(&log, "sum"), [CompiledBy::Baseline]);
        let stats = jit.stats().continuations;
        assert_eq!(stats.left, 1, "after {passes}: {stats:?}");
    }
}

#[test]
fn its_code_moves_and_is_freed() {
    let (jit, log) = session(on().tiers(Tiers::Fixed(Tier::Baseline)));
    assert_eq!(call(&jit, "sum", 9), 2223);
    let before = jit.stats().memory.moved.0;
    let start = Instant::now();
    while jit.stats().memory.moved.0 == before {
        jit.reclaim(ReclaimKind::Evacuate, PATIENCE);
        assert!(start.elapsed() < PATIENCE, "{:?}", jit.stats().memory);
    }
    assert_eq!((call(&jit, "sum", 9), read(&jit)), (2223, 4446));
    assert_eq!(compiled_by(&log, "sum"), [CompiledBy::Baseline]);

    let text = "define i64 @sum(i64 %n) { ret i64 7 }";
    jit.main()
        .replace(Replacement::ir("again", text))
        .expect("replaced");
    assert_eq!(call(&jit, "sum", 9), 7);
    assert_eq!(compiled_by(&log, "sum"), [CompiledBy::Baseline; 2]);
}

#[test]
fn debuggers_are_told_of_code_without_a_file() {
    let mut tools = ToolSettings::default();
    tools.gdb = true;
    let (jit, log) = session(on().tools(tools));
    assert_eq!(call(&jit, "sum", 9), 2223);
    assert_eq!(compiled_by(&log, "sum"), [CompiledBy::Baseline]);
}
