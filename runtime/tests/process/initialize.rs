//! A dylib is initialized and deinitialized as libraries are opened and closed.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use uruk::{Dylib, Error, Jit, Level, Replacement, Visibility};

static SAID: Mutex<Vec<i64>> = Mutex::new(Vec::new());
/// The tests say what happens to one list.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

extern "C" fn say(number: i64) {
    SAID.lock().unwrap().push(number);
}

fn said() -> Vec<i64> {
    std::mem::take(&mut *SAID.lock().unwrap())
}

/// A module with two constructors and a destructor, which say `base` and what follows it, and a
/// handler of `atexit`, which says `base + 9`.
fn module(base: i64) -> String {
    let say = |name: &str, number: i64| {
        format!(
            "define internal void @{name}() {{ call void @say(i64 {}) ret void }}\n",
            base + number
        )
    };
    let hook = |priority: u32, name: &str| {
        format!("{{ i32, ptr, ptr }} {{ i32 {priority}, ptr @{name}, ptr null }}")
    };
    format!(
        "declare void @say(i64)
         declare i32 @atexit(ptr)
         @llvm.global_ctors = appending global [2 x {{ i32, ptr, ptr }}] [{}, {}]
         @llvm.global_dtors = appending global [1 x {{ i32, ptr, ptr }}] [{}]
         define internal void @first() {{
           call void @say(i64 {})
           %r = call i32 @atexit(ptr @handler)
           ret void
         }}
         {}{}{}",
        hook(200, "second"),
        hook(100, "first"),
        hook(100, "last"),
        base + 1,
        say("second", 2),
        say("last", 3),
        say("handler", 9),
    )
}

fn dylib(jit: &Jit, name: &str, base: i64) -> Dylib {
    let dylib = jit.create_dylib(name).unwrap();
    // SAFETY: it is what the modules take it for.
    unsafe { dylib.define_address("say", say as *const ()).unwrap() };
    dylib.add_ir(name, &module(base)).unwrap();
    dylib
}

#[test]
fn a_dylib_runs_its_own_twice() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    let jit = Jit::new().unwrap();
    let (a, b) = (dylib(&jit, "a", 10), dylib(&jit, "b", 20));
    for _ in 0..2 {
        // SAFETY: the modules above.
        unsafe { a.initialize() }.expect("initialized");
        assert_eq!(said(), [11, 12]);
        // SAFETY: as above; there is nothing new.
        unsafe { a.initialize() }.expect("initialized");
        assert_eq!(said(), [0; 0]);
        // SAFETY: as above.
        unsafe { a.deinitialize() };
        let mut ended = said();
        ended.sort_unstable();
        assert_eq!(ended, [13, 19]);
    }
    // SAFETY: as above.
    unsafe { b.initialize() }.expect("initialized");
    assert_eq!(said(), [21, 22]);
    // SAFETY: no thread uses it. It was not initialized again, and its removal does not concern b.
    unsafe { a.remove(uruk::Removal::Refused).unwrap() };
    assert_eq!(said(), [0; 0]);
    drop((a, b, jit));
    let mut ended = said();
    ended.sort_unstable();
    assert_eq!(ended, [23, 29]);
}

#[test]
fn what_a_dylib_links_against_is_initialized_before_it() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    let jit = Jit::new().unwrap();
    let (a, b, c) = (
        dylib(&jit, "a", 10),
        dylib(&jit, "b", 20),
        dylib(&jit, "c", 30),
    );
    a.add_to_link_order(&b).unwrap();
    b.add_to_link_order(&c).unwrap();
    // A circle does no harm.
    let mut order = c.link_order();
    order.push((a.clone(), Visibility::Exported));
    c.set_link_order(&order).unwrap();
    // SAFETY: the modules above.
    unsafe { a.initialize() }.expect("initialized");
    assert_eq!(said(), [31, 32, 21, 22, 11, 12]);
    // SAFETY: as above.
    unsafe { b.deinitialize() };
    let mut ended = said();
    ended.sort_unstable();
    assert_eq!(ended, [23, 29]);
    drop((order, a, b, c, jit));
    said();
}

