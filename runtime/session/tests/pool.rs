//! Workers: nested waits, bounds, quiescing, racing lookups.
#![allow(unexpected_cfgs, reason = "loom")]
#![cfg(not(loom))]

mod common;

use common::*;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use uruk_session::{
    DependenceGroup, Interface, Lookup, PoolConfig, Required, Responsibility, Session,
    SessionConfig, SessionError, Symbol, Unit, Visibility,
};
use uruk_testing::Random;

fn session(config: PoolConfig) -> Session {
    Session::new(SessionConfig {
        pool: config,
        ..SessionConfig::default()
    })
}

fn jobs(jobs: usize) -> PoolConfig {
    PoolConfig {
        jobs,
        ..PoolConfig::default()
    }
}

/// Looks the next ones up, waiting, before it finishes.
struct Needs(Symbol, Vec<Symbol>);

impl Unit for Needs {
    fn name(&self) -> &str {
        "needs"
    }
    fn interface(&self) -> Interface {
        [(self.0, EXPORTED)].into_iter().collect()
    }
    fn materialize(self: Box<Self>, responsibility: Responsibility) {
        let dylib = responsibility.dylib();
        let lookup = Lookup::new([(dylib, Visibility::All)]).symbols(self.1);
        match responsibility.session().lookup(lookup) {
            Ok(_) => finish(responsibility),
            Err(error) => responsibility.fail(error),
        }
    }
}

/// Fails instead of hanging.
fn within<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = mpsc::channel();
    let thread = std::thread::spawn(move || drop(send.send(work())));
    let result = receive.recv_timeout(Duration::from_secs(300));
    if thread.is_finished() {
        thread.join().expect("no panic");
    }
    result.unwrap_or_else(|_| panic!("{what} hangs"))
}

fn chain(config: PoolConfig, len: usize) -> Result<u64, SessionError> {
    within("a chain of waits", move || {
        let session = session(config);
        let dylib = session.create_dylib("main").unwrap();
        let symbols: Vec<_> = (0..len).map(|n| session.intern(&format!("s{n}"))).collect();
        for (n, symbol) in symbols.iter().enumerate() {
            let next = symbols.get(n + 1).copied();
            dylib
                .define(Needs(*symbol, next.into_iter().collect()))
                .unwrap();
        }
        dylib.lookup(symbols[0])
    })
}

#[test]
fn waits_nest_without_deadlock() {
    for workers in [0, 1, 2, 4] {
        assert!(chain(jobs(workers), 30).is_ok(), "{workers} workers");
    }
    for workers in [1, 2] {
        let outside = PoolConfig {
            help_outside: false,
            ..jobs(workers)
        };
        assert!(chain(outside, 30).is_ok());
        assert!(
            chain(jobs(workers), 500).is_ok(),
            "deeper than one stack helps"
        );
    }
    assert!(chain(jobs(0), 500).is_ok(), "also without workers");
    // Beyond all bounds it is an error, not a hang.
    let bounded = PoolConfig {
        help_depth: 1,
        ..jobs(0)
    };
    assert!(chain(bounded.clone(), 40).is_ok());
    let error = chain(bounded, 2_000).unwrap_err();
    let mut cause: &dyn std::error::Error = &error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    assert_eq!(
        cause.to_string(),
        "waiting lookups nest too deep for 0 workers"
    );
    let shallow = PoolConfig {
        help_depth: 1,
        ..jobs(1)
    };
    assert!(chain(shallow.clone(), 40).is_ok());
    assert!(chain(shallow, 2_000).is_err());
}

#[test]
fn a_tree_of_waits() {
    for workers in [0, 1, 3] {
        within("a tree of waits", move || {
            let session = session(jobs(workers));
            let dylib = session.create_dylib("main").unwrap();
            let symbols: Vec<_> = (0..1023)
                .map(|n| session.intern(&format!("t{n}")))
                .collect();
            for n in 0..1023 {
                let below = [2 * n + 1, 2 * n + 2].into_iter();
                let below = below.filter_map(|m| symbols.get(m).copied()).collect();
                dylib.define(Needs(symbols[n], below)).unwrap();
            }
            dylib.lookup(symbols[0]).unwrap();
            assert!(symbols.iter().all(|s| dylib.ready(*s).is_some()));
        });
    }
}

