//! Handles used in the wrong place, and lookups that can never be answered: errors each time, and
//! nothing is changed.
#![allow(unexpected_cfgs, reason = "loom")]
#![cfg(not(loom))]

mod common;

use common::*;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use uruk_session::{
    AbsoluteSymbols, DependenceGroup, Dylib, Flags, Generator, GeneratorRequest, Lookup,
    ReexportGenerator, Required, SessionError, Symbol, Visibility,
};

fn is_foreign(result: Result<(), SessionError>) -> bool {
    matches!(result, Err(SessionError::ForeignDylib { dylib }) if &*dylib == "main")
}

fn is_defunct(result: Result<(), SessionError>) -> bool {
    matches!(result, Err(SessionError::DylibDefunct { .. }))
}

/// Fails instead of hanging.
fn within<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || drop(send.send(work())));
    let result = receive.recv_timeout(Duration::from_secs(300));
    result.unwrap_or_else(|_| panic!("{what} hangs, or has panicked"))
}

#[test]
fn a_dylib_of_another_session_is_refused() {
    let (here, there) = (env(0), env(0));
    let (own, foreign) = (&here.dylib, &there.dylib);
    let all = Visibility::All;
    assert_ne!(own.id(), foreign.id());
    assert!(is_foreign(own.add_to_link_order(foreign, all)));
    assert!(is_foreign(own.set_link_order(&[(foreign.clone(), all)])));
    assert!(is_foreign(own.replace_in_link_order(own, foreign, all)));
    assert!(is_foreign(own.replace_in_link_order(foreign, own, all)));
    assert!(is_foreign(own.remove_from_link_order(foreign)));
    assert!(is_foreign(own.reexport(foreign, all, [])));
    assert!(own.link_order().is_empty());
    let dylibs = [own.clone(), foreign.clone()];
    assert!(is_foreign(here.session.remove_dylibs(&dylibs)));
    assert!(!own.is_defunct() && !foreign.is_defunct());
}

/// A number says which session it is of: taken for its own dylib's, the symbol would wait for another one.
#[test]
fn a_dependence_on_another_sessions_dylib_is_refused() {
    let (here, there) = (env(0), env(0));
    there.dylib.define(there.plain(&[there.b]).0).unwrap();
    here.dylib.define(here.plain(&[here.b]).0).unwrap();
    let (unit, kept) = here.kept(&[here.a]);
    here.dylib.define(unit).unwrap();
    let asked = here.start(&[here.a], Required::Ready);
    let responsibility = take(&kept);
    resolve(&responsibility).unwrap();
    let group = DependenceGroup {
        symbols: vec![here.a],
        dependences: vec![(here.dylib.id(), here.b), (there.dylib.id(), there.b)],
    };
    let refused = responsibility.emit(&[group]);
    assert!(matches!(refused, Err(SessionError::ForeignDylib { .. })));
    assert!(asked.wait().is_err(), "it has failed");
}

#[test]
fn lookups_in_another_session_are_refused_ready_or_not() {
    let (here, there) = (env(0), env(0));
    assert_eq!(here.a, there.a);
    there.dylib.define(there.plain(&[there.a]).0).unwrap();
    let ask = || Lookup::new([(there.dylib.clone(), Visibility::All)]).symbol(here.a);
    assert!(is_foreign(here.session.lookup(ask()).map(drop)));
    there.dylib.lookup(there.a).unwrap();
    assert!(is_foreign(here.session.lookup(ask()).map(drop)));
    assert!(is_foreign(here.session.lookup_flags(ask()).map(drop)));
    assert!(is_foreign(
        here.session.lookup_future(ask()).wait().map(drop)
    ));
    assert_eq!(here.session.symbol_state(&there.dylib, there.a), None);
    // A generator that leads there says so, too.
    let reexports = ReexportGenerator::new(&there.dylib, Visibility::All, |_| true);
    here.dylib.add_generator(reexports).unwrap();
    assert!(is_foreign(here.dylib.lookup(here.a).map(drop)));
}

#[test]
fn a_tracker_of_another_session_is_refused() {
    let (here, there) = (env(0), env(0));
    let (mine, other) = (
        here.dylib.create_tracker().unwrap(),
        there.dylib.create_tracker().unwrap(),
    );
    assert_eq!(mine.key(), other.key());
    mine.define(here.plain(&[here.a]).0).unwrap();
    assert!(is_foreign(mine.transfer_to(&other)));
    assert!(!mine.is_defunct() && !other.is_defunct());
    mine.remove().unwrap();
    assert!(matches!(here.failing(&[here.a]), SessionError::NotFound(_)));
}

