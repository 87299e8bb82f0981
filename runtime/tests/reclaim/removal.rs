//! Trackers of the library: what is removed is gone, and its memory comes back.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use uruk::{Error, FunctionId, Jit, ReclaimKind, Removal, Tier, Tiers, TrapKind};

/// Long enough for a cycle on a busy machine.
const SOON: Duration = Duration::from_secs(120);

fn jit() -> Jit {
    Jit::builder().jobs(1).build().expect("a session")
}

extern "C" fn called_a_removed_function() -> i32 {
    -1
}

extern "C" fn on_failure(_: FunctionId) -> u64 {
    called_a_removed_function as *const () as u64
}

#[test]
fn a_removed_function_is_not_found_and_calls_go_to_the_failure_handler() {
    let jit = Jit::builder()
        .on_failure(on_failure)
        .build()
        .expect("a session");
    let tracker = jit.main().create_tracker().expect("a tracker");
    tracker
        .add_ir("m", "define i32 @one() { ret i32 1 }")
        .expect("valid IR");
    // SAFETY: the function above.
    let one = unsafe { jit.function::<extern "C" fn() -> i32>("one") }.expect("typed");
    assert_eq!(one.call(), 1);
    // SAFETY: what is called after this goes to the handler.
    unsafe { tracker.remove() }.expect("once");
    assert_eq!(one.call(), -1);
    assert!(matches!(
        jit.lookup("one"),
        Err(Error::MissingSymbols { .. })
    ));
    // SAFETY: refused.
    let again = unsafe { tracker.remove() };
    assert!(again.is_err(), "removed twice");
    let late = tracker.add_ir("n", "define i32 @two() { ret i32 2 }");
    assert!(late.is_err(), "added to a removed tracker");
    jit.add_ir("m", "define i32 @one() { ret i32 11 }")
        .expect("the name is free again");
    // SAFETY: the function above.
    let one = unsafe { jit.function::<extern "C" fn() -> i32>("one") }.expect("typed");
    assert_eq!(one.call(), 11);
}

#[test]
fn a_call_of_a_removed_function_is_an_error_that_names_it() {
    let jit = jit();
    let tracker = jit.main().create_tracker().expect("a tracker");
    let text = "define i32 @one() { ret i32 1 }";
    tracker.add_ir("m", text).expect("valid IR");
    // SAFETY: the function above.
    let one = unsafe { jit.function::<extern "C-unwind" fn() -> i32>("one") }.expect("typed");
    // SAFETY: calls of it from here on are guarded.
    unsafe { tracker.remove() }.expect("once");
    let trap = one.call_guarded().expect_err("it was removed");
    let TrapKind::NotCompiled { function, .. } = &trap.kind else {
        panic!("{trap}");
    };
    assert_eq!(function, "one");
}

#[test]
fn functions_of_the_host_and_lazy_ones_go_with_their_tracker() {
    let jit = jit();
    for round in 0..3_i64 {
        let tracker = jit.main().create_tracker().expect("a tracker");
        tracker.define_fn("plain", |x: i64| x + 1).expect("new");
        tracker
            .define_fn("stateful", move |x: i64| x * round)
            .expect("new");
        let lazy = tracker.define_lazy::<extern "C-unwind" fn() -> i64>("lazy", move |module| {
            let context = module.get_context();
            let word = context.i64_type();
            let function = module.add_function("lazy", word.fn_type(&[], false), None);
            let builder = context.create_builder();
            builder.position_at_end(context.append_basic_block(function, ""));
            builder.build_return(Some(&word.const_int(round as u64, false)))?;
            Ok(())
        });
        lazy.expect("new");
        let text = "declare i64 @plain(i64) declare i64 @stateful(i64) declare i64 @lazy()
            define i64 @sum(i64 %x) {
              %a = call i64 @plain(i64 %x) %b = call i64 @stateful(i64 %x) %c = call i64 @lazy()
              %d = add i64 %a, %b %e = add i64 %d, %c ret i64 %e
            }";
        tracker.add_ir("m", text).expect("valid IR");
        // SAFETY: the function above.
        let sum = unsafe { jit.function::<extern "C-unwind" fn(i64) -> i64>("sum") };
        let sum = sum.expect("typed");
        assert_eq!(sum.call(5), 6 + 5 * round + round);
        // SAFETY: nothing calls them any more.
        unsafe { tracker.remove() }.expect("once");
        for name in ["plain", "stateful", "lazy", "sum"] {
            assert!(jit.lookup(name).is_err(), "{name}");
        }
        assert!(tracker.define_fn("late", |x: i64| x).is_err());
    }
}

