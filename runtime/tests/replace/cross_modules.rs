//! Functions of one module inlined into another: whose data they use, what is replaced
//! with them, and what becomes of them when their module goes.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use uruk::{Dylib, Event, FunctionId, Jit, ReclaimKind, Replacement, Tier, Tiers};

/// Longest wait for something that happens in the background.
const PATIENCE: Duration = Duration::from_secs(120);

extern "C" fn called_a_removed_function() -> i32 {
    -1
}

extern "C" fn on_failure(_: FunctionId) -> u64 {
    called_a_removed_function as *const () as u64
}

fn jit() -> Jit {
    Jit::builder()
        .jobs(2)
        .on_failure(on_failure)
        .build()
        .expect("a session")
}

fn add(jit: &Jit, name: &str, ir: &str) {
    jit.add_ir(name, ir).expect("valid IR");
}

fn call_in(dylib: &Dylib, name: &str, argument: i32) -> i32 {
    // SAFETY: functions of the tests' modules, which only compute.
    let function = unsafe { dylib.function::<extern "C" fn(i32) -> i32>(name) };
    function.expect("typed").call(argument)
}

fn call(jit: &Jit, name: &str, argument: i32) -> i32 {
    call_in(&jit.main(), name, argument)
}

fn replace(jit: &Jit, ir: &str) -> Vec<String> {
    let replaced = jit.main().replace(Replacement::ir("new", ir));
    replaced.expect("replaceable").dependents
}

const CALLS_G: &str = "declare i32 @g(i32)
    define i32 @f(i32 %x) { %y = call i32 @g(i32 %x) ret i32 %y }";

/// Calls `g` at -1 and takes away the module of `g`: what is left of it is in `f`.
fn is_inlined(tier: Tier, apart: bool) -> bool {
    let jit = Jit::builder().on_failure(on_failure).modules_apart(apart);
    let jit = jit.build().expect("a session");
    let tracker = jit.main().create_tracker().expect("a tracker");
    let g = "define i32 @g(i32 %x) { %y = add i32 %x, 10 ret i32 %y }";
    tracker.add_ir("b", g).expect("valid IR");
    add(&jit, "a", CALLS_G);
    jit.compile_at("f", tier).expect("compiles");
    assert_eq!(call(&jit, "f", 1), 11);
    // SAFETY: calls of `g` go to the handler.
    unsafe { tracker.remove() }.expect("once");
    let answer = call(&jit, "f", 1);
    assert!([-1, 11].contains(&answer), "{answer}");
    answer == 11
}

#[test]
fn above_tier_1_unless_modules_are_kept_apart() {
    assert!(!is_inlined(Tier::Baseline, false));
    assert!(is_inlined(Tier::Optimized, false));
    assert!(is_inlined(Tier::Guided, false));
    assert!(!is_inlined(Tier::Guided, true));
}

#[test]
fn a_replaced_function_is_replaced_where_it_was_inlined() {
    let jit = jit();
    add(
        &jit,
        "c",
        "define i32 @h(i32 %x) { %y = add i32 %x, 1 ret i32 %y }",
    );
    add(
        &jit,
        "b",
        "declare i32 @h(i32)
         define i32 @g(i32 %x) { %y = call i32 @h(i32 %x) %z = mul i32 %y, 2 ret i32 %z }",
    );
    add(&jit, "a", CALLS_G);
    jit.compile_at("f", Tier::Optimized).expect("compiles");
    assert_eq!(call(&jit, "f", 1), 4);
    // Two modules away.
    let new = "define i32 @h(i32 %x) { %y = add i32 %x, 100 ret i32 %y }";
    assert_eq!(replace(&jit, new), ["f"]);
    assert_eq!(call(&jit, "f", 1), 202);
    assert_eq!(jit.tier("f").expect("known"), Some(Tier::Baseline));
    // From now on the new module offers it.
    jit.compile_at("f", Tier::Guided).expect("compiles");
    assert_eq!(call(&jit, "f", 1), 202);
    let newer = "define i32 @h(i32 %x) { %y = add i32 %x, 1000 ret i32 %y }";
    assert_eq!(replace(&jit, newer), ["f"]);
    assert_eq!(call(&jit, "f", 1), 2002);
    jit.compile_at("f", Tier::Optimized).expect("compiles");
    jit.rollback().expect("the latest");
    assert_eq!(call(&jit, "f", 1), 202);
    jit.rollback().expect("the one before");
    assert_eq!(call(&jit, "f", 1), 4);
    jit.compile_at("f", Tier::Optimized).expect("compiles");
    assert_eq!(call(&jit, "f", 1), 4);
}

