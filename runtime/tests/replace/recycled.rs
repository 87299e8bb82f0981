//! Stubs of removed functions are other functions' next, unless something may call them still: then
//! a call fails, and never reaches another function.

use crate::one_function;

use std::time::Duration;

use uruk::{Func, Jit, ReclaimKind, Tracker};

type Unary = extern "C" fn(i64) -> i64;

fn add(jit: &Jit, name: &str, summand: i64) -> Tracker {
    let tracker = jit.main().create_tracker().expect("a tracker");
    let text = format!("define i64 @{name}(i64 %x) {{ %y = add i64 %x, {summand} ret i64 %y }}");
    tracker.add_ir("m", &text).expect("added");
    tracker
}

fn function(jit: &Jit, name: &str) -> Func<Unary> {
    // SAFETY: all functions here are of that type.
    unsafe { jit.function(name) }.expect(name)
}

fn remove(jit: &Jit, tracker: &Tracker) {
    // SAFETY: what may be called of it fails with a value.
    unsafe { tracker.remove() }.expect("removed");
    jit.reclaim(ReclaimKind::Sweep, Duration::from_secs(60));
}

/// Adds, calls and removes functions of other names.
fn others(jit: &Jit) {
    for number in 0..20 {
        let name = format!("other{number}");
        let tracker = add(jit, &name, 1000);
        assert_eq!(function(jit, &name).call(1), 1001);
        remove(jit, &tracker);
    }
}

#[test]
fn stubs_are_used_again() {
    let jit = Jit::builder().jobs(1).build().expect("a session");
    let mut before = 0;
    for number in 0..600 {
        let name = format!("f{number}");
        let tracker = add(&jit, &name, number);
        assert_eq!(function(&jit, &name).call(1), number + 1);
        remove(&jit, &tracker);
        if number == 100 {
            before = jit.memory().of(uruk::MemoryPurpose::Stubs);
        }
    }
    assert_eq!(jit.memory().of(uruk::MemoryPurpose::Stubs), before);
}

#[test]
fn a_handle_reaches_no_other_function() {
    let jit = Jit::builder().jobs(1).build().expect("a session");
    let tracker = add(&jit, "f", 1);
    let handle = function(&jit, "f");
    let clone = handle.clone();
    assert_eq!(handle.call(1), 2);
    drop(handle);
    remove(&jit, &tracker);
    others(&jit);
    clone.call_guarded(1).expect_err("it was removed");
    // The name's next function is called by it.
    let again = add(&jit, "f", 5);
    assert_eq!(clone.call_guarded(1).expect("it is there"), 6);
    drop(clone);
    remove(&jit, &again);
    others(&jit);
}

#[test]
fn an_address_reaches_no_other_function() {
    let jit = Jit::builder().jobs(1).build().expect("a session");
    let tracker = add(&jit, "f", 1);
    let address = jit.lookup("f").expect("found");
    let caller = "define i64 @calls(i64 %f, i64 %x) {
        %p = inttoptr i64 %f to ptr %y = call i64 %p(i64 %x) ret i64 %y }";
    jit.add_ir("caller", caller).expect("added");
    // SAFETY: the function above.
    let calls = unsafe { jit.function::<extern "C" fn(u64, i64) -> i64>("calls") }.expect("found");
    assert_eq!(calls.call(address, 1), 2);
    remove(&jit, &tracker);
    others(&jit);
    calls.call_guarded(address, 1).expect_err("it was removed");
    // Taken from a handle, it is an address like any other.
    let tracker = add(&jit, "g", 2);
    let address = function(&jit, "g").address();
    remove(&jit, &tracker);
    others(&jit);
    calls.call_guarded(address, 1).expect_err("it was removed");
}

