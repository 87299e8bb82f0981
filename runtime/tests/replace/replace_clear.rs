//! Replacements beside the removal of all definitions of a dylib, and definitions of another type
//! under a name that others call.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use uruk::{Error, Jit, ReplaceError, Replacement, Tier, Trap};

type Number = extern "C-unwind" fn() -> i32;

/// The dylib is cleared at each stage of a replacement: it is done, or there is nothing to replace.
#[test]
fn a_replacement_beside_clear() {
    let jit = Jit::builder().jobs(1).build().expect("a session");
    let stop = AtomicBool::new(false);
    let text = |number: usize| {
        format!("define i32 @f() {{ ret i32 {number} }} define i32 @new{number}() {{ ret i32 0 }}")
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                // SAFETY: nothing calls what is in it.
                unsafe { jit.main().clear() }.expect("a dylib");
                // Without it this thread has the locks nearly all the time.
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        let is_nothing = |cause: &Error| match cause {
            Error::Replace(cause) => matches!(**cause, ReplaceError::Nothing { .. }),
            _ => false,
        };
        let mut replaced = 0;
        let mut failed: Vec<String> = Vec::new();
        for number in 0..500 {
            // It may be there.
            let _ = jit.add_ir("m", "define i32 @f() { ret i32 0 }");
            match jit.main().replace(Replacement::ir("r", &text(number))) {
                Ok(_) => replaced += 1,
                Err(cause) if is_nothing(&cause) => {}
                Err(cause) => failed.push(cause.to_string()),
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(failed.is_empty(), "{} failed: {}", failed.len(), failed[0]);
        assert!(replaced > 0);
    });
    // SAFETY: as above.
    unsafe { jit.main().clear() }.expect("a dylib");
    jit.add_ir("m", &text(7)).expect("nothing is there");
    // SAFETY: the function above.
    let f = unsafe { jit.function::<Number>("f") }.expect("typed");
    assert_eq!(f.call(), 7);
}

/// A function is defined lazily while its dylib is cleared.
#[test]
fn a_lazy_definition_beside_clear() {
    let jit = Jit::builder().jobs(1).build().expect("a session");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                // SAFETY: nothing calls what is in it.
                unsafe { jit.main().clear() }.expect("a dylib");
                // Without it this thread has the locks nearly all the time.
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        for _ in 0..500 {
            let defined = jit
                .main()
                .define_lazy::<Number>("f", |_| Err("never called".into()));
            if let Err(cause) = defined {
                stop.store(true, Ordering::Relaxed);
                panic!("{cause}");
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// A caller of a function that was removed and defined anew with another type calls neither of them:
/// its error has the function's name.
#[test]
fn another_type_under_the_name_is_an_error_of_old_callers() {
    for tier in [Tier::Baseline] {
        let jit = Jit::builder().jobs(1).build().expect("a session");
        let tracker = jit.main().create_tracker().expect("a tracker");
        tracker
            .add_ir("m", "define i32 @f() { ret i32 1 }")
            .expect("valid IR");
        let caller = "declare i32 @f() define i32 @g() { %x = call i32 @f() ret i32 %x }";
        jit.add_ir("n", caller).expect("valid IR");
        jit.compile_at("f", Tier::Baseline).expect("compiles");
        jit.compile_at("g", tier).expect("compiles");
        // SAFETY: the functions above.
        let [f, g] = ["f", "g"].map(|name| unsafe { jit.function::<Number>(name) }.expect("typed"));
        assert_eq!((f.call(), g.call()), (1, 1));
        // SAFETY: calls of it are errors.
        unsafe { tracker.remove() }.expect("once");
        for named in [&f, &g] {
            let trap: Trap = named.call_guarded().expect_err("it was removed");
            assert!(
                trap.to_string().contains("f has no code"),
                "{tier:?}: {trap}"
            );
        }
        jit.add_ir("m", "define i64 @f(i64 %x) { ret i64 %x }")
            .expect("free");
        for named in [&f, &g] {
            let trap: Trap = named.call_guarded().expect_err("it has another type");
            assert!(
                trap.to_string().contains("f has no code"),
                "{tier:?}: {trap}"
            );
        }
    }
}