#[test]
fn what_is_compiled_for_a_commit_takes_no_body_that_goes() {
    let jit = Jit::builder().tiers(Tiers::Fixed(Tier::Optimized));
    let jit = jit.build().expect("a session");
    add(&jit, "b", "define i32 @g(i32 %x) { ret i32 1 }");
    add(&jit, "a", CALLS_G);
    assert_eq!(call(&jit, "f", 0), 1);
    for i in 2..6 {
        let new = format!("define i32 @g(i32 %x) {{ ret i32 {i} }}");
        replace(&jit, &new);
        assert_eq!(call(&jit, "f", 0), i);
        jit.compile_at("f", Tier::Optimized).expect("compiles");
        assert_eq!(call(&jit, "f", 0), i);
    }
}

#[test]
fn statics_are_those_of_the_functions_own_module() {
    let jit = jit();
    add(
        &jit,
        "b",
        "@count = internal global i32 0
         @text = private constant [2 x i8] c\"b\\00\"
         define internal i32 @step(i32 %x) noinline {
           %old = load i32, ptr @count
           %new = add i32 %old, %x
           store i32 %new, ptr @count
           ret i32 %new
         }
         define i32 @g(i32 %x) {
           %n = call i32 @step(i32 %x)
           %c = load volatile i8, ptr @text
           %w = zext i8 %c to i32
           %y = mul i32 %w, 1000
           %z = add i32 %n, %y
           ret i32 %z
         }",
    );
    add(
        &jit,
        "a",
        "@count = internal global i32 500
         @text = private constant [2 x i8] c\"a\\00\"
         declare i32 @g(i32)
         define internal i32 @step(i32 %x) noinline {
           %old = load i32, ptr @count
           %new = add i32 %old, %x
           store i32 %new, ptr @count
           %c = load volatile i8, ptr @text
           %w = zext i8 %c to i32
           %y = add i32 %new, %w
           ret i32 %y
         }
         define i32 @f(i32 %x) {
           %y = call i32 @g(i32 1)
           %z = call i32 @step(i32 1)
           %s = mul i32 %z, 1000000
           %r = add i32 %y, %s
           ret i32 %r
         }",
    );
    let expected = |calls: i32| (500 + calls + 97) * 1_000_000 + 98_000 + calls;
    for (index, tier) in [Tier::Baseline, Tier::Optimized, Tier::Guided]
        .iter()
        .enumerate()
    {
        jit.compile_at("f", *tier).expect("compiles");
        assert_eq!(call(&jit, "f", 0), expected(index as i32 + 1), "{tier:?}");
    }
}

#[test]
fn thread_locals_of_another_dylib_are_one_for_each_thread() {
    let jit = jit();
    let b = jit.create_dylib("b").expect("a dylib");
    b.add_ir(
        "b",
        "@calls = internal thread_local global i32 0
         define i32 @g(i32 %x) {
           %old = load i32, ptr @calls
           %new = add i32 %old, %x
           store i32 %new, ptr @calls
           ret i32 %new
         }",
    )
    .expect("valid IR");
    jit.main().add_to_link_order(&b).expect("a dylib");
    add(&jit, "a", CALLS_G);
    assert_eq!(call(&jit, "f", 1), 1);
    jit.compile_at("f", Tier::Optimized).expect("compiles");
    assert_eq!(call(&jit, "f", 1), 2);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                assert_eq!((call(&jit, "f", 1), call(&jit, "f", 1)), (1, 2));
            });
        }
    });
    assert_eq!(call_in(&b, "g", 1), 3);
    // It was inlined, names of its dylib included.
    let new = Replacement::ir("new", "define i32 @g(i32 %x) { ret i32 0 }");
    assert_eq!(b.replace(new).expect("replaceable").dependents, ["f"]);
}

#[test]
fn names_that_mean_something_else_in_the_callers_dylib_stay_apart() {
    let jit = jit();
    let b = jit.create_dylib("b").expect("a dylib");
    b.add_ir(
        "b",
        "define i32 @h(i32 %x) noinline { ret i32 2 }
         define i32 @plain(i32 %x) { ret i32 5 }
         define i32 @g(i32 %x) { %y = call i32 @h(i32 %x) ret i32 %y }",
    )
    .expect("valid IR");
    jit.main().add_to_link_order(&b).expect("a dylib");
    add(
        &jit,
        "a",
        "declare i32 @g(i32)
         declare i32 @plain(i32)
         define i32 @h(i32 %x) noinline { ret i32 1 }
         define i32 @f(i32 %x) {
           %y = call i32 @g(i32 %x)
           %z = call i32 @h(i32 %x)
           %p = call i32 @plain(i32 %x)
           %s = mul i32 %y, 10
           %t = add i32 %s, %z
           %u = mul i32 %p, 100
           %r = add i32 %t, %u
           ret i32 %r
         }",
    );
    for tier in [Tier::Baseline, Tier::Optimized, Tier::Guided] {
        jit.compile_at("f", tier).expect("compiles");
        assert_eq!(call(&jit, "f", 0), 521, "{tier:?}");
    }
    // A function without such a name is inlined all the same.
    let new = Replacement::ir("new", "define i32 @plain(i32 %x) { ret i32 6 }");
    let replaced = b.replace(new).expect("replaceable");
    assert_eq!(replaced.dependents, ["f"]);
    assert_eq!(call(&jit, "f", 0), 621);
}

