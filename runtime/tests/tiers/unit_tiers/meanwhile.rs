//! Changes and failures of a function while it gets better code.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use uruk::{
    Error, Jit, ObjectBuilder, ReclaimKind, Reference, ReoptimizeRequest, Reoptimizer, Replacement,
    Tier,
};

use super::formula::{all, by_tier, counting, formula, function, told, until};
use crate::unit::{self, PATIENCE, TestUnit, ask, session};

/// A question that is under way, and the word to go on.
struct Paused {
    begun: Receiver<ReoptimizeRequest>,
    /// The result of the improver's link.
    linked: Receiver<Result<(), Error>>,
    go: Sender<ReoptimizeRequest>,
}

/// An improver that waits in the middle.
fn paused() -> (impl Reoptimizer, Paused) {
    let (begin, begun) = channel();
    let (go, going) = channel::<ReoptimizeRequest>();
    let (sender, linked) = channel();
    let ends = Mutex::new((begin, going, sender));
    let improver = move |better: ReoptimizeRequest| {
        let ends = ends.lock().unwrap();
        ends.0.send(better).unwrap();
        let better = ends.1.recv_timeout(PATIENCE).unwrap();
        let code = counting("f", better.tier().number());
        ends.2.send(better.link("better.o", code)).unwrap();
    };
    (improver, Paused { begun, linked, go })
}

#[test]
fn a_function_is_removed_while_it_gets_better() {
    let (jit, events, reports) = told(Jit::builder());
    let (improver, paused) = paused();
    let tracker = jit.main().create_tracker().unwrap();
    tracker
        .define(formula(&jit, counting("f", 1), improver))
        .unwrap();
    assert_eq!(function(&jit).call(0), 1);
    jit.main().pin("f", Some(Tier::Optimized)).unwrap();
    let better = paused.begun.recv_timeout(PATIENCE).unwrap();
    assert!(!better.is_cancelled());
    // SAFETY: no thread calls it.
    unsafe { tracker.remove().unwrap() };
    assert!(better.is_cancelled());
    paused.go.send(better).unwrap();
    assert!(paused.linked.recv_timeout(PATIENCE).unwrap().is_err());
    until("the end", || {
        all(&events).iter().any(|it| it == "cancelled")
    });
    assert!(jit.lookup("f").is_err());
    // It comes back under the same stub, and is improved as any.
    jit.main()
        .define(formula(&jit, counting("f", 1), by_tier))
        .unwrap();
    jit.compile_at("f", Tier::Optimized).unwrap();
    assert_eq!(function(&jit).call(0), 2);
    assert_eq!(all(&reports), Vec::<String>::new());
}

#[test]
fn a_function_is_replaced_while_it_gets_better() {
    let (jit, _, reports) = told(Jit::builder());
    let (improver, paused) = paused();
    jit.main()
        .define(formula(&jit, counting("f", 1), improver))
        .unwrap();
    let f = function(&jit);
    assert_eq!(f.call(0), 1);
    jit.main().pin("f", Some(Tier::Optimized)).unwrap();
    let better = paused.begun.recv_timeout(PATIENCE).unwrap();
    let ir = Replacement::ir("new", "define i64 @f(i64 %x) { ret i64 77 }");
    let replaced = jit.main().replace(ir).unwrap();
    assert_eq!(f.call(0), 77);
    assert!(better.is_cancelled());
    paused.go.send(better).unwrap();
    assert!(paused.linked.recv_timeout(PATIENCE).unwrap().is_err());
    assert_eq!(f.call(0), 77);
    // The way back leads to the unit, which is asked again.
    jit.main().pin("f", None).unwrap();
    replaced.rollback().unwrap();
    assert_eq!(f.call(0), 1);
    jit.main().pin("f", Some(Tier::Guided)).unwrap();
    loop {
        let better = paused.begun.recv_timeout(PATIENCE).unwrap();
        let tier = better.tier();
        paused.go.send(better).unwrap();
        let linked = paused.linked.recv_timeout(PATIENCE).unwrap();
        // This request may still be for the tier that was wanted of the body in between.
        if tier == Tier::Guided {
            break linked.unwrap();
        }
    }
    until("better code", || f.call(0) == 3);
    assert_eq!(all(&reports), Vec::<String>::new());
}

