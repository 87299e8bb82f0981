//! The parts that better code is made of, and the places it goes to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use uruk::{Jit, ObjectBuilder, ReclaimKind, Reference, ReoptimizeRequest, Tier};

use super::formula::{Words, by_tier, counting, formula, function, until, waiting};
use crate::unit::PATIENCE;

#[test]
fn old_code_is_freed_once_nobody_is_inside() {
    let jit = Jit::new().unwrap();
    let unit = formula(&jit, waiting("f", 1), |better: ReoptimizeRequest| {
        let code = waiting("f", better.tier().number());
        better.link("better.o", code).unwrap();
    });
    jit.main().define(unit).unwrap();
    let limit = Duration::from_secs(10);
    let sweep = |jit: &Jit| jit.reclaim(ReclaimKind::Sweep, limit);
    // The unit's own code, then better code: each is left while a thread is in it.
    let tiers = [None, Some(Tier::Optimized), Some(Tier::Guided)];
    for tier in tiers {
        if let Some(tier) = tier {
            jit.compile_at("f", tier).unwrap();
        }
        let number = tier.map_or(1, |tier| i64::from(tier.number()));
        let words = Arc::new(Words::default());
        let inside = std::thread::spawn({
            let (f, words) = (function(&jit), Arc::clone(&words));
            move || f.call(words.address())
        });
        until("a call", || words.inside.load(Ordering::Relaxed) == 1);
        // The one before a version is kept for a while, to go back to; not that before it.
        jit.compile_at("f", Tier::Optimized).unwrap();
        jit.compile_at("f", Tier::Guided).unwrap();
        until("a sweep", || sweep(&jit) && jit.stats().memory.pinned > 0);
        let before = jit.stats().memory;
        words.go.store(1, Ordering::Relaxed);
        assert_eq!(inside.join().unwrap(), number);
        until("the end of old code", || {
            let memory = jit.stats().memory;
            sweep(&jit) && memory.pinned == 0 && memory.freed > before.freed
        });
    }
    // It runs on, wherever it is moved.
    let words = Words::default();
    words.go.store(1, Ordering::Relaxed);
    assert!(jit.reclaim(ReclaimKind::Evacuate, limit));
    assert!(jit.stats().memory.moved.0 > 0);
    assert_eq!(function(&jit).call(words.address()), 3);
}

