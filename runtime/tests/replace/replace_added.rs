//! The functions that a replacement adds are removed with the functions that it replaced.

use std::time::Duration;

use uruk::{
    Dylib, Func, FunctionId, Jit, MemoryPurpose, ReclaimKind, Removal, Replacement, Tier, Tracker,
};

use uruk_testing::in_own_process;

use crate::clang;

type Number = extern "C-unwind" fn() -> i64;

const OLD: &str = "define i64 @p() { ret i64 7 }";
const ADDS: &str = "
define i64 @h() noinline { ret i64 8 }
define i64 @p() { %h = call i64 @h() ret i64 %h }";

fn jit() -> Jit {
    Jit::builder().jobs(1).build().expect("a session")
}

fn function(dylib: &Dylib, name: &str) -> Func<Number> {
    // SAFETY: all functions here are of that type.
    unsafe { dylib.function(name) }.expect(name)
}

fn replace(dylib: &Dylib, text: &str) {
    let new = Replacement::ir("new", text);
    dylib.replace(new).expect("replaceable");
}

fn tracker_of(dylib: &Dylib, text: &str) -> Tracker {
    let tracker = dylib.create_tracker().expect("a tracker");
    tracker.add_ir("old", text).expect("valid IR");
    tracker
}

fn remove(tracker: &Tracker) {
    // SAFETY: calls of its functions fail with a value.
    unsafe { tracker.remove() }.expect("removed");
}

/// Whether calls of a function fail, since it was removed.
fn is_gone(function: &Func<Number>) -> bool {
    match function.call_guarded() {
        Ok(_) => false,
        Err(trap) => trap.to_string().contains("has no code"),
    }
}

/// Adds `p`, has `adds` replace it, and ends it; then calls of `p` and of `h` fail.
#[track_caller]
fn check(adds: &Replacement, end: impl FnOnce(&Jit, &Dylib, &Tracker)) {
    let jit = jit();
    let dylib = jit.create_dylib("d").expect("a dylib");
    let tracker = tracker_of(&dylib, OLD);
    dylib.replace(adds.clone()).expect("replaceable");
    let [p, h] = ["p", "h"].map(|name| function(&dylib, name));
    assert_eq!((p.call(), h.call()), (8, 8));
    end(&jit, &dylib, &tracker);
    assert!(is_gone(&p), "p");
    assert!(is_gone(&h), "h");
}

#[track_caller]
fn check_all_ends(adds: &Replacement) {
    check(adds, |_, dylib, _| {
        // SAFETY: as in `remove`.
        unsafe { dylib.remove(Removal::Forced) }.expect("removed");
    });
    check(adds, |_, dylib, _| {
        // SAFETY: as in `remove`.
        unsafe { dylib.clear() }.expect("cleared");
    });
    check(adds, |_, _, tracker| remove(tracker));
    check(adds, |_, dylib, tracker| {
        let other = dylib.create_tracker().expect("a tracker");
        tracker.transfer_to(&other).expect("of the same dylib");
        remove(&other);
    });
    check(adds, |jit, dylib, tracker| {
        jit.rollback().expect("the latest");
        let [p, h] = ["p", "h"].map(|name| function(dylib, name));
        assert_eq!((p.call(), h.call()), (7, 8), "added definitions stay");
        remove(tracker);
    });
    check(adds, |_, dylib, tracker| {
        // Replaced again, with and without the new function.
        replace(
            dylib,
            "declare i64 @h() define i64 @p() { %h = call i64 @h() ret i64 %h }",
        );
        replace(dylib, ADDS);
        assert_eq!(function(dylib, "p").call(), 8);
        remove(tracker);
    });
}

#[test]
fn functions_of_ir_go_with_the_function_that_was_replaced() {
    check_all_ends(&Replacement::ir("adds", ADDS));
}

#[test]
fn functions_of_an_object_go_with_the_function_that_was_replaced() {
    let source = "long h(void) { return 8; } long p(void) { return h(); }";
    let flags = [
        "-O1",
        "-fPIC",
        "-fsemantic-interposition",
        "-frecord-gcc-switches",
    ];
    let object = clang::compile("replace_added", "adds.c", source, &flags);
    check_all_ends(&Replacement::object("adds.o", object));
}