#[test]
fn a_constructor_that_fails_is_an_error() {
    fn construct(name: &str) -> String {
        format!(
            "@llvm.global_ctors = appending global [1 x {{ i32, ptr, ptr }}]
               [{{ i32, ptr, ptr }} {{ i32 65535, ptr @begin_{name}, ptr null }}]
             declare void @{name}()
             define internal void @begin_{name}() {{ call void @{name}() ret void }}"
        )
    }
    #[derive(Debug, thiserror::Error)]
    #[error("not wanted")]
    struct Unwanted;

    static RAN: AtomicUsize = AtomicUsize::new(0);
    let jit = Jit::new().unwrap();
    jit.define_fn("panics", || -> () { panic!("in a constructor") })
        .unwrap();
    jit.define_fn("fails", || Err::<(), _>(Unwanted)).unwrap();
    jit.define_fn("runs", || {
        RAN.fetch_add(1, Ordering::Relaxed);
    })
    .unwrap();
    for name in ["panics", "fails", "runs"] {
        jit.add_ir(name, &construct(name)).unwrap();
    }
    // SAFETY: the constructors above.
    let cause = unsafe { jit.initialize() }.expect_err("it panics");
    assert!(cause.to_string().contains("in a constructor"), "{cause}");
    // SAFETY: as above.
    let cause = unsafe { jit.initialize() }.expect_err("it fails");
    let Error::Trap(trap) = &cause else {
        panic!("{cause}")
    };
    assert!(trap.host_error::<Unwanted>().is_some(), "{trap}");
    assert_eq!(RAN.load(Ordering::Relaxed), 0);
    // SAFETY: as above.
    unsafe { jit.initialize() }.expect("the last one");
    assert_eq!(RAN.load(Ordering::Relaxed), 1);
    let dylib = jit.create_dylib("d").unwrap();
    dylib
        .define_fn("panics", || -> () { panic!("in a dylib") })
        .unwrap();
    dylib.add_ir("again", &construct("panics")).unwrap();
    // SAFETY: as above.
    let cause = unsafe { dylib.initialize() }.expect_err("it panics");
    assert!(cause.to_string().contains("in a dylib"), "{cause}");
}

/// A module with constructors and destructors of these priorities, which say `base` and theirs.
fn prioritized(base: i64, priorities: &[u32]) -> String {
    let list = |which: &str| {
        let entry = |priority: &u32| {
            format!("{{ i32, ptr, ptr }} {{ i32 {priority}, ptr @{which}{priority}, ptr null }}")
        };
        let entries: Vec<String> = priorities.iter().map(entry).collect();
        let count = entries.len();
        let entries = entries.join(", ");
        format!(
            "@llvm.global_{which}s = appending global [{count} x {{ i32, ptr, ptr }}] [{entries}]\n"
        )
    };
    let function = |which: &str, sign: i64, priority: &u32| {
        let number = sign * (base + i64::from(*priority));
        format!(
            "define internal void @{which}{priority}() {{ call void @say(i64 {number}) ret void }}\n"
        )
    };
    let functions = priorities.iter();
    let functions = functions.map(|it| function("ctor", 1, it) + &function("dtor", -1, it));
    let functions: String = functions.collect();
    format!(
        "declare void @say(i64)\n{}{}{functions}",
        list("ctor"),
        list("dtor")
    )
}

