//! Errors: their contents, the callers they reach, and the symbols that fail together.

use std::error::Error as _;
use std::sync::{Arc, Mutex, mpsc};

use uruk::{Error, Jit, Lookup, Required, SessionError, SymbolState, Visibility};

use crate::unit::*;

#[test]
fn reported_errors_reach_the_reporter() {
    let (jit, reports) = reporting();
    jit.report(&oops());
    let told = reports.lock().unwrap().pop().unwrap();
    assert!(matches!(told, SessionError::Unit { .. }), "{told}");
}

#[test]
fn failures_that_nobody_waits_for_reach_the_reporter_and_others_do_not() {
    let (jit, reports) = reporting();
    let (work, future) = at_work(&jit, &["a"]);
    work.fail(oops());
    assert!(future.wait().is_err());
    assert!(reports.lock().unwrap().is_empty());
    let (unit, kept) = TestUnit::kept(&jit, &["b"]);
    jit.main().define(unit).unwrap();
    let resolved = start(&jit, &["b"], Required::Resolved);
    let work = kept.take();
    resolve(&work).unwrap();
    resolved.wait().unwrap();
    work.fail(oops());
    let told = reports.lock().unwrap().pop().unwrap();
    assert!(
        told.to_string().contains("test") || names(&told) == ["b"],
        "{told}"
    );
}

#[test]
fn a_unit_that_panics_is_reported_and_has_failed() {
    let (jit, reports) = reporting();
    let bad = |names: &[&str]| TestUnit::new(&jit, names, |_| panic!("a bad unit"));
    jit.main().define(bad(&["a"])).unwrap();
    jit.main().define(bad(&["f()"])).unwrap();
    assert_eq!(names(&failure(&jit, &["a"])), ["a"]);
    assert_eq!(call(&jit, "f"), -1);
    let reports = reports.lock().unwrap();
    let panics = reports
        .iter()
        .filter(|error| error.to_string().contains("a bad unit"));
    assert_eq!(panics.count(), 2, "{reports:?}");
}

#[test]
fn a_failure_names_all_symbols_of_all_dylibs() {
    let (jit, _) = reporting();
    let other = jit.create_dylib("other").unwrap();
    jit.main()
        .define(TestUnit::failing(&jit, &["a", "b"]))
        .unwrap();
    other.define(TestUnit::failing(&jit, &["c"])).unwrap();
    let order = [
        (jit.main(), Visibility::All),
        (other.clone(), Visibility::All),
    ];
    let symbols = ["c", "b", "a"].map(|name| jit.intern(name));
    let lookup = Lookup::new(order).symbols(symbols);
    assert!(jit.lookup_all(lookup.clone()).is_err());
    assert!(other.lookup("c").is_err());
    let error = session(jit.lookup_all(lookup).map(drop));
    let text = "failed to materialize other: {c}, main: {a, b}";
    assert_eq!(error.to_string(), text);
    let sets = error.names().unwrap().sets();
    let sets: Vec<_> = sets
        .iter()
        .map(|(dylib, of)| (&**dylib, of.len()))
        .collect();
    assert_eq!(sets, [("other", 1), ("main", 2)]);
}

#[test]
fn a_failure_says_what_the_unit_said() {
    let (jit, _) = reporting();
    jit.main()
        .define(TestUnit::failing(&jit, &["a", "f()"]))
        .unwrap();
    let error = failure(&jit, &["a"]);
    let cause = error.source().unwrap();
    assert_eq!(cause.to_string(), "test");
    assert_eq!(cause.source().unwrap().to_string(), "oops");
    // Bodies are told by the names of their functions.
    assert_eq!(names(&error), ["a", "f"]);
    let error = session(jit.main().compile("f"));
    assert_eq!(names(&error), ["f"]);
}

#[test]
fn a_failure_after_resolution_reaches_who_waits_for_ready() {
    let (jit, _) = reporting();
    let (work, ready) = at_work(&jit, &["a", "b"]);
    let resolved = start(&jit, &["a", "b"], Required::Resolved);
    assert!(resolved.is_done());
    work.fail(oops());
    assert!(resolved.wait().is_ok());
    assert_eq!(names(&session(ready.wait().map(drop))), ["a", "b"]);
}

