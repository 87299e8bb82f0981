//! Responsibilities: dependences, failures, claims, replacing, delegating.
#![allow(unexpected_cfgs, reason = "loom")]
#![cfg(not(loom))]

mod common;

use std::sync::Arc;

use common::*;
use uruk_session::{
    DependenceGroup, Flags, Required, Responsibility, SessionError, Symbol, SymbolState,
};

impl Env {
    fn depends(&self, on: &[Symbol], symbols: &[Symbol]) -> DependenceGroup {
        DependenceGroup {
            symbols: symbols.to_vec(),
            dependences: on.iter().map(|s| (self.dylib.id(), *s)).collect(),
        }
    }

    /// A lookup of one symbol of a new unit, at work.
    fn at_work(
        &self,
        symbols: &[Symbol],
    ) -> (uruk_session::Responsibility, uruk_session::LookupFuture) {
        let (unit, kept) = self.kept(symbols);
        self.dylib.define(unit).unwrap();
        let future = self.start(&symbols[..1], Required::Ready);
        let responsibility = take(&kept);
        resolve(&responsibility).unwrap();
        (responsibility, future)
    }

    fn state(&self, symbol: Symbol) -> Option<SymbolState> {
        self.session.symbol_state(&self.dylib, symbol)
    }
}

#[test]
fn a_cycle_of_three_becomes_ready_together() {
    let env = env(0);
    let [(a, fa), (b, fb), (c, fc)] = [env.a, env.b, env.c].map(|s| env.at_work(&[s]));
    a.emit(&[env.depends(&[env.a, env.b], &[env.a])]).unwrap();
    b.emit(&[env.depends(&[env.c], &[env.b])]).unwrap();
    assert!(!fa.is_done() && !fb.is_done());
    assert_eq!(env.state(env.a), Some(SymbolState::Emitted));
    c.emit(&[env.depends(&[env.a, env.c], &[env.c])]).unwrap();
    assert!(fa.is_done() && fb.is_done() && fc.is_done());
    assert_eq!(env.dylib.ready(env.b), Some(address(env.b)));
}

#[test]
fn only_what_is_not_ready_is_a_dependence() {
    let env = env(0);
    env.dylib.define(env.plain(&[env.b]).0).unwrap();
    env.dylib.lookup(env.b).unwrap();
    let (c, _) = env.at_work(&[env.c]);
    let found = env
        .start(&[env.b, env.c], Required::Resolved)
        .wait()
        .unwrap();
    assert_eq!(found.dependences(), [(env.dylib.id(), env.c)]);
    let (a, fa) = env.at_work(&[env.a]);
    let on = DependenceGroup {
        symbols: vec![env.a],
        dependences: found.dependences(),
    };
    a.emit(&[on]).unwrap();
    assert!(!fa.is_done());
    c.emit(&[]).unwrap();
    assert!(fa.is_done());
}

#[test]
fn groups_may_overlap_and_share() {
    let env = env(0);
    let (c, _) = env.at_work(&[env.c]);
    let (d, _) = env.at_work(&[env.d]);
    let (ab, fa) = env.at_work(&[env.a, env.b]);
    ab.emit(&[
        env.depends(&[env.c, env.d], &[env.a, env.b]),
        env.depends(&[env.b], &[env.a]),
    ])
    .unwrap();
    c.emit(&[]).unwrap();
    assert!(!fa.is_done());
    d.emit(&[]).unwrap();
    assert!(fa.is_done());
    assert_eq!(env.state(env.b), Some(SymbolState::Ready));
}

