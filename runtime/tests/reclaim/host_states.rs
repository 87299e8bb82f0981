//! State that functions of the host need is dropped once no code can call them any more: after the
//! removal of their tracker, with the session, and not while they run.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use uruk::{Func, Jit, ReclaimKind, Tier, Tiers};

type F = extern "C" fn(i64) -> i64;

const ALL_TIERS: [Tier; 3] = [Tier::Baseline, Tier::Optimized, Tier::Guided];
const PATIENCE: Duration = Duration::from_secs(120);

/// Counts its drops, and uses its session then: no lock may be held.
struct Counted {
    jit: Option<Jit>,
    drops: Arc<AtomicUsize>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(jit) = &self.jit {
            let _ = jit.add_ir("at the end", "define i64 @at_the_end() { ret i64 1 }");
            let _ = jit.lookup("at_the_end");
        }
        self.drops.fetch_add(1, Ordering::SeqCst);
    }
}

fn function(jit: &Jit, name: &str) -> Func<F> {
    // SAFETY: all functions here are of that type.
    unsafe { jit.function(name) }.expect("typed")
}

/// Reclaims until `done`.
fn reclaim_until(jit: &Jit, what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(
            start.elapsed() < PATIENCE,
            "{what}: {:?}",
            jit.stats().memory
        );
        jit.reclaim(ReclaimKind::Sweep, Duration::from_secs(10));
    }
}

#[test]
fn what_a_function_needs_goes_after_its_tracker_and_its_code() {
    for tier in ALL_TIERS {
        let jit = Jit::builder().tiers(Tiers::Fixed(tier)).jobs(1);
        let jit = jit.build().expect("a session");
        let drops = Arc::new(AtomicUsize::new(0));
        let tracker = jit.main().create_tracker().expect("a tracker");
        let counted = Counted {
            jit: Some(jit.clone()),
            drops: Arc::clone(&drops),
        };
        let add = move |x: i64| x + 40 + counted.drops.load(Ordering::SeqCst) as i64;
        tracker.define_fn("add", add).expect("defined");
        let caller = "declare i64 @add(i64)
            define i64 @f(i64 %x) { %y = call i64 @add(i64 %x) ret i64 %y }";
        tracker.add_ir("m", caller).expect("it loads");
        // On a thread that ends: words on a stack that look like return addresses hold code.
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(function(&jit, "f").call(2), 42));
        });
        jit.reclaim(ReclaimKind::Evacuate, PATIENCE);
        assert_eq!(drops.load(Ordering::SeqCst), 0);
        // SAFETY: nothing of it is called.
        unsafe { tracker.remove() }.expect("removed");
        reclaim_until(&jit, "the state goes", || drops.load(Ordering::SeqCst) == 1);
        assert!(jit.lookup("at_the_end").is_ok(), "{tier:?}");
    }
}

#[test]
fn a_function_that_runs_keeps_what_it_needs() {
    for tier in ALL_TIERS {
        let jit = Jit::builder().tiers(Tiers::Fixed(tier)).jobs(1);
        let jit = jit.build().expect("a session");
        let drops = Arc::new(AtomicUsize::new(0));
        let tracker = jit.main().create_tracker().expect("a tracker");
        let counted = Counted {
            jit: None,
            drops: Arc::clone(&drops),
        };
        let (inside, is_inside) = channel();
        let (go, may_go) = channel();
        let may_go = Mutex::new(may_go);
        let wait = move |x: i64| {
            inside.send(()).expect("awaited");
            may_go.lock().unwrap().recv().expect("told");
            x + counted.drops.load(Ordering::SeqCst) as i64
        };
        tracker.define_fn("wait", wait).expect("defined");
        // Called through its stub alone: no other code is on the stack that needs the state.
        let wait = function(&jit, "wait");
        let caller = std::thread::spawn(move || wait.call(7));
        is_inside.recv().expect("called");
        // SAFETY: the one call that is under way returns to no code of the tracker that goes.
        unsafe { tracker.remove() }.expect("removed");
        for _ in 0..5 {
            jit.reclaim(ReclaimKind::Sweep, PATIENCE);
        }
        assert_eq!(drops.load(Ordering::SeqCst), 0, "{tier:?}");
        go.send(()).expect("awaited");
        assert_eq!(caller.join().expect("no panic"), 7);
        reclaim_until(&jit, "the state goes", || drops.load(Ordering::SeqCst) == 1);
    }
}

#[test]
fn a_session_drops_what_is_left_before_its_last_handle_is_gone() {
    let drops = Arc::new(AtomicUsize::new(0));
    let jit = Jit::new().expect("a session");
    for called in [false, true] {
        let counted = Counted {
            jit: None,
            drops: Arc::clone(&drops),
        };
        let name = format!("g{called}");
        let add = move |x: i64| x + counted.drops.load(Ordering::SeqCst) as i64;
        jit.define_fn(&name, add).expect("defined");
        if called {
            assert_eq!(function(&jit, &name).call(2), 2);
        }
    }
    drop(jit);
    assert_eq!(drops.load(Ordering::SeqCst), 2);
}

/// Says that its drop began, and takes its time.
struct Slow {
    begun: Arc<AtomicUsize>,
    ended: Arc<AtomicUsize>,
}

impl Drop for Slow {
    fn drop(&mut self) {
        self.begun.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(300));
        self.ended.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn the_end_of_a_session_waits_for_drops_that_began_before() {
    let (begun, ended) = (Arc::default(), Arc::default());
    let jit = Jit::new().expect("a session");
    let tracker = jit.main().create_tracker().expect("a tracker");
    let slow = Slow {
        begun: Arc::clone(&begun),
        ended: Arc::clone(&ended),
    };
    let add = move |x: i64| x + slow.ended.load(Ordering::SeqCst) as i64;
    tracker.define_fn("f", add).expect("defined");
    assert_eq!(function(&jit, "f").call(2), 2);
    // SAFETY: no thread runs the function, and its pointer was not kept.
    unsafe { tracker.remove() }.expect("removed");
    reclaim_until(&jit, "the drop begins", || {
        begun.load(Ordering::SeqCst) == 1
    });
    drop((tracker, jit));
    assert_eq!(ended.load(Ordering::SeqCst), 1);
}
