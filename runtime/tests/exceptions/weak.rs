//! Weak definitions that modules share: there is one instance, for every order and form of the
//! modules, at every tier.

use std::sync::atomic::{AtomicI32, Ordering};

use uruk::{Error, Replacement, Tier};

use crate::inline::{
    ADDRESSES, Bitcode, FORMS, NEXT, Object, SHARED, add_source, add_to, c, call, check_shared,
    initialize, int, jit, number_of,
};

#[test]
fn two_modules_share_all_that_is_inline() {
    for forms in [
        [Bitcode, Bitcode],
        [Bitcode, Object],
        [Object, Bitcode],
        [Object, Object],
    ] {
        for level in ["-O0", "-O2"] {
            let jit = jit();
            let main = jit.main();
            for (form, number) in forms.into_iter().zip([1, 2]) {
                let name = format!("shared{number}.cpp");
                add_source(&main, form, &name, SHARED, &[&number_of(number), level]);
            }
            let before = NEXT.load(Ordering::SeqCst);
            initialize(&jit);
            let at = format!("{forms:?} {level}");
            check_shared((&main, 1), (&main, 2), &at);
            // `made`, `Holder<int>::begun`, `count`: once each, and other tests meanwhile.
            assert!(NEXT.load(Ordering::SeqCst) >= before + 3, "{at}");
            if forms == [Bitcode, Bitcode] {
                for tier in [Tier::Optimized, Tier::Guided] {
                    for what in ADDRESSES.into_iter().chain(["count", "sides", "catch"]) {
                        for number in [1, 2] {
                            let name = format!("{what}_{number}");
                            jit.compile_at(&name, tier).expect("compiles");
                        }
                    }
                    check_shared((&main, 1), (&main, 2), &format!("{at} {tier:?}"));
                }
            }
        }
    }
}

const COUNTED: &str = r#"
extern "C" int host_once(void);
inline int made = host_once();
extern "C" int NAME(void) { return made; }
"#;

static ONCE: AtomicI32 = AtomicI32::new(0);

extern "C" fn host_once() -> i32 {
    ONCE.fetch_add(1, Ordering::SeqCst) + 1
}

#[test]
fn an_inline_variable_is_initialized_once() {
    let mut expected = 0;
    for forms in [
        [Bitcode, Bitcode],
        [Bitcode, Object],
        [Object, Bitcode],
        [Object, Object],
    ] {
        for together in [true, false] {
            let jit = jit();
            // SAFETY: a function of this file, of the type the modules declare.
            unsafe {
                jit.main()
                    .define_address("host_once", host_once as *const ())
            }
            .expect("new");
            expected += 1;
            for (form, name) in forms.into_iter().zip(["one", "two"]) {
                let flag = format!("-DNAME={name}");
                add_source(&jit.main(), form, "counted.cpp", COUNTED, &[&flag]);
                if !together {
                    initialize(&jit);
                }
            }
            initialize(&jit);
            for name in ["one", "two"] {
                assert_eq!(int(&jit.main(), name), expected, "{forms:?} {together}");
            }
            assert_eq!(
                ONCE.load(Ordering::SeqCst),
                expected,
                "{forms:?} {together}"
            );
        }
    }
}

#[test]
fn tentative_definitions_are_one_variable() {
    for [first, second] in FORMS {
        let main = jit().main();
        c(&main, first, "int x[4]; int *one(void) { return x; }").expect("added");
        c(&main, second, "int x[2]; int *two(void) { return x; }").expect("smaller");
        assert_eq!(
            call(&main, "one"),
            call(&main, "two"),
            "{first:?} {second:?}"
        );
        let error = c(&main, second, "int x[8]; int *three(void) { return x; }").unwrap_err();
        assert!(
            matches!(
                &error,
                Error::CommonSize {
                    size: 32,
                    defined: 16,
                    ..
                }
            ),
            "{error} {first:?} {second:?}"
        );
        assert!(main.lookup("three").is_err());
        // It is in use, and counts as strong.
        let error = c(&main, second, "int x[4] = {1};").unwrap_err();
        assert!(error.to_string().contains('x'), "{error}");
        assert_eq!(call(&main, "one"), call(&main, "two"));
    }
}

#[test]
fn what_is_weak_yields_to_what_is_strong_and_there() {
    for [first, second] in FORMS {
        let main = jit().main();
        c(
            &main,
            first,
            "int x = 5, y = 6; int *one(void) { return &x; }",
        )
        .expect("strong");
        let weak = "int x __attribute__((weak)) = 7; int y; int *pointer = &x;
                    int *two(void) { return &x; } int *three(void) { return pointer; }
                    int four(void) { return y; }";
        c(&main, second, weak).expect("weak");
        let one = call(&main, "one");
        assert_eq!(call(&main, "two"), one, "{first:?} {second:?}");
        assert_eq!(call(&main, "three"), one, "{first:?} {second:?}");
        assert_eq!(main.lookup("x").expect("there"), one);
        assert_eq!(int(&main, "four"), 6);
    }
}

#[test]
fn what_is_strong_and_comes_later_is_a_duplicate() {
    for [first, second] in FORMS {
        let main = jit().main();
        let weak = "int x __attribute__((weak)) = 7; int *one(void) { return &x; }";
        c(&main, first, weak).expect("weak");
        let error = c(&main, second, "int x = 5; int *two(void) { return &x; }").unwrap_err();
        assert!(error.to_string().contains('x'), "{error}");
        assert!(main.lookup("two").is_err(), "{first:?} {second:?}");
        assert_eq!(main.lookup("x").expect("there"), call(&main, "one"));
    }
}