#[test]
fn removed_dylibs_come_into_no_link_order() {
    let env = env(0);
    let gone = env.session.create_dylib("gone").unwrap();
    env.session
        .remove_dylibs(std::slice::from_ref(&gone))
        .unwrap();
    let all = Visibility::All;
    assert!(is_defunct(env.dylib.add_to_link_order(&gone, all)));
    assert!(is_defunct(env.dylib.set_link_order(&[(gone.clone(), all)])));
    assert!(is_defunct(
        env.dylib.replace_in_link_order(&env.dylib, &gone, all)
    ));
    assert!(env.dylib.link_order().is_empty());
    // To take it out is no error: it is not there, as was wanted.
    env.dylib.remove_from_link_order(&gone).unwrap();
}

#[test]
fn a_lookup_that_waits_ends_with_its_dylib() {
    let env = env(0);
    let module = env.session.create_dylib("module").unwrap();
    let order = [
        (module.clone(), Visibility::All),
        (env.dylib.clone(), Visibility::Exported),
    ];
    let ask = || Lookup::new(order.clone()).symbol(env.a).wait_for_missing();
    let future = env.session.lookup_future(ask());
    // A dylib it only searches may go: another may come to define the name.
    let others = Lookup::new([order[1].clone(), order[0].clone()]);
    let other = others.symbol(env.a).wait_for_missing();
    let other = env.session.lookup_future(other);
    assert_eq!(env.session.still_missing().len(), 2);
    env.session.remove_dylibs(&[module]).unwrap();
    assert!(future.is_done() && !other.is_done());
    let error = future.wait().unwrap_err();
    assert!(matches!(error, SessionError::NotFound(_)), "{error}");
    assert_eq!(env.session.still_missing().len(), 1);
    // One that begins to wait when its dylib is gone already ends at once.
    let late = env.session.lookup_future(ask());
    assert!(late.is_done() && late.wait().is_err());
    env.dylib.define(env.plain(&[env.a]).0).unwrap();
    check_found(other.wait().unwrap().get(env.a).unwrap(), env.a);
}

/// Looks another symbol of its own dylib up for each it is asked for.
struct Needs(fn(Symbol, &[Symbol; 4]) -> Symbol, [Symbol; 4]);

impl Generator for Needs {
    fn generate(&self, ask: GeneratorRequest) {
        let mut answer = Ok(());
        for (symbol, _) in ask.missing() {
            let next = (self.0)(*symbol, &self.1);
            answer = answer.and_then(|()| ask.dylib().lookup(next).map(drop));
            let defined = AbsoluteSymbols::new([(*symbol, address(*symbol), EXPORTED)]);
            answer = answer.and_then(|()| ask.dylib().define(defined));
        }
        ask.finish(answer);
    }
}

#[test]
fn a_generator_that_needs_itself_is_an_error_that_names_the_cycle() {
    for jobs in [0, 2] {
        let error = within("a generator that needs itself", move || {
            let env = env(jobs);
            let symbols = [env.a, env.b, env.c, env.d];
            let needs = Needs(|symbol, _| symbol, symbols);
            env.dylib.add_generator(needs).unwrap();
            let error = env.failing(&[env.a]);
            // The generator is free again.
            assert!(env.session.lookup(env.all().symbol(env.b)).is_err());
            error
        });
        let SessionError::GeneratorCycle(names) = &error else {
            panic!("{error:?}");
        };
        assert_eq!(names.names(), ["a"]);
        assert_eq!(error.to_string(), "a generator needs itself: main: {a}");
    }
}

#[test]
fn a_longer_way_back_is_found_too_and_other_symbols_are_allowed() {
    for jobs in [0, 2] {
        within("a generator that looks up", move || {
            let env = env(jobs);
            let symbols = [env.a, env.b, env.c, env.d];
            // a needs b, b needs c, c needs nothing.
            let line = Needs(
                |symbol, [a, b, c, d]| match symbol {
                    s if s == *a => *b,
                    s if s == *b => *c,
                    _ => *d,
                },
                symbols,
            );
            env.dylib.define(env.plain(&[env.d]).0).unwrap();
            env.dylib.add_generator(line).unwrap();
            let found = env.session.lookup(env.all().symbol(env.a)).unwrap();
            check_found(found.get(env.a).unwrap(), env.a);
            // x needs y, y needs x; through a generator of another dylib each.
            let (one, two) = (
                env.session.create_dylib("one").unwrap(),
                env.session.create_dylib("two").unwrap(),
            );
            for (dylib, source) in [(&one, &two), (&two, &one)] {
                let through = ReexportGenerator::new(source, Visibility::All, |_| true);
                dylib.add_generator(through).unwrap();
            }
            let error = one.lookup(env.a).unwrap_err();
            assert!(matches!(error, SessionError::GeneratorCycle(_)), "{error}");
        });
    }
}