/// An improver that never answers holds up only the threads that want the answer.
#[test]
fn a_question_that_nobody_wants_answered_is_over() {
    let (jit, events, reports) = told(Jit::builder());
    let (sender, receiver) = channel::<ReoptimizeRequest>();
    let sender = Mutex::new(sender);
    let improver = move |better: ReoptimizeRequest| sender.lock().unwrap().send(better).unwrap();
    let tracker = jit.main().create_tracker().unwrap();
    tracker
        .define(formula(&jit, counting("f", 1), improver))
        .unwrap();
    let f = function(&jit);
    assert_eq!(f.call(0), 1);
    jit.main().pin("f", Some(Tier::Optimized)).unwrap();
    let first = receiver.recv_timeout(PATIENCE).unwrap();
    jit.main().pin("f", Some(Tier::Guided)).unwrap();
    let second = receiver.recv_timeout(PATIENCE).unwrap();
    assert!(first.is_cancelled() && !second.is_cancelled());
    // SAFETY: no thread calls it.
    unsafe { tracker.remove().unwrap() };
    let cancelled = || all(&events).iter().filter(|it| *it == "cancelled").count();
    until("the end of both", || cancelled() == 2);
    jit.main()
        .define(formula(&jit, counting("f", 1), by_tier))
        .unwrap();
    jit.main().pin("f", Some(Tier::Optimized)).unwrap();
    until("better code", || function(&jit).call(0) == 2);
    // Late answers are refused.
    for better in [first, second] {
        assert!(better.link("late.o", counting("f", 9)).is_err());
    }
    assert_eq!(function(&jit).call(0), 2);
    assert_eq!(all(&reports), Vec::<String>::new());
}

#[test]
fn better_code_is_replaced_and_comes_back() {
    let jit = Jit::new().unwrap();
    jit.main()
        .define(formula(&jit, counting("f", 1), by_tier))
        .unwrap();
    jit.compile_at("f", Tier::Optimized).unwrap();
    let f = function(&jit);
    let ir = Replacement::ir("new", "define i64 @f(i64 %x) { ret i64 77 }");
    let replaced = jit.main().replace(ir).unwrap();
    assert_eq!(f.call(0), 77);
    replaced.rollback().unwrap();
    assert_eq!(f.call(0), 2);
    assert_eq!(jit.tier("f").unwrap(), Some(Tier::Optimized));
}

#[test]
fn a_panic_is_a_failure_with_its_text() {
    let (jit, events, reports) = told(Jit::builder());
    let unit = formula(&jit, counting("f", 1), |better: ReoptimizeRequest| {
        panic!("tier {} is too much", better.tier().number());
    });
    jit.main().define(unit).unwrap();
    let f = function(&jit);
    assert_eq!(f.call(0), 1);
    let error = jit.compile_at("f", Tier::Guided).unwrap_err();
    assert!(error.to_string().contains("tier 3 is too much"), "{error}");
    // No thread waits for this compile.
    jit.main().pin("f", Some(Tier::Optimized)).unwrap();
    until("a report", || !all(&reports).is_empty());
    let reports = all(&reports);
    assert_eq!(reports.len(), 1, "{reports:?}");
    assert!(reports[0].contains("tier 2 is too much"), "{reports:?}");
    let failed = all(&events);
    let failed = failed.iter().filter(|event| event.starts_with("failed"));
    assert_eq!(failed.count(), 2);
    assert_eq!(f.call(0), 1);
    jit.main().pin("f", None).unwrap();
    // The threads for such code are still there.
    jit.main()
        .define(TestUnit::at(&jit, &[("g()", unit::address(unit::eight))]))
        .unwrap();
    assert_eq!(unit::call(&jit, "g"), 8);
}

#[test]
fn better_code_is_published_once_what_it_needs_is_ready() {
    let jit = Jit::new().unwrap();
    let unit = formula(&jit, counting("f", 1), |better: ReoptimizeRequest| {
        let mut code = ObjectBuilder::new();
        // mov rax, [rip + number]; mov rax, [rax]; ret
        let bytes = [0x48, 0x8b, 0x05, 0, 0, 0, 0, 0x48, 0x8b, 0, 0xc3];
        code.function("f", &bytes);
        code.refer(3, Reference::AddressWord, "number");
        better.link("better.o", code.finish().unwrap()).unwrap();
    });
    jit.main().define(unit).unwrap();
    static NUMBER: AtomicI64 = AtomicI64::new(0);
    let (number, kept) = TestUnit::kept(&jit, &["number"]);
    jit.main().define(number).unwrap();
    let f = function(&jit);
    assert_eq!(f.call(0), 1);
    jit.main().pin("f", Some(Tier::Optimized)).unwrap();
    let responsibility = kept.take();
    let address = [(jit.intern("number"), NUMBER.as_ptr() as u64)];
    responsibility.resolve(&address).unwrap();
    // It has an address, and is not written yet.
    assert_eq!(f.call(0), 1);
    NUMBER.store(42, Ordering::Relaxed);
    responsibility.emit(&[]).unwrap();
    until("better code", || f.call(0) == 42);
}