#[test]
fn something_else_of_the_name_is_a_duplicate() {
    let main = jit().main();
    c(&main, Bitcode, "int x(void) { return 1; }").expect("a function");
    for form in [Bitcode, Object] {
        let error = c(&main, form, "int x __attribute__((weak)) = 7;").unwrap_err();
        assert!(matches!(error, Error::DuplicateSymbol { .. }), "{error}");
    }
}

#[test]
fn groups_are_lost_with_their_constructors() {
    let jit = jit();
    let module = |number: u32| {
        format!(
            "$k = comdat any
             @k = linkonce_odr global i32 0, comdat
             @begun = external global i32
             @llvm.global_ctors = appending global [1 x {{ i32, ptr, ptr }}]
               [{{ i32, ptr, ptr }} {{ i32 65535, ptr @begin, ptr @k }}]
             define internal void @begin() comdat($k) {{
               %n = load i32, ptr @begun
               %m = add i32 %n, 1
               store i32 %m, ptr @begun
               ret void }}
             define i32 @f() comdat($k) {{ ret i32 {number} }}
             define i32 @g{number}() {{ %r = call i32 @f() ret i32 %r }}"
        )
    };
    jit.add_ir(
        "begun",
        "@begun = global i32 0 define i32 @read() { %n = load i32, ptr @begun ret i32 %n }",
    )
    .expect("valid");
    for number in 1..=3 {
        jit.add_ir("group", &module(number)).expect("valid");
        initialize(&jit);
    }
    let main = jit.main();
    assert_eq!(int(&main, "read"), 1);
    for number in 1..=3 {
        assert_eq!(int(&main, &format!("g{number}")), 1);
    }
}

#[test]
fn a_failed_add_leaves_everything_as_it_was() {
    for [first, second] in FORMS {
        let jit = jit();
        let main = jit.main();
        let tracker = main.create_tracker().expect("a tracker");
        let weak = "int x __attribute__((weak)) = 7; int *one(void) { return &x; }";
        add_to(
            first,
            "first.c",
            weak,
            &[],
            |name, bytes, form| match form {
                Bitcode => tracker.add_bitcode(name, bytes),
                Object => tracker.add_object(name, bytes),
            },
        )
        .expect("weak");
        let one = call(&main, "one");
        let broken = "int x __attribute__((weak)) = 7; int z __attribute__((weak)) = 1;
                      int nowhere(void); int *two(void) { return &x + nowhere(); }
                      int (*pointer)(void) = nowhere;";
        assert!(c(&main, second, broken).is_err());
        assert!(main.lookup("z").is_err(), "{first:?} {second:?}");
        assert!(main.lookup("two").is_err(), "{first:?} {second:?}");
        assert_eq!(main.lookup("x").expect("there"), one);
        // No module is bound to it: it goes.
        // SAFETY: no thread uses it any more.
        unsafe { tracker.remove() }.expect("once");
        assert!(main.lookup("x").is_err(), "{first:?} {second:?}");
        c(&main, second, "int x = 5;").expect("free");
    }
}

#[test]
fn modules_that_are_added_at_once_share() {
    for _ in 0..10 {
        let jit = jit();
        let module = |number: usize| {
            format!(
                "@x = linkonce_odr global i32 7
                 @y = linkonce_odr global ptr @x
                 define linkonce_odr ptr @f() {{ ret ptr @x }}
                 define ptr @x{number}() {{ %p = load ptr, ptr @y ret ptr %p }}
                 define ptr @y{number}() {{ ret ptr @y }}
                 define ptr @z{number}() {{ %p = call ptr @f() ret ptr %p }}"
            )
        };
        std::thread::scope(|scope| {
            for number in 0..4 {
                let jit = &jit;
                scope.spawn(move || jit.add_ir("m", &module(number)).expect("added"));
            }
        });
        let main = jit.main();
        for number in 1..4 {
            for what in ["x", "y", "z"] {
                let other = format!("{what}{number}");
                assert_eq!(call(&main, &other), call(&main, &format!("{what}0")));
            }
        }
        assert_eq!(call(&main, "x0"), call(&main, "z0"));
    }
}

#[test]
fn a_module_that_is_replaced_keeps_its_weak_data() {
    let jit = jit();
    let main = jit.main();
    let module = |number: u32, step: i32| {
        format!(
            "@count = linkonce_odr global i32 10
             define linkonce_odr i32 @next() noinline {{
               %c = load i32, ptr @count
               %n = add i32 %c, {step}
               store i32 %n, ptr @count
               ret i32 %n }}
             define i32 @next{number}() {{ %n = call i32 @next() ret i32 %n }}
             define ptr @at{number}() {{ ret ptr @count }}"
        )
    };
    jit.add_ir("one", &module(1, 1)).expect("valid");
    jit.add_ir("two", &module(2, 1)).expect("valid");
    let at = call(&main, "at1");
    assert_eq!(int(&main, "next1"), 11);
    for number in [1, 2] {
        let new = Replacement::ir("again", &module(number, 100 * number as i32));
        main.replace(new).expect("replaced");
    }
    assert_eq!(int(&main, "next1"), 211);
    assert_eq!(int(&main, "next2"), 411);
    for name in ["at1", "at2"] {
        assert_eq!(call(&main, name), at);
    }
}
