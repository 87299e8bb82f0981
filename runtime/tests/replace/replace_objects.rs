//! Replacing functions by those of object files, and functions of object files.

use crate::clang;

use std::time::Duration;

use uruk::{Error, Jit, Level, ReclaimKind, ReplaceError, Replaced, Replacement, Tier};

type Answer = extern "C" fn() -> i32;

fn object(source: &str, flags: &[&str]) -> Vec<u8> {
    clang::compile("replace_objects", "part.c", source, flags)
}

fn jit() -> Jit {
    Jit::builder().jobs(2).build().expect("a session")
}

/// Calls a function by its address.
fn call(jit: &Jit, name: &str) -> i32 {
    let address = jit.lookup(name).expect("defined");
    // SAFETY: functions of the tests, of this type.
    let function = unsafe { std::mem::transmute::<u64, Answer>(address) };
    function()
}

fn by_object(jit: &Jit, source: &str) -> Replaced {
    let flags = ["-O2", "-fPIC", "-fsemantic-interposition"];
    let new = Replacement::object("new.o", object(source, &flags));
    jit.main().replace(new).expect("replaceable")
}

/// Why a replacement was refused.
fn refused(jit: &Jit, new: Replacement) -> ReplaceError {
    match jit.main().replace(new) {
        Err(Error::Replace(cause)) => (*cause).clone(),
        other => panic!("{other:?}"),
    }
}

const IR: &str = "@total = global i32 5
    @table = global [2 x ptr] [ptr @f, ptr @g]
    define i32 @f() { %t = load i32, ptr @total %x = add i32 %t, 1 store i32 %x, ptr @total ret i32 %x }
    define i32 @g() { ret i32 10 }
    define i32 @h() { %x = call i32 @f() %y = call i32 @g() %z = mul i32 %x, %y ret i32 %z }
    define i32 @through() { %p = load ptr, ptr @table %x = call i32 %p() ret i32 %x }";

#[test]
fn an_object_takes_the_place_of_compiled_functions() {
    let jit = jit();
    jit.add_ir("m", IR).expect("valid");
    assert_eq!((call(&jit, "f"), call(&jit, "h")), (6, 70));
    let address = jit.lookup("f").expect("defined");
    let replaced = by_object(
        &jit,
        "int total = 99; int extra = 3; extern int g(void);
        int added(void) { return g() + extra; }
        int f(void) { total += 100; return total + added(); }",
    );
    assert_eq!(replaced.functions, ["f"]);
    assert_eq!(replaced.added, ["added"]);
    assert_eq!(replaced.globals_kept, ["total"]);
    assert_eq!(replaced.globals_added, ["extra"]);
    assert_eq!(jit.lookup("f").expect("defined"), address);
    assert_eq!(jit.tier("f").expect("known"), None);
    // 107 + 13; then through the caller, and through a pointer in data.
    assert_eq!(call(&jit, "f"), 120);
    assert_eq!(call(&jit, "h"), 220 * 10);
    assert_eq!(call(&jit, "through"), 320);
    // Functions that the object calls can be replaced, too, and so can functions that it brought.
    let ir = "define i32 @g() { ret i32 20 } define i32 @added() { ret i32 0 }";
    jit.main()
        .replace(Replacement::ir("again", ir).allow_parts(true))
        .expect("replaceable");
    assert_eq!(call(&jit, "f"), 407);
    jit.rollback().expect("kept");
    assert_eq!(call(&jit, "f"), 507 + 13);
    jit.rollback().expect("kept");
    assert_eq!((call(&jit, "f"), call(&jit, "g")), (508, 10));
    assert!(jit.rollback().is_err());
    // And again, after it was rolled back.
    by_object(&jit, "int f(void) { return 1; }");
    assert_eq!((call(&jit, "f"), call(&jit, "h")), (1, 10));
}

