//! The operations of a responsibility, the obligation to define something.

use uruk::{
    Flags, Interface, Jit, Required, Responsibility, SessionError, Symbol, SymbolState, Unit,
};

use crate::unit::*;

const NOTHING: [&str; 0] = [];

fn state(jit: &Jit, name: &str) -> Option<SymbolState> {
    jit.main().state_of(jit.intern(name))
}

#[test]
fn it_knows_what_it_is_for_and_which_of_it_was_asked_for() {
    let jit = Jit::new().unwrap();
    let [a, b, init] = ["a", "b", "init"].map(|name| jit.intern(name));
    let (unit, kept) = TestUnit::kept(&jit, &["a", "b"]);
    let tracker = jit.main().create_tracker().unwrap();
    tracker.define(unit.init(init)).unwrap();
    let future = start(&jit, &["a"], Required::Ready);
    let responsibility = kept.take();
    assert_eq!(responsibility.requested(), [a]);
    let more = start(&jit, &["b"], Required::Ready);
    assert_eq!(responsibility.requested().len(), 2);
    let effects = (init, Flags::SIDE_EFFECTS_ONLY);
    let own = [(a, Flags::EXPORTED), (b, Flags::EXPORTED), effects];
    assert_eq!(responsibility.symbols(), own);
    assert!(responsibility.covers(a) && !responsibility.covers(jit.intern("c")));
    assert_eq!(responsibility.init_symbol(), Some(init));
    assert_eq!(responsibility.dylib(), jit.main());
    assert!(responsibility.tracker().unwrap() == tracker);
    assert_eq!(responsibility.jit().name_of(a), "a");
    finish(responsibility);
    assert!(future.is_done() && more.is_done());
}

#[test]
fn a_unit_with_two_symbols_defines_both_when_one_is_asked_for() {
    let (jit, reports) = reporting();
    let log = Log::default();
    let a = jit.intern("a");
    let unit = TestUnit::new(&jit, &["a", "b"], move |responsibility| {
        assert_eq!(responsibility.requested(), [a]);
        finish(responsibility);
    });
    jit.main().define(unit.log(&log)).unwrap();
    jit.lookup("a").unwrap();
    assert_eq!(state(&jit, "b"), Some(SymbolState::Ready));
    assert_eq!(log.until_dropped(), ["materialize", "drop"]);
    assert!(reports.lock().unwrap().is_empty());
}

#[test]
fn the_first_call_of_a_function_asks_for_it_alone() {
    let jit = Jit::new().unwrap();
    let f = jit.intern("f");
    let unit = TestUnit::new(&jit, &["f()", "g()"], move |responsibility| {
        assert_eq!(responsibility.requested(), [f]);
        let symbols = responsibility.symbols().iter();
        let both: Vec<_> = symbols.map(|(s, _)| (*s, address(seven))).collect();
        responsibility.resolve(&both).unwrap();
        responsibility.emit(&[]).unwrap();
    });
    jit.main().define(unit).unwrap();
    assert_eq!((call(&jit, "f"), call(&jit, "g")), (7, 7));
}

#[test]
fn symbols_can_be_resolved_step_by_step() {
    let jit = Jit::new().unwrap();
    let [a, b] = ["a", "b"].map(|name| jit.intern(name));
    let (unit, kept) = TestUnit::kept(&jit, &["a", "b"]);
    jit.main().define(unit).unwrap();
    let one = start(&jit, &["a"], Required::Resolved);
    let both = start(&jit, &["a", "b"], Required::Resolved);
    let responsibility = kept.take();
    responsibility.resolve(&[(a, 1)]).unwrap();
    assert!(one.is_done() && !both.is_done());
    responsibility.resolve(&[(b, 2)]).unwrap();
    assert_eq!(both.wait().unwrap().address(b), Some(2));
    responsibility.emit(&[]).unwrap();
}

