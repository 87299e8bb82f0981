//! Modules that are added before what they need, archives whose members come as they are needed.

use uruk::{Error, GeneratorRequest, Jit, Lookup, Members, SessionError, Visibility};

fn call(jit: &Jit, name: &str) -> i64 {
    // SAFETY: functions of the tests, which take nothing and return a number.
    let function = unsafe { jit.function::<extern "C" fn() -> i64>(name) };
    function.expect("a function").call()
}

/// An error with what it was for.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text += &format!(": {cause}");
        source = cause.source();
    }
    text
}

fn unresolved(jit: &Jit) -> Vec<String> {
    let unresolved = jit.main().unresolved().unwrap().into_iter();
    unresolved.map(|missing| missing.symbol).collect()
}

#[test]
fn by_default_an_input_that_lacks_something_is_refused() {
    let jit = Jit::new().unwrap();
    let error = jit
        .add_ir("m", "@x = external global i64  @p = global ptr @x")
        .unwrap_err();
    assert!(matches!(error, Error::MissingSymbols { .. }), "{error}");
    assert!(jit.lookup("p").is_err());
}

#[test]
fn functions_wait_for_what_they_call_and_others_run_at_once() {
    let jit = Jit::builder().on_failure(fallback()).build().unwrap();
    jit.main().allow_missing(true);
    jit.add_ir(
        "a",
        "declare i64 @later()
         define i64 @now() { ret i64 1 }
         define i64 @waits() { %v = call i64 @later() ret i64 %v }",
    )
    .unwrap();
    assert_eq!(call(&jit, "now"), 1);
    assert_eq!(unresolved(&jit), ["later"]);
    let users = jit.main().unresolved().unwrap().remove(0).needed_by;
    assert_eq!(users, ["a: waits"]);
    assert_eq!(call(&jit, "waits"), -1);
    jit.add_ir("b", "define i64 @later() { ret i64 2 }")
        .unwrap();
    assert_eq!(call(&jit, "waits"), 2);
    assert_eq!(unresolved(&jit), [""; 0]);
}

/// Calls that fail return -1.
fn fallback() -> uruk::FailureHandler {
    extern "C" fn minus_one() -> i64 {
        -1
    }
    extern "C" fn failed(_: uruk::FunctionId) -> u64 {
        minus_one as *const () as u64
    }
    failed
}

#[test]
fn data_and_constructors_wait_for_what_they_refer_to() {
    let jit = Jit::builder().on_failure(fallback()).build().unwrap();
    jit.main().allow_missing(true);
    jit.add_ir(
        "a",
        "@there = external global i64
         @at = global ptr @there
         @ran = global i64 0
         @llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 65535, ptr @init, ptr null }]
         define internal void @init() { store i64 5, ptr @ran ret void }
         define i64 @read() { %p = load ptr, ptr @at %v = load i64, ptr %p ret i64 %v }
         define i64 @has_run() { %v = load i64, ptr @ran ret i64 %v }
         define i64 @free() { ret i64 3 }",
    )
    .unwrap();
    assert_eq!(call(&jit, "free"), 3);
    assert_eq!(call(&jit, "read"), -1);
    let error = chain(&jit.lookup("at").unwrap_err());
    assert!(error.contains("there"), "{error}");
    // SAFETY: constructors of the test's.
    unsafe { jit.initialize() }.expect("initialized");
    assert_eq!(unresolved(&jit), ["there"]);
    jit.add_ir("b", "@there = global i64 42").unwrap();
    assert_eq!(unresolved(&jit), [""; 0]);
    assert_eq!(call(&jit, "has_run"), 0);
    // SAFETY: as above.
    unsafe { jit.initialize() }.expect("initialized");
    assert_eq!(call(&jit, "has_run"), 5);
    assert_eq!(call(&jit, "read"), 42);
    let at = jit.lookup("at").unwrap() as *const u64;
    // SAFETY: a global of the module's.
    assert_eq!(unsafe { *at }, jit.lookup("there").unwrap());
}

#[test]
fn modules_refer_to_each_others_data_and_can_each_go_and_come_back() {
    let jit = Jit::builder().on_failure(fallback()).build().unwrap();
    let main = jit.main();
    main.allow_missing(true);
    let text = |own: &str, other: &str, value: i64| {
        format!(
            "@{other} = external global {{ i64, ptr }}
             @{own} = global {{ i64, ptr }} {{ i64 {value}, ptr @{other} }}
             define i64 @{own}_sees() {{
               %f = getelementptr {{ i64, ptr }}, ptr @{own}, i64 0, i32 1
               %p = load ptr, ptr %f
               %v = load i64, ptr %p
               ret i64 %v
             }}"
        )
    };
    let (a, b) = (
        main.create_tracker().unwrap(),
        main.create_tracker().unwrap(),
    );
    a.add_ir("a", &text("a", "b", 1)).unwrap();
    assert_eq!(unresolved(&jit), ["b"]);
    b.add_ir("b", &text("b", "a", 2)).unwrap();
    assert_eq!(unresolved(&jit), [""; 0]);
    assert_eq!(call(&jit, "a_sees"), 2);
    assert_eq!(call(&jit, "b_sees"), 1);
    // SAFETY: no thread uses its data.
    unsafe { b.remove().unwrap() };
    assert!(jit.lookup("b_sees").is_err());
    let b = main.create_tracker().unwrap();
    b.add_ir("b", &text("b", "a", 3)).unwrap();
    assert_eq!(call(&jit, "b_sees"), 1);
    // Code that was linked against the old data stays so: data is not moved under a running
    // program.
    // SAFETY: as above.
    unsafe { a.remove().unwrap() };
    main.add_ir("a", &text("a", "b", 4)).unwrap();
    assert_eq!(call(&jit, "a_sees"), 3);
}

