//! Weak definitions that modules share: one instance, whoever came first, in whatever form, at
//! every tier, within a dylib and over those it searches.

use std::ffi::c_void;
use std::sync::atomic::{AtomicI32, Ordering};

use uruk::{Dylib, Error, Jit, Replacement, Tier};

#[path = "support/clang.rs"]
mod clang;

/// What a C++ module has, with `N` as its number: names that end in it are its own, all others
/// are in each of them.
const SHARED: &str = r#"
#include <typeinfo>
#define PASTE(a, b) a##b
#define NAME2(a, b) PASTE(a, b)
#define OWN(name) NAME2(name, N)
extern "C" int host_next(void);

inline int made = host_next();
struct Shape {
  virtual ~Shape() {}
  virtual int sides() const { return 0; }
};
struct Square : Shape {
  int sides() const override { return 4; }
};
struct Thrown { int value; };
template <class T> struct Holder { static T value; static T begun; };
template <class T> T Holder<T>::value = 3;
template <class T> T Holder<T>::begun = host_next();
inline int &counter() { static int count = host_next(); return count; }
inline const int table[] = {2, 3, 5, 7};
inline int twice(int x) { return x + x; }

extern "C" {
const void *OWN(made_)() { return &made; }
int OWN(made_value_)() { return made; }
const void *OWN(counter_)() { return &counter(); }
int OWN(count_)() { return ++counter(); }
const void *OWN(value_)() { return &Holder<int>::value; }
const void *OWN(begun_)() { return &Holder<int>::begun; }
const void *OWN(table_)() { return table; }
int OWN(entry_)(int i) { return table[i & 3]; }
const void *OWN(twice_)() { return (const void *)(int (*)(int))twice; }
const void *OWN(type_)() { return &typeid(Square); }
Shape *OWN(make_)() { return new Square; }
const void *OWN(table_of_)() {
  Square square;
  return *(const void **)&square;
}
int OWN(sides_)(Shape *shape) {
  Square *square = dynamic_cast<Square *>(shape);
  return square ? square->sides() : -1;
}
void OWN(throw_)(int value) { throw Thrown{value}; }
void OWN(drop_)(Shape *shape) { delete shape; }
void throw_1(int);
int OWN(catch_)(int value) {
  try {
    throw_1(value);
  } catch (const Thrown &thrown) {
    return thrown.value;
  } catch (...) {
    return -2;
  }
  return -3;
}
}
"#;

/// Exceptions pass through JIT'd frames.
///
/// # Safety
/// As libgcc's.
#[unsafe(no_mangle)]
unsafe extern "C" fn _Unwind_Find_FDE(
    pc: *mut c_void,
    bases: *mut uruk::DwarfEhBases,
) -> *const c_void {
    // SAFETY: by the caller's promise.
    unsafe { uruk::find_fde(pc, bases) }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Bitcode,
    Object,
}

use Form::{Bitcode, Object};

fn add_source(dylib: &Dylib, form: Form, name: &str, source: &str, flags: &[&str]) {
    add_to(form, name, source, flags, |name, bytes, form| match form {
        Bitcode => dylib.add_bitcode(name, bytes),
        Object => dylib.add_object(name, bytes),
    })
    .expect("added");
}

fn add_to(
    form: Form,
    name: &str,
    source: &str,
    flags: &[&str],
    add: impl FnOnce(&str, Vec<u8>, Form) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut all = vec!["-O0", "-fPIC"];
    if form == Bitcode {
        all.push("-emit-llvm");
    }
    all.extend(flags);
    add(name, clang::compile("weak", name, source, &all), form)
}

fn number_of(number: u32) -> String {
    format!("-DN={number}")
}

fn call(dylib: &Dylib, name: &str) -> u64 {
    let address = dylib.lookup(name).expect(name);
    // SAFETY: a function of the tests without parameters, which returns a word or less.
    let function = unsafe { std::mem::transmute::<u64, extern "C" fn() -> u64>(address) };
    function()
}

fn call_with(dylib: &Dylib, name: &str, argument: u64) -> u64 {
    let address = dylib.lookup(name).expect(name);
    // SAFETY: a function of the tests with one parameter, as above.
    let function = unsafe { std::mem::transmute::<u64, extern "C" fn(u64) -> u64>(address) };
    function(argument)
}

/// The low half: what functions that return an `int` say.
fn int(dylib: &Dylib, name: &str) -> i32 {
    call(dylib, name) as i32
}

fn int_with(dylib: &Dylib, name: &str, argument: u64) -> i32 {
    call_with(dylib, name, argument) as i32
}

static NEXT: AtomicI32 = AtomicI32::new(100);

extern "C" fn host_next() -> i32 {
    NEXT.fetch_add(1, Ordering::SeqCst)
}

fn jit() -> Jit {
    let jit = Jit::builder().jobs(2).build().expect("a session");
    provide(&jit.main());
    jit
}

fn provide(dylib: &Dylib) {
    // SAFETY: a function of this file, of the type the modules declare.
    unsafe { dylib.define("host_next", host_next as *const ()) }.expect("new");
}

fn initialize(jit: &Jit) {
    // SAFETY: the tests' own modules.
    unsafe { jit.initialize() };
}

const ADDRESSES: [&str; 8] = [
    "made", "counter", "value", "begun", "table", "twice", "type", "table_of",
];