#[test]
fn what_depends_on_a_function_that_an_object_replaces_is_compiled_again() {
    let jit = jit();
    jit.add_ir("m", IR).expect("valid");
    jit.compile_at("h", Tier::Optimized).expect("compiles");
    assert_eq!(call(&jit, "h"), 60);
    let replaced = by_object(&jit, "int g(void) { return 7; }");
    assert_eq!(replaced.dependents, ["h"]);
    assert_eq!(call(&jit, "h"), 49);
    // Code that is compiled from now on takes nothing from the old body.
    jit.compile_at("h", Tier::Optimized).expect("compiles");
    assert_eq!(call(&jit, "h"), 56);
    jit.rollback().expect("kept");
    jit.compile_at("h", Tier::Optimized).expect("compiles");
    assert_eq!(call(&jit, "h"), 90);
}

const OBJECT: &str = "int state = STATE; static int own = 1;
    int g(void) { return VALUE; }
    int f(void) { return g() * 2 + state++ + own++; }
    int (*const table[])(void) = { f, g };
    int through(void) { return table[1](); }
    __attribute__((weak)) int weak(void) { return VALUE + 1; }
    int both(void) { return weak() + g(); }";

fn version(value: i32, flags: &[&str]) -> Vec<u8> {
    let source = OBJECT.replace("VALUE", &value.to_string());
    object(&source.replace("STATE", &value.to_string()), flags)
}

#[test]
fn an_object_is_replaced_as_a_whole() {
    for flags in [
        &["-O0"][..],
        &["-O2"],
        &["-O2", "-fPIC"],
        &["-O2", "-ffunction-sections"],
    ] {
        let jit = jit();
        jit.main()
            .add_object("first.o", version(1, flags))
            .expect("valid");
        jit.add_ir(
            "m",
            "declare i32 @f() define i32 @user() { %x = call i32 @f() ret i32 %x }",
        )
        .expect("valid");
        assert_eq!(
            (call(&jit, "f"), call(&jit, "through"), call(&jit, "both")),
            (4, 1, 3)
        );
        for value in 2..5 {
            let new = Replacement::object("next.o", version(value * 10, flags));
            let replaced = jit.main().replace(new).expect("whole");
            let mut functions = replaced.functions.clone();
            functions.sort_unstable();
            assert_eq!(functions, ["both", "f", "g", "through", "weak"]);
            assert_eq!(replaced.locals_new, ["own"]);
            assert!(replaced.globals_kept.iter().any(|name| name == "state"));
            // `state` goes on, `own` begins anew.
            let f = call(&jit, "f");
            assert_eq!(f, value * 20 + value + 1, "{flags:?}");
            assert_eq!(
                (call(&jit, "through"), call(&jit, "g")),
                (value * 10, value * 10)
            );
            assert_eq!(call(&jit, "both"), value * 20 + 1);
        }
        assert_eq!(call(&jit, "user"), 80 + 5 + 2);
        jit.rollback().expect("kept");
        assert_eq!((call(&jit, "through"), call(&jit, "both")), (30, 61));
    }
}