#[test]
fn an_input_that_fails_leaves_nothing() {
    let jit = jit();
    for _ in 0..2 {
        let error = jit
            .add_ir(
                "m",
                "declare void @gone()
                 define i32 @f() { call void @gone() ret i32 1 }",
            )
            .expect_err("a symbol is missing");
        assert!(matches!(error, Error::MissingSymbols { .. }), "{error}");
        assert!(jit.lookup("f").is_err(), "half of it stayed");
    }
    jit.add_ir("m", "define i32 @f() { ret i32 1 }")
        .expect("nothing is in the way");
}

#[test]
fn an_input_that_fails_takes_nothing_from_those_before() {
    let jit = jit();
    jit.add_ir(
        "before",
        "define weak i32 @f() { ret i32 1 }
         define weak i32 @g() { ret i32 2 }",
    )
    .expect("valid IR");
    // Overrides `f`, and then something is missing.
    let missing = "declare void @gone()
        define i32 @f() { call void @gone() ret i32 -1 }";
    // Overrides both, and then its data cannot be linked.
    let unlinkable = "module asm \".globl h\\nh:\\n.globl h2\\nh2 = nowhere\"
        @data = global ptr @gone
        @gone = external global i32
        define i32 @f() { ret i32 -1 }
        define i32 @g() { ret i32 -1 }";
    for (name, text) in [("missing", missing), ("unlinkable", unlinkable)] {
        let error = jit.add_ir(name, text).expect_err("refused");
        assert!(jit.lookup("h").is_err(), "{error}");
    }
    for (name, value) in [("f", 1), ("g", 2)] {
        // SAFETY: functions as above.
        let function = unsafe { jit.function::<extern "C" fn() -> i32>(name) };
        assert_eq!(function.expect("still there").call(), value, "{name}");
    }
}

#[test]
fn data_stays_as_long_as_code_that_was_linked_against_it() {
    let jit = jit();
    let data = jit.main().create_tracker().expect("a tracker");
    data.add_ir("d", "@value = global i32 7").expect("valid IR");
    jit.add_ir(
        "m",
        "@value = external global i32
         define i32 @get() { %v = load i32, ptr @value ret i32 %v }",
    )
    .expect("valid IR");
    // SAFETY: the function above.
    let get = unsafe { jit.function::<extern "C" fn() -> i32>("get") }.expect("typed");
    assert_eq!(get.call(), 7);
    // SAFETY: only `get` uses it, which keeps it.
    unsafe { data.remove() }.expect("once");
    assert!(jit.reclaim(ReclaimKind::Sweep, SOON));
    for i in 0..100 {
        jit.add_ir(
            &format!("n{i}"),
            &format!("@other{i} = global [64 x i8] c\"{}\"", "x".repeat(64)),
        )
        .expect("valid IR");
    }
    assert_eq!(get.call(), 7, "its memory was used for something else");
    assert!(jit.lookup("value").is_err());
}

#[test]
fn memory_of_removed_modules_and_objects_comes_back() {
    let jit = jit();
    let mut after_ten = 0;
    for i in 0..200 {
        let tracker = jit.main().create_tracker().expect("a tracker");
        tracker
            .add_ir(
                "m",
                "@data = global [4096 x i8] zeroinitializer
                 define i32 @f(i32 %x) {
                   %p = getelementptr i8, ptr @data, i32 %x
                   %v = load i8, ptr %p
                   %w = zext i8 %v to i32
                   %s = add i32 %w, %x
                   ret i32 %s
                 }",
            )
            .expect("valid IR");
        // SAFETY: the function above, inside of its array.
        let f = unsafe { jit.function::<extern "C" fn(i32) -> i32>("f") }.expect("typed");
        assert_eq!(f.call(i), i);
        // SAFETY: no thread calls it or has its addresses.
        unsafe { tracker.remove() }.expect("once");
        if i % 10 == 9 {
            assert!(jit.reclaim(ReclaimKind::Sweep, SOON));
        }
        if i == 9 {
            after_ten = jit.stats().memory.held;
        }
    }
    // A page is kept by one version that an old word of this thread's stack pins, and one
    // is being filled. A scan beside another test's thread that does not answer keeps more, until the next.
    let most = after_ten + 16384;
    let start = Instant::now();
    while jit.stats().memory.held > most && start.elapsed() < SOON {
        jit.reclaim(ReclaimKind::Sweep, SOON);
    }
    let held = jit.stats().memory.held;
    assert!(held <= most, "{held} bytes, {after_ten} after ten");
}

