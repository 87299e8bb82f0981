//! Trackers and the removal of dylibs.
#![allow(unexpected_cfgs, reason = "loom")]
#![cfg(not(loom))]

mod common;

use common::*;
use std::sync::{Arc, Mutex};
use uruk_session::{DependenceGroup, Required, SessionError, Symbol, SymbolState, Tracker};

type Released = Arc<Mutex<Vec<&'static str>>>;

fn note(released: &Released, what: &'static str) -> Box<dyn uruk_session::Resource> {
    let released = Arc::clone(released);
    Box::new(move || released.lock().unwrap().push(what))
}

fn defunct<T: std::fmt::Debug>(result: Result<T, SessionError>) {
    let error = result.unwrap_err();
    assert!(
        matches!(&error, SessionError::TrackerDefunct { dylib } if &**dylib == "main"),
        "{error}"
    );
}

impl Env {
    fn gone(&self, symbol: Symbol) {
        assert_eq!(self.session.symbol_state(&self.dylib, symbol), None);
        assert_eq!(self.dylib.ready(symbol), None);
    }
    fn tracker(&self) -> Tracker {
        self.dylib.create_tracker().unwrap()
    }
}

#[test]
fn remove_before() {
    let env = env(0);
    let tracker = env.tracker();
    let (unit, log) = env.plain(&[env.a, env.b]);
    tracker.define(unit).unwrap();
    env.dylib.define(env.plain(&[env.c]).0).unwrap();
    tracker.remove().unwrap();
    assert_eq!((log.runs(), log.drops()), (0, 1));
    env.gone(env.a);
    assert!(tracker.is_defunct());
    defunct(tracker.remove());
    defunct(tracker.define(env.plain(&[env.a]).0));
    env.dylib.lookup(env.c).unwrap();
    env.dylib.define(env.plain(&[env.a]).0).unwrap();
    env.dylib.lookup(env.a).unwrap();
}

#[test]
fn remove_while_materializing() {
    let env = env(0);
    let tracker = env.tracker();
    let (unit, kept) = env.kept(&[env.a, env.b]);
    tracker.define(unit).unwrap();
    let future = env.start(&[env.a], Required::Ready);
    let mut work = take(&kept);
    let released = Released::default();
    work.attach(note(&released, "first")).unwrap();
    tracker.attach(note(&released, "second")).unwrap();
    work.resolve(&[(env.a, 1)]).unwrap();
    tracker.remove().unwrap();
    assert!(matches!(future.wait(), Err(SessionError::Removed(_))));
    assert_eq!(*released.lock().unwrap(), ["second", "first"]);
    defunct(work.resolve(&[(env.b, 1)]));
    defunct(work.claim(&[(env.c, EXPORTED)]));
    defunct(work.delegate(&[env.a]));
    defunct(work.tracker());
    defunct(work.attach(note(&released, "late")));
    assert_eq!(released.lock().unwrap().len(), 3);
    // The names are free for others meanwhile.
    env.dylib.define(env.plain(&[env.a]).0).unwrap();
    defunct(work.emit(&[]));
    assert_eq!(env.dylib.lookup(env.a).unwrap(), address(env.a));
    assert!(env.reported.lock().unwrap().is_empty());
}

#[test]
fn remove_after_and_with_dependents() {
    let env = env(0);
    let tracker = env.tracker();
    let (unit, kept) = env.kept(&[env.a]);
    tracker.define(unit).unwrap();
    let (user, user_kept) = env.kept(&[env.b]);
    env.dylib.define(user).unwrap();
    let fa = env.start(&[env.a], Required::Ready);
    let fb = env.start(&[env.b], Required::Ready);
    let (a, b) = (take(&kept), take(&user_kept));
    resolve(&b).unwrap();
    let on = DependenceGroup {
        symbols: vec![env.b],
        dependences: vec![(env.dylib.id(), env.a)],
    };
    b.emit(&[on]).unwrap();
    tracker.remove().unwrap();
    drop(a);
    assert!(fa.wait().is_err() && fb.wait().is_err());
    env.gone(env.a);
    let state = env.session.symbol_state(&env.dylib, env.b);
    assert_eq!(state, Some(SymbolState::Failed));
    // After: ready, with resources.
    let tracker = env.tracker();
    tracker.define(env.plain(&[env.c]).0).unwrap();
    env.dylib.lookup(env.c).unwrap();
    let released = Released::default();
    tracker.attach(note(&released, "memory")).unwrap();
    tracker.remove().unwrap();
    env.gone(env.c);
    assert_eq!(*released.lock().unwrap(), ["memory"]);
}

