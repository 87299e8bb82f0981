//! Which definition a name means: hidden ones, thread-locals, handles of other sessions.

use crate::clang;

use uruk::{Baseline, Dylib, Error, Jit, Removal, Tier};

fn jit() -> Jit {
    Jit::builder().jobs(1).build().expect("a session")
}

fn value(dylib: &Dylib, name: &str) -> i32 {
    // SAFETY: the functions of these tests are of this type and have no conditions.
    let function = unsafe { dylib.function::<extern "C" fn() -> i32>(name) };
    function.expect("defined").call()
}

/// `near` has hidden `f` and `d`, and `near` that calls the first; that is all that is found of it.
fn check_hidden(jit: &Jit, near: &Dylib) {
    let far = jit.create_dylib("far").expect("new");
    far.add_ir("far", "@d = global i32 20 define i32 @f() { ret i32 2 }")
        .expect("valid IR");
    let app = jit.create_dylib("app").expect("new");
    app.add_to_link_order(near).expect("both are there");
    let user = "declare i32 @f()
        declare i32 @near()
        @d = external global i32
        define i32 @sum() {
          %f = call i32 @f() %n = call i32 @near() %d = load i32, ptr @d
          %a = add i32 %f, %n %b = add i32 %a, %d ret i32 %b }";
    let error = app.add_ir("user", user).expect_err("both are hidden");
    let Error::MissingSymbols { missing } = &error else {
        panic!("{error}");
    };
    let names: Vec<&str> = missing.iter().map(|m| m.symbol.as_str()).collect();
    assert!(names.contains(&"f") && names.contains(&"d"), "{error}");
    app.add_to_link_order(&far).expect("both are there");
    app.add_ir("user", user).expect("those behind count");
    assert_eq!(value(&app, "sum"), 2 + 1 + 20);
    assert_eq!(value(near, "f"), 1, "its own dylib has it");
}

#[test]
fn a_hidden_name_is_its_own_dylibs_and_shadows_nothing() {
    let jit = jit();
    let near = jit.create_dylib("near").expect("new");
    near.add_ir(
        "near",
        "@d = hidden global i32 1
         define hidden i32 @f() { %d = load i32, ptr @d ret i32 %d }
         define i32 @near() { %r = call i32 @f() ret i32 %r }",
    )
    .expect("valid IR");
    check_hidden(&jit, &near);
}