#[test]
fn one_thread_adds_while_another_keeps_asking() {
    let jit = Jit::builder().on_failure(fallback()).build().unwrap();
    jit.main().allow_missing(true);
    // f0 calls f1 calls f2 ... calls f31, added in an order of its own.
    let order: Vec<usize> = (0..32).map(|n| (n * 13 + 5) % 32).collect();
    let asking = std::thread::spawn({
        let jit = jit.clone();
        move || {
            loop {
                let symbol = jit.intern("f0");
                let lookup = Lookup::new([(jit.main(), Visibility::All)]).weak(symbol);
                if jit.lookup_all(lookup).unwrap().len() == 1 && call(&jit, "f0") == 31 {
                    return;
                }
                std::thread::yield_now();
            }
        }
    });
    for n in order {
        let next = match n {
            31 => String::from("define i64 @f31() { ret i64 0 }"),
            n => format!(
                "declare i64 @f{next}()
                 @use{n} = global ptr @f{next}
                 define i64 @f{n}() {{
                   %f = load ptr, ptr @use{n}
                   %v = call i64 %f()
                   %r = add i64 %v, 1
                   %failed = icmp eq i64 %v, -1
                   %s = select i1 %failed, i64 -1, i64 %r
                   ret i64 %s
                 }}",
                next = n + 1
            ),
        };
        jit.add_ir(&format!("m{n}"), &next).unwrap();
    }
    asking.join().unwrap();
    assert_eq!(unresolved(&jit), [""; 0]);
}

#[test]
fn a_generator_that_fails_is_told_to_who_asked() {
    let jit = Jit::new().unwrap();
    jit.main()
        .add_generator(|_: &GeneratorRequest| {
            Err(SessionError::unit("generator", "out of order").into())
        })
        .unwrap();
    let error = chain(&jit.lookup("x").unwrap_err());
    assert!(error.contains("generator"), "{error}");
}

/// An archive of objects that clang makes of these C sources.
fn archive(name: &str, members: &[(&str, &str)]) -> std::path::PathBuf {
    let dir = std::env::temp_dir().join(format!("uruk-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let mut objects = Vec::new();
    for (member, source) in members {
        let c = dir.join(format!("{member}.c"));
        std::fs::write(&c, source).unwrap();
        let bitcode = member.starts_with("ir_");
        let mut clang = std::process::Command::new("clang-22");
        clang
            .args(["-c", "-O1", "-fPIC"])
            .args(bitcode.then_some("-emit-llvm"));
        let object = dir.join(format!("{member}.o"));
        assert!(
            clang
                .arg(&c)
                .arg("-o")
                .arg(&object)
                .status()
                .unwrap()
                .success()
        );
        objects.push(object);
    }
    let file = dir.join(format!("{name}.a"));
    let ar = std::process::Command::new("llvm-ar-22")
        .arg("rcs")
        .arg(&file)
        .args(&objects)
        .status();
    assert!(ar.unwrap().success());
    file
}

#[test]
fn members_of_an_archive_come_when_they_are_needed() {
    let file = archive(
        "needed",
        &[
            (
                "one",
                "extern long three(void); long one(void) { return three() - 2; }",
            ),
            (
                "two",
                "extern long nowhere(void); long two(void) { return nowhere(); }",
            ),
            ("three", "static long v = 3; long three(void) { return v; }"),
            (
                "ir_four",
                "extern long one(void); long four(void) { return one() + 3; }",
            ),
        ],
    );
    let jit = Jit::new().unwrap();
    let main = jit.main();
    main.add_archive(&file, Members::Needed).unwrap();
    jit.add_ir(
        "m",
        "declare i64 @four()
         define i64 @all() { %v = call i64 @four() ret i64 %v }",
    )
    .unwrap();
    assert_eq!(call(&jit, "all"), 4);
    assert!(main.state_of(jit.intern("two")).is_none());
    // A lookup that asks as `dlsym` does pulls no member in.
    let two = jit.intern("two");
    let lookup = Lookup::new([(&main, Visibility::All)]).weak(two);
    let found = jit
        .lookup_all(lookup.kind(uruk::LookupKind::Dlsym))
        .unwrap();
    assert!(found.is_empty());
    // All of it: one member lacks something.
    let other = jit.create_dylib("all").unwrap();
    other.add_archive(&file, Members::All).unwrap();
    // SAFETY: as `call`.
    let three = unsafe { other.function::<extern "C" fn() -> i64>("three") };
    assert_eq!(three.unwrap().call(), 3);
    let error = chain(&other.compile("two").unwrap_err());
    assert!(error.contains("nowhere"), "{error}");
    let bad = file.with_extension("bad");
    std::fs::write(&bad, b"!<arch>\nno member").unwrap();
    let error = main.add_archive(&bad, Members::Needed).unwrap_err();
    assert!(matches!(error, Error::Archive { .. }), "{error}");
}