#[test]
fn what_a_version_keeps_goes_with_its_code() {
    struct Dropped(Arc<AtomicBool>);
    impl uruk::Resource for Dropped {
        fn release(self: Box<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let jit = Jit::new().unwrap();
    let gone: [Arc<AtomicBool>; 2] = Default::default();
    let flags = gone.clone();
    let unit = formula(
        &jit,
        counting("f", 1),
        move |mut better: ReoptimizeRequest| match better.tier() {
            Tier::Baseline => {
                better.attach(Dropped(Arc::clone(&flags[0])));
                better.decline();
            }
            Tier::Optimized => {
                better.attach(Dropped(Arc::clone(&flags[1])));
                by_tier(better);
            }
            Tier::Native | Tier::Guided => by_tier(better),
        },
    );
    jit.main().define(unit).unwrap();
    jit.compile_at("f", Tier::Optimized).unwrap();
    // There is no version that it would be kept for.
    jit.compile_at("f", Tier::Baseline).unwrap_err();
    until("a release", || gone[0].load(Ordering::Relaxed));
    assert!(!gone[1].load(Ordering::Relaxed));
    assert_eq!(function(&jit).call(0), 2);
    for _ in 0..2 {
        jit.compile_at("f", Tier::Guided).unwrap();
    }
    until("a release", || {
        jit.reclaim(ReclaimKind::Sweep, PATIENCE);
        gone[1].load(Ordering::Relaxed)
    });
}

extern "C" fn nine(_: i64) -> i64 {
    9
}

#[test]
fn better_code_may_be_anywhere() {
    let jit = Jit::new().unwrap();
    let unit = formula(&jit, counting("f", 1), |better: ReoptimizeRequest| {
        better.resolve(nine as *const () as u64).unwrap();
    });
    jit.main().define(unit).unwrap();
    let f = function(&jit);
    assert_eq!(f.call(0), 1);
    jit.compile_at("f", Tier::Optimized).unwrap();
    assert_eq!(f.call(0), 9);
}

/// Better code calls itself through its stub, uses the data of the unit under its name, and what it
/// has of its own stays if its address can be kept.
#[test]
fn names_mean_what_they_mean_elsewhere() {
    let jit = Jit::new().unwrap();
    jit.add_ir("data", "@shared = global i64 5").unwrap();
    let unit = formula(&jit, counting("f", 1), |better: ReoptimizeRequest| {
        let mut code = ObjectBuilder::new();
        match better.tier() {
            // lea rax, [rip + own]; ret
            Tier::Optimized => {
                code.data("own", &77_u64.to_le_bytes(), 8, false);
                code.function("f", &[0x48, 0x8d, 0x05, 0, 0, 0, 0, 0xc3]);
                code.refer(3, Reference::Near, "own");
            }
            // test rdi, rdi; jz +8; xor edi, edi; jmp f; nop; mov rax, [rip + shared];
            // mov rax, [rax]; ret
            _ => {
                code.data("shared", &6_u64.to_le_bytes(), 8, false);
                let bytes = [
                    0x48, 0x85, 0xff, 0x74, 0x08, 0x31, 0xff, 0xe9, 0, 0, 0, 0, 0x90, 0x48, 0x8b,
                    0x05, 0, 0, 0, 0, 0x48, 0x8b, 0, 0xc3,
                ];
                code.function("f", &bytes);
                code.refer(8, Reference::Call, "f");
                code.refer(16, Reference::AddressWord, "shared");
            }
        }
        better.link("better.o", code.finish().unwrap()).unwrap();
    });
    jit.main().define(unit).unwrap();
    let f = function(&jit);
    assert_eq!(f.call(0), 1);
    jit.compile_at("f", Tier::Optimized).unwrap();
    let own = f.call(0) as *const i64;
    jit.compile_at("f", Tier::Guided).unwrap();
    assert_eq!((f.call(0), f.call(1)), (5, 5));
    jit.compile_at("f", Tier::Guided).unwrap();
    let freed = |jit: &Jit| jit.stats().memory.freed;
    until("the end of old code", || {
        jit.reclaim(ReclaimKind::Sweep, PATIENCE) && freed(&jit) > 0
    });
    // SAFETY: the variable of a version that stays for it.
    assert_eq!(unsafe { own.read() }, 77);
}

#[test]
fn objects_that_are_no_version_are_refused() {
    let jit = Jit::new().unwrap();
    let unit = formula(&jit, counting("f", 1), |better: ReoptimizeRequest| {
        let wrong = match better.tier() {
            Tier::Optimized => counting("g", 2),
            _ => b"not an object".to_vec(),
        };
        better.link("wrong.o", wrong).unwrap_err();
    });
    jit.main().define(unit).unwrap();
    let error = jit.compile_at("f", Tier::Optimized).unwrap_err();
    assert!(error.to_string().contains("`f`"), "{error}");
    jit.compile_at("f", Tier::Guided).unwrap_err();
    assert_eq!(function(&jit).call(0), 1);
}

#[test]
fn better_code_goes_with_its_function() {
    let jit = Jit::new().unwrap();
    for round in 0..3 {
        // On a stack of its own, which is gone before anybody looks for what it holds.
        let own = || {
            let tracker = jit.main().create_tracker().unwrap();
            tracker
                .define(formula(&jit, counting("f", 1), by_tier))
                .unwrap();
            jit.compile_at("f", Tier::Optimized).unwrap();
            assert_eq!(function(&jit).call(0), 2, "round {round}");
            let before = jit.stats().memory.freed;
            // SAFETY: no thread calls it.
            unsafe { tracker.remove().unwrap() };
            assert!(jit.lookup("f").is_err());
            before
        };
        let before = std::thread::scope(|scope| scope.spawn(own).join().unwrap());
        // Its own code and the better one.
        until("the end of its code", || {
            jit.reclaim(ReclaimKind::Sweep, PATIENCE) && jit.stats().memory.freed == before + 2
        });
    }
}