#[test]
fn priorities_hold_over_all_inputs() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    let jit = Jit::new().unwrap();
    jit.define_fn("say", |number: i64| say(number)).unwrap();
    jit.add_ir("a", &prioritized(10_000, &[200, 300])).unwrap();
    jit.add_ir("b", &prioritized(20_000, &[101, 300, 400]))
        .unwrap();
    jit.add_ir("c", &prioritized(30_000, &[200])).unwrap();
    // SAFETY: the modules above.
    unsafe { jit.initialize() }.expect("initialized");
    let order = [20_101, 10_200, 30_200, 10_300, 20_300, 20_400];
    assert_eq!(said(), order);
    // A module that comes later is initialized later, and ends earlier.
    jit.add_ir("d", &prioritized(40_000, &[101])).unwrap();
    // SAFETY: as above.
    unsafe { jit.initialize() }.expect("initialized");
    assert_eq!(said(), [40_101]);
    // SAFETY: as above.
    unsafe { jit.deinitialize() };
    let mut reversed = vec![-40_101];
    reversed.extend(order.iter().rev().map(|number| -number));
    assert_eq!(said(), reversed);
}

/// A constructor fails after others of its module and of another one have run: those of the other one
/// go on where they stopped, and only what is initialized is ended.
#[test]
fn a_failure_between_constructors_of_another_input() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    let jit = Jit::new().unwrap();
    jit.define_fn("say", |number: i64| match number {
        10_200 => Err(std::fmt::Error),
        number => {
            say(number);
            Ok(())
        }
    })
    .unwrap();
    jit.add_ir("a", &prioritized(10_000, &[100, 200, 300]))
        .unwrap();
    jit.add_ir("b", &prioritized(20_000, &[101, 400])).unwrap();
    // SAFETY: the modules above.
    unsafe { jit.initialize() }.expect_err("it fails");
    assert_eq!(said(), [10_100, 20_101]);
    // SAFETY: as above.
    unsafe { jit.initialize() }.expect("the rest of the other");
    assert_eq!(said(), [20_400]);
    // SAFETY: as above.
    unsafe { jit.deinitialize() };
    assert_eq!(said(), [-20_400, -20_101]);
}

/// An input that a constructor of another one removes is not initialized.
#[test]
fn a_constructor_removes_another_input() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    let jit = Jit::new().unwrap();
    let tracker = jit.main().create_tracker().unwrap();
    let other = Mutex::new(Some(tracker.clone()));
    jit.define_fn("say", move |number: i64| {
        say(number);
        if let Some(tracker) = other.lock().unwrap().take() {
            // SAFETY: nothing of it has run.
            unsafe { tracker.remove() }.unwrap();
        }
    })
    .unwrap();
    jit.add_ir("a", &prioritized(10_000, &[100])).unwrap();
    tracker.add_ir("b", &prioritized(20_000, &[101])).unwrap();
    drop(tracker);
    // SAFETY: the modules above.
    unsafe { jit.initialize() }.expect("initialized");
    assert_eq!(said(), [10_100]);
    // SAFETY: as above.
    unsafe { jit.deinitialize() };
    assert_eq!(said(), [-10_100]);
}