#[test]
fn parts_of_an_object_are_replaced_if_it_says_that_they_are_apart() {
    let part = || Replacement::object("part.o", object("int g(void) { return 7; }", &["-O2"]));
    let record = "-frecord-gcc-switches";
    for flags in [
        &["-O2"][..],
        &["-O2", "-fPIC", record],
        &["-O2", "-ffunction-sections"],
    ] {
        let jit = jit();
        jit.main()
            .add_object("first.o", version(1, flags))
            .expect("valid");
        let cause = refused(&jit, part());
        let ReplaceError::Parts { old, missing } = &cause else {
            panic!("{cause}")
        };
        let mut missing = missing.clone();
        missing.sort_unstable();
        assert_eq!((old.as_str(), missing.len()), ("first.o", 4));
        assert!(
            cause.to_string().contains("-fsemantic-interposition"),
            "{cause}"
        );
        // Bitcode is held to the same.
        let ir = Replacement::ir("new", "define i32 @g() { ret i32 7 }");
        assert!(matches!(refused(&jit, ir), ReplaceError::Parts { .. }));
        assert_eq!((call(&jit, "f"), call(&jit, "g")), (4, 1));
        assert!(jit.rollback().is_err());
    }
    let apart = ["-O2", "-fPIC", "-fsemantic-interposition", record];
    for (flags, allow) in [
        (&apart[..], false),
        (&["-O0", record], false),
        (&["-O0"], true),
    ] {
        let jit = jit();
        jit.main()
            .add_object("first.o", version(1, flags))
            .expect("valid");
        assert_eq!((call(&jit, "f"), call(&jit, "both")), (4, 3));
        let replaced = jit
            .main()
            .replace(part().allow_parts(allow))
            .expect("apart");
        assert_eq!(replaced.functions, ["g"]);
        // Callers inside the object reach it.
        assert_eq!(
            (call(&jit, "f"), call(&jit, "both"), call(&jit, "through")),
            (18, 9, 7)
        );
        // The rest of the object is all of it now.
        let rest = OBJECT.replace("int g(void) { return VALUE; }", "int g(void);");
        let rest = rest.replace("VALUE", "5").replace("STATE", "5");
        let new = Replacement::object("rest.o", object(&rest, &["-O2"]));
        let replaced = jit.main().replace(new).expect("the whole rest");
        assert_eq!(replaced.functions.len(), 4);
        assert_eq!((call(&jit, "g"), call(&jit, "both")), (7, 13));
    }
}

