//! A dylib is initialized and deinitialized as libraries are opened and closed.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use uruk::{Dylib, Error, Jit, Visibility};

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
    // SAFETY: nobody uses it. It was not initialized again, and b is not its business.
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