#[test]
fn a_failure_spreads_to_what_depends_on_it() {
    let env = env(0);
    let (a, fa) = env.at_work(&[env.a]);
    let (b, fb) = env.at_work(&[env.b]);
    let (c, fc) = env.at_work(&[env.c, env.d]);
    a.emit(&[env.depends(&[env.b], &[env.a])]).unwrap();
    b.emit(&[env.depends(&[env.c], &[env.b])]).unwrap();
    // An emitted symbol fails late; the failed unit's unqueried symbol too.
    c.fail(oops());
    for future in [fa, fb, fc] {
        let error = future.wait().unwrap_err();
        assert_eq!(error.names().unwrap().names(), ["a", "b", "c", "d"]);
    }
    for symbol in [env.a, env.b, env.c, env.d] {
        assert_eq!(env.state(symbol), Some(SymbolState::Failed));
    }
    let error = env.failing(&[env.a, env.d]);
    assert_eq!(error.names().unwrap().names(), ["a", "d"]);
    let source = std::error::Error::source(&error).unwrap();
    assert_eq!(source.to_string(), "test");
    // Emitting onto a failed dependence fails.
    let e = env.session.intern("e");
    let (late, flate) = env.at_work(&[e]);
    let error = late.emit(&[env.depends(&[env.a], &[e])]).unwrap_err();
    assert!(matches!(error, SessionError::DependenceFailed(_)));
    assert!(flate.wait().is_err());
    // A failed symbol may be defined anew.
    env.dylib.define(env.plain(&[env.a]).0).unwrap();
    env.dylib.lookup(env.a).unwrap();
}

#[test]
fn failures_name_all_symbols_of_all_dylibs() {
    let env = env(0);
    let other = env.session.create_dylib("other").unwrap();
    let (unit, _) = Custom::new(&[(env.a, EXPORTED), (env.b, EXPORTED)], |r| r.fail(oops()));
    env.dylib.define(unit).unwrap();
    let (unit, _) = Custom::new(&[(env.c, EXPORTED)], |r| r.fail(oops()));
    other.define(unit).unwrap();
    let order = [
        (env.dylib.clone(), uruk_session::Visibility::All),
        (other.clone(), uruk_session::Visibility::All),
    ];
    let lookup = uruk_session::Lookup::new(order).symbols([env.c, env.b, env.a]);
    assert!(env.session.lookup(lookup.clone()).is_err());
    assert!(other.lookup(env.c).is_err());
    let error = env.session.lookup(lookup).unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to materialize other: {c}, main: {a, b}"
    );
}

#[test]
fn failure_after_full_and_partial_resolution() {
    let env = env(0);
    let (ab, fa) = env.at_work(&[env.a, env.b]);
    ab.fail(oops());
    assert!(fa.wait().is_err());
    let (unit, kept) = env.kept(&[env.c, env.d]);
    env.dylib.define(unit).unwrap();
    let future = env.start(&[env.c, env.d], Required::Resolved);
    let cd = take(&kept);
    cd.resolve(&[(env.c, 1)]).unwrap();
    assert!(!future.is_done());
    cd.fail(oops());
    assert!(future.wait().is_err());
}

#[test]
fn misuse_is_an_error() {
    let env = env(0);
    let (unit, kept) = env.kept(&[env.a]);
    env.dylib.define(unit).unwrap();
    let future = env.start(&[env.a], Required::Ready);
    let a = take(&kept);
    let foreign = a.resolve(&[(env.b, 1)]).unwrap_err();
    assert!(matches!(foreign, SessionError::NotResponsible(_)));
    assert!(matches!(a.emit(&[]), Err(SessionError::Unresolved(_))));
    assert!(matches!(future.wait(), Err(SessionError::Failed { .. })));
    let (b, fb) = env.at_work(&[env.b]);
    drop(b);
    let SessionError::Failed { cause, .. } = fb.wait().unwrap_err() else {
        panic!("not failed");
    };
    assert!(matches!(*cause.unwrap(), SessionError::Abandoned(_)));
}

#[test]
fn late_claims() {
    let env = env(0);
    let (mut a, fa) = env.at_work(&[env.a]);
    env.dylib.define(env.plain(&[env.d]).0).unwrap();
    let weak = EXPORTED | uruk_session::Flags::WEAK;
    assert_eq!(
        a.claim(&[(env.b, EXPORTED), (env.d, weak)]).unwrap(),
        [env.b]
    );
    assert!(matches!(
        a.claim(&[(env.d, EXPORTED)]),
        Err(SessionError::Duplicate(_))
    ));
    let fb = env.start(&[env.b], Required::Ready);
    finish(a);
    assert!(fa.is_done());
    assert_eq!(fb.wait().unwrap().address(env.b), Some(address(env.b)));
}

