//! Weak definitions yield by the search order: dylibs that are linked, and the process.

use crate::clang;
use crate::inline::{
    Bitcode, FORMS, Object, SHARED, add_source, c, call, check_shared, initialize, jit, provide,
};

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

/// The constructor's first call of a function needs a name of the process to be looked up.
#[test]
fn a_constructor_of_an_added_library_calls_code_of_the_session() {
    let folder = std::env::temp_dir().join(format!("uruk-constructor-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let jit = jit();
    let ir = "declare i64 @strlen(ptr)
        @text = constant [4 x i8] c\"abc\\00\"
        define i64 @length() { %n = call i64 @strlen(ptr @text) ret i64 %n }";
    jit.add_ir("m", ir).expect("valid IR");
    let address = jit.lookup("length").expect("defined");
    let source = r"
        long found;
        __attribute__((constructor)) static void begin(void) { found = ((long (*)(void))ADDRESS)(); }
        long found_length(void) { return found; }";
    let flags = ["-fPIC", &format!("-DADDRESS={address:#x}")];
    let object = clang::compile("constructor", "constructor.c", source, &flags);
    let (input, library) = (folder.join("constructor.o"), folder.join("libcalls.so"));
    std::fs::write(&input, object).expect("written");
    let status = std::process::Command::new("cc")
        .args(["-shared", "-o"])
        .arg(&library)
        .arg(&input)
        .status();
    assert!(status.expect("a linker").success());
    jit.add_library(&library.display().to_string())
        .expect("opens");
    let found = jit.lookup("found_length").expect("exported");
    // SAFETY: the function above, of a library that stays.
    let found = unsafe { std::mem::transmute::<u64, extern "C" fn() -> i64>(found) };
    assert_eq!(found(), 3);
    let _ = std::fs::remove_dir_all(&folder);
}