#[test]
fn better_code_is_not_published_if_what_it_needs_fails() {
    let (jit, _, reports) = told(Jit::builder());
    let unit = formula(&jit, counting("f", 1), |better: ReoptimizeRequest| {
        let mut code = ObjectBuilder::new();
        code.function("f", &[0x48, 0x8b, 0x05, 0, 0, 0, 0, 0xc3]);
        code.refer(3, Reference::AddressWord, "number");
        // It may have failed before, or fail now, or after this.
        let _ = better.link("better.o", code.finish().unwrap());
    });
    jit.main().define(unit).unwrap();
    let (number, kept) = TestUnit::kept(&jit, &["number"]);
    jit.main().define(number).unwrap();
    let f = function(&jit);
    assert_eq!(f.call(0), 1);
    jit.main().pin("f", Some(Tier::Optimized)).unwrap();
    let responsibility = kept.take();
    let address = [(jit.intern("number"), 0x1234)];
    responsibility.resolve(&address).unwrap();
    responsibility.fail(unit::oops());
    until("a report", || !all(&reports).is_empty());
    assert_eq!(f.call(0), 1);
    assert_eq!(jit.tier("f").unwrap(), Some(Tier::Baseline));
    assert!(
        session(
            jit.lookup_all(ask(&jit).symbol(jit.intern("number")))
                .map(drop)
        )
        .names()
        .is_some()
    );
}

#[test]
fn many_threads_make_and_call_a_function() {
    let jit = Jit::new().unwrap();
    jit.main()
        .define(formula(&jit, counting("f", 1), by_tier))
        .unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let calling = (0..2).map(|_| {
            let (jit, over) = (&jit, &over);
            scope.spawn(move || {
                let f = function(jit);
                while !over.load(Ordering::Relaxed) {
                    assert!((1..=3).contains(&f.call(10)));
                }
            })
        });
        let calling: Vec<_> = calling.collect();
        let making = [Tier::Optimized, Tier::Guided].map(|tier| {
            let jit = &jit;
            scope.spawn(move || {
                for _ in 0..200 {
                    match jit.compile_at("f", tier) {
                        // The other one's is later.
                        Ok(()) | Err(Error::Version { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            })
        });
        // Code moves meanwhile.
        while making.iter().any(|thread| !thread.is_finished()) {
            jit.reclaim(ReclaimKind::Evacuate, PATIENCE);
        }
        for thread in making {
            thread.join().unwrap();
        }
        over.store(true, Ordering::Relaxed);
        calling.into_iter().for_each(|it| it.join().unwrap());
    });
    until("the end of old code", || {
        jit.reclaim(ReclaimKind::Sweep, PATIENCE);
        jit.stats().memory.freed > 100
    });
}

/// Ends a child of `fork` with what `work` says, or by a signal if it takes too long.
fn child(work: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child only uses the session and ends.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork");
    if pid == 0 {
        // SAFETY: as above.
        unsafe {
            libc::alarm(60);
            libc::_exit(if work() { 0 } else { 1 });
        }
    }
    let mut status = 0;
    // SAFETY: our child.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    status == 0
}

/// In a child, no thread answers the questions that were under way.
#[test]
fn a_child_of_a_fork_asks_anew() {
    let jit = Jit::new().unwrap();
    let (sender, receiver) = channel::<ReoptimizeRequest>();
    let sender = Mutex::new(sender);
    let later = Arc::new(AtomicBool::new(true));
    let keeps = Arc::clone(&later);
    let unit = formula(
        &jit,
        counting("f", 1),
        move |better: ReoptimizeRequest| match keeps.load(Ordering::Relaxed) {
            true => sender.lock().unwrap().send(better).unwrap(),
            false => by_tier(better),
        },
    );
    jit.main().define(unit).unwrap();
    let f = function(&jit);
    assert_eq!(f.call(0), 1);
    // As many as there may be.
    let asking = [(); 4].map(|()| {
        let jit = jit.clone();
        std::thread::spawn(move || jit.compile_at("f", Tier::Optimized).is_ok())
    });
    let begun = [(); 4].map(|()| receiver.recv_timeout(PATIENCE).unwrap());
    assert!(jit.compile_at("f", Tier::Guided).is_err(), "too many");
    assert!(child(|| {
        later.store(false, Ordering::Relaxed);
        jit.compile_at("f", Tier::Guided).is_ok() && f.call(0) == 3
    }));
    begun.into_iter().for_each(by_tier);
    assert!(asking.into_iter().any(|thread| thread.join().unwrap()));
    assert_eq!(f.call(0), 2);
}
