//! Definitions of names that have a definition already, and definitions that are removed.

use uruk::{Flags, Jit, Required, SessionError, SymbolState};

use crate::unit::*;

const NOTHING: [&str; 0] = [];

#[test]
fn strong_over_strong_is_a_duplicate_that_names_all_and_changes_nothing() {
    let jit = Jit::new().unwrap();
    let main = jit.main();
    main.define(TestUnit::plain(&jit, &["a", "b"])).unwrap();
    let log = Log::default();
    let unit = TestUnit::plain(&jit, &["c", "b", "a"]).log(&log);
    let error = session(main.define(unit));
    assert!(matches!(error, SessionError::Duplicate(_)), "{error}");
    assert_eq!(names(&error), ["a", "b"]);
    assert_eq!(log.all(), ["drop"]);
    assert_eq!(main.state_of(jit.intern("c")), None);
    let found = start(&jit, &["a", "b"], Required::Ready).wait().unwrap();
    assert_eq!(found.len(), 2);
}

#[test]
fn a_name_that_is_twice_in_one_unit_is_a_duplicate() {
    let jit = Jit::new().unwrap();
    for twice in [["a", "a"], ["a()", "a()"]] {
        let error = session(jit.main().define(TestUnit::plain(&jit, &twice)));
        assert!(matches!(error, SessionError::Duplicate(_)), "{error}");
        assert_eq!(jit.main().state_of(jit.intern("a")), None);
    }
}

#[test]
fn a_refused_unit_of_functions_leaves_no_stub() {
    let jit = Jit::new().unwrap();
    let main = jit.main();
    main.define(TestUnit::at(&jit, &[("a()", address(seven))]))
        .unwrap();
    let log = Log::default();
    let unit = TestUnit::at(&jit, &[("b()", address(eight)), ("a()", address(eight))]);
    let error = session(main.define(unit.log(&log)));
    assert_eq!(names(&error), ["a"]);
    assert_eq!(log.all(), ["drop"]);
    assert_eq!(main.state_of(jit.intern("b")), None);
    assert_eq!(call(&jit, "a"), 7);
    main.define(TestUnit::at(&jit, &[("b()", address(eight))]))
        .unwrap();
    assert_eq!(call(&jit, "b"), 8);
}

#[test]
fn strong_over_what_was_searched_is_a_duplicate() {
    let jit = Jit::new().unwrap();
    let unit = TestUnit::plain(&jit, &["a"]).flags(Flags::WEAK);
    jit.main().define(unit).unwrap();
    start(&jit, &["a"], Required::Ready).wait().unwrap();
    let error = session(jit.main().define(TestUnit::plain(&jit, &["a"])));
    assert!(matches!(error, SessionError::Duplicate(_)), "{error}");
}

#[test]
fn strong_takes_the_place_of_a_weak_or_common_one_nobody_searched() {
    for weak in [Flags::WEAK, Flags::COMMON] {
        let jit = Jit::new().unwrap();
        let (old, new) = (Log::default(), Log::default());
        // `b` of the older unit stays.
        let unit = TestUnit::plain(&jit, &["a", "b"]).flags(weak).log(&old);
        jit.main().define(unit).unwrap();
        let unit = TestUnit::at(&jit, &[("a", 0x10)]).log(&new);
        jit.main().define(unit).unwrap();
        assert_eq!(old.all(), ["discard a"]);
        assert_eq!(jit.lookup("a").unwrap(), 0x10);
        assert_eq!(new.until_dropped(), ["materialize", "drop"]);
        assert_eq!(jit.lookup("b").unwrap(), place(jit.intern("b")));
        assert_eq!(old.until_dropped(), ["discard a", "materialize", "drop"]);
    }
}

#[test]
fn a_unit_is_dropped_when_nothing_is_left_of_it() {
    let jit = Jit::new().unwrap();
    let log = Log::default();
    let unit = TestUnit::plain(&jit, &["a", "b"]).flags(Flags::WEAK);
    jit.main().define(unit.log(&log)).unwrap();
    jit.main().define(TestUnit::plain(&jit, &["a"])).unwrap();
    assert_eq!(log.all(), ["discard a"]);
    jit.main().define(TestUnit::plain(&jit, &["b"])).unwrap();
    assert_eq!(log.all(), ["discard a", "discard b", "drop"]);
}