#[test]
fn asynchronous_lookups_without_workers() {
    let env = env(0);
    let (unit, log) = env.plain(&[env.a]);
    env.dylib.define(unit).unwrap();
    assert!(env.start(&[env.a], Required::Ready).is_done());
    assert_eq!(log.runs(), 1);
}

#[test]
fn many_threads_wait_for_one_answer() {
    for workers in [0, 2] {
        within("waiting together", move || {
            let env = env(workers);
            let (unit, kept) = env.kept(&[env.a]);
            env.dylib.define(unit).unwrap();
            let future = env.start(&[env.a], Required::Ready);
            let waiting: Vec<_> = (0..4)
                .map(|_| {
                    let future = future.clone();
                    std::thread::spawn(move || future.wait().is_ok())
                })
                .collect();
            std::thread::sleep(Duration::from_millis(20));
            while kept.lock().unwrap().is_none() {
                std::thread::yield_now();
            }
            finish(take(&kept));
            assert!(waiting.into_iter().all(|t| t.join().unwrap()));
        });
    }
}

#[test]
fn workers_are_bounded_persistent_and_hooked() {
    let started = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&started);
    let session = session(PoolConfig {
        spawn: Some(Arc::new(move |name, work: Box<dyn Fn() + Send>| {
            count.fetch_add(1, Ordering::SeqCst);
            let thread = std::thread::Builder::new().name(name);
            thread.spawn(work).map(drop)
        })),
        ..jobs(2)
    });
    assert_eq!(session.pool().threads(), 0);
    let (send, receive) = mpsc::channel();
    for _ in 0..200 {
        let send = send.clone();
        session.pool().spawn(move || {
            let name = std::thread::current().name().unwrap().to_owned();
            send.send(name).unwrap();
        });
    }
    let names: std::collections::BTreeSet<_> = (0..200)
        .map(|_| receive.recv_timeout(Duration::from_secs(300)).unwrap())
        .collect();
    assert!(names.len() <= 2 && names.iter().all(|n| n.starts_with("uruk-")));
    assert!((1..=2).contains(&started.load(Ordering::SeqCst)));
    // A panic ends the task, not the worker.
    session.pool().spawn(|| panic!("a bad task"));
    let (send, receive) = mpsc::channel();
    session.pool().spawn(move || send.send(()).unwrap());
    receive.recv_timeout(Duration::from_secs(300)).unwrap();
    assert!(started.load(Ordering::SeqCst) <= 2);
}

#[test]
fn quiesce_waits_for_tasks_and_holds_new_ones() {
    for nested in [false, true] {
        within("quiescing", move || {
            let session = session(jobs(1));
            let dylib = session.create_dylib("main").unwrap();
            let [a, b] = ["a", "b"].map(|name| session.intern(name));
            let (entered, wait_entered) = mpsc::channel();
            let done = Arc::new(AtomicBool::new(false));
            let flag = Arc::clone(&done);
            dylib.define(Needs(b, Vec::new())).unwrap();
            let (unit, _) = Custom::new(&[(a, EXPORTED)], move |responsibility| {
                entered.send(()).unwrap();
                std::thread::sleep(Duration::from_millis(50));
                if nested {
                    // Needs a task of its own, though new ones are held.
                    responsibility.dylib().lookup(b).unwrap();
                }
                finish(responsibility);
                flag.store(true, Ordering::SeqCst);
            });
            dylib.define(unit).unwrap();
            let lookup = Lookup::new([(dylib.clone(), Visibility::All)]).symbol(a);
            let future = session.lookup_future(lookup);
            wait_entered.recv().unwrap();
            session.pool().quiesce();
            assert!(done.load(Ordering::SeqCst));
            let ran = Arc::new(AtomicBool::new(false));
            let set = Arc::clone(&ran);
            let other = session.clone();
            // Another thread that comes now waits at the gate.
            let outside = std::thread::spawn(move || {
                other
                    .pool()
                    .spawn(move || set.store(true, Ordering::SeqCst));
            });
            std::thread::sleep(Duration::from_millis(20));
            assert!(!ran.load(Ordering::SeqCst));
            session.pool().resume();
            outside.join().unwrap();
            while !ran.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            future.wait().unwrap();
            // As a child would: threads are forgotten, and new ones start.
            session.pool().quiesce();
            session.pool().after_fork_child();
            assert_eq!(session.pool().threads(), 0);
            dylib
                .define(Needs(session.intern("c"), Vec::new()))
                .unwrap();
            let lookup = Lookup::new([(dylib, Visibility::All)]).symbol(session.intern("c"));
            session.lookup_future(lookup).wait().unwrap();
        });
    }
}