#[test]
fn they_stay_while_one_of_several_functions_does() {
    for first in [0, 1] {
        let jit = jit();
        let dylib = jit.main();
        let trackers = ["p", "q"]
            .map(|name| tracker_of(&dylib, &format!("define i64 @{name}() {{ ret i64 7 }}")));
        replace(
            &dylib,
            &format!("{ADDS} define i64 @q() {{ %h = call i64 @h() ret i64 %h }}"),
        );
        // The next replacement adds to functions that were added.
        replace(
            &dylib,
            "define i64 @h() noinline { %k = call i64 @k() ret i64 %k }
            define internal i64 @k() noinline { ret i64 9 }",
        );
        let [p, q, h] = ["p", "q", "h"].map(|name| function(&dylib, name));
        let last = [&q, &p][first];
        assert_eq!((p.call(), q.call(), h.call()), (9, 9, 9));
        remove(&trackers[first]);
        assert!(is_gone([&p, &q][first]));
        let name = ["q", "p"][first];
        jit.compile_at(name, Tier::Optimized)
            .expect("its callees are there");
        assert_eq!((last.call(), h.call()), (9, 9));
        remove(&trackers[1 - first]);
        assert!(is_gone(last) && is_gone(&h));
    }
}

/// A function that others were linked against is found by them when it is added again.
#[test]
fn callers_find_a_function_that_is_added_again() {
    let jit = jit();
    let dylib = jit.main();
    let mut user = None;
    for round in 0..3 {
        let tracker = tracker_of(&dylib, OLD);
        replace(&dylib, ADDS);
        let user = user.get_or_insert_with(|| {
            let text = "declare i64 @h() define i64 @user() { %h = call i64 @h() ret i64 %h }";
            dylib.add_ir("user", text).expect("valid IR");
            function(&dylib, "user")
        });
        assert_eq!(user.call(), 8, "round {round}");
        remove(&tracker);
        assert!(is_gone(user), "round {round}");
    }
}

/// An image that stays for those that are bound to it keeps new bodies of its functions, and all
/// that these use.
#[test]
fn they_stay_for_images_that_are_bound_to_the_function() {
    let jit = jit();
    let dylib = jit.main();
    let first = tracker_of(
        &dylib,
        "define linkonce_odr i64 @p() noinline { ret i64 7 }",
    );
    let user = tracker_of(
        &dylib,
        "define linkonce_odr i64 @p() noinline { ret i64 7 }
        define i64 @user() { %p = call i64 @p() ret i64 %p }",
    );
    replace(
        &dylib,
        "@v = internal global i64 8
        define internal i64 @h() noinline { %v = load i64, ptr @v ret i64 %v }
        define linkonce_odr i64 @p() noinline { %h = call i64 @h() ret i64 %h }",
    );
    let called = function(&dylib, "user");
    assert_eq!(called.call(), 8);
    remove(&first);
    for tier in [Tier::Optimized, Tier::Baseline] {
        jit.compile_at("p", tier).expect("its callees are there");
        assert_eq!(called.call(), 8, "{tier:?}");
    }
    let p = function(&dylib, "p");
    assert_eq!(p.call(), 8);
    remove(&user);
    assert!(is_gone(&called) && is_gone(&p));
}

/// Memory of cycles of adding, replacing and removing.
fn left_by(cycles: usize, cycle: impl Fn(&Jit)) -> (u64, u64) {
    let jit = jit();
    for _ in 0..cycles {
        cycle(&jit);
    }
    for _ in 0..3 {
        jit.reclaim(ReclaimKind::Sweep, Duration::from_secs(60));
    }
    let memory = jit.memory();
    let of = |purpose| memory.of(purpose);
    let code = of(MemoryPurpose::Bitcode) + of(MemoryPurpose::Code) + of(MemoryPurpose::Waiting);
    (code, of(MemoryPurpose::Tables))
}

#[test]
fn cycles_leave_nothing() {
    let internal = ADDS.replace("define i64 @h", "define internal i64 @h");
    let cycle = |jit: &Jit| {
        let tracker = tracker_of(&jit.main(), OLD);
        replace(&jit.main(), &internal);
        assert_eq!(function(&jit.main(), "p").call(), 8);
        remove(&tracker);
    };
    let (few, many) = (left_by(50, cycle), left_by(250, cycle));
    assert!(many.0 <= few.0 + 4096, "code: {few:?} {many:?}");
    // Names of local functions, which are unique. It was 5 kB for each.
    let each = many.1.saturating_sub(few.1) / 200;
    assert!(each < 300, "tables: {each} bytes for each");
}

fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("there is /proc");
    let pages = statm
        .split(' ')
        .nth(1)
        .and_then(|text| text.parse::<u64>().ok());
    pages.expect("a number") * 4096
}

/// Each replacement inherits the local names of those before. Each copied them all: 1,400 of them
/// took 230 MB.
#[test]
fn local_names_are_inherited_without_a_copy() {
    if !in_own_process(module_path!(), "local_names_are_inherited_without_a_copy") {
        return;
    }
    let jit = jit();
    jit.add_ir("m", OLD).expect("valid IR");
    let p = function(&jit.main(), "p");
    let mut early = 0;
    for number in 1..=1_500 {
        replace(
            &jit.main(),
            &format!(
                "define internal i64 @h{number}() noinline {{ ret i64 {number} }}
                define i64 @p() {{ %h = call i64 @h{number}() ret i64 %h }}"
            ),
        );
        assert_eq!(p.call(), number);
        if number == 100 {
            early = resident();
        }
    }
    let grown = resident().saturating_sub(early);
    assert!(grown < 90 << 20, "{grown} bytes");
    // A name that earlier replacements brought means their function still.
    let again = Replacement::ir(
        "again",
        "define internal i64 @h3() noinline { ret i64 3000 }
        define i64 @p() { %h = call i64 @h3() ret i64 %h }",
    );
    let done = jit.main().replace(again).expect("replaceable");
    assert_eq!(done.added, [""; 0]);
    assert_eq!(p.call(), 3_000);
}

const KEYS: &str = "
declare i32 @pthread_key_create(ptr, ptr)
declare i32 @pthread_setspecific(i32, ptr)
@key = global i32 0
define void @destroy(ptr %at) { store i64 1, ptr %at ret void }
define i32 @make() { %e = call i32 @pthread_key_create(ptr @key, ptr @destroy) ret i32 %e }
define i32 @set(ptr %value) {
  %k = load i32, ptr @key
  %e = call i32 @pthread_setspecific(i32 %k, ptr %value)
  ret i32 %e
}";

/// Stands for a function that was removed.
extern "C" fn gone(at: *mut i64) {
    // SAFETY: the word of the test below.
    unsafe { at.write_volatile(-1) };
}

extern "C" fn failed(_: FunctionId) -> u64 {
    gone as *const () as u64
}

/// The C library calls the destructor of a key after its removal, and so what it calls.
#[test]
fn they_stay_while_their_image_is_held() {
    let jit = Jit::builder()
        .on_failure(failed)
        .build()
        .expect("a session");
    let tracker = jit.main().create_tracker().expect("a tracker");
    tracker.add_ir("keys", KEYS).expect("valid IR");
    // SAFETY: functions of the module above.
    let (make, set) = unsafe {
        (
            jit.function::<extern "C" fn() -> i32>("make")
                .expect("typed"),
            jit.function::<extern "C" fn(*mut i64) -> i32>("set")
                .expect("typed"),
        )
    };
    assert_eq!(make.call(), 0);
    let new = "define void @helper(ptr %at) { store i64 7, ptr %at ret void }
        define void @destroy(ptr %at) { call void @helper(ptr %at) ret void }";
    let replaced = jit.main().replace(Replacement::ir("new", new));
    replaced.expect("replaceable");
    let mut word = 0_i64;
    let at = std::ptr::from_mut(&mut word) as usize;
    let (to_there, there) = std::sync::mpsc::channel::<()>();
    let (to_here, here) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            assert_eq!(set.call(at as *mut i64), 0);
            drop(set);
            to_here.send(()).expect("it is awaited");
            there.recv().expect("a message");
        });
        here.recv().expect("a message");
        // SAFETY: nothing but the C library calls it.
        unsafe { tracker.remove() }.expect("removed");
        to_there.send(()).expect("it is awaited");
    });
    // A scope ends before the destructors of its threads have.
    // SAFETY: the word above, which lives.
    let now = || unsafe { std::ptr::read_volatile(at as *const i64) };
    while now() == 0 {
        std::thread::yield_now();
    }
    assert_eq!(now(), 7);
}