#[test]
fn it_is_not_responsible_for_others() {
    let (jit, _) = reporting();
    let [a, b] = ["a", "b"].map(|name| jit.intern(name));
    let (mut work, future) = at_work(&jit, &["a"]);
    jit.main().define(TestUnit::plain(&jit, &["b"])).unwrap();
    let foreign = |error: SessionError| {
        assert!(matches!(error, SessionError::NotResponsible(_)), "{error}");
        assert_eq!(names(&error), ["b"]);
    };
    foreign(work.resolve(&[(a, 1), (b, 1)]).unwrap_err());
    foreign(work.delegate(&[b]).map(drop).unwrap_err());
    foreign(work.replace(TestUnit::plain(&jit, &["b"])).unwrap_err());
    assert!(!future.is_done());
    let group = uruk::DependenceGroup {
        symbols: vec![b],
        dependences: Vec::new(),
    };
    foreign(work.emit(&[group]).unwrap_err());
    assert!(future.wait().is_err());
}

#[test]
fn symbols_can_be_claimed_late_and_looked_up_then() {
    let jit = Jit::new().unwrap();
    let [b, d] = ["b", "d"].map(|name| jit.intern(name));
    let (mut work, future) = at_work(&jit, &["a"]);
    jit.main().define(TestUnit::plain(&jit, &["d"])).unwrap();
    let weak = Flags::EXPORTED | Flags::WEAK;
    let claimed = work.claim(&[(b, Flags::EXPORTED), (d, weak)]).unwrap();
    assert_eq!(claimed, [b]);
    assert!(work.covers(b) && !work.covers(d));
    let error = work.claim(&[(d, Flags::EXPORTED)]).unwrap_err();
    assert!(matches!(error, SessionError::Duplicate(_)), "{error}");
    assert_eq!(names(&error), ["d"]);
    let late = start(&jit, &["b"], Required::Ready);
    assert!(!late.is_done());
    finish(work);
    assert!(future.is_done());
    assert_eq!(late.wait().unwrap().address(b), Some(place(b)));
}

#[test]
fn what_nobody_asked_for_can_be_given_back_to_another_unit() {
    let (jit, reports) = reporting();
    let log = Log::default();
    let (mut work, future) = at_work(&jit, &["a", "b"]);
    work.replace(TestUnit::plain(&jit, &["b"]).log(&log))
        .unwrap();
    assert!(!work.covers(jit.intern("b")));
    assert_eq!(state(&jit, "b"), Some(SymbolState::NeverSearched));
    finish(work);
    assert!(future.is_done());
    assert_eq!(log.all(), NOTHING);
    jit.lookup("b").unwrap();
    assert_eq!(log.until_dropped(), ["materialize", "drop"]);
    assert!(reports.lock().unwrap().is_empty());
}

#[test]
fn what_is_waited_for_is_materialized_at_once_by_the_unit_it_is_given_to() {
    let (jit, reports) = reporting();
    let log = Log::default();
    let (mut work, future) = at_work(&jit, &["a"]);
    work.replace(TestUnit::plain(&jit, &["a"]).log(&log))
        .unwrap();
    assert_eq!(log.until_dropped(), ["materialize", "drop"]);
    assert!(future.is_done());
    // Nothing is left to fail.
    drop(work);
    assert!(reports.lock().unwrap().is_empty());
    assert_eq!(state(&jit, "a"), Some(SymbolState::Ready));
}

#[test]
fn functions_can_be_given_back_one_by_one() {
    let jit = Jit::new().unwrap();
    let log = Log::default();
    let told = log.clone();
    let unit = TestUnit::new(&jit, &["f()", "g()"], move |mut responsibility| {
        let jit = responsibility.jit().clone();
        assert_eq!(responsibility.requested(), [jit.intern("f")]);
        let rest = TestUnit::at(&jit, &[("g()", address(eight))]).log(&told);
        responsibility.replace(rest).unwrap();
        let f = jit.intern("f");
        responsibility.resolve(&[(f, address(seven))]).unwrap();
        responsibility.emit(&[]).unwrap();
    });
    jit.main().define(unit).unwrap();
    assert_eq!(call(&jit, "f"), 7);
    assert_eq!(log.all(), NOTHING);
    assert_eq!(call(&jit, "g"), 8);
    assert_eq!(log.until_dropped(), ["materialize", "drop"]);
}

#[test]
fn a_part_can_be_delegated() {
    let (jit, reports) = reporting();
    let (mut work, future) = at_work(&jit, &["a", "b"]);
    let part = work.delegate(&[jit.intern("b")]).unwrap();
    assert_eq!((work.symbols().len(), part.symbols().len()), (1, 1));
    finish(work);
    assert!(future.is_done());
    assert_eq!(state(&jit, "b"), Some(SymbolState::Resolved));
    part.emit(&[]).unwrap();
    assert_eq!(state(&jit, "b"), Some(SymbolState::Ready));
    assert!(reports.lock().unwrap().is_empty());
}

