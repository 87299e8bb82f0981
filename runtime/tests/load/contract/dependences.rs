//! A symbol is ready only when everything is that it depends on.

use uruk::{Alias, DependenceGroup, Flags, Jit, Required, SessionError, SymbolState};

use crate::unit::*;

/// Each of `names` depends on each of `on`, all of the main dylib.
fn depends(jit: &Jit, on: &[&str], names: &[&str]) -> DependenceGroup {
    let dylib = jit.main().id();
    DependenceGroup {
        symbols: names.iter().map(|name| jit.intern(name)).collect(),
        dependences: on.iter().map(|name| (dylib, jit.intern(name))).collect(),
    }
}

fn state(jit: &Jit, name: &str) -> Option<SymbolState> {
    jit.main().state_of(jit.intern(name))
}

#[test]
fn a_symbol_may_depend_on_itself() {
    let jit = Jit::new().unwrap();
    let (a, future) = at_work(&jit, &["a"]);
    a.emit(&[depends(&jit, &["a"], &["a"])]).unwrap();
    assert!(future.is_done());
}

#[test]
fn a_cycle_of_three_becomes_ready_together() {
    let jit = Jit::new().unwrap();
    let [(a, fa), (b, fb), (c, fc)] = ["a", "b", "c"].map(|name| at_work(&jit, &[name]));
    a.emit(&[depends(&jit, &["a", "b"], &["a"])]).unwrap();
    b.emit(&[depends(&jit, &["c"], &["b"])]).unwrap();
    assert!(!fa.is_done() && !fb.is_done());
    assert_eq!(state(&jit, "a"), Some(SymbolState::Emitted));
    c.emit(&[depends(&jit, &["a", "c"], &["c"])]).unwrap();
    assert!(fa.is_done() && fb.is_done() && fc.is_done());
    assert_eq!(state(&jit, "b"), Some(SymbolState::Ready));
}

#[test]
fn only_what_is_not_ready_is_told_as_a_dependence() {
    let jit = Jit::new().unwrap();
    jit.main().define(TestUnit::plain(&jit, &["b"])).unwrap();
    jit.lookup("b").unwrap();
    let (c, _) = at_work(&jit, &["c"]);
    let found = start(&jit, &["b", "c"], Required::Resolved).wait().unwrap();
    let on = found.dependences();
    assert_eq!(on, [(jit.main().id(), jit.intern("c"))]);
    let (a, future) = at_work(&jit, &["a"]);
    let group = DependenceGroup {
        symbols: vec![jit.intern("a")],
        dependences: on,
    };
    a.emit(&[group]).unwrap();
    assert!(!future.is_done());
    c.emit(&[]).unwrap();
    assert!(future.is_done());
}

#[test]
fn groups_may_overlap_and_share() {
    let jit = Jit::new().unwrap();
    let (c, _) = at_work(&jit, &["c"]);
    let (d, _) = at_work(&jit, &["d"]);
    let (ab, future) = at_work(&jit, &["a", "b"]);
    ab.emit(&[
        depends(&jit, &["c", "d"], &["a", "b"]),
        depends(&jit, &["b"], &["a"]),
    ])
    .unwrap();
    c.emit(&[]).unwrap();
    assert!(!future.is_done());
    d.emit(&[]).unwrap();
    assert!(future.is_done());
    assert_eq!(state(&jit, "b"), Some(SymbolState::Ready));
}

#[test]
fn a_symbol_without_a_group_waits_for_nothing() {
    let jit = Jit::new().unwrap();
    let (c, _) = at_work(&jit, &["c"]);
    let (ab, _) = at_work(&jit, &["a", "b"]);
    ab.emit(&[depends(&jit, &["c"], &["a"])]).unwrap();
    assert_eq!(state(&jit, "a"), Some(SymbolState::Emitted));
    assert_eq!(state(&jit, "b"), Some(SymbolState::Ready));
    c.emit(&[]).unwrap();
    assert_eq!(state(&jit, "a"), Some(SymbolState::Ready));
}

#[test]
fn dependences_reach_across_dylibs() {
    let jit = Jit::new().unwrap();
    let other = jit.create_dylib("other").unwrap();
    let (unit, kept) = TestUnit::kept(&jit, &["b"]);
    other.define(unit).unwrap();
    let (a, future) = at_work(&jit, &["a"]);
    let (main, b) = (jit.main(), jit.intern("b"));
    let on_b = DependenceGroup {
        symbols: vec![jit.intern("a")],
        dependences: vec![(other.id(), b)],
    };
    // A symbol that no lookup asked for yet is waited for until a lookup asks.
    a.emit(&[on_b]).unwrap();
    assert!(!future.is_done());
    let lookup = uruk::Lookup::new([(&other, uruk::Visibility::All)]).symbol(b);
    let asked = jit.lookup_future(lookup);
    finish(kept.take());
    assert!(asked.is_done() && future.is_done());
    assert_eq!(main.state_of(b), None);
}

#[test]
fn emission_in_a_zig_zag_ends_with_all_ready() {
    // Each depends on both its neighbours; the even ones are emitted first, then the odd ones.
    const COUNT: usize = 20;
    let jit = Jit::new().unwrap();
    let name = |n: usize| format!("s{n}");
    let mut work: Vec<_> = (0..COUNT)
        .map(|n| Some(at_work(&jit, &[&name(n)])))
        .collect();
    let mut futures = Vec::new();
    for n in (0..COUNT).step_by(2).chain((1..COUNT).step_by(2)) {
        let (responsibility, future) = work[n].take().unwrap();
        let below = n.checked_sub(1).map(name);
        let on: Vec<String> = below
            .into_iter()
            .chain((n + 1 < COUNT).then(|| name(n + 1)))
            .collect();
        let on: Vec<&str> = on.iter().map(String::as_str).collect();
        assert!(futures.iter().all(|f: &uruk::LookupFuture| !f.is_done()));
        responsibility
            .emit(&[depends(&jit, &on, &[&name(n)])])
            .unwrap();
        futures.push(future);
    }
    assert!(futures.iter().all(uruk::LookupFuture::is_done));
}

