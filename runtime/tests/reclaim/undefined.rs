//! Functions of modules after their names were undefined: they stay for what can call them, and go
//! without it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use uruk::{Dylib, Jit, Tracker};

type F = extern "C" fn() -> i64;

fn ir(name: &str, value: i64) -> String {
    format!("define i64 @{name}() {{ ret i64 {value} }}")
}

fn call(dylib: &Dylib, name: &str) -> i64 {
    // SAFETY: functions of this test, of that type.
    unsafe { dylib.function::<F>(name) }.expect(name).call()
}

fn undefine(dylib: &Dylib, name: &str) {
    // SAFETY: what goes with it is not used any more.
    unsafe { dylib.undefine(&[dylib.jit().intern(name)]) }.expect("undefined");
}

/// Undefines names of its own, by which those that were undefined before are looked at.
fn undefine_others(dylib: &Dylib) {
    for _ in 0..4 {
        dylib.add_ir("other", &ir("other", 0)).expect("added");
        undefine(dylib, "other");
    }
}

fn remove(tracker: &Tracker) {
    // SAFETY: nothing of it is used any more.
    unsafe { tracker.remove() }.expect("removed");
}

#[test]
fn functions_stay_for_code_addresses_and_handles() {
    let jit = Jit::new().expect("a session");
    let main = jit.main();
    for (name, value) in [("linked", 1), ("given", 2), ("held", 3), ("fresh", 4)] {
        main.add_ir(name, &ir(name, value)).expect("added");
    }
    let text = "declare i64 @linked() define i64 @caller() { %v = call i64 @linked() ret i64 %v }";
    main.add_ir("caller", text).expect("added");
    assert_eq!(call(&main, "caller"), 1);
    let given = jit.lookup("given").expect("it is there");
    // SAFETY: functions of this test, of that type.
    let [held, fresh] = ["held", "fresh"].map(|name| unsafe { jit.function::<F>(name) });
    let (held, fresh) = (held.expect("it is there"), fresh.expect("it is there"));
    assert_eq!(held.call(), 3);
    for name in ["linked", "given", "held", "fresh"] {
        undefine(&main, name);
        assert!(jit.lookup(name).is_err());
    }
    undefine_others(&main);
    assert_eq!(call(&main, "caller"), 1);
    // SAFETY: the function stays: its address was given away.
    let given: F = unsafe { std::mem::transmute(given as usize) };
    assert_eq!(given(), 2);
    assert_eq!((held.call(), fresh.call()), (3, 4));
    // Another one of the name has a stub of its own.
    main.add_ir("again", &ir("linked", 5)).expect("added");
    assert_eq!((call(&main, "linked"), call(&main, "caller")), (5, 1));
}

#[test]
fn functions_that_nothing_can_call_go() {
    let jit = Jit::new().expect("a session");
    let main = jit.main();
    let mark = Arc::new(());
    let kept = Arc::clone(&mark);
    let produce = move |_: &uruk::inkwell::module::Module<'_>| {
        assert!(Arc::strong_count(&kept) > 1);
        Err("it is not called".into())
    };
    main.define_lazy::<F>("lazy", produce).expect("defined");
    // SAFETY: a function of this test, of that type.
    let handle = unsafe { main.function::<F>("lazy") }.expect("it is there");
    undefine(&main, "lazy");
    undefine_others(&main);
    assert_eq!(Arc::strong_count(&mark), 2);
    drop(handle);
    let begun = Instant::now();
    while Arc::strong_count(&mark) != 1 && begun.elapsed() < Duration::from_secs(60) {
        undefine_others(&main);
    }
    assert_eq!(Arc::strong_count(&mark), 1);
}

/// The stub of a function that went is that of the next one of its name.
#[test]
fn trackers_remove_nothing_that_came_after_what_they_had() {
    let jit = Jit::new().expect("a session");
    let main = jit.main();
    for _ in 0..20 {
        let [first, second] = [(); 2].map(|()| main.create_tracker().expect("a tracker"));
        first.add_ir("first", &ir("f", 1)).expect("added");
        assert_eq!(call(&main, "f"), 1);
        undefine(&main, "f");
        undefine_others(&main);
        second.add_ir("second", &ir("f", 2)).expect("added");
        assert_eq!(call(&main, "f"), 2);
        remove(&first);
        assert_eq!(call(&main, "f"), 2);
        remove(&second);
        assert!(jit.lookup("f").is_err());
    }
}