#[test]
fn a_delegated_part_fails_alone() {
    let (jit, _) = reporting();
    let (mut work, future) = at_work(&jit, &["a", "b", "f()"]);
    let part = work.delegate(&[jit.intern("b"), jit.intern("f")]).unwrap();
    part.fail(oops());
    finish(work);
    assert!(future.wait().is_ok());
    assert_eq!(names(&failure(&jit, &["a", "b"])), ["b"]);
    assert_eq!(call(&jit, "f"), -1);
}

#[test]
fn dropping_it_unfinished_is_a_failure_of_its_symbols() {
    let (jit, _) = reporting();
    let (work, future) = at_work(&jit, &["a", "b"]);
    drop(work);
    let SessionError::Failed { symbols, cause } = session(future.wait().map(drop)) else {
        panic!("not failed");
    };
    assert_eq!(symbols.names(), ["a", "b"]);
    let cause = cause.unwrap();
    assert!(matches!(*cause, SessionError::Abandoned(_)), "{cause}");
}

#[test]
fn emitting_without_addresses_is_a_failure_that_names_them() {
    let (jit, _) = reporting();
    let (unit, kept) = TestUnit::kept(&jit, &["a", "b"]);
    jit.main().define(unit).unwrap();
    let future = start(&jit, &["a"], Required::Ready);
    let work = kept.take();
    work.resolve(&[(jit.intern("a"), 1)]).unwrap();
    let error = work.emit(&[]).unwrap_err();
    assert!(matches!(error, SessionError::Unresolved(_)), "{error}");
    assert_eq!(names(&error), ["b"]);
    assert!(future.wait().is_err());
}

/// Needs another symbol, and tries again when it is not there.
struct Needy(Symbol, &'static str);

impl Unit for Needy {
    fn name(&self) -> &str {
        "needy"
    }

    fn interface(&self) -> Interface {
        [(self.0, Flags::EXPORTED)].into_iter().collect()
    }

    fn materialize(self: Box<Self>, responsibility: Responsibility) {
        match responsibility.dylib().lookup(self.1) {
            Ok(_) => finish(responsibility),
            Err(error) => responsibility.fail_retryable(error, *self).unwrap(),
        }
    }
}

#[test]
fn what_failed_for_something_missing_is_tried_again_by_the_next_lookup() {
    let (jit, _) = reporting();
    jit.main().define(Needy(jit.intern("a"), "b")).unwrap();
    // The symbol `c`, which depends on `a`, keeps waiting.
    let (c, future) = at_work(&jit, &["c"]);
    let on_a = uruk::DependenceGroup {
        symbols: vec![jit.intern("c")],
        dependences: vec![(jit.main().id(), jit.intern("a"))],
    };
    c.emit(&[on_a]).unwrap();
    for _ in 0..2 {
        let error = failure(&jit, &["a"]);
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.contains('b') || cause == "unit", "{cause}");
    }
    assert!(future.wait().is_err());
    assert_eq!(state(&jit, "c"), Some(SymbolState::Emitted));
    jit.main().define(TestUnit::plain(&jit, &["b"])).unwrap();
    assert!(jit.lookup("c").is_ok() && jit.lookup("a").is_ok());
}

#[test]
fn what_it_keeps_is_released_when_its_definitions_are_removed() {
    let jit = Jit::new().unwrap();
    let log = Log::default();
    let tracker = jit.main().create_tracker().unwrap();
    let (unit, kept) = TestUnit::kept(&jit, &["a"]);
    tracker.define(unit).unwrap();
    let future = start(&jit, &["a"], Required::Ready);
    let work = kept.take();
    for what in ["first", "second"] {
        let log = log.clone();
        work.attach(move || log.push(what)).unwrap();
    }
    finish(work);
    future.wait().unwrap();
    assert_eq!(log.all(), NOTHING);
    // SAFETY: no thread uses it.
    unsafe { tracker.remove().unwrap() };
    assert_eq!(log.all(), ["second", "first"]);
}