/// Threads define, look up, remove and transfer at random; every lookup ends, and
/// every address is right.
#[test]
fn racing_everything() {
    for workers in [0, 1, 3] {
        within("racing", move || race(workers));
    }
}

fn race(workers: usize) {
    const NAMES: usize = 40;
    const STEPS: u64 = 3_000;
    let session = session(jobs(workers));
    let dylib = session.create_dylib("main").unwrap();
    let symbols: Vec<_> = (0..NAMES)
        .map(|n| session.intern(&format!("s{n}")))
        .collect();
    let threads: Vec<_> = (0..4u64)
        .map(|seed| {
            let (dylib, symbols, session) = (dylib.clone(), symbols.clone(), session.clone());
            std::thread::spawn(move || {
                let mut numbers = Random::new(seed + 1);
                let mut random = |below: usize| numbers.below(below);
                let mut trackers = Vec::new();
                for _ in 0..STEPS {
                    let symbol = symbols[random(NAMES)];
                    let other = symbols[random(NAMES)];
                    match random(8) {
                        0 | 1 => {
                            let tracker = dylib.create_tracker().unwrap();
                            let unit = Emits(symbol, other, random(2) == 0);
                            if tracker.define(unit).is_ok() {
                                trackers.push(tracker);
                            }
                        }
                        2 if !trackers.is_empty() => {
                            let at = random(trackers.len());
                            let _ = trackers.swap_remove(at).remove();
                        }
                        3 if trackers.len() > 1 => {
                            let from = trackers.pop().unwrap();
                            let _ = from.transfer_to(&trackers[0]);
                        }
                        4 if random(8) == 0 => drop(trackers.pop()),
                        5 => drop(dylib.remove(&[symbol])),
                        _ => {
                            let lookup = Lookup::new([(dylib.clone(), Visibility::All)])
                                .symbol(symbol)
                                .at(match random(2) {
                                    0 => Required::Ready,
                                    _ => Required::Resolved,
                                });
                            if let Ok(found) = session.lookup(lookup) {
                                assert_eq!(found.address(symbol), Some(address(symbol)));
                            }
                        }
                    }
                }
            })
        })
        .collect();
    // A lookup that waits for a dependence that is never requested is answered at the end.
    let ender = std::thread::spawn(move || {
        while !threads.iter().all(std::thread::JoinHandle::is_finished) {
            std::thread::sleep(Duration::from_millis(5));
            let _ = dylib.clear();
        }
        threads.into_iter().for_each(|t| t.join().unwrap());
    });
    ender.join().unwrap();
    session.end().unwrap();
}

/// Depends on another symbol, if that is defined when it looks.
struct Emits(Symbol, Symbol, bool);

impl Unit for Emits {
    fn name(&self) -> &str {
        "emits"
    }
    fn interface(&self) -> Interface {
        [(self.0, EXPORTED)].into_iter().collect()
    }
    fn materialize(self: Box<Self>, responsibility: Responsibility) {
        let (own, other) = (self.0, self.1);
        if resolve(&responsibility).is_err() {
            return;
        }
        if !self.2 {
            drop(responsibility.emit(&[]));
            return;
        }
        let session = responsibility.session().clone();
        let lookup = Lookup::new([(responsibility.dylib(), Visibility::All)])
            .weak(other)
            .at(Required::Resolved);
        session.lookup_async(lookup, move |found| match found {
            Ok(found) => {
                let group = DependenceGroup {
                    symbols: vec![own],
                    dependences: found.dependences(),
                };
                drop(responsibility.emit(&[group]));
            }
            Err(error) => responsibility.fail(error),
        });
    }
}