/// Keeps the question, and has another thread look up and answer.
struct Later;

impl Generator for Later {
    fn generate(&self, ask: GeneratorRequest) {
        std::thread::spawn(move || {
            let (symbol, _) = ask.missing()[0];
            let dylib = ask.dylib();
            let answer = ask.scope(|| dylib.lookup(symbol)).map(drop);
            ask.finish(answer);
        });
    }
}

#[test]
fn who_answers_from_elsewhere_says_for_whom_it_asks() {
    let error = within("an answer from another thread", || {
        let env = env(2);
        env.dylib.add_generator(Later).unwrap();
        env.failing(&[env.a])
    });
    assert!(matches!(error, SessionError::GeneratorCycle(_)), "{error}");
}

#[test]
fn what_was_started_on_behalf_of_a_question_may_ask_again_after_it() {
    for jobs in [0, 2] {
        within("a unit that outlives the question", move || {
            let env = env(jobs);
            let (a, b) = (env.a, env.b);
            let (unit, kept) = env.kept(&[b]);
            env.dylib.define(unit).unwrap();
            let times = Arc::new(Mutex::new(0));
            let counted = Arc::clone(&times);
            env.dylib
                .add_generator(move |ask: &GeneratorRequest| {
                    *counted.lock().unwrap() += 1;
                    let lookup = Lookup::new([(ask.dylib(), Visibility::All)]).symbol(b);
                    // Starts the unit, and does not wait for it.
                    ask.session()
                        .lookup_async(lookup.at(Required::Resolved), |_| ());
                    Ok(())
                })
                .unwrap();
            assert!(matches!(env.failing(&[a]), SessionError::NotFound(_)));
            while kept.lock().unwrap().is_none() {
                std::thread::yield_now();
            }
            // The unit's own question is a new one, not a circle.
            let responsibility = take(&kept);
            let lookup = env.all().symbol(a);
            let error = responsibility.session().lookup(lookup).unwrap_err();
            assert!(matches!(error, SessionError::NotFound(_)), "{error}");
            assert_eq!(*times.lock().unwrap(), 2);
            finish(responsibility);
        });
    }
}

/// A lookup without a lock finds the same symbols as one with it.
#[test]
fn ready_symbols_are_found_along_the_link_order_as_it_is() {
    let env = env(0);
    let others: Vec<_> = ["far", "near"]
        .iter()
        .map(|name| env.session.create_dylib(name).unwrap())
        .collect();
    let seen = Visibility::Exported;
    for other in others.iter().rev() {
        env.dylib.add_to_link_order(other, seen).unwrap();
        other.add_to_link_order(&env.dylib, seen).unwrap();
    }
    let define = |dylib: &Dylib, symbol, address, flags| {
        let unit = AbsoluteSymbols::new([(symbol, address, flags)]);
        dylib.define(unit).unwrap();
    };
    define(&others[0], env.a, 1, EXPORTED);
    assert_eq!(
        env.dylib.ready_in_order(env.a),
        None,
        "it was not looked up"
    );
    others[0].lookup(env.a).unwrap();
    assert_eq!(env.dylib.ready_in_order(env.a), Some(1));
    // A hidden one is passed over, an exported one comes first, ready or not.
    define(&others[1], env.a, 2, Flags::NONE);
    assert_eq!(env.dylib.ready_in_order(env.a), Some(1));
    others[1].remove(&[env.a]).unwrap();
    define(&others[1], env.a, 3, EXPORTED);
    assert_eq!(env.dylib.ready_in_order(env.a), None);
    others[1].lookup(env.a).unwrap();
    assert_eq!(env.dylib.ready_in_order(env.a), Some(3));
    // The same holds for the order itself, and a dylib with a generator is asked.
    env.dylib.remove_from_link_order(&others[1]).unwrap();
    assert_eq!(env.dylib.ready_in_order(env.a), Some(1));
    env.dylib.add_to_link_order(&others[1], seen).unwrap();
    let id = env
        .dylib
        .add_generator(|_: &GeneratorRequest| Ok(()))
        .unwrap();
    assert_eq!(env.dylib.ready_in_order(env.a), None);
    assert!(env.dylib.remove_generator(id));
    assert_eq!(env.dylib.ready_in_order(env.a), Some(1));
    env.session.remove_dylibs(&others[..1]).unwrap();
    assert_eq!(env.dylib.ready_in_order(env.a), Some(3));
}