#[test]
fn a_failure_fails_all_that_wait_and_symbols_nobody_asked_for() {
    let (jit, _) = reporting();
    let (a, fa) = at_work(&jit, &["a"]);
    let (b, fb) = at_work(&jit, &["b"]);
    let (c, fc) = at_work(&jit, &["c", "d"]);
    a.emit(&[depends(&jit, &["b"], &["a"])]).unwrap();
    b.emit(&[depends(&jit, &["c"], &["b"])]).unwrap();
    // `a` and `b` are emitted, and fail late; no lookup asked for `d`.
    c.fail(oops());
    for future in [fa, fb, fc] {
        let error = session(future.wait().map(drop));
        assert_eq!(names(&error), ["a", "b", "c", "d"]);
    }
    for name in ["a", "b", "c", "d"] {
        assert_eq!(state(&jit, name), Some(SymbolState::Failed));
    }
    assert_eq!(names(&failure(&jit, &["a", "d"])), ["a", "d"]);
}

#[test]
fn a_failure_fails_a_cycle_that_waits_for_it() {
    let (jit, _) = reporting();
    let [(a, fa), (b, fb), (c, _)] = ["a", "b", "c"].map(|name| at_work(&jit, &[name]));
    a.emit(&[depends(&jit, &["b"], &["a"])]).unwrap();
    b.emit(&[depends(&jit, &["a", "c"], &["b"])]).unwrap();
    c.fail(oops());
    for future in [fa, fb] {
        assert_eq!(names(&session(future.wait().map(drop))), ["a", "b", "c"]);
    }
}

#[test]
fn emitting_onto_what_failed_or_is_gone_fails() {
    let (jit, _) = reporting();
    jit.main()
        .define(TestUnit::failing(&jit, &["bad"]))
        .unwrap();
    failure(&jit, &["bad"]);
    for on in ["bad", "gone"] {
        let (a, future) = at_work(&jit, &["a"]);
        let error = a.emit(&[depends(&jit, &[on], &["a"])]).unwrap_err();
        assert!(
            matches!(error, SessionError::DependenceFailed(_)),
            "{error}"
        );
        assert_eq!(names(&error), [on]);
        assert!(future.wait().is_err());
        assert_eq!(state(&jit, "a"), Some(SymbolState::Failed));
    }
}

#[test]
fn a_functions_first_call_waits_for_what_its_body_depends_on() {
    let jit = Jit::new().unwrap();
    let (c, _) = at_work(&jit, &["c"]);
    let f = jit.intern("f");
    let (unit, kept) = TestUnit::kept(&jit, &["f()"]);
    jit.main().define(unit).unwrap();
    let caller = std::thread::spawn({
        let jit = jit.clone();
        move || call(&jit, "f")
    });
    let responsibility = kept.take();
    responsibility.resolve(&[(f, address(seven))]).unwrap();
    responsibility
        .emit(&[depends(&jit, &["c"], &["f"])])
        .unwrap();
    assert!(!caller.is_finished());
    c.emit(&[]).unwrap();
    assert_eq!(caller.join().unwrap(), 7);
}

#[test]
fn a_stub_makes_nobody_wait_for_its_body() {
    let jit = Jit::new().unwrap();
    let log = Log::default();
    let unit = TestUnit::at(&jit, &[("f()", address(seven))]).log(&log);
    jit.main().define(unit).unwrap();
    jit.lookup("f").unwrap();
    let (a, future) = at_work(&jit, &["a"]);
    a.emit(&[depends(&jit, &["f"], &["a"])]).unwrap();
    assert!(future.is_done());
    assert_eq!(log.all(), [""; 0]);
}

#[test]
fn what_is_emitted_onto_something_given_back_has_it_asked_again_for_who_waits() {
    let jit = Jit::new().unwrap();
    let main = jit.main();
    let [b, x] = ["b", "x"].map(|name| jit.intern(name));
    let alias = Alias {
        name: b,
        target: x,
        flags: Flags::EXPORTED,
    };
    main.alias([alias]).unwrap();
    // Something needs `b`, which is looked for in vain.
    let (c, _) = at_work(&jit, &["c"]);
    c.emit(&[depends(&jit, &["b"], &["c"])]).unwrap();
    assert!(failure(&jit, &["b"]).is_missing());
    main.define(TestUnit::plain(&jit, &["x"])).unwrap();
    let (a, future) = at_work(&jit, &["a"]);
    a.emit(&[depends(&jit, &["b"], &["a"])]).unwrap();
    let found = future.wait_for(PATIENCE).expect("an answer").unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(state(&jit, "b"), Some(SymbolState::Ready));
}

#[test]
fn what_a_failed_lookup_asked_for_is_not_asked_for_any_more() {
    let jit = Jit::new().unwrap();
    let (a, _) = at_work(&jit, &["a"]);
    let (unit, kept) = TestUnit::kept(&jit, &["b"]);
    jit.main().define(unit).unwrap();
    let both = start(&jit, &["a", "b"], Required::Ready);
    let mut b = kept.take();
    a.fail(oops());
    assert!(both.wait().is_err());
    assert!(b.requested().is_empty());
    let log = Log::default();
    b.replace(TestUnit::plain(&jit, &["b"]).log(&log)).unwrap();
    assert_eq!(state(&jit, "b"), Some(SymbolState::NeverSearched));
    assert!(log.all().is_empty());
}