#[test]
fn transfer_before_while_and_after() {
    for step in 0..4 {
        let env = env(0);
        let (from, to) = (env.tracker(), env.tracker());
        let (unit, kept) = env.kept(&[env.a, env.b]);
        let transfer = |at: usize| {
            if at == step {
                from.transfer_to(&to).unwrap();
            }
        };
        from.define(unit).unwrap();
        let released = Released::default();
        from.attach(note(&released, "memory")).unwrap();
        transfer(0);
        let future = env.start(&[env.a], Required::Ready);
        let work = take(&kept);
        transfer(1);
        resolve(&work).unwrap();
        assert_eq!(work.tracker().unwrap() == to.key(), step <= 1);
        transfer(2);
        work.emit(&[]).unwrap();
        transfer(3);
        future.wait().unwrap();
        assert!(from.is_defunct());
        defunct(from.transfer_to(&to));
        assert!(released.lock().unwrap().is_empty());
        to.remove().unwrap();
        env.gone(env.a);
        env.gone(env.b);
        assert_eq!(*released.lock().unwrap(), ["memory"]);
    }
}

#[test]
fn the_last_handle_and_the_default() {
    let env = env(0);
    let tracker = env.tracker();
    let second = tracker.clone();
    tracker.define(env.plain(&[env.a]).0).unwrap();
    drop(tracker);
    assert!(!second.is_defunct());
    drop(second);
    let default = env.dylib.default_tracker().unwrap();
    assert_eq!(default.key(), env.dylib.default_tracker().unwrap().key());
    env.dylib.define(env.plain(&[env.b]).0).unwrap();
    env.dylib.lookup(env.b).unwrap();
    default.remove().unwrap();
    env.gone(env.a);
    env.gone(env.b);
    assert!(default.is_defunct());
    env.dylib.define(env.plain(&[env.a]).0).unwrap();
    env.dylib.lookup(env.a).unwrap();
    let other = env.session.create_dylib("other").unwrap();
    let foreign = env.tracker().transfer_to(&other.create_tracker().unwrap());
    assert!(matches!(foreign, Err(SessionError::ForeignTracker { .. })));
    env.dylib.clear().unwrap();
    env.gone(env.a);
}

#[test]
fn dylibs_go_with_work_in_flight() {
    let env = env(0);
    let other = env.session.create_dylib("other").unwrap();
    other
        .add_to_link_order(&env.dylib, uruk_session::Visibility::All)
        .unwrap();
    let (unit, kept) = env.kept(&[env.a]);
    env.dylib.define(unit).unwrap();
    let future = env.start(&[env.a], Required::Ready);
    let dylib = env.dylib.clone();
    let late = Arc::new(Mutex::new(None));
    let tried = Arc::clone(&late);
    let (unit, _) = env.plain(&[env.b]);
    // A callback that is told about the removal finds both dylibs removed.
    let told = other.create_tracker().unwrap();
    told.attach(Box::new(move || {
        *tried.lock().unwrap() = Some(dylib.define(unit))
    }))
    .unwrap();
    env.session
        .remove_dylibs(&[other.clone(), env.dylib.clone()])
        .unwrap();
    let error = late.lock().unwrap().take().unwrap().unwrap_err();
    assert_eq!(error.to_string(), "dylib main is defunct");
    assert!(matches!(future.wait(), Err(SessionError::Removed(_))));
    defunct(take(&kept).emit(&[]));
    assert!(env.dylib.is_defunct() && env.session.dylib("main").is_none());
    assert!(env.session.remove_dylibs(&[other]).is_err());
    assert!(env.dylib.lookup(env.a).is_err());
    // The name may be used again.
    env.session.create_dylib("main").unwrap();
}