#[test]
fn a_dylib_that_others_search_is_removed_only_by_force() {
    let jit = jit();
    let library = jit.create_dylib("library").expect("a dylib");
    library
        .add_ir("l", "define i32 @one() { ret i32 1 }")
        .expect("valid IR");
    let user = jit.create_dylib("user").expect("a dylib");
    user.add_to_link_order(&library).expect("alive");
    assert!(user.lookup("one").is_ok());
    // SAFETY: refused.
    let refused = unsafe { library.remove(Removal::Refused) };
    match refused {
        Err(Error::DylibInUse { dylib, by }) => assert_eq!(
            (dylib, by),
            (String::from("library"), vec![String::from("user")])
        ),
        other => panic!("{other:?}"),
    }
    assert!(user.lookup("one").is_ok(), "refused, and yet changed");
    // SAFETY: no thread calls `one`.
    unsafe { library.remove(Removal::Forced) }.expect("by force");
    assert!(user.lookup("one").is_err());
    assert!(
        library
            .add_ir("x", "define void @x() { ret void }")
            .is_err()
    );
    // SAFETY: refused.
    assert!(unsafe { library.remove(Removal::Forced) }.is_err(), "twice");
}

#[test]
fn recompiling_keeps_memory_flat_while_callers_run() {
    const ROUNDS: u32 = 300;
    let jit = Jit::builder()
        .jobs(1)
        .tiers(Tiers::Fixed(Tier::Baseline))
        .build()
        .expect("a session");
    jit.add_ir(
        "m",
        "define i64 @sum(i64 %n) {
         entry:
           br label %loop
         loop:
           %i = phi i64 [ 0, %entry ], [ %j, %loop ]
           %s = phi i64 [ 0, %entry ], [ %t, %loop ]
           %t = add i64 %s, %i
           %j = add i64 %i, 1
           %more = icmp ult i64 %j, %n
           br i1 %more, label %loop, label %end
         end:
           ret i64 %t
         }",
    )
    .expect("valid IR");
    // SAFETY: the function above.
    let sum = unsafe { jit.function::<extern "C" fn(i64) -> i64>("sum") }.expect("typed");
    assert_eq!(sum.call(10), 45);
    let stop = AtomicBool::new(false);
    let calls = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    assert_eq!(sum.call(1000), 499_500);
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut early = 0;
        for round in 0..ROUNDS {
            jit.compile_at("sum", Tier::Baseline).expect("compiles");
            if round % 25 == 24 {
                let kind = match round % 50 {
                    24 => ReclaimKind::Sweep,
                    _ => ReclaimKind::Evacuate,
                };
                assert!(jit.reclaim(kind, SOON));
            }
            if round == 49 {
                early = jit.stats().memory.held;
            }
        }
        stop.store(true, Ordering::Relaxed);
        let memory = jit.stats().memory;
        assert!(memory.freed > u64::from(ROUNDS) / 2, "{memory:?}");
        assert!(memory.held <= early + 16384, "{memory:?}, {early} early");
    });
    assert!(calls.load(Ordering::Relaxed) > 0);
}

#[test]
fn callers_from_before_find_a_name_that_is_defined_again() {
    let jit = Jit::builder()
        .on_failure(on_failure)
        .build()
        .expect("a session");
    let library = jit.main().create_tracker().expect("a tracker");
    let define = |tracker: &uruk::Tracker, value: i32| {
        let text = format!(
            "@d = global i32 {value}
             define i32 @f() {{ %d = load i32, ptr @d ret i32 %d }}"
        );
        tracker.add_ir("library", &text).expect("valid IR");
    };
    define(&library, 1);
    jit.add_ir(
        "app",
        "declare i32 @f()
         define i32 @early() { %r = call i32 @f() ret i32 %r }
         define i32 @late() { %r = call i32 @f() ret i32 %r }
         define ptr @address() { ret ptr @f }",
    )
    .expect("valid IR");
    let function = |name: &str| {
        // SAFETY: the functions above.
        unsafe { jit.function::<extern "C" fn() -> i32>(name) }.expect("typed")
    };
    let (f, early, late) = (function("f"), function("early"), function("late"));
    // SAFETY: the function above.
    let address = unsafe { jit.function::<extern "C" fn() -> *const u8>("address") };
    let address = address.expect("typed").call();
    assert_eq!((early.call(), f.call()), (1, 1));
    let mut last = library;
    for value in 2..5 {
        // SAFETY: the data is used by `f` only.
        unsafe { last.remove() }.expect("once");
        // One slot fails meanwhile, of a caller that is compiled only now the first time.
        assert_eq!((early.call(), late.call(), f.call()), (-1, -1, -1));
        last = jit.main().create_tracker().expect("a tracker");
        define(&last, value);
        let found = (early.call(), late.call(), f.call());
        assert_eq!(found, (value, value, value));
        let now = jit.lookup("f").expect("defined");
        assert_eq!(now, address as u64, "its address is the same");
    }
}

