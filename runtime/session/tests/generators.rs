//! Generators: synchronous, asynchronous, failing, suspended, removed.
#![allow(unexpected_cfgs, reason = "loom")]
#![cfg(not(loom))]

mod common;

use common::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use uruk_session::{
    AbsoluteSymbols, Generator, GeneratorRequest, Lookup, LookupKind, ReexportGenerator, Required,
    SessionError, Visibility,
};

/// Keeps what it is asked.
#[derive(Clone, Default)]
struct Keeping(Arc<Mutex<Vec<GeneratorRequest>>>);

impl Generator for Keeping {
    fn generate(&self, ask: GeneratorRequest) {
        self.0.lock().unwrap().push(ask);
    }
}

impl Keeping {
    fn one(&self) -> GeneratorRequest {
        let mut asks = self.0.lock().unwrap();
        assert_eq!(asks.len(), 1, "one lookup at a time");
        asks.pop().unwrap()
    }
}

fn define_missing(ask: &GeneratorRequest) -> Result<(), SessionError> {
    let symbols = ask
        .missing()
        .iter()
        .map(|(s, _)| (*s, address(*s), EXPORTED));
    ask.dylib().define(AbsoluteSymbols::new(symbols))
}

#[test]
fn a_synchronous_generator_is_asked_for_what_is_missing() {
    let env = env(0);
    env.dylib.define(env.plain(&[env.a]).0).unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let (b, c) = (env.b, env.c);
    env.dylib
        .add_generator(move |ask: &GeneratorRequest| {
            count.fetch_add(1, Ordering::SeqCst);
            assert_eq!(ask.kind(), LookupKind::Static);
            assert!(ask.missing().iter().all(|(s, _)| *s == b || *s == c));
            ask.dylib()
                .define(AbsoluteSymbols::new([(b, address(b), EXPORTED)]))
        })
        .unwrap();
    env.start(&[env.a, env.b], Required::Ready).wait().unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    let found = env.session.lookup(env.all().symbol(env.b)).unwrap();
    check_found(found.get(b).unwrap(), b);
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    // It defines nothing new for c, and b is a duplicate then.
    assert!(env.session.lookup(env.all().symbol(env.c)).is_err());
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

#[test]
fn an_asynchronous_generator() {
    for fails in [false, true] {
        let env = env(0);
        let keeping = Keeping::default();
        env.dylib.add_generator(keeping.clone()).unwrap();
        let future = env.start(&[env.a], Required::Ready);
        assert!(!future.is_done());
        let ask = keeping.one();
        if fails {
            ask.finish(Err(oops()));
            assert!(matches!(future.wait(), Err(SessionError::Unit { .. })));
        } else {
            define_missing(&ask).unwrap();
            ask.finish(Ok(()));
            check_found(future.wait().unwrap().get(env.a).unwrap(), env.a);
        }
    }
}

#[test]
fn a_failure_reaches_both_kinds_of_lookup() {
    let env = env(0);
    env.dylib
        .add_generator(|_: &GeneratorRequest| Err(oops()))
        .unwrap();
    let failed = |error: SessionError| assert!(matches!(error, SessionError::Unit { .. }));
    failed(env.session.lookup(env.all().symbol(env.a)).unwrap_err());
    failed(env.session.lookup(env.all().weak(env.a)).unwrap_err());
    failed(env.session.lookup_flags(env.all().weak(env.a)).unwrap_err());
}

#[test]
fn four_lookups_pass_a_suspended_generator_in_order() {
    for jobs in [0, 2] {
        let env = env(jobs);
        let keeping = Keeping::default();
        env.dylib.add_generator(keeping.clone()).unwrap();
        let symbols = [env.a, env.b, env.c, env.d];
        let futures = symbols.map(|s| env.start(&[s], Required::Ready));
        for (symbol, future) in symbols.iter().zip(&futures) {
            while keeping.0.lock().unwrap().is_empty() {
                assert!(jobs > 0, "the next lookup did not go in");
                std::thread::yield_now();
            }
            let ask = keeping.one();
            assert_eq!(ask.missing()[0].0, *symbol);
            assert!(!future.is_done());
            define_missing(&ask).unwrap();
            ask.finish(Ok(()));
            future.wait().unwrap();
        }
    }
}

#[test]
fn the_line_goes_on_when_a_definition_came_from_elsewhere() {
    let env = env(0);
    let keeping = Keeping::default();
    env.dylib.add_generator(keeping.clone()).unwrap();
    let first = env.start(&[env.a], Required::Ready);
    let second = env.start(&[env.b], Required::Ready);
    let third = env.start(&[env.c], Required::Ready);
    let ask = keeping.one();
    // The second in line finds its symbol when its turn comes.
    env.dylib.define(env.plain(&[env.a, env.b]).0).unwrap();
    ask.finish(Ok(()));
    assert!(first.is_done() && second.is_done() && !third.is_done());
    let ask = keeping.one();
    define_missing(&ask).unwrap();
    ask.finish(Ok(()));
    third.wait().unwrap();
}

#[test]
fn a_removed_generator_is_an_error() {
    let env = env(0);
    let keeping = Keeping::default();
    let id = env.dylib.add_generator(keeping.clone()).unwrap();
    let inside = env.start(&[env.a], Required::Ready);
    let waiting = env.start(&[env.b], Required::Ready);
    assert!(env.dylib.remove_generator(id));
    assert!(!env.dylib.remove_generator(id));
    let removed = |error| matches!(error, SessionError::GeneratorRemoved { .. });
    assert!(removed(waiting.wait().unwrap_err()));
    keeping.one().finish(Ok(()));
    assert!(removed(inside.wait().unwrap_err()));
    assert!(matches!(env.failing(&[env.a]), SessionError::NotFound(_)));
    // A generator that drops what it was asked, and one that panics.
    env.dylib.add_generator(keeping.clone()).unwrap();
    let dropped = env.start(&[env.a], Required::Ready);
    drop(keeping.one());
    let abandoned = |error| matches!(error, SessionError::GeneratorAbandoned { .. });
    assert!(abandoned(dropped.wait().unwrap_err()));
    let other = env.session.create_dylib("other").unwrap();
    other
        .add_generator(|_: &GeneratorRequest| panic!("bad generator"))
        .unwrap();
    assert!(abandoned(other.lookup(env.a).unwrap_err()));
}

#[test]
fn reexports_with_a_filter() {
    let env = env(0);
    let library = env.session.create_dylib("library").unwrap();
    let (unit, log) = env.plain(&[env.a]);
    library.define(unit).unwrap();
    library.define(env.plain(&[env.b]).0).unwrap();
    library
        .add_generator(|ask: &GeneratorRequest| define_missing(ask))
        .unwrap();
    let b = env.b;
    let generator = ReexportGenerator::new(&library, Visibility::Exported, move |s| s != b);
    env.dylib.add_generator(generator).unwrap();
    // A flags lookup asks generators but materializes nothing.
    let flags = env.session.lookup_flags(env.all().symbol(env.a)).unwrap();
    assert_eq!(flags, [(env.a, EXPORTED)]);
    assert_eq!(log.runs(), 0);
    assert_eq!(env.dylib.lookup(env.a).unwrap(), address(env.a));
    assert_eq!(env.dylib.lookup(env.c).unwrap(), address(env.c));
    assert!(matches!(env.failing(&[env.b]), SessionError::NotFound(_)));
}

#[test]
fn generators_run_in_the_search_order() {
    let env = env(0);
    let other = env.session.create_dylib("other").unwrap();
    other.define(env.plain(&[env.a]).0).unwrap();
    let order = [
        (env.dylib.clone(), Visibility::All),
        (other, Visibility::All),
    ];
    env.session
        .lookup(Lookup::new(order.clone()).symbol(env.a))
        .unwrap();
    // A generator of an earlier dylib is asked before a later dylib is searched,
    // also when the symbol is ready there.
    env.dylib
        .add_generator(|ask: &GeneratorRequest| {
            let symbols = ask.missing().iter().map(|(s, _)| (*s, 5, EXPORTED));
            ask.dylib().define(AbsoluteSymbols::new(symbols))
        })
        .unwrap();
    let found = env
        .session
        .lookup(Lookup::new(order).symbol(env.a))
        .unwrap();
    assert_eq!(found.address(env.a), Some(5));
}

/// Each generator looks into the next dylib, and all are inside at once. `always`: whatever they
/// are asked for, as long as they are as many.
fn look_into_each_other(jobs: usize, count: usize, always: bool) {
    let env = env(jobs);
    let all = Arc::new(Barrier::new(count));
    let dylibs: Vec<_> = (0..count)
        .map(|at| env.session.create_dylib(&format!("d{at}")).unwrap())
        .collect();
    for (at, dylib) in dylibs.iter().enumerate() {
        let other = dylibs[(at + 1) % count].clone();
        let (all, a, b) = (Arc::clone(&all), env.a, env.b);
        let generator = move |ask: &GeneratorRequest| {
            if always || ask.missing()[0].0 == a {
                all.wait();
            }
            let lookup = Lookup::new([(other.clone(), Visibility::All)]).symbol(b);
            ask.session().lookup(lookup).unwrap_err();
            Ok(())
        };
        dylib.add_generator(generator).unwrap();
    }
    let threads: Vec<_> = dylibs
        .into_iter()
        .map(|dylib| {
            let (session, a) = (env.session.clone(), env.a);
            let lookup = Lookup::new([(dylib, Visibility::All)]).symbol(a);
            std::thread::spawn(move || session.lookup(lookup).unwrap_err())
        })
        .collect();
    for thread in threads {
        let error = thread.join().unwrap();
        assert!(matches!(error, SessionError::NotFound(_)), "{error}");
    }
}

#[test]
fn generators_that_look_into_each_other_on_several_threads_end_as_on_one() {
    for round in 0..40 {
        for jobs in [0, 2] {
            for count in [1, 2, 3, 5] {
                look_into_each_other(jobs, count, false);
            }
        }
        look_into_each_other(0, 1 + round % 2, true);
    }
}