#[test]
fn names_can_be_removed_and_defined_again_and_again() {
    let env = env(0);
    for _ in 0..1_000 {
        let tracker = env.tracker();
        tracker.define(env.plain(&[env.a, env.b]).0).unwrap();
        env.dylib.lookup(env.a).unwrap();
        env.dylib.remove(&[env.b]).unwrap();
        tracker.remove().unwrap();
        env.dylib.define(env.plain(&[env.c]).0).unwrap();
        env.dylib.lookup(env.c).unwrap();
        env.dylib.remove(&[env.c]).unwrap();
    }
}

#[test]
fn what_is_adopted_goes_with_its_new_tracker() {
    let env = env(0);
    let (first, key) = (env.tracker(), env.dylib.create_kept_tracker().unwrap());
    let kept = env.session.tracker(key).unwrap();
    let (unit, _) = env.plain(&[env.a, env.b]);
    first.define(unit).unwrap();
    env.dylib.lookup(env.a).unwrap();
    kept.adopt(&[env.a, env.c]).unwrap();
    assert_eq!(env.session.tracker_of(&env.dylib, env.a), Some(key));
    assert_eq!(env.session.tracker_of(&env.dylib, env.b), Some(first.key()));
    assert_eq!(env.session.tracker_of(&env.dylib, env.c), None);
    first.remove().unwrap();
    env.gone(env.b);
    assert!(env.dylib.ready(env.a).is_some());
    // No handle keeps it, and none that goes takes it away.
    drop(kept);
    assert!(env.dylib.ready(env.a).is_some());
    let kept = env.session.tracker(key).unwrap();
    kept.remove().unwrap();
    env.gone(env.a);
    defunct(kept.adopt(&[env.a]));
}

#[test]
fn what_nobody_asked_for_is_adopted_alone() {
    let env = env(0);
    let (first, second) = (env.tracker(), env.tracker());
    let (unit, _) = env.plain(&[env.a, env.b]);
    first.define(unit).unwrap();
    second.adopt(&[env.a]).unwrap();
    second.remove().unwrap();
    env.gone(env.a);
    assert!(env.dylib.lookup(env.b).is_ok());
    first.remove().unwrap();
    env.gone(env.b);
}

/// Symbols whose production begins with their definition: no unit, no lookup.
#[test]
fn production_that_begins_at_once() {
    let env = env(0);
    let tracker = env.tracker();
    let begun = tracker
        .begin(&[(env.a, EXPORTED), (env.b, EXPORTED)])
        .unwrap();
    assert_eq!(
        env.session.symbol_state(&env.dylib, env.a),
        Some(SymbolState::Materializing)
    );
    // A lookup meanwhile waits for it, and a second definition is a duplicate.
    let found = env.start(&[env.a], Required::Ready);
    assert!(!found.is_done());
    assert!(matches!(
        env.dylib.define(env.plain(&[env.b]).0),
        Err(SessionError::Duplicate(_))
    ));
    let addresses = [(env.a, address(env.a)), (env.b, address(env.b))];
    begun.publish(&addresses, &[]).unwrap();
    assert_eq!(found.wait().unwrap().address(env.a), Some(address(env.a)));
    tracker.remove().unwrap();
    env.gone(env.a);

    // A tracker that is removed meanwhile.
    let tracker = env.tracker();
    let begun = tracker.begin(&[(env.a, EXPORTED)]).unwrap();
    let released = Released::default();
    begun.attach(note(&released, "memory")).unwrap();
    tracker.remove().unwrap();
    assert_eq!(*released.lock().unwrap(), ["memory"]);
    defunct(begun.publish(&[(env.a, address(env.a))], &[]));
    env.gone(env.a);
    defunct(tracker.begin(&[(env.a, EXPORTED)]).map(drop));

    // It is abandoned if its responsibility is dropped, and weak symbols give way.
    let tracker = env.tracker();
    drop(tracker.begin(&[(env.c, EXPORTED)]).unwrap());
    assert_eq!(
        env.session.symbol_state(&env.dylib, env.c),
        Some(SymbolState::Failed)
    );
    env.dylib.define(env.plain(&[env.d]).0).unwrap();
    let weak = EXPORTED | uruk_session::Flags::WEAK;
    let begun = tracker.begin(&[(env.d, weak), (env.a, weak)]).unwrap();
    assert_eq!(begun.symbols(), [(env.a, weak)]);
}