#[test]
fn weak_or_common_over_anything_is_discarded() {
    for weak in [Flags::WEAK, Flags::COMMON] {
        let jit = Jit::new().unwrap();
        let main = jit.main();
        let define = |names: &[&str], log: &Log| {
            main.define(TestUnit::plain(&jit, names).flags(weak).log(log))
                .unwrap();
        };
        main.define(TestUnit::plain(&jit, &["strong"])).unwrap();
        define(&["weak"], &Log::default());
        main.define(TestUnit::plain(&jit, &["ready"])).unwrap();
        jit.lookup("ready").unwrap();
        for name in ["strong", "weak", "ready"] {
            let log = Log::default();
            define(&[name], &log);
            assert_eq!(log.all(), [format!("discard {name}"), "drop".into()]);
        }
    }
}

#[test]
fn the_first_weak_wins_and_a_second_one_keeps_its_other_symbols() {
    let jit = Jit::new().unwrap();
    let (first, second) = (Log::default(), Log::default());
    let unit = TestUnit::at(&jit, &[("a", 0x10)]).flags(Flags::WEAK);
    jit.main().define(unit.log(&first)).unwrap();
    let unit = TestUnit::at(&jit, &[("a", 0x20), ("b", 0x30)]).flags(Flags::WEAK);
    jit.main().define(unit.log(&second)).unwrap();
    assert_eq!(second.all(), ["discard a"]);
    assert_eq!(jit.lookup("a").unwrap(), 0x10);
    assert_eq!(jit.lookup("b").unwrap(), 0x30);
    assert_eq!(first.until_dropped(), ["materialize", "drop"]);
    assert_eq!(second.until_dropped(), ["discard a", "materialize", "drop"]);
}

#[test]
fn a_unit_that_lost_a_weak_symbol_is_not_responsible_for_it() {
    let jit = Jit::new().unwrap();
    let (weak, own) = (jit.intern("weak"), jit.intern("own"));
    let unit = TestUnit::new(&jit, &["weak", "own"], move |responsibility| {
        assert!(!responsibility.covers(weak));
        assert_eq!(responsibility.symbols().len(), 1);
        let foreign = responsibility.resolve(&[(weak, 1)]).unwrap_err();
        assert!(matches!(foreign, SessionError::NotResponsible(_)));
        responsibility.resolve(&[(own, 2)]).unwrap();
        responsibility.emit(&[]).unwrap();
    });
    jit.main().define(unit.flags(Flags::WEAK)).unwrap();
    jit.main()
        .define(TestUnit::at(&jit, &[("weak", 3)]))
        .unwrap();
    let found = start(&jit, &["weak", "own"], Required::Ready);
    let found = found.wait().unwrap();
    assert_eq!(
        (found.address(weak), found.address(own)),
        (Some(3), Some(2))
    );
}

#[test]
fn a_failed_symbol_may_be_defined_anew() {
    let (jit, _) = reporting();
    let main = jit.main();
    main.define(TestUnit::failing(&jit, &["a", "f()"])).unwrap();
    assert!(jit.lookup("a").is_err());
    assert_eq!(main.state_of(jit.intern("a")), Some(SymbolState::Failed));
    main.define(TestUnit::plain(&jit, &["a"])).unwrap();
    assert_eq!(jit.lookup("a").unwrap(), place(jit.intern("a")));
}

#[test]
fn a_failed_function_may_be_defined_anew_once_it_is_removed() {
    let (jit, _) = reporting();
    let main = jit.main();
    main.define(TestUnit::failing(&jit, &["f()"])).unwrap();
    assert_eq!(call(&jit, "f"), -1);
    let again = || TestUnit::at(&jit, &[("f()", address(seven))]);
    // Its stub is there, and works as soon as something is behind it.
    let error = session(main.define(again()));
    assert!(matches!(error, SessionError::Duplicate(_)), "{error}");
    // SAFETY: it is called only after it was defined anew.
    unsafe { main.undefine(&[jit.intern("f")]).unwrap() };
    main.define(again()).unwrap();
    assert_eq!(call(&jit, "f"), 7);
}

