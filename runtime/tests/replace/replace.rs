//! Replacing functions through the library: what changes, what stays, and that a failure
//! changes nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use uruk::{Error, Event, Jit, ReplaceError, Replaced, Replacement, Tier};

type Answer = extern "C" fn() -> i32;

fn jit(ir: &str) -> Jit {
    let jit = Jit::builder().jobs(2).build().expect("a session");
    jit.add_ir("m", ir).expect("valid IR");
    jit
}

fn answer(jit: &Jit, name: &str) -> uruk::Func<Answer> {
    // SAFETY: functions of the tests' modules, which only compute.
    unsafe { jit.function(name) }.expect("typed")
}

fn replace(jit: &Jit, ir: &str) -> Replaced {
    jit.main()
        .replace(Replacement::ir("new", ir))
        .expect("replaceable")
}

/// Why a replacement was refused.
fn refused(jit: &Jit, ir: &str) -> ReplaceError {
    match jit.main().replace(Replacement::ir("new", ir)) {
        Err(Error::Replace(cause)) => (*cause).clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn callers_reach_the_new_code_at_the_old_address() {
    let jit = jit("define i32 @f() { ret i32 1 }
        define i32 @g() { %x = call i32 @f() %y = mul i32 %x, 10 ret i32 %y }
        define ptr @where() { ret ptr @f }");
    let (f, g) = (answer(&jit, "f"), answer(&jit, "g"));
    let address = jit.lookup("f").expect("defined");
    assert_eq!((f.call(), g.call()), (1, 10));
    let replaced = replace(&jit, "define i32 @f() { ret i32 2 }");
    assert_eq!(replaced.functions, ["f"]);
    assert_eq!((f.call(), g.call()), (2, 20));
    assert_eq!(jit.lookup("f").expect("defined"), address);
    // A function that never ran is replaced, too, and has code at once.
    replace(
        &jit,
        "declare i32 @f() define ptr @where() { ret ptr @where }",
    );
    assert_eq!(jit.tier("where").expect("known"), Some(Tier::Baseline));
    assert_eq!(answer(&jit, "f").address(), address);
}

#[test]
fn sets_are_rolled_back_latest_first() {
    let jit = jit("define i32 @f() { ret i32 0 } define i32 @g() { ret i32 0 }");
    let (f, g) = (answer(&jit, "f"), answer(&jit, "g"));
    assert_eq!(f.call(), 0);
    let first = replace(
        &jit,
        "define i32 @f() { ret i32 1 } define i32 @g() { ret i32 1 }",
    );
    let second = replace(&jit, "define i32 @g() { ret i32 2 }");
    assert_eq!((f.call(), g.call()), (1, 2));
    let Err(Error::Replace(cause)) = first.rollback() else {
        panic!("rolled back below a later one")
    };
    assert!(matches!(*cause, ReplaceError::NotLatest { .. }), "{cause}");
    assert_eq!(second.rollback().expect("the latest").functions, ["g"]);
    assert_eq!((f.call(), g.call()), (1, 1));
    assert_eq!(jit.rollback().expect("one is left").functions, ["f", "g"]);
    // `g` had never run before the first: it is compiled again.
    assert_eq!((f.call(), g.call()), (0, 0));
    let Err(Error::Replace(cause)) = jit.rollback() else {
        panic!("rolled back to nothing")
    };
    assert_eq!(*cause, ReplaceError::NothingToRollBack);
    let Err(Error::Replace(cause)) = second.rollback() else {
        panic!("rolled back twice")
    };
    assert!(matches!(*cause, ReplaceError::NotLatest { .. }), "{cause}");
    replace(&jit, "define i32 @f() { ret i32 3 }");
    assert_eq!((f.call(), g.call()), (3, 0));
}

#[test]
fn as_many_sets_are_kept_as_was_asked_for() {
    let jit = Jit::builder()
        .replacements_kept(2)
        .build()
        .expect("a session");
    jit.add_ir("m", "define i32 @f() { ret i32 0 }")
        .expect("valid");
    for value in 1..=4 {
        replace(&jit, &format!("define i32 @f() {{ ret i32 {value} }}"));
    }
    assert_eq!(jit.rollback().expect("kept").functions, ["f"]);
    assert_eq!(jit.rollback().expect("kept").functions, ["f"]);
    assert!(jit.rollback().is_err());
    assert_eq!(answer(&jit, "f").call(), 2);
}

const STATE: &str = "
@total = global i32 5
@count = internal global i32 0
@text = private constant [2 x i8] c\"a\\00\"
define internal i32 @step() { ret i32 1 }
@hook = global ptr @step
define i32 @f() {
  %n = load i32, ptr @count
  %s = call i32 @step()
  %m = add i32 %n, %s
  store i32 %m, ptr @count
  %t = load i32, ptr @total
  %c = load i8, ptr @text
  %w = zext i8 %c to i32
  %x = mul i32 %w, 1000
  %y = add i32 %x, %m
  %z = add i32 %y, %t
  ret i32 %z
}
define i32 @through_pointer() {
  %p = load ptr, ptr @hook
  %x = call i32 %p()
  ret i32 %x
}";

#[test]
fn variables_keep_their_contents_and_pointers_to_local_functions_reach_new_code() {
    let jit = jit(STATE);
    let f = answer(&jit, "f");
    assert_eq!((f.call(), f.call()), (97_006, 97_007));
    let next = STATE
        .replace("c\"a", "c\"b")
        .replace("ret i32 1", "ret i32 100")
        .replace(
            "@total = global i32 5",
            "@total = global i32 77\n@extra = global i32 3",
        );
    let replaced = replace(&jit, &next);
    assert_eq!(replaced.functions, ["step", "f", "through_pointer"]);
    assert_eq!(
        replaced.globals_kept,
        ["total", "hook", "count"].map(String::from).sorted()
    );
    assert_eq!(replaced.globals_added, ["extra"]);
    // `count` goes on from 2, `total` is still 5, the text is new.
    assert_eq!(f.call(), 98_107);
    assert_eq!(answer(&jit, "through_pointer").call(), 100);
    // Names that came along are there for those that come after.
    jit.add_ir(
        "n",
        "@extra = external global i32
        define i32 @h() { %x = load i32, ptr @extra ret i32 %x }",
    )
    .expect("defined");
    assert_eq!(answer(&jit, "h").call(), 3);
    // Twice: what a replacement brought is what the next one finds.
    let again = next.replace("@extra = global i32 3", "@extra = global i32 4");
    replace(&jit, &again.replace("c\"b", "c\"c"));
    assert_eq!(f.call(), 99_207);
    assert_eq!(answer(&jit, "h").call(), 3);
}

/// Kept variables are listed in the order of the symbol table: sorted as that has them.
trait Sorted {
    fn sorted(self) -> Vec<String>;
}

impl Sorted for [String; 3] {
    fn sorted(self) -> Vec<String> {
        let order = |name: &String| ["total", "count", "hook"].iter().position(|n| n == name);
        let mut list = self.to_vec();
        list.sort_by_key(order);
        list
    }
}

#[test]
fn a_local_variable_that_could_be_several_is_an_error_that_names_it() {
    let part = |n: i32| {
        format!(
            "@held = internal global i32 {n}
            define i32 @f{n}() {{ %x = load i32, ptr @held ret i32 %x }}"
        )
    };
    let jit = jit(&part(1));
    jit.add_ir("n", &part(2)).expect("valid");
    let both = "@held = internal global i32 0
        define i32 @f1() { %x = load i32, ptr @held ret i32 %x }
        define i32 @f2() { ret i32 0 }";
    let cause = refused(&jit, both);
    assert!(matches!(&cause, ReplaceError::Ambiguous { name, count: 2, .. } if name == "held"));
    assert_eq!(
        (answer(&jit, "f1").call(), answer(&jit, "f2").call()),
        (1, 2)
    );
}

#[test]
fn what_does_not_fit_is_refused_with_both_sides() {
    let jit = jit("@g = global i32 7
        @k = constant i32 4
        @table = constant [2 x ptr] [ptr @one, ptr @two]
        @one = private constant i8 1
        @two = private constant i8 2
        define i32 @f(i8 signext %x) { %v = load i32, ptr @g ret i32 %v }
        @alias = alias i32 (i8), ptr @f
        define i32 @h() { ret i32 1 }
        define i32 @data() prefix i32 1 { ret i32 9 }");
    let text = |ir: &str| refused(&jit, ir).to_string();
    assert_eq!(
        text("define i32 @f(i8 zeroext %x) { ret i32 0 }"),
        "new: the signature of `f` changed from i32 (i8 signext) to i32 (i8 zeroext); its callers \
         would have to change with it"
    );
    assert_eq!(
        text("@g = global { i32, i64 } zeroinitializer define i32 @h() { ret i32 2 }"),
        "new: `g` changed from i32 (4 bytes) to { i32, i64 } (16 bytes); its contents cannot be \
         kept"
    );
    let constant =
        |value: i32| format!("@k = constant i32 {value} define i32 @h() {{ ret i32 2 }}");
    assert!(text(&constant(5)).contains("the value of the constant `k` changed"));
    replace(&jit, &constant(4));
    // Local constants are compared by value, whatever their names.
    let table = |second: i32| {
        format!(
            "
        @s0 = private constant i8 1
        @s1 = private constant i8 {second}
        @table = constant [2 x ptr] [ptr @s0, ptr @s1]
        define i32 @h() {{ ret i32 3 }}"
        )
    };
    assert!(text(&table(3)).contains("`table`"));
    replace(&jit, &table(2));
    assert!(text("define i32 @nothing() { ret i32 0 }").contains("none of its functions exists"));
    assert!(text("define i32 @data() { ret i32 0 }").contains("compiled together with data"));
    assert!(text("define i32 @g() { ret i32 0 }").contains("`g` cannot be replaced"));
    assert!(
        text(
            "define i32 @alias(i8 %x) { ret i32 0 }
        define i32 @f(i8 signext %x) { ret i32 0 }"
        )
        .contains("shares its address")
    );
    assert!(text("module asm \"nop\" define i32 @h() { ret i32 0 }").contains("assembly"));
    assert_eq!(answer(&jit, "h").call(), 3);
    let changed = Replacement::ir("new", "define i32 @f(i8 zeroext %x) { ret i32 55 }");
    jit.main()
        .replace(changed.allow_signatures(true))
        .expect("allowed");
    // SAFETY: the function just above.
    let f = unsafe { jit.function::<extern "C" fn(u8) -> i32>("f") }.expect("typed");
    assert_eq!(f.call(1), 55);
}

/// Code that LLVM dies of, see `tier_faults`.
const FATAL: &str = "declare void @llvm.aarch64.hint(i32)
    define i32 @g() { call void @llvm.aarch64.hint(i32 1) ret i32 2 }";

#[test]
fn a_failure_changes_nothing() {
    let jit = jit("@n = global i32 1
        define i32 @f() { %x = load i32, ptr @n ret i32 %x }
        define i32 @g() { ret i32 1 }");
    let good = "define i32 @f() { %x = call i32 @added() ret i32 %x }
        @fresh = global i32 6
        define i32 @added() { %x = load i32, ptr @fresh ret i32 %x }";
    let faults = [
        ("syntax", "define i32 @f( {"),
        (
            "undefined",
            "declare i32 @gone() define i32 @g() { %x = call i32 @gone() ret i32 %x }",
        ),
        ("LLVM", FATAL),
        (
            "inline assembly",
            "define i32 @g() { call void asm \"no such instruction\", \"\"() ret i32 1 }",
        ),
    ];
    for (what, fault) in faults {
        let text = match fault.contains("define i32 @f(") {
            true => String::from(fault),
            false => format!("{good}\n{fault}"),
        };
        let error = jit.main().replace(Replacement::ir("new", &text));
        let error = error.expect_err(what);
        assert!(!matches!(error, Error::Replace(_)), "{what}: {error}");
        assert_eq!(
            (answer(&jit, "f").call(), answer(&jit, "g").call()),
            (1, 1),
            "{what}"
        );
        assert!(jit.lookup("added").is_err(), "{what}");
        assert!(jit.lookup("fresh").is_err(), "{what}");
    }
    assert!(jit.rollback().is_err());
    replace(&jit, good);
    assert_eq!(answer(&jit, "f").call(), 6);
    assert!(jit.lookup("fresh").is_ok());
}

#[test]
fn memory_that_runs_out_half_way_changes_nothing() {
    let limit = 1 << 20;
    let jit = Jit::builder()
        .memory_limit(limit)
        .build()
        .expect("a session");
    let set = |value: i32| {
        let mut text = format!("@big{value} = global [65536 x i8] zeroinitializer\n");
        for i in 0..8 {
            text += &format!("define i32 @f{i}() {{ ret i32 {value} }}\n");
        }
        text
    };
    jit.add_ir("m", &set(0)).expect("fits");
    let mut value = 0;
    let failed = loop {
        match jit.main().replace(Replacement::ir("new", &set(value + 1))) {
            Ok(_) => value += 1,
            Err(cause) => break cause,
        }
        assert!(value < 100, "{limit} bytes never run out");
    };
    assert!(
        matches!(failed, Error::Heap(_) | Error::Stub(_)),
        "{failed}"
    );
    assert!(value > 0);
    for i in 0..8 {
        assert_eq!(answer(&jit, &format!("f{i}")).call(), value);
    }
    assert!(jit.lookup(&format!("big{}", value + 1)).is_err());
}

#[test]
fn replacements_at_the_same_time_wait_for_each_other() {
    let jit = jit("define i32 @f() { ret i32 0 } define i32 @g() { ret i32 0 }");
    let (f, g) = (answer(&jit, "f"), answer(&jit, "g"));
    std::thread::scope(|scope| {
        for thread in 1..=4 {
            let jit = &jit;
            scope.spawn(move || {
                for turn in 0..10 {
                    let value = thread * 100 + turn;
                    replace(
                        jit,
                        &format!(
                            "define i32 @f() {{ ret i32 {value} }}
                        define i32 @g() {{ ret i32 {value} }}"
                        ),
                    );
                }
            });
        }
    });
    // Whichever was last: of one set.
    assert_eq!(f.call(), g.call());
    assert_eq!(f.call() % 100, 9);
}

#[test]
fn a_first_call_under_way_gets_old_code_or_new() {
    for round in 0..20 {
        let mut body = String::from("%a0 = add i32 %x, 0\n");
        for i in 1..400 {
            body += &format!("%a{i} = add i32 %a{}, {}\n", i - 1, i % 2);
        }
        let jit = jit(&format!("define i32 @f(i32 %x) {{ {body} ret i32 %a399 }}"));
        // SAFETY: the function above.
        let f = unsafe { jit.function::<extern "C" fn(i32) -> i32>("f") }.expect("typed");
        std::thread::scope(|scope| {
            let call = scope.spawn(|| f.call(0));
            std::thread::sleep(Duration::from_micros(100 * round));
            replace(&jit, "define i32 @f(i32 %x) { ret i32 -1 }");
            let result = call.join().expect("returns");
            assert!(result == 200 || result == -1, "{result}");
        });
        assert_eq!(f.call(0), -1);
        jit.rollback().expect("the latest");
        assert_eq!(f.call(0), 200);
    }
}

/// Sets a flag when it goes.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn compiles_that_began_before_are_not_published_after() {
    let jit = jit("define i32 @g() { ret i32 0 }
        define i32 @f() { %x = call i32 @g() ret i32 %x }
        define i32 @e() { %x = call i32 @f() ret i32 %x }");
    let functions = ["e", "f"].map(|name| answer(&jit, name));
    let stop = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        // Also when an assertion fails.
        let _guard = Stop(&stop);
        for name in ["e", "f"] {
            let (jit, stop) = (&jit, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    // Late is no error of the test.
                    let _ = jit.compile_at(name, Tier::Optimized);
                }
            });
        }
        for value in 1..=60 {
            replace(&jit, &format!("define i32 @g() {{ ret i32 {value} }}"));
            for _ in 0..20 {
                for function in &functions {
                    assert_eq!(function.call(), value);
                }
            }
        }
    });
}

#[test]
fn a_promotion_under_way_with_an_old_body_is_dropped() {
    let mut body = String::from("%a0 = call i32 @g()\n");
    for i in 1..120 {
        body += &format!("%a{i} = add i32 %a{}, 0\n", i - 1);
    }
    let jit = jit(&format!(
        "define i32 @g() {{ ret i32 0 }} define i32 @f() {{ {body} ret i32 %a119 }}"
    ));
    let f = answer(&jit, "f");
    for value in 1..=60 {
        // Calls `g` through its slot, so it need not be compiled again.
        jit.compile_at("f", Tier::Baseline).expect("compiles");
        std::thread::scope(|scope| {
            let promotion = scope.spawn(|| jit.compile_at("f", Tier::Optimized));
            std::thread::sleep(Duration::from_micros(200 * (value as u64 % 20)));
            replace(&jit, &format!("define i32 @g() {{ ret i32 {value} }}"));
            // Late is no error of the test.
            let _ = promotion.join().expect("no panic");
        });
        assert_eq!(f.call(), value);
        // The next round's promotion has a body to inline.
        replace(
            &jit,
            &format!(
                "define i32 @g() {{ ret i32 {value} }} define i32 @f() {{ {body} ret i32 %a119 }}"
            ),
        );
    }
}

#[test]
fn events_tell_what_was_published() {
    let jit = Jit::builder();
    let log = Arc::new(std::sync::Mutex::new(Vec::new()));
    let sink = Arc::clone(&log);
    let jit = jit.on_event(move |event: &Event| {
        if let Event::Published {
            function, replaced, ..
        } = event
        {
            sink.lock()
                .expect("not poisoned")
                .push((*function, replaced.is_some()));
        }
    });
    let jit = jit.build().expect("a session");
    jit.add_ir("m", "define i32 @f() { ret i32 1 }")
        .expect("valid");
    assert_eq!(answer(&jit, "f").call(), 1);
    replace(&jit, "define i32 @f() { ret i32 2 }");
    let told = log.lock().expect("not poisoned").clone();
    assert_eq!(told, [("f", false), ("f", true)]);
}