#[test]
fn replace_and_delegate() {
    let env = env(0);
    let (mut ab, fa) = env.at_work(&[env.a, env.b]);
    let (rest, log) = env.plain(&[env.b]);
    ab.replace(rest).unwrap();
    assert_eq!(env.state(env.b), Some(SymbolState::NeverSearched));
    assert_eq!(log.runs(), 0);
    // Symbols that a lookup waits for are materialized at once.
    let (whole, whole_log) = env.plain(&[env.a]);
    ab.replace(whole).unwrap();
    assert_eq!(whole_log.runs(), 1);
    assert!(fa.is_done());
    drop(ab);
    assert_eq!(env.state(env.b), Some(SymbolState::NeverSearched));
    env.dylib.lookup(env.b).unwrap();

    let (mut cd, fc) = env.at_work(&[env.c, env.d]);
    let d = cd.delegate(&[env.d]).unwrap();
    assert_eq!(cd.symbols().len(), 1);
    finish(cd);
    assert!(fc.is_done());
    assert_eq!(env.state(env.d), Some(SymbolState::Resolved));
    d.emit(&[]).unwrap();
    assert_eq!(env.state(env.d), Some(SymbolState::Ready));
    assert!(env.reported.lock().unwrap().is_empty());
}

#[test]
fn failed_for_missing_is_tried_again() {
    struct Needy(Symbol, Symbol);
    impl uruk_session::Unit for Needy {
        fn name(&self) -> &str {
            "needy"
        }
        fn interface(&self) -> uruk_session::Interface {
            [(self.0, EXPORTED)].into_iter().collect()
        }
        fn materialize(self: Box<Self>, r: uruk_session::Responsibility) {
            match r.dylib().lookup(self.1) {
                Ok(_) => finish(r),
                Err(error) => r.fail_retryable(error, *self).unwrap(),
            }
        }
    }
    let env = env(0);
    // c is emitted and depends on a, whose unit needs b, which is not defined.
    env.dylib.define(Needy(env.a, env.b)).unwrap();
    let (c, fc) = env.at_work(&[env.c]);
    c.emit(&[env.depends(&[env.a], &[env.c])]).unwrap();
    for _ in 0..2 {
        let error = env.failing(&[env.a]);
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert_eq!(cause, "symbols not found: main: {b}");
    }
    assert!(fc.wait().is_err());
    assert_eq!(env.state(env.c), Some(SymbolState::Emitted));
    assert!(env.failing(&[env.c]).to_string().contains("{a, c}"));
    env.dylib.define(env.plain(&[env.b]).0).unwrap();
    // Asking for c asks a again.
    assert_eq!(env.dylib.lookup(env.c).unwrap(), address(env.c));
    assert_eq!(env.dylib.lookup(env.a).unwrap(), address(env.a));
}

#[test]
fn a_lookup_waits_for_definitions() {
    let env = env(0);
    let lookup = env.all().symbols([env.a, env.b, env.c]).wait_for_missing();
    let future = env.session.lookup_future(lookup);
    env.dylib.define(env.plain(&[env.b]).0).unwrap();
    let missing = env.session.still_missing();
    assert_eq!(missing.len(), 1);
    assert_eq!(missing[0].symbols, [env.a, env.c]);
    env.dylib.define(env.plain(&[env.a, env.c]).0).unwrap();
    assert_eq!(future.wait().unwrap().len(), 3);
    assert!(env.session.still_missing().is_empty());
}

#[test]
fn a_lookup_of_what_a_unit_makes_is_shown() {
    let env = env(0);
    let (unit, kept) = env.kept(&[env.a, env.b]);
    env.dylib.define(unit).unwrap();
    let lookup = env.all().symbols([env.a, env.b]);
    let future = env.session.lookup_future(lookup);
    let missing = env.session.still_missing();
    assert_eq!(missing.len(), 1);
    let of = env.dylib.id();
    assert_eq!(missing[0].in_production, [(of, env.a), (of, env.b)]);
    assert!(missing[0].symbols.is_empty());
    take(&kept).fail(oops());
    assert!(future.wait().is_err());
    assert!(env.session.still_missing().is_empty());
}