#[test]
fn so_is_a_hidden_name_of_an_object() {
    let jit = jit();
    let near = jit.create_dylib("near").expect("new");
    let source = "__attribute__((visibility(\"hidden\"))) int d = 1;
        __attribute__((visibility(\"hidden\"))) int f(void) { return d; }
        int near(void) { return f(); }";
    let object = clang::compile("names", "near.c", source, &["-O1", "-fPIC"]);
    near.add_object("near", object).expect("a valid object");
    check_hidden(&jit, &near);
}

#[test]
fn thread_locals_are_found_through_the_link_order_and_are_defined_once() {
    let jit = jit();
    let (library, app) = (
        jit.create_dylib("library").expect("new"),
        jit.create_dylib("app").expect("new"),
    );
    app.add_to_link_order(&library).expect("both are there");
    let tracker = library.create_tracker().expect("a tracker");
    tracker
        .add_ir(
            "library",
            "@t = thread_local global i32 5
             define i32 @of_library() { %t = load i32, ptr @t ret i32 %t }",
        )
        .expect("valid IR");
    app.add_ir(
        "app",
        "@t = external thread_local global i32
         define i32 @next() {
           %t = load i32, ptr @t %n = add i32 %t, 1 store i32 %n, ptr @t ret i32 %n }",
    )
    .expect("found in the library");
    assert_eq!((value(&app, "next"), value(&library, "of_library")), (6, 6));
    let on_another = std::thread::scope(|scope| {
        let thread = scope.spawn(|| (value(&app, "next"), value(&library, "of_library")));
        thread.join().expect("no panic")
    });
    assert_eq!(on_another, (6, 6), "each thread has its own");
    let again = library.add_ir("again", "@t = thread_local global i32 1");
    again.expect_err("a second strong definition");
    let again = library.add_ir("again", "@t = global i32 1");
    again.expect_err("a second definition of another kind");
    assert_eq!(value(&app, "next"), 7);
    // With its module the name is free.
    // SAFETY: no thread uses it any more.
    unsafe { tracker.remove() }.expect("once");
    library
        .add_ir(
            "again",
            "@t = thread_local global i32 30
             define i32 @of_library() { %t = load i32, ptr @t ret i32 %t }",
        )
        .expect("the first is gone");
    assert_eq!(value(&library, "of_library"), 30);
}

#[test]
fn handles_of_another_session_are_errors() {
    let (one, other) = (jit(), jit());
    let (mine, theirs) = (
        one.create_dylib("dylib").expect("new"),
        other.create_dylib("dylib").expect("new"),
    );
    mine.add_to_link_order(&theirs)
        .expect_err("of another session");
    let (from, to) = (
        mine.create_tracker().expect("a tracker"),
        theirs.create_tracker().expect("a tracker"),
    );
    from.transfer_to(&to).expect_err("of another session");
    from.add_ir("m", "define i32 @f() { ret i32 1 }")
        .expect("it is as it was");
    assert_eq!(value(&mine, "f"), 1);
}

#[test]
fn removed_dylibs_come_into_no_link_order_and_main_stays() {
    let jit = jit();
    let gone = jit.create_dylib("gone").expect("new");
    // SAFETY: it is empty.
    unsafe { gone.remove(Removal::Refused) }.expect("nobody searches it");
    jit.main()
        .add_to_link_order(&gone)
        .expect_err("it was removed");
    for removal in [Removal::Refused, Removal::Forced] {
        // SAFETY: refused.
        let error = unsafe { jit.main().remove(removal) }.expect_err("main stays");
        assert!(matches!(error, Error::MainDylib), "{error}");
    }
    jit.add_ir("m", "define i32 @f() { ret i32 1 }")
        .expect("main is there");
    assert_eq!(value(&jit.main(), "f"), 1);
}

/// Two modules with unnamed globals of the same numbers, whose functions give `base` and more.
fn unnamed(name: &str, base: i32) -> String {
    format!(
        "@0 = global i32 {base}
        @1 = global i32 10
        @2 = weak global [2 x ptr] [ptr @0, ptr @1]
        @3 = alias i32, ptr @1
        @4 = ifunc i32 (), ptr @resolver
        define i32 @5() {{ %x = load i32, ptr @0 ret i32 %x }}
        define i32 @6() {{ %x = load i32, ptr @3 %y = add i32 %x, 100 ret i32 %y }}
        define i32 @7() {{ ret i32 1000 }}
        define internal ptr @resolver() {{ ret ptr @7 }}
        define i32 @{name}() {{
            %p = load ptr, ptr getelementptr (ptr, ptr @2, i64 1)
            %a = call i32 @5() %b = call i32 @6() %c = call i32 @4() %d = load i32, ptr %p
            %e = add i32 %a, %b %f = add i32 %c, %d %g = add i32 %e, %f
            %h = add i32 %a, 1 store i32 %h, ptr @0
            ret i32 %g }}"
    )
}

#[test]
fn globals_without_a_name_are_their_modules_own() {
    for tier in [Tier::Baseline, Tier::Optimized, Tier::Guided] {
        for baseline in [Baseline::On, Baseline::Off] {
            let tiers = uruk::Tiers::Fixed(tier);
            let built = Jit::builder().tiers(tiers).baseline(baseline).build();
            let jit = built.expect("a session");
            let files = [unnamed("f", 1), unnamed("g", 2)];
            let files = [("a", &*files[0]), ("b", &*files[1])];
            for (name, ir) in files {
                jit.add_ir(name, ir).expect("valid IR");
            }
            // SAFETY: the resolvers above.
            unsafe { jit.initialize() }.expect("initialized");
            let main = jit.main();
            assert_eq!((value(&main, "f"), value(&main, "f")), (1121, 1122));
            assert_eq!((value(&main, "g"), value(&main, "g")), (1122, 1123));
        }
    }
}

/// Globals without a name cannot be told to be the same.
#[test]
fn a_replacement_has_its_own_globals_without_a_name() {
    let text = |base: i32| {
        format!(
            "@0 = global i32 {base}
            define i32 @1() {{ %x = load i32, ptr @0 ret i32 %x }}
            define i32 @f() {{
                %a = call i32 @1() %h = add i32 %a, 1 store i32 %h, ptr @0
                ret i32 %a }}"
        )
    };
    let jit = jit();
    jit.add_ir("a", &text(1)).expect("valid IR");
    let main = jit.main();
    assert_eq!((value(&main, "f"), value(&main, "f")), (1, 2));
    let new = uruk::Replacement::ir("new", &text(5));
    main.replace(new).expect("replaceable");
    assert_eq!((value(&main, "f"), value(&main, "f")), (5, 6));
}