#[test]
fn removing_what_is_missing_or_in_flight_is_an_error_that_changes_nothing() {
    let jit = Jit::new().unwrap();
    let main = jit.main();
    let [a, b, c] = ["a", "b", "c"].map(|name| jit.intern(name));
    let log = Log::default();
    main.define(TestUnit::plain(&jit, &["a"]).log(&log))
        .unwrap();
    let (responsibility, future) = at_work(&jit, &["b"]);
    // SAFETY: no thread uses them.
    let remove = |symbols: &[uruk::Symbol]| unsafe { main.undefine(symbols) };
    let error = session(remove(&[a, c]));
    assert!(matches!(error, SessionError::NotFound(_)), "{error}");
    assert_eq!(names(&error), ["c"]);
    let error = session(remove(&[a, b]));
    assert!(matches!(error, SessionError::InFlight(_)), "{error}");
    assert_eq!(names(&error), ["b"]);
    assert_eq!(log.all(), NOTHING);
    responsibility.emit(&[]).unwrap();
    future.wait().unwrap();
    remove(&[a, b]).unwrap();
    assert_eq!(log.all(), ["discard a", "drop"]);
    assert_eq!(names(&failure(&jit, &["a", "b"])), ["a", "b"]);
}

#[test]
fn removing_what_was_not_materialized_discards_it() {
    let jit = Jit::new().unwrap();
    let log = Log::default();
    let unit = TestUnit::plain(&jit, &["a", "b"]).log(&log);
    jit.main().define(unit).unwrap();
    // SAFETY: no thread uses it.
    unsafe { jit.main().undefine(&[jit.intern("a")]).unwrap() };
    assert_eq!(log.all(), ["discard a"]);
    assert!(jit.lookup("b").is_ok());
    assert!(jit.lookup("a").is_err());
}

#[test]
fn a_removed_function_is_discarded_and_may_be_defined_anew() {
    for known in [false, true] {
        let (jit, _) = reporting();
        let main = jit.main();
        let log = Log::default();
        let unit = TestUnit::at(&jit, &[("f()", address(seven))]).log(&log);
        main.define(unit).unwrap();
        let stub = known.then(|| jit.lookup("f").unwrap());
        // SAFETY: it is called only after it was defined anew.
        unsafe { main.undefine(&[jit.intern("f")]).unwrap() };
        assert_eq!(log.all(), ["discard f", "drop"]);
        assert!(jit.lookup("f").is_err());
        main.define(TestUnit::at(&jit, &[("f()", address(eight))]))
            .unwrap();
        assert_eq!(call(&jit, "f"), 8);
        assert!(stub.is_none_or(|stub| stub == jit.lookup("f").unwrap()));
    }
}

#[test]
fn calls_of_a_function_that_was_removed_after_it_ran_fail() {
    let (jit, _) = reporting();
    let main = jit.main();
    main.define(TestUnit::at(&jit, &[("f()", address(seven))]))
        .unwrap();
    // SAFETY: as `call`.
    let f = unsafe { jit.function::<extern "C" fn() -> i64>("f") }.unwrap();
    assert_eq!(f.call(), 7);
    // SAFETY: the host's code stays.
    unsafe { main.undefine(&[jit.intern("f")]).unwrap() };
    assert_eq!(f.call(), -1);
    main.define(TestUnit::at(&jit, &[("f()", address(eight))]))
        .unwrap();
    assert_eq!(f.call(), 8);
}

#[test]
fn a_function_at_whose_body_somebody_is_at_work_is_in_flight() {
    let (jit, _) = reporting();
    let main = jit.main();
    let (unit, kept) = TestUnit::kept(&jit, &["f()"]);
    main.define(unit).unwrap();
    let caller = std::thread::spawn({
        let jit = jit.clone();
        move || call(&jit, "f")
    });
    let responsibility = kept.take();
    let f = jit.intern("f");
    // SAFETY: it is refused.
    let error = session(unsafe { main.undefine(&[f]) });
    assert!(matches!(error, SessionError::InFlight(_)), "{error}");
    assert_eq!(names(&error), ["f"]);
    responsibility.resolve(&[(f, address(seven))]).unwrap();
    responsibility.emit(&[]).unwrap();
    assert_eq!(caller.join().unwrap(), 7);
}

#[test]
fn symbols_can_be_removed_and_their_tracker_afterwards() {
    let jit = Jit::new().unwrap();
    let tracker = jit.main().create_tracker().unwrap();
    for _ in 0..100 {
        let tracker = jit.main().create_tracker().unwrap();
        tracker.define(TestUnit::plain(&jit, &["a", "b"])).unwrap();
        jit.lookup("a").unwrap();
        // SAFETY: no thread uses them.
        unsafe {
            jit.main().undefine(&[jit.intern("b")]).unwrap();
            tracker.remove().unwrap();
        }
    }
    tracker.define(TestUnit::plain(&jit, &["a", "b"])).unwrap();
    assert!(jit.lookup("a").is_ok() && jit.lookup("b").is_ok());
}