/// Destructors of functions of the host that panic, that return an error, and that do neither, in this
/// order; then a trap.
#[test]
fn destructors_that_fail_are_reported_and_the_others_run() {
    const CODE: &str = "
        declare void @panics() declare void @refuses() declare void @counts() declare void @llvm.trap()
        @llvm.global_dtors = appending global [5 x {i32, ptr, ptr}] [
          {i32, ptr, ptr} {i32 1, ptr @last, ptr null}, {i32, ptr, ptr} {i32 2, ptr @traps, ptr null},
          {i32, ptr, ptr} {i32 3, ptr @between, ptr null},
          {i32, ptr, ptr} {i32 4, ptr @refused, ptr null},
          {i32, ptr, ptr} {i32 5, ptr @panicked, ptr null}]
        define internal void @panicked() { call void @panics() ret void }
        define internal void @refused() { call void @refuses() ret void }
        define internal void @between() { call void @counts() ret void }
        define internal void @traps() { call void @llvm.trap() unreachable }
        define internal void @last() { call void @counts() ret void }";
    for end in ["remove", "deinitialize", "drop"] {
        let (reported, counted) = (
            Arc::new(Mutex::new(Vec::new())),
            Arc::new(AtomicI64::new(0)),
        );
        let (reports, count) = (Arc::clone(&reported), Arc::clone(&counted));
        let report = move |error: &uruk::SessionError| {
            let cause = std::error::Error::source(error).map(ToString::to_string);
            let cause = cause.unwrap_or_default();
            reports.lock().unwrap().push(format!("{error}: {cause}"));
        };
        let jit = Jit::builder().on_error(report).build().expect("a session");
        jit.define_fn("panics", || -> () { panic!("at the end") })
            .expect("defined");
        let refuses = || -> Result<(), std::io::Error> { Err(std::io::Error::other("refused")) };
        jit.define_fn("refuses", refuses).expect("defined");
        let counts = move || {
            count.fetch_add(1, Ordering::Relaxed);
        };
        jit.define_fn("counts", counts).expect("defined");
        let tracker = jit.main().create_tracker().expect("a tracker");
        tracker.add_ir("m", CODE).expect("it loads");
        // SAFETY: the code above.
        unsafe {
            jit.initialize().expect("there is no constructor");
            match end {
                "remove" => tracker.remove().expect("removed"),
                "deinitialize" => jit.deinitialize(),
                _ => drop(tracker),
            }
        }
        drop(jit);
        assert_eq!(counted.load(Ordering::Relaxed), 2, "{end}");
        let reported = reported.lock().unwrap();
        let expected = [
            ("panicked", "at the end"),
            ("refused", "refused"),
            ("traps", "trap"),
        ];
        assert_eq!(reported.len(), expected.len(), "{end}: {reported:?}");
        for (said, (name, cause)) in reported.iter().zip(expected) {
            assert!(
                said.contains(&format!("the destructor {name}")),
                "{end}: {said}"
            );
            assert!(said.contains(cause), "{end}: {said}");
        }
    }
}

#[test]
fn a_constructor_of_a_replacement_that_fails_is_an_error() {
    #[derive(Debug, thiserror::Error)]
    #[error("not wanted")]
    struct Unwanted;

    let jit = Jit::new().unwrap();
    jit.define_fn("panics", || -> () { panic!("in a constructor") })
        .unwrap();
    jit.define_fn("fails", || Err::<(), _>(Unwanted)).unwrap();
    jit.define_fn("runs", || ()).unwrap();
    jit.add_ir("m", "define i32 @value() { ret i32 1 }")
        .unwrap();
    // SAFETY: the function above.
    let value = unsafe { jit.function::<extern "C" fn() -> i32>("value") }.unwrap();
    let replace = |level, callee: &str| {
        let ir = format!(
            "@llvm.global_ctors = appending global [1 x {{ i32, ptr, ptr }}]
               [{{ i32, ptr, ptr }} {{ i32 65535, ptr @begin, ptr null }}]
             declare void @{callee}()
             define internal void @begin() {{ call void @{callee}() ret void }}
             define i32 @value() {{ ret i32 2 }}"
        );
        let replacement = Replacement::ir(callee, &ir).level(level);
        // SAFETY: the constructor above.
        jit.main()
            .replace(unsafe { replacement.run_constructors() })
    };
    let quiescent = Level::Quiescent {
        wait: Duration::from_secs(60),
    };
    for level in [Level::Immediate, quiescent] {
        let cause = replace(level, "panics").expect_err("it panics");
        assert!(cause.to_string().contains("in a constructor"), "{cause}");
        let cause = replace(level, "fails").expect_err("it fails");
        let Error::Trap(trap) = &cause else {
            panic!("{cause}")
        };
        assert!(trap.host_error::<Unwanted>().is_some(), "{trap}");
        assert_eq!(value.call(), 1);
        let replaced = replace(level, "runs").expect("it runs");
        assert_eq!(value.call(), 2);
        replaced.rollback().expect("rolled back");
        assert_eq!(value.call(), 1);
    }
}