#[test]
fn code_that_was_linked_reaches_no_other_function() {
    let jit = Jit::builder().jobs(1).build().expect("a session");
    let tracker = add(&jit, "f", 1);
    let caller = "declare i64 @f(i64) define i64 @calls(i64 %x) {
        %y = call i64 @f(i64 %x) ret i64 %y }
        @table = global ptr @f";
    jit.add_ir("caller", caller).expect("added");
    let calls = function(&jit, "calls");
    assert_eq!(calls.call(1), 2);
    remove(&jit, &tracker);
    others(&jit);
    calls.call_guarded(1).expect_err("it was removed");
    let _again = add(&jit, "f", 7);
    assert_eq!(calls.call_guarded(1).expect("it is there"), 8);
}

#[test]
fn an_alias_reaches_no_other_function() {
    let jit = Jit::builder().jobs(1).build().expect("a session");
    let tracker = add(&jit, "f", 1);
    let alias = uruk::Alias {
        name: jit.intern("alias"),
        target: jit.intern("f"),
        flags: uruk::Flags::EXPORTED.with(uruk::Flags::CALLABLE),
    };
    jit.main().alias([alias]).expect("defined");
    let by_alias = function(&jit, "alias");
    assert_eq!(by_alias.call(1), 2);
    drop(by_alias);
    remove(&jit, &tracker);
    others(&jit);
    // SAFETY: a function of that type, or none.
    if let Ok(by_alias) = unsafe { jit.function::<Unary>("alias") } {
        by_alias.call_guarded(1).expect_err("it was removed");
    }
}

#[test]
fn threads_that_look_up_and_call_meanwhile_reach_no_other_function() {
    let jit = Jit::builder().build().expect("a session");
    std::thread::scope(|scope| {
        for thread in 0..3_i64 {
            let jit = &jit;
            scope.spawn(move || {
                for number in 0..400 {
                    let name = format!("t{thread}n{number}");
                    let summand = thread * 1000 + number;
                    let tracker = add(jit, &name, summand);
                    let handle = function(jit, &name);
                    assert_eq!(handle.call(1), summand + 1);
                    // SAFETY: what may be called of it fails with a value.
                    unsafe { tracker.remove() }.expect("removed");
                    let late = handle.call_guarded(1);
                    assert!(late.is_err(), "{name}: {late:?}");
                }
            });
        }
        // One name that comes and goes, which others look up all the time.
        let (jit, wanted) = (&jit, "comes");
        scope.spawn(move || {
            for _ in 0..400 {
                let tracker = add(jit, wanted, 77);
                // SAFETY: as above.
                unsafe { tracker.remove() }.expect("removed");
            }
        });
        scope.spawn(move || {
            for _ in 0..4000 {
                // SAFETY: a function of that type, or none.
                if let Ok(handle) = unsafe { jit.function::<Unary>(wanted) }
                    && let Ok(value) = handle.call_guarded(1)
                {
                    assert_eq!(value, 78);
                }
            }
        });
    });
}

#[test]
fn stubs_of_objects_are_used_again_unless_code_was_linked() {
    let jit = Jit::builder().jobs(1).build().expect("a session");
    let add_object = |name: &str, value| {
        let tracker = jit.main().create_tracker().expect("a tracker");
        let object = one_function::object(name, value);
        tracker.add_object("o.o", object).expect("added");
        tracker
    };
    let linked = add_object("o", 42);
    let caller = "declare i64 @o(i64) define i64 @calls(i64 %x) {
        %y = call i64 @o(i64 %x) ret i64 %y }";
    jit.add_ir("caller", caller).expect("added");
    let calls = function(&jit, "calls");
    assert_eq!(calls.call(1), 42);
    remove(&jit, &linked);
    let mut before = 0;
    for number in 0..600 {
        let name = format!("o{number}");
        let tracker = add_object(&name, 7);
        jit.lookup(&name).expect("found");
        assert_eq!(function(&jit, &name).call(1), 7);
        remove(&jit, &tracker);
        if number == 10 {
            before = jit.memory().of(uruk::MemoryPurpose::Stubs);
        }
    }
    assert_eq!(jit.memory().of(uruk::MemoryPurpose::Stubs), before);
    calls.call_guarded(1).expect_err("it was removed");
}