#[test]
fn a_dropped_future_waits_for_no_definitions() {
    let env = env(0);
    let lookup = || env.all().symbols([env.a, env.b]).wait_for_missing();
    let future = env.session.lookup_future(lookup());
    let clone = future.clone();
    drop(future);
    assert_eq!(env.session.still_missing().len(), 1, "the clone waits");
    let other = env.session.lookup_future(lookup());
    drop(clone);
    assert_eq!(env.session.still_missing().len(), 1, "the other waits");
    env.dylib.define(env.plain(&[env.a]).0).unwrap();
    assert_eq!(env.session.still_missing()[0].symbols, [env.b]);
    env.dylib.define(env.plain(&[env.b]).0).unwrap();
    assert_eq!(other.wait().unwrap().len(), 2);
    // One that is dropped while it is being answered does not begin to wait.
    let future = env
        .session
        .lookup_future(env.all().symbols([env.c]).wait_for_missing());
    drop(future);
    assert!(env.session.still_missing().is_empty());
}

/// A unit of `a`, which is callable, and `b` that does `work` before it resolves them as it should.
fn resolving(work: impl FnOnce(&Env, &Responsibility) + Send + 'static) {
    let env = Arc::new(env(0));
    let of_work = Arc::clone(&env);
    let symbols = [(env.a, EXPORTED | Flags::CALLABLE), (env.b, EXPORTED)];
    let (unit, _) = Custom::new(&symbols, move |responsibility| {
        work(&of_work, &responsibility);
        let addresses = [(of_work.a, 0x100), (of_work.b, 0)];
        responsibility.resolve(&addresses).unwrap();
        responsibility.emit(&[]).unwrap();
    });
    env.dylib.define(unit).unwrap();
    assert_eq!(env.dylib.lookup(env.a).unwrap(), 0x100);
    assert_eq!(env.dylib.lookup(env.b).unwrap(), 0, "data may be there");
}

#[test]
fn a_symbol_has_one_address() {
    resolving(|env, responsibility| {
        let twice = responsibility.resolve(&[(env.a, 0x100), (env.a, 0x200)]);
        let Err(SessionError::SeveralAddresses(names)) = twice else {
            panic!("{twice:?}");
        };
        assert_eq!(names.names(), ["a"]);
        responsibility
            .resolve(&[(env.a, 0x100), (env.a, 0x100)])
            .unwrap();
        let again = responsibility.resolve(&[(env.a, 0x300)]);
        assert!(
            matches!(again, Err(SessionError::SeveralAddresses(_))),
            "{again:?}"
        );
    });
}

#[test]
fn nothing_is_called_at_address_0() {
    resolving(|env, responsibility| {
        let null = responsibility.resolve(&[(env.a, 0), (env.b, 0)]);
        let Err(SessionError::NullCallable(names)) = null else {
            panic!("{null:?}");
        };
        assert_eq!(names.names(), ["a"]);
    });
}

#[test]
fn errors_outlive_their_session() {
    let error = {
        let env = env(1);
        env.dylib
            .define(Custom::new(&[(env.a, EXPORTED)], |r| r.fail(oops())).0)
            .unwrap();
        let error = env.failing(&[env.a]);
        env.session.end().unwrap();
        assert!(matches!(env.session.end(), Err(SessionError::Ended)));
        assert!(env.session.create_dylib("late").is_err());
        assert!(matches!(env.failing(&[env.a]), SessionError::Ended));
        error
    };
    assert_eq!(error.to_string(), "failed to materialize main: {a}");
}

#[test]
fn publishing_what_is_not_ones_own_is_a_failure_of_ones_own() {
    let env = env(0);
    let (unit, kept) = env.kept(&[env.a]);
    env.dylib.define(unit).unwrap();
    let waiting = env.start(&[env.a], Required::Ready);
    let error = take(&kept).publish(&[(env.b, 1)], &[]).unwrap_err();
    assert!(matches!(error, SessionError::NotResponsible(_)), "{error}");
    let told = waiting.wait().unwrap_err();
    assert!(matches!(told, SessionError::Failed { .. }), "{told}");
    // Removed meanwhile: the step returns an error, which is not reported elsewhere.
    let tracker = env.dylib.create_tracker().unwrap();
    let (unit, kept) = env.kept(&[env.c]);
    tracker.define(unit).unwrap();
    let waiting = env.start(&[env.c], Required::Resolved);
    tracker.remove().unwrap();
    let error = take(&kept).publish(&[(env.c, 1)], &[]).unwrap_err();
    assert!(
        matches!(error, SessionError::TrackerDefunct { .. }),
        "{error}"
    );
    assert!(matches!(waiting.wait(), Err(SessionError::Removed(_))));
    assert!(env.reported.lock().unwrap().is_empty());
}