/// All that the modules of numbers `one` and `two`, in these dylibs, share.
fn check_shared(one: (&Dylib, u32), two: (&Dylib, u32), at: &str) {
    let name = |what: &str, number: u32| format!("{what}_{number}");
    for what in ADDRESSES {
        let here = call(one.0, &name(what, one.1));
        assert_eq!(here, call(two.0, &name(what, two.1)), "{what} {at}");
        assert_ne!(here, 0, "{what} {at}");
    }
    let value = |of: (&Dylib, u32)| int(of.0, &name("made_value", of.1));
    assert_eq!(value(one), value(two), "{at}");
    assert!(value(one) >= 100, "not initialized {at}");
    let before = int(one.0, &name("count", one.1));
    assert_eq!(int(two.0, &name("count", two.1)), before + 1, "{at}");
    for (maker, taker) in [(one, two), (two, one)] {
        let shape = call(maker.0, &name("make", maker.1));
        assert_eq!(int_with(taker.0, &name("sides", taker.1), shape), 4, "{at}");
        call_with(taker.0, &name("drop", taker.1), shape);
    }
    for (dylib, number) in [one, two] {
        assert_eq!(int_with(dylib, &name("entry", number), 3), 7, "{at}");
        assert_eq!(int_with(dylib, &name("catch", number), 9), 9, "{at}");
    }
}

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
            unsafe { jit.define("host_once", host_once as *const ()) }.expect("new");
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

fn c(dylib: &Dylib, form: Form, source: &str) -> Result<(), Error> {
    add_to(
        form,
        "module.c",
        source,
        &["-fcommon"],
        |name, bytes, form| match form {
            Bitcode => dylib.add_bitcode(name, bytes),
            Object => dylib.add_object(name, bytes),
        },
    )
}

const FORMS: [[Form; 2]; 4] = [
    [Bitcode, Bitcode],
    [Bitcode, Object],
    [Object, Bitcode],
    [Object, Object],
];

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
fn dylibs_share_by_link_order() {
    for [first, second] in FORMS {
        let jit = jit();
        let below = jit.create_dylib("below").expect("new");
        provide(&below);
        let above = jit.create_dylib("above").expect("new");
        above.add_to_link_order(&below).expect("alive");
        provide(&above);
        let apart = jit.create_dylib("apart").expect("new");
        provide(&apart);
        add_source(&below, first, "below.cpp", SHARED, &["-DN=1"]);
        add_source(&above, second, "above.cpp", SHARED, &["-DN=2"]);
        add_source(&apart, second, "apart.cpp", SHARED, &["-DN=1"]);
        initialize(&jit);
        let at = format!("{first:?} {second:?}");
        check_shared((&below, 1), (&above, 2), &at);
        assert_ne!(call(&apart, "made_1"), call(&below, "made_1"), "{at}");
    }
}

#[test]
fn what_is_hidden_is_shared_within_its_dylib_only() {
    for [first, second] in FORMS {
        let jit = jit();
        let below = jit.create_dylib("below").expect("new");
        let above = jit.create_dylib("above").expect("new");
        above.add_to_link_order(&below).expect("alive");
        let source = "int x __attribute__((weak, visibility(\"hidden\"))) = 1;";
        let with = |name: &str| format!("{source} int *{name}(void) {{ return &x; }}");
        c(&below, first, &with("one")).expect("added");
        c(&below, second, &with("two")).expect("added");
        c(&above, second, &with("three")).expect("added");
        assert_eq!(call(&below, "one"), call(&below, "two"));
        assert_ne!(call(&below, "one"), call(&above, "three"));
    }
}

/// A library of the process has an inline variable, a class, and a local static.
#[test]
fn the_process_is_part_of_the_search() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("weak-library");
    std::fs::create_dir_all(&folder).expect("a folder");
    let source = r#"
        #include <typeinfo>
        inline int shared = 41;
        struct Base { virtual ~Base() {} virtual int f() { return 1; } };
        inline int &counter() { static int count = 10; return count; }
        inline thread_local int here = 3;
        extern "C" {
        const void *OWN(shared)() { return &shared; }
        const void *OWN(type)() { return &typeid(Base); }
        const void *OWN(counter)() { return &counter(); }
        const void *OWN(here)() { return &here; }
        }"#;
    let object = clang::compile(
        "weak",
        "library.cpp",
        source,
        &["-fPIC", "-DOWN(x)=library_##x"],
    );
    let (input, library) = (folder.join("library.o"), folder.join("libweaktest.so"));
    std::fs::write(&input, object).expect("written");
    let status = std::process::Command::new("cc")
        .args(["-shared", "-o"])
        .arg(&library)
        .arg(&input)
        .status();
    assert!(status.expect("a linker").success());
    for form in [Bitcode, Object] {
        let jit = jit();
        jit.add_library(&library.display().to_string())
            .expect("opens");
        let flags = ["-DOWN(x)=module_##x"];
        add_source(&jit.main(), form, "process.cpp", source, &flags);
        let main = jit.main();
        for what in ["shared", "type", "counter", "here"] {
            let theirs = call(&main, &format!("library_{what}"));
            assert_eq!(
                call(&main, &format!("module_{what}")),
                theirs,
                "{what} {form:?}"
            );
        }
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
        // Nobody is bound to it: it goes.
        // SAFETY: nobody uses it any more.
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
