//! Texts of calls that fail name the function and the cause, and nothing of the library's own.

use std::sync::{Arc, Mutex};

use uruk::{Flags, Interface, Jit, Responsibility, SessionError, Tier, Tiers, Tracker, Unit};

type F = extern "C" fn() -> i64;

/// The text of a guarded call that fails.
fn failure(jit: &Jit, name: &str) -> String {
    // SAFETY: functions of this test, of that type.
    let function = unsafe { jit.function::<F>(name) }.expect("it is there");
    function.call_guarded().expect_err("it fails").to_string()
}

#[test]
fn a_layer_that_panics_is_the_cause_of_the_failure() {
    let jit = Jit::builder()
        .tiers(Tiers::Fixed(Tier::Optimized))
        .transform_objects(Arc::new(|name, object| match name {
            "good" => Ok(object),
            _ => panic!("no layer for {name}"),
        }))
        .build()
        .expect("a session");
    let ir = "define i64 @y() { ret i64 1 } define i64 @good() { ret i64 2 }";
    jit.add_ir("m", ir).expect("added");
    let text = failure(&jit, "y");
    let expected = "y has no code: a callback panicked: no layer for y";
    assert!(text.starts_with(expected), "{text}");
    let error = jit.compile_at("y", Tier::Optimized).expect_err("it panics");
    assert_eq!(error.to_string(), "a callback panicked: no layer for y");
    // SAFETY: a function of this test, of that type.
    let good = unsafe { jit.function::<F>("good") }.expect("it is there");
    assert_eq!(good.call(), 2);
}

/// A unit with one function, whose body does not come.
struct Failing {
    interface: Interface,
    panics: bool,
}

impl Unit for Failing {
    fn name(&self) -> &str {
        "failing"
    }

    fn interface(&self) -> Interface {
        self.interface.clone()
    }

    fn materialize(self: Box<Self>, responsibility: Responsibility) {
        assert!(!self.panics, "no body");
        responsibility.fail(SessionError::unit("its body", "no body"));
    }
}

#[test]
fn bodies_of_units_are_named_by_their_functions() {
    for panics in [false, true] {
        let jit = Jit::new().expect("a session");
        let flags = Flags::EXPORTED.with(Flags::CALLABLE);
        let interface = [(jit.intern("u"), flags)].into_iter().collect();
        let unit = Failing { interface, panics };
        jit.main().define(unit).expect("defined");
        let text = failure(&jit, "u");
        assert!(
            text.starts_with("u has no code: failed to materialize main: {u}: "),
            "{text}"
        );
        assert!(!text.contains("uruk."), "{text}");
    }
}

/// A layer removes the function, so that its compile begins anew and finds none.
#[test]
fn a_function_that_is_removed_while_it_is_compiled_is_named() {
    let tracker: Arc<Mutex<Option<Tracker>>> = Arc::default();
    let removed = Arc::clone(&tracker);
    let jit = Jit::builder()
        .tiers(Tiers::Fixed(Tier::Optimized))
        .transform_objects(Arc::new(move |_, object| {
            let tracker = removed.lock().expect("no panic").take();
            if let Some(tracker) = tracker {
                let remove = std::thread::spawn(move || {
                    // SAFETY: nothing but the handle calls its function.
                    unsafe { tracker.remove() }.expect("removed");
                });
                remove.join().expect("no panic");
            }
            Ok(object)
        }))
        .build()
        .expect("a session");
    let own = jit.main().create_tracker().expect("a tracker");
    own.add_ir("n", "define i64 @q() { ret i64 2 }")
        .expect("added");
    // SAFETY: a function of this test, of that type.
    let q = unsafe { jit.function::<F>("q") }.expect("it is there");
    *tracker.lock().expect("no panic") = Some(own);
    let error = jit.compile_at("q", Tier::Optimized);
    let text = error.expect_err("it is removed").to_string();
    assert!(text.starts_with("q: "), "{text}");
    let text = q.call_guarded().expect_err("it is removed").to_string();
    assert!(text.starts_with("q has no code"), "{text}");
}