#[test]
fn data_of_a_removed_module_stays_while_a_body_of_it_is_in_use() {
    let jit = jit();
    let tracker = jit.main().create_tracker().expect("a tracker");
    tracker
        .add_ir(
            "b",
            "@count = internal global i32 40
             define i32 @g(i32 %x) {
               %old = load i32, ptr @count
               %new = add i32 %old, %x
               store i32 %new, ptr @count
               ret i32 %new
             }",
        )
        .expect("valid IR");
    add(&jit, "a", CALLS_G);
    jit.compile_at("f", Tier::Optimized).expect("compiles");
    assert_eq!(call(&jit, "f", 1), 41);
    // SAFETY: only `f` uses its data, which keeps it.
    unsafe { tracker.remove() }.expect("once");
    assert!(jit.reclaim(ReclaimKind::Sweep, PATIENCE));
    for i in 0..100 {
        let text = "x".repeat(64);
        add(
            &jit,
            &format!("n{i}"),
            &format!("@other{i} = global [64 x i8] c\"{text}\""),
        );
    }
    assert_eq!(
        call(&jit, "f", 1),
        42,
        "its memory was used for something else"
    );
    // It is offered no more: the name is gone, and the version in use stays.
    assert!(jit.compile_at("f", Tier::Guided).is_err());
    assert_eq!(call(&jit, "f", 1), 43);
    add(&jit, "c", "define i32 @g(i32 %x) { ret i32 7 }");
    jit.compile_at("f", Tier::Guided).expect("compiles");
    assert_eq!(call(&jit, "f", 1), 7);
}

#[test]
fn a_target_in_another_module_is_promoted_and_others_still_reached() {
    static PUBLISHED: AtomicI64 = AtomicI64::new(0);
    let jit = Jit::builder().on_event(|event: &Event| {
        if let Event::Published {
            function: "apply", ..
        } = event
        {
            PUBLISHED.fetch_add(1, Ordering::Relaxed);
        }
    });
    let jit = jit.build().expect("a session");
    add(
        &jit,
        "b",
        "define i32 @triple(i32 %x) { %y = mul i32 %x, 3 ret i32 %y }
         define i32 @negate(i32 %x) { %y = sub i32 0, %x ret i32 %y }
         define ptr @pointer(i32 %rare) {
           %c = icmp eq i32 %rare, 1
           %p = select i1 %c, ptr @negate, ptr @triple
           ret ptr %p
         }",
    );
    add(
        &jit,
        "a",
        "define i32 @apply(ptr %f, i32 %n) {
         entry:
           br label %loop
         loop:
           %i = phi i32 [ 0, %entry ], [ %next, %loop ]
           %s = phi i32 [ 1, %entry ], [ %t, %loop ]
           %t = call i32 %f(i32 %s)
           %next = add i32 %i, 1
           %done = icmp eq i32 %next, %n
           br i1 %done, label %out, label %loop
         out:
           ret i32 %t
         }",
    );
    // SAFETY: plain functions of the modules above.
    let (apply, pointer) = unsafe {
        (
            jit.function::<extern "C" fn(*const u8, i32) -> i32>("apply")
                .expect("typed"),
            jit.function::<extern "C" fn(i32) -> *const u8>("pointer")
                .expect("typed"),
        )
    };
    let (triple, negate) = (pointer.call(0), pointer.call(1));
    let tripled = |n| (0..n).fold(1i32, |s, _| s.wrapping_mul(3));
    jit.main().pin("apply", Some(Tier::Guided)).expect("known");
    let start = Instant::now();
    while jit.tier("apply").expect("known") != Some(Tier::Guided) {
        assert_eq!(apply.call(triple, 1000), tripled(1000));
        assert!(start.elapsed() < PATIENCE, "no guided version");
    }
    assert_eq!(apply.call(triple, 1000), tripled(1000));
    assert_eq!(apply.call(negate, 1001), -1);
    // It is in there: a version that only called it would not depend on it.
    let new = "define i32 @triple(i32 %x) { %y = mul i32 %x, 5 ret i32 %y }";
    assert_eq!(replace(&jit, new), ["apply"]);
    assert_eq!(apply.call(triple, 2), 25);
    assert!(PUBLISHED.load(Ordering::Relaxed) >= 2);
}