#[test]
fn a_typed_handle_never_reaches_a_function_of_another_type() {
    let jit = Jit::builder()
        .on_failure(on_failure)
        .build()
        .expect("a session");
    let tracker = jit.main().create_tracker().expect("a tracker");
    tracker
        .add_ir("m", "define i32 @f() { ret i32 1 }")
        .expect("valid IR");
    // SAFETY: the function above.
    let f = unsafe { jit.function::<extern "C" fn() -> i32>("f") }.expect("typed");
    assert_eq!(f.call(), 1);
    // SAFETY: it has no data.
    unsafe { tracker.remove() }.expect("once");
    jit.add_ir("m", "define double @f(double %x) { ret double %x }")
        .expect("the name is free");
    assert_eq!(f.call(), -1, "another function's handle");
    // SAFETY: the function above.
    let new = unsafe { jit.function::<extern "C" fn(f64) -> f64>("f") };
    assert_eq!(new.expect("typed").call(2.5), 2.5);
}

#[test]
fn a_rollback_leaves_out_what_was_removed_and_defined_again() {
    let jit = jit();
    let tracker = jit.main().create_tracker().expect("a tracker");
    tracker
        .add_ir(
            "m",
            "define i32 @f() { ret i32 1 } define i32 @g() { ret i32 1 }",
        )
        .expect("valid IR");
    jit.add_ir("n", "define i32 @h() { ret i32 1 }")
        .expect("valid IR");
    let text = "define i32 @f() { ret i32 2 } define i32 @h() { ret i32 2 }";
    let replaced = jit.main().replace(uruk::Replacement::ir("r", text));
    let replaced = replaced.expect("replaced");
    // SAFETY: it has no data.
    unsafe { tracker.remove() }.expect("once");
    jit.add_ir("m", "define i32 @f() { ret i32 3 }")
        .expect("free");
    replaced.rollback().expect("what is left of it");
    let call = |name: &str| {
        // SAFETY: the functions above.
        let function = unsafe { jit.function::<extern "C" fn() -> i32>(name) };
        function.expect("typed").call()
    };
    assert_eq!((call("f"), call("h")), (3, 1));
}

/// Resolvers that choose each other: there is nothing to be called, and nothing that lasts.
#[test]
fn functions_whose_resolvers_go_in_a_circle_are_removed() {
    let jit = jit();
    let tracker = jit.main().create_tracker().expect("a tracker");
    let text = "@f = ifunc i32 (), ptr @choose_g
         @g = ifunc i32 (), ptr @choose_f
         define ptr @choose_g() { ret ptr @g }
         define ptr @choose_f() { ret ptr @f }";
    tracker.add_ir("m", text).expect("valid IR");
    // SAFETY: the resolvers above.
    unsafe { jit.initialize() }.expect("initialized");
    // SAFETY: no thread calls them.
    unsafe { tracker.remove() }.expect("once");
    assert!(jit.lookup("f").is_err());
}

#[test]
fn functions_that_are_moved_through_tiers_may_be_removed() {
    let jit = Jit::builder().jobs(2).tiers(Tiers::Churn).build();
    let jit = jit.expect("a session");
    for round in 0..40 {
        let tracker = jit.main().create_tracker().expect("a tracker");
        let text = format!("define i32 @gone() {{ ret i32 {round} }}");
        tracker.add_ir("gone", &text).expect("valid IR");
        let stays = format!("define i32 @stays{round}() {{ ret i32 {round} }}");
        jit.add_ir("stays", &stays).expect("valid IR");
        for name in [String::from("gone"), format!("stays{round}")] {
            // SAFETY: the functions above.
            let function = unsafe { jit.function::<extern "C" fn() -> i32>(&name) };
            assert_eq!(function.expect("typed").call(), round, "{name}");
        }
        // SAFETY: nothing calls it any more.
        unsafe { tracker.remove() }.expect("once");
    }
}