#[test]
fn a_failure_after_partial_resolution_reaches_who_waits_for_the_rest() {
    let (jit, _) = reporting();
    let (unit, kept) = TestUnit::kept(&jit, &["a", "b"]);
    jit.main().define(unit).unwrap();
    let both = start(&jit, &["a", "b"], Required::Resolved);
    let work = kept.take();
    work.resolve(&[(jit.intern("a"), 1)]).unwrap();
    assert!(!both.is_done());
    work.fail(oops());
    assert_eq!(names(&session(both.wait().map(drop))), ["a", "b"]);
    let state = jit.main().state_of(jit.intern("a"));
    assert_eq!(state, Some(SymbolState::Failed));
}

#[test]
fn an_error_outlives_its_session() {
    let (error, future, missing) = {
        let (jit, _) = reporting();
        jit.main().define(TestUnit::failing(&jit, &["a"])).unwrap();
        let missing = failure(&jit, &["b"]);
        (
            failure(&jit, &["a"]),
            start(&jit, &["a"], Required::Ready),
            missing,
        )
    };
    assert_eq!(error.to_string(), "failed to materialize main: {a}");
    assert_eq!(missing.to_string(), "symbols not found: main: {b}");
    assert!(future.wait().is_err());
}

#[test]
fn a_session_ends_with_its_last_handle_and_takes_its_units_along() {
    let log = Log::default();
    let weak = {
        let jit = Jit::new().unwrap();
        let unit = TestUnit::plain(&jit, &["a"]).log(&log);
        jit.main().define(unit).unwrap();
        let other = jit.create_dylib("other").unwrap();
        let weak = jit.downgrade();
        drop(jit);
        // Any handle keeps it.
        assert!(weak.upgrade().is_some());
        drop(other);
        weak
    };
    assert!(weak.upgrade().is_none());
    // With the last thread of it, which ends by itself.
    let end = std::time::Instant::now() + PATIENCE;
    while log.all().is_empty() && std::time::Instant::now() < end {
        std::thread::yield_now();
    }
    assert_eq!(log.all(), ["drop"]);
}

#[test]
fn what_waits_when_its_session_ends_is_told() {
    let jit = Jit::new().unwrap();
    let lookup = ask(&jit).symbol(jit.intern("a")).wait_for_missing();
    let future = jit.lookup_future(lookup);
    drop(jit);
    let result = within("a lookup whose session ended", move || {
        future.wait().map(drop)
    });
    assert!(matches!(session(result), SessionError::Ended));
}

#[test]
fn a_missing_name_of_a_lookup_by_name_is_told_with_the_name() {
    let jit = Jit::new().unwrap();
    let Err(Error::MissingSymbols { missing }) = jit.lookup("nowhere") else {
        panic!("another error");
    };
    assert_eq!(missing[0].symbol, "nowhere");
}

#[test]
fn a_callback_that_panics_is_reported_and_keeps_no_other_from_being_called() {
    let reports = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&reports);
    let reporter = move |error: &SessionError| {
        told.lock().unwrap().push(error.to_string());
        // A panic of the reporter itself does no harm.
        std::panic::resume_unwind(Box::new("a reporter"));
    };
    let jit = Jit::builder().on_error(reporter).build().unwrap();
    let (unit, kept) = TestUnit::kept(&jit, &["a"]);
    let tracker = jit.main().create_tracker().unwrap();
    tracker.define(unit).unwrap();
    let a = jit.intern("a");
    let panic = |text: &'static str| std::panic::resume_unwind(Box::new(text));
    jit.lookup_async(ask(&jit).symbol(a), move |_| panic("a completion"));
    let (sender, receiver) = mpsc::channel();
    jit.lookup_async(ask(&jit).symbol(a), move |found| {
        sender.send(found.is_ok()).unwrap();
    });
    let future = start(&jit, &["a"], Required::Ready);
    finish(kept.take());
    assert_eq!(receiver.recv_timeout(PATIENCE), Ok(true));
    assert_eq!(future.wait().unwrap().len(), 1);
    let released = Arc::new(Mutex::new(0));
    for panics in [false, true, false] {
        let released = Arc::clone(&released);
        let resource = move || {
            *released.lock().unwrap() += 1;
            if panics {
                panic("a resource");
            }
        };
        tracker.attach(resource).unwrap();
    }
    // SAFETY: no code came of it.
    unsafe { tracker.remove() }.unwrap();
    assert_eq!(*released.lock().unwrap(), 3);
    let reports = reports.lock().unwrap();
    for text in ["a completion", "a resource"] {
        assert!(reports.iter().any(|it| it.contains(text)), "{reports:?}");
    }
}