#[test]
fn a_failure_changes_nothing() {
    let jit = jit();
    jit.main()
        .add_object("first.o", version(1, &["-O2"]))
        .expect("valid");
    jit.add_ir(
        "m",
        "define i32 @resolved() { ret i32 3 } @word = global i64 7
        @fixed = constant i32 6",
    )
    .expect("valid");
    let check = |jit: &Jit, what: &str| {
        assert_eq!((call(jit, "through"), call(jit, "both")), (1, 3), "{what}");
        assert!(jit.lookup("added").is_err(), "{what}");
        assert!(jit.lookup("fresh").is_err(), "{what}");
    };
    let good = OBJECT.replace("VALUE", "9").replace("STATE", "9");
    let good = format!("{good} int fresh = 3; int added(void) {{ return fresh; }}");
    let faults = [
        (
            "undefined",
            "extern int gone(void); int resolved(void) { return gone(); }",
        ),
        ("size of compiled data", "int word = 1;"),
        ("constant", "const int fixed = 7;"),
        ("variable", "int resolved = 1;"),
        ("function", "int word(void) { return 1; }"),
        (
            "ifunc",
            "static int one(void) { return 1; } static void *pick(void) { return one; }
            int chosen(void) __attribute__((ifunc(\"pick\")));",
        ),
    ];
    for (what, fault) in faults {
        let new = Replacement::object("new.o", object(&format!("{good}\n{fault}"), &["-O1"]));
        let error = jit.main().replace(new).expect_err(what);
        match what {
            "undefined" => assert!(error.to_string().contains("gone"), "{error}"),
            "size of compiled data" => assert!(error.to_string().contains("8 bytes"), "{error}"),
            "constant" => assert!(error.to_string().contains("`fixed` changed"), "{error}"),
            _ => assert!(matches!(error, Error::Replace(_)), "{what}: {error}"),
        }
        check(&jit, what);
    }
    let grown = good.replace("int state = 9", "long state = 9");
    let cause = refused(&jit, Replacement::object("new.o", object(&grown, &["-O2"])));
    assert!(
        matches!(
            &cause,
            ReplaceError::Global {
                old_size: 4,
                new_size: 8,
                ..
            }
        ),
        "{cause}"
    );
    let nothing = Replacement::object("new.o", object("int other(void) { return 1; }", &[]));
    assert!(matches!(
        refused(&jit, nothing),
        ReplaceError::Nothing { .. }
    ));
    let damaged = Replacement::object("new.o", &b"\x7fELF"[..]);
    assert!(matches!(jit.main().replace(damaged), Err(Error::Link(_))));
    check(&jit, "all");
    assert!(jit.rollback().is_err());
    jit.main()
        .replace(Replacement::object("new.o", object(&good, &["-O2"])))
        .expect("good");
    assert_eq!((call(&jit, "through"), call(&jit, "added")), (9, 3));
}

#[test]
fn memory_that_runs_out_half_way_changes_nothing() {
    let jit = Jit::builder()
        .memory_limit(1 << 20)
        .build()
        .expect("a session");
    let set = |value: i32| {
        let mut text = format!("char big{value}[65536] = {{1}};\n");
        for i in 0..8 {
            text += &format!("int f{i}(void) {{ return {value}; }}\n");
        }
        Replacement::object("new.o", object(&text, &["-O1"]))
    };
    let ir: String = (0..8)
        .map(|i| format!("define i32 @f{i}() {{ ret i32 0 }}\n"))
        .collect();
    jit.add_ir("m", &ir).expect("fits");
    let mut value = 0;
    let failed = loop {
        match jit.main().replace(set(value + 1)) {
            Ok(_) => value += 1,
            Err(cause) => break cause,
        }
        assert!(value < 40, "1 MiB never runs out");
    };
    assert!(
        matches!(failed, Error::Heap(_) | Error::Stub(_)),
        "{failed}"
    );
    assert!(value > 0);
    for i in 0..8 {
        assert_eq!(call(&jit, &format!("f{i}")), value);
    }
    assert!(jit.lookup(&format!("big{}", value + 1)).is_err());
}

#[test]
fn a_quiescent_replacement_waits_for_those_who_are_inside() {
    let jit = jit();
    let source = |value: i32| {
        format!(
            "extern int usleep(unsigned); extern volatile int entered, leave;
            static __attribute__((noinline)) int inner(void)
            {{ entered = 1; while (!leave) usleep(100); return {value}; }}
            int f(void) {{ return inner() + 0 * entered; }}"
        )
    };
    jit.add_ir("data", "@entered = global i32 0 @leave = global i32 0")
        .expect("valid");
    jit.main()
        .add_object("first.o", object(&source(1), &["-O2"]))
        .expect("valid");
    let next = object(&source(2), &["-O2"]);
    let new = |wait| {
        let new = Replacement::object("new.o", next.clone());
        new.level(Level::Quiescent { wait })
    };
    let at = |name: &str| jit.lookup(name).expect("defined") as *mut i32;
    let (entered, leave) = (at("entered"), at("leave"));
    std::thread::scope(|scope| {
        let inside = scope.spawn(|| call(&jit, "f"));
        // SAFETY: a variable of the session.
        while unsafe { entered.read_volatile() } == 0 {
            std::thread::yield_now();
        }
        let named = |outcome: &Result<_, Error>| match outcome {
            Err(Error::Replace(cause)) => match &**cause {
                ReplaceError::StillRunning { activations } => {
                    activations.iter().any(|a| a.functions == ["f"])
                }
                _ => false,
            },
            _ => false,
        };
        // A thread that has no processor meanwhile is not named: then with more time.
        let mut outcome = jit.main().replace(new(Duration::from_millis(50)));
        for ms in [500, 5_000, 50_000] {
            if named(&outcome) {
                break;
            }
            outcome = jit.main().replace(new(Duration::from_millis(ms)));
        }
        // SAFETY: as above. Before anything can fail: the thread must end.
        unsafe { leave.write_volatile(1) };
        assert!(named(&outcome), "{outcome:?}");
        jit.main()
            .replace(new(Duration::from_secs(120)))
            .expect("leaves");
        assert_eq!(inside.join().expect("returns"), 1);
    });
    assert_eq!(call(&jit, "f"), 2);
}

#[test]
fn memory_of_replaced_objects_is_freed_unless_it_may_be_known() {
    let jit = Jit::builder()
        .replacements_kept(1)
        .build()
        .expect("a session");
    jit.add_ir(
        "m",
        "define i32 @f() { ret i32 0 } define i32 @g() { ret i32 0 }",
    )
    .expect("valid");
    let held = || {
        jit.reclaim(ReclaimKind::Evacuate, Duration::from_secs(5));
        jit.stats().memory.held
    };
    // Direct operands give no address away.
    let apart = |value: i32| {
        format!(
            "static double scale[64]; static int count;
            __attribute__((noinline)) static int more(int x) {{ return x + count++; }}
            int f(void) {{ return more({value}) + (int)scale[3]; }}
            int g(void) {{ return f() - {value}; }}"
        )
    };
    let apart = [1, 2].map(|value| object(&apart(value), &["-O2"]));
    let mut before = 0;
    for turn in 0..2_000 {
        let new = Replacement::object("new.o", apart[turn % 2].clone());
        jit.main().replace(new).expect("replaceable");
        assert_eq!((call(&jit, "f"), call(&jit, "g")), (turn as i32 % 2 + 1, 1));
        if turn == 50 {
            before = held();
        }
    }
    let after = held();
    // Each takes 800 bytes; between what is left, 64 of code stay free until code is moved.
    assert!(after <= before + (200 << 10), "{before} grew to {after}");
    // A string that the program keeps.
    let text = |value: i32| {
        format!(
            "const char *name; int f(void) {{ name = \"text {value}\"; return {value}; }}
            int g(void) {{ return *name; }}"
        )
    };
    by_object(&jit, &text(1));
    assert_eq!(call(&jit, "f"), 1);
    for value in 2..=4 {
        by_object(&jit, &text(value));
    }
    held();
    assert_eq!(call(&jit, "g"), i32::from(b't'));
}

#[test]
fn constructors_run_on_request() {
    let jit = jit();
    jit.add_ir("m", "@order = global i32 0 define i32 @f() { ret i32 1 }")
        .expect("valid");
    let log = || {
        let at = jit.lookup("order").expect("defined") as *const i32;
        // SAFETY: a variable of the session.
        unsafe { at.read_volatile() }
    };
    let source = "extern int order, f(void); int made;
        __attribute__((constructor(200))) static void second(void) { order = order * 10 + 2; made = 7; }
        __attribute__((constructor(101))) static void first(void) { order = order * 10 + 1; }
        __attribute__((constructor)) static void third(void) { order = order * 10 + 3 * f(); }
        __attribute__((destructor)) static void gone(void) { order = order * 10 + 9; }
        int f(void) { return made; }";
    let inputs = || {
        let bitcode = clang::compile("replace_objects", "part.c", source, &["-O0", "-emit-llvm"]);
        let code = object(source, &["-O2", "-fPIC", "-fsemantic-interposition"]);
        [
            Replacement::object("new.o", code),
            Replacement::bitcode("new.bc", bitcode),
        ]
    };
    for new in inputs() {
        let replaced = jit.main().replace(new).expect("replaceable");
        assert_eq!((call(&jit, "f"), log()), (0, 0));
        let mut skipped = replaced.constructors_skipped.clone();
        skipped.sort_unstable();
        assert_eq!(skipped, ["first", "gone", "second", "third"]);
        jit.rollback().expect("kept");
    }
    for new in inputs() {
        let jit = Jit::new().expect("a session");
        jit.add_ir("m", "@order = global i32 0 define i32 @f() { ret i32 1 }")
            .expect("valid");
        let at = jit.lookup("order").expect("defined") as *const i32;
        // SAFETY: constructors of the source above, which only compute.
        let new = unsafe { new.run_constructors() };
        let replaced = jit.main().replace(new).expect("replaceable");
        assert_eq!(replaced.constructors_skipped, [""; 0]);
        // The third saw the old `f`.
        // SAFETY: a variable of the session.
        assert_eq!((call(&jit, "f"), unsafe { at.read_volatile() }), (7, 123));
        // SAFETY: destructors of the source above.
        unsafe { jit.deinitialize() };
        // SAFETY: as above.
        assert_eq!(unsafe { at.read_volatile() }, 1239);
    }
}
